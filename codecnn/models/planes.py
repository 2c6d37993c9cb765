"""Groups of input planes, and the scales in which samples enter and leave a network."""

from collections.abc import Sequence

import torch
from torch import Tensor

from codecnn.base.errors import ModelError
from codecnn.base.keywords import nearest
from codecnn.base.planes import CELL_PLANES, QP_PLANE, SLICE_TYPE_PLANE
from codecnn.base.planes import SAMPLE_PLANES as SOURCES

SAMPLE_PLANES = tuple(SOURCES)
"""Planes of samples, x / 2^bit_depth."""

DECODED_PLANES = tuple(name for name, source in SOURCES.items() if not source.beside)
"""Planes of the decoded picture."""

DIFFERENCE_PLANES = tuple(name for name, source in SOURCES.items() if source.beside and not source.signed)
"""Planes of other pictures, such as the unfiltered picture and the prediction, which enter as difference to `rec_y`.

In-loop filters change samples by a few steps of 1024. Training does not learn such a small difference from two
full-range pictures (docs/research/learning.md).
"""

SIGNED_PLANES = tuple(name for name, source in SOURCES.items() if source.signed)
"""Planes of signed samples, such as the codec's residual; 1/2 stands for 0."""

CHROMA_PLANES = tuple(name for name, source in SOURCES.items() if source.component)
"""Planes at the resolution of 4:2:0 chroma: half the height, width and halo of luma."""

KNOWN_PLANES = (*SAMPLE_PLANES, QP_PLANE, SLICE_TYPE_PLANE, *CELL_PLANES)
"""Planes that a network may declare.

All but chroma planes have the size of luma. `qp` and `slice_type`, which have one value per picture, may have the
shape (n, 1, 1, 1) instead.
"""

PLANE_SETS: dict[str, tuple[str, ...]] = {
    "unfiltered": ("unf_y",),
    "decoder": (SLICE_TYPE_PLANE, "unf_y", "pred_y", "bs_v", "bs_h"),
    "neighbours": ("prev_mc_y", "next_mc_y"),
    "neighbours2": ("prev_mc_y", "next_mc_y", "prev2_mc_y", "next2_mc_y"),
}
"""Names of sets of planes, for the option `planes` of a network.

`unfiltered` is the reconstruction before the in-loop filters, `decoder` what a VVC decoder has beside the decoded
picture, `neighbours` the motion-compensated pictures before and after in output order, `neighbours2` two of each.
"""

RESIDUAL_SCALE = 0.02
"""Factor on the output of the last convolution, about the RMS coding error of VVC at QP 32 to 37 in full scale.

Adam moves a weight by about the learning rate, however small its gradient is. Without the factor, one step of all
weights of the last convolution could change the output by more than the whole coding error.
"""

CENTRED_SCALE = 4.0
"""Factor on samples minus 1/2 at the input of the first convolution."""

DIFFERENCE_SCALE = 64.0
"""Factor on differences of samples at the input of the first convolution."""


def named_planes(names: str | Sequence[str], default: Sequence[str]) -> tuple[str, ...]:
    """Return the planes that the option `planes` of a network names.

        named_planes("decoder+neighbours", ("rec_y", "qp"))
        # rec_y, qp, slice_type, unf_y, pred_y, bs_v, bs_h, prev_mc_y, next_mc_y

    Args:
        names: Names of planes or of `PLANE_SETS`, as a sequence or joined by "+". If `rec_y` is among them, they are
            all planes of the network; otherwise they are added to its default planes.
        default: Planes of the network without the option.

    Returns:
        Names of planes, each once.

    Raises:
        ModelError: A name is unknown or occurs twice.
    """
    listed = [name.strip() for name in names.split("+")] if isinstance(names, str) else list(names)
    known = (*KNOWN_PLANES, *PLANE_SETS)
    for name in listed:
        if name not in known:
            raise ModelError(f"unknown plane {name!r}: {nearest(str(name), known)}")
    if len(set(listed)) != len(listed):
        raise ModelError(f"each plane may be named once; got {', '.join(listed)}")
    planes = [plane for name in listed for plane in PLANE_SETS.get(name, (name,))]
    return tuple(dict.fromkeys(planes if "rec_y" in listed else [*default, *planes]))


def centred(samples: Tensor) -> Tensor:
    """Map samples of [0, 1] to [-2, 2], the range of the first convolution's input."""
    return (samples - 0.5) * CENTRED_SCALE


def upsample_chroma(plane: Tensor) -> Tensor:
    """Upsample 4:2:0 chroma to the size of luma by bilinear interpolation, with edge samples repeated.

    The phase is that of chroma sample location type 0 (H.266 and H.265 Annex E, VUI), the default of both standards:
    chroma samples coincide horizontally with every other luma sample and lie vertically half-way between two luma rows.

    Args:
        plane: Chroma samples, shape (n, 1, h, w).

    Returns:
        Samples of shape (n, 1, 2h, 2w).
    """
    right = torch.cat([plane[..., 1:], plane[..., -1:]], dim=3)
    wide = torch.stack([plane, (plane + right) / 2], dim=4).flatten(3)
    above = torch.cat([wide[:, :, :1], wide[:, :, :-1]], dim=2)
    below = torch.cat([wide[:, :, 1:], wide[:, :, -1:]], dim=2)
    return torch.stack([0.75 * wide + 0.25 * above, 0.75 * wide + 0.25 * below], dim=3).flatten(2, 3)
