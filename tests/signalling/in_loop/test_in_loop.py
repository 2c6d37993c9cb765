"""Evaluation with the filter in the loop: streams, BD-rates, and folders that are complete or absent."""

import dataclasses
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from codecnn.base.errors import ConfigError, ModelError
from codecnn.codec import CodedPicture
from codecnn.evaluation import mean_rates
from codecnn.pictures.files import Picture, VideoFormat, convert, open_raw, open_video
from codecnn.pictures.metrics import psnr
from codecnn.signalling.in_loop import (
    LIBRARY_VARIABLE,
    LOOPED_NOTE,
    PLAIN_NOTE,
    LoopPicture,
    LoopStream,
    check_in_loop,
    coding,
    evaluate_in_loop,
    make_rows,
    rates_of,
)
from codecnn.vvc.syntax import access_units
from tests.helpers.clips import write_clip
from tests.helpers.filters import toward_entry

FORMAT = VideoFormat(64, 64, "420", 8, 30)
CODED = VideoFormat(64, 64, "420", 10)
QPS = (27, 32, 37, 42)


@pytest.fixture(scope="module")
def video(tmp_path_factory):
    return open_video(write_clip(tmp_path_factory.mktemp("clip") / "clip_64x64_30.yuv", FORMAT, 3))


def toward(video, share, **options):
    return toward_entry([convert(picture, 10).y for picture in video], "toward", left=share, right=share, **options)


def by_chain(results, qp):
    return {row.chain: row for row in results.rows if row.qp == qp}


# --- Tests that need libvvenc as a shared library ---------------------------------------------------------------------


def test_good_filter_gains_more_in_the_loop(vvenc_library, video, tmp_path):
    entry = toward(video, 0.1)
    results = evaluate_in_loop([entry], {"clip": video}, QPS, vvenc_library, tmp_path, preset="faster")
    rates = results.bd_rate["toward"]
    assert rates["in_loop"]["y"] < rates["post_filter"]["y"] < -3
    row = by_chain(results, 37)
    assert row["in_loop"].psnr_y > row["post_filter"].psnr_y > row["without"].psnr_y
    assert row["in_loop"].folder != row["without"].folder == row["post_filter"].folder
    assert row["in_loop"] == row["in_loop_throughout"].model_copy(update={"chain": "in_loop"})
    assert all(each.encoder_seconds_per_picture > 0 for each in results.rows)
    assert results.models["toward"].model_dump() == {
        "weights_sha256": "toward",
        "kmac_per_pixel": 1.0,
        "parameters": 2,
        "device": "cpu",
        "threads": torch.get_num_threads(),
    }
    # The files agree with the results, and the card states what decoding requires.
    folder = tmp_path / row["in_loop"].folder
    card = json.loads((folder / "card.json").read_text())
    assert card["note"] == LOOPED_NOTE
    assert card["weights"]["sha256"] == "toward"
    for name in ("stream.266", "pictures.yuv", "decisions.vtmbmsstats", "log.txt"):
        assert card["files"][name] == hashlib.sha256((folder / name).read_bytes()).hexdigest()
    in_loop = row["in_loop"]
    size = 8 * (folder / "stream.266").stat().st_size
    assert in_loop.bits + in_loop.message_bits == size
    assert in_loop.hash_bits == 0
    alone = row["in_loop_stream_alone"]
    assert (alone.bits, alone.message_bits, alone.folder) == (in_loop.bits, 0, in_loop.folder)
    # The parameters take 15 bytes, and the decisions of three pictures no more than three bytes each.
    assert 8 * 15 <= in_loop.message_bits <= 8 * (15 + 3 * 3)
    assert rates["in_loop_stream_alone"]["y"] < rates["in_loop"]["y"]
    with open_raw(folder / "pictures.yuv", CODED) as shown:
        psnrs = [psnr(convert(a, 10).y, b.y, 10) for a, b in zip(video, shown, strict=True)]
    assert row["in_loop"].psnr_y == pytest.approx(np.mean(psnrs), abs=1e-9)
    assert json.loads((tmp_path / row["without"].folder / "card.json").read_text())["note"] == PLAIN_NOTE
    text = (tmp_path / "in_loop.md").read_text()
    assert f"{rates['in_loop']['y']:+.2f}" in text
    assert json.loads((tmp_path / "in_loop.json").read_text()) == json.loads(results.model_dump_json())

    # Coding again in another folder gives the same streams, pictures and decisions, byte for byte.
    again = evaluate_in_loop([entry], {"clip": video}, (37,), vvenc_library, tmp_path / "again", preset="faster")
    other = json.loads((tmp_path / "again" / by_chain(again, 37)["in_loop"].folder / "card.json").read_text())
    assert (other["files"], other["pictures"][0]["mse"]) == (card["files"], card["pictures"][0]["mse"])


