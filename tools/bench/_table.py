"""The page that `benchmark.py all` writes: page.md with a table for each benchmark, and one of quality."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from codecnn.models import Card

PAGE = Path(__file__).with_name("page.md")
WARNING = "**Made with `--quick`: sizes that only show that everything runs. The figures say nothing.**\n\n"


def document(results: Sequence[Mapping[str, Any]], cards: Mapping[str, Card], *, quick: bool) -> str:
    """The page in Markdown of the benchmarks' results and of the cards of weights, as `zoo_cards` gives them.

    A result has its words, status, rows, date, load, machine, versions and code; one with a status other than 0 is said
    to have failed. All results are of one machine, versions and code.
    """
    speed = []
    for result in results:
        speed += [f"`python tools/benchmark.py {result['words']}`", ""]
        if result["status"]:
            speed += [f"**Failed with status {result['status']}.**", ""]
        else:
            speed += ["| what | ours | peer | ratio |", "|---|---:|---:|---:|", *map(_line, result["rows"]), ""]
    versions = ", ".join(f"{name} {version}" for name, version in results[0]["versions"].items())
    return PAGE.read_text(encoding="utf-8").format(
        command="python tools/benchmark.py all -o docs/benchmark.md" + (" --quick" if quick else ""),
        warning=WARNING if quick else "",
        machine=_place(results),
        versions=f"{versions}; code {results[0]['code']}.",
        speed="\n".join(speed),
        quality="\n".join(quality(cards)),
    )


def quality(cards: Mapping[str, Card]) -> list[str]:
    """Lines of the table of quality: the weights of `cards`. What others published follows in page.md."""
    lines = ["| what | kMAC/pixel | gain, dB | BD-rate, % | source |", "|---|---:|---:|---:|---|"]
    for name, card in cards.items():
        found = card.test.luma if card.test else (None, None)
        gain, rate = (
            "–" if value is None else f"{value:+.{digits}f}" for value, digits in zip(found, (4, 2), strict=True)
        )
        source = f"`codecnn/zoo/{name}.json`" if card.test else "no test on its card"
        lines.append(f"| `{name}` | {card.kmac_per_pixel:.1f} | {gain} | {rate} | {source} |")
    return lines


def _line(row: Mapping[str, Any]) -> str:
    """What, ours, peer and ratio of a row."""
    unit, peer, ratio = row["unit"], row["peer"] or "–", "–"
    if "ratio" in row:
        peer, ratio = f"{_figure(row['theirs'])} {unit}, {row['peer']}", _figure(row["ratio"])
        if row["turns"] > 1:
            ratio += f" ({_figure(row['least'])} to {_figure(row['most'])})"
    elif row["note"]:
        peer += f": {row['note']}"
    return f"| {row['what']} | {_figure(row['ours'])} {unit} | {peer} | {ratio} |"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _place(results: Sequence[Mapping[str, Any]]) -> str:
    """Machine, days and load of the runs that results are of."""
    machine = results[0]["machine"]
    dates, loads = (sorted({result[key] for result in results}) for key in ("date", "load"))
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB, {machine['system']}; "
        f"{_span(dates)}; load before the run {_span([f'{load:.2f}' for load in loads])}."
    )


def _span(values: Sequence[str]) -> str:
    return " to ".join(dict.fromkeys((values[0], values[-1])))
