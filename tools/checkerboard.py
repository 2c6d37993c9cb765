"""How much of a checkerboard there is in what networks add to pictures: peaks of its spectrum at period 2.

    python tools/checkerboard.py runs/c/best.safetensors runs/transposed/best.safetensors --store stores/zoo --split val

A network that makes the four samples of a 2x2 cell by different weights (PixelShuffle, a transposed convolution) may
give the four phases different gains. Its residual is then multiplied by a pattern of period 2, which puts copies of its
low frequencies around (π, π), (0, π) and (π, 0). Odena et al., "Deconvolution and Checkerboard Artifacts", Distill
2016. The table has the power there over that of the frequencies around, 1 for no peak, and as a first row the same of
the codec's own error, which is what a perfect network would add.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from codecnn.dataset import Unit, open_store
from codecnn.errors import ConfigError
from codecnn.filtering import FloatFilter, unit_planes
from codecnn.models import FilterNetwork, load_model, pick_device

Array = NDArray[np.floating]

BLOCK = 32
"""Side of the blocks whose spectra are averaged: a frequency is 1/32 of a period a sample wide."""
NEAR, FAR = 3, 5
"""Distances, in frequencies, of what lies around a peak: beyond the Hann window's main lobe of 2, still close by."""


@dataclass(frozen=True)
class Checkerboard:
    """Power at a frequency over the mean power of those around it: 1 where nothing repeats with period 2.

    diagonal  at (π, π): signs that change with every row and with every column
    columns   at (0, π): signs that change with every column
    rows      at (π, 0): signs that change with every row
    """

    diagonal: float
    columns: float
    rows: float


def checkerboard(residuals: Iterable[Array]) -> Checkerboard:
    """The peaks in the mean spectrum of residuals (h, w), each of at least 32x32 samples and of the same total power.

    A residual of zeros has no spectrum and is left out. Raises ConfigError where none is left.
    """
    spectra = [spectrum / spectrum.mean() for spectrum in map(_spectrum, residuals) if spectrum.any()]
    if not spectra:
        raise ConfigError("there is no spectrum of residuals that are zero everywhere")
    mean, half = np.mean(spectra, axis=0), BLOCK // 2
    return Checkerboard(_peak(mean, half, half), _peak(mean, 0, half), _peak(mean, half, 0))


def residuals_of(model: FilterNetwork, units: Sequence[Unit], device: str | torch.device) -> Iterator[Array]:
    """What the network adds to the luma of each picture, in samples before they are rounded."""
    filter_ = FloatFilter(model, device=device)
    for unit in units:
        with unit.decoded() as decoded:
            for index, (coded, picture) in enumerate(zip(unit.pictures, decoded, strict=True)):
                beside = unit_planes(unit, index, model.planes)
                yield filter_.samples(picture, coded.qp, beside)["y"] - picture.y.astype(np.float64)


def errors_of(units: Sequence[Unit]) -> Iterator[Array]:
    """What the codec left to be added to the luma of each picture, in samples."""
    for unit in units:
        with unit.originals() as originals, unit.decoded() as decoded:
            for original, picture in zip(originals, decoded, strict=True):
                yield original.y.astype(np.float64) - picture.y


def _spectrum(residual: Array) -> Array:
    """Mean power (32, 32) of the Hann-windowed blocks, which overlap by half; frequency 0 at [0, 0] (Welch 1967)."""
    window = np.hanning(BLOCK + 1)[:-1]
    blocks = sliding_window_view(residual, (BLOCK, BLOCK))[:: BLOCK // 2, :: BLOCK // 2]
    power: Array = (np.abs(np.fft.fft2(blocks * np.outer(window, window))) ** 2).mean(axis=(0, 1))
    return power


def _peak(spectrum: Array, row: int, column: int) -> float:
    """Power at a frequency over the mean of those that are NEAR to FAR away, by the larger of the two differences."""
    steps = np.arange(-FAR, FAR + 1)
    around = np.roll(spectrum, (FAR - row, FAR - column), axis=(0, 1))[: 2 * FAR + 1, : 2 * FAR + 1]
    ring = np.maximum(abs(steps)[:, None], abs(steps)) >= NEAR
    return float(around[FAR, FAR] / around[ring].mean())


def main() -> None:
    """Print the table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", nargs="+", help="files, or names of the zoo")
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--split", default="test", help="of the store [test]")
    parser.add_argument("--device", default="auto")
    args = parser.parse_args()
    units, device = open_store(args.store).split(args.split), pick_device(args.device)
    print("| residual | (π, π) | (0, π) | (π, 0) |\n|---|---:|---:|---:|")
    print(_line("the codec's error", checkerboard(errors_of(units))))
    for name in args.weights:
        model, _ = load_model(name)
        print(_line(name, checkerboard(residuals_of(model, units, device))), flush=True)


def _line(name: str, peaks: Checkerboard) -> str:
    return f"| {name} | {peaks.diagonal:.2f} | {peaks.columns:.2f} | {peaks.rows:.2f} |"


if __name__ == "__main__":
    main()
