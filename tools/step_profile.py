"""Profile one training step, and bound the steps per second of a GPU: python tools/step_profile.py [options].

Operators, copies, bytes and floating-point operations are counted on the rehearsal device of the tests, which takes the
same path as a GPU: fused optimiser, asynchronous copies, no oneDNN. The times are those of this processor:

- `host`: processor time of a step on a tiny patch, mostly Python and PyTorch. A GPU gets no more steps per second from
  one process that starts every operator.
- the largest shares of a step of full size, by torch.profiler.

The bounds of the GPU are those of a roofline: each operator takes at least its operations divided by the peak and its
bytes divided by the bandwidth, as the data sheet of the NVIDIA H100 SXM gives them. Every operand is counted as read
from memory once and every result as written once, without fusion.
"""

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from codecnn.dataset import Unit
from codecnn.training import Trainer
from tests.helpers import rehearsal
from tools.bench._report import machine, versions
from tools.bench.training import bench_units
from tools.gpu import NETWORKS, Sizes, codecnn_trainer

BANDWIDTH = 3.35e12
"""Bytes per second of the memory of an H100 SXM (NVIDIA H100 Tensor Core GPU, data sheet)."""
PEAKS = {"float32": 67e12, "tf32": 495e12, "bfloat16": 989e12}
"""Floating-point operations per second of an H100 SXM, without sparsity (same data sheet)."""
WITHOUT_KERNEL = ("empty", "detach", "alias", "_unsafe_view", "set_", "lift_fresh", "_local_scalar_dense")
"""Beginnings of names of operators that start no kernel, besides views."""
COPIES = ("copy_", "_to_copy", "clone", "_copy_from")
PHASES = ("batch", "forward", "loss", "backward", "clipping", "optimiser", "averaging", "rest")
WARM_UP = 2
"""Steps before the profiled one."""


@dataclass
class Ledger:
    """Counts of one phase of a step.

    Attributes:
        operators: Operators that start a kernel.
        copies: Operators among them that only copy.
        bytes: Bytes of all operands and results.
        flops: Floating-point operations of convolutions and matrix products.
        seconds: Lower bound of the time on an H100 by the name of a peak.
        names: Number of operators by name.
    """

    operators: int = 0
    copies: int = 0
    bytes: int = 0
    flops: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PEAKS, 0.0))
    names: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, size: int, flops: int) -> None:
        """Add an operator."""
        self.operators += 1
        self.names[name] = self.names.get(name, 0) + 1
        self.copies += name in COPIES
        self.bytes += size
        self.flops += flops
        for peak, speed in PEAKS.items():
            self.seconds[peak] += max(size / BANDWIDTH, flops / speed)


class Counting(TorchDispatchMode):
    """Context that counts the operators of each phase; `phase` is the current one."""

    def __init__(self) -> None:
        super().__init__()
        self.phase = "rest"
        self.ledgers = {phase: Ledger() for phase in PHASES}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        is_view = any(value.alias_info is not None and not value.alias_info.is_write for value in func._schema.returns)
        if is_view or name.startswith(WITHOUT_KERNEL):
            return out
        tensors = [x for x in pytree.tree_leaves((args, kwargs or {}, out)) if isinstance(x, Tensor)]
        if any(x.device.type == rehearsal.NAME for x in tensors):
            size = sum(x.numel() * x.element_size() for x in tensors)
            self.ledgers[self.phase].add(name, size, operations(func.overloadpacket, args, out))
        return out

    def within(self, phase: str, call: Any) -> Any:
        """Return a function that calls `call` in a phase."""

        def run(*args: Any, **kwargs: Any) -> Any:
            before, self.phase = self.phase, phase
            try:
                return call(*args, **kwargs)
            finally:
                self.phase = before

        return run

    @contextlib.contextmanager
    def phases_of(self, trainer: Trainer) -> Iterator[None]:
        """Follow the phases of a trainer's steps within the context."""
        state = trainer.state
        with contextlib.ExitStack() as stack:
            for owner, name, phase in (
                (trainer.network, "forward", "forward"),
                (type(trainer.task), "loss", "loss"),
                (Tensor, "backward", "backward"),
                (nn.utils, "clip_grad_norm_", "clipping"),
                (state.optimiser, "step", "optimiser"),
                (state.averaged, "update_parameters", "averaging"),
            ):
                stack.enter_context(mock.patch.object(owner, name, self.within(phase, getattr(owner, name))))
            yield


def operations(operator: Any, args: Sequence[Any], out: Any) -> int:
    """Return the floating-point operations of a convolution or matrix product, 0 for other operators.

    A multiply-accumulate is two. PyTorch's own count is too high for the gradients of grouped convolutions.
    """
    if operator is torch.ops.aten.convolution:
        return 2 * out.numel() * args[1][0].numel()
    if operator is torch.ops.aten.convolution_backward:
        gradient, weight, output_mask = args[0], args[2], args[-1]
        return 2 * gradient.numel() * weight[0].numel() * sum(output_mask[:2])
    formula = flop_registry.get(operator)
    return 0 if formula is None else int(formula(*args, out_val=out))


def warm_up(trainer: Trainer) -> None:
    """Take the first steps; the loop measures the first one."""
    for _ in range(WARM_UP):
        trainer.step(next(trainer.batches))


