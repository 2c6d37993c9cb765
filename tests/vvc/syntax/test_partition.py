"""CUs parsed from VVC bitstreams equal the statistics of VTM and form a partition."""

import json
import resource
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from codecnn.base.errors import CodecnnError, FormatError, MissingFileError
from codecnn.codec import CHROMA, LUMA, BlockTable, ctu_depths, read_blocks, stream_info, stream_table
from codecnn.pictures.files import ffmpeg_path
from codecnn.pictures.files import run as run_program
from codecnn.vvc.syntax import CU_COLUMNS, coding_units, read_pictures
from tests.helpers.block_tables import as_rows
from tests.helpers.damage import mutated
from tests.helpers.golden import SHARED, listed, vtm_rows

COLUMNS = ("x", "y", "w", "h", "depth", "qt_depth", "mt_depth", "pred_mode", "intra_mode", "qp")
STREAMS = sorted(
    {Path(name).stem for name in (*listed(), *SHARED.glob("golden/vvc/*.266")) if Path(name).match("vvc/*.266")}
)
OTHER_TOOLS = sorted({path.stem for path in SHARED.glob("golden/vvc_vtm/*.266")})


def assert_equal_tables(table: BlockTable, rows: list[dict[str, int]], channels: tuple[int, ...]) -> None:
    """Compare the rows of each picture and channel in order.

    VTM writes one tree of a CTU after the other, a stream alternates them by blocks of 64x64.
    """
    for poc in {row["poc"] for row in rows} | set(table.poc.tolist()):
        for channel in channels:
            parsed = table.select((table.poc == poc) & (table.channel == channel))
            selected = [row for row in rows if (row["poc"], row["channel"]) == (poc, channel)]
            expected = [[row[name] for name in COLUMNS] for row in selected]
            actual = np.stack([getattr(parsed, name) for name in COLUMNS], axis=1)
            np.testing.assert_array_equal(actual, np.array(expected, np.int32).reshape(-1, len(COLUMNS)))
            if channel == LUMA and rows and "cbfY" in rows[0]:
                of_picture = [row for row in rows if (row["poc"], row["channel"]) == (poc, LUMA)]
                assert_equal_transforms(parsed, of_picture)
                assert_equal_tools(parsed, of_picture)


def assert_equal_transforms(luma: BlockTable, rows: list[dict[str, int]]) -> None:
    """Compare transform columns; cbfY of VTM combines the flags of transform blocks, shifted by their tree depth."""
    np.testing.assert_array_equal(luma.cbf_y, [int(row["cbfY"] > 0) for row in rows])
    np.testing.assert_array_equal(luma.lfnst, [row["lfnst"] for row in rows])
    np.testing.assert_array_equal(luma.bdpcm, [row["bdpcm"] for row in rows])


def assert_equal_tools(luma: BlockTable, rows: list[dict[str, int]]) -> None:
    """Compare columns of tools; VTM traces no cu_skip_flag of intra and IBC units in some slices."""
    for tool in ("mip", "isp", "mrl"):
        np.testing.assert_array_equal(getattr(luma, tool), [row[tool] for row in rows], tool)
    traced = [index for index, row in enumerate(rows) if row["skip"] >= 0]
    np.testing.assert_array_equal(luma.skip[traced], [rows[index]["skip"] for index in traced])
    assert np.isin(luma.skip, (0, 1)).all()


def test_every_golden_stream_is_tested():
    assert len(STREAMS) == (28 if SHARED.is_dir() else 17)


@pytest.mark.parametrize("name", STREAMS)
def test_cus_equal_vtm_trace(golden_file, name):
    rows = vtm_rows(golden_file(f"vvc/{name}.cu.csv.gz"))
    table = stream_table(golden_file(f"vvc/{name}.266"))
    assert len(table) == len(rows)
    assert_equal_tables(table, rows, (LUMA, CHROMA))


@pytest.mark.parametrize("name", OTHER_TOOLS)
def test_cus_of_vtm_streams_equal_vtm_trace(shared_data, name):
    """Tools that libvvenc does not use: palette, adaptive colour transform, 4:2:2 and 4:4:4, slices, 12 bit, others."""
    folder = shared_data / "golden" / "vvc_vtm"
    assert_equal_tables(stream_table(folder / f"{name}.266"), vtm_rows(folder / f"{name}.cu.csv.gz"), (LUMA, CHROMA))


@pytest.mark.parametrize("qp", [22, 27, 32, 37])
def test_cus_of_natural_pictures_equal_vtm_trace(shared_data, qp):
    streams = sorted((shared_data / "golden" / "val_vvc").glob(f"*_QP{qp}.266"))
    assert len(streams) == 17
    for path in streams:
        rows = vtm_rows(path.with_suffix("").with_suffix(".cu.csv.gz"))
        assert_equal_tables(stream_table(path), rows, (LUMA,))


