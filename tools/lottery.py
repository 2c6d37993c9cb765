"""Lottery tickets: the channels that a trained network weighs most, at the weights that they had before the training.

    python tools/lottery.py runs/rdn/last.safetensors growth=4 -o runs/ticket.safetensors
    codecnn train configs/mine.yaml 'model.options={"growth":4}' training.start.weights=runs/ticket.safetensors

After Frankle and Carbin, "The Lottery Ticket Hypothesis", ICLR 2019, who set single weights to zero, which costs as
much as before on hardware that multiplies all of them. Here whole channels go, so that the ticket is an RDN or a
low-cost network of smaller sizes: its peer is a network of these sizes from a random start of its own. A quarter of
the multiply-accumulates have RDN(32, 3, 6, 16) with growth 4, and low_cost_17 with 16 features.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from codecnn.config import parse_overrides
from codecnn.errors import ConfigError
from codecnn.models import FilterNetwork, complexity, create_model, load_model, save_weights

FEATURES = "features"
"""The channels that go from block to block, to which the head and the last convolution of every block write."""
ALL: list[str] = []
"""What stands for inputs or outputs of which none are pruned: those of the network."""


def write_ticket(weights: Path | str, sizes: dict[str, Any], output: Path) -> FilterNetwork:
    """Write the ticket of a network that was trained from its own random start, and return it.

    `weights` is what the run left (its card tells network, options and seed), `sizes` are the options that become
    smaller. Raises ConfigError where the training started from other weights, and as `channels` does.
    """
    trained, card = load_model(weights)
    name, training = str(card.network), dict(card["training"])
    if training.get("start") is not None:
        raise ConfigError(f"the training of {weights} started from other weights: it has no random start to go back to")
    torch.manual_seed(training["seed"])  # as train_task does before it makes the network
    initial = create_model(name, **trained.options)
    smaller = create_model(name, **trained.options | sizes)
    take(smaller, initial, channels(trained, smaller))
    save_weights(output, smaller, name, {"ticket_of": str(weights)})
    return smaller


def channels(trained: FilterNetwork, smaller: FilterNetwork) -> dict[str, Tensor]:
    """The channels of `trained`, by group and in ascending order, for which a network such as `smaller` has room.

    Those whose weights have the largest L2 norm, as Li et al., "Pruning Filters for Efficient ConvNets", ICLR 2017, do
    by L1; of the features, to which several convolutions write, that of all these weights. Raises ConfigError for
    networks of another kind, and for sizes that are not smaller.
    """
    power: dict[str, Tensor] = {}
    for name, tensor in trained.state_dict().items():
        outputs, _ = groups(trained, name)
        if tensor.dim() == 4 and outputs:
            (group,) = outputs
            power[group] = power.get(group, 0) + tensor.square().sum(dim=(1, 2, 3))
    room = _widths(smaller)
    for group, of_channel in power.items():
        if room[group] > len(of_channel):
            raise ConfigError(f"{group} has {len(of_channel)} channels: it cannot be pruned to {room[group]}")
    return {group: of_channel.topk(room[group]).indices.sort().values for group, of_channel in power.items()}


@torch.no_grad()
def take(smaller: FilterNetwork, larger: FilterNetwork, kept: Mapping[str, Tensor]) -> None:
    """Give `smaller` the weights that the channels `kept` have in `larger`, as they are; see `channels`."""
    widths, tensors = _widths(larger), larger.state_dict()
    for name, own in smaller.state_dict(keep_vars=True).items():
        tensor = tensors[name]
        for axis, joined in enumerate(groups(larger, name)):
            if joined and axis < tensor.dim():
                starts = [sum(widths[group] for group in joined[:index]) for index in range(len(joined))]
                places = [kept[group] + start for group, start in zip(joined, starts, strict=True)]
                tensor = tensor.index_select(axis, torch.cat(places))
        own.copy_(tensor)


def groups(model: FilterNetwork, name: str) -> tuple[list[str], list[str]]:
    """Groups of channels that the outputs and the inputs of a tensor are made of, one after the other.

    A group is FEATURES, or what a convolution within a block makes, by the convolution's name. Raises ConfigError for
    tensors of networks that are neither RDNs nor low-cost networks of separable blocks.
    """
    layer = name.rpartition(".")[0]
    block = ".".join(layer.split(".")[:2])
    match name.split("."):
        case ["head", _]:
            return [FEATURES], ALL
        case ["head2" | "fusion2", _]:
            return [FEATURES], [FEATURES]
        case ["fusion", _]:
            return [FEATURES], [FEATURES] * model.options["blocks"]
        case ["tail", _] if model.options.get("upsampling") != "transposed":
            return ALL, [FEATURES]
        case ["blocks", _, "layers", index, _]:
            return [layer], [FEATURES, *(f"{block}.layers.{before}" for before in range(int(index)))]
        case ["blocks", _, "fusion", _]:
            return [FEATURES], [FEATURES, *(f"{block}.layers.{index}" for index in range(model.options["layers"]))]
        case ["blocks", _, "expand", _]:
            return [layer], [FEATURES]
        case ["blocks", _, "project", _] if model.options["kind"] == "separable":
            return [layer], [f"{block}.expand"]
        case ["blocks", _, "row", _]:
            return [layer], [f"{block}.project"]
        case ["blocks", _, "column", _]:
            return [FEATURES], [f"{block}.row"]
        case ["modulations", _, "out", _]:
            return [FEATURES] * model.stacked(name), ALL
        case ["modulations", _, "hidden", _] | ["gain" | "chroma_gain", _]:
            return ALL, ALL
    raise ConfigError(f"{name} of {type(model).__name__} cannot be pruned: it takes an RDN, or separable blocks")


def _widths(model: FilterNetwork) -> dict[str, int]:
    """Channels of each group."""
    made: dict[str, int] = defaultdict(int)
    for name, layer in model.named_modules():
        if isinstance(layer, nn.Conv2d):
            made |= dict.fromkeys(groups(model, f"{name}.weight")[0], layer.out_channels)
    return made


def main() -> None:
    """Write a ticket, and print what it costs beside what it is of."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", type=Path, help="of a run, .safetensors")
    parser.add_argument(
        "sizes", nargs="+", metavar="OPTION=VALUE", help="options that become smaller, such as growth=4"
    )
    parser.add_argument("-o", "--output", type=Path, required=True, help=".safetensors")
    args = parser.parse_intermixed_args()
    ticket = complexity(write_ticket(args.weights, parse_overrides(args.sizes), args.output)).kmac_per_pixel
    print(f"{args.output}: {ticket:.1f} kMAC/pixel of {complexity(load_model(args.weights)[0]).kmac_per_pixel:.1f}")


if __name__ == "__main__":
    main()
