"""Training on the rehearsal device gives what training on the CPU gives."""

import pytest
import torch
from safetensors.torch import load_file

from codecnn.config import checked
from codecnn.training import FilterSettings
from tests.helpers.networks import SMALL
from tests.helpers.rehearsal import synchronisations
from tests.helpers.training import lines, rows, train_filter

SETTINGS = {"steps": 4, "batch": 4, "patch": 32, "warmup": 1, "validate_every": 2, "checkpoint_every": 2, "threads": 1}
OPTIONS = SMALL | {"conditioning": "film", "shuffle": 2}


def settings(**changes):
    return checked(FilterSettings, SETTINGS | changes, "training")


def assert_close(run, expected, tolerance=1e-5):
    actual, wanted = rows(run), rows(expected)
    assert [row["step"] for row in actual] == [row["step"] for row in wanted]
    for a, b in zip(actual, wanted, strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=tolerance)
        assert a["score"] == pytest.approx(b["score"], abs=1e-3)
    weights = load_file(run / "last.safetensors")
    for name, tensor in load_file(expected / "last.safetensors").items():
        torch.testing.assert_close(weights[name], tensor, rtol=1e-4, atol=tolerance)


VARIANTS = [
    {"accumulate": 2, "optimiser": "muon"},
    {"workers": 1},
    {"resident": True},
    {"precision": "bfloat16"},
    {"optimiser": "sgd"},
    {"optimiser": "rmsprop", "ema": 0},
    {"teacher": {"weights": "low_cost_5"}},
    {"precision": "auto"},
    {"loss": "satd"},
    {"loss": "dct", "error_exponent": 0.5, "border": 8},
]


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_a_run(tiny_store, tmp_path, device, changes):
    for name in (device, "cpu"):
        train_filter(tiny_store, "rdn", OPTIONS, settings(device=name, **changes), tmp_path / name)
    assert_close(tmp_path / device, tmp_path / "cpu", 1e-2 if changes.get("precision") else 1e-5)
