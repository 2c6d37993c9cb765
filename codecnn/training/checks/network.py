"""Checks of the network and its loss: where it starts, whether it learns, what its modes and layers do."""

import itertools
import math
import time

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from codecnn.training._forward import forward_hooks
from codecnn.training.checks.base import Measured, Setup, adam, check, few, outputs, train_step
from codecnn.training.task import Batch

START_BOUND = 1e-5
"""Relative error of the first loss: an identity has that of no filter to the last bit, but for reduced precision."""
OVERFIT_DB = 1.0
OVERFIT_STEPS = 400
OVERFIT_RATE = 3e-3


class NoFilter(nn.Module):
    """Returns the decoded planes, cut to the size of the originals in the batch."""

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """{component: decoded plane (n, 1, h, w)} for every orig_* of the batch."""
        cut = {}
        for name in [key.removeprefix("orig_") for key in batch if key.startswith("orig_")]:
            decoded, (height, width) = batch[f"rec_{name}"], batch[f"orig_{name}"].shape[2:]
            top, left = (decoded.shape[2] - height) // 2, (decoded.shape[3] - width) // 2
            cut[name] = decoded[:, :, top : top + height, left : left + width]
        return cut


@check(
    "initial loss",
    "start as the identity: the last convolution at zero, and the decoded picture added to what it makes",
)
@torch.no_grad()
def check_initial_loss(setup: Setup, batches: int = 4) -> Measured:
    """The loss of the untrained network is that of no filter, to START_BOUND."""
    if setup.no_identity is not None:
        return None, setup.no_identity
    network = setup.network()
    drawn = setup.draw(batches)
    first = sum(setup.loss(network, batch).item() for batch in drawn) / batches
    none = sum(setup.loss(NoFilter(), batch).item() for batch in drawn) / batches
    # False for a loss that is not finite.
    return abs(first - none) <= START_BOUND * none, f"{first:.6g}, without a filter {none:.6g}"


@check(
    "one batch overfitted",
    "the network cannot learn what it is shown: look at the loss, at detached tensors, at what reaches the output",
)
def check_overfit(setup: Setup, seconds: float = 60) -> Measured:
    """One batch can be learnt by heart: its loss falls by OVERFIT_DB within OVERFIT_STEPS steps.

    In dB, 10·log10 of the loss before over the loss after: of a squared error the gain in PSNR. A network too slow to
    tell within `seconds` is skipped.
    """
    network, (batch,) = setup.network(), setup.draw(1)
    optimiser = adam(network, OVERFIT_RATE)
    started = time.monotonic()
    first, gain, step = math.nan, 0.0, 0
    for step in range(OVERFIT_STEPS + 1):
        loss = train_step(setup, network, optimiser, batch).item()
        first = loss if step == 0 else first
        gain = max(gain, 10 * math.log10(first / loss)) if loss > 0 and first > 0 else gain
        if gain >= OVERFIT_DB or not math.isfinite(loss):
            break
        if time.monotonic() - started > seconds:
            return None, f"{gain:.2f} dB after {step} steps, all that {seconds:.0f} s allow"
    return gain >= OVERFIT_DB, f"{gain:.2f} dB after {step} steps"


@check(
    "gradients",
    "these parameters are not used, or cut off by detach(), no_grad() or dead activations: remove or connect them",
)
def check_gradients(setup: Setup, steps: int = 5) -> Measured:
    """Gradients are finite, and within some steps every parameter that is to be trained gets one that is not zero.

    Some steps, since a last layer that starts at zero keeps gradients from all before it at the first.
    """
    network = setup.network()
    optimiser = adam(network)
    trained = {key: parameter for key, parameter in network.named_parameters() if parameter.requires_grad}
    reached: set[str] = set()
    for index, batch in enumerate(setup.draw(steps)):
        loss = setup.loss(network, batch)
        if not loss.requires_grad:
            return False, "none at all", "the loss does not depend on any parameter: look for detach()"
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        gradients = {key: parameter.grad for key, parameter in trained.items() if parameter.grad is not None}
        wild = [key for key, gradient in gradients.items() if not gradient.isfinite().all()]
        if wild or not loss.isfinite():
            where = f"in {few(wild)} at step {index + 1}" if wild else f"of the loss at step {index + 1}"
            return False, f"not finite {where}", "look for a division by zero, a root or logarithm of 0"
        reached |= {key for key, gradient in gradients.items() if gradient.any()}
        optimiser.step()
    without = [key for key in trained if key not in reached]
    if without:
        return False, f"none in {len(without)} of {len(trained)}: {few(without)}"
    return True, f"in all {len(trained)} tensors"


