"""Arithmetic coding of flags with adaptive contexts: the engine of H.266 clause 9.3.4.3 for a few bins."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from codecnn.filtering.decisions.rate_distortion import START, State, next_state

FIRST_RANGE = 510
"""ivlCurrRange at the start (clause 9.3.2.5)."""

OFFSET_BITS = 9
"""Bits of ivlOffset."""


def _split(interval: int, state: State) -> tuple[int, int]:
    """Return the more probable value of a bin, and the range of the other value (clause 9.3.4.3.2)."""
    probability = state[1] + 16 * state[0]
    more_probable = probability >> 14
    scale = (32767 - probability if more_probable else probability) >> 9
    return more_probable, (((interval >> 5) * scale) >> 1) + 4


@dataclass
class FlagEncoder:
    """Encoder of flags.

    Attributes:
        low: Lower end of the interval, without a limit of its size.
        interval: Length of the interval, 256 to 510 after each flag.
        shifts: Number of bits by which the interval was scaled.
        states: State of each context.
    """

    low: int = 0
    interval: int = FIRST_RANGE
    shifts: int = 0
    states: list[State] = field(default_factory=lambda: [START] * 3)

    def put(self, context: int, value: bool) -> None:
        """Code one flag with a context."""
        state = self.states[context]
        more_probable, less = _split(self.interval, state)
        self.interval -= less
        if value != more_probable:
            self.low += self.interval
            self.interval = less
        self.states[context] = next_state(state, value)
        while self.interval < 256:
            self.low, self.interval, self.shifts = 2 * self.low, 2 * self.interval, self.shifts + 1

    def put_bits(self, value: int, count: int) -> None:
        """Code an unsigned number of `count` bits that are all equally probable (bypass, clause 9.3.4.3.4)."""
        self.low = (self.low << count) + value * self.interval
        self.shifts += count

    def bits(self) -> str:
        """Return the shortest code word of the flags so far as zeros and ones; zeros at its end are left out."""
        size = OFFSET_BITS + self.shifts
        for zeros in range(size, -1, -1):
            # The multiple of 2^zeros at or above the lower end, if it is in the interval.
            word = -(-self.low >> zeros) << zeros
            if word < self.low + self.interval:
                return f"{word >> zeros:0{size - zeros}b}".rstrip("0") if word else ""
        raise AssertionError("the interval has no number")


class FlagDecoder:
    """Decoder of the flags of a `FlagEncoder`.

    Args:
        bits: The code word as zeros and ones; zeros follow it without end.
        states: Initial state of each context; by default three with a probability of one half.
    """

    def __init__(self, bits: str, states: Sequence[State] = (START,) * 3) -> None:
        self._bits, self._position = bits, OFFSET_BITS
        self._offset = int(bits[:OFFSET_BITS].ljust(OFFSET_BITS, "0"), 2)
        self._interval = FIRST_RANGE
        self.states = list(states)

    def get(self, context: int) -> bool:
        """Decode one flag with a context (clauses 9.3.4.3.2 and 9.3.4.3.3)."""
        state = self.states[context]
        more_probable, less = _split(self._interval, state)
        self._interval -= less
        value = more_probable == 1
        if self._offset >= self._interval:
            value = not value
            self._offset -= self._interval
            self._interval = less
        self.states[context] = next_state(state, value)
        while self._interval < 256:
            self._shift()
            self._interval *= 2
        return value

    def get_bits(self, count: int) -> int:
        """Decode an unsigned number of `count` bits that are all equally probable (clause 9.3.4.3.4)."""
        value = 0
        for _ in range(count):
            self._shift()
            value *= 2
            if self._offset >= self._interval:
                self._offset -= self._interval
                value += 1
        return value

    def _shift(self) -> None:
        bit = self._bits[self._position : self._position + 1] == "1"
        self._offset, self._position = 2 * self._offset + bit, self._position + 1