def test_harmful_filter_is_not_used(vvenc_library, video, tmp_path):
    entry = toward(video, -0.5)
    seen = {"name": "s", "share": 1.0, "encoder": "e", "codec": "vvc", "preset": "faster", "configuration": "ldb"}
    card = entry.card | {"trained_on": [seen | {"loop_filters": True, "ctu_size": 64}]}
    entry = dataclasses.replace(entry, card=card)
    results = evaluate_in_loop([entry], {"clip": video}, (37,), vvenc_library, tmp_path, preset="faster")
    assert "toward: the network was trained on pictures predicted from unfiltered pictures" in results.notes[0]
    rows = by_chain(results, 37)
    plain = rows["without"]
    for chain in ("post_filter", "in_loop"):
        assert not rows[chain].used
        assert (rows[chain].bits, rows[chain].message_bits, rows[chain].psnr_y) == (plain.bits, 0, plain.psnr_y)
    always = rows["in_loop_throughout"]
    assert (always.bits, always.psnr_y, always.pictures_off) == (plain.bits, plain.psnr_y, 3)


def test_network_that_needs_other_planes_is_refused(vvenc_library, video, tmp_path):
    entry = toward(video, 0.4)
    entry.filter.planes = ("rec_y", "unf_y")
    with pytest.raises(ModelError, match="'unf_y'"):
        evaluate_in_loop([entry], {"clip": video}, (37,), vvenc_library, tmp_path, preset="faster")


SCRIPT = """
import sys
from pathlib import Path
from types import SimpleNamespace
from codecnn.codec import CodedPicture
from codecnn.signalling.in_loop import find_library
from codecnn.signalling.in_loop import evaluate_in_loop
from codecnn.pictures.files import convert, open_video
from tests.helpers.filters import toward_entry
folder = Path(sys.argv[1])
video = open_video(folder / "clip_64x64_30.yuv")
entry = toward_entry([convert(p, 10).y for p in video], left=0.4, right=0.4, log=folder / "log", pause=0.2)
evaluate_in_loop([entry], {"clip": video}, (32, 37), find_library(), folder / "out", preset="faster")
"""


def test_killed_run_leaves_no_folder_that_looks_complete(vvenc_library, tmp_path):
    video = open_video(write_clip(tmp_path / "clip_64x64_30.yuv", FORMAT, 3))
    log, out = tmp_path / "log", tmp_path / "out"
    environment = os.environ | {LIBRARY_VARIABLE: str(vvenc_library.path)}
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path)], env=environment, cwd=Path.cwd())
    # Three calls filter behind the decoder, then come those in the loop: the fifth is inside the first such stream.
    while process.poll() is None and not (log.exists() and log.read_text().count("call") >= 5):
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not list(out.glob("in_loop.*"))
    complete = [folder for folder in (out / "coded").iterdir() if ".part-" not in folder.name]
    assert [folder.name.split("_qp")[0] for folder in complete] == ["clip_without"]
    assert not list(out.glob("coded/*.part-*/card.json"))
    before = (complete[0] / "card.json").stat().st_mtime_ns
    for calls in (2 * (3 + 3), 0):
        log.write_text("")
        evaluate_in_loop([toward(video, 0.4, log=log)], {"clip": video}, (32, 37), vvenc_library, out, preset="faster")
        assert log.read_text().count("call") == calls
    assert (out / "in_loop.json").is_file()
    assert (complete[0] / "card.json").stat().st_mtime_ns == before


