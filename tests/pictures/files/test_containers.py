"""Filtered pictures in containers: samples, times, sound, tags, and continuation after a kill."""

import struct
import subprocess
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from av.stream import Disposition

from codecnn.base.errors import ConfigError, ConversionError, EncoderError, FormatError
from codecnn.pictures.files import containers as module
from codecnn.pictures.files import ffmpeg_path, open_video
from codecnn.pictures.files.carrier import read_carrier
from codecnn.pictures.files.containers import ContainerOutput, Encoding
from codecnn.pictures.files.joining import _mean_rate
from codecnn.pictures.files.streamed import stream_video

HDR = (
    "log-level=error:colorprim=bt2020:transfer=smpte2084:colormatrix=bt2020nc:hdr10=1:repeat-headers=1:max-cll=1000,400:"
    "master-display=G(13250,34500)B(7500,3000)R(34000,16000)WP(15635,16450)L(10000000,1)"
)


def run(*arguments: str | Path) -> None:
    subprocess.run([ffmpeg_path(), "-v", "error", "-y", *map(str, arguments)], check=True)


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A film: HEVC of 10 bit with HDR10 tags, B pictures, sound, subtitles, chapters and an attachment."""
    folder = tmp_path_factory.mktemp("film")
    (folder / "text.srt").write_text("1\n00:00:00,000 --> 00:00:01,000\nHello\n")
    (folder / "chapters.txt").write_text(
        ";FFMETADATA1\ntitle=A film\n[CHAPTER]\nTIMEBASE=1/1000\nSTART=0\nEND=500\ntitle=One\n"
    )
    run(
        *("-f", "lavfi", "-i", "testsrc2=s=96x64:r=24000/1001:d=1.2", "-f", "lavfi", "-i", "sine=d=1.2"),
        *("-i", folder / "text.srt", "-i", folder / "chapters.txt", "-map", "0:v", "-map", "1:a", "-map", "2:s"),
        *("-map_metadata", "3", "-map_chapters", "3", "-vf", "setsar=16/11", "-pix_fmt", "yuv420p10le"),
        *("-c:v", "libx265", "-preset", "ultrafast", "-x265-params", HDR, "-c:a", "libopus", "-c:s", "srt"),
        *("-metadata:s:v:0", "language=fra", "-attach", folder / "chapters.txt"),
        *("-metadata:s:t", "mimetype=text/plain", folder / "film.mkv"),
    )
    return folder / "film.mkv"


@pytest.fixture(scope="module")
def phone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clip of a phone: rotated, of varying rate, with sound."""
    folder = tmp_path_factory.mktemp("phone")
    run(
        *("-f", "lavfi", "-i", "testsrc2=s=96x64:r=30:d=1", "-f", "lavfi", "-i", "sine=d=1", "-fps_mode", "vfr"),
        *("-vf", "select='not(between(mod(n,7),3,4))',format=yuv420p", "-c:v", "libx264", "-preset", "veryfast"),
        *("-g", "12", "-bf", "2", "-c:a", "aac", folder / "flat.mp4"),
    )
    tags = ["creation_time=2026-11-01T10:00:00.000000Z", "com.apple.quicktime.make=Maker", "location=+48.1+011.5/"]
    run(
        *("-display_rotation", "90", "-i", folder / "flat.mp4", "-c", "copy", "-movflags", "use_metadata_tags"),
        *(word for tag in tags for word in ("-metadata", tag)),
        folder / "phone.mp4",
    )
    return folder / "phone.mp4"


def copy(source: Path, output: Path, encode: str | None = None, stop_after: int | None = None) -> ContainerOutput:
    """Write the pictures of a container into another one unchanged; stop after some segments."""
    carrier = read_carrier(source)
    assert carrier.times is not None
    count = len(carrier.times.times)
    container = ContainerOutput(
        output, carrier.info.format, count, Encoding.parse(encode, output), {"filter": "none"}, carrier
    )
    with stream_video(source, count) as video:
        for segment in container.missing[:stop_after]:
            with container.segment(segment) as writer:
                for number in segment:
                    writer.write(video[number])
    if stop_after is None:
        container.join()
    return container


def shown_times(path: Path) -> list[float]:
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        start = Fraction(container.start_time or 0, 1_000_000)
        packets = [packet for packet in container.demux(stream) if packet.size and not packet.is_discard]
        return sorted(float(packet.pts * packet.time_base - start) for packet in packets)


def file_tags(path: Path) -> dict[str, str]:
    """Return the tags of a file, in lower case, without those of its muxer."""
    with av.open(str(path)) as container:
        tags = {key.lower(): value for key, value in container.metadata.items() if key.lower() != "encoder"}
    form = ("major_brand", "minor_version", "compatible_brands") if path.suffix == ".mp4" else ()
    return {key: value for key, value in tags.items() if key not in form}


