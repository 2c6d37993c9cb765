"""The CU table, planes and CTU depths painted from it, and the reader of VTM traces."""

import gzip

import numpy as np
import pyarrow as pa
import pytest

from codecnn.base.errors import FormatError, MissingFileError, TableError
from codecnn.codec import (
    ALL_COLUMNS,
    CHROMA,
    COLUMNS,
    LUMA,
    TOOL_COLUMNS,
    BlockTable,
    ctu_depths,
    rasterise,
    read_blocks,
    read_vtm_stats,
    read_x265_analysis,
    stream_table,
    write_blocks,
)
from codecnn.vvc.syntax import TRANSFORM_COLUMNS
from tests.helpers.block_tables import as_rows, as_table, make_table, random_partition
from tests.helpers.golden import vtm_rows

# --- the table ---------------------------------------------------------------------------------------------------


def test_column_names_and_order():
    expected = "poc channel x y w h depth qt_depth mt_depth pred_mode intra_mode qp"
    assert expected.split() == list(COLUMNS)
    transforms = "cbf_y cbf_cb cbf_cr ts_y ts_cb ts_cr mts tr_hor tr_ver lfnst bdpcm bdpcm_chroma joint_cbcr"
    assert transforms.split() == list(TRANSFORM_COLUMNS)
    assert TOOL_COLUMNS == ("mip", "isp", "mrl", "skip")
    assert (*COLUMNS, *TRANSFORM_COLUMNS, *TOOL_COLUMNS) == ALL_COLUMNS


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"poc": [0, 1], "x": [0]}, "different lengths"),
        ({"poc": [0], "qp": [32.5]}, r"qp .* whole numbers"),
        ({"poc": [0], "x": [2**31]}, r"x .* 32 bit"),
        ({"poc": [0], "channel": [2]}, "channel"),
        ({"poc": [[0]]}, "dimensions"),
    ],
)
def test_invalid_columns_are_refused(columns, message):
    with pytest.raises(TableError, match=message):
        make_table(**columns)


def test_columns_are_converted_to_int32():
    table = make_table(poc=np.array([1], np.uint8), qp=np.array([-12], np.int64))
    assert all(getattr(table, name).dtype == np.int32 for name in COLUMNS)
    assert table.qp.tolist() == [-12]


@pytest.mark.parametrize("count", [0, 1, 6])
def test_arrow_round_trip(count):
    names = ["channel", *(name for name in ALL_COLUMNS if name != "channel")]
    values = np.random.default_rng(count).integers(-(2**31), 2**31, (len(names), count))
    values[:, :1], values[:, 1:2] = -(2**31), 2**31 - 1
    values[0] = np.arange(count) % 2
    values[-1, :1] = 3
    table = BlockTable(**dict(zip(names, values, strict=True)))
    back = BlockTable.from_arrow(table.to_arrow())
    assert as_rows(back, ALL_COLUMNS) == as_rows(table, ALL_COLUMNS)
    assert len(back) == count


@pytest.mark.parametrize("name", ["cus.parquet", "cus.csv"])
def test_files_round_trip_without_other_files(tmp_path, name):
    table = make_table(poc=[0, 0, 2], channel=[LUMA, CHROMA, LUMA], x=[0, 8, 16], qp=[-12, 37, 63])
    write_blocks(tmp_path / name, table)
    assert as_rows(read_blocks(tmp_path / name)) == as_rows(table)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_csv_is_plain_text_with_channel_letters(tmp_path):
    write_blocks(tmp_path / "cus.csv", make_table(poc=[5, 5], channel=[LUMA, CHROMA], x=[64, 0]))
    header, first, second = (tmp_path / "cus.csv").read_text().split()
    assert header == ",".join(COLUMNS)
    assert first == "5,L,64,-1,-1,-1,-1,-1,-1,-1,-1,-1"
    assert second.startswith("5,C,0,")


