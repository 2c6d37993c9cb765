"""Small networks with random weights, and random planes for them."""

import math

import torch

from codecnn.models import CHROMA_PLANES, FilterNetwork, create_model, list_models, probe_planes

SMALL = {"features": 8, "blocks": 2, "layers": 2, "growth": 4}
QP = 37 / 64
ABLATIONS = [
    {"head": "5x5"},
    {"shuffle": 2, "upsampling": "transposed"},
    {"shuffle": 2, "transform": "haar"},
    {"global_residual": False},
    {"local_residual": False},
    {"output": "picture"},
]
"""RDNs without, or with another form of, one part each."""

SHORT = {"dncnn": {"layers": 5}, "edsr": {"blocks": 2}}
DEEP = ("rdn", "quarter", "low_cost_yuv", "low_cost_400")
SHORT |= {name: {"blocks": 2} for name in list_models() if name.startswith(DEEP)}
SHORT |= {name: {"groups": (1, 1)} for name in list_models() if name.startswith("lop")}
"""Options that keep the tests short; the tested properties do not depend on the depth."""


SETS = {
    "low_cost_17": ("unfiltered", "slice_type", "decoder+neighbours2", "slice_type+neighbours2"),
    "low_cost_75": ("unfiltered", "decoder+neighbours2"),
    "low_cost_400": ("unfiltered",),
    "low_cost_yuv_17": ("unfiltered", "slice_type", "decoder+neighbours"),
}
"""Sets of planes, beside the default, with which weights come with the package or the repository."""

CASES = [*list_models(), *(f"{name} {planes}" for name, sets in SETS.items() for planes in sets)]
"""Architectures, alone or with a set of planes: "low_cost_17 unfiltered"."""


def create_case(case, options=None):
    """Create an untrained network of `CASES`, with options that keep the tests short unless others are given."""
    name, _, planes = case.partition(" ")
    options = SHORT.get(name, {}) if options is None else options
    return create_model(name, **options | ({"planes": planes} if planes else {}))


def zoo_model(case):
    torch.manual_seed(7)
    return create_case(case)


_MODELS = {case: zoo_model(case) for case in CASES}

WITH_GRAPH = [name for name, model in _MODELS.items() if type(model).draw is not FilterNetwork.draw]
"""Networks that have a graph, which exports and integer networks need."""


def _distinct():
    chosen = {}
    for name, model in _MODELS.items():
        layers = frozenset(type(module) for module in model.modules())
        rank = (-len(model.planes), sum(parameter.numel() for parameter in model.parameters()), name)
        chosen[layers] = min(chosen.get(layers, rank), rank)
    return sorted(name for *_, name in chosen.values())


DISTINCT = _distinct()
"""A network for each set of kinds of layers, that with the most planes: for tests whose result does not depend on the
number and width of the layers."""


def awaken(model, seed=0, std=0.2):
    """Set random weights everywhere, so that the zero start hides no effect; return the network in evaluation mode."""
    torch.manual_seed(seed)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=std)
    return model.eval()


def learn(optimiser, loss, steps, clip=math.inf):
    """Take `steps` steps down `loss(step)`, with gradients clipped to the norm `clip`; return the losses."""
    losses = []
    for step in range(steps):
        optimiser.zero_grad()
        losses.append(loss(step))
        losses[-1].backward()
        torch.nn.utils.clip_grad_norm_(optimiser.param_groups[0]["params"], clip)
        optimiser.step()
    return [value.item() for value in losses]


def random_picture(model, height, width):
    """Return random planes of a picture without halo, (1, 1, h, w), chroma rounded up."""
    generator = torch.Generator().manual_seed(3)
    chroma = ((height + 1) // 2, (width + 1) // 2)
    picture = {
        name: torch.rand(1, 1, *(chroma if name in CHROMA_PLANES else (height, width)), generator=generator)
        for name in model.planes
    }
    return picture | ({"qp": torch.full((1, 1, 1, 1), QP)} if "qp" in model.planes else {})


def random_planes(model, height, width, seed=0, qp=37, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    planes = probe_planes(model, height, width, "cpu")
    for name, plane in planes.items():
        values = torch.full_like(plane, qp / 64) if name == "qp" else torch.rand(plane.shape, generator=generator)
        planes[name] = values.to(dtype)
    return planes
