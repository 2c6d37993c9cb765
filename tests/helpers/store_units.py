"""Stores in tests: units without coding, and all files of a store in one value."""

from pathlib import Path

from codecnn.dataset import Unit
from codecnn.runs import sha256_file


def make_unit(folder: Path, name: str, qp: int, *, pictures=((0, 0, 40.0),), **facts) -> Unit:
    """The unit `name` at `qp`; `pictures` are (POC, slice QP - qp, PSNR Y, slice type or I), `facts` more of its JSON.

    What a test does not say is as an encoder might have left it.
    """
    figures = {"bits": 1000, "psnr_y": 40.0, "psnr_u": None, "psnr_v": None}
    line = {"key": f"{name}{qp}", "sequence": name, "qp": qp, "encoder": "none", "argv": [], "bitstream": "none.266"}
    line |= {"split": "train", "group": name, "class": None, "files": {}, "sizes": {}, **figures}
    line["pictures"] = [
        figures | {"poc": poc, "slice_type": kind[0] if kind else "I", "qp": qp + offset, "psnr_y": psnr}
        for poc, offset, psnr, *kind in pictures
    ]
    return Unit.from_json(folder, line | facts, folder=folder)


def hashes(folder: Path) -> dict[str, str]:
    """Relative path -> sha256 of every file below a folder."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): sha256_file(path) for path in files}
