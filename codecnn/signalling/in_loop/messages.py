"""Parameters and decisions that a filter in the loop adds to a stream; docs/reference/loop_filter.md has the syntax.

`MessageWriter` takes the decision on each picture when its filter has run, and writes it into the slice header of the
access unit that the encoder returns next. A decoder thus has the decision before the picture, without delay.
"""

import hashlib
import re
from dataclasses import dataclass

import numpy as np

from codecnn.base.errors import UnsupportedError
from codecnn.filtering import QP_OFFSETS, Decisions, Filtered, LoopParameters, PictureFilter, Placement
from codecnn.filtering.decisions import ID_DIGITS, Arithmetic, DecisionWriter, is_off, write_parameters
from codecnn.filtering.integer import ExactFilter
from codecnn.pictures.files import Picture
from codecnn.vvc.syntax import (
    MAX_EXTENSION_BYTES,
    OUTPUT_MD5_UUID,
    USER_DATA_UNREGISTERED,
    SeiMessage,
    SliceExtensionWriter,
    add_sei,
    extension_bits,
    md5_message,
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
    decisions: Decisions,
    ctu_size: int,
    placement: Placement = "in_loop",
) -> LoopParameters:
    """Describe a filter in the coding loop for the messages of its stream.

    Args:
        filter_: The filter.
        sha256: SHA-256 of its weights file; a filter without a file has none, or a name in its place.
        decisions: Kind of decisions.
        ctu_size: Width of a CTU of the decisions in luma samples.
        placement: Place of the filter.
    """
    arithmetic: Arithmetic = "float"
    if isinstance(filter_, ExactFilter):
        arithmetic = "int8" if filter_.network.bits == 8 else "int16"
    known = sha256 if sha256 is not None and re.fullmatch("[0-9a-f]{64}", sha256) else "0" * 64
    offsets = () if decisions == "none" else QP_OFFSETS[decisions] if "qp" in filter_.planes else (0,)
    return LoopParameters(arithmetic, known[:ID_DIGITS], ctu_size, filter_.outputs, offsets, placement)


@dataclass(frozen=True)
class _Added:
    """Additions to the access unit of a picture.

    Attributes:
        extension: Parameters and decision, for the extension of the slice header.
        prefix: SEI message before the slices, with the MD5 of an output that later pictures do not refer to.
        suffix: SEI message after the slices, with the hash of the picture that they refer to.
    """

    extension: bytes
    prefix: list[SeiMessage]
    suffix: list[SeiMessage]


class MessageWriter:
    """Writes the messages of a stream.

    Args:
        parameters: Parameters of the filter.
        picture_hashes: Add MD5s of the pictures, with which a decoder compares its own.

    Attributes:
        bits: Bits that parameters and decision added to each access unit, and those that its hashes added.
    """

    def __init__(self, parameters: LoopParameters, *, picture_hashes: bool = False) -> None:
        self.parameters, self.picture_hashes = parameters, picture_hashes
        self.bits: list[tuple[int, int]] = []
        self._pictures: list[_Added] = []
        self._decisions = DecisionWriter(parameters)
        self._extensions = SliceExtensionWriter()

    def put(self, filtered: Filtered, slice_type: str, slice_qp: int, behind: Picture | None = None) -> int:
        """Take the decision on the next picture in decoding order.

        Args:
            filtered: The filtered picture and its decision.
            slice_type: Most general type of its slices. An intra picture carries the parameters, so that decoding can
                start there.
            slice_qp: QP of its slices.
            behind: The decoded picture, if the picture is filtered behind the loop.

        Returns:
            Bits of parameters and decision in the slice header.

        Raises:
            UnsupportedError: Parameters and decision do not fit into a slice header.
        """
        parameters = b""
        if slice_type == "I":
            self._decisions, parameters = DecisionWriter(self.parameters), write_parameters(self.parameters)
        extension = parameters + self._decisions.write(filtered.decision, slice_qp, behind=behind is not None)
        if len(extension) > MAX_EXTENSION_BYTES:
            raise UnsupportedError(
                f"parameters and decision of a picture take {len(extension)} bytes, more than the "
                f"{MAX_EXTENSION_BYTES} of a slice header extension: code with a larger CTU size"
            )
        prefix, suffix = [], []
        if self.picture_hashes:
            reference = filtered.picture if behind is None else behind
            suffix = [md5_message(reference.planes, reference.bit_depth)]
            if behind is not None and not is_off(filtered.decision):
                prefix = [SeiMessage(USER_DATA_UNREGISTERED, OUTPUT_MD5_UUID + output_md5(filtered.picture))]
        self._pictures.append(_Added(extension, prefix, suffix))
        return extension_bits(extension)

    def add(self, number: int, access_unit: bytes) -> bytes:
        """Return an access unit with its messages; `number` is that of its picture in decoding order."""
        added = self._pictures[number]
        extended = self._extensions.write(access_unit, added.extension)
        whole = add_sei(extended, added.prefix, added.suffix)
        self.bits.append((8 * (len(extended) - len(access_unit)), 8 * (len(whole) - len(extended))))
        return whole
