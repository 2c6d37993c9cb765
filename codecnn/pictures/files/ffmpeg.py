"""Programs as subprocesses, and the arguments by which ffmpeg opens a file and no other.

Programs are started with argument lists, never through a shell, and their errors become one sentence.
"""

import functools
import os
import re
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from codecnn.base.errors import DiskFullError, EncoderError, ToolMissingError

FFMPEG_VARIABLE = "CODECNN_FFMPEG"
"""Environment variable that names the ffmpeg to use."""
LOSSLESS_COPY = "convert it first, e.g. with ffmpeg -i IN -map 0 -map -0:d -c copy -c:v:0 ffv1 OUT.mkv"
"""Advice for videos that cannot be filtered as they are."""
DEMUXERS = {"vvc": "vvc", "hevc": "hevc", "avc": "h264", "av1": "obu"}
"""ffmpeg's names of the demuxers of byte streams."""
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
    check_disk(finished.stderr, what)
    if finished.returncode != 0:
        reason = error_line(finished.stderr or finished.stdout)
        raise EncoderError(f"{what} failed (exit status {finished.returncode}): {reason}", finished.stderr)
    return finished


def check_disk(report: str, what: str) -> None:
    """Raise DiskFullError if a program reports that the disk is full; `what` describes its work."""
    if _DISK_FULL_TEXT in report:
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


def reason_of(error: EncoderError) -> str:
    """Return the program's message without the text that `run` puts in front of it."""
    return str(error).split("): ", 1)[-1]
