"""Measured rates from which the size and the processor time of a build are estimated.

PLACEHOLDER
"""

from math import exp, log

from codecnn.codec import STREAMS
from codecnn.dataset.recipe import EncoderSpec, Recipe

_QPS = (22, 32, 42)
"""QPs of the measurement."""

CODING = {
    ("vvc", "fast", "ai"): (9.0, 5.0, 3.0),
    ("hevc", "medium", "ai"): (2.0, 1.5, 1.0),
}
"""Seconds of the encoder for a million luma samples at the QPs of the measurement, by codec, preset, configuration."""

_BITS = {"ai": (1.0, 0.4, 0.15), "ra": (0.3, 0.1, 0.03), "ldb": (0.3, 0.1, 0.03)}
"""Bits for a luma sample at the QPs of the measurement, by configuration."""

_START = 0.08
"""Seconds to start an encoder."""

_OTHER = {"vvc": (0.05, 0.3), "hevc": (0.05, 0.2)}
"""Seconds of all other work for a unit, and for a million luma samples, by codec."""

_REBUILDING = 0.1
"""Seconds to rebuild planes of a million luma samples."""

_SEARCH = 0.3
"""Seconds of a motion search for a million luma samples."""

RECORD_BYTES_PER_UNIT, RECORD_BYTES_PER_SAMPLE = 20_000, 0.1
"""Size of the tables of CUs and CTUs, logs and JSON files of a unit, and for a luma sample."""


def coding_seconds(recipe: Recipe, encoder: EncoderSpec | None, qp: int, samples: int) -> float | None:
    """Return the processor time of coding a unit.

    Args:
        recipe: The recipe.
        encoder: Settings that override those of the recipe, or None.
        qp: QP of the unit.
        samples: Luma samples of all pictures of the unit.

    Returns:
        Seconds; 0 for supplied streams, and None if they were not measured for these settings.
    """
    if recipe.codec == STREAMS:
        return 0.0
    coding = recipe.coding(encoder)
    rates = CODING.get((recipe.codec, coding.preset, recipe.configuration))
    unlike = recipe.rate is not None or recipe.ctc or recipe.in_loop is not None or coding.params
    if rates is None or unlike:
        return None
    # A second stream without in-loop filters has the unfiltered pictures of VVC.
    runs = 2 if recipe.codec == "vvc" and recipe.unfiltered else 1
    return runs * (_START + _interpolate(rates, qp) * samples / 1e6)


def rebuilding_seconds(samples: int) -> float:
    """Return the seconds of rebuilding planes of `samples` luma samples from a VVC bitstream."""
    return _REBUILDING * samples / 1e6


def temporal_seconds(samples: int, searches: int) -> float:
    """Return the seconds of `searches` motion searches in each of the pictures, which have `samples` luma samples."""
    return _SEARCH * searches * samples / 1e6


def other_seconds(recipe: Recipe, samples: int) -> float:
    """Return the seconds of all other work on a unit of `samples` luma samples."""
    start, rate = _OTHER.get(recipe.codec, _OTHER["vvc"])
    return start + rate * samples / 1e6


def bits_per_sample(configuration: str, qp: int) -> float:
    """Return the estimated bits of a bitstream for a luma sample."""
    return _interpolate(_BITS[configuration], qp)


def _interpolate(values: tuple[float, float, float], qp: int) -> float:
    """Interpolate the logarithm of values at the QPs of the measurement, or extrapolate it beyond them."""
    first = 0 if qp < _QPS[1] else 1
    lower, upper = log(values[first]), log(values[first + 1])
    return exp(lower + (upper - lower) * (qp - _QPS[first]) / (_QPS[first + 1] - _QPS[first]))
