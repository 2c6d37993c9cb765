"""Functions that evaluate filters on stores and sequences, behind the codec or inside its loop.

PyTorch takes seconds to import, so packages that need it are imported inside the functions.
"""

import glob
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codecnn.api.config import checked
from codecnn.base.cluster import WHOLE, Progress, Shard, check_shard
from codecnn.base.errors import ConfigError, MissingFileError, StoreError
from codecnn.base.keywords import checked_keywords
from codecnn.base.outputs import check_outputs, claim_results
from codecnn.base.parts import extension
from codecnn.base.planes import RECIPE_PLANES, STREAM_PLANES
from codecnn.codec import STREAMS, coded_configuration, codes_vvc, internal_bit_depth, read_headers
from codecnn.dataset import MANIFEST, Recipe, SequenceSpec, Store, build_shard, input_files, is_store, open_store
from codecnn.pictures.files import STANDARD_NAMES, is_byte_stream, open_video, stream_codec, warn

if TYPE_CHECKING:
    from codecnn.evaluation import Entry, ResultsList
    from codecnn.filtering import Decisions, Precision, Tile

QPS = (22, 27, 32, 37, 42)
"""QPs of the common test conditions, and 42, at which filters gain most."""

_ARGUMENTS = {"source", "split", "streams"}
_SEQUENCE_KEYS = {field.alias or name for name, field in SequenceSpec.model_fields.items()} - _ARGUMENTS
"""Options of `evaluate` for videos: the keys of a recipe's sequence that are no arguments of their own."""

EVALUATION = "evaluation"
"""Name of the recipe of a store that `evaluate` builds."""

Model = Path | str | Callable[..., Any]
"""Weights, a file or a name, or a filter in memory: a module of torch or a function of a picture."""


