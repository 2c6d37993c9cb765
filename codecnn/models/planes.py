"""The planes that networks take and give: their names, their sizes, and the scales in which they enter and leave."""

import torch
from torch import Tensor

from codecnn.planes import CELL_PLANES, QP_PLANE, SLICE_TYPE_PLANE
from codecnn.planes import SAMPLE_PLANES as SOURCES

SAMPLE_PLANES = tuple(SOURCES)
"""Planes of samples x / 2^bit_depth."""
DECODED_PLANES = tuple(name for name, source in SOURCES.items() if not source.beside)
DIFFERENCE_PLANES = tuple(name for name, source in SOURCES.items() if source.beside and not source.signed)
"""Pictures beside the decoded one, such as that before the codec's loop filters and the codec's prediction, which a
network is given as what they differ from `rec_y`: libvvenc's filters change 1 to 10 steps of 1024, and beside the
texture of two pictures a training did not find that (docs/learning/planes.md)."""
SIGNED_PLANES = tuple(name for name, source in SOURCES.items() if source.signed)
"""Differences of samples, such as the codec's residual, of which 1/2 stands for 0."""
CHROMA_PLANES = tuple(name for name, source in SOURCES.items() if source.component)
"""Planes that come at the resolution of 4:2:0 chroma, half of luma's height and width, and so with half the halo."""
KNOWN_PLANES = (*SAMPLE_PLANES, QP_PLANE, SLICE_TYPE_PLANE, *CELL_PLANES)
"""Planes that a network may declare; all but chroma's have luma's size, and those of one value a picture, `qp` and
`slice_type`, may be constant, (n, 1, 1, 1)."""

RESIDUAL_SCALE = 0.02
"""Factor on the last convolution's output; VVC leaves errors of 0.018 and 0.027 of full scale at QP 32 and 37.

Adam moves a weight by about the learning rate, however small its gradient is. Without the factor one step of all the
last convolution's weights could move the output by more than the whole error that is to be repaired.
"""

CENTRED_SCALE = 4.0
"""Factor on samples less one half, as the first convolution gets them."""
DIFFERENCE_SCALE = 64.0
"""Factor on a difference of samples, as the first convolution gets it."""


def centred(samples: Tensor) -> Tensor:
    """Samples of [0, 1] in [-2, 2], the scale of the first convolution's input."""
    return (samples - 0.5) * CENTRED_SCALE


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
