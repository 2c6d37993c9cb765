"""Training of the mode classifier: labels match their samples, exact resuming, scores, splits, learning."""

import dataclasses
import functools
import json
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file
from scipy.fft import dctn

from codecnn.api.config import bundled, load_config
from codecnn.base.division import ceil_div
from codecnn.base.errors import ConfigError, MissingFileError, TableError
from codecnn.modes.labels import LabelSettings, file_inputs, read_inputs, store_inputs, write_labels
from codecnn.modes.networks import create_mode_network, load_mode_network, mode_image, mode_side
from codecnn.modes.training import (
    IntraModesConfig,
    LabelledBlocks,
    ModeBatches,
    costs_of,
    intra_modes_task,
    network_input,
    open_labels,
    prepare_validation,
    score_modes,
    soft_targets,
    transpose,
)
from codecnn.modes.training.labels import ALL
from codecnn.training import LoopSettings, train_task
from codecnn.training.checks import network as checks_network
from codecnn.vvc.intra import block_costs, predict_modes, satd
from tests.helpers.commands import result_of
from tests.modes.networks.test_mode_network import SMALL, awaken

SIZES = ((4, 4), (8, 8), (16, 8), (16, 16))
LABELS = LabelSettings(SIZES, ("dct", "hadamard"), ctu_size=32)
SETTINGS = LoopSettings(
    steps=12, batch=8, learning_rate=2e-3, warmup=2, ema=0.5, validate_every=6, seed=3, threads=1, device="cpu"
)
NETWORK = {"features": 6, "blocks": 1, "layers": 2, "growth": 4, "hidden": 12}


