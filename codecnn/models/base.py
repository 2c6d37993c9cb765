"""What every filter network is: named planes in, the filtered plane or planes out."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from codecnn.codec.base import QP_SCALE
from codecnn.errors import ModelError

DECODED_PLANES = ("rec_y", "rec_u", "rec_v")
DIFFERENCE_PLANES = ("unf_y", "pred_y")
"""The picture before the codec's loop filters and the codec's prediction, which a network is given as what they differ
from `rec_y`: libvvenc's filters change 1 to 10 steps of 1024, and beside the texture of two pictures a training did not
find that (docs/learning.md)."""
SAMPLE_PLANES = (*DECODED_PLANES, *DIFFERENCE_PLANES)
"""Planes of samples x / 2^bit_depth."""
CHROMA_PLANES = ("rec_u", "rec_v")
"""Planes that come at the resolution of 4:2:0 chroma, half of luma's height and width, and so with half the halo."""
KNOWN_PLANES = (*SAMPLE_PLANES, "qp", "depth", "cu_qp", "pred_mode", "intra_mode", "partition")
"""Planes that a network may declare; all but chroma's have luma's size, and `qp` may be constant, (n, 1, 1, 1)."""

RESIDUAL_SCALE = 0.02
"""Factor on the last convolution's output; VVC leaves errors of 0.018 and 0.027 of full scale at QP 32 and 37."""

CENTRED_SCALE = 4.0
"""Factor on samples less one half, as the first convolution gets them."""
DIFFERENCE_SCALE = 64.0
"""Factor on a difference of samples, as the first convolution gets it."""

Filtered = Tensor | dict[str, Tensor]
"""What a network returns: the filtered luma, or for several outputs each of them by name."""


