"""Encoders under their own rate control: one value of -crf, -qp or -b:v for a stream, all else as the encoder chooses.

The other back ends code at constant QP and check every QP that the encoder states. Here the encoder chooses the QPs of
slices and blocks, pre-filters, and optimises for the eye, as most streams are made. The headers of the stream are
checked instead: number, size and format of the pictures, configuration, CTU size, and the value of the option, which
x264 and x265 write into the stream.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from codecnn.base.errors import ConfigError, EncoderError
from codecnn.base.files import write_text
from codecnn.base.rate_modes import rate_mode
from codecnn.codec.base import Codec, CodecSettings, CodedPicture, CodedSequence
from codecnn.codec.checks import check_depth, check_params, check_preset
from codecnn.codec.encoder_settings import read_encoder_settings
from codecnn.codec.encoders import libaom, libsvtav1, libvvenc, libx264, libx265
from codecnn.codec.encoders.padding import MULTIPLE_OF_CHROMA, code_padded, padded_size
from codecnn.codec.ffmpeg import encoder_input, join_params
from codecnn.codec.streams import take_stream
from codecnn.pictures.files import VideoFormat, ffmpeg_path, open_raw, require_encoder, run

RATES = {
    "avc": ("crf", "qp", "kbps"),
    "hevc": ("crf", "qp", "kbps"),
    "av1": ("crf", "kbps"),
    "svtav1": ("crf", "kbps"),
    "vvc": ("qp", "kbps"),
}
"""Back ends that code under rate control, with the keys of `RATE_MODES` that they have."""

_LIBRARIES = {"avc": "libx264", "hevc": "libx265", "av1": "libaom-av1", "svtav1": "libsvtav1", "vvc": "libvvenc"}
_FORMATS = {"avc": "h264", "hevc": "hevc", "av1": "obu", "svtav1": "obu", "vvc": "vvc"}
"""ffmpeg's names of the formats of bitstreams."""

_SUFFIXES = {"avc": "264", "hevc": "265", "av1": "obu", "svtav1": "obu", "vvc": "266"}
_ALL_INTRA = ("-g", "1")
_CONFIGURATIONS: dict[str, dict[str, Sequence[str]]] = {
    "avc": {"ai": _ALL_INTRA, "ldb": ("-bf", "0")},
    "hevc": {"ai": _ALL_INTRA, "ldb": ("-bf", "0")},
    "av1": {"ai": _ALL_INTRA, "ldb": ("-lag-in-frames", "0")},
    "svtav1": {"ai": _ALL_INTRA},
    "vvc": {"ai": _ALL_INTRA},
}
"""Options of ffmpeg for configurations; random access, the default of these encoders, needs none."""

_VVENC_BIT_DEPTH = 10
_PARAMS = "[A-Za-z0-9_-]+"
_VALUES = r"[A-Za-z0-9_.,+\[\]-]+"
_SINGLE_THREAD = {"hevc": {"pools": "none", "frame-threads": "1"}, "svtav1": {"lp": "1"}, "avc": {"threads": "1"}}
"""Parameters that keep a stream independent of the number of processors."""


def rate_control_argv(
    codec: str, ffmpeg: str, source: str, source_format: VideoFormat, settings: CodecSettings, output: str
) -> list[str]:
    """Return the ffmpeg command that codes a raw YUV file under rate control; a pure function.

    Args:
        codec: Back end, a key of `RATES`.
        ffmpeg: The ffmpeg program.
        source: Raw YUV file.
        source_format: Format of the source.
        settings: Settings of the encode; `rate` is not None.
        output: Bitstream to write.

    Raises:
        ConfigError: The encoder does not have these settings.
    """
    check_depth(source_format, settings)
    rate, configuration = str(settings.rate), settings.configuration
    if rate not in RATES[codec]:
        raise ConfigError(f"codec {codec} has no rate {rate}: one of {', '.join(RATES[codec])}")
    if configuration != "ra" and configuration not in _CONFIGURATIONS[codec]:
        raise ConfigError(f"codec {codec} under rate control has the configurations ra and ai, not {configuration}")
    if rate == "kbps" and codec in ("av1", "svtav1") and configuration == "ai":
        # SVT-AV1 refuses it; libaom crashed on 48 pictures.
        raise ConfigError(
            f"{_LIBRARIES[codec]} codes no intra pictures alone at a bit rate: set configuration: ra, or crf"
        )
    if codec in ("svtav1", "vvc") and source_format.chroma != "420":
        raise ConfigError(f"{_LIBRARIES[codec]} under rate control codes 4:2:0, not {source_format.chroma}")
    if codec == "vvc" and settings.internal_bit_depth != _VVENC_BIT_DEPTH:
        raise ConfigError(f"libvvenc in ffmpeg codes {_VVENC_BIT_DEPTH} bit: set internal_bit_depth: 10")
    argv = encoder_input(ffmpeg, source, source_format, settings)
    argv += ["-c:v", _LIBRARIES[codec], *_preset(codec, settings.preset)]
    argv += [str(rate_mode(settings.rate).option), f"{settings.qp}k" if rate == "kbps" else str(settings.qp)]
    argv += _CONFIGURATIONS[codec].get(configuration, ())
    params = check_params({**settings.params, **_SINGLE_THREAD.get(codec, {})}, names=_PARAMS, values=_VALUES)
    option = {"avc": "-x264-params", "hevc": "-x265-params", "av1": "-aom-params"}.get(codec)
    option = option or {"svtav1": "-svtav1-params", "vvc": "-vvenc-params"}[codec]
    if codec in ("av1", "vvc"):
        argv += ["-threads", "1"]
    if codec == "av1" and rate == "crf":
        argv += ["-b:v", "0"]
    return [*argv, *([option, join_params(params)] if params else []), "-f", _FORMATS[codec], output]


