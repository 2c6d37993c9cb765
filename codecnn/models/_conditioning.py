"""Telling a network the QP: as a plane among the channels, as factors on the features, as a gain on the residual."""

import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from codecnn.errors import ModelError
from codecnn.models._blocks import Block
from codecnn.models.graph._draft import Draft
from codecnn.models.graph.nodes import QPS, Array
from codecnn.planes import QP_SCALE

CONDITIONING = ("plane", "film", "se")


class QpModulation(Block):
    """Factors, and for FiLM offsets, on features by the slice QP; it starts as the identity.

    "film"   x·(1 + a(QP)) + b(QP)    (Perez et al., "FiLM", AAAI 2018)
    "se"     x·2σ(a(QP))              the excitation of squeeze-and-excitation (Hu et al., CVPR 2018)

    A squeeze by global pooling would make every sample depend on the whole picture, and then a picture cut into tiles
    is another picture: here what is squeezed is the QP alone. The cost is that of two small matrices a picture.
    """

    HIDDEN = 16

    def __init__(self, features: int, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.hidden = nn.Linear(1, self.HIDDEN)
        self.out = nn.Linear(self.HIDDEN, 2 * features if kind == "film" else features)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, x: Tensor, qp: Tensor) -> Tensor:
        """(n, features, h, w) for a QP of shape (n, 1, 1, 1) in units of q / 64; ModelError for a QP that varies."""
        scale, offset = self.factors(qp)
        return x * scale if offset is None else x * scale + offset

    def in_place(self, x: Tensor, *others: Tensor) -> Tensor:
        scale, offset = self.factors(*others)
        return x.mul_(scale) if offset is None else torch.addcmul(offset, x, scale, out=x)

    def draw(self, draft: Draft, name: str, x: str) -> str:
        # The factors depend on the QP alone: a table of 64 rows replaces the two matrices.
        unit = torch.ones(1, self.out.out_features // (2 if self.kind == "film" else 1), 1, 1).double()
        factors, offsets = [], []
        for qp in range(QPS):
            position = torch.full((1, 1, 1, 1), qp / QP_SCALE, dtype=torch.float64)
            zero = self(torch.zeros_like(unit), position)
            offsets.append(zero.flatten().numpy())
            factors.append((self(unit, position) - zero).flatten().numpy())
        return draft.add(name, "modulate", x, tensors={"factor": np.stack(factors), "offset": np.stack(offsets)})

    def factors(self, qp: Tensor) -> tuple[Tensor, Tensor | None]:
        """Factors and, for FiLM, offsets of the features, (n, features, 1, 1); raises as `forward` does."""
        if qp.shape[1:] != (1, 1, 1):
            raise ModelError(
                f"conditioning {self.kind!r} takes one QP a picture, (n, 1, 1, 1), not a plane {tuple(qp.shape)}"
            )
        # From QP 0 to 63 the input runs from -2 to 2, as a plane's does.
        out: Tensor = self.out(F.relu(self.hidden((qp.flatten(1) - 0.5) * 4.0)))[:, :, None, None]
        if self.kind == "se":
            return 2 * torch.sigmoid(out), None
        scale, offset = out.chunk(2, dim=1)
        return 1 + scale, offset


class QpGain(nn.Module):
    """A learned positive factor by QP for the residual, linear in its logarithm between knots at QP 0, 4, ... 64.

    It starts at 2^((QP - unity) / doubling), for luma about as the error that VVC leaves grows with QP (on the demo's
    pictures it doubles every 8.3): a network's output is then in units of that error, meant to keep the optimiser's
    steps at QP 42 from drowning what there is to gain at QP 22. It costs one multiplication a sample and is pointwise,
    so it does not widen the receptive field.
    """

    SPACING = 4

    def __init__(self, unity: int = 37, doubling: int = 9) -> None:
        super().__init__()
        knots = torch.arange(int(QP_SCALE) // self.SPACING + 1) * self.SPACING
        self.log_gain = nn.Parameter((knots - unity) / doubling * math.log(2))

    def forward(self, qp: Tensor) -> Tensor:
        """Factor for a QP plane in units of q / 64, any shape."""
        last = self.log_gain.numel() - 1
        position = (qp * (QP_SCALE / self.SPACING)).clamp(0, last)
        below = position.detach().floor().clamp(max=last - 1)
        weight = position - below
        index = below.long()
        return torch.exp(self.log_gain[index] * (1 - weight) + self.log_gain[index + 1] * weight)

    def table(self) -> Array:
        """The factors at QP 0 to 63, (64,)."""
        return self(torch.arange(QPS, dtype=torch.float64) / QP_SCALE).numpy()  # type: ignore[no-any-return]
