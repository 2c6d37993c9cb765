"""The writer of VTM traces: equality with VTM's traces, round trips, and the patterns of YUView."""

import gzip
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codecnn.base.errors import MissingFileError, TableError
from codecnn.codec import (
    ALL_COLUMNS,
    CHROMA,
    INTRA,
    LUMA,
    UNKNOWN,
    BlockTable,
    read_blocks,
    read_vtm_stats,
    write_block_values,
    write_blocks,
)
from codecnn.codec.blocks.vtm_statistics import block_value_lines, write_vtm_stats
from tests.helpers import block_tables
from tests.helpers.block_tables import as_rows

_STATISTICS = (
    "PredMode Depth QT_Depth MT_Depth Luma_IntraMode QP Depth_Chroma QT_Depth_Chroma MT_Depth_Chroma QP_Chroma"
)
CU_STATISTICS = (*_STATISTICS.split(), "LFNSTIdx", "BDPCM")
OF_BLOCKS = (" Cbf_Y=", " MTS_Y=")
"""Statistics that VTM writes per transform block and codecnn per CU."""


def make_table(**columns) -> BlockTable:
    """Create a table of CUs; the defaults are 8x8 and depth 1."""
    rows = len(next(iter(columns.values())))
    return block_tables.make_table(**{"w": [8] * rows, "h": [8] * rows, "depth": [1] * rows, **columns})


def yuview(text: str, poc: int, statistic: str) -> list[tuple[int, ...]]:
    """Return x, y, w, h, value of the blocks that YUView displays: it reads from the last start of a POC on."""
    head = re.compile(r"# Block Statistic Type: *([0-9a-zA-Z_]+); *([0-9a-zA-Z]+); *(.*)")
    lines = text.split("\n")
    first = next(i for i, line in enumerate(lines) if not line.startswith("#"))
    types = {match[1]: match for line in lines[:first] if (match := head.match(line))}
    assert re.search(r"\[([0-9\-]+), *([0-9\-]+)\]", types[statistic][3])
    pocs = [int(match[1]) if (match := re.search("BlockStat: POC ([0-9]+)", line)) else None for line in lines]
    start = max(i for i in range(first, len(lines)) if pocs[i] == poc and pocs[i - 1] != poc)
    scalar = re.compile(r"POC ([0-9]+) @\( *([0-9]+), *([0-9]+)\) *\[ *([0-9]+)x *([0-9]+)\] *\w+=([0-9\-]+)")
    shown = []
    for line, line_poc in zip(lines[start:], pocs[start:], strict=True):
        if line_poc != poc:
            break
        if f" {statistic}=" in line:
            match = scalar.search(line)
            assert match, line
            shown.append(tuple(int(match[i]) for i in range(2, 7)))
    return shown


# --- against VTM -------------------------------------------------------------------------------------------------


def golden_traces(golden):
    paths = sorted(golden.glob("vvc/*.vtmbmsstats.gz"))
    assert len(paths) == (9 if golden.name == "golden" else 7)
    return paths


def test_golden_traces_round_trip(golden, tmp_path):
    for path in golden_traces(golden):
        table = read_vtm_stats(path)
        for name in ("again.vtmbmsstats", "again.vtmbmsstats.gz"):
            write_blocks(tmp_path / name, table)
            assert as_rows(read_blocks(tmp_path / name), ALL_COLUMNS) == as_rows(table, ALL_COLUMNS), path.name


