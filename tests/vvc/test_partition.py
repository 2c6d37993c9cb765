"""The CUs that codecnn reads from a VVC bitstream, against VTM's own statistics and what any partition must be."""

import csv
import gzip
import json
import resource
import subprocess
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from codecnn import cli
from codecnn.codec.blocks.table import CHROMA, LUMA, BlockTable, ctu_depths, read_table
from codecnn.codec.blocks.vvc_partition import stream_info, stream_table
from codecnn.errors import CodecnnError, FormatError, MissingFileError
from codecnn.video import read_still
from codecnn.video.process import ffmpeg_path
from codecnn.vvc.coding_units import coding_units
from codecnn.vvc.pictures import read_pictures
from codecnn.vvc.state import CU_COLUMNS

COLUMNS = ("x", "y", "w", "h", "depth", "qt_depth", "mt_depth", "pred_mode", "intra_mode", "qp")
VTM_NAMES = {"qtDepth": "qt_depth", "mtDepth": "mt_depth", "predMode": "pred_mode", "intraLumaMode": "intra_mode"}
VTM_NAMES |= {"QP": "qp"}

STREAMS = (
    *("astronaut_ai_ibd8_qp37", "astronaut_ai_nolf_qp22", "astronaut_ai_nolf_qp37", "astronaut_ai_qp22"),
    *("astronaut_ai_qp27", "astronaut_ai_qp32", "astronaut_ai_qp37", "astronaut_ai_qp42", "camera_ai_400_ibd8_qp37"),
    *("camera_ai_400_qp37", "chelsea178x130_ai_qp32", "chelsea178x130_ai_qp32_ctu32", "chelsea178x130_ai_qp32_ctu64"),
    *("chelsea178x130_ai_qp32_mtt3", "chelsea178x130_ai_qp32_nomtt", "chelsea178x130_ai_qp32_singletree"),
    *("chelsea450x300_ai_qp32", "clip416x240_ai_qp37", "clip416x240_ld_qp37", "clip416x240_ra_default_qp32"),
    *("clip416x240_ra_qp37", "edo0_all_qp37", "edo0_nolf_qp37", "tiny136x72_ai_qp32", "tiny64x64_ai_qp32"),
    *("tiny64x64_ai_singletree_qp27", "tinyclip128x64_ld_qp37", "tinyclip128x64_ra_qp37"),
)


def golden_rows(path: Path) -> list[dict[str, int]]:
    with gzip.open(path, "rt") as file:
        rows = list(csv.DictReader(file))
    return [
        {VTM_NAMES.get(name, name): "LC".index(text) if name == "channel" else int(text) for name, text in row.items()}
        for row in rows
    ]


def assert_equal_tables(table: BlockTable, rows: list[dict[str, int]], channels: tuple[int, ...]) -> None:
    """VTM writes the trees of a CTU one after the other, a stream those of 64x64 blocks: order counts within a tree."""
    for poc in {row["poc"] for row in rows} | set(table.poc.tolist()):
        for channel in channels:
            mine = table.select((table.poc == poc) & (table.channel == channel))
            listed = [[row[name] for name in COLUMNS] for row in rows if (row["poc"], row["channel"]) == (poc, channel)]
            got = np.stack([getattr(mine, name) for name in COLUMNS], axis=1)
            np.testing.assert_array_equal(got, np.array(listed, np.int32).reshape(-1, len(COLUMNS)))


def test_every_golden_stream_is_tested(shared_data):
    assert {path.stem for path in (shared_data / "golden" / "vvc").glob("*.266")} == set(STREAMS)


@pytest.mark.parametrize("name", STREAMS)
def test_cus_equal_vtms_trace(shared_data, name):
    folder = shared_data / "golden" / "vvc"
    rows = golden_rows(folder / f"{name}.cu.csv.gz")
    table = stream_table(folder / f"{name}.266")
    assert len(table) == len(rows)
    assert_equal_tables(table, rows, (LUMA, CHROMA))


