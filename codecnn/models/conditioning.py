"""Telling a network the QP: as a plane among the channels, or as factors on the features of every block."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from codecnn.errors import ModelError

CONDITIONING = ("plane", "film", "se")


class QpModulation(nn.Module):
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
