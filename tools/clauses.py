"""Write the table of clauses of H.266 in docs/explanation/decoder.md from the docstrings of codecnn/vvc.

A docstring names its clauses in a paragraph of lines such as

    Clause 8.5.2.12, Derivation process for collocated motion vectors.
    Part of clause 8.5.2.2, Derivation process for luma motion vectors for merge mode.

python tools/clauses.py
python tools/clauses.py --table lfnst

`--table` prints a table of numbers of the decoder in the form of the standard, to compare the two.
"""

import argparse
import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
SOURCES = [("", ROOT / "codecnn" / "vvc" / "decoder"), ("syntax.", ROOT / "codecnn" / "vvc" / "syntax")]
"""Prefix of the names of modules in the table, and folder."""

PAGE = ROOT / "docs" / "explanation" / "decoder.md"
BEGIN, END = "<!-- Made by tools/clauses.py. -->\n", "<!-- End of the table. -->\n"

TABLES = {
    "lfnst": {
        "lfnst_16": "lowFreqTransMatrix (8.7.4.3), nTrS 16, lfnstTrSetIdx {}, lfnst_idx - 1 = {}",
        "lfnst_48": "lowFreqTransMatrix (8.7.4.3), nTrS 48, lfnstTrSetIdx {}, lfnst_idx - 1 = {}",
    },
    "mip": {f"mip_{size}": f"mWeight (8.4.5.2.4), mipSizeId {size}, modeId {{}}" for size in range(3)},
    "alf": {"alf_fixed": "AlfFixFiltCoeff (7.4.3.18)", "alf_class_to_fixed": "AlfClassToFiltMap (7.4.3.18)"},
}
"""Arrays of `decoder/tables.npz` by the argument of --table, and what each of their matrices is in the standard."""

_BEGIN = re.compile(r"(Part of c|C)lause [0-9A-Z]")
_LINE = re.compile(r"(?P<part>Part of c|C)lause (?P<number>[0-9A-Z]+(?:\.[0-9]+)+)(?:, (?P<title>.+))?\.")


class Clause(NamedTuple):
    """Clause that a docstring names.

    Attributes:
        number: Its number, e.g. 8.5.2.12.
        title: Its title; empty if the docstring has none.
        part: The function implements a part of it.
    """

    number: str
    title: str
    part: bool


class Function(NamedTuple):
    """Function or method of a module.

    Attributes:
        module: Module, e.g. merge, or syntax.transform.
        name: Name, e.g. zero_candidates or Decoder.decode.
        compiled: It is compiled with numba.
        clauses: Clauses that its docstring names.
    """

    module: str
    name: str
    compiled: bool
    clauses: tuple[Clause, ...]


def clauses_of(docstring: str) -> tuple[Clause, ...]:
    """Return the clauses that a docstring names."""
    clauses = []
    for paragraph in docstring.split("\n\n"):
        if _BEGIN.match(paragraph):
            # A line that does not begin a clause continues the title of the line before.
            for item in re.split(r"\n(?=(?:Part of c|C)lause [0-9A-Z])", paragraph):
                match = _LINE.fullmatch(item.replace("\n", " "))
                if match is None:
                    raise ValueError(f"this is not a clause and its title: {item}")
                clauses.append(Clause(match["number"], match["title"] or "", match["part"] != "C"))
    return tuple(clauses)


def functions() -> Iterator[Function]:
    """Yield the functions and methods of decoder and parser, those within functions included."""
    for prefix, folder in SOURCES:
        for path in sorted(folder.glob("*.py")):
            yield from _functions_in(prefix + path.stem, ast.parse(path.read_text()), "")


def _functions_in(module: str, node: ast.AST, prefix: str) -> Iterator[Function]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield from _functions_in(module, child, f"{child.name}.")
        elif isinstance(child, ast.FunctionDef):
            decorators = {ast.unparse(decorator) for decorator in child.decorator_list}
            compiled = not decorators.isdisjoint({"compiled", "compiled_inline", "compiled_entry"})
            clauses = clauses_of(ast.get_docstring(child) or "")
            yield Function(module, prefix + child.name, compiled, clauses)
            yield from _functions_in(module, child, prefix)


def titles() -> dict[str, set[str]]:
    """Return the titles that docstrings give each clause, by number in the order of the standard."""
    found: dict[str, set[str]] = {}
    for function in functions():
        for clause in function.clauses:
            found.setdefault(clause.number, set()).add(clause.title)
    return {number: found[number] for number in sorted(found, key=_order)}


def _order(number: str) -> list[tuple[bool, int, str]]:
    return [(not part.isdigit(), int(part) if part.isdigit() else 0, part) for part in number.split(".")]


def table() -> str:
    """Return the table as Markdown."""
    everything = list(functions())
    rows = ["| clause | title | functions | parts |", "|---|---|---|---|"]
    for number, names in titles().items():
        cells = []
        for part in (False, True):
            named = [f for f in everything if any((c.number, c.part) == (number, part) for c in f.clauses)]
            cells.append(", ".join(f"`{f.module}.{f.name}`" for f in named))
        rows.append(f"| {number} | {' / '.join(sorted(names))} | {cells[0]} | {cells[1]} |")
    return "\n".join(rows) + "\n"


def page() -> str:
    """Return the page with the table of today."""
    before, rest = PAGE.read_text().split(BEGIN)
    return before + BEGIN + "\n" + table() + "\n" + END + rest.split(END)[1]


def numbers(name: str) -> Iterator[str]:
    """Yield the lines of a table of numbers of the decoder, a pair of braces for each row as in the standard."""
    with np.load(ROOT / "codecnn" / "vvc" / "decoder" / "tables.npz") as arrays:
        for key, heading in TABLES[name].items():
            array = arrays[key]
            for index in np.ndindex(array.shape[:-2]):
                yield heading.format(*index)
                yield from ("{ " + " ".join(map(str, row)) + " }" for row in array[index].tolist())


def main() -> None:
    """Write the page, or print a table of numbers."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--table", choices=TABLES, help="print this table of numbers instead")
    name = parser.parse_args().table
    if name is None:
        PAGE.write_text(page())
    else:
        print("\n".join(numbers(name)))


if __name__ == "__main__":
    main()
