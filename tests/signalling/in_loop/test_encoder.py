"""A filter inside the loop of libvvenc: the next picture is predicted from its output, also across the borders."""

import ctypes
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from codecnn.base.errors import ConfigError, EncoderError, FormatError, MissingFileError, ToolMissingError
from codecnn.codec import CodecSettings, decode_stream
from codecnn.filtering import stream_qps
from codecnn.pictures.files import Picture, VideoFormat, convert, ffmpeg_path, open_raw
from codecnn.pictures.metrics import psnr
from codecnn.signalling.in_loop import code_in_loop, encoder, find_library, load_library
from codecnn.signalling.in_loop import vvenc_library as binding
from codecnn.signalling.in_loop.vvenc_library import CONFIG_BYTES, checked_library

VERSION = next(iter(CONFIG_BYTES))
FORMAT = VideoFormat(64, 64, "420", 8, 30)


def settings(qp=40, **options):
    return CodecSettings(qp=qp, **({"preset": "faster", "configuration": "ldb", "ctu_size": 64} | options))


def texture(height, width, seed=3):
    """Return smooth noise of 8 bit without repetition."""
    rng = np.random.default_rng(seed)
    rough = rng.normal(0, 1, (height + 8, width + 8))
    smooth = sum(rough[y : y + height, x : x + width] for y in range(8) for x in range(8))
    return np.clip(128 + 5 * smooth, 40, 215).astype(np.uint8)


def clip(pictures=3, form=FORMAT, move=1):
    """Return pictures of a texture that moves to the left."""
    planes = [texture(height, width + move * pictures, seed) for seed, (height, width) in enumerate(form.plane_shapes)]
    return [
        convert(
            Picture(
                tuple(np.ascontiguousarray(p[:, move * i : p.shape[1] - move * (pictures - i)]) for p in planes), 8
            ),
            form.bit_depth,
        )
        for i in range(pictures)
    ]


def unchanged(_, picture):
    return picture


class Recorded:
    """A filter that records its input and applies `change`."""

    def __init__(self, change=None):
        self.change, self.seen, self.lines = change, [], []

    def __call__(self, coded, picture):
        self.lines.append(coded)
        self.seen.append([plane.copy() for plane in picture.planes])
        if self.change is None:
            return picture
        planes = tuple(plane.copy() for plane in picture.planes)
        self.change(len(self.seen) - 1, planes)
        return Picture(planes, picture.bit_depth)


def blur(_, planes):
    for plane in planes:
        plane[1:-1, 1:-1] = (plane[1:-1, :-2] + 2 * plane[1:-1, 1:-1] + plane[1:-1, 2:] + 2) // 4


# --- with the library -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("component", [0, 1, 2], ids="yuv")
def test_a_changed_sample_appears_in_the_next_picture(vvenc_library, tmp_path, component):
    originals = [clip(1)[0]] * 2

    def change(number, planes):
        if number == 0:
            planes[component][13, 21] += 24

    runs = [Recorded(), Recorded(change)]
    for index, run in enumerate(runs):
        code_in_loop(vvenc_library, originals, FORMAT, settings(loop_filters=False), tmp_path / f"{index}.266", run)
    for plane, (a, b) in enumerate(zip(runs[0].seen[1], runs[1].seen[1], strict=True)):
        difference = b.astype(int) - a
        expected = np.zeros_like(difference)
        if plane == component:
            expected[13, 21] = 24
        assert np.array_equal(difference, expected)


@pytest.mark.parametrize("component", [0, 1], ids=["luma", "chroma"])
@pytest.mark.parametrize(("axis", "side"), [(1, 0), (1, -1), (0, 0), (0, -1)], ids=["left", "right", "top", "bottom"])
def test_a_changed_sample_at_the_border_appears_in_the_margin(vvenc_library, tmp_path, component, axis, side):
    """The second picture is the first moved inwards by 8, with its edge repeated: all of it is there, margin included.

    So what was outside of the first picture is inside of the second, and shows what the margin held.
    """
    moved = []
    for plane in (first := clip(1)[0]).planes:
        step = 8 if plane.shape == first.y.shape else 4
        places = np.clip(np.arange(plane.shape[axis]) + (-step if side == 0 else step), 0, plane.shape[axis] - 1)
        moved.append(np.take(plane, places, axis))
    row = 29
    at = (row, side) if axis == 1 else (side, row)

    def change(number, planes):
        if number == 0:
            planes[component][at] += 24

    runs = [Recorded(), Recorded(change)]
    for index, run in enumerate(runs):
        code_in_loop(
            vvenc_library,
            [first, Picture(tuple(moved), 8)],
            FORMAT,
            settings(loop_filters=False),
            tmp_path / f"{index}.266",
            run,
        )
    difference = runs[1].seen[1][component].astype(int) - runs[0].seen[1][component]
    line = difference[row] if axis == 1 else difference[:, row]
    line = line if side == 0 else line[::-1]
    step = 8 if component == 0 else 4
    assert line[: step + 1].tolist() == [24] * (step + 1)


