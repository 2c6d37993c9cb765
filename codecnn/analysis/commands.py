"""The command of the correlation analysis."""

from collections.abc import Sequence
from dataclasses import KW_ONLY
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from codecnn.api.groups import FileName, Frames, RawVideo
from codecnn.base.errors import ConfigError
from codecnn.base.options import argument, option, record, verb
from codecnn.cli.commands import command
from codecnn.cli.console import out, print_json

if TYPE_CHECKING:
    from codecnn.analysis import Correlation, CtuTable


@record
class CorrelateOptions(RawVideo):
    """Options of `correlate`."""

    sources: Annotated[
        Sequence[FileName],
        argument(
            "Store, folder of an evaluation, table (.parquet, .csv), or VVC streams with --original.",
            "SOURCE...",
            kind=Path,
            collect=list,
        ),
    ]
    output: Annotated[FileName, option("-o", "--output", help="Folder for correlation.json, tables and plots.")]
    _: KW_ONLY
    original: Annotated[FileName | None, option("--original", help="Video that the given streams were coded from.")] = (
        None
    )
    frames: Frames = None
    seed: Annotated[int, option("--seed", minimum=0, help="Seed of the search, the bootstrap and the splits.")] = 0
    resamples: Annotated[
        int, option("--resamples", minimum=0, help="Number of bootstrap resamples; 0 computes no intervals.")
    ] = 1000


@verb(CorrelateOptions)
def correlate(options: CorrelateOptions) -> "Correlation":
    """Correlate QP and CU depth with the coding error, and find the best combination a·QP + b·depth.

    VVC streams of one video at several QPs need no store: correlate q22.266 q37.266 --original clip.yuv.
    """
    from codecnn import analysis
    from codecnn.base.outputs import check_outputs, claim_results
    from codecnn.dataset import UNITS, input_files, open_store

    sources, output = [Path(source) for source in options.sources], Path(options.output)
    inputs = [file for path in sources for file in ([path / "ctus.parquet"] if path.is_dir() else [])]
    inputs += input_files(*sources, options.original)
    check_outputs([output / name for name in analysis.RESULT_FILES], inputs)
    if options.original is not None:
        table = _stream_table(sources, options)
    else:
        source = _single_table(sources)
        if (source / UNITS).exists() or (source / "coded").exists():
            open_store(source)  # raises an error for an incomplete store
        table = analysis.check_table(analysis.load_table(source))
    claim_results(output, analysis.RESULT_FILES)
    result = analysis.correlate(table, seed=options.seed, resamples=options.resamples)
    analysis.write_correlation(output, result, table)
    return result


def _single_table(sources: Sequence[Path]) -> Path:
    """Return the one store or table; ConfigError for streams, which need their original, and for several tables."""
    from codecnn.pictures.files import stream_codec

    for source in sources:
        if source.is_file() and stream_codec(source) is not None:
            raise ConfigError(f"{source} is coded video: name the video that it was coded from with --original")
    if len(sources) > 1:
        raise ConfigError(f"{sources[1]} is a second table: give one store or table, or streams with --original")
    return sources[0]


def _stream_table(streams: Sequence[Path], options: CorrelateOptions) -> "CtuTable":
    """Return the CTUs of VVC streams that were coded from one video."""
    from codecnn.analysis import check_table
    from codecnn.api.config import checked
    from codecnn.api.evaluation import stream_recipe
    from codecnn.base.leftovers import temporary_folder
    from codecnn.dataset import Recipe, build_store
    from codecnn.pictures.files import STANDARD_NAMES, stream_codec

    values = stream_recipe(streams)
    for stream in streams:
        if (codec := stream_codec(stream)) is not None and codec != "vvc":
            raise ConfigError(
                f"{stream} is a stream of {STANDARD_NAMES[codec]}, whose CU depth codecnn does not read: give VVC "
                "streams, or a store that codecnn coded with the codec vvc or hevc"
            )
    sequence = {"source": str(options.original), "streams": list(map(str, streams)), "frames": options.frames}
    sequence |= {name: value for name, value in options.raw_format().items() if value is not None}
    recipe = checked(Recipe, values | {"name": "streams", "sequences": [sequence]}, "correlate")
    with temporary_folder("streams") as folder:
        return check_table(build_store(recipe, Path(), Path(folder) / "store").ctus())


@command("correlate", correlate, "codecnn correlate stores/demo -o correlation")
def show_correlation(options: CorrelateOptions, result: "Correlation", as_json: bool) -> None:
    """Print the report."""
    if as_json:
        print_json(result.as_json())
    else:
        text = (Path(options.output) / "correlation.md").read_text(encoding="utf-8")
        out.print(text, markup=False, highlight=False, soft_wrap=True)
