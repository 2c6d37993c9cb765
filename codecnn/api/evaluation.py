"""Functions that evaluate filters on stores and sequences, behind the codec or inside its loop.

PyTorch takes seconds to import, so packages that need it are imported inside the functions.
"""

import glob
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from codecnn.api.groups import (
    MODELS,
    FileName,
    Fps,
    Jobs,
    ManyMachines,
    NetworkComputation,
    RawVideo,
    parse_qps,
)
from codecnn.base.choices import Decisions
from codecnn.base.cluster import Progress, check_shard
from codecnn.base.errors import ConfigError, MissingFileError, StoreError
from codecnn.base.options import argument, option, progress_bar, python_only, record, verb
from codecnn.base.outputs import check_outputs, claim_results
from codecnn.base.rate_modes import rate_mode

if TYPE_CHECKING:
    from codecnn.dataset import Recipe, Store
    from codecnn.evaluation import Entry, ResultsList

QPS = (22, 27, 32, 37, 42)
"""QPs of the common test conditions, and 42, at which filters gain most."""

EVALUATION = "evaluation"
"""Name of the recipe of a store that `evaluate` builds."""

Model = Path | str | Callable[..., Any]
"""Weights, a file or a name, or a filter in memory: a module of torch or a function of a picture."""

SOURCES, CODING, MEASUREMENT = "Sources", "Coding", "Measurement"
"""Groups of options in --help."""


def _parse_metrics(text: str) -> tuple[str, ...]:
    from codecnn.evaluation import parse_metrics

    return parse_metrics(text)


@record
class SequenceKeys:
    """Keys of a recipe's sequence for videos, in Python only."""

    _: KW_ONLY
    start: Annotated[int, python_only("Number of pictures to skip at the start.")] = 0
    matrix: Annotated[str, python_only("RGB to Y'CbCr matrix for stills: bt601, bt709 or bt2020.")] = "bt709"
    full_range: Annotated[bool, python_only("Full instead of limited range for stills.")] = False
    series: Annotated[bool, python_only("Treat a folder of numbered stills as one video.")] = False
    class_: Annotated[str | None, python_only("JVET class: A1, B and so on.")] = None
    name: Annotated[str | None, python_only("Name of the sequence; None takes that of the file.")] = None
    group: Annotated[str | None, python_only("Sequences of one group show the same scene.")] = None
    exclude: Annotated[Sequence[str], python_only("Patterns of file names to exclude from a source.")] = ()
    scales: Annotated[Sequence[float], python_only("Sizes to code: 0.5 is half the width and height.")] = (1,)
    variants: Annotated[Mapping[str, Any] | None, python_only("Random changes of each source, as in a recipe.")] = None