def test_lines_equal_those_of_vtm(golden, tmp_path):
    """Compare sorted lines, because the order within a CU differs between the variants of VTM."""
    compared = 0
    for path in golden_traces(golden):
        with gzip.open(path, "rt") as file:
            vtm_lines = file.read().splitlines()
        write_vtm_stats(tmp_path / "t.vtmbmsstats", read_vtm_stats(path))
        lines = (tmp_path / "t.vtmbmsstats").read_text().splitlines()
        assert lines[:2] == vtm_lines[:2]
        named = tuple(f" {name}=" for name in CU_STATISTICS)
        expected = [line for line in vtm_lines if any(name in line for name in named) and " [ 0x 0] " not in line]
        # VTM repeats some lines, for instance for the parts of a CU.
        of_cus = [line for line in lines if line[0] != "#" and not any(name in line for name in OF_BLOCKS)]
        assert sorted(set(expected)) == sorted(of_cus)
        # Lines of transform blocks agree for CUs of one block, except the depth of a transform tree.
        of_blocks = {line for line in lines if line[0] != "#"} - set(of_cus)
        assert len(of_blocks) >= 2 * len({line.partition("]")[0] for line in of_cus if " PredMode=" in line})
        assert of_blocks & set(vtm_lines)
        declared = {line.split(";")[0] for line in vtm_lines if line.startswith("# Block")}
        assert {line.split(";")[0] for line in lines if line.startswith("# Block")} <= declared
        compared += len(lines)
    assert compared > (20_000 if golden.name == "golden" else 5_000)


# --- the form ----------------------------------------------------------------------------------------------------


def test_unknown_values_have_no_line(tmp_path):
    table = make_table(poc=[0, 0], channel=[LUMA, CHROMA], x=[0, 8], y=[0, 0], qp=[37, -1], pred_mode=[-1, 1])
    write_vtm_stats(tmp_path / "t.vtmbmsstats", table)
    lines = (tmp_path / "t.vtmbmsstats").read_text().splitlines()
    assert [line for line in lines if line.startswith("BlockStat")] == [
        "BlockStat: POC 0 @(   0,   0) [ 8x 8] Depth=1",
        "BlockStat: POC 0 @(   0,   0) [ 8x 8] QP=37",
        "BlockStat: POC 0 @(   8,   0) [ 8x 8] Depth_Chroma=1",
    ]
    assert lines[1] == "# Sequence size: [16x 8]"


places = st.tuples(st.integers(0, 3), st.integers(0, 1), *[st.integers(0, 9000)] * 2, *[st.integers(1, 128)] * 2)
values = st.tuples(st.integers(0, 9), *[st.integers(-1, 9)] * 2, *[st.integers(-1, 70)] * 3)


@given(st.dictionaries(places, values, min_size=1, max_size=30), st.booleans())
@settings(max_examples=60, deadline=None)
def test_any_table_round_trips_picture_by_picture(tmp_path_factory, cus, packed):
    rows = []
    for place, (depth, qt, mt, predicted, mode, qp) in cus.items():
        modes = (predicted, mode if predicted in (INTRA, UNKNOWN) else UNKNOWN)
        rows.append((*place, depth, qt, mt, *(modes if place[1] == LUMA else (UNKNOWN, UNKNOWN)), qp))
    table = BlockTable(*np.array(rows).T)
    path = tmp_path_factory.mktemp("t") / f"t.vtmbmsstats{'.gz' if packed else ''}"
    write_vtm_stats(path, table)
    order = {poc: index for index, poc in enumerate(dict.fromkeys(row[0] for row in rows))}
    assert as_rows(read_vtm_stats(path)) == sorted(rows, key=lambda row: order[row[0]])


def test_yuview_finds_all_values_of_pictures_out_of_order(tmp_path):
    """YUView displays only the last contiguous block of lines of a POC."""
    table = make_table(poc=[0, 8, 4, 8, 0], x=[0, 0, 64, 1024, 9000], y=[0] * 5, qp=[30, 31, -12, 33, 34])
    write_vtm_stats(tmp_path / "t.vtmbmsstats", table)
    text = (tmp_path / "t.vtmbmsstats").read_text()
    assert yuview(text, 8, "QP") == [(0, 0, 8, 8, 31), (1024, 0, 8, 8, 33)]
    assert yuview(text, 0, "QP") == [(0, 0, 8, 8, 30), (9000, 0, 8, 8, 34)]
    assert yuview(text, 4, "QP") == [(64, 0, 8, 8, -12)]
    assert yuview(text, 4, "QT_Depth") == []


def test_the_size_in_the_header_is_at_least_that_of_the_cus(tmp_path):
    table = make_table(poc=[0], x=[16], y=[8])
    for given_size, written in (
        ({}, "[24x 16]"),
        ({"width": 178, "height": 8}, "[178x 16]"),
        ({"width": 8, "height": 130}, "[24x 130]"),
    ):
        write_vtm_stats(tmp_path / "t.vtmbmsstats", table, **given_size)
        assert f"Sequence size: {written}\n" in (tmp_path / "t.vtmbmsstats").read_text()
        assert len(read_vtm_stats(tmp_path / "t.vtmbmsstats")) == 1


