"""Streams that ffmpeg decodes (H.266, H.265, H.264, AV1, MP4, Matroska, ...), and the byte streams in them.

A file is recognised by its content. The VVC or HEVC stream of a container is extracted into a temporary byte stream,
from which both its headers are read and its pictures are decoded, so that they are the same pictures. Of AVC and AV1
the extracted byte stream has the headers only, and the pictures are decoded from the container.
"""

import dataclasses
import functools
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from codecnn.base.errors import EncoderError, FormatError
from codecnn.base.leftovers import temporary_folder
from codecnn.pictures.files.annexb import annexb_codec, find_start
from codecnn.pictures.files.avc_gaps import check_gaps
from codecnn.pictures.files.decoding import advice, decode, decoder_arguments
from codecnn.pictures.files.ffmpeg import (
    DEMUXERS,
    ffmpeg_path,
    file_url,
    has_edit_lists,
    input_arguments,
    reason_of,
    run,
)
from codecnn.pictures.files.notices import warn
from codecnn.pictures.files.packets import summarise_packets
from codecnn.pictures.files.pictures import Video, VideoTags, check_selection, planes_at
from codecnn.pictures.files.probing import StreamInfo, planar_layout, probe_stream
from codecnn.pictures.files.raw import is_raw_name, map_file
from codecnn.pictures.files.stills import is_still
from codecnn.pictures.files.tails import check_end
from codecnn.pictures.files.y4m import MAGIC

VVC_SUFFIXES: tuple[str, ...] = (".266", ".vvc", ".h266")
"""File suffixes of VVC byte streams."""

HEVC_SUFFIXES: tuple[str, ...] = (".265", ".hevc", ".h265")
"""File suffixes of HEVC byte streams."""

STREAM_CODECS: tuple[str, ...] = ("vvc", "hevc", "avc", "av1")
"""Codecs whose headers codecnn reads."""

STANDARD_NAMES = {"vvc": "VVC", "hevc": "HEVC", "avc": "AVC", "h264": "AVC", "av1": "AV1", "vp9": "VP9"}
"""Names of standards by ffmpeg's names of their codecs."""

_CONTAINERS = re.compile(
    rb"....(?:ftyp|moov|mdat|wide|free|skip)|\x1a\x45\xdf\xa3|FLV|RIFF|DKIF|\x00\x00\x01\xba", re.DOTALL
)
"""Beginnings of containers: MP4, Matroska, FLV, AVI, IVF, program stream. A transport stream has a sync byte."""
_ROUNDING = 0.02
"""Error in seconds of the times that containers and ffmpeg state."""
_TS_SYNC, _TS_PACKETS = 0x47, (188, 192, 204)


class ByteStream(NamedTuple):
    """A byte stream: NAL units of VVC, HEVC or AVC (Annex B), or OBUs of AV1.

    A stream of VVC or HEVC begins with a picture at which decoding can start.

    Attributes:
        path: The byte stream: the file itself, or a temporary file that lasts as long as the process.
        codec: One of STREAM_CODECS.
        skipped: Number of pictures of the file that were left out because they precede that picture.
    """

    path: Path
    codec: str
    skipped: int


def stream_codec(path: Path | str) -> str | None:
    """Return the codec of a byte stream of VVC, HEVC, AVC or AV1, or of a container with such a stream.

    Byte streams are recognised by their NAL units, whatever the suffix is, and containers by ffmpeg.

    Args:
        path: A file of any kind, or a folder.

    Returns:
        One of STREAM_CODECS; None for everything else, e.g. pictures, other codecs and files that do not exist.
    """
    path = Path(path)
    if not path.is_file():
        return None
    try:
        codec = _identify(path)[0]
    except FormatError:
        return None
    return codec if codec in STREAM_CODECS else None


def is_byte_stream(path: Path | str) -> bool:
    """Return whether a file is a byte stream of VVC, HEVC, AVC or AV1 itself, not a container or anything else."""
    return stream_codec(path) is not None and _identify(Path(path))[1] in (None, "obu")


