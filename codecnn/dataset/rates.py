"""Measured rates from which the size and the processor time of a build are estimated.

Processor time was measured by `tools/research/build_rates.py` on a busy virtual machine with two cores, one thread an
encoder, at QP 22, 32 and 42, on two sets of pictures: five photographs of 0.08 to 0.17 megapixels for all intra and
clips of 17 and 33 pictures of 176x96 to 416x240 for random access; and three clips of 640x360 to 848x476, 17 pictures,
of which all intra takes the first. Samples of small pictures take more time, in both sets about as `_SMALL` says. A
rate is the geometric mean of both sets after that; those of vvc in random access are 0.85 of that, which ten clips of
640x360 to 960x540 took in all, and that of hevc is the second set. Larger pictures were not measured. Low delay and
`ctc` are random access times the ratio on two clips of 33 pictures. Content changes the time of an encoder by a factor
of two to three, and the machine by 10 to 30 %. Other presets, rate control, filters in the loop and `params` were not
measured.
"""

from itertools import product
from math import exp, log, sqrt

import numpy as np

from codecnn.codec import STREAMS
from codecnn.dataset.encoder_specs import EncoderSpec
from codecnn.dataset.recipe import Recipe

_QPS = (22, 32, 42)
"""QPs of the measurement."""

CODING = {
    ("vvc", "faster", "ai"): (0.66, 0.345, 0.15),
    ("vvc", "fast", "ai"): (3.04, 1.72, 0.745),
    ("vvc", "medium", "ai"): (10.7, 6.41, 2.64),
    ("vvc", "faster", "ra"): (0.285, 0.144, 0.093),
    ("vvc", "fast", "ra"): (0.72, 0.34, 0.19),
    ("vvc", "medium", "ra"): (2.50, 1.14, 0.55),
    ("vvc", "medium", "ra ctc"): (2.52, 1.16, 0.54),
    ("vvc", "medium", "ldb"): (2.72, 1.40, 0.67),
    ("vvc", "medium", "ldb ctc"): (2.73, 1.44, 0.68),
    ("hevc", "medium", "ai"): (0.34, 0.258, 0.20),
    ("hevc", "slow", "ai"): (0.557, 0.369, 0.25),
    ("hevc", "medium", "ra"): (0.176, 0.106, 0.076),
    ("avc", "medium", "ai"): (0.112, 0.094, 0.089),
    ("svtav1", "medium", "ai"): (0.397, 0.368, 0.334),
    ("av1", "medium", "ai"): (2.46, 1.94, 1.42),
}
"""Seconds of the encoder for a million luma samples of pictures of `_SMALL` samples and more, at the QPs of the
measurement, by codec, preset, and configuration with or without `ctc`."""

_BITS = {"ai": (1.54, 0.55, 0.14), "ra": (0.61, 0.12, 0.02), "ldb": (0.61, 0.12, 0.02)}
"""Bits for a luma sample at the QPs of the measurement, by configuration; those of ldb are taken from ra."""

_SMALL = 0.3e6
"""Luma samples of a picture below which the time for a sample rises with the inverse square root of their number."""

_START = {"vvc": 0.06, "hevc": 0.02}
"""Seconds to start an encoder, by codec, which the rates of other codecs include."""

_OTHER = {
    "vvc": (0.07, 0.25),
    "hevc": (0.04, 0.13),
    "avc": (0.06, 0.21),
    "svtav1": (0.07, 0.26),
    "av1": (0.08, 0.18),
}
"""Seconds of all other work for a unit of all intra, and for a million luma samples, by codec."""

_OTHER_INTER = 0.4
"""Share of the second in random access and low delay, whose streams have fewer bits and CUs."""

_REBUILDING = 0.06
"""Seconds to rebuild planes of a million luma samples."""

_SEARCH = 0.06
"""Seconds of a motion search for a million luma samples."""

RECORD_BYTES_PER_UNIT, RECORD_BYTES_PER_SAMPLE = 20_000, 0.1
"""Size of the tables of CUs and CTUs, logs and JSON files of a unit, and for a luma sample."""


def coding_seconds(recipe: Recipe, encoder: EncoderSpec | None, qp: int, samples: int, picture: int) -> float | None:
    """Return the processor time of coding a unit.

    Args:
        recipe: The recipe.
        encoder: Settings that override those of the recipe, or None.
        qp: QP of the unit.
        samples: Luma samples of all pictures of the unit.
        picture: Luma samples of one picture.

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
    return _coding_seconds(recipe, rates, qp, samples, picture)


def similar_seconds(recipe: Recipe, encoder: EncoderSpec | None, qp: int, samples: int, picture: int) -> float:
    """Return `coding_seconds`, with the rates of the most similar settings for those that were not measured.

    They serve to compare the units of a recipe, not to predict how long the build takes.
    """
    if recipe.codec == STREAMS:
        return 0.0
    preset = recipe.coding(encoder).preset
    configurations = (recipe.configuration, "ra") if recipe.configuration == "ldb" else (recipe.configuration,)
    similar = product((recipe.codec, "vvc"), (preset, "medium"), configurations)
    return _coding_seconds(recipe, next(CODING[key] for key in similar if key in CODING), qp, samples, picture)


def _coding_seconds(recipe: Recipe, rates: tuple[float, float, float], qp: int, samples: int, picture: int) -> float:
    # A second stream without in-loop filters has the unfiltered pictures of VVC.
    runs = 2 if recipe.codec == "vvc" and recipe.unfiltered else 1
    detail = sqrt(max(1.0, _SMALL / picture))
    return runs * (_START.get(recipe.codec, 0.0) + detail * _interpolate(rates, qp) * samples / 1e6)


def rebuilding_seconds(samples: int) -> float:
    """Return the seconds of rebuilding planes of `samples` luma samples from a VVC bitstream."""
    return _REBUILDING * samples / 1e6


def temporal_seconds(samples: int, searches: int) -> float:
    """Return the seconds of `searches` motion searches in each of the pictures, which have `samples` luma samples."""
    return _SEARCH * searches * samples / 1e6


def other_seconds(recipe: Recipe, samples: int) -> float:
    """Return the seconds of all other work on a unit of `samples` luma samples."""
    start, rate = _OTHER.get(recipe.codec, _OTHER["vvc"])
    if recipe.configuration != "ai":
        rate *= _OTHER_INTER
    return start + rate * samples / 1e6


def bits_per_sample(configuration: str, qp: int) -> float:
    """Return the estimated bits of a bitstream for a luma sample."""
    return _interpolate(_BITS[configuration], qp)


def qp_of_bits(configuration: str, bits: float) -> int:
    """Return the QP between those of the measurement with about so many bits for a luma sample."""
    return round(float(np.interp(-log(bits), [-log(each) for each in _BITS[configuration]], _QPS)))


def _interpolate(values: tuple[float, float, float], qp: int) -> float:
    """Interpolate the logarithm of values at the QPs of the measurement, or extrapolate it beyond them."""
    first = 0 if qp < _QPS[1] else 1
    lower, upper = log(values[first]), log(values[first + 1])
    return exp(lower + (upper - lower) * (qp - _QPS[first]) / (_QPS[first + 1] - _QPS[first]))
