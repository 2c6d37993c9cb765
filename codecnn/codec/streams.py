"""The `streams` back end: pictures that somebody else coded, and what can be proven of them without an encoder's log.

Proven of a stream: that it shows as many pictures as the original has, of its size, chroma format and bit depth; its
slice QPs and its configuration, from its headers; the MD5 of every picture for which it states one; that the bits of
its pictures add up to the file. Of any pictures: that they can come from their original at these slice QPs
(`own_original`). Not proven: the slice QPs and the configuration of pictures without a stream; what encoder it was, and
how it was set.
"""

import math
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from codecnn.codec.access_units import access_units
from codecnn.codec.base import CodecSettings, CodedPicture, CodedSequence, GivenFacts
from codecnn.codec.blocks.vvc_partition import SUFFIXES, StreamInfo
from codecnn.codec.decode import decode_stream
from codecnn.codec.headers import STREAM_SUFFIXES, read_headers, shown_pictures, slice_qp
from codecnn.codec.own_original import prove_own_original
from codecnn.errors import ConfigError, EncoderError
from codecnn.quality import mean_psnr, mse
from codecnn.video import Picture, Video, VideoFormat, create_video, ffmpeg_identity, ffmpeg_path, open_raw, open_video

STREAMS = "streams"
"""The name that recipes know the back end by."""

UNKNOWN_CODEC = "unknown"
"""What stands for the codec and the slice types of pictures without a stream."""

UNKNOWN_PRESET = "unknown preset"
"""What stands for the preset of whatever encoder it was."""


@dataclass(frozen=True)
class Given:
    """A file of decoded pictures: a VVC or HEVC stream, or with `stated_qps` a video.

    `stated_qps` are slice QPs, one of all pictures or one of each; `reading` says what the video's file does not, as
    `open_video` takes it.
    """

    path: Path
    stated_qps: tuple[int, ...] = ()
    reading: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        is_stream = self.path.suffix.lower() in STREAM_SUFFIXES
        if is_stream and self.stated_qps:
            raise ConfigError(f"{self.path} tells its slice QPs itself: give it as a stream, without any")
        if not is_stream and not self.stated_qps:
            raise ConfigError(
                f"{self.path} does not tell its slice QPs, only VVC and HEVC streams ({', '.join(STREAM_SUFFIXES)}) "
                "do: give it as {decoded: FILE, slice_qp: QP}"
            )

    @property
    def is_vvc(self) -> bool:
        """Whether it is a VVC stream, whose CUs codecnn reads."""
        return self.path.suffix.lower() in SUFFIXES

    def lowest_qp(self) -> int:
        """The lowest of its slice QPs, which is that of its I slices. Raises as `read_headers` and `slice_qp`."""
        if self.stated_qps:
            return min(self.stated_qps)
        return min(slice_qp(picture, self.path) for picture in shown_pictures(read_headers(self.path)))


