"""Compare derived motion with a trace of VTM: `python -m tests.helpers.motion_stages STREAM TRACE`.

Without arguments it checks single stages with plain formulas and with made-up neighbours.

The program runs in a separate process with NUMBA_DISABLE_JIT=1, because Python cannot call the compiled functions. It
derives the motion of whole streams without predicting samples, so it cannot take streams with DMVR, whose refined
vectors later pictures predict from.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from codecnn.vvc.decoder import frame as fr
from codecnn.vvc.decoder import geometric_motion, motion, references, temporal_motion
from codecnn.vvc.decoder.initialise import new_frame
from codecnn.vvc.syntax import CTU_LOG_SIZE, Slice, parsed_ctus, read_pictures
from codecnn.vvc.syntax import log as lg
from codecnn.vvc.syntax import state as st
from tests.helpers.motion_traces import TracedPicture, traced_pictures
from tests.helpers.reconstruct_stages import empty_frame

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


def check_compression() -> None:
    """Compare the compression of all vectors of 18 bits with formulas 588 to 592, which use Python integers."""
    vectors = np.arange(-131072, 131072, dtype=np.int32)
    expected = []
    for vector in vectors.tolist():
        shift = ((vector ^ (vector >> 17)) | 31).bit_length() - 5
        expected.append((vector + ((1 << shift) >> 2)) & ((-1 << shift) >> 1))
    np.testing.assert_array_equal(temporal_motion.compressed(vectors), expected)


def check_scaling() -> None:
    """Compare scaled vectors with the ratio of the POC distances, to which they are equal but for rounding."""
    for current, other in ((1, 2), (-3, 4), (8, -8), (-5, -1), (127, 1), (1, 128)):
        factor = temporal_motion.scale_factor(current, other)
        ratio = max(-4096, min(4095, 256 * current / other))
        assert abs(factor - ratio) <= 1 + abs(ratio) / 256
        for value in (-20000, -17, 0, 5, 4000):
            expected = max(-131072, min(131071, value * factor / 256))
            assert abs(temporal_motion.scaled(value, factor) - expected) <= 0.5


def check_partitions() -> None:
    """Check the table of geometric partitions: 20 angles, all with distances 1 and 3, and no pair twice."""
    pairs = {tuple(pair) for pair in geometric_motion.PARTITIONS.tolist()}
    assert geometric_motion.PARTITIONS.shape == (64, 2)
    assert len(pairs) == 64
    assert {angle for angle, _ in pairs} == set(range(32)) - {1, 6, 7, 9, 10, 15, 17, 22, 23, 25, 26, 31}
    assert all(pair in pairs for angle, _ in pairs for pair in ((angle, 1), (angle, 3)))
    assert sum(distance == 0 for _, distance in pairs) == 8


def check_history() -> None:
    """Check the order of the history: a sixth entry removes the oldest one, a known one moves to the end."""
    f = empty_frame(8)
    unit = fr.MOTION_OF_UNIT
    f.p[unit + fr.UNIT_W] = f.p[unit + fr.UNIT_H] = 8
    f.p[fr.PARALLEL_LEVEL] = 2
    at = fr.NEIGHBOURS
    f.p[at + fr.C_REF_1] = -1
    entries = []
    for vector in (1, 2, 3, 4, 5, 6, 3, 6, 7):
        f.p[at] = vector
        motion.update_history(f, at)
        entries.append([int(f.p[fr.HISTORY + fr.CANDIDATE * i]) for i in range(f.p[fr.HISTORY_COUNT])])
    assert entries[4:] == [[1, 2, 3, 4, 5], [2, 3, 4, 5, 6], [2, 4, 5, 6, 3], [2, 4, 5, 3, 6], [4, 5, 3, 6, 7]]
    f.p[fr.PARALLEL_LEVEL] = 4
    f.p[at] = 8
    motion.update_history(f, at)
    assert f.p[fr.HISTORY + 4 * fr.CANDIDATE] == 7, "a unit inside a merge estimation region is left out"


def check_zero_candidate() -> None:
    """Check that the candidate after the constructed ones has no motion and equal weights.

    The unit lies at the top of the picture, beside a bi-directional unit with bcw_idx 1, so the only constructed
    candidate is that of the left corners.
    """
    for index, weight in ((0, 1), (1, 0)):
        f, log = empty_frame(8), np.zeros(lg.UNIT_HEADER, np.int64)
        f = f._replace(log=log)
        f.p[fr.SLICE_IS_B], f.p[fr.ACTIVE_0], f.p[fr.ACTIVE_1] = 1, 1, 1
        f.p[fr.AFFINE], f.p[fr.AFFINE_SIX], f.p[fr.PARALLEL_LEVEL] = 1, 1, 2
        f.known[fr.LUMA_REGION] = 0
        references.mark(f, False, 0, 0, 16, 32)
        f.motion[:, :8, :4] = 0
        f.motion[fr.MV_X0 : fr.MV_Y1 + 1, :8, :4], f.motion[fr.BCW, :8, :4] = 40, 1
        log[lg.U_X], log[lg.U_W], log[lg.U_H], log[lg.U_PRED_MODE] = 16, 32, 32, st.MODE_INTER
        log[lg.U_MERGE], log[lg.U_SUBBLOCK], log[lg.U_MERGE_IDX] = 1, 1, index
        motion.derive_motion(f)
        assert f.p[fr.MOTION_OF_UNIT + fr.UNIT_BCW] == weight
        assert f.p[fr.MOTION_OF_UNIT + fr.UNIT_KIND] == fr.KIND_AFFINE
        vectors = f.motion[fr.MV_X0 : fr.MV_Y1 + 1, :8, 4:12]
        assert (vectors == (0 if index else 40)).all()
        assert (f.motion[fr.BCW, :8, 4:12] == weight).all()


def check_stages() -> None:
    """Check single stages."""
    check_compression()
    check_scaling()
    check_partitions()
    check_history()
    check_zero_candidate()


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
    main(*sys.argv[1:]) if sys.argv[1:] else check_stages()
