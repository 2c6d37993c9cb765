"""Options that several commands share."""

import re
from pathlib import Path
from typing import Annotated, Literal

import typer

from codecnn.cluster import parse_shard
from codecnn.errors import ConfigError

Json = Annotated[bool, typer.Option("--json", help="print the result as JSON on stdout")]
Size = Annotated[str | None, typer.Option("-s", "--size", help="WxH of raw YUV, where its name does not tell")]
BitDepth = Annotated[int | None, typer.Option("--bit-depth", help="of raw YUV, where its name does not tell [8]")]
Chroma = Annotated[str | None, typer.Option("--chroma", help="400, 420, 422 or 444 [420]")]
Rate = Annotated[float | None, typer.Option("-r", "--rate", help="pictures a second")]
Packing = Annotated[str | None, typer.Option("--packing", help="of raw YUV, such as p010 [planar]")]
Frames = Annotated[int | None, typer.Option("-f", "--frames", min=1, help="only the first so many pictures")]
Pictures = Annotated[Path, typer.Option("-i", "--input", help="a video, a still, a folder of stills, or a store")]
BlockTable = Annotated[Path, typer.Option("-o", "--output", help="the table, .parquet, one row a block")]
Decoded = Annotated[
    Path | None, typer.Option("--decoded", help="the same pictures decoded, to predict from [the originals]")
]
DecodedQp = Annotated[int | None, typer.Option("-q", "--qp", min=0, max=63, help="of the decoded pictures")]
Splits = Annotated[str | None, typer.Option("--split", help="of a store: train, val or test, or several [train,val]")]
Jobs = Annotated[int, typer.Option("-j", "--jobs", min=1, help="encoders at a time")]
Shard = Annotated[str, typer.Option("--shard", metavar="I/N", help="do every N-th part of the work, from the I-th")]
Backend = Annotated[Literal["local", "dask"], typer.Option("--backend", help="who works: this machine or a cluster")]
Scheduler = Annotated[
    str | None, typer.Option("--scheduler", help="of dask, such as tcp://host:8786; its workers work")
]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N")]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY.SUB=VALUE]...", help="values instead of the file's")
]
Tile = Annotated[
    int | None,
    typer.Option("--tile", min=16, help="largest side of the tiles; the result does not depend on it [what is quick]"),
]
Exact = Annotated[
    bool | None,
    typer.Option(
        "--exact/--float",
        help="in integers, the same samples on every machine: NAME.int8.safetensors or NAME.int16 "
        "[integers where there is NAME.int8.safetensors]",
        show_default=False,
    ),
]

Precision = Annotated[
    Literal["float32", "bfloat16"],
    typer.Option("--precision", help="of networks in float: bfloat16 is quicker where the processor multiplies it"),
]


def read_spread(shard: str, backend: str, scheduler: str | None) -> tuple[tuple[int, int], str | None]:
    """The shard (i, n) and the scheduler's address of three options. Raises ConfigError for what is no such thing."""
    if (backend == "dask") != (scheduler is not None):
        raise ConfigError("--backend dask and --scheduler ADDRESS need each other")
    return parse_shard(shard), scheduler


def weights_file(weights: Path) -> Path:
    """The file of weights that an option names: a path, or one of the weights that come with codecnn."""
    from codecnn.models import weights_path

    return weights_path(weights)


def begun_weights(begun: str) -> list[str]:
    """Complete names of shipped weights, without `codecnn.models`, which imports torch."""
    folder = Path(__file__).resolve().parents[1] / "zoo"
    stems = {path.stem for path in folder.glob(f"{begun}*.safetensors")}
    return sorted(stem for stem in stems if not stem.endswith((".int8", ".int16")))


Model = Annotated[
    Path,
    typer.Option(
        "--model",
        "-m",
        callback=weights_file,
        autocompletion=begun_weights,
        help="weights: a name of `codecnn models`, or .safetensors with their card beside them",
    ),
]


def parse_qps(text: str) -> list[int]:
    """QPs of an option: a whole number, or a comma list of them. Raises ConfigError for anything else."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"QP {text!r} is not a whole number or a comma list of them, such as 22,27,32,37") from None


def parse_bytes(text: str) -> int:
    """Bytes of an option such as 2GiB, 512MiB or 64KiB. Raises ConfigError for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([KMG])iB", text.strip())
    if match is None or float(match[1]) == 0:
        raise ConfigError(f"memory {text!r} is not a size such as 2GiB or 512MiB")
    return int(float(match[1]) * 1024 ** ("KMG".index(match[2]) + 1))
