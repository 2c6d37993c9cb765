"""Weights on disk: safetensors, and beside it a JSON card that says what they are. Nothing is ever unpickled."""

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from codecnn.errors import MissingFileError, ModelError
from codecnn.models._cost import complexity
from codecnn.models._registry import create_model
from codecnn.models.base import FilterNetwork
from codecnn.models.card import CARD_SCHEMA, Card, card_path, check_described, read_card
from codecnn.models.families.mode_network import ModeClassifier, create_mode_network
from codecnn.models.zoo import weights_path
from codecnn.runs import atomic_path, sha256_file, write_json

_TASKS = {
    "filter": ("a filter", "load_model or `codecnn filter`"),
    "modes": ("a network of intra modes", "load_mode_network or `codecnn modes predict`"),
}
"""What networks of a task are called, and what reads them."""


def save_weights(path: Path | str, model: FilterNetwork | ModeClassifier, network: str, card: dict[str, Any]) -> None:
    """Write `model` to `path` (.safetensors) and its card beside it.

    The card gets the network's task ("filter" or "modes"), name and options, its complexity (of a mode network the
    parameters alone) and the file's sha256 in addition to what `card` says.
    """
    path = Path(path)
    _write_tensors(path, model.state_dict())
    if isinstance(model, ModeClassifier):
        task, cost = "modes", {"parameters": sum(parameter.numel() for parameter in model.parameters())}
    else:
        task, cost = "filter", complexity(model).as_dict()
    base = {"schema": CARD_SCHEMA, "task": task, "network": network, "options": getattr(model, "options", {})}
    write_json(card_path(path), base | cost | {"sha256": sha256_file(path)} | card)


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


def load_model(path: Path | str) -> tuple[FilterNetwork, Card]:
    """The filter network of a weights file, in evaluation mode on the CPU, and its card.

    `path` is a file or one of the names of `list_weights`, the weights that come with the package.

        model, card = load_model("low_cost_17")
        card.kmac_per_pixel, card.qps, card.test.gain_db["y"]["mean"]

    Raises MissingFileError without file or card, ModelError when the file is not what its card says.
    """
    tensors, card = _read_with_card(Path(path), "filter")
    network = str(card.network)[:80]
    model = _filled(lambda: create_model(network, **card.options), tensors, path)
    return model.eval(), card


def load_mode_network(path: Path | str) -> tuple[ModeClassifier, Card]:
    """The mode network of a weights file, in evaluation mode on the CPU, and its card; raises as `load_model` does."""
    tensors, card = _read_with_card(Path(path), "modes")
    model = _filled(lambda: create_mode_network(str(card.network)[:80], **card.options), tensors, path)
    return model.eval(), card


def read_tensors(path: Path | str) -> tuple[dict[str, Tensor], Card | None]:
    """The tensors of a weights file by name, all finite, and its card; None for the card where none lies beside it.

    Raises MissingFileError for a file that does not exist, ModelError for a pickle, a damaged file, a card of another
    schema or of another file, and values that are not finite.
    """
    path = weights_path(path)
    if not path.is_file():
        raise MissingFileError(f"{path} does not exist")
    if path.suffix != ".safetensors":
        raise ModelError(
            f"{path} is not a .safetensors file; pickled weights are not read, since they can run code: convert a "
            "checkpoint first with codecnn.models.convert_checkpoint, which reads tensors and nothing else"
        )
    card = read_card(path) if card_path(path).is_file() else None
    if card is not None:
        check_described(path, card.sha256)
    try:
        tensors: dict[str, Tensor] = load_file(path)
    except (SafetensorError, RuntimeError, ValueError, TypeError, OverflowError) as error:
        reason = str(error).splitlines()[0][:300]
        raise ModelError(f"{path} is not a whole .safetensors file: {reason}") from error
    for name, tensor in tensors.items():
        counter = name.endswith("num_batches_tracked") and tensor.dtype == torch.int64  # of batch norm
        if not (counter or (tensor.is_floating_point() and bool(torch.isfinite(tensor).all()))):
            raise ModelError(f"{path} holds weights that are not finite real numbers, in {name[:80]}")
    return tensors, card


def convert_checkpoint(source: Path | str, target: Path | str, *, key: str | None = None) -> list[str]:
    """Write the tensors of a PyTorch checkpoint (.pt, .pth, .ckpt) as .safetensors, and return their names.

    The checkpoint is read by torch's restricted reader (`weights_only`), which builds tensors and plain containers and
    refuses everything that could run code. Where the tensors lie deeper, as in {"epoch": ..., "state_dict": ...},
    `key` says where ("state_dict"; "a.b" for two levels). No card is written: only who trained it could fill one.

    Raises MissingFileError, and ModelError for a file that needs more than tensors or has none at `key`.
    """
    source = Path(source)
    if not source.is_file():
        raise MissingFileError(f"{source} does not exist")
    try:
        state = torch.load(source, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # bytes that are no checkpoint can break the reader anywhere
        raise ModelError(
            f"{source} is refused: it is no checkpoint of plain tensors, and reading anything else of a pickle could "
            f"run code ({str(error).splitlines()[0] if str(error) else type(error).__name__})"
        ) from error
    for part in key.split(".") if key else ():
        if not isinstance(state, Mapping) or part not in state:
            raise ModelError(f"{source} has nothing at {key!r}")
        state = state[part]
    where = f" at {key!r}" if key else ""
    if not isinstance(state, Mapping) or not state:
        raise ModelError(f"{source} is not a table of tensors{where}")
    if not all(isinstance(value, Tensor) for value in state.values()):
        nested = [str(name) for name, value in state.items() if isinstance(value, Mapping)]
        raise ModelError(f"{source} holds more than tensors{where}; tables within it: {', '.join(nested) or 'none'}")
    _write_tensors(Path(target), {str(name): tensor.clone() for name, tensor in state.items()})
    return [str(name) for name in state]


def _write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    if path.suffix != ".safetensors":
        raise ModelError(f"{path}: weights are written as .safetensors")
    with atomic_path(path) as part:
        part.write_bytes(save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}))


def _read_with_card(path: Path, task: str) -> tuple[dict[str, Tensor], Card]:
    tensors, card = read_tensors(path)
    if card is None:
        raise MissingFileError(
            f"{card_path(weights_path(path))} does not exist: weights go with the card that was written beside them"
        )
    if card.task != task:
        what, reader = _TASKS.get(card.task, (f"a network for {card.task!r}", "another codecnn"))
        raise ModelError(f"{path} holds {what}, not {_TASKS[task][0]}: {reader} takes it")
    return tensors, card


Network = TypeVar("Network", bound=nn.Module)


def _filled(build: Callable[[], Network], tensors: dict[str, Tensor], path: Path | str) -> Network:
    """The network that `build` makes, no larger than the file, with the file's tensors in it."""
    try:
        with _no_larger_than(tensors, Path(path)):
            model = build()
        model.load_state_dict(tensors)
    except ModelError:
        raise
    except (RuntimeError, ValueError, TypeError, OverflowError) as error:
        raise ModelError(f"{path} does not fit its card's network: {str(error).splitlines()[0][:300]}") from error
    return model
