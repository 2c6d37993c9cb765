"""The rehearsal finds faults that are planted into the code; on the CPU none of them shows.

Each fault is a change of the source of one function or class, made for one test. The experiment is a small piece of
work that uses the function; it succeeds on the CPU and fails on the rehearsal device.
"""

import inspect
import signal
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from codecnn import filtering
from codecnn.api.config import checked
from codecnn.base.errors import StoppedError
from codecnn.dataset import ResidentBatches, Store, TrainingBatches, loader
from codecnn.filtering import network_filter
from codecnn.models import base, create_model, save_weights
from codecnn.pictures.files import Picture
from codecnn.training import FilterSettings, Trainer, checkpoint, execution, loop
from codecnn.training.filter import filter_task, objective
from codecnn.training.filter import task as filter_module
from codecnn.vvc.intra import costs
from tests.helpers.networks import SMALL, awaken, random_planes
from tests.helpers.rehearsal import operations, synchronisations
from tests.helpers.toy_task import run_toy

OPTIONS = SMALL | {"blocks": 1, "conditioning": "film"}


@dataclass(frozen=True)
class Place:
    """Input of an experiment.

    Attributes:
        store: A store.
        folder: An empty folder.
        device: Device to work on.
    """

    store: Store
    folder: Path
    device: str


@dataclass(frozen=True)
class Fault:
    """A fault and the experiment that shows it.

    Attributes:
        owner: Module or class whose attribute is replaced.
        name: Name of the function or class.
        changes: Text of its source, and what replaces it.
        experiment: Work that fails on the device.
        message: Regular expression of the failure.
    """

    owner: Any
    name: str
    changes: dict[str, str]
    experiment: Callable[[Place], object]
    message: str

    def plant(self, monkeypatch):
        """Replace the function or class by one of the changed source."""
        original = getattr(self.owner, self.name)
        source = textwrap.dedent(inspect.getsource(original))
        for old, new in self.changes.items():
            assert source.count(old) == 1, f"{self.name} has changed: plant the fault {old!r} elsewhere"
            source = source.replace(old, new)
        names = dict(vars(sys.modules[original.__module__])) | {"FIRST": {}}
        exec(compile(source, f"<fault in {self.name}>", "exec"), names)
        monkeypatch.setattr(self.owner, self.name, names[self.name])


def network_on(place):
    model = awaken(create_model("rdn", **OPTIONS), std=0.1).to(place.device)
    return model, {name: plane.to(place.device) for name, plane in random_planes(model, 16, 16).items()}


def forward(place):
    model, planes = network_on(place)
    return model(planes)


def forward_in_bfloat16(place):
    model, planes = network_on(place)
    types = set()
    convolutions = {name: module for name, module in model.named_modules() if isinstance(module, torch.nn.Conv2d)}
    with execution.forward_hooks(convolutions, lambda _, output: types.add(output.dtype)):
        execution.in_precision(model, "bfloat16", torch.device(place.device))(planes)
    assert types == {torch.bfloat16}


def filter_picture(place):
    weights = place.folder / "w.safetensors"
    save_weights(weights, awaken(create_model("rdn", **OPTIONS), std=0.05), "rdn", {"qps": [37]})
    luma = np.random.default_rng(0).integers(0, 1024, (24, 32)).astype(np.uint16)
    with operations() as computed:
        filtering.load_filter(weights, device=place.device).samples(Picture((luma,), 10), 37)
    assert place.device == "cpu" or computed["convolution"], "the device computes no convolution"


def task_of(place, **changes):
    content = {"steps": 4, "batch": 2, "patch": 16, "device": place.device, "threads": 1, "validation_pictures": 1}
    return filter_task(place.store, "rdn", OPTIONS, checked(FilterSettings, content | changes, "training"))


def loss(place, **changes):
    task = task_of(place, **changes)
    batch = next(task.batches(range(1), 0, 1, torch.device(place.device)))
    task.loss(task.model.to(place.device), batch).backward()


def transform_on_both(place):
    for device in ("cpu", place.device):
        objective.dct(torch.ones(2, 8, 8, device=device))


def batches(place):
    batches = task_of(place).batches(range(2), 0, 1, torch.device(place.device))
    next(batches)
    with synchronisations() as waits:
        list(batches)
    assert not waits, f"waits: {waits}"


def resident_batch(place):
    data = TrainingBatches(place.store.split("train"), batch=2, steps=1, size=16)
    return ResidentBatches(data, place.device)[0]


def costs_of_blocks(place):
    rng = np.random.default_rng(0)
    lines, samples = rng.integers(0, 1024, (3, 33)), rng.integers(0, 1024, (3, 8, 8))
    # "sse" is computed by torch on the CPU as well
    costs.block_costs(lines.astype(np.int32), samples.astype(np.uint16), 10, "sse", device=place.device)


def toy(place, **changes):
    run_toy(place.folder / "run", {"device": place.device, "steps": 3, "validate_every": 3} | changes)


def resumed_toy(place):
    changes = {"device": place.device, "steps": 6, "validate_every": 6, "ema": 0.5}
    run_toy(place.folder / "whole", changes)
    with pytest.raises(StoppedError):
        run_toy(place.folder / "parts", changes, events={("loss", 2): signal.SIGTERM})
    run_toy(place.folder / "parts", changes, resume=True)
    whole, parts = ((place.folder / name / "last.safetensors").read_bytes() for name in ("whole", "parts"))
    assert whole == parts, "the resumed run has other weights"


