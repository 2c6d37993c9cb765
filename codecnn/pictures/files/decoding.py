"""Decoding by ffmpeg into raw files: the pictures that the decoder reconstructs, and nothing that it concealed.

Synthetic film grain and enhancement layers are left out: they are added to decoded pictures for display, and no codec
predicts from them.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from codecnn.base.errors import EncoderError, FormatError
from codecnn.pictures.files.ffmpeg import (
    ERROR_LEVELS,
    Finished,
    check_disk,
    error_line,
    execute,
    ffmpeg_path,
    file_url,
    input_arguments,
)
from codecnn.pictures.files.notices import warn
from codecnn.pictures.files.packets import file_damage, summarise_packets
from codecnn.pictures.files.probing import StreamInfo

_LINE = re.compile(r"^((?:\[[^\]\n]* @ 0x[0-9a-f]+\] )*)\[(\w+)\] (.*)$", re.MULTILINE)
"""Contexts, level and text of a line that ffmpeg prints with `-loglevel level+...`."""
_CHANGE = re.compile(
    r"Reconfiguring filter graph because video parameters changed to (\w+)(?:\([^()]*\))?, (\d+)x(\d+)"
)
_COUNTS = re.compile(
    r"Input stream #0:\d+ \(video\): (\d+) packets read .*?; (\d+) frames decoded; (\d+) decode errors"
)
_GRAIN = re.compile(r"Output stream #1:0 \(video\): (\d+) frames encoded")
_DAMAGED_PICTURE = re.compile(r"concealing \d+ DC|EOI missing|corrupt decoded frame|overread")
"""Messages of decoders, of lower levels than errors, about pictures that they complete by concealment."""
_HARMLESS = re.compile(r"\bSEI\b|APP fields|ICC profile|Film grain|film grain|Error splitting the input")
"""Errors that decoders report about data beside the samples."""
_NUMBERED = "setpts=N/TB"
"""Filter that replaces the times of pictures: each is written once, however close its time is to that of another."""
_HIDDEN_PICTURES = ("vp8", "vp9")
"""Codecs that have packets without a shown picture."""


def decoder_arguments(
    *, loop_filters: bool = True, crop: bool = True, decoder: str | None = None, threads: int | None = None
) -> list[str]:
    """Return ffmpeg's options before the input for decoding to the pictures of the codec, with all checks.

    Args:
        loop_filters: False skips the in-loop filters, which ffmpeg can do for HEVC and AVC, but not for VVC and AV1.
        crop: False decodes pictures of the coded size, without cropping to the conformance window.
        decoder: ffmpeg's name of the decoder, e.g. "libdav1d"; ffmpeg chooses it by default.
        threads: Number of threads; ffmpeg chooses it by default.
    """
    # Without these checks ffmpeg conceals damage silently. Pictures without in-loop filters do not match the hashes in
    # the stream, so the checks are off then.
    checks = ["-err_detect", "crccheck+explode"] if loop_filters else ["-skip_loop_filter", "all"]
    argv = ["-xerror", *checks, "-export_side_data", "film_grain+enhancements"]
    argv += [] if crop else ["-flags2", "ignorecrop"]
    argv += [] if decoder is None else ["-c:v", decoder]
    return argv if threads is None else [*argv, "-threads", str(threads)]


def decode(
    path: Path,
    pix_fmt: str,
    output: Path,
    *,
    frames: int | None = None,
    filters: str | None = None,
    demuxer: str | None = None,
    container: str = "",
    info: StreamInfo | None = None,
    name: str | None = None,
    options: Sequence[str] | None = None,
    ffmpeg: str | None = None,
) -> int:
    """Decode the first video stream of a file into a raw file, each picture once, without scaling or rotation.

    Warnings are logged if film grain is left out, and if there are fewer pictures than the file has.

    Args:
        path: The stream.
        pix_fmt: ffmpeg's pixel format of the raw file.
        output: The raw file.
        frames: Number of pictures to decode from the start; None for all.
        filters: ffmpeg's filters for the decoded pictures.
        demuxer: ffmpeg's name of the input format; detected by default.
        container: ffmpeg's name of the container, see `input_arguments`.
        info: Size and pixel format that all pictures must have, if given.
        name: Name of the file in messages; the path by default.
        options: `decoder_arguments`; those without arguments by default.
        ffmpeg: The ffmpeg program; that of `ffmpeg_path` by default.

    Returns:
        Number of pictures.

    Raises:
        DiskFullError: The disk is full.
        EncoderError: Decoding failed, or the stream is damaged before its picture number `frames`.
        FormatError: A picture differs from `info`.
    """
    name = name or str(path)
    argv = [ffmpeg or ffmpeg_path(), "-hide_banner", "-nostdin", "-nostats", "-y", "-loglevel", "level+verbose"]
    argv += [*(decoder_arguments() if options is None else options), "-noautorotate"]
    argv += [] if info is None or info.cropping is None else ["-apply_cropping", "codec"]
    limit = [] if frames is None else [f"trim=end_frame={frames}"]
    argv += [*input_arguments(path, demuxer, container), "-map", "0:V:0", "-fps_mode", "passthrough", "-noautoscale"]
    argv += ["-vf", ",".join([*limit, *([] if filters is None else [filters]), _NUMBERED])]
    argv += ["-f", "rawvideo", "-pix_fmt", pix_fmt, "-progress", "pipe:1", file_url(output)]
    # The second output counts the pictures that have film grain.
    argv += ["-map", "0:V:0", "-fps_mode", "passthrough", "-vf"]
    argv += [",".join([*limit, "sidedata=mode=select:type=FILM_GRAIN_PARAMS", _NUMBERED]), "-f", "null", "-"]
    finished = execute(argv)
    check_disk(finished.stderr, f"decoding {name}")
    if info is not None:
        _check_constant(name, finished, info)
    written = [int(count) for count in re.findall(r"^frame=\s*(\d+)$", finished.stdout, re.MULTILINE | re.ASCII)]
    count = written[-1] if written else 0
    if frames is None or count < frames:
        _check_whole(name, finished, count, lambda: summarise_packets(path, demuxer, container).whole)
        if not written:
            raise EncoderError(f"decoding {name} failed: ffmpeg did not report how many pictures it wrote")
        _check_count(name, finished, count, lambda: summarise_packets(path, demuxer, container).shown, info)
    if (grain := _GRAIN.search(finished.stderr)) is not None and int(grain[1]):
        warn(f"{name} has film grain, which a player adds to the decoded pictures: it is left out")
    return count


def _check_whole(name: str, finished: Finished, count: int, whole_packets: Callable[[], int]) -> None:
    """Raise EncoderError if ffmpeg failed or reports damage.

    Args:
        name: Name of the file in messages.
        finished: What ffmpeg printed.
        count: Number of pictures that it wrote.
        whole_packets: Reads how many pictures precede the damage of a container.
    """
    # Before the mapping, decoders of all streams read their parameters, those of sound too.
    start = max(finished.stderr.find("Stream mapping:"), 0)
    damage = [
        text
        for contexts, level, text in _LINE.findall(finished.stderr, start)
        # Messages of ffmpeg about its decoder, whose context has the number of a stream, repeat those of the decoder.
        if (contexts and "#" not in contexts and level in ERROR_LEVELS and not _HARMLESS.search(text))
        or ("[in#" not in contexts and _DAMAGED_PICTURE.search(text))
    ]
    in_file = file_damage(finished.stderr)
    if finished.returncode == 0 and not damage and in_file is None:
        return
    if in_file is not None:
        # ffmpeg goes on behind the damage, so pictures in front of the last one may be missing.
        whole = min(count, whole_packets())
        reason = f"the file is cut off or damaged inside a picture ({in_file})"
    else:
        # A decoder that fails writes the pictures before the damaged one; one that goes on does not say which it was.
        whole = count if finished.returncode else 0
        reason = damage[0].strip(" ;.") if damage else error_line(finished.stderr)
    raise EncoderError(f"decoding {name} failed: {reason}{advice(whole)}", finished.stderr)


def advice(whole: int) -> str:
    """Say how to read the pictures before a damage, if there are any."""
    if not whole:
        return ""
    if whole == 1:
        return "; its first picture is whole, and -f 1 reads it"
    return f"; its first {whole} pictures are whole, and -f {whole} reads them"


def _check_count(
    name: str, finished: Finished, count: int, shown_packets: Callable[[], int], info: StreamInfo | None
) -> None:
    """Log a warning if fewer pictures were decoded than the file has, or raise FormatError if none was."""
    counts = _COUNTS.search(finished.stderr)
    packets = 0 if counts is None else int(counts[1])
    if not count:
        raise FormatError(
            f"{name} decodes to no picture: none of its {packets} pictures is one at which decoding can start, such "
            "as an IDR picture"
        )
    if packets <= count or (info is not None and (info.fields is not None or info.codec in _HIDDEN_PICTURES)):
        return
    packets = shown_packets()
    if packets > count:
        warn(
            f"{name} has {packets} coded pictures, and {count} are read: the others cannot be decoded, because they "
            "refer to pictures that are not in the file, or are not shown"
        )


def _check_constant(name: str, finished: Finished, info: StreamInfo) -> None:
    """Raise FormatError if ffmpeg reports a change of size or pixel format.

    ffmpeg would convert the samples silently, and pictures of two sizes may have equal numbers of bytes.
    """
    for _, _, text in _LINE.findall(finished.stderr):
        if (change := _CHANGE.match(text)) is not None:
            pix_fmt, width, height = change[1], int(change[2]), int(change[3])
            if (pix_fmt, width, height) != (info.pix_fmt, info.format.width, info.format.height):
                raise FormatError(
                    f"{name} is a stream of {info.format} whose pictures change to {width}x{height} {pix_fmt}"
                )
