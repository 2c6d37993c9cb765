"""Streams that are cut, lack pictures or mislead: pictures are those of the undamaged stream, or there are none."""

import logging
import re
import subprocess
from pathlib import Path

import pytest

from codecnn.base.errors import CodecnnError, FormatError
from codecnn.codec import decode_stream
from codecnn.codec.encoders.av1 import decode_av1
from codecnn.pictures.files import create_video, ffmpeg_path, open_video, probe_stream, summarise_video
from tests.helpers.cut_streams import units_of
from tests.helpers.mp4_boxes import boxes, with_clean_aperture, with_second_description
from tests.helpers.video_files import FFMPEG, joined

X265 = ("-c:v", "libx265", "-x265-params", "log-level=error:info=0:qp=30:ctu=16:keyint=4:min-keyint=4:bframes=2")
X264 = ("-c:v", "libx264", "-qp", "30", "-bf", "0", "-g", "6")
MPEG4 = ("-c:v", "mpeg4", "-q:v", "8")
FAST = ("-movflags", "+faststart")
FRAGMENTS = ("-movflags", "+frag_every_frame+empty_moov+default_base_moof")


def coded(target: Path, *options: str, count: int = 8, filters: str = "null") -> Path:
    source = f"testsrc2=size=64x48:rate=25:duration={count / 25},noise=alls=12:allf=t:all_seed=5"
    argv = [*FFMPEG, "-f", "lavfi", "-i", source, "-vf", filters, "-pix_fmt", "yuv420p", *options, str(target)]
    subprocess.run(argv, check=True, stderr=subprocess.DEVNULL)
    return target


def pictures(path: Path, frames: int | None = None) -> list[bytes]:
    with open_video(path, frames=frames) as video:
        return [joined([picture]) for picture in video]


