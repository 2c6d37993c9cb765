"""Compare derived motion with a trace of VTM: `python -m tests.helpers.motion_stages STREAM TRACE`.

The program runs in a separate process with NUMBA_DISABLE_JIT=1, because Python cannot call the compiled functions. It
derives the motion of whole streams without predicting samples, so it cannot take streams with DMVR, whose refined
vectors later pictures predict from.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from codecnn.reconstruct import frame as fr
from codecnn.reconstruct import motion, references, temporal_motion
from codecnn.reconstruct.initialise import new_frame
from codecnn.vvc import CTU_LOG_SIZE, Slice, parsed_ctus, read_pictures
from codecnn.vvc import log as lg
from codecnn.vvc import state as st
from tests.helpers.motion_traces import TracedPicture, traced_pictures

BCW_OF_VTM = (2, 3, 1, 4, 0)
"""BCWIndex of VTM by bcw_idx."""

Units = list[npt.NDArray[np.int64]]


def derived_pictures(stream: bytes) -> Iterator[tuple[int, fr.Frame, Units, list[list[int]]]]:
    """Derive the motion of a stream.

    Yields:
        POC, state, motion of each inter unit, and its header in the log, of each picture in decoding order.
    """
    stored: dict[tuple[int, int], npt.NDArray[np.int32]] = {}
    for picture in read_pictures(stream):
        f, _ = new_frame(picture)
        units: Units = []
        headers: list[list[int]] = []
        lists: list[npt.NDArray[np.int64]] = []
        for ctus in parsed_ctus(picture, 4 * CTU_LOG_SIZE):
            if ctus.number == len(lists):
                put_references(f.p, ctus.part)
                lists.append(f.p[fr.LISTS_OF_REFERENCES :][: 2 * 16 * fr.REFERENCE].copy())
                if f.p[fr.TEMPORAL]:
                    which, index = ctus.part.header.collocated
                    f = f._replace(collocated=stored[picture.cvs, ctus.part.references[which][index][1]])
            f = f._replace(log=ctus.log)
            unit = 0
            while unit < len(ctus.log):
                header = ctus.log[unit : unit + lg.UNIT_HEADER].tolist()
                f.p[fr.UNIT], f.p[fr.REGION] = unit, header[lg.U_REGION]
                if header[lg.U_PRED_MODE] == st.MODE_INTER:
                    motion.derive_motion(f)
                    units.append(f.p[fr.MOTION_OF_UNIT : fr.MOTION_OF_UNIT + fr.MOTION_UNIT].copy())
                    headers.append(header)
                if header[lg.U_TREE] != st.DUAL_CHROMA:
                    references.mark(f, False, *header[lg.U_X : lg.U_H + 1])
                unit += header[lg.U_SIZE]
        assert not f.p[fr.FAULT]
        stored[picture.cvs, picture.poc] = temporal_motion.stored_motion(f, lists)
        yield picture.poc, f, units, headers


def put_references(p: npt.NDArray[np.int64], part: Slice) -> None:
    """Set the numbers of `Frame.p` that motion depends on."""
    h, ph = part.header, part.picture_header
    sps = ph.sps
    p[fr.POC], p[fr.SLICE_IS_B] = part.poc, h.slice_type == "B"
    p[fr.ACTIVE_0], p[fr.ACTIVE_1] = h.num_ref_idx_active
    for which, entries in enumerate(part.references):
        for index, (long_term, poc) in enumerate(entries):
            at = fr.LISTS_OF_REFERENCES + fr.REFERENCE * (16 * which + index)
            p[at + fr.REF_POC], p[at + fr.REF_LONG_TERM] = poc, long_term
    p[fr.TEMPORAL] = ph.ph_temporal_mvp_enabled_flag and h.slice_type != "I"
    p[fr.COLLOCATED_LIST], p[fr.COLLOCATED_ENTRY] = h.collocated
    p[fr.NO_BACKWARD] = all(poc <= part.poc for entries in part.references for _, poc in entries)
    p[fr.TEMPORAL_SUBBLOCKS], p[fr.MAX_MERGE] = sps.sps_sbtmvp_enabled_flag, sps.max_num_merge_cand
    p[fr.PARALLEL_LEVEL], p[fr.MMVD_FULL_SAMPLES] = sps.log2_parallel_merge_level, ph.ph_mmvd_fullpel_only_flag
    p[fr.AFFINE], p[fr.AFFINE_SIX] = sps.sps_affine_enabled_flag, sps.sps_6param_affine_enabled_flag
    p[fr.SUBPICTURE_RIGHT], p[fr.SUBPICTURE_BOTTOM] = p[fr.WIDTH], p[fr.HEIGHT]


def quarter(value: int) -> int:
    """Round a component of a vector in 1/16 sample to 1/4 sample, as VTM's trace does."""
    return (value + 2) >> 2 if value >= 0 else -((2 - value) >> 2)