@checked_keywords(_SEQUENCE_KEYS)
def evaluate(
    sources: "Store | Path | str | Sequence[Path | str]",
    models: "Model | Sequence[Model]",
    output: Path | str = "results",
    *,
    original: Path | str | None = None,
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
    key: str | None = None,
    prune: bool = False,
    coding: Progress | None = None,
    filtering: Progress | None = None,
    **options: Any,
) -> "ResultsList":
    """Evaluate filters on coded sequences: PSNR gain, BD-rate, tables and a report.

    Args:
        sources: One store, or videos and pictures that are coded first, or with `original` coded streams.
        models: Weights: files, or names from `codecnn models`. Or filters in memory: a module of torch as
            `codecnn.models.adapt` takes it, or any function of a `codecnn.pictures.files.Picture`, and of the slice QP
            if it has a parameter `qp`, that returns the filtered picture.
        output: Folder for results.json, report.html and tables.
        original: Video that the streams in `sources` were coded from; then nothing is coded.
        qps: QPs to code at (default: `QPS`), or the QPs of a store or of streams to evaluate (default: all).
        split: Split of a store to evaluate.
        codec: Codec for videos: "vvc", "hevc", "av1", "svtav1" or "avc".
        preset: Encoder preset, e.g. "faster", "fast", "medium" or "slow".
        configuration: "ai" (all intra), "ra" (random access) or "ldb" (low delay B).
        ctc: For "ra" and "ldb", use settings close to the common test conditions of JVET.
        metrics: Names from "psnr", "ssim", "ms_ssim" and "vmaf".
        decisions: "none", "ctu" (flags and residual scales) or "full" (QP offsets as well).
        exact: True evaluates float and integer networks, False float networks only, None integer networks if 8-bit
            weights exist, else float.
        precision: Precision of float networks, "float32", "bfloat16" or, on a GPU, "tf32".
        device: "auto", "cpu", "cuda" or "cuda:N".
        tile: Largest tile side in samples; does not change the result.
        jobs: Number of encoders that run at the same time.
        shard: (i, n): code every n-th unit and measure every n-th cell, starting with the i-th.
        scheduler: Address of a dask scheduler whose workers code and measure.
        key: Text that stands for the filters in memory in the keys of kept measurements, together with their names.
            Functions and objects whose state cannot be read, such as an array in a closure, are otherwise measured
            anew each time; whoever gives a key changes it when the filters change.
        prune: Remove the coded streams and measurements of other evaluations from `output`.
        coding: Called with (units coded, all units).
        filtering: Called with (cells measured, all cells).
        **options: Keys of a recipe's sequence for videos: size, bit_depth, frames, step and so on.

    Returns:
        Results of each filter, a tuple; empty if other shards have not finished. `to_pandas` and `to_arrow` of the
        tuple, and of each result, return the rows as a table.

    Raises:
        ConfigError: The options do not fit together, an output is an input, or a source is a coded stream and there is
            no `original`.
        StoreError: The store has no unit at a QP.
        EncoderError: An encoder fails.
        ModelError: A network cannot be loaded or needs other planes.
    """
    from codecnn.evaluation import RESULT_FILES, ResultsList
    from codecnn.evaluation import evaluate as run_evaluation
    from codecnn.models import weights_path

    given_store = sources if isinstance(sources, Store) else None
    names = (
        [sources.folder]
        if isinstance(sources, Store)
        else [sources]
        if isinstance(sources, Path | str)
        else list(sources)
    )
    encoding = (codec, preset, configuration, ctc) != ("vvc", "medium", "ai", False)
    if stored := [name for name in names if (Path(name) / MANIFEST).is_file()]:
        _check_store_alone(stored[0], names, encoding)
    given = list(models) if isinstance(models, list | tuple) else [models]
    weights = [weights_path(model) for model in given if isinstance(model, Path | str)]
    check_shard(shard)
    output = Path(output)
    uses_store = given_store is not None or (len(names) == 1 and is_store(Path(names[0])))
    written = [*RESULT_FILES, *(() if uses_store else ("store",))]
    _check_outputs([output / name for name in written], [*names, original], weights)
    entries = _entries(weights, exact, precision, device, tile)
    entries += _memory_entries([model for model in given if not isinstance(model, Path | str)], device, tile, key)
    if uses_store:
        if original is not None:
            raise ConfigError(f"{names[0]} is a store, which contains its originals: leave out --original")
        _check_no_sequence_keys(names[0], options)
        claim_results(output, written)
        store = _at_qps(given_store or open_store(names[0]), qps)
    else:
        _check_exist([*names, *([] if original is None else [original])])
        # Auxiliary planes of the networks are computed for the store, or the back end provides them.
        auxiliary = [name for name in RECIPE_PLANES if any(name in entry.filter.planes for entry in entries)]
        values: dict[str, Any]
        if original is not None:
            if encoding:
                raise ConfigError(
                    "streams are already coded: leave out --codec, --preset, --configuration and --ctc with --original"
                )
            values = _stream_recipe(names)
            sequences = [{"source": str(original), "streams": [str(name) for name in names]}]
        else:
            _check_originals(names)
            values = {
                "codec": codec,
                "preset": preset,
                "configuration": configuration,
                "ctc": ctc,
                "times": True,
                "qp": list(qps or QPS),
                "ctu_size": 128 if codes_vvc(codec) else 64,
                "internal_bit_depth": internal_bit_depth(codec),
            }
            if not codes_vvc(codec) and [name for name in auxiliary if name in STREAM_PLANES] == ["unf_y"]:
                auxiliary.remove("unf_y")
                values["unfiltered"] = True
            sequences = [{"source": str(source)} for source in names]
        values |= {"planes": auxiliary}
        values |= {"name": EVALUATION, "sequences": [options | {"split": split} | each for each in sequences]}
        recipe = checked(Recipe, values, "evaluate")
        folder = output / "store"
        _check_store_of_evaluate(folder)
        claim_results(output, written)
        # The streams of other evaluations stay, and count again when one of these is repeated.
        complete = build_shard(
            recipe,
            Path(),
            folder,
            shard,
            jobs=jobs,
            scheduler=scheduler,
            progress=coding,
            prune=prune,
            keep=not prune,
        )
        if not complete:
            return ResultsList()
        store = open_store(output / "store")
        store = store if original is None else _at_qps(store, qps)
    return run_evaluation(
        entries,
        store,
        split,
        output,
        metrics=metrics,
        decisions=decisions,
        shard=shard,
        scheduler=scheduler,
        prune=prune,
        progress=filtering,
    )


def _check_outputs(outputs: Sequence[Path], sources: Sequence[Path | str | None], weights: Sequence[Path]) -> None:
    """Raise ConfigError if an evaluation would replace its sources or weights."""
    from codecnn.models import weights_files

    check_outputs(outputs, [*input_files(*sources), *weights_files(*weights)])


def _check_exist(names: Sequence[Path | str]) -> None:
    """Raise MissingFileError for a name that is no file, no folder, no pattern of some, and no sample picture."""
    for name in names:
        path = Path(name).expanduser()
        pattern = glob.glob(str(path), recursive=True)  # noqa: PTH207
        if not (str(name).startswith("skimage:") or path.exists() or pattern):
            raise MissingFileError(f"{name} does not exist: name a store, a video, a picture or a folder of pictures")


def _check_no_sequence_keys(store: Path | str, options: dict[str, Any]) -> None:
    """Raise ConfigError if options of videos are given for a store; the command line passes all at their defaults."""
    defaults = {field.alias or name: field.default for name, field in SequenceSpec.model_fields.items()}
    if given := [name for name, value in options.items() if value not in (None, defaults[name])]:
        raise ConfigError(f"{store} is a store, whose recipe states {given[0]}: leave {', '.join(given)} out")


