"""In-loop filters of a picture in their order: deblocking, SAO, ALF with cross-component ALF (H.266 clause 8.8.1)."""

from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from codecnn.base.compiled import compiled_once
from codecnn.base.records import Records, new_record
from codecnn.vvc.decoder import alf, sao
from codecnn.vvc.decoder import deblocking as db
from codecnn.vvc.decoder.cells import EDGE
from codecnn.vvc.decoder.frame import SLICE_REGIONS, Frame
from codecnn.vvc.decoder.plane_memory import PlaneMemory
from codecnn.vvc.syntax import COMPILATION, LumaMapping, ParsedPicture, inverse_map

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
        rec: After ALF and cross-component ALF, uint16: the decoded picture before cropping.
    """

    dbf: list[Plane]
    sao: list[Plane]
    rec: list[Plane]


class PictureFilters:
    """In-loop filters of a picture, applied to rows of CTUs while those below are still reconstructed.

    Deblocking of a row of CTUs changes samples of the row above, and SAO and ALF use samples of the rows around. So SAO
    is one row behind deblocking, and ALF one row behind SAO, until the last row is there.

    Attributes:
        edges: Left and upper edges that deblocking filters, elements of type EDGE, shape (2, rows, columns), a cell
            for each 4x4 luma samples.
        unfiltered: Y, Cb and Cr before the filters; luma is that after the inverse luma mapping.
        filtered: The planes after each filter. If SAO changes nothing, its arrays are those after deblocking.
    """

    def __init__(
        self,
        picture: ParsedPicture,
        frame: Frame,
        ctbs: Records,
        planes: Sequence[Plane],
        memory: PlaneMemory | None = None,
        target: Sequence[Plane] = (),
        filtered: bool = True,
        strengths: bool = True,
    ) -> None:
        """Allocate the planes.

        Args:
            picture: The picture.
            frame: State of the picture, which is or will be reconstructed.
            ctbs: CTUs of the picture, as `codecnn.vvc.syntax.ParsedCtus` has them.
            planes: Y, Cb and Cr before the inverse luma mapping, int32, shape (rows, columns).
            memory: Memory of the filtered planes; None allocates them.
            target: Components that the decoded picture is written to, uint16; empty allocates them.
            filtered: Apply the filters; otherwise `filtered` stays empty.
            strengths: Derive the edges if the picture is not filtered.
        """
        self._picture, self._frame, self._mapped = picture, frame, planes[0]
        mapped = any(part.header.sh_lmcs_used_flag for part in picture.slices)
        self.unfiltered = [np.empty_like(planes[0]) if mapped else planes[0], *planes[1:]]
        self.edges = np.zeros((2, *frame.known.shape), EDGE)
        self._slices = _deblocking_of_slices(picture)
        self._near = usable_ctus(picture, ctbs["region"])
        self._strengths = filtered or strengths
        memory = memory or PlaneMemory()
        dbf = [memory.take(plane.shape, np.int32) for plane in planes] if filtered else []
        self._sao = [np.ascontiguousarray(ctbs["sao"][..., component]) for component in range(len(dbf))]
        after_sao = [
            memory.take(plane.shape, np.int32) if parameters["sao_type_idx"].any() else plane
            for plane, parameters in zip(dbf, self._sao, strict=True)
        ]
        self._tables = _AlfTables(picture) if _filters_of_ctus(ctbs).any() else None
        rec = list(target) or [np.empty(plane.shape, np.uint16) for plane in dbf]
        self._rectangles = None if self._tables is None else _rectangles(picture, ctbs, self._near, self._tables)
        self.filtered = FilteredPlanes(dbf, after_sao, rec)
        self._reconstructed = self._offset = self._complete = 0

    def advance(self, rows: int, mappings: Mapping[int, LumaMapping]) -> None:
        """Filter what the first rows of CTUs suffice for.

        Clause 8.8.1, In-loop filter process.

        Args:
            rows: Number of rows of CTUs that are reconstructed, counted from the upper edge of the picture.
            mappings: Luma mappings of their slices that have one, by slice index.
        """
        first, self._reconstructed = self._reconstructed, rows
        self._invert_mapping(first, rows, mappings)
        if self._strengths:
            self._derive_edges(first, rows)
        if not self.filtered.dbf:
            return
        self._deblock(first, rows)
        last = rows == self._near.shape[0]
        first, self._offset = self._offset, rows if last else max(0, rows - 1)
        for component in range(len(self.filtered.dbf)):
            self._apply_sao(component, first, self._offset)
        first, self._complete = self._complete, rows if last else max(0, rows - 2)
        self._apply_alf(first, self._complete)

    def _cells(self, first: int, last: int) -> tuple[int, int]:
        """Return the rows of cells of 4x4 luma samples, first and last + 1, in rows of CTUs."""
        shift, rows = self._picture.sps.ctb_log2_size_y - 2, self.edges.shape[1]
        return min(rows, first << shift), min(rows, last << shift)

    def _invert_mapping(self, first: int, last: int, mappings: Mapping[int, LumaMapping]) -> None:
        """Invert the luma mapping in rows of CTUs."""
        if self.unfiltered[0] is not self._mapped:
            top, bottom = self._cells(first, last)
            area, regions = slice(4 * top, 4 * bottom), self._frame.known["region"][top:bottom, :, 0]
            depth = self._picture.sps.bit_depth
            self.unfiltered[0][area] = inverse_mapped(self._mapped[area], regions, mappings, depth)

    def _derive_edges(self, first: int, last: int) -> None:
        """Derive the edges in rows of CTUs.

        Part of clause 8.8.3.1, Deblocking filter process.
        """
        f, (top, bottom) = self._frame, self._cells(first, last)
        with compiled_once(db.derive_edges, *COMPILATION):
            db.derive_edges(f.pic, f.slice, f.known, f.motion, self._slices, self.edges, top, bottom)

    def _rows_of(self, component: int, first: int, last: int) -> slice:
        """Return the samples of a component in rows of CTUs."""
        sps = self._picture.sps
        shift = sps.ctb_log2_size_y - (sps.log2_sub_height_c if component else 0)
        return slice(first << shift, last << shift)

    def _deblock(self, first: int, last: int) -> None:
        """Deblock rows of CTUs."""
        frame, dbf = self._frame, self.filtered.dbf
        for component, plane in enumerate(dbf):
            rows = self._rows_of(component, first, last)
            plane[rows] = self.unfiltered[component][rows]
        top, bottom = self._cells(first, last)
        edges = self.edges[:, top:bottom]
        if edges["bs"].any() or edges["bs_c"].any():
            y, u, v = (plane.reshape(-1) for plane in (dbf[0], dbf[-2 % len(dbf)], dbf[-1]))
            with compiled_once(db.deblock, *COMPILATION):
                db.deblock(frame.pic, frame.known, self._slices, self.edges, y, u, v, top, bottom)

    def _apply_sao(self, component: int, first: int, last: int) -> None:
        """Apply SAO to rows of CTUs of a component.

        Part of clause 8.8.4.1, Sample adaptive offset process.
        """
        source, target = self.filtered.dbf[component], self.filtered.sao[component]
        if target is source or first == last:
            return
        rows = self._rows_of(component, first, last)
        target[rows] = source[rows]
        layout = _component_layout(self._picture, component)
        with compiled_once(sao.offset_samples, *COMPILATION):
            sao.offset_samples(source, target, self._sao[component], self._near, layout, first, last)

    def _apply_alf(self, first: int, last: int) -> None:
        """Complete rows of CTUs by ALF and cross-component ALF.

        Part of clause 8.8.5.1, Adaptive loop filter process.
        """
        after_sao, rec = self.filtered.sao, self.filtered.rec
        for component, plane in enumerate(rec):
            rows = self._rows_of(component, first, last)
            plane[rows] = after_sao[component][rows]
        tables, rectangles = self._tables, self._rectangles
        if tables is None or rectangles is None or first == last:
            return
        size = 1 << self._picture.sps.ctb_log2_size_y
        start, end = np.searchsorted(rectangles["y"], (first * size, last * size))
        if start == end:
            return
        # Without chroma, luma stands for it in the arguments.
        sources, targets = (list(arrays) if len(arrays) > 1 else list(arrays) * 3 for arrays in (after_sao, rec))
        with compiled_once(alf.filter_ctus, *COMPILATION):
            alf.filter_ctus(
                self._frame.pic, rectangles[start:end], tables.luma, tables.chroma, tables.cross, *sources, *targets
            )


def inverse_mapped(
    plane: Plane, regions: npt.NDArray[np.int32], mappings: Mapping[int, LumaMapping], bit_depth: int
) -> Plane:
    """Invert the luma mapping of samples.

    Clause 8.8.2.2, Inverse mapping process for a luma sample.

    Args:
        plane: Luma samples, shape (h, w).
        regions: Slice and tile of each 4x4 samples (`log.CodingUnit.region`).
        mappings: Luma mappings of the slices that have one, by slice index.
        bit_depth: Bit depth.

    Returns:
        Samples of the same shape.
    """
    slices = (regions - 1) // SLICE_REGIONS
    tables = {index: np.array(inverse_map(mapping, bit_depth), np.int32) for index, mapping in mappings.items()}
    if len(tables) == 1 and (slices == next(iter(tables))).all():
        return next(iter(tables.values()))[plane]
    full = np.repeat(np.repeat(slices, 4, 0), 4, 1)[: plane.shape[0], : plane.shape[1]]
    out = plane.copy()
    for index, table in tables.items():
        where = full == index
        out[where] = table[plane[where]]
    return out


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


def _component_layout(picture: ParsedPicture, component: int) -> sao.ComponentLayout:
    """Return the layout of a component for SAO."""
    sps = picture.sps
    shifts = (sps.log2_sub_width_c, sps.log2_sub_height_c) if component else (0, 0)
    layout = new_record(sao.ComponentLayout)
    layout.log2_ctb_width, layout.log2_ctb_height = sps.ctb_log2_size_y - shifts[0], sps.ctb_log2_size_y - shifts[1]
    layout.bit_depth = sps.bit_depth
    columns, rows = _virtual_boundaries(picture)
    layout.virtual_boundary_pos_x[: len(columns)] = np.array(columns, np.int64) >> shifts[0]
    layout.virtual_boundary_pos_y[: len(rows)] = np.array(rows, np.int64) >> shifts[1]
    return layout


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
        luma_rows: For each slice, the rows of its luma filter sets, shape (slices, 24).
        first_rows: For each slice, the first rows of the filters of Cb and Cr, then of both cross-component filters,
            shape (slices, 4).
    """

    def __init__(self, picture: ParsedPicture) -> None:
        """Collect the filters of the slices."""
        depth = picture.sps.bit_depth
        no_clip = np.full_like(FIXED_FILTERS, 1 << depth)
        luma = [np.stack([FIXED_FILTERS, no_clip], 1)]
        chroma, cross = [np.zeros((0, 2, 6), np.int32)], [np.zeros((0, 7), np.int32)]
        fixed = len(FIXED_FILTERS)
        self.luma_rows = np.zeros((len(picture.slices), fixed + 8), np.int64)
        self.luma_rows[:, :fixed] = np.arange(fixed)
        self.first_rows = np.zeros((len(picture.slices), 4), np.int64)
        for index, part in enumerate(picture.slices):
            selected, filters = part.header.alf, part.filters
            for i, number in enumerate(selected.alf_aps_id_luma):
                f = filters[number]
                self.luma_rows[index, fixed + i] = sum(map(len, luma))
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
            self.first_rows[index] = first, first, *first_cross
        self.luma, self.chroma, self.cross = (
            np.ascontiguousarray(np.concatenate(parts), np.int32) for parts in (luma, chroma, cross)
        )


