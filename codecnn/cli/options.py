"""Options that several commands share, and functions that parse their values."""

import os
import re
from pathlib import Path
from typing import Annotated, Literal

import typer

from codecnn.base.cluster import parse_shard
from codecnn.base.errors import ConfigError
from codecnn.cli.console import err

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
Size = Annotated[
    str | None,
    typer.Option("-s", "--size", help="Width and height of raw YUV in samples, e.g. 416x240 (default: from the name)."),
]
BitDepth = Annotated[
    int | None,
    typer.Option("--bit-depth", help="Bits per sample of raw YUV, e.g. 10 (default: from the name, else 8)."),
]
Chroma = Annotated[
    str | None,
    typer.Option("--chroma", help="Chroma format of raw YUV: 400, 420, 422 or 444 (default: from the name, else 420)."),
]
Rate = Annotated[
    float | None,
    typer.Option("-r", "--rate", help="Pictures per second, e.g. 50 (default: from the file or its name)."),
]
Packing = Annotated[
    str | None,
    typer.Option("--packing", help="Sample layout of raw YUV, e.g. p010 (default: from the name, else planar)."),
]
Frames = Annotated[
    int | None, typer.Option("-f", "--frames", min=1, help="Number of pictures to read from the start (default: all).")
]
Pictures = Annotated[
    Path, typer.Option("-i", "--input", help="Video, still picture, folder of still pictures, or store.")
]
BlockTable = Annotated[
    Path, typer.Option("-o", "--output", help="Table to write, with one row per block, e.g. labels.parquet.")
]
Decoded = Annotated[
    Path | None,
    typer.Option("--decoded", help="Decoded version of the same pictures for the reference samples (default: input)."),
]
DecodedQp = Annotated[
    int | None, typer.Option("-q", "--qp", min=0, max=63, help="Slice QP of the decoded pictures, e.g. 32.")
]
Splits = Annotated[
    str | None, typer.Option("--split", help="Splits of a store, e.g. test or train,val (default: train,val).")
]
Jobs = Annotated[int, typer.Option("-j", "--jobs", min=1, help="Number of encoders that run at the same time.")]
Shard = Annotated[
    str, typer.Option("--shard", metavar="I/N", help="Process every N-th item, starting with the I-th, e.g. 1/4.")
]
Backend = Annotated[
    Literal["local", "dask"], typer.Option("--backend", help="Run on this machine or on the workers of a dask cluster.")
]
Scheduler = Annotated[
    str | None,
    typer.Option("--scheduler", help="Address of the scheduler for --backend dask, e.g. tcp://host:8786."),
]
Device = Annotated[str, typer.Option("--device", help="Device of the computation: auto, cpu, cuda or cuda:N.")]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY.SUB=VALUE]...",
        help="Values that replace those of the file, e.g. qp=[27,37] or training.steps=2000.",
    ),
]
Tile = Annotated[
    int | None,
    typer.Option(
        "--tile", min=16, help="Largest tile side in samples; does not change the result (default: automatic)."
    ),
]
Exact = Annotated[
    bool | None,
    typer.Option(
        "--exact/--float",
        help="Compute in integers (NAME.int8.safetensors or NAME.int16.safetensors), with identical results on all "
        "machines, or in float (default: integers if NAME.int8.safetensors exists).",
        show_default=False,
    ),
]
Precision = Annotated[
    Literal["float32", "bfloat16", "tf32"],
    typer.Option(
        "--precision",
        help="Precision of float networks; bfloat16 is faster on processors that support it, tf32 on GPUs.",
    ),
]


def read_spread(shard: str, backend: str, scheduler: str | None) -> tuple[tuple[int, int], str | None]:
    """Parse the options --shard, --backend and --scheduler.

    Args:
        shard: "I/N".
        backend: "local" or "dask".
        scheduler: Address of a dask scheduler, or None.

    Returns:
        The shard (i, n) and the address of the scheduler.

    Raises:
        ConfigError: The shard has another form, or backend and scheduler do not fit together.
    """
    if (backend == "dask") != (scheduler is not None):
        raise ConfigError("--backend dask and --scheduler ADDRESS must be given together")
    return parse_shard(shard), scheduler


def weights_file(weights: Path) -> Path:
    """Return the file of weights that an option names: a path, or the name of shipped weights."""
    from codecnn.models import weights_path

    return weights_path(weights)