@pytest.mark.parametrize(
    "name", ["astronaut_ai_qp27", "edo0_nolf_qp37", "chelsea178x130_ai_qp32_singletree", "clip416x240_ra_qp37"]
)
def test_intra_tools_equal_vtm_trace(golden_file, name):
    """Later bins depend on values that the CU table does not show: MIP, ISP, reference line, BDPCM, LFNST and skip."""
    path = golden_file(f"vvc/{name}.266")
    rows = vtm_rows(path.with_suffix(".cu.csv.gz"))
    for picture in read_pictures(path.read_bytes()):
        cus = coding_units(picture)
        luma = [row for row in rows if row["poc"] == picture.poc and row["channel"] == LUMA]
        for tool in ("mip", "isp", "mrl", "bdpcm", "lfnst", "skip"):
            known = [index for index, row in enumerate(luma) if row[tool] >= 0]
            parsed = cus[cus[:, 0] == LUMA][known, CU_COLUMNS.index(tool)]
            assert parsed.tolist() == [luma[index][tool] for index in known], tool


def code(raw: Path, size: tuple[int, int], output: Path, params: str, *options: str, qp: int, qpa: int = 0) -> Path:
    """Encode raw 8-bit 4:2:0 video of `size` (width, height) with libvvenc; `qpa` is its perceptual QP adaptation."""
    argv = [ffmpeg_path(), "-y", "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "yuv420p"]
    argv += ["-s", "{}x{}".format(*size), "-r", "30", "-i", str(raw), *options, "-pix_fmt", "yuv420p10le"]
    argv += ["-c:v", "libvvenc", "-preset", "faster", "-qp", str(qp), "-qpa", str(qpa)]
    run_program([*argv, "-vvenc-params", f"MCTF=0:BIM=0:LookAhead=0:STA=0:{params}", str(output)], what=params)
    return output


def encode(folder: Path, source: np.ndarray, params: str, qp: int = 30, qpa: int = 0) -> Path:
    """Encode pictures of shape (n, height, width), 8-bit luma with flat chroma, with libvvenc."""
    height, width = source.shape[1:]
    chroma = bytes([128]) * (width * height // 2)
    (folder / "in.yuv").write_bytes(b"".join(picture.tobytes() + chroma for picture in source))
    return code(folder / "in.yuv", (width, height), folder / "out.266", params, qp=qp, qpa=qpa)


def drifting_letters(pictures: int, height: int, width: int) -> np.ndarray:
    """Draw moving, repeated sharp shapes on a gradient: screen content for IBC and transform skip, motion for inter."""
    y, x = np.mgrid[:height, :width]
    frames = []
    for t in range(pictures):
        shapes = ((x + 3 * t) % 16 < 5) ^ ((y + t) % 24 < 7)
        frames.append(np.where(shapes & (x > width // 3), 230, 40 + (x + y + 2 * t) % 128))
    return np.stack(frames).astype(np.uint8)


def assert_partition(table: BlockTable, width: int, height: int, pictures: int) -> None:
    """Check that each sample of each picture lies in one luma CU and, with separate trees, in one chroma CU."""
    assert sorted(set(table.poc.tolist())) == list(range(pictures))
    assert (table.depth == table.qt_depth + table.mt_depth).all()
    for poc in range(pictures):
        for channel in (LUMA, CHROMA):
            units = table.select((table.poc == poc) & (table.channel == channel))
            covered = np.zeros((height, width), int)
            for x, y, w, h in zip(units.x, units.y, units.w, units.h, strict=True):
                covered[y : y + h, x : x + w] += 1
            assert (covered == (1 if channel == LUMA or len(units) else 0)).all()


ALL_INTRA = "IntraPeriod=1:DecodingRefreshType=idr:CTUSize=64"
RANDOM_ACCESS = "IntraPeriod=32:GOPSize=16:POC0IDR=1:CTUSize=64"
LOW_DELAY = "PicReordering=0:GOPSize=8:DecodingRefreshType=none:IntraPeriod=-1:CTUSize=64"


@pytest.mark.parametrize(
    "params",
    [
        f"{ALL_INTRA}:Level=5.1:Tiles=2x2",
        f"{ALL_INTRA}:WaveFrontSynchro=1",
        f"{ALL_INTRA}:Level=5.1:Tiles=2x1:WaveFrontSynchro=1",
        f"{ALL_INTRA}:IBC=1:TransformSkip=1:BDPCM=1:DualITree=0",
        f"{ALL_INTRA}:DepQuant=0:SignHideFlag=1:MTS=1:TransformSkip=1:TransformSkipLog2MaxSize=5",
        f"{ALL_INTRA}:DepQuant=0:SignHideFlag=0:TransformSkip=1:BDPCM=1",
        f"{RANDOM_ACCESS}:SBT=1:CIIP=1:BCW=1:MTS=1:Affine=2:AMVR=3:IBC=1",
        f"{LOW_DELAY}:CIIP=1:BCW=2:MMVD=3:Geo=3:Affine=2:SBT=1",
    ],
)
def test_tools_outside_the_golden_streams(tmp_path, params):
    """Each slice must end on its last bit, which a single misread bin prevents, and the CUs must be a partition."""
    pictures = 1 if "IntraPeriod=1:" in params else 5
    source = drifting_letters(pictures, 136, 200)
    assert_partition(stream_table(encode(tmp_path, source, params)), 200, 136, pictures)


def test_qp_of_quantization_groups(tmp_path):
    """Perceptual adaptation changes the QP of each CTU, starting from the slice QP of the header."""
    source = drifting_letters(1, 256, 384)
    stream = encode(tmp_path, source, ALL_INTRA, qp=32, qpa=1)
    table = stream_table(stream)
    luma = table.select(table.channel == LUMA)
    assert len(set(luma.qp.tolist())) > 1
    assert np.abs(luma.qp - stream_info(stream).pictures[0].slice_qps[0]).max() <= 20
    assert next(read_pictures(stream.read_bytes())).slices[0].picture_header.intra_subdivs[0] == 2
    groups: dict[tuple[int, int], list[int]] = {}
    for x, y, qp in zip(luma.x // 32, luma.y // 32, luma.qp, strict=True):
        groups.setdefault((x, y), []).append(qp)
    # A group has 32x32 samples here; CUs before its first residual have the predicted QP, the others the coded one.
    assert all(sum(a != b for a, b in pairwise(qps)) <= 1 for qps in groups.values())


def test_ctu_depths_of_a_stream_equal_vtm(golden_file):
    parsed = ctu_depths(stream_table(golden_file("vvc/tiny136x72_ai_qp32.266")), 0, 136, 72, 64)
    vtm = ctu_depths(read_blocks(golden_file("vvc/tiny136x72_ai_qp32.vtmbmsstats.gz")), 0, 136, 72, 64)
    np.testing.assert_array_equal(parsed[0], vtm[0])
    np.testing.assert_array_equal(parsed[1], vtm[1])


@pytest.mark.parametrize(("seed", "count"), [(1, 300), pytest.param(2, 2000, marks=pytest.mark.slow)])
def test_damaged_streams_end_in_an_error_or_a_table(golden_file, tmp_path, seed, count):
    """Each takes at most 5 s of CPU time and 512 MiB; an undamaged stream takes 0.1 s at most."""
    rng = np.random.default_rng(seed)
    names = [name for name in STREAMS if name.startswith(("tiny", "chelsea178", "camera_ai_400_qp37"))]
    paths = [golden_file(f"vvc/{name}.266") for name in names]
    streams = [intact.read_bytes() for intact in paths]
    path = tmp_path / "damaged.266"
    messages = []
    for intact in paths:
        stream_table(intact)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(count):
        path.write_bytes(mutated(streams, rng))
        start = time.process_time()
        try:
            table = stream_table(path)
        except CodecnnError as error:
            messages.append(str(error))
        else:
            assert (table.w > 0).all(), (seed, number)
            assert (table.x >= 0).all(), (seed, number)
        assert time.process_time() - start < 5, (seed, number)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 512 * 1024, (seed, number)
    assert count // 2 < len(messages) < count
    assert all(message.startswith(str(path)) and "\n" not in message for message in messages)


def test_error_of_a_cut_slice_states_the_ctu(golden_file, tmp_path):
    data = golden_file("vvc/edo0_all_qp37.266").read_bytes()
    path = tmp_path / "cut.266"
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(FormatError, match=r"cut\.266, POC 0: slice 0, CTU \d+: (its data ends early|it does not end)"):
        stream_table(path)


def test_missing_file(tmp_path):
    with pytest.raises(MissingFileError, match=r"none\.266 does not exist"):
        stream_table(tmp_path / "none.266")


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".vtmbmsstats"])
def test_partition_command(golden_file, tmp_path, run, suffix):
    stream = golden_file("vvc/tinyclip128x64_ra_qp37.266")
    output = tmp_path / f"cus{suffix}"
    status, text, _ = run("partition", stream, "-o", output, "--json")
    assert (status, json.loads(text)["cus"], json.loads(text)["pictures"]) == (0, 327, 17)
    key = ("poc", "channel", "x", "y", "w", "h", "depth", "qp")
    assert sorted(as_rows(read_blocks(output), key)) == sorted(as_rows(stream_table(stream), key))


def test_partition_command_refuses_other_files(tmp_path, run):
    path = tmp_path / "text.266"
    path.write_text("no stream")
    output = tmp_path / "cus.parquet"
    status, _, error = run("partition", path, "-o", output)
    assert status == 1
    assert "text.266" in error
    assert not output.exists()


def test_info_command(golden_file, run):
    stream = golden_file("vvc/chelsea178x130_ai_qp32.266")
    status, text, _ = run("info", stream, "--json")
    facts = json.loads(text)
    assert status == 0
    assert (facts["width"], facts["height"], facts["chroma"], facts["bit_depth"]) == (178, 130, "420", 10)
    assert facts["coded_pictures"] == [
        {"position": 0, "poc": 0, "temporal_id": 0, "slice_type": "I", "slice_qps": [32]}
    ]
    status, text, _ = run("info", golden_file("vvc/clip416x240_ra_qp37.266"))
    assert status == 0
    assert "1 I at QP 37" in text