def byte_stream(path: Path | str, codecs: Sequence[str] = STREAM_CODECS, name: str | None = None) -> ByteStream:
    """Return the byte stream of a file; of VVC and HEVC from the first picture at which decoding can start.

    The stream of a container is extracted. If pictures precede the first one at which decoding can start, a copy
    without them is made, and a warning is logged. Both become temporary files (TMPDIR) that later calls use again.

    Args:
        path: Byte stream, or container with such a stream.
        codecs: Codecs that the caller reads.
        name: Name of the file in messages; the path by default.

    Raises:
        MissingFileError: The file does not exist or cannot be read.
        FormatError: The file has no video or one of another codec, or decoding can start nowhere in it.
    """
    path = Path(path)
    name = name or str(path)
    codec, container = _identify(path)
    if codec not in codecs:
        *others, last = [STANDARD_NAMES[each] for each in codecs]
        wanted = f"{', '.join(others)} or {last}" if others else last
        raise FormatError(f"{name} holds {STANDARD_NAMES.get(codec, codec)} video, but {wanted} is needed here")
    state = path.stat()
    return _byte_stream(path.absolute(), codec, container, state.st_size, state.st_mtime_ns, name)


def _identify(path: Path) -> tuple[str, str | None]:
    """Return the codec of a file, and ffmpeg's name of its container, or no container for a byte stream.

    The codec has a name of STREAM_CODECS, or ffmpeg's name.
    """
    map_file(path)  # reports what is not a readable file
    state = path.stat()
    return _identify_version(path, state.st_size, state.st_mtime_ns)


@functools.cache
def _identify_version(path: Path, size: int, time: int) -> tuple[str, str | None]:
    """Do the work of `_identify`; `size` and `time` distinguish versions of the file."""
    data = map_file(path)
    head = data[: 4 * max(_TS_PACKETS)].tobytes()
    if head.startswith(MAGIC) or is_raw_name(path) or is_still(path):
        raise FormatError(
            f"{path} is a file of pictures, not a coded stream: name the bitstream that these pictures belong to"
        )
    codec = annexb_codec(data)
    if codec is not None:
        return codec, None
    if not _is_container(head):
        # A damaged byte stream, whose reader describes the damage.
        for name, suffixes in (("vvc", VVC_SUFFIXES), ("hevc", HEVC_SUFFIXES)):
            if path.suffix.lower() in suffixes:
                return name, None
    info = probe_stream(path)
    return "avc" if info.codec == "h264" else info.codec, info.container


def _is_container(head: bytes) -> bool:
    is_transport_stream = any(
        len(head) > 3 * size + 4 and all(head[offset + n * size] == _TS_SYNC for n in range(3))
        for size, offset in zip(_TS_PACKETS, (0, 4, 0), strict=True)
    )
    return is_transport_stream or _CONTAINERS.match(head) is not None


@functools.cache
def _folder() -> "tempfile.TemporaryDirectory[str]":
    """Return the folder of the process's temporary byte streams, which is removed when the process ends."""
    return temporary_folder("streams")


@functools.cache
def _byte_stream(path: Path, codec: str, container: str | None, size: int, time: int, name: str) -> ByteStream:
    """Return the byte stream of a file; `size` and `time` distinguish versions of the file, `name` is for messages."""
    stream = path if container is None else _extract(path, codec, container, name)
    if codec not in ("vvc", "hevc"):
        return ByteStream(stream, codec, 0)
    data = map_file(stream)
    start = find_start(data, codec)
    if not start.parts:
        raise FormatError(
            f"{name} cannot be decoded: none of its {start.skipped} pictures is one at which decoding can start (IRAP)"
        )
    if not start.skipped:
        return ByteStream(stream, codec, 0)
    plural = "s precede" if start.skipped > 1 else " precedes"
    warn(
        f"{name}: {start.skipped} picture{plural} the first one at which decoding can start, "
        "as in a stream that was cut: the stream is read from that one on"
    )
    with tempfile.NamedTemporaryFile(dir=_folder().name, suffix=f".{codec}", delete=False) as file:
        for part in start.parts:
            file.write(data[part].data)
    return ByteStream(Path(file.name), codec, start.skipped)


