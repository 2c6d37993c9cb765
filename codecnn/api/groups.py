"""Options that several verbs share, and functions that parse their values."""

import re
from collections.abc import Sequence
from dataclasses import KW_ONLY
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from codecnn.base.choices import Precision, Tile
from codecnn.base.cluster import WHOLE, Shard, parse_shard
from codecnn.base.errors import ConfigError
from codecnn.base.options import argument, option, record

if TYPE_CHECKING:
    from fractions import Fraction

RAW_VIDEO = "Raw video"
AUXILIARY = "Auxiliary input"
DECISIONS = "Decisions"
COMPUTATION = "Computation"
MACHINES = "Many machines"
STORES = "Stores"
AUTO = "auto"
"""Name of weights by which codecnn chooses."""
MEMORY = 2 * 1024**3
"""Default limit in bytes for the tensors of a network."""


def weights_file(weights: Path | str) -> Path:
    """Return the file of weights: a path, or the name of shipped weights."""
    from codecnn.models import weights_path

    return weights_path(weights)


def chosen_weights_file(weights: Path | str) -> Path | None:
    """Return the file of weights; None for "auto", by which codecnn chooses."""
    return None if str(weights) == AUTO else weights_file(weights)


def complete_weights(prefix: str) -> list[str]:
    """List names of shipped weights with a prefix, for shell completion; does not import torch."""
    folder = Path(__file__).resolve().parents[1] / "models" / "shipped"
    stems = {path.stem for path in folder.glob(f"{prefix}*.safetensors")}
    return sorted(stem for stem in stems if not stem.endswith((".int8", ".int16")))


def parse_qps(text: str) -> tuple[int, ...]:
    """Parse a QP or a comma-separated list of QPs; anything else raises ConfigError."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(f"QP {text!r} is not a whole number or a comma-separated list, e.g. 22,27,32,37") from None


def read_qps(qp: int | Sequence[int] | Path | str | None) -> int | Sequence[int] | None:
    """Read QPs: numbers, a text such as "22,27", or a file of QPs separated by commas or blanks."""
    if not isinstance(qp, Path | str):
        return qp
    text = str(qp)
    if Path(text).is_file():
        text = ",".join(Path(text).read_text(encoding="utf-8", errors="replace").replace(",", " ").split())
    return parse_qps(text)


def parse_bytes(text: str) -> int:
    """Parse a memory size such as 2GiB, 512MiB or 64KiB into bytes; anything else raises ConfigError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([KMG])iB", text.strip())
    if match is None or float(match[1]) == 0:
        raise ConfigError(f"memory {text!r} is not a size such as 2GiB or 512MiB")
    return int(float(match[1]) * 1024 ** ("KMG".index(match[2]) + 1))


def parse_names(text: str) -> tuple[str, ...]:
    """Parse a comma-separated list of names."""
    return tuple(name.strip() for name in text.split(","))


def parse_pair(text: str) -> tuple[int, int]:
    """Parse "WxH"; anything else raises ConfigError."""
    from codecnn.pictures.files import parse_size

    return parse_size(text)


FileName = Path | str
"""A file name."""

_WEIGHTS_HELP = (
    "Weights: a name from `codecnn models`, e.g. low_cost_17, a .safetensors file with its card, the folder of one, or "
    "hf://OWNER/NAME of the Hugging Face hub"
)
Model = Annotated[
    FileName,
    option("-m", "--model", kind=Path, parse=weights_file, complete=complete_weights, help=f"{_WEIGHTS_HELP}."),
]
OptionalModel = Annotated[
    FileName | None,
    option(
        "-m",
        "--model",
        kind=Path,
        parse=chosen_weights_file,
        complete=complete_weights,
        help=f"{_WEIGHTS_HELP} (default, auto: the filter that a stream carries, else the best for the stream).",
    ),
]
MODELS = option(
    "-m",
    "--model",
    kind=Path,
    parse=weights_file,
    collect=list,
    complete=complete_weights,
    help=f"{_WEIGHTS_HELP}; repeat for several filters.",
)
"""Option for several weights."""
Fps = Annotated[
    "Fraction | float | str | None",
    option(
        "-r", "--rate", kind=float, group=RAW_VIDEO, help="Pictures per second (default: from the file or its name)."
    ),
]
Frames = Annotated[
    int | None, option("-f", "--frames", minimum=1, help="Number of pictures to read from the start (default: all).")
]
Jobs = Annotated[int, option("-j", "--jobs", minimum=1, help="Number of encoders that run at the same time.")]
Device = Annotated[str, option("--device", group=COMPUTATION, help="Device: auto, cpu, cuda or cuda:N.")]
Memory = Annotated[
    int | None,
    option(
        "--memory",
        parse=parse_bytes,
        shown="2GiB",
        group=COMPUTATION,
        help="Memory limit for the tensors of the network.",
        python="In bytes; None is no limit.",
    ),
]
Exact = Annotated[
    bool | None,
    option(
        "--exact/--float",
        group=COMPUTATION,
        help="Compute in integers (NAME.int8.safetensors or NAME.int16.safetensors), with identical results on all "
        "machines, or in float (default: integers if NAME.int8.safetensors exists).",
    ),
]
Overrides = Annotated[
    Sequence[str],
    argument(
        "Values that replace those of the file, e.g. qp=[27,37] or training.steps=2000.",
        "[KEY.SUB=VALUE]...",
        kind=str,
        collect=tuple,
    ),
]


