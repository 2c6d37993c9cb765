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


def test_rows_compare_with_the_plain_recipe_seed_by_seed(tmp_path):
    plain = [[{"seconds": 600, "gain_db": 0.02}], [{"seconds": 1200, "gain_db": 0.04}]]
    taught = [[{"seconds": 60, "gain_db": 0.02}], [{"seconds": 120, "gain_db": 0.08}]]
    rows = learning._rows("low_cost_17", {"plain": plain, "taught": taught})
    own = {row["recipe"]: row for row in rows}
    assert own["plain"]["minutes_to_plain"] == pytest.approx(15)
    assert own["plain"]["ratio"] == pytest.approx(1)
    assert own["taught"]["gain_db"] == pytest.approx(0.05)
    assert own["taught"]["minutes_to_plain"] == pytest.approx(1)
    assert own["taught"]["ratio"] == pytest.approx((10 + 20) / 2)
    learning.draw(rows, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 10_000
