"""Motion of whole streams equals that which VTM traces; its parts equal formulas of clause 8.5.2."""

import numpy as np
import pytest

from codecnn.vvc.syntax import CTU_LOG_SIZE, parsed_ctus, read_pictures
from tests.helpers.motion_traces import traced_pictures
from tests.helpers.plain_decoder import (
    empty_frame,
    fr,
    geometric_motion,
    lg,
    motion,
    new_frame,
    references,
    st,
    temporal_motion,
)


def derived_motion(stream):
    """Derive the motion of a stream without DMVR; yield POC and `Frame.motion` of each picture in decoding order."""
    stored = {}
    for picture in read_pictures(stream):
        f, _ = new_frame(picture)
        lists = []
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
                if header[lg.U_TREE] != st.DUAL_CHROMA:
                    references.mark(f, False, *header[lg.U_X : lg.U_H + 1])
                unit += header[lg.U_SIZE]
        assert not f.p[fr.FAULT]
        stored[picture.cvs, picture.poc] = temporal_motion.stored_motion(f, lists)
        yield picture.poc, f.motion


def put_references(p, part):
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


@pytest.mark.parametrize("name", ["tinyclip128x64_ld_qp37", "tinyclip128x64_ra_qp37"])
def test_vectors_of_streams_equal_those_that_vtm_traces(golden_file, name):
    traced = traced_pictures(golden_file(f"vvc/{name}.vtmbmsstats.gz"))
    derived = derived_motion(golden_file(f"vvc/{name}.266").read_bytes())
    for expected, (poc, cells) in zip(traced, derived, strict=True):
        assert poc == expected.poc
        for (x, y, which), vector in expected.vectors.items():
            cell = cells[:, y >> 2, x >> 2]
            assert cell[fr.REF_0 + which] >= 0, (poc, x, y, which)
            actual = tuple(cell[fr.MV_X0 + 2 * which : fr.MV_X0 + 2 * which + 2].tolist())
            assert actual == vector, (poc, x, y, which)
        assert len(expected.vectors) == np.count_nonzero(cells[fr.REF_0 : fr.REF_1 + 1] >= 0)


def test_compression_of_all_vectors_of_18_bits():
    """Formulas 588 to 592, with Python integers."""
    vectors = np.arange(-131072, 131072, dtype=np.int32)
    expected = []
    for vector in vectors.tolist():
        shift = ((vector ^ (vector >> 17)) | 31).bit_length() - 5
        expected.append((vector + ((1 << shift) >> 2)) & ((-1 << shift) >> 1))
    np.testing.assert_array_equal(temporal_motion.compressed(vectors), expected)


def test_scaled_vectors_have_the_ratio_of_the_poc_distances():
    for current, other in ((1, 2), (-3, 4), (8, -8), (-5, -1), (127, 1), (1, 128)):
        factor = temporal_motion.scale_factor(current, other)
        ratio = max(-4096, min(4095, 256 * current / other))
        assert abs(factor - ratio) <= 1 + abs(ratio) / 256
        for value in (-20000, -17, 0, 5, 4000):
            expected = max(-131072, min(131071, value * factor / 256))
            assert abs(temporal_motion.scaled(value, factor) - expected) <= 0.5
    # Halves are rounded towards zero.
    assert [temporal_motion.scaled(value, 1) for value in (-384, -128, 127, 128, 129, 384)] == [-1, 0, 0, 0, 1, 1]


def test_geometric_partitions_are_20_angles_with_distances_of_which_no_pair_comes_twice():
    pairs = {tuple(pair) for pair in geometric_motion.PARTITIONS.tolist()}
    assert geometric_motion.PARTITIONS.shape == (64, 2)
    assert len(pairs) == 64
    assert {angle for angle, _ in pairs} == set(range(32)) - {1, 6, 7, 9, 10, 15, 17, 22, 23, 25, 26, 31}
    assert all(pair in pairs for angle, _ in pairs for pair in ((angle, 1), (angle, 3)))
    assert sum(distance == 0 for _, distance in pairs) == 8


def test_order_of_the_history():
    """A sixth entry removes the oldest one, a known one moves to the end."""
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


@pytest.mark.parametrize(("index", "weight"), [(0, 1), (1, 0)])
def test_candidate_after_the_constructed_ones_has_no_motion(index, weight):
    """The unit lies at the top of the picture, beside a bi-directional unit with bcw_idx 1."""
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
