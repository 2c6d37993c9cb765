"""Reading the fixed and Exp-Golomb codes of headers (H.266 clauses 7.2 and 9.2), and the records they fill."""

from dataclasses import FrozenInstanceError

from codecnn.errors import FormatError


class SyntaxStructure:
    """A structure of clause 7.3 that its constructor reads from a `Bits`, and that no one changes once it is read.

    An attribute has the name of its syntax element (`sps_lfnst_enabled_flag`), or that of the standard's variable where
    it is derived (BitDepth is `bit_depth`); an element that is absent has the value that clause 7.4 infers. Elements
    that neither parsing nor the table of CUs needs are passed over.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if "_read" in self.__dict__:
            raise FrozenInstanceError(f"{name} of a {type(self).__name__} that has been read cannot be set")
        object.__setattr__(self, name, value)

    def freeze(self) -> None:
        """Refuse every further change; the last call of each constructor."""
        self._read = True


class Bits:
    """A position in an RBSP: `data` without emulation prevention, `position` in bits.

    Every value that later sizes a loop or an array has its range checked here: the methods raise FormatError with the
    name of the syntax element and its value, or when the data ends.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def u(self, bits: int) -> int:
        """An unsigned value of `bits` bits, most significant first."""
        end = self.position + bits
        if end > 8 * len(self.data):
            raise FormatError("a header ends early")
        value = int.from_bytes(self.data[self.position >> 3 : (end + 7) >> 3], "big") >> (-end & 7)
        self.position = end
        return value & ((1 << bits) - 1)

    def flag(self) -> bool:
        """One bit."""
        return self.u(1) == 1

    def ue(self, name: str, top: int) -> int:
        """An unsigned Exp-Golomb value (clause 9.2.2) of at most `top`."""
        zeros = 0
        while not self.flag():
            zeros += 1
            if zeros > 32:
                raise FormatError(f"{name} has no valid code")
        value = (1 << zeros) - 1 + self.u(zeros)
        if value > top:
            raise FormatError(f"{name} is {value}, more than {top}")
        return value

    def se(self, name: str, low: int, high: int) -> int:
        """A signed Exp-Golomb value (clause 9.2.3) from `low` to `high`."""
        code = self.ue(name, 2**32 - 1)
        value = (code + 1) // 2 if code % 2 else -(code // 2)
        if not low <= value <= high:
            raise FormatError(f"{name} is {value}, not in {low} to {high}")
        return value

    def skip(self, bits: int) -> None:
        """Pass over `bits` bits, which must be there."""
        self.position += bits
        if self.position > 8 * len(self.data):
            raise FormatError("a header ends early")

    def align(self) -> None:
        """Go to the next whole byte."""
        self.position = (self.position + 7) & ~7

    def byte_alignment(self) -> None:
        """Read byte_alignment() (clause 7.3.2.15): a one, then zeros up to a whole byte."""
        if not self.flag() or self.u(-self.position & 7):
            raise FormatError("a header does not end in its alignment bits")
