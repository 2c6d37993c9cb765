"""Networks: named planes in, filtered samples out; registry, cost and weights."""

from codecnn.models import baselines, low_cost, rdn, trunks, yuv  # noqa: F401 - registers the networks of the files
from codecnn.models.base import FilterNetwork, named_outputs
from codecnn.models.complexity import Complexity, complexity, complexity_table, full_cost, peak_memory
from codecnn.models.inference import fold, prepare
from codecnn.models.registry import create_model, describe_model, list_models
from codecnn.models.weights import load_model, save_weights

__all__ = [
    "Complexity",
    "FilterNetwork",
    "complexity",
    "complexity_table",
    "create_model",
    "describe_model",
    "fold",
    "full_cost",
    "list_models",
    "load_model",
    "named_outputs",
    "peak_memory",
    "prepare",
    "save_weights",
]
