"""Command lines of the external encoder programs VTM, HM, vvencapp and vvencFFapp as pure functions of a `Job`.

The test models VTM (EncoderApp, DecoderApp) and HM (TAppEncoder, TAppDecoder) read configuration files given by -c and
then options --Name=value, of which the last wins; an unknown option is an error. Option names differ between versions,
so a setting that only some versions have is given only if the help of the program lists it. The preset must be the
default, because a configuration file takes its place. The test models run in one thread; `threads` has no effect.

vvenc has the plain program vvencapp, which codes 4:2:0 by its preset, and the expert program vvencFFapp, which also
takes configuration files and 4:0:0. Option names are those of vvenc's include/apputils/VVEncAppCfg.h; the settings are
those of the `vvc` back end.
"""

from collections.abc import Mapping
from fractions import Fraction

from codecnn.base.errors import ConfigError, EncoderError, ToolMissingError
from codecnn.codec.base import CTC_FROM_CFG, CodecSettings, ctc_intra_period
from codecnn.codec.checks import check_ctu_size, check_hevc, check_params, check_program_source
from codecnn.codec.encoders.external import RECONSTRUCTION, EncoderProgram, Job
from codecnn.codec.encoders.libvvenc import vvenc_params

VVC_BITSTREAM, HEVC_BITSTREAM = "bitstream.266", "bitstream.265"

_ADAPTATIONS = """
IntraQPOffset MaxDeltaQP DeltaQpRD RateControl AdaptiveQP PerceptQPA LumaLevelToDeltaQPMode TemporalFilter BIM
"""
CONSTANT_QP = dict.fromkeys(_ADAPTATIONS.split(), "0")
"""Options that switch off the intra offset, search and adaptation of QP, temporal pre-filter and importance map.

The random access files set an intra offset of -3. Names are those of VTM source/App/EncoderApp/EncAppCfg.cpp and HM
source/App/TAppEncoder/TAppEncCfg.cpp.
"""

EVERY_PICTURE = {"FrameSkip": "0", "TemporalSubsampleRatio": "1", "ConformanceWindowMode": "1"}
"""Options that code every picture of any size.

VTM's cfg/encoder_intra_vtm.cfg codes every eighth picture. Mode 1 pads to whole minimum CUs and crops again.
"""

DEBLOCKING_OFF = {"DeblockingFilterDisable": "1", "LoopFilterDisable": "1"}
"""The newer and the older name of one option: VTM 15 has the first, HM 16 and VTM 10 the second."""

NO_MAPPING = {"LMCSEnable": "0", "LumaReshapeEnable": "0", "EncDbOpt": "0"}
"""Options that switch off LMCS (LumaReshapeEnable before VTM 6) and the use of deblocked samples in decisions."""

VTM_FILTERS_OFF = {"SAO": "0", "ALF": "0", "CCALF": "0", **NO_MAPPING}
HM_FILTERS_OFF = {"SAO": "0"}

VTM_LARGEST_SPLIT = {"MaxBTChromaISlice": 64, "MaxBTNonISlice": 128, "MaxTTNonISlice": 64}
"""Default sizes of the largest blocks that VTM splits in two or three; those of the other options are 32."""


