"""Intra mode networks: classifiers that tell which intra mode predicts a block best from block and reference samples.

The networks see the block and what the modes predict from: the row of reference samples above and the column to the
left, after substitution. A window of the picture around the block would add only samples that the labels do not depend
on, and most of it is not yet decoded when the block is predicted.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from codecnn.base.errors import ModelError
from codecnn.base.keywords import nearest, option_names
from codecnn.base.planes import QP_SCALE
from codecnn.models import RDB, check_counts
from codecnn.vvc.intra import MODE_COUNT, check_block, dct_matrix, predict_modes

MODE_PLANES = ("block", "below_left", "left", "diagonal", "above", "above_right")
"""Planes of `mode_image`; the directions are modes 2, 18, 34, 50 and 66 of VVC, 2, 10, 18, 26 and 34 of HEVC."""

SIDE = ("qp", "log2_width", "log2_height")
"""Columns of `mode_side`."""

MAX_LOG2_SIZE = 6

GRID = 4
"""Features of a block are averaged over GRID x GRID cells; in the smallest block, a cell is one sample."""

FLAT_CONTRAST = 2.0**-10
"""Contrast, in full scale, below which a block counts as flat: one step of a 10-bit sample."""

FLAT_EXCESS = 2.0**-16
"""Mean excess, in full scale, below which `ModeSketch` regards all modes as equally good."""

SHARPNESS = 5.0
"""Logits by which an untrained `ModeSketch` puts the mean mode below the best one."""

_LEVEL, _PULSE = 1 << 13, 1 << 12
"""16-bit sample values that measure the response of prediction to one reference sample, exact to 1/4096."""


class ModeNetwork(nn.Module):
    """A convolutional mode network for blocks of any size.

    image (n, 6, h, w) -> contrast 1 -> 3x3 -> RDB ... RDB -> 4 x 4 means -> (side, contrast) -> FC -> ReLU -> FC

    The convolutions see samples without resampling, the cells grow with the block, and width and height enter with the
    QP. An untrained network gives every mode the same probability.

    Args:
        features: Channels of the convolutions.
        blocks: Number of RDBs.
        layers: Layers of each RDB.
        growth: Output channels of each layer.
        hidden: Features of the hidden fully connected layer.
        modes: Number of modes: 67 for VVC, 35 for HEVC.
    """

    def __init__(
        self, features: int = 32, blocks: int = 2, layers: int = 3, growth: int = 16, hidden: int = 128, modes: int = 67
    ) -> None:
        self.options = {
            "features": features,
            "blocks": blocks,
            "layers": layers,
            "growth": growth,
            "hidden": hidden,
            "modes": modes,
        }
        check_counts("mode network", **self.options)
        super().__init__()
        self.head = nn.Conv2d(len(MODE_PLANES), features, 3, padding=1)
        self.blocks = nn.Sequential(*(RDB(features, layers, growth) for _ in range(blocks)))
        self.hidden = nn.Linear(features * GRID**2 + len(SIDE) + 1, hidden)
        self.tail = nn.Linear(hidden, modes)
        nn.init.zeros_(self.tail.weight)
        nn.init.zeros_(self.tail.bias)

    @property
    def block_sizes(self) -> None:
        """No list: the network takes blocks of any size."""
        return None

    @staticmethod
    def inputs(line: Tensor, block: Tensor, bit_depth: Tensor, qp: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the arguments of `forward`, image and side.

        Args:
            line: Reference samples from bottom left over the corner to top right, shape (n, 2h+1+2w).
            block: Blocks, shape (n, h, w).
            bit_depth: Bit depths of the samples, shape (n,); they may differ within a batch.
            qp: Slice QPs, shape (n,).
        """
        height, width = block.shape[1:]
        scale = torch.exp2(-bit_depth.float())[:, None]
        line, corner = line * scale, 2 * height
        parts = line[:, corner], line[:, corner + 1 :], line[:, :corner].flip(1)
        return mode_image(*parts, block * scale[..., None], 0), mode_side(qp, width, height)

    def forward(self, image: Tensor, side: Tensor) -> Tensor:
        """Compute logits of the modes.

        The mean of the image is subtracted and its contrast normalised, since neither an offset nor a factor changes
        which mode predicts best. A factor matters relative to the QP, so the logarithm of the contrast is an input.

        Args:
            image: `mode_image` of blocks of one size, shape (n, 6, h, w).
            side: `mode_side`, shape (n, 3).

        Returns:
            Logits, shape (n, modes).

        Raises:
            ModelError: The shapes do not fit.
        """
        if image.dim() != 4 or image.shape[1] != len(MODE_PLANES) or min(image.shape[2:]) < GRID:
            raise ModelError(
                f"the image has shape {tuple(image.shape)}, not (n, {len(MODE_PLANES)}, h, w) of at least {GRID}x{GRID}"
            )
        if side.shape != (image.shape[0], len(SIDE)):
            raise ModelError(f"the side has shape {tuple(side.shape)}, not {(image.shape[0], len(SIDE))}")
        centred = image - image.mean(dim=(1, 2, 3), keepdim=True)
        contrast = (centred.square().mean(dim=(1, 2, 3), keepdim=True) + FLAT_CONTRAST**2).sqrt()
        features = self.blocks(self.head(centred / contrast))
        cells = F.adaptive_avg_pool2d(features, GRID).flatten(1)
        inputs = torch.cat([cells, side, contrast.flatten(1).log2() / 10], dim=1)
        logits: Tensor = self.tail(F.relu(self.hidden(inputs)))
        return logits


