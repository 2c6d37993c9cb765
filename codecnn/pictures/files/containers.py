"""Videos in containers as output: pictures coded in segments, joined, with sound, subtitles and times of the input.

Each segment is a file of its own, so that a killed program continues behind the last whole segment.
"""

import contextlib
import difflib
import re
import shlex
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, BinaryIO, cast

from codecnn.base.errors import CodecnnError, ConfigError, DiskFullError, EncoderError, FormatError, OutputError
from codecnn.base.files import atomic_path, read_json, write_json
from codecnn.base.leftovers import companion_path
from codecnn.pictures.files.carrier import Carrier
from codecnn.pictures.files.ffmpeg import check_disk, error_line, ffmpeg_encoders, ffmpeg_path, file_url
from codecnn.pictures.files.files import VideoWriter
from codecnn.pictures.files.formats import VideoFormat
from codecnn.pictures.files.joining import check_container, join_segments
from codecnn.pictures.files.pictures import VideoTags

CONTAINER_SUFFIXES = (".mkv", ".mp4")
"""Suffixes of the containers that are written."""

_ENCODERS = {".mkv": "ffv1 -level 3 -g 1 -slicecrc 1", ".mp4": "libx264 -crf 8 -tune psnr -chromaoffset -6"}
"""Encoder and its options by suffix, where none are named; finer chroma, which most networks do not improve, costs few
bytes (docs/howto/filter.md)."""
_COMMON_ENCODERS = ("ffv1", "libx264", "libx265", "libsvtav1", "libvvenc")
"""ffmpeg's names of encoders that messages propose."""
_REFUSED = re.compile(
    r"-(i|f|map.*|vf|af|filter.*|lavfi|s|r|vn|an|y|n|t|to|ss|frames.*|pix_fmt|fps_mode|vsync|pass.*|c|c:.*|codec.*)"
)
"""Options of ffmpeg that would change which pictures are coded, or where they go."""
_FRAME_DATA = (
    "A53_CC",
    "DYNAMIC_HDR_PLUS",
    "DOVI_RPU_BUFFER",
    "DOVI_METADATA",
    "FILM_GRAIN_PARAMS",
    "SEI_UNREGISTERED",
    "S12M_TIMECODE",
)
"""ffmpeg's names of data of single pictures, which must not be repeated for all."""
_SAMPLES_PER_SEGMENT = 50_000_000
_SEGMENT_PICTURES = (24, 240)
"""Smallest and largest number of pictures in a segment."""
_LEAST_SEGMENTS = 8
"""Number of segments into which a video is divided if they are not too short, for processes to share."""
_RECORD = "segments.json"
_DEFAULT_RATE = Fraction(25)


def is_container(path: Path | str) -> bool:
    """Return whether a name ends as that of a container that codecnn writes."""
    return Path(path).suffix.lower() in CONTAINER_SUFFIXES


@dataclass(frozen=True)
class Encoding:
    """Encoder of ffmpeg and its options, e.g. ("libx265", ("-crf", "16"))."""

    encoder: str
    options: tuple[str, ...]

    @classmethod
    def parse(cls, text: str | None, output: Path) -> "Encoding":
        """Parse text such as "libx265 -crf 16"; None takes lossless FFV1 for .mkv and libx264 -crf 8 for .mp4.

        Raises:
            ConfigError: The text has no encoder or one that ffmpeg lacks, or an option that is not one of the encoder.
        """
        try:
            encoder, *options = shlex.split(_ENCODERS[output.suffix.lower()] if text is None else text)
        except ValueError:
            raise ConfigError(f'--encode {text!r} names no encoder: use e.g. "libx265 -crf 16"') from None
        if wrong := next((option for option in options if _REFUSED.fullmatch(option)), None):
            raise ConfigError(f"--encode takes options of the encoder only, such as -crf 16, not {wrong}")
        if options and re.fullmatch(r"-[a-zA-Z].*", options[-1]):
            raise ConfigError(f"--encode {text!r}: {options[-1]} has no value: write it behind, as in -crf 16")
        # Encoders of graphics cards are left out of the proposals.
        known = ffmpeg_encoders(ffmpeg_path())
        if encoder not in known:
            likely = [name for name in known if name.startswith("lib") or name in _COMMON_ENCODERS]
            near = difflib.get_close_matches(encoder.lower(), likely, 1)
            proposal = f"did you mean {near[0]}?" if near else f"use e.g. {', '.join(_COMMON_ENCODERS)}"
            raise ConfigError(f"--encode {encoder}: ffmpeg has no such encoder: {proposal}")
        return cls(encoder, tuple(options))


