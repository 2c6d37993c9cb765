"""Codec and geometry of a video file from ffmpeg, without decoding it, or the reason why it is no video."""

import re
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from codecnn.base.errors import FormatError
from codecnn.pictures.files.annexb import annexb_codec
from codecnn.pictures.files.ffmpeg import DEMUXERS, error_line, execute, ffmpeg_path, input_arguments
from codecnn.pictures.files.formats import VideoFormat, frame_rate
from codecnn.pictures.files.names import parse_name
from codecnn.pictures.files.pictures import VideoTags
from codecnn.pictures.files.raw import map_file

_NO_VIDEO = "matches no streams"
_PLANAR = re.compile(r"(?:yuv(?P<j>j?)a?(?P<chroma>420|422|444)p|gray)(?P<depth>9|10|12|14|16)?(?:le|be)?", re.ASCII)
_SEMIPLANAR = {
    "nv12": ("420", 8),
    "nv21": ("420", 8),
    "nv16": ("422", 8),
    "nv24": ("444", 8),
    "p010le": ("420", 10),
    "p210le": ("422", 10),
}
_STREAM_LINE = re.compile(
    r"^  Stream #0:0.*?: Video: (?P<codec>\w+)(?: \([^()\n]*\))*, (?P<pix_fmt>\w+)"
    r"(?:\((?P<details>(?:[^()\n]|\([^()\n]*\))*)\))?, "
    r"(?P<width>\d{1,6})x(?P<height>\d{1,6})(?P<rest>[^\n]*)",
    re.MULTILINE | re.ASCII,
)
_ROTATION = re.compile(r"^ +Display Matrix: rotation of (-?\d+)", re.MULTILINE | re.IGNORECASE | re.ASCII)
_CROPPING = re.compile(r"^ +Frame Cropping: ([\d/]+)", re.MULTILINE | re.ASCII)
_DURATION = re.compile(r"^  Duration: (\d+):(\d+):(\d+\.\d+)(?:, start: (-?[\d.]+))?", re.MULTILINE | re.ASCII)
_STATING_CONTAINERS = ("matroska,webm", "flv", "ivf", "avi")
"""Containers whose headers state a duration that ffmpeg does not derive from the packets or check itself."""
_MATRICES = ("bt709", "smpte170m", "bt470bg", "smpte240m", "fcc", "bt2020nc", "bt2020c", "ycgco", "ictcp", "gbr")
"""ffmpeg's names of colour matrices, which stand alone where primaries and transfer have the same name."""
_POSITIONS = {"center": "420jpeg", "topleft": "420paldv"}
"""C tag of Y4M for 4:2:0 of 8 bits by ffmpeg's name of the position of chroma samples; others are 420mpeg2."""
_PLAYLISTS = ("concat", "hls", "dash", "imf", "webm_dash_manifest", "sdp", "rtsp", "avisynth", "vobsub", "mlv")
"""ffmpeg's names of formats whose files name other files; all are refused, these with the reason."""
_REFUSED = "Format not on whitelist"
_ENCRYPTED = "Encryption info"
_EMPTY = "Output file is empty"
_TEMPORAL_DELIMITER = b"\x12\0"
"""First OBU of a byte stream of AV1."""
_STILL_DEMUXERS = ("image2", "ico", "fits")
"""Demuxers of still pictures, besides those whose name ends in "_pipe"."""
_TEXT_DEMUXER = "tty"
_MAX_RATE = 1000
_FIELD_ORDERS = {
    "top first": "top field first",
    "bottom first": "bottom field first",
    "top coded first (swapped)": "bottom field first",
    "bottom coded first (swapped)": "top field first",
}
"""Display order of the fields by ffmpeg's words for an interlaced stream."""


class StreamInfo(NamedTuple):
    """Properties of the first video stream of a file.

    Attributes:
        codec: ffmpeg's name of the codec, e.g. "h264".
        pix_fmt: ffmpeg's name of the pixel format.
        format: Geometry.
        container: ffmpeg's name of the container, e.g. "mov,mp4,m4a,3gp,3g2,mj2"; that of the codec for a byte stream.
        fields: "top field first" or "bottom field first" if ffmpeg knows that the frames are interlaced, else None.
        tags: Field order, sample aspect ratio, range and position of chroma samples in the words of Y4M.
        rotation: Angle in degrees by which players rotate the pictures, 0 if there is no such tag.
        colour: ffmpeg's words for colour matrix, primaries and transfer, e.g. "bt2020nc/bt2020/smpte2084"; None if
            they are unknown.
        cropping: Cropping by the container (clean aperture, PixelCrop) in ffmpeg's words: samples at top, bottom, left
            and right, e.g. "2/2/1/1"; None if there is none.
        duration: Time in seconds after which the only stream of a file ends by the header of its container; None if
            that is unknown, or if there are other streams.
    """

    codec: str
    pix_fmt: str
    format: VideoFormat
    container: str
    fields: str | None
    tags: VideoTags
    rotation: int
    colour: str | None
    cropping: str | None
    duration: float | None


