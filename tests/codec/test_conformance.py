"""VVC conformance streams: number, sizes and order of their pictures, and the MD5 of the pictures that codecnn decodes.

`CODECNN_CONFORMANCE` names a copy of the repository ffvvc/tests, which holds the streams of JVET with lists of the MD5
of all their decoded pictures. The test runs with `pytest -m slow tests/codec/test_conformance.py`;
`tools/conformance.py` prints a table.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest

from codecnn.base.errors import UnsupportedError
from codecnn.codec import decode_pictures, read_output_pictures
from codecnn.pictures.files import VideoFormat, ffmpeg_path
from codecnn.vvc.syntax import CHROMA_FORMATS, ParsedPicture
from tools import conformance

FOLDER = os.environ.get("CODECNN_CONFORMANCE")
STREAMS = (
    [
        path.relative_to(FOLDER).as_posix()
        for folder in ("conformance", "performance")
        for path in conformance.streams_in(Path(FOLDER, folder))
    ]
    if FOLDER
    else []
)

REFUSED = {
    r"ILRPL_A|OLS_[ABC]|OPI_B|SPATSCAL(444)?_A|VPS_[ABC]": r"it has a layer \d+, but codecnn reads only streams of one",
}
"""Names of streams that codecnn refuses, with the reason that it gives."""

WRONG_HASHES = {"16b400P16_A_Sony_2.bit": 1}
"""Number of pictures whose hash in the stream differs although all pictures have the listed MD5."""

pytestmark = [
    pytest.mark.parametrize("name", STREAMS or ["none"]),
    pytest.mark.slow,
    pytest.mark.skipif(not FOLDER, reason="needs the VVC conformance streams: set CODECNN_CONFORMANCE to their folder"),
]


def decoded_sizes(path: Path) -> tuple[list[int], str]:
    """Decode a stream with ffmpeg; return the bytes of every picture, and the MD5 of all."""
    argv = [ffmpeg_path(), "-hide_banner", "-nostdin", "-loglevel", "error", "-strict", "-2", "-i", f"file:{path}"]
    output = ["-map", "0:v:0", "-fps_mode", "passthrough", "-noautoscale"]
    argv += [*output, "-f", "md5", "pipe:1", *output, "-f", "framemd5", "pipe:2"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    sizes = [int(line.split(",")[4]) for line in done.stderr.splitlines() if re.fullmatch(r"0,[^#]*[0-9a-f]{32}", line)]
    return sizes, done.stdout.strip().removeprefix("MD5=")


def picture_bytes(picture: ParsedPicture) -> int:
    """Return the number of bytes of a picture inside its conformance window."""
    sps, pps = picture.sps, picture.pps
    window = pps.conformance_window
    width = pps.pps_pic_width_in_luma_samples - ((window.left + window.right) << sps.log2_sub_width_c)
    height = pps.pps_pic_height_in_luma_samples - ((window.top + window.bottom) << sps.log2_sub_height_c)
    return VideoFormat(width, height, CHROMA_FORMATS[sps.sps_chroma_format_idc], sps.bit_depth).picture_bytes


def test_pictures_are_those_that_are_decoded(name: str) -> None:
    path = Path(str(FOLDER)) / name
    reason = next((reason for names, reason in REFUSED.items() if re.match(names, path.name)), None)
    if reason is not None:
        with pytest.raises(UnsupportedError, match=reason):
            read_output_pictures(path)
        return
    pictures = read_output_pictures(path)
    expected = conformance.listed_md5(path)
    sizes, digest = decoded_sizes(path)
    if "/failed/" in name or not sizes:
        pytest.skip(f"{len(pictures)} pictures were read, but this ffmpeg does not decode the stream")
    if expected is not None and digest != expected:
        pytest.skip(f"{len(pictures)} pictures were read, but ffmpeg decodes other pictures than the list states")
    assert [picture_bytes(picture) for picture in pictures] == sizes


def test_decoded_pictures_have_the_listed_md5(name: str) -> None:
    """All pictures, in output order, have the MD5 of the list, or that of ffmpeg if the list has none."""
    path = Path(str(FOLDER)) / name
    reason = next((reason for names, reason in REFUSED.items() if re.match(names, path.name)), None)
    if reason is not None:
        with pytest.raises(UnsupportedError, match=reason):
            list(decode_pictures(path))
        return
    decoded = conformance.decode(path)
    assert decoded.hashes["differs"] == WRONG_HASHES.get(path.name, 0)
    expected = conformance.listed_md5(path)
    if expected is None or "/failed/" in name:
        sizes, expected = decoded_sizes(path)
        if not sizes or "/failed/" in name:
            assert set(decoded.hashes) == {"ok"}, "no other decoder judges the stream, and it has no hashes"
            return
    assert decoded.md5 == expected
