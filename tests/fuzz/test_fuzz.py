"""Over a thousand damaged or hostile picture files: each raises a CodecnnError of one sentence or is read correctly.

No case may raise another exception, hang, run a command from a file name, or return pictures that are not in the file.
Each case has a separate seed, which a failure prints; `CASES` in fuzzing.py is the number of cases of each kind.
"""

import gc
import io
import itertools
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from skimage.io import imsave

from codecnn.base.division import ceil_div
from codecnn.base.errors import CodecnnError
from codecnn.pictures.files import (
    VideoFormat,
    check_video,
    create_video,
    open_video,
    read_still,
    rgb_to_ycbcr,
    summarise_video,
)
from tests.helpers.fuzzing import CASES, Case, fuzz, mutate, pick
from tests.helpers.golden import GoldenFile
from tests.helpers.still_kinds import KINDS
from tests.helpers.video_files import (
    FFMPEG,
    assert_same,
    joined,
    random_pictures,
    random_samples,
    write_png,
    write_video,
)

SLOW = 10
"""Factor by which a slow run tries more streams."""


# --- raw YUV and Y4M -----------------------------------------------------------------------------------------------


def samples_of_y4m(content: bytes) -> tuple[int, int, bytes]:
    """Read width, height and all samples of a Y4M file line by line."""
    file = io.BytesIO(content)
    tags = {tag[:1]: tag[1:] for tag in file.readline()[:-1].split(b" ")[1:]}
    width, height = int(tags[b"W"]), int(tags[b"H"])
    colour = tags.get(b"C", b"420").decode()
    if b"C" not in tags and (old := re.search(rb" XYSCSS=(\w+)", content.partition(b"\n")[0])):
        colour = old[1].decode().lower()
    depth = int((re.search(r"(?:p|mono)(\d+)$", colour) or [0, 8])[1])
    chroma = 0
    if not colour.startswith("mono"):
        sub_width, sub_height = {"420": (2, 2), "422": (2, 1), "444": (1, 1)}[colour[:3]]
        chroma = 2 * ceil_div(width, sub_width) * ceil_div(height, sub_height)
    size = (width * height + chroma) * (1 if depth == 8 else 2)
    samples = b""
    while line := file.readline():
        assert line == b"FRAME\n" or line.startswith(b"FRAME ")
        picture = file.read(size)
        assert len(picture) == size
        samples += picture
    return width, height, samples


