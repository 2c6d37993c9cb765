"""In-loop filters of a picture in their order: deblocking, SAO, ALF with cross-component ALF (H.266 clause 8.8.1)."""

from collections.abc import Sequence
from importlib import resources
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from codecnn.base.compiled import compiled_once
from codecnn.base.records import Records, new_record
from codecnn.vvc.decoder import alf, sao
from codecnn.vvc.decoder import deblocking as db
from codecnn.vvc.decoder.frame import SLICE_REGIONS, Frame
from codecnn.vvc.decoder.records import EDGE, PictureValues
from codecnn.vvc.syntax import ParsedPicture
from codecnn.vvc.syntax.maps import CtbCell

Plane = npt.NDArray[Any]


def _fixed_filters() -> npt.NDArray[np.int32]:
    """Load the fixed filters of luma ALF (AlfFixFiltCoeff by AlfClassToFiltMap), shape (16, 25, 12)."""
    with resources.files(__package__).joinpath("tables.npz").open("rb") as file, np.load(file) as tables:
        filters: npt.NDArray[np.int32] = tables["alf_fixed"][tables["alf_class_to_fixed"]].astype(np.int32)
        return filters


FIXED_FILTERS = _fixed_filters()
"""Coefficients of the fixed luma filters by set and class, shape (16, 25, 12)."""


class FilteredPlanes(NamedTuple):
    """Planes of a picture after each in-loop filter: luma, then Cb and Cr if the picture has chroma.

    Attributes:
        dbf: After deblocking.
        sao: After SAO.
        rec: After ALF and cross-component ALF: the decoded picture before cropping.
    """

    dbf: list[Plane]
    sao: list[Plane]
    rec: list[Plane]


def derive_edges(picture: ParsedPicture, frame: Frame) -> Records:
    """Derive the edges that deblocking filters.

    Part of clause 8.8.3.1, Deblocking filter process.

    Args:
        picture: The picture.
        frame: State of the reconstructed picture.

    Returns:
        Left and upper edges, elements of type EDGE, shape (2, rows, columns), a cell for each 4x4 luma samples.
    """
    edges = np.zeros((2, *frame.known.shape), EDGE)
    with compiled_once(db.derive_edges, "the edges of deblocking", "10 seconds"):
        db.derive_edges(frame.pic, frame.slice, frame.known, frame.motion, _deblocking_of_slices(picture), edges)
    return edges


def filter_picture(
    picture: ParsedPicture, frame: Frame, ctbs: Records, planes: Sequence[Plane], edges: Records
) -> FilteredPlanes:
    """Apply the in-loop filters to a picture.

    Clause 8.8.1, In-loop filter process.

    Args:
        picture: The picture.
        frame: State of the reconstructed picture.
        ctbs: CTUs of the picture, as `codecnn.vvc.syntax.ParsedCtus` has them.
        planes: Y, Cb and Cr before the filters, luma after the inverse luma mapping, int32, shape (rows, columns).
        edges: Edges, as `derive_edges` returns them.

    Returns:
        The planes after each filter; a filter that changes nothing returns the same arrays as the one before.
    """
    dbf = [np.ascontiguousarray(plane, np.int32) for plane in planes]
    if edges["bs"].any() or edges["bs_c"].any():
        dbf = [plane.copy() for plane in dbf]
        y, u, v = (plane.reshape(-1) for plane in (dbf[0], dbf[-2 % len(dbf)], dbf[-1]))
        slices = _deblocking_of_slices(picture)
        with compiled_once(db.deblock, "the deblocking filter", "15 seconds"):
            db.deblock(frame.pic, frame.known, slices, edges, y, u, v)
    near = usable_ctus(picture, ctbs["region"])
    after_sao = [_apply_sao(picture, ctbs, near, plane, component) for component, plane in enumerate(dbf)]
    return FilteredPlanes(dbf, after_sao, _apply_alf(picture, frame.pic, ctbs, near, after_sao))


def _deblocking_of_slices(picture: ParsedPicture) -> Records:
    """Return the values of the slices for deblocking, elements of type DEBLOCKING_SLICE."""
    slices = np.zeros(len(picture.slices), db.DEBLOCKING_SLICE)
    for values, part in zip(slices, picture.slices, strict=True):
        h = part.header
        values.disabled, values.subpicture = h.sh_deblocking_filter_disabled_flag, h.subpicture
        values.crossed = picture.sps.subpictures[h.subpicture].filtered
        values.beta_offset_div2[:], values.tc_offset_div2[:] = h.deblocking_offsets.beta, h.deblocking_offsets.tc
    return slices


