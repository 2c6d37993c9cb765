"""Units that need no encoder, and hashes of all files of a store."""

from pathlib import Path

from codecnn.base.files import sha256_file
from codecnn.dataset import Unit


def make_unit(folder: Path, name: str, qp: int, *, pictures=((0, 0, 40.0),), **facts) -> Unit:
    """Return a unit with plausible values.

    Args:
        folder: Folder of the store.
        name: Name of the sequence.
        qp: QP of the unit.
        pictures: (POC, slice QP - qp, PSNR Y, slice type) of each picture; the slice type defaults to I.
        **facts: Further keys of the unit's JSON.
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
    """Return the sha256 of every file below a folder, by relative path."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): sha256_file(path) for path in files}