def probe_stream(path: Path | str) -> StreamInfo:
    """Read codec and geometry of the first video stream of a file without decoding it.

    Args:
        path: Any file that ffmpeg can demultiplex.

    Raises:
        MissingFileError: The file does not exist or cannot be read.
        FormatError: The file is empty or no video, or its pictures are not Y'CbCr or grey of 8 to 16 bit.
    """
    path = Path(path)
    data = map_file(path)
    if data[:4].tobytes() == b"%PDF":
        raise FormatError(f"{path} is a PDF file, not a video: save the pictures in it as PNG")
    demuxer = DEMUXERS.get(annexb_codec(data) or "")
    argv = [ffmpeg_path(), "-hide_banner", "-nostdin", *input_arguments(path, demuxer)]
    argv += ["-map", "0:V:0", "-c", "copy", "-frames:v", "1", "-f", "framecrc", "-"]
    finished = execute(argv)
    report = finished.stderr
    if _NO_VIDEO in report:
        raise FormatError(f"{path} has no video: it holds other data, such as sound, only")
    if _REFUSED in report:
        raise FormatError(f"{path} {_refusal(argv)}")
    if _ENCRYPTED in finished.stdout:
        raise FormatError(f"{path} is encrypted: decrypt it first")
    container = re.search(r"^Input #0, ([\w,]+), from", report, flags=re.MULTILINE)
    if finished.returncode:
        if data[:2].tobytes() == _TEMPORAL_DELIMITER:
            raise FormatError(f"{path} {_no_parameters('av1')}")
        raw = "if it holds raw samples, end its name in .yuv" if parse_name(path).width else "name a video or a picture"
        raise FormatError(f"{path} is not a video that ffmpeg can read: {error_line(report)}; {raw}")
    # The stream is searched in the description of the output. That of the input includes the file's name, which may
    # contain text that looks like such a line.
    stream = _STREAM_LINE.search(report, report.rfind("\nOutput #0, framecrc"))
    if container is None or stream is None:
        raise FormatError(f"{path} has no video stream whose size and pixel format ffmpeg knows")
    if stream["pix_fmt"] == "none":
        if "(encv /" in stream[0]:
            raise FormatError(f"{path} is encrypted: decrypt it first")
        if _EMPTY in report:
            raise FormatError(
                f"{path} holds no pictures: it is cut off, or only the first part (initialisation segment) of a "
                "fragmented file, to which the other parts must be appended"
            )
        raise FormatError(f"{path} {_no_parameters(stream['codec'])}")
    chroma, bit_depth, _ = planar_layout(stream["pix_fmt"], path)
    fps = _stream_rate(container[1], stream["rest"])
    video_format = VideoFormat(int(stream["width"]), int(stream["height"]), chroma, bit_depth, fps)
    details = (stream["details"] or "").split(", ")
    fields = next((_FIELD_ORDERS[detail] for detail in details if detail in _FIELD_ORDERS), None)
    rotation = _ROTATION.search(report, report.rfind("\nOutput #0, framecrc"))
    angle = 0 if rotation is None else int(rotation[1])
    tags = _tags(video_format, fields, details, stream["pix_fmt"], stream["rest"])
    cropping = _CROPPING.search(report, report.rfind("\nOutput #0, framecrc"))
    return StreamInfo(
        stream["codec"],
        stream["pix_fmt"],
        video_format,
        container[1],
        fields,
        tags,
        angle,
        next((detail for detail in details if _is_colour(detail)), None),
        None if cropping is None or not cropping[1].strip("0/") else cropping[1],
        _stated_duration(container[1], report),
    )


def _stated_duration(container: str, report: str) -> float | None:
    """Return the time in seconds at which the only stream of a file ends by the header of its container."""
    head = report[: report.find("\nStream mapping:")]
    match = _DURATION.search(head)
    if (
        match is None
        or container not in _STATING_CONTAINERS
        or len(re.findall(r"^  Stream #0:", head, re.MULTILINE)) != 1
    ):
        return None
    return 3600 * int(match[1]) + 60 * int(match[2]) + float(match[3]) - max(float(match[4] or 0), 0.0)


