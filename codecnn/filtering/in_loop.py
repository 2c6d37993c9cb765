"""The back end of stores whose pictures a filter in the loop got: before it, predicted from those that it made.

`in_loop_codec` makes it of what a recipe says. It names files and holds no network, so that it can be sent to the
workers of a cluster.
"""

from dataclasses import dataclass
from pathlib import Path

from codecnn.codec import (
    DECISIONS,
    CodecSettings,
    CodedPicture,
    CodedSequence,
    LoopFacts,
    code_in_loop,
    coded_format,
    find_library,
    load_library,
    loop_params,
)
from codecnn.dataset import InLoopSpec
from codecnn.errors import ConfigError, ModelError
from codecnn.filtering._base import PictureFilter
from codecnn.filtering._decide import Decisions, filter_and_decide
from codecnn.filtering._inputs import slice_type_beside
from codecnn.filtering._load import load_filter
from codecnn.filtering._picture_filter import NetworkFilter
from codecnn.filtering.decisions import Decision, write_decisions
from codecnn.filtering.integer import integers_beside, is_integer
from codecnn.models import weights_path
from codecnn.planes import SLICE_TYPE_PLANE
from codecnn.runs import sha256_file
from codecnn.video import Picture, VideoFormat, create_video, open_raw

SERVED = ("rec_y", "rec_u", "rec_v", "qp", SLICE_TYPE_PLANE)
"""Planes of a network that can be had inside the loop: what the callback hands out."""


def check_served(name: str, filter_: PictureFilter) -> None:
    """Raise ModelError where the filter `name` needs more than the callback hands out."""
    if missing := [plane for plane in filter_.planes if plane not in SERVED]:
        raise ModelError(f"{name} needs the plane {missing[0]!r}, which libvvenc does not hand out in the loop")


def in_loop_codec(spec: InLoopSpec, folder: Path) -> "InLoopCodec":
    """The back end that the recipe in `folder` asks for.

    Raises ToolMissingError or MissingFileError for the library, MissingFileError or ModelError for the weights.
    """
    named = None if spec.library is None else folder / Path(spec.library).expanduser()
    library = find_library(named)
    beside = folder / Path(spec.weights).expanduser()
    weights = beside if beside.is_file() else weights_path(spec.weights)
    if spec.exact and not is_integer(weights):
        weights = integers_beside(weights)
    # The same file again, so that what does not fit is said before anything is coded.
    check_served(spec.weights, load_filter(weights))
    return InLoopCodec(weights.absolute(), sha256_file(weights), spec.decisions, library.path.absolute())


@dataclass(frozen=True)
class InLoopCodec:
    """libvvenc as a library, with the filter of `weights` in its loop; see `codecnn.codec.base.Codec` for the contract.

    `sha256` is that of the weights, which may not change meanwhile. They are loaded for each sequence, since a network
    that is made ready serves one thread.
    """

    weights: Path
    sha256: str
    decisions: Decisions
    library: Path
    name = "vvc"

    def identity(self) -> str:
        """For example "libvvenc 1.15.0-dev with low_cost_17 (0123456789ab) in the loop, decisions ctu"."""
        filter_ = f"{self.weights.stem} ({self.sha256[:12]})"
        return f"libvvenc {load_library(self.library).version} with {filter_} in the loop, decisions {self.decisions}"

    def encode(self, source: Path, source_format: VideoFormat, settings: CodecSettings, folder: Path) -> CodedSequence:
        """Code `source` into `folder`: bitstream.266, decoded.yuv (before the filter), log.txt, and of decisions
        decisions.vtmbmsstats.

        Raises as `code_in_loop`, and ConfigError where the weights are others than they were.
        """
        folder.mkdir(parents=True, exist_ok=True)
        filter_, form = self._load(), coded_format(source_format, settings)
        bitstream, decoded, log = folder / "bitstream.266", folder / "decoded.yuv", folder / "log.txt"
        decided: list[Decision] = []
        ctu = settings.ctu_size
        assert ctu is not None, "as a recipe has one"
        with open_raw(source, source_format) as originals, create_video(decoded, form) as before:
            numbers = iter(range(len(originals)))

            def through(coded: CodedPicture, picture: Picture) -> Picture:
                before.write(picture)
                original = originals[next(numbers)]
                beside = slice_type_beside(filter_.planes, coded.slice_type, form)
                made = filter_and_decide(filter_, original, picture, coded.qp, beside, self.decisions, ctu)
                decided.extend([made.decision] if made.decision else [])
                return made.picture

            library = load_library(self.library)
            pictures, seconds = code_in_loop(library, originals, source_format, settings, bitstream, through, log)
        if decided:
            write_decisions(folder / DECISIONS, decided, form.width, form.height, ctu)
        told = {"preset": settings.preset, "QP": str(settings.qp)} | loop_params(settings, form)
        return CodedSequence(
            bitstream=bitstream,
            decoded=decoded,
            format=form,
            pictures=pictures,
            argv=("libvvenc", *(f"{name}={value}" for name, value in told.items())),
            encoder=self.identity(),
            log=log,
            encoder_seconds=seconds,
            in_loop=LoopFacts(self.weights.stem, str(filter_.card.network), self.sha256, self.decisions),
        )

    def _load(self) -> NetworkFilter:
        if sha256_file(self.weights) != self.sha256:
            raise ConfigError(f"{self.weights} has become another file while a store was coded with it in the loop")
        return load_filter(self.weights)