def _check_originals(names: Sequence[Path | str]) -> None:
    """Raise ConfigError if a source is a byte stream, and warn of sources in containers, which are coded as well."""
    for name in names:
        if (codec := stream_codec(name)) is None:
            continue
        kind = f"{name} is coded video ({STANDARD_NAMES[codec]})"
        if is_byte_stream(name):
            raise ConfigError(
                f"{kind}, and evaluate codes originals: name the pictures that the stream was coded from with "
                "--original FILE, and its pictures are filtered as they are"
            )
        warn(
            f"{kind}: its decoded pictures are coded again and count as the originals; to filter them as they are, "
            "name the pictures that it was coded from with --original FILE"
        )


def _stream_recipe(names: Sequence[Path | str]) -> dict[str, Any]:
    """Return the settings of a recipe for streams, read from their headers.

    Raises:
        ConfigError: A file is not a stream, or the streams differ in configuration.
    """
    for name in names:
        if stream_codec(name) is None:
            raise ConfigError(f"{name} is not a stream of VVC, HEVC, AVC or AV1, which --original needs")
    infos = [read_headers(Path(name)) for name in names]
    configurations = [coded_configuration(info) for info in infos]
    if len(set(configurations)) > 1:
        listed = ", ".join(f"{name}: {each}" for name, each in zip(names, configurations, strict=True))
        raise ConfigError(f"the streams have different configurations ({listed}): evaluate each by itself")
    return {
        "codec": STREAMS,
        "configuration": configurations[0],
        "internal_bit_depth": infos[0].bit_depth,
        "ctu_size": infos[0].ctu_size,
    }


def _check_store_of_evaluate(folder: Path) -> None:
    """Raise ConfigError if a folder is a complete store that another command built, whose manifest would be replaced.

    A manifest that cannot be read, or of another schema, is not replaced either.
    """
    if (folder / MANIFEST).is_file() and open_store(folder).manifest.recipe.name != EVALUATION:
        raise ConfigError(f"{folder} is a store of `codecnn dataset build`: name another folder with -o")


@checked_keywords(open_video)
def evaluate_in_loop(
    sources: Path | str | Sequence[Path | str],
    models: Path | str | Sequence[Path | str],
    output: Path | str,
    *,
    library: Path | str | None = None,
    qps: Sequence[int] = QPS,
    preset: str = "medium",
    decisions: "Decisions" = "ctu",
    choose: bool = False,
    exact: bool | None = None,
    precision: "Precision" = "float32",
    device: str = "auto",
    tile: "Tile" = "auto",
    progress: Progress | None = None,
    **options: Any,
) -> Any:
    """Code videos in low delay without a filter and with each filter in the coding loop, and compute BD-rates.

    Args:
        sources: Videos.
        models: Weights: files, or names from `codecnn models`.
        output: Folder for results, bitstreams and pictures.
        library: libvvenc as a shared library; None takes the environment variable CODECNN_VVENC_LIBRARY.
            docs/howto/inloop.md describes how to build it.
        qps: QPs to code at; a BD-rate needs four.
        preset: Encoder preset, e.g. "faster", "fast", "medium" or "slow".
        decisions: "none", "ctu" or "full".
        choose: Also code with some pictures filtered in the loop and the others behind it, and choose the best place
            for each sequence and QP.
        exact: As for `evaluate`.
        precision: Precision of float networks, "float32", "bfloat16" or, on a GPU, "tf32".
        device: "auto", "cpu", "cuda" or "cuda:N".
        tile: Largest tile side in samples; does not change the result.
        progress: Called with (pictures done, all pictures).
        **options: Options of `open_video`: size, bit_depth, frames and so on.

    Returns:
        The results, a `codecnn.signalling.in_loop.LoopResults`.

    Raises:
        ConfigError: A source is a store or has one picture only, or two videos have the same name.
        ToolMissingError: No library is named, or codecnn.signalling is not installed.
        MissingFileError: The library or a video does not exist.
        ModelError: A network needs planes that the loop does not provide.
        EncoderError: The encoder fails.
    """
    from codecnn.codec import find_library
    from codecnn.models import weights_path

    run_evaluation, files = extension("signalling.evaluate_in_loop"), extension("signalling.loop_files")
    output = Path(output)
    paths = [Path(source) for source in ([sources] if isinstance(sources, Path | str) else sources)]
    for path in paths:
        if is_store(path):
            raise ConfigError(f"{path} is a store, which is already coded: --in-loop needs the original videos")
        if [other.stem for other in paths].count(path.stem) > 1:
            raise ConfigError(f"two sequences have the same name {path.stem}: rename a file")
    weights = [weights_path(model) for model in ([models] if isinstance(models, Path | str) else models)]
    _check_outputs([output / name for name in files], [*paths, library], weights)
    loaded = find_library(library)
    claim_results(output, files)
    entries = _entries(weights, exact, precision, device, tile)
    with ExitStack() as stack:
        videos = {path.stem: stack.enter_context(open_video(path, **options)) for path in paths}
        return run_evaluation(
            entries,
            videos,
            qps,
            loaded,
            output,
            preset=preset,
            decisions=decisions,
            choose=choose,
            progress=progress,
        )


