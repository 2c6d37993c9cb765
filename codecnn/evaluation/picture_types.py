"""What a filter gains on intra pictures, and on inter pictures by the temporal layer that they are in."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from codecnn.codec import UNKNOWN_CODEC, read_headers, shown_pictures
from codecnn.dataset import Unit
from codecnn.errors import CodecnnError
from codecnn.evaluation.measure import Cell
from codecnn.evaluation.rows import (
    AFTER,
    Gains,
    Rates,
    Record,
    bd_rates,
    by_sequence,
    gains_by_plane,
    make_row,
    mean_rates,
)


class PictureTypes(Record):
    """The pictures of one type, of all sequences: how many a QP, their gains in dB and BD-rates in %.

    The curves of a BD-rate are those of these pictures alone, mean PSNR over their own bits. It is None where a
    sequence has none: fewer than four QPs, or pictures so small that their bits and their quality do not rise together.
    """

    pictures: int
    gain_db: dict[str, Gains]
    bd_rate: Rates


def picture_types(units: Iterable[Unit]) -> dict[str, tuple[str, ...]]:
    """The type of each picture of the units that have inter pictures, by the units' keys: "I", "B layer 2", ...

    The temporal layer is that of the bitstream's headers; without a stream that can be read there is the type alone.
    """
    found = {}
    for unit in units:
        kinds = [picture.slice_type for picture in unit.pictures]
        if set(kinds) <= {"I", UNKNOWN_CODEC}:
            continue
        layers = _layers(unit)
        if len(layers) == len(kinds):
            kinds = [
                kind if kind == "I" else f"{kind} layer {layer}" for kind, layer in zip(kinds, layers, strict=True)
            ]
        found[unit.key] = tuple(kinds)
    return found


def _layers(unit: Unit) -> list[int]:
    """The temporal layer of each picture in output order; empty where no stream tells."""
    if not unit.has("bitstream"):
        return []
    try:
        return [picture.temporal_id for picture in shown_pictures(read_headers(unit.path("bitstream")))]
    except CodecnnError:
        return []


def by_picture_type(cells: Sequence[Cell], types: Mapping[str, Sequence[str]]) -> dict[str, PictureTypes]:
    """The figures of each type, I first and then by layer, of the cells of one filter whose units are in `types`."""
    rows = defaultdict(list)
    for cell in cells:
        places = defaultdict(list)
        for index, kind in enumerate(types.get(cell.unit.key, ())):
            places[kind].append(index)
        for kind, which in places.items():
            rows[kind].append(make_row(cell.unit, cell.decoded, cell.filtered, which))
    return {
        kind: PictureTypes(
            pictures=sum(row.pictures or 0 for row in own) // len({row.qp for row in own}),
            gain_db=gains_by_plane(own, AFTER),
            bd_rate=mean_rates(bd_rates(group, AFTER, "pchip", []) for group in by_sequence(own).values()),
        )
        for kind, own in sorted(rows.items(), key=lambda item: (item[0] != "I", item[0]))
    }
