"""What the commands show: tables, facts, JSON on stdout; progress and errors on stderr."""

import contextlib
import json
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console
from rich.table import Table
from tqdm import tqdm

out = Console()
err = Console(stderr=True)


@contextlib.contextmanager
def progress(description: str, unit: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on a terminal, as a function of (done, total)."""
    with tqdm(desc=description, unit=unit, disable=None) as bar:

        def report(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield report


def print_gains(results: dict[str, Any]) -> None:
    """The gain table of an evaluation: a row a sequence, a column a QP, dB; BD-rate in percent."""
    qps = sorted({str(row["qp"]) for row in results["sequences"]}, key=int)
    table = Table("PSNR Y gain, dB", *(f"QP {qp}" for qp in qps), "mean", "BD-rate Y")
    rows: dict[str, dict[str, float]] = {row["name"]: {} for row in results["sequences"]}
    for row in results["sequences"]:
        if row["psnr_y"] is not None and row["psnr_y_filtered"] is not None:
            rows[row["name"]][str(row["qp"])] = row["psnr_y_filtered"] - row["psnr_y"]
    for name, gains in rows.items():
        gains["mean"] = sum(gains.values()) / len(gains) if gains else math.nan
        bd_rate = results["bd_rate_per_sequence"][name]["y"]
        table.add_row(name, *(_decibel(gains.get(qp)) for qp in (*qps, "mean")), _percent(bd_rate))
    means = results["gain_db"].get("y", {})
    table.add_section()
    table.add_row("mean", *(_decibel(means.get(qp)) for qp in (*qps, "mean")), _percent(results["bd_rate"]["y"]))
    out.print(table)
    if results["decisions"] != "none":
        network = results["gain_db_network"].get("y", {}).get("mean")
        bd_rate = results["bd_rate_network"]["y"]
        out.print(
            f"With decisions ({results['decisions']}), their bits counted; the network alone: "
            f"{_decibel(network)} dB, {_percent(bd_rate)}"
        )
    out.print(
        f"{results['name']}: {results['model']}, {results['kmac_per_pixel']:.1f} kMAC/pixel, {results['codec']} "
        f"{results['settings']['preset']} {results['settings']['configuration'].upper()}, {results['label']}"
    )
    for note in results["notes"]:
        out.print(note, markup=False)


def _decibel(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:+.3f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:+.2f} %"


def print_facts(facts: dict[str, Any], as_json: bool) -> None:
    """One fact a line, or all as JSON."""
    if as_json:
        print_json(facts)
        return
    for name, value in facts.items():
        text = f"{value:.3f}" if isinstance(value, float) else str(value)
        out.print(f"{name.replace('_', ' '):24} {text}", markup=False, highlight=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """JSON on stdout, whatever the width of the terminal."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")
