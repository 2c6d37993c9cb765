"""High-level functions that take file names and return results, for the command line and for `import codecnn`.

PyTorch takes seconds to import, so packages that need it are imported inside the functions.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from codecnn.cluster import WHOLE, Progress, Shard
from codecnn.config import checked, load_config, load_recipe
from codecnn.dataset import MANIFEST, Recipe, Store, build_shard, build_store, is_store, open_store
from codecnn.errors import CodecnnError, ConfigError, FormatError, StoreError, ToolMissingError
from codecnn.planes import MAX_QP, REBUILT_PLANES, RECIPE_PLANES, SLICE_TYPE_PLANE, TREE_PLANES, lowest_qp

if TYPE_CHECKING:
    from codecnn.codec import Codec
    from codecnn.evaluation import Entry, Results
    from codecnn.evaluation.in_loop import LoopResults
    from codecnn.filtering import Decisions, PictureFilter, PlaneSource, Precision, Tile
    from codecnn.training import TrainingResult
    from codecnn.video import Video

QPS = (22, 27, 32, 37, 42)
"""QPs of the common test conditions, and 42, at which filters gain most."""

Model = Path | str | Callable[..., Any]
"""Weights, a file or a name, or a filter in memory: a module of torch or a function of a picture."""

ExportFormat = Literal["onnx", "sadl", "int8", "int16"]
"""Formats that `export` writes."""

STATISTICS_SUFFIXES = (".vtmbmsstats", ".vtmbmsstats.gz")
"""Suffixes of files with block statistics."""


def build_dataset(
    recipe: Path | str,
    store: Path | str,
    *,
    overrides: Sequence[str] = (),
    jobs: int = 1,
    progress: Progress | None = None,
    prune: bool = False,
) -> Store:
    """Build a training set: code the pictures of a recipe at its QPs; an existing store is completed or updated.

    Args:
        recipe: Recipe file, e.g. "datasets/demo.yaml".
        store: Folder of the store.
        overrides: Texts "key.sub=value" that replace values of the recipe.
        jobs: Number of encoders that run at the same time.
        progress: Called with (units done, all units).
        prune: Remove units of the store that do not belong to the recipe; without it they are an error.

    Returns:
        The store.

    Raises:
        MissingFileError: The recipe or a source does not exist.
        ConfigError: The recipe is invalid.
        EncoderError: An encoder fails.
        StoreError: The store is damaged or in use.
    """
    recipe = Path(recipe)
    loaded = load_recipe(recipe, overrides)
    codec = loop_codec(loaded, recipe.parent)
    return build_store(loaded, recipe.parent, Path(store), codec=codec, jobs=jobs, progress=progress, prune=prune)


def loop_codec(recipe: Recipe, folder: Path) -> "Codec | None":
    """Create the back end of a recipe that codes with a filter in the loop; None for other recipes.

    Args:
        recipe: The recipe.
        folder: Folder of the recipe file, to which its paths are relative.

    Returns:
        The back end, or None.

    Raises:
        ToolMissingError: libvvenc is missing as a shared library.
        ModelError: The filter cannot run in the loop.
    """
    if recipe.in_loop is None:
        return None
    from codecnn.filtering import in_loop_codec

    return in_loop_codec(recipe.in_loop, folder)


def open_dataset(store: Path | str) -> Store:
    """Open a training set: its units, pictures (memory-mapped) and CTU table.

    Args:
        store: Folder of the store.

    Returns:
        The store.

    Raises:
        MissingFileError: The folder does not exist.
        StoreError: The folder is not a complete store.
    """
    return open_store(store)


def train(
    config: Path | str, run: Path | str, *, overrides: Sequence[str] = (), resume: bool = False, progress: bool = False
) -> "TrainingResult":
    """Train a network and keep the weights with the best validation result.

    Args:
        config: Configuration file, e.g. "configs/demo.yaml".
        run: Folder of the run.
        overrides: Texts "key.sub=value" that replace values of the configuration.
        resume: Continue from the last checkpoint of the run.
        progress: Show a progress bar.

    Returns:
        The result, with the file of the best weights.

    Raises:
        MissingFileError: The configuration or a store does not exist.
        ConfigError: The configuration is invalid.
        ModelError: The network and its options or planes do not fit.
    """
    from codecnn.training import train as run_training

    return run_training(load_config(config, overrides), Path(run), resume=resume, progress=progress)


def evaluate(
    sources: "Store | Path | str | Sequence[Path | str]",
    models: "Model | Sequence[Model]",
    output: Path | str = "results",
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
    """Evaluate filters on coded sequences: PSNR gain, BD-rate, tables and a report.

    Args:
        sources: One store, or videos and pictures that are coded first.
        models: Weights: files, or names from `codecnn models`. Or filters in memory: a module of torch as
            `codecnn.models.adapt` takes it, or any function of a `codecnn.video.Picture`, and of the slice QP if it has
            a parameter `qp`, that returns the filtered picture.
        output: Folder for results.json, report.html and tables.
        qps: QPs to code at (default: `QPS`), or the QPs of a store to evaluate (default: all).
        split: Split of a store to evaluate.
        codec: Codec for videos, "vvc" or "hevc".
        preset: Encoder preset, e.g. "faster", "fast", "medium" or "slow".
        configuration: "ai" (all intra), "ra" (random access) or "ldb" (low delay B).
        ctc: For "ra" and "ldb", use settings close to the common test conditions of JVET.
        metrics: Names from "psnr", "ssim", "ms_ssim" and "vmaf".
        decisions: "none", "ctu" (flags and residual scales) or "full" (QP offsets as well).
        exact: True evaluates float and integer networks, False float networks only, None integer networks if 8-bit
            weights exist, else float.
        precision: Precision of float networks.
        device: "auto", "cpu", "cuda" or "cuda:N".
        tile: Largest tile side in samples; does not change the result.
        jobs: Number of encoders that run at the same time.
        shard: (i, n): code every n-th unit and measure every n-th cell, starting with the i-th.
        scheduler: Address of a dask scheduler whose workers code and measure.
        coding: Called with (units coded, all units).
        filtering: Called with (cells measured, all cells).
        **options: Keys of a recipe's sequence for videos: size, bit_depth, frames, step and so on.

    Returns:
        Results of each filter; empty if other shards have not finished.

    Raises:
        ConfigError: The options do not fit together.
        StoreError: The store has no unit at a QP.
        EncoderError: An encoder fails.
        ModelError: A network cannot be loaded or needs other planes.
    """
    from codecnn.evaluation import evaluate as run_evaluation
    from codecnn.models import weights_path

    if isinstance(sources, Store):
        sources = sources.folder
    names = [sources] if isinstance(sources, Path | str) else list(sources)
    if stored := [name for name in names if (Path(name) / MANIFEST).is_file()]:
        _check_store_alone(stored[0], names, (codec, preset, configuration, ctc) != ("vvc", "medium", "ai", False))
    given = list(models) if isinstance(models, list | tuple) else [models]
    weights = [weights_path(model) for model in given if isinstance(model, Path | str)]
    entries = _entries(weights, exact, precision, device, tile)
    entries += _memory_entries([model for model in given if not isinstance(model, Path | str)], device, tile)
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
        # Auxiliary planes of the networks are reconstructed from the bitstreams, or by the HEVC decoder.
        auxiliary = [name for name in RECIPE_PLANES if any(name in entry.filter.planes for entry in entries)]
        values |= {"unfiltered": True} if codec == "hevc" and auxiliary == ["unf_y"] else {"planes": auxiliary}
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
        exact: As for `evaluate`.
        precision: Precision of float networks.
        device: "auto", "cpu", "cuda" or "cuda:N".
        tile: Largest tile side in samples; does not change the result.
        progress: Called with (pictures done, all pictures).
        **options: Options of `open_video`: size, bit_depth, frames and so on.

    Returns:
        The results.

    Raises:
        ConfigError: A source is a store or has one picture only, or two videos have the same name.
        ToolMissingError: No library is named.
        MissingFileError: The library or a video does not exist.
        ModelError: A network needs planes that the loop does not provide.
        EncoderError: The encoder fails.
    """
    from codecnn.codec import find_library
    from codecnn.evaluation.in_loop import evaluate_in_loop as run_evaluation
    from codecnn.models import weights_path
    from codecnn.video import open_video

    loaded = find_library(library)
    paths = [Path(source) for source in ([sources] if isinstance(sources, Path | str) else sources)]
    for path in paths:
        if is_store(path):
            raise ConfigError(f"{path} is a store, which is already coded: --in-loop needs the original videos")
        if [other.stem for other in paths].count(path.stem) > 1:
            raise ConfigError(f"two sequences have the same name {path.stem}: rename a file")
    weights = [weights_path(model) for model in ([models] if isinstance(models, Path | str) else models)]
    entries = _entries(weights, exact, precision, device, tile)
    with ExitStack() as stack:
        videos = {path.stem: stack.enter_context(open_video(path, **options)) for path in paths}
        return run_evaluation(
            entries, videos, qps, loaded, Path(output), preset=preset, decisions=decisions, progress=progress
        )