def described(path: Path) -> dict[str, object]:
    """Return what players see besides samples and codec."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        context = stream.codec_context
        picture = next(container.decode(stream))
        return {
            "streams": sorted(each.type for each in container.streams if each.type != "data"),
            "chapters": [(each["start"], each["metadata"].get("title")) for each in container.chapters()],
            "title": container.metadata.get("title"),
            "language": stream.metadata.get("language"),
            "colour": (context.color_primaries, context.color_trc, context.colorspace),
            "aspect": stream.sample_aspect_ratio,
            "side data": sorted(str(each.type) for each in picture.side_data if "SEI" not in str(each.type)),
            "rotation": picture.rotation,
        }


def test_a_film_keeps_everything(film: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.mkv"
    container = copy(film, output)
    assert described(output) == described(film)
    assert shown_times(output) == pytest.approx(shown_times(film), abs=0.0011)
    for before, after in zip(open_video(film), open_video(output), strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(before.planes, after.planes, strict=True))
    assert not container.notes
    assert list(tmp_path.iterdir()) == [output]


def test_what_mp4_cannot_hold_is_said(film: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.mp4"
    container = copy(film, output)
    expected = described(film)
    assert described(output) == expected | {"streams": ["audio", "subtitle", "video"]}
    assert shown_times(output) == pytest.approx(shown_times(film), abs=1e-4)
    (note,) = container.notes
    assert "attachments" in note


@pytest.mark.parametrize("name", ["out.mp4", "out.mkv"])
def test_a_phone_clip_keeps_rotation_and_times(phone: Path, tmp_path: Path, name: str) -> None:
    copy(phone, tmp_path / name)
    before, after = described(phone), described(tmp_path / name)
    assert (after["rotation"], after["streams"]) == (before["rotation"], before["streams"])
    assert file_tags(tmp_path / name) == file_tags(phone)
    assert after["rotation"] != 0
    exact = 1e-4 if name.endswith("mp4") else 0.0011
    assert shown_times(tmp_path / name) == pytest.approx(shown_times(phone), abs=exact)


def test_hidden_pictures_stay_hidden(phone: Path, tmp_path: Path) -> None:
    trimmed = tmp_path / "trimmed.mp4"
    run("-ss", "0.6", "-i", phone, "-c", "copy", trimmed)
    copy(trimmed, tmp_path / "out.mp4")
    assert len(shown_times(trimmed)) < len(open_video(trimmed))
    assert shown_times(tmp_path / "out.mp4") == pytest.approx(shown_times(trimmed), abs=1e-4)


def test_a_killed_output_is_continued(phone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SEGMENT_PICTURES", (8, 8))
    copy(phone, tmp_path / "whole.mp4")
    interrupted = copy(phone, tmp_path / "out.mp4", stop_after=1)
    assert not interrupted.path.exists()
    continued = copy(phone, tmp_path / "out.mp4")
    assert len(continued.missing) == len(interrupted.missing) - 1
    assert (tmp_path / "out.mp4").read_bytes() == (tmp_path / "whole.mp4").read_bytes()


def test_segments_of_other_settings_are_not_used(phone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SEGMENT_PICTURES", (8, 8))
    first = copy(phone, tmp_path / "out.mp4", stop_after=2)
    other = copy(phone, tmp_path / "out.mp4", "libx264 -crf 40", stop_after=0)
    assert len(other.missing) == len(first.missing)


def test_foreign_files_in_the_folder_of_segments_stay(phone: Path, tmp_path: Path) -> None:
    foreign = tmp_path / "out.mp4.segments" / "000000.mkv"
    foreign.parent.mkdir()
    foreign.write_bytes(b"mine")
    with pytest.raises(ConfigError):
        copy(phone, tmp_path / "out.mp4")
    assert foreign.read_bytes() == b"mine"


def test_pictures_are_read_in_order_only(phone: Path) -> None:
    count = len(open_video(phone))
    with stream_video(phone, count) as video:
        assert np.array_equal(video[10].y, open_video(phone)[10].y)
        assert np.array_equal(video[8].y, open_video(phone)[8].y)
        with pytest.raises(ConfigError):
            video[0]


def test_damage_is_an_error(phone: Path, tmp_path: Path) -> None:
    data = phone.read_bytes()
    cut = tmp_path / "cut.mkv"
    run("-i", phone, "-c", "copy", cut)
    cut.write_bytes(cut.read_bytes()[: len(data) // 2])
    with pytest.raises((FormatError, EncoderError)), stream_video(cut, 20) as video:
        list(video)


def test_interlaced_video_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "fields.mkv"
    run(
        *("-f", "lavfi", "-i", "testsrc2=s=96x64:r=25:d=0.4", "-vf", "setfield=tff", "-c:v", "libx264"),
        *("-flags", "+ildct+ilme", source),
    )
    with pytest.raises(ConversionError, match="deinterlace"):
        read_carrier(source)


@pytest.mark.parametrize("text", ["", "nonsense -crf 3", "libx264 -vf hflip", "libx264 'crf"])
def test_wrong_encoders_are_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        Encoding.parse(text, tmp_path / "out.mkv")


def test_an_option_without_a_value_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="-crf has no value: write it behind"):
        Encoding.parse("libx265 -crf", tmp_path / "out.mkv")
    assert Encoding.parse("libx264 -crf 16 -qmin -1", tmp_path / "out.mkv").options[-1] == "-1"


@pytest.mark.parametrize(
    ("text", "proposal"), [("libx266 -crf 20", "libx265"), ("x264", "libx264"), ("FFV1", "ffv1"), ("h264", "libx264")]
)
def test_near_names_of_encoders_are_proposed(text: str, proposal: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=proposal):
        Encoding.parse(text, tmp_path / "out.mkv")


@pytest.mark.parametrize("name", ["out.mkv", "out.mp4"])
def test_full_range_stays(tmp_path: Path, name: str) -> None:
    source = tmp_path / "full.mp4"
    run(
        *("-f", "lavfi", "-i", "testsrc2=s=96x64:r=25:d=0.4", "-vf", "scale=out_range=pc,format=yuvj420p"),
        *("-c:v", "libx264", "-crf", "20", source),
    )
    copy(source, tmp_path / name)
    with av.open(str(tmp_path / name)) as container:
        assert int(container.streams.video[0].codec_context.color_range) == 2
    for before, after in zip(open_video(source), open_video(tmp_path / name), strict=True):
        difference = np.abs(before.y.astype(int) - after.y.astype(int)).max()
        assert difference == 0 if name.endswith("mkv") else difference < 16


def test_pictures_that_are_close_in_time(tmp_path: Path) -> None:
    source = tmp_path / "close.mp4"
    run(
        *("-f", "lavfi", "-i", "testsrc2=s=96x64:r=30:d=1", "-vf", "settb=1/600,setpts='N*20-9*eq(mod(N,5),4)*20/10'"),
        *("-fps_mode", "passthrough", "-enc_time_base", "1:600", "-pix_fmt", "yuv420p", "-c:v", "libx264", source),
    )
    copy(source, tmp_path / "out.mp4")
    assert shown_times(tmp_path / "out.mp4") == pytest.approx(shown_times(source), abs=1e-4)


def test_encoders_of_which_pyav_has_none(phone: Path, tmp_path: Path) -> None:
    copy(phone, tmp_path / "out.mkv", "libvvenc -preset faster -qp 30")
    assert shown_times(tmp_path / "out.mkv") == pytest.approx(shown_times(phone), abs=0.0011)


def test_a_pipe_is_written_into_a_container(phone: Path, tmp_path: Path) -> None:
    video = open_video(phone)
    output = ContainerOutput(
        tmp_path / "out.mkv", video.format, 3, Encoding.parse(None, tmp_path / "out.mkv"), {}, None, video.tags
    )
    for segment in output.missing:
        with output.segment(segment) as writer:
            for number in segment:
                writer.write(video[number])
    output.join()
    assert np.array_equal(open_video(tmp_path / "out.mkv")[2].y, video[2].y)


def test_the_mean_rate_of_a_long_video() -> None:
    """170,000 pictures of varying distance in units of 1/90000 s."""
    times = list(np.cumsum(np.random.default_rng(1).integers(3000, 4500, 170_000)).tolist())
    rate = _mean_rate((times, Fraction(1, 90_000)))
    assert float(rate) == pytest.approx(90_000 * (len(times) - 1) / (times[-1] - times[0]), rel=1e-4)


def bitmap_subtitle() -> bytes:
    """Return a PGS file with one white box, from 0.1 to 0.5 s."""
    width, height = 16, 8

    def segment(time: int, kind: int, data: bytes) -> bytes:
        return b"PG" + struct.pack(">IIBH", time, 0, kind, len(data)) + data

    def display(time: int, number: int, objects: bytes, *others: bytes) -> bytes:
        state = 0x80 if objects else 0
        composition = struct.pack(">HHBHBBBB", 96, 64, 0x10, number, state, 0, 0, len(objects) // 8) + objects
        window = struct.pack(">BBHHHH", 1, 0, 10, 10, width, height)
        first = segment(time, 0x16, composition) + segment(time, 0x17, window)
        return b"".join([first, *others, segment(time, 0x80, b"")])

    runs = (bytes([0, 0x80 | width, 1]) + b"\0\0") * height
    size = struct.pack(">I", len(runs) + 4)[1:] + struct.pack(">HH", width, height)
    box = struct.pack(">HBB", 0, 0, 0xC0) + size + runs
    palette = segment(9000, 0x14, bytes([0, 0, 1, 235, 128, 128, 255]))
    shown = display(9000, 0, struct.pack(">HBBHH", 0, 0, 0, 10, 10), palette, segment(9000, 0x15, box))
    return shown + display(45000, 1, b"")


@pytest.fixture(scope="module")
def disc(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A video with bitmap and text subtitles and a cover picture, in both containers."""
    folder = tmp_path_factory.mktemp("disc")
    (folder / "text.srt").write_text("1\n00:00:00,000 --> 00:00:00,500\nHello\n")
    (folder / "box.sup").write_bytes(bitmap_subtitle())
    run("-fix_sub_duration", "-i", folder / "box.sup", "-c:s", "dvdsub", folder / "dvd.mkv")
    run("-f", "lavfi", "-i", "testsrc=s=32x32:d=1", "-frames:v", "1", folder / "front.jpg")
    inputs = ["-f", "lavfi", "-i", "testsrc2=s=96x64:r=20:d=0.6", "-i", folder / "dvd.mkv", "-i", folder / "text.srt"]
    coding = ["-pix_fmt", "yuv420p", "-c:v:0", "libx264", "-crf", "30", "-c:s:0", "copy"]
    maps = ["-map", "0", "-map", "1", "-map", "2", "-map", "3"]
    cover = ["-c:v:1", "copy", "-disposition:v:1", "attached_pic"]
    run(*inputs, "-i", folder / "front.jpg", *maps, *coding, "-c:s:1", "mov_text", *cover, folder / "disc.mp4")
    cover = ["-attach", folder / "text.srt", "-metadata:s:t:0", "mimetype=text/plain", "-attach", folder / "front.jpg"]
    cover += ["-metadata:s:t:1", "mimetype=image/jpeg", "-metadata:s:t:1", "title=Front"]
    coding += ["-c:s:1", "srt", "-c:s:2", "copy"]
    run(*inputs, "-i", folder / "box.sup", *maps, *coding, *cover, folder / "disc.mkv")
    return {".mp4": folder / "disc.mp4", ".mkv": folder / "disc.mkv"}


