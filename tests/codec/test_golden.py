"""All golden streams, traces and analysis files: MD5 of the decoded pictures, CUs and depth maps.

The MD5s were computed with the decoders of ffmpeg, vvdec and VTM; the tables come from VTM's trace and from libde265.
The tests run on the data of the repository and, if present, on the larger set; a missing file is a failure.
"""

import hashlib
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from codecnn.codec import COLUMNS, decode_stream, rasterise, read_blocks, read_vtm_stats, read_x265_analysis
from codecnn.pictures.files import ffmpeg_path, open_video, probe_stream, read_still
from tests.helpers.block_tables import as_rows
from tests.helpers.golden import csv_rows, vtm_rows

STREAMS = {"repository": {"vvc": 17, "hevc": 4}, "golden": {"vvc": 28, "hevc": 13}}
VAL_PICTURES = 17
_OWN_TRACES = """
chelsea178x130_ai_qp32 chelsea178x130_ai_qp32.coded tiny136x72_ai_qp32 tiny64x64_ai_qp32 tiny64x64_ai_singletree_qp27
tinyclip128x64_ld_qp37 tinyclip128x64_ra_qp37
"""
TRACES = {"repository": set(_OWN_TRACES.split())}
TRACES["golden"] = TRACES["repository"] | {"astronaut_ai_qp37", "clip416x240_ra_qp37"}
VAL_QPS = (22, 27, 32, 37)


def streams(golden: Path) -> list[Path]:
    hashes = sorted((*golden.glob("vvc/*.md5"), *golden.glob("hevc/*.md5")))
    suffixes = {"vvc": ".266", "hevc": ".265"}
    paths = [path.with_suffix(suffixes[path.parent.name]) for path in hashes]
    assert Counter(path.parent.name for path in paths) == STREAMS[golden.name]
    return paths


def stated_md5(stream: Path) -> str:
    return stream.with_suffix(".md5").read_text().split()[0]


def paint(places: list[tuple[int, int, int, int, int]], width: int, height: int) -> np.ndarray:
    """Paint rectangles (x, y, w, h, value) into a plane; later ones overwrite earlier ones."""
    plane = np.full((height, width), -1)
    for x, y, w, h, value in places:
        plane[y : y + h, x : x + w] = value
    return plane


def test_all_streams_decode_to_their_md5(golden: Path, tmp_path: Path) -> None:
    wrong = []
    for path in streams(golden):
        output = tmp_path / "decoded.yuv"
        decode_stream(ffmpeg_path(), path, output, probe_stream(path).format)
        if hashlib.md5(output.read_bytes()).hexdigest() != stated_md5(path):
            wrong.append(path.name)
    assert wrong == []


def opened_md5(path: Path) -> str:
    digest = hashlib.md5()
    with open_video(path) as video:
        for picture in video:
            for plane in picture.planes:
                digest.update(plane.tobytes())
    return digest.hexdigest()


@pytest.mark.parametrize("bytes_below", [2_500, pytest.param(math.inf, marks=pytest.mark.slow)])
def test_streams_open_as_videos_with_their_md5(golden: Path, bytes_below: float) -> None:
    chosen = [path for path in streams(golden) if path.stat().st_size < bytes_below]
    assert len(chosen) >= 10
    assert [path.name for path in chosen if opened_md5(path) != stated_md5(path)] == []


def test_vtm_traces_give_all_cus_in_order_and_their_depth_maps(golden: Path) -> None:
    """The tables come from the same traces by an independent reader; two variants order their lines differently."""
    paths = sorted(golden.glob("vvc/*.vtmbmsstats.gz"))
    assert {path.name.removesuffix(".vtmbmsstats.gz") for path in paths} == TRACES[golden.name]
    compared = maps = 0
    for path in paths:
        stem = path.name.partition(".")[0]
        cus = [tuple(row[name] for name in COLUMNS) for row in vtm_rows(path.with_name(f"{stem}.cu.csv.gz"))]
        table = read_vtm_stats(path)
        assert as_rows(table) == cus, path.name
        compared += len(cus)
        form = probe_stream(path.with_name(f"{stem}.266")).format
        for poc in sorted({row[0] for row in cus}):
            luma = [(*row[2:6], row[6]) for row in cus if row[:2] == (poc, 0)]
            wanted = paint(luma, form.width, form.height)
            assert wanted.min() >= 0, path.name
            np.testing.assert_array_equal(rasterise(table, poc, "depth", form.width, form.height), wanted)
            maps += 1
    assert compared >= (5698 if golden.name == "golden" else 1329)
    assert maps >= (40 if golden.name == "golden" else 31)


