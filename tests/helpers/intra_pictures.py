"""Intra pictures as VTM dumps them (golden/intra_pictures), and the log of a stream in the same form."""

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from codecnn.vvc.syntax import ParsedPicture, parsed_ctus, read_pictures
from codecnn.vvc.syntax import log as lg
from codecnn.vvc.syntax import state as st
from tests.helpers.golden import csv_rows

COLUMNS = ("w", "h", "cbf", "jointCbCr", "ts", "isp", "mrl", "mip", "mipTransposed", "bdpcm", "lfnst", "mode", "cuQp")
"""Columns of a transform block that the log contains."""


class GoldenPicture(NamedTuple):
    """One intra picture: metadata, arrays by name, and transform blocks as rows."""

    meta: dict[str, object]
    planes: dict[str, npt.NDArray[np.int64]]
    blocks: list[dict[str, str]]


def golden_pictures(path: Path) -> list[GoldenPicture]:
    """Read the pictures of an .npz file of golden/intra_pictures, and of the .tb.csv.gz file next to it."""
    arrays = np.load(path)
    rows = csv_rows(path.with_name(path.stem + ".tb.csv.gz"))
    pictures = []
    for k, meta in enumerate(json.loads(str(arrays["meta"]))):
        names = [name for name in arrays.files if name.startswith(f"p{k}_")]
        planes = {name.split("_", 1)[1]: arrays[name].astype(np.int64) for name in names}
        pictures.append(GoldenPicture(meta, planes, [row for row in rows if int(row["pic"]) == k]))
    return pictures


def intra_pictures(stream: Path) -> list[ParsedPicture]:
    """Return the pictures of a stream whose slices are all I slices, in decoding order."""
    pictures = read_pictures(stream.read_bytes())
    return [picture for picture in pictures if picture.is_intra]


def logged_blocks(
    picture: ParsedPicture,
) -> tuple[dict[tuple[int, int, int], dict[str, int]], list[npt.NDArray[np.int64]]]:
    """Return the transform blocks of a picture by (component, x, y), and the planes of its levels."""
    sps, pps = picture.sps, picture.pps
    height, width = pps.pps_pic_height_in_luma_samples, pps.pps_pic_width_in_luma_samples
    sub_x, sub_y = sps.log2_sub_width_c, sps.log2_sub_height_c
    sizes = [(height, width), *[(height >> sub_y, width >> sub_x)] * (2 if sps.sps_chroma_format_idc else 0)]
    levels = [np.zeros(size, np.int64) for size in sizes]
    blocks: dict[tuple[int, int, int], dict[str, int]] = {}
    for ctus in parsed_ctus(picture, 1 << 20):
        at = 0
        while at < len(ctus.log):
            unit = ctus.log[at : at + lg.UNIT_HEADER].tolist()
            tu_at = at + lg.UNIT_HEADER
            for _ in range(unit[lg.U_UNITS]):
                tu = ctus.log[tu_at : tu_at + lg.BLOCK_HEADER].tolist()
                tu_at += lg.BLOCK_HEADER
                first = 1 if unit[lg.U_TREE] == st.DUAL_CHROMA else 0
                for component in range(first, 3 if tu[lg.T_CHROMA] else 1):
                    row = _block(unit, tu, component, sub_x, sub_y)
                    key = (component, row["x"], row["y"])
                    assert key not in blocks
                    blocks[key] = row
                    for packed in ctus.log[tu_at : tu_at + tu[lg.T_LEVELS + component]].tolist():
                        x, y = row["x"] + (packed & 31), row["y"] + (packed >> 5 & 31)
                        levels[component][y, x] = packed >> lg.LEVEL_SHIFT
                    tu_at += tu[lg.T_LEVELS + component]
            at += unit[lg.U_SIZE]
            assert tu_at == at or unit[lg.U_PRED_MODE] == st.MODE_PALETTE
    return blocks, levels


def _block(unit: list[int], tu: list[int], component: int, sub_x: int, sub_y: int) -> dict[str, int]:
    x, y, w, h = tu[lg.T_X : lg.T_H + 1]
    isp = unit[lg.U_ISP]
    if component:
        if isp:
            x, y, w, h = unit[lg.U_X : lg.U_H + 1]
        x, y, w, h = x >> sub_x, y >> sub_y, w >> sub_x, h >> sub_y
    mode = unit[lg.U_MODE_C] if component else unit[lg.U_MODE]
    bdpcm = unit[lg.U_BDPCM_C] if component else unit[lg.U_BDPCM]
    return {
        "x": x,
        "y": y,
        "w": w,
        "h": h,
        "cbf": tu[lg.T_CODED] >> component & 1,
        "jointCbCr": tu[lg.T_JOINT],
        "ts": tu[lg.T_SKIP] >> component & 1,
        "isp": isp,
        "mrl": unit[lg.U_MRL],
        "mip": unit[lg.U_MIP],
        "mipTransposed": unit[lg.U_MIP_TRANSPOSED],
        "bdpcm": bdpcm and (2 if mode == 50 else 1),
        "lfnst": unit[lg.U_LFNST],
        "mode": mode,
        "cuQp": unit[lg.U_QP],
        "mts": unit[lg.U_MTS],
    }
