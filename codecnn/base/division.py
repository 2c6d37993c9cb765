"""Division of integers."""


def ceil_div(dividend: int, divisor: int) -> int:
    """Divide two integers and round up, exactly.

    Args:
        dividend: Any integer.
        divisor: A positive integer.

    Returns:
        The smallest integer that is at least `dividend` / `divisor`.
    """
    return -(-dividend // divisor)
