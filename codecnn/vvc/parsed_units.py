"""The coding units of pictures: what the compiled parser needs from headers, and the columns that come out."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from codecnn.errors import FormatError
from codecnn.vvc import state as st
from codecnn.vvc.aps import AlfFilters
from codecnn.vvc.contexts import initial_contexts
from codecnn.vvc.jit import compiled_once
from codecnn.vvc.picture_header import AlfSelection
from codecnn.vvc.pictures import Picture, Slice
from codecnn.vvc.slice_data import CUS_OF_A_CTU, parse_ctus
from codecnn.vvc.tiles import ADDRESS, MAX_TILES, slice_ctus

_FAULTS = {
    st.FAULT_END: "its data ends early",
    st.FAULT_SPLIT: "a block reaches past the picture and cannot be split",
    st.FAULT_TERMINATE: "it does not end where its data ends",
    st.FAULT_QP: "a QP changes by more than it may",
    st.FAULT_LEVEL: "a coefficient level has more bits than it may",
    st.FAULT_PALETTE: "a palette has more entries than it may",
}


class ParsedCtus(NamedTuple):
    """Some CTUs of one slice: its number in the picture, the slice, its coding units (n, columns), and their log."""

    number: int
    part: Slice
    cus: npt.NDArray[np.int32]
    log: st.Ints


def coding_units(picture: Picture) -> npt.NDArray[np.int32]:
    """Every coding unit of a picture in decoding order: an int32 array (n, columns) as in `state.CU_COLUMNS`.

    Positions and sizes are luma samples, also of a separate chroma tree (`channel` 1), whose rows carry no modes: -1
    is what a row does not have. Raises FormatError for damaged slice data.
    """
    return np.concatenate([some.cus.copy() for some in parsed_ctus(picture)])


def parsed_ctus(picture: Picture, log_size: int = 0) -> Iterator[ParsedCtus]:
    """The CTUs of a picture, some at a time in decoding order; the arrays are written again for the next ones.

    The log has room for `log_size` numbers, `log.LOG_OF_A_CTU` at least; without any, nothing is kept. Raises
    FormatError for damaged slice data.
    """
    sps, pps = picture.sps, picture.pps
    height, width = pps.pps_pic_height_in_luma_samples, pps.pps_pic_width_in_luma_samples
    maps = np.zeros((st.MAPS, height // 4, width // 4), np.int16)
    ctbs = np.zeros((st.CTB_MAPS, pps.tiles.rows[-1], pps.tiles.columns[-1]), np.int32)
    cus = np.empty((8 * CUS_OF_A_CTU, len(st.CU_COLUMNS)), np.int32)
    regions = ctbs[st.CTB_REGION].reshape(-1)
    for index, part in enumerate(picture.slices):
        ctus = slice_ctus(pps.tiles, part.header.parts, sps.sps_entropy_coding_sync_enabled_flag)
        if regions[ctus[:, ADDRESS]].any():
            raise FormatError(f"slice {index} covers what another slice covers")
        n = _numbers(part, log_size)
        n[st.REGION] = 1 + index * (MAX_TILES + 1)
        n[st.KEEP] = log_size > 0
        data = np.frombuffer(part.rbsp, np.uint8)[part.start :].copy()
        n[st.END] = len(data)
        work = st.Work(n, data, maps)
        while n[st.CTU] < len(ctus):
            n[st.CU_COUNT], n[st.LOG] = 0, st.NUMBERS
            with compiled_once(parse_ctus, "the reader of VVC slices", "a minute"):
                parse_ctus(work, ctbs, ctus, cus)
            if n[st.FAULT]:
                raise FormatError(f"slice {index}, CTU {n[st.CTU] - 1}: {_FAULTS[int(n[st.FAULT])]}")
            yield ParsedCtus(index, part, cus[: n[st.CU_COUNT]], n[st.NUMBERS : n[st.LOG]])
    missing = int(np.count_nonzero(regions == 0))
    if missing:
        raise FormatError(f"{missing} of {regions.size} CTUs are in no slice")


def _numbers(part: Slice, log_size: int) -> st.Ints:
    """`Work.n` with what the headers tell."""
    h, ph = part.header, part.picture_header
    sps, pps = ph.sps, ph.pps
    intra = h.slice_type == "I"
    luma, chroma = (ph.intra_luma, ph.intra_chroma) if intra else (ph.inter, ph.inter)
    subdivs = ph.intra_subdivs if intra else ph.inter_subdivs
    n = np.zeros(st.NUMBERS + log_size, np.int64)
    n[st.QP_Y] = n[st.SLICE_QP] = h.slice_qp_y
    n[st.WIDTH], n[st.HEIGHT] = pps.pps_pic_width_in_luma_samples, pps.pps_pic_height_in_luma_samples
    n[st.LOG2_CTU], n[st.LOG2_MIN_CB] = sps.ctb_log2_size_y, sps.min_cb_log2_size_y
    n[st.CHROMA], n[st.BIT_DEPTH] = sps.sps_chroma_format_idc, sps.bit_depth
    n[st.SUB_WIDTH], n[st.SUB_HEIGHT] = sps.log2_sub_width_c, sps.log2_sub_height_c
    n[st.INITIAL : st.NUMBERS] = initial_contexts(h.slice_type, h.sh_cabac_init_flag, h.slice_qp_y)
    n[st.IS_I], n[st.IS_B] = intra, h.slice_type == "B"
    n[st.DUAL_TREE], n[st.WAVEFRONT] = sps.sps_qtbtt_dual_tree_intra_flag, sps.sps_entropy_coding_sync_enabled_flag
    n[st.MIN_QT_Y], n[st.MIN_QT_C] = 1 << luma.log2_min_qt, 1 << chroma.log2_min_qt
    n[st.MAX_MTT_Y], n[st.MAX_MTT_C] = luma.max_mtt_depth, chroma.max_mtt_depth
    n[st.MAX_BT_Y], n[st.MAX_BT_C] = 1 << luma.log2_max_bt, 1 << chroma.log2_max_bt
    n[st.MAX_TT_Y], n[st.MAX_TT_C] = 1 << luma.log2_max_tt, 1 << chroma.log2_max_tt
    n[st.QP_DELTA], n[st.CHROMA_QP_OFFSET] = pps.pps_cu_qp_delta_enabled_flag, h.sh_cu_chroma_qp_offset_enabled_flag
    n[st.QP_DELTA_SUBDIV], n[st.CHROMA_QP_OFFSET_SUBDIV] = subdivs
    n[st.CHROMA_QP_OFFSET_LIST] = pps.chroma_qp_offset_list_len
    n[st.MAX_TB], n[st.MAX_TS] = 1 << sps.max_tb_log2_size_y, 1 << sps.log2_max_ts_size
    n[st.TRANSFORM_SKIP], n[st.BDPCM] = sps.sps_transform_skip_enabled_flag, sps.sps_bdpcm_enabled_flag
    n[st.MTS], n[st.LFNST] = sps.sps_mts_enabled_flag, sps.sps_lfnst_enabled_flag
    n[st.MTS_INTRA], n[st.MTS_INTER] = sps.sps_explicit_mts_intra_enabled_flag, sps.sps_explicit_mts_inter_enabled_flag
    n[st.JOINT_CBCR], n[st.SBT] = sps.sps_joint_cbcr_enabled_flag, sps.sps_sbt_enabled_flag
    n[st.ISP], n[st.MRL] = sps.sps_isp_enabled_flag, sps.sps_mrl_enabled_flag
    n[st.MIP], n[st.CCLM] = sps.sps_mip_enabled_flag, sps.sps_cclm_enabled_flag
    n[st.IBC], n[st.MAX_IBC_MERGE] = sps.sps_ibc_enabled_flag, sps.max_num_ibc_merge_cand
    n[st.PALETTE], n[st.ACT] = sps.sps_palette_enabled_flag, sps.sps_act_enabled_flag
    n[st.AMVR] = sps.sps_amvr_enabled_flag
    n[st.DEP_QUANT], n[st.SIGN_HIDING] = h.sh_dep_quant_used_flag, h.sh_sign_data_hiding_used_flag
    n[st.TS_RESIDUAL_OFF] = h.sh_ts_residual_coding_disabled_flag
    n[st.TRANSFORM_RANGE], n[st.TS_RICE] = sps.log2_transform_range, h.ts_residual_coding_rice
    n[st.RRC_RICE], n[st.RICE_BASE] = sps.sps_rrc_rice_extension_flag, 4 * 5
    if sps.sps_rrc_rice_extension_flag:
        n[st.RICE_BASE] = (5 if intra else 10) + (5 if sps.bit_depth <= 12 else 0)
    n[st.PERSISTENT_RICE] = sps.sps_persistent_rice_adaptation_enabled_flag
    n[st.REVERSE_LAST] = h.sh_reverse_last_sig_coeff_flag
    n[st.SAO_LUMA], n[st.SAO_CHROMA] = h.sh_sao_luma_used_flag, h.sh_sao_chroma_used_flag
    _put_alf(n, h.alf, part.filters)
    if not intra:
        _put_inter(n, part)
    return n


def _put_alf(n: st.Ints, alf: AlfSelection, filters: dict[int, AlfFilters]) -> None:
    used = (alf.alf_aps_id_chroma, alf.alf_cc_cb_aps_id, alf.alf_cc_cr_aps_id)
    for number in used:
        if number is not None and number not in filters:
            raise FormatError(f"there is no ALF parameter set {number}")
    counts = [0 if number is None else max(1, filters[number][kind]) for kind, number in enumerate(used)]
    n[st.ALF], n[st.ALF_APS_LUMA] = alf.alf_enabled_flag, alf.num_alf_aps_ids_luma
    n[st.ALF_CB], n[st.ALF_CR] = alf.alf_cb_enabled_flag, alf.alf_cr_enabled_flag
    n[st.ALF_CHROMA_FILTERS], n[st.CC_CB_FILTERS], n[st.CC_CR_FILTERS] = counts


def _put_inter(n: st.Ints, part: Slice) -> None:
    h, ph, sps = part.header, part.picture_header, part.picture_header.sps
    n[st.AFFINE], n[st.AFFINE_TYPE] = sps.sps_affine_enabled_flag, sps.sps_6param_affine_enabled_flag
    n[st.AFFINE_AMVR], n[st.MMVD] = sps.sps_affine_amvr_enabled_flag, sps.sps_mmvd_enabled_flag
    n[st.SMVD] = sps.sps_smvd_enabled_flag and not ph.ph_mvd_l1_zero_flag and _symmetric(part)
    n[st.BCW], n[st.CIIP], n[st.GPM] = sps.sps_bcw_enabled_flag, sps.sps_ciip_enabled_flag, sps.sps_gpm_enabled_flag
    n[st.MAX_MERGE], n[st.MAX_GPM_MERGE] = sps.max_num_merge_cand, sps.max_num_gpm_merge_cand
    n[st.MAX_SUBBLOCK_MERGE] = sps.max_num_subblock_merge_cand
    if not sps.sps_affine_enabled_flag:
        # MaxNumSubblockMergeCand without affine: sub-block temporal prediction is the one candidate.
        n[st.MAX_SUBBLOCK_MERGE] = sps.sps_sbtmvp_enabled_flag and ph.ph_temporal_mvp_enabled_flag
    n[st.MVD_L1_ZERO] = ph.ph_mvd_l1_zero_flag
    n[st.NO_BACKWARD] = all(poc <= part.poc for entries in part.references for _, poc in entries)
    n[st.ACTIVE_L0], n[st.ACTIVE_L1] = h.num_ref_idx_active
    n[st.WEIGHTED_L0], n[st.WEIGHTED_L1] = (sum(flag << i for i, flag in enumerate(flags)) for flags in h.weights)


def _symmetric(part: Slice) -> bool:
    """Whether RefIdxSymL0 and RefIdxSymL1 exist (clause 8.3.5): short-term pictures, one list's before and the other's
    behind the current one."""
    if part.header.slice_type != "B":
        return False
    before = [any(poc < part.poc and not long for long, poc in entries) for entries in part.references]
    behind = [any(poc > part.poc and not long for long, poc in entries) for entries in part.references]
    return (before[0] and behind[1]) or (before[1] and behind[0])
