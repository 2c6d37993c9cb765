"""Networks with one stacked tensor: in ONNX Runtime, and by VapourSynth and ffmpeg where these are installed.

`CODECNN_VSPIPE` names a vspipe with the plugins vapoursynth-mlrt-ort and vapoursynth-bestsource, `CODECNN_DNN_FFMPEG`
an ffmpeg that was built with --enable-libonnxruntime; those of PATH are taken if they are not set.
"""

import functools
import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from codecnn import api
from codecnn.base.errors import ConfigError, ModelError
from codecnn.filtering import FloatFilter
from codecnn.models import as_filter_network, create_model, load_model, save_weights
from codecnn.pictures.files import Picture, VideoFormat, ffmpeg_path, open_video
from tests.helpers import own_networks
from tests.helpers.clips import write_clip
from tests.helpers.networks import awaken

onnx = pytest.importorskip("onnx", reason="needs onnx and onnxruntime: pip install 'codecnn[export]'")
pytest.importorskip("onnxruntime", reason="needs onnx and onnxruntime: pip install 'codecnn[export]'")
run_onnx = pytest.importorskip("codecnn.models.graph.onnx_file").run_onnx
export_stacked = pytest.importorskip("codecnn.filtering.stacked").export_stacked


HOW_TO_GET = {
    "vspipe": "pip install vapoursynth vapoursynth-mlrt-ort vapoursynth-bestsource",
    "ffmpeg": "build ffmpeg with ONNX Runtime",
}


@functools.cache
def missing(variable: str, program: str, *probe: str) -> str | None:
    """Return why a program cannot be tested, or None."""
    path = os.environ.get(variable) or shutil.which(program)
    reason = f"needs {program} with {probe[-1]}: {HOW_TO_GET[program]}, and set {variable} to its path"
    if path is None:
        return reason
    asked = subprocess.run([path, *probe[:-1]], capture_output=True, text=True)
    return None if probe[-1] in asked.stdout + asked.stderr else reason


VSPIPE = os.environ.get("CODECNN_VSPIPE") or shutil.which("vspipe") or ""
DNN_FFMPEG = os.environ.get("CODECNN_DNN_FFMPEG") or shutil.which("ffmpeg") or ""


def needs_vapoursynth():
    reason = missing("CODECNN_VSPIPE", "vspipe", "--version", "VapourSynth")
    if reason:
        pytest.skip(reason)


def needs_dnn_of_ffmpeg():
    reason = missing("CODECNN_DNN_FFMPEG", "ffmpeg", "-hide_banner", "-h", "filter=dnn_processing", "onnx")
    if reason:
        pytest.skip(reason)


