"""Programs as subprocesses, and what ffmpeg reads of a file without decoding it.

Programs are started with argument lists, never through a shell, and their errors become one sentence.
"""

import functools
import os
import re
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from codecnn.errors import DiskFullError, EncoderError, FormatError, ToolMissingError
from codecnn.video.annexb import annexb_codec
from codecnn.video.formats import VideoFormat, frame_rate
from codecnn.video.names import parse_name
from codecnn.video.pictures import VideoTags
from codecnn.video.raw import map_file

FFMPEG_VARIABLE = "CODECNN_FFMPEG"
"""Environment variable that names the ffmpeg to use."""
DEMUXERS = {"vvc": "vvc", "hevc": "hevc", "avc": "h264", "av1": "obu"}
"""ffmpeg's names of the demuxers of byte streams."""
_NO_VIDEO = "matches no streams"
_DISK_FULL_TEXT = "No space left on device"
_CONSEQUENCE = re.compile(
    r"Task finished with error code|Terminating thread|Could not open encoder before EOF|Nothing was written into|"
    r"Conversion failed|Error opening (?:in|out)put file|packets read|muxing overhead|"
    r"Error sending frames to consumers|Cannot open lib\w+ encoder|Error while opening encoder|"
    r"^(?:frame|size)= *\d.* (?:time|bitrate)="
)
"""Lines that ffmpeg prints besides the line with the cause of an error: what follows from it, and statistics."""
_LEVEL = re.compile(r"\[(panic|fatal|error|warning|info|verbose|debug|trace)\] ")
"""Level of a line of ffmpeg with `-loglevel level+...`."""
ERROR_LEVELS = ("panic", "fatal", "error")
"""Levels of lines of ffmpeg that report errors."""
_ERROR = re.compile(r"error|invalid|fail|unknown|must be|not ", re.IGNORECASE)

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
_FORMATS = (
    # Containers.
    "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,flv,live_flv,ivf,mpegts,mpeg,mxf,nut,asf,asf_o,ogg,rm,ivr,gxf,wtv,dv,"
    "nsv,nuv,pva,mpjpeg,smjpeg,lxf,ty,pmp,swf,dxa,kux,dhav,mxg,avs,cine,bink,thp,roq,"
    "usm,r3d,yuv4mpegpipe,"
    # Byte streams.
    "h264,hevc,vvc,evc,obu,av1,avs2,avs3,cavsvideo,m4v,mpegvideo,mjpeg,mjpeg_2000,h261,h263,vc1,vc1test,dirac,dnxhd,"
    "apv,ingenient,ipu,v210,v210x,"
    # Sound, to say that it is no video.
    "wav,w64,mp3,flac,aac,ac3,eac3,aiff,au,caf,amr,dts,tta,wv,ape"
)
"""ffmpeg's names of the formats that are opened; files of others may name other files."""
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


@dataclass(frozen=True)
class Finished:
    """Result of a program that has ended.

    Attributes:
        returncode: Exit status, negative for a signal.
        stdout: Standard output.
        stderr: Standard error.
        cpu_seconds: Processor time of all its threads, user and system, in seconds.
    """

    returncode: int
    stdout: str
    stderr: str
    cpu_seconds: float


def run(argv: Sequence[str], *, what: str, cwd: Path | None = None) -> Finished:
    """Run a program until it ends and return its output.

    Args:
        argv: Program and arguments.
        what: Description of the work for error messages, e.g. "coding astronaut at QP 32".
        cwd: Working folder; that of this process by default.

    Raises:
        ToolMissingError: The program cannot be started.
        DiskFullError: The disk is full.
        EncoderError: The program failed; the message ends with its most informative line.
    """
    finished = execute(argv, cwd)
    check_disk(finished, what)
    if finished.returncode != 0:
        reason = error_line(finished.stderr or finished.stdout)
        failure = EncoderError(f"{what} failed (exit status {finished.returncode}): {reason}")
        failure.report = finished.stderr
        raise failure
    return finished


def check_disk(finished: Finished, what: str) -> None:
    """Raise DiskFullError if a program found the disk full; `what` describes its work."""
    if _DISK_FULL_TEXT in finished.stderr:
        raise DiskFullError(f"no space left on the disk while {what}")


def output_of(argv: Sequence[str]) -> str:
    """Return what a program prints to stdout and stderr, whatever its exit status. Raises ToolMissingError."""
    finished = execute(argv)
    return finished.stdout + finished.stderr


def execute(argv: Sequence[str], cwd: Path | None = None) -> Finished:
    """Run a program until it ends and return its output, whatever its exit status. Raises ToolMissingError."""
    pipe = subprocess.PIPE
    try:
        started = subprocess.Popen(
            list(argv), cwd=cwd, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, errors="replace"
        )
    except OSError as error:
        raise ToolMissingError(f"{argv[0]} cannot be started: {error.strerror}") from error
    # As subprocess.run, but with wait4, the only call that returns the processor time of this child alone while
    # other children run at the same time.
    with started as process, ThreadPoolExecutor(1) as reader:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            errors = reader.submit(process.stderr.read)
            stdout, stderr = process.stdout.read(), errors.result()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        except BaseException:
            process.kill()
            raise
    return Finished(process.returncode, stdout, stderr, usage.ru_utime + usage.ru_stime)


