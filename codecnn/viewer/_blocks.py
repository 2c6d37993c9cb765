"""The CUs of a picture as the page gets them: places, QPs, and names of their modes and tools."""

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

PLACES = ("channel", "x", "y", "w", "h", "qt_depth", "mt_depth", "qp")
"""Columns of `Blocks.rows` that are numbers; behind them the numbers of a mode and of a list of tools."""

_ISP = {1: "ISP horizontal", 2: "ISP vertical"}
_BDPCM = {1: "BDPCM horizontal", 2: "BDPCM vertical"}


@dataclass(frozen=True)
class Mode:
    """A mode as it is written, in short where there is little room, and the way from a sample to its reference.

    `dx` and `dy` are 0 where the mode is not angular; `kind` is planar, DC, angular, MIP, IBC, palette, inter or none.
    """

    name: str
    short: str
    kind: str
    dx: int = 0
    dy: int = 0


class CodingUnit(NamedTuple):
    """A CU: `channel` 0 of luma's or a shared tree, 1 of chroma's own; place and size in luma samples; splits of the
    quadtree and of the multi-type tree; QP; mode; in words the tools that are switched on, "" where that is none."""

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
    """CUs in decoding order, to go through one by one; `rows` (n, 10) int16 has all of them, columns as PLACES, then
    indices into `modes` and `tools`."""

    rows: npt.NDArray[np.int16]
    modes: tuple[Mode, ...]
    tools: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[CodingUnit]:
        for *places, mode, tools in self.rows.tolist():
            yield CodingUnit._make([*places, self.modes[mode], self.tools[tools]])

    @staticmethod
    def none() -> "Blocks":
        """Where nothing tells the CUs."""
        return Blocks(np.zeros((0, len(PLACES) + 2), np.int16), (), ())


def blocks_of_units(units: npt.NDArray[np.int32]) -> Blocks:
    """Of the coding units of a VVC picture, (n, columns) as in `codecnn.vvc.state.CU_COLUMNS`."""
    columns = dict(zip(CU_COLUMNS, units.T, strict=True))
    keys = np.column_stack([columns[name] for name in ("channel", "pred_mode", "intra_mode", "mip")])
    tools = np.column_stack([columns[name] for name in ("channel", "isp", "mrl", "bdpcm", "lfnst", "skip")])
    return _blocks(
        np.column_stack([columns[name] for name in PLACES]),
        keys,
        tools,
        lambda channel, pred, intra, mip: _chroma() if channel else mode_of(pred, intra, mip=bool(mip)),
        _tools,
    )


def blocks_of_table(table: BlockTable, standard: Standard) -> Blocks:
    """Of a table of one picture's CUs, which does not tell MIP from the other modes, nor tools."""
    places = np.column_stack([getattr(table, name) for name in PLACES])
    keys = np.column_stack([table.channel, table.pred_mode, table.intra_mode])
    return _blocks(
        places,
        keys,
        np.zeros((len(table), 1), np.int32),
        lambda channel, pred, intra: _chroma() if channel else mode_of(pred, intra, standard=standard),
        lambda _: "",
    )


def mode_of(pred_mode: int, intra_mode: int, *, mip: bool = False, standard: Standard = "vvc") -> Mode:
    """The mode of a luma CU, numbered as `BlockTable` does."""
    if pred_mode != INTRA:
        name, short = {INTER: ("inter", "inter"), IBC: ("block copy (IBC)", "IBC"), PALETTE: ("palette", "PLT")}.get(
            pred_mode, ("unknown", "?")
        )
        return Mode(name, short, {INTER: "inter", IBC: "IBC", PALETTE: "palette"}.get(pred_mode, "none"))
    if intra_mode == UNKNOWN:
        return Mode("intra, its mode unknown", "?", "none")
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
    return Mode("of the chroma tree", "C", "none")


def _tools(channel: int, isp: int, mrl: int, bdpcm: int, lfnst: int, skip: int) -> str:
    """What is switched on in a CU, in words."""
    if channel:
        return ""
    used = [_ISP.get(isp), f"MRL {mrl}" if mrl > 0 else None, _BDPCM.get(bdpcm)]
    used += [f"LFNST {lfnst}" if lfnst > 0 else None, "skip" if skip > 0 else None]
    return ", ".join(tool for tool in used if tool)


def _blocks(places: Ints, keys: Ints, tools: Ints, mode: Callable[..., Mode], words: Callable[..., str]) -> Blocks:
    """Rows with modes and tools written once each: `mode` of a row of `keys`, `words` of one of `tools`."""
    mode_keys, mode_numbers = np.unique(keys, axis=0, return_inverse=True)
    tool_keys, tool_numbers = np.unique(tools, axis=0, return_inverse=True)
    rows = np.column_stack([places, mode_numbers.ravel(), tool_numbers.ravel()]).astype(np.int16)
    return Blocks(
        rows,
        tuple(mode(*key) for key in mode_keys.tolist()),
        tuple(words(*key) for key in tool_keys.tolist()),
    )
