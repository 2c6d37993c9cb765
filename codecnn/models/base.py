"""What every filter network is: named planes in, the filtered plane out."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from codecnn.codec.base import QP_SCALE
from codecnn.errors import ModelError

KNOWN_PLANES = ("rec_y", "qp")
"""Planes that the loader and the picture filter can supply; `qp` may be constant, of shape (n, 1, 1, 1)."""


class FilterNetwork(nn.Module):
    """Base of the filter networks.

    planes   names of the input planes, in the order of the first convolution's channels; `rec_y` is among them
    halo     input samples that the unpadded convolutions take away on each side (132 -> 128 is halo 2)
    radius   how far, in samples, an output sample looks into the input on each side; the context a tile needs
    stride   input height and width less twice the halo must be a multiple of it
    """

    def __init__(self, planes: Sequence[str], *, halo: int, radius: int, stride: int) -> None:
        super().__init__()
        unknown = [name for name in planes if name not in KNOWN_PLANES]
        if unknown:
            raise ModelError(f"unknown plane {unknown[0]!r}: known are {', '.join(KNOWN_PLANES)}")
        if "rec_y" not in planes or len(set(planes)) != len(planes):
            raise ModelError(f"planes must name rec_y, and each plane once; got {', '.join(planes) or 'none'}")
        self.planes = tuple(planes)
        self.halo = halo
        self.radius = radius
        self.stride = stride

    def stack(self, planes: Mapping[str, Tensor]) -> Tensor:
        """The declared planes as one tensor (n, len(planes), h, w), centred and scaled to about [-2, 2].

        Raises ModelError that names a plane that is missing or has another shape than `rec_y` (n, 1, h, w).
        """
        for name in self.planes:
            if name not in planes:
                raise ModelError(f"the network needs the plane {name!r}, which is missing")
        shape = planes["rec_y"].shape
        if len(shape) != 4 or any((size - 2 * self.halo) % self.stride or size <= 2 * self.halo for size in shape[2:]):
            raise ModelError(
                f"rec_y of shape {tuple(shape)} does not fit: (n, 1, h, w) with h and w less {2 * self.halo} "
                f"a positive multiple of {self.stride}"
            )
        for name in self.planes:
            if planes[name].shape not in (shape, (shape[0], 1, 1, 1)):
                raise ModelError(f"plane {name!r} has shape {tuple(planes[name].shape)}, rec_y {tuple(shape)}")
        stacked = torch.cat([planes[name].expand(shape) for name in self.planes], dim=1)
        return (stacked - 0.5) * 4.0

    def crop(self, plane: Tensor) -> Tensor:
        """`plane` (n, 1, h, w) without the halo: (n, 1, h - 2·halo, w - 2·halo); a constant plane stays as it is."""
        if self.halo == 0 or plane.shape[2:] == (1, 1):
            return plane
        return plane[:, :, self.halo : -self.halo, self.halo : -self.halo]


class QpGain(nn.Module):
    """A learned positive factor by QP for the residual, linear in its logarithm between knots at QP 0, 4, ... 64.

    It starts at 2^((QP - 37) / 9), about as the error that VVC leaves grows with QP (on the demo's pictures it doubles
    every 8.3): a network's output is then in units of that error, meant to keep the optimiser's steps at QP 42 from
    drowning what there is to gain at QP 22. It costs one multiplication a sample and is pointwise, so it does not
    widen the receptive field.
    """

    SPACING = 4

    def __init__(self) -> None:
        super().__init__()
        knots = torch.arange(int(QP_SCALE) // self.SPACING + 1) * self.SPACING
        self.log_gain = nn.Parameter((knots - 37) / 9 * math.log(2))

    def forward(self, qp: Tensor) -> Tensor:
        """Factor for a QP plane in units of q / 64, any shape."""
        last = self.log_gain.numel() - 1
        position = (qp * (QP_SCALE / self.SPACING)).clamp(0, last)
        below = position.detach().floor().clamp(max=last - 1)
        weight = position - below
        index = below.long()
        return torch.exp(self.log_gain[index] * (1 - weight) + self.log_gain[index + 1] * weight)
