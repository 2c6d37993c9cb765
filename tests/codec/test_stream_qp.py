"""QPs that a filter takes for the pictures of a stream."""

import subprocess
from pathlib import Path

import pytest

import codecnn
from codecnn.codec import (
    StreamPicture,
    choose_qps,
    describe_qps,
    output_pictures,
    picture_qp,
    read_headers,
    sequence_qp,
)
from codecnn.pictures.files import ffmpeg_path


def pictures(*layers):
    """Pictures of a stream, two of each (slice type, temporal layer, slice QP)."""
    return [StreamPicture(number, number, *layer[1::-1], (layer[2],)) for number, layer in enumerate(2 * layers)]


RANDOM_ACCESS = [("I", 0, 32), ("B", 0, 33), ("B", 1, 35), ("B", 2, 38), ("B", 3, 40), ("B", 4, 41)]
LOW_DELAY = [("I", 0, 42), ("B", 0, 43), ("B", 0, 50), ("B", 0, 49)]


@pytest.mark.parametrize(
    ("layers", "qp"),
    [
        (RANDOM_ACCESS, 32),
        (LOW_DELAY, 42),
        (RANDOM_ACCESS[1:], None),  # no intra picture
        ([("I", 0, 29), *RANDOM_ACCESS[1:]], None),  # IntraQPOffset -3, the common test conditions
        ([("I", 0, 28), *RANDOM_ACCESS[2:]], None),  # libvvenc -qp 32 -qpa 0, one group of pictures
        ([("I", 0, 23), ("B", 2, 31), ("B", 2, 32), ("B", 3, 33), ("B", 4, 35)], None),  # libvvenc -qp 32
        ([("I", 0, 28), ("B", 0, 32), ("B", 0, 39), ("B", 0, 40)], None),  # low delay with libvvenc's intra offset
        ([("I", 0, 28), ("B", 2, 36), ("B", 2, 31), ("B", 3, 33), ("B", 3, 37)], None),  # rate control
        ([*RANDOM_ACCESS, ("I", 0, 31)], None),
        ([*RANDOM_ACCESS, ("B", 3, 39)], None),
        ([("I", 0, 32)], None),
        ([("I", 0, 32), ("B", 0, 32)], None),
    ],
)
def test_the_qp_of_a_sequence_is_named_only_where_its_slices_leave_no_doubt(layers, qp):
    """Slice QPs by layer as real streams have them; an encoder that was set to QP 32 coded all but the last five."""
    given = pictures(*layers)
    assert sequence_qp(given) == qp


def code(path: Path, *options: str) -> Path:
    """Code 1.2 s of a moving picture."""
    argv = [ffmpeg_path(), "-v", "error", "-f", "lavfi", "-i", "testsrc2=s=128x96:r=10:d=1.2", "-pix_fmt", "yuv420p"]
    subprocess.run([*argv, *options, path], check=True)
    return path


def slices(path: Path) -> list[int]:
    return [picture.slice_qps[0] for picture in output_pictures(read_headers(path))]


X265 = ("-c:v", "libx265", "-x265-params")


@pytest.mark.parametrize(
    ("options", "name", "qp"),
    [
        (("-c:v", "libx264", "-crf", "25"), "out.mp4", 28),
        ((*X265, "log-level=error:crf=28.4"), "out.mkv", 28),
    ],
)
def test_the_crf_of_a_stream_decides(tmp_path: Path, options: tuple[str, ...], name: str, qp: int) -> None:
    chosen = choose_qps(code(tmp_path / name, *options), all_intra_weights=False)
    assert chosen.qps == (qp,)
    assert "crf" in chosen.source


def test_a_constant_qp_is_that_of_all_pictures(tmp_path: Path) -> None:
    path = code(tmp_path / "out.265", *X265, "log-level=error:qp=30:bframes=3")
    values = slices(path)
    assert choose_qps(path, all_intra_weights=False).qps == (values[0],)
    assert len(set(values)) > 1
    avc = code(tmp_path / "out.264", "-c:v", "libx264", "-qp", "30")
    assert choose_qps(avc, all_intra_weights=False).qps == (29,)
    deep = code(tmp_path / "deep.264", "-pix_fmt", "yuv420p10le", "-c:v", "libx264", "-qp", "30")
    assert choose_qps(deep, all_intra_weights=False).qps == (17,)  # x264 counts from -12 at 10 bit


