"""Segments of coded pictures joined into a container, with everything else of the container that was filtered."""

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import av
from av.stream import Disposition

from codecnn.base.errors import EncoderError, FormatError
from codecnn.base.files import disk_errors
from codecnn.base.leftovers import temporary_folder
from codecnn.pictures.files.carrier import Carrier
from codecnn.pictures.files.ffmpeg import ffmpeg_path, file_url, has_edit_lists, reason_of, run
from codecnn.pictures.files.formats import frame_rate

_MUXERS = {".mkv": "matroska", ".mp4": "mp4"}
_IN_MP4 = ("h264", "hevc", "av1", "libdav1d", "vvc")
"""PyAV's names of decoders of codecs that .mp4 holds."""
_TEXT_SUBTITLES = ("subrip", "ass", "ssa", "webvtt", "mov_text", "text")
"""ffmpeg's names of subtitles that are text, which .mp4 can hold after conversion."""
_IN_MKV = (*_TEXT_SUBTITLES, "dvd_subtitle", "hdmv_pgs_subtitle", "hdmv_text_subtitle", "dvb_subtitle", "arib_caption")
"""ffmpeg's names of subtitles that .mkv can hold; mov_text after conversion."""
_COVERS = {"mjpeg": "jpg", "png": "png", "bmp": "bmp", "gif": "gif", "webp": "webp", "tiff": "tiff"}
"""Suffix of a file by ffmpeg's name of the codec of a cover picture."""
_MP4_COVERS = ("mjpeg", "png", "bmp")
"""ffmpeg's names of codecs of cover pictures that .mp4 can hold."""
_CODED_FORM_TAGS = (
    *("BPS", "DURATION", "NUMBER_OF_FRAMES", "NUMBER_OF_BYTES", "ENCODER", "VENDOR_ID"),
    *("_STATISTICS_WRITING_APP", "_STATISTICS_WRITING_DATE_UTC", "_STATISTICS_TAGS"),
)
"""Tags of a video stream that describe its coded form."""
_FORM_TAGS = ("major_brand", "minor_version", "compatible_brands")
"""Tags of an MP4 file that describe its form."""

Times = tuple[Sequence[int], Fraction]
"""Time of each picture in output order, and the unit of the times in seconds."""


def join_segments(
    segments: Sequence[Path],
    sizes: Sequence[int],
    rate: Fraction,
    times: Times,
    output: Path,
    name: Path,
    carrier: Carrier | None,
    *,
    full_range: bool = False,
) -> list[str]:
    """Join segments, give the pictures their times, and add what the carrier has besides them.

    Args:
        segments: Matroska files of coded pictures, each of which can be decoded by itself.
        sizes: Number of pictures of each segment.
        rate: Frame rate in Hz of the segments.
        times: Times of all pictures.
        output: File to write.
        name: Final name of the file, whose suffix selects the container.
        carrier: Video with sound, subtitles and so on; None: there is nothing else.
        full_range: The samples have full range, which the segments do not say.

    Returns:
        Sentences about what the output lacks.

    Raises:
        DiskFullError: The disk is full.
        EncoderError: The container cannot hold the streams.
        FormatError: A segment has another number of pictures, or was coded with other settings.
    """
    suffix = name.suffix.lower()
    # As large as the output, so on its disk.
    with disk_errors(name), temporary_folder("joined", output.parent) as folder:
        # Matroska states no decoding times, and ffmpeg does not know those of reordered pictures of VVC.
        stated = ".mp4" if _codec(segments[0]) in _IN_MP4 else suffix
        video = Path(folder) / f"video{stated}"
        _write_video(segments, sizes, rate, times, video, full_range)
        argv = [ffmpeg_path(), "-hide_banner", "-nostdin", "-loglevel", "error", "-y"]
        if carrier is None or carrier.times is None:
            argv += ["-i", file_url(video), "-map", "0", "-c", "copy"]
            notes: list[str] = []
        else:
            argv += ["-itsoffset", f"{float(carrier.times.offset):.6f}", "-i", file_url(video)]
            others, notes = _other_streams(carrier, suffix, name, Path(folder))
            argv += others
            if len(times[0]) < len(carrier.times.times) - carrier.times.shown.count(False):
                # Fewer pictures were asked for: what follows them is left out.
                argv += ["-t", f"{float(carrier.times.offset + _length(times)):.6f}"]
        if carrier is not None and carrier.info.tags.aspect not in ("1:1", "0:0"):
            # Matroska would lose the sample aspect ratio, which ffmpeg takes as that of the whole picture.
            form = carrier.info.format
            shape = Fraction(carrier.info.tags.aspect.replace(":", "/")) * form.width / form.height
            argv += ["-aspect:v:0", f"{shape.numerator}:{shape.denominator}"]
        argv += ["-r:v:0", str(_mean_rate(times))] if len(times[0]) > 1 else []
        argv += _time_scale(carrier) if suffix == ".mp4" else []
        argv += ["-tag:v", "hvc1"] if suffix == ".mp4" and _codec(video) == "hevc" else []
        # The same pictures make the same file: no random identifier, no version of ffmpeg.
        _mux([*argv, "-fflags", "+bitexact"], output, name)
    return notes