@pytest.mark.parametrize(
    ("form", "depth"),
    [(FORMAT, 10), (FORMAT, 8), (VideoFormat(72, 40, "420", 10, 25), 10), (VideoFormat(64, 48, "400", 8, 30), 10)],
    ids=["8 in 10", "8 in 8", "10 in 10, no power of two", "grey"],
)
def test_without_a_change_log_stream_and_pictures_agree(vvenc_library, tmp_path, form, depth):
    originals, run = clip(4, form), Recorded()
    options = settings(internal_bit_depth=depth)
    coded, _ = code_in_loop(vvenc_library, originals, form, options, tmp_path / "a.266", run, tmp_path / "log.txt")
    plain, _ = code_in_loop(vvenc_library, originals, form, options, tmp_path / "b.266", None)
    assert (tmp_path / "a.266").read_bytes() == (tmp_path / "b.266").read_bytes()
    assert coded == plain == tuple(run.lines)
    for line, original, seen in zip(coded, originals, run.seen, strict=True):
        for stated, a, b in zip(
            (line.psnr_y, line.psnr_u, line.psnr_v), convert(original, depth).planes, seen, strict=False
        ):
            assert psnr(a, b, depth) == pytest.approx(stated, abs=1e-4)
    # The filter receives the slice QPs of the stream; low delay has a QP hierarchy.
    assert stream_qps(tmp_path / "a.266", 4) == [line.qp for line in coded]
    assert coded[0].qp == 40 < coded[1].qp
    decoded = VideoFormat(form.width, form.height, form.chroma, depth)
    decode_stream(ffmpeg_path(), tmp_path / "a.266", tmp_path / "a.yuv", decoded)
    with open_raw(tmp_path / "a.yuv", decoded) as video:
        for picture, seen in zip(video, run.seen, strict=True):
            assert all(np.array_equal(a, b) for a, b in zip(picture.planes, seen, strict=True))
    assert (tmp_path / "log.txt").read_text().count("POC") == 4


def test_two_runs_are_equal_and_decode_only_with_the_filter(vvenc_library, tmp_path):
    originals, runs = clip(4), [Recorded(blur), Recorded(blur)]
    for index, run in enumerate(runs):
        code_in_loop(vvenc_library, originals, FORMAT, settings(30), tmp_path / f"{index}.266", run)
    assert (tmp_path / "0.266").read_bytes() == (tmp_path / "1.266").read_bytes()
    decoded = VideoFormat(64, 64, "420", 10)
    decode_stream(ffmpeg_path(), tmp_path / "0.266", tmp_path / "0.yuv", decoded)
    with open_raw(tmp_path / "0.yuv", decoded) as video:
        assert np.array_equal(video[0].y, runs[0].seen[0][0])
        assert not np.array_equal(video[1].y, runs[0].seen[1][0])


def test_encoder_seconds_exclude_the_filter(vvenc_library, tmp_path):
    def slow(_, picture):
        end = time.thread_time() + 0.3
        while time.thread_time() < end:
            pass
        return picture

    _, seconds = code_in_loop(vvenc_library, clip(), FORMAT, settings(), tmp_path / "a.266", slow)
    assert 0 < seconds < 0.8


@pytest.mark.parametrize(
    ("filter_", "error", "words"),
    [
        (lambda _, picture: 1 / 0, ZeroDivisionError, "division"),
        (lambda _, picture: Picture(picture.planes[:1], 10), FormatError, "they must be"),
        (lambda _, picture: Picture(tuple(p + 600 for p in picture.planes), 10), FormatError, "do not fit in 10 bit"),
    ],
)
def test_errors_of_a_filter_propagate_and_leave_no_file(vvenc_library, tmp_path, filter_, error, words):
    with pytest.raises(error, match=words):
        code_in_loop(vvenc_library, clip(), FORMAT, settings(), tmp_path / "a.266", filter_)
    assert list(tmp_path.iterdir()) == []


def test_samples_that_contradict_the_log_are_refused(vvenc_library, tmp_path, monkeypatch):
    plain = encoder.parse_log
    with monkeypatch.context() as patch:
        patch.setattr(
            encoder, "parse_log", lambda *args: [replace(picture, md5=("0" * 32,) * 3) for picture in plain(*args)]
        )
        with pytest.raises(EncoderError, match="decodes to another MD5"):
            code_in_loop(vvenc_library, clip(), FORMAT, settings(), tmp_path / "a.266", unchanged)
    # The memory layout of a library whose margins have another width.
    monkeypatch.setattr(binding, "_MARGIN", 24)
    with pytest.raises(EncoderError, match=r"Y as \(64, 64, 224\) rows, columns and stride, not \(64, 64, 256\)"):
        code_in_loop(vvenc_library, clip(), FORMAT, settings(), tmp_path / "a.266", unchanged)
    assert list(tmp_path.iterdir()) == []


