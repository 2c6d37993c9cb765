"""The rule for CTU on/off: thresholds, what it finds where QP and depth decide, and flags beside it."""

import numpy as np
import pytest

from tools.ctu_rule import Rows, Units, _flags, judged, table, threshold

SEQUENCES, QPS, CTUS = 12, (22, 27, 32, 37), 8


def test_thresholds_take_what_is_worth_most_from_either_side():
    w = np.array([1.0, 2.0, 2.0, 3.0, 4.0])
    assert threshold(w, np.array([-5.0, 3.0, -1.0, 4.0, -2.0])) == (1.0, 2.0)
    assert threshold(w, np.array([5.0, 3.0, -1.0, -4.0, -2.0])) == (-1.0, -2.0)
    sign, least = threshold(w, np.array([-1.0, 3.0, -4.0, -1.0, -1.0]))
    assert not (sign * w >= least).any(), "equal values cannot be parted"


@pytest.fixture(scope="module")
def made():
    """Pictures of which a filter repairs the CTUs with QP + 4·depth above 40, and harms the others."""
    rng = np.random.default_rng(0)
    count = SEQUENCES * len(QPS)
    qp = np.tile(QPS, SEQUENCES)
    unit = np.repeat(np.arange(count), CTUS)
    depth = rng.uniform(0, 6, len(unit))
    area = np.full(len(unit), 4096)
    before = area * np.exp(0.2 * qp[unit] - 2) * rng.uniform(0.9, 1.1, len(unit))
    factor = np.where(qp[unit] + 4 * depth > 40, 0.9, 1.1)
    rows = Rows(unit, qp[unit], depth, before, before * factor, area, 0.6 * 2.0 ** ((qp[unit] - 12) / 3))
    names = [f"s{number}" for number in range(SEQUENCES)]
    kinds = ["a" if number % 3 else "b" for number in range(SEQUENCES)]
    bits = 4e5 * 2.0 ** (-(qp - 22) / 5)
    samples, columns = np.full(count, CTUS * 4096), np.full(count, 4)
    sequence = np.repeat(np.arange(SEQUENCES), len(QPS))
    return rows, Units(sequence, names, kinds, bits, samples, qp, columns, np.full(count, 48.13))


def test_where_qp_and_depth_decide_the_rule_finds_it(made):
    found = judged(*made)
    rule, flags = found["rule: a, b that save most"], found["flags, with their bits"]
    free = found["flags, if they were free"]
    assert found["everywhere"]["less"] == 0
    assert free["less"] < flags["less"] < 0
    assert rule["less"] < 0.9 * free["less"], (
        "nearly as good as flags without bits, on pictures that it was not fitted on"
    )
    assert rule["less_ci95"][1] < 0
    assert rule["percent"] == 0 < found["a flag a picture"]["percent"] < flags["percent"]
    assert abs(rule["on"] - free["on"]) < 0.05
    text = table("it", found)
    assert f"| flags, with their bits | {100 * flags['on']:.1f} %" in text


def test_flags_say_one_bit_where_nothing_is_filtered(made):
    rows, facts = made
    on, bits = _flags(rows._replace(after=2 * rows.before), facts)
    assert not on.any()
    assert (bits == 1).all()
    on, bits = _flags(rows._replace(after=0.5 * rows.before), facts)
    assert on.all()
    assert (bits == 2).all()
