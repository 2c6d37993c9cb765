"""Log of the parser for reconstruction: transform blocks and levels of intra pictures equal those that VTM dumps."""

import numpy as np
import pytest

from tests.helpers.golden import SHARED
from tests.helpers.intra_pictures import COLUMNS, golden_pictures, intra_pictures, logged_blocks

PICTURES = sorted({path.stem for path in SHARED.glob("golden/intra_pictures/*.npz")})


@pytest.mark.parametrize("name", PICTURES)
def test_transform_blocks_and_levels_equal_vtm(golden_file, name):
    golden = golden_pictures(golden_file(f"intra_pictures/{name}.npz"))
    folder = "vvc_vtm" if name.startswith(("ai_", "ld")) else "vvc"
    pictures = intra_pictures(golden_file(f"{folder}/{name}.266"))
    assert 0 < len(golden) <= len(pictures)
    for expected, picture in zip(golden, pictures, strict=False):
        blocks, levels = logged_blocks(picture)
        for component, plane in enumerate(levels):
            np.testing.assert_array_equal(plane, expected.planes[f"level_{'YUV'[component]}"])
        if picture.sps.sps_palette_enabled_flag or picture.sps.sps_act_enabled_flag:
            continue  # VTM also lists blocks of palette units, and numbers chroma modes differently
        assert len(blocks) == len(expected.blocks)
        for row in expected.blocks:
            block = blocks[int(row["comp"]), int(row["x"]), int(row["y"])]
            columns = COLUMNS
            if int(row["comp"]):  # VTM does not state the luma tools of a chroma block consistently
                columns = [c for c in COLUMNS if c not in ("isp", "mrl", "mip", "mipTransposed")]
            assert {c: block[c] for c in columns} == {c: int(row[c]) for c in columns}, row
            if int(row["comp"]) == 0 and int(row["mtsIdx"]) != 1:
                assert max(block["mts"], 0) == max(int(row["mtsIdx"]) - 1, 0), row
