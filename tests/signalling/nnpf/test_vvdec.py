"""Streams of `codecnn nnpf write` in another decoder: the NNPF branch of vvdec (nokia/fraunhoferhhi-vvdec).

`CODECNN_VVDEC_NNPF` names its program vvdecapp in the folder where it was built, with OpenVINO, and `CODECNN_NNCODEC` a
Python with `nncodec` and `onnx`. The tests run with `pytest -m slow tests/signalling/nnpf/test_vvdec.py`. They need a
processor on which OpenVINO computes in float32: with bfloat16, its default on processors that have it, the samples
differ more.
"""

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from codecnn import api as verbs
from codecnn import signalling
from codecnn.pictures.files import open_video
from codecnn.pictures.metrics import psnr
from codecnn.signalling.nnpf import CODER_VARIABLE, ONNX_TAG, read_messages
from codecnn.signalling.updates import read_update_file

DECODER, CODER = os.environ.get("CODECNN_VVDEC_NNPF"), os.environ.get(CODER_VARIABLE)
SIZE = (64, 64)
QP = 37

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DECODER, reason="needs a vvdec with post-filters: set CODECNN_VVDEC_NNPF to its vvdecapp"),
]


def decode(stream: Path, output: Path) -> list[np.ndarray]:
    """Decode a stream with vvdec, which also filters; return the planes of all pictures one after the other."""
    argv = [str(Path(DECODER or "").resolve()), "-b", str(stream), "-o", str(output)]
    programs = [str(Path(CODER).absolute().parent)] if CODER else []  # vvdec calls python3 to decode an update
    environment = os.environ | {"PATH": os.pathsep.join((*programs, os.environ["PATH"]))}
    log = subprocess.run(argv, cwd=output.parent, capture_output=True, text=True, check=True, env=environment)
    assert "Unable to use" not in log.stdout + log.stderr, log.stdout + log.stderr
    return planes(output, size=SIZE, bit_depth=10)


def planes(path: Path, **options: object) -> list[np.ndarray]:
    with open_video(path, **options) as video:
        return [plane.astype(int) for picture in video for plane in picture.planes]


@pytest.mark.parametrize("weights", ["shipped", "changing"])
def test_samples_are_those_of_codecnn(weights, streams, yuv_weights, tmp_path):
    model = "low_cost_yuv_17" if weights == "shipped" else yuv_weights
    stream, carrying, expected = streams["vvc_cra"], tmp_path / "carrying.266", tmp_path / "expected.yuv"
    verbs.export(model, tmp_path / "filter.onnx", "nnpfc", picture=SIZE, overlap=8, qp=QP)
    options = {"onnx_uri": "file://filter.onnx", "exact": False, "overlap": 8}
    written = signalling.write_filter(stream, model, carrying, **options)
    assert written.characteristics.nnpfc_tag_uri == ONNX_TAG
    assert written.filtered == written.pictures > 30
    assert len({picture.cvs for picture in read_messages(carrying).pictures}) == 1
    verbs.filter(stream, expected, model=model, qp=QP, exact=False)
    plain, filtered = decode(stream, tmp_path / "plain.yuv"), decode(carrying, tmp_path / "out.yuv")
    assert_same_samples(planes(expected, size=SIZE, bit_depth=10), filtered, plain)


@pytest.mark.skipif(not CODER, reason=f"needs nncodec: set {CODER_VARIABLE} to a Python that has it")
def test_an_update_is_applied(streams, yuv_weights, tmp_path):
    """vvdec decodes the update by nncodec, adds it to the ONNX file, and writes the samples of codecnn filter."""
    script = next(
        folder / "nnpf/decode_weights_update.py"
        for folder in Path(DECODER or "").resolve().parents
        if (folder / "nnpf/decode_weights_update.py").is_file()
    )
    shutil.copy(script, tmp_path)
    stream, carrying, expected = streams["vvc_cra"], tmp_path / "carrying.266", tmp_path / "expected.yuv"
    update, original = tmp_path / "update.json", stream.parent / "source_64x64_25.y4m"
    # The decoder adds every update to the file of this name.
    verbs.export(yuv_weights, tmp_path / "model3.onnx", "nnpfc", picture=SIZE, overlap=8, qp=QP, adaptable=True)
    onnx = {"onnx_uri": "file://model3.onnx", "every_irap": False}
    assert signalling.adapt(yuv_weights, original, stream, update, qp=QP, **onnx).output == update
    written = signalling.write_filter(stream, yuv_weights, carrying, update=update, overlap=8, **onnx)
    verbs.filter(stream, expected, model=yuv_weights, qp=QP, exact=False, update=update)
    plain, filtered = decode(stream, tmp_path / "plain.yuv"), decode(carrying, tmp_path / "out.yuv")
    assert (tmp_path / "model3_updated.onnx").is_file()
    theirs = planes(expected, size=SIZE, bit_depth=10)
    assert_same_samples(theirs, filtered, plain)
    base = tmp_path / "base.yuv"
    verbs.filter(stream, base, model=yuv_weights, qp=QP, exact=False)
    differing = [np.mean(a != b) for a, b in zip(planes(base, size=SIZE, bit_depth=10), theirs, strict=True)]
    assert max(differing) > 0.2, "the update changes the pictures"
    assert read_update_file(update).bits < 8 * written.bytes_added


def assert_same_samples(theirs: list[np.ndarray], filtered: list[np.ndarray], plain: list[np.ndarray]) -> None:
    """Assert that codecnn's and the decoder's samples of all planes are the same but for roundings, and not `plain`."""
    assert len(filtered) == len(theirs) == len(plain)
    for ours, other, before in zip(theirs, filtered, plain, strict=True):
        assert np.abs(ours - other).max() <= 1
        assert np.mean(ours != other) < 0.001, "only samples halfway between two steps may differ"
        assert abs(psnr(before, ours, 10) - psnr(before, other, 10)) < 0.01
    changed = [np.abs(before - other).max() for before, other in zip(plain, filtered, strict=True)]
    assert min(changed[::3]) > 0, "every picture is filtered"