def tracks(path: Path) -> list[str]:
    """Return codecs, and what cover pictures are for players."""
    names = []
    with av.open(str(path)) as container:
        for stream in container.streams:
            name = stream.type if stream.codec_context is None else stream.codec_context.codec.canonical_name
            names.append(f"{name} cover" if stream.disposition & Disposition.attached_pic else name)
    return names


def test_the_test_disc(disc: dict[str, Path]) -> None:
    assert tracks(disc[".mp4"]) == ["h264", "dvd_subtitle", "mov_text", "mjpeg cover"]
    subtitles = ["dvd_subtitle", "subrip", "hdmv_pgs_subtitle"]
    assert tracks(disc[".mkv"]) == ["h264", *subtitles, "attachment", "mjpeg cover"]


@pytest.mark.parametrize("suffix", [".mp4", ".mkv"])
def test_covers_stay_covers_and_bitmap_subtitles_stay_in_mkv(
    disc: dict[str, Path], suffix: str, tmp_path: Path
) -> None:
    source = disc[suffix]
    container = copy(source, tmp_path / "out.mkv")
    converted = ["ffv1", *(name.replace("mov_text", "subrip") for name in tracks(source)[1:])]
    assert tracks(tmp_path / "out.mkv") == converted
    assert not container.notes
    with av.open(str(source)) as before, av.open(str(tmp_path / "out.mkv")) as after:
        covers = [next(bytes(p) for p in each.demux(each.streams.video[1])) for each in (before, after)]
        assert covers[0] == covers[1]
        title = before.streams.video[1].metadata.get("title")
        assert after.streams.video[1].metadata.get("title") == title


@pytest.mark.parametrize("suffix", [".mp4", ".mkv"])
def test_mp4_without_bitmap_subtitles_says_so_once(disc: dict[str, Path], suffix: str, tmp_path: Path) -> None:
    container = copy(disc[suffix], tmp_path / "out.mp4")
    assert tracks(tmp_path / "out.mp4") == ["h264", "mov_text", "mjpeg cover"]
    (note,) = container.notes
    assert "dvd subtitles" in note
    assert ("hdmv_pgs subtitles" in note) == (suffix == ".mkv")
