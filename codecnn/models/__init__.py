"""Networks: named planes in, filtered samples out; registry, cost and weights."""

from codecnn.models.base import FilterNetwork, named_outputs
from codecnn.models.cost import Complexity, complexity, complexity_table, full_cost, peak_memory
from codecnn.models.families import baselines, low_cost, rdn, trunks, yuv  # noqa: F401 - registers the networks of the files
from codecnn.models.families.mode_network import ModeNetwork, create_mode_network
from codecnn.models.finetune import freeze, parameter_groups
from codecnn.models.growth import grow
from codecnn.models.inference import fold, prepare
from codecnn.models.registry import create_model, describe_model, list_models
from codecnn.models.transfer import TransferReport, load_partial
from codecnn.models.weights import convert_checkpoint, load_mode_network, load_model, save_weights
from codecnn.models.zoo import list_weights, weights_path, zoo_cards

__all__ = [
    "Complexity",
    "FilterNetwork",
    "ModeNetwork",
    "TransferReport",
    "complexity",
    "complexity_table",
    "convert_checkpoint",
    "create_mode_network",
    "create_model",
    "describe_model",
    "fold",
    "freeze",
    "full_cost",
    "grow",
    "list_models",
    "list_weights",
    "load_mode_network",
    "load_model",
    "load_partial",
    "named_outputs",
    "parameter_groups",
    "peak_memory",
    "prepare",
    "save_weights",
    "weights_path",
    "zoo_cards",
]