@check(
    "evaluation mode",
    "dropout or batch norm works as in training: use the modules, not functions with training=True, and no "
    "train() in forward",
)
@torch.no_grad()
def check_evaluation_mode(setup: Setup) -> Measured:
    """In evaluation mode the output hangs on nothing but the input.

    The same for a second call, the same for a patch alone as in its batch (batch norm that normalises by the batch
    gives another), and nothing in the network's state changes.
    """
    network, (batch,) = setup.awakened().eval(), setup.draw(1)
    before = {key: tensor.clone() for key, tensor in network.state_dict().items()}
    first, second = outputs(network, batch), outputs(network, batch)
    alone = outputs(network, {key: tensor[:1] for key, tensor in batch.items()})
    changed = [key for key, tensor in network.state_dict().items() if not torch.equal(tensor, before[key])]
    twice = max(float((a - b).abs().max()) for a, b in zip(first, second, strict=True))
    apart = max(float((a[:1] - b).abs().max()) for a, b in zip(first, alone, strict=True))
    measured = f"second call differs by {twice:.1e}, a patch alone by {apart:.1e}"
    measured += f", {few(changed)} changed" if changed else ""
    return twice == 0 and apart <= 1e-5 and not changed, measured


@check(
    "batch norm",
    "evaluation would normalise by numbers that no training made: momentum above 0, track_running_stats, and no "
    "eval() while training",
)
def check_batch_norm(setup: Setup, steps: int = 3) -> Measured:
    """Training moves the running mean and variance of every batch norm that is not frozen."""
    network = setup.network()
    norms = {
        key: module
        for key, module in network.named_modules()
        if isinstance(module, _BatchNorm) and (not module.affine or any(p.requires_grad for p in module.parameters()))
    }
    if not norms:
        return None, "the network has none to train"
    before = {key: _statistics(module) for key, module in norms.items()}
    optimiser = adam(network)
    for batch in setup.draw(steps):
        train_step(setup, network, optimiser, batch)
    still = [key for key, module in norms.items() if torch.equal(_statistics(module), before[key])]
    if still:
        return False, f"statistics of {len(still)} of {len(norms)} stand still: {few(still)}"
    return True, f"all {len(norms)} move"


def _statistics(norm: _BatchNorm) -> Tensor:
    """Running mean and variance (2·features,); empty where none are kept."""
    if norm.running_mean is None or norm.running_var is None:
        return torch.empty(0)
    return torch.cat([norm.running_mean, norm.running_var]).clone()


@check("last layer", "the error to repair has both signs: no ReLU, sigmoid, tanh or clamp behind the last layer")
@torch.no_grad()
def check_last_layer(setup: Setup) -> Measured:
    """What follows the last layer is linear: its output, however large and of either sign, reaches the picture whole.

    The output of the last convolution (or fully connected layer) that the network computes is replaced by noise t·g for
    t = 0, 1, -1, 100; an activation behind it shows as a lost sign or as saturation, whatever it is called.
    """
    network, (batch,) = setup.awakened().eval(), setup.draw(1)
    calls = _layer_calls(network, batch)
    if not calls:
        return None, "the network has no convolution"
    last = calls[-1]
    at = {t: _driven(network, batch, last, calls.count(last), t) for t in (0, 1, -1, 100)}
    up, down, far = at[1] - at[0], at[-1] - at[0], (at[100] - at[0]) / 100
    scale = float(up.abs().max().maximum(down.abs().max()))
    bend = float((up + down).abs().max().maximum((far - up).abs().max())) / scale if scale > 0 else math.inf
    return (
        bend <= 0.01,
        f"{last} bends by {bend:.1e} of its output" if scale > 0 else f"{last} does not reach the output",
    )


def _layer_calls(network: nn.Module, batch: Batch) -> list[str]:
    """The names of convolutions and fully connected layers in the order in which they are computed."""
    calls: list[str] = []
    layers = {k: module for k, module in network.named_modules() if getattr(module, "weight", torch.empty(0)).ndim >= 2}
    with forward_hooks(layers, lambda key, made: calls.append(key)):
        network(batch)
    return calls


def _driven(network: nn.Module, batch: Batch, layer: str, count: int, factor: float) -> Tensor:
    """The network's outputs, flat, with the last of `count` outputs of `layer` replaced by `factor` times noise."""
    calls = itertools.count(1)

    def replace(name: str, made: Tensor) -> Tensor | None:
        noise = torch.randn(made.shape, generator=torch.Generator().manual_seed(0))
        return factor * noise.to(made) if next(calls) == count else None

    with forward_hooks({layer: network.get_submodule(layer)}, replace):
        return torch.cat([plane.flatten() for plane in outputs(network, batch)])
