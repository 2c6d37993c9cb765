"""tools/exactness.py: what it compares adds up to what was asked, a run goes on, and what differs is found."""

import json

import numpy as np
import pytest
from PIL import Image

from codecnn.filtering.integer import ExactFilter
from codecnn.runs import read_jsonl
from tools import exactness


@pytest.fixture
def compared(tmp_path, capfd):
    """Run it over a small picture until there are so many GMACs; exit status, what it prints, and its lines."""
    picture, output = tmp_path / "noise.png", tmp_path / "lines.jsonl"
    Image.fromarray(np.random.default_rng(1).integers(0, 256, (60, 90, 3), dtype=np.uint8)).save(picture)

    def run(gmacs, network="zoo/low_cost_5.int8"):
        argv = [str(picture), "-o", str(output), "--network", network, "--gmacs", str(gmacs)]
        return exactness.main(argv), json.loads(capfd.readouterr().out), list(read_jsonl(output))

    return run


def test_small_pictures_take_more_windows_and_a_run_goes_on(compared):
    status, told, lines = compared(0.04)
    assert (status, told["differing"]) == (0, 0)
    assert sum(line["gmacs"] for line in lines) >= 0.04 > sum(line["gmacs"] for line in lines[:-1])
    assert told["total"] == sum(line["samples"] for line in lines)
    assert compared(0.04)[2] == lines
    more = compared(0.08)[2]
    assert more[: len(lines)] == lines
    assert [line["window"] for line in more] == list(range(len(more)))


def test_a_network_is_told_the_type_of_the_slice(compared):
    status, told, lines = compared(0.1, "zoo/low_cost_yuv_17.video.int8")
    assert (status, told["differing"]) == (0, 0)
    assert told["total"] == sum(line["samples"] for line in lines) > 0


def test_a_sample_that_differs_is_counted(compared, monkeypatch):
    class OneOff(ExactFilter):
        def samples(self, *given):
            samples = super().samples(*given)
            samples["y"][0, 0] += 1
            return samples

    monkeypatch.setattr(exactness, "ExactFilter", OneOff)
    status, told, lines = compared(0.001)
    made_alone = [way for way in lines[0]["differing"] if way != "batch"]  # with the ways by bytes where they are exact
    assert len(made_alone) >= 3
    assert (status, told["differing"]) == (1, len(made_alone) * len(lines))
    assert all(lines[0]["differing"][way] == 1 for way in made_alone)
