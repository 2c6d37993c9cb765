"""Tables of variants: seeds, weights that pass from one variant to another, and nothing trained twice."""

import argparse
import statistics

import pytest

from codecnn.models import create_model, lift, load_model
from codecnn.training import FilterSettings
from tests.helpers.networks import SMALL
from tools import notebook, variants
from tools.lottery import channels
from tools.variants import TICKET, Runs, changed, table

SETTINGS = FilterSettings(
    steps=2, batch=2, patch=48, warmup=1, ema=0.5, learning_rate=1e-2, validate_every=2, threads=1, device="cpu"
)
SMALLER = SMALL | {"growth": 2}
TABLE = {
    "its ticket, again": ("rdn", SMALLER, {"start": {"weights": f"@{TICKET}base: all"}, "learning_rate": 1e-8}),
    "base: all": ("rdn", SMALL),
    "from base": ("rdn", SMALL, {"start": {"weights": "@base: all"}, "learning_rate": 1e-8}),
}

VARIANTS, NOTEBOOK = variants.DEFAULTS, {"questions": notebook.RECIPE}
ROWS = [
    pytest.param(row, {**VARIANTS.get(table, {}), **NOTEBOOK.get(table, {})}, id=f"{table}: {name}")
    for table, rows in {**variants.TABLES, **notebook.TABLES}.items()
    for name, row in rows.items()
]


@pytest.mark.parametrize(("row", "defaults"), ROWS)
def test_every_row_of_every_table_can_begin(row, defaults):
    """Its network can be made, its settings hold, and what starts lifted can be lifted."""
    network, options, *changes = row
    model = create_model(network, **options)
    settings = changed(FilterSettings(**defaults), *changes)
    if settings.start is not None and settings.start.lift:
        assert settings.start.weights is None
        lift(model)


@pytest.fixture(scope="module")
def runs(tiny_store, tmp_path_factory):
    args = argparse.Namespace(
        store=tiny_store.folder, test=tiny_store.folder, split="val", output=tmp_path_factory.mktemp("variants")
    )
    return Runs(TABLE, SETTINGS, args, [1, 2])


def _weights(runs, name, seed):
    return load_model(runs.folder(name, seed) / "last.safetensors")[0].state_dict()


def test_a_row_is_the_mean_of_its_seeds(runs, monkeypatch):
    row = runs.row("from base")
    results = [runs.result("from base", seed) for seed in (1, 2)]
    means = [result["gain_mean_db"] for result in results]
    assert means[0] != means[1]
    assert row["gain_mean_db"] == statistics.mean(means)
    assert row["spread_db"] == statistics.stdev(means)
    assert row["gain_db"]["42"] == statistics.mean(result["gain_db"]["42"] for result in results)
    assert f"**{row['gain_mean_db']:+.4f}** ± {row['spread_db']:.4f}" in table([row], SETTINGS, {}, [1, 2])

    def again(*_, **__):
        raise AssertionError("trained again")

    monkeypatch.setattr(variants, "train", again)
    assert runs.row("from base") == row


def test_what_starts_from_another_variant_starts_from_that_of_its_seed(runs):
    runs.row("from base")
    for seed in (1, 2):
        learned, further = _weights(runs, "base: all", seed), _weights(runs, "from base", seed)
        assert all((learned[name] - further[name]).abs().max() < 1e-4 for name in learned)
    assert any((_weights(runs, "base: all", 1)[name] - tensor).abs().max() > 1e-2 for name, tensor in learned.items())


def test_a_ticket_is_pruned_and_at_its_first_weights(runs):
    runs.row("its ticket, again")
    assert [runs.result("its ticket, again", seed)["parameters"] for seed in (1, 2)] == [
        sum(parameter.numel() for parameter in load_model(ticket)[0].parameters())
        for ticket in (runs.folder("its ticket, again", seed) / "ticket.safetensors" for seed in (1, 2))
    ]
    ticket = load_model(runs.folder("its ticket, again", 1) / "ticket.safetensors")[0]
    trained = load_model(runs.folder("base: all", 1) / "last.safetensors")[0]
    assert len(channels(trained, ticket)["blocks.0.layers.0"]) == 2
    assert not ticket.state_dict()["tail.weight"].any()  # where every training starts
