"""The `vvencapp` back end: vvenc's plain program vvencapp, or its expert program vvencFFapp, by the user's own path.

vvencFFapp takes configuration files and 4:0:0 as well; vvencapp codes 4:2:0 by its preset. The option names are those
of vvenc's include/apputils/VVEncAppCfg.h; the settings are the `vvc` back end's, measured on libvvenc 1.15.
"""

from collections.abc import Sequence
from fractions import Fraction

from codecnn.codec.base import CodecSettings
from codecnn.codec.encoders.external import EncoderProgram
from codecnn.codec.encoders.jvet import check_source
from codecnn.codec.encoders.libvvenc import vvenc_params
from codecnn.errors import ConfigError, ToolMissingError
from codecnn.video import VideoFormat

BITSTREAM = "bitstream.266"


def vvenc_arguments(
    options: frozenset[str],
    source: str,
    source_format: VideoFormat,
    frames: int,
    settings: CodecSettings,
    cfg: Sequence[str],
) -> list[str]:
    """The arguments of the program that lists `options`; a pure function.

    Raises ConfigError or FormatError for what it does not take, ToolMissingError when it is too old for it.
    """
    check_source(source_format, settings)
    params = vvenc_params(settings, source_format.chroma)
    if settings.unfiltered:
        # Both encodes must decide alike, so neither may look at deblocked samples.
        params.setdefault("EDO", "0")
    # vvencapp tells its verbosity apart from the library's.
    verbosity = params.pop("verbosity")
    quiet = ["--stats=0"] if "stats" in options else []
    rate = source_format.fps or Fraction(30)
    size = f"{source_format.width}x{source_format.height}"
    if "InputFile" in options:
        values = {
            **{"InputFile": source, "Size": size, "InputBitDepth": str(source_format.bit_depth)},
            **{"InputChromaFormat": source_format.chroma, "FramesToBeEncoded": str(frames)},
            **{"FrameRate": str(rate.numerator), "FrameScale": str(rate.denominator), "QP": str(settings.qp)},
            **{"PerceptQPA": "0", "Threads": str(settings.threads), **params},
            **{"Verbosity": verbosity, "BitstreamFile": BITSTREAM},
        }
        # The preset first: it sets everything, and the files are to win over it.
        files = [part for path in cfg for part in ("-c", path)]
        ours = [f"--{name}={value}" for name, value in values.items()]
        return [f"--preset={settings.preset}", *files, *quiet, *ours]
    if "additional" not in options:
        raise ToolMissingError("this vvencapp has no option --additional: use a newer one, or vvencFFapp")
    if cfg:
        raise ConfigError("vvencapp takes no configuration files: name vvencFFapp as tools: {encoder: FILE}")
    if source_format.chroma != "420":
        raise ConfigError(f"vvencapp codes 4:2:0, not {source_format.chroma}: vvencFFapp codes 4:0:0 too")
    return [
        *(f"--input={source}", f"--size={size}", f"--format=yuv420{'_10' if source_format.bit_depth == 10 else ''}"),
        *(f"--framerate={rate.numerator}", f"--framescale={rate.denominator}", f"--frames={frames}"),
        *(f"--preset={settings.preset}", f"--qp={settings.qp}", "--qpa=0", f"--threads={settings.threads}"),
        *(f"--verbosity={verbosity}", *quiet, f"--output={BITSTREAM}"),
        "--additional=" + ":".join(f"{name}={value}" for name, value in params.items()),
    ]


VVENC = EncoderProgram(
    name="vvencapp",
    title="vvenc",
    encoders=("vvencapp", "vvencFFapp"),
    decoders=("vvdecapp",),
    home="https://github.com/fraunhoferhhi/vvenc",
    help_option="--fullhelp",
    version=r"[Vv][Vv](?:enC|encapp|encFFapp|deC|decapp)\b.* version:? +v?(\d\S*)",
    usual_cfg=None,
    bitstream=BITSTREAM,
    traces=False,
    arguments=vvenc_arguments,
)
