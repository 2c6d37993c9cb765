"""Code of the decisions on the pictures of a stream: arithmetic coding that adapts from picture to picture.

docs/reference/loop_filter.md has the syntax. A code word ends with its last bit that is 1. The more probable values of
all bins give a code word of zeros, so that a picture that is filtered as those before takes no byte.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from codecnn.base.division import ceil_div
from codecnn.base.errors import FormatError
from codecnn.filtering.decisions.arithmetic import FlagDecoder, FlagEncoder
from codecnn.filtering.decisions.parameters import LoopParameters
from codecnn.filtering.decisions.rate_distortion import (
    LOOP_SCALE_STEP,
    SCALE_ONE,
    SCALE_RANGE,
    START,
    BoolArray,
    Mode,
    State,
    context_of,
    scale_bits,
)

KEY_QP_OFFSET = 3
"""Largest offset of a key picture's slice QP to that of the intra picture; others of libvvenc have 4 or more."""

_PICTURE_ON, _IN_LOOP, _OFFSET = 0, 2, 4
"""Contexts of a picture: two for other pictures and key pictures, and six for the elements of the QP offset."""
_COMPONENT = 10
"""First context of a component; each has the six that follow."""
_ON, _WHOLE, _SAME_SCALE, _FLAGS, _SIZE = 0, 1, 2, 3, 6
"""Contexts of a component, of which the flags have three, and their number."""


class PictureDecision(Protocol):
    """The part of a decision that is signalled; dictionaries are by component."""

    @property
    def modes(self) -> Mapping[str, Mode]:
        """Off, on in every CTU, or by CTU."""

    @property
    def flags(self) -> Mapping[str, BoolArray]:
        """True where a CTU is filtered, shape (CTU rows, CTU columns)."""

    @property
    def scales(self) -> Mapping[str, float]:
        """Factor of the residual of the network, a multiple of 1/16 in streams and of 1/256 elsewhere."""

    @property
    def qp_offset(self) -> int:
        """Offset to the slice QP for the network."""


@dataclass(frozen=True, eq=False)
class SignalledDecision:
    """A decision as it is read from a stream; see `PictureDecision`."""

    modes: Mapping[str, Mode]
    flags: Mapping[str, BoolArray]
    scales: Mapping[str, float]
    qp_offset: int


def is_off(decision: PictureDecision | None) -> bool:
    """Return True if a decision leaves all components as they are; None filters the whole picture."""
    return decision is not None and all(mode == "off" for mode in decision.modes.values())