@pytest.mark.parametrize("qp", [22, 27, 32, 37])
def test_cus_of_natural_pictures_equal_vtms_trace(shared_data, qp):
    streams = sorted((shared_data / "golden" / "val_vvc").glob(f"*_QP{qp}.266"))
    assert len(streams) == 17
    for path in streams:
        rows = golden_rows(path.with_suffix("").with_suffix(".cu.csv.gz"))
        assert_equal_tables(stream_table(path), rows, (LUMA,))


def test_intra_tools_equal_vtms_trace(shared_data):
    """What no table shows but every later bin depends on: MIP, ISP, reference line, BDPCM, LFNST and skip."""
    for name in ("astronaut_ai_qp27", "chelsea178x130_ai_qp32_singletree", "clip416x240_ra_qp37"):
        path = shared_data / "golden" / "vvc" / f"{name}.266"
        listed = golden_rows(path.with_suffix("").with_suffix(".cu.csv.gz"))
        for picture in read_pictures(path.read_bytes()):
            cus = coding_units(picture)
            luma = [row for row in listed if row["poc"] == picture.poc and row["channel"] == LUMA]
            for tool in ("mip", "isp", "mrl", "bdpcm", "lfnst", "skip"):
                known = [index for index, row in enumerate(luma) if row[tool] >= 0]
                mine = cus[cus[:, 0] == LUMA][known, CU_COLUMNS.index(tool)]
                assert mine.tolist() == [luma[index][tool] for index in known], tool


