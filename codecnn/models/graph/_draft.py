"""The nodes of a graph in the making, as networks and their blocks draw them."""

from collections.abc import Sequence

import numpy as np
from torch import nn

from codecnn.models.graph.nodes import Array, Node
from codecnn.models.planes import CENTRED_SCALE, CHROMA_PLANES, DIFFERENCE_PLANES, DIFFERENCE_SCALE, SIGNED_PLANES


class Draft:
    """Nodes in the making; every method returns the name of the node that it adds."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def add(self, name: str, op: str, *inputs: str, tensors: dict[str, Array] | None = None, **values: int) -> str:
        """A node of any operation."""
        self.nodes.append(Node(name, op, inputs, values, tensors or {}))
        return name

    def once(self, name: str) -> str:
        """The input plane of that name, added where it is not there yet."""
        return name if any(node.name == name for node in self.nodes) else self.add(name, "plane")

    def joined(self, name: str, parts: Sequence[str]) -> str:
        """The concatenation of `parts`, or the only one of them."""
        return parts[0] if len(parts) == 1 else self.add(name, "concat", *parts)

    def shuffled(self, name: str, op: str, x: str, factor: int) -> str:
        """`x` after the operation "shuffle" or "unshuffle", or itself where the factor is 1."""
        return x if factor == 1 else self.add(name, op, x, factor=factor)

    def weights(
        self, name: str, x: str, weight: Array, bias: Array, *, pad: int = 1, groups: int = 1, relu: int = 0
    ) -> str:
        """A convolution with these numbers."""
        return self.add(name, "conv", x, tensors={"weight": weight, "bias": bias}, pad=pad, groups=groups, relu=relu)

    def conv(self, name: str, x: str, layer: nn.Module, *, relu: int = 0, scale: float = 1.0) -> str:
        """A convolution of a network, its output multiplied by `scale`."""
        assert isinstance(layer, nn.Conv2d)
        weight, bias = arrays(layer)
        pad = int(layer.padding != (0, 0) or layer.kernel_size == (1, 1))
        return self.weights(name, x, weight * scale, bias * scale, pad=pad, groups=layer.groups, relu=relu)

    def plane(self, name: str) -> str:
        """A plane as the first convolution takes it: centred, less the decoded one, or as large as such differences."""
        plane = self.once(name)
        if name in SIGNED_PLANES:
            scale = np.full((1, 1, 1, 1), DIFFERENCE_SCALE / CENTRED_SCALE)
            return self.weights(f"{name}.scaled", plane, scale, np.zeros(1))
        if name not in DIFFERENCE_PLANES:
            return plane
        both = self.add(f"{name}.both", "concat", plane, self.once("rec_y"))
        # Both inputs come as 4·(x - 1/2), so that the halves cancel.
        weight = np.array([1.0, -1.0]).reshape(1, 2, 1, 1) * DIFFERENCE_SCALE / CENTRED_SCALE
        return self.weights(f"{name}.difference", both, weight, np.zeros(1))

    def plane_at_luma(self, name: str) -> str:
        """A plane at luma's size, chroma upsampled as `codecnn.models.planes.upsample_chroma` does.

        Each of the four luma samples of a chroma sample has bilinear weights of its own: a convolution with four
        outputs makes them, and a shuffle puts them in their places.
        """
        if name == "qp":
            return self.add("qp", "qp", "rec_y")
        plane = self.plane(name)
        if name not in CHROMA_PLANES:
            return plane
        rows = np.array([[0.25, 0.75, 0], [0, 0.75, 0.25]])
        columns = np.array([[0, 1, 0], [0, 0.5, 0.5]])
        weight = np.einsum("ay,bx->abyx", rows, columns).reshape(4, 1, 3, 3)
        edge = self.add(f"{name}.edge", "edge", plane)
        phases = self.weights(f"{name}.phases", edge, weight, np.zeros(4), pad=0)
        return self.add(f"{name}.upsampled", "shuffle", phases, factor=2)


def arrays(layer: nn.Conv2d | nn.ConvTranspose2d) -> tuple[Array, Array]:
    """Weight and bias of a convolution."""
    assert layer.bias is not None
    return layer.weight.numpy(), layer.bias.numpy()
