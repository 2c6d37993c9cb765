"""Which of a network's parameters play which part, for optimisers that treat them differently."""

from torch import nn

from codecnn.models._conditioning import QpModulation


def hidden_weights(model: nn.Module) -> list[nn.Parameter]:
    """Weights (out, in, h, w) of the convolutions that lead from features to features, between all channels.

    Left out are the convolutions that a network defines first and last, which look at samples and make them, and those
    in groups, whose weights are many small filters and no matrix.
    """
    convolutions = [module for module in model.modules() if isinstance(module, nn.Conv2d | nn.ConvTranspose2d)]
    weights = [module.weight for module in convolutions[1:-1] if module.groups == 1]
    return [weight for weight in weights if isinstance(weight, nn.Parameter)]


def modulation_parameters(model: nn.Module) -> list[nn.Parameter]:
    """Parameters of what scales the features by the QP (`QpModulation`)."""
    modulations = [module for module in model.modules() if isinstance(module, QpModulation)]
    return [parameter for module in modulations for parameter in module.parameters()]