@pytest.mark.parametrize("name", ["cus.parquet", "cus.csv"])
def test_files_contain_transform_columns_only_if_they_have_values(tmp_path, name):
    plain = make_table(poc=[0, 0], channel=[LUMA, CHROMA], qp=[30, 31])
    with_transforms = make_table(
        poc=[0, 0], channel=[LUMA, CHROMA], qp=[30, 31], cbf_y=[1, -1], mts=[4, -1], lfnst=[0, 2]
    )
    write_blocks(tmp_path / name, with_transforms)
    assert as_rows(read_blocks(tmp_path / name), ALL_COLUMNS) == as_rows(with_transforms, ALL_COLUMNS)
    assert (with_transforms.has_values("mts"), with_transforms.has_values("tr_hor"), plain.has_values("mts")) == (
        True,
        False,
        False,
    )
    write_blocks(tmp_path / f"old_{name}", plain)
    old = read_blocks(tmp_path / f"old_{name}")
    assert as_rows(old, ALL_COLUMNS) == as_rows(with_transforms.without_transforms(), ALL_COLUMNS)
    assert plain.to_arrow().column_names == list(COLUMNS)
    assert with_transforms.to_arrow().column_names == [*COLUMNS, *TRANSFORM_COLUMNS]
    with_tools = make_table(poc=[0], channel=[LUMA], mip=[0], skip=[1], mts=[2])
    assert with_tools.to_arrow().column_names == list(ALL_COLUMNS)
    assert with_tools.without_transforms().to_arrow().column_names == [*COLUMNS, *TOOL_COLUMNS]
    write_blocks(tmp_path / f"tools_{name}", with_tools)
    assert as_rows(read_blocks(tmp_path / f"tools_{name}"), ALL_COLUMNS) == as_rows(with_tools, ALL_COLUMNS)


def test_an_empty_table_round_trips(tmp_path):
    write_blocks(tmp_path / "cus.parquet", make_table(poc=[]))
    assert len(read_blocks(tmp_path / "cus.parquet")) == 0


def test_select_returns_rows_of_all_columns():
    table = make_table(poc=[0, 1, 2], x=[5, 6, 7])
    assert as_rows(table.select(table.poc >= 1)) == as_rows(make_table(poc=[1, 2], x=[6, 7]))


def test_reading_an_invalid_table_raises_one_clear_error(tmp_path):
    with pytest.raises(MissingFileError, match=r"none\.csv"):
        read_blocks(tmp_path / "none.csv")
    for name, content in {"a.parquet": b"PAR1garbage", "b.csv": b"", "c.csv.gz": b"no gzip"}.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(TableError, match=name):
            read_blocks(tmp_path / name)
    (tmp_path / "d.csv").write_text("poc,x\n0,0\n")
    with pytest.raises(TableError, match=r"d\.csv.* lack .*channel"):
        read_blocks(tmp_path / "d.csv")
    (tmp_path / "e.txt").write_text("")
    with pytest.raises(TableError, match=r"e\.txt does not end in"):
        read_blocks(tmp_path / "e.txt")
    with pytest.raises(TableError, match=r"f\.txt does not end in"):
        write_blocks(tmp_path / "f.txt", make_table(poc=[0]))


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("channel", ["X"], "channel 'X'"),
        ("channel", [None], "empty cells"),
        ("qp", [None], "empty cells"),
        ("qp", ["much"], "whole numbers"),
        ("qp", [1.5], "whole numbers"),
    ],
)
def test_arrow_with_wrong_values_is_refused(column, values, message):
    table = make_table(poc=[0]).to_arrow()
    table = table.set_column(table.column_names.index(column), column, pa.array(values))
    with pytest.raises(TableError, match=message):
        BlockTable.from_arrow(table)


def test_csv_gz_of_another_program_is_read(shared_data):
    path = sorted((shared_data / "golden" / "val_vvc").glob("*_QP37.cu.csv.gz"))[0]
    assert as_rows(read_blocks(path)) == [tuple(row.values()) for row in vtm_rows(path)]