class DecisionWriter:
    """Writes the decisions on pictures in decoding order, from an intra picture with the parameters on.

    Args:
        parameters: Parameters of the filter.
    """

    def __init__(self, parameters: LoopParameters) -> None:
        self.parameters = parameters
        self.states: list[State] = [START] * (_COMPONENT + _SIZE * len(parameters.components))
        self.scales = dict.fromkeys(parameters.components, SCALE_ONE)
        self.first_qp: int | None = None

    def write(self, decision: PictureDecision | None, slice_qp: int, *, behind: bool = False) -> bytes:
        """Return the code word of the next picture.

        Args:
            decision: Decision on the picture; None if the parameters have no QP offsets.
            slice_qp: SliceQpY of its first slice.
            behind: The picture is filtered behind the loop, which the placement must allow.
        """
        encoder, is_key = FlagEncoder(states=self.states), self.is_key(slice_qp)
        if decision is not None:
            encoder.put(_PICTURE_ON + is_key, not is_off(decision))
        if not is_off(decision):
            if self.parameters.placement == "by_picture":
                encoder.put(_IN_LOOP + is_key, not behind)
            if decision is not None:
                self._put_decision(encoder, decision)
        bits = encoder.bits()
        return int(bits.ljust(8 * ceil_div(len(bits), 8), "0") or "0", 2).to_bytes(ceil_div(len(bits), 8), "big")

    def is_key(self, slice_qp: int) -> bool:
        """Return True for a key picture; the first picture is one, and the QPs of the others are compared with its."""
        if self.first_qp is None:
            self.first_qp = slice_qp
        return slice_qp <= self.first_qp + KEY_QP_OFFSET

    def _put_decision(self, encoder: FlagEncoder, decision: PictureDecision) -> None:
        number, last = self.parameters.qp_offsets.index(decision.qp_offset), len(self.parameters.qp_offsets) - 1
        for index in range(min(number + 1, last)):
            encoder.put(_OFFSET + index, index == number)
        for at, name in enumerate(self.parameters.components):
            first, mode = _COMPONENT + _SIZE * at, decision.modes[name]
            if len(self.parameters.components) > 1:
                encoder.put(first + _ON, mode != "off")
            if mode == "off":
                continue
            encoder.put(first + _WHOLE, mode == "on")
            scale = round(SCALE_ONE * decision.scales[name])
            encoder.put(first + _SAME_SCALE, scale == self.scales[name])
            if scale != self.scales[name]:
                encoder.put_bits((scale - SCALE_RANGE[0]) // LOOP_SCALE_STEP, scale_bits(LOOP_SCALE_STEP))
                self.scales[name] = scale
            if mode == "ctu":
                values = decision.flags[name].ravel().tolist()
                for index, value in enumerate(values):
                    context = context_of(values, index, decision.flags[name].shape[1])
                    encoder.put(first + _FLAGS + context, value)


class DecisionReader:
    """Reads the decisions on pictures in decoding order, from an intra picture with the parameters on.

    Args:
        parameters: Parameters of the filter.
    """

    def __init__(self, parameters: LoopParameters) -> None:
        self.parameters = parameters
        # It writes each decision again, which adapts its contexts and proves that the code word is not damaged.
        self._writer = DecisionWriter(parameters)

    def read(self, data: bytes, slice_qp: int, size: tuple[int, int]) -> tuple[SignalledDecision | None, bool]:
        """Read the code word of the next picture.

        Args:
            data: The code word.
            slice_qp: SliceQpY of its first slice.
            size: Height and width of the picture in luma samples.

        Returns:
            The decision, None if the whole picture is filtered, and whether it is filtered behind the loop.

        Raises:
            FormatError: The code word is damaged.
        """
        parameters = self.parameters
        decoder = FlagDecoder("".join(f"{byte:08b}" for byte in data), self._writer.states)
        behind, is_key = parameters.placement == "behind", self._writer.is_key(slice_qp)
        is_on = not parameters.qp_offsets or decoder.get(_PICTURE_ON + is_key)
        if is_on and parameters.placement == "by_picture":
            behind = not decoder.get(_IN_LOOP + is_key)
        decision = self._get_decision(decoder, size, is_on) if parameters.qp_offsets else None
        if self._writer.write(decision, slice_qp, behind=behind) != data:
            raise FormatError("the decision on the filter in the loop is damaged: its bits are not those of its values")
        return decision, is_on and behind

    def _get_decision(self, decoder: FlagDecoder, size: tuple[int, int], is_on: bool) -> SignalledDecision:
        names, offsets = self.parameters.components, self.parameters.qp_offsets
        rows, columns = (ceil_div(length, self.parameters.ctu_size) for length in size)
        modes: dict[str, Mode] = dict.fromkeys(names, "off")
        flags = {name: np.zeros((rows, columns), np.bool_) for name in names}
        scales = dict.fromkeys(names, 1.0)
        if not is_on:
            return SignalledDecision(modes, flags, scales, 0)
        number = 0
        while number < len(offsets) - 1 and not decoder.get(_OFFSET + number):
            number += 1
        for at, name in enumerate(names):
            first = _COMPONENT + _SIZE * at
            if len(names) > 1 and not decoder.get(first + _ON):
                continue
            modes[name] = "on" if decoder.get(first + _WHOLE) else "ctu"
            scale = self._writer.scales[name]
            if not decoder.get(first + _SAME_SCALE):
                scale = SCALE_RANGE[0] + LOOP_SCALE_STEP * decoder.get_bits(scale_bits(LOOP_SCALE_STEP))
                if scale > SCALE_RANGE[1]:
                    raise FormatError(
                        f"the scale of the filter in the loop is {scale}/256, more than {SCALE_RANGE[1]}/256"
                    )
            scales[name] = scale / SCALE_ONE
            flags[name][:] = modes[name] == "on"
            if modes[name] == "ctu":
                values: list[bool] = []
                for index in range(rows * columns):
                    values.append(decoder.get(first + _FLAGS + context_of(values, index, columns)))
                flags[name] = np.array(values, np.bool_).reshape(rows, columns)
        return SignalledDecision(modes, flags, scales, offsets[number])
