"""Measured rates from which the size and the processor time of a build are estimated.

Processor time was measured by `tools/research/build_rates.py` on a busy virtual machine with two cores, one thread an
encoder, at QP 22, 32 and 42: all intra on five photographs of 0.08 to 0.17 megapixels (0.68 in all), random access on
17 pictures of 176x96 and 352x288 (2 megapixels; for vvc fast and hevc medium 12.5, of five clips). Content changes
the time of an encoder by a factor of two to three, and the machine by 10 to 30 %. Other presets, rate control, `ctc`,
filters in the loop and `params` were not measured.
"""

from math import exp, log

from codecnn.codec import STREAMS
from codecnn.dataset.recipe import EncoderSpec, Recipe

_QPS = (22, 32, 42)
"""QPs of the measurement."""

CODING = {
    ("vvc", "faster", "ai"): (1.03, 0.555, 0.240),
    ("vvc", "fast", "ai"): (4.84, 2.87, 1.25),
    ("vvc", "medium", "ai"): (17.3, 11.0, 4.74),
    ("vvc", "faster", "ra"): (0.710, 0.370, 0.246),
    ("vvc", "fast", "ra"): (1.68, 0.674, 0.372),
    ("vvc", "medium", "ra"): (7.32, 3.07, 1.39),
    ("hevc", "medium", "ai"): (0.486, 0.362, 0.265),
    ("hevc", "slow", "ai"): (0.848, 0.543, 0.339),
    ("hevc", "medium", "ra"): (0.301, 0.149, 0.076),
    ("avc", "medium", "ai"): (0.187, 0.164, 0.147),
    ("svtav1", "medium", "ai"): (0.604, 0.577, 0.518),
    ("av1", "medium", "ai"): (3.64, 2.99, 2.22),
}
"""Seconds of the encoder for a million luma samples at the QPs of the measurement, by codec, preset, configuration."""

_BITS = {"ai": (1.54, 0.55, 0.14), "ra": (0.61, 0.12, 0.02), "ldb": (0.61, 0.12, 0.02)}
"""Bits for a luma sample at the QPs of the measurement, by configuration; those of ldb are taken from ra."""

_START = {"vvc": 0.06, "hevc": 0.02}
"""Seconds to start an encoder, by codec, which the rates of other codecs include."""

_OTHER = {
    "vvc": (0.07, 0.25),
    "hevc": (0.035, 0.08),
    "avc": (0.06, 0.21),
    "svtav1": (0.07, 0.26),
    "av1": (0.08, 0.18),
}
"""Seconds of all other work for a unit, and for a million luma samples, by codec."""

_REBUILDING = 0.12
"""Seconds to rebuild planes of a million luma samples."""

_SEARCH = 0.07
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
    rates = CODING.get((recipe.codec, coding.preset, f"{recipe.configuration}{' ctc' if recipe.ctc else ''}"))
    unlike = recipe.rate is not None or recipe.in_loop is not None or coding.params
    if rates is None or unlike:
        return None
    # A second stream without in-loop filters has the unfiltered pictures of VVC.
    runs = 2 if recipe.codec == "vvc" and recipe.unfiltered else 1
    return runs * (_START.get(recipe.codec, 0.0) + _interpolate(rates, qp) * samples / 1e6)


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