def _preset(codec: str, preset: str) -> list[str]:
    """Return ffmpeg's options for a preset; the names of codecnn for AV1 are those of the back ends at constant QP."""
    if codec == "av1":
        check_preset("libaom", preset, (*libaom.SPEEDS, *map(str, range(libaom.MAX_SPEED + 1))))
        return ["-cpu-used", str(libaom.SPEEDS.get(preset, preset))]
    if codec == "svtav1":
        check_preset("SVT-AV1", preset, (*libsvtav1.PRESETS, *map(str, range(libsvtav1.MAX_PRESET + 1))))
        return ["-preset", str(libsvtav1.PRESETS.get(preset, preset))]
    known = {"avc": libx264.PRESETS, "hevc": libx265.PRESETS, "vvc": libvvenc.VVENC_PRESETS}[codec]
    check_preset(_LIBRARIES[codec], preset, known)
    return ["-preset", preset]


class RateControlCodec:
    """An encoder of ffmpeg under its own rate control; see `codecnn.codec.Codec` for the contract.

    Args:
        codec: The back end of this encoder at constant QP, a key of `RATES`.
    """

    def __init__(self, codec: Codec) -> None:
        self.name = codec.name
        self._identity = codec.identity

    def identity(self) -> str:
        """Return encoder and decoder, as the back end at constant QP does."""
        return self._identity()

    def encode(self, source: Path, source_format: VideoFormat, settings: CodecSettings, folder: Path) -> CodedSequence:
        """Code a raw YUV file into a bitstream, decoded.yuv and log.txt.

        Pictures of a size that the encoder does not take are padded, and the decoded pictures are cropped (see
        `code_padded`).

        Args:
            source: Raw YUV file.
            source_format: Format of the source.
            settings: Settings of the encode; `qp` is the value of `rate`.
            folder: Output folder.

        Raises:
            ConfigError: The encoder does not have these settings, or its stream has another CTU size.
            FormatError: The source is not raw YUV of this format.
            EncoderError: The encoder fails, its stream does not decode, or it states another value of `rate`.
        """
        smallest = {"hevc": libx265.SMALLEST, "vvc": libvvenc.SMALLEST}.get(self.name, 2)
        if self.name == "hevc":
            smallest = max(smallest, min(settings.ctu_size or libx265.SMALLEST, libx265.LARGEST_CTU))
        multiple = (2, 2) if self.name in ("hevc", "vvc") else MULTIPLE_OF_CHROMA[source_format.chroma]
        size = padded_size(source_format, minimum=smallest, multiple=multiple)
        return code_padded(self._encode, source, source_format, settings, folder, size)

    def _encode(self, source: Path, source_format: VideoFormat, settings: CodecSettings, folder: Path) -> CodedSequence:
        """Do the work of `encode` for a size that the encoder takes."""
        ffmpeg = ffmpeg_path()
        require_encoder(ffmpeg, _LIBRARIES[self.name])
        name = f"{source.stem} at {rate_mode(settings.rate).text(settings.qp)}"
        folder.mkdir(parents=True, exist_ok=True)
        output = f"bitstream.{_SUFFIXES[self.name]}"
        with tempfile.TemporaryDirectory(prefix=".coded-", dir=folder) as work:
            argv = rate_control_argv(
                self.name, ffmpeg, f"file:{source.resolve()}", source_format, settings, f"file:{output}"
            )
            done = run(argv, what=f"coding {name}", cwd=Path(work))
            stream = Path(work) / output
            _verify_rate(stream, settings, name)
            with open_raw(source, source_format) as originals:
                sequence = take_stream(
                    stream, originals, settings.configuration, folder, bit_depth=settings.internal_bit_depth
                )
        ctu_size = None if sequence.supplied is None else sequence.supplied.ctu_size
        if self.name in ("hevc", "vvc") and settings.ctu_size not in (None, ctu_size):
            raise ConfigError(f"{name} has CTUs of {ctu_size}, which the encoder chose: set ctu_size: {ctu_size}")
        log = folder / "log.txt"
        write_text(log, _log_text(self.identity(), settings, sequence.pictures))
        return replace(
            sequence,
            argv=tuple(rate_control_argv(self.name, "ffmpeg", source.name, source_format, settings, output)),
            encoder=self.identity(),
            log=log,
            supplied=None,
            encoder_seconds=done.cpu_seconds,
        )


def _verify_rate(stream: Path, settings: CodecSettings, name: str) -> None:
    """Raise EncoderError if the encoder wrote another kind or value of rate control into its stream."""
    stated = read_encoder_settings(stream)
    if stated is None:
        return
    kind = {"crf": "crf", "qp": "cqp", "kbps": "abr"}[str(settings.rate)]
    value = stated.bit_rate if stated.rate_control == "abr" else stated.quality
    if (stated.rate_control, value) != (kind, settings.qp):
        raise EncoderError(
            f"{name}: {stated.program} states rate control {stated.rate_control} at {value}: remove the "
            "parameter that changes it"
        )


def _log_text(encoder: str, settings: CodecSettings, pictures: Sequence[CodedPicture]) -> str:
    """Return the content of log.txt, which is the same in every run: encoder, settings and the pictures."""
    params = join_params({str(key): str(value) for key, value in settings.params.items()})
    lines = [f"encoder: {encoder}", f"preset: {settings.preset}", f"{settings.rate}: {settings.qp}"]
    lines += [f"params: {params}", "POC type QP bits PSNR_Y"]
    lines += [f"{each.poc} {each.slice_type} {each.qp} {each.bits} {each.psnr_y:.4f}" for each in pictures]
    return "\n".join(lines) + "\n"