def error_line(text: str) -> str:
    """Return the last line of a program's error output that mentions an error, else the last line.

    Where ffmpeg states the levels of its lines, those of warnings and information are no errors.
    """
    text = re.sub(r"\[\S+ @ 0x[0-9a-f]+\] ", "", text.replace("\r", "\n"))
    lines = [
        (match[1] if (match := _LEVEL.match(line)) else "", _LEVEL.sub("", line, 1).strip())
        for line in text.split("\n")
    ]
    lines = [(level, line) for level, line in lines if line and not _CONSEQUENCE.search(line)]
    if any(level for level, _ in lines):
        errors = [line for level, line in lines if level in ERROR_LEVELS]
    else:
        errors = [line for _, line in lines if _ERROR.search(line)]
    return (errors or [line for _, line in lines] or ["it printed nothing"])[-1][:300]


def ffmpeg_path() -> str:
    """Return the path of the ffmpeg to use: that of the variable CODECNN_FFMPEG, else that of imageio-ffmpeg.

    Raises:
        ToolMissingError: The path is not an executable file, or there is no ffmpeg.
    """
    named = os.environ.get(FFMPEG_VARIABLE)
    if named is not None:
        if not os.access(named, os.X_OK) or Path(named).is_dir():
            raise ToolMissingError(f"{FFMPEG_VARIABLE} names {named}, which is not an executable file")
        return named
    import imageio_ffmpeg

    try:
        return str(imageio_ffmpeg.get_ffmpeg_exe())
    except RuntimeError as error:
        raise ToolMissingError(
            f"no ffmpeg found: reinstall imageio-ffmpeg, or set {FFMPEG_VARIABLE} to an ffmpeg with libvvenc and "
            "libx265"
        ) from error


@functools.cache
def ffmpeg_identity(ffmpeg: str) -> str:
    """Return the version of an ffmpeg, e.g. "ffmpeg n9.0.2-17-g2a571b6068". Raises ToolMissingError."""
    finished = execute([ffmpeg, "-hide_banner", "-version"])
    match = re.match(r"ffmpeg version (\S+)", finished.stdout)
    if match is None:
        raise ToolMissingError(f"{ffmpeg} does not answer -version as ffmpeg does")
    return f"ffmpeg {match[1]}"


@functools.cache
def ffmpeg_encoders(ffmpeg: str) -> frozenset[str]:
    """Return the names of the video encoders of an ffmpeg, e.g. "libvvenc". Raises ToolMissingError."""
    finished = execute([ffmpeg, "-hide_banner", "-encoders"])
    return frozenset(re.findall(r"^ V[.A-Z]{5} (\S+)", finished.stdout, flags=re.MULTILINE))


def require_encoder(ffmpeg: str, encoder: str) -> None:
    """Raise ToolMissingError unless `ffmpeg` has the encoder."""
    if encoder not in ffmpeg_encoders(ffmpeg):
        raise ToolMissingError(
            f"{Path(ffmpeg).name} was built without {encoder}: use the ffmpeg of imageio-ffmpeg 0.8.1 or newer, "
            f"or set {FFMPEG_VARIABLE} to an ffmpeg that has it"
        )


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
        raw = "; if it holds raw samples, end its name in .yuv" if parse_name(path).width else ""
        raise FormatError(f"{path} is not a video that ffmpeg can read: {error_line(report)}{raw}")
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
    return f"is of a kind that codecnn does not read ({kind}): convert it, e.g. with ffmpeg -i IN OUT.mkv"


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


def file_url(path: Path) -> str:
    """Return a URL that ffmpeg always takes for a file, never for an option, a protocol or a pattern."""
    return f"file:{path.absolute()}"


def input_arguments(path: Path, demuxer: str | None = None, container: str = "") -> tuple[str, ...]:
    """Return ffmpeg's arguments to read every picture of a file.

    Args:
        path: The file.
        demuxer: ffmpeg's name of the input format; ffmpeg chooses it by default.
        container: ffmpeg's name of the container if it is known. Edit lists of MP4 and QuickTime files are ignored,
            because they hide coded pictures.

    Returns:
        The arguments, by which ffmpeg opens no other file, whatever the file says.
    """
    options: tuple[str, ...] = () if demuxer is None else ("-f", demuxer)
    options += ("-ignore_editlist", "1") if has_edit_lists(container) else ()
    return (*("-protocol_whitelist", "file,pipe", "-format_whitelist", _FORMATS), *options, "-i", file_url(path))


def has_edit_lists(container: str) -> bool:
    """Return whether files of a container, in ffmpeg's name, can have edit lists."""
    return "mov" in container.split(",")


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


def reason_of(error: EncoderError) -> str:
    """Return the program's message without the text that `run` puts in front of it."""
    return str(error).split("): ", 1)[-1]