def test_command_writes_streams_and_prints_gains(vvenc_library, run, weights, tmp_path):
    clip = write_clip(tmp_path / "clip_64x64_30.yuv", FORMAT, 2)
    argv = ("evaluate-loop", clip, "-m", weights, "--preset", "faster", "-q", "32,37")
    status, text, err = run(*argv, "--vvenc-library", vvenc_library.path, "-o", tmp_path / "out")
    assert status == 0, err
    assert "decisions ctu" in text
    assert "it needs 4 QPs, not 2" in " ".join(text.split())
    assert len(list(tmp_path.glob("out/coded/*/stream.266"))) == 4


# --- Tests without libvvenc -------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def weights(tmp_path_factory):
    from codecnn.models import create_model, save_weights
    from tests.helpers.networks import SMALL, awaken

    path = tmp_path_factory.mktemp("weights") / "w.safetensors"
    save_weights(path, awaken(create_model("rdn", **SMALL)), "rdn", {})
    return path


def test_planes_that_the_loop_does_not_provide_are_refused():
    with pytest.raises(ModelError, match="'ref0_mc_y'"):
        check_in_loop("w", SimpleNamespace(planes=("rec_y", "ref0_mc_y")))


def test_one_picture_is_refused(video, tmp_path):
    with pytest.raises(ConfigError, match="clip has one picture"):
        evaluate_in_loop([], {"clip": video.select(frames=1)}, (37,), None, tmp_path)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "name the file by --vvenc-library"),
        (("--vvenc-library", "none.so"), "none.so does not exist"),
    ],
)
def test_options_that_do_not_fit_are_refused(run, monkeypatch, weights, tmp_path, options, words):
    monkeypatch.delenv(LIBRARY_VARIABLE, raising=False)
    clip = write_clip(tmp_path / "clip_64x64_30.yuv", FORMAT, 2)
    status, _, err = run("evaluate-loop", clip, "-m", weights, "-o", tmp_path / "out", *options)
    assert status == 1
    assert words in " ".join(err.split())
    assert not (tmp_path / "out").exists()


def stream(level, bits, message_bits=0, mode="ctu"):
    """Create a stream of two pictures with MSE `level`; 3 dB correspond to a factor of two."""
    picture = LoopPicture(
        poc=0, slice_type="B", qp=37, bits=bits // 2, mse=(level,) * 3, message_bits=message_bits // 2, mode=mode
    )
    return LoopStream((picture, picture), bits, Path("coded/a"))


