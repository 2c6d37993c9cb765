"""Evaluation with the filter in the loop: streams, BD-rates, and folders that are whole or absent."""

import dataclasses
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from codecnn.codec.encoders.vvenc_library import LIBRARY_VARIABLE
from codecnn.errors import ConfigError, ModelError
from codecnn.evaluation.in_loop import evaluate_in_loop, rates_of
from codecnn.evaluation.in_loop._coding import LOOPED, PLAIN, LoopPicture, LoopStream
from codecnn.evaluation.in_loop._results import make_rows, mean_rates
from codecnn.quality import psnr
from codecnn.video import VideoFormat, convert, open_raw, open_video
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


# --- with the library -------------------------------------------------------------------------------------------------


def test_a_good_filter_gains_more_in_the_loop(vvenc_library, video, tmp_path):
    entry = toward(video, 0.1)
    results = evaluate_in_loop([entry], {"clip": video}, QPS, vvenc_library, tmp_path, preset="faster")
    rates = results.bd_rate["toward"]
    assert rates["in_loop"]["y"] < rates["post_filter"]["y"] < -3
    row = by_chain(results, 37)
    assert row["in_loop"].psnr_y > row["post_filter"].psnr_y > row["without"].psnr_y
    assert row["in_loop"].folder != row["without"].folder == row["post_filter"].folder
    assert row["in_loop"] == row["in_loop_throughout"].model_copy(update={"chain": "in_loop"})
    assert row["in_loop"].flag_bits >= 3 * 2
    assert all(one.encoder_seconds_per_picture > 0 for one in results.rows)
    assert results.models["toward"].model_dump() == {
        "weights_sha256": "toward",
        "kmac_per_pixel": 1.0,
        "parameters": 2,
        "device": "cpu",
    }
    # What is written is what was measured, and says what it takes to decode it.
    folder = tmp_path / row["in_loop"].folder
    card = json.loads((folder / "card.json").read_text())
    assert card["note"] == LOOPED
    assert card["weights"]["sha256"] == "toward"
    for name in ("stream.266", "pictures.yuv", "decisions.vtmbmsstats", "log.txt"):
        assert card["files"][name] == hashlib.sha256((folder / name).read_bytes()).hexdigest()
    assert row["in_loop"].bits == 8 * (folder / "stream.266").stat().st_size
    with open_raw(folder / "pictures.yuv", CODED) as shown:
        ours = [psnr(convert(a, 10).y, b.y, 10) for a, b in zip(video, shown, strict=True)]
    assert row["in_loop"].psnr_y == pytest.approx(np.mean(ours), abs=1e-9)
    assert json.loads((tmp_path / row["without"].folder / "card.json").read_text())["note"] == PLAIN
    text = (tmp_path / "in_loop.md").read_text()
    assert f"{rates['in_loop']['y']:+.2f}" in text
    assert json.loads((tmp_path / "in_loop.json").read_text()) == json.loads(results.model_dump_json())

    # Again, elsewhere: the same streams, pictures and decisions, byte for byte.
    again = evaluate_in_loop([entry], {"clip": video}, (37,), vvenc_library, tmp_path / "again", preset="faster")
    other = json.loads((tmp_path / "again" / by_chain(again, 37)["in_loop"].folder / "card.json").read_text())
    assert (other["files"], other["pictures"][0]["mse"]) == (card["files"], card["pictures"][0]["mse"])


def test_decisions_keep_a_harmful_filter_out(vvenc_library, video, tmp_path):
    entry = toward(video, -0.5)
    seen = {"name": "s", "share": 1.0, "encoder": "e", "codec": "vvc", "preset": "faster", "configuration": "ldb"}
    card = entry.card | {"trained_on": [seen | {"loop_filters": True, "ctu_size": 64}]}
    entry = dataclasses.replace(entry, card=card)
    results = evaluate_in_loop([entry], {"clip": video}, (37,), vvenc_library, tmp_path, preset="faster")
    assert "toward: the network was trained on pictures predicted from unfiltered ones" in results.notes[0]
    rows = by_chain(results, 37)
    plain = rows["without"]
    for chain in ("post_filter", "in_loop"):
        assert not rows[chain].used
        assert (rows[chain].bits, rows[chain].flag_bits, rows[chain].psnr_y) == (plain.bits, 0, plain.psnr_y)
    # A bit a picture says "off".
    always = rows["in_loop_throughout"]
    assert (always.bits, always.flag_bits, always.psnr_y, always.pictures_off) == (plain.bits, 3, plain.psnr_y, 3)