@record
class NoOptions:
    """Options of a function that has none."""


@record
class RawVideo:
    """Format of raw YUV; an option overrides the name of the file."""

    _: KW_ONLY
    size: Annotated[
        str | tuple[int, int] | None,
        option(
            "-s",
            "--size",
            kind=str,
            group=RAW_VIDEO,
            help="Width and height of raw YUV in samples, e.g. 416x240 (default: from the name).",
        ),
    ] = None
    bit_depth: Annotated[
        int | None,
        option(
            "--bit-depth",
            group=RAW_VIDEO,
            help="Bits per sample of raw YUV, e.g. 10 (default: from the name, else 8).",
        ),
    ] = None
    chroma: Annotated[
        str | None,
        option(
            "--chroma",
            group=RAW_VIDEO,
            help="Chroma format of raw YUV: 400, 420, 422 or 444 (default: from the name, else 420).",
        ),
    ] = None
    packing: Annotated[
        str | None,
        option(
            "--packing",
            group=RAW_VIDEO,
            help="Sample layout of raw YUV, e.g. p010 (default: from the name, else planar).",
        ),
    ] = None

    def raw_format(self) -> dict[str, Any]:
        """Return the arguments of `codecnn.open_video` that these options are."""
        return {"size": self.size, "bit_depth": self.bit_depth, "chroma": self.chroma, "packing": self.packing}


@record
class NetworkComputation:
    """Computation of networks: device, precision, integers, tiles."""

    _: KW_ONLY
    device: Device = "auto"
    precision: Annotated[
        Precision,
        option(
            "--precision",
            kind=Precision,
            group=COMPUTATION,
            help="Precision of float networks; bfloat16 is faster on processors that support it, tf32 on GPUs.",
        ),
    ] = "float32"
    exact: Exact = None
    tile: Annotated[
        Tile,
        option(
            "--tile",
            kind=int,
            minimum=16,
            group=COMPUTATION,
            help="Largest tile side in samples; does not change the result (default: automatic).",
        ),
    ] = "auto"


@record
class ManyMachines:
    """Distribution of the work over processes or machines."""

    _: KW_ONLY
    shard: Annotated[
        Shard,
        option(
            "--shard",
            parse=parse_shard,
            shown="1/1",
            metavar="I/N",
            group=MACHINES,
            help="Do the I-th of N parts of the work, which take about the same time, e.g. 1/4.",
            python="As numbers, e.g. (1, 4).",
        ),
    ] = WHOLE
    backend: Annotated[
        Literal["local", "dask"] | None,
        option(
            "--backend",
            kind=Literal["local", "dask"],
            shown="local",
            group=MACHINES,
            help="Run on this machine or on the workers of a dask cluster, which needs --scheduler.",
        ),
    ] = None
    scheduler: Annotated[
        str | None,
        option(
            "--scheduler",
            group=MACHINES,
            help="Address of the scheduler of a dask cluster, e.g. tcp://host:8786.",
        ),
    ] = None

    def check_backend(self) -> None:
        """Raise ConfigError if backend and scheduler do not fit together."""
        if self.backend is not None and (self.backend == "dask") != (self.scheduler is not None):
            raise ConfigError("--backend dask and --scheduler ADDRESS must be given together")
