"""The `vtm` back end: EncoderApp and DecoderApp of the VVC test model.

The preset stays at its default: a configuration file stands in for it. One thread each; `threads` has no effect.
"""

from codecnn.codec.encoders.jvet import model_arguments, model_cfg
from codecnn.codec.encoders.limits import check_ctu_size
from codecnn.codec.encoders.programs import EncoderProgram, Job

BITSTREAM = "bitstream.266"

NO_MAPPING = {"LMCSEnable": "0", "LumaReshapeEnable": "0", "EncDbOpt": "0"}
"""LMCS (the second is its name before VTM 6), and the encoder's look at deblocked samples when it decides."""

FILTERS_OFF = {"SAO": "0", "ALF": "0", "CCALF": "0", **NO_MAPPING}

LARGEST_SPLIT = {"MaxBTChromaISlice": 64, "MaxBTNonISlice": 128, "MaxTTNonISlice": 64}
"""Sides of the largest blocks that are split in two or three, where the files do not name them; the others have 32."""


def vtm_arguments(job: Job) -> list[str]:
    """The arguments of EncoderApp; a pure function."""
    ctu_size = job.settings.ctu_size
    check_ctu_size("VVC", ctu_size, (32, 64, 128))
    own = {}
    if ctu_size is not None:
        own["CTUSize"] = str(ctu_size)
        # VTM does not lower them by itself, and ends.
        lowered = {name: str(ctu_size) for name, side in LARGEST_SPLIT.items() if side > ctu_size}
        lowered |= {"Log2MaxTbSize": "5"} if ctu_size == 32 else {}
        own |= {name: value for name, value in lowered.items() if name in job.options}
    if job.settings.unfiltered:
        # Both encodes must decide alike, and LMCS maps the samples that the filters see.
        own |= {name: value for name, value in NO_MAPPING.items() if name in job.options}
    return model_arguments(job, own, FILTERS_OFF, BITSTREAM)


VTM: EncoderProgram = EncoderProgram(
    name="vtm",
    title="VTM",
    encoders=("EncoderAppStatic", "EncoderApp"),
    decoders=("DecoderAppStatic", "DecoderApp"),
    home="https://vcgit.hhi.fraunhofer.de/jvet/VVCSoftware_VTM",
    version=r"VTM (?:En|De)coder Version (\S+)",
    usual_cfg=model_cfg("vtm"),
    bitstream=BITSTREAM,
    traces=True,
    arguments=vtm_arguments,
)
