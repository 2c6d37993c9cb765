"""Correlation from streams and their original, without a store."""

import json

import pytest

import codecnn
from codecnn.pictures.files import VideoFormat
from tests.helpers.clips import write_clip

CLIP = "clip_128x96_8bit.yuv"


@pytest.fixture(scope="module")
def coded(tmp_path_factory):
    """Return a folder with a clip of four pictures, three of them coded by libvvenc and libx265, and the VVC store."""
    folder = tmp_path_factory.mktemp("streams")
    write_clip(folder / CLIP, VideoFormat(128, 96, "420", 8), 4)
    stores = {}
    for codec, suffix in (("vvc", "266"), ("hevc", "265")):
        recipe = {"name": codec, "codec": codec, "preset": "faster", "ctu_size": 32, "qp": [27, 37]}
        recipe["sequences"] = [{"source": str(folder / CLIP), "frames": 3}]
        stores[codec] = codecnn.build_dataset(recipe, folder / f"store_{codec}")
        for unit in stores[codec].units:
            (folder / f"q{unit.qp}.{suffix}").write_bytes(unit.path("bitstream").read_bytes())
    return folder, stores["vvc"].folder


def test_streams_give_what_their_store_gives(coded, tmp_path, run, quick):
    folder, store = coded
    sources = {
        "store": [store],
        "streams": [folder / "q27.266", folder / "q37.266", "--original", folder / CLIP, "-f3"],
    }
    results = {}
    for name, arguments in sources.items():
        status, text, error = run("correlate", *arguments, "-o", tmp_path / name, "--resamples", 20, "--json")
        assert status == 0, error
        results[name] = json.loads(text)
    assert results["streams"] == results["store"]
    assert (results["streams"]["n"], results["streams"]["pictures"]) == (2 * 3 * 12, 3)
    assert (tmp_path / "streams" / "correlation.json").is_file()


def test_what_cannot_be_correlated_is_one_sentence(coded, tmp_path, run):
    folder, store = coded
    vvc, original = folder / "q27.266", ("--original", folder / CLIP, "-f3")
    for arguments, words in (
        ([folder / "q27.265", *original], "HEVC, whose CU depth codecnn does not read"),
        ([vvc], "--original"),
        ([store, store], "second table"),
        ([store, *original], "is not a stream"),
    ):
        status, _, error = run("correlate", *arguments, "-o", tmp_path / "out")
        assert (status, words in " ".join(error.split())) == (1, True), error
        assert not (tmp_path / "out").exists()
