"""The user's own executables: where they are, which version and which options they say they have."""

import functools
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from codecnn.codec.base import CodecSettings
from codecnn.errors import ConfigError, MissingFileError, ToolMissingError
from codecnn.runs import sha256_file
from codecnn.video import VideoFormat, output_of

_OPTION = re.compile(r"^ +(?:-[\w-]+, *)? *--([\w-]+)", re.MULTILINE)
"""A line of the help text: "  -q, --QP  description" (doHelpOpt of program_options_lite.cpp, in VTM, HM and vvenc)."""


@dataclass(frozen=True)
class About:
    """What a program says of itself: its version and the long names of its options."""

    version: str
    options: frozenset[str]


@dataclass(frozen=True)
class Job:
    """What an encoder program is to do: code `frames` pictures of the raw YUV file `source` as `settings` say.

    `options` are those the program lists, `cfg` its configuration files in order; paths as the command names them.
    """

    options: frozenset[str]
    source: str
    format: VideoFormat
    frames: int
    settings: CodecSettings
    cfg: Sequence[str]


@dataclass(frozen=True)
class EncoderProgram:
    """What sets one encoder program apart from the others.

    `arguments` gives its argv after the program for a job, as a pure function; it raises ConfigError or FormatError for
    what the program does not take. `usual_cfg` names the configuration file that each configuration needs; None where
    none is needed. `version` is the pattern of its banner in what it answers `help_option`; `traces` says that its
    decoder can.
    """

    name: str
    title: str
    encoders: tuple[str, ...]
    decoders: tuple[str, ...]
    home: str
    version: str
    bitstream: str
    arguments: Callable[[Job], list[str]]
    help_option: str = "--help"
    usual_cfg: Mapping[str, str] | None = None
    traces: bool = False


def find_program(program: EncoderProgram, role: Literal["encoder", "decoder"], given: str | None) -> str:
    """Absolute path of `given`, else of the first of the usual names of that role that PATH has.

    Raises ToolMissingError saying what was looked for, how the recipe names it and where it comes from.
    """
    usual = program.encoders if role == "encoder" else program.decoders
    for name in (given,) if given else usual:
        if found := shutil.which(Path(name).expanduser()):
            return str(Path(found).absolute())
    looked_for = f"{given}, which is not an executable" if given else f"{' or '.join(usual)}, which is not in PATH"
    raise ToolMissingError(
        f"{program.name} needs the {role} {looked_for}: name it in the recipe as tools: {{{role}: FILE}}; "
        f"it comes from {program.home}"
    )


@functools.cache
def about(program: str, help_option: str, version: str) -> About:
    """Ask `program` for its help; `version` is the pattern of its banner, with the version as group 1.

    The text is read whatever the exit status: the test models end with 1 after their help.
    Raises ToolMissingError when the answer has no such banner, which means that it is another program.
    """
    text = output_of([program, help_option])
    banner = re.search(version, text)
    if banner is None:
        raise ToolMissingError(f"{program} does not answer {help_option} with its version: it is another program")
    return About(banner[1], frozenset(_OPTION.findall(text)))


def resolve_cfg(cfg: Sequence[Path], usual: Mapping[str, str] | None, configuration: str, codec: str) -> list[Path]:
    """Absolute paths of the configuration files; `usual` names the file that each configuration needs.

    Raises ConfigError when there is none but one is needed, MissingFileError when one does not exist.
    """
    if not cfg and usual is not None:
        raise ConfigError(
            f"{codec} needs a configuration file for {configuration}: name {usual[configuration]} of its sources "
            "in the recipe as tools: {cfg: [FILE]}"
        )
    return [_existing(path).resolve() for path in cfg]


def cfg_digest(cfg: Sequence[Path]) -> str:
    """The first 12 hex digits of each file's sha256, in order. Raises MissingFileError when one does not exist."""
    return "+".join(sha256_file(_existing(path))[:12] for path in cfg)


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise MissingFileError(f"the encoder's configuration file {path} does not exist")
    return path