def encode(folder: Path, source: np.ndarray, params: str, qp: int = 30, adaptive: bool = False) -> Path:
    """Pictures of shape (n, height, width), 8 bit luma with flat chroma, coded by libvvenc."""
    height, width = source.shape[1:]
    chroma = np.full(width * height // 2, 128, np.uint8)
    raw = folder / "in.yuv"
    raw.write_bytes(b"".join(picture.tobytes() + chroma.tobytes() for picture in source))
    output = folder / "out.266"
    argv = [ffmpeg_path(), "-y", "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "yuv420p", "-s"]
    argv += [f"{width}x{height}", "-r", "30", "-i", str(raw), "-pix_fmt", "yuv420p10le", "-c:v", "libvvenc", "-preset"]
    argv += ["faster", "-qp", str(qp), "-qpa", str(int(adaptive))]
    argv += ["-vvenc-params", f"MCTF=0:BIM=0:LookAhead=0:STA=0:{params}", str(output)]
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, capture_output=True)
    return output


def drifting_letters(pictures: int, height: int, width: int) -> np.ndarray:
    """Repeated sharp shapes over a gradient, moving: screen content for IBC and transform skip, motion for the rest."""
    y, x = np.mgrid[:height, :width]
    frames = []
    for t in range(pictures):
        shapes = ((x + 3 * t) % 16 < 5) ^ ((y + t) % 24 < 7)
        frames.append(np.where(shapes & (x > width // 3), 230, 40 + (x + y + 2 * t) % 128))
    return np.stack(frames).astype(np.uint8)


def assert_partition(table: BlockTable, width: int, height: int, pictures: int) -> None:
    """Every sample of every picture lies in one luma CU and, with separate trees, in one chroma CU."""
    assert sorted(set(table.poc.tolist())) == list(range(pictures))
    assert (table.depth == table.qt_depth + table.mt_depth).all()
    for poc in range(pictures):
        for channel in (LUMA, CHROMA):
            one = table.select((table.poc == poc) & (table.channel == channel))
            covered = np.zeros((height, width), int)
            for x, y, w, h in zip(one.x, one.y, one.w, one.h, strict=True):
                covered[y : y + h, x : x + w] += 1
            assert (covered == (1 if channel == LUMA or len(one) else 0)).all()


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
def test_tools_that_no_golden_stream_has(tmp_path, params):
    """Slices must end on their last bit, which a single misread bin prevents; and the CUs must be a partition."""
    pictures = 1 if "IntraPeriod=1:" in params else 5
    source = drifting_letters(pictures, 136, 200)
    assert_partition(stream_table(encode(tmp_path, source, params)), 200, 136, pictures)


def test_qp_of_quantization_groups(tmp_path):
    """Perceptual adaptation changes the QP a CTU; what the headers say is where it starts from."""
    source = drifting_letters(1, 256, 384)
    stream = encode(tmp_path, source, ALL_INTRA, qp=32, adaptive=True)
    table = stream_table(stream)
    luma = table.select(table.channel == LUMA)
    assert len(set(luma.qp.tolist())) > 1
    assert np.abs(luma.qp - stream_info(stream).pictures[0].slice_qps[0]).max() <= 20
    assert next(read_pictures(stream.read_bytes())).slices[0].picture_header.intra_subdivs[0] == 2
    groups: dict[tuple[int, int], list[int]] = {}
    for x, y, qp in zip(luma.x // 32, luma.y // 32, luma.qp, strict=True):
        groups.setdefault((x, y), []).append(qp)
    # A group has 32x32 samples here; what precedes its first residual has the predicted QP, the rest the coded one.
    assert all(sum(a != b for a, b in pairwise(qps)) <= 1 for qps in groups.values())


def test_depth_of_ctus_from_the_stream(shared_data):
    """What a store takes from it."""
    folder = shared_data / "golden" / "vvc"
    mine = ctu_depths(stream_table(folder / "tiny136x72_ai_qp32.266"), 0, 136, 72, 64)
    vtm = ctu_depths(read_table(folder / "tiny136x72_ai_qp32.vtmbmsstats.gz"), 0, 136, 72, 64)
    np.testing.assert_array_equal(mine[0], vtm[0])
    np.testing.assert_array_equal(mine[1], vtm[1])


@pytest.mark.slow
def test_a_picture_of_1080p_takes_two_seconds_at_most(shared_data, tmp_path):
    """CPU time once compiled, nine photographs side by side at QP 32."""
    pictures = [read_still(path).y for path in sorted((shared_data / "images" / "val").glob("*.png"))]
    tiles = [one >> 2 for one in pictures if one.shape == (512, 768)][:9]
    picture = np.block([tiles[:3], tiles[3:6], tiles[6:]])[:1080, :1920].astype(np.uint8)
    stream = encode(tmp_path, picture[None], ALL_INTRA, qp=32)
    stream_table(stream)
    start = time.process_time()
    assert len(stream_table(stream)) > 10_000
    assert time.process_time() - start < 2


def mutated(streams: list[bytes], rng: np.random.Generator) -> bytes:
    """A stream with bits flipped, cut off, spliced with another, with bytes replaced, or with NAL units moved."""
    data = bytearray(streams[rng.integers(len(streams))])
    kind = rng.integers(5)
    at = int(rng.integers(len(data)))
    if kind == 0:
        for bit in rng.integers(8 * len(data), size=rng.choice([1, 2, 8, 64])):
            data[bit // 8] ^= 1 << (bit % 8)
    elif kind == 1:
        del data[at:]
    elif kind == 2:
        other = streams[rng.integers(len(streams))]
        data[at:] = other[rng.integers(len(other)) :]
    elif kind == 3:
        data[at : at + int(rng.integers(1, 40))] = rng.bytes(int(rng.integers(40)))
    else:
        units = [bytes(unit) for unit in data.split(b"\0\0\1")[1:]]
        others = streams[rng.integers(len(streams))].split(b"\0\0\1")[1:]
        for _ in range(rng.choice([1, 2, 8])):
            place = rng.integers(len(units))
            source = (units, others)[rng.integers(2)]
            units[place : place + rng.integers(2)] = [source[rng.integers(len(source))]]
        data = bytearray(b"".join(b"\0\0\1" + unit for unit in units))
    return bytes(data)


@pytest.mark.parametrize(("seed", "count"), [(1, 300), pytest.param(2, 2000, marks=pytest.mark.slow)])
def test_damaged_streams_end_in_an_error_or_a_table(shared_data, tmp_path, seed, count):
    """Within 5 s of CPU time and 512 MiB each; the whole ones take 0.1 s at most."""
    rng = np.random.default_rng(seed)
    names = [name for name in STREAMS if name.startswith(("tiny", "chelsea178", "camera_ai_400_qp37"))]
    streams = [(shared_data / "golden" / "vvc" / f"{name}.266").read_bytes() for name in names]
    path = tmp_path / "damaged.266"
    sentences = []
    for name in names:
        stream_table(shared_data / "golden" / "vvc" / f"{name}.266")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(count):
        path.write_bytes(mutated(streams, rng))
        start = time.process_time()
        try:
            table = stream_table(path)
        except CodecnnError as error:
            sentences.append(str(error))
        else:
            assert (table.w > 0).all(), (seed, number)
            assert (table.x >= 0).all(), (seed, number)
        assert time.process_time() - start < 5, (seed, number)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 512 * 1024, (seed, number)
    assert count // 2 < len(sentences) < count
    assert all(sentence.startswith(str(path)) and "\n" not in sentence for sentence in sentences)


def test_a_cut_slice_says_where(shared_data, tmp_path):
    data = (shared_data / "golden" / "vvc" / "astronaut_ai_qp37.266").read_bytes()
    path = tmp_path / "cut.266"
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(FormatError, match=r"cut\.266, POC 0: slice 0, CTU \d+: (its data ends early|it does not end)"):
        stream_table(path)


def test_absent_file(tmp_path):
    with pytest.raises(MissingFileError, match=r"none\.266 does not exist"):
        stream_table(tmp_path / "none.266")


def run(monkeypatch, capsys, *argv):
    monkeypatch.setattr("sys.argv", ["codecnn", *map(str, argv)])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    captured = capsys.readouterr()
    return stop.value.code or 0, captured.out, captured.err


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".vtmbmsstats"])
def test_partition_command(shared_data, tmp_path, monkeypatch, capsys, suffix):
    stream = shared_data / "golden" / "vvc" / "tinyclip128x64_ra_qp37.266"
    output = tmp_path / f"cus{suffix}"
    status, text, _ = run(monkeypatch, capsys, "partition", stream, "-o", output, "--json")
    assert (status, json.loads(text)["cus"], json.loads(text)["pictures"]) == (0, 327, 17)
    written = read_table(output)
    table = stream_table(stream)
    key = ("poc", "channel", "x", "y", "w", "h", "depth", "qp")

    def rows(one):
        return sorted(zip(*(getattr(one, name).tolist() for name in key), strict=True))

    assert rows(written) == rows(table)


def test_partition_command_refuses(tmp_path, monkeypatch, capsys):
    path = tmp_path / "text.266"
    path.write_text("no stream")
    output = tmp_path / "cus.parquet"
    status, _, error = run(monkeypatch, capsys, "partition", path, "-o", output)
    assert status == 1
    assert "text.266: it does not begin with a start code" in error
    assert not output.exists()


def test_info_command(shared_data, monkeypatch, capsys):
    stream = shared_data / "golden" / "vvc" / "chelsea178x130_ai_qp32.266"
    status, text, _ = run(monkeypatch, capsys, "info", stream, "--json")
    facts = json.loads(text)
    assert status == 0
    assert (facts["width"], facts["height"], facts["chroma"], facts["bit_depth"]) == (178, 130, "420", 10)
    assert facts["coded_pictures"] == [
        {"position": 0, "poc": 0, "temporal_id": 0, "slice_type": "I", "slice_qps": [32]}
    ]
    status, text, _ = run(monkeypatch, capsys, "info", shared_data / "golden" / "vvc" / "clip416x240_ra_qp37.266")
    assert status == 0
    assert "1 I at QP 37" in text
