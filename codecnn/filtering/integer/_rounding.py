"""Whole weights that err least on what they multiply.

Each weight rounded to its nearest integer is the best that can be had where nothing is known of the inputs. Those of a
convolution are known: neighbouring samples, and features that resemble each other, so that the error of one weight can
be made up for by the next. With the inputs' second moments H the error's power is (w - q)' H (w - q), and the integers
q are looked for one after the other, each taking the error of those before along: Babai's nearest plane, known for
networks as OPTQ (Frantar et al., "OPTQ: Accurate Quantization for Generative Pre-trained Transformers", ICLR 2023).
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from codecnn.models.graph import Node, same_padding

_WINDOWS = 1024
"""Of so many windows of a picture's tensor the moments are taken, at even distances."""
_NOISE = 1 / 12
"""Power of what rounding to integers adds to an input."""
_LEAST = 1e-5
"""Of the inputs' mean power so much is added to each: their moments are sums in float32."""


@dataclass(frozen=True)
class Moments:
    """Of the windows (groups, k) that a convolution's weights (o, k) multiply: their number, sum and second moment."""

    count: int
    total: Tensor
    second: Tensor

    def __add__(self, other: "Moments") -> "Moments":
        return Moments(self.count + other.count, self.total + other.total, self.second + other.second)

    @property
    def mean(self) -> Tensor:
        """(groups, k)"""
        return self.total / self.count

    @property
    def covariance(self) -> Tensor:
        """(groups, k, k)"""
        mean = self.mean
        return self.second / self.count - mean[:, :, None] * mean[:, None, :]


def moments(node: Node, x: Tensor) -> Moments:
    """The moments of what the weights of a convolution `node` multiply, of its first input `x` (1, c, h, w).

    They are on the CPU, as what is made of them, wherever `x` is.
    """
    weight, groups = node.tensors["weight"], node.values["groups"]
    kernel = weight.shape[2:]
    stride = max(int((x.shape[2] * x.shape[3] / _WINDOWS) ** 0.5), 1)
    padding = same_padding(weight) if node.values["pad"] else (0, 0)
    windows = F.unfold(x, kernel, padding=padding, stride=stride)[0]
    windows = windows.reshape(groups, weight.shape[1] * kernel[0] * kernel[1], -1)
    total, second = windows.sum(2), windows @ windows.transpose(1, 2)
    return Moments(windows.shape[2], total.cpu().double(), second.cpu().double())


def whole_weights(scaled: Tensor, of_inputs: Tensor, known: Moments, most: int) -> tuple[Tensor, Tensor]:
    """Integers (o, i, h, w) of magnitudes up to `most` for the real weights `scaled`, and what to add to biases (o,).

    `of_inputs` (o, i, 1, 1) are the scales of the inputs, in which `known` is not counted. The bias takes what the
    inputs' means make of the error, so that only their covariance is left to look at.
    """
    outputs, groups = len(scaled), len(known.total)
    by_group = scaled.reshape(groups, outputs // groups, -1)
    units = of_inputs.expand_as(scaled).reshape(groups, outputs // groups, -1)[:, 0]
    covariance = known.covariance * units[:, :, None] * units[:, None, :]
    whole = torch.stack([_nearest_plane(rows, matrix, most) for rows, matrix in zip(by_group, covariance, strict=True)])
    missing = ((by_group - whole) * (known.mean * units)[:, None]).sum(2)
    return whole.reshape(scaled.shape), missing.reshape(outputs)


def _nearest_plane(rows: Tensor, covariance: Tensor, most: int) -> Tensor:
    """Integers (n, k) for `rows`, those of the largest inputs first, so that the small ones take up what is left."""
    order = torch.argsort(covariance.diagonal())
    root = _root(covariance[order][:, order])
    wanted = rows[:, order]
    whole, error = torch.empty_like(wanted), torch.zeros_like(wanted)
    for index in reversed(range(len(order))):
        behind = error[:, index + 1 :] @ root[index, index + 1 :]
        whole[:, index] = (wanted[:, index] + behind / root[index, index]).round().clamp(-most, most)
        error[:, index] = wanted[:, index] - whole[:, index]
    return whole[:, torch.argsort(order)]


def _root(covariance: Tensor) -> Tensor:
    """The upper triangular R with R' R = `covariance`, to which rounding of the inputs adds and of sums takes away."""
    size = torch.eye(len(covariance), dtype=covariance.dtype, device=covariance.device)
    more = _NOISE + _LEAST * float(covariance.diagonal().mean())
    while True:
        root: Tensor
        root, failed = torch.linalg.cholesky_ex(covariance + more * size, upper=True)
        if not failed:
            return root
        more *= 10
