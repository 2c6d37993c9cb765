"""Networks on disk: weights as safetensors with a JSON card, and checkpoints of PyTorch.

No file is ever unpickled without restrictions.
"""

import contextlib
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from codecnn.base.errors import ConfigError, MissingFileError, ModelError, UserCodeWarning
from codecnn.base.files import atomic_path, sha256_file, write_json
from codecnn.base.keywords import checked_keywords
from codecnn.base.parts import weight_kinds
from codecnn.base.user_code import is_permitted, is_reference, permit, source_sha256
from codecnn.models.base import FilterNetwork
from codecnn.models.card import CARD_SCHEMA, Card, card_path, check_sha256, read_card
from codecnn.models.cost import complexity
from codecnn.models.locations import unfinished_run
from codecnn.models.zoo import create_model, weights_path

_TASKS = {
    "filter": ("a filter", "load_model or `codecnn filter`"),
}
"""Kind of network and loader by the task of a card; parts add theirs."""

_CHECKPOINT_SUFFIXES = (".pt", ".pth", ".ckpt", ".bin")
"""Suffixes of pickled weights."""

Network = TypeVar("Network", bound=nn.Module)


def save_weights(path: Path | str, model: FilterNetwork, network: str, card: dict[str, Any]) -> None:
    """Write the weights of a filter and their card.

    Args:
        path: File to write, .safetensors.
        model: The network.
        network: Name of its architecture.
        card: Further entries of the card. The function adds task, network, options, cost, the hash of the file, and for
            a network of the user the hash of its source, `code_sha256`.
    """
    write_network(path, model, network, complexity(model).as_dict(), card, task="filter")


def write_network(
    path: Path | str, model: nn.Module, network: str, cost: Mapping[str, Any], card: dict[str, Any], *, task: str
) -> None:
    """Write the weights of a network for any task and their card; see `save_weights`.

    Args:
        path: File to write, .safetensors.
        model: The network.
        network: Name of its architecture.
        cost: Entries of the card on the cost of the network.
        card: Further entries of the card.
        task: Task of the card, e.g. "filter".
    """
    path = Path(path)
    _write_tensors(path, model.state_dict())
    base = {"schema": CARD_SCHEMA, "task": task, "network": network, "options": getattr(model, "options", {})}
    code = code_sha256(model)
    facts = {"sha256": sha256_file(path)} | ({} if code is None else {"code_sha256": code})
    write_json(card_path(path), base | dict(cost) | facts | card)


def code_sha256(model: nn.Module) -> str | None:
    """Hash the source files of the classes of a network and its parts.

    Returns:
        The sha256; None if all classes are from codecnn and torch, or if a class is in no file.
    """
    with contextlib.suppress(ConfigError):
        return source_sha256(type(module) for module in model.modules())
    return None


def check_permitted(card: Card, path: Path | str, *, trust: bool = False) -> None:
    """Check that the user has permitted the code that a card names; a card of an architecture of codecnn names none.

    Args:
        card: The card.
        path: The weights file, for the message.
        trust: Permit what the card names.

    Raises:
        ModelError: The code has not been permitted.
    """
    name = str(card.network)
    if not is_reference(name) or is_permitted(name):
        return
    if not trust:
        raise ModelError(
            f"{path} is of the network {name}, whose code is not part of codecnn and is not run unasked: if you trust "
            f"it, add --trust {name} (in Python trust=True)"
        )
    permit(name)


