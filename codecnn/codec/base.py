"""Settings that every encoder back end takes, results that it returns, and its protocol."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from codecnn.base.errors import ConfigError
from codecnn.base.planes import MAX_QP
from codecnn.base.rate_modes import RateName
from codecnn.pictures.files import VideoFormat

CONFIGURATIONS = ("ai", "ra", "ldb")
"""Coding configurations: all intra, random access, low delay B."""

CTC_INTRA_QP_OFFSET = {"ra": -3, "ldb": -1}
"""IntraQPOffset of encoder_randomaccess_vtm.cfg and encoder_lowdelay_vtm.cfg of VTM 23; all intra has none."""

CTC_FROM_CFG = ("IntraQPOffset", "TemporalFilter")
"""Options that VTM's configuration files set for the common test conditions and that are switched off otherwise."""


@dataclass(frozen=True)
class CodecSettings:
    """Settings of one encode. A default of None leaves the choice to the encoder's preset.

    Attributes:
        qp: Slice QP, without perceptual adaptation, rate control, intra offset or temporal pre-filter; with `rate` its
            value.
        preset: Encoder preset, e.g. faster, fast, medium, slow.
        configuration: "ai" (all intra), "ra" (random access) or "ldb" (low delay B).
        loop_filters: False switches off every in-loop filter of the codec (deblocking, SAO, ALF).
        ctu_size: CTU size in luma samples.
        internal_bit_depth: Bit depth of the coded pictures, 8 or 10.
        threads: Threads of the encoder.
        params: Further settings in the encoder's own names. They override the settings of codecnn.
        unfiltered: Also return the reconstruction before the in-loop filters, which needs all intra.
        ctc: Code random access and low delay as JVET's common test conditions do (JVET-T2010), as closely as the
            encoder can: groups of 32 pictures, a temporal pre-filter, I slices at `intra_qp`, and B slices at their
            QP offsets.
        rate: Key of `RATE_MODES`: the encoder codes under its own rate control and with its defaults
            (`codecnn.codec.encoders.rate_control`), with "kbps" at an average bit rate in kbit/s; None codes at
            constant QP.

    Raises:
        ConfigError: A value is out of range, or two settings contradict each other.
    """

    qp: int
    preset: str = "medium"
    configuration: str = "ai"
    loop_filters: bool = True
    ctu_size: int | None = None
    internal_bit_depth: int = 10
    threads: int = 1
    params: Mapping[str, str] = field(default_factory=dict)
    unfiltered: bool = False
    ctc: bool = False
    rate: RateName | None = None

    def __post_init__(self) -> None:
        if self.rate == "kbps":
            if self.qp < 1:
                raise ConfigError(f"a bit rate is at least 1 kbit/s, not {self.qp}")
        elif not 0 <= self.qp <= MAX_QP or self.intra_qp < 0:
            raise ConfigError(f"QP {self.qp} is out of range: {self.qp - self.intra_qp} to {MAX_QP}")
        if self.configuration not in CONFIGURATIONS:
            raise ConfigError(f"unknown configuration {self.configuration!r}: one of {', '.join(CONFIGURATIONS)}")
        if self.ctu_size not in (None, 16, 32, 64, 128):
            raise ConfigError(f"CTU size {self.ctu_size} is not one of 16, 32, 64, 128")
        if self.internal_bit_depth not in (8, 10):
            raise ConfigError(f"internal bit depth {self.internal_bit_depth} is not 8 or 10")
        if self.threads < 1:
            raise ConfigError(f"threads must be at least 1, not {self.threads}")
        if self.unfiltered and (self.configuration != "ai" or not self.loop_filters):
            raise ConfigError("unfiltered pictures need the configuration ai and loop_filters on")
        if self.rate is not None and (self.unfiltered or self.ctc or not self.loop_filters):
            raise ConfigError("rate keeps the encoder's defaults: remove unfiltered, ctc and loop_filters")

    @property
    def intra_qp(self) -> int:
        """Slice QP of I slices: `qp`, plus IntraQPOffset of VTM's configuration files if `ctc` is set."""
        return self.qp + (CTC_INTRA_QP_OFFSET.get(self.configuration, 0) if self.ctc else 0)


def ctc_intra_period(video_format: VideoFormat) -> int:
    """Return the distance between intra pictures in random access, about one second in groups of 32 (JVET-T2010).

    It is 32 pictures at up to 30 pictures per second and 64 at 50 and 60.
    """
    return 32 * max(1, round((video_format.fps or 30) / 32))


@dataclass(frozen=True)
class CodecTools:
    """External programs of a back end; each is a file or a name in PATH.

    Attributes:
        encoder: Encoder program. None looks up the usual names in PATH.
        decoder: Decoder program. None decodes with ffmpeg, unless a trace or the prediction is requested: then the
            usual names of the decoder are looked up in PATH.
        cfg: Configuration files of the encoder, in order.
        prediction: Further arguments for a decoder that can write its prediction signal. `{output}` in them is
            replaced by the name of the raw YUV file to write.
        trace: Let the decoder write its block statistics. It must be built with that feature.
    """

    encoder: str | None = None
    decoder: str | None = None
    cfg: tuple[Path, ...] = ()
    prediction: tuple[str, ...] = ()
    trace: bool = False