def test_equal_tables_give_equal_bytes_and_no_other_file(tmp_path):
    table = make_table(poc=[0], x=[0], y=[0])
    for folder in ("a", "b"):
        write_blocks(tmp_path / folder / f"{folder}.vtmbmsstats.gz", table)
    a, b = ((tmp_path / folder / f"{folder}.vtmbmsstats.gz").read_bytes() for folder in "ab")
    assert a == b
    assert a[4:8] == b"\0" * 4, "the time stamp (RFC 1952, clause 2.3.1) must be 0"
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["a.vtmbmsstats.gz"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"poc": [0, 0], "x": [0, 8], "y": [0, 0], "depth": [1, -1]}, r"POC 0 at \(8, 0\) has no depth"),
        ({"poc": [-1], "x": [0], "y": [0]}, r"POC -1 has a block of 8x8 at \(0, 0\)"),
        ({"poc": [0], "x": [-8], "y": [0]}, r"at \(-8, 0\)"),
        ({"poc": [0], "x": [0], "y": [0], "h": [0]}, "8x0"),
        ({"poc": []}, "no blocks"),
    ],
)
def test_invalid_tables_are_refused_and_leave_no_file(tmp_path, columns, message):
    with pytest.raises(TableError, match=rf"t\.vtmbmsstats: .*{message}"):
        write_blocks(tmp_path / "t.vtmbmsstats", make_table(**columns))
    assert list(tmp_path.iterdir()) == []


def test_reading_an_invalid_trace_raises_one_clear_error(tmp_path):
    (tmp_path / "t.vtmbmsstats").write_text("no trace\n")
    with pytest.raises(TableError, match=r"t\.vtmbmsstats.* no block statistics"):
        read_blocks(tmp_path / "t.vtmbmsstats")
    with pytest.raises(MissingFileError):
        read_blocks(tmp_path / "absent.vtmbmsstats.gz")


# --- values of other blocks --------------------------------------------------------------------------------------

CTUS = {
    "poc": np.array([0, 0]),
    "x": np.array([0, 128]),
    "y": np.array([0, 0]),
    "w": np.array([128, 50]),
    "h": np.array([128, 100]),
    "FilterOn": np.array([True, False]),
    "Gain_cB": np.array([12, -1]),
}


def test_yuview_displays_ctu_decisions(tmp_path):
    path = tmp_path / "decisions.vtmbmsstats"
    write_block_values(path, CTUS, {"FilterOn": (0, 1), "Gain_cB": (-20, 20)}, width=178, height=130)
    text = path.read_text()
    assert text.splitlines()[1:4] == [
        "# Sequence size: [178x 130]",
        "# Block Statistic Type: FilterOn; Integer; [0, 1]",
        "# Block Statistic Type: Gain_cB; Integer; [-20, 20]",
    ]
    assert yuview(text, 0, "FilterOn") == [(0, 0, 128, 128, 1), (128, 0, 50, 100, 0)]
    assert yuview(text, 0, "Gain_cB") == [(0, 0, 128, 128, 12), (128, 0, 50, 100, -1)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"w": None}, "lack the columns w"),
        ({"Gain_cB": None}, "lack the columns Gain_cB"),
        ({"x": np.array([0])}, "different lengths"),
        ({"Gain_cB": np.array([0.5, 1])}, "Gain_cB .* whole numbers"),
    ],
)
def test_invalid_block_values_are_refused(change, message):
    columns = {name: values for name, values in (CTUS | change).items() if values is not None}
    with pytest.raises(TableError, match=message):
        next(block_value_lines(columns, {"Gain_cB": (0, 1)}))


def test_a_name_that_yuview_cannot_read_is_refused():
    with pytest.raises(TableError, match="'PSNR gain' cannot name"):
        next(block_value_lines(CTUS | {"PSNR gain": CTUS["x"]}, {"PSNR gain": (0, 1)}))