class FilterNetwork(nn.Module):
    """Base of the filter networks.

    planes   names of the input planes; all but those `beside` are channels of the first convolution, in this order
    outputs  the filtered components: ("y",), or ("y", "u", "v") with chroma at its own resolution
    halo     luma samples that the unpadded convolutions take away on each side (132 -> 128 is halo 2)
    radius   how far, in luma samples, an output sample looks into the input on each side; the context a tile needs
    stride   input height and width less twice the halo must be a multiple of it
    gain     where the QP is known, what the residual is multiplied by
    options  what the network was made with, as its weights' card holds it
    """

    options: dict[str, Any]

    def __init__(
        self,
        planes: Sequence[str],
        *,
        halo: int,
        radius: int,
        stride: int,
        outputs: Sequence[str] = ("y",),
        beside: Sequence[str] = (),
    ) -> None:
        super().__init__()
        unknown = [name for name in planes if name not in KNOWN_PLANES]
        if unknown:
            raise ModelError(f"unknown plane {unknown[0]!r}: known are {', '.join(KNOWN_PLANES)}")
        needed = ["rec_y", *(f"rec_{name}" for name in outputs if name != "y"), *beside]
        if len(set(planes)) != len(planes):
            raise ModelError(f"each plane may be named once; got {', '.join(planes)}")
        for name in needed:
            if name not in planes:
                raise ModelError(f"planes must name {name}; got {', '.join(planes) or 'none'}")
        self.planes = tuple(planes)
        self.outputs = tuple(outputs)
        self.channels = tuple(name for name in planes if name not in beside)
        self.halo = halo
        self.radius = radius
        self.stride = stride
        self.gain: QpGain | None = None
        if any(name in CHROMA_PLANES for name in planes):
            if halo % 2:
                raise ModelError(f"a halo of {halo} luma samples has no half: planes of 4:2:0 chroma need an even one")
            self.stride = math.lcm(stride, 2)
            # Upsampling looks one chroma sample further, of which the farther luma sample is two away.
            self.radius = radius + 2

    def check(self, planes: Mapping[str, Tensor]) -> None:
        """Raise ModelError that names a plane that is missing or does not fit `rec_y` (n, 1, h, w)."""
        for name in self.planes:
            if name not in planes:
                raise ModelError(f"the network needs the plane {name!r}, which is missing")
        shape = planes["rec_y"].shape
        if len(shape) != 4 or any((size - 2 * self.halo) % self.stride or size <= 2 * self.halo for size in shape[2:]):
            raise ModelError(
                f"rec_y of shape {tuple(shape)} does not fit: (n, 1, h, w) with h and w less {2 * self.halo} "
                f"a positive multiple of {self.stride}"
            )
        chroma = (shape[0], 1, shape[2] // 2, shape[3] // 2)
        for name in self.planes:
            fitting = chroma if name in CHROMA_PLANES else shape
            if planes[name].shape not in (fitting, (shape[0], 1, 1, 1)):
                raise ModelError(f"plane {name!r} has shape {tuple(planes[name].shape)}, rec_y {tuple(shape)}")

    def stack(self, planes: Mapping[str, Tensor]) -> Tensor:
        """The channels as one tensor (n, len(channels), h, w), centred and scaled to about [-2, 2].

        Chroma is upsampled to luma's size. Raises ModelError as `check` does.
        """
        self.check(planes)
        shape = planes["rec_y"].shape
        return torch.cat([self.entering(planes, name).expand(shape) for name in self.channels], dim=1)

    def entering(self, planes: Mapping[str, Tensor], name: str) -> Tensor:
        """A plane (n, 1, h, w) as the first convolution gets it, chroma upsampled; a constant one is (n, 1, 1, 1)."""
        if name in DIFFERENCE_PLANES:
            return (planes[name] - planes["rec_y"]) * DIFFERENCE_SCALE
        return centred(upsample_chroma(planes[name]) if name in CHROMA_PLANES else planes[name])

    def crop(self, plane: Tensor) -> Tensor:
        """`plane` (n, 1, h, w) without the halo: (n, 1, h - 2·halo, w - 2·halo); a constant plane stays as it is."""
        if self.halo == 0 or plane.shape[2:] == (1, 1):
            return plane
        return plane[:, :, self.halo : -self.halo, self.halo : -self.halo]

    def repaired(self, planes: Mapping[str, Tensor], residual: Tensor) -> Tensor:
        """Cropped `rec_y` and the last convolution's output (n, 1, h, w), scaled and multiplied by the QP's gain.

        In the samples' own type: bfloat16, in which autocast may have computed the residual, has 8 bits.
        """
        residual = residual.to(planes["rec_y"].dtype) * RESIDUAL_SCALE
        if self.gain is not None:
            residual = residual * self.gain(self.crop(planes["qp"]))
        return self.crop(planes["rec_y"]) + residual


def centred(samples: Tensor) -> Tensor:
    """Samples of [0, 1] in [-2, 2], the scale of the first convolution's input."""
    return (samples - 0.5) * CENTRED_SCALE


def named_outputs(filtered: Filtered) -> dict[str, Tensor]:
    """What a network returned, by component; luma alone is {"y": ...}."""
    return {"y": filtered} if isinstance(filtered, Tensor) else filtered


def upsample_chroma(plane: Tensor) -> Tensor:
    """4:2:0 chroma (n, 1, h, w) at luma's size (n, 1, 2h, 2w), bilinear, beyond the edge the nearest sample.

    The phase is that of chroma sample location type 0 (H.266 and H.265 Annex E, VUI), the default of both standards:
    horizontally on every other luma sample, vertically half-way between two luma rows.
    """
    right = torch.cat([plane[..., 1:], plane[..., -1:]], dim=3)
    wide = torch.stack([plane, (plane + right) / 2], dim=4).flatten(3)
    above = torch.cat([wide[:, :, :1], wide[:, :, :-1]], dim=2)
    below = torch.cat([wide[:, :, 1:], wide[:, :, -1:]], dim=2)
    return torch.stack([0.75 * wide + 0.25 * above, 0.75 * wide + 0.25 * below], dim=3).flatten(2, 3)


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
