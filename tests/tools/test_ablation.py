"""tools/research/ablation.py: tables, means over seeds, start weights of other variants, kept results."""

import argparse
import statistics
from pathlib import Path

import pytest

from codecnn.base.errors import ConfigError
from codecnn.models import create_model, lift, load_model
from codecnn.training import FilterSettings
from tests.helpers.networks import SMALL
from tools.research import ablation
from tools.research.ablation import Runs, Table, format_table, read_table, replaced

FOLDER = Path(ablation.__file__).parent
SETTINGS = FilterSettings(
    steps=2, batch=2, patch=48, warmup=1, ema=0.5, learning_rate=1e-2, validate_every=2, threads=1, device="cpu"
)
TABLE = Table(
    variants={
        "from base": {
            "network": "rdn",
            "options": SMALL,
            "training": {"start": {"weights": "@base: all"}, "learning_rate": 1e-8},
        },
        "base: all": {"network": "rdn", "options": SMALL},
    }
)
VARIANTS = [
    pytest.param(variant, table.training, id=f"{path.stem}: {name}")
    for path in sorted(FOLDER.glob("*.yaml"))
    for table in [read_table(path)]
    for name, variant in table.variants.items()
]


@pytest.mark.parametrize(("variant", "training"), VARIANTS)
def test_every_variant_can_be_trained(variant, training):
    """The network exists, its settings are valid, and a lifted start is possible."""
    model = create_model(variant.network, **variant.options)
    settings = replaced(FilterSettings(**training), variant.training)
    if settings.start is not None and settings.start.lift:
        assert settings.start.weights is None
        lift(model)


def test_all_tables_are_read():
    assert {path.stem for path in FOLDER.glob("*.yaml")} == {
        "notebook",
        "notebook_small",
        "planes",
        "recipe",
        "video_planes",
    }
    assert len(VARIANTS) > 60


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("variants: {A: {network: rdn, option: {}}}", "option"),
        ("variants: {A: {network: rdn, training: {start: {weights: '@B'}}}}", "'A' starts from 'B', which is not one"),
        ("training: {}", "variants"),
    ],
)
def test_wrong_table_is_refused(text, message, tmp_path):
    (tmp_path / "table.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_table(tmp_path / "table.yaml")


@pytest.fixture(scope="module")
def runs(tiny_store, tmp_path_factory):
    options = argparse.Namespace(
        store=tiny_store.folder, test=tiny_store.folder, split="val", output=tmp_path_factory.mktemp("variants")
    )
    return Runs(TABLE, SETTINGS, options, [1, 2])


def _weights(runs, name, seed):
    return load_model(runs.folder(name, seed) / "last.safetensors")[0].state_dict()


def test_row_is_the_mean_over_seeds_and_nothing_trains_twice(runs, monkeypatch):
    row = runs.row("from base")
    results = [runs.result("from base", seed) for seed in (1, 2)]
    means = [result["gain_mean_db"] for result in results]
    assert means[0] != means[1]
    assert row["gain_mean_db"] == statistics.mean(means)
    assert row["spread_db"] == statistics.stdev(means)
    assert row["gain_db"]["42"] == statistics.mean(result["gain_db"]["42"] for result in results)
    assert f"**{row['gain_mean_db']:+.4f}** ± {row['spread_db']:.4f}" in format_table([row], SETTINGS, {}, [1, 2])

    def train(*_, **__):
        raise AssertionError("trained again")

    monkeypatch.setattr(ablation, "train", train)
    assert runs.row("from base") == row


def test_start_weights_are_those_of_the_same_seed(runs):
    runs.row("from base")
    for seed in (1, 2):
        base, continued = _weights(runs, "base: all", seed), _weights(runs, "from base", seed)
        assert all((base[name] - continued[name]).abs().max() < 1e-4 for name in base)
    assert any((_weights(runs, "base: all", 1)[name] - tensor).abs().max() > 1e-2 for name, tensor in base.items())


def test_command_writes_the_table(tiny_store, tmp_path, capsys):
    (tmp_path / "table.yaml").write_text(
        "claims: {A: '+0.15'}\nvariants: {A: {network: rdn, options: {features: 4, blocks: 1, layers: 1, growth: 4}}}"
    )
    arguments = [str(tmp_path / "table.yaml"), "--store", str(tiny_store.folder), "--split", "val"]
    arguments += ["-o", str(tmp_path / "runs")]
    training = ["steps=1", "batch=2", "patch=48", "warmup=0", "validate_every=1", "threads=1", "device=cpu"]
    ablation.main([*arguments, *training])
    text = (tmp_path / "runs" / "table.md").read_text()
    assert text in capsys.readouterr().out
    assert "| A | " in text
    assert " | +0.15 | **" in text
    with pytest.raises(SystemExit):
        ablation.main([*arguments, "--only", "B", *training])
    assert "no variant of" in capsys.readouterr().err
