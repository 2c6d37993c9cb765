"""tools/exactness.py: it compares as much as requested, continues a run, and counts differing samples."""

import json

import numpy as np
import pytest
from PIL import Image

from codecnn.base.files import read_jsonl
from codecnn.filtering.integer import ExactFilter
from tools import exactness


@pytest.fixture
def compare(tmp_path, capfd):
    """Return a function that runs the script on a small picture: exit status, printed summary, and lines."""
    picture, output = tmp_path / "noise.png", tmp_path / "lines.jsonl"
    Image.fromarray(np.random.default_rng(1).integers(0, 256, (60, 90, 3), dtype=np.uint8)).save(picture)

    def run(gmacs, network="zoo/low_cost_5.int8"):
        argv = [str(picture), "-o", str(output), "--network", network, "--gmacs", str(gmacs)]
        return exactness.main(argv), json.loads(capfd.readouterr().out), list(read_jsonl(output))

    return run


def test_small_pictures_need_more_windows_and_a_run_continues(compare):
    status, summary, lines = compare(0.04)
    assert (status, summary["differing"]) == (0, 0)
    assert sum(line["gmacs"] for line in lines) >= 0.04 > sum(line["gmacs"] for line in lines[:-1])
    assert summary["total"] == sum(line["samples"] for line in lines)
    assert compare(0.04)[2] == lines
    more = compare(0.08)[2]
    assert more[: len(lines)] == lines
    assert [line["window"] for line in more] == list(range(len(more)))


def test_network_with_the_slice_type_plane(compare):
    status, summary, lines = compare(0.1, "zoo/low_cost_yuv_17.video.int8")
    assert (status, summary["differing"]) == (0, 0)
    assert summary["total"] == sum(line["samples"] for line in lines) > 0


def test_differing_samples_are_counted(compare, monkeypatch):
    class Wrong(ExactFilter):
        def samples(self, *arguments):
            samples = super().samples(*arguments)
            samples["y"][0, 0] += 1
            return samples

    monkeypatch.setattr(exactness, "ExactFilter", Wrong)
    status, summary, lines = compare(0.001)
    # The batch does not use ExactFilter. The ways by bytes exist only where they are exact.
    ways = [way for way in lines[0]["differing"] if way != "batch"]
    assert len(ways) >= 3
    assert (status, summary["differing"]) == (1, len(ways) * len(lines))
    assert all(lines[0]["differing"][way] == 1 for way in ways)
