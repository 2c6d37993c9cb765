"""The command that adapts a network to a stream."""

from typing import Any

import typer

from codecnn.cli.commands import command
from codecnn.cli.console import err, print_facts
from codecnn.signalling import Adaptation, AdaptOptions, adapt

NOTHING_PAYS = 3
"""Exit status if no update pays."""


@command(
    "adapt",
    adapt,
    "codecnn adapt -m low_cost_yuv_17.vvc_video --original clip.y4m --stream clip.266 -o update.json",
    threads=True,
    resumable=True,
)
def show_adaptation(options: AdaptOptions, result: Adaptation, as_json: bool) -> None:
    """Print what the update gains and costs; status 3 if no update pays."""
    facts: dict[str, Any] = {
        "output": None if result.output is None else str(result.output),
        "pictures": result.pictures,
        "changed values": result.changed,
        "bits": result.bits,
        "gain": result.gain_db if as_json else ", ".join(f"{n.upper()} {g:+.4f} dB" for n, g in result.gain_db.items()),
        "rate at equal PSNR": result.rate_change if as_json else f"{result.rate_change:+.3%} (estimate)",
    }
    print_facts(facts, as_json)
    if result.output is None:
        err.print(
            f"codecnn: no update of this network pays for {options.stream}: {options.output} is not written, use the "
            "network as it is",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
        raise typer.Exit(NOTHING_PAYS)
