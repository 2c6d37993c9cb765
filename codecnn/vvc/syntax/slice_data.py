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
from codecnn.base.records import Records, copy_record, record_at
from codecnn.vvc.syntax import log as lg
from codecnn.vvc.syntax import state as st
from codecnn.vvc.syntax.cabac import decode_terminating_one, start_decoder
from codecnn.vvc.syntax.coding_tree import coding_tree_of_ctu
from codecnn.vvc.syntax.initialise import new_work
from codecnn.vvc.syntax.intra import VERTICAL
from codecnn.vvc.syntax.log import CODING_UNIT, CTU_LOG_SIZE, TRANSFORM_UNIT, CodingUnit, TransformUnit
from codecnn.vvc.syntax.loop_filters import alf, sao
from codecnn.vvc.syntax.maps import BLOCK_CELL, CTB_CELL
from codecnn.vvc.syntax.pictures import ParsedPicture, Slice
from codecnn.vvc.syntax.records import Parser
from codecnn.vvc.syntax.sps import SequenceParameterSet
from codecnn.vvc.syntax.state import Work
from codecnn.vvc.syntax.tiles import END_OF_SLICE, MAX_TILES, NO_END, slice_ctus
from codecnn.vvc.syntax.unit_rows import UNIT_ROW

_FAULTS = {
    st.FAULT_END: "its data ends early",
    st.FAULT_SPLIT: "a block reaches past the picture and cannot be split",
    st.FAULT_TERMINATE: "it does not end where its data ends",
    st.FAULT_QP: "a QP changes by more than allowed",
    st.FAULT_LEVEL: "a coefficient level has more bits than allowed",
    st.FAULT_PALETTE: "a palette has more entries than allowed",
}
"""Error messages by value of `Parser.fault`."""

_BLOCK_COLUMNS = "component x y w h cbf ts mts tr_hor tr_ver lfnst bdpcm joint_cbcr nonzero"

BLOCK_COLUMNS = tuple(_BLOCK_COLUMNS.split())
"""Columns of the array of transform blocks; positions and sizes are in luma samples, also of chroma blocks."""

_LOG_SIZE = 4 * lg.CTU_LOG_SIZE

COMPILATION = "the VVC decoder", "a minute"
"""Name of the compiled code of parser and decoder in messages, and how long its compilation takes."""


