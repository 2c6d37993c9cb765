"""Pages of the site that are made from the code: the command line, the zoo; and docstrings as docutils reads them."""

import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

_ALIGNED = re.compile(r"^\S.*\S {2,}\S")
"""A line of an aligned list: a name, two spaces or more, what it is."""


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("source-read", _append)
    app.connect("autodoc-process-docstring", _restructure)
    app.connect("build-finished", _lead_in)
    return {"parallel_read_safe": True}


def _append(_app: Sphinx, name: str, source: list[str]) -> None:
    """Put what is generated behind the text of its page."""
    if name == "docs/site/commands":
        source[0] += command_line()
    elif name == "docs/site/zoo":
        source[0] += zoo()


def command_line() -> str:
    """Every command with its options, by typer's own writer."""
    import typer
    from typer.cli import get_docs_for_click

    from codecnn import cli

    command = typer.main.get_command(cli.app)
    text = get_docs_for_click(obj=command, ctx=typer.Context(command), name="codecnn", title="Every command")
    # The page has its title already, and every [default] is code rather than a link.
    text = re.sub(r"^(#+) ", r"#\1 ", text, flags=re.M)
    return "\n" + re.sub(r"\[(default|required|x)", r"\\[\1", text)


def zoo() -> str:
    """The card of all weights that come with the package, from the lowest to the highest cost."""
    from codecnn.base.rate_modes import rate_mode
    from codecnn.models import zoo_cards

    lines: list[str] = []
    for name, card in zoo_cards().items():
        options = ", ".join(f"{key} {_text(value)}" for key, value in card.options.items() if key != "planes")
        lines += [
            f"\n## {name}\n",
            f"- **network** `{card.network}`: {options}",
            f"- **planes** {_text(card.options['planes'])}; **QPs** {_text(card.qps or ())}",
            f"- **cost** {card.kmac_per_pixel:.1f} kMAC/pixel, {card.parameters:,} parameters, "
            f"receptive field {card['receptive_field']}",
        ]
        for one in card.trained_on or ():
            lines += [
                f"- **trained on** `{one.name}`: {sum(one.sequences.values())} sequences, {one.varied} of them "
                f"variants; {one.codec} {one.preset}, {one.configuration}, by {one.encoder}"
            ]
        if card.test is not None:
            gain, rate = card.test.luma
            where = ""
            if (over := card.test.over_classes) is not None:
                where = f" in the mean over {over.classes} classes"
                if over.bd_rate_y_ci95 is not None:
                    where += ", 95 % interval {:+.2f} to {:+.2f} %".format(*over.bd_rate_y_ci95)
            gains = {qp: value for qp, value in card.test.gain_db["y"].items() if value is not None and qp != "mean"}
            mode = rate_mode(card["test"]["settings"].get("rate"))
            by_qp = ", ".join(f"{value:+.3f} at {mode.text(qp)}" for qp, value in gains.items())
            form = "" if card.test.bits is None else f" of {card.test.bits}-bit integers"
            lines += [f"- **test**{form} {gain:+.3f} dB, {rate:+.2f} % BD-rate Y{where}", f"- **gain Y, dB** {by_qp}"]
        lines += [f"- **SHA-256** `{card.sha256}`"]
    return "\n".join(lines) + "\n"


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _restructure(_app: Sphinx, _what: str, _name: str, _obj: object, _options: object, lines: list[str]) -> None:
    """Our docstrings are prose with `code` in it; indented examples and aligned lists stay as they are."""
    made: list[str] = []
    literal = False
    for line in lines:
        if line.startswith("Alias for field number"):
            continue
        own = line.startswith(" ") or (_ALIGNED.match(line) is not None)
        if own and not literal:
            made += ["", "::", ""]
        elif literal and line and not own:
            made.append("")
        literal = own or (literal and not line)
        made.append(f"    {line}" if own else line if literal else _escaped(line))
    lines[:] = [*made, ""]


def _escaped(line: str) -> str:
    """Stars, bars and trailing underscores mean nothing in our prose, and are left alone in code."""
    parts = line.split("`")
    for index in range(0, len(parts), 2):
        parts[index] = re.sub(r"([*|\\]|_(?!\w))", r"\\\1", parts[index])
    # A word that goes on behind code, as in `Picture`s, must be parted from it for docutils.
    for index in range(2, len(parts), 2):
        parts[index] = re.sub(r"^(?=\w)", r"\\ ", parts[index])
    return "`".join(parts)


def _lead_in(app: Sphinx, error: Exception | None) -> None:
    """The site's own first page leads to that of the documents."""
    if error is None and app.builder.format == "html":
        target = f"{app.config.root_doc}.html"
        page = (
            '<!doctype html><meta charset="utf-8"><title>codecnn</title>'
            f'<meta http-equiv="refresh" content="0; url={target}"><a href="{target}">codecnn</a>\n'
        )
        Path(app.outdir, "index.html").write_text(page, "utf-8")
