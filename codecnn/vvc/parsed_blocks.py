"""The transform blocks of a picture, from the log of its slice data."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from codecnn.vvc import log as lg
from codecnn.vvc import state as st
from codecnn.vvc.intra import VERTICAL
from codecnn.vvc.parsed_units import parsed_ctus
from codecnn.vvc.pictures import Picture

_BLOCK_COLUMNS = "component x y w h cbf ts mts tr_hor tr_ver lfnst bdpcm joint_cbcr nonzero"
BLOCK_COLUMNS = tuple(_BLOCK_COLUMNS.split())
"""Columns of transform blocks; places and sizes in luma samples, of chroma too."""

_LOG_SIZE = 4 * lg.LOG_OF_A_CTU


def transform_blocks(picture: Picture) -> npt.NDArray[np.int32]:
    """Every transform block of a picture in decoding order: an int32 array (n, columns) as in BLOCK_COLUMNS.

    Palette units have none, nor have units without a transform tree, as skipped ones. Raises FormatError for damaged
    slice data.
    """
    sps = picture.sps
    least = 4, 4 << sps.log2_sub_width_c, 4 << sps.log2_sub_height_c
    rows = [row for some in parsed_ctus(picture, _LOG_SIZE) for row in _logged(some.log, least)]
    return np.array(rows, np.int32).reshape(-1, len(BLOCK_COLUMNS))


def _logged(log: st.Ints, least: tuple[int, int, int]) -> Iterator[tuple[int, ...]]:
    """The blocks of a log; `least` are 4 luma samples, and as many luma samples as 4 of chroma are wide and high."""
    at = 0
    while at < len(log):
        unit = log[at : at + lg.UNIT_HEADER].tolist()
        place = at + lg.UNIT_HEADER
        first = 1 if unit[lg.U_TREE] == st.DUAL_CHROMA else 0
        for _ in range(unit[lg.U_UNITS]):
            tu = log[place : place + lg.BLOCK_HEADER].tolist()
            for component in range(first, 3 if tu[lg.T_CHROMA] else 1):
                yield _block(unit, tu, component, least)
            place += lg.BLOCK_HEADER + sum(tu[lg.T_LEVELS :])
        at += unit[lg.U_SIZE]


def _block(unit: list[int], tu: list[int], component: int, least: tuple[int, int, int]) -> tuple[int, ...]:
    cbf, ts = tu[lg.T_CODED] >> component & 1, tu[lg.T_SKIP] >> component & 1
    nonzero, joint = tu[lg.T_LEVELS + component], tu[lg.T_JOINT]
    if not component:
        area = tu[lg.T_X : lg.T_H + 1]
        kernels = (unit[lg.U_KERNEL_H], unit[lg.U_KERNEL_V]) if cbf and not ts else (st.DCT2, st.DCT2)
        lfnst = unit[lg.U_LFNST] if cbf and not ts and min(area[2:]) >= least[0] else 0
        bdpcm = _direction(unit[lg.U_BDPCM], unit[lg.U_MODE])
        return component, *area, cbf, ts, unit[lg.U_MTS], *kernels, lfnst, bdpcm, 0, nonzero
    # With sub-partitions (ISP) chroma has one block, of the whole unit.
    area = unit[lg.U_X : lg.U_H + 1] if unit[lg.U_ISP] else tu[lg.T_X : lg.T_H + 1]
    lfnst = 0
    # Chroma has LFNST in a tree of its own only.
    if cbf and not ts and unit[lg.U_TREE] != st.SINGLE and area[2] >= least[1] and area[3] >= least[2]:
        lfnst = unit[lg.U_LFNST]
    bdpcm = _direction(unit[lg.U_BDPCM_C], unit[lg.U_MODE_C])
    return component, *area, cbf, ts, 0, st.DCT2, st.DCT2, lfnst, bdpcm, joint, nonzero


def _direction(bdpcm: int, mode: int) -> int:
    """As `coding_unit.bdpcm_direction`, which is compiled for compiled functions alone to call."""
    return 0 if not bdpcm else 2 if mode == VERTICAL else 1
