"""The demo: build, train, evaluate and correlate on the pictures of scikit-image."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from codecnn.api.config import bundled, load_config, load_recipe
from codecnn.base.errors import StoppedError
from codecnn.base.parts import find_extension, missing_part
from codecnn.dataset import Store, build_store
from codecnn.evaluation import Entry, evaluate
from codecnn.filtering import FloatFilter
from codecnn.models import load_model, weights_path
from codecnn.training import CHECKPOINT, train

SHIPPED = "low_cost_17"
"""Shipped weights that are evaluated for comparison."""


def run_demo(output: Path, *, jobs: int, say: Callable[[str], None], progress: Callable[..., Any]) -> dict[str, Any]:
    """Run the demo; steps that an earlier run finished are not repeated.

    Args:
        output: Folder for all files.
        jobs: Number of encoders that run at the same time.
        say: Called with a line of text at the start of each step.
        progress: Context manager `progress(description, unit)` that provides a function of (done, total).

    Returns:
        "evaluation": results of the trained network and of `SHIPPED`; "correlation": content of correlation.json,
        unless the part analysis is absent.
    """
    say("1/4 Training set: pictures coded with libvvenc at five QPs")
    recipe = bundled("datasets/demo.yaml")
    with progress("coding", "unit") as report:
        folder = output / "stores" / "demo"
        advice = f"name another folder with -o, or remove {folder}"
        store = build_store(load_recipe(recipe), recipe.parent, folder, jobs=jobs, progress=report, advice=advice)
    say("2/4 Training: a small RDN on these pictures")
    weights = _train(output, store)
    say(f"3/4 Evaluation on pictures that were not used for training, together with the shipped weights {SHIPPED}")
    entries = []
    for name, path in (("demo", weights), (SHIPPED, weights_path(SHIPPED))):
        network, card = load_model(path)
        entries.append(Entry(name, card, FloatFilter(network)))
    with progress("filtering", "unit") as report:
        results = evaluate(entries, store, "test", output / "evaluation", progress=report)
    say("4/4 Correlation of QP and CU depth, read from the bitstreams, with the coding error of libvvenc")
    correlate = find_extension("analysis.correlate_store")
    if correlate is None:
        say(f"skipped: {missing_part('analysis')}")
        return {"evaluation": results}
    return {"evaluation": results, "correlation": correlate(store.folder, output / "correlation").as_json()}


def _train(output: Path, store: Store) -> Path:
    config = load_config(bundled("configs/demo.yaml"), [f"store={json.dumps(str(store.folder))}"])
    run = output / "runs" / "demo"
    try:
        return train(config, run, resume=(run / CHECKPOINT).exists(), progress=True).weights
    except StoppedError as error:
        raise StoppedError("stopped: run the same command again to continue", error.signal) from None
