"""Means over classes and figures by picture type, against values computed by hand."""

import gzip
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from codecnn.api.config import load_recipe
from codecnn.evaluation import Cell, PictureMeasure, by_picture_type, class_means, make_row, picture_types
from tests.helpers.store_units import make_unit

CLASSES = {"a": "photo", "b": "photo", "c": "photo", "d": "film"}
RATES = {
    "a": {"y": -3.0, "u": -1.0, "v": -2.0},
    "b": {"y": -2.0, "u": -3.0, "v": None},
    "c": {"y": 0.5, "u": -2.0, "v": -1.0},
    "d": {"y": -0.3, "u": 4.0, "v": -1.0},
}
GAINS = {"a": [0.3, 0.1], "b": [0.2, 0.0], "c": [-0.1, 0.02], "d": [0.05, -0.01]}


def test_each_class_has_the_same_weight():
    notes = []
    means = class_means(CLASSES, RATES, GAINS, notes)
    assert (means.classes, notes) == (2, [])
    assert means.bd_rate_y == pytest.approx((-1.5 - 0.3) / 2)
    assert means.bd_rate_u == pytest.approx((-2 + 4) / 2)
    assert means.bd_rate_v == pytest.approx((-1.5 - 1) / 2)
    assert means.left_out == {"v": 1}
    assert means.gain_db == pytest.approx(((0.2 + 0.1 - 0.04) / 3 + 0.02) / 2)
    assert means.worst_class == ("film", pytest.approx(-0.3))
    assert means.worst_sequence == ("c", 0.5)
    assert (means.losing_cells, means.cells) == (2, 8)
    # s^2 = 6.5 / 2 for N - C = 2, (1/3 + 1) / 2^2 of it is the variance of the mean, and 4.3027 is Student's t.
    half = 4.30265 * (6.5 / 2 / 3) ** 0.5
    assert means.bd_rate_y_ci95 == pytest.approx((-0.9 - half, -0.9 + half), abs=1e-4)
    text = str(means)
    for part in (
        "2 classes",
        "-0.90 %",
        "film -0.30 %",
        "c +0.50 %",
        "lower in 2 of 8 cells",
        "1 sequence without BD-rate V",
    ):
        assert part in text


def test_class_without_chroma_rate_gives_no_mean():
    notes = []
    means = class_means(CLASSES, RATES | {"d": {"y": -0.3, "u": 4.0}}, GAINS, notes)
    assert (means.bd_rate_u, means.bd_rate_v) == (pytest.approx(1.0), None)
    assert notes == ["no BD-rate V in the mean over classes: no sequence of class film has one"]
    assert "U +1.00 %, no V, 2 sequences without BD-rate V" in str(means)


def test_classes_of_one_sequence_have_means_but_no_interval():
    means = class_means({"a": "photo", "d": "film"}, RATES, GAINS, [])
    assert (means.bd_rate_y, means.bd_rate_y_ci95) == (pytest.approx(-1.65), None)
    assert "BD-rate Y -1.65 % (no interval: each class has one sequence)" in str(means)


def diverse_classes():
    """Return the class of each of the 62 pictures of the published figures."""
    recipe = load_recipe(Path(__file__).parents[2] / "datasets" / "diverse_test.yaml")
    return {sequence.source: sequence.class_ for sequence in recipe.sequences}


MEASURED = (
    *(("camera_jpeg_scaled", 2.02), ("dslr_scaled", 2.18), ("film_mcmaster", 1.82), ("flickr_urban100", 2.17)),
    *(
        ("hdr_exr", 2.25),
        ("middlebury_real", 1.80),
        ("pexels_cid22", 1.57),
        ("pro_clic", 1.87),
        ("raw_developed", 1.46),
    ),
    *(("screen_anim", 1.08), ("sun_hays_scaled", 0.64), ("video_gopro", 1.97), ("video_vimeo", 1.70)),
    ("web500_val20", 1.74),
)
"""Standard deviations of the luma BD-rates of `low_cost_17` in % within the classes of two pictures or more."""


def equal_variances(rng, labels):
    return rng.normal(0, 1, len(labels))


def measured_variances(rng, labels):
    """Draw with the measured deviations; classes of one picture, whose deviation is unknown, get the largest."""
    known = dict(MEASURED)
    return rng.normal(0, [known.get(label, max(known.values())) for label in labels])


def skewed(rng, labels):
    return rng.exponential(1, len(labels)) - 1


@pytest.mark.parametrize(
    ("draw", "least", "most"),
    [(equal_variances, 0.93, 0.97), (measured_variances, 0.92, 0.97), (skewed, 0.91, 0.97)],
)
def test_interval_contains_the_true_mean_as_often_as_stated(draw, least, most):
    """On the real classes, four of which have one picture; resampling within classes covers 74 to 78 %."""
    rng, classes, hits, draws = np.random.default_rng(1), diverse_classes(), 0, 500
    sizes = list(Counter(classes.values()).values())
    assert (sum(sizes), len(sizes), sizes.count(1)) == (62, 18, 4)
    centres = dict(zip(dict.fromkeys(classes.values()), rng.normal(-4, 1, len(sizes)), strict=True))
    truth = float(np.mean(list(centres.values())))
    for _ in range(draws):
        noise = draw(rng, list(classes.values()))
        rates = {name: {"y": centres[classes[name]] + value} for name, value in zip(classes, noise, strict=True)}
        low, high = class_means(classes, rates, {name: [0.1] for name in classes}, []).bd_rate_y_ci95
        hits += low <= truth <= high
    assert least <= hits / draws <= most


