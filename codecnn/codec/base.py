"""What every codec back end takes and gives."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from codecnn.errors import ConfigError
from codecnn.planes import MAX_QP
from codecnn.video import VideoFormat

CONFIGURATIONS = ("ai", "ra", "ldb")
CTC_INTRA_QP_OFFSET = {"ra": -3, "ldb": -1}
"""IntraQPOffset of encoder_randomaccess_vtm.cfg and encoder_lowdelay_vtm.cfg of VTM 23; all intra has none."""
CTC_FROM_CFG = ("IntraQPOffset", "TemporalFilter")
"""What of the common test conditions stands in those files, and is otherwise switched off."""


@dataclass(frozen=True)
class CodecSettings:
    """How a sequence is to be coded. A default of None leaves the choice to the encoder's preset.

    `qp` is the slice QP itself: no perceptual adaptation, rate control, intra offset or temporal pre-filter. With `ctc`
    random access and low delay are as JVET's common test conditions have them (JVET-T2010), as close as the encoder
    goes: groups of 32 pictures and a temporal pre-filter, I slices `intra_qp`, B slices at their offsets to `qp`.
    `configuration` is "ai" (all intra), "ra" (random access) or "ldb" (low delay B).
    `loop_filters` False switches off every in-loop filter of the codec (deblocking, SAO, ALF).
    `params` are further settings in the encoder's own names; they win over ours.
    `unfiltered` asks for the pictures before the in-loop filters as well, which only all intra has apart from them.
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

    def __post_init__(self) -> None:
        if not 0 <= self.qp <= MAX_QP or self.intra_qp < 0:
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

    @property
    def intra_qp(self) -> int:
        """Slice QP of I slices: `qp`, and with `ctc` by IntraQPOffset of VTM's configuration files."""
        return self.qp + (CTC_INTRA_QP_OFFSET.get(self.configuration, 0) if self.ctc else 0)


def ctc_intra_period(video_format: VideoFormat) -> int:
    """Pictures from one intra picture of random access to the next, about a second in groups of 32 (JVET-T2010).

    32 up to 30 pictures a second, 64 at 50 and 60.
    """
    return 32 * max(1, round((video_format.fps or 30) / 32))


@dataclass(frozen=True)
class CodecTools:
    """The user's own programs, for the back ends that need them: a file or a name in PATH each.

    Without `encoder` its usual names are looked up in PATH; without `decoder` ffmpeg decodes, unless a trace or the
    prediction is asked for, when the usual names of the decoder are looked up too.
    `cfg` are the encoder's configuration files, in order. `prediction` are further arguments for a decoder that can
    write its prediction signal; {output} in them becomes the raw YUV file to write. `trace` asks the decoder for its
    block statistics, which it must have been built with.
    """

    encoder: str | None = None
    decoder: str | None = None
    cfg: tuple[Path, ...] = ()
    prediction: tuple[str, ...] = ()
    trace: bool = False


def coded_format(source_format: VideoFormat, settings: CodecSettings) -> VideoFormat:
    """The format of the decoded pictures: that of the source at the internal bit depth."""
    return replace(source_format, bit_depth=settings.internal_bit_depth)


@dataclass(frozen=True)
class CodedPicture:
    """One picture of the encoder's log: its slice type, slice QP, bits and PSNR (dB, the encoder's own peak).

    Of pictures that were given decoded, without a bitstream, bits are None.
    """

    poc: int
    slice_type: str
    qp: int
    bits: int | None
    psnr_y: float
    psnr_u: float | None
    psnr_v: float | None
    md5: tuple[str, ...] = ()


@dataclass(frozen=True)
class GivenFacts:
    """What a sequence was taken from that somebody else coded: the name of the file and, of a stream, "vvc" or "hevc",
    its CTU size, and of how many pictures it states the MD5.
    """

    file: str
    codec: str | None = None
    ctu_size: int | None = None
    md5s: int | None = None


@dataclass(frozen=True)
class LoopFacts:
    """The filter in whose loop a sequence was coded: its weights' name and sha256, its network, and who decided.

    `decisions` are those of `codecnn.filtering.Decisions`.
    """

    weights: str
    network: str
    sha256: str
    decisions: str


@dataclass(frozen=True)
class CodedSequence:
    """A coded sequence on disk: the bitstream, its decoded pictures (raw YUV in output order), log and statistics.

    `block_statistics` is a file that tells the partition where one can be had, else None. `unfiltered` holds the
    pictures before the codec's in-loop filters, `prediction` those that the residual is added to, `residual` that, plus
    2^(bit_depth - 1); raw YUV of `format`. `strengths` are boundary strengths in 4x4 cells, see `codec.intra_planes`.
    `encoder_seconds` is the processor time of the encoder, of one run, with ffmpeg's where that drives it.
    `argv` is the command with file names only, without any folder of the machine it ran on. What was `given` coded has
    no log, and without a stream no bitstream. With a filter `in_loop` the decoded pictures are those before it.
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
    given: GivenFacts | None = None
    in_loop: LoopFacts | None = None
    encoder_seconds: float | None = None

    @property
    def bits(self) -> int | None:
        """Size of the bitstream file in bits, headers included; None without one."""
        return None if self.bitstream is None else 8 * self.bitstream.stat().st_size


class Codec(Protocol):
    """A codec back end; `name` is what recipes and the command line call it."""

    name: str

    def identity(self) -> str:
        """Encoder and decoder with their versions, as results and keys carry them."""

    def encode(self, source: Path, source_format: VideoFormat, settings: CodecSettings, folder: Path) -> CodedSequence:
        """Code the raw YUV file `source` and decode it again; every file goes into `folder`.

        Raises EncoderError when the encoder fails or its log does not prove the settings.
        """
