"""Building and reading stores: the CTU table, equal and continued builds, removal of units, and damage."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock
from pydantic import ValidationError

import codecnn
from codecnn.api.config import load_recipe
from codecnn.base.cluster import parse_shard
from codecnn.base.errors import ConfigError, DiskFullError, EncoderError, MissingFileError, StoreError
from codecnn.base.files import sha256_file, write_json
from codecnn.base.leftovers import part_path
from codecnn.codec import VvcCodec
from codecnn.dataset import (
    CodedUnit,
    Recipe,
    build,
    build_shard,
    build_store,
    expand,
    open_store,
    originals,
    store_stats,
    verify_store,
)
from codecnn.dataset.store_folder import MARK
from tests.helpers.leftovers import name_of_a_dead_process
from tests.helpers.store_units import hashes


def test_table_describes_each_ctu(tiny_store):
    table = tiny_store.ctus().to_pylist()
    assert len(table) == 2 * (4 * 3 + 3 * 2 + 2)
    for unit in tiny_store.units:
        rows = [row for row in table if row["unit"] == unit.key]
        with unit.originals() as originals, unit.decoded() as decoded:
            original, output = originals[0].y.astype(float), decoded[0].y.astype(float)
        for row in rows:
            window = np.s_[row["y"] : row["y"] + row["h"], row["x"] : row["x"] + row["w"]]
            assert row["mse_y"] == pytest.approx(np.mean((original[window] - output[window]) ** 2))
            assert row["variance"] == pytest.approx(original[window].var())
            assert row["psnr_y"] == pytest.approx(10 * np.log10(1020**2 / row["mse_y"]))
            assert row["qp"] == unit.qp
            cells = unit.block_planes()[0, 0, row["y"] // 4 : (row["y"] + row["h"]) // 4]
            cells = cells[:, row["x"] // 4 : (row["x"] + row["w"]) // 4]
            assert (row["depth_mean"], row["depth_max"]) == (pytest.approx(cells.mean()), cells.max())
        total = sum(row["mse_y"] * row["w"] * row["h"] for row in rows) / original.size
        assert 10 * np.log10(1020**2 / total) == pytest.approx(unit.psnr_y, abs=1e-4)
    assert {row["split"] for row in table} == {"train", "val", "test"}


def test_odd_sizes_are_padded_to_even(tiny_store):
    (form,) = {unit.format for unit in tiny_store.split("test")}
    assert (form.width, form.height) == (68, 52)


def test_higher_qp_has_fewer_bits_and_more_error(tiny_store):
    low, high = tiny_store.split("train")
    assert (low.qp, high.qp) == (32, 42)
    assert low.bits > high.bits
    assert low.psnr_y > high.psnr_y
    rows = store_stats(tiny_store)["rows"]
    assert [(row["split"], row["qp"]) for row in rows] == [(s, q) for s in ("test", "train", "val") for q in (32, 42)]
    assert rows[0]["ctus"] == 2


def test_two_builds_are_equal_file_by_file(tiny_recipe, tiny_store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    again = build_store(load_recipe(tiny_recipe), tiny_recipe.parent, Path("a") / "gain", jobs=1)
    assert hashes(again.folder) == hashes(tiny_store.folder)
    assert len(hashes(again.folder)) > 20


def test_killed_build_is_continued_to_the_same_store(tiny_recipe, tiny_store, tmp_path):
    store = tmp_path / "killed"
    argv = [sys.executable, "-m", "codecnn", "dataset", "build", str(tiny_recipe), "-o", str(store)]
    process = subprocess.Popen(argv, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not list(store.glob("coded/*/unit.json")) and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    # A kill can leave a working folder and a temporary file; a damaged unit.json is coded again.
    (store / "coded" / ".work-1of1-orphan").mkdir()
    name_of_a_dead_process(store / "originals" / "b.yuv").write_bytes(b"half")
    next(store.glob("coded/*/unit.json")).write_bytes(b'{"key": "cut of')
    with pytest.raises(StoreError, match="not finished"):
        open_store(store)
    build_store(load_recipe(tiny_recipe), tiny_recipe.parent, store, jobs=2)
    assert hashes(store) == hashes(tiny_store.folder)


def test_finished_units_are_not_coded_again(tiny_recipe, tiny_store, tmp_path, monkeypatch):
    store = shutil.copytree(tiny_store.folder, tmp_path / "copy")
    coded = []
    encode = VvcCodec.encode

    def counted(self, source, source_format, settings, folder):
        coded.append((source.name[0], settings.qp))
        return encode(self, source, source_format, settings, folder)

    monkeypatch.setattr(VvcCodec, "encode", counted)
    build_store(load_recipe(tiny_recipe), tiny_recipe.parent, store)
    assert coded == []
    shutil.rmtree(next(store.glob("coded/a_qp42_*")))
    build_store(load_recipe(tiny_recipe), tiny_recipe.parent, store)
    assert coded == [("a", 42)]
    fewer = build_store(load_recipe(tiny_recipe, ["qp=[32]"]), tiny_recipe.parent, store, prune=True)
    assert coded == [("a", 42)]
    assert {unit.qp for unit in fewer.units} == {32}
    assert not list(store.glob("coded/*_qp42_*"))
    assert len(list(store.glob("originals/*.yuv"))) == 3


@pytest.mark.parametrize(
    ("override", "units"),
    [
        ("qp=[32]", "3 units that do not belong to recipe 'tiny' .*(a at QP 42, b at QP 42, small at QP 42)"),
        ("qp=[22, 42]", "3 units that do not .*(a at QP 32, b at QP 32, small at QP 32)"),
        ("sequences=[{source: a.png}, {source: b.png, split: val}]", "2 units .*(small at QP 32, small at QP 42)"),
        ("preset=fast", "6 units that do not"),
    ],
)
def test_units_of_another_recipe_are_kept(tiny_recipe, tiny_store, tmp_path, monkeypatch, override, units):
    """A build that would remove units stops before it codes anything, and names the option that removes them."""
    store = shutil.copytree(tiny_store.folder, tmp_path / "copy")
    monkeypatch.setattr(VvcCodec, "encode", None)
    for shard in ((1, 1), (2, 2)):
        with pytest.raises(StoreError, match=f"{units}.* --prune"):
            build_shard(load_recipe(tiny_recipe, [override]), tiny_recipe.parent, store, shard)
    kept = {name: sha256 for name, sha256 in hashes(store).items() if not name.startswith((".lock", ".hashes"))}
    assert kept == hashes(tiny_store.folder)
    assert open_store(store).units


def test_prune_is_an_option_of_the_command(tiny_recipe, tiny_store, tmp_path, run):
    store = shutil.copytree(tiny_store.folder, tmp_path / "copy")
    (store / "coded" / "notes.txt").write_text("not a unit")
    argv = ("dataset", "build", tiny_recipe, "qp=[42]", "-o", store)
    status, _, err = run(*argv)
    assert status == 1
    assert "3 units" in " ".join(err.split())
    assert run(*argv, "--prune")[0] == 0
    assert {unit.qp for unit in open_store(store).units} == {42}
    assert len(list(store.glob("coded/*_qp*"))) == 3
    assert (store / "coded" / "notes.txt").exists()
    built = codecnn.build_dataset(tiny_recipe, store, overrides=["qp=[42]", "classes=null"])
    assert built.data_key == open_store(store).data_key
    with pytest.raises(StoreError, match="1 unit that does not belong"):
        codecnn.build_dataset(
            tiny_recipe, store, overrides=["qp=[42]", "sequences=[{source: a.png}, {source: b.png, split: val}]"]
        )


def test_store_of_units_that_belong_to_no_recipe_is_not_finished(tiny_recipe, tiny_store, tmp_path, monkeypatch):
    """Units that another build adds while this one codes are not removed either."""
    store = shutil.copytree(tiny_store.folder, tmp_path / "copy")
    shutil.rmtree(next(store.glob("coded/a_qp42_*")))
    encode = VvcCodec.encode

    def encode_beside_another_build(*args):
        (store / "coded" / "other_qp22_0123456789ab").mkdir()
        (store / "coded" / "other_qp22_0123456789ab" / "unit.json").touch()
        return encode(*args)

    monkeypatch.setattr(VvcCodec, "encode", encode_beside_another_build)
    with pytest.raises(StoreError, match=r"1 unit .*\(other at QP 22\)"):
        build_store(load_recipe(tiny_recipe), tiny_recipe.parent, store)
    assert (store / "coded" / "other_qp22_0123456789ab").is_dir()


def test_changed_split_needs_no_coding(tiny_recipe, tiny_store, tmp_path):
    store = shutil.copytree(tiny_store.folder, tmp_path / "copy")
    changed = tiny_recipe.with_name("changed.yaml")
    changed.write_text(tiny_recipe.read_text().replace("split: val", "split: train"))
    rebuilt = build_store(load_recipe(changed), changed.parent, store)
    assert {unit.name for unit in rebuilt.split("train")} == {"a", "b"}
    assert rebuilt.data_key == tiny_store.data_key
    with pytest.raises(StoreError, match="'val'"):
        rebuilt.split("val")


def test_records_are_written_as_read(tiny_store):
    lines = (tiny_store.folder / "units.jsonl").read_text().splitlines()
    assert [json.dumps(unit.to_json()) for unit in tiny_store.units] == lines
    for unit in tiny_store.units:
        path = unit.decoded_path.with_name("unit.json")
        coded = CodedUnit.from_json(path, json.loads(path.read_text()))
        assert json.dumps(coded.to_json(), indent=2) + "\n" == path.read_text()
        assert unit.path("bitstream").stat().st_size * 8 == unit.bits == coded.bits
        with pytest.raises(ValidationError, match="frozen"):
            unit.qp = 1
        with pytest.raises(StoreError, match="no file prediction"):
            unit.path("prediction")


def change_first_unit(store, /, **changes):
    """Change values in the line of the first unit."""
    path = store / "units.jsonl"
    first, *rest = path.read_text().splitlines()
    path.write_text("\n".join([json.dumps(json.loads(first) | changes), *rest]) + "\n")


def test_unknown_keys_are_ignored(tiny_store, tmp_path):
    store = shutil.copytree(tiny_store.folder, tmp_path / "copy")
    change_first_unit(store, folder="/elsewhere", sharpness=3.5)
    manifest = json.loads((store / "manifest.json").read_text())
    manifest["recipe"]["speed"] = manifest["speed"] = 1
    (store / "manifest.json").write_text(json.dumps(manifest))
    opened = open_store(store)
    assert opened.units[0].folder == store
    assert [unit.to_json() for unit in opened.units] == [unit.to_json() for unit in tiny_store.units]
    assert opened.manifest == tiny_store.manifest


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"qp": "32"}, "at qp: Input should be a valid integer"),
        ({"decoded": "../decoded.yuv"}, "at decoded: is not the name of a file in the store"),
        ({"files": {"/etc/passwd": "0"}}, ".*: is not the name of a file in the store"),
        ({"pictures": []}, "at pictures: "),
        ({"format": {"width": 0, "height": 1}}, "at format: picture size 0x1 is not positive"),
        ({"format": {"wide": 1}}, "at format: is not the format of a video"),
        ({"psnr_y": float("inf")}, "at psnr_y: Input should be a finite number"),
    ],
)
def test_damaged_line_names_its_key(tiny_store, tmp_path, changes, message):
    store = shutil.copytree(tiny_store.folder, tmp_path / "copy")
    change_first_unit(store, **changes)
    with pytest.raises(StoreError, match=f"^{store}/units.jsonl is damaged {message}"):
        open_store(store)


def test_statistics_of_units_without_psnr(tiny_store, tmp_path, run):
    """Units whose PSNR is None are excluded from the mean; without any other unit there is none."""
    store = shutil.copytree(tiny_store.folder, tmp_path / "copy")
    change_first_unit(store, psnr_y=None)
    status, out, _ = run("dataset", "stats", store, "--json")
    rows = {(row["split"], row["qp"]): row["psnr_y"] for row in json.loads(out)["rows"]}
    assert (status, rows["train", 32], rows["train", 42]) == (0, None, tiny_store.split("train")[1].psnr_y)
    status, out, _ = run("dataset", "stats", store)
    line = next(line for line in out.splitlines() if "train" in line and " 32 " in line)
    assert status == 0
    assert line.split("│")[7].strip() == "-"
    # Both units of QP 32 are now in one row, and one of them has no PSNR.
    change_first_unit(store, split="val")
    rows = {(row["split"], row["qp"]): row for row in store_stats(open_store(store))["rows"]}
    assert rows["val", 32]["sequences"] == 2
    assert rows["val", 32]["psnr_y"] == tiny_store.split("val")[0].psnr_y


def test_verification_finds_damage(tiny_store, tmp_path):
    store = shutil.copytree(tiny_store.folder, tmp_path / "copy")
    assert all(problem is None for _, problem in verify_store(open_store(store)))
    flipped = next(store.glob("coded/a_qp32_*/decoded.yuv"))
    data = bytearray(flipped.read_bytes())
    data[1000] ^= 1
    flipped.write_bytes(data)
    missing = next(store.glob("coded/b_qp32_*/bitstream.266"))
    missing.unlink()
    problems = {name: problem for name, problem in verify_store(open_store(store)) if problem}
    assert set(problems) == {str(flipped.relative_to(store)), str(missing.relative_to(store))}


def test_wrong_slice_qp_leaves_no_unit(tiny_recipe, tmp_path):
    recipe = load_recipe(tiny_recipe, ["params={IntraQPOffset: 2}"])
    with pytest.raises(EncoderError, match="at QP 34"):
        build_store(recipe, tiny_recipe.parent, tmp_path / "s")
    assert list((tmp_path / "s" / "coded").iterdir()) == []


def test_full_disk_is_reported_and_leaves_no_unit(tiny_recipe, tmp_path, monkeypatch):
    def full(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(build.pq, "write_table", full)
    with pytest.raises(DiskFullError, match="no space left on the disk"):
        build_store(load_recipe(tiny_recipe), tiny_recipe.parent, tmp_path / "s")
    assert list((tmp_path / "s" / "coded").iterdir()) == []


def test_second_build_of_a_shard_is_refused(tiny_recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(build, "LOCK_SECONDS", 0.1)
    (tmp_path / MARK).touch()
    with FileLock(tmp_path / ".lock-1of1"), pytest.raises(StoreError, match="another build"):
        build_store(load_recipe(tiny_recipe), tiny_recipe.parent, tmp_path)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (("qp: [32, 42]", "qp: [32, 64]"), ConfigError, "QP 64 is out of range"),
        (("qp: [32, 42]", "qp: [32, 32]"), ConfigError, "twice"),
        (("qp: [32, 42]", "qp: []"), ConfigError, "qp"),
        (("preset:", "speed: 1\npreset:"), ConfigError, "unknown key 'speed'"),
        (("split: val", "split: valid"), ConfigError, "split"),
        (("b.png", "none.png"), MissingFileError, "none.png"),
        (("b.png", "a.png"), ConfigError, "two sequences are named 'a'"),
        (("b.png", "a.png, name: c"), ConfigError, "splits train and val"),
        (("b.png,", "b.png, group: a,"), ConfigError, "group 'a' lies in the splits"),
        (("b.png", '"skimage:none.png"'), MissingFileError, "scikit-image"),
        (("preset: faster", "codec: vp9"), ConfigError, "'vp9'"),
        (("name: tiny", "name: [a"), ConfigError, "YAML"),
    ],
)
def test_invalid_recipes_are_refused(tiny_recipe, tmp_path, change, error, message):
    recipe = tiny_recipe.with_name(f"bad{abs(hash(change))}.yaml")
    text = tiny_recipe.read_text()
    assert change[0] in text
    recipe.write_text(text.replace(*change))
    with pytest.raises(error, match=message):
        build_store(load_recipe(recipe), recipe.parent, tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_folders_without_a_store_are_refused(tmp_path):
    with pytest.raises(MissingFileError, match="does not exist"):
        open_store(tmp_path / "none")
    with pytest.raises(StoreError, match="not a store"):
        open_store(tmp_path)


def test_a_store_of_another_schema_is_refused(tmp_path):
    write_json(tmp_path / "manifest.json", {"schema": 2, "units": 1})
    with pytest.raises(StoreError, match="has schema 2, this codecnn reads schema 3: build it again"):
        open_store(tmp_path)


def test_sequence_at_two_sizes(tiny_recipe, tmp_path):
    recipe = tiny_recipe.with_name("scales.yaml")
    recipe.write_text("name: s\npreset: faster\nqp: [42]\nsequences:\n  - {source: a.png, scales: [1, 0.5]}\n")
    store = build_store(load_recipe(recipe), recipe.parent, tmp_path / "s")
    assert [unit.name for unit in store.units] == ["a", "a_x0.5"]
    assert {unit.group for unit in store.units} == {"a"}
    with store.units[0].originals() as full, store.units[1].originals() as half:
        assert half[0].y.shape == (72, 104)
        means = full[0].y.reshape(72, 2, 104, 2).mean(axis=(1, 3))
        assert np.abs(half[0].y - means).mean() < 10 < np.abs(means - means.mean()).mean()
    assert set(store.ctus()["group"].to_pylist()) == {"a"}
    with pytest.raises(ConfigError, match="scales"):
        load_recipe(recipe, ["sequences=[{source: a.png, scales: [2]}]"])


def test_shards_make_the_same_store(tiny_recipe, tiny_store, tmp_path):
    recipe, store = load_recipe(tiny_recipe), tmp_path / "s"
    assert not build_shard(recipe, tiny_recipe.parent, store, (2, 3))
    assert len(list(store.glob("coded/*_qp*"))) == 2
    with pytest.raises(StoreError, match="not finished"):
        open_store(store)
    # The two other shards run at the same time.
    argv = [sys.executable, "-m", "codecnn", "dataset", "build", str(tiny_recipe), "-o", str(store), "--shard", "1/3"]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE)
    complete = [build_shard(recipe, tiny_recipe.parent, store, (3, 3))]
    complete.append(b"complete" not in process.communicate()[0])
    assert process.returncode == 0
    assert any(complete)
    assert hashes(store) == hashes(tiny_store.folder)


def test_shards_keep_temporary_files_of_each_other(tiny_recipe, tiny_store, tmp_path):
    """The table that another process is writing stays, that of a killed one goes when the store is complete."""
    store = shutil.copytree(tiny_store.folder, tmp_path / "copy")
    shutil.rmtree(next(store.glob("coded/a_qp32_*")))
    living, dead = part_path(store / "ctus.parquet"), name_of_a_dead_process(store / "ctus.parquet")
    assert not build_shard(load_recipe(tiny_recipe), tiny_recipe.parent, store, (2, 2))
    for part in (living, dead):
        part.write_bytes(b"half")
    assert build_shard(load_recipe(tiny_recipe), tiny_recipe.parent, store, (1, 2))
    assert (living.read_bytes(), dead.exists()) == (b"half", False)
    living.unlink()
    assert hashes(store) == hashes(tiny_store.folder)


def test_a_folder_with_other_files_is_no_store(tiny_recipe, tmp_path, monkeypatch):
    """A project folder keeps its originals, its temporary files and its manifest, and nothing is coded."""
    monkeypatch.setattr(VvcCodec, "encode", None)
    project = tmp_path / "project"
    for name in ("originals/a.png", "song.part-1", "manifest.json", "coded/x_qp32_0123456789ab/unit.json"):
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
        before = hashes(project)
        with pytest.raises(StoreError, match="is not a store and holds other files"):
            build_store(load_recipe(tiny_recipe), tiny_recipe.parent, project, prune=True)
        assert hashes(project) == before


def test_names_near_255_bytes_are_built(tiny_recipe, tmp_path):
    """Two names that differ at their end only."""
    names = [f"{'é' * 124}{letter}.png" for letter in "ab"]
    for name, source in zip(names, ("a.png", "b.png"), strict=True):
        shutil.copy(tiny_recipe.parent / source, tmp_path / name)
    sequences = ", ".join(f"{{source: {name}}}" for name in names)
    store = build_store(load_recipe(tiny_recipe, [f"sequences=[{sequences}]", "qp=[42]"]), tmp_path, tmp_path / "s")
    assert [unit.name for unit in store.units] == [Path(name).stem for name in names]


def test_sources_in_the_folder_of_the_store_are_refused(tiny_recipe, tmp_path):
    store = tmp_path / "project"
    shutil.copytree(tiny_recipe.parent, store / "originals")
    before = hashes(store)
    with pytest.raises(ConfigError, match="lies in the output folder"):
        build_store(load_recipe(tiny_recipe), store / "originals", store)
    assert hashes(store) == before


def test_a_build_removes_only_what_codecnn_wrote(tiny_recipe, tiny_store, tmp_path):
    """Files of the user in a store stay, with --prune too; originals go with --prune only."""
    store = shutil.copytree(tiny_store.folder, tmp_path / "copy")
    names = (
        "originals/notes.txt",
        "originals/mine.yuv",
        "originals/mine_0123456789abcdef.yuv",
        "x.part-1",
        ".hashes/x",
    )
    names = (*names, ".lock-mine", "coded/mine/unit.json", "originals/b.lock", "coded/b_qp42_0123456789ab/notes.txt")
    for name in names:
        (store / name).parent.mkdir(parents=True, exist_ok=True)
        (store / name).write_text("mine")
    originals = set(store.glob("originals/*.yuv"))
    recipe = load_recipe(tiny_recipe, ["sequences=[{source: a.png}, {source: b.png, split: val}]"])
    build_store(recipe, tiny_recipe.parent, store, prune=True)
    assert [name for name in names if (store / name).read_text() != "mine"] == []
    (removed,) = originals - set(store.glob("originals/*.yuv"))
    assert removed.name.startswith("small_")


def test_shards_complete_a_store_at_the_same_time(tiny_recipe, tiny_store, tmp_path, monkeypatch):
    store = shutil.copytree(tiny_store.folder, tmp_path / "copy")
    write = build.pq.ParquetWriter

    def write_slowly(*args):
        time.sleep(0.3)
        return write(*args)

    monkeypatch.setattr(build.pq, "ParquetWriter", write_slowly)
    shards = [(index, 4) for index in range(1, 5)]

    def complete(shard):
        time.sleep(0.1 * shard[0])
        return build_shard(load_recipe(tiny_recipe), tiny_recipe.parent, store, shard)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(complete, shards))
    assert hashes(store) == hashes(tiny_store.folder)


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "1/0", "a/b", "-1/2"])
def test_invalid_shards_are_refused(tiny_recipe, tmp_path, text):
    with pytest.raises(ConfigError, match="shard"):
        build_shard(load_recipe(tiny_recipe), tiny_recipe.parent, tmp_path / "s", parse_shard(text))
    assert not (tmp_path / "s").exists()


def test_original_is_converted_once(tiny_recipe, tiny_store, tmp_path, monkeypatch):
    recipe = load_recipe(tiny_recipe)
    source = expand(recipe, tiny_recipe.parent)[0]
    name = originals.original_name(recipe, source, tmp_path)
    converted = []
    convert = originals._convert

    def slow(*args):
        converted.append(args[2].name)
        time.sleep(0.2)
        return convert(*args)

    monkeypatch.setattr(originals, "_convert", slow)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: originals.convert_original(recipe, source, name, tmp_path), range(4)))
    assert len(converted) == 1
    assert len(set(results)) == 1
    assert results[0].sha256 == sha256_file(tiny_store.units[0].original_path)


def test_threads_can_hash_a_source_at_the_same_time(tiny_recipe, tmp_path):
    recipe = load_recipe(tiny_recipe)
    source = expand(recipe, tiny_recipe.parent)[0]
    for turn in range(20):
        with ThreadPoolExecutor(8) as pool:
            names = list(pool.map(lambda _: originals.original_name(recipe, source, tmp_path / str(turn)), range(8)))  # noqa: B023
        assert len(set(names)) == 1


def test_folders_patterns_and_series(tmp_path):
    for folder in ("a/x", "b"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("a/im2.png", "a/im10.png", "a/notes.txt", "a/x/deep.png", "b/.hidden.png", "b/c.tif"):
        (tmp_path / name).touch()

    def names(**spec):
        recipe = Recipe(name="r", qp=[32], sequences=[spec])
        return [str(source.path.relative_to(tmp_path)) for source in expand(recipe, tmp_path)]

    assert names(source="a") == ["a/im2.png", "a/im10.png"]
    assert names(source="b") == ["b/c.tif"]
    assert names(source="**/*.png") == ["a/im10.png", "a/im2.png", "a/x/deep.png"]
    assert names(source="a", series=True) == ["a"]
    assert names(source="?", series=True) == ["a", "b"]
    with pytest.raises(MissingFileError, match="folder"):
        names(source="c", series=True)
    with pytest.raises(MissingFileError, match=r"a/x/\*"):
        names(source="a/x/*.jpg")


@pytest.mark.parametrize("size", [(1, 1), (9, 17), (40, 4)])
def test_pictures_far_smaller_than_a_ctu(tmp_path, size):
    from skimage.io import imsave

    picture = np.random.default_rng(0).integers(0, 256, (*size, 3)).astype(np.uint8)
    imsave(tmp_path / "p.png", picture, check_contrast=False)
    (tmp_path / "r.yaml").write_text("name: p\npreset: faster\nqp: [22]\nsequences: [{source: p.png}]\n")
    store = build_store(load_recipe(tmp_path / "r.yaml"), tmp_path, tmp_path / "s")
    assert store.units[0].format.width == max(32, size[1] + size[1] % 2)
    with store.units[0].originals() as originals:
        luma = originals[0].y
        assert (luma[size[0] :] == luma[size[0] - 1]).all()
