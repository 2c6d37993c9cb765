"""Function that evaluates filters inside the coding loop.

PyTorch takes seconds to import, so packages that need it are imported inside the functions.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import KW_ONLY
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from codecnn.api.evaluation import CODING, MEASUREMENT, QPS, check_evaluation_outputs
from codecnn.api.groups import (
    MODELS,
    FileName,
    Fps,
    Frames,
    NetworkComputation,
    RawVideo,
    parse_qps,
)
from codecnn.base.choices import Decisions
from codecnn.base.cluster import Progress
from codecnn.base.errors import ConfigError
from codecnn.base.options import argument, option, progress_bar, record, verb
from codecnn.base.outputs import claim_results

if TYPE_CHECKING:
    from codecnn.signalling.in_loop import LoopResults


@record
class LoopOptions(RawVideo, NetworkComputation):
    """Options of `evaluate_in_loop`."""

    sources: Annotated[FileName | Sequence[FileName], argument("Videos to code.", "SEQ...", kind=Path, collect=list)]
    models: Annotated[
        FileName | Sequence[FileName],
        MODELS,
    ]
    output: Annotated[FileName, option("-o", "--output", help="Folder for results, bitstreams and pictures.")]
    _: KW_ONLY
    qps: Annotated[
        Sequence[int],
        option(
            "-q",
            "--qp",
            parse=parse_qps,
            shown="22,27,32,37,42",
            help="QPs to code at; a BD-rate needs four.",
        ),
    ] = QPS
    frames: Frames = None
    fps: Fps = None
    preset: Annotated[
        str, option("--preset", group=CODING, help="Encoder preset, e.g. faster, fast, medium, slow.")
    ] = "medium"
    library: Annotated[
        FileName | None,
        option(
            "--vvenc-library",
            group=CODING,
            help="libvvenc as a shared library, see docs/howto/inloop.md (default: CODECNN_VVENC_LIBRARY).",
        ),
    ] = None
    decisions: Annotated[
        Decisions,
        option(
            "--decisions",
            group=MEASUREMENT,
            help="Encoder decisions: none; ctu: residual scale, on and off by CTU; full: QP offset as well.",
        ),
    ] = "ctu"
    choose: Annotated[
        bool,
        option(
            "--choose",
            group=MEASUREMENT,
            help="Code in more passes, with some pictures filtered in the loop and the others behind it, and choose "
            "the best place for each sequence and QP.",
        ),
    ] = False
    picture_hashes: Annotated[
        bool,
        option(
            "--picture-hashes",
            group=CODING,
            help="Write MD5s of the filtered pictures into the streams, with which `codecnn decode` compares its own; "
            "BD-rates do not count their bits.",
        ),
    ] = False
    progress: Annotated[
        Progress | None, progress_bar("coding and filtering", "picture", "Called with (pictures done, all pictures).")
    ] = None


@verb(LoopOptions)
def evaluate_in_loop(options: LoopOptions) -> "LoopResults":
    """Code videos in low delay without a filter and with each filter in the coding loop, and compute BD-rates.

    libvvenc codes as a shared library, on this machine, with PSNR as the metric. Streams that are already coded are
    kept.

    Returns:
        The results.

    Raises:
        ConfigError: A source is a store or has one picture only, or two videos have the same name.
        ToolMissingError: No library is named.
        MissingFileError: The library or a video does not exist.
        ModelError: A network needs planes that the loop does not provide.
        EncoderError: The encoder fails.
    """
    from codecnn.dataset import is_store
    from codecnn.evaluation import load_entries
    from codecnn.models import weights_path
    from codecnn.pictures.files import open_video
    from codecnn.signalling.in_loop import LOOP_FILES, find_library
    from codecnn.signalling.in_loop import evaluate_in_loop as run_evaluation

    output, sources, models = Path(options.output), options.sources, options.models
    paths = [Path(source) for source in ([sources] if isinstance(sources, Path | str) else sources)]
    for path in paths:
        if is_store(path):
            raise ConfigError(f"{path} is a store, which is already coded: evaluate-loop needs the original videos")
        if [other.stem for other in paths].count(path.stem) > 1:
            raise ConfigError(f"two sequences have the same name {path.stem}: rename a file")
    weights = [weights_path(model) for model in ([models] if isinstance(models, Path | str) else models)]
    check_evaluation_outputs([output / name for name in LOOP_FILES], [*paths, options.library], weights)
    library = find_library(options.library)
    claim_results(output, LOOP_FILES)
    entries = load_entries(weights, options.exact, options.precision, options.device, options.tile)
    form = options.raw_format() | {"fps": options.fps, "frames": options.frames}
    with ExitStack() as stack:
        videos = {path.stem: stack.enter_context(open_video(path, **form)) for path in paths}
        return run_evaluation(
            entries,
            videos,
            options.qps,
            library,
            output,
            preset=options.preset,
            decisions=options.decisions,
            choose=options.choose,
            picture_hashes=options.picture_hashes,
            progress=options.progress,
        )
