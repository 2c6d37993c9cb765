"""Motion of whole streams equals that which VTM traces; its parts equal formulas of clause 8.5.2."""

import numpy as np
import pytest

from codecnn.base.records import record_at
from codecnn.vvc.syntax import CTU_LOG_SIZE, parsed_ctus, read_pictures
from tests.helpers.motion_traces import traced_pictures
from tests.helpers.plain_decoder import (
    empty_frame,
    geometric_motion,
    lg,
    motion,
    new_frame,
    put_vectors,
    rc,
    references,
    st,
    temporal_motion,
    vectors_of,
)


def derived_motion(stream):
    """Derive the motion of a stream without DMVR; yield POC and `Frame.motion` of each picture in decoding order."""
    stored = {}
    for picture in read_pictures(stream):
        f, _ = new_frame(picture)
        lists = []
        for ctus in parsed_ctus(picture, 4 * CTU_LOG_SIZE):
            if ctus.number == len(lists):
                put_references(f.slice, ctus.part)
                lists.append(np.array(f.slice.ref_pic_list))
                if f.slice.ph_temporal_mvp_enabled_flag:
                    which, index = ctus.part.header.collocated
                    f = f._replace(collocated=stored[picture.cvs, ctus.part.references[which][index][1]])
            f = f._replace(log=ctus.log)
            unit = 0
            while unit < len(ctus.log):
                cu = record_at(ctus.log, unit, lg.CODING_UNIT)
                f.current.cu_at, f.current.region = unit, cu.region
                if cu.pred_mode == st.MODE_INTER:
                    motion.derive_motion(f)
                if cu.tree != st.DUAL_CHROMA:
                    references.mark(f, False, cu.x, cu.y, cu.width, cu.height)
                unit += int(cu.length)
        assert not f.current.fault
        stored[picture.cvs, picture.poc] = temporal_motion.stored_motion(f, lists)
        yield picture.poc, f.motion


def put_references(s, part):
    """Set the values of the slice that motion depends on."""
    h, ph = part.header, part.picture_header
    sps, pps = ph.sps, ph.pps
    s.poc, s.is_b = part.poc, h.slice_type == "B"
    s.num_ref_idx_active[:] = h.num_ref_idx_active
    for which, entries in enumerate(part.references):
        for index, (long_term, poc) in enumerate(entries):
            entry = s.ref_pic_list[which, index]
            entry.poc, entry.long_term = poc, long_term
    s.ph_temporal_mvp_enabled_flag = ph.ph_temporal_mvp_enabled_flag and h.slice_type != "I"
    s.collocated_list, s.collocated_ref_idx = h.collocated
    s.no_backward_pred_flag = all(poc <= part.poc for entries in part.references for _, poc in entries)
    s.sps_sbtmvp_enabled_flag, s.max_num_merge_cand = sps.sps_sbtmvp_enabled_flag, sps.max_num_merge_cand
    s.log2_par_mrg_level = sps.log2_parallel_merge_level
    s.ph_mmvd_fullpel_only_flag = ph.ph_mmvd_fullpel_only_flag
    s.sps_affine_enabled_flag = sps.sps_affine_enabled_flag
    s.sps_6param_affine_enabled_flag = sps.sps_6param_affine_enabled_flag
    s.subpic_right, s.subpic_bottom = pps.pps_pic_width_in_luma_samples, pps.pps_pic_height_in_luma_samples


@pytest.mark.parametrize("name", ["tinyclip128x64_ld_qp37", "tinyclip128x64_ra_qp37"])
def test_vectors_of_streams_equal_those_that_vtm_traces(golden_file, name):
    traced = traced_pictures(golden_file(f"vvc/{name}.vtmbmsstats.gz"))
    derived = derived_motion(golden_file(f"vvc/{name}.266").read_bytes())
    for expected, (poc, cells) in zip(traced, derived, strict=True):
        assert poc == expected.poc
        for (x, y, which), vector in expected.vectors.items():
            cell = cells[y >> 2, x >> 2]
            assert cell.ref_idx[which] >= 0, (poc, x, y, which)
            assert (cell.mv[which].x, cell.mv[which].y) == vector, (poc, x, y, which)
        assert len(expected.vectors) == np.count_nonzero(cells["ref_idx"] >= 0)


def test_compression_of_all_vectors_of_18_bits():
    """Formulas 588 to 592, with Python integers."""
    for vector in range(-131072, 131072):
        shift = ((vector ^ (vector >> 17)) | 31).bit_length() - 5
        assert temporal_motion.compressed(vector) == (vector + ((1 << shift) >> 2)) & ((-1 << shift) >> 1)


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
    f.unit.width = f.unit.height = 8
    f.slice.log2_par_mrg_level = 2
    current, hmvp = f.unit.motion, f.candidates.hmvp_cand_list
    current.ref_idx[1] = -1
    entries = []
    for vector in (1, 2, 3, 4, 5, 6, 3, 6, 7):
        current.mv[0].x = vector
        motion.update_history(f, current)
        entries.append([int(hmvp[i].mv[0].x) for i in range(f.candidates.num_hmvp_cand)])
    assert entries[4:] == [[1, 2, 3, 4, 5], [2, 3, 4, 5, 6], [2, 4, 5, 6, 3], [2, 4, 5, 3, 6], [4, 5, 3, 6, 7]]
    f.slice.log2_par_mrg_level = 4
    current.mv[0].x = 8
    motion.update_history(f, current)
    assert hmvp[4].mv[0].x == 7, "a unit inside a merge estimation region is left out"


@pytest.mark.parametrize(("index", "weight"), [(0, 1), (1, 0)])
def test_candidate_after_the_constructed_ones_has_no_motion(index, weight):
    """The unit lies at the top of the picture, beside a bi-directional unit with bcw_idx 1."""
    f, log = empty_frame(8), np.zeros(lg.UNIT_HEADER, np.int64)
    f = f._replace(log=log)
    f.slice.is_b = f.slice.sps_affine_enabled_flag = f.slice.sps_6param_affine_enabled_flag = 1
    f.slice.num_ref_idx_active[:] = 1
    f.slice.log2_par_mrg_level = 2
    f.known["region"][..., 0] = 0
    references.mark(f, False, 0, 0, 16, 32)
    f.motion[:8, :4] = np.zeros(1, f.motion.dtype)
    f.motion["bcw_idx"][:8, :4] = 1
    put_vectors(f.motion[:8, :4], np.full(4, 40))
    cu = record_at(log, 0, lg.CODING_UNIT)
    cu.x, cu.width, cu.height, cu.pred_mode = 16, 32, 32, st.MODE_INTER
    cu.general_merge_flag, cu.subblock_flag, cu.merge_idx = 1, 1, index
    motion.derive_motion(f)
    assert f.unit.motion.bcw_idx == weight
    assert f.unit.kind == rc.KIND_AFFINE
    cells = f.motion[:8, 4:12]
    assert (vectors_of(cells) == (0 if index else 40)).all()
    assert (cells["bcw_idx"] == weight).all()
