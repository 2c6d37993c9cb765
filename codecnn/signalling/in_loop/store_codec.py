"""An encoder back end with a filter in its loop, for stores of pictures before that filter.

A store for training a filter inside the coding loop needs pictures that are predicted from filtered pictures, recorded
before the filter. `in_loop_codec` builds the back end from a recipe. The back end holds file names and no network, so
that it can be sent to the workers of a cluster.
"""

from dataclasses import dataclass
from pathlib import Path

from codecnn.base.errors import ConfigError, ModelError
from codecnn.base.files import content_sha256, sha256_file
from codecnn.base.planes import SLICE_TYPE_PLANE
from codecnn.codec import DECISIONS_FILE, CodecSettings, CodedPicture, CodedSequence, LoopFacts, coded_format
from codecnn.dataset import InLoopSpec
from codecnn.filtering import (
    Decision,
    Decisions,
    NetworkFilter,
    PictureFilter,
    filter_and_decide,
    filter_key,
    load_filter,
    slice_type_plane,
    write_decisions,
)
from codecnn.filtering.decisions import LOOP_SCALE_STEP
from codecnn.filtering.integer import find_integers, is_integer
from codecnn.models import weights_path
from codecnn.pictures.files import Picture, VideoFormat, create_video, open_raw
from codecnn.signalling.in_loop.encoder import code_in_loop, loop_params
from codecnn.signalling.in_loop.messages import MessageWriter, loop_parameters
from codecnn.signalling.in_loop.vvenc_library import find_library, load_library

IN_LOOP_PLANES = ("rec_y", "rec_u", "rec_v", "qp", SLICE_TYPE_PLANE)
"""Planes that libvvenc's callback provides inside the coding loop."""


def check_in_loop(name: str, filter_: PictureFilter) -> None:
    """Raise ModelError if a filter needs a plane that libvvenc's callback does not provide.

    Args:
        name: Name of the filter, for the message.
        filter_: The filter.
    """
    if missing := [plane for plane in filter_.planes if plane not in IN_LOOP_PLANES]:
        raise ModelError(f"{name} needs the plane {missing[0]!r}, which libvvenc does not provide in the loop")


def in_loop_codec(spec: InLoopSpec, folder: Path) -> "InLoopCodec":
    """Build the back end that a recipe asks for.

    Args:
        spec: The recipe's filter in the loop: weights, decisions and library.
        folder: Folder of the recipe, which relative paths start from.

    Returns:
        The back end.

    Raises:
        ToolMissingError: There is no libvvenc to load.
        MissingFileError: The library or the weights do not exist.
        ModelError: The weights are damaged, or the filter cannot run in the loop.
    """
    library_path = None if spec.library is None else folder / Path(spec.library).expanduser()
    library = find_library(library_path)
    in_folder = folder / Path(spec.weights).expanduser()
    weights = in_folder if in_folder.is_file() else weights_path(spec.weights)
    if spec.exact and not is_integer(weights):
        weights = find_integers(weights)
    # `encode` loads the file again; loading it here reports an error before anything is coded.
    filter_ = load_filter(weights)
    check_in_loop(spec.weights, filter_)
    facts = weights.absolute(), sha256_file(weights), filter_key(filter_)
    return InLoopCodec(*facts, spec.decisions, library.path.absolute())


@dataclass(frozen=True)
class InLoopCodec:
    """libvvenc as a library with a filter in its loop; see `codecnn.codec.base.Codec` for the contract.

    The weights are loaded for each sequence, because a prepared network serves one thread.

    Attributes:
        weights: Weights file of the filter.
        sha256: SHA-256 of the weights file.
        key: `filter_key` of the filter, which must not change while a store is built.
        decisions: Kind of decisions.
        library: Path of libvvenc.
    """

    weights: Path
    sha256: str
    key: str
    decisions: Decisions
    library: Path
    name = "vvc"

    def identity(self) -> str:
        """Describe the encoder, e.g. "libvvenc 1.15.0-dev (5feceb66ffc8) with low_cost_17 (0123456789ab) in the loop".

        The hexadecimal digits are those of the file of the library, and of the filter's `filter_key`.

        The end of the text, "in slice headers", says where the bitstream carries the decisions.
        """
        filter_ = f"{self.weights.stem} ({self.key[:12]})"
        version = f"{load_library(self.library).version} ({content_sha256(self.library)[:12]})"
        return f"libvvenc {version} with {filter_} in the loop, decisions {self.decisions} in slice headers"

    def encode(self, source: Path, source_format: VideoFormat, settings: CodecSettings, folder: Path) -> CodedSequence:
        """Code a sequence with the filter in the loop.

        Args:
            source: Raw video file.
            source_format: Format of the video.
            settings: Settings of the encoder.
            folder: Folder for bitstream.266, decoded.yuv (pictures before the filter), log.txt and, if decisions are
                taken, decisions.vtmbmsstats.

        Returns:
            The coded sequence.

        Raises:
            ConfigError: The weights file has changed.
            CodecnnError: Coding fails; see `code_in_loop`.
        """
        folder.mkdir(parents=True, exist_ok=True)
        filter_, form = self._load(), coded_format(source_format, settings)
        bitstream, decoded, log = folder / "bitstream.266", folder / "decoded.yuv", folder / "log.txt"
        decisions: list[Decision] = []
        ctu = settings.ctu_size
        assert ctu is not None, "a recipe states the CTU size"
        # Bits of a unit are those of the encoder's log, so that hashes change no figure.
        parameters = loop_parameters(filter_, self.sha256, self.decisions, ctu)
        messages = MessageWriter(parameters, picture_hashes=True)
        with open_raw(source, source_format) as originals, create_video(decoded, form) as before_filter:
            numbers = iter(range(len(originals)))

            def filter_picture(coded: CodedPicture, picture: Picture) -> Picture:
                before_filter.write(picture)
                original = originals[next(numbers)]
                planes = slice_type_plane(filter_.planes, coded.slice_type, form)
                filtered = filter_and_decide(
                    filter_, original, picture, coded.qp, planes, self.decisions, ctu, LOOP_SCALE_STEP
                )
                decisions.extend([filtered.decision] if filtered.decision else [])
                messages.put(filtered, coded.slice_type, coded.qp)
                return filtered.picture

            library = load_library(self.library)
            pictures, seconds = code_in_loop(
                library, originals, source_format, settings, bitstream, filter_picture, log, messages.add
            )
        if decisions:
            write_decisions(folder / DECISIONS_FILE, decisions, form.width, form.height, ctu)
        options = {"preset": settings.preset, "QP": str(settings.qp)} | loop_params(settings, form)
        return CodedSequence(
            bitstream=bitstream,
            decoded=decoded,
            format=form,
            pictures=pictures,
            argv=("libvvenc", *(f"{name}={value}" for name, value in options.items())),
            encoder=self.identity(),
            log=log,
            encoder_seconds=seconds,
            in_loop=LoopFacts(self.weights.stem, str(filter_.card.network), self.sha256, self.decisions),
        )

    def _load(self) -> NetworkFilter:
        filter_ = load_filter(self.weights)
        if filter_key(filter_) != self.key:
            raise ConfigError(
                f"{self.weights} has changed while a store was being coded with it in the loop: build the store again"
            )
        return filter_
