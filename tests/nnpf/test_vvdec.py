"""Streams of `codecnn nnpf write` in another decoder: the NNPF branch of vvdec (nokia/fraunhoferhhi-vvdec).

`CODECNN_VVDEC_NNPF` names its program vvdecapp, built with OpenVINO. The tests run with
`pytest -m slow tests/nnpf/test_vvdec.py`.
"""

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from codecnn import verbs
from codecnn.nnpf import ONNX_TAG, read_messages
from codecnn.quality import psnr
from codecnn.video import open_video

DECODER = os.environ.get("CODECNN_VVDEC_NNPF")
SIZE = (64, 64)
QP = 37

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DECODER, reason="no vvdec with post-filters: set CODECNN_VVDEC_NNPF to its vvdecapp"),
]


def decode(stream: Path, output: Path) -> list[np.ndarray]:
    """Decode a stream with vvdec, which also filters; return the planes of all pictures one after the other."""
    argv = [str(Path(DECODER or "").resolve()), "-b", str(stream), "-o", str(output)]
    log = subprocess.run(argv, cwd=output.parent, capture_output=True, text=True, check=True)
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
    written = verbs.write_filter(stream, model, carrying, **options)
    assert written.characteristics.nnpfc_tag_uri == ONNX_TAG
    assert written.filtered == written.pictures > 30
    assert len({picture.cvs for picture in read_messages(carrying).pictures}) == 1
    verbs.filter_file(stream, model, expected, qp=QP, exact=False)
    plain, filtered = decode(stream, tmp_path / "plain.yuv"), decode(carrying, tmp_path / "out.yuv")
    theirs = planes(expected, size=SIZE, bit_depth=10)
    assert len(filtered) == len(theirs) == 3 * written.pictures
    for ours, other, before in zip(theirs, filtered, plain, strict=True):
        assert np.abs(ours - other).max() <= 1
        assert np.mean(ours != other) < 0.001, "only samples halfway between two steps may differ"
        assert abs(psnr(before, ours, 10) - psnr(before, other, 10)) < 0.01
    changed = [np.abs(before - other).max() for before, other in zip(plain, filtered, strict=True)]
    assert min(changed[::3]) > 0, "every picture is filtered"
