"""The golden data of this repository (tests/data), laid out in a folder as the larger set in ../shared/data/golden."""

import csv
import gzip
import hashlib
import lzma
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import skimage.data

DATA = Path(__file__).resolve().parents[1] / "data"
SHARED = Path(os.environ.get("CODECNN_TEST_DATA", DATA.parents[2] / "shared" / "data"))
"""The larger data: golden vectors and real pictures; CODECNN_TEST_DATA or ../shared/data beside the checkout."""
GoldenFile = Callable[[str], Path]
"""Path of a golden file by its name: the fixture `golden_file`."""


def listed(data: Path = DATA) -> dict[str, str]:
    """Name and SHA-256 of every file that tests/data must hold."""
    lines = (data / "SHA256SUMS").read_text().splitlines()
    return {name: digest for digest, name in (line.split() for line in lines)}


def verified(name: str, digest: str, data: Path = DATA) -> bytes:
    """A file's bytes; an AssertionError that names it where it is missing or another one than is listed."""
    path = data / name
    assert path.is_file(), f"tests/data/{name} is listed in SHA256SUMS and missing: restore it with git"
    content = path.read_bytes()
    assert hashlib.sha256(content).hexdigest() == digest, f"tests/data/{name} is not the file listed in SHA256SUMS"
    return content


def csv_rows(path: Path) -> list[dict[str, str]]:
    """The lines of a golden table, a dict each."""
    with gzip.open(path, "rt") as file:
        return list(csv.DictReader(file))


_OUR_NAMES = {"qtDepth": "qt_depth", "mtDepth": "mt_depth", "predMode": "pred_mode", "intraLumaMode": "intra_mode"}


def vtm_rows(path: Path) -> list[dict[str, int]]:
    """The CUs of a golden table that VTM made, under the names of `BlockTable` where that has them."""
    names = _OUR_NAMES | {"QP": "qp"}
    return [
        {names.get(name, name): "LC".index(text) if name == "channel" else int(text) for name, text in row.items()}
        for row in csv_rows(path)
    ]


def lay_out(folder: Path) -> Path:
    """Every file verified and unpacked, and the coded pictures, made from scikit-image's, in `folder`/sources."""
    for name, digest in listed().items():
        content = verified(name, digest)
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".xz":
            path, content = path.with_suffix(""), lzma.decompress(content)
        if path.suffix == ".vtmbmsstats":
            path, content = path.with_name(f"{path.name}.gz"), gzip.compress(content, mtime=0)
        path.write_bytes(content)
    (folder / "sources").mkdir()
    for name, content in sources().items():
        (folder / "sources" / f"{name}.yuv").write_bytes(content)
    return folder


def sources() -> dict[str, bytes]:
    """The raw pictures that the streams were coded from, byte for byte: `source_md5` of the recipes holds them."""
    astronaut, chelsea, coffee = skimage.data.astronaut(), skimage.data.chelsea(), skimage.data.coffee()
    camera = skimage.data.camera()
    clip = []
    for t in range(17):
        # The view pans over the cups while the astronaut's face crosses it.
        picture = coffee[30 + 3 * t : 270 + 3 * t, 20 + 5 * t : 436 + 5 * t].copy()
        picture[60 + 4 * t : 156 + 4 * t, 40 + 12 * t : 136 + 12 * t] = astronaut[:96, 170:266]
        clip.append(picture)
    tiny = [picture[40:104, 40:168] for picture in clip]
    return {
        "astronaut_512x512_8b420": bt709([astronaut]),
        "camera_512x512_8b420": camera.tobytes() + b"\x80" * (camera.size // 2),
        "chelsea_178x130_8b420": bt709([chelsea[60:190, 100:278]]),
        "chelsea_450x300_8b420": bt709([chelsea[:300, :450]]),
        "clip_416x240_17f_8b420": bt709(clip),
        "tiny_136x72_8b420": bt709([astronaut[60:132, 180:316]]),
        "tiny_64x64_8b420": bt709([astronaut[80:144, 200:264]]),
        "tinyclip_128x64_17f_8b420": bt709(tiny),
        "tinyclip_128x64_9f_8b420": bt709(tiny[:9]),
    }


def bt709(pictures: Iterable[np.ndarray]) -> bytes:
    """RGB pictures (h, w, 3) of even size as 8 bit 4:2:0 in limited range; chroma is the mean of four samples."""
    planes = []
    for picture in pictures:
        red, green, blue = np.moveaxis(picture.astype(float), -1, 0)
        luma = 0.2126 * red + 0.7152 * green + 0.0722 * blue
        planes.append(16 + luma * 219 / 255)
        for difference in ((blue - luma) / 1.8556, (red - luma) / 1.5748):
            means = difference.reshape(luma.shape[0] // 2, 2, luma.shape[1] // 2, 2).mean((1, 3))
            planes.append(128 + means * 224 / 255)
    return b"".join(np.round(plane).astype(np.uint8).tobytes() for plane in planes)
