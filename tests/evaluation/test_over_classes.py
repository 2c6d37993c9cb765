"""Figures over classes against plain means, an interval whose truth is known, and what has no such figures."""

import numpy as np
import pytest

from codecnn.evaluation.over_classes import over_classes

CLASSES = {"a": "photo", "b": "photo", "c": "photo", "d": "film"}
RATES = {
    "a": {"y": -3.0, "u": -1.0, "v": -2.0},
    "b": {"y": -2.0, "u": -3.0, "v": None},
    "c": {"y": 0.5, "u": -2.0, "v": -1.0},
    "d": {"y": -0.3, "u": 4.0, "v": -1.0},
}
GAINS = {"a": [0.3, 0.1], "b": [0.2, 0.0], "c": [-0.1, 0.02], "d": [0.05, -0.01]}


def test_every_class_counts_as_one():
    found = over_classes(CLASSES, RATES, GAINS)
    assert found.classes == 2
    assert found.bd_rate_y == pytest.approx((-1.5 - 0.3) / 2)
    assert found.bd_rate_u == pytest.approx((-2 + 4) / 2)
    assert found.bd_rate_v == pytest.approx((-1.5 - 1) / 2)
    assert found.left_out == {"v": 1}
    assert found.gain_db == pytest.approx(((0.2 + 0.1 - 0.04) / 3 + 0.02) / 2)
    assert found.worst_class == ("film", pytest.approx(-0.3))
    assert found.worst_sequence == ("c", 0.5)
    assert (found.losing_cells, found.cells) == (2, 8)
    low, high = found.bd_rate_y_ci95
    assert -1.65 <= low < found.bd_rate_y < high <= 0.1
    told = str(found)
    for part in ("2 classes", "-0.90 %", "film -0.30 %", "c +0.50 %", "2 of 8 cells lose", "V without 1 that has none"):
        assert part in told


def test_a_class_without_a_rate_leaves_no_mean():
    alone = over_classes(CLASSES, RATES | {"d": {"y": -0.3, "u": 4.0}}, GAINS)
    assert (alone.bd_rate_u, alone.bd_rate_v) == (pytest.approx(1.0), None)


def test_the_interval_holds_the_truth_about_as_often_as_it_says():
    rng, held = np.random.default_rng(1), 0
    for _ in range(60):
        rates = {f"{k}{i}": {"y": float(rng.normal(mean, 1))} for k, mean in (("p", -3), ("q", 1)) for i in range(30)}
        classes = {name: name[0] for name in rates}
        low, high = over_classes(classes, rates, {name: [0.1] for name in rates}).bd_rate_y_ci95
        held += low <= -1 <= high
    assert 51 <= held <= 60


@pytest.mark.parametrize(
    ("classes", "rates", "gains"),
    [
        (CLASSES | {"a": None}, RATES, GAINS),
        (dict.fromkeys(CLASSES, "one"), RATES, GAINS),
        (CLASSES, RATES | {"a": {"y": None}}, GAINS),
        (CLASSES, RATES, GAINS | {"d": []}),
    ],
)
def test_what_is_not_known_of_every_sequence_is_not_told(classes, rates, gains):
    assert over_classes(classes, rates, gains) is None
