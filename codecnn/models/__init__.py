"""Networks: named planes in, filtered samples out.

networks     `create_model`, `list_models`, `describe_model`; `FilterNetwork` is what they are, `named_outputs` what
             they return by component; `ModeNetwork` and `ModeSketch`, made by `create_mode_network`, tell intra modes
weights      `load_model`, `load_mode_network`, `save_weights`, `Card`; those of the package: `list_weights`,
             `weights_path`, `zoo_cards`; from elsewhere: `convert_checkpoint`
cost         `complexity` (a `Complexity`), `peak_memory`, `full_cost`, `complexity_table`
to filter    `fold`, `prepare`, `pick_device`; `build_graph` for export and integers
to train     `load_partial` (a `TransferReport`), `grow`, `lift`, `revive`, `freeze`, `parameter_groups`;
             `QpModulation`, which training looks after
"""

from codecnn.models._conditioning import QpModulation
from codecnn.models._cost import Complexity, complexity, complexity_table, full_cost, peak_memory
from codecnn.models._growth import grow
from codecnn.models._lift import lift
from codecnn.models._registry import create_model, describe_model, list_models
from codecnn.models._revive import revive
from codecnn.models._transfer import TransferReport, load_partial
from codecnn.models._weights import convert_checkpoint, load_mode_network, load_model, save_weights
from codecnn.models.base import FilterNetwork, named_outputs
from codecnn.models.card import Card
from codecnn.models.device import pick_device
from codecnn.models.families.mode_network import ModeClassifier, ModeNetwork, create_mode_network
from codecnn.models.families.mode_sketch import ModeSketch
from codecnn.models.finetune import freeze, parameter_groups
from codecnn.models.inference import build_graph, fold, prepare
from codecnn.models.zoo import list_weights, weights_path, zoo_cards

__all__ = [
    "Card",
    "Complexity",
    "FilterNetwork",
    "ModeClassifier",
    "ModeNetwork",
    "ModeSketch",
    "QpModulation",
    "TransferReport",
    "build_graph",
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
    "lift",
    "list_models",
    "list_weights",
    "load_mode_network",
    "load_model",
    "load_partial",
    "named_outputs",
    "parameter_groups",
    "peak_memory",
    "pick_device",
    "prepare",
    "revive",
    "save_weights",
    "weights_path",
    "zoo_cards",
]