def test_x265_analysis_files_equal_libde265_and_their_depth_maps(golden: Path) -> None:
    """Compare position, size, depth and modes of the CUs of I, P and B pictures, also with cutree and AMP."""
    paths = sorted(golden.glob("hevc/*.dat"))
    assert [path.stem for path in paths] == sorted(path.stem for path in streams(golden) if path.parent.name == "hevc")
    compared: Counter[str] = Counter()
    for path in paths:
        rows = csv_rows(path.with_suffix(".cu.csv.gz"))
        # All-intra streams are made of IDR pictures, so that POC is 0 in each.
        key = "poc" if len({row["poc"] for row in rows}) > 1 else "frame"
        cus = []
        for row in rows:
            intra, size = row["predMode"] == "0", int(row["size"])
            mode = int(row["lumaModes"].split("|")[0]) if intra else -1
            place = (int(row[key]), int(row["y"]), int(row["x"]))
            cus.append((*place, size, size, int(row["depth"]), int(row["depth"]), 0, int(intra), mode))
        table = read_x265_analysis(path, dict.fromkeys(range(17), 29))
        names = ("poc", "y", "x", "w", "h", "depth", "qt_depth", "mt_depth", "pred_mode", "intra_mode")
        assert sorted(as_rows(table, names)) == sorted(cus), path.name
        assert set(table.qp.tolist()) == ({-1} if "cutree" in path.name else {29}), path.name
        compared["intra" if "_ai_" in path.name else "inter"] += len(cus)
        form = probe_stream(path.with_suffix(".265")).format
        for poc in {row[0] for row in cus}:
            places = [(x, y, w, h, depth) for frame, y, x, w, h, depth, *_ in cus if frame == poc]
            wanted = paint(places, form.width, form.height)
            np.testing.assert_array_equal(rasterise(table, poc, "depth", form.width, form.height), wanted)
    intra, inter = (29_873, 12_372) if golden.name == "golden" else (1679, 3582)
    assert compared["intra"] >= intra
    assert compared["inter"] >= inter


def check_val_stream(shared_data: Path, path: Path) -> None:
    """Check number and PSNR of the pictures of a stream, and that its CUs cover the picture once at its QP."""
    name, _, qp = path.stem.rpartition("_QP")
    with open_video(path) as video:
        assert len(video) == 1
        decoded = video[0]
        width, height = video.format.width, video.format.height
    assert (decoded.bit_depth, width % 2, height % 2) == (10, 0, 0)
    original = read_still(shared_data / "images" / "val" / f"{name}.png").y[:height, :width]
    mse = np.mean((original.astype(float) - decoded.y) ** 2)
    assert 10 * math.log10(1020**2 / mse) > {22: 38, 27: 34, 32: 31, 37: 28}[int(qp)], path.name
    table = read_blocks(path.with_suffix(".cu.csv.gz"))
    cover = np.zeros((height + 8, width + 8), int)
    for x, y, w, h in as_rows(table, ("x", "y", "w", "h")):
        cover[y : y + h, x : x + w] += 1
    assert (cover[:height, :width] == 1).all(), path.name
    assert set(table.qp.tolist()) == {int(qp)}, path.name
    assert (table.depth == table.qt_depth + table.mt_depth).all(), path.name
    rows = vtm_rows(path.with_suffix(".cu.csv.gz"))
    wanted = paint([tuple(row[k] for k in ("x", "y", "w", "h", "depth")) for row in rows], width, height)
    np.testing.assert_array_equal(rasterise(table, 0, "depth", width, height), wanted)


def val_streams(shared_data: Path) -> list[Path]:
    folder = shared_data / "golden" / "val_vvc"
    names = sorted({path.stem.rpartition("_QP")[0] for path in folder.glob("*.266")})
    assert len(names) == VAL_PICTURES
    return [folder / f"{name}_QP{qp}.266" for name in names for qp in VAL_QPS]


@pytest.mark.parametrize("which", [slice(3, None, 16), pytest.param(slice(None), marks=pytest.mark.slow)])
def test_coded_pictures_of_the_val_set(shared_data: Path, which: slice) -> None:
    for path in val_streams(shared_data)[which]:
        check_val_stream(shared_data, path)