def test_suffix_selects_the_reader(shared_data):
    stream = shared_data / "golden" / "vvc" / "tiny64x64_ai_qp32.266"
    assert as_rows(read_blocks(stream)) == as_rows(stream_table(stream))
    analysis = shared_data / "golden" / "hevc" / "clip_rab_amp_qp32.dat"
    assert as_rows(read_blocks(analysis)) == as_rows(read_x265_analysis(analysis))


# --- planes and depths -------------------------------------------------------------------------------------------


def test_rasterise_paints_luma_cus_of_one_picture_and_cuts_at_the_edges():
    table = make_table(
        poc=[1, 1, 1, 2],
        channel=[LUMA, LUMA, CHROMA, LUMA],
        x=[0, 4, 0, 0],
        y=[0, 0, 0, 0],
        w=[4, 2**31 - 1, 8, 8],
        h=[2, 3, 8, 8],
        qp=[30, -5, 63, 62],
    )
    plane = rasterise(table, 1, "qp", width=6, height=4)
    assert plane.dtype == np.int16
    assert plane.tolist() == [[30] * 4 + [-5] * 2] * 2 + [[-1] * 4 + [-5] * 2] + [[-1] * 6]


def test_rasterise_ignores_cus_at_negative_positions():
    table = make_table(poc=[0, 0], x=[-8, 0], y=[0, -8], w=[4, 4], h=[4, 4], depth=[1, 2])
    assert (rasterise(table, 0, "depth", 8, 8) == -1).all()


def test_rasterise_refuses_unknown_columns_and_values_beyond_16_bit():
    with pytest.raises(TableError, match="no column 'colour'"):
        rasterise(make_table(poc=[0]), 0, "colour", 8, 8)
    table = make_table(poc=[0], x=[0], y=[0], w=[8], h=[8], qp=[40000])
    with pytest.raises(TableError, match="beyond 16 bit"):
        rasterise(table, 0, "qp", 8, 8)


@pytest.mark.parametrize(("width", "height", "cell"), [(64, 64, 64), (178, 130, 128), (72, 40, 32), (50, 30, 20)])
def test_ctu_depths_equal_a_count_over_all_samples(width, height, cell):
    """CUs cross the borders of cells that are smaller than the CTU of 64 or have a size of 20."""
    table = as_table(random_partition(np.random.default_rng(width), width, height, poc=3))
    depth_of = {}
    for x, y, w, h, depth in zip(table.x, table.y, table.w, table.h, table.depth, strict=True):
        depth_of |= {(i, j): int(depth) for i in range(x, x + w) for j in range(y, y + h)}
    means, largest = [], []
    for top in range(0, height, cell):
        for left in range(0, width, cell):
            inside = [
                depth_of[i, j]
                for i in range(left, min(left + cell, width))
                for j in range(top, min(top + cell, height))
            ]
            means.append(sum(inside) / len(inside))
            largest.append(max(inside))
    depth_mean, depth_max = ctu_depths(table, 3, width, height, cell)
    assert depth_mean.tolist() == means
    assert depth_max.tolist() == largest


def test_ctu_depths_name_uncovered_samples():
    table = as_table(random_partition(np.random.default_rng(1), 64, 64, poc=3))
    with pytest.raises(TableError, match="512 of 4608 luma samples of POC 3"):
        ctu_depths(table, 3, 72, 64, 64)
    with pytest.raises(TableError, match="4096 of 4096 luma samples of POC 4"):
        ctu_depths(table, 4, 64, 64, 64)


def test_ctu_depths_refuse_a_table_without_depths():
    with pytest.raises(TableError, match="no depth for 64 of 64"):
        ctu_depths(make_table(poc=[0], x=[0], y=[0], w=[8], h=[8]), 0, 8, 8, 8)
    with pytest.raises(TableError, match="CTU grid of size 0"):
        ctu_depths(make_table(poc=[0], x=[0], y=[0], w=[8], h=[8], depth=[0]), 0, 8, 8, 0)


