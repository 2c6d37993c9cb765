"""Damaged or hostile tables, traces, stores, YAML files and weights; see test_fuzz.py for pictures."""

import csv
import gzip
import io
import json
import re
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.torch import load_file, save_file

from codecnn.analysis import load_table
from codecnn.api.config import bundled, load_config, load_recipe
from codecnn.base.errors import ModelError
from codecnn.base.files import sha256_file
from codecnn.codec import COLUMNS, coded_size, read_blocks, read_vtm_stats, read_x265_analysis
from codecnn.dataset import open_store, verify_store
from codecnn.models import create_model, load_model, save_weights
from tests.helpers.fuzzing import damage_json, fuzz, mutate, pick, time_limit
from tests.helpers.golden import GoldenFile

# --- tables --------------------------------------------------------------------------------------------------------


def table_of_cus(folder: Path) -> pa.Table:
    rng = np.random.default_rng(6)
    columns = {name: pa.array(rng.integers(0, 64, 40), pa.int32()) for name in COLUMNS}
    columns |= {"channel": pa.array(["L", "C"] * 20), "depth_mean": pa.array(rng.random(40))}
    return pa.table(columns | {"mse_y": pa.array(rng.random(40)), "unit": pa.array(["u"] * 40)})


def test_damaged_parquet(tmp_path: Path) -> None:
    """Compare with pyarrow, because Parquet has no checksums by default."""
    pq.write_table(table_of_cus(tmp_path), tmp_path / "whole.parquet")
    whole = (tmp_path / "whole.parquet").read_bytes()

    def case(rng: np.random.Generator) -> None:
        path = tmp_path / "a.parquet"
        path.write_bytes(mutate(whole, rng, first=0 if rng.random() < 0.3 else len(whole) * 2 // 3))
        if rng.random() < 0.5:
            table = read_blocks(path)
            for name in COLUMNS[2:]:
                assert getattr(table, name).tolist() == pq.read_table(path)[name].to_pylist()
        else:
            columns = load_table(path)
            assert columns["qp"].tolist() == pq.read_table(path)["qp"].to_pylist()

    assert fuzz("parquet", case)["error"] > 10


def test_damaged_csv(tmp_path: Path) -> None:
    pa.csv.write_csv(table_of_cus(tmp_path), tmp_path / "whole.csv")
    whole = (tmp_path / "whole.csv").read_bytes()

    def case(rng: np.random.Generator) -> None:
        path = tmp_path / "a.csv"
        path.write_bytes(mutate(whole, rng))
        rows = list(csv.DictReader(io.StringIO(path.read_text(errors="surrogateescape"))))
        if rng.random() < 0.5:
            got = read_blocks(path).x.tolist()
            assert got == [int(row["x"]) for row in rows]
        else:
            got = load_table(path)["qp"].tolist()
            assert got == [float(row["qp"]) for row in rows]

    fuzz("csv", case, both=5)


def test_damaged_vtm_traces(golden_file: GoldenFile, tmp_path: Path) -> None:
    packed = golden_file("vvc/tiny64x64_ai_qp32.vtmbmsstats.gz").read_bytes()
    text = gzip.decompress(packed)
    pattern = re.compile(r"BlockStat: POC (\d+) @\( *(\d+), *(\d+)\) \[ *(\d+)x *(\d+)\] Depth=(-?\d+)\s*")

    def case(rng: np.random.Generator) -> None:
        path = tmp_path / "a.vtmbmsstats"
        content = mutate(text, rng)
        if rng.random() < 0.3:
            path = tmp_path / "a.vtmbmsstats.gz"
            content = mutate(packed, rng)
        path.write_bytes(content)
        table = read_vtm_stats(path)
        plain = gzip.decompress(content) if path.suffix == ".gz" else content
        lines = [pattern.fullmatch(line) for line in plain.decode("ascii", errors="replace").split("\n")]
        wanted = {tuple(map(int, match.groups())) for match in lines if match and int(match[4]) and int(match[5])}
        got = zip(table.poc, table.x, table.y, table.w, table.h, table.depth, table.channel, strict=True)
        assert {tuple(map(int, row[:6])) for row in got if row[6] == 0} == wanted

    fuzz("vtm trace", case, both=10)


def test_damaged_x265_analysis(golden_file: GoldenFile, tmp_path: Path) -> None:
    """Accepted files cover each picture once with CUs whose size matches their depth."""
    names = ("chelsea178x130_ai_qp32_ctu32", "clip_rab_amp_qp32")
    wholes = [golden_file(f"hevc/{name}.dat").read_bytes() for name in names]

    def case(rng: np.random.Generator) -> None:
        path = tmp_path / "a.dat"
        whole = pick(rng, wholes)
        first = int(rng.choice([0, 0, 80, len(whole) // 2]))
        path.write_bytes(mutate(whole[: len(whole) if rng.random() < 0.5 else first + 200], rng, first))
        table = read_x265_analysis(path)
        width, height = coded_size(path)
        ctu = struct.unpack_from("<i", path.read_bytes(), 76)[0]
        assert (table.w == ctu >> table.depth).all()
        for poc in np.unique(table.poc):
            cus = table.select(table.poc == poc)
            inside = (np.minimum(cus.x + cus.w, width) - cus.x) * (np.minimum(cus.y + cus.h, height) - cus.y)
            assert inside.sum() == width * height
            assert len(set(zip(cus.x.tolist(), cus.y.tolist(), strict=True))) == len(cus)

    fuzz("x265 analysis", case, both=10)


# --- stores, YAML, weights -----------------------------------------------------------------------------------------


def use_store(folder: Path) -> set[str]:
    """Read everything in a store; return the files that fail verification."""
    store = open_store(folder)
    assert isinstance(store.data_key, str)
    for unit in store.units:
        assert (type(unit.key), type(unit.name), type(unit.qp)) == (str, str, int)
        assert all((folder / name).resolve().is_relative_to(folder.resolve()) for name in unit.files)
        for video in (unit.originals(), unit.decoded(), unit.unfiltered(), unit.prediction()):
            if video is not None:
                assert video.path.resolve().is_relative_to(folder.resolve())
                assert len(list(video)) > 0
        planes = unit.block_planes()
        assert planes is None or planes.ndim == 4
    for split in ("train", "val", "test"):
        assert len(store.split(split)) > 0
    assert store.ctus().num_rows > 0
    return {name for name, wrong in verify_store(store) if wrong}


def test_damaged_stores(tiny_store: Any, tmp_path: Path) -> None:
    """A damaged file is detected by opening the store or by verification."""
    folder = tmp_path / "store"
    shutil.copytree(tiny_store.folder, folder)
    assert use_store(folder) == set()
    files = ["manifest.json", "units.jsonl", "ctus.parquet", *sorted(tiny_store.units[0].files)]

    def case(rng: np.random.Generator) -> None:
        name = pick(rng, [*files[:3], *files[:3], *files])
        whole = (folder / name).read_bytes()
        text = name.endswith(("manifest.json", ".jsonl"))
        if text and rng.random() < 0.75:
            lines = [json.loads(line) for line in (whole.splitlines() if name == files[1] else [whole])]
            place = int(rng.integers(len(lines)))
            lines[place] = damage_json(lines[place], rng)
            content = b"\n".join(json.dumps(line).encode() for line in lines)
        elif text and rng.random() < 0.3:
            content = pick(
                rng, [b"[" * 100_000, b"9" * 10_000, b'{"a":' * 50_000, b"\xff\xfe", b"", b"null", b"5\n5\n5\n5\n5\n5"]
            )
        else:
            content = mutate(whole, rng)
        (folder / name).write_bytes(content)
        try:
            assert content == whole or name in use_store(folder) or name == files[0]
        finally:
            (folder / name).write_bytes(whole)

    fuzz("store", case, both=10)
    assert use_store(folder) == set()


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefghijk", "bcdefghijkl", strict=True)
)
DEEP = (BOMB, BOMB + "name: *l\n", "name: &x [*x]\n", "&x {name: *x}\n", "[" * 1_000, "{a: " * 5_000, "- " * 20_000)
TYPES = ("", "null", "5", "text", "- a\n", "? [a, b]\n: 1\n", "1: 2\n", "null: 1\n", "a: 2001-99-99\n")
TAGS = ("a: !!python/object/apply:os.system ['touch canary']\n", "a: !!binary x\n", "<<: 5\n", "%YAML 9.9\n---\n")
WORDS = ("a: &b\n", "a: *b\n", "\t", "name: x\nname: y\n", "\x00")
NUMBERS = ("a: 1e9999\n", "a: " + "9" * 9999, "qp: 0x" + "f" * 9999, "a: 1:99:99\n", "a: =\n")
YAMLS = [*DEEP, *TYPES, *TAGS, *WORDS, *NUMBERS]


def test_recipes_and_configurations(tmp_path: Path) -> None:
    recipe = bundled("datasets/demo.yaml").read_bytes()
    config = bundled("configs/demo.yaml").read_bytes()
    values = [b"[]", b"{}", b"-1", b"1e400", b"9" * 5000, b"10000000000000000000000", b"null", b"~", b"true", b".nan"]
    values += [b"[[[[[]]]]]", b"'x'", b"2001-01-01", b"!!set {a}", b"!!binary aGk=", b"|\n  x\n", b".inf"]

    def case(rng: np.random.Generator) -> None:
        path = tmp_path / "a.yaml"
        load, whole = pick(rng, [(load_recipe, recipe), (load_config, config)])
        overrides = []
        match int(rng.integers(4)):
            case 0:
                content = mutate(whole, rng)
            case 1:
                fields = list(re.finditer(rb"(?<=: )[^\n#{\[]+", whole))
                field = pick(rng, fields)
                content = whole[: field.start()] + pick(rng, values) + whole[field.end() :]
            case 2:
                content = pick(rng, YAMLS).encode()
            case _:
                content = whole
                overrides = [pick(rng, ["qp", "training.steps", "a.b", "", "store", "codec", "training"]) + "="]
                overrides[0] += pick(rng, [*map(bytes.decode, values), BOMB, "[" * 1_000, "\x00", "&x [*x]"])
        path.write_bytes(content)
        loaded = load(path, overrides)
        assert type(loaded).model_validate(loaded.model_dump(by_alias=True)) == loaded

    fuzz("yaml", case, both=10)
    assert [path.name for path in tmp_path.iterdir()] == ["a.yaml"]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "w.safetensors"
    options = {"features": 4, "blocks": 1, "layers": 1, "growth": 2}
    save_weights(path, create_model("rdn", **options), "rdn", {"data_key": "x"})
    return path


def check_model(path: Path, card: Any) -> None:
    path.with_suffix(".json").write_text(json.dumps(card) if not isinstance(card, str) else card)
    network, _ = load_model(path)
    tensors = load_file(path)
    assert {name: value.shape for name, value in network.state_dict().items()} == {
        name: value.shape for name, value in tensors.items()
    }
    for name, value in network.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), tensors[name].float().numpy())


def test_damaged_weights(weights: Path, tmp_path: Path) -> None:
    """The sha256 in the card is corrected, so that the reader of the file is tested."""
    whole = weights.read_bytes()
    card = json.loads(weights.with_suffix(".json").read_text())
    length = struct.unpack("<Q", whole[:8])[0]
    header = json.loads(whole[8 : 8 + length])
    path = tmp_path / "a.safetensors"

    def case(rng: np.random.Generator) -> None:
        match int(rng.integers(5)):
            case 0:
                content = mutate(whole, rng, first=8 + length)
            case 1:
                content = struct.pack("<Q", pick(rng, [0, 1, length + 1, 2**40, 2**64 - 1])) + whole[8:]
            case 2:
                damaged = json.dumps(damage_json(header, rng)).encode()
                content = struct.pack("<Q", len(damaged)) + damaged + whole[8 + length :]
            case 3:
                name = pick(rng, ["../../canary", "", "head.weight", "\0", "a" * 9999])
                tensors = load_file(weights)
                key = pick(rng, sorted(tensors))
                kind = pick(rng, ["float64", "int8", "bool", "float16", "complex64", "float32"])
                tensors[name] = tensors.pop(key).to(getattr(__import__("torch"), kind))
                save_file(tensors, path)
                content = path.read_bytes()
            case _:
                content = mutate(whole, rng)
        path.write_bytes(content)
        check_model(path, card | ({"sha256": sha256_file(path)} if rng.random() < 0.9 else {}))

    assert fuzz("weights", case)["error"] > 20
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.json", "a.safetensors"]


def test_damaged_cards(weights: Path, tmp_path: Path) -> None:
    card = json.loads(weights.with_suffix(".json").read_text())
    shutil.copy(weights, tmp_path / "a.safetensors")
    huge = [10**9, 10**30, 2**31, 10**6, 0, -5, 1.5, "4", None, [4], True]

    def case(rng: np.random.Generator) -> None:
        damaged: Any = damage_json(card, rng)
        match int(rng.integers(4)):
            case 0:
                key = pick(rng, [*sorted(card["options"]), "unknown", "self", "__class__"])
                damaged = card | {"options": card["options"] | {key: pick(rng, huge)}}
            case 1:
                damaged = pick(rng, ["[" * 100_000, "9" * 10_000, "", "null", '{"schema": 1}', "\ufeff{}", "{" * 9])
            case 2:
                damaged = card | {"network": pick(rng, ["../x", "os.system", "", None, ["rdn"], "RDN", "rdn\n"])}
        check_model(tmp_path / "a.safetensors", damaged)

    assert fuzz("cards", case)["error"] > 20
    # Building this network would take minutes and much memory.
    with time_limit(), pytest.raises(ModelError, match="does not fit its card"):
        check_model(tmp_path / "a.safetensors", card | {"options": card["options"] | {"blocks": 1_000_000}})