def test_a_network_that_needs_more_than_the_loop_has_is_refused(vvenc_library, video, tmp_path):
    entry = toward(video, 0.4)
    entry.filter.planes = ("rec_y", "unf_y")
    with pytest.raises(ModelError, match="toward needs the plane 'unf_y', which libvvenc does not hand out"):
        evaluate_in_loop([entry], {"clip": video}, (37,), vvenc_library, tmp_path, preset="faster")


SCRIPT = """
import sys
from pathlib import Path
from codecnn.codec.encoders.vvenc_library import find_library
from codecnn.evaluation.in_loop import evaluate_in_loop
from codecnn.video import convert, open_video
from tests.helpers.filters import toward_entry
folder = Path(sys.argv[1])
video = open_video(folder / "clip_64x64_30.yuv")
entry = toward_entry([convert(p, 10).y for p in video], left=0.4, right=0.4, log=folder / "log", pause=0.2)
evaluate_in_loop([entry], {"clip": video}, (32, 37), find_library(), folder / "out", preset="faster")
"""


def test_a_killed_run_leaves_nothing_that_looks_finished(vvenc_library, tmp_path):
    video = open_video(write_clip(tmp_path / "clip_64x64_30.yuv", FORMAT, 3))
    log, out = tmp_path / "log", tmp_path / "out"
    environment = os.environ | {LIBRARY_VARIABLE: str(vvenc_library.path)}
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path)], env=environment, cwd=Path.cwd())
    # Three calls behind the stream, then in the loop: at the fifth the first stream with the filter is half done.
    while process.poll() is None and not (log.exists() and log.read_text().count("call") >= 5):
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not list(out.glob("in_loop.*"))
    whole = [folder for folder in (out / "coded").iterdir() if ".part-" not in folder.name]
    assert [folder.name.split("_qp")[0] for folder in whole] == ["clip_without"]
    assert not list(out.glob("coded/*.part-*/card.json"))
    before = (whole[0] / "card.json").stat().st_mtime_ns
    for calls in (2 * (3 + 3), 0):
        log.write_text("")
        evaluate_in_loop([toward(video, 0.4, log=log)], {"clip": video}, (32, 37), vvenc_library, out, preset="faster")
        assert log.read_text().count("call") == calls
    assert (out / "in_loop.json").is_file()
    assert (whole[0] / "card.json").stat().st_mtime_ns == before


def test_the_command_writes_streams_and_says_what_they_gain(vvenc_library, run, weights, tmp_path):
    clip = write_clip(tmp_path / "clip_64x64_30.yuv", FORMAT, 2)
    argv = ("evaluate", clip, "-m", weights, "--configuration", "ldb", "--in-loop", "--preset", "faster", "-q", "32,37")
    status, text, err = run(*argv, "--vvenc-library", vvenc_library.path, "-o", tmp_path / "out")
    assert status == 0, err
    assert "decisions ctu" in text
    assert "no BD-rate for clip_64x64_30: it takes 4 QPs, not 2" in " ".join(text.split())
    assert len(list(tmp_path.glob("out/coded/*/stream.266"))) == 4


# --- everywhere -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def weights(tmp_path_factory):
    from codecnn.models import create_model, save_weights
    from tests.helpers.networks import SMALL, awaken

    path = tmp_path_factory.mktemp("weights") / "w.safetensors"
    save_weights(path, awaken(create_model("rdn", **SMALL)), "rdn", {})
    return path


