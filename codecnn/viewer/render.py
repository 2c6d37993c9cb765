"""The verb: a picture of a stream or a store, as a page."""

from dataclasses import dataclass
from pathlib import Path

from codecnn.codec import SUFFIXES
from codecnn.dataset import Unit, open_store
from codecnn.errors import ConfigError
from codecnn.viewer._gather import shown_stream, shown_unit
from codecnn.viewer._page import write_page


@dataclass(frozen=True)
class Viewed:
    """What a page shows: the picture's name, its layers, its coding units, and what is not there and why."""

    page: Path
    title: str
    layers: tuple[str, ...]
    units: int
    bytes: int
    notes: tuple[str, ...]


def view(
    source: Path | str,
    output: Path | str,
    *,
    model: Path | str | None = None,
    original: Path | str | None = None,
    picture: int = 0,
    sequence: str | None = None,
    qp: int | None = None,
    device: str = "auto",
) -> Viewed:
    """Write an HTML page, which needs no other file, of picture number `picture` of a VVC stream or of a store.

    The page has the picture's layers, the tree of its CUs over them, and every sample's values. `model` adds the
    picture that a network makes of it, `original` the errors (a store has its own). Of a store the unit is chosen by
    `sequence` and `qp`: the first that fits. Pictures are numbered from 0 in output order.

    Raises ConfigError for what does not go together, MissingFileError, FormatError, and what the network raises.
    """
    source, output = Path(source), Path(output)
    if output.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"{output} would hold a page of HTML: end its name in .html")
    if source.suffix.lower() in SUFFIXES:
        if sequence is not None or qp is not None:
            raise ConfigError(f"{source} is a stream: --sequence and -q choose a unit of a store")
        shown = shown_stream(source, picture, original=original, model=model, device=device)
    elif source.is_dir():
        if original is not None:
            raise ConfigError(f"{source} is a store, which has the originals of its pictures: leave --original away")
        unit = _unit(source, sequence, qp)
        shown = shown_unit(unit, picture, model=model, device=device)
    else:
        raise ConfigError(f"{source} is neither a VVC stream ({', '.join(SUFFIXES)}) nor a store's folder")
    write_page(output, shown)
    return Viewed(output, shown.title, tuple(shown.layers), len(shown.blocks), output.stat().st_size, shown.notes)


def _unit(folder: Path, sequence: str | None, qp: int | None) -> Unit:
    """The first unit of the store that has the sequence and the QP, as far as they are given."""
    units = open_store(folder).units
    for unit in units:
        if sequence in (None, unit.name) and qp in (None, unit.qp):
            return unit
    names = list(dict.fromkeys(unit.name for unit in units))
    if sequence is not None and sequence not in names:
        more = ", ..." if len(names) > 5 else ""
        raise ConfigError(f"store {folder} has no sequence {sequence!r}: it has {', '.join(names[:5])}{more}")
    qps = sorted({unit.qp for unit in units if sequence in (None, unit.name)})
    raise ConfigError(f"store {folder} has no such picture at QP {qp}: it has {', '.join(map(str, qps))}")