def complete_weights(prefix: str) -> list[str]:
    """List names of shipped weights with a prefix, for shell completion; does not import torch."""
    folder = Path(__file__).resolve().parents[1] / "models" / "shipped"
    stems = {path.stem for path in folder.glob(f"{prefix}*.safetensors")}
    return sorted(stem for stem in stems if not stem.endswith((".int8", ".int16")))


Model = Annotated[
    Path,
    typer.Option(
        "--model",
        "-m",
        callback=weights_file,
        autocompletion=complete_weights,
        help="Weights: a name from `codecnn models`, e.g. low_cost_17, or a .safetensors file with its card.",
    ),
]


def _optional_weights_file(weights: Path | None) -> Path | None:
    return None if weights is None else weights_file(weights)


OptionalModel = Annotated[
    Path | None,
    typer.Option(
        "--model",
        "-m",
        callback=_optional_weights_file,
        autocompletion=complete_weights,
        help="Weights: a name from `codecnn models`, e.g. low_cost_17, or a .safetensors file with its card "
        "(default: the filter that a stream carries).",
    ),
]


def permit_code(references: list[str] | None) -> list[str] | None:
    """Permit the code that an option names, before weights are loaded."""
    from codecnn.base.user_code import permit

    permit(*references or ())
    return references


Trust = Annotated[
    list[str] | None,
    typer.Option(
        "--trust",
        metavar="MODULE:NAME",
        callback=permit_code,
        is_eager=True,
        help="Code outside of codecnn that the weights may run, e.g. my_networks:Net; may be repeated.",
    ),
]


def limit_threads(device: str = "cpu") -> None:
    """Let PyTorch use fewer CPU threads, and say so, if other processes slow down all of them."""
    import torch

    threads = torch.get_num_threads()
    if fastest := _fewer_threads(device, threads):
        torch.set_num_threads(fastest)
        _say_busy(
            fastest,
            threads,
            f"{fastest} of {threads} {'is' if fastest == 1 else 'are'} used; set OMP_NUM_THREADS to choose the number",
        )


def advise_threads(device: str, threads: int) -> None:
    """Say that other processes slow down the CPU threads of a training; their number decides its bits and stays."""
    if fastest := _fewer_threads(device, threads):
        _say_busy(fastest, threads, f"training.threads={fastest} takes as many; {threads} are used")


def _fewer_threads(device: str, threads: int) -> int | None:
    """Return a smaller number of CPU threads that is faster at the moment, or None.

    The environment variables OMP_NUM_THREADS and MKL_NUM_THREADS, and several processes of torchrun, are left alone.
    """
    from codecnn.base.runtime import THREAD_VARIABLES, fastest_threads
    from codecnn.models import pick_device

    if threads == 1 or not {*THREAD_VARIABLES, "WORLD_SIZE"}.isdisjoint(os.environ):
        return None
    if pick_device(device).type != "cpu" or (fastest := fastest_threads(threads)) == threads:
        return None
    return fastest


def _say_busy(fastest: int, threads: int, consequence: str) -> None:
    number = "1 CPU thread is" if fastest == 1 else f"{fastest} CPU threads are"
    err.print(
        f"codecnn: other processes use the processor, and {number} faster than {threads} at the moment: {consequence}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


def parse_qps(text: str) -> list[int]:
    """Parse a QP or a comma-separated list of QPs; anything else raises ConfigError."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"QP {text!r} is not a whole number or a comma-separated list, e.g. 22,27,32,37") from None


def read_qps(text: str) -> list[int]:
    """Parse QPs from an option, or from a file of QPs separated by commas or blanks if the option names one."""
    if Path(text).is_file():
        text = ",".join(Path(text).read_text(encoding="utf-8", errors="replace").replace(",", " ").split())
    return parse_qps(text)


def parse_bytes(text: str) -> int:
    """Parse a memory size such as 2GiB, 512MiB or 64KiB into bytes; anything else raises ConfigError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([KMG])iB", text.strip())
    if match is None or float(match[1]) == 0:
        raise ConfigError(f"memory {text!r} is not a size such as 2GiB or 512MiB")
    return int(float(match[1]) * 1024 ** ("KMG".index(match[2]) + 1))
