"""Verbs that join several rooms, file names in, results out: for the command line and for `import codecnn`."""

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from codecnn.cluster import WHOLE, Progress, Shard
from codecnn.config import checked, load_config, load_recipe
from codecnn.dataset import MANIFEST, Recipe, Store, build_shard, build_store, is_store, open_store
from codecnn.errors import CodecnnError, ConfigError, StoreError, ToolMissingError
from codecnn.planes import RECIPE_PLANES

# torch takes seconds to import, so rooms that need it are imported by the verbs that need them.
if TYPE_CHECKING:
    from codecnn.codec import Codec
    from codecnn.evaluation import Entry, Results
    from codecnn.evaluation.in_loop import LoopResults
    from codecnn.filtering import Decisions, Precision, Tile
    from codecnn.training import TrainingResult

QPS = (22, 27, 32, 37, 42)
"""Those of the common test conditions and one above, where filters gain most."""

Form = Literal["onnx", "sadl", "int8", "int16"]


def build_dataset(
    recipe: Path | str,
    store: Path | str,
    *,
    overrides: Sequence[str] = (),
    jobs: int = 1,
    progress: Progress | None = None,
    prune: bool = False,
) -> Store:
    """Code the pictures of a recipe file at its QPs into the folder `store`, or finish or update what is there.

    `overrides` are `key.sub=value` texts that win over the file. `prune` removes units of the store that do not belong
    to the recipe, which are an error without it. Raises as `load_recipe` and `build_store`.
    """
    recipe = Path(recipe)
    loaded = load_recipe(recipe, overrides)
    codec = loop_codec(loaded, recipe.parent)
    return build_store(loaded, recipe.parent, Path(store), codec=codec, jobs=jobs, progress=progress, prune=prune)


def loop_codec(recipe: Recipe, folder: Path) -> "Codec | None":
    """The back end of a recipe in `folder` that has a filter in the loop, which it takes torch to run; else None.

    Raises as `codecnn.filtering.in_loop.in_loop_codec`.
    """
    if recipe.in_loop is None:
        return None
    from codecnn.filtering import in_loop_codec

    return in_loop_codec(recipe.in_loop, folder)


def open_dataset(store: Path | str) -> Store:
    """The training set in the folder `store`: its units, pictures by memmap, and table of CTUs.

    Raises as `codecnn.dataset.store.open_store`.
    """
    return open_store(store)


def train(
    config: Path | str, run: Path | str, *, overrides: Sequence[str] = (), resume: bool = False, progress: bool = False
) -> "TrainingResult":
    """Train what a configuration file describes, in the folder `run`; the weights that validate best are kept there.

    `overrides` are `key.sub=value` texts that win over the file. Raises as `load_config` and
    `codecnn.training.train_task`.
    """
    from codecnn.training import train as run_training

    return run_training(load_config(config, overrides), Path(run), resume=resume, progress=progress)


