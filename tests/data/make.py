"""Make this folder's files from the larger golden set: `python tests/data/make.py all --golden ../shared/data/golden`.

`streams` copies streams and tables, `intra` cuts the vectors, `list` writes SHA256SUMS; `all` does the three.
`loop --library libvvenc.so` codes the stream with a filter in the loop, which needs no larger set.
README.md says what the files are and who made the larger set.
"""

import argparse
import gzip
import hashlib
import io
import lzma
import shutil
import tempfile
import zipfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
VVC = [
    "astronaut_ai_ibd8_qp37",
    "camera_ai_400_qp37",
    "chelsea178x130_ai_qp32",
    "chelsea178x130_ai_qp32_ctu32",
    "chelsea178x130_ai_qp32_ctu64",
    "chelsea178x130_ai_qp32_mtt3",
    "chelsea178x130_ai_qp32_nomtt",
    "chelsea178x130_ai_qp32_singletree",
    "chelsea450x300_ai_qp32",
    "clip416x240_ra_qp37",
    "edo0_all_qp37",
    "edo0_nolf_qp37",
    "tiny136x72_ai_qp32",
    "tiny64x64_ai_qp32",
    "tiny64x64_ai_singletree_qp27",
    "tinyclip128x64_ld_qp37",
    "tinyclip128x64_ra_qp37",
]
TRACES = [
    "chelsea178x130_ai_qp32",
    "chelsea178x130_ai_qp32.coded",
    "tiny136x72_ai_qp32",
    "tiny64x64_ai_qp32",
    "tiny64x64_ai_singletree_qp27",
    "tinyclip128x64_ld_qp37",
    "tinyclip128x64_ra_qp37",
]
HEVC = [
    "camera400_ai_qp37",
    "chelsea178x130_ai_qp32_ctu32",
    "chelsea178x130_ai_qp32_mincu16",
    "clip_rab_amp_qp32",
]
MAX_AREA = 256
"""Largest number of samples of a block of costs and transforms."""
INTRA_SIZES = ("4x4", "8x4", "4x8", "8x8", "16x4", "4x16", "16x8", "4x32", "16x16")
"""Sizes of predicted blocks, whose 67 modes take most space; those of HEVC are square up to 32x32."""
PICKED = {"intra_vvc_8bit": (0, 5, 6), "intra_vvc_10bit_small": (0, 2, 3), "intra_hevc_8bit": (0, 6)}
PICKED |= {"intra_hevc_10bit": (0, 6), "modecost_vvc_8bit": (0, 5, 6), "modecost_vvc_10bit": (6,)}
PICKED |= {f"dct_vvc_{depth}bit": (0,) for depth in (8, 10)} | {f"cost_vvc_{depth}bit": (0, 1, 4) for depth in (8, 10)}
"""Indices of the blocks of a size that are kept: of the predictions natural, extreme and ramp ones."""


def streams(golden: Path) -> None:
    """Streams with recipe, log, MD5 and CU table; traces and analysis files packed by xz."""
    for codec, names, suffixes in (
        ("vvc", VVC, (".266", ".cu.csv.gz", ".enclog.gz", ".json", ".md5")),
        ("hevc", HEVC, (".265", ".cu.csv.gz", ".md5")),
    ):
        (HERE / codec).mkdir(exist_ok=True)
        for name in names:
            for suffix in suffixes:
                shutil.copyfile(golden / codec / f"{name}{suffix}", HERE / codec / f"{name}{suffix}")
    for name in TRACES:
        content = gzip.decompress((golden / "vvc" / f"{name}.vtmbmsstats.gz").read_bytes())
        write_packed(HERE / "vvc" / f"{name}.vtmbmsstats.xz", content)
    for name in HEVC:
        write_packed(HERE / "hevc" / f"{name}.dat.xz", (golden / "hevc" / f"{name}.dat").read_bytes())


def write_packed(path: Path, content: bytes) -> None:
    path.write_bytes(lzma.compress(content, preset=9 | lzma.PRESET_EXTREME))


def write_npz(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """As np.savez does, without the time, and packed as a whole: many small arrays pack badly one by one."""
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w") as file:
                np.lib.format.write_array(file, array)
    write_packed(path, whole.getvalue())


def compact(array: np.ndarray) -> np.ndarray:
    """In the smallest type that holds every value."""
    kinds = (np.uint8, np.int16, np.uint16, np.int32, np.int64)
    fits = (kind for kind in kinds if np.iinfo(kind).min <= array.min() and array.max() <= np.iinfo(kind).max)
    return array.astype(next(fits))


def wanted(name: str, size: str) -> bool:
    if name.startswith(("intra_vvc", "modecost")):
        return size in INTRA_SIZES
    width, height = map(int, size.split("x"))
    return width * height <= MAX_AREA or name == "intra_hevc_8bit"


def intra(golden: Path) -> None:
    """Some blocks of each small size, with all modes and transforms; the transform matrices whole."""
    (HERE / "intra").mkdir(exist_ok=True)
    for name, picked in PICKED.items():
        with np.load(golden / "intra" / f"{name}.npz") as file:
            arrays = {key: file[key] for key in file.files}
        cut = {
            key: compact(array if key.endswith("_info") else array[list(picked)])
            for key, array in arrays.items()
            if wanted(name, key.split("_")[0])
        }
        if name == "intra_hevc_8bit":
            # Strong smoothing is of 32x32 alone, and of the ramp alone of its samples.
            cut |= {key: array[-1:] for key, array in cut.items() if key.startswith("32x32")}
        write_npz(HERE / "intra" / f"{name.removesuffix('_small')}.npz.xz", cut)
    with np.load(golden / "intra" / "dct_matrices_vvc.npz") as file:
        write_npz(HERE / "intra" / "dct_matrices_vvc.npz.xz", {key: compact(file[key]) for key in file.files})


def loop(library: Path) -> None:
    """Write the network and the stream of tests/helpers/loop_stream.py."""
    from codecnn.signalling.in_loop import load_library
    from tests.helpers.loop_stream import code_loop_stream, write_loop_network

    (HERE / "loop").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        weights = write_loop_network(Path(name))
        code_loop_stream(load_library(library), weights, Path(name))
        for file in (weights.name, weights.with_suffix(".json").name, "loop.266", "loop.md5"):
            shutil.copyfile(Path(name) / file, HERE / "loop" / file)


def write_list(golden: Path | None = None) -> None:
    files = sorted(path for folder in ("hevc", "intra", "loop", "vvc") for path in (HERE / folder).iterdir())
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(HERE)}\n" for path in files]
    (HERE / "SHA256SUMS").write_text("".join(lines))


if __name__ == "__main__":
    steps = {"streams": streams, "intra": intra, "list": write_list}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=[*steps, "all", "loop"])
    parser.add_argument("--golden", type=Path, default=HERE.parents[2] / "shared" / "data" / "golden")
    parser.add_argument("--library", type=Path, help="libvvenc as a shared library, for loop")
    options = parser.parse_args()
    if options.what == "loop":
        loop(options.library)
        write_list()
    for name, step in steps.items():
        if options.what in (name, "all"):
            step(options.golden)