# --- VTM's traces ------------------------------------------------------------------------------------------------

HEADER = "# VTMBMS Block Statistics\n# Sequence size: [32x 8]\n# Block Statistic Type: PredMode; Integer; [0, 4]\n"
TRACE = """\
BlockStat: POC 4 @(   0,   0) [16x 8] PredMode=1
BlockStat: POC 4 @(   0,   0) [16x 8] Depth=3
BlockStat: POC 4 @(   0,   0) [16x 8] QT_Depth=1
BlockStat: POC 4 @(   0,   0) [16x 8] MT_Depth=2
BlockStat: POC 4 @(   0,   0) [16x 8] QP=-3
BlockStat: POC 4 @(   0,   0) [16x 8] SplitSeries=18446744073709551615
BlockStat: POC 4 @(   0,   0) [16x 8] Luma_IntraMode=66
BlockStat: POC 4 @(   0,   0) [16x 8] Chroma_IntraMode=4
BlockStat: POC 4 @(  16,   0) [16x 8] PredMode=0
BlockStat: POC 4 @(  16,   0) [16x 8] Depth=2
BlockStat: POC 4 @(  16,   0) [16x 8] CiipFlag=1
BlockStat: POC 4 @(  16,   0) [16x 8] Luma_IntraMode=0
BlockStat: POC 4 @(  16,   0) [16x 8] MVL0={   0,  -7}
BlockStat: POC 4 @(  16,   0) [16x 8] AffineMVL0={   0,   1,   2,   3,   4,   5}
BlockStat: POC 4 @[(96, 8)--(112, 8)--(112, 16)--] GeoMVL0={ -90, -48}
BlockStat: POC 4 @(   0,   0) [ 0x 0] Depth=5
BlockStat: POC 4 @(   0,   0) [32x 8] Depth_Chroma=1
BlockStat: POC 4 @(   0,   0) [32x 8] QT_Depth_Chroma=1
BlockStat: POC 4 @(   0,   0) [32x 8] MT_Depth_Chroma=0
BlockStat: POC 4 @(   0,   0) [32x 8] QP_Chroma=35
"""
TRANSFORMS = """\
BlockStat: POC 4 @(   0,   0) [16x 8] LFNSTIdx=2
BlockStat: POC 4 @(   0,   0) [16x 8] BDPCM=0
BlockStat: POC 4 @(   0,   0) [16x 4] Cbf_Y=2
BlockStat: POC 4 @(   0,   0) [16x 4] MTS_Y=3
BlockStat: POC 4 @(   0,   0) [ 0x 0] Cbf_Cb=0
BlockStat: POC 4 @(   0,   4) [16x 4] Cbf_Y=0
BlockStat: POC 4 @(   0,   4) [16x 4] MTS_Y=1
BlockStat: POC 4 @(  16,   4) [16x 4] Cbf_Y=1
BlockStat: POC 4 @(   0,   0) [16x 8] Cbf_Cb=1
"""
TRACE_ROWS = [
    (4, LUMA, 0, 0, 16, 8, 3, 1, 2, 1, 66, -3),
    (4, LUMA, 16, 0, 16, 8, 2, -1, -1, 0, -1, -1),
    (4, CHROMA, 0, 0, 32, 8, 1, 1, 0, -1, -1, 35),
]


def test_vtm_text_form(tmp_path):
    path = tmp_path / "trace.vtmbmsstats"
    path.write_text(HEADER + TRACE)
    assert as_rows(read_vtm_stats(path)) == TRACE_ROWS


def test_transform_blocks_of_a_trace_belong_to_the_preceding_cu(tmp_path):
    path = tmp_path / "trace.vtmbmsstats"
    lines = TRACE.splitlines(keepends=True)
    path.write_text(HEADER + "".join(lines[:8]) + TRANSFORMS + "".join(lines[8:]))
    names = ("cbf_y", "ts_y", "mts", "lfnst", "bdpcm", "tr_hor", "cbf_cb")
    table = read_vtm_stats(path)
    assert as_rows(table) == TRACE_ROWS
    assert as_rows(table, names) == [(1, 1, 2, 2, 0, -1, -1), (-1,) * 7, (-1,) * 7]