def _extract(path: Path, codec: str, container: str, name: str) -> Path:
    """Extract the first video stream of a container into a byte stream."""
    if has_edit_lists(container):
        _warn_of_edit_list(path, container, name)
    with tempfile.NamedTemporaryFile(dir=_folder().name, suffix=f".{codec}", delete=False) as file:
        output = Path(file.name)
    # ffmpeg would leave out pictures before the first key picture, which are counted here.
    if codec != "avc" and summarise_packets(path, container=container).parameters_change:
        raise FormatError(
            f"{name} has several sample descriptions with their own parameter sets, which codecnn does not read: "
            "decode it first, e.g. with ffmpeg -i IN -fps_mode passthrough OUT.y4m"
        )
    argv = [ffmpeg_path(), "-hide_banner", "-nostdin", "-y", "-loglevel", "error"]
    argv += input_arguments(path, container=container)
    argv += ["-map", "0:V:0", "-c", "copy", "-copyinkf:v"]
    argv += [] if codec == "av1" else ["-bsf:v", f"{DEMUXERS[codec]}_mp4toannexb"]
    try:
        run([*argv, "-f", DEMUXERS[codec], file_url(output)], what=f"reading {name}")
    except EncoderError as error:
        raise FormatError(
            f"the {STANDARD_NAMES[codec]} stream of {name} cannot be extracted: {reason_of(error)}"
        ) from error
    if output.stat().st_size == 0:
        raise FormatError(f"the {STANDARD_NAMES[codec]} stream of {name} is empty: the file is damaged")
    return output


def open_stream(path: Path | str, *, frames: int | None = None) -> Video:
    """Decode the first video stream of a file and map the pictures; each coded picture appears exactly once.

    The raw pictures are in the folder for temporary files (TMPDIR) and disappear with the video and its pictures. A
    warning is logged if the frames are interlaced, or if an edit list of an MP4 file hides pictures from players.

    Args:
        path: Any file that ffmpeg decodes.
        frames: Number of pictures to decode from the start; None for all.

    Raises:
        MissingFileError: The file does not exist or cannot be read.
        FormatError: The file is not a video, or the size or sample layout of its pictures changes.
        EncoderError: Decoding failed. Any damage that the decoder notices is a failure, including a wrong picture hash
            of HEVC.
    """
    path = Path(path)
    check_selection(path, frames=frames)
    decoding = prepare_decoding(path, frames)
    info, stream = decoding.info, decoding.stream
    _warn_of_display(path, info)
    with temporary_folder("decoded") as folder:
        decoded = Path(folder) / "decoded.yuv"
        count = decode(
            decoding.source,
            decoding.pix_fmt,
            decoded,
            frames=frames,
            demuxer=decoding.demuxer,
            container=decoding.container,
            info=info,
            name=decoding.name,
            options=decoding.options,
        )
        if stream is not None and frames is None and not _states_sizes(info.container):
            check_end(stream.path, stream.codec, decoding.pix_fmt, decoded, count, str(path))
        # The mapping keeps the pictures readable after the file is deleted here.
        data = map_file(decoded)
    if data.size != count * info.format.picture_bytes:
        raise FormatError(f"{path} does not decode to whole pictures of {info.format}: its picture size changes")
    starts = range(0, data.size, info.format.picture_bytes)
    return Video(path, info.format, planes_at(data, starts, info.format), count, decoding.tags)


def _warn_of_display(path: Path, info: StreamInfo) -> None:
    """Log a warning for each property by which the pictures that are played differ from those that are read."""
    if info.fields is not None:
        warn(f"{path} is interlaced ({info.fields}): a picture is a frame of two fields")
    if info.rotation:
        warn(f"{path} is rotated by {info.rotation} degrees when it is played: its pictures are read as they are coded")
    if info.cropping:
        warn(f"{path} is cropped by its container when it is played: its pictures are read as they are coded")


class Decoding(NamedTuple):
    """Source and options with which ffmpeg decodes the first video stream of a file.

    Attributes:
        source: File that is decoded: the file itself, or its byte stream.
        name: Name of the file in messages.
        info: Properties of the stream.
        stream: The byte stream of VVC, HEVC or AVC; None for another codec.
        pix_fmt: ffmpeg's pixel format of the decoded pictures.
        demuxer: ffmpeg's name of the format of `source`; None: detected.
        container: ffmpeg's name of the container of `source`.
        options: ffmpeg's options of the decoder.
        tags: Properties of the video besides its samples.
    """

    source: Path
    name: str
    info: StreamInfo
    stream: ByteStream | None
    pix_fmt: str
    demuxer: str | None
    container: str
    options: list[str]
    tags: VideoTags