def check_unit(
    unit: npt.NDArray[np.int64], header: list[int], planes: npt.NDArray[np.int32], traced: dict[str, tuple[int, ...]]
) -> None:
    """Compare syntax and motion of a unit with the trace; `planes` are the cells of `Frame.motion` of the unit."""
    kind = unit[fr.UNIT_KIND]
    affine = traced["AffineFlag"][0]
    assert affine == (kind in (fr.KIND_AFFINE, fr.KIND_TEMPORAL_SUBBLOCKS))
    assert traced["SMVDFlag"][0] == header[lg.U_SYMMETRIC]
    assert traced.get("CiipFlag", (0,))[0] == header[lg.U_CIIP]
    assert traced.get("MMVDMergeFlag", (0,))[0] | traced["MMVDSkipFlag"][0] == header[lg.U_MMVD]
    if kind == fr.KIND_GEOMETRIC:
        return
    if header[lg.U_MERGE] and not header[lg.U_MMVD]:
        assert traced["MergeIdx"][0] == header[lg.U_MERGE_IDX]
    both = unit[fr.UNIT_REF] >= 0 and unit[fr.UNIT_REF + 1] >= 0
    if both:
        assert traced["BCWIndex"][0] == BCW_OF_VTM[unit[fr.UNIT_BCW]]
    if kind == fr.KIND_REGULAR:
        assert (traced["IMVMode"][0] == 3) == (unit[fr.UNIT_HALF] == 1)
    if kind == fr.KIND_AFFINE:
        assert traced["AffineType"][0] == unit[fr.UNIT_POINTS] - 1
    for which in range(2):
        assert traced.get(f"RefIdxL{which}", (-1,))[0] == unit[fr.UNIT_REF + which]
        if kind == fr.KIND_REGULAR and unit[fr.UNIT_REF + which] >= 0:
            vector = unit[fr.UNIT_MV + 2 * which : fr.UNIT_MV + 2 * which + 2]
            assert traced[f"MVL{which}"] == tuple(quarter(int(v)) for v in vector)
        if kind == fr.KIND_AFFINE and unit[fr.UNIT_REF + which] >= 0:
            vectors = planes[fr.MV_X0 + 2 * which : fr.MV_X0 + 2 * which + 2]
            corners = [vectors[:, 0, 0], vectors[:, 0, -1], vectors[:, -1, 0]]
            assert traced[f"AffineMVL{which}"] == tuple(quarter(int(v)) for corner in corners for v in corner)


def check_picture(f: fr.Frame, units: Units, headers: list[list[int]], traced: TracedPicture) -> None:
    """Compare the motion of a picture with the trace, unit by unit and 4x4 block by 4x4 block."""
    inter = {block for block, values in traced.units.items() if values.get("PredMode") == (0,)}
    assert {tuple(unit[: fr.UNIT_H + 1].tolist()) for unit in units} == inter
    for unit, header in zip(units, headers, strict=True):
        x, y, w, h = unit[: fr.UNIT_H + 1].tolist()
        planes = f.motion[:, y >> 2 : (y + h) >> 2, x >> 2 : (x + w) >> 2]
        try:
            check_unit(unit, header, planes, traced.units[x, y, w, h])
        except AssertionError:
            raise AssertionError(f"POC {traced.poc}, unit at ({x}, {y}): {traced.units[x, y, w, h]}") from None
    cells = 0
    for (x, y, which), vector in traced.vectors.items():
        cell = f.motion[:, y >> 2, x >> 2]
        assert cell[fr.REF_0 + which] >= 0, (traced.poc, x, y, which)
        actual = tuple(cell[fr.MV_X0 + 2 * which : fr.MV_X0 + 2 * which + 2].tolist())
        assert actual == vector, (traced.poc, x, y, which)
        cells += 1
    assert cells == np.count_nonzero(f.motion[fr.REF_0 : fr.REF_1 + 1] >= 0)


def main(stream: str, trace: str) -> None:
    """Compare the motion of a stream with its trace, and print the number of units."""
    traced = traced_pictures(Path(trace))
    count = 0
    for expected, (poc, f, units, headers) in zip(traced, derived_pictures(Path(stream).read_bytes()), strict=True):
        assert poc == expected.poc
        check_picture(f, units, headers, expected)
        count += len(units)
    sys.stdout.write(f"{count}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