def check_container(encoder: str, options: Sequence[str], pix_fmt: str, name: Path, carrier: Carrier | None) -> None:
    """Write one small picture, and the beginning of what the carrier has besides pictures, into a temporary file.

    Args:
        encoder: ffmpeg's name of the encoder.
        options: Options of the encoder.
        pix_fmt: ffmpeg's pixel format of the pictures.
        name: Name of the output, whose suffix selects the container.
        carrier: Video with sound, subtitles and so on.

    Raises:
        EncoderError: The container cannot hold the streams, or the encoder does not take its options.
    """
    suffix = name.suffix.lower()
    with temporary_folder("trial") as folder:
        argv = [ffmpeg_path(), "-hide_banner", "-nostdin", "-loglevel", "error", "-y"]
        argv += ["-f", "lavfi", "-i", f"color=s=128x128,format={pix_fmt}"]
        if carrier is not None and carrier.times is not None:
            argv += _other_streams(carrier, suffix, name, Path(folder))[0]
        argv += ["-c:v:0", encoder, *options, "-pix_fmt", pix_fmt, "-frames:v:0", "1", "-t", "0.1"]
        _mux(argv, Path(folder) / f"trial{suffix}", name)


def _mux(argv: Sequence[str], output: Path, name: Path) -> None:
    """Run ffmpeg with the arguments of its inputs and streams, and write a container."""
    suffix = name.suffix.lower()
    try:
        run([*argv, "-f", _MUXERS[suffix], file_url(output)], what=f"writing {name}")
    except EncoderError as error:
        hint = "" if suffix == ".mkv" else "; end its name in .mkv, which holds nearly everything"
        raise EncoderError(f"{name} cannot be written: {reason_of(error)}{hint}") from error


def _time_scale(carrier: Carrier | None) -> list[str]:
    """Return ffmpeg's arguments that give the pictures of an MP4 file the unit of time of another."""
    if carrier is None or carrier.times is None or not has_edit_lists(carrier.info.container):
        return []
    return ["-video_track_timescale", str(carrier.times.time_base.denominator)]


def _length(times: Times) -> Fraction:
    """Return the time in seconds from the first picture to the end of the last, which takes the mean time."""
    shown, time_base = times
    return (shown[-1] - shown[0]) * time_base * Fraction(len(shown), max(len(shown) - 1, 1))


def _mean_rate(times: Times) -> Fraction:
    """Return the mean number of pictures per second."""
    # Times of a long video make fractions of more digits than a frame rate may have.
    return frame_rate((Fraction(len(times[0])) / _length(times)).limit_denominator(100_000))


def _codec(path: Path) -> str:
    with av.open(file_url(path)) as container:
        return container.streams.video[0].codec_context.name


def _write_video(
    segments: Sequence[Path], sizes: Sequence[int], rate: Fraction, times: Times, output: Path, full_range: bool
) -> None:
    """Write the pictures of all segments into one container without coding them again."""
    shown, time_base = times
    delay = max(_reordering(path, rate) for path in segments)
    done = 0
    with av.open(file_url(output), "w") as container:
        stream = None
        for path, size in zip(segments, sizes, strict=True):
            with av.open(file_url(path)) as segment:
                coded = segment.streams.video[0]
                if stream is None:
                    # Without the codec, so that codecs serve of which PyAV has no encoder.
                    stream = container.add_stream_from_template(coded, opaque=not full_range)
                    if full_range:
                        stream.codec_context.color_range = 2
                    stream.time_base = time_base
                    settings = coded.codec_context.extradata
                if coded.codec_context.extradata != settings:
                    raise FormatError(f"{output.name}: the encoder codes segments with different parameters")
                packets = [packet for packet in segment.demux(coded) if packet.size]
            if len(packets) != size:
                raise FormatError(f"{path} has {len(packets)} of {size} pictures: remove it and run the command again")
            for position, packet in enumerate(packets):
                number = done + _number(packet, rate)
                packet.stream = stream
                packet.time_base = time_base
                packet.pts = shown[number]
                packet.dts = _decoding_time(shown, done + position - delay)
                packet.duration = shown[number + 1] - shown[number] if number + 1 < len(shown) else 0
                container.mux_one(packet)
            done += size


def _number(packet: "av.Packet[av.VideoStream]", rate: Fraction) -> int:
    """Return the number of a packet's picture in its segment, in output order."""
    assert packet.pts is not None
    assert packet.time_base is not None
    return round(packet.pts * packet.time_base * rate)


def _reordering(path: Path, rate: Fraction) -> int:
    """Return by how many pictures the output order lags behind the coding order in a segment."""
    with av.open(file_url(path)) as segment:
        stream = segment.streams.video[0]
        if stream.codec_context.name == "ffv1":
            return 0
        packets = [packet for packet in segment.demux(stream) if packet.size]
    return max(position - _number(packet, rate) for position, packet in enumerate(packets))