class ParsedCtus(NamedTuple):
    """Some consecutive CTUs of one slice.

    Attributes:
        number: Index of the slice in the picture.
        part: The slice.
        cus: Coding units, shape (n, columns), int32.
        log: Log of the CTUs (`codecnn.vvc.syntax.log`).
        ctbs: CTUs of the picture, cells of type `maps.CTB_CELL`, shape (rows, columns), complete with the last batch.
        addresses: Addresses of the CTUs in raster order of the picture, shape (n,).
        bits: Size of the CTUs in the slice data, in bits. The sizes of all CTUs of a slice add up to its data.
    """

    number: int
    part: Slice
    cus: npt.NDArray[np.int32]
    log: st.Ints
    ctbs: Records
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
    """Return the same as `unit_rows.bdpcm_direction`, which only compiled functions can call."""
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
    cells = np.zeros((height // 4, width // 4), BLOCK_CELL)
    ctbs = np.zeros((pps.tiles.rows[-1], pps.tiles.columns[-1]), CTB_CELL)
    units = np.empty(8 * MAX_CTU_UNITS, UNIT_ROW)
    rows = units.view(np.int32).reshape(len(units), -1)
    regions = ctbs["region"].reshape(-1)
    for index, part in enumerate(picture.slices):
        ctus = slice_ctus(pps.tiles, part.header.parts, sps.sps_entropy_coding_sync_enabled_flag)
        if regions[ctus["address"]].any():
            raise FormatError(f"slice {index} overlaps another slice")
        data = np.frombuffer(part.rbsp, np.uint8)[part.start :].copy()
        work = new_work(part, data, cells, log_size)
        s = work.state
        s.current.slice_region = 1 + index * (MAX_TILES + 1)
        while s.current.num_ctus < len(ctus):
            s.current.num_units = s.current.log_at = 0
            first, before = int(s.current.num_ctus), _bits_read(s, len(ctus))
            with compiled_once(parse_ctus, *COMPILATION):
                parse_ctus(work, ctbs, ctus, units)
            if s.fault:
                raise FormatError(f"slice {index}, CTU {s.current.num_ctus - 1}: {_FAULTS[int(s.fault)]}")
            addresses = ctus["address"][first : s.current.num_ctus]
            bits = _bits_read(s, len(ctus)) - before
            log = work.log[: s.current.log_at]
            yield ParsedCtus(index, part, rows[: s.current.num_units], log, ctbs, addresses, bits)
    missing = int(np.count_nonzero(regions == 0))
    if missing:
        raise FormatError(f"{missing} of {regions.size} CTUs are in no slice")


MAX_CTU_UNITS = 2048
"""Largest number of coding units of a CTU: 1,024 luma and 1,024 chroma blocks of 4x4 samples in 128x128."""


def _bits_read(s: Parser, count: int) -> int:
    """Return the number of bits of the slice data that are read after CTU `num_ctus` of `count`."""
    if s.current.num_ctus == count:
        return 8 * int(s.cabac.end)
    # `ivl_offset` holds up to seven bits more than ivlOffset: `bits_needed` rises from -8 to 0 as they are used up.
    return 8 * int(s.cabac.position) + int(s.cabac.bits_needed) + 1 if s.cabac.position else 0


@compiled
def start_substream(w: Work) -> None:
    """Begin a slice, a tile or a row of a wavefront.

    Part of clause 9.3.1, CABAC parsing process for slice data.
    """
    s = w.state
    start_decoder(w)
    s.qg.first_in_substream = 1
    s.qg.qp_y = s.slice.slice_qp_y
    # Except in the rows of a wavefront, the CTU above belongs to another slice or tile.
    if s.current.above_available:
        copy_record(s.entropy, s.wpp)
    else:
        copy_record(s.entropy, s.initial)
    # StatCoeff (clause 9.3.2.1): 2 * Floor(Log2(BitDepth - 10)) for 11 to 16 bit.
    stat = 4 if s.slice.bit_depth >= 14 else 2 if s.slice.bit_depth >= 12 else 0
    for component in range(3):
        s.stat_coeff[component] = stat if s.slice.sps_persistent_rice_adaptation_enabled_flag else 0


def _entry(sources: str) -> Callable[[Work, Records, Records, Records], str]:
    """Compile `parse_ctus`; numba distinguishes cached code by closure variables, here the digest `sources`."""

    @compiled_entry
    def parse_ctus(work: Work, ctbs: Records, ctus: Records, rows: Records) -> str:
        """Parse CTUs until the slice ends, `rows` or the log might not hold the next CTU, or a fault occurs.

        Clause 7.3.11.1, General slice data syntax.

        Args:
            work: State of the parser.
            ctbs: CTUs of the picture, cells of type `maps.CTB_CELL`, shape (rows, columns).
            ctus: CTUs of the slice, as `tiles.slice_ctus` returns them.
            rows: Coding units to fill, of type `unit_rows.UNIT_ROW`, shape (n,).

        Returns:
            Digest of the sources.
        """
        w = work
        if COMPILED:
            # Arrays without reference counts, which would take longer than decoding the bins; the caller keeps the
            # originals alive. Numba cannot return a tuple with records from a function of its own.
            w = Work(
                work.state,
                carray(pointer(work.data.ctypes.data), work.data.shape, np.uint8),
                carray(pointer(work.cells.ctypes.data), work.cells.shape, BLOCK_CELL),
                work.unavailable,
                carray(pointer(work.log.ctypes.data), work.log.shape, np.int64),
            )
        s = w.state
        current = s.current
        columns = ctbs.shape[1]
        while current.num_ctus < len(ctus) and current.num_units + MAX_CTU_UNITS <= len(rows) and not s.fault:
            if current.keep_log and current.log_at + CTU_LOG_SIZE > len(w.log):
                break
            index = current.num_ctus
            current.num_ctus += 1
            ctu = ctus[index]
            x, y = ctu.address % columns, ctu.address // columns
            current.x_ctb, current.y_ctb = x << s.slice.ctb_log2_size_y, y << s.slice.ctb_log2_size_y
            # Slices and tiles are parsed independently: blocks of another one are not available (clause 6.4.4).
            current.region = current.slice_region + ctu.tile
            ctbs[y, x].region = current.region
            current.left_available = int(x > 0 and ctbs[y, x - 1].region == current.region)
            current.above_available = int(y > 0 and ctbs[y - 1, x].region == current.region)
            if index == 0 or ctus[index - 1].ends != NO_END:
                start_substream(w)
            if ctu.first_in_row:
                s.qg.first_in_ctb_row = 1
                s.num_hmvp_ibc_cand = 0
            # In-loop filters change no decision on blocks: two streams that differ only in them have the same hash.
            bins = s.cabac.bins
            sao(w, ctbs, x, y)
            alf(w, ctbs, x, y)
            s.cabac.bins = bins
            coding_tree_of_ctu(w, rows)
            # A row of a wavefront starts with the contexts after the first CTU of the row above, so that rows can be
            # decoded in parallel, each one CTU later than the row above.
            if s.slice.sps_entropy_coding_sync_enabled_flag and ctu.first_in_row:
                copy_record(s.wpp, s.entropy)
            if ctu.ends != NO_END and not s.fault:
                decode_terminating_one(w)
                if ctu.ends == END_OF_SLICE and s.cabac.position != s.cabac.end:
                    s.fault = st.FAULT_TERMINATE
        return sources

    return parse_ctus


parse_ctus = _entry(source_digest(Path(__file__).parent))
