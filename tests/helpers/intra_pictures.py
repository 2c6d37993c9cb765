"""Intra pictures as VTM dumps them (golden/intra_pictures), and the log of a stream in the same form."""

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from codecnn.base.records import record_at
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
            cu = record_at(ctus.log, at, lg.CODING_UNIT)
            tu_at = at + lg.UNIT_HEADER
            for _ in range(cu.num_transform_units):
                tu = record_at(ctus.log, tu_at, lg.TRANSFORM_UNIT)
                tu_at += lg.BLOCK_HEADER
                first = 1 if cu.tree == st.DUAL_CHROMA else 0
                for component in range(first, 3 if tu.has_chroma else 1):
                    row = _block(cu, tu, component, sub_x, sub_y)
                    key = (component, row["x"], row["y"])
                    assert key not in blocks
                    blocks[key] = row
                    for packed in ctus.log[tu_at : tu_at + tu.num_levels[component]].tolist():
                        x, y = row["x"] + (packed & 31), row["y"] + (packed >> 5 & 31)
                        levels[component][y, x] = packed >> lg.LEVEL_SHIFT
                    tu_at += int(tu.num_levels[component])
            at += int(cu.length)
            assert tu_at == at or cu.pred_mode == st.MODE_PALETTE
    return blocks, levels


def _block(cu: lg.CodingUnit, tu: lg.TransformUnit, component: int, sub_x: int, sub_y: int) -> dict[str, int]:
    x, y, w, h = tu.x, tu.y, tu.width, tu.height
    isp = cu.isp_split_type
    if component:
        if isp:
            x, y, w, h = cu.x, cu.y, cu.width, cu.height
        x, y, w, h = x >> sub_x, y >> sub_y, w >> sub_x, h >> sub_y
    mode = cu.intra_pred_mode_c if component else cu.intra_pred_mode_y
    bdpcm = cu.intra_bdpcm_chroma_flag if component else cu.intra_bdpcm_luma_flag
    row = {
        "x": x,
        "y": y,
        "w": w,
        "h": h,
        "cbf": tu.coded >> component & 1,
        "jointCbCr": tu.joint,
        "ts": tu.transform_skip >> component & 1,
        "isp": isp,
        "mrl": cu.intra_luma_ref_idx,
        "mip": cu.intra_mip_flag,
        "mipTransposed": cu.intra_mip_transposed_flag,
        "bdpcm": bdpcm and (2 if mode == 50 else 1),
        "lfnst": cu.lfnst_idx,
        "mode": mode,
        "cuQp": cu.qp_y,
        "mts": cu.mts_idx,
    }
    return {name: int(value) for name, value in row.items()}
