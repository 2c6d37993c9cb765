"""The example in C++: built by CMake, it gives the samples of `codecnn filter`.

ONNX Runtime's library is that of the Python package. Its headers are in no Python package: those of Debian's
libonnxruntime-dev, or of the folder that `CODECNN_ONNXRUNTIME_INCLUDE` names.
"""

import os
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from codecnn import api
from codecnn.pictures.files import VideoFormat, open_video
from tests.helpers.clips import write_clip
from tests.helpers.documentation import ROOT

INCLUDE = Path(os.environ.get("CODECNN_ONNXRUNTIME_INCLUDE", "/usr/include/onnxruntime"))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("cmake") is None, reason="needs CMake: apt-get install cmake"),
    pytest.mark.skipif(find_spec("onnxruntime") is None, reason="needs onnxruntime: pip install 'codecnn[export]'"),
    pytest.mark.skipif(
        not (INCLUDE / "onnxruntime_cxx_api.h").is_file(),
        reason=f"needs the headers of ONNX Runtime ({INCLUDE} has none): set CODECNN_ONNXRUNTIME_INCLUDE",
    ),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cpp")
    libraries = Path(find_spec("onnxruntime").origin).parent / "capi"
    library = folder / "libonnxruntime.so.1"  # the name under which it is loaded
    library.symlink_to(next(libraries.glob("libonnxruntime.so.*")))
    configured = [f"-DONNXRUNTIME_INCLUDE={INCLUDE}", f"-DONNXRUNTIME_LIBRARY={library}"]
    subprocess.run(["cmake", "-S", ROOT / "docs/examples/cpp", "-B", folder / "build", *configured], check=True)
    subprocess.run(["cmake", "--build", folder / "build"], check=True)
    return folder / "build" / "filter_y4m"


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    """A Y4M of an odd size, which is not a multiple of the stride."""
    path = tmp_path_factory.mktemp("clip") / "clip.y4m"
    return write_clip(path, VideoFormat(97, 65, "420", 8), 3)


def samples(path):
    with open_video(path) as video:
        return np.stack([np.concatenate([plane.ravel().astype(int) for plane in each.planes]) for each in video])


def run(program, *arguments):
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)


@pytest.mark.parametrize("qp", [32, 60])
@pytest.mark.parametrize("weights", ["low_cost_5", "low_cost_17"])
def test_float_samples_are_those_of_codecnn_but_for_rounding(weights, qp, program, clip, tmp_path):
    network, output, expected = tmp_path / "n.onnx", tmp_path / "out.y4m", tmp_path / "expected.y4m"
    api.export(weights, network)
    assert run(program, network, qp, clip, output).returncode == 0
    api.filter(clip, expected, model=weights, qp=qp, exact=False)
    difference = np.abs(samples(output) - samples(expected))
    assert difference.max() <= 1
    assert np.count_nonzero(difference) < 1e-3 * np.count_nonzero(samples(expected) - samples(clip))


@pytest.mark.parametrize("weights", ["low_cost_5.int8", "low_cost_17.int8"])
def test_integer_samples_are_those_of_codecnn(weights, program, clip, tmp_path):
    network, output, expected = tmp_path / "n.onnx", tmp_path / "out.y4m", tmp_path / "expected.y4m"
    api.export(weights, network, bit_depth=8)
    assert run(program, network, 32, clip, output).returncode == 0
    api.filter(clip, expected, model=weights, qp=32)
    assert np.array_equal(samples(output), samples(expected))
    assert not np.array_equal(samples(output), samples(clip))


def test_a_network_that_does_not_fit_is_refused(program, clip, tmp_path):
    network, output = tmp_path / "n.onnx", tmp_path / "out.y4m"
    api.export("low_cost_5.int8", network)
    assert "for 10 bits: export them with --bit-depth 8" in run(program, network, 32, clip, output).stderr
    api.export("low_cost_17.vvc_unf", network)
    assert "other planes than rec_y and qp" in run(program, network, 32, clip, output).stderr
    network.write_bytes(b"")
    assert run(program, network, 32, clip, output).returncode == 1
