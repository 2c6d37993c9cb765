"""The filter in the coding loop of a stream, for the decoder `codecnn.vvc.decoder`.

`LoopFilter` reads the message that each picture carries (docs/reference/loop_filter.md), finds the weights by their
SHA-256, and filters the picture as the encoder did, in integers.
"""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from codecnn.base.errors import FormatError, MissingFileError, ModelError, UnsupportedError
from codecnn.base.files import sha256_file
from codecnn.base.planes import SLICE_TYPES
from codecnn.filtering import QP_OFFSETS, Decisions, Filtered, PictureFilter, round_samples, slice_type_plane
from codecnn.filtering.decisions import (
    Arithmetic,
    LoopParameters,
    Placement,
    SignalledDecision,
    apply_decision,
    read_message,
    write_message,
)
from codecnn.filtering.integer import ExactFilter, integer_path, is_integer, load_integer
from codecnn.models import card_path, path_of_sha256, weights_path
from codecnn.models.graph import Array
from codecnn.pictures.files import Picture, VideoFormat
from codecnn.vvc.decoder import HookedPicture
from codecnn.vvc.syntax import (
    CHROMA_FORMATS,
    LOOP_FILTER_UUID,
    PREFIX_SEI,
    SUFFIX_SEI,
    USER_DATA_UNREGISTERED,
    ParsedPicture,
    SeiMessage,
    md5_message,
    sei_unit,
)


class LoopFilter:
    """The hook of `codecnn.vvc.decoder` for streams that were coded with a CNN filter in the loop.

        from codecnn.signalling.in_loop import LoopFilter
        from codecnn.codec import read_pictures

        for poc, planes in read_pictures("stream.266", ("rec_y", "rec_u", "rec_v"), hook=LoopFilter()):
            ...

    Pictures of a coded video sequence without messages are returned unchanged. Every stream needs a new hook.

    Args:
        weights: Weights of the filter, a file or a name; None finds them among those that come with the package.
        device: Device to compute on, which changes no sample.
    """

    def __init__(self, weights: Path | str | None = None, *, device: str | torch.device = "cpu") -> None:
        self.weights = weights
        self.device = device
        self._parameters: LoopParameters | None = None
        self._filters: dict[str, ExactFilter] = {}

    def __call__(self, picture: ParsedPicture, planes: list[Array]) -> HookedPicture:
        """Filter a picture as the encoder did; see `codecnn.vvc.decoder.PictureHook`.

        Args:
            picture: The parsed picture.
            planes: Its components after the in-loop filters, each (h, w).

        Returns:
            The components that later pictures refer to, and those that are output.

        Raises:
            FormatError: The message is damaged or missing, or it does not fit the picture.
            UnsupportedError: The message has another version, or the network was computed in float.
            MissingFileError: The weights do not come with the package, and none are given.
            ModelError: The weights are others than those of the stream, or they cannot be loaded.
        """
        if picture.first:
            self._parameters = None
        message = picture.loop_filter
        if message is None:
            if self._parameters is not None:
                raise FormatError("the picture has no message of the filter in the loop, but the pictures before have")
            return HookedPicture(planes, planes)
        height, width = planes[0].shape
        signalled = read_message(message, (height, width), self._parameters)
        parameters = signalled.parameters
        if parameters != self._parameters:
            self._check(parameters, picture, len(planes))
        self._parameters = parameters
        depth = parameters.bit_depth
        form = VideoFormat(width, height, CHROMA_FORMATS[picture.sps.sps_chroma_format_idc], depth)
        decoded = Picture(tuple(plane.astype(form.dtype) for plane in planes), depth)
        filtered = self._filtered(picture, decoded, form, parameters, signalled.decision)
        if signalled.output_md5 is None:
            return HookedPicture(list(filtered.planes), list(filtered.planes))
        proven = output_md5(filtered) == signalled.output_md5
        return HookedPicture(list(decoded.planes), list(filtered.planes), proven)

    def _filtered(
        self,
        picture: ParsedPicture,
        decoded: Picture,
        form: VideoFormat,
        parameters: LoopParameters,
        decision: SignalledDecision | None,
    ) -> Picture:
        """Filter a decoded picture by a decision; None filters all of it."""
        if decision is not None and all(mode == "off" for mode in decision.modes.values()):
            return decoded
        headers = [part.header for part in picture.slices]
        qps = {header.slice_qp_y for header in headers}
        if len(qps) > 1:
            raise FormatError(f"the slices have the QPs {sorted(qps)}, and a filter in the loop needs one")
        filter_ = self._loaded(parameters)
        slice_type = max((header.slice_type for header in headers), key=lambda kind: SLICE_TYPES[kind])
        planes = slice_type_plane(filter_.planes, slice_type, form)
        qp = qps.pop() + (0 if decision is None else decision.qp_offset)
        samples = filter_.samples(decoded, qp, planes)
        if decision is None:
            return round_samples(decoded, samples)
        return apply_decision(decoded, samples, decision, parameters.ctu_size)

    def _check(self, parameters: LoopParameters, picture: ParsedPicture, components: int) -> None:
        """Raise FormatError or UnsupportedError if parameters do not fit the picture or the decoder."""
        if parameters.arithmetic == "float":
            raise UnsupportedError(
                "the filter in the loop was computed in float, which gives other samples on other machines: code the "
                "stream again with integers (codecnn evaluate-loop --exact)"
            )
        if parameters.bit_depth != picture.sps.bit_depth or len(parameters.components) > components:
            raise FormatError(
                f"the filter in the loop filters {', '.join(parameters.components)} of {parameters.bit_depth} bit, and "
                f"the picture has {components} components of {picture.sps.bit_depth} bit"
            )
        outputs = self._loaded(parameters).outputs
        if outputs != parameters.components:
            raise FormatError(
                f"the message says that the filter in the loop filters {', '.join(parameters.components)}, and its "
                f"weights filter {', '.join(outputs)}"
            )

    def _loaded(self, parameters: LoopParameters) -> ExactFilter:
        """Return the filter of the weights, loaded once."""
        sha256 = parameters.sha256
        if sha256 not in self._filters:
            network, card = load_integer(self._find(sha256))
            self._filters[sha256] = ExactFilter(network, device=self.device, card=card)
        return self._filters[sha256]

    def _find(self, sha256: str) -> Path:
        """Find the weights file of a SHA-256."""
        if self.weights is None:
            path = path_of_sha256(sha256)
            if path is None:
                raise MissingFileError(
                    f"the stream was coded with a CNN filter in the loop whose weights (SHA-256 {sha256}) do not come "
                    "with codecnn: name the file with -m"
                )
            return path
        given = weights_path(self.weights)
        if not given.is_file():
            raise MissingFileError(f"{given} does not exist")
        forms = [given] if is_integer(given) else [integer_path(given, bits) for bits in (8, 16)]
        for path in forms:
            if path.is_file() and card_path(path).is_file() and sha256_file(path) == sha256:
                return path
        raise ModelError(
            f"{given} (SHA-256 {sha256_file(given)}) and its integer forms are not the weights that the stream was "
            f"coded with (SHA-256 {sha256}): name those with -m, or leave out -m"
        )


