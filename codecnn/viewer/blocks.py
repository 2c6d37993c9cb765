"""CUs of a picture for the page: position, size, QP, and the names of modes and tools."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from codecnn.codec import IBC, INTER, INTRA, PALETTE, UNKNOWN, BlockTable
from codecnn.intra import hevc_angle, vvc_angle
from codecnn.vvc import CU_COLUMNS

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
        kind: planar, DC, angular, MIP, IBC, palette, inter or none.
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
        tools: Names of the enabled coding tools, "" if there are none.
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


def blocks_of_units(units: npt.NDArray[np.int32]) -> Blocks:
    """Convert the coding units of a VVC picture.

    Args:
        units: Shape (n, columns), with the columns of `codecnn.vvc.CU_COLUMNS`.

    Returns:
        The CUs.
    """
    columns = dict(zip(CU_COLUMNS, units.T, strict=True))
    keys = np.column_stack([columns[name] for name in ("channel", "pred_mode", "intra_mode", "mip")])
    tools = np.column_stack([columns[name] for name in ("channel", "isp", "mrl", "bdpcm", "lfnst", "skip")])
    return _blocks(
        np.column_stack([columns[name] for name in COLUMNS]),
        keys,
        tools,
        lambda channel, pred, intra, mip: _chroma() if channel else mode_of(pred, intra, mip=bool(mip)),
        _tools,
    )


def blocks_of_table(table: BlockTable, standard: Standard) -> Blocks:
    """Convert the CU table of one picture; it has no tools and does not distinguish MIP from other modes.

    Args:
        table: The CUs of the picture.
        standard: Standard that numbers the intra modes.

    Returns:
        The CUs.
    """
    columns = np.column_stack([getattr(table, name) for name in COLUMNS])
    keys = np.column_stack([table.channel, table.pred_mode, table.intra_mode])
    return _blocks(
        columns,
        keys,
        np.zeros((len(table), 1), np.int32),
        lambda channel, pred, intra: _chroma() if channel else mode_of(pred, intra, standard=standard),
        lambda _: "",
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


def _tools(channel: int, isp: int, mrl: int, bdpcm: int, lfnst: int, skip: int) -> str:
    """List the enabled tools of a CU as a text."""
    if channel:
        return ""
    used = [_ISP.get(isp), f"MRL {mrl}" if mrl > 0 else None, _BDPCM.get(bdpcm)]
    used += [f"LFNST {lfnst}" if lfnst > 0 else None, "skip" if skip > 0 else None]
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
