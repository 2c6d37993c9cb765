"""The folder of an evaluation: streams and measurements of other evaluations stay beside each other until --prune."""

import json
import shutil

import pytest

import codecnn
from codecnn.base.errors import ConfigError
from codecnn.pictures.files import VideoFormat
from tests.helpers.clips import write_clip


def darker(picture, qp):
    return picture.y * (1 - qp / 10000)


def brighter(picture):
    return picture.y + 1


@pytest.fixture
def clips(tmp_path):
    form = VideoFormat(64, 64, "420", 8)
    return [write_clip(tmp_path / f"{name}_64x64.yuv", form, 1, seed=seed) for seed, name in enumerate("ab")]


def kept(folder):
    """Return the files of coded streams, originals and cells with the times when they were written."""
    files = [*folder.glob("store/coded/*/*"), *folder.glob("store/originals/*"), *folder.glob("cells/*")]
    return {path: path.stat().st_mtime_ns for path in files if path.is_file()}


def test_evaluations_stay_side_by_side(clips, tmp_path, run):
    out, options = tmp_path / "out", {"codec": "hevc", "preset": "ultrafast"}
    first = codecnn.evaluate(clips[0], darker, out, qps=[32, 42], **options)
    before = kept(out)
    assert len(list(out.glob("store/coded/*/decoded.yuv"))) == 2
    others = [(clips[0], darker, [37]), (clips[1], darker, [32]), (clips[0], brighter, [32])]
    for clip, model, qps in others:
        codecnn.evaluate(clip, model, out, qps=qps, **options)
    codecnn.evaluate(clips[0], darker, out, qps=[32], **options | {"preset": "superfast"})
    after = kept(out)
    assert before.items() <= after.items()
    assert len(list(out.glob("store/coded/*/decoded.yuv"))) == 5
    # One cell for the decoded pictures of each stream, and one for each filter on it.
    assert len(list(out.glob("cells/*.json"))) == 5 + 6
    again = codecnn.evaluate(clips[0], darker, out, qps=[32, 42], **options)
    assert again[0].sequences == first[0].sequences
    assert kept(out) == after
    assert [row["qp"] for row in json.loads((out / "results.json").read_text())["sequences"]] == [32, 42]
    foreign = [out / "cells" / "notes_0123456789abcdef.json", out / "cells" / "notes.txt"]
    foreign[0].write_text('{"key": 1}')
    foreign[1].write_text("mine")
    argv = ("evaluate", clips[0], "-m", "low_cost_5", "-q", "37", "--codec", "hevc", "--preset", "ultrafast")
    assert run(*argv, "-o", out, "--prune")[0] == 0
    assert [path.name.split("_qp")[1][:2] for path in out.glob("store/coded/*")] == ["37"]
    assert len(list(out.glob("store/originals/*.yuv"))) == 1
    assert len(list(out.glob("cells/*_*_qp37_*.json"))) == len(list(out.glob("cells/*_qp*.json"))) == 2
    assert all(path.is_file() for path in foreign)


def test_cells_of_other_evaluations_of_a_store_stay_until_prune(tiny_store, tmp_path):
    codecnn.evaluate(tiny_store, [darker, brighter], tmp_path)
    before = kept(tmp_path)
    codecnn.evaluate(tiny_store, darker, tmp_path, qps=[32], decisions="ctu")
    assert before.items() <= kept(tmp_path).items()
    codecnn.evaluate(tiny_store, darker, tmp_path, qps=[32], prune=True)
    left = kept(tmp_path)
    assert left.items() <= before.items()
    assert len([path for path in left if path.suffix == ".json"]) == 2
    assert {path.suffix for path in left} == {".json", ".parquet"}


def test_store_of_another_command_is_not_replaced(clips, tiny_store, tmp_path):
    shutil.copytree(tiny_store.folder, tmp_path / "out" / "store")
    with pytest.raises(ConfigError, match="dataset build"):
        codecnn.evaluate(clips[0], darker, tmp_path / "out", qps=[32])
    assert (tmp_path / "out" / "store" / "manifest.json").read_bytes() == (
        tiny_store.folder / "manifest.json"
    ).read_bytes()