class ContainerOutput:
    """A container that is being written, segment by segment.

    Attributes:
        path: The container.
        missing: Numbers of the pictures of each segment that is not yet coded, in order.
        notes: Sentences about what the output lacks.
    """

    def __init__(
        self,
        path: Path,
        video_format: VideoFormat,
        count: int,
        encoding: Encoding,
        identity: dict[str, Any],
        carrier: Carrier | None = None,
        tags: VideoTags | None = None,
    ) -> None:
        """Prepare the output, and find the segments that an earlier run has coded.

        Args:
            path: The container, .mkv or .mp4.
            video_format: Format of the pictures.
            count: Number of pictures of the input.
            encoding: Encoder.
            identity: JSON value of all that decides the pictures; segments of another one are coded again.
            carrier: Coded video from which the pictures come; None for raw video.
            tags: Properties of raw video.
        """
        self.path = path
        self._tags = tags or VideoTags()
        self.notes: list[str] = []
        self._format = video_format
        self._encoding = encoding
        self._carrier = carrier
        times = None if carrier is None else carrier.times
        shown = [number for number in range(count) if times is None or times.shown[number]]
        low, high = _SEGMENT_PICTURES
        most = min(high, _SAMPLES_PER_SEGMENT // (video_format.width * video_format.height))
        size = max(low, min(most, -(-len(shown) // _LEAST_SEGMENTS)))
        self._segments = [shown[start : start + size] for start in range(0, len(shown), size)]
        self._shown = shown
        self._folder = companion_path(path, ".segments")
        self._open_folder({"encoding": [encoding.encoder, *encoding.options], "count": count, **identity})
        self.missing: list[list[int]] = []
        self.refresh()

    def keep_share(self, share: tuple[int, int] | None) -> None:
        """Leave in `missing` every n-th segment from the i-th on; all if `share` is None."""
        if share is not None:
            self.missing = self.missing[share[0] :: share[1]]

    def refresh(self) -> int:
        """Find the segments that are coded by now; return the number of their pictures."""
        self.missing = [segment for segment in self._segments if not self._file(segment).exists()]
        return len(self._shown) - sum(map(len, self.missing))

    def check(self) -> None:
        """Find out whether the encoder takes its options and the container all streams, before long work.

        Raises:
            EncoderError: It does not.
        """
        encoding = self._encoding
        check_container(encoding.encoder, encoding.options, self._format.ffmpeg_pix_fmt, self.path, self._carrier)

    @property
    def segments(self) -> int:
        """Number of segments."""
        return len(self._segments)

    def restart(self) -> None:
        """Code all segments again."""
        self._remove_segments()
        self.refresh()

    @property
    def rate(self) -> Fraction:
        """Nominal frame rate in Hz."""
        return self._format.fps or _DEFAULT_RATE

    def _open_folder(self, identity: dict[str, Any]) -> None:
        """Create the folder of segments, or empty one of other settings; only files of codecnn are removed."""
        record = self._folder / _RECORD
        if self._folder.exists() and not record.exists() and any(self._folder.iterdir()):
            raise ConfigError(f"{self._folder} is needed for parts of {self.path}, and holds other files: move it away")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except PermissionError as error:
            raise OutputError(f"{self._folder} cannot be created ({error.strerror}): name another output") from error
        if record.exists() and read_json(record) != identity:
            self._remove_segments()
        write_json(record, identity)

    @contextlib.contextmanager
    def kept_to_continue(self) -> Iterator[None]:
        """Remove the segments if the enclosed work fails with an error that would come again, or before the first one.

        Raises:
            DiskFullError: The disk is full; the message says how to continue.
        """
        try:
            yield
        except BaseException as error:
            disk_full = isinstance(error, DiskFullError)
            if (isinstance(error, CodecnnError) and not disk_full) or not self.refresh():
                self._remove_folder()
            elif disk_full:
                raise DiskFullError(f"{error}: make room, and run the same command again to continue") from error
            raise

    def _remove_folder(self) -> None:
        self._remove_segments()
        (self._folder / _RECORD).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._folder.rmdir()

    def _remove_segments(self) -> None:
        for file in self._folder.iterdir():
            if re.fullmatch(r"\d{6}\.mkv", file.name):
                file.unlink()

    def _file(self, segment: Sequence[int]) -> Path:
        return self._folder / f"{segment[0]:06}.mkv"

    @contextlib.contextmanager
    def segment(self, numbers: Sequence[int]) -> Iterator[VideoWriter]:
        """Yield a writer for the pictures of a segment; its file appears when the block ends without an error.

        Raises:
            EncoderError: The encoder fails.
        """
        with atomic_path(self._file(numbers)) as part, self._encoder(part) as file:
            writer = VideoWriter(self.path, self._format, file, lambda _: b"")
            yield writer
            if writer.count != len(numbers):
                raise FormatError(f"{self.path}: {writer.count} of {len(numbers)} pictures of a segment were written")

    @contextlib.contextmanager
    def _encoder(self, output: Path) -> Iterator[BinaryIO]:
        """Run ffmpeg and yield its standard input."""
        with (
            tempfile.TemporaryFile() as report,
            subprocess.Popen(self._command(output), stdin=subprocess.PIPE, stdout=report, stderr=report) as process,
        ):
            assert process.stdin is not None
            try:
                # If the encoder ends early, its own message says why.
                with contextlib.suppress(BrokenPipeError):
                    yield cast(BinaryIO, process.stdin)
            except BaseException:
                process.kill()
                raise
            finally:
                # Samples that are left in the buffer, and that nobody reads any more, must not replace the error.
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.close()
            if process.wait():
                report.seek(0)
                text = report.read().decode(errors="replace")
                check_disk(text, f"writing {self.path}")
                reason = error_line(text)
                hint = "; take another with --encode, or -o NAME.mkv without it, which is lossless"
                raise EncoderError(f"{self._encoding.encoder} cannot code the pictures of {self.path}: {reason}{hint}")

    def _command(self, output: Path) -> list[str]:
        """Return ffmpeg's command that codes raw pictures from standard input."""
        form, carrier = self._format, self._carrier
        pix_fmt = form.ffmpeg_pix_fmt
        argv = [ffmpeg_path(), "-hide_banner", "-loglevel", "error", "-y"]
        raw = ["-f", "rawvideo", "-pix_fmt", pix_fmt, "-video_size", f"{form.width}x{form.height}"]
        raw += ["-framerate", str(self.rate), "-i", "pipe:0"]
        if carrier is None:
            full = "pc" if "COLORRANGE=FULL" in self._tags.comments and self._keeps_range else "tv"
            aspect = "1/1" if self._tags.aspect == "0:0" else self._tags.aspect.replace(":", "/")
            argv += [*raw, "-vf", f"setparams=range={full},setsar={aspect}"]
        else:
            # The first decoded picture, repeated, gives the filtered ones its tags: colour, rotation, HDR metadata.
            clock = f"settb={1 / self.rate},setpts=N"
            clean = "".join(f",sidedata=mode=delete:type={name}" for name in _FRAME_DATA)
            colour = carrier.colour if self._keeps_range else carrier.limited_colour
            tags = f"setparams={colour}"
            argv += ["-noautorotate", "-threads", "1", *carrier.input_arguments(), *raw]
            argv += ["-filter_complex"]
            argv += [
                f"[0:V:0]trim=end_frame=1,format={pix_fmt}{clean},{tags},loop=-1:1,{clock}[first];"
                f"[1:v]{tags},{clock}[filtered];[first][filtered]blend=all_mode=normal:all_opacity=0:shortest=1[coded]"
            ]
            argv += ["-map", "[coded]"]
        argv += ["-fps_mode", "passthrough", "-c:v", self._encoding.encoder, *self._encoding.options]
        return [*argv, "-pix_fmt", pix_fmt, "-map_metadata", "-1", "-f", "matroska", file_url(output)]

    @property
    def _full_range(self) -> bool:
        """True if the samples have full range, where the segments do not say so."""
        if self._keeps_range:
            return False
        return self._carrier.full_range if self._carrier is not None else "COLORRANGE=FULL" in self._tags.comments

    @property
    def _keeps_range(self) -> bool:
        """True if ffmpeg codes samples of full range as they are; it would scale them for FFV1."""
        return self._encoding.encoder != "ffv1"

    def join(self) -> None:
        """Join all segments into the container and remove them.

        Raises:
            EncoderError: The container cannot hold the pictures or the sound.
        """
        times = None if self._carrier is None else self._carrier.times
        if times is None:
            shown: Sequence[int] = range(len(self._shown))
            time_base = 1 / self.rate
        else:
            shown = [times.times[number] for number in self._shown]
            time_base = times.time_base
        files = [self._file(segment) for segment in self._segments]
        sizes = [len(segment) for segment in self._segments]
        with atomic_path(self.path) as part:
            self.notes += join_segments(
                files, sizes, self.rate, (shown, time_base), part, self.path, self._carrier, full_range=self._full_range
            )
        self._remove_folder()
