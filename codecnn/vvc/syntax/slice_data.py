"""Slice data (H.266 clause 7.3.11.1): the CTUs of a slice, its substreams and its end.

`parse_ctus` is the compiled parser. `parsed_ctus` initialises it from the headers of each slice and runs it;
`coding_units` and `transform_blocks` collect its results in tables.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import carray  # type: ignore[attr-defined]

from codecnn.base.compiled import COMPILED, compiled, compiled_entry, compiled_once, pointer, source_digest
from codecnn.base.errors import FormatError
from codecnn.base.records import record_at
from codecnn.vvc.syntax import log as lg
from codecnn.vvc.syntax import state as st
from codecnn.vvc.syntax.aps import AlfFilters
from codecnn.vvc.syntax.cabac import decode_terminating_one, start_decoder
from codecnn.vvc.syntax.coding_tree import coding_tree_of_ctu
from codecnn.vvc.syntax.contexts import CONTEXT_NUMBERS, initial_contexts
from codecnn.vvc.syntax.intra import VERTICAL
from codecnn.vvc.syntax.log import CODING_UNIT, CTU_LOG_SIZE, TRANSFORM_UNIT, CodingUnit, TransformUnit
from codecnn.vvc.syntax.loop_filters import alf, sao
from codecnn.vvc.syntax.picture_header import AlfSelection
from codecnn.vvc.syntax.pictures import ParsedPicture, Slice
from codecnn.vvc.syntax.sps import SequenceParameterSet
from codecnn.vvc.syntax.state import CtbMaps, Ints, Work
from codecnn.vvc.syntax.tiles import (
    ADDRESS,
    END_OF_NOTHING,
    END_OF_SLICE,
    ENDS,
    FIRST_IN_ROW,
    MAX_TILES,
    TILE,
    slice_ctus,
)

_FAULTS = {
    st.FAULT_END: "its data ends early",
    st.FAULT_SPLIT: "a block reaches past the picture and cannot be split",
    st.FAULT_TERMINATE: "it does not end where its data ends",
    st.FAULT_QP: "a QP changes by more than allowed",
    st.FAULT_LEVEL: "a coefficient level has more bits than allowed",
    st.FAULT_PALETTE: "a palette has more entries than allowed",
}
"""Error messages by value of n[FAULT]."""

_BLOCK_COLUMNS = "component x y w h cbf ts mts tr_hor tr_ver lfnst bdpcm joint_cbcr nonzero"

BLOCK_COLUMNS = tuple(_BLOCK_COLUMNS.split())
"""Columns of the array of transform blocks; positions and sizes are in luma samples, also of chroma blocks."""

_LOG_SIZE = 4 * lg.CTU_LOG_SIZE

COMPILATION = "the VVC decoder", "two minutes"
"""Name of the compiled code of parser and decoder in messages, and how long its compilation takes."""


class ParsedCtus(NamedTuple):
    """Some consecutive CTUs of one slice.

    Attributes:
        number: Index of the slice in the picture.
        part: The slice.
        cus: Coding units, shape (n, columns), int32.
        log: Log of the CTUs (`codecnn.vvc.syntax.log`).
        ctbs: Maps of the picture in CTUs (`state.CTB_REGION`), complete with the last batch.
        addresses: Addresses of the CTUs in raster order of the picture, shape (n,).
        bits: Size of the CTUs in the slice data, in bits. The sizes of all CTUs of a slice add up to its data.
    """

    number: int
    part: Slice
    cus: npt.NDArray[np.int32]
    log: st.Ints
    ctbs: CtbMaps
    addresses: st.Ints
    bits: int


def coding_units(picture: ParsedPicture) -> npt.NDArray[np.int32]:
    """Parse every coding unit of a picture.

    Args:
        picture: The picture.

    Returns:
        The coding units in decoding order, columns `CU_COLUMNS`, shape (n, columns), int32. Positions and sizes are in
        luma samples, also in a separate chroma tree (`channel` 1), whose rows have no modes. A value that a row does
        not have is -1.

    Raises:
        FormatError: The slice data is damaged.
    """
    return np.concatenate([ctus.cus.copy() for ctus in parsed_ctus(picture)])


def transform_blocks(picture: ParsedPicture) -> npt.NDArray[np.int32]:
    """Parse every transform block of a picture.

    Palette units and units without a transform tree, such as skipped ones, have no transform blocks.

    Args:
        picture: The picture.

    Returns:
        The transform blocks in decoding order, columns `BLOCK_COLUMNS`, shape (n, columns), int32.

    Raises:
        FormatError: The slice data is damaged.
    """
    rows = [row for ctus in parsed_ctus(picture, _LOG_SIZE) for row in logged_blocks(ctus.log, picture.sps)]
    return np.array(rows, np.int32).reshape(-1, len(BLOCK_COLUMNS))


def logged_blocks(log: st.Ints, sps: SequenceParameterSet) -> Iterator[tuple[int, ...]]:
    """Yield the rows of the transform blocks of a log, columns `BLOCK_COLUMNS`."""
    # Sizes of the smallest block that may have LFNST: of luma, then width and height of chroma, all in luma samples.
    least = 4, 4 << sps.log2_sub_width_c, 4 << sps.log2_sub_height_c
    at = 0
    while at < len(log):
        cu: CodingUnit = record_at(log, at, CODING_UNIT)
        tu_at = at + lg.UNIT_HEADER
        first = 1 if cu.tree == st.DUAL_CHROMA else 0
        for _ in range(cu.num_transform_units):
            tu: TransformUnit = record_at(log, tu_at, TRANSFORM_UNIT)
            for component in range(first, 3 if tu.has_chroma else 1):
                yield tuple(map(int, _block(cu, tu, component, least)))
            tu_at += lg.BLOCK_HEADER + sum(int(tu.num_levels[component]) for component in range(3))
        at += int(cu.length)


def _block(cu: CodingUnit, tu: TransformUnit, component: int, least: tuple[int, int, int]) -> tuple[int, ...]:
    cbf, ts = tu.coded >> component & 1, tu.transform_skip >> component & 1
    nonzero, joint = tu.num_levels[component], tu.joint
    area = tu.x, tu.y, tu.width, tu.height
    if not component:
        kernels = (cu.tr_type_hor, cu.tr_type_ver) if cbf and not ts else (st.DCT2, st.DCT2)
        lfnst = cu.lfnst_idx if cbf and not ts and min(tu.width, tu.height) >= least[0] else 0
        bdpcm = _direction(cu.intra_bdpcm_luma_flag, cu.intra_pred_mode_y)
        return component, *area, cbf, ts, cu.mts_idx, *kernels, lfnst, bdpcm, 0, nonzero
    # With sub-partitions (ISP) chroma has one block for the whole unit.
    if cu.isp_split_type:
        area = cu.x, cu.y, cu.width, cu.height
    lfnst = 0
    # Chroma has LFNST only in a separate tree.
    if cbf and not ts and cu.tree != st.SINGLE and area[2] >= least[1] and area[3] >= least[2]:
        lfnst = cu.lfnst_idx
    bdpcm = _direction(cu.intra_bdpcm_chroma_flag, cu.intra_pred_mode_c)
    return component, *area, cbf, ts, 0, st.DCT2, st.DCT2, lfnst, bdpcm, joint, nonzero


def _direction(bdpcm: int, mode: int) -> int:
    """Return the same as `coding_unit.bdpcm_direction`, which only compiled functions can call."""
    return 0 if not bdpcm else 2 if mode == VERTICAL else 1


def parsed_ctus(picture: ParsedPicture, log_size: int = 0) -> Iterator[ParsedCtus]:
    """Parse the CTUs of a picture, a batch at a time.

    Args:
        picture: The picture.
        log_size: Size of the log, `CTU_LOG_SIZE` at least; 0 keeps no log.

    Yields:
        CTUs in decoding order; the next batch overwrites the arrays.

    Raises:
        FormatError: The slice data is damaged, or slices overlap or do not cover the picture.
    """
    sps, pps = picture.sps, picture.pps
    height, width = pps.pps_pic_height_in_luma_samples, pps.pps_pic_width_in_luma_samples
    maps = np.zeros((st.MAPS, height // 4, width // 4), np.int16)
    ctbs = np.zeros((st.CTB_MAPS, pps.tiles.rows[-1], pps.tiles.columns[-1]), np.int32)
    cus = np.empty((8 * MAX_CTU_UNITS, len(st.CU_COLUMNS)), np.int32)
    regions = ctbs[st.CTB_REGION].reshape(-1)
    for index, part in enumerate(picture.slices):
        ctus = slice_ctus(pps.tiles, part.header.parts, sps.sps_entropy_coding_sync_enabled_flag)
        if regions[ctus[:, ADDRESS]].any():
            raise FormatError(f"slice {index} overlaps another slice")
        n = _numbers(part, log_size)
        n[st.REGION] = 1 + index * (MAX_TILES + 1)
        n[st.KEEP] = log_size > 0
        data = np.frombuffer(part.rbsp, np.uint8)[part.start :].copy()
        n[st.END] = len(data)
        work = st.Work(n, data, maps)
        while n[st.CTU] < len(ctus):
            n[st.CU_COUNT], n[st.LOG] = 0, st.NUMBERS
            first, before = int(n[st.CTU]), _bits_read(n, len(ctus))
            with compiled_once(parse_ctus, *COMPILATION):
                parse_ctus(work, ctbs, ctus, cus)
            if n[st.FAULT]:
                raise FormatError(f"slice {index}, CTU {n[st.CTU] - 1}: {_FAULTS[int(n[st.FAULT])]}")
            addresses = ctus[first : n[st.CTU], ADDRESS]
            bits = _bits_read(n, len(ctus)) - before
            log = n[st.NUMBERS : n[st.LOG]]
            yield ParsedCtus(index, part, cus[: n[st.CU_COUNT]], log, ctbs, addresses, bits)
    missing = int(np.count_nonzero(regions == 0))
    if missing:
        raise FormatError(f"{missing} of {regions.size} CTUs are in no slice")


def _bits_read(n: st.Ints, count: int) -> int:
    """Return the number of bits of the slice data that the arithmetic decoder has read after CTU n[CTU] of `count`."""
    if n[st.CTU] == count:
        return 8 * int(n[st.END])
    # VALUE holds up to seven bits more than the standard's ivlOffset: NEEDED rises from -8 to 0 as they are used up.
    return 8 * int(n[st.POSITION]) + int(n[st.NEEDED]) + 1 if n[st.POSITION] else 0


def _numbers(part: Slice, log_size: int) -> st.Ints:
    """Return `Work.n` with the values of the headers."""
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
    names = ("chroma", "cc_cb", "cc_cr")
    used = (alf.alf_aps_id_chroma, alf.alf_cc_cb_aps_id, alf.alf_cc_cr_aps_id)
    wanted = [*(("luma", number) for number in alf.alf_aps_id_luma), *zip(names, used, strict=True)]
    for name, number in wanted:
        if number is not None and not (number in filters and len(getattr(filters[number], name))):
            raise FormatError(f"there is no ALF parameter set {number} with {name} filters")
    counts = [0 if number is None else len(getattr(filters[number], name)) for name, number in wanted[-3:]]
    n[st.ALF], n[st.ALF_APS_LUMA] = alf.alf_enabled_flag, len(alf.alf_aps_id_luma)
    n[st.ALF_CB], n[st.ALF_CR] = alf.alf_cb_enabled_flag, alf.alf_cr_enabled_flag
    n[st.ALF_CHROMA_FILTERS], n[st.CC_CB_FILTERS], n[st.CC_CR_FILTERS] = counts


def _put_inter(n: st.Ints, part: Slice) -> None:
    h, ph, sps = part.header, part.picture_header, part.picture_header.sps
    n[st.AFFINE], n[st.AFFINE_TYPE] = sps.sps_affine_enabled_flag, sps.sps_6param_affine_enabled_flag
    n[st.AFFINE_AMVR], n[st.MMVD] = sps.sps_affine_amvr_enabled_flag, sps.sps_mmvd_enabled_flag
    n[st.SMVD] = sps.sps_smvd_enabled_flag and not ph.ph_mvd_l1_zero_flag and _has_symmetric_references(part)
    n[st.BCW], n[st.CIIP], n[st.GPM] = sps.sps_bcw_enabled_flag, sps.sps_ciip_enabled_flag, sps.sps_gpm_enabled_flag
    n[st.MAX_MERGE], n[st.MAX_GPM_MERGE] = sps.max_num_merge_cand, sps.max_num_gpm_merge_cand
    n[st.MAX_SUBBLOCK_MERGE] = sps.max_num_subblock_merge_cand
    if not sps.sps_affine_enabled_flag:
        # MaxNumSubblockMergeCand without affine: sub-block temporal prediction is the only candidate.
        n[st.MAX_SUBBLOCK_MERGE] = sps.sps_sbtmvp_enabled_flag and ph.ph_temporal_mvp_enabled_flag
    n[st.MVD_L1_ZERO] = ph.ph_mvd_l1_zero_flag
    n[st.NO_BACKWARD] = all(poc <= part.poc for entries in part.references for _, poc in entries)
    n[st.ACTIVE_L0], n[st.ACTIVE_L1] = h.num_ref_idx_active
    n[st.WEIGHTED_L0], n[st.WEIGHTED_L1] = (
        sum(entry.weighted << i for i, entry in enumerate(entries)) for entries in h.weights.lists
    )


def _has_symmetric_references(part: Slice) -> bool:
    """Return True if RefIdxSymL0 and RefIdxSymL1 exist (clause 8.3.5).

    They need short-term pictures, those of one list before and those of the other after the current picture.
    """
    if part.header.slice_type != "B":
        return False
    before = [any(poc < part.poc and not long for long, poc in entries) for entries in part.references]
    after = [any(poc > part.poc and not long for long, poc in entries) for entries in part.references]
    return (before[0] and after[1]) or (before[1] and after[0])


MAX_CTU_UNITS = 2048
"""Largest number of coding units of a CTU: 1,024 luma and 1,024 chroma blocks of 4x4 samples in 128x128."""


@compiled
def borrowed(w: Work) -> Work:
    """Return the arrays of `w` without reference counts; the caller keeps the originals alive.

    Otherwise each function would count references, which takes longer than decoding the bins.
    """
    return Work(
        carray(pointer(w.n.ctypes.data), w.n.shape, np.int64),
        carray(pointer(w.data.ctypes.data), w.data.shape, np.uint8),
        carray(pointer(w.maps.ctypes.data), w.maps.shape, np.int16),
    )


@compiled
def start_substream(w: Work) -> None:
    """Begin a slice, a tile or a row of a wavefront (clause 9.3.1)."""
    n = w.n
    start_decoder(w)
    n[st.QG_FIRST] = 1
    n[st.QP_Y] = n[st.SLICE_QP]
    # Except in the rows of a wavefront, the CTU above belongs to another slice or tile.
    source = st.KEPT if n[st.TOP_AVAILABLE] else st.INITIAL
    n[st.CONTEXTS : st.CONTEXTS + CONTEXT_NUMBERS] = n[source : source + CONTEXT_NUMBERS]
    # StatCoeff (clause 9.3.2.1): 2 * Floor(Log2(BitDepth - 10)) for 11 to 16 bit.
    stat = 4 if n[st.BIT_DEPTH] >= 14 else 2 if n[st.BIT_DEPTH] >= 12 else 0
    n[st.STAT_COEFF : st.STAT_COEFF + 3] = stat if n[st.PERSISTENT_RICE] else 0
    n[st.PREDICTOR : st.PREDICTOR + st.PREDICTOR_NUMBERS] = 0
    if n[st.TOP_AVAILABLE]:
        kept = n[st.KEPT_PREDICTOR : st.KEPT_PREDICTOR + st.PREDICTOR_NUMBERS]
        n[st.PREDICTOR : st.PREDICTOR + st.PREDICTOR_NUMBERS] = kept


def _entry(sources: str) -> Callable[[Work, CtbMaps, Ints, npt.NDArray[np.int32]], str]:
    """Compile `parse_ctus`; numba distinguishes cached code by closure variables, here the digest `sources`."""

    @compiled_entry
    def parse_ctus(owned: Work, ctbs: CtbMaps, ctus: Ints, cus: npt.NDArray[np.int32]) -> str:
        """Parse CTUs until the slice ends, `cus` or the log might not hold the next CTU, or a fault occurs.

        Args:
            owned: State of the parser.
            ctbs: Maps of the picture in CTUs, shape (CTB_MAPS, rows, columns).
            ctus: CTUs of the slice, as `tiles.slice_ctus` returns them.
            cus: Rows of coding units to fill, shape (n, columns).

        Returns:
            Digest of the sources.
        """
        w = borrowed(owned) if COMPILED else owned
        n = w.n
        columns = ctbs.shape[2]
        while n[st.CTU] < len(ctus) and n[st.CU_COUNT] + MAX_CTU_UNITS <= len(cus) and not n[st.FAULT]:
            if n[st.KEEP] and n[st.LOG] + CTU_LOG_SIZE > len(n):
                break
            index = n[st.CTU]
            n[st.CTU] += 1
            x, y = ctus[index, ADDRESS] % columns, ctus[index, ADDRESS] // columns
            n[st.CTB_X], n[st.CTB_Y] = x << n[st.LOG2_CTU], y << n[st.LOG2_CTU]
            # Slices and tiles are parsed independently: blocks of another one are not available (clause 6.4.4).
            region = n[st.REGION] + ctus[index, TILE]
            ctbs[st.CTB_REGION, y, x] = n[st.CTU_REGION] = region
            n[st.LEFT_AVAILABLE] = int(x > 0 and ctbs[st.CTB_REGION, y, x - 1] == region)
            n[st.TOP_AVAILABLE] = int(y > 0 and ctbs[st.CTB_REGION, y - 1, x] == region)
            if index == 0 or ctus[index - 1, ENDS] != END_OF_NOTHING:
                start_substream(w)
            if ctus[index, FIRST_IN_ROW]:
                n[st.QG_ROW_FIRST] = 1
                n[st.VECTORS] = 0
            # In-loop filters change no decision on blocks: two streams that differ only in them have the same hash.
            bins = n[st.BINS]
            sao(w, ctbs, x, y)
            alf(w, ctbs, x, y)
            n[st.BINS] = bins
            coding_tree_of_ctu(w, cus)
            # A row of a wavefront starts with the contexts after the first CTU of the row above, so that rows can be
            # decoded in parallel, each one CTU later than the row above.
            if n[st.WAVEFRONT] and ctus[index, FIRST_IN_ROW]:
                n[st.KEPT : st.KEPT + CONTEXT_NUMBERS] = n[st.CONTEXTS : st.CONTEXTS + CONTEXT_NUMBERS]
                predictor = n[st.PREDICTOR : st.PREDICTOR + st.PREDICTOR_NUMBERS]
                n[st.KEPT_PREDICTOR : st.KEPT_PREDICTOR + st.PREDICTOR_NUMBERS] = predictor
            ends = ctus[index, ENDS]
            if ends != END_OF_NOTHING and not n[st.FAULT]:
                decode_terminating_one(w)
                if ends == END_OF_SLICE and n[st.POSITION] != n[st.END]:
                    n[st.FAULT] = st.FAULT_TERMINATE
        return sources

    return parse_ctus


parse_ctus = _entry(source_digest(Path(__file__).parent))
