"""The coding units of pictures: what the compiled parser needs from headers, and the columns that come out."""

from types import SimpleNamespace

import numpy as np
import numpy.typing as npt

from codecnn.errors import FormatError
from codecnn.vvc import state as st
from codecnn.vvc.aps import AlfFilters
from codecnn.vvc.compiled import compiled_once
from codecnn.vvc.contexts import initial_contexts
from codecnn.vvc.pictures import Picture, Slice
from codecnn.vvc.slice_data import CUS_OF_A_CTU, parse_ctus
from codecnn.vvc.tiles import ADDRESS, MAX_TILES, slice_ctus

_FAULTS = {
    st.FAULT_END: "its data ends early",
    st.FAULT_SPLIT: "a block reaches past the picture and cannot be split",
    st.FAULT_TERMINATE: "it does not end where its data ends",
    st.FAULT_QP: "a QP changes by more than it may",
}


def coding_units(picture: Picture) -> npt.NDArray[np.int32]:
    """Every coding unit of a picture in decoding order: an int32 array (n, 18), columns as in `state.CU_COLUMNS`.

    Positions and sizes are luma samples, also of a separate chroma tree (`channel` 1), whose rows carry no modes: -1
    is what a row does not have. Raises FormatError for damaged slice data.
    """
    sps, pps = picture.sps, picture.pps
    maps = np.zeros((st.MAPS, pps.height // 4, pps.width // 4), np.int16)
    ctbs = np.zeros((st.CTB_MAPS, pps.ctbs_high, pps.ctbs_wide), np.int32)
    rows: list[npt.NDArray[np.int32]] = []
    regions = ctbs[st.CTB_REGION].reshape(-1)
    for index, part in enumerate(picture.slices):
        ctus = slice_ctus(pps, part.header.parts, sps.entropy_coding_sync_enabled_flag)
        if regions[ctus[:, ADDRESS]].any():
            raise FormatError(f"slice {index} covers what another slice covers")
        n = _numbers(part, sps, pps)
        n[st.REGION] = 1 + index * (MAX_TILES + 1)
        rows += _parse_slice(part, index, n, ctus, maps, ctbs)
    missing = int(np.count_nonzero(regions == 0))
    if missing:
        raise FormatError(f"{missing} of {regions.size} CTUs are in no slice")
    return np.concatenate(rows)


def _parse_slice(
    part: Slice,
    index: int,
    n: st.Ints,
    ctus: st.Ints,
    maps: npt.NDArray[np.int16],
    ctbs: npt.NDArray[np.int32],
) -> list[npt.NDArray[np.int32]]:
    h = part.header
    data = np.frombuffer(part.rbsp, np.uint8)[part.start :].copy()
    n[st.END] = len(data)
    n[st.INITIAL :] = initial_contexts(h.slice_type, h.cabac_init_flag, h.qp)
    work = st.Work(n, data, maps)
    cus = np.empty((8 * CUS_OF_A_CTU, len(st.CU_COLUMNS)), np.int32)
    rows = []
    while n[st.CTU] < len(ctus):
        n[st.CU_COUNT] = 0
        with compiled_once(parse_ctus):
            parse_ctus(work, ctbs, ctus, cus)
        if n[st.FAULT]:
            raise FormatError(f"slice {index}, CTU {n[st.CTU] - 1}: {_FAULTS[int(n[st.FAULT])]}")
        rows.append(cus[: n[st.CU_COUNT]].copy())
    return rows


def _numbers(part: Slice, sps: SimpleNamespace, pps: SimpleNamespace) -> st.Ints:
    """`Work.n` with what the headers tell."""
    h, ph = part.header, part.picture_header
    n = np.zeros(st.NUMBERS, np.int64)

    def put(values: dict[int, int]) -> None:
        for index, value in values.items():
            n[index] = value

    put({st.QP_Y: h.qp, st.SLICE_QP: h.qp, st.BIT_DEPTH: sps.bit_depth})
    put({st.WIDTH: pps.width, st.HEIGHT: pps.height, st.LOG2_CTU: sps.log2_ctu, st.LOG2_MIN_CB: sps.log2_min_cb})
    put({st.CHROMA: sps.chroma_format_idc, st.SUB_WIDTH: sps.sub_width_log2, st.SUB_HEIGHT: sps.sub_height_log2})
    intra = h.slice_type == "I"
    put({st.IS_I: intra, st.IS_B: h.slice_type == "B", st.DUAL_TREE: sps.qtbtt_dual_tree_intra_flag})
    put({st.WAVEFRONT: sps.entropy_coding_sync_enabled_flag})
    luma = ph.intra_luma if intra else ph.inter
    chroma = ph.intra_chroma if intra else ph.inter
    put({st.MIN_QT_Y: 1 << luma[0], st.MAX_MTT_Y: luma[1], st.MAX_BT_Y: 1 << luma[2], st.MAX_TT_Y: 1 << luma[3]})
    put({st.MIN_QT_C: 1 << chroma[0], st.MAX_MTT_C: chroma[1], st.MAX_BT_C: 1 << chroma[2]})
    put({st.MAX_TT_C: 1 << chroma[3]})
    subdivs = ph.intra_subdivs if intra else ph.inter_subdivs
    put({st.QP_DELTA: pps.cu_qp_delta_enabled_flag, st.QP_DELTA_SUBDIV: subdivs[0]})
    put({st.CHROMA_QP_OFFSET: h.cu_chroma_qp_offset_enabled_flag, st.CHROMA_QP_OFFSET_SUBDIV: subdivs[1]})
    put({st.CHROMA_QP_OFFSET_LIST: pps.chroma_qp_offset_list_len})
    put({st.MAX_TB: 1 << sps.log2_max_tb, st.MAX_TS: 1 << sps.log2_max_ts})
    put({st.TRANSFORM_SKIP: sps.transform_skip_enabled_flag, st.BDPCM: sps.bdpcm_enabled_flag})
    put({st.MTS: sps.mts_enabled_flag, st.MTS_INTRA: sps.explicit_mts_intra_enabled_flag})
    put({st.MTS_INTER: sps.explicit_mts_inter_enabled_flag, st.LFNST: sps.lfnst_enabled_flag})
    put({st.JOINT_CBCR: sps.joint_cbcr_enabled_flag, st.SBT: sps.sbt_enabled_flag, st.ISP: sps.isp_enabled_flag})
    put({st.MRL: sps.mrl_enabled_flag, st.MIP: sps.mip_enabled_flag, st.CCLM: sps.cclm_enabled_flag})
    put({st.IBC: sps.ibc_enabled_flag, st.MAX_IBC_MERGE: sps.max_num_ibc_merge_cand, st.AMVR: sps.amvr_enabled_flag})
    put({st.DEP_QUANT: h.dep_quant_used_flag, st.SIGN_HIDING: h.sign_data_hiding_used_flag})
    put({st.TS_RESIDUAL_OFF: h.ts_residual_coding_disabled_flag})
    put({st.SAO_LUMA: h.sao_luma_used_flag, st.SAO_CHROMA: h.sao_chroma_used_flag})
    put(_alf_numbers(h.alf, part.filters))
    if not intra:
        put(_inter_numbers(part, sps))
    return n


def _alf_numbers(alf: SimpleNamespace, filters: dict[int, AlfFilters]) -> dict[int, int]:
    if not alf.alf_enabled_flag:
        return {}
    chroma = alf.alf_aps_id_chroma if alf.alf_cb_enabled_flag or alf.alf_cr_enabled_flag else None
    used = (chroma, alf.alf_cc_cb_aps_id, alf.alf_cc_cr_aps_id)
    for number in used:
        if number is not None and number not in filters:
            raise FormatError(f"there is no ALF parameter set {number}")
    counts = [0 if number is None else max(1, filters[number][kind]) for kind, number in enumerate(used)]
    return {
        st.ALF: 1,
        st.ALF_CB: alf.alf_cb_enabled_flag,
        st.ALF_CR: alf.alf_cr_enabled_flag,
        st.ALF_APS_LUMA: alf.num_alf_aps_ids_luma,
        st.ALF_CHROMA_FILTERS: counts[0],
        st.CC_CB_FILTERS: counts[1],
        st.CC_CR_FILTERS: counts[2],
    }


def _inter_numbers(part: Slice, sps: SimpleNamespace) -> dict[int, int]:
    h, ph = part.header, part.picture_header
    subblock = sps.max_num_subblock_merge_cand
    if not sps.affine_enabled_flag:
        subblock = int(sps.sbtmvp_enabled_flag and ph.temporal_mvp_enabled_flag)
    weighted = [sum(flag << i for i, flag in enumerate(flags)) for flags in h.weights]
    return {
        st.AFFINE: sps.affine_enabled_flag,
        st.AFFINE_TYPE: sps.six_param_affine_enabled_flag,
        st.AFFINE_AMVR: sps.affine_amvr_enabled_flag,
        st.SMVD: sps.smvd_enabled_flag and not ph.mvd_l1_zero_flag and _symmetric(part),
        st.MMVD: sps.mmvd_enabled_flag,
        st.BCW: sps.bcw_enabled_flag,
        st.CIIP: sps.ciip_enabled_flag,
        st.GPM: sps.gpm_enabled_flag,
        st.MAX_MERGE: sps.max_num_merge_cand,
        st.MAX_GPM_MERGE: sps.max_num_gpm_merge_cand,
        st.MAX_SUBBLOCK_MERGE: subblock,
        st.MVD_L1_ZERO: ph.mvd_l1_zero_flag,
        st.NO_BACKWARD: all(poc <= part.poc for entries in part.references for _, poc in entries),
        st.ACTIVE_L0: h.active[0],
        st.ACTIVE_L1: h.active[1],
        st.WEIGHTED_L0: weighted[0],
        st.WEIGHTED_L1: weighted[1],
    }


def _symmetric(part: Slice) -> bool:
    """Whether RefIdxSymL0 and RefIdxSymL1 exist (clause 8.3.5): short-term pictures, one list's before and the other's
    behind the current one."""
    if part.header.slice_type != "B":
        return False
    before = [any(poc < part.poc and not long for long, poc in entries) for entries in part.references]
    behind = [any(poc > part.poc and not long for long, poc in entries) for entries in part.references]
    return (before[0] and behind[1]) or (before[1] and behind[0])
