"""Table of CUs with motion: equal to the motion that VTM traces, also in files."""

import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from codecnn.base.errors import ConfigError, TableError
from codecnn.codec import read_blocks, stream_motion, stream_table, write_motion, write_partitions
from tests.helpers.block_tables import as_rows
from tests.helpers.commands import result_of
from tests.helpers.motion_traces import traced_pictures

LOW_DELAY = "tinyclip128x64_ld_qp37"
NEW_COLUMNS = ["merge", "ciip", "gpm", "affine", "mv_l0_x", "mv_l0_y", "mv_l1_x", "mv_l1_y", "ref_l0", "ref_l1"]


@pytest.mark.parametrize("name", [LOW_DELAY, "tinyclip128x64_ra_qp37", "clip416x240_ra_qp37"])
def test_motion_of_cus_equals_vtm_trace(golden_file, name):
    """The third stream has DMVR, whose refined vectors later pictures predict from."""
    stream = golden_file(f"vvc/{name}.266")
    rows = stream_motion(stream).to_pylist()
    assert as_rows(read_blocks(stream)) == as_rows(stream_table(stream))
    by_picture = {}
    for row in rows:
        by_picture.setdefault(row["poc"], {})[row["channel"], row["x"], row["y"]] = row
    geometric = affine = 0
    for picture in traced_pictures(golden_file(f"vvc/{name}.vtmbmsstats.gz")):
        units = by_picture[picture.poc]
        for (x, y, w, h), values in picture.units.items():
            if "PredMode" not in values or not w:  # VTM lists chroma CUs of local dual trees with the size 0x0
                continue
            row = units["L", x, y]
            assert (row["w"], row["h"], row["pred_mode"]) == (w, h, *values["PredMode"])
            if row["pred_mode"] != 0:
                assert all(row[column] is None for column in NEW_COLUMNS)
                continue
            assert row["ciip"] == values.get("CiipFlag", (0,))[0]
            assert row["merge"] == values["SkipFlag"][0] | values.get("MergeFlag", (0,))[0]
            assert (row["affine"] > 0) == values["AffineFlag"][0]
            if row["affine"] in (1, 2):
                assert row["affine"] - 1 == values["AffineType"][0]
            geometric, affine = geometric + row["gpm"], affine + (row["affine"] > 0)
            for number in range(2):
                vector = (row[f"mv_l{number}_x"], row[f"mv_l{number}_y"])
                assert vector == picture.vectors.get((x, y, number), (None, None)), (picture.poc, x, y)
                assert (row[f"ref_l{number}"] is None) == (vector[0] is None)
                assert row[f"ref_l{number}"] is None or name != LOW_DELAY or row[f"ref_l{number}"] < picture.poc
    assert affine > 0
    assert (geometric > 0) == (name != LOW_DELAY)


def test_command_writes_a_table_that_is_also_one_of_cus(run, golden_file, tmp_path):
    stream = golden_file(f"vvc/{LOW_DELAY}.266")
    output = tmp_path / "motion.parquet"
    assert result_of(run, "partition", stream, "--motion", "-o", output)["inter_cus"] == 154
    table = pq.read_table(output)
    assert table.column_names[-len(NEW_COLUMNS) :] == NEW_COLUMNS
    assert as_rows(read_blocks(output)) == as_rows(stream_table(stream))
    write_motion(tmp_path / "motion.csv", table)
    assert pacsv.read_csv(tmp_path / "motion.csv").to_pylist() == table.to_pylist()
    status, _, err = run("partition", stream, stream.parent / "tiny64x64_ai_qp32.266", "--motion", "-o", tmp_path / "b")
    assert status == 0, err
    assert pq.read_table(tmp_path / "b" / f"{LOW_DELAY}.parquet").to_pylist() == table.to_pylist()


def test_other_suffixes_and_combinations_are_refused(run, golden_file, tmp_path):
    stream = golden_file(f"vvc/{LOW_DELAY}.266")
    with pytest.raises(TableError, match=r"motion\.txt"):
        write_motion(tmp_path / "motion.txt", None)
    status, _, err = run("partition", stream, "--motion", "--tus", "-o", tmp_path / "a.parquet")
    assert status == 1
    assert "--tus, --motion and --planes" in err
    with pytest.raises(ConfigError, match="exclude"):
        write_partitions([stream], tmp_path / "folder", tus=True, motion=True)
