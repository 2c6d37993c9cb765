"""Transform columns of CUs and the table of transform blocks equal those of the reference decoder."""

import gzip
import json
from collections import Counter

import numpy as np
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from codecnn.codec import ALL_COLUMNS, stream_table, stream_transform_blocks, write_transform_blocks
from codecnn.vvc.syntax import BLOCK_COLUMNS, CU_COLUMNS, TRANSFORM_COLUMNS, coding_units, transform_blocks
from codecnn.vvc.syntax.state import DCT2, DCT8, DST7
from tests.helpers.commands import result_of
from tests.helpers.golden import SHARED
from tests.helpers.intra_pictures import GoldenPicture, golden_pictures, intra_pictures

PICTURES = sorted({path.stem for path in SHARED.glob("golden/intra_pictures/*.npz")})
VTM_STREAMS = sorted({path.stem for path in SHARED.glob("golden/vvc_vtm/*.266")})
TRACES = ("tiny136x72_ai_qp32", "tiny64x64_ai_singletree_qp27", "chelsea178x130_ai_qp32", "tinyclip128x64_ra_qp37")
KERNELS = {0: DCT2, 1: DCT8, 2: DST7}
"""trType by the number that VTM gives a transform."""


def converted_blocks(golden: GoldenPicture, sub: tuple[int, int]) -> list[dict[str, int]]:
    """Convert the transform blocks of VTM to BLOCK_COLUMNS in luma samples, with properties of the CU."""
    blocks = []
    for text in golden.blocks:
        row = {name: int(value) for name, value in text.items()}
        right, down = sub if row["comp"] else (0, 0)
        transformed = row["cbf"] == 1 and row["ts"] == 0
        blocks.append(
            {"component": row["comp"], "x": row["x"] << right, "y": row["y"] << down}
            | {"w": row["w"] << right, "h": row["h"] << down, "cbf": row["cbf"], "ts": row["ts"]}
            | {"mts": max(row["mtsIdx"] - 1, 0), "lfnst": row["lfnst"] if row["lfnstApplied"] else 0}
            | {"tr_hor": KERNELS[row["trHor"]] if transformed else 0}
            | {"tr_ver": KERNELS[row["trVer"]] if transformed else 0}
            | {"bdpcm": row["bdpcm"], "joint_cbcr": row["jointCbCr"] if row["comp"] else 0, "nonzero": row["nnz"]}
            | {"cu": (row["cuX"] << right, row["cuY"] << down, row["cuW"] << right, row["cuH"] << down)}
            | {"cu_lfnst": row["lfnst"], "tree": row["treeType"]}
        )
    return blocks


def unit_columns(blocks: list[dict[str, int]], separate: bool) -> dict[tuple[int, ...], dict[str, int]]:
    """Combine blocks to TRANSFORM_COLUMNS of each CU by channel and area, without chroma of local dual trees."""
    units: dict[tuple[int, ...], dict[str, int]] = {}
    for block in blocks:
        chroma = block["component"] > 0
        if chroma and block["tree"] == 2:
            continue
        unit = units.setdefault((int(chroma and separate), *block["cu"]), dict.fromkeys(TRANSFORM_COLUMNS, -1))
        name = ("y", "cb", "cr")[block["component"]]
        values = {f"cbf_{name}": block["cbf"], f"ts_{name}": block["ts"], "lfnst": block["cu_lfnst"]}
        if chroma:
            values |= {"bdpcm_chroma": block["bdpcm"], "joint_cbcr": block["joint_cbcr"]}
        else:
            values |= {key: block[key] for key in ("mts", "tr_hor", "tr_ver", "bdpcm")}
        for key, value in values.items():
            unit[key] = max(unit[key], value)
    return units


@pytest.mark.parametrize("name", PICTURES)
def test_transform_blocks_and_cus_equal_the_reference_decoder(golden_file, name):
    golden = golden_pictures(golden_file(f"intra_pictures/{name}.npz"))
    folder = "vvc_vtm" if name.startswith(("ai_", "ld")) else "vvc"
    pictures = intra_pictures(golden_file(f"{folder}/{name}.266"))
    for expected, picture in zip(golden, pictures, strict=False):
        expected_blocks = converted_blocks(expected, (picture.sps.log2_sub_width_c, picture.sps.log2_sub_height_c))
        rows = transform_blocks(picture)
        blocks = {tuple(row[:3]): dict(zip(BLOCK_COLUMNS, row, strict=True)) for row in rows.tolist()}
        assert len(blocks) == len(rows)
        for block in expected_blocks:
            parsed = blocks.pop((block["component"], block["x"], block["y"]), None)
            if parsed is None:
                # VTM also lists palette units and units without a transform tree, which have no coded blocks.
                assert (block["cbf"], block["ts"], block["mts"]) == (0, 0, 0), block
            else:
                assert parsed == {key: block[key] for key in BLOCK_COLUMNS}
        assert not blocks
        cus = coding_units(picture)
        expected_units = unit_columns(expected_blocks, separate=bool(expected.meta["dualTree"]))
        columns = [CU_COLUMNS.index(key) for key in TRANSFORM_COLUMNS]
        assert len(cus) == len(expected_units)
        for row in cus:
            values = dict(zip(TRANSFORM_COLUMNS, row[columns].tolist(), strict=True))
            assert values == expected_units[tuple(row[:5].tolist())]