class StreamsCodec:
    """Takes in what is coded already; see `codecnn.codec.base.Codec` for the contract."""

    name = STREAMS

    def __init__(self, given: Given) -> None:
        self.given = given

    def identity(self) -> str:
        """The decoder, for example "unknown encoder, decoded by ffmpeg n9.0.2-17-g2a571b6068"."""
        return streams_identity()

    def encode(self, source: Path, source_format: VideoFormat, settings: CodecSettings, folder: Path) -> CodedSequence:
        """Copy the file into `folder`, decode it, and prove it to be coded from `source`.

        bitstream.266 or .265 and decoded.yuv, or the latter alone. Raises ConfigError for a file that is not of its
        original, FormatError for one that cannot be read, and EncoderError where it does not decode to its own MD5s.
        """
        folder.mkdir(parents=True, exist_ok=True)
        with open_raw(source, source_format) as originals:
            if self.given.stated_qps:
                return self._take_pictures(originals, settings, folder)
            return self._take_stream(originals, settings, folder)

    def _take_stream(self, originals: Video, settings: CodecSettings, folder: Path) -> CodedSequence:
        path, kind = self.given.path, "vvc" if self.given.is_vvc else "hevc"
        bitstream, decoded = folder / f"bitstream.{266 if self.given.is_vvc else 265}", folder / "decoded.yuv"
        info, units = read_headers(path), access_units(path)
        shutil.copyfile(path, bitstream)
        form = replace(originals.format, width=info.width, height=info.height, chroma=info.chroma)
        form = replace(form, bit_depth=info.bit_depth)
        shown = shown_pictures(info)
        _prove_format(path, form, len(shown), originals)
        _prove_configuration(path, info, settings.configuration)
        if len(units) != len(info.pictures):
            raise EncoderError(f"{path} has {len(units)} access units and {len(info.pictures)} pictures that decode")
        bits = {picture.position: 8 * unit.bytes for picture, unit in zip(info.pictures, units, strict=True)}
        try:
            decode_stream(ffmpeg_path(), bitstream, decoded, form)
        except EncoderError as error:
            raise EncoderError(f"{path}: {error}") from error
        qps = [slice_qp(picture, path) for picture in shown]
        with open_raw(decoded, form) as outputs:
            _prove_format(path, form, len(outputs), originals)
            prove_own_original(str(path), originals, outputs, qps, all_intra=settings.configuration == "ai")
            pictures = tuple(
                _measured(originals[n], outputs[n], n, shown[n].slice_type, qps[n], bits[n]) for n in range(len(qps))
            )
        facts = GivenFacts(path.name, kind, info.ctu_size, sum(unit.has_md5 for unit in units))
        return self._sequence(bitstream, decoded, form, pictures, facts)

    def _take_pictures(self, originals: Video, settings: CodecSettings, folder: Path) -> CodedSequence:
        path, decoded, stated = self.given.path, folder / "decoded.yuv", self.given.stated_qps
        with open_video(path, **self.given.reading) as outputs:
            form = replace(outputs.format, fps=originals.format.fps)
            _prove_format(path, form, len(outputs), originals)
            qps = stated * len(outputs) if len(stated) == 1 else stated
            if len(qps) != len(outputs):
                raise ConfigError(f"{path} has {len(outputs)} pictures, and {len(qps)} slice QPs are given")
            prove_own_original(str(path), originals, outputs, qps, all_intra=settings.configuration == "ai")
            pictures = tuple(
                _measured(originals[n], outputs[n], n, UNKNOWN_CODEC, qp, None) for n, qp in enumerate(qps)
            )
            with create_video(decoded, form) as writer:
                for picture in outputs:
                    writer.write(picture)
        return self._sequence(None, decoded, form, pictures, GivenFacts(path.name))

    def _sequence(
        self,
        bitstream: Path | None,
        decoded: Path,
        form: VideoFormat,
        pictures: tuple[CodedPicture, ...],
        facts: GivenFacts,
    ) -> CodedSequence:
        return CodedSequence(
            bitstream=bitstream,
            decoded=decoded,
            format=form,
            pictures=pictures,
            argv=(),
            encoder=self.identity(),
            log=None,
            given=facts,
        )


def streams_identity() -> str:
    """What stands for the encoder of pictures that were given."""
    return f"{UNKNOWN_CODEC} encoder, decoded by {ffmpeg_identity(ffmpeg_path())}"


def _prove_format(path: Path, form: VideoFormat, count: int, originals: Video) -> None:
    if form != originals.format:
        raise ConfigError(
            f"{path} has pictures of {form}, its original as the recipe reads it {originals.format}: "
            "size, chroma and internal_bit_depth must be those of the stream"
        )
    if count != len(originals):
        raise ConfigError(f"{path} has {count} pictures, its original {len(originals)}")


def _prove_configuration(path: Path, info: StreamInfo, configuration: str) -> None:
    """Raise ConfigError where the headers show another configuration: slices of P or B, or another order of coding."""
    all_intra = all(picture.slice_type == "I" for picture in info.pictures)
    if all_intra != (configuration == "ai"):
        what = "I slices only" if all_intra else "P or B slices"
        raise ConfigError(f"{path} has {what}, which the recipe's configuration {configuration} has not")
    positions = [picture.position for picture in info.pictures if picture.position is not None]
    if configuration == "ldb" and positions != sorted(positions):
        raise ConfigError(f"{path} shows its pictures in another order than they are coded in: it is ra, not ldb")


def _measured(original: Picture, output: Picture, poc: int, slice_type: str, qp: int, bits: int | None) -> CodedPicture:
    errors = [mse(a, b) for a, b in zip(original.planes, output.planes, strict=True)]
    psnrs = [mean_psnr([error], output.bit_depth) if error else math.inf for error in errors]
    u, v = psnrs[1:] or (None, None)
    return CodedPicture(poc, slice_type, qp, bits, psnrs[0], u, v)