def _is_colour(detail: str) -> bool:
    """Return whether a part of ffmpeg's description of a pixel format names colour properties that are known."""
    parts = detail.split("/")
    return detail in _MATRICES or (len(parts) == 3 and set(parts) != {"unknown"})


def _refusal(argv: Sequence[str]) -> str:
    """Say why the format of a file is not opened; `argv` is the command that refused it."""
    debug = execute([argv[0], "-loglevel", "debug", *argv[1:]]).stderr
    kind = match[1] if (match := re.search(r"Format (\S+) probed", debug)) else "unknown"
    if kind in _STILL_DEMUXERS or kind.endswith("_pipe"):
        return "is a still picture of a kind that codecnn does not read: convert it to PNG"
    if kind == _TEXT_DEMUXER:
        return "is a text file, not a video"
    if kind in _PLAYLISTS:
        return f"is a playlist or script ({kind}), which names other files: name the video itself"
    return f"is of a kind that codecnn does not read ({kind}): convert it, e.g. with ffmpeg -i IN -c copy OUT.mkv"


def _no_parameters(codec: str) -> str:
    """Say why ffmpeg does not know the pixel format of the pictures of a codec."""
    if codec == "vvc":
        return (
            "has pictures that ffmpeg does not decode, e.g. VVC of 16 bit: decode them with VTM, the reference "
            "decoder, into a raw file"
        )
    missing = {"av1": "sequence header", "h264": "sequence parameter set", "hevc": "sequence parameter set"}.get(codec)
    if missing is None:
        return f"has pictures that ffmpeg does not decode ({codec}): convert it with another program, e.g. to Y4M"
    return f"has no {missing} by which its pictures can be decoded: its beginning is missing or damaged"


def _tags(video_format: VideoFormat, fields: str | None, details: Sequence[str], pix_fmt: str, rest: str) -> VideoTags:
    """Return the properties of a stream from ffmpeg's description; those that it does not state have their defaults."""
    aspect = re.search(r"\[SAR (\d+:\d+) ", rest, flags=re.ASCII)
    position = next((_POSITIONS[detail] for detail in details if detail in _POSITIONS), None)
    full_range = "pc" in details or pix_fmt.startswith("yuvj")
    return VideoTags(
        interlacing="p" if fields is None else fields[0],
        aspect=aspect[1] if aspect is not None and aspect[1] != "0:1" else "1:1",
        colour=position if (video_format.chroma, video_format.bit_depth) == ("420", 8) else None,
        comments=("COLORRANGE=FULL",) if full_range else (),
    )


def planar_layout(pix_fmt: str, path: Path) -> tuple[str, int, str]:
    """Return chroma format and bit depth of ffmpeg's `pix_fmt`, and the planar little-endian format to decode it to.

    The two formats hold the same samples; only byte order, interleaving and alpha differ.
    """
    if pix_fmt in _SEMIPLANAR:
        chroma, bit_depth = _SEMIPLANAR[pix_fmt]
    elif match := _PLANAR.fullmatch(pix_fmt):
        chroma, bit_depth = match["chroma"] or "400", int(match["depth"] or 8)
        if match["j"]:
            # Older ffmpegs would compress the full range of these formats into the limited range of plain yuv.
            return chroma, bit_depth, f"yuvj{chroma}p"
    else:
        raise FormatError(
            f"{path} has pictures of pixel format {pix_fmt}: only YCbCr 420, 422, 444 and grey can be read, so convert "
            "it first, e.g. with ffmpeg -i IN -pix_fmt yuv444p OUT.y4m"
        )
    return chroma, bit_depth, VideoFormat(1, 1, chroma, bit_depth).ffmpeg_pix_fmt


def _stream_rate(container: str, rest: str) -> Fraction | None:
    """Return the frame rate in Hz from the end of ffmpeg's stream line, None if it is missing or implausible.

    Elementary streams have no time stamps: their `fps` is ffmpeg's default of 25, and `tbr` is the rate in the headers
    of the stream (for H.264 the rate of fields).
    """
    elementary = container in DEMUXERS.values()
    match = re.search(r" (\d+(?:\.\d+)?) " + ("tbr" if elementary else "fps"), rest, flags=re.ASCII)
    if match is None:
        return None
    rate = Fraction(match[1]) / (2 if container == "h264" else 1)
    return frame_rate(rate) if 0 < rate <= _MAX_RATE else None