def prepare_decoding(path: Path, frames: int | None) -> Decoding:
    """Read the headers of a file before it is decoded, check its packets, and warn of what is not read.

    Args:
        path: Any file that ffmpeg decodes.
        frames: Number of pictures in output order that are needed; None for all.

    Raises:
        MissingFileError: The file does not exist or cannot be read.
        FormatError: The file is not a video, or pictures are damaged or missing.
    """
    info = probe_stream(path)
    _, _, pix_fmt = planar_layout(info.pix_fmt, path)
    if info.pix_fmt.startswith("yuva"):
        warn(f"{path} has transparent samples: the colours stored under them are used as if they were opaque")
    source, container = path, info.container
    demuxer = container if container in DEMUXERS.values() else None
    stream = check_pictures(path, frames)
    if stream is not None and stream.codec in ("vvc", "hevc"):
        source, container, demuxer = stream.path, stream.codec, stream.codec
    # With several threads ffmpeg's VVC decoder decodes some pictures wrongly, e.g. of 64x66, at random.
    options = decoder_arguments(threads=1 if info.codec == "vvc" else None)
    lost = [] if info.colour is None else [f"colour {info.colour}"]
    if info.container not in DEMUXERS.values() and summarise_packets(path, container=info.container).vary:
        lost.append("frame times that vary")
    tags = dataclasses.replace(info.tags, without_place=tuple(lost))
    return Decoding(source, str(path), info, stream, pix_fmt, demuxer, container, options, tags)


def _states_sizes(container: str) -> bool:
    """Return whether a container states the size of each picture, so that one that is cut is noticed."""
    return container not in (*DEMUXERS.values(), "mpegts", "mpeg")


def check_pictures(path: Path, frames: int | None = None) -> ByteStream | None:
    """Check that a stream has all pictures that its container states, and all to which others refer.

    Args:
        path: File with a stream.
        frames: Number of pictures in output order that are needed; None for all.

    Returns:
        The byte stream of VVC, HEVC or AVC; None for another codec.

    Raises:
        FormatError: Pictures are damaged or missing.
    """
    info = probe_stream(path)
    stream = byte_stream(path) if info.codec in ("vvc", "hevc", "h264") else None
    if stream is not None and stream.codec == "avc":
        check_gaps(stream.path, str(path), frames)
    if info.container in DEMUXERS.values():
        return stream
    if stream is None and has_edit_lists(info.container):
        _warn_of_edit_list(path, info.container, str(path))
    packets = summarise_packets(path, container=info.container)
    if packets.damage is not None and (frames is None or frames > packets.whole):
        raise FormatError(f"{path} is cut off or damaged inside a picture ({packets.damage}){advice(packets.whole)}")
    if frames is None and info.duration is not None and packets.end is not None and not packets.vary:
        missing = info.duration - packets.end
        if missing > packets.end / max(packets.shown, 1) + _ROUNDING:
            warn(
                f"{path} states a duration of {info.duration:.2f} s, and its {packets.shown} pictures end after "
                f"{packets.end:.2f} s: its end is missing"
            )
    return stream


def count_packets(path: Path | str, info: StreamInfo) -> int:
    """Count the packets of the first video stream of a file without decoding it.

    A packet is a picture, except for the fields of interlaced video and for hidden pictures of VP8.

    Args:
        path: The file.
        info: Properties of the stream.

    Raises:
        FormatError: The file cannot be read to its end.
    """
    path = Path(path)
    return summarise_packets(path, container=info.container).shown


def _warn_of_edit_list(path: Path, container: str, name: str) -> None:
    """Log a warning if an edit list of an MP4 or QuickTime file hides coded pictures from players."""
    total, shown = summarise_packets(path, container=container).shown, summarise_packets(path).shown
    if shown < total:
        warn(f"{name} has an edit list that hides {total - shown} of its {total} pictures from players: all are read")
