"""What encoders do not take, each said in one sentence before any of them is started."""

import re
from collections.abc import Mapping

from codecnn.codec.base import CodecSettings
from codecnn.errors import ConfigError, FormatError
from codecnn.video import VideoFormat

HEVC_MAX_QP = 51
"""H.265 clause 7.4.7.1: SliceQpY ends at 51."""


def check_params(
    params: Mapping[str, str], names: str = "[A-Za-z0-9_]+", values: str = "[A-Za-z0-9_.,+-]+"
) -> dict[str, str]:
    """The encoder's own parameters as text, `names` and `values` being patterns of what it can be given.

    Raises ConfigError for what would not stay one parameter, such as a value that brings a separator along.
    """
    texts = {str(name): str(value) for name, value in params.items()}
    for name, value in texts.items():
        if not re.fullmatch(names, name) or not re.fullmatch(values, value, re.ASCII):
            raise ConfigError(f"encoder parameter {name}={value!r} is not a plain name and value")
    return texts


def check_preset(library: str, preset: str, presets: tuple[str, ...]) -> None:
    """Raise ConfigError unless `preset` is one of the library's."""
    if preset not in presets:
        raise ConfigError(f"{library} has no preset {preset!r}: one of {', '.join(presets)}")


def check_ctu_size(whose: str, size: int | None, sizes: tuple[int, ...]) -> None:
    """Raise ConfigError unless the CTU size is one of those of a standard or an encoder, or left to it (None)."""
    if size is not None and size not in sizes:
        raise ConfigError(f"CTU size {size} is not one of {whose}'s {', '.join(map(str, sizes))}")


def check_hevc(settings: CodecSettings) -> None:
    """Raise ConfigError for a QP or a CTU size that HEVC does not have."""
    if settings.qp > HEVC_MAX_QP:
        raise ConfigError(f"QP {settings.qp} is out of range for HEVC: 0 to {HEVC_MAX_QP}")
    check_ctu_size("HEVC", settings.ctu_size, (16, 32, 64))


def check_even(library: str, source_format: VideoFormat) -> None:
    """Raise FormatError for an odd width or height, whatever the chroma format."""
    if source_format.width % 2 or source_format.height % 2:
        raise FormatError(
            f"{library} needs an even width and height, not {source_format.width}x{source_format.height}: pad to even"
        )


def check_depth(source_format: VideoFormat, settings: CodecSettings) -> None:
    """Raise ConfigError for a source of more bits than the encoder works with."""
    if source_format.bit_depth > settings.internal_bit_depth:
        raise ConfigError(
            f"a source of {source_format.bit_depth} bit cannot be coded at {settings.internal_bit_depth} bit internally"
        )


def check_program_source(source_format: VideoFormat, settings: CodecSettings) -> None:
    """Raise ConfigError or FormatError for a source that no encoder program codes as it stands."""
    odd_width = source_format.chroma in ("420", "422") and source_format.width % 2
    odd_height = source_format.chroma == "420" and source_format.height % 2
    if odd_width or odd_height:
        raise FormatError(
            f"{source_format.chroma} of {source_format.width}x{source_format.height} cannot be coded: pad to even"
        )
    check_depth(source_format, settings)
