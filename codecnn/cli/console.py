"""Output of the commands: tables, facts and JSON on stdout; progress and errors on stderr."""

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement, measure_renderables
from rich.table import Column, Table

if TYPE_CHECKING:
    from codecnn.evaluation import Gains, Results
    from codecnn.evaluation import Table as JvetTable

out = Console(soft_wrap=True)
"""Output of the results. Lines are left whole, because scripts read them and terminals wrap them."""
err = Console(stderr=True)


@contextlib.contextmanager
def progress(description: str, unit: str) -> Iterator[Callable[[int, int], None]]:
    """Provide a function of (done, total) that updates a progress bar.

    The bar appears on the first call and ends when all work is done, so that its time is that of the work.

    Args:
        description: Text in front of the bar, e.g. "coding".
        unit: Unit of the counts, e.g. "picture".

    Yields:
        The function; its `total` is 0 if it is unknown.
    """
    from tqdm import tqdm

    bar: Any = None

    def report(done: int, total: int) -> None:
        nonlocal bar
        if bar is None:
            bar = tqdm(desc=description, unit=unit, disable=None)
        bar.total = total or None
        bar.update(done - bar.n)
        if 0 < total <= done:
            bar.close()

    try:
        yield report
    finally:
        if bar is not None:
            bar.close()


_WIDEST = 100_000
"""Width in characters at which no table wraps."""


def print_table(table: Table) -> None:
    """Print a table without cutting its cells.

    A file or a pipe gets the full width. On a terminal that is narrower, cells wrap; if their words do not fit either,
    each row becomes a list of its cells.
    """
    unlimited = out.options.update(width=_WIDEST)
    natural = Measurement.get(out, unlimited, table).maximum
    if not out.is_terminal:
        Console(file=out.file, width=natural).print(table)
        return
    ranges = [measure_renderables(out, unlimited, [column.header, *column.cells]) for column in table.columns]
    spare = out.width - natural + sum(largest for _, largest in ranges)
    spare -= sum(
        largest if column.no_wrap else smallest
        for column, (smallest, largest) in zip(table.columns, ranges, strict=True)
    )
    if spare >= 0:
        # Rich alone would make a column narrower than its longest word while another one has room.
        wrapping = [pair for pair in zip(table.columns, ranges, strict=True) if not pair[0].no_wrap]
        wrapping.sort(key=lambda pair: pair[1].maximum - pair[1].minimum)
        for number, (column, (smallest, largest)) in enumerate(wrapping):
            wider = min(largest - smallest, spare // (len(wrapping) - number))
            column.width, spare = smallest + wider, spare - wider
        out.print(table, soft_wrap=False)
        return
    heads = [str(column.header).replace("-\n", "").replace("/\n", "/").replace("\n", " ") for column in table.columns]
    if table.title:
        out.print(table.title)
    for row in zip(*(column.cells for column in table.columns), strict=True):
        facts = Table.grid(Column(overflow="fold"), Column(overflow="fold"), padding=(0, 2, 0, 0))
        for head, cell in zip(heads, row, strict=True):
            facts.add_row(head, cell)
        out.print(facts, soft_wrap=False)
        out.print()


def print_gains(all_results: "Sequence[Results]") -> None:
    """Print the gains of an evaluation as one table: gains in dB at each QP and BD-rate in %.

    Args:
        all_results: Results of each filter; a table of several has a row for each sequence and filter.
    """
    from codecnn.evaluation import joint_notes

    qps = sorted({qp for results in all_results for qp in results.qps})
    columns = [*map(str, qps), "mean"]
    several = len(all_results) > 1
    figures = (*(all_results[0].rate_mode.text(qp) for qp in qps), "mean", "BD-rate Y")
    table = Table(
        Column("sequence", overflow="fold"),
        *([Column("filter", overflow="fold")] if several else []),
        *(Column(title, justify="right", no_wrap=True) for title in figures),
        title="PSNR Y gain in dB, and BD-rate",
        title_justify="left",
        title_style="",
        # Without edges a table of two filters and five QPs fits into 80 columns.
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
    )

    def add(name: str, title: str, gains: "Gains", rate: float | None) -> None:
        first = [escape(name), *([escape(title)] if several else [])]
        table.add_row(*first, *(_decibel(gains.get(column)) for column in columns), _percent(rate))

    names = dict.fromkeys(name for results in all_results for name in results.sequence_gains())
    for name in names:
        shown = name
        for results in all_results:
            if (gains := results.sequence_gains().get(name)) is not None:
                add(shown, results.title, gains, results.bd_rate_per_sequence[name]["y"])
                shown = ""
        if several or name == list(names)[-1]:
            table.add_section()
    for number, results in enumerate(all_results):
        add("" if number else "mean", results.title, results.gain_db.get("y", {}), results.bd_rate["y"])
    print_table(table)
    for results in all_results:
        _print_facts_of(results)
    for note in joint_notes(all_results):
        out.print(note, markup=False, soft_wrap=True)


def _print_facts_of(results: "Results") -> None:
    """Print network, complexity and coding of a filter in one line, and what the table does not show of its gain."""
    cost = [] if results.kmac_per_pixel is None else [f"{results.kmac_per_pixel:.1f} kMAC/pixel"]
    facts = ", ".join([str(results.model), *cost, results.coding, str(results.label)])
    out.print(f"{results.title}: {facts}", markup=False, soft_wrap=True)
    if results.over_classes is not None:
        out.print(f"{results.title}, means over classes: {results.over_classes}", markup=False, soft_wrap=True)
    if results.bd_rate_network is not None:
        out.print(
            f"{results.title} with decisions ({results.decisions}), including their bits; the network alone: "
            f"{_decibel(results.mean_gain('y', network=True))} dB, {_percent(results.bd_rate_network['y'])}",
            markup=False,
            soft_wrap=True,
        )


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
        print_table(table)
        out.print(f"{each.coded}, {each.label}", markup=False)
        for note in each.notes:
            out.print(note, markup=False, soft_wrap=True)


def print_loop(results: Any, heads: Mapping[str, str]) -> None:
    """Print the BD-rates of filters in and behind the loop: a row a sequence, Y, U and V in %.

    Args:
        results: The results.
        heads: Heads of the columns by chain.
    """
    for model, means in results.bd_rate.items():
        table = Table("BD-rate Y / U / V", *(heads[chain] for chain in means))
        for name, chains in [*results.bd_rate_per_sequence[model].items(), ("mean", means)]:
            table.add_row(name, *(" / ".join(map(_percent, rates.values())) for rates in chains.values()))
        print_table(table)
        out.print(f"{model}: {results.library} {results.settings['preset']} LDB, decisions {results.decisions}")
    out.print(results.label)
    for note in results.notes:
        out.print(note, markup=False)


def _decibel(value: float | None) -> str:
    return "-" if value is None else f"{value:+.3f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:+.2f} %"


def print_facts(facts: dict[str, Any], as_json: bool) -> None:
    """Print facts one a line, without those that are unknown (None), or all as JSON."""
    if as_json:
        print_json(facts)
        return
    for name, value in facts.items():
        if value is not None:
            title = name.replace("kmac_per_pixel", "kMAC/pixel").replace("rdb_macs", "RDB MACs").replace("_", " ")
            out.print(f"{title:24} {_fact(value)}", markup=False, highlight=False, soft_wrap=True)


def _fact(value: Any) -> str:
    """Format a fact for people."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def print_json(value: Any) -> None:
    """Print a value as JSON on stdout, independent of the width of the terminal."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")