def test_a_refused_parameter_is_named(vvenc_library, tmp_path):
    with pytest.raises(ConfigError, match="does not take the parameter NoSuch=1"):
        code_in_loop(vvenc_library, clip(), FORMAT, settings(params={"NoSuch": "1"}), tmp_path / "a.266", unchanged)
    with pytest.raises(EncoderError, match="QP 40"):
        code_in_loop(vvenc_library, clip(), FORMAT, settings(params={"QP": "99"}), tmp_path / "a.266", unchanged)


# --- everywhere -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "options", "error", "words"),
    [
        (FORMAT, {"configuration": "ra"}, ConfigError, "needs the configuration ldb, not ra"),
        (FORMAT, {"configuration": "ai"}, ConfigError, "needs the configuration ldb, not ai"),
        (FORMAT, {"ctu_size": None}, ConfigError, "needs a CTU size"),
        (FORMAT, {"ctc": True}, ConfigError, "excludes ctc"),
        (VideoFormat(64, 64, "444", 8), {}, ConfigError, "not 444"),
        (VideoFormat(66, 64, "420", 8), {}, FormatError, "multiples of 8, not 66x64"),
    ],
)
def test_unsupported_settings_are_refused_before_coding(tmp_path, form, options, error, words):
    with pytest.raises(error, match=words):
        code_in_loop(None, [], form, settings(**options), tmp_path / "a.266", unchanged)


def test_a_missing_or_invalid_library_is_an_error(tmp_path, monkeypatch):
    monkeypatch.delenv(binding.LIBRARY_VARIABLE, raising=False)
    with pytest.raises(ToolMissingError, match="CODECNN_VVENC_LIBRARY"):
        find_library()
    with pytest.raises(MissingFileError, match=r"none\.so does not exist"):
        find_library(tmp_path / "none.so")
    text = tmp_path / "text.so"
    text.write_text("no library")
    monkeypatch.setenv(binding.LIBRARY_VARIABLE, str(text))
    with pytest.raises(ToolMissingError, match="cannot be loaded as a shared library"):
        find_library()
    with pytest.raises(ToolMissingError, match="vvenc_get_version"):
        load_library(Path(np._core._multiarray_umath.__file__))


def standin(tmp_path, *, version=VERSION, grown=0, stride_at=24, payload=4711):
    """Return functions that behave like libvvenc while its layouts are checked; the options are deviations."""
    kept = []

    def init_default(config, width, height, *_):
        (ctypes.c_int * 2).from_buffer(config)[:] = [width, height]
        return 0

    def set_msg_callback(config, context, callback):
        end = CONFIG_BYTES[VERSION] + grown
        words = (ctypes.c_void_p * 2).from_buffer(config, end - 16)
        words[:] = [ctypes.cast(callback, ctypes.c_void_p).value, context]

    def buffer_alloc():
        kept.append(binding.YuvBuffer())
        return ctypes.pointer(kept[-1])

    def alloc_buffer(buffer, chroma, width, height):
        samples = (ctypes.c_int16 * 1024)()
        kept.append(samples)
        for index, plane in enumerate(buffer.contents.planes):
            plane.ptr = samples
            plane.width, plane.height = (width, height) if index == 0 else (width // 2, height // 2)
            plane.stride = stride_at

    def unit_alloc():
        kept.append(binding.AccessUnit())
        return ctypes.pointer(kept[-1])

    def alloc_payload(unit, size):
        memory = (ctypes.c_ubyte * size)()
        kept.append(memory)
        unit.contents.payload, unit.contents.payload_size = memory, payload

    names = {name: lambda *_: None for name in binding.SIGNATURES}
    return SimpleNamespace(
        **names
        | {
            "vvenc_get_version": lambda: version.encode(),
            "vvenc_init_default": init_default,
            "vvenc_set_msg_callback": set_msg_callback,
            "vvenc_YUVBuffer_alloc": buffer_alloc,
            "vvenc_YUVBuffer_alloc_buffer": alloc_buffer,
            "vvenc_accessUnit_alloc": unit_alloc,
            "vvenc_accessUnit_alloc_payload": alloc_payload,
        }
    )


def test_a_supported_library_is_accepted(tmp_path):
    assert checked_library(tmp_path / "a.so", standin(tmp_path)).version == VERSION


@pytest.mark.parametrize(
    ("difference", "words"),
    [
        ({"version": "1.16.0"}, rf"a\.so is libvvenc 1\.16\.0, .*: build {VERSION}, as docs/howto/inloop\.md says"),
        ({"grown": 8}, f"another vvenc_config than the {CONFIG_BYTES[VERSION]} bytes"),
        ({"grown": -8}, "another vvenc_config"),
        ({"stride_at": 3}, "another vvencYUVBuffer"),
        ({"payload": 0}, "another vvencAccessUnit"),
    ],
)
def test_a_library_with_another_layout_is_refused(tmp_path, difference, words):
    with pytest.raises(ToolMissingError, match=words):
        checked_library(tmp_path / "a.so", standin(tmp_path, **difference))
