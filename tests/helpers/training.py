"""Training in tests: filters on opened stores, files of a run, and a network wrapped by functions."""

import json
import time

import torch
from torch import nn

from codecnn.api.config import FilterConfig
from codecnn.dataset import Store
from codecnn.training import train


def train_filter(data, network, options, settings, run, **arguments):
    """Train a filter on a store, or on a list of stores and their shares."""
    mix = [(data, 1.0)] if isinstance(data, Store) else data
    stores = [{"store": str(store.folder), "share": share} for store, share in mix]
    return train(
        FilterConfig(stores=stores, model={"name": network, "options": options}, training=settings), run, **arguments
    )


def write_config(path, store, options, **settings):
    """Write a configuration of an RDN on a store, as JSON, which is also YAML."""
    model = {"name": "rdn", "options": options}
    path.write_text(json.dumps({"store": str(store.folder), "model": model, "training": settings}))
    return path


def lines(path):
    """Return the values of a file of JSON lines; empty if the file does not exist."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def rows(run):
    """Return the rows of metrics.jsonl of a run."""
    return lines(run / "metrics.jsonl")


def step_of(run):
    """Return the step of the checkpoint of a run."""
    return torch.load(run / "checkpoint.pt", weights_only=True)["step"]


def wait_for_checkpoint(run, process):
    """Wait until the run has a checkpoint, or its process has ended."""
    while not (run / "checkpoint.pt").exists() and process.poll() is None:
        time.sleep(0.02)


def weights_of(run, name="last"):
    """Return the bytes of the weights of a run."""
    return (run / f"{name}.safetensors").read_bytes()


class Wrapped(nn.Module):
    """Network with a function applied to its input and one to its output."""

    def __init__(self, network, before=lambda batch: batch, after=lambda output, batch: output):
        super().__init__()
        self.network, self.before, self.after = network, before, after

    def forward(self, batch):
        batch = self.before(batch)
        return self.after(self.network(batch), batch)