def test_one_picture_is_no_loop(video, tmp_path):
    with pytest.raises(ConfigError, match="clip has one picture"):
        evaluate_in_loop([], {"clip": video.select(frames=1)}, (37,), None, tmp_path)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--in-loop",), "--in-loop goes with --configuration ldb"),
        (("--in-loop", "--configuration", "ldb", "--metrics", "ssim"), "--in-loop goes with"),
        (("--vvenc-library", "a.so"), "--vvenc-library is for --in-loop"),
        (("--in-loop", "--configuration", "ldb"), "name the file by --vvenc-library"),
        (("--in-loop", "--configuration", "ldb", "--vvenc-library", "none.so"), "none.so does not exist"),
    ],
)
def test_options_that_do_not_fit_get_a_sentence(run, monkeypatch, weights, tmp_path, options, words):
    monkeypatch.delenv(LIBRARY_VARIABLE, raising=False)
    clip = write_clip(tmp_path / "clip_64x64_30.yuv", FORMAT, 2)
    status, _, err = run("evaluate", clip, "-m", weights, "-o", tmp_path / "out", *options)
    assert status == 1
    assert words in " ".join(err.split())
    assert not (tmp_path / "out").exists()


def stream(level, bits, flag_bits=0.0, mode="ctu"):
    """Two pictures of one MSE; 3 dB are a factor of two in `level`."""
    one = LoopPicture(
        poc=0, slice_type="B", qp=37, bits=bits // 2, mse=(level,) * 3, flag_bits=flag_bits / 2, mode=mode
    )
    return LoopStream((one, one), bits, Path("coded/a"))


def test_rates_and_what_a_sequence_takes():
    """Bits halve every 3 dB: a tenth fewer bits at equal PSNR is -10 %; flags count as bits."""
    rows = []
    for index, qp in enumerate((42, 37, 32, 27)):
        level, bits = 64 / 2**index, 8000 * 2**index
        plain = stream(level, bits)
        streams = (plain, stream(level, bits, 0.05 * bits), stream(level, int(0.85 * bits), 0.05 * bits))
        rows += make_rows("clip", "model", qp, streams, CODED, "ctu", Path())
    notes = []
    assert rates_of(rows, "post_filter", notes)["y"] == pytest.approx(5, abs=0.01)
    assert rates_of(rows, "in_loop", notes) == pytest.approx({"y": -10, "u": -10, "v": -10}, abs=0.01)
    assert notes == []
    assert rates_of(rows[:8], "in_loop", notes) == {"y": None, "u": None, "v": None}
    assert notes == ["no BD-rate for clip: it takes 4 QPs, not 2"]
    assert mean_rates([{"y": 1.0, "u": None, "v": 2.0}, {"y": 3.0, "u": 1.0, "v": 2.0}]) == {"y": 2, "u": None, "v": 2}
    # More bits at the same quality: an encoder leaves the filter out, unless it is told to take it throughout.
    worse = (stream(10.0, 1000), stream(10.0, 1000), stream(10.0, 990, 20.0))
    for decisions, used in (("ctu", False), ("none", True)):
        chains = {row.chain: row for row in make_rows("clip", "model", 37, worse, CODED, decisions, Path())}
        assert chains["in_loop"].used is used
        assert chains["in_loop"].bits == (990 if used else 1000)
        assert chains["in_loop_throughout"].bits == 990


def test_a_network_is_told_the_slice_type_in_the_loop(vvenc_library, video, tmp_path):
    """The first picture is intra and the others are not, behind the stream as in its loop."""
    entry = toward(video, 0.4)
    told = []

    class Typed(type(entry.filter)):
        planes = ("rec_y", "slice_type")

        def samples(self, picture, qp, beside=None):
            assert beside["slice_type"].shape == picture.y.shape
            told.append(set(np.unique(beside["slice_type"]).tolist()))
            return super().samples(picture, qp)

    entry.filter.__class__ = Typed
    evaluate_in_loop([entry], {"clip": video}, (37,), vvenc_library, tmp_path, preset="faster")
    assert told == 2 * [{0.0}, {1.0}, {1.0}]