def check_y4m(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with open_video(path) as video:
        got = joined(video)
        assert (video.format.width, video.format.height, got) == samples_of_y4m(content)


def make_y4m(path: Path, form: VideoFormat, count: int = 3) -> bytes:
    write_video(path, form, random_pictures(form, count))
    return path.read_bytes()


def test_y4m_headers(tmp_path: Path) -> None:
    tags = [b"W", b"H", b"C", b"F", b"I", b"A", b"X", b"XYSCSS=", b""]
    numbers = [b"8", b"6", b"0", b"-6", b"1e3", b"99999999", b"9" * 40, b"30:1", b"0:0", b"30:0", b"0x8", b" "]
    colours = [b"420", b"420p10", b"444p16", b"mono", b"422jpeg", b"410", b"p", b"420p99", b"mono10"]
    values = [*numbers, *colours, b"\xff\xfe", b"\0", b"\xd9\xa3"]

    def case(rng: np.random.Generator) -> None:
        form = VideoFormat(8, 6, pick(rng, ["400", "420", "422", "444"]), pick(rng, [8, 10]))
        content = make_y4m(tmp_path / "whole.y4m", form)
        head, _, body = content.partition(b"\n")
        words = head.split(b" ")
        for _ in range(int(rng.integers(1, 3))):
            place = int(rng.integers(1, len(words) + 1))
            words[place : place + int(rng.integers(2))] = [pick(rng, tags) + pick(rng, values)]
        check_y4m(tmp_path / "a.y4m", b" ".join(words) + b"\n" + body)

    fuzz("y4m header", case, both=20)


def test_y4m_bytes(tmp_path: Path) -> None:
    content = make_y4m(tmp_path / "whole.y4m", VideoFormat(7, 5, "420", 8), 4)
    content = content.replace(b"FRAME\n", b"FRAME Ip XCODEC=none\n", 2)
    fuzz("y4m bytes", lambda rng: check_y4m(tmp_path / "a.y4m", mutate(content, rng)), both=20)


def test_raw_files_and_their_options(tmp_path: Path) -> None:
    path = tmp_path / "a_8x6_50.yuv"

    def case(rng: np.random.Generator) -> None:
        content = rng.bytes(int(rng.choice([0, 1, 72, 95, 144, 288, 576, 1000])))
        path.write_bytes(content)
        options = {
            "size": pick(rng, [None, "8x6", (8, 6), "6x8", "x", "8x", (0, 6), (-8, 6), "99999999x2", (10**12, 10**12)]),
            "bit_depth": pick(rng, [None, 8, 10, 16, 7, 17, 0, -1]),
            "chroma": pick(rng, [None, "420", "400", "444", "411", "", "4:2:0"]),
            "packing": pick(rng, [None, None, "p010", "p016", "planar", "P010", "nv12", "../x"]),
            "start": pick(rng, [0, 0, 1, 10**30, -1]),
            "frames": pick(rng, [None, 1, 0, 10**30]),
            "step": pick(rng, [1, 1, 8, 0, 10**30]),
        }
        for name in options:
            if name != "size" and rng.random() < 0.7:
                options[name] = {"start": 0, "step": 1}.get(name)
        with open_video(path, **options) as video:
            got = joined(video)
            form = video.format
            taken = list(range(len(content) // form.picture_bytes))[options["start"] :: options["step"]]
            assert len(video) == len(taken[: options["frames"]])
            if options["packing"] in (None, "planar"):
                size = form.picture_bytes
                assert got == b"".join(content[n * size : (n + 1) * size] for n in taken[: options["frames"]])
            else:
                assert Counter(got) == Counter((np.frombuffer(content, "<u2") >> (16 - form.bit_depth)).tobytes())

    fuzz("raw", case, both=5)


# --- stills --------------------------------------------------------------------------------------------------------


def check_still(path: Path, content: bytes) -> None:
    """Compare with Pillow, which also reads some of the formats for codecnn."""
    path.write_bytes(content)
    picture = read_still(path, chroma="444", bit_depth=8, full_range=True)
    with Image.open(path) as image:
        samples = np.asarray(image.convert("RGB") if image.mode == "P" else image)
    if samples.ndim == 2:
        scaled = samples.astype(float) * (255 if samples.dtype == bool else 255 / np.iinfo(samples.dtype).max)
        np.testing.assert_array_equal(picture.y, np.floor(scaled + 0.5))
    else:
        assert_same(picture, rgb_to_ycbcr(samples[:, :, :3], chroma="444", bit_depth=8, full_range=True))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("kind", "suffixes"),
    [("png", [".png"]), ("jpeg", [".jpg"]), ("tiff", [".tif"]), ("other stills", [".bmp", ".webp"])],
)
def test_stills(tmp_path: Path, kind: str, suffixes: list[str]) -> None:
    """Warnings of the readers are ignored."""
    samples = [random_samples((9, 13)), random_samples((9, 13, 3))]
    if kind in ("png", "tiff"):
        samples.append(random_samples((9, 13), np.uint16))  # in grey: Pillow cuts colour to 8 bit
    wholes = []
    for suffix, stored in itertools.product(suffixes, samples):
        imsave(tmp_path / f"whole{suffix}", stored, check_contrast=False)
        wholes.append((suffix, (tmp_path / f"whole{suffix}").read_bytes()))
        check_still(tmp_path / f"a{suffix}", wholes[-1][1])

    def case(rng: np.random.Generator) -> None:
        suffix, content = pick(rng, wholes)
        check_still(tmp_path / f"a{suffix}", mutate(content, rng))

    assert fuzz(kind, case)["error"] > CASES[kind] // 5
    gc.collect()  # imageio leaves files open when none of its readers fits


def test_deep_png(tmp_path: Path) -> None:
    """ffmpeg reads 16-bit colour; a PNG has checksums, so samples that are read must equal those written."""
    samples = random_samples((9, 13, 3), np.uint16)
    write_png(tmp_path / "whole.png", samples, 2)
    whole = (tmp_path / "whole.png").read_bytes()
    wanted = rgb_to_ycbcr(samples, chroma="444", bit_depth=16)

    def case(rng: np.random.Generator) -> None:
        (tmp_path / "a.png").write_bytes(mutate(whole, rng) if rng.random() < 0.9 else whole)
        assert_same(read_still(tmp_path / "a.png", chroma="444", bit_depth=16), wanted)

    assert fuzz("deep png", case)["error"] > 0


def check_sentence(path: Path) -> None:
    """Read all of a file; an error must name the file, and no file in a temporary folder of codecnn."""
    try:
        for read in (summarise_video, check_video, open_video):
            read(path)
        for picture in open_video(path):
            assert picture.y.size
    except CodecnnError as error:
        if str(path) not in str(error) or "codecnn-" in str(error):
            raise AssertionError(f"{path}: {error}") from error
        raise


@pytest.mark.filterwarnings("ignore")
def test_every_kind_of_still(tmp_path: Path) -> None:
    """Damage in files of all kinds: compressions, palettes, pages, animations, profiles."""
    wholes = []
    for kind in KINDS:
        kind.write(tmp_path / kind.name)
        wholes.append((kind.name, (tmp_path / kind.name).read_bytes()))

    def case(rng: np.random.Generator) -> None:
        name, content = pick(rng, [whole for whole in wholes if len(whole[1]) < 100_000])
        (tmp_path / name).write_bytes(mutate(content, rng))
        check_sentence(tmp_path / name)

    assert fuzz("kinds of stills", case, both=20)


# --- streams, and names --------------------------------------------------------------------------------------------


def check_stream(path: Path, content: bytes) -> None:
    """Compare with the output of ffmpeg in the pixel format of the file."""
    path.write_bytes(content)
    with open_video(path) as video:
        raw = joined(video)
        argv = [*FFMPEG, "-i", path, "-map", "0:V:0", "-fps_mode", "passthrough", "-f", "rawvideo", "-"]
        decoded = subprocess.run(argv, check=False, capture_output=True, stdin=subprocess.DEVNULL)
        assert raw == decoded.stdout


def mutated_stream(golden_file: GoldenFile, tmp_path: Path) -> Case:
    names = ("vvc/tiny64x64_ai_qp32.266", "vvc/tinyclip128x64_ra_qp37.266", "hevc/chelsea178x130_ai_qp32_mincu16.265")
    wholes = [golden_file(name).read_bytes() for name in names]

    def case(rng: np.random.Generator) -> None:
        which = int(rng.integers(4))
        if which == 3:
            suffix = pick(rng, ["266", "265", "264", "mp4", "mkv", "ivf", "avi"])
            check_stream(tmp_path / f"a.{suffix}", rng.bytes(3000))
        else:
            check_stream(tmp_path / f"a{Path(names[which]).suffix}", mutate(wholes[which], rng))

    return case


def test_streams(golden_file: GoldenFile, tmp_path: Path) -> None:
    assert fuzz("streams", mutated_stream(golden_file, tmp_path))["error"] > 8


@pytest.mark.slow
def test_many_streams(golden_file: GoldenFile, tmp_path: Path) -> None:
    fuzz("streams", mutated_stream(golden_file, tmp_path), SLOW * CASES["streams"], both=10)


def test_mp4(tmp_path: Path) -> None:
    make_y4m(tmp_path / "in.y4m", VideoFormat(32, 16, "420", 8), 3)
    subprocess.run([*FFMPEG, "-i", tmp_path / "in.y4m", "-c:v", "libx264", tmp_path / "whole.mp4"], check=True)
    whole = (tmp_path / "whole.mp4").read_bytes()
    check_stream(tmp_path / "a.mp4", whole)
    assert fuzz("mp4", lambda rng: check_stream(tmp_path / "a.mp4", mutate(whole, rng)))["error"] > 1


def test_containers(tmp_path: Path) -> None:
    """Damage in containers whose streams are extracted, and in those that ffmpeg decodes directly."""
    make_y4m(tmp_path / "in.y4m", VideoFormat(64, 48, "420", 8), 3)
    kinds = {
        "a.mkv": ("-c:v", "libx265", "-x265-params", "log-level=none"),
        "a.ts": ("-c:v", "libx265", "-x265-params", "log-level=none"),
        "a.mov": ("-c:v", "v210"),
        "a.avi": ("-c:v", "mjpeg", "-pix_fmt", "yuvj420p"),
        "a.mjpeg": ("-c:v", "mjpeg", "-pix_fmt", "yuvj420p"),
    }
    wholes = []
    for name, arguments in kinds.items():
        subprocess.run([*FFMPEG, "-i", tmp_path / "in.y4m", *arguments, tmp_path / name], check=True)
        wholes.append((name, (tmp_path / name).read_bytes()))

    def case(rng: np.random.Generator) -> None:
        name, content = pick(rng, wholes)
        (tmp_path / name).write_bytes(mutate(content, rng))
        check_sentence(tmp_path / name)

    assert fuzz("containers", case)["error"] > 3


def test_pixel_formats_in_names(tmp_path: Path) -> None:
    """Names of random tokens: what is opened has the size of the file and the geometry that the name states."""
    words = ["nv12", "p010", "yuv420p10le", "yuv422p", "v210", "10bit", "8bit", "gray", "444", "4-2-2", "be", "uyvy422"]
    words += ["64x48", "16x9", "x3", "25fps", "f2", "u16le", "mono", "1080p", "a"]

    def case(rng: np.random.Generator) -> None:
        tokens = ["64x48"] * bool(rng.random() < 0.9) + [str(pick(rng, words)) for _ in range(int(rng.integers(1, 3)))]
        path = tmp_path / (str(pick(rng, ["_", "-", ".", " "])).join(["c", *tokens]) + ".yuv")
        path.write_bytes(bytes(64 * 48 * int(pick(rng, [3, 4, 6, 9, 12]))))
        try:
            check_sentence(path)
            with open_video(path) as video:
                assert f"{video.format.width}x{video.format.height}" in tokens
                assert {"v210", "be", "u16le"}.isdisjoint(tokens[tokens.index("64x48") :] if "64x48" in tokens else [])
        finally:
            path.unlink()

    fuzz("pixel formats", case, both=10)


SHELL = ("$(touch canary)", "`touch canary`", "; touch canary;", "&& touch canary", "| touch canary", "|")
BLANKS = (" ", "\n", "\t", "\r", "\x1b[31m", "\u202e", "'", '"', "é", "日本", os.fsdecode(b"\xff\xfe"))
PATTERNS = ("~", "\\", "#", "%", "%d", "%03d", "*", "?", "[a]", "{}", "=", "@", ",", "-i", "--")
PROTOCOLS = ("::", "file:", "concat:", "pipe:0", "http:", "data:", "subfile,,start,0,end,9,,:")
GEOMETRY = ("99x99", "4x4_10bit", "_16x8_400", "p010")
PIECES = [*SHELL, *BLANKS, *PATTERNS, *PROTOCOLS, *GEOMETRY]


def test_names_are_only_names(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: Any) -> None:
    """Any file name gives the same pictures, and a missing file is an error."""
    form = VideoFormat(16, 8, "420", 8)
    make_y4m(tmp_path / "whole.y4m", form)
    with open_video(tmp_path / "whole.y4m") as video:
        wanted = joined(video)
    subprocess.run([*FFMPEG, "-i", tmp_path / "whole.y4m", "-c:v", "ffv1", tmp_path / "whole.mkv"], check=True)
    (tmp_path / "whole.yuv").write_bytes(wanted)
    imsave(tmp_path / "whole.png", random_samples((8, 16)), check_contrast=False)
    still = joined(open_video(tmp_path / "whole.png"))
    folder = tmp_path_factory.mktemp("names")
    monkeypatch.chdir(folder)
    options = {"size": "16x8", "bit_depth": 8, "chroma": "420", "packing": "planar"}

    def case(rng: np.random.Generator) -> None:
        suffix = pick(rng, [".yuv", ".yuv", ".y4m", ".y4m", ".png", ".png", ".mkv"])
        name = "".join(pick(rng, PIECES) for _ in range(int(rng.integers(1, 4)))) + suffix
        shutil.copy(tmp_path / f"whole{suffix}", folder / name)
        samples = joined(open_video(name, **(options if suffix == ".yuv" else {})))
        assert samples == (still if suffix == ".png" else wanted)
        (folder / name).unlink()
        with pytest.raises(CodecnnError):
            open_video(name)
        assert list(folder.iterdir()) == []

    assert fuzz("names", case)["result"] == CASES["names"]


def test_hostile_names_on_the_command_line(tmp_path: Path) -> None:
    for name in (b"\xff\xfe 9x9.yuv", b"$(touch canary)\n.266", b"concat:a|b.mp4"):
        argv = [sys.executable.encode(), b"-m", b"codecnn", b"info", b"--", name]
        done = subprocess.run(argv, cwd=tmp_path, capture_output=True, check=False, timeout=60)
        assert (done.returncode, done.stdout) == (1, b"")
        assert done.stderr.startswith(b"codecnn: ")
        assert b"Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_options_of_any_value(tmp_path: Path) -> None:
    make_y4m(tmp_path / "a_8x6.y4m", VideoFormat(8, 6))
    with open_video(tmp_path / "a_8x6.y4m") as video:
        wanted = joined(video)
        (tmp_path / "a_8x6.yuv").write_bytes(wanted)
    texts = ["50", "1e99999999", "1e999", "nan", "inf", "-1", "0", "1/0", "9" * 5000, "1e-30", "x"]
    rates = [*texts, float("nan"), 10**40]

    def case(rng: np.random.Generator) -> None:
        options = {"fps": pick(rng, rates)} if rng.random() < 0.6 else {"matrix": pick(rng, ["bt601", "", "bt709"])}
        with open_video(tmp_path / pick(rng, ["a_8x6.yuv", "a_8x6.y4m"]), **options) as video:
            assert joined(video) == wanted
            with create_video(tmp_path / "out.y4m", video.format) as out:
                out.write(video[0])
        with open_video(tmp_path / "out.y4m") as again:
            assert again.format == video.format

    assert fuzz("options", case)["error"] > 10


def test_there_are_a_thousand_cases() -> None:
    """Each kind of CASES has a test, and there are at least a thousand cases."""
    assert sum(CASES.values()) >= 1_000
    tests = Path(__file__).parents[1]
    files = (*tests.glob("fuzz/test_fuzz*.py"), *tests.glob("signalling/nnpf/test_*.py"))
    text = "".join(path.read_text(encoding="utf-8") for path in files)
    tried = set(re.findall(r'fuzz\("([\w ]+)"', text)) | set(re.findall(r'\("([\w ]+)", \["\.', text))
    assert tried == set(CASES)
