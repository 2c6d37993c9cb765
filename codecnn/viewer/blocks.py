"""CUs of a picture for the page: position, size, QP, and the names of modes and tools."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from codecnn.codec import IBC, INTER, INTRA, PALETTE, UNKNOWN, BlockTable
from codecnn.vvc.intra import hevc_angle, vvc_angle
from codecnn.vvc.syntax import CU_COLUMNS, INTER_COLUMNS

Ints = npt.NDArray[np.int32]
Standard = Literal["vvc", "hevc"]

COLUMNS = ("channel", "x", "y", "w", "h", "qt_depth", "mt_depth", "qp")
"""Leading columns of `Blocks.rows`; an index of a mode and an index of a text of tools follow them."""

_ISP = {1: "ISP horizontal", 2: "ISP vertical"}
_BDPCM = {1: "BDPCM horizontal", 2: "BDPCM vertical"}


@dataclass(frozen=True)
class Mode:
    """A prediction mode for display.

    Attributes:
        name: Name, e.g. "angular 18, horizontal".
        short: Abbreviation for small blocks, e.g. "18".
        kind: planar, DC, angular, MIP, IBC, palette or none; of inter CUs AMVP, merge, MMVD, affine, affine merge,
            temporal subblocks, geometric or CIIP, and inter if that is unknown.
        dx: Horizontal component of the direction from a sample to its reference in 1/32 samples; 0 if not angular.
        dy: Vertical component.
    """

    name: str
    short: str
    kind: str
    dx: int = 0
    dy: int = 0


class CodingUnit(NamedTuple):
    """A coding unit.

    Attributes:
        channel: 0 for the luma tree or a tree shared by luma and chroma, 1 for a separate chroma tree.
        x: Left edge in luma samples.
        y: Upper edge in luma samples.
        w: Width in luma samples.
        h: Height in luma samples.
        qt_depth: Number of quadtree splits.
        mt_depth: Number of multi-type tree splits.
        qp: QP.
        mode: Prediction mode.
        tools: Names of the enabled coding tools, e.g. "ISP horizontal, LFNST 1"; "" if there are none.
    """

    channel: int
    x: int
    y: int
    w: int
    h: int
    qt_depth: int
    mt_depth: int
    qp: int
    mode: Mode
    tools: str


@dataclass(frozen=True, eq=False)
class Blocks:
    """CUs of a picture in decoding order; iteration yields a `CodingUnit` for each.

    Attributes:
        rows: Shape (n, 10), int16: the columns of `COLUMNS`, then indices into `modes` and `tools`.
        modes: Distinct modes of the picture.
        tools: Distinct texts of tools.
    """

    rows: npt.NDArray[np.int16]
    modes: tuple[Mode, ...]
    tools: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[CodingUnit]:
        for *values, mode, tools in self.rows.tolist():
            yield CodingUnit._make([*values, self.modes[mode], self.tools[tools]])

    @staticmethod
    def none() -> "Blocks":
        """Return an empty list, for pictures whose CUs are unknown."""
        return Blocks(np.zeros((0, len(COLUMNS) + 2), np.int16), (), ())


def blocks_of_units(units: npt.NDArray[np.int32], inter: npt.NDArray[np.int32], models: Ints | None = None) -> Blocks:
    """Convert the coding units of a VVC picture.

    Args:
        units: Shape (n, columns), with the columns of `codecnn.vvc.syntax.CU_COLUMNS`.
        inter: Inter modes of the same units, with the columns of `codecnn.vvc.syntax.INTER_COLUMNS`.
        models: Motion model of each unit as in the plane `motion_model`, shape (n,); None if it is unknown.

    Returns:
        The CUs.
    """
    columns = dict(zip(CU_COLUMNS, units.T, strict=True)) | dict(zip(INTER_COLUMNS, inter.T, strict=True))
    columns["model"] = np.full(len(units), UNKNOWN, np.int32) if models is None else models
    return _blocks(
        np.column_stack([columns[name] for name in COLUMNS]),
        np.column_stack([columns[name] for name in _MODE_KEYS]),
        np.column_stack([columns[name] for name in _TOOL_KEYS]),
        _unit_mode,
        _tools,
    )


def blocks_of_table(table: BlockTable, standard: Standard) -> Blocks:
    """Convert the CU table of one picture, with MIP, ISP, MRL and skip if they are known.

    Args:
        table: The CUs of the picture.
        standard: Standard that numbers the intra modes.

    Returns:
        The CUs.
    """
    columns = np.column_stack([table.columns[name] for name in COLUMNS])
    return _blocks(
        columns,
        np.column_stack([table.channel, table.pred_mode, table.intra_mode, table.mip]),
        np.column_stack([table.channel, table.isp, table.mrl, table.bdpcm, table.lfnst, table.skip]),
        lambda channel, pred, intra, mip: (
            _chroma() if channel else mode_of(pred, intra, mip=mip > 0, standard=standard)
        ),
        _tools,
    )


def mode_of(pred_mode: int, intra_mode: int, *, mip: bool = False, standard: Standard = "vvc") -> Mode:
    """Describe the mode of a luma CU.

    Args:
        pred_mode: Prediction mode as in `BlockTable`.
        intra_mode: Intra mode as in `BlockTable`, or the mode of MIP.
        mip: Whether the CU uses matrix-based intra prediction.
        standard: Standard that numbers the intra modes.

    Returns:
        The mode for display.
    """
    if pred_mode != INTRA:
        name, short = {INTER: ("inter", "inter"), IBC: ("block copy (IBC)", "IBC"), PALETTE: ("palette", "PLT")}.get(
            pred_mode, ("unknown", "?")
        )
        return Mode(name, short, {INTER: "inter", IBC: "IBC", PALETTE: "palette"}.get(pred_mode, "none"))
    if intra_mode == UNKNOWN:
        return Mode("intra, mode unknown", "?", "none")
    if mip:
        return Mode(f"MIP {intra_mode}", f"M{intra_mode}", "MIP")
    if intra_mode < 2:
        return (Mode("planar", "PL", "planar"), Mode("DC", "DC", "DC"))[intra_mode]
    horizontal, diagonal, vertical = (10, 18, 26) if standard == "hevc" else (18, 34, 50)
    angle = hevc_angle(intra_mode) if standard == "hevc" else vvc_angle(intra_mode)
    known = {horizontal: ", horizontal", diagonal: ", diagonal", vertical: ", vertical"}.get(intra_mode, "")
    dx, dy = (-32, angle) if intra_mode < diagonal else (angle, -32)
    return Mode(f"angular {intra_mode}{known}", str(intra_mode), "angular", dx, dy)


def _chroma() -> Mode:
    return Mode("chroma tree", "C", "none")


_MODE_NAMES = "channel pred_mode intra_mode mip merge ciip gpm gpm_partition subblock mmvd symmetric model"
_MODE_KEYS = tuple(_MODE_NAMES.split())
_MODELS = {1: ", 4 parameters", 2: ", 6 parameters"}


def _unit_mode(
    channel: int,
    pred_mode: int,
    intra_mode: int,
    mip: int,
    merge: int,
    ciip: int,
    gpm: int,
    partition: int,
    subblock: int,
    mmvd: int,
    symmetric: int,
    model: int,
) -> Mode:
    """Describe the mode of a unit of a VVC stream; the arguments are those of `_MODE_KEYS`."""
    if channel:
        return _chroma()
    if pred_mode == IBC:
        return Mode(f"block copy (IBC), {'merge' if merge == 1 else 'vector coded'}", "IBC", "IBC")
    if pred_mode != INTER:
        return mode_of(pred_mode, intra_mode, mip=mip > 0)
    if gpm == 1:
        return Mode(f"geometric partitions (GPM) {partition}", f"G{partition}", "geometric")
    if ciip == 1:
        return Mode("inter and intra combined (CIIP)", "CIIP", "CIIP")
    if subblock and merge == 1:
        if model == 3:
            return Mode("merge of temporal subblocks (SbTMVP)", "SbT", "temporal subblocks")
        return Mode(f"affine merge{_MODELS.get(model, '')}", "AM", "affine merge")
    if subblock:
        return Mode(f"affine{_MODELS.get(model, '')}", "AF", "affine")
    if mmvd:
        return Mode("merge with vector difference (MMVD)", "MMVD", "MMVD")
    if merge == 1:
        return Mode("merge", "MRG", "merge")
    return Mode(f"vector coded (AMVP){', symmetric (SMVD)' if symmetric else ''}", "AMVP", "AMVP")


_TOOL_NAMES = "channel isp mrl bdpcm lfnst skip ts_y mts joint_cbcr bdpcm_chroma pred_mode merge subblock amvr bcw"
_TOOL_KEYS = tuple(_TOOL_NAMES.split())
_VECTOR_STEPS = ({2: "1/4", 3: "1/2", 4: "1", 6: "4"}, {0: "1/16", 2: "1/4", 4: "1"})
"""Resolution of coded vectors in samples by AmvrShift: translation, affine (H.266 table 16)."""
_BCW_WEIGHTS = (4, 5, 3, 10, -2)
"""Weight of L1 in eighths by bcw_idx (bcwWLut, H.266 clause 8.5.6.6.2)."""


def _tools(
    channel: int,
    isp: int,
    mrl: int,
    bdpcm: int,
    lfnst: int,
    skip: int,
    ts_y: int = 0,
    mts: int = 0,
    joint_cbcr: int = 0,
    bdpcm_chroma: int = 0,
    pred_mode: int = UNKNOWN,
    merge: int = UNKNOWN,
    subblock: int = 0,
    amvr: int = 0,
    bcw: int = 0,
) -> str:
    """List the enabled tools of a CU as a text; the arguments are those of `_TOOL_KEYS`."""
    coded_vector = pred_mode == INTER and merge == 0
    used = [
        None if channel else _ISP.get(isp),
        f"MRL {mrl}" if mrl > 0 and not channel else None,
        _BDPCM.get(bdpcm_chroma if channel else bdpcm),
        f"LFNST {lfnst}" if lfnst > 0 else None,
        f"MTS {mts}" if mts > 0 and not channel else None,
        "transform skip" if ts_y > 0 and not channel and bdpcm <= 0 else None,
        "joint CbCr" if joint_cbcr > 0 else None,
        f"AMVR {_VECTOR_STEPS[subblock > 0].get(amvr, '?')} sample" if coded_vector else None,
        f"BCW {_BCW_WEIGHTS[bcw]}/8" if coded_vector and 0 < bcw < len(_BCW_WEIGHTS) else None,
        "skip" if skip > 0 else None,
    ]
    return ", ".join(tool for tool in used if tool)


def _blocks(columns: Ints, keys: Ints, tools: Ints, mode: Callable[..., Mode], text: Callable[..., str]) -> Blocks:
    """Build `Blocks` with distinct modes and texts; `mode` takes a row of `keys`, `text` a row of `tools`."""
    mode_keys, mode_numbers = np.unique(keys, axis=0, return_inverse=True)
    tool_keys, tool_numbers = np.unique(tools, axis=0, return_inverse=True)
    rows = np.column_stack([columns, mode_numbers.ravel(), tool_numbers.ravel()]).astype(np.int16)
    return Blocks(
        rows,
        tuple(mode(*key) for key in mode_keys.tolist()),
        tuple(text(*key) for key in tool_keys.tolist()),
    )
