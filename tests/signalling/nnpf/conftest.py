"""Streams of 64x64 with leading pictures, and weights of a small network, for the tests of post-filter messages."""

import subprocess

import numpy as np
import pytest

from codecnn.models import create_model, save_weights
from codecnn.pictures.files import VideoFormat, create_video
from tests.helpers.networks import awaken
from tests.helpers.video_files import FFMPEG

PICTURES = 35
_X265 = "qp=34:bframes=3:b-adapt=0:keyint=12:min-keyint=12:scenecut=0:ref=1:aud=1:log-level=none:pools=1"
_VVENC = "GOPSize=16:POC0IDR=1:DecodingRefreshType=cra:IntraQPOffset=0:GOPQPA=0:MCTF=0:BIM=0:LookAhead=0:STA=0"
KINDS = {
    "hevc_open": ("265", f"-c:v libx265 -x265-params {_X265}:open-gop=1"),
    "hevc_radl": ("265", f"-c:v libx265 -x265-params {_X265}:open-gop=0:radl=2"),
    "vvc_cra": (
        "266",
        "-pix_fmt yuv420p10le -c:v libvvenc -preset faster -qp 34 -qpa 0 "
        f"-vvenc-params IntraPeriod=16:SEIDecodedPictureHash=md5:{_VVENC}",
    ),
}
"""Suffix and arguments of each stream: CRA with RASL pictures, IDR with RADL pictures, CRA of VVC."""


@pytest.fixture(scope="session")
def streams(tmp_path_factory):
    """Paths of the streams of `KINDS` by name."""
    folder = tmp_path_factory.mktemp("nnpf_streams")
    y, x = np.mgrid[:64, :64]
    rng = np.random.default_rng(3)
    grain = rng.normal(0, 6, (64, 64))
    with create_video(folder / "source_64x64_25.y4m", VideoFormat(64, 64, "420", 8, 25)) as out:
        for t in range(PICTURES):
            luma = 128 + 50 * np.sin((x + 2 * t) / 5) * np.cos((y - t) / 7) + np.roll(grain, t, 1)
            chroma = [128 + 20 * np.sin((x[::2, ::2] + t) / 9), 128 + 20 * np.cos((y[::2, ::2] + t) / 8)]
            out.write([np.clip(plane, 0, 255).astype(np.uint8) for plane in (luma, *chroma)])
    paths = {}
    for name, (suffix, arguments) in KINDS.items():
        paths[name] = folder / f"{name}.{suffix}"
        source = ["-i", str(folder / "source_64x64_25.y4m")]
        subprocess.run([*FFMPEG, *source, *arguments.split(), str(paths[name])], check=True)
    return paths


@pytest.fixture(scope="session")
def yuv_network():
    return awaken(create_model("low_cost_yuv_17", features=8, blocks=2), std=0.1)


@pytest.fixture(scope="session")
def yuv_weights(yuv_network, tmp_path_factory):
    path = tmp_path_factory.mktemp("nnpf_weights") / "yuv.safetensors"
    save_weights(path, yuv_network, "low_cost_yuv_17", {"qps": [22, 27, 32, 37, 42]})
    return path