# --- cut files -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("a.265", X265),
        ("a.264", X264),
        ("hevc.mp4", (*X265, *FAST)),
        ("hevc.mkv", X265),
        ("avc.mp4", (*X264, *FAST)),
        ("mpeg4.mp4", (*MPEG4, *FAST)),
        ("mpeg4.mkv", MPEG4),
        ("a.ts", X265),
        ("a.ivf", ("-c:v", "libvpx", "-b:v", "200k", "-auto-alt-ref", "0")),
    ],
)
def test_a_cut_file_gives_no_wrong_picture_and_says_how_many_are_whole(
    tmp_path: Path, name: str, options: tuple[str, ...]
) -> None:
    whole = coded(tmp_path / name, *options)
    expected, data = pictures(whole), whole.read_bytes()
    assert len(expected) == 8
    cut = tmp_path / f"cut_{name}"
    refused = 0
    for size in (len(data) * 7 // 10, len(data) - (1 if "mkv" not in name else len(data) // 8)):
        cut.write_bytes(data[:size])
        try:
            found = pictures(cut)
        except CodecnnError as error:
            refused += 1
            message = str(error)
            assert "frame=" not in message
            if (count := re.search(r"-f (\d+) reads", message)) is not None:
                assert pictures(cut, int(count[1])) == expected[: int(count[1])]
        else:
            assert set(found) <= set(expected)
    assert refused


def test_a_byte_stream_that_ends_in_a_whole_slice_is_read(tmp_path: Path) -> None:
    for name, options in (("a.265", X265), ("a.264", X264), ("b.264", (*X264, "-profile:v", "baseline"))):
        stream = coded(tmp_path / name, *options)
        expected = pictures(stream)
        units = units_of(stream.read_bytes())
        # B pictures and leading pictures of a CRA picture are the last ones in turn.
        for count in range(len(units) - 3, len(units)):
            is_slice = units[count - 1][3] >> 1 < 32 if name == "a.265" else units[count - 1][3] & 31 <= 5
            if is_slice:
                stream.write_bytes(b"".join(units[:count]))
                assert set(pictures(stream)) < set(expected), (name, count)


def test_a_container_that_states_more_pictures_than_it_has(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An IVF file that is cut between two pictures looks whole but for the number of pictures in its header."""
    path = coded(tmp_path / "a.ivf", "-c:v", "libaom-av1", "-cpu-used", "8", "-crf", "50")
    data = path.read_bytes()
    end = 32
    for _ in range(5):
        end += 12 + int.from_bytes(data[end : end + 4], "little")
    expected = pictures(path)
    assert caplog.messages == []
    path.write_bytes(data[:end])
    assert pictures(path) == expected[:5]
    assert "0.32 s, and its 5 pictures end after 0.20 s" in caplog.text


# --- pictures that are missing ---------------------------------------------------------------------------------------


def test_avc_without_a_reference_picture(tmp_path: Path) -> None:
    path = coded(tmp_path / "a.264", *X264, "-x264-params", "keyint=100:scenecut=0")
    expected, units = pictures(path), units_of(path.read_bytes())
    slices = [n for n, unit in enumerate(units) if unit[3] & 31 in (1, 5)]
    path.write_bytes(b"".join(units[: slices[4]] + units[slices[5] :]))
    with pytest.raises(FormatError, match=r"picture 4 .* 3 to 5"):
        open_video(path)
    path.write_bytes(b"".join(units[: slices[7]] + units[slices[7] + 1 :]))
    assert pictures(path) == expected[:7]


def test_avc_without_a_picture_to_which_no_other_refers(tmp_path: Path) -> None:
    path = coded(tmp_path / "a.264", "-c:v", "libx264", "-bf", "2", "-x264-params", "b-adapt=0:b-pyramid=0:scenecut=0")
    expected, units = pictures(path), units_of(path.read_bytes())
    unused = next(n for n, unit in enumerate(units) if unit[3] & 31 == 1 and not unit[3] & 0x60)
    path.write_bytes(b"".join(units[:unused] + units[unused + 1 :]))
    found = pictures(path)
    assert len(found) == 7
    assert set(found) < set(expected)


def test_avc_without_its_idr_picture(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = coded(tmp_path / "a.264", *X264, count=12)
    expected, units = pictures(path), units_of(path.read_bytes())
    idr = [n for n, unit in enumerate(units) if unit[3] & 31 == 5]
    assert len(idr) == 2
    path.write_bytes(b"".join(units[: idr[0]] + units[idr[0] + 1 :]))
    assert pictures(path) == expected[6:]
    assert "has 11 coded pictures, and 6 are read" in caplog.text
    path.write_bytes(b"".join(unit for n, unit in enumerate(units) if n not in idr))
    with pytest.raises(FormatError, match="10 pictures"):
        open_video(path)


def test_several_sample_descriptions(tmp_path: Path) -> None:
    # Sound divides the pictures into chunks.
    sound = ("-f", "lavfi", "-i", "anullsrc=duration=3", "-shortest", "-map", "1:v", "-map", "0:a")
    path = tmp_path / "a.mp4"
    video = ("-f", "lavfi", "-i", "testsrc2=size=64x48:rate=25:duration=3", "-pix_fmt", "yuv420p")
    subprocess.run([*FFMPEG, *sound[:4], *video, *sound[5:], *X265, "-tag:v", "hvc1", path], check=True)
    assert len(pictures(path)) == 75
    data = path.read_bytes()
    sps = data.index(b"\x42\x01", data.index(b"hvcC"))
    path.write_bytes(with_second_description(data, data[sps : sps + 4], data[sps : sps + 3] + b"\x65"))
    with pytest.raises(FormatError, match="several sample descriptions"):
        open_video(path)


def test_a_repeated_fragment_is_no_edit_list(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = coded(
        tmp_path / "a.mp4",
        "-c:v",
        "libx264",
        "-bf",
        "0",
        "-g",
        "2",
        *FRAGMENTS[:1],
        "+frag_keyframe+empty_moov+default_base_moof",
    )
    expected = pictures(path)
    parts = list(boxes(path.read_bytes()))
    second = [n for n, (kind, _) in enumerate(parts) if kind == b"moof"][1]
    twice = [*parts[: second + 2], *parts[second : second + 2], *parts[second + 2 :]]
    path.write_bytes(b"".join(data for _, data in twice))
    assert pictures(path) == expected
    assert caplog.messages == []


# --- film grain, cropping, other files -------------------------------------------------------------------------------


def _bits(text: str) -> bytes:
    text += "1" + "0" * (-(len(text) + 1) % 8)
    return int(text, 2).to_bytes(len(text) // 8, "big")


def _ue(value: int) -> str:
    return f"{value + 1:b}".rjust(2 * (value + 1).bit_length() - 1, "0")


def film_grain(codec: str) -> bytes:
    """Return a NAL unit with film grain characteristics of luma (H.264 and H.265, payload type 19)."""
    values = "".join(_ue(2 * value - 1) for value in (120, 8, 8))
    head = "0" + "00" + "0" + "00" + "0010" + "100" + f"{0:08b}{2:03b}{0:08b}{255:08b}"
    payload = _bits(head + values + (_ue(1) if codec == "avc" else "1"))
    unit = bytes([19, len(payload)]) + payload + b"\x80"
    return b"\0\0\0\1" + (b"\x06" if codec == "avc" else b"\x4e\x01") + unit.replace(b"\0\0", b"\0\0\3")


@pytest.mark.parametrize("codec", ["avc", "hevc", "av1"])
def test_film_grain_is_left_out(tmp_path: Path, codec: str, caplog: pytest.LogCaptureFixture) -> None:
    if codec == "av1":
        av1 = ("-c:v", "libaom-av1", "-cpu-used", "8", "-crf", "50")
        plain = coded(tmp_path / "plain.obu", *av1, count=3)
        grain = coded(tmp_path / "grain.obu", *av1, "-aom-params", "film-grain-test=1", count=3)
    else:
        plain = coded(tmp_path / ("a.264" if codec == "avc" else "a.265"), *(X264 if codec == "avc" else X265), count=3)
        units = units_of(plain.read_bytes())
        slices = (1, 5) if codec == "avc" else range(2, 64)
        first = next(
            n for n, unit in enumerate(units) if (unit[3] & 31 in slices if codec == "avc" else unit[3] >> 1 < 32)
        )
        grain = tmp_path / f"grain{plain.suffix}"
        grain.write_bytes(b"".join([*units[:first], film_grain(codec), *units[first:]]))
    shown = subprocess.run([*FFMPEG, "-i", grain, "-f", "rawvideo", "-"], check=True, capture_output=True).stdout
    expected = pictures(plain)
    assert shown != b"".join(expected)
    assert "grain" not in caplog.text
    assert pictures(grain) == expected
    assert caplog.text.count("has film grain, which a player adds to the decoded pictures: it is left out") == 1
    decode_stream(ffmpeg_path(), grain, tmp_path / "a.yuv", probe_stream(grain).format)
    assert (tmp_path / "a.yuv").read_bytes() == b"".join(expected)
    if codec == "av1":
        decode_av1(ffmpeg_path(), grain, tmp_path / "b.yuv", probe_stream(grain).format)
        assert (tmp_path / "b.yuv").read_bytes() == b"".join(expected)


def test_cropping_of_the_container_is_not_applied(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = coded(tmp_path / "a.mov", "-c:v", "mjpeg", "-q:v", "8", "-pix_fmt", "yuvj420p", count=2)
    expected = pictures(path)
    path.write_bytes(with_clean_aperture(path.read_bytes(), 60, 46))
    crop = tmp_path / "a.mkv"
    subprocess.run([*FFMPEG, "-i", path, "-c", "copy", crop], check=True)
    for each in (path, crop):
        assert pictures(each) == expected
        assert f"{each} is cropped by its container" in caplog.text


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("a.m3u8", "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n{}\n#EXT-X-ENDLIST\n", "hls"),
        ("a.mp4", "ffconcat version 1.0\nfile '{}'\n", "concat"),
        ("a.sdp", "v=0\no=- 0 0 IN IP4 127.0.0.1\ns={}\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 5004 RTP/AVP 96\n", "sdp"),
        (
            "a.mpd",
            '<?xml version="1.0"?><MPD profiles="urn:mpeg:dash:profile:isoff-live:2011"><BaseURL>{}</BaseURL></MPD>',
            "dash",
        ),
    ],
)
def test_files_that_name_other_files_are_refused(tmp_path: Path, name: str, content: str, kind: str) -> None:
    coded(tmp_path / "other.ts", *X264, count=2)
    path = tmp_path / name
    for other in ("other.ts", tmp_path / "other.ts"):
        path.write_text(content.format(other))
        for read in (open_video, summarise_video):
            with pytest.raises(FormatError, match=rf"\({kind}\)"):
                read(path)


# --- reasons ---------------------------------------------------------------------------------------------------------


def _without_sequence_header(path: Path) -> None:
    data, kept, at = path.read_bytes(), b"", 0
    while at < len(data):
        size, shift, end = 0, 0, at + 1
        while shift == 0 or data[end - 1] & 0x80:
            size |= (data[end] & 0x7F) << shift
            shift, end = shift + 7, end + 1
        kept += b"" if data[at] >> 3 & 15 == 1 else data[at : end + size]
        at = end + size
    path.write_bytes(kept)


def test_true_reasons(tmp_path: Path) -> None:
    key = ("-encryption_scheme", "cenc-aes-ctr", "-encryption_key", "76" * 16, "-encryption_kid", "a7" * 16)
    encrypted = coded(tmp_path / "a.mp4", *X264, *key, count=2)
    packaged = tmp_path / "b.mp4"
    data = encrypted.read_bytes()
    entry = data.index(b"avc1", data.index(b"stsd"))
    packaged.write_bytes(data[:entry] + b"encv" + data[entry + 4 :])
    initial = coded(tmp_path / "c.mp4", *X264, *FRAGMENTS, count=2)
    initial.write_bytes(initial.read_bytes()[: initial.read_bytes().index(b"moof") - 4])
    headless = coded(tmp_path / "d.obu", "-c:v", "libaom-av1", "-cpu-used", "8", "-crf", "50", count=2)
    _without_sequence_header(headless)
    for path, reason in (
        (encrypted, "is encrypted"),
        (packaged, "is encrypted"),
        (initial, r"holds no pictures: it is cut off, or only the first part \(initialisation segment\)"),
        (headless, "has no sequence header"),
    ):
        with pytest.raises(FormatError, match=reason):
            open_video(path)


def test_what_y4m_cannot_hold_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    colours = ("-color_primaries", "bt2020", "-color_trc", "smpte2084", "-colorspace", "bt2020nc")
    hdr = "setparams=color_primaries=bt2020:color_trc=smpte2084:colorspace=bt2020nc,select='not(eq(n,2)+eq(n,5))'"
    path = coded(tmp_path / "a.mkv", *X264, *colours, "-fps_mode", "passthrough", filters=hdr)
    plain = coded(tmp_path / "b.mkv", *X264)
    for source in (path, plain):
        for target in ("a.y4m", "a.yuv"):
            with open_video(source) as video, create_video(tmp_path / target, video.format, like=video) as out:
                out.write(video[0])
    (message,) = caplog.messages
    assert f"{path} has colour bt2020nc/bt2020/smpte2084" in message


def test_reports_of_users(shared_data: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The README of the folder says what is right for each file."""
    folder = shared_data / "reports"
    refused = {
        "hevc_two_descriptions.mp4": "several sample descriptions",
        "avc_picture_lost.264": "frame_num jumps from 2 to 4",
        "hevc_cut.mp4": "is cut off",
        "hevc_cut.265": "is cut off inside its last picture; its first 2 pictures are whole",
        "mpeg4_cut.mp4": "is cut off",
        "avc_init_segment.mp4": "holds no pictures",
    }
    for name, reason in refused.items():
        with pytest.raises(CodecnnError, match=reason) as error:
            open_video(folder / name)
        assert "frame=" not in str(error.value)
    counts = {
        "avc_whole.264": 12,
        "hevc_whole.265": 3,
        "mjpeg_clap.mov": 2,
        "avc_fragment_twice.mp4": 6,
        "av1_still.obu": 1,
    }
    for name, count in counts.items():
        assert len(pictures(folder / name)) == count
    whole = pictures(folder / "hevc_whole.265")
    assert pictures(folder / "hevc_cut.265", 2) == whole[:2]
    assert "edit list" not in caplog.text


def test_damage_of_the_decoder_is_an_error_whatever_its_level(tmp_path: Path) -> None:
    """A Motion JPEG picture without its end is completed by ffmpeg, which warns only."""
    path = coded(tmp_path / "a.mjpeg", "-c:v", "mjpeg", "-q:v", "8", "-pix_fmt", "yuvj420p", count=2)
    path.write_bytes(path.read_bytes()[:-6])
    with pytest.raises(CodecnnError, match=r"decoding .* failed"):
        open_video(path)
