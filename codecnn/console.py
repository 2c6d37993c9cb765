"""Output of the commands: tables, facts and JSON on stdout; progress and errors on stderr."""

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from tqdm import tqdm

if TYPE_CHECKING:
    from codecnn.evaluation import Gains, Results
    from codecnn.evaluation import Table as JvetTable
    from codecnn.evaluation.in_loop import LoopResults

out = Console()
err = Console(stderr=True)


@contextlib.contextmanager
def progress(description: str, unit: str) -> Iterator[Callable[[int, int], None]]:
    """Provide a function of (done, total) that updates a progress bar; the bar appears on the first call.

    Args:
        description: Text in front of the bar, e.g. "coding".
        unit: Unit of the counts, e.g. "picture".

    Yields:
        The function.
    """
    with contextlib.ExitStack() as stack:
        bar: Any = None

        def report(done: int, total: int) -> None:
            nonlocal bar
            bar = bar or stack.enter_context(tqdm(desc=description, unit=unit, disable=None))
            bar.total = total
            bar.update(done - bar.n)

        yield report


def print_gains(results: "Results") -> None:
    """Print the gains of an evaluation as a table: a row a sequence, gains in dB at each QP, BD-rate in %."""
    columns = [*map(str, results.qps), "mean"]
    table = Table("PSNR Y gain, dB", *(f"QP {qp}" for qp in results.qps), "mean", "BD-rate Y")

    def add(name: str, gains: "Gains", rate: float | None) -> None:
        table.add_row(name, *(_decibel(gains.get(column)) for column in columns), _percent(rate))

    for name, gains in results.sequence_gains().items():
        add(name, gains, results.bd_rate_per_sequence[name]["y"])
    table.add_section()
    add("mean", results.gain_db.get("y", {}), results.bd_rate["y"])
    out.print(table)
    if results.over_classes is not None:
        out.print(f"Means over classes: {results.over_classes}")
    if results.bd_rate_network is not None:
        out.print(
            f"With decisions ({results.decisions}), including their bits; the network alone: "
            f"{_decibel(results.mean_gain('y', network=True))} dB, {_percent(results.bd_rate_network['y'])}"
        )
    out.print(
        f"{results.name}: {results.model}, {results.kmac_per_pixel:.1f} kMAC/pixel, {results.codec} "
        f"{results.settings['preset']} {results.settings['configuration'].upper()}"
        f"{' CTC' if results.settings.get('ctc') else ''}, {results.label}"
    )
    for note in results.notes:
        out.print(note, markup=False)


def print_tables(tables: "Sequence[JvetTable]") -> None:
    """Print a table for each filter and configuration: BD-rate in %, mean luma gain in dB, seconds a picture."""
    for each in tables:
        heads = ("BD-rate", "Y", "U", "V", "YUV", "gain Y, dB", "encoder s", "filter s")
        table = Table(*heads, title=f"{each.name}, {each.title}", title_justify="left")
        for row in each.rows:
            times = (
                f"{value:.2f}" if value is not None else "-" for value in (row.encoder_seconds, row.filter_seconds)
            )
            rates = (_percent(row.bd_rate.get(key)) for key in ("y", "u", "v", "yuv_611"))
            table.add_row(row.name, *rates, _decibel(row.gain_y), *times, end_section=row.kind == "overall")
        out.print(table)
        out.print(f"{each.coded}, {each.label}", markup=False)


def print_loop(results: "LoopResults") -> None:
    """Print the BD-rates of filters in and behind the loop: a row a sequence, Y, U and V in %."""
    for model, means in results.bd_rate.items():
        table = Table("BD-rate Y / U / V", *(chain.replace("_", " ") for chain in means))
        for name, chains in [*results.bd_rate_per_sequence[model].items(), ("mean", means)]:
            table.add_row(name, *(" / ".join(map(_percent, rates.values())) for rates in chains.values()))
        out.print(table)
        out.print(f"{model}: {results.library} {results.settings['preset']} LDB, decisions {results.decisions}")
    out.print(results.label)
    for note in results.notes:
        out.print(note, markup=False)


def _decibel(value: float | None) -> str:
    return "-" if value is None else f"{value:+.3f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:+.2f} %"


def print_facts(facts: dict[str, Any], as_json: bool) -> None:
    """Print facts one a line, or all as JSON."""
    if as_json:
        print_json(facts)
        return
    for name, value in facts.items():
        text = f"{value:.3f}" if isinstance(value, float) else str(value)
        out.print(f"{name.replace('_', ' '):24} {text}", markup=False, highlight=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """Print a value as JSON on stdout, independent of the width of the terminal."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")
