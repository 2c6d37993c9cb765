"""The `av1` back end: libaom of the ffmpeg in imageio-ffmpeg; see `codecnn.codec.encoders.av1` for its checks."""

from codecnn.codec.base import CodecSettings
from codecnn.codec.checks import check_ctu_size, check_depth, check_params, check_preset
from codecnn.codec.encoders.av1 import CTU_SIZES, STATISTICS, Av1Encoder, quantiser_level
from codecnn.codec.ffmpeg import encoder_input, join_params
from codecnn.pictures.files import VideoFormat

SPEEDS = {"slower": 1, "slow": 2, "medium": 4, "fast": 6, "faster": 8}
"""libaom's cpu-used by preset; a preset may also be the number itself."""

MAX_SPEED = 8
"""Largest cpu-used that ffmpeg passes on."""

CONSTANT_QUANTISER = dict.fromkeys(
    ("aq-mode", "deltaq-mode", "enable-tpl-model", "enable-chroma-deltaq", "enable-qm"), "0"
)
"""Parameters that switch off quantisers that vary by block or component, and quantisation matrices."""

FAITHFUL = {"tune": "psnr", "denoise-noise-level": "0", "film-grain-test": "0"}
"""Parameters that switch off perceptual decisions and film grain."""

LOOP_FILTERS = {"enable-cdef": "1", "enable-restoration": "1"}
"""Parameters that switch on CDEF and loop restoration, which libaom's all-intra mode leaves off."""

NO_TEMPORAL_FILTERS = dict.fromkeys(("arnr-maxframes", "arnr-strength", "enable-keyframe-filtering"), "0")
"""Parameters that switch off the filters over time of reference and key frames before coding."""

CONFIGURATION_OPTIONS = {
    "ai": ("-usage", "allintra", "-g", "0"),
    "ra": ("-usage", "good", "-g", "32", "-keyint_min", "32", "-lag-in-frames", "35"),
    "ldb": ("-usage", "good", "-g", "9999", "-lag-in-frames", "0"),
}
"""Options of ffmpeg: `-g 0` codes key frames only, and without look-ahead no picture is coded early."""

NO_LOOP_FILTERS = {"loopfilter-control": "0", "enable-cdef": "0", "enable-restoration": "0"}


def aom_params(settings: CodecSettings) -> dict[str, str]:
    """Return the parameters of libaom for `settings`; a pure function.

    Raises:
        ConfigError: libaom does not have these settings.
    """
    check_ctu_size("AV1", settings.ctu_size, CTU_SIZES)
    params = {**CONSTANT_QUANTISER, **FAITHFUL, **NO_TEMPORAL_FILTERS}
    params |= LOOP_FILTERS if settings.loop_filters else NO_LOOP_FILTERS
    if settings.ctu_size is not None:
        params["sb-size"] = str(settings.ctu_size)
    return check_params({**params, **settings.params}, names="[A-Za-z0-9-]+")


def aom_encode_argv(
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
        ConfigError: libaom does not have these settings.
    """
    check_preset("libaom", settings.preset, (*SPEEDS, *map(str, range(MAX_SPEED + 1))))
    check_depth(source_format, settings)
    argv = encoder_input(ffmpeg, source, source_format, settings)
    argv += ["-c:v", "libaom-av1", *CONFIGURATION_OPTIONS[settings.configuration], "-cpu-used"]
    argv += [str(SPEEDS.get(settings.preset, settings.preset)), "-threads", str(settings.threads), "-row-mt", "0"]
    # Without equal limits libaom lowers the quantiser of key frames and raises that of others.
    level = str(quantiser_level(settings.qp))
    argv += ["-b:v", "0", "-crf", level, "-qmin", level, "-qmax", level]
    argv += ["-flags", "+psnr", "-vstats_file", STATISTICS, "-aom-params", join_params(aom_params(settings))]
    return [*argv, "-f", "obu", output]


class Av1Codec(Av1Encoder):
    """AV1 coded by libaom; see `codecnn.codec.Codec` for the contract."""

    name = "av1"
    library = "libaom-av1"
    version = r"libaom-av1 @ \w+\] v(\S+)"

    def params(self, settings: CodecSettings) -> dict[str, str]:
        """Return the parameters of libaom; see `aom_params`."""
        return aom_params(settings)

    def argv(
        self, ffmpeg: str, source: str, source_format: VideoFormat, settings: CodecSettings, output: str
    ) -> list[str]:
        """Return the ffmpeg command; see `aom_encode_argv`."""
        return aom_encode_argv(ffmpeg, source, source_format, settings, output)
