"""The command that shows pictures in an HTML page."""

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from codecnn.cli.commands import command
from codecnn.cli.console import err, print_facts
from codecnn.viewer import ViewOptions, view

if TYPE_CHECKING:
    from codecnn.viewer import Page, Viewed


def _print_address(options: ViewOptions, as_json: bool) -> ViewOptions:
    """Let --serve print the address of the page."""

    def show(url: str, page: "Page") -> None:
        _print_notes(page.notes)
        print_facts({"url": url, "title": page.title, "pictures": len(page.data["pictures"])}, as_json)
        sys.stdout.flush()

    return replace(options, served=show)


@command(
    "view",
    view,
    "codecnn view stream.266 -m low_cost_17 --original original_416x240_10bit.yuv -o view.html",
    trust=True,
    before=_print_address,
)
def show_viewed(_options: ViewOptions, viewed: "Viewed | None", as_json: bool) -> None:
    """Print a summary of the page."""
    if viewed is None:
        return
    _print_notes(viewed.notes)
    print_facts(
        {
            "page": str(viewed.page),
            "title": viewed.title,
            "pictures": viewed.pictures,
            "layers": list(viewed.layers) if as_json else ", ".join(viewed.layers),
            "cus": viewed.units,
            "bytes": viewed.bytes,
        },
        as_json,
    )


def _print_notes(notes: tuple[str, ...]) -> None:
    for note in notes:
        err.print(f"codecnn: {note}", markup=False, highlight=False, soft_wrap=True)
