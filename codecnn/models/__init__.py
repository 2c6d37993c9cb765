"""Networks: named planes in, filtered samples out; registry, cost and weights."""

from codecnn.models import rdn  # noqa: F401 - registers the networks of the file
from codecnn.models.base import FilterNetwork
from codecnn.models.complexity import Complexity, complexity
from codecnn.models.finetune import freeze, parameter_groups
from codecnn.models.modes import ModeNetwork, create_mode_network
from codecnn.models.registry import create_model, describe_model, list_models
from codecnn.models.transfer import TransferReport, load_partial
from codecnn.models.weights import convert_checkpoint, load_mode_network, load_model, save_weights

__all__ = [
    "Complexity",
    "FilterNetwork",
    "ModeNetwork",
    "TransferReport",
    "complexity",
    "convert_checkpoint",
    "create_mode_network",
    "create_model",
    "describe_model",
    "freeze",
    "list_models",
    "load_mode_network",
    "load_model",
    "load_partial",
    "parameter_groups",
    "save_weights",
]
