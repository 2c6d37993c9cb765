"""Intra mode networks on disk: weights as safetensors with a JSON card, and their integer form."""

from pathlib import Path
from typing import Any

from codecnn.base.errors import ConfigError
from codecnn.models import Card, load_network, write_network
from codecnn.modes.networks.architectures import ModeClassifier, ModeSketch, create_mode_network
from codecnn.modes.networks.integer_sketch import BIT_DEPTH, load_integer_sketch, quantise_sketch, save_integer_sketch

TASK = "modes"
"""Task of the cards."""


def save_mode_network(path: Path | str, model: ModeClassifier, network: str, card: dict[str, Any]) -> None:
    """Write an intra mode network and its card; see `codecnn.models.save_weights`."""
    parameters = sum(parameter.numel() for parameter in model.parameters())
    write_network(path, model, network, {"parameters": parameters}, card, task=TASK)


def load_mode_network(path: Path | str) -> tuple[ModeClassifier, Card]:
    """Load an intra mode network, in evaluation mode on the CPU, and its card; see `codecnn.models.load_model`."""
    return load_network(path, TASK, lambda card: create_mode_network(str(card.network)[:80], **card.options))


def export_integers(model: Path, output: Path) -> dict[str, Any]:
    """Write a mode network in integers of 16 bits, and return facts about the file.

    Raises:
        ConfigError: The network has no integer form.
    """
    network, card = load_mode_network(model)
    if not isinstance(network, ModeSketch):
        raise ConfigError(f"{model} has no integer form: of the mode networks, only mode_sketch has one")
    save_integer_sketch(output, quantise_sketch(network), card)
    load_integer_sketch(output)
    return {"bit_depth": BIT_DEPTH}
