"""Function that shows pictures of a coded stream or of a store in an HTML page.

NumPy and others take time to import, so packages that need them are imported inside the functions.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from codecnn.api.groups import MODELS, Device, FileName
from codecnn.base.cluster import Progress
from codecnn.base.errors import ConfigError
from codecnn.base.options import argument, option, progress_bar, python_only, record, verb
from codecnn.base.outputs import check_outputs
from codecnn.base.rate_modes import rate_mode

if TYPE_CHECKING:
    from codecnn.dataset import Unit
    from codecnn.viewer.page import Page, Viewed
    from codecnn.viewer.shown import Shown

CHOICE, SERVER = "Pictures", "Server"
"""Groups of options in --help."""


@record
class ViewOptions:
    """Options of `view`."""

    source: Annotated[
        FileName,
        argument("Stream of VVC, HEVC, AVC or AV1, also in MP4, MKV or TS, or the folder of a store.", kind=Path),
    ]
    output: Annotated[FileName, option("-o", "--output", help="HTML page to write.")] = Path("view.html")
    _: KW_ONLY
    model: Annotated[
        FileName | Sequence[FileName] | None,
        replace(
            MODELS, help="Weights for a layer with the filtered pictures, e.g. low_cost_17; several can be compared."
        ),
    ] = None
    original: Annotated[
        FileName | None,
        option("--original", help="Original pictures of a stream, for PSNR and layers with the coding error."),
    ] = None
    picture: Annotated[
        int | None,
        option(
            "--picture",
            minimum=0,
            group=CHOICE,
            help="Number of the first picture in output order, from 0; alone: only this one.",
        ),
    ] = None
    frames: Annotated[
        int | None,
        option("-f", "--frames", minimum=1, group=CHOICE, help="Largest number of pictures (default: 17)."),
    ] = None
    sequence: Annotated[
        str | None, option("--sequence", group=CHOICE, help="Sequence of a store (default: the first).")
    ] = None
    qp: Annotated[
        int | None, option("-q", "--qp", group=CHOICE, help="QP of a store's unit, e.g. 37 (default: any).")
    ] = None
    serve: Annotated[
        bool,
        option("--serve", group=SERVER, help="Show the page on http://127.0.0.1 until Ctrl+C instead of writing it."),
    ] = False
    port: Annotated[
        int,
        option("--port", minimum=0, maximum=65535, group=SERVER, help="Port of --serve; 0 takes a free one."),
    ] = 0
    device: Device = "auto"
    served: Annotated[
        "Callable[[str, Page], None] | None",
        python_only("Called with the address and the page when `serve` begins."),
    ] = None
    progress: Annotated[
        Progress | None,
        progress_bar("packing", "picture", "Called with (pictures done, largest number of pictures)."),
    ] = None


@verb(ViewOptions)
def view(options: ViewOptions) -> "Viewed | None":
    """Show pictures in an HTML page: CUs, modes, motion, prediction, residual, in-loop filters, coding error.

    The page needs no other file and no network. The first run on a machine compiles code for about a minute.
    --serve keeps the pictures in memory and shows the page on the loopback interface until Ctrl+C, for pages that are
    too large for a file. The printed address has a random token; requests without it are refused.

    Returns:
        A summary of the page; None after `serve`.

    Raises:
        ConfigError: The options do not fit together, or there is no such picture.
        MissingFileError: A file does not exist.
        FormatError: A file does not have the expected format.
        ModelError: The network cannot be loaded.
    """
    from codecnn.dataset import input_files
    from codecnn.viewer.server import PageServer

    if options.serve:
        page = _page(options)
        with PageServer(page, options.port) as server, suppress(KeyboardInterrupt):
            if options.served is not None:
                options.served(server.url, page)
            server.serve_forever()
        return None
    output, model = Path(options.output), options.model
    models = [] if model is None else [model] if isinstance(model, Path | str) else list(model)
    inputs = input_files(options.source, options.original)
    if models:
        from codecnn.models import weights_files, weights_path  # imports torch

        inputs += weights_files(*map(weights_path, models))
    check_outputs([output], inputs)
    if output.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"{output} is written as an HTML page: end its name in .html")
    return _page(options).write(output)


def _page(options: ViewOptions) -> "Page":
    """Collect the page of a stream or a store."""
    from codecnn.viewer.layers import DEFAULT_PICTURES, stream_pictures, unit_pictures
    from codecnn.viewer.page import Page

    source, sequence, qp = Path(options.source), options.sequence, options.qp
    first = options.picture or 0
    count = options.frames or (DEFAULT_PICTURES if options.picture is None else 1)
    if not source.is_dir():
        if sequence is not None or qp is not None:
            raise ConfigError(f"{source} is a stream: leave out --sequence and -q, which choose a unit of a store")
        name = source.name
        shown = stream_pictures(
            source, first, count, original=options.original, model=options.model, device=options.device
        )
    else:
        if options.original is not None:
            raise ConfigError(f"{source} is a store, which holds the originals of its pictures: leave out --original")
        unit = _find_unit(source, sequence, qp)
        name = unit.title
        shown = unit_pictures(unit, first, count, model=options.model, device=options.device)
    return Page.of(name, _counted(shown, count, options.progress))


def _counted(pictures: "Iterable[Shown]", count: int, progress: Progress | None) -> "Iterable[Shown]":
    for done, shown in enumerate(pictures, 1):
        yield shown
        if progress is not None:
            progress(done, max(done, count))


def _find_unit(folder: Path, sequence: str | None, qp: int | None) -> "Unit":
    """Return the first unit of a store with the given sequence and QP."""
    from codecnn.dataset import open_store

    units = open_store(folder).units
    for unit in units:
        if sequence in (None, unit.name) and qp in (None, unit.qp):
            return unit
    names = list(dict.fromkeys(unit.name for unit in units))
    if sequence is not None and sequence not in names:
        more = ", ..." if len(names) > 5 else ""
        raise ConfigError(f"store {folder} has no sequence {sequence!r}: it has {', '.join(names[:5])}{more}")
    qps = sorted({unit.qp for unit in units if sequence in (None, unit.name)})
    raise ConfigError(
        f"store {folder} has no unit at {rate_mode(units[0].rate).text(qp)}: it has {', '.join(map(str, qps))}"
    )