def _texture(height, width, seed, bit_depth=10):
    """Return stripes whose direction changes from one 32x32 block to the next, with noise."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width].astype(float)
    angles = rng.uniform(0, np.pi, (ceil_div(height, 32), ceil_div(width, 32)))
    angle = np.kron(angles, np.ones((32, 32)))[:height, :width]
    waves = sum(np.sin((x * np.cos(angle) + y * np.sin(angle)) / wide + 9 * wide) for wide in (1.7, 3.1, 5.3))
    luma = 2 ** (bit_depth - 1) + 2 ** (bit_depth - 4) * waves + rng.normal(0, 2 ** (bit_depth - 8), (height, width))
    return np.clip(np.rint(luma), 0, 2**bit_depth - 1).astype(np.uint16 if bit_depth > 8 else np.uint8)


def _write(path, planes):
    np.stack(planes).tofile(path)
    return path


def _table(path, inputs, settings=LABELS):
    write_labels(path, read_inputs(inputs), settings, inputs=[entry.facts() for entry in inputs])
    return path


def _coded_table(folder, name="a", width=72, height=64, frames=2, qp=30, seed=0, depth=10):
    """Write a table of a clip and a noisy version of it in place of the decoded one."""
    folder.mkdir(exist_ok=True)
    planes = [_texture(height, width, seed + frame, depth) for frame in range(frames)]
    noise = np.random.default_rng(seed)
    noisy = [
        np.clip(plane + noise.integers(-9, 10, plane.shape), 0, 2**depth - 1).astype(plane.dtype) for plane in planes
    ]
    file = f"{name}_{width}x{height}_400_{depth}bit.yuv"
    original, decoded = _write(folder / file, planes), _write(folder / f"dec_{file}", noisy)
    return _table(folder / f"{name}.parquet", file_inputs(original, decoded, qp=qp)), planes, noisy


def _blocks(*tables, split=ALL):
    return LabelledBlocks([(open_labels(table, "dct"), split) for table in tables])


def refused(error, match, table, cost="dct"):
    with pytest.raises(error, match=match):
        open_labels(table, cost)


def _all(blocks, size):
    return blocks.cut(size, np.arange(blocks.count(size)))


def _split_line(cut, height):
    line = cut["line"]
    return line[:, 2 * height], line[:, 2 * height + 1 :], line[:, 2 * height - 1 :: -1]


def _dct_costs(cut, depth=10, standard="vvc"):
    """Compute the costs of all modes independently of the labels: reference predictor and transform of SciPy."""
    height, width = cut["block"].shape[1:]
    pred = predict_modes(*_split_line(cut, height), width, height, depth, standard)
    residual = cut["block"][:, None].astype(float) - pred
    return np.abs(dctn(residual, axes=(2, 3), norm="ortho")).sum((2, 3))


def assert_best(modes, costs):
    """Assert that the modes (n,) have the smallest of their costs (n, modes)."""
    np.testing.assert_allclose(costs[np.arange(len(costs)), modes], costs.min(1), rtol=1e-4)


@pytest.fixture
def table(tmp_path):
    """Two pictures, coded at QP 30."""
    return _coded_table(tmp_path)[0]


@pytest.fixture
def other_table(tmp_path):
    return _coded_table(tmp_path, "v", seed=9)[0]


def test_targets_are_the_best_modes_of_their_samples(tmp_path):
    ten, planes, noisy = _coded_table(tmp_path)
    eight, other_planes, _ = _coded_table(tmp_path, "b", 48, 80, frames=1, qp=22, seed=5, depth=8)
    blocks = _blocks(ten, eight)
    assert blocks.sizes == tuple(sorted(SIZES))
    for size in SIZES:
        width, height = size
        cut = _all(blocks, size)
        first = 2 * (72 // width) * (64 // height)
        assert len(cut["mode"]) == first + (48 // width) * (80 // height)
        assert set(cut["qp"][:first]) == {30}
        assert set(cut["qp"][first:]) == {22}
        corner, top, _ = _split_line(cut, height)
        number = 0
        for originals, references in ((planes, noisy), (other_planes, None)):
            for frame, plane in enumerate(originals):
                for y in range(0, plane.shape[0] - height + 1, height):
                    for x in range(0, plane.shape[1] - width + 1, width):
                        np.testing.assert_array_equal(
                            cut["block"][number], plane[y : y + height, x : x + width], err_msg=f"{size} {x} {y}"
                        )
                        if references is not None and x and y:
                            assert corner[number] == references[frame][y - 1, x - 1]
                            np.testing.assert_array_equal(top[number, :width], references[frame][y - 1, x : x + width])
                        number += 1
        for rows, depth in ((slice(first), 10), (slice(first, None), 8)):
            part = {name: values[rows] for name, values in cut.items()}
            assert set(part["bit_depth"]) == {depth}
            assert_best(part["mode"], _dct_costs(part, depth))
        assert len(set(cut["mode"].tolist())) > 5


def test_the_network_receives_the_planes_of_the_samples(tmp_path):
    blocks = _blocks(*(_coded_table(tmp_path, depth=depth)[0] for depth in (8, 10)))
    for size in ((8, 8), (16, 8)):
        cut = {name: torch.from_numpy(values) for name, values in _all(blocks, size).items()}
        image, side = network_input(create_mode_network(**NETWORK), cut)
        for depth in (8, 10):
            selected = cut["bit_depth"] == depth
            parts = [
                torch.as_tensor(np.ascontiguousarray(part))
                for part in _split_line({"line": cut["line"][selected].numpy()}, size[1])
            ]
            assert torch.equal(image[selected], mode_image(*parts, cut["block"][selected], depth))
        assert torch.equal(side, mode_side(cut["qp"], *size))


@pytest.mark.parametrize("standard", ["vvc", "hevc"])
def test_transposed_blocks_have_transposed_modes(tmp_path, standard):
    path = _write(tmp_path / "p_64x64_400_10bit.yuv", [_texture(64, 64, 1)])
    settings = LabelSettings(((8, 8),), ("dct",), standard=standard, ctu_size=32)
    blocks = _blocks(_table(tmp_path / "l.parquet", file_inputs(path), settings))
    cut = _all(blocks, (8, 8))
    turned = np.arange(64) % 2 == 1
    out = transpose(cut, turned, blocks.modes)
    assert_best(out["mode"], _dct_costs(out, standard=standard))
    assert (out["block"][turned] == cut["block"][turned].swapaxes(1, 2)).all()
    assert (out["mode"][~turned] == cut["mode"][~turned]).all()
    assert (out["mode"] != cut["mode"])[turned].mean() > 0.5


def test_a_batch_is_a_function_of_seed_and_step(tmp_path):
    tables = [_coded_table(tmp_path, name, seed=seed)[0] for seed, name in enumerate("ab")]

    def data(seed=1, part=(0, 1)):
        return ModeBatches(_blocks(*tables), batch=8, steps=100, seed=seed, part=part)

    once, again = data(), pickle.loads(pickle.dumps(data()))
    halves = [data(part=(rank, 2)) for rank in (0, 1)]
    other = data(seed=2)
    differ = 0
    for step in (7, 0, 31):
        batch = once[step]
        for name, tensor in batch.items():
            assert torch.equal(tensor, again[step][name])
            for rank, half in enumerate(halves):
                assert torch.equal(tensor[rank::2], half[step][name])
        differ += batch["block"].shape != other[step]["block"].shape or not torch.equal(
            batch["block"], other[step]["block"]
        )
    assert differ == 3
    thirds = [data(part=(rank, 3))[7]["mode"] for rank in range(3)]
    assert [len(third) for third in thirds] == [3, 3, 2]
    assert all(torch.equal(third, once[7]["mode"][rank::3]) for rank, third in enumerate(thirds))
    with pytest.raises(ConfigError, match=r"8 blocks .* 9"):
        data(part=(0, 9))
    counts = {side: 0 for side, _ in SIZES}
    tops = set()
    for step in range(100):
        shape = tuple(once[step]["block"].shape[1:][::-1])
        assert shape in SIZES
        counts[shape[0]] += 1
        tops |= set(once[step]["block"][:, 0, 0].tolist())
    assert 33 < counts[4] < 60, "0.45 of 4x4"
    assert counts[16] > 12, "0.27 of 16x8 and 16x16"
    assert len(tops) > 150, "blocks from everywhere"


def test_soft_targets_fall_with_the_costs_of_the_samples(table, other_table):
    soft = _task(table, other_table, SMALL | {"modes": 67}, softness=0.1)()
    awaken(soft.model)
    batches = list(soft.batches(range(6), 0, 1, torch.device("cpu")))
    for batch in batches:
        costs = _dct_costs({name: tensor.numpy() for name, tensor in batch.items()})
        np.testing.assert_allclose(batch["costs"], costs, rtol=1e-4)
        excess = costs - costs.min(1, keepdims=True)
        share = np.exp(-excess / np.maximum(0.1 * excess.mean(1, keepdims=True), 1e-12))  # at the corner all are equal
        share /= share.sum(1, keepdims=True)
        with torch.no_grad():
            logits = soft.model(*network_input(soft.model, batch)).double().numpy()
            loss = soft.loss(soft.model, batch).item()
        logs = logits - np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1, keepdims=True))
        logs -= logits.max(1, keepdims=True)
        assert loss == pytest.approx(-(share * logs).sum(1).mean(), rel=1e-4)
        assert_best(soft_targets(batch["costs"], 1e-5).argmax(1).numpy(), costs)
    assert len({batch["block"].shape for batch in batches}) > 1
    assert torch.equal(soft_targets(torch.full((2, 4), 7.0), 0.1), torch.full((2, 4), 0.25))
    plain = _task(table, other_table, SMALL | {"modes": 67})()
    assert "costs" not in next(plain.batches(range(1), 0, 1, torch.device("cpu")))


def _task(labels, validation, network=NETWORK, **facts):
    return lambda: intra_modes_task([labels], [validation], network, SETTINGS, validation_blocks=64, **facts)


def test_a_resumed_run_ends_with_the_same_weights(table, other_table, tmp_path, monkeypatch):
    make = _task(table, other_table)
    settings = SETTINGS.model_copy(update={"checkpoint_every": 4})
    whole = train_task(make, settings, tmp_path / "whole")

    class StopError(Exception):
        pass

    get = ModeBatches.__getitem__

    def interrupted(data, step):
        if step == 9:
            raise StopError
        return get(data, step)

    monkeypatch.setattr(ModeBatches, "__getitem__", interrupted)
    with pytest.raises(StopError):
        train_task(make, settings, tmp_path / "parts")
    monkeypatch.undo()
    again = train_task(make, settings, tmp_path / "parts", resume=True)
    assert again.last["score"] == whole.last["score"]
    for name in ("last", "best"):
        first_run, other = (load_file(tmp_path / run / f"{name}.safetensors") for run in ("whole", "parts"))
        assert all(torch.equal(tensor, other[key]) for key, tensor in first_run.items())
    model, card = load_mode_network(tmp_path / "whole" / "best.safetensors")
    assert (card["task"], card["cost"], card["standard"], card["ctu_size"]) == ("modes", "dct", "vvc", 32)
    assert model.options == NETWORK | {"modes": 67}
    baselines = json.loads((tmp_path / "whole" / "baselines.json").read_text())
    assert baselines["8x8"]["hadamard"]["excess_percent"] < baselines["8x8"]["planar"]["excess_percent"]
    with pytest.raises(ConfigError, match="cost"):
        train_task(_task(table, other_table, cost="hadamard"), settings, tmp_path / "parts", resume=True)


def test_scores_and_baselines_match_numpy(table, tmp_path):
    other, _, _ = _coded_table(tmp_path, "b", seed=20)
    blocks, training = _blocks(table), _blocks(other)
    validation = prepare_validation(blocks, training, "dct", 100)
    counts = {size: len(part.costs) for size, part in validation.items()}
    assert counts == {(4, 4): 100, (8, 8): 50, (16, 8): 35, (16, 16): 25}
    model = awaken(create_mode_network(**SMALL | {"modes": 67})).eval()
    result = score_modes(model, validation, torch.device("cpu"))
    figures = result.figures
    excess = []
    for (width, height), part in validation.items():
        cut = {name: tensor.numpy() for name, tensor in part.batch.items()}
        rows, label = np.arange(len(cut["mode"])), cut["mode"]
        assert len(np.unique(cut["block"].reshape(len(rows), -1), axis=0)) == len(rows), "drawn without repetition"
        costs = _dct_costs(cut)
        with torch.no_grad():
            order = np.argsort(-model(*network_input(model, part.batch)).numpy(), axis=1, kind="stable")

        def lost(modes, costs=costs, rows=rows):
            return 100 * (costs[rows[:, None], modes].min(1).sum() / costs.min(1).sum() - 1)

        name = f"{width}x{height}"
        assert figures["top1"][name] == pytest.approx((order[:, 0] == label).mean())
        assert figures["top3"][name] == pytest.approx((order[:, :3] == label[:, None]).any(1).mean())
        assert figures["excess_percent"][name] == pytest.approx(lost(order[:, :1]), rel=1e-4)
        assert figures["excess_of_3_percent"][name] == pytest.approx(lost(order[:, :3]), rel=1e-4)
        excess.append(lost(order[:, :1]))
        pred = predict_modes(*_split_line(cut, height), width, height, 10)
        residual = (cut["block"][:, None] - pred.astype(np.int64)).reshape(-1, height, width)
        hadamard = satd(residual).reshape(len(rows), 67).argmin(1)
        common = np.bincount(_all(training, (width, height))["mode"]).argmax()
        for choice, modes in (("planar", 0 * rows), ("most_frequent", common + 0 * rows), ("hadamard", hadamard)):
            assert part.baselines[choice]["top1"] == pytest.approx((modes == label).mean())
            assert part.baselines[choice]["excess_percent"] == pytest.approx(lost(modes[:, None]), rel=1e-3, abs=1e-3)
    assert result.score == pytest.approx(-np.mean(excess), rel=1e-4)


def test_the_network_learns_directions(tmp_path):
    settings = LabelSettings(((8, 8),), ("dct",), ctu_size=32)
    tables = []
    for name, frames, seed in (("train", 6, 0), ("val", 2, 50)):
        planes = [_texture(128, 128, seed + frame) for frame in range(frames)]
        file = _write(tmp_path / f"{name}_128x128_400_10bit.yuv", planes)
        tables.append(_table(tmp_path / f"{name}.parquet", file_inputs(file), settings))
    training = LoopSettings(
        steps=250, batch=64, learning_rate=4e-3, warmup=10, ema=0.95, validate_every=250, threads=1, device="cpu"
    )
    network = {"features": 8, "blocks": 1, "layers": 2, "growth": 8, "hidden": 64}
    done = train_task(lambda: intra_modes_task(tables[:1], tables[1:], network, training), training, tmp_path / "run")
    figures = done.last
    baselines = json.loads((tmp_path / "run" / "baselines.json").read_text())["8x8"]
    assert figures["top1"]["8x8"] > 3 * baselines["most_frequent"]["top1"]
    assert figures["excess_percent"]["8x8"] < baselines["planar"]["excess_percent"] / 3


def test_a_sketch_learns_from_blocks_of_its_size_only(table, other_table):
    """Costs of a batch are computed, also by a cost that depends on the QP."""
    sketch = {"network": "mode_sketch", "side": 8, "coefficients": 4, "hidden": 8}
    task = _task(table, other_table, sketch, softness=0.1)()
    assert task.training.sizes == tuple(task.validation) == ((8, 8),)
    assert task.config()["network"] == "mode_sketch"
    for batch in task.batches(range(3), 0, 1, torch.device("cpu")):
        assert batch["block"].shape[1:] == (8, 8)
        assert torch.isfinite(task.loss(task.model, batch))
        cut = {name: tensor.numpy() for name, tensor in batch.items()}
        rates = costs_of(cut, "rate", "vvc")
        for qp in (22, 37):
            cut["qp"][4:] = qp
            again = costs_of(cut, "rate", "vvc")
            np.testing.assert_array_equal(again[:4], rates[:4])
            np.testing.assert_array_equal(again[4:], block_costs(cut["line"][4:], cut["block"][4:], 10, "rate", qp=qp))
    excess = task.validate(task.model, torch.device("cpu")).figures["excess_percent"]["8x8"]
    assert excess < task.validation[8, 8].baselines["planar"]["excess_percent"] / 2, "it starts as a search"
    with pytest.raises(TableError, match="no blocks of 32x32"):
        _task(table, other_table, sketch | {"side": 32})()


def test_a_store_is_split_by_its_recipe(tiny_store, tmp_path):
    settings = LabelSettings(((16, 16),), ("dct",))
    inputs = store_inputs(tiny_store)
    units = [unit for split in ("train", "val") for unit in tiny_store.split(split)]
    assert [(entry.name, entry.qps, entry.split) for entry in inputs] == [
        (unit.name, tuple(picture.qp for picture in unit.pictures), unit.split) for unit in units
    ]
    for unit, source in zip(units, read_inputs(inputs), strict=True):
        with unit.originals() as originals, unit.decoded() as decoded:
            np.testing.assert_array_equal(source.original, originals[0].y)
            np.testing.assert_array_equal(source.references, decoded[0].y)
    table = _table(tmp_path / "l.parquet", inputs, settings)
    task = intra_modes_task([table], [], NETWORK, SETTINGS)
    for blocks, split in ((task.training, "train"), (_blocks(table, split="val"), "val")):
        cut = _all(blocks, (16, 16))
        forms = [unit.format for unit in tiny_store.split(split)]
        assert len(cut["mode"]) == sum((form.width // 16) * (form.height // 16) for form in forms)
        assert set(cut["qp"].tolist()) == {unit.qp for unit in tiny_store.split(split)}
    validated = task.validation[16, 16].batch["block"].flatten(1).numpy()
    training_blocks = _all(task.training, (16, 16))["block"].reshape(-1, 256)
    both = np.concatenate((validated, training_blocks))
    distinct, *each = (len(np.unique(blocks, axis=0)) for blocks in (both, validated, training_blocks))
    assert distinct == sum(each)
    only = _table(tmp_path / "train.parquet", store_inputs(tiny_store, ["train"]), settings)
    with pytest.raises(ConfigError, match="no pictures to validate on"):
        intra_modes_task([only], [], NETWORK, SETTINGS)
    other = _table(tmp_path / "t.parquet", store_inputs(tiny_store, ["test"]), settings)
    with pytest.raises(ConfigError, match="all are in other splits"):
        intra_modes_task([other], [], {}, SETTINGS)


def test_a_picture_in_both_splits_is_refused(table, tmp_path):
    with pytest.raises(ConfigError, match=r"a_72x64_400_10bit.yuv"):
        intra_modes_task([table], [table], NETWORK, SETTINGS)
    inputs = file_inputs(tmp_path / "a_72x64_400_10bit.yuv")
    parted = [dataclasses.replace(inputs[0], split=split) for split in ("train", "val")]
    with pytest.raises(ConfigError, match="both trained and validated on"):
        intra_modes_task([_table(tmp_path / "both.parquet", parted)], [], NETWORK, SETTINGS)


def test_changed_pictures_are_refused(table, tmp_path):
    open_labels(table, "dct")
    path = tmp_path / "dec_a_72x64_400_10bit.yuv"
    content = path.read_bytes()
    path.write_bytes(content[:-2] + b"\0\0")
    refused(TableError, r"dec_a_72x64_400_10bit.yuv has other content than when .*a.parquet was made", table)
    path.unlink()
    refused(MissingFileError, r"dec_a_72x64_400_10bit.yuv, which .*a.parquet labels, does not exist", table)


def _with_facts(table, change):
    content = pq.read_table(table)
    facts = json.loads(content.schema.metadata[b"codecnn"])
    change(facts)
    pq.write_table(content.replace_schema_metadata({"codecnn": json.dumps(facts)}), table)


def _with_column(table, name, change):
    content = pq.read_table(table)
    number = content.schema.get_field_index(name)
    field = content.schema.field(number)
    values = pa.array(change(content[name].to_numpy()), field.type)
    pq.write_table(content.set_column(number, field, values), table)


def test_unusable_tables_are_refused(table, tmp_path):
    refused(TableError, "labels by dct, hadamard, not by 'sad'", table, "sad")
    refused(MissingFileError, r"no\.parquet does not exist", tmp_path / "no.parquet")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    (tmp_path / "text.parquet").write_text("no table")
    for name in ("other", "text"):
        refused(TableError, f"{name}.parquet is not a table of `codecnn labels`", tmp_path / f"{name}.parquet")
    _with_facts(table, lambda facts: facts["inputs"][0].pop("qps"))
    refused(TableError, r"does not say at which QP .*dec_a.* was coded: label it again with -q", table)
    _with_facts(table, lambda facts: facts["inputs"][0].pop("sha256"))
    refused(TableError, "does not say which files", table)
    _with_facts(table, lambda facts: facts.update(labels=1))
    refused(TableError, "schema 1, not 2", table)


@pytest.mark.parametrize(("column", "value"), [("x", 70), ("y", -4), ("mode_dct", 67), ("input", 1), ("frame", 2)])
def test_rows_outside_of_their_pictures_are_refused(table, tmp_path, column, value):
    _with_column(table, column, lambda values: np.where(np.arange(len(values)) == 17, value, values))
    refused(TableError, "has rows of blocks or modes that its pictures do not have", table)
    assert not (tmp_path / "a.parquet.dct.cache").exists()


def test_labels_of_other_samples_are_refused(table):
    _with_column(table, "mode_dct", lambda modes: (modes + 20) % 67)
    blocks = _blocks(table)
    with pytest.raises(TableError, match=r"labels of 16x16 .*a.parquet|labels of 4x4"):
        prepare_validation(blocks, blocks, "dct", 64)


def test_a_cache_is_reused_but_not_for_another_table(table, tmp_path, monkeypatch):
    cache = open_labels(table, "dct")
    rows = {size: np.array(cache.rows(ALL, size)) for size in SIZES}
    built_at = (cache.folder / "facts.json").stat().st_mtime_ns
    assert open_labels(table, "dct").folder == cache.folder
    assert (cache.folder / "facts.json").stat().st_mtime_ns == built_at
    monkeypatch.setattr("codecnn.modes.training.labels._BATCH", 7)
    _with_facts(table, lambda facts: facts.update(argv=["other"]))
    again = open_labels(table, "dct")
    assert (again.folder / "facts.json").stat().st_mtime_ns > built_at
    assert all((again.rows(ALL, size) == rows[size]).all() for size in SIZES)
    assert again.planes().size == 4 * 72 * 64, "two originals, two decoded"
    files = (tmp_path / "a_72x64_400_10bit.yuv", tmp_path / "dec_a_72x64_400_10bit.yuv")
    both = [file_inputs(*files, qp=qp)[0] for qp in (22, 37)]
    shared = open_labels(_table(tmp_path / "two.parquet", both), "dct")
    assert shared.planes().size == 6 * 72 * 64, "an original that was coded twice is there once"
    assert sorted(path.name for path in tmp_path.glob("*.part*")) == []


def test_commands_from_pictures_to_a_network(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("codecnn.training.checks.data.WAITING_SECONDS", 0.5)
    monkeypatch.setattr(checks_network, "first_steps", functools.partial(checks_network.first_steps, steps=20))
    for name, seed in (("t", 0), ("v", 7)):
        _coded_table(tmp_path, name, seed=seed)
        file = f"{name}_72x64_400_10bit.yuv"
        argv = ["-i", file, "--decoded", f"dec_{file}", "-q", "32", "-o", f"{name}.parquet", "--block-sizes", "8,32"]
        assert run("labels", *argv)[0] == 0
    config = bundled("configs/modes.yaml")
    assert isinstance(load_config(config), IntraModesConfig)
    values = ["labels=t.parquet", "validation=[v.parquet]", "validation_blocks=32", "training.steps=4"]
    values += ["training.validate_every=2", "training.device=cpu", "training.threads=1", "training.warmup=1"]
    code, out, err = run("train", config, *values, "-o", "run")
    assert code == 0
    assert "excess cost" in out
    shares = load_mode_network(tmp_path / "run" / "best.safetensors")[1]["validation"]
    assert 0 <= shares["top1"]["mean"] < shares["top3"]["mean"] <= 1
    assert result_of(run, "train", config, *values, "-o", "run", "--resume")["step"] == 4
    code, out, err = run("check", config, *values, "--json")
    verdicts = {finding["name"]: finding["verdict"] for finding in json.loads(out)}
    for name in ("gradients", "one batch overfitted", "float32 against float64", "determinism", "data untouched"):
        assert verdicts[name] == "pass", out + err
    code, out, err = run("train", config, *values, "training.patch=64", "-o", "other")
    assert code == 1
    assert "unknown key 'training.patch'" in " ".join(err.split())


REFUSED = {
    "task=sorting": "task must be filter or intra_modes, not 'sorting'",
    "task=modes": "the task modes was renamed: write intra_modes",
    "store=x": "unknown key 'store'",
    "training.loss=l1": "unknown key 'training.loss'",
    "model.features=a": "model.features: input should be a valid integer",
}


@pytest.mark.parametrize(("override", "sentence"), REFUSED.items())
def test_a_configuration_of_another_task_is_refused(override, sentence):
    with pytest.raises(ConfigError, match=sentence):
        load_config(bundled("configs/modes.yaml"), [override])


def test_the_labels_command_on_a_store(run, tiny_store, tmp_path, monkeypatch):
    argv = ["labels", "-i", tiny_store.folder, "-o", tmp_path / "l.parquet", "--block-sizes", "32"]
    assert result_of(run, *argv)["pictures"] == len(tiny_store.split("train")) + len(tiny_store.split("val"))
    assert set(pq.read_table(tmp_path / "l.parquet")["qp"].to_pylist()) == {unit.qp for unit in tiny_store.units}
    assert result_of(run, *argv, "--split", "test")["pictures"] == len(tiny_store.split("test"))
    refusals = {"-q": "is a store, which defines qp itself", "--split": "has no pictures in the split '9'"}
    for more, sentence in refusals.items():
        code, _, err = run(*argv, more, "9")
        assert code == 1
        assert sentence in " ".join(err.split())
