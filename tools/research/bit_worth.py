"""Measure by how much the squared error of sequences falls for a bit more, and how near two estimates of it come.

    python tools/research/bit_worth.py stores/video_ra stores/video_more_ra

Measured is, between neighbouring QPs of a sequence, the change of the mean logarithm of its pictures' squared errors of
luma divided by the change of its bits. The estimates are λ / SSE, with the mean of λ over the slice QPs, and 1 / bits.
Printed are the geometric mean of measured / estimate, and the factor that is one standard deviation of its logarithm.
"""

import argparse
import sys
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from codecnn.dataset import Unit, open_store
from codecnn.filtering.decisions import rd_lambda
from codecnn.pictures.metrics import peak_value


def facts(unit: Unit) -> tuple[float, float, int]:
    """Return the mean logarithm of the squared error per sample of luma, λ / SSE, and the bits of a unit."""
    # PSNRs are limited to 80 dB: some pictures of generated video have no error.
    psnrs = np.minimum(np.array([picture.psnr_y for picture in unit.pictures], float), 80.0)
    errors = peak_value(unit.format.bit_depth) ** 2 / 10 ** (psnrs / 10)
    lambdas = [rd_lambda(picture.qp, unit.format.bit_depth) for picture in unit.pictures]
    assert unit.bits is not None
    sse = errors.sum() * unit.format.width * unit.format.height
    return float(np.log(errors).mean()), float(np.mean(lambdas) / sse), unit.bits


def main() -> None:
    """Print one row for all sequences and one for those of at least ten pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stores", nargs="+", type=Path)
    arguments = parser.parse_args()
    sequences: dict[tuple[Path, str], list[Unit]] = defaultdict(list)
    for folder in arguments.stores:
        for unit in open_store(folder).units:
            sequences[folder, unit.name].append(unit)
    for least in (1, 10):
        chosen = [units for units in sequences.values() if len(units[0].pictures) >= least]
        ratios = []
        for units in chosen:
            ordered = [facts(unit) for unit in sorted(units, key=lambda unit: unit.qp)]
            for (fine, fine_slope, fine_bits), (coarse, coarse_slope, coarse_bits) in pairwise(ordered):
                by_lambda = (coarse - fine) / (fine_bits - coarse_bits) / np.sqrt(fine_slope * coarse_slope)
                ratios.append((by_lambda, (coarse - fine) / np.log(fine_bits / coarse_bits)))
        means, spreads = (np.exp(f(np.log(ratios), axis=0)) for f in (np.mean, np.std))
        print(
            f"{len(chosen)} sequences of at least {least} pictures: "
            f"λ / SSE {means[0]:.2f}, spread {spreads[0]:.2f}; 1 / bits {means[1]:.2f}, spread {spreads[1]:.2f}"
        )


if __name__ == "__main__":
    main()
