"""The `svtav1` back end: SVT-AV1 of the ffmpeg in imageio-ffmpeg; `codecnn.codec.encoders.av1` has its checks.

SVT-AV1 codes 4:2:0 and chooses the size of superblocks. It does not state the PSNR of its reconstruction.
"""

from codecnn.base.errors import ConfigError
from codecnn.codec.base import CodecSettings
from codecnn.codec.checks import check_ctu_size, check_depth, check_params, check_preset
from codecnn.codec.encoders.av1 import CTU_SIZES, NO_RESTORATION, STATISTICS, Av1Encoder, quantiser_level
from codecnn.codec.ffmpeg import encoder_input, join_params
from codecnn.pictures.files import VideoFormat

PRESETS = {"slower": 2, "slow": 4, "medium": 6, "fast": 8, "faster": 10}
"""SVT-AV1's preset by name; a preset may also be the number itself."""

MAX_PRESET = 11
"""Largest preset; SVT-AV1 replaces 12 and 13 by 11."""

_NO_OFFSETS = "[0,0,0,0,0,0]"

CONSTANT_QUANTISER = {
    "aq-mode": "0",
    "use-fixed-qindex-offsets": "1",
    "key-frame-qindex-offset": "0",
    "key-frame-chroma-qindex-offset": "0",
    "qindex-offsets": _NO_OFFSETS,
    "chroma-qindex-offsets": _NO_OFFSETS,
    "enable-qm": "0",
    "enable-variance-boost": "0",
    "luminance-qp-bias": "0",
}
"""Parameters that switch off offsets by frame type, hierarchy, block and component, and quantisation matrices."""

FAITHFUL = {"enable-tf": "0", "enable-overlays": "0", "film-grain": "0", "scd": "0"}
"""Parameters that switch off the filter over time before coding, film grain and scene cuts."""

NO_LOOP_FILTERS = {"enable-dlf": "0", "enable-cdef": "0", **NO_RESTORATION}

CONFIGURATION_PARAMS = {"ai": {}, "ra": {"pred-struct": "2"}, "ldb": {"pred-struct": "1"}}

PICTURES_PER_KEY_FRAME = {"ai": "1", "ra": "32", "ldb": "9999"}

_THREAD_PARAM = "lp"


def svt_params(settings: CodecSettings) -> dict[str, str]:
    """Return the parameters of SVT-AV1 for `settings`; a pure function.

    Raises:
        ConfigError: SVT-AV1 does not have these settings.
    """
    check_ctu_size("AV1", settings.ctu_size, CTU_SIZES)
    params = {**CONSTANT_QUANTISER, **FAITHFUL, **CONFIGURATION_PARAMS[settings.configuration]}
    if not settings.loop_filters:
        params |= NO_LOOP_FILTERS
    params |= settings.params
    params |= {_THREAD_PARAM: str(settings.threads)}
    return check_params(params, names="[A-Za-z0-9-]+", values=r"[A-Za-z0-9_.,+\[\]-]+")


def svt_encode_argv(
    ffmpeg: str, source: str, source_format: VideoFormat, settings: CodecSettings, output: str
) -> list[str]:
    """Return the ffmpeg command that codes a raw YUV file; a pure function.

    Args:
        ffmpeg: The ffmpeg program.
        source: Raw YUV file.
        source_format: Format of the source.
        settings: Settings of the encode.
        output: Bitstream to write.

    Raises:
        ConfigError: SVT-AV1 does not have these settings or this chroma format.
    """
    check_preset("SVT-AV1", settings.preset, (*PRESETS, *map(str, range(MAX_PRESET + 1))))
    check_depth(source_format, settings)
    if source_format.chroma != "420":
        raise ConfigError(f"SVT-AV1 codes 4:2:0, not {source_format.chroma}: take codec av1")
    argv = encoder_input(ffmpeg, source, source_format, settings)
    argv += ["-c:v", "libsvtav1", "-preset", str(PRESETS.get(settings.preset, settings.preset))]
    argv += ["-qp", str(quantiser_level(settings.qp)), "-g", PICTURES_PER_KEY_FRAME[settings.configuration]]
    argv += ["-vstats_file", STATISTICS, "-svtav1-params", join_params(svt_params(settings))]
    return [*argv, "-f", "obu", output]


class SvtAv1Codec(Av1Encoder):
    """AV1 coded by SVT-AV1; see `codecnn.codec.Codec` for the contract."""

    name = "svtav1"
    library = "libsvtav1"
    version = r"SVT-AV1 Encoder Lib v?(\S+)"
    # A picture of one sample is an error of memory in ffmpeg.
    smallest = 2

    def params(self, settings: CodecSettings) -> dict[str, str]:
        """Return the parameters of SVT-AV1; see `svt_params`."""
        return svt_params(settings)

    def argv(
        self, ffmpeg: str, source: str, source_format: VideoFormat, settings: CodecSettings, output: str
    ) -> list[str]:
        """Return the ffmpeg command; see `svt_encode_argv`."""
        return svt_encode_argv(ffmpeg, source, source_format, settings, output)