def output_md5(picture: Picture) -> bytes:
    """Compute the MD5 of all components of a picture, row by row; samples of more than 8 bit are little-endian."""
    digest = hashlib.md5(usedforsecurity=False)
    for plane in picture.planes:
        digest.update(plane.astype(np.uint8 if picture.bit_depth == 8 else "<u2").tobytes())
    return digest.digest()


def loop_parameters(
    filter_: PictureFilter,
    sha256: str | None,
    bit_depth: int,
    decisions: Decisions,
    ctu_size: int,
    placement: Placement = "in_loop",
) -> LoopParameters:
    """Describe a filter in the coding loop for the messages of its stream.

    Args:
        filter_: The filter.
        sha256: SHA-256 of its weights file; a filter without a file has none, or a name in its place.
        bit_depth: Bit depth of the samples.
        decisions: Kind of decisions.
        ctu_size: Width of a CTU of the decisions in luma samples.
        placement: Place of the filter.
    """
    arithmetic: Arithmetic = "float"
    if isinstance(filter_, ExactFilter):
        arithmetic = "int8" if filter_.network.bits == 8 else "int16"
    known = sha256 if sha256 is not None and re.fullmatch("[0-9a-f]{64}", sha256) else "0" * 64
    offsets = () if decisions == "none" else QP_OFFSETS[decisions] if "qp" in filter_.planes else (0,)
    return LoopParameters(arithmetic, known, bit_depth, ctu_size, filter_.outputs, offsets, placement)


@dataclass(frozen=True)
class PictureMessages:
    """SEI messages of a picture that was filtered in the coding loop.

    Attributes:
        message: User data with the decision; of an intra picture with the parameters, too.
        picture_hash: MD5 of the picture that later pictures refer to.
        decision_bits: Bits of the decision within the message.
    """

    message: SeiMessage
    picture_hash: SeiMessage
    decision_bits: int

    @property
    def bits(self) -> dict[str, int]:
        """Bits of the decision (`flag_bits`), of the NAL unit with the message, and of that with the hash."""
        return {
            "flag_bits": self.decision_bits,
            "message_bits": 8 * len(sei_unit(PREFIX_SEI, 0, [self.message])),
            "hash_bits": 8 * len(sei_unit(SUFFIX_SEI, 0, [self.picture_hash])),
        }


def picture_messages(
    parameters: LoopParameters, filtered: Filtered, slice_type: str, behind: Picture | None = None
) -> PictureMessages:
    """Write the messages of a picture.

    Args:
        parameters: Parameters of the filter.
        filtered: The filtered picture and its decision.
        slice_type: Most general type of its slices; an intra picture may begin a coded video sequence.
        behind: The decoded picture, if the picture is filtered behind the loop.
    """
    is_on = filtered.decision is None or any(mode != "off" for mode in filtered.decision.modes.values())
    md5 = output_md5(filtered.picture) if behind is not None and is_on else None
    message = write_message(parameters, filtered.decision, activate=slice_type == "I", output_md5=md5)
    reference = filtered.picture if behind is None else behind
    return PictureMessages(
        SeiMessage(USER_DATA_UNREGISTERED, LOOP_FILTER_UUID + message.payload),
        md5_message(reference.planes, reference.bit_depth),
        message.decision_bits,
    )