@record
class EvaluateOptions(RawVideo, NetworkComputation, ManyMachines, SequenceKeys):
    """Options of `evaluate`."""

    sources: Annotated[
        "Store | FileName | Sequence[FileName]",
        argument(
            "Videos or pictures to code, or one store, or streams with --original.", "SEQ...", kind=str, collect=list
        ),
    ]
    models: Annotated[
        Model | Sequence[Model],
        replace(
            MODELS,
            python="Or filters in memory: a module of torch as `codecnn.models.as_filter_network` takes it, or a "
            "function of a `codecnn.pictures.files.Picture`, and of the slice QP if it has a parameter `qp`, that "
            "returns the filtered picture.",
        ),
    ]
    output: Annotated[
        FileName, option("-o", "--output", help="Folder for results.json, report.html and tables, e.g. results.")
    ] = "results"
    _: KW_ONLY
    qps: Annotated[
        Sequence[int] | None,
        option(
            "-q",
            "--qp",
            parse=parse_qps,
            help="QPs to code at (default: 22,27,32,37,42), or of a store or of streams to evaluate (default: all).",
        ),
    ] = None
    codec: Annotated[str, option("--codec", help="Codec for videos and pictures: vvc, hevc, av1, svtav1 or avc.")] = (
        "vvc"
    )
    configuration: Annotated[
        Literal["ai", "ra", "ldb"],
        option("--configuration", help="Coding configuration: all intra, random access or low delay B."),
    ] = "ai"
    jobs: Jobs = 1
    original: Annotated[
        FileName | None,
        option(
            "--original",
            group=SOURCES,
            help="Video that the given streams were coded from; their pictures are filtered.",
        ),
    ] = None
    split: Annotated[str, option("--split", group=SOURCES, help="Split of a store: train, val or test.")] = "test"
    frames: Annotated[
        int | None,
        option(
            "-f",
            "--frames",
            minimum=1,
            group=SOURCES,
            help="Number of pictures to read from the start (default: all).",
        ),
    ] = None
    step: Annotated[
        int, option("--step", minimum=1, group=SOURCES, help="Use every N-th picture; JVET uses 8 in all intra.")
    ] = 1
    fps: Fps = None
    preset: Annotated[
        str, option("--preset", group=CODING, help="Encoder preset, e.g. faster, fast, medium, slow.")
    ] = "medium"
    ctc: Annotated[
        bool,
        option(
            "--ctc",
            group=CODING,
            help="With ra or ldb, follow JVET's common test conditions as far as libvvenc allows.",
        ),
    ] = False
    decisions: Annotated[
        Decisions,
        option(
            "--decisions",
            group=MEASUREMENT,
            help="Encoder decisions: none; ctu: residual scale, on and off by CTU; full: QP offset as well.",
        ),
    ] = "none"
    metrics: Annotated[
        Sequence[str],
        option(
            "--metrics",
            parse=_parse_metrics,
            shown="psnr",
            group=MEASUREMENT,
            help="Quality metrics, a comma list of psnr, ssim, ms-ssim, vmaf, vmaf-neg, xpsnr.",
        ),
    ] = ("psnr",)
    prune: Annotated[
        bool,
        option("--prune", group=MEASUREMENT, help="Remove coded streams and measurements of other evaluations."),
    ] = False
    key: Annotated[
        str | None,
        python_only(
            "Text that stands for the filters in memory in the keys of kept measurements, together with their names. "
            "Functions and objects whose state cannot be read, such as an array in a closure, are otherwise measured "
            "anew each time; whoever gives a key changes it when the filters change."
        ),
    ] = None
    coding: Annotated[Progress | None, progress_bar("coding", "unit", "Called with (units coded, all units).")] = None
    filtering: Annotated[
        Progress | None, progress_bar("filtering", "cell", "Called with (cells measured, all cells).")
    ] = None

    def sequence_keys(self) -> dict[str, Any]:
        """Return the keys of a recipe's sequence that differ from their defaults."""
        values = self.raw_format() | {"fps": self.fps, "frames": self.frames, "step": self.step}
        values |= {"start": self.start, "matrix": self.matrix, "full_range": self.full_range, "series": self.series}
        values |= {"class": self.class_, "name": self.name, "group": self.group, "exclude": list(self.exclude)}
        values |= {"scales": list(self.scales), "variants": self.variants}
        return {name: value for name, value in values.items() if value != _SEQUENCE_DEFAULTS.get(name)}

    @property
    def encoding_given(self) -> bool:
        """True if an option of the encoder differs from its default."""
        return (self.codec, self.preset, self.configuration, self.ctc) != ("vvc", "medium", "ai", False)


_SEQUENCE_DEFAULTS = {"step": 1, "start": 0, "matrix": "bt709", "full_range": False, "series": False} | {
    "exclude": [],
    "scales": [1],
}


