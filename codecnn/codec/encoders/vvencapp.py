"""The `vvencapp` back end: vvenc's plain program vvencapp, or its expert program vvencFFapp, by the user's own path.

vvencFFapp takes configuration files and 4:0:0 as well; vvencapp codes 4:2:0 by its preset. The option names are those
of vvenc's include/apputils/VVEncAppCfg.h; the settings are the `vvc` back end's, measured on libvvenc 1.15.
"""

from fractions import Fraction

from codecnn.codec.encoders.libvvenc import vvenc_params
from codecnn.codec.encoders.limits import check_program_source
from codecnn.codec.encoders.programs import EncoderProgram, Job
from codecnn.errors import ConfigError, ToolMissingError

BITSTREAM = "bitstream.266"


def vvenc_arguments(job: Job) -> list[str]:
    """The arguments of whichever of the two lists `job.options`; a pure function.

    Raises ToolMissingError when it is too old, ConfigError or FormatError for what it does not take.
    """
    settings, source_format = job.settings, job.format
    check_program_source(source_format, settings)
    params = vvenc_params(settings, source_format)
    # vvencapp tells its verbosity apart from the library's.
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
            "BitstreamFile": BITSTREAM,
        }
        # The preset first: it sets everything, and the files are to win over it.
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
        f"--output={BITSTREAM}",
        "--additional=" + ":".join(f"{name}={value}" for name, value in params.items()),
    ]


VVENC: EncoderProgram = EncoderProgram(
    name="vvencapp",
    title="vvenc",
    encoders=("vvencapp", "vvencFFapp"),
    decoders=("vvdecapp",),
    home="https://github.com/fraunhoferhhi/vvenc",
    help_option="--fullhelp",
    version=r"[Vv][Vv](?:enC|encapp|encFFapp|deC|decapp)\b.* version:? +v?(\d\S*)",
    bitstream=BITSTREAM,
    arguments=vvenc_arguments,
)