def evaluate(
    sources: Path | str | Sequence[Path | str],
    models: Path | str | Sequence[Path | str],
    output: Path | str,
    *,
    qps: Sequence[int] | None = None,
    split: str = "test",
    codec: str = "vvc",
    preset: str = "medium",
    configuration: str = "ai",
    ctc: bool = False,
    metrics: Sequence[str] = ("psnr",),
    decisions: "Decisions" = "none",
    exact: bool | None = None,
    precision: "Precision" = "float32",
    device: str = "auto",
    tile: "Tile" = "auto",
    jobs: int = 1,
    shard: Shard = WHOLE,
    scheduler: str | None = None,
    coding: Progress | None = None,
    filtering: Progress | None = None,
    **options: Any,
) -> "tuple[Results, ...]":
    """Filter what a codec decodes and measure the gain: PSNR, BD-rate; report, tables and results.json in `output`.

    `sources` is one store, of which `split` is taken at `qps` (all), or videos and pictures that are coded first at
    `qps` (QPS) by `codec`, `preset`, `configuration` and `ctc` of a recipe, with `options` as its sequence has them
    (size, bit_depth, frames, step, ...). `models` are weights, files or names of `list_weights`. With `exact` the
    integer form of each is measured beside it, with False it is in float alone, and with None in integers alone where
    there are some of 8 bits; `precision` is that of networks in float. `coding` and `filtering` are
    told of progress. Returns the results of each filter.

    Of a `shard` (i, n) every n-th unit is coded and every n-th cell measured; nothing is returned until all shards have
    done theirs. With `scheduler` the workers of that dask scheduler code and measure.

    Raises ConfigError and StoreError for what does not fit, and what coding and filtering raise.
    """
    from codecnn.evaluation import evaluate as run_evaluation
    from codecnn.models import weights_path

    names = [sources] if isinstance(sources, Path | str) else list(sources)
    if stored := [name for name in names if (Path(name) / MANIFEST).is_file()]:
        _check_store_alone(stored[0], names, (codec, preset, configuration, ctc) != ("vvc", "medium", "ai", False))
    weights = [weights_path(one) for one in ([models] if isinstance(models, Path | str) else models)]
    entries = _entries(weights, exact, precision, device, tile)
    output = Path(output)
    if len(names) == 1 and is_store(Path(names[0])):
        store = _at_qps(open_store(names[0]), qps)
    else:
        values = {
            "name": "evaluation",
            "codec": codec,
            "preset": preset,
            "configuration": configuration,
            "ctc": ctc,
            "times": True,
            "qp": list(qps or QPS),
            "ctu_size": 64 if codec == "hevc" else 128,
            "sequences": [options | {"split": split, "source": str(source)} for source in names],
        }
        # What the networks take beside the decoded pictures: rebuilt from the bitstreams, or by the HEVC decoder.
        beside = [name for name in RECIPE_PLANES if any(name in entry.filter.planes for entry in entries)]
        values |= {"unfiltered": True} if codec == "hevc" and beside == ["unf_y"] else {"planes": beside}
        recipe = checked(Recipe, values, "evaluate")
        folder = output / "store"
        prune = _is_store_of_evaluate(folder)
        if not build_shard(recipe, Path(), folder, shard, jobs=jobs, scheduler=scheduler, progress=coding, prune=prune):
            return ()
        store = open_store(output / "store")
    return run_evaluation(
        entries,
        store,
        split,
        output,
        metrics=metrics,
        decisions=decisions,
        shard=shard,
        scheduler=scheduler,
        progress=filtering,
    )


def _is_store_of_evaluate(folder: Path) -> bool:
    """Return whether `evaluate` built this complete store, so that another evaluation may replace its units."""
    with suppress(CodecnnError):
        return (folder / MANIFEST).is_file() and open_store(folder).manifest.recipe.name == "evaluation"
    return False


def evaluate_in_loop(
    sources: Path | str | Sequence[Path | str],
    models: Path | str | Sequence[Path | str],
    output: Path | str,
    *,
    library: Path | str | None = None,
    qps: Sequence[int] = QPS,
    preset: str = "medium",
    decisions: "Decisions" = "ctu",
    exact: bool | None = None,
    precision: "Precision" = "float32",
    device: str = "auto",
    tile: "Tile" = "auto",
    progress: Progress | None = None,
    **options: Any,
) -> "LoopResults":
    """Code videos in low delay with each filter in the loop, and without: streams, pictures and BD-rates in `output`.

    `library` is libvvenc as a shared library, else that of the environment variable CODECNN_VVENC_LIBRARY;
    docs/inloop.md says how to build it. `options` are those of `open_video`; the rest as for `evaluate`. Raises as
    `codecnn.evaluation.in_loop.evaluate_in_loop`, and ToolMissingError or MissingFileError for the library.
    """
    from codecnn.codec import find_library
    from codecnn.evaluation.in_loop import evaluate_in_loop as run_evaluation
    from codecnn.models import weights_path
    from codecnn.video import open_video

    loaded = find_library(library)
    paths = [Path(one) for one in ([sources] if isinstance(sources, Path | str) else sources)]
    for path in paths:
        if is_store(path):
            raise ConfigError(f"{path} is a store: a filter inside the loop is coded with, so it needs videos")
        if [one.stem for one in paths].count(path.stem) > 1:
            raise ConfigError(f"two sequences have one name: {path.stem}")
    weights = [weights_path(one) for one in ([models] if isinstance(models, Path | str) else models)]
    entries = _entries(weights, exact, precision, device, tile)
    with ExitStack() as stack:
        videos = {path.stem: stack.enter_context(open_video(path, **options)) for path in paths}
        return run_evaluation(
            entries, videos, qps, loaded, Path(output), preset=preset, decisions=decisions, progress=progress
        )


