"""The benchmark of learning: when a curve has a gain, and runs that are timed, resumed and never done twice."""

import math

import pytest

from codecnn.runs import read_jsonl
from tests.helpers.networks import SMALL
from tools.bench import learning
from tools.bench.learning import Recipe, learn, minutes_to

CURVE = [{"seconds": 60, "gain_db": 0.02}, {"seconds": 120, "gain_db": 0.01}, {"seconds": 240, "gain_db": 0.05}]


@pytest.mark.parametrize(
    ("gain", "minutes"), [(0.0, 0), (0.01, 0.5), (0.02, 1), (0.035, 3), (0.05, 4), (0.06, math.inf)]
)
def test_a_gain_is_had_where_the_curve_first_reaches_it(gain, minutes):
    assert minutes_to(CURVE, gain) == pytest.approx(minutes)


def test_a_run_is_timed_once_and_starts_as_the_one_before_it(tiny_store, tmp_path, monkeypatch):
    small = {"features": 2, "blocks": 1, "layers": 1, "growth": 1}
    settings = {"batch": 2, "patch": 48, "warmup": 1, "ema": 0.5}
    first = Recipe(settings, 2, 1, small)
    grown = settings | {"start": {"lift": True, "grow": True}}
    recipe = Recipe(grown, 2, 1, SMALL | {"shuffle": 2, "blocks": 1}, first)
    curve = learn("rdn", recipe, 1, str(tiny_store.folder), tmp_path / "run")
    assert len(curve) == 4
    seconds = [row["seconds"] for row in curve]
    assert seconds == sorted(seconds)
    assert seconds[0] > 0
    own = read_jsonl(tmp_path / "run" / learning.CURVE)
    assert [row["seconds"] + seconds[1] for row in own] == seconds[2:]
    # What was lifted computes what it did, until the first step.
    assert curve[2]["gain_db"] == pytest.approx(curve[1]["gain_db"], abs=0.05)

    def again(*_, **__):
        raise AssertionError("trained again")

    monkeypatch.setattr(learning, "train", again)
    assert learn("rdn", recipe, 1, str(tiny_store.folder), tmp_path / "run") == curve