def _decoding_time(shown: Sequence[int], position: int) -> int:
    """Return the decoding time of the picture at a position of the coding order, less the reordering."""
    if position >= 0:
        return shown[position]
    step = shown[1] - shown[0] if len(shown) > 1 else 1
    return shown[0] + position * step


def _other_streams(carrier: Carrier, suffix: str, name: Path, folder: Path) -> tuple[list[str], list[str]]:
    """Return ffmpeg's arguments that copy all but the pictures of a container, and sentences about what is left out.

    Args:
        carrier: The container.
        suffix: Suffix of the output.
        name: Name of the output.
        folder: Folder for temporary files, which must last as long as the arguments.
    """
    assert carrier.times is not None
    argv = [*carrier.input_arguments(), "-map", "0:v:0", "-map", "1", "-map", "-1:V", "-map", "-1:d?"]
    codecs: list[str] = []
    left_out = []
    covers: list[av.VideoStream] = []
    subtitles = attachments = 0
    with av.open(file_url(carrier.path), options={"protocol_whitelist": "file"}) as container:
        pictures = {
            stream.index: stream for stream in container.streams.video if stream.disposition & Disposition.attached_pic
        }
        tags = container.metadata
        single = len(container.streams.video) - len(pictures) == 1
        notes = [] if single else [f"{name} has the first video track only"]
        for stream in container.streams:
            codec = "unknown" if stream.codec_context is None else stream.codec_context.codec.canonical_name
            kept = True
            if stream.type == "data":
                left_out.append("data")
            elif stream.type == "attachment":
                kept = suffix == ".mkv"
                attachments += kept
                left_out += [] if kept else ["attachments"]
            elif stream.type == "subtitle":
                kept = codec in (_IN_MKV if suffix == ".mkv" else _TEXT_SUBTITLES)
                if not kept:
                    left_out.append(f"{codec.removesuffix('_subtitle')} subtitles")
                elif suffix == ".mp4" or codec == "mov_text":
                    codecs += [f"-c:s:{subtitles}", "mov_text" if suffix == ".mp4" else "srt"]
                subtitles += kept
            elif stream.index in pictures:
                kept = suffix == ".mp4" and codec in _MP4_COVERS
                if suffix == ".mkv" and codec in _COVERS:
                    covers.append(pictures[stream.index])
                elif not kept:
                    left_out.append(f"a cover picture ({codec})")
            argv += [] if kept else ["-map", f"-1:{stream.index}"]
        # A picture that is copied would be a video track of Matroska, whose cover pictures are attachments.
        for number, cover in enumerate(covers):
            argv += _attachment(cover, number, attachments + number, folder)
    argv += ["-map_metadata", "1", "-map_chapters", "1", "-c", "copy", *codecs, *_file_tags(tags, suffix)]
    # Tags of the other streams are copied by default, but not if those of the video were copied by -map_metadata.
    for tag, value in carrier.times.metadata.items():
        if tag.partition("-")[0].upper() not in _CODED_FORM_TAGS:
            argv += ["-metadata:s:v:0", f"{tag}={value}"]
    roles = "+".join(carrier.times.disposition) or "0"
    argv += ["-disposition:v:0", roles]
    if left_out:
        notes.append(f"{name} is without {' and '.join(dict.fromkeys(left_out))}, which {suffix} cannot hold")
    return argv, notes


def _file_tags(tags: dict[str, str], suffix: str) -> list[str]:
    """Return ffmpeg's arguments for tags of a file that it would lose, or copy although they describe its form."""
    argv = []
    for tag, value in tags.items():
        if tag.lower() == "creation_time":
            argv += ["-metadata", f"{tag}={value}"]
        elif tag.lower() in _FORM_TAGS and suffix == ".mkv":
            argv += ["-metadata", f"{tag}="]
    # Tags of QuickTime, e.g. maker and model of a phone, have a place of their own in .mp4.
    quicktime = suffix == ".mp4" and any(tag.startswith("com.") for tag in tags)
    return [*argv, *(["-movflags", "use_metadata_tags"] if quicktime else [])]


def _attachment(cover: av.VideoStream, number: int, position: int, folder: Path) -> list[str]:
    """Write a cover picture into a file; return ffmpeg's arguments that attach it.

    Args:
        cover: Stream with the cover picture.
        number: Number of the picture among those of the container.
        position: Number of the attachment in the output.
        folder: Folder for the file.
    """
    assert cover.container is not None
    ending = _COVERS[cover.codec_context.codec.canonical_name]
    file = folder / f"cover{number}.{ending}"
    with av.open(cover.container.name, options={"protocol_whitelist": "file"}) as container:
        packet = next(packet for packet in container.demux(container.streams[cover.index]) if packet.size)
        file.write_bytes(bytes(packet))
    tags = {key.lower(): value for key, value in cover.metadata.items()}
    tags = {"filename": f"cover{number or ''}.{ending}", "mimetype": f"image/{ending.replace('jpg', 'jpeg')}"} | tags
    argv = ["-attach", file_url(file)]
    for key, value in tags.items():
        argv += [f"-metadata:s:t:{position}", f"{key}={value}"]
    return argv