def test_rates_and_use_of_the_filter():
    """10 % fewer bits at equal PSNR give a BD-rate of -10 %; messages count as bits, but not in the stream alone."""
    rows = []
    for index, qp in enumerate((42, 37, 32, 27)):
        level, bits = 64 / 2**index, 8000 * 2**index
        plain = stream(level, bits)
        streams = (plain, stream(level, bits, bits // 20), stream(level, int(0.85 * bits), bits // 20))
        rows += make_rows("clip", "model", qp, streams, CODED, "ctu", Path())
    notes = []
    assert rates_of(rows, "post_filter", notes)["y"] == pytest.approx(5, abs=0.01)
    assert rates_of(rows, "in_loop", notes) == pytest.approx({"y": -10, "u": -10, "v": -10}, abs=0.01)
    assert rates_of(rows, "in_loop_stream_alone", notes)["y"] == pytest.approx(-15, abs=0.01)
    assert notes == []
    assert rates_of(rows[:8], "in_loop", notes) == {"y": None, "u": None, "v": None}
    assert notes == ["no BD-rate for clip: it needs 4 QPs, not 2"]
    assert mean_rates([{"y": 1.0, "u": None, "v": 2.0}, {"y": 3.0, "u": 1.0, "v": 2.0}]) == {"y": 2, "u": None, "v": 2}
    # With more bits at the same quality, an encoder does not use the filter unless it is always on.
    worse = (stream(10.0, 1000), stream(10.0, 1000), stream(10.0, 990, 20))
    for decisions, used in (("ctu", False), ("none", True)):
        chains = {row.chain: row for row in make_rows("clip", "model", 37, worse, CODED, decisions, Path())}
        assert chains["in_loop"].used is used
        assert chains["in_loop"].bits == (990 if used else 1000)
        assert chains["in_loop_throughout"].bits == 990


def test_the_stream_of_least_cost_is_chosen():
    """Among the plain stream, behind the loop, in the loop and partly in the loop."""
    plain, better, best = stream(10.0, 1000), stream(10.0, 900), stream(10.0, 800)
    for streams, placed, bits in (
        ((plain, plain, better), [best], 800),
        ((plain, plain, best), [better], 800),
        ((plain, better, plain), [plain], 900),
        ((better, plain, plain), [plain], 900),
    ):
        rows = make_rows("clip", "model", 37, streams, CODED, "ctu", Path(), placed)
        (row,) = (row for row in rows if row.chain == "chosen")
        assert (row.bits, row.used) == (bits, streams[0] is plain)
    assert not [row for row in make_rows("clip", "model", 37, streams, CODED, "ctu", Path()) if row.chain == "chosen"]


def test_network_receives_the_slice_type_in_the_loop(vvenc_library, video, tmp_path):
    """The first picture is intra and the others are inter, behind the decoder as well as in the loop."""
    entry = toward(video, 0.4)
    slice_types = []

    class Typed(type(entry.filter)):
        planes = ("rec_y", "slice_type")

        def samples(self, picture, qp, beside=None):
            assert beside["slice_type"].shape == picture.y.shape
            slice_types.append(set(np.unique(beside["slice_type"]).tolist()))
            return super().samples(picture, qp)

    entry.filter.__class__ = Typed
    evaluate_in_loop([entry], {"clip": video}, (37,), vvenc_library, tmp_path, preset="faster")
    assert slice_types == 2 * [{0.0}, {1.0}, {1.0}]


@pytest.fixture
def stand_in_library(tmp_path, monkeypatch, golden_file):
    """A library whose encoder is a stand-in that quantises samples, and writes access units of another clip."""
    units = access_units(golden_file("vvc/tinyclip128x64_ld_qp37.266").read_bytes())

    def encode(library, originals, video_format, settings, bitstream, filter_, log=None, messages=None):
        pictures, stream = [], b""
        for poc, original in enumerate(originals):
            coded = CodedPicture(poc, "B" if poc else "I", settings.qp, 800, 30.0, 30.0, 30.0)
            planes = [(plane // 8 * 8).astype(np.uint16) for plane in convert(original, 10).planes]
            filter_(coded, Picture(tuple(planes), 10))
            pictures.append(coded)
            stream += units[poc] if messages is None else messages(poc, units[poc])
        bitstream.write_bytes(stream)
        return tuple(pictures), 1.0

    monkeypatch.setattr(coding, "code_in_loop", encode)
    (tmp_path / "libvvenc.so").write_bytes(b"")
    return SimpleNamespace(version="0", path=tmp_path / "libvvenc.so")


def test_results_name_the_device_of_the_streams(video, tmp_path, stand_in_library):
    """Streams keep the device that they were timed on."""

    def models(device, *qps):
        entry = dataclasses.replace(toward(video, 0.4), device=device)
        results = evaluate_in_loop([entry], {"clip": video}, qps, stand_in_library, tmp_path / "out")
        return results.models["toward"], [note for note in results.notes if "timed" in note]

    first, notes = models("first", 37)
    assert (first.device, first.threads, notes) == ("first", torch.get_num_threads(), [])
    assert models("second", 37) == (first, [])
    mixed, notes = models("second", 37, 32)
    assert (mixed.device, mixed.threads) == ("mixed", None)
    assert "toward: the filter was timed on different devices" in notes[0]
    for path in tmp_path.glob("out/coded/*/card.json"):
        card = json.loads(path.read_text())
        path.write_text(json.dumps({key: card[key] for key in card.keys() - {"device", "threads"}}))
    unknown, _ = models("second", 37, 32)
    assert (unknown.device, unknown.threads) == ("unknown", None)
