"""Representations of results in notebooks: HTML tables, and data frames of pandas."""

import html
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from codecnn.base.errors import ToolMissingError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

SHOWN_ROWS = 20
"""Largest number of rows that a notebook shows of a long table."""


def html_table(heads: Sequence[str], rows: Iterable[Sequence[Any]], caption: str = "") -> str:
    """Return an HTML table; the first column is aligned to the left, numbers to the right.

    Args:
        heads: Titles of the columns.
        rows: Cells of each row; None becomes a dash.
        caption: Text above the table.
    """
    lines = ["<table>"]
    if caption:
        lines.append(f'<caption style="text-align:left">{html.escape(caption)}</caption>')
    lines.append(f"<thead><tr>{''.join(f'<th>{html.escape(head)}</th>' for head in heads)}</tr></thead><tbody>")
    for first, *others in rows:
        cells = "".join(f'<td style="text-align:right">{_text(cell)}</td>' for cell in others)
        lines.append(f'<tr><td style="text-align:left">{_text(first)}</td>{cells}</tr>')
    return "\n".join([*lines, "</tbody></table>"])


def facts_table(facts: Iterable[tuple[str, Any]], caption: str = "") -> str:
    """Return an HTML table of names and values, without values that are None."""
    rows = [
        f"<tr><th>{html.escape(name)}</th><td>{_text(value)}</td></tr>" for name, value in facts if value is not None
    ]
    title = f'<caption style="text-align:left">{html.escape(caption)}</caption>' if caption else ""
    return "\n".join(["<table>", title, "<tbody>", *rows, "</tbody></table>"])


def arrow_html(table: "pa.Table", caption: str) -> str:
    """Return the first rows of an Arrow table as an HTML table."""
    rows = [list(row.values()) for row in table.slice(0, SHOWN_ROWS).to_pylist()]
    rest = len(table) - len(rows)
    return html_table(table.column_names, rows, caption) + (f"<p>{rest:,} more rows</p>" if rest else "")


def data_frame(table: "pa.Table") -> "pd.DataFrame":
    """Convert an Arrow table to a data frame.

    Raises:
        ToolMissingError: pandas is not installed.
    """
    try:
        import pandas  # noqa: F401
    except ImportError:
        raise ToolMissingError(
            "to_pandas needs pandas: install it with `pip install codecnn[notebook]`, or use to_arrow"
        ) from None
    return table.to_pandas()


def _text(value: Any) -> str:
    """Format a value as text for HTML."""
    if isinstance(value, float):
        value = f"{value:.6g}"
    return "–" if value is None else html.escape(str(value))