def steps(place):
    waits = []

    def step(self, batch, original=loop.Trainer.step):
        due = self.monitor.due()
        with synchronisations() as recorder:
            original(self, batch)
        if not due:
            waits.append(recorder)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "step", step)
        toy(place)
    assert waits
    assert not any(waits), f"waits: {waits}"


FAULTS = {
    "a tensor created without a device": Fault(
        network_filter.FloatFilter, "_filter_planes", {", device=self.device": ""}, filter_picture, "expected all"
    ),
    "numpy of a tensor on the device": Fault(
        network_filter.NetworkFilter, "samples", {".cpu().numpy()": ".numpy()"}, filter_picture, "can't convert"
    ),
    "an array that is not copied": Fault(
        network_filter, "plane_tensors", {".to(device)": ""}, filter_picture, "expected all"
    ),
    "blocks that are not copied": Fault(
        costs, "block_costs", {"astype(np.int32)).to(device)": "astype(np.int32))"}, costs_of_blocks, "expected all"
    ),
    "an option that is not passed on": Fault(
        filtering,
        "load_filter",
        {"(model, device=device": '(model, device="cpu"'},
        filter_picture,
        "computes no",
    ),
    "a mask on the CPU": Fault(
        filter_module,
        "filter_loss",
        {"count = valid.sum(": "error = error * (torch.rand(error.shape) < 2)\n        count = valid.sum("},
        loss,
        "expected all",
    ),
    "a generator of the CPU": Fault(
        filter_module.FilterTask,
        "_blend_targets",
        {
            "return batch": "plane = batch['rec_y']\n    generator = torch.Generator().manual_seed(step)\n"
            "    plane += torch.rand(plane.shape, device=plane.device, generator=generator)\n    return batch"
        },
        loss,
        "expected a generator",
    ),
    "a constant kept on the first device": Fault(
        objective,
        "dct",
        {"samples.dtype, samples.device": "samples.dtype, FIRST.setdefault('device', samples.device)"},
        transform_on_both,
        "expected all",
    ),
    "a constant that is not a buffer": Fault(
        base,
        "QpModulation",
        {
            "self.kind = kind": "self.kind = kind\n        self.steepness = torch.ones(1, 1, 1, 1)",
            "scale, offset = self.factors(qp)": "scale, offset = self.factors(qp * self.steepness)",
        },
        forward,
        "expected all",
    ),
    "an index on the CPU": Fault(
        loader.ResidentBatches,
        "__getitem__",
        {"to_device(torch.from_numpy(term).to(narrow), self.device)": "torch.from_numpy(term).to(narrow)"},
        resident_batch,
        "expected all",
    ),
    "a copy from memory that is not pinned": Fault(
        loader, "to_device", {".pin_memory()": ""}, batches, "waits.*write at dataset/loader.py"
    ),
    "memory that is pinned after the copy": Fault(
        loader,
        "to_device",
        {"tensor.pin_memory().to(device, non_blocking=True)": "tensor.to(device, non_blocking=True).pin_memory()"},
        batches,
        "waits.*write at dataset/loader.py",
    ),
    "autocast of the CPU": Fault(
        execution.Autocast, "forward", {"self._device": '"cpu"'}, forward_in_bfloat16, "float32"
    ),
    "a random state that is not seeded": Fault(
        loop.Trainer,
        "_seed",
        {"seed(number, self.process.device)": 'seed(number, torch.device("cpu"))'},
        resumed_toy,
        "the resumed run has other weights",
    ),
    "the state of the optimiser on the CPU after resuming": Fault(
        checkpoint.State,
        "load",
        {
            'self.schedule.load_state_dict(content["schedule"])': "for values in self.optimiser.state.values():\n"
            "            values.update({name: value.cpu() for name, value in values.items()})\n"
            '        self.schedule.load_state_dict(content["schedule"])'
        },
        resumed_toy,
        "expected all",
    ),
    "an average on the CPU": Fault(
        loop, "MovingAverage", {"super().__init__(model,": "super().__init__(model.cpu(),"}, toy, "expected all"
    ),
    "a number read in a step": Fault(
        loop.Trainer,
        "step",
        {"state.add_loss(loss,": "state.add_loss(torch.tensor(loss.item()),"},
        steps,
        "waits.*number at training/loop.py",
    ),
    "a condition on a tensor in a step": Fault(
        loop.Trainer,
        "step",
        {"self.monitor.gradient_norm = norm": "self.monitor.gradient_norm = norm if norm > 0 else None"},
        steps,
        "waits.*number at training/loop.py",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_the_rehearsal_finds(name, device, tiny_store, tmp_path, monkeypatch):
    fault = FAULTS[name]
    folders = {place: tmp_path / place for place in ("sound", "cpu", "device")}
    for folder in folders.values():
        folder.mkdir()
    fault.experiment(Place(tiny_store, folders["sound"], device))  # without the fault
    fault.plant(monkeypatch)
    fault.experiment(Place(tiny_store, folders["cpu"], "cpu"))
    with pytest.raises((RuntimeError, TypeError, AssertionError), match=fault.message):
        fault.experiment(Place(tiny_store, folders["device"], device))