def _check_store_alone(store: Path | str, names: Sequence[Path | str], coded: bool) -> None:
    """Raise ConfigError if a store is mixed with other sources, or encoder options (`coded`) are given for it."""
    if len(names) > 1:
        raise ConfigError(f"{store} is a store, which must be evaluated alone: give one store, or videos and pictures")
    if coded:
        raise ConfigError(
            f"{store} is a store, which is already coded: leave out --codec, --preset, --configuration and --ctc"
        )


def _at_qps(store: Store, qps: Sequence[int] | None) -> Store:
    """Restrict a store to its units at some QPs; None keeps all."""
    if qps is None:
        return store
    available = {unit.qp for unit in store.units}
    if missing := sorted(set(qps) - available):
        raise StoreError(
            f"store {store.folder} has no pictures at QP {missing[0]}: it has {', '.join(map(str, sorted(available)))}"
        )
    return replace(store, units=tuple(unit for unit in store.units if unit.qp in qps))


def _entries(
    weights: list[Path], exact: bool | None, precision: "Precision", device: str, tile: "Tile"
) -> "list[Entry]":
    """Load the filters, named FOLDER/FILE, or by their whole paths if two have the same name."""
    from codecnn.filtering import prefers_integers
    from codecnn.filtering.integer import find_integers, is_integer

    forms = []
    for path in weights:
        if exact and not is_integer(path):  # a file of integers has no other integer form
            forms += [(path, False), (path, True)]
        else:
            forms.append((path, exact is None and prefers_integers(path, precision)))
    files = [find_integers(path) if form else path for path, form in forms]
    short = [f"{file.absolute().parent.name}/{file.stem}" for file in files]
    entries = []
    for (path, form), file, name in zip(forms, files, short, strict=True):
        unique = name if short.count(name) == 1 else str(file.with_suffix(""))
        entries.append(_entry(unique, path, form, precision, device, tile))
    return entries


def _memory_entries(models: Sequence[Any], device: str, tile: "Tile", key: str | None) -> "list[Entry]":
    """Create the entries of filters in memory, named by their function or class."""
    import torch

    from codecnn.base.runtime import device_name
    from codecnn.evaluation import Entry
    from codecnn.filtering import FloatFilter, FunctionFilter, function_name
    from codecnn.models import adapt, as_card, complexity, pick_device

    entries = []
    names = [function_name(model) for model in models]
    for index, model in enumerate(models):
        name = names[index] if names.count(names[index]) == 1 else f"{names[index]}_{index + 1}"
        text, facts = device_name(torch.device("cpu")), dict[str, Any](network=names[index])
        if isinstance(model, torch.nn.Module):
            network = adapt(model)
            facts |= complexity(network).as_dict()
            target = pick_device(device)
            filter_: Any = FloatFilter(network, device=target, tile=tile)
            text = device_name(target)
        elif hasattr(model, "samples") and hasattr(model, "planes"):
            filter_ = model
        elif callable(model):
            filter_ = FunctionFilter(model)
        else:
            raise ConfigError(f"a filter is weights, a module of torch or a function, not {type(model).__name__}")
        own_key = None if key is None else f"{name}: {key}"
        entries.append(Entry.of(filter_, name, card=as_card(facts), device=text, key=own_key))
    return entries


def _entry(
    name: str, weights: Path, exact: bool, precision: "Precision", device: str, tile: "Tile", trust: bool = False
) -> "Entry":
    from codecnn.base.runtime import device_name
    from codecnn.evaluation import Entry
    from codecnn.filtering import load_filter
    from codecnn.models import pick_device

    torch_device = pick_device(device)
    text = device_name(torch_device)
    text += "" if precision == "float32" else f", {precision}"
    filter_ = load_filter(weights, exact=exact, precision=precision, device=torch_device, tile=tile, trust=trust)
    # What has been permitted here is permitted on the workers of a cluster.
    load = partial(_entry, name, weights.absolute(), exact, precision, device, tile, True)
    return Entry.of(filter_, name, card=filter_.card, device=text, load=load)
