"""Weights on disk: safetensors, and beside it a JSON card that says what they are. Nothing is ever unpickled."""

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from codecnn.errors import MissingFileError, ModelError
from codecnn.models.base import FilterNetwork
from codecnn.models.complexity import complexity
from codecnn.models.registry import create_model
from codecnn.runs import atomic_path, read_json, sha256_file, write_json

CARD_SCHEMA = 1


def card_path(weights: Path | str) -> Path:
    """The card of a weights file: `name.safetensors` has `name.json`."""
    return Path(weights).with_suffix(".json")


def save_weights(path: Path | str, model: FilterNetwork, network: str, card: dict[str, Any]) -> None:
    """Write `model` to `path` (.safetensors) and its card beside it.

    The card gets the network's name and options, its complexity and the file's sha256 in addition to what `card` says.
    """
    path = Path(path)
    if path.suffix != ".safetensors":
        raise ModelError(f"{path}: weights are written as .safetensors")
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    with atomic_path(path) as part:
        save_file(tensors, part)
    base = {"schema": CARD_SCHEMA, "network": network, "options": getattr(model, "options", {})}
    write_json(card_path(path), base | complexity(model).as_dict() | {"sha256": sha256_file(path)} | card)


@contextlib.contextmanager
def _no_larger_than(tensors: Mapping[str, Tensor], path: Path) -> Iterator[None]:
    """Raise ModelError as soon as a network being built has a parameter more, or of another shape, than `tensors`.

    A card can name options of a network that no memory holds; torch tells a parameter before it is filled.
    """
    shapes = Counter(tensor.shape for tensor in tensors.values())
    thread = threading.get_ident()

    def check(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if parameter is not None and thread == threading.get_ident():
            shapes[parameter.shape] -= 1
            if shapes[parameter.shape] < 0:
                raise ModelError(f"{path} does not fit its card's options: they give other parameters, such as {name}")

    hook = register_module_parameter_registration_hook(check)
    try:
        yield
    finally:
        hook.remove()


def load_model(path: Path | str) -> tuple[FilterNetwork, dict[str, Any]]:
    """The network of a weights file, in evaluation mode on the CPU, and its card.

    Raises MissingFileError without file or card, ModelError when the file is not what its card says.
    """
    path = Path(path)
    if not path.is_file():
        raise MissingFileError(f"{path} does not exist")
    if path.suffix != ".safetensors":
        raise ModelError(f"{path} is not a .safetensors file; pickled weights are not read, since they can run code")
    card = read_json(card_path(path))
    if not isinstance(card, dict) or card.get("schema") != CARD_SCHEMA or not isinstance(card.get("options"), dict):
        raise ModelError(f"{card_path(path)} is not a card of schema {CARD_SCHEMA}")
    if sha256_file(path) != card.get("sha256"):
        raise ModelError(f"{path} is not the file that its card describes (sha256 differs)")
    network = str(card.get("network"))[:80]
    try:
        tensors = load_file(path)
        with _no_larger_than(tensors, path):
            model = create_model(network, **card["options"])
        model.load_state_dict(tensors)
    except ModelError:
        raise
    except (SafetensorError, RuntimeError, ValueError, TypeError, OverflowError) as error:
        reason = str(error).splitlines()[0][:300]
        raise ModelError(f"{path} does not fit network {network!r}: {reason}") from error
    if not all(tensor.is_floating_point() and bool(torch.isfinite(tensor).all()) for tensor in tensors.values()):
        raise ModelError(f"{path} holds weights that are not finite real numbers")
    return model.eval(), card