def coded_format(source_format: VideoFormat, settings: CodecSettings) -> VideoFormat:
    """Return the format of the decoded pictures: the source format at the internal bit depth."""
    return replace(source_format, bit_depth=settings.internal_bit_depth)


@dataclass(frozen=True)
class CodedPicture:
    """One picture as the encoder's log states it.

    Attributes:
        poc: Position in output order.
        slice_type: "I", "P" or "B"; `UNKNOWN_CODEC` for supplied pictures without a bitstream.
        qp: Slice QP.
        bits: Size in bits; None for supplied pictures whose size is unknown.
        psnr_y: PSNR of Y in dB, with the encoder's own peak.
        psnr_u: PSNR of U in dB; None without chroma.
        psnr_v: PSNR of V in dB; None without chroma.
        md5: MD5 of every plane in hexadecimal, if the log states it.
        quantiser: base_q_idx of AV1, of which `qp` is the QP; None for other codecs.
    """

    poc: int
    slice_type: str
    qp: int
    bits: int | None
    psnr_y: float
    psnr_u: float | None
    psnr_v: float | None
    md5: tuple[str, ...] = ()
    quantiser: int | None = None


@dataclass(frozen=True)
class SuppliedFacts:
    """Origin of a supplied sequence, i.e. of one that was coded elsewhere.

    Attributes:
        file: Name of the supplied file.
        codec: One of `codecnn.pictures.files.STREAM_CODECS` for a bitstream, else None.
        ctu_size: CTU size of the bitstream.
        md5s: Number of pictures whose MD5 the bitstream states.
    """

    file: str
    codec: str | None = None
    ctu_size: int | None = None
    md5s: int | None = None


DECISIONS_FILE = "decisions.vtmbmsstats"
"""File beside a bitstream that holds the decisions of a filter in the coding loop."""

CODING_BLOCK_SIZE = 8
"""Size of the smallest coding block of libvvenc, to which it pads pictures."""


@dataclass(frozen=True)
class LoopFacts:
    """The filter that ran inside the coding loop of a sequence.

    Attributes:
        weights: Name of the weights.
        network: Name of the network.
        sha256: sha256 of the weights file.
        decisions: Granularity of the on/off decisions, a value of `codecnn.filtering.Decisions`.
    """

    weights: str
    network: str
    sha256: str
    decisions: str


@dataclass(frozen=True)
class CodedSequence:
    """A coded sequence on disk. All pictures are raw YUV of `format` in output order.

    Attributes:
        bitstream: Bitstream file; None for supplied pictures without one.
        decoded: Decoded pictures. With a filter `in_loop` they are the pictures before that filter.
        format: Format of all picture files.
        pictures: Log entries of the pictures in output order.
        argv: Encoder command with file names only, so that it is the same on every machine; empty if `supplied`.
        encoder: Identity of encoder and decoder.
        log: Normalised log of the encoder; None if `supplied`.
        block_statistics: File that holds the coding tree (x265 analysis file or VTM trace), if there is one.
        unfiltered: Reconstruction before the codec's in-loop filters.
        prediction: Prediction signal.
        residual: Residual plus 2^(bit_depth - 1).
        strengths: Boundary strengths of 4x4 cells (.npy), see `codecnn.codec.add_rebuilt_planes`.
        supplied: Origin of a sequence that was coded elsewhere.
        stated_bits: Size in bits of a supplied sequence without bitstream, as the user states it.
        in_loop: The filter inside the coding loop.
        network_qps: QPs that networks take for the pictures by the rule of `codecnn.codec.choose_qps`; None: the slice
            QPs.
        encoder_seconds: Processor time of one encoder run in seconds, including ffmpeg if that drives the encoder.
        coded_size: Width and height of the pictures in the bitstream if they were padded for the encoder. All files of
            pictures are cropped to the size of `format`; log and MD5s are those of the padded pictures.
    """

    bitstream: Path | None
    decoded: Path
    format: VideoFormat
    pictures: tuple[CodedPicture, ...]
    argv: tuple[str, ...]
    encoder: str
    log: Path | None
    block_statistics: Path | None = None
    unfiltered: Path | None = None
    prediction: Path | None = None
    residual: Path | None = None
    strengths: Path | None = None
    supplied: SuppliedFacts | None = None
    stated_bits: int | None = None
    in_loop: LoopFacts | None = None
    network_qps: tuple[int, ...] | None = None
    encoder_seconds: float | None = None
    coded_size: tuple[int, int] | None = None

    @property
    def bits(self) -> int | None:
        """Size of the bitstream file in bits, including headers; without one the stated size, or None."""
        return self.stated_bits if self.bitstream is None else 8 * self.bitstream.stat().st_size


class Codec(Protocol):
    """A codec back end; `name` is its name in recipes and on the command line."""

    name: str

    def identity(self) -> str:
        """Return encoder and decoder with their versions, as results and cache keys contain them."""

    def encode(self, source: Path, source_format: VideoFormat, settings: CodecSettings, folder: Path) -> CodedSequence:
        """Code a raw YUV file and decode the result.

        Args:
            source: Raw YUV file.
            source_format: Format of the source.
            settings: Settings of the encode.
            folder: Folder for all output files.

        Returns:
            The coded sequence, whose log, bitstream and decoded pictures agree with each other and with `settings`.

        Raises:
            EncoderError: The encoder fails, or its log does not confirm the settings.
        """