def usable_ctus(picture: ParsedPicture, regions: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """Determine which CTUs around each CTU its SAO and ALF may use.

    Part of clause 8.8.4.2, CTB modification process.
    Part of clause 8.8.5.5, ALF boundary position derivation process.

    Args:
        picture: The picture.
        regions: Slice and tile of each CTU (`log.CodingUnit.region`), shape (rows, columns).

    Returns:
        Bit 3 * row + column is set if the CTU at that place of the 3x3 CTUs around it is inside the picture and no
        boundary that in-loop filters do not cross lies between; same shape.
    """
    tiles = picture.pps.tiles
    rows, columns = regions.shape
    subpictures, crossed = np.zeros((rows, columns), np.int64), np.zeros((rows, columns), np.bool_)
    for index, s in enumerate(picture.sps.subpictures):
        inside = slice(s.y, s.y + s.height), slice(s.x, s.x + s.width)
        subpictures[inside], crossed[inside] = index, s.filtered
    slice_of, tile_of = np.divmod(regions - 1, SLICE_REGIONS)
    facts = [np.pad(fact, 1, constant_values=-1) for fact in (slice_of, tile_of, subpictures)]
    near = np.zeros((rows, columns), np.int64)
    for row in range(3):
        for column in range(3):
            there = slice(row, row + rows), slice(column, column + columns)
            in_slice, in_tile, in_subpicture = (fact[there] == fact[1:-1, 1:-1] for fact in facts)
            usable = facts[0][there] >= 0
            usable &= in_slice | tiles.filter_across_slices
            usable &= in_tile | tiles.filter_across_tiles
            usable &= in_subpicture | crossed
            near |= usable.astype(np.int64) << (3 * row + column)
    return near


def _apply_sao(
    picture: ParsedPicture, ctbs: Records, near: npt.NDArray[np.int64], plane: Plane, component: int
) -> Plane:
    """Apply SAO to a component; return the same array if no CTU has offsets.

    Part of clause 8.8.4.1, Sample adaptive offset process.
    """
    parameters = np.ascontiguousarray(ctbs["sao"][..., component])
    if not parameters["sao_type_idx"].any():
        return plane
    sps = picture.sps
    shifts = (sps.log2_sub_width_c, sps.log2_sub_height_c) if component else (0, 0)
    layout = new_record(sao.ComponentLayout)
    layout.log2_ctb_width, layout.log2_ctb_height = sps.ctb_log2_size_y - shifts[0], sps.ctb_log2_size_y - shifts[1]
    layout.bit_depth = sps.bit_depth
    columns, rows = _virtual_boundaries(picture)
    layout.virtual_boundary_pos_x[: len(columns)] = np.array(columns, np.int64) >> shifts[0]
    layout.virtual_boundary_pos_y[: len(rows)] = np.array(rows, np.int64) >> shifts[1]
    out = plane.copy()
    with compiled_once(sao.offset_samples, "sample adaptive offset", "5 seconds"):
        sao.offset_samples(plane, out, parameters, near, layout)
    return out


def _virtual_boundaries(picture: ParsedPicture) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return picture.slices[0].picture_header.virtual_boundaries


def _clipping_values(indices: npt.NDArray[np.int32], bit_depth: int) -> npt.NDArray[np.int32]:
    """Return the clipping values (AlfClip) of clipping indices (table 8).

    Part of clause 7.4.3.18, Adaptive loop filter data semantics.
    """
    return np.array([1 << bit_depth, *(1 << (bit_depth - 1 - 2 * i) for i in range(1, 4))], np.int32)[indices]


class _AlfTables:
    """Filters of all slices of a picture, and the row of each slice's first filter in the tables.

    Attributes:
        luma: Coefficients and clipping values, shape (n, 2, 25, 12); the fixed filters come first.
        chroma: Coefficients and clipping values, shape (n, 2, 6).
        cross: Cross-component filters, shape (n, 7).
        luma_rows: For each slice, the rows of its luma filter sets.
        first_rows: For each slice, the first rows of the filters of Cb and Cr, then of both cross-component filters.
    """

    def __init__(self, picture: ParsedPicture) -> None:
        """Collect the filters of the slices."""
        depth = picture.sps.bit_depth
        no_clip = np.full_like(FIXED_FILTERS, 1 << depth)
        luma = [np.stack([FIXED_FILTERS, no_clip], 1)]
        chroma, cross = [np.zeros((0, 2, 6), np.int32)], [np.zeros((0, 7), np.int32)]
        self.luma_rows: list[list[int]] = []
        self.first_rows: list[tuple[int, int, int, int]] = []
        for part in picture.slices:
            selected, filters = part.header.alf, part.filters
            self.luma_rows.append(list(range(len(FIXED_FILTERS))))
            for number in selected.alf_aps_id_luma:
                f = filters[number]
                self.luma_rows[-1].append(sum(map(len, luma)))
                luma.append(np.stack([f.luma, _clipping_values(f.luma_clip, depth)])[None])
            first = sum(map(len, chroma))
            if selected.alf_aps_id_chroma is not None:
                f = filters[selected.alf_aps_id_chroma]
                chroma.append(np.stack([f.chroma, _clipping_values(f.chroma_clip, depth)], 1))
            first_cross = []
            for aps_id, name in ((selected.alf_cc_cb_aps_id, "cc_cb"), (selected.alf_cc_cr_aps_id, "cc_cr")):
                first_cross.append(sum(map(len, cross)))
                if aps_id is not None:
                    cross.append(getattr(filters[aps_id], name))
            self.first_rows.append((first, first, first_cross[0], first_cross[1]))
        self.luma, self.chroma, self.cross = (
            np.ascontiguousarray(np.concatenate(parts), np.int32) for parts in (luma, chroma, cross)
        )


def _filtered_by_alf(ctbs: Records) -> npt.NDArray[np.bool_]:
    """Return which CTUs ALF or cross-component ALF filters."""
    filtered: npt.NDArray[np.bool_] = np.any(ctbs["alf"], -1) | np.any(ctbs["cc_alf"], -1)
    return filtered


def _rectangles(picture: ParsedPicture, ctbs: Records, near: npt.NDArray[np.int64], tables: _AlfTables) -> Records:
    """List the rectangles that ALF filters: CTUs, divided at virtual boundaries.

    Clause 8.8.5.5, ALF boundary position derivation process.

    Args:
        picture: The picture.
        ctbs: CTUs of the picture.
        near: CTUs that each CTU may use, see `usable_ctus`.
        tables: Filters of the slices.

    Returns:
        Rectangles, elements of type `alf.RECTANGLE`.
    """
    pps, size = picture.pps, 1 << picture.sps.ctb_log2_size_y
    width, height = pps.pps_pic_width_in_luma_samples, pps.pps_pic_height_in_luma_samples
    columns, rows = _virtual_boundaries(picture)
    out = []
    for row, column in zip(*np.nonzero(_filtered_by_alf(ctbs)), strict=True):
        ctb: CtbCell = ctbs[row, column]
        index = (int(ctb.region) - 1) // SLICE_REGIONS
        chosen = [*(int(ctb.alf[i]) - 1 for i in range(3)), *(int(ctb.cc_alf[i]) - 1 for i in range(2))]
        filters = [tables.luma_rows[index][chosen[0]] if chosen[0] >= 0 else -1]
        filters += [
            first + value if value >= 0 else -1
            for first, value in zip(tables.first_rows[index], chosen[1:], strict=True)
        ]
        flags = int(near[row, column])
        x0, y0 = int(column) * size, int(row) * size
        x1, y1 = min(width, x0 + size), min(height, y0 + size)
        xs = [x0, *sorted(x for x in columns if x0 < x < x1), x1]
        ys = [y0, *sorted(y for y in rows if y0 < y < y1), y1]
        for top, bottom in pairwise(ys):
            for left, right in pairwise(xs):
                above = top == y0 and flags >> 1 & 1 == 1 and top not in rows
                below = bottom == y1 and flags >> 7 & 1 == 1 and bottom not in rows
                before = left == x0 and flags >> 3 & 1 == 1 and left not in columns
                after = right == x1 and flags >> 5 & 1 == 1 and right not in columns
                # The corners matter only if both CTUs next to them may be used.
                first_corner = not (above and before) or flags & 1 == 1
                last_corner = not (below and after) or flags >> 8 & 1 == 1
                sides = (before, after, above, below, first_corner, last_corner)
                out.append((left, top, right - left, bottom - top, *sides, filters[:3], filters[3:]))
    return np.array(out, alf.RECTANGLE)


def _apply_alf(
    picture: ParsedPicture, pic: PictureValues, ctbs: Records, near: npt.NDArray[np.int64], planes: list[Plane]
) -> list[Plane]:
    """Apply ALF and cross-component ALF to a picture; return the same arrays if no CTU has filters.

    Part of clause 8.8.5.1, Adaptive loop filter process.
    """
    if not _filtered_by_alf(ctbs).any():
        return planes
    tables = _AlfTables(picture)
    out = [plane.copy() for plane in planes]
    # Without chroma, luma stands for it in the arguments.
    sources, targets = (list(arrays) if len(arrays) > 1 else list(arrays) * 3 for arrays in (planes, out))
    with compiled_once(alf.filter_ctus, "the adaptive loop filter", "20 seconds"):
        alf.filter_ctus(
            pic, _rectangles(picture, ctbs, near, tables), tables.luma, tables.chroma, tables.cross, *sources, *targets
        )
    return out
