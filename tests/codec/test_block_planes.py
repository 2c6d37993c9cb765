"""Planes of 4x4 cells: equality with `rasterise`, and with edges computed sample by sample."""

import numpy as np
import pytest

from codecnn.base.division import ceil_div
from codecnn.base.errors import TableError
from codecnn.base.planes import BLOCK_PLANES, BLOCK_SIZE
from codecnn.codec import (
    CHROMA,
    LEFT_EDGE,
    TOP_EDGE,
    BlockTable,
    block_planes,
    rasterise,
    read_blocks,
    read_vtm_stats,
)
from tests.helpers.block_tables import as_table, make_table, random_partition
from tests.helpers.golden import vtm_rows

VALUES = BLOCK_PLANES[:-1]


def reference(table: BlockTable, poc: int, width: int, height: int) -> np.ndarray:
    """Paint all samples and take every fourth; edges are changes of the CU index, except at the border."""
    planes = [rasterise(table, poc, name, width, height)[::4, ::4] for name in VALUES]
    numbered = make_table(
        **{name: getattr(table, name) for name in ("poc", "channel", "x", "y", "w", "h")},
        depth=np.arange(len(table)),
    )
    number = rasterise(numbered, poc, "depth", width, height)[::4, ::4]
    edges = np.zeros(number.shape, int)
    for row, column in np.ndindex(number.shape):
        here = number[row, column]
        left = column > 0 and number[row, column - 1] != here
        top = row > 0 and number[row - 1, column] != here
        edges[row, column] = -1 if here == -1 else LEFT_EDGE * left + TOP_EDGE * top
    return np.array([*planes, edges])


@pytest.mark.parametrize(("width", "height"), [(64, 64), (178, 130), (4, 200), (66, 1), (203, 101)])
def test_planes_equal_the_reference_on_random_partitions(width, height):
    rng = np.random.default_rng(width)
    cus = [cu for poc in (4, 0, 2) for cu in random_partition(rng, width, height, poc)]
    chroma = [cu | {"channel": CHROMA, "depth": 77} for cu in cus[:5]]
    rng.shuffle(cus)
    table = as_table(cus + chroma)
    planes = block_planes(table, [2, 4], width, height)
    assert planes.dtype == np.int8
    assert planes.shape == (2, len(BLOCK_PLANES), ceil_div(height, BLOCK_SIZE), ceil_div(width, BLOCK_SIZE))
    for poc, picture in zip((2, 4), planes, strict=True):
        np.testing.assert_array_equal(picture, reference(table, poc, width, height))
        assert picture[:, :, :].min(axis=(1, 2))[-1] == 0


def test_planes_equal_the_reference_on_vtm_traces(golden_file):
    for name, width, height in (
        ("chelsea178x130_ai_qp32", 178, 130),
        ("tiny136x72_ai_qp32", 136, 72),
        ("tinyclip128x64_ra_qp37", 128, 64),
    ):
        table = read_vtm_stats(golden_file(f"vvc/{name}.vtmbmsstats.gz"))
        pocs = sorted(set(table.poc.tolist()))[:3]
        planes = block_planes(table, pocs, width, height)
        assert planes[:, 0].min() >= 0
        for poc, picture in zip(pocs, planes, strict=True):
            np.testing.assert_array_equal(picture, reference(table, poc, width, height))


def test_partition_edges_equal_the_positions_of_golden_cus(shared_data):
    """The reference is computed from x and y of the CUs in the golden table, except at the border."""
    path = sorted((shared_data / "golden" / "val_vvc").glob("*_QP32.cu.csv.gz"))[0]
    table = read_blocks(path)
    width, height = int((table.x + table.w).max()), int((table.y + table.h).max())
    partition = block_planes(table, [0], width, height)[0, BLOCK_PLANES.index("partition")]
    left, top = np.zeros_like(partition, bool), np.zeros_like(partition, bool)
    for row in vtm_rows(path):
        x, y, w, h = (row[name] // 4 for name in "xywh")
        left[y : y + h, x] = x > 0
        top[y, x : x + w] = y > 0
    np.testing.assert_array_equal(partition & LEFT_EDGE != 0, left)
    np.testing.assert_array_equal(partition & TOP_EDGE != 0, top)


def test_cells_without_a_cu_are_unknown_in_all_planes():
    table = make_table(poc=[1], x=[4], y=[0], w=[8], h=[4], qp=[37])
    planes = block_planes(table, [1, 9], 16, 8)
    assert planes[0, BLOCK_PLANES.index("qp")].tolist() == [[-1, 37, 37, -1], [-1] * 4]
    assert planes[0, BLOCK_PLANES.index("partition")].tolist() == [[-1, LEFT_EDGE, 0, -1], [-1] * 4]
    assert (planes[0, BLOCK_PLANES.index("depth")] == -1).all()
    assert (planes[1] == -1).all()
    assert block_planes(table, [], 16, 8).shape == (0, 5, 2, 4)


def test_cus_are_cut_at_all_picture_borders():
    table = make_table(
        poc=[0, 0, 0], x=[-8, 4, -16], y=[0, -4, 0], w=[12, 2**31 - 4, 8], h=[8, 8, 2**31 - 4], depth=[1, 2, 3]
    )
    assert block_planes(table, [0], 12, 8)[0, 0].tolist() == [[1, 2, 2], [1, -1, -1]]


@pytest.mark.parametrize("position", [{"x": [2]}, {"y": [6]}, {"w": [6]}, {"h": [5]}])
def test_a_cu_off_the_grid_is_refused(position):
    table = make_table(**({"poc": [3], "x": [0], "y": [0], "w": [8], "h": [8]} | position))
    with pytest.raises(TableError, match="POC 3"):
        block_planes(table, [3], 16, 16)


def test_values_beyond_8_bit_and_empty_pictures_are_refused():
    table = make_table(poc=[3], x=[0], y=[0], w=[8], h=[8], qp=[128])
    with pytest.raises(TableError, match="qp of POC 3 has the value 128"):
        block_planes(table, [3], 16, 16)
    with pytest.raises(TableError, match="0x16"):
        block_planes(table, [3], 0, 16)