def model_arguments(job: Job, specific: Mapping[str, str], loop_tools: Mapping[str, str], bitstream: str) -> list[str]:
    """Return the arguments of VTM's or HM's encoder; a pure function.

    Args:
        job: The job.
        specific: Options that only this model has.
        loop_tools: Options that switch off its in-loop filters other than deblocking.
        bitstream: Name of the bitstream file.

    Raises:
        ConfigError: The test models do not have these settings.
        FormatError: They do not code this source format.
        EncoderError: The program has no option to switch off deblocking.
    """
    settings, source_format = job.settings, job.format
    check_program_source(source_format, settings)
    if settings.preset != CodecSettings.preset:
        raise ConfigError(f"a test model has no preset {settings.preset!r}: use its configuration files instead")
    optional = {**CONSTANT_QP, **EVERY_PICTURE}
    if settings.ctc:
        optional = {name: value for name, value in optional.items() if name not in CTC_FROM_CFG}
        if settings.configuration == "ra":
            optional["IntraPeriod"] = str(ctc_intra_period(source_format))
    if not settings.loop_filters:
        if job.options.isdisjoint(DEBLOCKING_OFF):
            raise EncoderError(f"the encoder lists none of {', '.join(DEBLOCKING_OFF)}: deblocking cannot be disabled")
        optional |= {**DEBLOCKING_OFF, **loop_tools}
    values = {
        "SourceWidth": source_format.width,
        "SourceHeight": source_format.height,
        # Not every version accepts a fraction; at constant QP the rate changes no sample.
        "FrameRate": max(1, round(source_format.fps or 30)),
        "FramesToBeEncoded": job.frames,
        "InputBitDepth": source_format.bit_depth,
        "InternalBitDepth": settings.internal_bit_depth,
        "OutputBitDepth": settings.internal_bit_depth,
        "InputChromaFormat": source_format.chroma,
        "QP": settings.qp,
        **{name: value for name, value in optional.items() if name in job.options},
        **specific,
        **check_params(settings.params, values=r"[\w .,:+/-]+"),
        "InputFile": job.source,
        "BitstreamFile": bitstream,
        "ReconFile": RECONSTRUCTION,
        "SEIDecodedPictureHash": 1,
    }
    return [
        *(part for path in job.cfg for part in ("-c", path)),
        *(f"--{name}={text}" for name, text in values.items()),
    ]


def vtm_arguments(job: Job) -> list[str]:
    """Return the arguments of EncoderApp; a pure function that raises the errors of `model_arguments`."""
    ctu_size = job.settings.ctu_size
    check_ctu_size("VVC", ctu_size, (32, 64, 128))
    specific = {}
    if ctu_size is not None:
        specific["CTUSize"] = str(ctu_size)
        # VTM exits if its largest splits exceed the CTU.
        lowered = {name: str(ctu_size) for name, side in VTM_LARGEST_SPLIT.items() if side > ctu_size}
        lowered |= {"Log2MaxTbSize": "5"} if ctu_size == 32 else {}
        specific |= {name: value for name, value in lowered.items() if name in job.options}
    if job.settings.unfiltered:
        # The encodes with and without filters must make the same decisions, and LMCS maps the samples of the filters.
        specific |= {name: value for name, value in NO_MAPPING.items() if name in job.options}
    return model_arguments(job, specific, VTM_FILTERS_OFF, VVC_BITSTREAM)


def hm_arguments(job: Job) -> list[str]:
    """Return the arguments of TAppEncoder; a pure function that raises the errors of `model_arguments`."""
    check_hevc(job.settings)
    specific = {} if job.settings.ctu_size is None else _hm_coding_tree(job.settings.ctu_size)
    return model_arguments(job, specific, HM_FILTERS_OFF, HEVC_BITSTREAM)


def _hm_coding_tree(ctu_size: int) -> dict[str, str]:
    """Return options for CTUs of `ctu_size` down to CUs of 8x8; TUs are at most 32x32 and one CTU."""
    log2 = ctu_size.bit_length() - 1
    return {
        "MaxCUWidth": str(ctu_size),
        "MaxCUHeight": str(ctu_size),
        "MaxPartitionDepth": str(log2 - 2),
        "QuadtreeTULog2MaxSize": str(min(5, log2)),
    }


