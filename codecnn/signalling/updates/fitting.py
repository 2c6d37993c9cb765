"""The update of the last layer that lowers the rate of a sequence at equal PSNR most.

The residual is linear in the last layer's weights, up to rounding and clipping. The squared error that an update leaves
in a picture is therefore a quadratic function of it. `FitSums` collects the coefficients in one pass over the pictures,
each relative to the squared error of its picture, because PSNR is averaged over pictures. The values of the update are
then chosen one after the other, each the one that lowers the cost most, until the bits of a further value cost more
than it gains.

The cost is the mean logarithm of the squared error, which counts 6:1:1 for Y, U and V as in YUV-PSNR, plus the price of
the bits: a bit more in a stream of R bits lowers this logarithm by `ELASTICITY` / R.
"""

import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from codecnn.base.errors import ModelError
from codecnn.base.files import atomic_path
from codecnn.filtering import NetworkFilter
from codecnn.models.graph import same_padding
from codecnn.pictures.files import Picture
from codecnn.signalling.updates.last_layer import LastLayer, observed
from codecnn.signalling.updates.update import MAX_VALUE, Part, Update, write_update

Floats = npt.NDArray[np.float64]

WEIGHTS = {"y": 6.0, "u": 1.0, "v": 1.0}
"""Weights of the components."""

ELASTICITY = 1.3
"""Relative change of the squared error for a relative change of the rate, with the sign changed.

Geometric mean over 38 clips of datasets/video.yaml and video_more.yaml in random access and low delay, QP 22 to 42.
"""

SMALLEST_ERROR = 1 / 12
"""Squared error of a sample below which the error of a picture counts no less: that of rounding."""

_THINNING = 2
"""Every n-th row and column of the features enters the products of features; the others add nothing but time."""

_ROWS = 2**15
"""Positions whose features are gathered at a time."""

_SETTINGS = tuple((step, bits) for step in (8, 16, 32) for bits in (7.0, 9.0, 12.0))
"""Settings that are tried: steps from 0 to the largest weight, and estimated bits of a value that is not zero.

Six bits of an update are a character of eight bits in the message.
"""


@dataclass
class FitSums:
    """Sums over pictures that determine the relative squared error of every update.

    Each picture's sums are divided by its squared error without update.

    Attributes:
        products: Sum over positions of products of two columns for each output, shape (size, size). A column is the
            change of the output's residual by one unit of a value, in samples, summed over its channels.
        errors: Sum of products of a column and the remaining error for each output, shape (size,).
        pictures: Number of pictures.
    """

    products: dict[str, Floats]
    errors: dict[str, Floats]
    pictures: int = 0

    @classmethod
    def empty(cls, layers: Sequence[LastLayer]) -> "FitSums":
        """Create sums over no pictures."""
        return cls(
            {layer.output: np.zeros((layer.size, layer.size)) for layer in layers},
            {layer.output: np.zeros(layer.size) for layer in layers},
        )

    def save(self, path: Path | str, key: str) -> None:
        """Save the sums.

        Args:
            path: File to write, .npz.
            key: Hash of what decides the sums, which `load` compares.
        """
        arrays: dict[str, Any] = {"key": np.array(key), "pictures": np.array(self.pictures)}
        for name in self.errors:
            arrays |= {f"products_{name}": self.products[name], f"errors_{name}": self.errors[name]}
        with atomic_path(path) as part, part.open("wb") as file:
            np.savez(file, **arrays)

    @classmethod
    def load(cls, path: Path | str, layers: Sequence[LastLayer], key: str) -> "FitSums | None":
        """Load sums; None if there are none in the file for this key."""
        try:
            with np.load(path, allow_pickle=False) as arrays:
                if str(arrays["key"]) != key:
                    return None
                names = [layer.output for layer in layers]
                products = {name: np.array(arrays[f"products_{name}"]) for name in names}
                errors = {name: np.array(arrays[f"errors_{name}"]) for name in names}
                return cls(products, errors, int(arrays["pictures"]))
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return None

    @staticmethod
    def is_saved(path: Path | str) -> bool:
        """Return whether `save` wrote a file, with any key."""
        try:
            with np.load(path, allow_pickle=False) as arrays:
                return {"key", "pictures"} <= set(arrays.files)
        except (OSError, ValueError, AttributeError, EOFError, zipfile.BadZipFile):
            return False