def test_vtm_csv_form(tmp_path):
    path = tmp_path / "trace.csv"
    lines = ["BlockStat;4;  96;   8;-- 112;   8;GeoMVL0; -90; -48"]
    for line in TRACE.splitlines():
        if "{" not in line:
            for mark in ("BlockStat: POC ", " @(", ",", ") [", "x", "] ", "="):
                line = line.replace(mark, "BlockStat;" if mark.startswith("B") else ";", 1)
            lines.append(line)
    lines.append("BlockStat;4;  16;   0;16; 8;MVL0;   0;  -7")
    path.write_text("\n".join(lines) + "\n")
    assert "BlockStat;4;   0;   0;16; 8;QT_Depth;1" in lines
    assert as_rows(read_vtm_stats(path)) == TRACE_ROWS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no block statistics"),
        ("just text\n", "no block statistics"),
        (HEADER + TRACE.rstrip("\n"), "last line is cut off"),
        (HEADER + "BlockStat: POC 0 @(   0,   0) [16x 8] QP=37\n", "no depth"),
        (HEADER + "BlockStat: POC 0 @(   0,   0) [16x 8] QP=high\n", "line 4"),
        (HEADER + "BlockStat: POC 0 @(   0) [16x 8] QP=37\n", "line 4"),
        (HEADER + "BlockStat: POC 0 @(   0,   0) [16x16] Depth=1\n", r"exceeds the picture of \(32, 8\)"),
        (HEADER + "BlockStat: POC 0 @(   0,   0) [16x 8] Depth=99999999999\n", "line 4"),
        ("BlockStat;0;0;0;16;8;Depth;x\n", "line 1"),
        (TRACE + "BlockStat: POC 4 @(  16,   0) [16x 8] Depth=5\n", "is 2 and 5"),
    ],
)
def test_malformed_vtm_traces_raise_one_clear_error(tmp_path, text, message):
    path = tmp_path / "trace.txt"
    path.write_text(text)
    with pytest.raises(FormatError, match=message) as error:
        read_vtm_stats(path)
    assert str(path) in str(error.value)


def test_damaged_gzip_and_missing_traces(tmp_path):
    path = tmp_path / "trace.vtmbmsstats.gz"
    whole = gzip.compress((HEADER + TRACE).encode())
    for content in (whole[:-30], b"no gzip at all", whole[:20] + b"\0" * 40 + whole[60:]):
        path.write_bytes(content)
        with pytest.raises(FormatError, match=r"trace\.vtmbmsstats\.gz"):
            read_vtm_stats(path)
    with pytest.raises(MissingFileError, match="nowhere"):
        read_vtm_stats(tmp_path / "nowhere")


def test_binary_garbage_and_endless_lines_are_refused(tmp_path):
    path = tmp_path / "trace"
    path.write_bytes(np.random.default_rng(0).integers(0, 256, 100_000, dtype=np.uint8).tobytes())
    with pytest.raises(FormatError):
        read_vtm_stats(path)
    path.write_text("BlockStat: " * 50_000)
    with pytest.raises(FormatError):
        read_vtm_stats(path)


def test_golden_vtm_depths_cover_the_picture(golden_file):
    table = read_vtm_stats(golden_file("vvc/chelsea178x130_ai_qp32.vtmbmsstats.gz"))
    depth_mean, depth_max = ctu_depths(table, 0, 178, 130, 128)
    assert depth_mean.shape == depth_max.shape == (4,)
    assert (depth_mean <= depth_max).all()
    assert depth_max.max() == table.depth[table.channel == LUMA].max()
    assert (table.depth == table.qt_depth + table.mt_depth).all()
