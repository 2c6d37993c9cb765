"""Kinds of rate control: their options of ffmpeg, and the names of their values in tables and messages."""

from dataclasses import dataclass
from typing import Literal

RateName = Literal["crf", "qp", "kbps"]
"""Kind of rate control by its name in recipes and results."""


@dataclass(frozen=True)
class RateMode:
    """Meaning and wording of the values of one kind of rate control, which recipes and results call `qp`.

    Attributes:
        option: Option of ffmpeg; None at constant QP, which encoders set in their own ways.
        title: Head of a column of values.
        noun: One value, e.g. "bit rate".
        plural: Several values.
        template: Text of a value, with {} in its place.
        falling: The quality falls as the value rises.
    """

    option: str | None
    title: str
    noun: str
    plural: str
    template: str
    falling: bool = True

    def text(self, value: object) -> str:
        """Return a value, or a list of values as text, with the name or unit: "QP 32", "crf 24", "800 kbit/s"."""
        return self.template.format(value)

    def from_best(self, value: int) -> int:
        """Return the key that sorts values from the highest quality to the lowest."""
        return value if self.falling else -value


RATE_MODES: dict[RateName, RateMode] = {
    "crf": RateMode("-crf", "crf", "crf", "values of crf", "crf {}"),
    "qp": RateMode("-qp", "QP", "QP", "QPs", "QP {}"),
    "kbps": RateMode("-b:v", "target kbit/s", "bit rate", "bit rates", "{} kbit/s", falling=False),
}
"""Rate control by its name."""

_CONSTANT_QP = RateMode(None, "QP", "QP", "QPs", "QP {}")


def rate_mode(rate: RateName | None) -> RateMode:
    """Return the rate control of that name; None is constant QP."""
    return _CONSTANT_QP if rate is None else RATE_MODES[rate]
