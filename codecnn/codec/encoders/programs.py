"""The user's own executables: where they are, which version and which options they say they have."""

import functools
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from codecnn.errors import ConfigError, MissingFileError, ToolMissingError
from codecnn.runs import sha256_file
from codecnn.video.process import output_of

_OPTION = re.compile(r"^ +(?:-[\w-]+, *)? *--([\w-]+)", re.MULTILINE)
"""A line of the help text: "  -q, --QP  description" (doHelpOpt of program_options_lite.cpp, in VTM, HM and vvenc)."""


@dataclass(frozen=True)
class About:
    """What a program says of itself: its version and the long names of its options."""

    version: str
    options: frozenset[str]


def find_program(given: str | None, usual: Sequence[str], role: str, codec: str, home: str) -> str:
    """Absolute path of `given`, else of the first of the `usual` names that PATH has.

    Raises ToolMissingError saying what was looked for, how the recipe names it and where it comes from.
    """
    for name in (given,) if given else usual:
        if found := shutil.which(Path(name).expanduser()):
            return str(Path(found).absolute())
    looked_for = f"{given}, which is not an executable" if given else f"{' or '.join(usual)}, which is not in PATH"
    raise ToolMissingError(
        f"{codec} needs the {role} {looked_for}: name it in the recipe as tools: {{{role}: FILE}}; it comes from {home}"
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


def check_params(params: Mapping[str, str]) -> dict[str, str]:
    """The user's own settings as text. Raises ConfigError for what would not stay one argument of one option."""
    texts = {str(name): str(value) for name, value in params.items()}
    for name, value in texts.items():
        if not re.fullmatch(r"[A-Za-z0-9_]+", name) or not re.fullmatch(r"[\w .,:+/-]+", value, re.ASCII):
            raise ConfigError(f"encoder parameter {name}={value!r} is not a plain name and value")
    return texts