def _check_store_alone(store: Path | str, names: Sequence[Path | str], coded: bool) -> None:
    """Raise ConfigError for a store among other sources, or one that is to be `coded` in another way than it is."""
    if len(names) > 1:
        raise ConfigError(f"{store} is a store, which is evaluated alone: give one store, or videos and pictures")
    if coded:
        raise ConfigError(
            f"{store} is a store, and coded already: --codec, --preset, --configuration and --ctc are of videos"
        )


def _at_qps(store: Store, qps: Sequence[int] | None) -> Store:
    """The store with its units of some QPs only."""
    if qps is None:
        return store
    missing = sorted(set(qps) - {unit.qp for unit in store.units})
    if missing:
        raise StoreError(f"store {store.folder} has no pictures at QP {missing[0]}")
    return replace(store, units=tuple(unit for unit in store.units if unit.qp in qps))


def _entries(
    weights: list[Path], exact: bool | None, precision: "Precision", device: str, tile: "Tile"
) -> "list[Entry]":
    """The filters, named by their files and folders; by whole paths where several have one name."""
    from codecnn.filtering import in_integers
    from codecnn.filtering.integer import integers_beside, is_integer

    forms = []
    for path in weights:
        if exact and not is_integer(path):  # a file that holds integers has no further integer form
            forms += [(path, False), (path, True)]
        else:
            forms.append((path, exact is None and in_integers(path, precision)))
    files = [integers_beside(path) if form else path for path, form in forms]
    short = [f"{file.absolute().parent.name}/{file.stem}" for file in files]
    entries = []
    for (path, form), file, name in zip(forms, files, short, strict=True):
        unique = name if short.count(name) == 1 else str(file.with_suffix(""))
        entries.append(_entry(unique, path, form, precision, device, tile))
    return entries


def _entry(name: str, weights: Path, exact: bool, precision: "Precision", device: str, tile: "Tile") -> "Entry":
    import torch

    from codecnn.evaluation import Entry
    from codecnn.filtering import load_filter
    from codecnn.models import pick_device

    where = pick_device(device)
    on = torch.cuda.get_device_name(where) if where.type == "cuda" else f"cpu, {torch.get_num_threads()} threads"
    on += "" if precision == "float32" else f", {precision}"
    filter_ = load_filter(weights, exact=exact, precision=precision, device=where, tile=tile)
    load = partial(_entry, name, weights.absolute(), exact, precision, device, tile)
    return Entry(name, filter_.card, filter_, on, load)


