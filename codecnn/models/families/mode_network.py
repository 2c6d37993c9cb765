"""The mode classifier: which intra mode predicts a block best, told from the block and its reference samples.

What an encoder's search compares is the block and what each mode makes of the reference row and column. So those are
the network's planes, at the block's own size: the block, and the reference laid over the block along the five
directions that need no interpolation. A window of the picture around the block would give a convolution the reference
at the block's edges alone, and most of a window that holds 2N samples above and left is not known when the block is
predicted. The planes are exactly what the labels depend on: substituted references, no samples beyond.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from codecnn.errors import ModelError
from codecnn.models._blocks import check_counts
from codecnn.models._dense import RDB
from codecnn.models.families.mode_sketch import ModeSketch
from codecnn.planes import QP_SCALE

MODE_PLANES = ("block", "below_left", "left", "diagonal", "above", "above_right")
"""Planes of `mode_image`; the directions are the modes 2, 18, 34, 50 and 66 of VVC, 2, 10, 18, 26 and 34 of HEVC."""
SIDE = ("qp", "log2_width", "log2_height")
"""Columns of `mode_side`."""
MAX_LOG2_SIZE = 6
GRID = 4
"""The features of a block are averaged over GRID x GRID cells; the smallest block has one sample a cell."""
FLAT = 2.0**-10
"""Contrast, in units of full scale, below which a block counts as flat: one step of a 10-bit sample."""


class ModeNetwork(nn.Module):
    """RDBs on the planes of a block of any size, averages over 4 x 4 cells, fully connected layers with the side.

    image (n, 6, h, w) -> contrast 1 -> 3x3 -> RDB ... RDB -> 4 x 4 means -> (side, contrast) -> FC -> ReLU -> FC

    One network for every size: the convolutions see samples as they are (nothing is resampled), the cells grow with
    the block, and its width and height enter with the QP. `modes` is 67 for VVC, 35 for HEVC. An untrained network
    gives every mode the same probability.
    """

    def __init__(
        self, features: int = 32, blocks: int = 2, layers: int = 3, growth: int = 16, hidden: int = 128, modes: int = 67
    ) -> None:
        self.options = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
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
        """Blocks of any size."""
        return None

    @staticmethod
    def inputs(line: Tensor, block: Tensor, bit_depth: Tensor, qp: Tensor) -> tuple[Tensor, Tensor]:
        """What `forward` takes, image and side, from reference lines (n, 2h+1+2w), blocks (n, h, w), bit depths and QPs
        (n,)."""
        height, width = block.shape[1:]
        # Blocks of one batch may have different bit depths: samples are told in units of full scale.
        scale = torch.exp2(-bit_depth.float())[:, None]
        line, corner = line * scale, 2 * height
        parts = line[:, corner], line[:, corner + 1 :], line[:, :corner].flip(1)
        return mode_image(*parts, block * scale[..., None], 0), mode_side(qp, width, height)

    def forward(self, image: Tensor, side: Tensor) -> Tensor:
        """Logits (n, modes) of blocks of one size, from `mode_image` (n, 6, h, w) and `mode_side` (n, 3).

        The image's mean is taken away and its contrast brought to 1, since neither an offset nor a factor changes
        which mode predicts best; what a factor does change, beside a QP, is told by the contrast's logarithm.
        Raises ModelError for shapes that do not fit.
        """
        if image.dim() != 4 or image.shape[1] != len(MODE_PLANES) or min(image.shape[2:]) < GRID:
            raise ModelError(
                f"the image has shape {tuple(image.shape)}, not (n, {len(MODE_PLANES)}, h, w) of at least {GRID}x{GRID}"
            )
        if side.shape != (image.shape[0], len(SIDE)):
            raise ModelError(f"the side has shape {tuple(side.shape)}, not {(image.shape[0], len(SIDE))}")
        centred = image - image.mean(dim=(1, 2, 3), keepdim=True)
        contrast = (centred.square().mean(dim=(1, 2, 3), keepdim=True) + FLAT**2).sqrt()
        features = self.blocks(self.head(centred / contrast))
        cells = F.adaptive_avg_pool2d(features, GRID).flatten(1)
        told = torch.cat([cells, side, contrast.flatten(1).log2() / 10], dim=1)
        logits: Tensor = self.tail(F.relu(self.hidden(told)))
        return logits


ModeClassifier = ModeNetwork | ModeSketch
MODE_NETWORKS: dict[str, type[ModeClassifier]] = {"modes": ModeNetwork, "mode_sketch": ModeSketch}
"""The networks that tell modes, by the names that cards and configurations have for them."""


def create_mode_network(network: str = "modes", **options: Any) -> ModeClassifier:
    """Build an untrained network of MODE_NETWORKS from its own options; ModelError for other names and options."""
    if network not in MODE_NETWORKS:
        raise ModelError(f"unknown mode network {network!r}: one of {', '.join(MODE_NETWORKS)}")
    try:
        return MODE_NETWORKS[network](**options)
    except TypeError as error:
        raise ModelError(f"the network {network} does not take these options: {error}") from error


def network_name(model: ModeClassifier) -> str:
    """The name that `create_mode_network` has for a network."""
    return next(name for name, kind in MODE_NETWORKS.items() if isinstance(model, kind))


def mode_image(corner: Tensor, top: Tensor, left: Tensor, block: Tensor, bit_depth: int) -> Tensor:
    """Planes (n, 6, h, w) in units of full scale from blocks (n, h, w) and their reference samples.

    corner (n,) is p[-1][-1], top (n, 2w) is p[0 .. 2w-1][-1] and left (n, 2h) is p[-1][0 .. 2h-1], in the order and
    after the substitution of H.266 8.4.5.2.8 (H.265 8.4.4.2.2). Along the outer directions of a block that is not
    square the last sample of the shorter reference is repeated. Raises ModelError for shapes that do not fit.
    """
    n, height, width = block.shape
    if corner.shape != (n,) or top.shape != (n, 2 * width) or left.shape != (n, 2 * height):
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in (corner, top, left))
        raise ModelError(f"corner, top, left of shapes {shapes} do not fit blocks of shape {tuple(block.shape)}")
    # One line from the lowest sample on the left over the corner to the last on the right: directions are offsets.
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
    """The side inputs of blocks, (n, 3): QP / 64 and the binary logarithms of width and height over 6."""
    size = torch.tensor([width, height], device=qp.device).log2() / MAX_LOG2_SIZE
    return torch.cat([qp[:, None].float() / QP_SCALE, size.expand(len(qp), 2)], dim=1)


def mode_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross entropy, in nats, of logits (n, modes) against the best modes (n,)."""
    return F.cross_entropy(logits, labels.long())


def excess_cost(modes: Tensor, costs: Tensor) -> Tensor:
    """How much more the chosen modes cost than the best, relative: sum(chosen) / sum(best) - 1, a float64 scalar.

    modes (n, k), of which the cheapest of each block counts; costs (n, all modes). A sum of the best below 1 counts as
    1, since blocks that are predicted perfectly cost nothing.
    """
    chosen = costs.gather(1, modes).amin(dim=1).sum(dtype=torch.float64)
    best = costs.amin(dim=1).sum(dtype=torch.float64)
    return (chosen - best) / best.clamp(min=1.0)
