"""Time of decoding VVC streams beside other decoders on one thread.

    python tools/benchmark.py decode [STREAM ...] [--turns 3] [--vtm PATH]

Without streams, a clip of three photographs of scikit-image that moves by four samples a picture is coded by libvvenc
`fast` in random access at QP 32, in 416x240 and 1920x1080. The peers are the VVC decoder of ffmpeg with one thread and,
with --vtm, VTM's DecoderApp. codecnn compiles in an untimed run, compares each picture with its hash and returns the
decoded planes; the peers write nothing, ffmpeg without comparing hashes. Processor time.
"""

import argparse
import os
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import skimage.data

from codecnn.base.division import ceil_div
from codecnn.codec import CodecSettings, decode_pictures, get_codec
from codecnn.pictures.files import VideoFormat, ffmpeg_path
from tools.bench._common import Row, make_parser, row

CLIPS = ((416, 240, 33), (1920, 1080, 9))
"""Width, height and number of pictures of the coded clips."""
STEP = 4
"""Samples by which the clip moves from picture to picture."""


def main(argv: Sequence[str]) -> list[Row]:
    """Measure, print, and return a row for each stream and peer."""
    parser = make_parser("decode", __doc__)
    parser.add_argument("streams", type=Path, nargs="*", help="VVC streams [two clips coded for it]")
    parser.add_argument("--turns", type=int, default=3, help="timed turns of each decoder [3]")
    parser.add_argument("--vtm", type=Path, help="VTM's DecoderApp")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        streams = options.streams or [code_clip(Path(folder) / f"{clip[0]}", *clip) for clip in CLIPS]
        return [entry for stream in streams for entry in measure(stream, options)]


def measure(stream: Path, options: argparse.Namespace) -> list[Row]:
    """Time the decoders of a stream by turns; print and return a row for each peer, in pictures a second."""
    pictures = list(decode_pictures(stream, ("rec_y",)))
    height, width = pictures[0].planes["rec_y"].shape
    components = ("rec_y",) if pictures[0].chroma == "400" else ("rec_y", "rec_u", "rec_v")

    def ours() -> None:
        for _ in decode_pictures(stream, components):
            pass

    ffmpeg = [ffmpeg_path(), "-v", "error", "-threads", "1", "-strict", "-2", "-i", str(stream), "-f", "null", "-"]
    peers: dict[str, list[str]] = {"ffmpeg's VVC decoder, 1 thread": ffmpeg}
    if options.vtm is not None:
        peers["VTM's decoder"] = [str(options.vtm), "-b", str(stream)]
    rates: dict[str, list[float]] = {"codecnn": [], **{name: [] for name in peers}}
    for _ in range(options.turns):
        rates["codecnn"].append(len(pictures) / processor_seconds(ours))
        for name, command in peers.items():
            rates[name].append(len(pictures) / processor_seconds(lambda argv=command: run(argv)))
    what = f"decoding {width}x{height}, {len(pictures)} pictures of {stream.name}"
    entries = [row(what, "pictures/s", rates["codecnn"], name, rates[name]) for name in peers]
    for entry in entries:
        print(
            f"{what}: {entry['ours']:.1f} pictures/s; {entry['peer']} {entry['theirs']:.1f}, ratio {entry['ratio']:.3f}"
        )
    return entries


def run(command: list[str]) -> None:
    """Run a peer; its output is dropped."""
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def processor_seconds(call: Callable[[], object]) -> float:
    """Return the processor time of a call and of the processes that it starts."""
    before = os.times()
    call()
    after = os.times()
    return sum(after[:4]) - sum(before[:4])


def code_clip(folder: Path, width: int, height: int, frames: int) -> Path:
    """Code the moving clip in random access and return the stream."""
    folder.mkdir(parents=True)
    photographs = [skimage.data.astronaut(), skimage.data.coffee()[:, :512], skimage.data.chelsea()]
    scene = np.concatenate([photo[:300] @ (0.299, 0.587, 0.114) for photo in photographs], axis=1)
    rows, columns = height, width + STEP * frames
    scene = np.tile(scene, (ceil_div(rows, scene.shape[0]), ceil_div(columns, scene.shape[1])))
    form = VideoFormat(width, height, "420", 10, 30)
    with (folder / "clip.yuv").open("wb") as out:
        for picture in range(frames):
            luma = scene[:rows, STEP * picture : STEP * picture + width]
            out.write((4 * luma).astype("<u2").tobytes())
            out.write(np.full(2 * (height // 2) * (width // 2), 512, "<u2").tobytes())
    settings = CodecSettings(qp=32, preset="fast", configuration="ra", ctu_size=64)
    coded = get_codec("vvc").encode(folder / "clip.yuv", form, settings, folder)
    assert coded.bitstream is not None
    return coded.bitstream