def export(
    model: Path | str,
    output: Path | str,
    form: Form = "onnx",
    *,
    qp: int | None = None,
    store: Path | str | Sequence[Path | str] | None = None,
    split: str = "train",
    pictures: int = 4,
    accumulator_bits: int = 32,
    loss: float | None = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Write a trained network for other programs and check what was written: ONNX, ONNX of SADL's operators, integers.

    "onnx" also takes a file of integers of 8 bits, of which onnxruntime then makes the same samples. "sadl" is for the
    one slice QP `qp`. "int8" and "int16" are calibrated on `pictures` a QP of the split of each `store`, the latter
    with sums of `accumulator_bits`, the former with bytes that lose at most `loss` dB (LOSS of
    `codecnn.filtering.integer`) on those pictures. Mode networks are written as "int16" and need no store. Returns what
    is to be said of the file, such as "largest_difference_to_pytorch".

    Raises ConfigError for what does not go together, ToolMissingError without the packages of the extra `export`.
    """
    from codecnn.models import card_path, read_card, weights_path

    model, output = weights_path(model), Path(output)
    integer = form in ("int8", "int16")
    suffix = ".safetensors" if integer else ".onnx"
    if output.suffix != suffix:
        other = "; integers are the formats int16 and int8" if output.suffix == ".safetensors" else ""
        raise ConfigError(f"{output}: the format {form} is written to a file that ends in {suffix}{other}")
    if output.resolve() == model.resolve():
        raise ConfigError(f"the export would overwrite the weights {model}")
    if form == "int16" and card_path(model).is_file() and read_card(model).task == "modes":
        return _export_modes(model, output)
    stores = [store] if isinstance(store, Path | str) else store or []
    if integer != bool(stores):
        raise ConfigError("the formats int8 and int16, and no other, need a store to calibrate on: --store")
    if not stores:
        return _export_onnx(model, output, form, qp)
    from codecnn.filtering.integer import LOSS, integer_network, load_integer, save_integer
    from codecnn.models import load_model, pick_device

    network, card = load_model(model)
    where = pick_device(device)
    integers, made = integer_network(
        network.to(where),
        card,
        [open_store(one) for one in stores],
        split,
        bits=8 if form == "int8" else 16,
        pictures=pictures,
        accumulator_bits=accumulator_bits,
        loss=LOSS if loss is None else loss,
        device=where,
        progress=progress,
    )
    save_integer(output, integers, made)
    load_integer(output)
    facts = {"bit_depth": integers.bit_depth, "accumulator_bits": integers.accumulator_bits}
    told = made["calibration"]
    return facts | {name: told[name] for name in ("loss_db", "worst_loss_db") if name in told}


def _export_modes(model: Path, output: Path) -> dict[str, Any]:
    from codecnn.models import (
        BIT_DEPTH,
        ModeSketch,
        load_integer_sketch,
        load_mode_network,
        quantise_sketch,
        save_integer_sketch,
    )

    network, card = load_mode_network(model)
    if not isinstance(network, ModeSketch):
        raise ConfigError(f"{model} has no integer form: among mode networks mode_sketch has one")
    save_integer_sketch(output, quantise_sketch(network), card)
    load_integer_sketch(output)
    return {"bit_depth": BIT_DEPTH}


def _export_onnx(model: Path, output: Path, form: Form, qp: int | None) -> dict[str, Any]:
    for name in ("onnx", "onnxruntime"):
        if find_spec(name) is None:
            raise ToolMissingError(f"the format {form} needs the package {name}: pip install 'codecnn[export]'")
    if form == "onnx" and qp is not None:
        raise ConfigError("a graph of the format onnx takes the QP as an input: leave --qp away")
    from codecnn.filtering.integer import is_integer, load_integer
    from codecnn.models import export_onnx, load_model
    from codecnn.models.graph import OPSET

    if is_integer(model):
        from codecnn.filtering.integer import export_integers

        if form == "sadl":
            raise ConfigError(f"{model} are integers already: --format onnx writes them")
        integers, _ = load_integer(model)
        export_integers(output, integers)
        return {"opset": OPSET, "bit_depth": integers.bit_depth}
    network, _ = load_model(model)
    if form == "sadl" and qp is None and "qp" in network.planes:
        raise ConfigError("the network depends on the QP, and a graph for SADL is for one QP: name it with --qp")
    # A network that does not know the QP is the same for every one.
    difference = export_onnx(output, network, qp=(qp or 0) if form == "sadl" else None)
    return {"opset": OPSET, "largest_difference_to_pytorch": difference}
