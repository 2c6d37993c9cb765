"""Y4M files of others: their properties survive, and what is not read is refused."""

import re
import subprocess
from fractions import Fraction
from pathlib import Path

import pytest

from codecnn.base.errors import FormatError
from codecnn.pictures.files import VideoFormat, create_video, open_video
from tests.helpers.video_files import FFMPEG, joined, random_pictures

COPIES = {
    # header in -> header out; absent properties get the values that the manual states for them
    "W6 H4 F25:1 It A128:117 C420jpeg XCOLORRANGE=FULL": None,
    "W6 H4 F30000:1001 Ib A10:11 C420paldv XYSCSS=420PALDV XCOLORRANGE=LIMITED": None,
    "W6 H4 F24000:1001 Ip A1:1 C420mpeg2 XYSCSS=420MPEG2": None,
    "W6 H4 F2997:100 I? A0:0 C420 XABC XD=E": None,
    "W6 H4 F50000:1000 Ip A1:1 C422": None,
    "W6 H4 F0:0 Ip A1:1 C444": None,
    "W6 H4 F50:1 It A4:3 C420p10 XYSCSS=420P10 XCOLORRANGE=FULL": None,
    "W6 H4 F50:1 Ip A1:1 C422p12 XYSCSS=422P12": None,
    "W6 H4 F50:1 Ip A1:1 Cmono": None,
    "W6 H4 F50:1 Ip A1:1 Cmono16": None,
    "W6 H4": "W6 H4 F0:0 I? A0:0 C420jpeg",
    "C444 A1:1 H4 F25:1 W6 Ip": "W6 H4 F25:1 Ip A1:1 C444",
    "W6 H4 F25:1 XYSCSS=422P10": "W6 H4 F25:1 I? A0:0 C422p10 XYSCSS=422P10",
    "W6 H4 F25:1 Im A1:1 C420mpeg2": None,
}


def format_of(header: str) -> VideoFormat:
    """Return the geometry of a header in `COPIES`, read without the reader under test."""
    colour = next((tag[1:] for tag in header.split() if tag[0] == "C"), "422p10" if "422P10" in header else "420")
    chroma = "400" if colour.startswith("mono") else colour[:3]
    depth = re.search(r"p(1\d)|mono(1\d)", colour)
    return VideoFormat(6, 4, chroma, int(depth[1] or depth[2]) if depth else 8)


def write_y4m(path: Path, header: str, frames: tuple[str, ...] = ("", ""), newline: str = "\n") -> bytes:
    """Write a file with random samples and return them; `frames` are the parameters of its FRAME lines."""
    pictures = random_pictures(format_of(header), len(frames))
    parts = [f"YUV4MPEG2 {header}{newline}".encode()]
    for picture, parameters in zip(pictures, frames, strict=True):
        parts += [f"FRAME{' ' * bool(parameters)}{parameters}{newline}".encode(), joined([picture])]
    path.write_bytes(b"".join(parts))
    return joined(pictures)


def copy(source: Path, target: Path, **options: int) -> list[bytes]:
    """Copy a video and return the lines of the copy that are no samples."""
    with open_video(source, **options) as video, create_video(target, video.format, like=video) as out:
        for picture in video:
            out.write(picture)
        size = video.format.picture_bytes
    lines, data = [], target.read_bytes()
    while data:
        line, _, data = data.partition(b"\n")
        lines.append(line)
        data = data if len(lines) == 1 else data[size:]
    return lines


@pytest.mark.parametrize("header", COPIES)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_properties_survive(tmp_path: Path, header: str, newline: str) -> None:
    samples = write_y4m(tmp_path / "a.y4m", header, newline=newline)
    assert joined(open_video(tmp_path / "a.y4m")) == samples
    expected = COPIES[header] or header
    assert copy(tmp_path / "a.y4m", tmp_path / "b.y4m") == [f"YUV4MPEG2 {expected}".encode(), b"FRAME", b"FRAME"]
    assert joined(open_video(tmp_path / "b.y4m")) == samples