def count_step(network: str, units: list[Unit], sizes: Sizes, precision: str) -> dict[str, Any]:
    """Count one step on the rehearsal device, by phase, and where it waits for the device."""
    with pytest.MonkeyPatch.context() as patch:
        rehearsal.patch(patch)
        # Operators on lists of tensors, which clipping uses on a GPU, are for the plain classes of tensors.
        types = torch.utils._foreach_utils._foreach_supported_types
        patch.setattr(torch.utils._foreach_utils, "_foreach_supported_types", [*types, rehearsal.AccTensor])
        device = torch.device(rehearsal.NAME, 0)
        with codecnn_trainer(network, units, device, sizes, precision, compiled=False) as trainer:
            warm_up(trainer)
            with Counting() as counting, counting.phases_of(trainer), rehearsal.synchronisations() as waits:
                batch = counting.within("batch", next)(trainer.batches)
                trainer.step(batch)
    return {"phases": {name: asdict(part) for name, part in counting.ledgers.items()}, "waits": dict(waits)}


def profile_step(network: str, units: list[Unit], sizes: Sizes, precision: str) -> dict[str, Any]:
    """Profile one step on the CPU; return its seconds, the number of operators and the operators with most time."""
    with codecnn_trainer(network, units, torch.device("cpu"), sizes, precision, compiled=False) as trainer:
        warm_up(trainer)
        batch = next(trainer.batches)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
            trainer.step(batch)
    averages = profiler.key_averages()
    total = sum(event.self_cpu_time_total for event in averages)
    largest = sorted(averages, key=lambda event: -event.self_cpu_time_total)[:6]
    operators = sum(event.count for event in averages if event.key.startswith("aten::"))
    shares = {event.key: round(event.self_cpu_time_total / total, 3) for event in largest}
    return {"seconds": total / 1e6, "operators": operators, "shares": shares}


def host_seconds(network: str, units: list[Unit], precision: str, steps: int) -> float:
    """Return the least processor time of a step on one patch of 16x16 samples; other programs only add to it."""
    sizes = Sizes((16, 16), patch=16, batch=1, warm_up=1, steps=steps, pictures=1, turns=1, compiled=False)
    adamw = torch.optim.AdamW

    def fused_adamw(*args: Any, **kwargs: Any) -> torch.optim.AdamW:
        return adamw(*args, **kwargs | {"fused": True})  # as on a GPU

    with (
        mock.patch.object(torch.optim, "AdamW", fused_adamw),
        codecnn_trainer(network, units, torch.device("cpu"), sizes, precision, compiled=False) as trainer,
    ):
        times = []
        for _ in range(WARM_UP + steps):
            batch = next(trainer.batches)
            started = time.process_time()
            trainer.step(batch)
            times.append(time.process_time() - started)
    return min(times[WARM_UP:])


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Format the results as two Markdown tables: counts by phase, and bounds."""
    lines = ["| network, precision | " + " | ".join(PHASES) + " | all | copies | waits |"]
    lines.append("|---|" + "---:|" * (len(PHASES) + 3))
    for row in rows:
        counts = [row["phases"][phase]["operators"] for phase in PHASES]
        copies = sum(part["copies"] for part in row["phases"].values())
        cells = [*counts, sum(counts), copies, sum(row["waits"].values())]
        lines.append(f"| `{row['network']}`, {row['precision']} | " + " | ".join(map(str, cells)) + " |")
    lines += ["", "| network, precision | GFLOP | GB | FLOP per byte | bound of an H100, steps/s | host, steps/s |"]
    lines.append("|---|---:|---:|---:|---:|---:|")
    for row in rows:
        flops, size = (sum(part[key] for part in row["phases"].values()) for key in ("flops", "bytes"))
        for peak in ("bfloat16",) if row["precision"] == "bfloat16" else ("float32", "tf32"):
            seconds = sum(part["seconds"][peak] for part in row["phases"].values())
            cells = f"{flops / 1e9:.1f} | {size / 1e9:.2f} | {flops / size:.0f} | {1 / seconds:.0f}"
            lines.append(f"| `{row['network']}`, {peak} | {cells} | {1 / row['host_seconds']:.0f} |")
    return "\n".join(lines)


def main(argv: Sequence[str]) -> None:
    """Measure, print the tables, and write the figures."""
    parser = argparse.ArgumentParser(
        prog="step_profile.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--network", action="append", help=f"network; may be repeated [{', '.join(NETWORKS)}]")
    parser.add_argument("--batch", type=int, default=16, help="patches per step [16]")
    parser.add_argument("--patch", type=int, default=128, help="width and height of a patch [128]")
    parser.add_argument("--steps", type=int, default=60, help="steps on a tiny patch [60]")
    parser.add_argument("-o", "--output", type=Path, help="file of the figures, .json")
    options = parser.parse_args(argv)
    sizes = Sizes((64, 64), options.patch, options.batch, 1, 1, 1, 1, compiled=False)
    torch.set_num_threads(1)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        units = bench_units(Path(folder))
        rehearsal.register()  # PyTorch counts the devices at its first backward pass
        for name in options.network or NETWORKS:
            for precision in ("float32", "bfloat16"):
                rows.append({"network": name, "precision": precision, "batch": options.batch, "patch": options.patch})
                rows[-1]["host_seconds"] = host_seconds(name, units, precision, options.steps)
                rows[-1]["profile"] = profile_step(name, units, sizes, precision)
        for row in rows:
            row |= count_step(row["network"], units, sizes, row["precision"])
    if options.output is not None:
        facts = {"machine": machine(), "versions": versions("torch numpy")}
        options.output.write_text(json.dumps(facts | {"rows": rows}, indent=1))
    print(table(rows))
    for row in rows:
        shares = ", ".join(f"{name} {share:.0%}" for name, share in row["profile"]["shares"].items())
        print(f"{row['network']}, {row['precision']} on this CPU: {row['profile']['seconds']:.2f} s, {shares}")


if __name__ == "__main__":
    main(sys.argv[1:])