def random_picture(height, width, bit_depth, chroma):
    rng = np.random.default_rng(height)
    shapes = [(height, width), *([(height // 2, width // 2)] * 2 if chroma else [])]
    dtype = np.uint16 if bit_depth > 8 else np.uint8
    return Picture(tuple(rng.integers(0, 2**bit_depth, shape).astype(dtype) for shape in shapes), bit_depth)


@pytest.mark.parametrize("bit_depth", [8, 10])
@pytest.mark.parametrize(
    ("weights", "channels"),
    [
        ("low_cost_5", ("y", "qp")),
        ("low_cost_yuv_17", ("y", "u", "v", "qp")),
        ("low_cost_17.vvc_video", ("y", "slice_type", "qp")),
    ],
)
def test_one_tensor_gives_the_samples_of_the_filter(weights, channels, bit_depth, tmp_path):
    model, card = load_model(weights)
    facts = export_stacked(tmp_path / "n.onnx", model, card)
    assert facts["input"] == f"1x{len(channels)}x(height)x(width)"
    picture = random_picture(38, 66, bit_depth, chroma=True)
    white = 255 * 2 ** (bit_depth - 8)
    for qp, intra in ((27, 1), (60, 0)):  # 60 is above the QPs of the training, to which the filter clips
        values = {"qp": np.full((38, 66), qp / 64), "slice_type": np.full((38, 66), 1 - intra), "y": picture.y / white}
        values |= {name: getattr(picture, name).repeat(2, 0).repeat(2, 1) / white for name in ("u", "v")}
        stack = np.stack([values[name] for name in channels]).astype(np.float32)[None]
        result = run_onnx((tmp_path / "n.onnx").read_bytes(), {"input": stack})["output"][0] * white
        planes = {"slice_type": values["slice_type"].astype(np.float32)}
        expected = FloatFilter(model, card=card).samples(picture, qp, planes)
        for name, samples in zip(model.outputs, result, strict=True):
            if name != "y":
                assert np.array_equal(samples[::2, ::2], samples[1::2, 1::2])
                samples = samples[::2, ::2]
            np.testing.assert_allclose(samples, expected[name], rtol=0, atol=1e-5 * 2**bit_depth)


def test_a_single_qp_leaves_one_channel(tmp_path):
    model, card = load_model("low_cost_5")
    picture = random_picture(24, 30, 8, chroma=False)
    for qp in (30, 63):
        export_stacked(tmp_path / "n.onnx", model, card, qp=qp)
        stack = (picture.y / np.float32(255))[None, None]
        result = run_onnx((tmp_path / "n.onnx").read_bytes(), {"input": stack})["output"][0, 0] * 255
        expected = FloatFilter(model, card=card).samples(picture, qp)["y"]
        np.testing.assert_allclose(result, expected, rtol=0, atol=3e-3)
    facts = {each.key: each.value for each in onnx.load(tmp_path / "n.onnx").metadata_props}
    assert facts["qp"] == "63"
    assert "qp_input" not in facts


def test_a_traced_network_in_float32_and_float16(tmp_path):
    model, card = load_model("low_cost_5")
    assert 1e-5 < export_stacked(tmp_path / "h.onnx", model, card, half=True)["largest_difference"] < 2 / 1024
    export_stacked(tmp_path / "n.onnx", as_filter_network(own_networks.Net()), card)
    compile((tmp_path / "n.vpy").read_text(), "n.vpy", "exec")


@pytest.mark.parametrize(("text", "error"), [("37", None), ("abc", "qp is abc: give the QP"), ("-1", "qp is -1: give")])
def test_the_script_refuses_a_qp_that_is_no_number(tmp_path, text, error):
    export_stacked(tmp_path / "n.onnx", *load_model("low_cost_5"))
    script = (tmp_path / "n.vpy").read_text()
    lines = script[script.index("qp = str(") : script.index("provider =")]
    names = {"arguments": {"qp": text}, "vs": SimpleNamespace(Error=ValueError)}
    if error is None:
        exec(lines, names)
        assert names["qp"] == 37
    else:
        with pytest.raises(ValueError, match=error):
            exec(lines, names)


@pytest.fixture(scope="module")
def neighbours(tmp_path_factory):
    """Weights that take the pictures before and after."""
    path = tmp_path_factory.mktemp("weights") / "w.safetensors"
    torch.manual_seed(1)
    model = awaken(create_model("low_cost_5", planes=["rec_y", "qp", "prev_y", "next_y"]), std=0.02)
    save_weights(path, model, "low_cost_5", {"qps": [22, 37]})
    return path


def test_neighbours_are_channels(neighbours, tmp_path):
    assert export_stacked(tmp_path / "n.onnx", *load_model(neighbours))["input"] == "1x4x(height)x(width)"


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ("low_cost_17.vvc_unf", "takes the plane unf_y, and players have decoded pictures only: choose weights"),
        (
            "low_cost_17.hevc_video_mc",
            "the plane prev_mc_y, and players have decoded pictures only and no motion search",
        ),
    ],
)
def test_planes_that_players_do_not_have_are_refused(weights, message, tmp_path):
    with pytest.raises(ModelError, match=message):
        export_stacked(tmp_path / "n.onnx", *load_model(weights))
    with pytest.raises(ConfigError, match="QP 64"):
        export_stacked(tmp_path / "n.onnx", *load_model("low_cost_5"), qp=64)
    assert not list(tmp_path.iterdir())


def test_a_file_with_other_samples_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr("codecnn.filtering.stacked._WHITE", 1.0)
    with pytest.raises(ModelError, match=r"n\.onnx is not written"):
        export_stacked(tmp_path / "n.onnx", *load_model("low_cost_5"))
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    """A clip of HEVC with I, P and B pictures, and the same decoded as Y4M."""
    folder = tmp_path_factory.mktemp("clip")
    raw = write_clip(folder / "clip.yuv", VideoFormat(98, 66, "420", 8), 6)
    coded, decoded = folder / "clip.mkv", folder / "clip.y4m"
    source = ["-f", "rawvideo", "-pix_fmt", "yuv420p", "-s", "98x66", "-r", "25", "-i", str(raw)]
    for argv in (
        [*source, "-c:v", "libx265", "-x265-params", "qp=32:log-level=1", str(coded)],
        ["-i", str(coded), str(decoded)],
    ):
        subprocess.run([str(ffmpeg_path()), "-y", "-loglevel", "error", *argv], check=True)
    return coded, decoded


def assert_equal_but_for_rounding(path: Path, expected: Path, source: Path) -> None:
    """Check that few samples differ from the expected ones, and those by one step."""
    pictures = []
    for name in (path, expected, source):
        with open_video(name) as video:
            pictures.append([np.concatenate([plane.ravel().astype(int) for plane in each.planes]) for each in video])
    filtered, wanted, plain = (np.stack(each) for each in pictures)
    difference = np.abs(filtered - wanted)
    assert difference.max() <= 1
    assert np.count_nonzero(difference) < 1e-3 * np.count_nonzero(wanted - plain)


@pytest.mark.parametrize("weights", ["low_cost_17.hevc", "low_cost_yuv_17.hevc", "low_cost_17.vvc_video"])
def test_vapoursynth_runs_the_script(weights, clip, tmp_path):
    needs_vapoursynth()
    coded, decoded = clip
    network, output, expected = tmp_path / "n.onnx", tmp_path / "vs.y4m", tmp_path / "expected.y4m"
    script = api.export(weights, network, "vapoursynth")["script"]
    subprocess.run([VSPIPE, "-c", "y4m", "-a", f"source={coded}", "-a", "qp=32", script, str(output)], check=True)
    # A decoded Y4M has no slice types, which low_cost_17.vvc_video takes.
    api.filter(coded, expected, model=weights, qp=32, exact=False)
    assert_equal_but_for_rounding(output, expected, decoded)


def test_vapoursynth_repeats_the_first_and_the_last_picture(neighbours, clip, tmp_path):
    needs_vapoursynth()
    _, decoded = clip
    output, expected = tmp_path / "vs.y4m", tmp_path / "expected.y4m"
    script = api.export(neighbours, tmp_path / "n.onnx", "vapoursynth")["script"]
    subprocess.run([VSPIPE, "-c", "y4m", "-a", f"source={decoded}", "-a", "qp=32", script, str(output)], check=True)
    api.filter(decoded, expected, model=neighbours, qp=32, exact=False)
    assert_equal_but_for_rounding(output, expected, decoded)


def test_ffmpeg_runs_the_network_of_a_single_qp(clip, tmp_path):
    needs_dnn_of_ffmpeg()
    _, decoded = clip
    network, output, expected = tmp_path / "n.onnx", tmp_path / "dnn.y4m", tmp_path / "expected.y4m"
    api.export("low_cost_17.hevc", network, "vapoursynth", qp=32)
    graph = f"dnn_processing=dnn_backend=onnx:model={network}:input=input:output=output"
    subprocess.run([DNN_FFMPEG, "-loglevel", "error", "-i", str(decoded), "-vf", graph, str(output)], check=True)
    api.filter(decoded, expected, model="low_cost_17.hevc", qp=32, exact=False)
    assert_equal_but_for_rounding(output, expected, decoded)