def test_properties_of_single_pictures_survive(tmp_path: Path) -> None:
    frames = ("Itni XA=1", "", "Ipp", "Ib1 XB")
    header = "W6 H4 F25:1 Im A1:1 C420mpeg2"
    write_y4m(tmp_path / "a.y4m", header, frames)
    lines = [b"FRAME Itni XA=1", b"FRAME", b"FRAME Ipp", b"FRAME Ib1 XB"]
    assert copy(tmp_path / "a.y4m", tmp_path / "b.y4m")[1:] == lines
    assert copy(tmp_path / "a.y4m", tmp_path / "b.y4m", start=1, step=2)[1:] == lines[1::2]
    assert (
        copy(tmp_path / "a.y4m", tmp_path / "b.y4m", start=1, step=2)[0] == b"YUV4MPEG2 W6 H4 F25:2 Im A1:1 C420mpeg2"
    )


def test_rate_option_and_other_formats_replace_properties(tmp_path: Path) -> None:
    write_y4m(tmp_path / "a.y4m", "W6 H4 F2997:100 It A4:3 C420jpeg XYSCSS=420JPEG XCOLORRANGE=FULL")
    assert b" F50:1 It " in copy(tmp_path / "a.y4m", tmp_path / "b.y4m", fps=50)[0]
    with open_video(tmp_path / "a.y4m") as video:
        for form, colour in ((VideoFormat(6, 4, "420", 10), b"C420p10"), (VideoFormat(6, 4, "444"), b"C444")):
            with create_video(tmp_path / "b.y4m", form, like=video) as out:
                out.write(random_pictures(form, 1)[0])
            header = (tmp_path / "b.y4m").read_bytes().split(b"\n")[0]
            assert header == b"YUV4MPEG2 W6 H4 F0:0 It A4:3 " + colour + b" XCOLORRANGE=FULL"


def test_files_without_properties_have_the_defaults(tmp_path: Path) -> None:
    raw = tmp_path / "a_6x4_25.yuv"
    raw.write_bytes(bytes(36))
    assert copy(raw, tmp_path / "b.y4m")[0] == b"YUV4MPEG2 W6 H4 F25:1 Ip A1:1 C420mpeg2"


@pytest.mark.parametrize(
    "colour",
    ["411", "410", "440", "444alpha", "420p8", "422p17", "mono1", "rgb", "444ps", "444ph", "monos", "", "420\x01"],
)
def test_other_colour_spaces_are_refused(tmp_path: Path, colour: str) -> None:
    path = tmp_path / "a.y4m"
    path.write_bytes(f"YUV4MPEG2 W6 H4 F25:1 C{colour}\nFRAME\n".encode() + bytes(24 * 8))
    shown = colour.replace("\x01", r"\\x01")
    with pytest.raises(FormatError, match=rf"a\.y4m .* C{shown}"):
        open_video(path)


FFMPEG_PROPERTIES = [
    ("yuv420p", "left", "pc", "tff"),
    ("yuv420p", "center", "tv", "bff"),
    ("yuv420p", "topleft", "pc", "prog"),
    ("yuv422p10le", "left", "pc", "tff"),
    ("gray", "left", "pc", "prog"),
]


@pytest.mark.parametrize(("pix_fmt", "position", "colour_range", "fields"), FFMPEG_PROPERTIES)
def test_headers_of_ffmpeg_survive(tmp_path: Path, pix_fmt: str, position: str, colour_range: str, fields: str) -> None:
    source = ["-f", "lavfi", "-i", "testsrc=s=32x16:d=0.1:r=30000/1001"]
    filters = f"format={pix_fmt},setparams=range={colour_range}:field_mode={fields},setsar=128/117"
    options = ["-vf", filters, "-chroma_sample_location", position, "-strict", "-1"]
    subprocess.run([*FFMPEG, *source, *options, tmp_path / "a.y4m"], check=True)
    header = (tmp_path / "a.y4m").read_bytes().split(b"\n")[0]
    assert copy(tmp_path / "a.y4m", tmp_path / "b.y4m")[0] == header
    assert (tmp_path / "a.y4m").read_bytes() == (tmp_path / "b.y4m").read_bytes()
    assert open_video(tmp_path / "b.y4m").format.fps == Fraction(30000, 1001)


def test_filter_keeps_the_properties(tmp_path: Path, shared_data: Path, run) -> None:
    source, target = shared_data / "inputs" / "full_tff.y4m", tmp_path / "out.y4m"
    assert run("filter", "-m", "low_cost_5", "-q", "32", "-i", source, "-o", target)[0] == 0
    header = source.read_bytes().split(b"\n")[0]
    assert b" It A128:117 C420jpeg XCOLORRANGE=FULL" in header
    assert target.read_bytes().split(b"\n")[0] == header
