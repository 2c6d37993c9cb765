"""Options of open_video: start, step and frames, packed raw files, colour of stills, folders of stills."""

import subprocess
import tracemalloc
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from skimage.io import imsave

from codecnn.base.errors import ConfigError, FormatError
from codecnn.pictures.files import (
    NameFields,
    VideoFormat,
    guess_format,
    open_video,
    parse_name,
    read_still,
    rgb_to_ycbcr,
)
from codecnn.pictures.files import (
    streams as streams_module,
)
from tests.helpers.video_files import FFMPEG, assert_same, joined, random_pictures, random_samples, write_video

COUNT = 11


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same eleven pictures in each kind of file; all samples of a picture are its number plus 16."""
    folder = tmp_path_factory.mktemp("numbered")
    form = VideoFormat(18, 10, "420", 8, Fraction(60000, 1001))
    paths = {kind: folder / f"n_18x10_59.94fps.{kind}" for kind in ("yuv", "y4m", "mkv")}
    for kind in ("yuv", "y4m"):
        pictures = ([np.full(shape, number + 16, np.uint8) for shape in form.plane_shapes] for number in range(COUNT))
        write_video(paths[kind], form, pictures)
    subprocess.run([*FFMPEG, "-i", paths["y4m"], "-c:v", "ffv1", paths["mkv"]], check=True)
    paths["folder"] = folder / "stills"
    paths["folder"].mkdir()
    for number in range(COUNT):
        grey = np.full((10, 18, 3), number + 16, np.uint8)
        imsave(paths["folder"] / f"im{number}.png", grey, check_contrast=False)
    return paths


def options_of(kind: str) -> dict[str, Any]:
    return {"bit_depth": 8, "full_range": True, "fps": "60000/1001"} if kind == "folder" else {}


SELECTIONS = [(0, 1, None), (3, 1, 2), (0, 8, None), (2, 4, 2), (10, 8, 5), (1, 3, 3), (0, 101, 1), (0, 1, 99)]


@pytest.mark.parametrize("kind", ["yuv", "y4m", "mkv", "folder"])
@pytest.mark.parametrize(("start", "step", "frames"), SELECTIONS)
def test_start_step_and_frames(numbered: dict[str, Path], kind: str, start: int, step: int, frames: int | None) -> None:
    expected = list(range(COUNT))[start::step][:frames]
    with open_video(numbered[kind], start=start, step=step, frames=frames, **options_of(kind)) as video:
        assert [int(picture.y[0, 0]) - 16 for picture in video] == expected
        assert int(video[-1].y[-1, -1]) - 16 == expected[-1]
        assert video.format.fps == Fraction(60000, 1001 * step)
        # A selection can be selected from again.
        assert [int(picture.y[0, 0]) - 16 for picture in video.select(step=2)] == expected[::2]


@pytest.mark.parametrize("kind", ["yuv", "y4m", "mkv", "folder"])
def test_invalid_selections_are_refused(numbered: dict[str, Path], kind: str) -> None:
    for bad in ({"start": 11}, {"start": 500, "frames": 2}, {"start": 11, "step": 8}):
        with pytest.raises(ConfigError, match=f"{numbered[kind].name} has 11 pictures"):
            open_video(numbered[kind], **options_of(kind), **bad)
    for option, value in (("start", -1), ("step", 0), ("frames", 0), ("frames", -1)):
        message = f"{value} frames" if option == "frames" else f"{option} {value}"
        with pytest.raises(ConfigError, match=message):
            open_video(numbered[kind], **options_of(kind), **{option: value})


def test_fps_option_is_the_rate_of_the_file(numbered: dict[str, Path]) -> None:
    for kind in ("yuv", "y4m", "mkv"):
        assert open_video(numbered[kind], fps=50).format.fps == 50
        assert open_video(numbered[kind], fps=50, step=8).format.fps == Fraction(25, 4)
    assert open_video(numbered["folder"], step=2).format.fps is None


def test_pictures_are_read_one_at_a_time(tmp_path: Path) -> None:
    """At most two of ten pictures of 8 MB are in memory: the one that is used and the one that is read."""
    path = tmp_path / "big_4096x2048_400.yuv"
    with path.open("wb") as file:
        file.truncate(10 * 4096 * 2048)
    tracemalloc.start()
    try:
        with open_video(path, start=1, step=3) as video:
            assert len(video) == 3
            assert tracemalloc.get_traced_memory()[1] < 4096 * 2048
            assert not any(picture.y.any() for picture in video)
        assert tracemalloc.get_traced_memory()[1] < 2.1 * 4096 * 2048
    finally:
        tracemalloc.stop()


def test_streams_are_decoded_only_to_the_last_selected_picture(
    numbered: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = []
    decode = streams_module.decode
    monkeypatch.setattr(
        streams_module, "decode", lambda *args, **kwargs: counts.append(decode(*args, **kwargs)) or counts[-1]
    )
    assert len(open_video(numbered["mkv"], start=1, step=3, frames=2)) == 2
    assert len(open_video(numbered["mkv"], start=1, step=3)) == 4
    assert counts == [5, 11]


PACKED = [
    (f"p{layout}{depth}", VideoFormat(*size, chroma, depth))
    for layout, chroma in ((0, "420"), (2, "422"), (4, "444"))
    for depth in (10, 12, 16)
    for size in ((18, 10), (17, 9))
]


def make_packed(folder: Path, packing: str, form: VideoFormat, count: int = 3) -> tuple[Path, bytes]:
    """Write a packed file of random samples, and return it with the planar bytes.

    ffmpeg packs pictures of even width; at odd widths it would lose the last chroma column.
    """
    planar = joined(random_pictures(form, count))
    (folder / "planar.yuv").write_bytes(planar)
    packed = folder / f"a_{form.width}x{form.height}.yuv"
    if form.width % 2:
        packed.write_bytes(pack_samples(planar, form))
        return packed, planar
    source = ["-f", "rawvideo", "-pix_fmt", form.ffmpeg_pix_fmt, "-s", f"{form.width}x{form.height}"]
    target = ["-f", "rawvideo", "-pix_fmt", f"{packing}le"]
    subprocess.run([*FFMPEG, *source, "-i", folder / "planar.yuv", *target, packed], check=True)
    return packed, planar


def pack_samples(planar: bytes, form: VideoFormat) -> bytes:
    samples = iter(np.frombuffer(planar, "<u2").tolist())
    words: list[int] = []
    sizes = [height * width for height, width in form.plane_shapes]
    for _ in range(len(planar) // form.picture_bytes):
        y, u, v = ([next(samples) for _ in range(size)] for size in sizes)
        words += y + [sample for pair in zip(u, v, strict=True) for sample in pair]
    return b"".join((word * 2 ** (16 - form.bit_depth)).to_bytes(2, "little") for word in words)


@pytest.mark.parametrize(("packing", "form"), PACKED, ids=lambda value: str(value).replace(" ", "_"))
def test_packed_files_equal_the_planar_samples(tmp_path: Path, packing: str, form: VideoFormat) -> None:
    packed, planar = make_packed(tmp_path, packing, form)
    assert packed.read_bytes() != planar
    named = packed.rename(packed.with_name(f"a_{form.width}x{form.height}_25_{packing}.yuv"))
    for options in ({}, {"packing": packing}, {"bit_depth": form.bit_depth, "chroma": form.chroma}):
        with open_video(named, **options) as video:  # type: ignore[arg-type]
            assert video.format == VideoFormat(form.width, form.height, form.chroma, form.bit_depth, Fraction(25))
            assert joined(video) == planar
            assert all(plane.dtype == "<u2" and not plane.flags.writeable for plane in video[0].planes)
            assert [plane.shape for plane in video[1].planes] == list(form.plane_shapes)
    with open_video(named, start=1, step=2) as video:
        assert video[0].y.tobytes() == planar[form.picture_bytes :][: 2 * form.width * form.height]


def test_packed_and_planar_samples_are_not_confused(tmp_path: Path) -> None:
    form = VideoFormat(18, 10, "420", 10)
    packed, planar = make_packed(tmp_path, "p010", form)
    aligned = tmp_path / "lsb_18x10_10bit.yuv"
    aligned.write_bytes(planar)
    with (
        open_video(aligned, packing="p010") as video,
        pytest.raises(FormatError, match=r"lsb_18x10_10bit\.yuv: picture 0 .* lower 6 bits"),
    ):
        video[0]
    with open_video(packed, bit_depth=10) as video, pytest.raises(FormatError, match="upper bits"):
        video[0]
    # A single wrong bit in the last chroma sample is noticed.
    words = np.frombuffer(packed.read_bytes(), "<u2").copy()
    words[-1] |= 1
    packed.write_bytes(words.tobytes())
    with open_video(packed, packing="p010") as video:
        assert video[1].y.shape == (10, 18)
        with pytest.raises(FormatError, match="picture 2"):
            video[2]


def test_contradicting_packings_are_refused(tmp_path: Path, numbered: dict[str, Path]) -> None:
    packed, planar = make_packed(tmp_path, "p010", VideoFormat(18, 10, "420", 10))
    with pytest.raises(ConfigError, match="unknown packing 'p011'"):
        open_video(packed, packing="p011")
    for options in ({"bit_depth": 8}, {"chroma": "422"}):
        with pytest.raises(FormatError, match="packing p010"):
            open_video(packed, packing="p010", **options)  # type: ignore[arg-type]
    with pytest.raises(FormatError, match="pictures of 20x10"):
        open_video(packed, packing="p010", size="20x10")
    for kind in ("y4m", "mkv", "folder"):
        with pytest.raises(ConfigError, match="not raw"):
            open_video(numbered[kind], packing="p010")
    contradicting = packed.rename(tmp_path / "a_18x10_8bit_p010.yuv")
    with pytest.raises(FormatError, match="packing p010"):
        open_video(contradicting)
    assert open_video(contradicting, packing="p010").format.bit_depth == 10
    misnamed = tmp_path / "b_18x10_p010.yuv"
    misnamed.write_bytes(planar)
    assert open_video(misnamed, packing="planar")[0].y.tobytes() == planar[:360]


def test_packing_in_names() -> None:
    assert parse_name("x_416x240_50_P010.yuv") == NameFields(416, 240, "420", 10, Fraction(50), packing="p010")
    assert parse_name("x_416x240_p216le.yuv").chroma == "422"
    assert parse_name("x_416x240p010.yuv").packing == parse_name("p010_416x240.yuv").packing == "p010"
    assert parse_name("x_416x240p10.yuv") == NameFields(416, 240, fps=Fraction(10))
    assert guess_format("x_416x240_p012.yuv") == VideoFormat(416, 240, "420", 12)


@pytest.mark.parametrize("matrix", ["bt601", "bt709", "bt2020"])
@pytest.mark.parametrize("full_range", [False, True])
def test_matrix_and_range_apply_to_stills(tmp_path: Path, matrix: str, full_range: bool) -> None:
    rgb = random_samples((6, 8, 3))
    imsave(tmp_path / "a.png", rgb, check_contrast=False)
    expected = rgb_to_ycbcr(rgb, matrix=matrix, full_range=full_range)
    for path in (tmp_path / "a.png", tmp_path):
        with open_video(path, matrix=matrix, full_range=full_range) as video:
            assert_same(video[0], expected)


def test_matrix_and_range_are_refused_for_other_files(numbered: dict[str, Path], tmp_path: Path) -> None:
    for kind in ("yuv", "y4m", "mkv"):
        for options in ({"matrix": "bt601"}, {"full_range": True}):
            with pytest.raises(ConfigError, match="still"):
                open_video(numbered[kind], **options)  # type: ignore[arg-type]
    imsave(tmp_path / "grey.png", np.zeros((4, 4), np.uint8), check_contrast=False)
    with pytest.raises(ConfigError, match="bt470"):
        open_video(tmp_path / "grey.png", matrix="bt470")


def test_folders_are_read_in_natural_order(tmp_path: Path) -> None:
    names = ["im1.png", "im2.png", "im02.PNG", "im10.png", "im10b.tif", "im 9.png", "x" * 5 + "9" * 30 + ".png"]
    for index, name in enumerate(names):
        imsave(tmp_path / name, np.full((5, 7), index, np.uint8), check_contrast=False)
    for ignored in ("Thumbs.db", "readme.txt", ".hidden.png", "im3.png.part", ".DS_Store"):
        (tmp_path / ignored).write_bytes(b"no picture")
    (tmp_path / "folder.png").mkdir()
    with open_video(tmp_path, bit_depth=8, full_range=True, fps=25) as video:
        order = [int(picture.y[0, 0]) for picture in video]
        assert video.format == VideoFormat(7, 5, "400", 8, Fraction(25))
        assert video.path == tmp_path
    natural = ["im1.png", "im02.PNG", "im2.png", "im10.png", "im10b.tif", "im 9.png", names[-1]]
    assert [names[index] for index in order] == natural


def test_folders_of_unequal_pictures_are_refused(tmp_path: Path) -> None:
    for number in range(12):
        imsave(tmp_path / f"im{number}.png", random_samples((6, 8, 3), seed=number), check_contrast=False)
    imsave(tmp_path / "im11.png", random_samples((6, 10, 3)), check_contrast=False)
    imsave(tmp_path / "im10.png", random_samples((8, 8, 3)), check_contrast=False)
    with pytest.raises(FormatError, match=r"im10\.png is 8x8"):
        open_video(tmp_path)
    for number, content in ((10, random_samples((6, 8))), (11, random_samples((6, 8, 3)))):
        imsave(tmp_path / f"im{number}.png", content, check_contrast=False)
    with open_video(tmp_path) as video:
        assert len(video) == 12
        with pytest.raises(FormatError, match=r"im10\.png is 8x6 400 10 bit.*420"):
            list(video)
    with open_video(tmp_path, chroma="420") as video:
        assert len(list(video)) == 12
    (tmp_path / "im5.png").write_bytes((tmp_path / "im5.png").read_bytes()[:60])
    with open_video(tmp_path) as video, pytest.raises(FormatError, match=r"im5\.png"):
        list(video)
    (tmp_path / "im5.png").write_bytes(b"no picture")
    with pytest.raises(FormatError, match=r"im5\.png"):
        open_video(tmp_path)
    (tmp_path / "im5.png").unlink()
    with pytest.raises(FormatError, match=r"width 8 .* 10"):
        open_video(tmp_path, size="10x6")


def test_folders_without_pictures_are_refused(tmp_path: Path) -> None:
    for names in ((), ("a.yuv", ".a.png")):
        for name in names:
            (tmp_path / name).write_bytes(bytes(10))
        with pytest.raises(FormatError, match="without still pictures"):
            open_video(tmp_path)


def test_reading_a_folder_needs_memory_for_one_picture(tmp_path: Path) -> None:
    """Sixteen pictures of 1 MB each, as 10 bit samples, are read in sequence."""
    for number in range(16):
        imsave(tmp_path / f"im{number}.png", np.full((512, 1024), number, np.uint8), check_contrast=False)
    with open_video(tmp_path, start=1, step=2, chroma="400") as video:
        next(iter(video))
        tracemalloc.start()
        try:
            first = [int(picture.y[0, 0]) for picture in video]
            # memory in use after reading; the conversion of one picture needs several MB for a moment
            assert tracemalloc.get_traced_memory()[0] < 1_000_000
        finally:
            tracemalloc.stop()
    assert first == [int(read_still(tmp_path / f"im{n}.png").y[0, 0]) for n in range(1, 16, 2)]
