"""Division of integers."""

from typing import Any, TypeVar

from numpy.typing import NDArray

Integers = TypeVar("Integers", bound=int | NDArray[Any])


def ceil_div(dividend: Integers, divisor: int) -> Integers:
    """Divide integers and round up, exactly.

    Args:
        dividend: Any integer, or an array of integers.
        divisor: A positive integer.

    Returns:
        The smallest integer that is at least `dividend` / `divisor`.
    """
    return -(-dividend // divisor)  # type: ignore[return-value]
