"""The `hm` back end: TAppEncoder and TAppDecoder of the HEVC test model.

The preset stays at its default: a configuration file stands in for it. One thread each; `threads` has no effect.
"""

from collections.abc import Sequence

from codecnn.codec.base import CodecSettings
from codecnn.codec.encoders.external import EncoderProgram
from codecnn.codec.encoders.jvet import model_arguments
from codecnn.codec.encoders.libx265 import CTU_SIZES, MAX_QP
from codecnn.errors import ConfigError
from codecnn.video import VideoFormat

BITSTREAM = "bitstream.265"


def hm_arguments(
    options: frozenset[str],
    source: str,
    source_format: VideoFormat,
    frames: int,
    settings: CodecSettings,
    cfg: Sequence[str],
) -> list[str]:
    """The arguments of TAppEncoder; a pure function. `options` are those it lists.

    Raises ConfigError or FormatError for what HEVC or HM does not take.
    """
    if settings.qp > MAX_QP:
        raise ConfigError(f"QP {settings.qp} is out of range for HEVC: 0 to {MAX_QP}")
    own = {} if settings.ctu_size is None else _coding_tree(settings.ctu_size)
    return model_arguments(options, source, source_format, frames, settings, cfg, own, {"SAO": "0"}, BITSTREAM)


def _coding_tree(ctu_size: int) -> dict[str, str]:
    """CTUs of `ctu_size` down to CUs of 8x8, as in HM's configuration files; TUs are at most 32x32 and one CTU."""
    if ctu_size not in CTU_SIZES:
        raise ConfigError(f"CTU size {ctu_size} is not one of HEVC's 16, 32, 64")
    log2 = ctu_size.bit_length() - 1
    return {
        **{"MaxCUWidth": str(ctu_size), "MaxCUHeight": str(ctu_size), "MaxPartitionDepth": str(log2 - 2)},
        "QuadtreeTULog2MaxSize": str(min(5, log2)),
    }


HM = EncoderProgram(
    name="hm",
    title="HM",
    encoders=("TAppEncoderStatic", "TAppEncoder"),
    decoders=("TAppDecoderStatic", "TAppDecoder"),
    home="https://vcgit.hhi.fraunhofer.de/jvet/HM",
    help_option="--help",
    version=r"HM software: (?:En|De)coder Version \[([^\]]+)\]",
    usual_cfg={
        "ai": "cfg/encoder_intra_main10.cfg",
        "ra": "cfg/encoder_randomaccess_main10.cfg",
        "ldb": "cfg/encoder_lowdelay_main10.cfg",
    },
    bitstream=BITSTREAM,
    traces=False,
    arguments=hm_arguments,
)
