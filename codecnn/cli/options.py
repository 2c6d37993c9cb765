"""Options of all commands, and advice on the number of CPU threads."""

import os
from typing import Annotated

import typer

from codecnn.cli.console import err

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]


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
        number = "1 CPU thread is" if fastest == 1 else f"{fastest} CPU threads are"
        _say_busy(
            f"{number} faster than {threads} at the moment: {fastest} of {threads} {'is' if fastest == 1 else 'are'} "
            "used; set OMP_NUM_THREADS to choose the number"
        )


def advise_threads(device: str, threads: int) -> None:
    """Say that other processes slow down the CPU threads of a training; their number decides its bits and stays."""
    if fastest := _fewer_threads(device, threads):
        number = f"{fastest} thread{'' if fastest == 1 else 's'}"
        _say_busy(
            f"{number} would be faster than the {threads} that are used: stop with Ctrl-C and start again with "
            f"training.threads={fastest}"
        )


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


def _say_busy(consequence: str) -> None:
    err.print(
        f"codecnn: other processes use the processor, and {consequence}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