@verb(EvaluateOptions)
def evaluate(options: EvaluateOptions) -> "ResultsList":
    """Code sequences (or take those of a store), filter the decoded pictures, and report PSNR gain and BD-rate.

    A sequence is a video, a picture, or a folder of pictures that are coded one by one. Streams that are already coded
    are evaluated with the video that they were coded from: evaluate q22.266 q37.266 --original clip.yuv. With --exact,
    integer networks are evaluated together with the float networks that they were made from.

    Coded streams and measurements are kept: an interrupted evaluation continues when the same command is run again, and
    other QPs, clips, settings or filters are added to those in the folder; --prune removes them. For an array job, run
    N jobs into one folder with --shard 1/N to --shard N/N; the last to finish writes the report. With --backend dask
    --scheduler tcp://host:8786 the workers of a cluster code and filter; they must see store, weights and output under
    the same paths.

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
    from codecnn.dataset import Store, build_shard, is_store, open_store
    from codecnn.evaluation import RESULT_FILES, ResultsList, load_entries, memory_entries
    from codecnn.evaluation import evaluate as run_evaluation
    from codecnn.models import weights_path

    options.check_backend()
    check_shard(options.shard)
    sources = options.sources
    given_store = sources if isinstance(sources, Store) else None
    names: list[FileName]
    if isinstance(sources, Store):
        names = [sources.folder]
    else:
        names = [sources] if isinstance(sources, Path | str) else list(sources)
    _check_store_alone(names, options)
    given = list(options.models) if isinstance(options.models, list | tuple) else [options.models]
    weights = [weights_path(model) for model in given if isinstance(model, Path | str)]
    output = Path(options.output)
    uses_store = given_store is not None or (len(names) == 1 and is_store(Path(names[0])))
    written = [*RESULT_FILES, *(() if uses_store else ("store",))]
    check_evaluation_outputs([output / name for name in written], [*names, options.original], weights)
    entries = load_entries(weights, options.exact, options.precision, options.device, options.tile)
    in_memory = [model for model in given if not isinstance(model, Path | str)]
    entries += memory_entries(in_memory, options.device, options.tile, options.key)
    if uses_store:
        _check_nothing_of_videos(names[0], options)
        claim_results(output, written)
        store = _at_qps(given_store or open_store(names[0]), options.qps)
    else:
        recipe = _recipe(names, entries, options)
        _check_store_of_evaluate(output / "store")
        claim_results(output, written)
        # The streams of other evaluations stay, and count again when one of these is repeated.
        complete = build_shard(
            recipe,
            Path(),
            output / "store",
            options.shard,
            jobs=options.jobs,
            scheduler=options.scheduler,
            progress=options.coding,
            prune=options.prune,
            keep=not options.prune,
        )
        if not complete:
            return ResultsList()
        store = open_store(output / "store")
        store = store if options.original is None else _at_qps(store, options.qps)
    return run_evaluation(
        entries,
        store,
        options.split,
        output,
        metrics=options.metrics,
        decisions=options.decisions,
        shard=options.shard,
        scheduler=options.scheduler,
        prune=options.prune,
        progress=options.filtering,
    )


def _recipe(names: Sequence[FileName], entries: "Sequence[Entry]", options: EvaluateOptions) -> "Recipe":
    """Return the recipe that codes videos and pictures, or that takes given streams."""
    from codecnn.api.config import checked
    from codecnn.base.planes import RECIPE_PLANES, STREAM_PLANES
    from codecnn.codec import codes_vvc, internal_bit_depth
    from codecnn.dataset import Recipe

    original = options.original
    _check_exist([*names, *([] if original is None else [original])])
    # Auxiliary planes of the networks are computed for the store, or the back end provides them.
    planes = [name for name in RECIPE_PLANES if any(name in entry.filter.planes for entry in entries)]
    values: dict[str, Any]
    if original is not None:
        if options.encoding_given:
            raise ConfigError(
                "streams are already coded: leave out --codec, --preset, --configuration and --ctc with --original"
            )
        values = stream_recipe(names)
        sequences = [{"source": str(original), "streams": [str(name) for name in names]}]
    else:
        _check_originals(names)
        codec = options.codec
        values = {
            "codec": codec,
            "preset": options.preset,
            "configuration": options.configuration,
            "ctc": options.ctc,
            "times": True,
            "qp": list(options.qps or QPS),
            "ctu_size": 128 if codes_vvc(codec) else 64,
            "internal_bit_depth": internal_bit_depth(codec),
        }
        if not codes_vvc(codec) and [name for name in planes if name in STREAM_PLANES] == ["unf_y"]:
            planes.remove("unf_y")
            values["unfiltered"] = True
        sequences = [{"source": str(source)} for source in names]
    keys = options.sequence_keys() | {"split": options.split}
    values |= {"planes": planes, "name": EVALUATION, "sequences": [keys | each for each in sequences]}
    return checked(Recipe, values, "evaluate")


def check_evaluation_outputs(
    outputs: Sequence[Path], sources: Sequence[Path | str | None], weights: Sequence[Path]
) -> None:
    """Raise ConfigError if an evaluation would replace its sources or weights."""
    from codecnn.dataset import input_files
    from codecnn.models import weights_files

    check_outputs(outputs, [*input_files(*sources), *weights_files(*weights)])


def _check_exist(names: Sequence[Path | str]) -> None:
    """Raise MissingFileError for a name that is no file, no folder, no pattern of some, and no sample picture."""
    for name in names:
        path = Path(name).expanduser()
        pattern = glob.glob(str(path), recursive=True)  # noqa: PTH207
        if not (str(name).startswith("skimage:") or path.exists() or pattern):
            raise MissingFileError(f"{name} does not exist: name a store, a video, a picture or a folder of pictures")


def _check_nothing_of_videos(store: FileName, options: EvaluateOptions) -> None:
    """Raise ConfigError if options of videos are given for a store."""
    if options.original is not None:
        raise ConfigError(f"{store} is a store, which contains its originals: leave out --original")
    if given := list(options.sequence_keys()):
        raise ConfigError(f"{store} is a store, whose recipe states {given[0]}: leave {', '.join(given)} out")


def _check_originals(names: Sequence[Path | str]) -> None:
    """Raise ConfigError if a source is a byte stream, and warn of sources in containers, which are coded as well."""
    from codecnn.pictures.files import STANDARD_NAMES, is_byte_stream, stream_codec, warn

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


def stream_recipe(names: Sequence[Path | str]) -> dict[str, Any]:
    """Return the settings of a recipe for streams, read from their headers.

    Raises:
        ConfigError: A file is not a stream, or the streams differ in configuration.
    """
    from codecnn.codec import STREAMS, coded_configuration, read_headers
    from codecnn.pictures.files import stream_codec

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
    from codecnn.dataset import MANIFEST, open_store

    if (folder / MANIFEST).is_file() and open_store(folder).manifest.recipe.name != EVALUATION:
        raise ConfigError(f"{folder} is a store of `codecnn dataset build`: name another folder with -o")


def _check_store_alone(names: Sequence[FileName], options: EvaluateOptions) -> None:
    """Raise ConfigError if a store is mixed with other sources, or options of the encoder are given for it."""
    from codecnn.dataset import MANIFEST

    stores = [name for name in names if (Path(name) / MANIFEST).is_file()]
    if stores and len(names) > 1:
        raise ConfigError(
            f"{stores[0]} is a store, which must be evaluated alone: give one store, or videos and pictures"
        )
    if stores and options.encoding_given:
        raise ConfigError(
            f"{stores[0]} is a store, which is already coded: leave out --codec, --preset, --configuration and --ctc"
        )


def _at_qps(store: "Store", qps: Sequence[int] | None) -> "Store":
    """Restrict a store to its units at some QPs; None keeps all."""
    if qps is None:
        return store
    available = {unit.qp for unit in store.units}
    if missing := sorted(set(qps) - available):
        wanted = rate_mode(store.manifest.recipe.rate_option).text(missing[0])
        listed = ", ".join(map(str, sorted(available)))
        raise StoreError(f"store {store.folder} has no pictures at {wanted}: it has {listed}")
    return replace(store, units=tuple(unit for unit in store.units if unit.qp in qps))