class ModeSketch(nn.Module):
    """A mode network for square blocks of one size that approximates an encoder's search.

    Intra prediction is, apart from rounding, linear in the reference samples, and so is a transform. Some coefficients
    of the residuals of all modes are therefore one matrix product: those of the block minus those of the references. A
    search computes all coefficients of every mode; this network computes a few, by matrices that it learns:

        residual[k, m] = predictors[k, m] · line - patterns[k] · block
        estimate[m]    = Σ_k weight[k, m] · |residual[k, m]|
        excess[m]      = (estimate[m] - min estimate) / mean of the same over the modes
        logits         = FC(ReLU(FC(excess, side))) - sharpness · excess

    Args:
        side: Width and height of the blocks.
        coefficients: Number of coefficients per mode.
        hidden: Features of the hidden fully connected layer.
        modes: Number of modes: 67 for VVC, 35 for HEVC.
        informed: Start `patterns` as the lowest frequencies of the DCT and `predictors` as the standard's prediction
            of them, so that an untrained network is a truncated search; else both start at random.
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
            patterns, predictors = _standard_matrices(side, coefficients, standard)
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
        """(width, height) of the blocks that the network takes."""
        return ((self.options["side"],) * 2,)

    @staticmethod
    def inputs(line: Tensor, block: Tensor, bit_depth: Tensor, qp: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Compute the arguments of `forward`: line and block in full scale, and QP / 64.

        Args:
            line: Reference samples from bottom left over the corner to top right, shape (n, 4s+1).
            block: Blocks, shape (n, s, s).
            bit_depth: Bit depths of the samples, shape (n,).
            qp: Slice QPs, shape (n,).
        """
        scale = torch.exp2(-bit_depth.float())[:, None]
        return line * scale, block * scale[..., None], qp.float() / QP_SCALE

    def forward(self, line: Tensor, block: Tensor, qp: Tensor) -> Tensor:
        """Compute logits (n, modes) from `inputs`; raise ModelError for blocks of another size."""
        side = self.options["side"]
        if block.shape[1:] != (side, side):
            size = "x".join(map(str, reversed(block.shape[1:])))
            raise ModelError(f"the network tells modes of blocks of {side}x{side}, not of {size}")
        # An offset of all samples changes no residual, and without it small numbers keep more digits.
        centre = line.mean(dim=1, keepdim=True)
        of_block = (block.flatten(1) - centre) @ self.patterns
        residual = ((line - centre) @ self.predictors).view(len(line), *self.weight.shape)
        if torch.is_grad_enabled():
            estimate = ((residual - of_block[..., None]).abs() * self.weight).sum(dim=1)
        else:  # in place, so that the tensor stays in the cache
            estimate = residual.sub_(of_block[..., None]).abs_().mul_(self.weight).sum(dim=1)
        excess = estimate - estimate.amin(dim=1, keepdim=True)
        unit = excess.mean(dim=1, keepdim=True) + FLAT_EXCESS
        relative = excess / unit
        inputs = torch.cat([relative, qp[:, None], unit.log2() / 10], dim=1)
        logits: Tensor = self.tail(F.relu(self.hidden(inputs))) - self.sharpness * relative
        return logits


def _standard_matrices(side: int, coefficients: int, standard: str) -> tuple[Tensor, Tensor]:
    """Return the lowest DCT frequencies and the response of every mode in them to each reference sample.

    Returns:
        Patterns (s², k) and predictors (4s+1, k, modes).
    """
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