def _filters_of_ctus(ctbs: Records) -> npt.NDArray[np.int32]:
    """Return the filters of CTUs, `CtbCell.alf` and `CtbCell.cc_alf`: 0 or 1 plus the index, shape (..., 5)."""
    return np.concatenate([ctbs["alf"], ctbs["cc_alf"]], -1)


def _rectangles(picture: ParsedPicture, ctbs: Records, near: npt.NDArray[np.int64], tables: _AlfTables) -> Records:
    """List the rectangles that ALF filters: CTUs, divided at virtual boundaries.

    Clause 8.8.5.5, ALF boundary position derivation process.

    Args:
        picture: The picture.
        ctbs: CTUs of the picture.
        near: CTUs that each CTU may use, see `usable_ctus`.
        tables: Filters of the slices.

    Returns:
        Rectangles from the upper edge on, elements of type `alf.RECTANGLE`.
    """
    pps, log2_size = picture.pps, picture.sps.ctb_log2_size_y
    width, height = pps.pps_pic_width_in_luma_samples, pps.pps_pic_height_in_luma_samples
    columns, rows = _virtual_boundaries(picture)
    size = 1 << log2_size
    xs = sorted({*range(0, width, size), *(x for x in columns if x < width), width})
    ys = sorted({*range(0, height, size), *(y for y in rows if y < height), height})
    top, left = (edges.ravel() for edges in np.meshgrid(ys[:-1], xs[:-1], indexing="ij"))
    bottom, right = (edges.ravel() for edges in np.meshgrid(ys[1:], xs[1:], indexing="ij"))
    row, column = top >> log2_size, left >> log2_size
    chosen, usable = _filters_of_ctus(ctbs[row, column]), near[row, column]
    out = np.zeros(len(row), alf.RECTANGLE)
    out["x"], out["y"], out["width"], out["height"] = left, top, right - left, bottom - top

    def crossed(edge: npt.NDArray[np.int64], bit: int, boundaries: tuple[int, ...]) -> npt.NDArray[np.bool_]:
        """Return whether samples beyond an edge may be used: those of a usable CTU behind no virtual boundary."""
        used: npt.NDArray[np.bool_] = (edge & (size - 1) == 0) & (usable >> bit & 1 == 1)
        return used & ~np.isin(edge, boundaries)

    above, below = crossed(top, 1, rows), crossed(bottom, 7, rows)
    before, after = crossed(left, 3, columns), crossed(right, 5, columns)
    out["left"], out["right"], out["top"], out["bottom"] = before, after, above, below
    # The corners matter only if both CTUs next to them may be used.
    out["top_left"] = ~(above & before) | (usable & 1 == 1)
    out["bottom_right"] = ~(below & after) | (usable >> 8 & 1 == 1)
    index = (ctbs["region"][row, column] - 1) // SLICE_REGIONS
    out["filters"][:, 0] = np.where(chosen[:, 0] > 0, tables.luma_rows[index, chosen[:, 0] - 1], -1)
    others = np.where(chosen[:, 1:] > 0, tables.first_rows[index] + chosen[:, 1:] - 1, -1)
    out["filters"][:, 1:], out["cross_filters"] = others[:, :2], others[:, 2:]
    return out[chosen.any(1)]
