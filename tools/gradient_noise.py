"""How much of a gradient is signal, by what a batch is made of: python tools/gradient_noise.py low_cost_17 --store ...

The gradients g of single patches have a mean, which every step follows, and a scatter around it. What matters is the
ratio |E g|² / E|g - E g|² of one patch: a batch of n patches has n times that. It is measured for the originals as
targets and for a teacher's pictures, for patches drawn evenly and by their error, whole ones and such that count only
where they have their context; and how much of the scatter is each QP's.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from codecnn.dataset import Store, open_store
from codecnn.models import load_model
from codecnn.planes import QP_SCALE
from codecnn.training import FilterSettings
from codecnn.training.filter import filter_task

SETUPS: dict[str, dict[str, Any]] = {
    "originals": {},
    "teacher": {"teacher": {"weights": "low_cost_75", "original": [0.0, 0.0]}},
    "originals, patches by error^0.5 and 1/p": {"error_exponent": 0.5, "keep_objective": True},
    "originals, patches by error and 1/p": {"error_exponent": 1.0, "keep_objective": True},
    "originals, 96x96": {"patch": 96},
    "originals, 96x96, of which 48x48 count": {"patch": 96, "border": 24},
}


@dataclass(frozen=True)
class Noise:
    """Of the gradients of single patches: signal to noise, and each QP's share of the scatter."""

    ratio: float
    by_qp: dict[int, float]


def noise(gradients: Tensor, qps: Sequence[int]) -> Noise:
    """The noise of gradients (n, parameters) of patches of the given QPs.

    |E g|² is estimated without bias: the squared norm of the mean of n is larger by an n-th of the scatter.
    """
    mean = gradients.mean(dim=0)
    scatter = (gradients - mean).square().sum(dim=1)
    total = float(scatter.sum()) / (len(gradients) - 1)
    signal = float(mean.square().sum()) - total / len(gradients)
    shares = {qp: float(scatter[[own == qp for own in qps]].sum() / scatter.sum()) for qp in sorted(set(qps))}
    return Noise(signal / total, shares)


def patch_gradients(
    store: Store, network: str, weights: str | None, settings: FilterSettings
) -> tuple[Tensor, list[int]]:
    """The gradients of the patches of one batch (batch, parameters), and their QPs."""
    torch.manual_seed(settings.seed)
    options = {} if weights is None else dict(load_model(weights)[1].options)
    task = filter_task(store, network, options, settings)
    model = task.model.train()
    (batch,) = task.batches(range(1), 0, 1, torch.device("cpu"))
    if weights is None:
        # The last convolution starts at zero, and all others without a gradient: one sample of what follows.
        torch.nn.init.normal_(model.get_submodule("tail").weight, std=1e-3)
    rows = []
    for index in range(settings.batch):
        model.zero_grad(set_to_none=True)
        task.loss(model, {name: tensor[index : index + 1] for name, tensor in batch.items()}).backward()
        rows.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    return torch.stack(rows), [round(float(qp) * QP_SCALE) for qp in batch["qp"].flatten()]


def main() -> None:
    """Measure all set-ups and print a line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", help="a name of `codecnn models`")
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--weights", help="weights to measure at: a name or a file [a random start]")
    parser.add_argument("--patches", type=int, default=512, help="patches of each set-up")
    parser.add_argument("-o", "--output", type=Path, help="the figures as JSON")
    args = parser.parse_args()
    torch.set_num_threads(1)  # single patches are small, and idle threads only slow down what else runs
    store, found = open_store(args.store), {}
    start = {"start": {"weights": args.weights}} if args.weights else {}
    for name, changes in SETUPS.items():
        settings = FilterSettings(**{"batch": args.patches, "patch": 48, "threads": 1} | start | changes)
        measured = noise(*patch_gradients(store, args.network, args.weights, settings))
        found[name] = vars(measured)
        shares = ", ".join(f"QP {qp} {share:.0%}" for qp, share in measured.by_qp.items())
        samples = (settings.patch - 2 * settings.border) ** 2 / 48**2
        print(f"{name:42} {measured.ratio:9.5f} a patch, {samples:.0f} x 48x48 samples counted; scatter: {shares}")
    if args.output is not None:
        args.output.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
