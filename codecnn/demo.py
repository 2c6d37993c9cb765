"""The demo: all four jobs on the pictures that come with scikit-image."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from codecnn.analysis import correlate, load_table, write_correlation
from codecnn.config import bundled, load_config, load_recipe
from codecnn.dataset import Store, build_store
from codecnn.evaluation import Entry, evaluate
from codecnn.filtering import FloatFilter
from codecnn.models import load_model, weights_path
from codecnn.training import CHECKPOINT, train

SHIPPED = "low_cost_17"


def run_demo(output: Path, *, jobs: int, say: Callable[[str], None], progress: Callable[..., Any]) -> dict[str, Any]:
    """Build, train, evaluate and correlate below `output`; what an earlier run finished is kept.

    `say` gets a line a step; `progress(description, unit)` is a context manager that gives a function of
    (done, total). Returns {"evaluation": the results of the demo's network and of SHIPPED, "correlation":
    correlation.json}.
    """
    say("1/4 Training set: real pictures coded by libvvenc at five QPs")
    recipe = bundled("datasets/demo.yaml")
    with progress("coding", "unit") as report:
        store = build_store(load_recipe(recipe), recipe.parent, output / "stores" / "demo", jobs=jobs, progress=report)
    say("2/4 Training: an RDN on those pictures")
    weights = _train(output, store)
    say("3/4 Evaluation: pictures that the network never saw; beside it weights that come with codecnn")
    entries = []
    for name, path in (("demo", weights), (SHIPPED, weights_path(SHIPPED))):
        network, card = load_model(path)
        entries.append(Entry(name, card, FloatFilter(network)))
    with progress("filtering", "unit") as report:
        results = evaluate(entries, store, "test", output / "evaluation", progress=report)
    say("4/4 Correlation: QP and CU depth, read from the bitstreams, against the error that libvvenc leaves")
    columns = load_table(store.folder)
    correlation = correlate(columns)
    write_correlation(output / "correlation", correlation, columns)
    return {"evaluation": results, "correlation": correlation.as_json()}


def _train(output: Path, store: Store) -> Path:
    config = load_config(bundled("configs/demo.yaml")).model_copy(update={"store": str(store.folder)})
    run = output / "runs" / "demo"
    return train(config, run, resume=(run / CHECKPOINT).exists(), progress=True).weights