@dataclass(frozen=True)
class FilteredFile:
    """Result of `filter_file`.

    Attributes:
        output: File with the filtered pictures.
        pictures: Number of pictures.
        decisions: With an original, what was decided, as `codecnn.filtering.count_decisions` returns it; else None.
        notes: Sentences about QPs that the network was not trained for.
    """

    output: Path
    pictures: int
    decisions: dict[str, Any] | None = None
    notes: tuple[str, ...] = ()


def filter_file(
    source: Path | str,
    model: Path | str,
    output: Path | str,
    *,
    qp: int | Sequence[int] | None = None,
    planes: Mapping[str, Path | str] | None = None,
    blocks: Path | str | None = None,
    slice_type: str | None = None,
    original: Path | str | None = None,
    decisions_file: Path | str | None = None,
    qp_offsets: Sequence[int] = (0,),
    ctu_size: int = 128,
    exact: bool | None = None,
    precision: "Precision" = "float32",
    device: str = "auto",
    tile: "Tile" = "auto",
    memory: int | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> FilteredFile:
    """Filter the pictures of a file; the output has the format of the input, pictures in output order.

    With an original, each picture is filtered as an encoder would choose by rate-distortion cost: off, on or by CTU,
    with the best residual scale and QP offset.

    Args:
        source: Decoded pictures (raw YUV, Y4M), or a bitstream, also in a container. "-" is Y4M from standard input.
        model: Weights: a file, or a name from `codecnn models`.
        output: File to write: raw YUV, or Y4M by its suffix. "-" is Y4M to standard output.
        qp: Slice QP of all pictures or of each, 0 to 63, at more than 8 bit also below 0; None reads it from a VVC or
            HEVC bitstream.
        planes: Files of auxiliary planes by name, e.g. {"unf_y": "unfiltered.yuv"}; missing planes are reconstructed
            from an all-intra VVC bitstream.
        blocks: CU table of the pictures, for networks that take planes of the coding tree; a VVC bitstream needs none.
        slice_type: "I", "P" or "B" for all pictures, for networks that take it; None reads it from a bitstream.
        original: Original pictures; their presence enables decisions.
        decisions_file: File for the decisions as block statistics (.vtmbmsstats); needs `original`.
        qp_offsets: QP offsets that the decisions try.
        ctu_size: CTU width and height in luma samples for the decisions.
        exact: True computes in integers, False in float, None in integers if 8-bit weights exist.
        precision: Precision of float networks, "float32" or "bfloat16".
        device: "auto", "cpu", "cuda" or "cuda:N".
        tile: Largest tile side in samples; does not change the result.
        memory: Limit in bytes for the tensors of the network; None takes the default.
        progress: Called with (pictures done, all pictures).
        **options: Options of `open_video` for the source: size, bit_depth, chroma, fps, frames.

    Returns:
        The number of pictures, the decisions, and notes.

    Raises:
        ConfigError: The options do not fit together, or a QP is missing or out of range.
        MissingFileError: A file does not exist.
        FormatError: A file does not have the stated format.
        ModelError: The weights do not fit.
    """
    from codecnn.codec import read_headers
    from codecnn.evaluation import untrained_qp
    from codecnn.filtering import count_decisions, decide_video, filter_video, load_filter, write_decisions
    from codecnn.models import pick_device
    from codecnn.video import open_like, open_video, stream_codec

    source, output = Path(source), Path(output)
    if output.resolve() == source.resolve() and str(output) != "-":
        raise ConfigError(f"input and output are the same file, {output}: name another output")
    if decisions_file is not None:
        if original is None:
            raise ConfigError(f"{decisions_file} needs --original: decisions are made against the original pictures")
        if not str(decisions_file).endswith(STATISTICS_SUFFIXES):
            raise ConfigError(f"{decisions_file} is written as block statistics: end its name in .vtmbmsstats")
    filter_ = load_filter(model, exact=exact, precision=precision, device=pick_device(device), tile=tile, memory=memory)
    if qp is not None and stream_codec(source) is not None:
        # Otherwise the headers are not read, and their reader would not warn that the pictures are fields.
        with suppress(FormatError):
            read_headers(source)
    with ExitStack() as stack:
        video = stack.enter_context(open_video(source, **options))
        takes_qp = "qp" in filter_.planes
        complete = options.get("frames") is None
        qps = _slice_qps(qp, source, video, complete) if takes_qp or original is not None else [0]
        notes = [note for value in sorted(set(qps)) if takes_qp and (note := untrained_qp(filter_.card, value))]
        auxiliary = _auxiliary_planes(filter_, source, video, complete, planes or {}, blocks, slice_type, stack)

        def report(done: int) -> None:
            if progress is not None:
                progress(done, len(video))

        if original is None:
            filter_video(filter_, video, qps, output, beside=auxiliary, progress=report)
            return FilteredFile(output, len(video), None, tuple(notes))
        # With `frames`, the original may have more pictures than are filtered.
        originals = stack.enter_context(open_like(Path(original), video.format).select(frames=options.get("frames")))
        all_decisions = decide_video(
            filter_, video, originals, qps, output, offsets=qp_offsets, ctu=ctu_size, beside=auxiliary, progress=report
        )
        if decisions_file is not None:
            write_decisions(Path(decisions_file), all_decisions, video.format.width, video.format.height, ctu_size)
        return FilteredFile(output, len(all_decisions), count_decisions(all_decisions), tuple(notes))


def _slice_qps(qp: int | Sequence[int] | None, source: Path, video: "Video", complete: bool) -> list[int]:
    """Return the slice QP of all pictures or of each picture, from the argument or from the bitstream."""
    from codecnn.filtering import stream_qps

    if qp is None:
        qp = stream_qps(source, len(video), all_pictures=complete)
    qps = [qp] if isinstance(qp, int) else list(qp)
    lowest = lowest_qp(video.format.bit_depth)
    if invalid := [value for value in qps if not lowest <= value <= MAX_QP]:
        at_depth = f" at {video.format.bit_depth} bit" if lowest else ""
        raise ConfigError(f"QP {invalid[0]} is out of range: {lowest} to {MAX_QP}{at_depth}")
    return qps


def _auxiliary_planes(
    filter_: "PictureFilter",
    source: Path,
    video: "Video",
    complete: bool,
    planes: Mapping[str, Path | str],
    blocks: Path | str | None,
    slice_type: str | None,
    stack: ExitStack,
) -> "PlaneSource":
    """Collect the auxiliary planes of a network from files, a CU table and the bitstream.

    `complete` states that the video has all pictures of the source.
    """
    from codecnn.codec import read_blocks, read_output_pictures, stream_plane_reader
    from codecnn.filtering import auxiliary_planes, stream_slice_types
    from codecnn.video import open_like, stream_codec

    codec = stream_codec(source)
    is_vvc = codec == "vvc"
    videos = {name: stack.enter_context(open_like(Path(file), video.format)) for name, file in planes.items()}
    table = None
    if blocks is not None:
        table = read_blocks(blocks)
    elif is_vvc and any(name in TREE_PLANES for name in filter_.planes):
        table = read_blocks(source)
    missing = [name for name in filter_.planes if name in REBUILT_PLANES and name not in videos]
    rebuilt = stream_plane_reader(source, missing) if is_vvc and missing else None
    if rebuilt is not None or (table is not None and blocks is None):
        count = len(read_output_pictures(source))
        if count < len(video) or (complete and count > len(video)):
            raise ConfigError(
                f"{source} has the headers of {count} pictures and decodes to {len(video)}, so its planes cannot be "
                "assigned to pictures: give them with --plane and --blocks"
            )
    types = [slice_type] if slice_type else []
    if SLICE_TYPE_PLANE in filter_.planes and not types and codec is not None:
        types = stream_slice_types(source, len(video), all_pictures=complete)
    return auxiliary_planes(filter_.planes, video.format, videos, table, rebuilt, types)


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


def _memory_entries(models: Sequence[Any], device: str, tile: "Tile") -> "list[Entry]":
    """Create the entries of filters in memory, named by their function or class."""
    import torch

    from codecnn.evaluation import Entry
    from codecnn.filtering import FloatFilter, FunctionFilter, function_name
    from codecnn.models import adapt, as_card, complexity, pick_device

    entries = []
    names = [function_name(model) for model in models]
    for index, model in enumerate(models):
        name = names[index] if names.count(names[index]) == 1 else f"{names[index]}_{index + 1}"
        text, facts = f"cpu, {torch.get_num_threads()} threads", dict[str, Any](network=names[index])
        if isinstance(model, torch.nn.Module):
            network = adapt(model)
            facts |= complexity(network).as_dict()
            target = pick_device(device)
            filter_: Any = FloatFilter(network, device=target, tile=tile)
            filter_.source = network
            text = torch.cuda.get_device_name(target) if target.type == "cuda" else text
        elif hasattr(model, "samples") and hasattr(model, "planes"):
            filter_ = model
        elif callable(model):
            filter_ = FunctionFilter(model)
        else:
            raise ConfigError(f"a filter is weights, a module of torch or a function, not {type(model).__name__}")
        entries.append(Entry.of(filter_, name, card=as_card(facts), device=text))
    return entries


def _entry(
    name: str, weights: Path, exact: bool, precision: "Precision", device: str, tile: "Tile", trust: bool = False
) -> "Entry":
    import torch

    from codecnn.evaluation import Entry
    from codecnn.filtering import load_filter
    from codecnn.models import pick_device

    torch_device = pick_device(device)
    is_gpu = torch_device.type == "cuda"
    text = torch.cuda.get_device_name(torch_device) if is_gpu else f"cpu, {torch.get_num_threads()} threads"
    text += "" if precision == "float32" else f", {precision}"
    filter_ = load_filter(weights, exact=exact, precision=precision, device=torch_device, tile=tile, trust=trust)
    # What has been permitted here is permitted on the workers of a cluster.
    load = partial(_entry, name, weights.absolute(), exact, precision, device, tile, True)
    return Entry.of(filter_, name, card=filter_.card, device=text, load=load)


def export(
    model: Path | str,
    output: Path | str,
    form: ExportFormat = "onnx",
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
    """Write a trained network in another format and check that the written file computes the same samples.

    Args:
        model: Weights: a file, or a name from `codecnn models`.
        output: File to write: .onnx, or .safetensors for integers.
        form: "onnx"; "sadl" (ONNX with the operators of SADL, for one QP); "int8" or "int16" (integer networks). A file
            of 8-bit integers can be written as "onnx".
        qp: Slice QP of the graph, for "sadl".
        store: Stores to calibrate integers on. Mode networks are written as "int16" and need none.
        split: Split of the stores to calibrate on.
        pictures: Number of pictures for each QP to calibrate on.
        accumulator_bits: Width of the sums of "int16", 25 to 32 bits.
        loss: Largest loss in dB of "int8" on the calibration pictures; None takes the default of
            `codecnn.filtering.integer`.
        device: "auto", "cpu", "cuda" or "cuda:N".
        progress: Called with (pictures done, all pictures) of the calibration.

    Returns:
        Facts about the file, e.g. "largest_difference_to_pytorch".

    Raises:
        ConfigError: The options do not fit together.
        ToolMissingError: The packages of the extra `export` are not installed.
    """
    from codecnn.models import card_path, read_card, weights_path

    model, output = weights_path(model), Path(output)
    integer = form in ("int8", "int16")
    suffix = ".safetensors" if integer else ".onnx"
    if output.suffix != suffix:
        hint = "; for integers use --format int16 or int8" if output.suffix == ".safetensors" else ""
        raise ConfigError(f"{output}: the format {form} is written to a file that ends in {suffix}{hint}")
    if output.resolve() == model.resolve():
        raise ConfigError(f"the output would overwrite the weights {model}: name another file")
    if form == "int16" and card_path(model).is_file() and read_card(model).task == "modes":
        return _export_modes(model, output)
    stores = [store] if isinstance(store, Path | str) else store or []
    if integer != bool(stores):
        raise ConfigError("the formats int8 and int16 need a store to calibrate on (--store), the others take none")
    if not stores:
        return _export_onnx(model, output, form, qp)
    from codecnn.filtering.integer import DEFAULT_LOSS_DB, integer_network, load_integer, save_integer
    from codecnn.models import load_model, pick_device

    network, card = load_model(model)
    torch_device = pick_device(device)
    integers, card_facts = integer_network(
        network.to(torch_device),
        card,
        [open_store(folder) for folder in stores],
        split,
        bits=8 if form == "int8" else 16,
        pictures=pictures,
        accumulator_bits=accumulator_bits,
        loss=DEFAULT_LOSS_DB if loss is None else loss,
        device=torch_device,
        progress=progress,
    )
    save_integer(output, integers, card_facts)
    load_integer(output)
    facts = {"bit_depth": integers.bit_depth, "accumulator_bits": integers.accumulator_bits}
    calibration = card_facts["calibration"]
    return facts | {name: calibration[name] for name in ("loss_db", "worst_loss_db") if name in calibration}


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
        raise ConfigError(f"{model} has no integer form: of the mode networks, only mode_sketch has one")
    save_integer_sketch(output, quantise_sketch(network), card)
    load_integer_sketch(output)
    return {"bit_depth": BIT_DEPTH}


def _export_onnx(model: Path, output: Path, form: ExportFormat, qp: int | None) -> dict[str, Any]:
    for name in ("onnx", "onnxruntime"):
        if find_spec(name) is None:
            raise ToolMissingError(f"the format {form} needs the package {name}: pip install 'codecnn[export]'")
    if form == "onnx" and qp is not None:
        raise ConfigError("a graph of the format onnx takes the QP as an input: leave out --qp")
    from codecnn.filtering.integer import is_integer, load_integer
    from codecnn.models import export_onnx, load_model
    from codecnn.models.graph import OPSET

    if is_integer(model):
        from codecnn.filtering.integer import export_integers

        if form == "sadl":
            raise ConfigError(f"{model} already holds integers: use --format onnx to write them")
        integers, _ = load_integer(model)
        export_integers(output, integers)
        return {"opset": OPSET, "bit_depth": integers.bit_depth}
    network, _ = load_model(model)
    if form == "sadl" and qp is None and "qp" in network.planes:
        raise ConfigError("the network takes the QP, and a graph for SADL is made for one QP: give it with --qp")
    # A network that does not take the QP gives the same graph for any QP.
    difference = export_onnx(output, network, qp=(qp or 0) if form == "sadl" else None)
    return {"opset": OPSET, "largest_difference_to_pytorch": difference}
