"""Functions that label the blocks of pictures, by a full search or with networks.

PyTorch takes seconds to import, so packages that need it are imported inside the functions.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from codecnn.api.groups import COMPUTATION, FileName, Frames, ManyMachines, RawVideo, parse_names
from codecnn.base.cluster import WHOLE, Progress
from codecnn.base.errors import ConfigError
from codecnn.base.options import option, progress_bar, python_only, record, verb

if TYPE_CHECKING:
    from codecnn.modes.labels.labelling import Input, Labels

DECODED, SEARCH = "Decoded pictures", "Search"
"""Groups of options in --help."""


@record
class Pictures(RawVideo):
    """The pictures of a table of blocks, and the table."""

    source: Annotated[
        FileName, option("-i", "--input", help="Video, still picture, folder of still pictures, or store.")
    ]
    output: Annotated[
        FileName | None,
        option(
            "-o",
            "--output",
            required=True,
            help="Table to write, with one row per block, e.g. labels.parquet.",
            python="None returns the table.",
        ),
    ] = None
    _: KW_ONLY
    decoded: Annotated[
        FileName | None,
        option(
            "--decoded",
            group=DECODED,
            help="Decoded version of the same pictures for the reference samples (default: input).",
        ),
    ] = None
    qp: Annotated[
        int | None,
        option("-q", "--qp", minimum=0, maximum=63, group=DECODED, help="Slice QP of the decoded pictures, e.g. 32."),
    ] = None
    splits: Annotated[
        Sequence[str],
        option("--split", parse=parse_names, help="Splits of a store, e.g. test or train,val (default: train,val)."),
    ] = ()
    frames: Frames = None
    start: Annotated[int, python_only("Number of pictures to skip at the start.")] = 0
    step: Annotated[int, python_only("Distance between the pictures that are labelled.")] = 1
    matrix: Annotated[str, python_only("RGB to Y'CbCr matrix for stills: bt601, bt709 or bt2020.")] = "bt709"
    full_range: Annotated[bool, python_only("Full instead of limited range for stills.")] = False
    progress: Annotated[
        Progress | None,
        progress_bar("labelling", "picture", "Called with the numbers of finished and of all pictures, or of files."),
    ] = None

    def inputs(self) -> "list[Input]":
        """List the inputs; ConfigError if the options do not fit the source."""
        from codecnn.modes.labels.labelling import list_inputs

        values = self.raw_format() | {"frames": self.frames, "start": self.start, "step": self.step}
        values |= {"matrix": self.matrix, "full_range": self.full_range}
        defaults = {"start": 0, "step": 1, "matrix": "bt709", "full_range": False}
        given = {name: value for name, value in values.items() if value != defaults.get(name)}
        decoded = None if self.decoded is None else Path(self.decoded)
        return list_inputs(Path(self.source), decoded, self.qp, self.splits, given)


@record
class LabelOptions(Pictures, ManyMachines):
    """Options of `label_blocks`."""

    _: KW_ONLY
    block_sizes: Annotated[
        str | None,
        option("--block-sizes", help="Block sizes, e.g. 8,16 or 16x8 (default: all squares of the standard)."),
    ] = None
    cost: Annotated[str, option("--cost", help="Cost or list of costs to minimise: dct, hadamard, rate, sad, sse.")] = (
        "dct"
    )
    top: Annotated[int, option("--top", minimum=1, help="Number of best modes to keep per block.")] = 3
    full: Annotated[bool, option("--full", group=SEARCH, help="Keep the costs of all modes.")] = False
    standard: Annotated[
        Literal["vvc", "hevc"], option("--standard", group=SEARCH, help="Standard of the intra modes.")
    ] = "vvc"
    ctu_size: Annotated[
        int | None,
        option(
            "--ctu-size",
            group=SEARCH,
            help="CTU size in samples, which decides the available neighbours (default: the largest).",
        ),
    ] = None
    jobs: Annotated[int, option("-j", "--jobs", minimum=1, group=COMPUTATION, help="Number of CPU threads.")] = 2
    device: Annotated[
        str,
        option("--device", group=COMPUTATION, help="Device: auto, cpu (compiled loops), cuda or cuda:N."),
    ] = "cpu"


@verb(LabelOptions)
def label_blocks(options: LabelOptions) -> "Labels":
    """Label every block of pictures with its best intra mode by the cost of its residual (--cost).

    In a store, every picture is labelled at every QP with references from the decoded pictures. docs/howto/labels.md
    describes the columns and which neighbours count as available. The result does not depend on the number of threads.

    For an array job, run N jobs into one table with --shard 1/N to --shard N/N: each labels a part of the files or
    units, and the last to finish writes the table. With --backend dask --scheduler tcp://host:8786 the workers of a
    cluster do the work; they must see pictures and output under the same paths.

    Returns:
        Numbers of pictures and blocks, and the table if there is no `output`.

    Raises:
        ConfigError: An argument cannot be used.
        MissingFileError: A file does not exist.
        FormatError: A file cannot be read, or the decoded pictures do not fit.
        StoreError: The store cannot be read.
        CodecnnError: As `codecnn.base.cluster.work_through`.
    """
    import pyarrow.parquet as pq

    from codecnn.base.leftovers import temporary_folder
    from codecnn.models import pick_device
    from codecnn.modes.labels.labelling import Labels, check_table_output, read_inputs, write_labels_by_parts
    from codecnn.modes.labels.table import label_settings, write_labels

    options.check_backend()
    output = None if options.output is None else Path(options.output)
    settings = label_settings(
        options.standard, options.block_sizes, options.cost, options.top, options.full, options.ctu_size
    )
    # The workers of a cluster choose their devices themselves.
    device = options.device if options.scheduler else str(pick_device(options.device))
    if output is not None:
        check_table_output(output, options.source, options.decoded)
    inputs = options.inputs()
    pictures = sum(entry.count for entry in inputs)
    if options.shard != WHOLE or options.scheduler is not None:
        if output is None:
            raise ConfigError("labels by several machines need an output, which all of them see")
        rows = write_labels_by_parts(
            output,
            inputs,
            settings,
            shard=options.shard,
            scheduler=options.scheduler,
            jobs=options.jobs,
            device=device,
            progress=options.progress,
        )
        return Labels(pictures, rows or 0, complete=rows is not None)
    with temporary_folder("labels") as folder:
        path = Path(folder) / "labels.parquet" if output is None else output
        blocks = write_labels(
            path,
            read_inputs(inputs),
            settings,
            total=pictures,
            inputs=[entry.facts() for entry in inputs],
            jobs=options.jobs,
            device=device,
            progress=options.progress,
        )
        return Labels(pictures, blocks, pq.read_table(path) if output is None else None)


@record
class PredictOptions(Pictures):
    """Options of `predict_block_modes`."""

    _: KW_ONLY
    models: Annotated[
        Sequence[FileName],
        option(
            "--model",
            kind=str,
            collect=tuple,
            help="Weights of a mode network; repeat for each block size (default: 8x8 and 16x16).",
        ),
    ] = ()
    top: Annotated[int, option("--top", minimum=1, help="Number of modes per block, most likely first.")] = 8
    cost: Annotated[
        Literal["dct", "hadamard", "rate"] | None,
        option(
            "--cost",
            kind=Literal["dct", "hadamard", "rate"],
            help="Compute this cost of the predicted modes and choose the best (default: none).",
        ),
    ] = None
    exact: Annotated[
        bool,
        option(
            "--exact",
            group=COMPUTATION,
            help="Compute in integers (NAME.int16.safetensors), with identical results on all machines.",
        ),
    ] = False
    ctu_size: Annotated[
        int | None,
        option(
            "--ctu-size",
            group=SEARCH,
            help="CTU size in samples, which decides the available neighbours (default: the network's).",
        ),
    ] = None


@verb(PredictOptions)
def predict_block_modes(options: PredictOptions) -> "Labels":
    """Predict the most likely intra modes of every block with a network, instead of trying all 67 modes.

    docs/howto/modes.md describes the columns, docs/research/modes.md the time and quality of this choice.

    Returns:
        Numbers of pictures and blocks, and the table if there is no `output`.

    Raises:
        ConfigError: An argument cannot be used.
        ModelError: Weights are not those of a mode network for blocks of one size.
        CodecnnError: As `label_blocks`.
    """
    import pyarrow.parquet as pq

    from codecnn.base.leftovers import temporary_folder
    from codecnn.models import weights_files, weights_path
    from codecnn.modes.labels.labelling import Labels, check_table_output
    from codecnn.modes.labels.predicting import write_modes

    output = None if options.output is None else Path(options.output)
    if output is not None:
        check_table_output(output, options.source, options.decoded, weights_files(*map(weights_path, options.models)))
        if output.suffix not in ("", ".parquet"):
            raise ConfigError(f"{output}: modes are a Parquet table: end its name in .parquet")
    with temporary_folder("modes") as folder:
        path = Path(folder) / "modes.parquet" if output is None else output
        written = write_modes(
            path,
            options.inputs(),
            options.models,
            top=options.top,
            cost=options.cost,
            exact=options.exact,
            ctu_size=options.ctu_size,
            progress=options.progress,
        )
        return Labels(written.pictures, written.blocks, pq.read_table(path) if output is None else None)
