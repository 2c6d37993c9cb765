"""Pictures of two splits compared: sample by sample, and as small pictures that show near twins."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.ndimage import gaussian_filter

from codecnn.dataset import Unit
from codecnn.quality import block_sums

THRESHOLD = 0.5
"""Correlation from which two pictures are near twins. Of the 5,356 pairs of 104 unrelated natural pictures the most
alike have 0.38, and 1 % more than 0.22; the two views of a stereo pair have 0.82, a picture and its half-size twin at
least 0.99, a picture and itself less 3 and 5 % at two edges at least 0.58 in 95 of 100 cases (docs/check.md)."""
SIDE, SIGMA, SHIFT = 24, 2.0, 1
"""Size of the small pictures, the blur that is subtracted from them, and how far they are shifted to fit."""
PICTURES = 8
"""Pictures of a sequence that are looked at, spread over its length."""


@dataclass(frozen=True)
class Look:
    """A picture as it is compared: what to call it, the hash of its luma samples, its small version (SIDE, SIDE)."""

    name: str
    digest: str
    small: npt.NDArray[np.float64]


def split_pictures(units: Sequence[Unit]) -> list[Look]:
    """The originals of some units, each file once, up to PICTURES of each."""
    looks = []
    files: dict[Path, Unit] = {}
    for unit in units:
        files.setdefault(unit.original_path, unit)
    for unit in files.values():
        with unit.originals() as video:
            chosen = sorted(set(np.linspace(0, len(video) - 1, PICTURES).round().astype(int).tolist()))
            for index in chosen:
                luma = np.asarray(video[index].y)
                name = unit.name if len(video) == 1 else f"{unit.name}[{index}]"
                shape = f"{luma.shape}{luma.dtype}".encode()
                looks.append(Look(name, hashlib.sha256(shape + luma.tobytes()).hexdigest(), small_picture(luma)))
    return looks


def small_picture(luma: npt.NDArray[np.generic]) -> npt.NDArray[np.float64]:
    """The means of SIDE x SIDE cells of a picture (h, w), less their blurred selves: a sketch of its shapes.

    Without the blur subtracted, a bright sky above dark ground makes any two landscapes alike.
    """
    luma = luma.astype(np.float64)
    # A cell of a small picture may hold no sample of its own: repeating samples leaves all means as they are.
    luma = luma.repeat(-(-SIDE // luma.shape[0]), axis=0).repeat(-(-SIDE // luma.shape[1]), axis=1)
    rows, columns = (np.linspace(0, extent, SIDE + 1).astype(int) for extent in luma.shape)
    sums = block_sums(luma, rows[:-1], columns[:-1])
    means = sums / np.outer(np.diff(rows), np.diff(columns))
    sketch: npt.NDArray[np.float64] = means - gaussian_filter(means, SIGMA, mode="reflect")
    return sketch


def twins(ours: Sequence[Look], theirs: Sequence[Look]) -> list[tuple[int, int, float]]:
    """Index into `ours`, index into `theirs` and correlation of every pair that is as alike as THRESHOLD."""
    if not ours or not theirs:
        return []
    likeness = correlations(np.stack([look.small for look in ours]), np.stack([look.small for look in theirs]))
    pairs = np.argwhere(likeness >= THRESHOLD)
    return [(int(i), int(j), float(likeness[i, j])) for i, j in pairs]


def correlations(ours: npt.NDArray[np.float64], theirs: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Pearson's correlation (n, m) of small pictures (n, SIDE, SIDE) and (m, SIDE, SIDE), the best of all shifts.

    Pictures without any shape, all of one colour, are like none.
    """
    best = np.full((len(ours), len(theirs)), -1.0)
    for down in range(-SHIFT, SHIFT + 1):
        for across in range(-SHIFT, SHIFT + 1):
            a = _standardised(ours[:, _overlap(down), :][:, :, _overlap(across)])
            b = _standardised(theirs[:, _overlap(-down), :][:, :, _overlap(-across)])
            best = np.maximum(best, a @ b.T)
    return best


def _overlap(shift: int) -> slice:
    return slice(max(shift, 0), SIDE + min(shift, 0))


def _standardised(windows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    flat = windows.reshape(len(windows), -1)
    flat = flat - flat.mean(axis=1, keepdims=True)
    norm = np.linalg.norm(flat, axis=1, keepdims=True)
    standard: npt.NDArray[np.float64] = np.where(norm > 1e-6, flat / np.maximum(norm, 1e-6), 0)
    return standard
