"""Start encoders and decoders as subprocesses: argument lists only (never a shell), errors in one sentence."""

import functools
import os
import re
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from codecnn.errors import DiskFullError, EncoderError, ToolMissingError

FFMPEG_VARIABLE = "CODECNN_FFMPEG"
_DISK_FULL_TEXT = "No space left on device"
_AFTERMATH = re.compile(
    r"Task finished with error code|Terminating thread|Could not open encoder before EOF|Nothing was written into|"
    r"Conversion failed|Error opening (?:in|out)put file|packets read|muxing overhead"
)
"""What ffmpeg prints after the line that tells what went wrong."""


@dataclass(frozen=True)
class Finished:
    """What a program that has ended printed, and how much processor time, user and system, it took in all threads."""

    returncode: int
    stdout: str
    stderr: str
    cpu_seconds: float


def ffmpeg_path() -> str:
    """The ffmpeg to use: the one named by CODECNN_FFMPEG, else the one that imageio-ffmpeg brings.

    Raises ToolMissingError when neither is an executable file.
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
            "no ffmpeg found: reinstall imageio-ffmpeg, or name an ffmpeg with libvvenc and libx265 in "
            f"{FFMPEG_VARIABLE}"
        ) from error


@functools.cache
def ffmpeg_identity(ffmpeg: str) -> str:
    """First words of `ffmpeg -version`, e.g. "ffmpeg n9.0.2-17-g2a571b6068"."""
    done = _start([ffmpeg, "-hide_banner", "-version"])
    match = re.match(r"ffmpeg version (\S+)", done.stdout)
    if match is None:
        raise ToolMissingError(f"{ffmpeg} does not answer -version as ffmpeg does")
    return f"ffmpeg {match[1]}"


@functools.cache
def ffmpeg_encoders(ffmpeg: str) -> frozenset[str]:
    """Names of the video encoders this ffmpeg was built with, e.g. "libvvenc"."""
    done = _start([ffmpeg, "-hide_banner", "-encoders"])
    return frozenset(re.findall(r"^ V[.A-Z]{5} (\S+)", done.stdout, flags=re.MULTILINE))


def require_encoder(ffmpeg: str, encoder: str) -> None:
    """Raise ToolMissingError unless `ffmpeg` can encode with `encoder`."""
    if encoder not in ffmpeg_encoders(ffmpeg):
        raise ToolMissingError(
            f"{Path(ffmpeg).name} was built without {encoder}: use the ffmpeg of imageio-ffmpeg 0.8.1 or newer, "
            f"or name one that has it in {FFMPEG_VARIABLE}"
        )


def run(argv: Sequence[str], *, what: str, cwd: Path | None = None) -> Finished:
    """Run a program to its end and return its output.

    `what` names the work for the error message, e.g. "coding astronaut at QP 32".
    Raises EncoderError with the program's last telling line when it fails, DiskFullError when the disk was full.
    """
    done = _start(argv, cwd)
    if done.returncode != 0 or _DISK_FULL_TEXT in done.stderr:
        if _DISK_FULL_TEXT in done.stderr:
            raise DiskFullError(f"no space left on the disk while {what}")
        raise EncoderError(f"{what} failed (exit status {done.returncode}): {_last_line(done.stderr or done.stdout)}")
    return done


def output_of(argv: Sequence[str]) -> str:
    """What a program prints on both its channels, whatever its exit status. Raises ToolMissingError."""
    done = _start(argv)
    return done.stdout + done.stderr


def _start(argv: Sequence[str], cwd: Path | None = None) -> Finished:
    pipe = subprocess.PIPE
    try:
        started = subprocess.Popen(
            list(argv), cwd=cwd, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, errors="replace"
        )
    except OSError as error:
        raise ToolMissingError(f"{argv[0]} cannot be started: {error.strerror}") from error
    # What subprocess.run does, but for wait4: it alone tells the time of this child, others of which run beside it.
    with started as process, ThreadPoolExecutor(1) as reader:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            told = reader.submit(process.stderr.read)
            stdout, stderr = process.stdout.read(), told.result()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        except BaseException:
            process.kill()
            raise
    return Finished(process.returncode, stdout, stderr, usage.ru_utime + usage.ru_stime)


def _last_line(text: str) -> str:
    """The most telling line of a program's error output: the last that speaks of an error, else the last one."""
    text = re.sub(r"\[\S+ @ 0x[0-9a-f]+\] ", "", text.replace("\r", "\n"))
    lines = [line.strip() for line in text.splitlines() if line.strip() and not _AFTERMATH.search(line)]
    telling = [line for line in lines if re.search(r"error|invalid|fail|unknown|must be|not ", line, re.IGNORECASE)]
    return (telling or lines or ["it printed nothing"])[-1][:300]
