"""The `hm` back end: TAppEncoder and TAppDecoder of the HEVC test model.

The preset stays at its default: a configuration file stands in for it. One thread each; `threads` has no effect.
"""

from codecnn.codec.encoders.jvet import model_arguments, model_cfg
from codecnn.codec.encoders.limits import check_hevc
from codecnn.codec.encoders.programs import EncoderProgram, Job

BITSTREAM = "bitstream.265"


def hm_arguments(job: Job) -> list[str]:
    """The arguments of TAppEncoder; a pure function."""
    check_hevc(job.settings)
    own = {} if job.settings.ctu_size is None else _coding_tree(job.settings.ctu_size)
    return model_arguments(job, own, {"SAO": "0"}, BITSTREAM)


def _coding_tree(ctu_size: int) -> dict[str, str]:
    """CTUs of `ctu_size` down to CUs of 8x8, as in HM's configuration files; TUs are at most 32x32 and one CTU."""
    log2 = ctu_size.bit_length() - 1
    return {
        "MaxCUWidth": str(ctu_size),
        "MaxCUHeight": str(ctu_size),
        "MaxPartitionDepth": str(log2 - 2),
        "QuadtreeTULog2MaxSize": str(min(5, log2)),
    }


HM: EncoderProgram = EncoderProgram(
    name="hm",
    title="HM",
    encoders=("TAppEncoderStatic", "TAppEncoder"),
    decoders=("TAppDecoderStatic", "TAppDecoder"),
    home="https://vcgit.hhi.fraunhofer.de/jvet/HM",
    version=r"HM software: (?:En|De)coder Version \[([^\]]+)\]",
    usual_cfg=model_cfg("main10"),
    bitstream=BITSTREAM,
    arguments=hm_arguments,
)
