"""The forms in which a network computes when it has learned: folded, prepared for its device, and as a graph."""

import copy
from typing import TypeVar

import torch
from torch import nn

from codecnn.errors import ModelError
from codecnn.models.base import FilterNetwork
from codecnn.models.fused import Scratch
from codecnn.models.graph._draft import Draft
from codecnn.models.graph.nodes import Graph

Network = TypeVar("Network", bound=nn.Module)


def fold(model: FilterNetwork) -> FilterNetwork:
    """A copy in evaluation mode in which branches and batch normalisation have become part of the convolutions.

    In evaluation both are linear with constant factors, and a convolution after or beside a linear map is again one
    convolution: the same samples for fewer operations and parameters.
    """
    return _changed(copy.deepcopy(model).eval(), "folded")


def prepare(model: FilterNetwork) -> FilterNetwork:
    """`model` ready to filter on the device it is on; the result is that of `model` to float rounding.

    A copy: later changes of `model` do not reach it. It keeps memory between pictures, and filters one at a time.
    """
    ready = fold(model)
    if next(ready.parameters()).device.type == "cpu":
        ready = _changed(ready, "fused", Scratch())
    # Channels last is the order in which both oneDNN and cuDNN compute: a picture that comes otherwise is reordered
    # in front of every convolution and back behind it.
    return ready.requires_grad_(False).to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def _changed(network: Network, form: str, *arguments: Scratch) -> Network:
    """`network` with the given form, "folded" or "fused", of every module that has one, inner ones first."""
    for name, child in list(network.named_children()):
        setattr(network, name, _changed(child, form, *arguments))
    return getattr(network, form)(*arguments) if hasattr(network, form) else network


def build_graph(model: FilterNetwork) -> Graph:
    """The graph that computes what `model` computes in evaluation mode, to float rounding.

    All that is linear is part of its convolutions: branches, batch normalisation, the 2x2 DCT, EDSR's scale; a
    transposed convolution is a convolution and a shuffle. Weights are folded in float64, so that it costs no precision.

    Raises ModelError for a network, or a block, that does not say how it is drawn.
    """
    double = fold(model).double().cpu().requires_grad_(False)
    draft = Draft()
    for output, residual in double.draw(draft).items():
        double.draw_output(draft, output, residual)
    graph = Graph(tuple(draft.nodes))
    if (graph.halo, graph.outputs) != (model.halo, model.outputs):
        raise ModelError(f"the graph of {type(model).__name__} has halo {graph.halo}, the network {model.halo}")
    return graph