def vvenc_arguments(job: Job) -> list[str]:
    """Return the arguments of vvencapp or vvencFFapp, whichever has the options of the job; a pure function.

    Raises:
        ToolMissingError: The program is too old.
        ConfigError: The program does not have these settings.
        FormatError: It does not code this source format.
    """
    settings, source_format = job.settings, job.format
    check_program_source(source_format, settings)
    params = vvenc_params(settings, source_format)
    # The programs have their own verbosity option, which is separate from that of the library.
    verbosity = params.pop("verbosity")
    quiet = ["--stats=0"] if "stats" in job.options else []
    rate = source_format.fps or Fraction(30)
    size = f"{source_format.width}x{source_format.height}"
    if "InputFile" in job.options:
        values = {
            "InputFile": job.source,
            "Size": size,
            "InputBitDepth": source_format.bit_depth,
            "InputChromaFormat": source_format.chroma,
            "FramesToBeEncoded": job.frames,
            "FrameRate": rate.numerator,
            "FrameScale": rate.denominator,
            "QP": settings.qp,
            "PerceptQPA": 0,
            "Threads": settings.threads,
            **params,
            "Verbosity": verbosity,
            "BitstreamFile": VVC_BITSTREAM,
        }
        # The preset comes first, because it sets all options and the files must override it.
        files = [part for path in job.cfg for part in ("-c", path)]
        return [f"--preset={settings.preset}", *files, *quiet, *(f"--{name}={text}" for name, text in values.items())]
    if "additional" not in job.options:
        raise ToolMissingError("this vvencapp has no option --additional: use a newer one, or vvencFFapp")
    if job.cfg:
        raise ConfigError("vvencapp takes no configuration files: name vvencFFapp as tools: {encoder: FILE}")
    if source_format.chroma != "420":
        raise ConfigError(f"vvencapp codes 4:2:0, not {source_format.chroma}: vvencFFapp codes 4:0:0 too")
    return [
        f"--input={job.source}",
        f"--size={size}",
        f"--format=yuv420{'_10' if source_format.bit_depth == 10 else ''}",
        f"--framerate={rate.numerator}",
        f"--framescale={rate.denominator}",
        f"--frames={job.frames}",
        f"--preset={settings.preset}",
        f"--qp={settings.qp}",
        "--qpa=0",
        f"--threads={settings.threads}",
        f"--verbosity={verbosity}",
        *quiet,
        f"--output={VVC_BITSTREAM}",
        "--additional=" + ":".join(f"{name}={value}" for name, value in params.items()),
    ]


def _model_cfg(suffix: str) -> dict[str, str]:
    """Return the configuration file of each coding configuration in the sources of a test model."""
    kinds = {"ai": "intra", "ra": "randomaccess", "ldb": "lowdelay"}
    return {configuration: f"cfg/encoder_{kind}_{suffix}.cfg" for configuration, kind in kinds.items()}


VTM: EncoderProgram = EncoderProgram(
    name="vtm",
    title="VTM",
    encoders=("EncoderAppStatic", "EncoderApp"),
    decoders=("DecoderAppStatic", "DecoderApp"),
    home="https://vcgit.hhi.fraunhofer.de/jvet/VVCSoftware_VTM",
    version=r"VTM (?:En|De)coder Version (\S+)",
    usual_cfg=_model_cfg("vtm"),
    bitstream=VVC_BITSTREAM,
    traces=True,
    arguments=vtm_arguments,
)
"""The VVC test model."""

HM: EncoderProgram = EncoderProgram(
    name="hm",
    title="HM",
    encoders=("TAppEncoderStatic", "TAppEncoder"),
    decoders=("TAppDecoderStatic", "TAppDecoder"),
    home="https://vcgit.hhi.fraunhofer.de/jvet/HM",
    version=r"HM software: (?:En|De)coder Version \[([^\]]+)\]",
    usual_cfg=_model_cfg("main10"),
    bitstream=HEVC_BITSTREAM,
    arguments=hm_arguments,
)
"""The HEVC test model."""

VVENC: EncoderProgram = EncoderProgram(
    name="vvencapp",
    title="vvenc",
    encoders=("vvencapp", "vvencFFapp"),
    decoders=("vvdecapp",),
    home="https://github.com/fraunhoferhhi/vvenc",
    help_option="--fullhelp",
    version=r"[Vv][Vv](?:enC|encapp|encFFapp|deC|decapp)\b.* version:? +v?(\d\S*)",
    bitstream=VVC_BITSTREAM,
    arguments=vvenc_arguments,
)
"""The programs vvencapp and vvencFFapp of vvenc."""
