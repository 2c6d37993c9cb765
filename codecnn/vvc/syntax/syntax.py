"""Syntax of a whole picture in one pass: coding units, their inter modes, transform blocks, and bits of each CTU."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from codecnn.base.records import record_at
from codecnn.vvc.syntax import state as st
from codecnn.vvc.syntax.log import CODING_UNIT, CTU_LOG_SIZE
from codecnn.vvc.syntax.pictures import ParsedPicture
from codecnn.vvc.syntax.slice_data import BLOCK_COLUMNS, logged_blocks, parsed_ctus

Rows = npt.NDArray[np.int32]

_INTER = {
    "subblock": "subblock_flag",
    "mmvd": "mmvd_merge_flag",
    "gpm_partition": "merge_gpm_partition_idx",
    "symmetric": "sym_mvd_flag",
    "amvr": "amvr_shift",
    "bcw": "bcw_idx",
}

INTER_COLUMNS = tuple(_INTER)
"""Columns of `PictureSyntax.inter`, see `codecnn.vvc.syntax.log` for their values; 0 outside inter units."""


class PictureSyntax(NamedTuple):
    """Syntax elements of a picture.

    Attributes:
        units: Coding units in decoding order, columns `CU_COLUMNS`, shape (n, columns), as `coding_units` returns them.
        inter: Inter modes of the same units, columns `INTER_COLUMNS`, shape (n, columns).
        blocks: Transform blocks, columns `BLOCK_COLUMNS`, shape (m, columns), as `transform_blocks` returns them.
        ctu_bits: Size of each CTU in the slice data in bits, shape (CTU rows, CTU columns). It contains the parameters
            of SAO and ALF, but no headers and no emulation prevention bytes.
    """

    units: Rows
    inter: Rows
    blocks: Rows
    ctu_bits: Rows


def picture_syntax(picture: ParsedPicture) -> PictureSyntax:
    """Parse the syntax elements of a picture.

    Args:
        picture: The picture.

    Returns:
        The syntax elements.

    Raises:
        FormatError: The slice data is damaged.
    """
    tiles = picture.pps.tiles
    bits = np.zeros((tiles.rows[-1], tiles.columns[-1]), np.int32)
    units: list[Rows] = []
    inter: list[Rows] = []
    blocks: list[tuple[int, ...]] = []
    # A log of the size of one CTU makes every batch one CTU.
    for ctu in parsed_ctus(picture, CTU_LOG_SIZE):
        bits.reshape(-1)[ctu.addresses] = ctu.bits
        units.append(ctu.cus.copy())
        inter.append(_inter_rows(ctu.log, ctu.cus[:, 0]))
        blocks += logged_blocks(ctu.log, picture.sps)
    return PictureSyntax(
        np.concatenate(units),
        np.concatenate(inter),
        np.array(blocks, np.int32).reshape(-1, len(BLOCK_COLUMNS)),
        bits,
    )


def _inter_rows(log: st.Ints, channels: Rows) -> Rows:
    """Return `INTER_COLUMNS` of the units whose trees `channels` lists.

    The log also has the chroma unit of a local dual tree, which has no row.
    """
    rows = np.zeros((len(channels), len(_INTER)), np.int32)
    at, row, fields = 0, 0, list(_INTER.values())
    while at < len(log) and row < len(rows):
        cu = record_at(log, at, CODING_UNIT)
        if (cu.tree == st.DUAL_CHROMA) == channels[row]:
            rows[row] = cu[fields].item()
            row += 1
        at += int(cu.length)
    return rows