@pytest.mark.parametrize("name", VTM_STREAMS)
def test_mts_and_transform_skip_occur_as_often_as_in_vtm_trace(golden_file, name):
    """Covers inter pictures too. MTS_Y of VTM is 1 for transform skip and mts_idx + 1 from 2 on."""
    stream = golden_file(f"vvc_vtm/{name}.266")
    histogram = json.loads(stream.with_suffix(".json").read_text())["histograms"].get("MTS_Y", {})
    table = stream_transform_blocks(stream)
    luma = np.asarray(table["component"]) == "Y"
    values = np.where(table["ts"].to_numpy() == 1, 1, table["mts"].to_numpy() + (table["mts"].to_numpy() > 0))[luma]
    assert {key: count for key, count in Counter(values.tolist()).items() if key} == {
        int(key): count for key, count in histogram.items() if key != "0"
    }


@pytest.mark.parametrize("name", TRACES)
def test_trace_of_transform_blocks_equals_vtm_trace(own_golden, tmp_path, name):
    """Exceptions: the value 2, which includes the depth of a transform tree, and units without coded blocks."""
    write_transform_blocks(tmp_path / "t.vtmbmsstats", stream_transform_blocks(own_golden / "vvc" / f"{name}.266"))
    names = tuple(f" {kind}_{part}=" for kind in ("Cbf", "MTS") for part in ("Y", "Cb", "Cr"))
    written = {line for line in (tmp_path / "t.vtmbmsstats").read_text().splitlines() if any(n in line for n in names)}
    with gzip.open(own_golden / "vvc" / f"{name}.vtmbmsstats.gz", "rt") as file:
        lines = [line.rstrip("\n") for line in file if any(n in line for n in names) and " [ 0x 0] " not in line]
    expected = {f"{line[:-1]}1" if "Cbf" in line and line[-1] == "2" else line for line in lines if line[0] == "B"}
    assert written <= expected
    assert len(written) > 20
    assert all(line.endswith("=0") for line in expected - written)


def test_cu_table_agrees_with_transform_blocks_in_inter_pictures(own_golden):
    stream = own_golden / "vvc" / "tinyclip128x64_ra_qp37.266"
    table, blocks = stream_table(stream), stream_transform_blocks(stream).to_pylist()
    coded = {(b["poc"], b["x"], b["y"]) for b in blocks if b["component"] == "Y" and b["cbf"]}
    luma = table.select(table.channel == 0)
    for poc, x, y, w, h, cbf in zip(luma.poc, luma.x, luma.y, luma.w, luma.h, luma.cbf_y, strict=True):
        assert cbf == any(b[0] == poc and x <= b[1] < x + w and y <= b[2] < y + h for b in coded)
    assert set(luma.cbf_y.tolist()) == {0, 1}


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_partition_command_writes_transform_blocks(run, own_golden, tmp_path, suffix):
    stream, output = own_golden / "vvc" / "tiny136x72_ai_qp32.266", tmp_path / f"tus{suffix}"
    result = result_of(run, "partition", stream, "--tus", "-o", output)
    expected = stream_transform_blocks(stream)
    read = pq.read_table(output) if suffix == ".parquet" else pacsv.read_csv(output)
    assert read.to_pylist() == expected.to_pylist()
    assert expected.column_names == ["poc", "component", *BLOCK_COLUMNS[1:]]
    assert (result["transform_blocks"], result["coded"]) == (len(expected), sum(expected["cbf"].to_pylist()))
    status, _, error = run("partition", stream, "--tus", "--planes", "mts", "-o", tmp_path / "both")
    assert (status, (tmp_path / "both").exists()) == (1, False)
    assert "--tus, --motion and --planes" in error


def test_partition_command_replaces_transform_blocks_of_many_streams_by_cus(run, own_golden, tmp_path):
    names = ("tiny64x64_ai_qp32", "tiny136x72_ai_qp32")
    argv = ["partition", *(own_golden / "vvc" / f"{name}.266" for name in names), "-o", tmp_path]
    result_of(run, *argv, "--tus")
    for name in names:
        expected = stream_transform_blocks(own_golden / "vvc" / f"{name}.266")
        assert pq.read_table(tmp_path / f"{name}.parquet").to_pylist() == expected.to_pylist()
    result_of(run, *argv)
    assert pq.read_schema(tmp_path / f"{names[0]}.parquet").names == list(ALL_COLUMNS)


def test_table_with_unknown_suffix_is_refused(run, own_golden, tmp_path):
    status, _, error = run(
        "partition", own_golden / "vvc" / "tiny64x64_ai_qp32.266", "--tus", "-o", tmp_path / "tus.txt"
    )
    assert (status, list(tmp_path.iterdir())) == (1, [])
    assert "tus.txt" in error
