"""The mode classifier that sketches the search: some coefficients of what every mode would leave, then a small network.

Intra prediction is linear in the reference samples but for its rounding, and so is a transform. Some coefficients of
all modes' residuals are therefore one product of matrices: those of the block, less those of the references. A search
computes every coefficient of every mode; this network computes `coefficients` of each, by matrices that it learns.
"""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from codecnn.errors import ModelError
from codecnn.intra import MODE_COUNT, check_block, dct_matrix, predict_modes
from codecnn.models._blocks import check_counts
from codecnn.planes import QP_SCALE

FLAT = 2.0**-16
"""Mean excess, in units of full scale, below which all modes count as equally good."""
SHARPNESS = 5.0
"""Logits by which an untrained network sets the mean mode below the best."""
_LEVEL, _PULSE = 1 << 13, 1 << 12
"""Samples of 16 bit by which prediction is asked what it makes of one reference sample: rounding is 1/4096 of it."""


class ModeSketch(nn.Module):
    """A network for square blocks of one size, `side` x `side`; `modes` is 67 for VVC, 35 for HEVC.

    residual[k, m] = predictors[k, m] · line - patterns[k] · block        `coefficients` of every mode
    estimate[m]    = Σ_k weight[k, m] · |residual[k, m]|
    excess[m]      = (estimate[m] - min estimate) / mean of the same over the modes
    logits         = FC(ReLU(FC(excess, side))) - sharpness · excess      `hidden` features

    With `informed` the patterns start as the lowest frequencies of the DCT and the predictors as what the standard
    predicts of them, so that an untrained network chooses by a search cut short; else all start at random.
    """

    def __init__(
        self, side: int = 8, coefficients: int = 8, hidden: int = 64, modes: int = 67, informed: bool = True
    ) -> None:
        counts = {"side": side, "coefficients": coefficients, "hidden": hidden, "modes": modes}
        check_counts("mode sketch", **counts)
        self.options = {**counts, "informed": informed}
        standard = next((name for name, count in MODE_COUNT.items() if count == modes), None)
        if standard is None:
            raise ModelError(f"no standard has {modes} modes: {', '.join(map(str, MODE_COUNT.values()))}")
        check_block(side, side, standard)
        if coefficients > side**2:
            raise ModelError(f"a block of {side}x{side} has no {coefficients} coefficients")
        super().__init__()
        length = 4 * side + 1
        patterns = torch.randn(side**2, coefficients) / side
        predictors = torch.randn(length, coefficients, modes) / length**0.5
        if informed:
            patterns, predictors = _of_the_standard(side, coefficients, standard)
        self.patterns = nn.Parameter(patterns)
        self.predictors = nn.Parameter(predictors.flatten(1))
        self.weight = nn.Parameter(torch.ones(coefficients, modes))
        self.sharpness = nn.Parameter(torch.tensor(SHARPNESS))
        self.hidden = nn.Linear(modes + 2, hidden)
        self.tail = nn.Linear(hidden, modes)
        nn.init.zeros_(self.tail.weight)
        nn.init.zeros_(self.tail.bias)

    @property
    def block_sizes(self) -> tuple[tuple[int, int], ...]:
        """(width, height) of the blocks that it tells modes of."""
        return ((self.options["side"],) * 2,)

    @staticmethod
    def inputs(line: Tensor, block: Tensor, bit_depth: Tensor, qp: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What `forward` takes, samples in units of full scale and QP / 64, from reference lines (n, 4s+1), blocks (n,
        s, s), bit depths and QPs (n,)."""
        scale = torch.exp2(-bit_depth.float())[:, None]
        return line * scale, block * scale[..., None], qp.float() / QP_SCALE

    def forward(self, line: Tensor, block: Tensor, qp: Tensor) -> Tensor:
        """Logits (n, modes) from `inputs`. Raises ModelError for blocks of another size."""
        side = self.options["side"]
        if block.shape[1:] != (side, side):
            size = "x".join(map(str, reversed(block.shape[1:])))
            raise ModelError(f"the network tells modes of blocks of {side}x{side}, not of {size}")
        # An offset of all samples changes no residual, and without it small numbers keep more digits.
        centre = line.mean(dim=1, keepdim=True)
        ours = (block.flatten(1) - centre) @ self.patterns
        residual = ((line - centre) @ self.predictors).view(len(line), *self.weight.shape)
        if torch.is_grad_enabled():
            estimate = ((residual - ours[..., None]).abs() * self.weight).sum(dim=1)
        else:  # in place: what does not leave the cache takes a third of the time
            estimate = residual.sub_(ours[..., None]).abs_().mul_(self.weight).sum(dim=1)
        excess = estimate - estimate.amin(dim=1, keepdim=True)
        unit = excess.mean(dim=1, keepdim=True) + FLAT
        relative = excess / unit
        told = torch.cat([relative, qp[:, None], unit.log2() / 10], dim=1)
        logits: Tensor = self.tail(F.relu(self.hidden(told))) - self.sharpness * relative
        return logits


def _of_the_standard(side: int, coefficients: int, standard: str) -> tuple[Tensor, Tensor]:
    """The lowest frequencies of the DCT, (s², k), and what every mode predicts of them from one reference sample each,
    (4s+1, k, modes)."""
    frequency = np.arange(side)
    order = np.argsort((frequency[:, None] ** 2 + frequency**2).ravel(), kind="stable")[:coefficients]
    matrix = dct_matrix(side)
    patterns = np.einsum("ky,lx->klyx", matrix, matrix).reshape(side**2, side**2)[order].T
    pulses = (_LEVEL + _PULSE * np.eye(4 * side + 1)).astype(np.int32)
    corner = 2 * side
    parts = pulses[:, corner], pulses[:, corner + 1 :], pulses[:, :corner][:, ::-1]
    predicted = predict_modes(*parts, side, side, 16, standard).astype(np.float64)
    flat = (predicted - _LEVEL).reshape(len(pulses), -1, side**2) / _PULSE
    predictors = np.einsum("imp,pk->ikm", flat, patterns)
    return torch.from_numpy(patterns).float(), torch.from_numpy(predictors).float()
