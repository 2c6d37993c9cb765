"""Units that no input wakes: new weights in front of them, nothing behind, so that they can learn once more."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from codecnn.models._blocks import DepthwiseBlock, SeparableBlock
from codecnn.models.base import FilterNetwork


@torch.no_grad()
def revive(model: FilterNetwork, batches: Iterable[Mapping[str, Tensor]]) -> dict[str, int]:
    """Give units that ReLU makes zero at every sample of `batches` random weights; how many there were, by block.

    A unit is an output of a block's expand; what it is given is as large as what the layer has in the mean, since Muon
    takes steps of one size through all of a layer. What reads it starts at zero, so that the network computes on these
    inputs what it did. Of networks without separable or depthwise blocks nothing is revived.
    """
    blocks = {
        name: module for name, module in model.named_modules() if isinstance(module, SeparableBlock | DepthwiseBlock)
    }
    alive = {name: torch.zeros(block.expand.out_channels, dtype=torch.bool) for name, block in blocks.items()}

    def note(name: str) -> Any:
        def hook(_module: nn.Module, _inputs: Any, made: Tensor) -> None:
            alive[name] |= (made > 0).amax((0, 2, 3)).cpu()

        return hook

    hooks = [block.expand.register_forward_hook(note(name)) for name, block in blocks.items()]
    try:
        for batch in batches:
            model(batch)
    finally:
        for hook in hooks:
            hook.remove()
    return {name: count for name, block in blocks.items() if (count := _renew(block, ~alive[name]))}


def _renew(block: SeparableBlock | DepthwiseBlock, dead: Tensor) -> int:
    """Start the units `dead` (outputs of expand,) anew, and return how many there are."""
    expand, project = block.expand, block.project
    fresh = nn.Conv2d(expand.in_channels, expand.out_channels, 1)
    assert expand.bias is not None
    assert fresh.bias is not None
    factor = expand.weight.norm().cpu() / fresh.weight.norm()
    expand.weight[dead] = (factor * fresh.weight[dead]).to(expand.weight)
    expand.bias[dead] = (factor * fresh.bias[dead]).to(expand.bias)
    project.weight[:, dead] = 0
    return int(dead.sum())