def smallest_error(samples: int) -> float:
    """Return the squared error that a picture of so many samples has at least in the cost."""
    return samples * SMALLEST_ERROR


def bit_cost(names: Iterable[str], stream_bits: int) -> float:
    """Return the price of a bit in a stream of `stream_bits`, in the unit of the components' weighted logarithms."""
    return ELASTICITY * sum(WEIGHTS[name] for name in names) / stream_bits


class Collector:
    """Adds pictures to `FitSums`.

    Args:
        filter_: The filter, in integers or in float32.
        layers: Its last layers.
        sums: Sums to add to.
    """

    def __init__(self, filter_: NetworkFilter, layers: Sequence[LastLayer], sums: FitSums) -> None:
        self.sums = sums
        self._layers = layers
        self._features: dict[str, Tensor] = {}
        self._inputs = {layer.conv.inputs[0] for layer in layers}
        self._filter = observed(filter_, self._observe, "the network")

    def _observe(self, name: str, tensor: Tensor) -> None:
        if name in self._inputs:
            self._features[name] = tensor

    @torch.inference_mode()
    def add(self, decoded: Picture, original: Picture, qp: int, beside: Mapping[str, npt.NDArray[np.generic]]) -> None:
        """Add a picture.

        Args:
            decoded: The decoded picture.
            original: The original picture at the same bit depth.
            qp: Slice QP.
            beside: Auxiliary planes of the network.

        Raises:
            ModelError: The network does not compute the input of its last layer by itself.
        """
        samples = self._filter.samples(decoded, qp, beside)
        if missing := self._inputs - self._features.keys():
            raise ModelError(f"the network cannot be adapted: {min(missing)} is part of another tensor")
        trained_qp = self._filter.card.nearest_qp(qp)
        for layer in self._layers:
            name = layer.output
            target = original.planes["yuv".index(name)].astype(np.float32)
            error = torch.from_numpy(target - samples[name].astype(np.float32))
            sse = max(float(error.double().square().sum()), smallest_error(error.numel()))
            scale = layer.sample_scale(trained_qp, decoded.bit_depth)
            self._add_layer(layer, self._features[layer.conv.inputs[0]][0].float().cpu(), error, scale, 1 / sse)
        self.sums.pictures += 1
        self._features.clear()

    def _add_layer(self, layer: LastLayer, features: Tensor, error: Tensor, scale: float, factor: float) -> None:
        """Add the sums of one output of a picture.

        Args:
            layer: The last layer of the output.
            features: Its input, shape (channels, rows, columns).
            error: Remaining error of the picture, shape (height, width).
            scale: Converts the convolution's results to samples.
            factor: Factor of the picture's sums.
        """
        rows, columns = features.shape[1:]
        shuffle = layer.shuffle
        error = F.pad(error, (0, columns * shuffle - error.shape[1], 0, rows * shuffle - error.shape[0]))
        total = F.pixel_unshuffle(error[None], shuffle).sum(0) if shuffle > 1 else error
        kernel = tuple(layer.conv.tensors["weight"].shape[2:])
        above, left = same_padding(layer.conv.tensors["weight"])
        padded = F.pad(features, (left, left, above, above))
        channels = len(layer.conv.tensors["weight"])
        band = max(_ROWS // columns, 1)
        for start in range(0, rows, band):
            stop = min(start + band, rows)
            window = padded[:, start : stop + kernel[0] - 1]
            x = F.unfold(window[None], kernel)[0]
            x = torch.cat([x, torch.full((1, x.shape[1]), float(1 << layer.bias_bits))])
            self.sums.errors[layer.output] += (x @ total[start:stop].reshape(-1)).double().numpy() * (scale * factor)
            thin = x.reshape(len(x), stop - start, columns)[:, ::_THINNING, ::_THINNING].reshape(len(x), -1)
            share = x.shape[1] / max(thin.shape[1], 1)
            self.sums.products[layer.output] += (thin @ thin.T).double().numpy() * (
                share * channels * scale**2 * factor
            )


@dataclass(frozen=True)
class Fit:
    """The best update by the quadratic function.

    Attributes:
        update: The update; None if no value pays.
        change: Relative change of the squared error of each component that the quadratic function predicts, mean over
            the pictures.
    """

    update: Update | None
    change: dict[str, float]


def fit_update(sums: FitSums, layers: Sequence[LastLayer], weights_sha256: str, price: float) -> Fit:
    """Choose the values of an update.

    Args:
        sums: Sums over all pictures, of the components that the update may change.
        layers: The last layers of the network.
        weights_sha256: SHA-256 of its weights.
        price: Price of a bit, from `bit_cost`.
    """
    parts: list[Part | None] = []
    change = dict.fromkeys(sums.errors, 0.0)
    for layer in layers:
        part = None
        if layer.output in sums.errors:
            part, change[layer.output] = _best_part(sums, layer, weights_sha256, price)
        parts.append(part)
    return Fit(Update(tuple(parts)) if any(parts) else None, change)


def _best_part(sums: FitSums, layer: LastLayer, weights_sha256: str, price: float) -> tuple[Part | None, float]:
    """Return the best part of one output and the relative change of the squared error."""
    weight, name = WEIGHTS[layer.output], layer.output
    largest = np.abs(layer.real_weights).max()
    best: tuple[Part | None, float] = (None, 0.0)
    empty_bits = 8 * len(write_update(Update((None,)), weights_sha256))
    lowest = 0.0
    for steps, value_bits in _SETTINGS:
        fraction = max(min(round(-np.log2(largest / steps)), layer.finest), 0)
        step = 2.0**-fraction
        products, errors = sums.products[name] * (step**2 / sums.pictures), sums.errors[name] * (step / sums.pictures)
        values = choose_values(products * weight, errors * weight, price, value_bits)
        if not values.any():
            continue
        part = Part(fraction, tuple(int(value) for value in values))
        change = float(values @ products @ values - 2 * values @ errors)
        bits = 8 * len(write_update(Update((part,)), weights_sha256)) - empty_bits
        cost = price * bits + weight * change
        if cost < lowest:
            lowest, best = cost, (part, change)
    return best


def choose_values(products: Floats, errors: Floats, price: float, value_bits: float) -> npt.NDArray[np.int64]:
    """Choose integers that lower 'relative error plus price times bits', one after the other.

    Args:
        products: Quadratic part of the squared error.
        errors: Half of its linear part, with the sign changed.
        price: Price of a bit.
        value_bits: Bits of a value of magnitude 1; each larger magnitude costs a further bit.
    """
    values = np.zeros(len(errors))
    seen = np.diag(products) > 0  # a feature that is zero at all positions of the thinned grid has no quadratic part
    remaining = np.where(seen, errors, 0.0)
    curvature = np.where(seen, np.diag(products), 1.0)

    def bits(numbers: Floats) -> Floats:
        return np.where(numbers == 0, 0.0, value_bits - 1 + np.abs(numbers))

    for _ in range(4 * len(errors)):
        best = values + remaining / curvature
        candidates = np.clip([np.floor(best), np.ceil(best), np.zeros(len(best))], -MAX_VALUE, MAX_VALUE)
        change = candidates - values
        lower = change * (2 * remaining - change * curvature) - price * (bits(candidates) - bits(values))
        row, index = np.unravel_index(int(lower.argmax()), lower.shape)
        if lower[row, index] <= 1e-9 * price:
            break
        remaining -= np.where(seen, products[:, index], 0.0) * change[row, index]
        values[index] = candidates[row, index]
    return values.astype(np.int64)