@pytest.mark.parametrize(
    ("classes", "rates", "gains", "reason"),
    [
        (CLASSES | {"a": None}, RATES, GAINS, "a has no class"),
        (dict.fromkeys(CLASSES, "one"), RATES, GAINS, "all sequences are of class one"),
        (CLASSES, RATES | {"a": {"y": None}}, GAINS, "a has no BD-rate Y or no gain"),
        (CLASSES, RATES, GAINS | {"d": []}, "d has no BD-rate Y or no gain"),
        (dict.fromkeys(CLASSES), RATES, GAINS, None),
    ],
)
def test_incomplete_figures_give_no_means(classes, rates, gains, reason):
    notes = []
    assert class_means(classes, rates, gains, notes) is None
    assert notes == ([] if reason is None else [f"no means over classes: {reason}"])


def random_access_unit(folder: Path, golden_file, qp=37):
    """Describe 17 pictures in random access as a store does, with types and bits from the log of the encoder."""
    stream = golden_file("vvc/tinyclip128x64_ra_qp37.266")
    log = gzip.decompress(golden_file("vvc/tinyclip128x64_ra_qp37.enclog.gz").read_bytes()).decode()
    lines = re.findall(r"POC +(\d+) .*?TId: (\d) .*?(\w)-SLICE.*? (\d+) bits", log)
    logged = sorted((int(poc), int(layer), kind, int(bits)) for poc, layer, kind, bits in lines)
    (folder / "a.266").write_bytes(stream.read_bytes())
    form = {"width": 128, "height": 64, "bit_depth": 10, "chroma": "420", "fps": None}
    files = {"format": form, "original": "o.yuv", "decoded": "coded/a/d.yuv", "bitstream": "a.266", "bits": 99}
    unit = make_unit(folder, "clip", qp, pictures=[(poc, 0, 40.0) for poc, *_ in logged], **files)
    facts = {poc: {"slice_type": kind, "bits": bits} for poc, _, kind, bits in logged}
    pictures = tuple(picture.model_copy(update=facts[picture.poc]) for picture in unit.pictures)
    return unit.model_copy(update={"pictures": pictures}), logged


def test_types_and_layers_equal_the_encoder_log(golden_file, tmp_path):
    unit, logged = random_access_unit(tmp_path, golden_file)
    types = picture_types([unit])[unit.key]
    assert list(types) == ["I" if kind == "I" else f"{kind} layer {layer}" for _, layer, kind, _ in logged]
    assert len(set(types)) > 4
    still = unit.model_copy(update={"pictures": unit.pictures[:1]})
    assert picture_types([still]) == {}
    without_stream = unit.model_copy(update={"bitstream_file": None})
    assert set(picture_types([without_stream])[unit.key]) == {"I", "B"}


def test_each_type_is_measured_on_its_pictures_and_bits(golden_file, tmp_path):
    """Intra pictures gain and layer 1 loses, which a mean over all pictures hides."""
    units = [random_access_unit(tmp_path, golden_file, qp) for qp in (22, 27, 32, 37)]
    unit, logged = units[0]
    types = {each.key: picture_types([unit])[unit.key] for each, _ in units}
    factors = {"I": 2 ** (1 / 3), "B layer 1": 2 ** (-1 / 3)}
    cells = []
    for index, (coded, _) in enumerate(units):
        pictures = tuple(p.model_copy(update={"bits": p.bits * 2 ** (3 - index)}) for p in coded.pictures)
        decoded = [PictureMeasure(mse=(4.0**index,) * 3) for _ in pictures]
        errors = [4.0**index / factors.get(kind, 1) for kind in types[coded.key]]
        filtered = [PictureMeasure(mse=(error,) * 3, seconds=0.1) for error in errors]
        cells.append(Cell("m", coded.model_copy(update={"pictures": pictures}), decoded, filtered, Path()))
    notes = []
    figures = by_picture_type(cells, types, notes)
    assert notes == []
    assert list(figures) == sorted(set(types[unit.key]), key=lambda kind: (kind != "I", kind))
    assert {kind: each.pictures for kind, each in figures.items()} == {
        kind: sum(each == kind for each in types[unit.key]) for kind in figures
    }
    # Here 6 dB are a factor of two in bits, so 1 dB is a sixth of an octave.
    assert figures["I"].gain_db["y"]["mean"] == pytest.approx(1.003, abs=0.001)
    assert figures["I"].bd_rate["y"] == pytest.approx(100 * (2 ** (-1 / 6) - 1), abs=0.1)
    assert figures["B layer 1"].bd_rate["yuv_611"] == pytest.approx(100 * (2 ** (1 / 6) - 1), abs=0.1)
    assert figures["B layer 2"].bd_rate["u"] == pytest.approx(0, abs=1e-9)
    row = make_row(cells[3].unit, cells[3].decoded, cells[3].filtered, [0])
    assert (row.bits, row.pictures) == (logged[0][3], 1)
