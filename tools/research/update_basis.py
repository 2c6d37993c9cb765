"""Measure what updates would save if a sequence sent coefficients of a basis that was trained on other sequences.

    python tools/research/update_basis.py stores/clips -m low_cost_yuv_17.vvc_video -o sums

The sums of `codecnn adapt` are collected for every stream of the store and kept in the folder of -o, so that a further
run takes seconds. A basis of a component is the solution of the generalised eigenvalue problem of its streams: the
directions in the space of the last layer's values that lower the relative squared error most, for all streams together.
Every sequence is coded with the basis of all other sequences. Savings are predicted by the same quadratic function as
those of the updates of `codecnn adapt`, which stand beside them, in percent of the rate at equal PSNR (YUV 6:1:1). An
update that does not pay is left out.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy.linalg

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from codecnn.base.files import sha256_file
from codecnn.cli.console import progress
from codecnn.dataset import Unit, open_store
from codecnn.filtering import auxiliary_planes, load_filter, stream_qps, stream_slice_types
from codecnn.models import weights_path
from codecnn.signalling.updates import (
    WEIGHTS,
    Collector,
    FitSums,
    LastLayer,
    bit_cost,
    choose_values,
    fit_update,
    last_layers,
    write_update,
)

Floats = npt.NDArray[np.float64]

MESSAGE_BITS = 260
"""Bits of the message of an update without its values."""

SIZES = (2, 4, 8, 16, 32)
STEPS = (0.005, 0.01, 0.02)
"""Steps of the coefficients; a step lowers or raises the squared error by about its square, relative."""

VALUE_BITS = 5.0
"""Bits of a coefficient of magnitude 1, with its share of the zeros; each larger magnitude costs a further bit."""

RIDGE = 1e-4
"""Share of the mean diagonal that is added to the products."""


def collect(unit: Unit, model: Path, path: Path) -> FitSums:
    """Return the sums of a stream, from the file if it has them."""
    filter_ = load_filter(model)
    layers = last_layers(filter_, model.name)
    key = f"{sha256_file(model)} {sha256_file(unit.path('bitstream'))}"
    if sums := FitSums.load(path, layers, key):
        return sums
    sums, stream = FitSums.empty(layers), unit.path("bitstream")
    collector = Collector(filter_, layers, sums)
    with unit.decoded() as decoded, unit.originals() as originals:
        qps, types = stream_qps(stream, len(decoded)), stream_slice_types(stream, len(decoded))
        beside = auxiliary_planes(filter_.planes, decoded.format, {}, None, slice_types=types)
        for number, qp in enumerate(qps):
            collector.add(decoded[number], originals[number], qp, beside(number))
    sums.save(path, key)
    return sums


def basis(sums: Sequence[FitSums], name: str, size: int) -> Floats:
    """Return the basis (n, size) of a component; a vector of length 1 changes the mean squared error by 1 of itself."""
    products = sum(each.products[name] / each.pictures for each in sums) / len(sums)
    errors = np.array([each.errors[name] / each.pictures for each in sums])
    products += RIDGE * np.trace(products) / len(products) * np.eye(len(products))
    _, vectors = scipy.linalg.eigh(errors.T @ errors, products)
    best: Floats = vectors[:, ::-1][:, :size]
    return best


def saved(stream_bits: int, change: dict[str, float], bits: float) -> float:
    """Return the saved rate in percent, with all bits; 0 if the update does not pay."""
    value = -sum(WEIGHTS[name] * change[name] for name in change) / bit_cost("yuv", stream_bits) - bits
    return max(100 * value / stream_bits, 0.0)


def by_basis(sums: FitSums, bases: dict[str, Floats], stream_bits: int) -> float:
    """Return the saved rate in percent if the coefficients of the bases are sent."""
    price, best = bit_cost("yuv", stream_bits), 0.0
    for step in STEPS:
        change, bits = {}, float(MESSAGE_BITS)
        for name, vectors in bases.items():
            products = vectors.T @ sums.products[name] @ vectors * (step**2 / sums.pictures)
            errors = vectors.T @ sums.errors[name] * (step / sums.pictures)
            values = choose_values(products * WEIGHTS[name], errors * WEIGHTS[name], price, VALUE_BITS)
            change[name] = float(values @ products @ values - 2 * values @ errors)
            bits += float(np.where(values == 0, 0.5, VALUE_BITS - 1 + np.abs(values)).sum()) if values.any() else 1
        best = max(best, saved(stream_bits, change, bits))
    return best


def by_update(sums: FitSums, layers: list[LastLayer], stream_bits: int) -> float:
    """Return the saved rate in percent of the update of `codecnn adapt`."""
    fit = fit_update(sums, layers, "00", bit_cost("yuv", stream_bits))
    if fit.update is None:
        return 0.0
    return saved(stream_bits, fit.change, 8 * len(write_update(fit.update, "00")) + MESSAGE_BITS)


def main() -> None:
    """Print the savings of each sequence, mean over its streams, and the mean of the sequences."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("-m", "--model", required=True, help="name of weights with an integer form")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder of the sums")
    arguments = parser.parse_args()
    model = weights_path(f"{arguments.model}.int8")
    layers = last_layers(load_filter(model), model.name)
    arguments.output.mkdir(parents=True, exist_ok=True)
    units = [unit for unit in open_store(arguments.store).units if unit.bits is not None]
    collected: list[FitSums] = []
    with progress("collecting", "stream") as report:
        for number, unit in enumerate(units):
            collected.append(collect(unit, model, arguments.output / f"{unit.name}_{unit.qp}.npz"))
            report(number + 1, len(units))
    print("sequence: update of codecnn adapt; basis of " + ", ".join(map(str, SIZES)))
    rows = []
    for name in dict.fromkeys(unit.name for unit in units):
        others = [sums for sums, unit in zip(collected, units, strict=True) if unit.name != name]
        bases = {layer.output: basis(others, layer.output, max(SIZES)) for layer in layers}
        cells = []
        for sums, unit in zip(collected, units, strict=True):
            if unit.name == name:
                sized = [{key: vectors[:, :size] for key, vectors in bases.items()} for size in SIZES]
                by_size = [by_basis(sums, each, unit.bits or 0) for each in sized]
                cells.append([by_update(sums, layers, unit.bits or 0), *by_size])
        rows.append(np.mean(cells, axis=0))
        print(f"{name}: " + ", ".join(f"{value:.3f} %" for value in rows[-1]))
    print("mean: " + ", ".join(f"{value:.3f} %" for value in np.mean(rows, axis=0)))


if __name__ == "__main__":
    main()