@contextlib.contextmanager
def _no_larger_than(tensors: Mapping[str, Tensor], path: Path) -> Iterator[None]:
    """Raise ModelError as soon as a network under construction has a parameter that `tensors` does not have.

    Options on a card can ask for a network that does not fit into memory. PyTorch reports each parameter when it is
    registered, before it is initialised.
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


@checked_keywords()
def load_model(path: Path | str, *, trust: bool = False) -> tuple[FilterNetwork, Card]:
    """Load a filter network and its card.

        model, card = load_model("low_cost_17")
        card.kmac_per_pixel, card.qps, card.test.gain_db["y"]["mean"]

    Args:
        path: A weights file, or what `weights_path` takes: a name such as "low_cost_17.vvc_video", a folder, or
            hf://owner/name.
        trust: Import the code that the card names if it is of a network outside of codecnn. Without it, such code is
            imported only if it was named before: in a configuration, with `create_model` or with `permit`.

    Returns:
        The network in evaluation mode on the CPU, and its card.

    Raises:
        MissingFileError: The file or its card does not exist.
        ModelError: The file does not match its card, or its card names code that is not permitted.
    """
    path = weights_path(path)
    tensors, card = _read_with_card(path, "filter")
    check_permitted(card, path, trust=trust)
    network = str(card.network) if is_reference(str(card.network)) else str(card.network)[:80]
    # Code of the user may share, replace and discard parameters, and whoever permits it trusts it with the memory.
    bounded = not is_reference(network)
    model = _load_into(lambda: create_model(network, **card.options), tensors, path, bounded=bounded)
    if card.code_sha256 not in (None, code_sha256(model)):
        warnings.warn(
            f"the source of {network} has changed since {path} was written: the network may compute something else",
            UserCodeWarning,
            stacklevel=2,
        )
    return model.eval(), card


def load_network(path: Path | str, task: str, create: Callable[[Card], Network]) -> tuple[Network, Card]:
    """Load a network of any task, in evaluation mode on the CPU, and its card; errors as `load_model`.

    Args:
        path: A weights file, or the name of shipped weights.
        task: Task that the card must have.
        create: Creates the network from its card.
    """
    tensors, card = _read_with_card(Path(path), task)
    return _load_into(lambda: create(card), tensors, path).eval(), card


def read_tensors(path: Path | str, task: str | None = None) -> tuple[dict[str, Tensor], Card | None]:
    """Read the tensors of a weights file.

    Args:
        path: A weights file, or the name of shipped weights.
        task: Task that a card, if there is one, must have.

    Returns:
        Tensors by name, and the card, or None if the file has none.

    Raises:
        MissingFileError: The file does not exist.
        ModelError: The file is a pickle or damaged, or does not match its card.
    """
    path = weights_path(path)
    if not path.is_file():
        raise MissingFileError(unfinished_run(path.parent) or f"{path} does not exist")
    if path.suffix in _CHECKPOINT_SUFFIXES:
        raise ModelError(
            f"{path} is not a .safetensors file; pickled weights are not read, since they can run code: convert a "
            "checkpoint first with codecnn.models.convert_checkpoint, which reads tensors and nothing else"
        )
    if path.suffix != ".safetensors":
        kind = "an ONNX file for other programs, which" if path.suffix == ".onnx" else "a file that"
        raise ModelError(f"{path} is {kind} codecnn does not read as weights: name a .safetensors file with its card")
    card = read_card(path) if card_path(path).is_file() else None
    if card is not None:
        check_sha256(path, card.sha256)
        if task is not None and card.task != task:
            kinds = _TASKS | weight_kinds()
            kind, reader = kinds.get(card.task, (f"a network for {card.task!r}", "another codecnn"))
            raise ModelError(f"{path} holds {kind}, not {kinds[task][0]}: {reader} takes it")
    try:
        tensors: dict[str, Tensor] = load_file(path)
    except (SafetensorError, RuntimeError, ValueError, TypeError, OverflowError) as error:
        reason = str(error).splitlines()[0][:300]
        raise ModelError(f"{path} is not a whole .safetensors file: {reason}") from error
    return tensors, card


def check_tensor(name: str, tensor: Tensor, target: Tensor, source: Path | str, *, finite: bool = False) -> None:
    """Check that a tensor of a file is one for a parameter or a buffer of a network, which is a copy of it then.

    Buffers, and parameters that are not trained, may hold any values, such as a mask of minus infinity or NaN.

    Args:
        name: Name of the tensor.
        tensor: The tensor of the file.
        target: The parameter or buffer.
        source: The file, for the message.
        finite: Whether buffers must be finite as well.

    Raises:
        ModelError: A trained parameter is not finite, or the types differ: only numbers of floating point may have
            another precision in the file.
    """
    floating = tensor.is_floating_point() and target.is_floating_point()
    if not floating and tensor.dtype != target.dtype:
        kinds = (str(each.dtype).removeprefix("torch.") for each in (tensor, target))
        raise ModelError(f"{source}: {name[:80]} holds {', and the network takes '.join(kinds)}")
    if floating and (target.requires_grad or finite) and not bool(torch.isfinite(tensor).all()):
        raise ModelError(f"{source} holds weights that are not finite real numbers, in {name[:80]}")


def convert_checkpoint(source: Path | str, target: Path | str, *, key: str | None = None) -> list[str]:
    """Convert a PyTorch checkpoint (.pt, .pth, .ckpt) to .safetensors, without a card.

    The checkpoint is read by PyTorch's restricted reader (`weights_only`), which builds tensors and plain containers
    and refuses everything that could run code.

    Args:
        source: The checkpoint.
        target: File to write, .safetensors.
        key: Location of the tensors in nested dictionaries, e.g. "state_dict", or "a.b" for two levels.

    Returns:
        Names of the tensors.

    Raises:
        MissingFileError: The checkpoint does not exist.
        ModelError: The checkpoint contains more than tensors, or has none at `key`.
    """
    source = Path(source)
    if not source.is_file():
        raise MissingFileError(f"{source} does not exist")
    try:
        state = torch.load(source, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # invalid bytes can raise any exception in the reader
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
        part.write_bytes(
            save(
                {
                    name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
                    for name, tensor in tensors.items()
                }
            )
        )


def _read_with_card(path: Path, task: str) -> tuple[dict[str, Tensor], Card]:
    tensors, card = read_tensors(path, task)
    if card is None:
        raise MissingFileError(
            f"{card_path(weights_path(path))} does not exist: weights go with the card that was written beside them"
        )
    return tensors, card


def _load_into(
    build: Callable[[], Network], tensors: dict[str, Tensor], path: Path | str, *, bounded: bool = True
) -> Network:
    """Build a network, if `bounded` one that is not larger than the file, and load the file's tensors into it."""
    try:
        with _no_larger_than(tensors, Path(path)) if bounded else contextlib.nullcontext():
            model = build()
        targets = model.state_dict(keep_vars=True)
        for name in targets.keys() & tensors.keys():
            check_tensor(name, tensors[name], targets[name], path, finite=bounded)
        model.load_state_dict(tensors)
    except ModelError:
        raise
    except Exception as error:  # the options of a card can raise anything in a network, and so can code of the user
        reason = (str(error).splitlines() or [type(error).__name__])[0][:300]
        raise ModelError(f"{path} does not fit its card's network: {reason}") from error
    return model
