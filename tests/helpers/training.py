"""Training in tests: a filter on opened stores, what a run has told and kept, a network with functions around it."""

import json
import time

import torch
from torch import nn

from codecnn.config import FilterConfig
from codecnn.dataset import Store
from codecnn.training import train


def train_filter(data, network, options, settings, run, **how):
    """`train` of a filter on a store, or on a list of stores and their shares."""
    mix = [(data, 1.0)] if isinstance(data, Store) else data
    stores = [{"store": str(store.folder), "share": share} for store, share in mix]
    return train(
        FilterConfig(stores=stores, model={"name": network, "options": options}, training=settings), run, **how
    )


def write_config(path, store, options, **settings):
    """A configuration of an RDN on a store, as YAML (JSON is one)."""
    model = {"name": "rdn", "options": options}
    path.write_text(json.dumps({"store": str(store.folder), "model": model, "training": settings}))
    return path


def lines(path):
    """The values of a file of JSON lines; none where there is no file yet."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def rows(run):
    """The rows of a run's metrics.jsonl."""
    return lines(run / "metrics.jsonl")


def step_of(run):
    """The step of a run's checkpoint."""
    return torch.load(run / "checkpoint.pt", weights_only=True)["step"]


def wait_for_checkpoint(run, process):
    """Until the run has one, or its process has ended."""
    while not (run / "checkpoint.pt").exists() and process.poll() is None:
        time.sleep(0.02)


def weights_of(run, name="last"):
    """The bytes of a run's weights."""
    return (run / f"{name}.safetensors").read_bytes()


class Around(nn.Module):
    """A network with a function on its input, and one on what it returns."""

    def __init__(self, network, before=lambda batch: batch, after=lambda made, batch: made):
        super().__init__()
        self.network, self.before, self.after = network, before, after

    def forward(self, batch):
        batch = self.before(batch)
        return self.after(self.network(batch), batch)