ModeClassifier = ModeNetwork | ModeSketch

MODE_NETWORKS: dict[str, type[ModeClassifier]] = {"modes": ModeNetwork, "mode_sketch": ModeSketch}
"""Mode networks by their names in cards and configurations."""


def create_mode_network(network: str = "modes", **options: Any) -> ModeClassifier:
    """Build an untrained mode network.

    Args:
        network: A name of `MODE_NETWORKS`.
        options: Options of that class.

    Raises:
        ModelError: The name or an option is unknown, or a value is not possible.
    """
    if network not in MODE_NETWORKS:
        raise ModelError(f"unknown mode network {network!r}: one of {', '.join(MODE_NETWORKS)}")
    known = option_names(MODE_NETWORKS[network])
    if unknown := options.keys() - known:
        raise ModelError(f"the network {network} has no option {min(unknown)!r}: {nearest(min(unknown), known)}")
    try:
        return MODE_NETWORKS[network](**options)
    except TypeError as error:
        raise ModelError(f"the network {network} does not take these options: {str(error).splitlines()[0]}") from error


def network_name(model: ModeClassifier) -> str:
    """Return the name of a mode network in `MODE_NETWORKS`."""
    return next(name for name, kind in MODE_NETWORKS.items() if isinstance(model, kind))


def mode_image(corner: Tensor, top: Tensor, left: Tensor, block: Tensor, bit_depth: int) -> Tensor:
    """Compute the planes of `ModeNetwork`: the block, and the reference continued along five directions.

    The samples are in the order and after the substitution of H.266 clause 8.4.5.2.8 (H.265 clause 8.4.4.2.2). Along
    the outer directions of a block that is not square, the last sample of the shorter reference is repeated.

    Args:
        corner: p[-1][-1], shape (n,).
        top: p[0 .. 2w-1][-1], shape (n, 2w).
        left: p[-1][0 .. 2h-1], shape (n, 2h).
        block: Blocks, shape (n, h, w).
        bit_depth: Bit depth of all samples.

    Returns:
        Planes in full scale, shape (n, 6, h, w).

    Raises:
        ModelError: The shapes do not fit.
    """
    n, height, width = block.shape
    if corner.shape != (n,) or top.shape != (n, 2 * width) or left.shape != (n, 2 * height):
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in (corner, top, left))
        raise ModelError(f"corner, top, left of shapes {shapes} do not fit blocks of shape {tuple(block.shape)}")
    # In one line from bottom left over the corner to top right, directions are offsets.
    line = torch.cat([left.flip(1), corner[:, None], top], dim=1)
    y = torch.arange(height, device=block.device)[:, None]
    x = torch.arange(width, device=block.device)[None, :]
    centre = 2 * height
    below_left = centre - 1 - (x + y + 1).clamp(max=2 * height - 1)
    above_right = centre + 1 + (x + y + 1).clamp(max=2 * width - 1)
    directions = (below_left, centre - 1 - y + 0 * x, centre + x - y, centre + 1 + x + 0 * y, above_right)
    planes = torch.stack([block, *(line[:, index] for index in directions)], dim=1)
    return planes.float() * 2.0**-bit_depth


def mode_side(qp: Tensor, width: int, height: int) -> Tensor:
    """Compute the side inputs of blocks (n, 3): QP / 64, and log2 of width and height divided by 6."""
    size = torch.tensor([width, height], device=qp.device).log2() / MAX_LOG2_SIZE
    return torch.cat([qp[:, None].float() / QP_SCALE, size.expand(len(qp), 2)], dim=1)


def mode_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Compute the mean cross entropy, in nats, of logits (n, modes) against the best modes (n,)."""
    return F.cross_entropy(logits, labels.long())


def excess_cost(modes: Tensor, costs: Tensor) -> Tensor:
    """Compute the relative excess cost of chosen modes: sum(chosen) / sum(best) - 1.

    Args:
        modes: Candidate modes of each block, shape (n, k); the cheapest one counts.
        costs: Costs of all modes, shape (n, all modes).

    Returns:
        The excess, a float64 scalar. A best sum below 1 counts as 1, since perfectly predicted blocks cost nothing.
    """
    chosen = costs.gather(1, modes).amin(dim=1).sum(dtype=torch.float64)
    best = costs.amin(dim=1).sum(dtype=torch.float64)
    return (chosen - best) / best.clamp(min=1.0)
