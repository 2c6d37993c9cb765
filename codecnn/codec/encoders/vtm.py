"""The `vtm` back end: EncoderApp and DecoderApp of the VVC test model.

The preset stays at its default: a configuration file stands in for it. One thread each; `threads` has no effect.
"""

from collections.abc import Sequence

from codecnn.codec.base import CodecSettings
from codecnn.codec.encoders.external import EncoderProgram
from codecnn.codec.encoders.jvet import model_arguments
from codecnn.errors import ConfigError
from codecnn.video import VideoFormat

BITSTREAM = "bitstream.266"

NO_MAPPING = {"LMCSEnable": "0", "LumaReshapeEnable": "0", "EncDbOpt": "0"}
"""LMCS (the second is its name before VTM 6), and the encoder's look at deblocked samples when it decides."""

FILTERS_OFF = {"SAO": "0", "ALF": "0", "CCALF": "0", **NO_MAPPING}


def vtm_arguments(
    options: frozenset[str],
    source: str,
    source_format: VideoFormat,
    frames: int,
    settings: CodecSettings,
    cfg: Sequence[str],
) -> list[str]:
    """The arguments of EncoderApp; a pure function. `options` are those it lists.

    Raises ConfigError or FormatError for what VTM does not take.
    """
    own = {} if settings.ctu_size is None else {"CTUSize": str(settings.ctu_size)}
    if settings.ctu_size == 16:
        raise ConfigError("CTU size 16 is not one of VVC's 32, 64, 128")
    if settings.unfiltered:
        # Both encodes must decide alike, and LMCS maps the samples that the filters see.
        own |= {name: value for name, value in NO_MAPPING.items() if name in options}
    return model_arguments(options, source, source_format, frames, settings, cfg, own, FILTERS_OFF, BITSTREAM)


VTM = EncoderProgram(
    name="vtm",
    title="VTM",
    encoders=("EncoderAppStatic", "EncoderApp"),
    decoders=("DecoderAppStatic", "DecoderApp"),
    home="https://vcgit.hhi.fraunhofer.de/jvet/VVCSoftware_VTM",
    help_option="--help",
    version=r"VTM (?:En|De)coder Version (\S+)",
    usual_cfg={
        "ai": "cfg/encoder_intra_vtm.cfg",
        "ra": "cfg/encoder_randomaccess_vtm.cfg",
        "ldb": "cfg/encoder_lowdelay_vtm.cfg",
    },
    bitstream=BITSTREAM,
    traces=True,
    arguments=vtm_arguments,
)