def test_blocks_with_qps_of_their_own(tmp_path: Path) -> None:
    """Without a text of the encoder, offsets to the slice QPs are used where blocks can have other QPs."""
    adaptive = code(tmp_path / "a.265", *X265, "log-level=error:crf=30:info=0:keyint=6:min-keyint=6")
    chosen = choose_qps(adaptive, all_intra_weights=False)
    pictures = output_pictures(read_headers(adaptive))
    expected, qp = [], 0
    for picture in pictures:
        qp = picture.slice_qps[0] - 6 if picture.slice_type == "I" else qp
        expected.append(qp)
    assert list(chosen.qps) == (expected if len(set(expected)) > 1 else expected[:1])
    fixed = code(tmp_path / "b.265", *X265, "log-level=error:qp=30:info=0:aq-mode=0:cutree=0")
    assert choose_qps(fixed, all_intra_weights=False).qps == (slices(fixed)[0],)


def test_bit_rate_of_x264(tmp_path: Path) -> None:
    path = code(tmp_path / "out.264", "-c:v", "libx264", "-b:v", "60k")
    assert choose_qps(path, all_intra_weights=False).qps == (slices(path)[0] + 2,)


def test_pictures_of_av1_take_the_qp_of_the_intra_picture(tmp_path: Path) -> None:
    path = code(tmp_path / "out.mp4", "-c:v", "libsvtav1", "-preset", "12", "-crf", "40")
    values = slices(path)
    assert len(set(values)) > 1
    assert choose_qps(path, all_intra_weights=True).qps == (values[0],)


@pytest.mark.parametrize("rate", [("-b:v", "60k"), ("-crf", "30")])
def test_slices_of_x264_with_different_qps(tmp_path: Path, rate: tuple[str, str]) -> None:
    """The first slice has the QP of the picture, as in a stream of one slice; the others that of their first block."""
    one = code(tmp_path / "one.264", "-c:v", "libx264", *rate)
    four = code(tmp_path / "four.264", "-c:v", "libx264", *rate, "-x264-params", "slices=4")
    assert any(len(set(picture.slice_qps)) > 1 for picture in output_pictures(read_headers(four)))
    expected = choose_qps(one, all_intra_weights=False)
    assert choose_qps(four, all_intra_weights=False).qps == expected.qps
    assert codecnn.filter(four, tmp_path / "four.y4m", effort="fast").qps == expected.qps


def test_slices_of_x265(tmp_path: Path) -> None:
    """Without a text of the encoder; x265 gives all slices of a picture one QP."""
    path = code(tmp_path / "four.265", *X265, "log-level=error:crf=30:info=0:slices=4:ctu=16:min-cu-size=8")
    assert len(read_headers(path).pictures[0].slice_qps) == 4
    assert choose_qps(path, all_intra_weights=False).qps == (slices(path)[0] - 6,)


def test_the_qp_of_a_picture_is_the_mean_of_its_slices() -> None:
    picture = StreamPicture(0, 0, 0, "I", (30, 31, 36))
    assert (picture_qp(picture, "hevc"), picture_qp(picture, "vvc"), picture_qp(picture, "avc")) == (32, 32, 30)


@pytest.mark.parametrize(
    ("codec", "kind", "options", "value"),
    [
        ("avc", "x264 -crf", ("-c:v", "libx264", "-crf", "25"), 25),
        ("avc", "x264 -qp", ("-c:v", "libx264", "-qp", "30"), 30),
        ("avc", "other", ("-c:v", "libx264", "-b:v", "60k"), None),
        ("hevc", "x265 -crf", (*X265, "log-level=error:crf=31"), 31),
        ("hevc", "constant QP", (*X265, "log-level=error:qp=30"), None),
        ("hevc", "other", (*X265, "log-level=error:crf=31:info=0"), None),
        ("av1", "all", ("-c:v", "libsvtav1", "-preset", "12", "-crf", "40"), None),
    ],
)
def test_the_rule_is_described(tmp_path: Path, codec: str, kind: str, options: tuple[str, ...], value: int) -> None:
    """The value, or without one the slice QP of the intra picture, and the offset in words give the QP."""
    path = code(tmp_path / "out.mkv", *options)
    words = describe_qps(codec, all_intra_weights=False)[kind]
    assert words.startswith("slice QP" if value is None else "value of")
    offset = int("".join(words.split()[-2:])) if words[-1].isdigit() else 0
    expected = (slices(path)[0] if value is None else value) + offset
    assert choose_qps(path, all_intra_weights=False).qps[0] == expected
