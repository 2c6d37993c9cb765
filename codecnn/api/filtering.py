"""Function that filters a file with weights, with or without the decisions of an encoder.

PyTorch takes seconds to import, so packages that need it are imported inside the functions.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from codecnn.api.groups import (
    AUXILIARY,
    DECISIONS,
    MEMORY,
    Fps,
    Frames,
    Memory,
    NetworkComputation,
    OptionalModel,
    RawVideo,
    Source,
    parse_qps,
    read_qps,
)
from codecnn.base.cluster import Progress
from codecnn.base.errors import ConfigError, FormatError
from codecnn.base.options import option, pair, progress_bar, record, verb
from codecnn.base.outputs import check_outputs
from codecnn.base.parts import extension

if TYPE_CHECKING:
    from codecnn.base.runtime import Runtime
    from codecnn.filtering import PictureFilter, PlaneSource
    from codecnn.pictures.files import Video

STATISTICS_SUFFIXES = (".vtmbmsstats", ".vtmbmsstats.gz")
"""Suffixes of files with block statistics."""


@dataclass(frozen=True)
class FilteredFile:
    """Result of `filter_file`.

    Attributes:
        output: File with the filtered pictures.
        pictures: Number of pictures.
        decisions: With an original, what was decided, as `codecnn.filtering.count_decisions` returns it; else None.
        notes: Sentences about QPs and codecs that the network was not trained for.
        runtime: How the network was computed.
    """

    output: Path
    pictures: int
    decisions: dict[str, Any] | None = None
    notes: tuple[str, ...] = ()
    runtime: "Runtime | None" = None


@record
class FilterOptions(RawVideo, NetworkComputation):
    """Options of `filter_file`."""

    source: Annotated[
        Source,
        option(
            "-i",
            "--input",
            help="Decoded pictures (YUV, Y4M), or a stream of VVC, HEVC, AVC or AV1, also in MP4, MKV or TS; "
            "- is Y4M from a pipe.",
        ),
    ]
    model: OptionalModel
    output: Annotated[
        Source,
        option(
            "-o",
            "--output",
            help="Filtered pictures to write: .yuv, or .y4m, e.g. filtered.y4m; - writes Y4M to a pipe.",
        ),
    ]
    _: KW_ONLY
    qp: Annotated[
        int | Sequence[int] | Source | None,
        option(
            "-q",
            "--qp",
            kind=str,
            help="Slice QP of all pictures, e.g. 37; a comma list or a file with one QP per picture (default: from the "
            "stream).",
        ),
    ] = None
    frames: Frames = None
    original: Annotated[
        Source | None,
        option("--original", help="Original pictures; enables decisions by rate-distortion cost."),
    ] = None
    fps: Fps = None
    planes: Annotated[
        Mapping[str, Source],
        option(
            "--plane",
            metavar="NAME=FILE",
            kind=str,
            parse=pair("--plane", "unf_y=unfiltered.yuv"),
            collect=dict,
            group=AUXILIARY,
            help="File of an auxiliary plane, e.g. unf_y=unfiltered.yuv; may be repeated (default: from a VVC stream).",
        ),
    ] = field(default_factory=dict)
    blocks: Annotated[
        Source | None,
        option(
            "--blocks",
            group=AUXILIARY,
            help="CU table for networks that take depth, modes or cu_qp (default: from a VVC stream).",
        ),
    ] = None
    slice_type: Annotated[
        Literal["I", "P", "B"] | None,
        option(
            "--slice-type",
            kind=Literal["I", "P", "B"],
            group=AUXILIARY,
            help="Slice type of all pictures, for networks that take it (default: stream).",
        ),
    ] = None
    update: Annotated[
        Source | None,
        option("--update", group=AUXILIARY, help="Update of the weights for this sequence, from codecnn adapt."),
    ] = None
    decisions_file: Annotated[
        Source | None,
        option("--decisions", group=DECISIONS, help="Write the decisions as block statistics, e.g. d.vtmbmsstats."),
    ] = None
    qp_offsets: Annotated[
        Sequence[int],
        option(
            "--qp-offsets",
            parse=parse_qps,
            shown="0",
            group=DECISIONS,
            help="QP offsets that the decisions try besides 0, e.g. -5,5.",
        ),
    ] = (0,)
    ctu_size: Annotated[int, option("--ctu", group=DECISIONS, help="CTU size of the decisions in luma samples.")] = 128
    memory: Memory = MEMORY
    progress: Annotated[
        Progress | None, progress_bar("filtering", "picture", "Called with (pictures done, all pictures).")
    ] = None

    def video_options(self) -> dict[str, Any]:
        """Return the arguments of `codecnn.open_video` for the source."""
        return self.raw_format() | {"fps": self.fps, "frames": self.frames}


@verb(FilterOptions)
def filter_file(options: FilterOptions) -> FilteredFile:
    """Filter decoded pictures; the output has the format of the input, with the pictures in output order.

    Without weights, a stream of VVC or HEVC is filtered with the network that its post-filter messages carry (codecnn
    nnpf), for the pictures for which they activate it. The network must be embedded, or come with codecnn.

    With an original, each picture is filtered as an encoder would choose by rate-distortion cost: off, on or by CTU,
    with the best residual scale and QP offset.

    Returns:
        The number of pictures, the decisions, and notes.

    Raises:
        ConfigError: The options do not fit together, an output is an input, or a QP is missing or out of range.
        MissingFileError: A file does not exist.
        FormatError: A file does not have the stated format.
        ModelError: The weights do not fit.
    """
    from codecnn.base.planes import SLICE_TYPE_PLANE
    from codecnn.codec import output_pictures, read_headers
    from codecnn.dataset import input_files
    from codecnn.evaluation import other_codec, untrained_qp, varying_qps
    from codecnn.filtering import (
        count_decisions,
        decide_video,
        filter_video,
        load_filter,
        write_decisions,
    )
    from codecnn.models import pick_device, weights_files, weights_path
    from codecnn.pictures.files import open_like, open_video, stream_codec

    source, model, output = Path(options.source), options.model, Path(options.output)
    files = [options.original, options.blocks, options.update, *options.planes.values()]
    weights = [] if model is None else weights_files(weights_path(model))
    qp_files = [options.qp] if isinstance(options.qp, Path | str) else []
    check_outputs([output, options.decisions_file], [*input_files(source, *files), *weights, *qp_files])
    _check_combination(options)
    if model is None:
        return extension("signalling.filter_carried")(options)  # type: ignore[no-any-return]
    qp, original = read_qps(options.qp), options.original
    filter_ = load_filter(
        model,
        exact=options.exact,
        precision=options.precision,
        device=pick_device(options.device),
        tile=options.tile,
        memory=options.memory,
    )
    if options.update is not None:
        filter_ = extension("signalling.apply_update")(filter_, options.update, str(model))
    if qp is not None and stream_codec(source) is not None:
        # Otherwise the headers are not read, and their reader would not warn that the pictures are fields.
        with suppress(FormatError):
            read_headers(source)
    with ExitStack() as stack:
        video = stack.enter_context(open_video(source, **options.video_options()))
        takes_qp = "qp" in filter_.planes
        complete = options.frames is None
        qps = slice_qps(qp, source, video, complete) if takes_qp or original is not None else [0]
        notes = [note for value in sorted(set(qps)) if takes_qp and (note := untrained_qp(filter_.card, value))]
        codec = stream_codec(source)
        if codec is not None and (note := other_codec(filter_.card, codec)):
            notes.append(note)
        # Measured in VVC only. A network that takes the slice type was trained on inter pictures.
        if qp is None and len(set(qps)) > 1 and SLICE_TYPE_PLANE not in filter_.planes and codec == "vvc":
            filtered = output_pictures(read_headers(source))[: len(video)]
            if note := varying_qps(filter_.card, filtered):
                notes.append(note)
        if options.frames is not None and len(video) < options.frames:
            notes.append(f"{source} has {len(video)} pictures, fewer than the {options.frames} asked for")
        auxiliary = _auxiliary_planes(filter_, video, options, stack)

        def report(done: int) -> None:
            if options.progress is not None:
                options.progress(done, len(video))

        if original is None:
            filter_video(filter_, video, qps, output, beside=auxiliary, progress=report)
            return FilteredFile(output, len(video), None, tuple(notes), filter_.runtime)
        # With `frames`, the original may have more pictures than are filtered.
        originals = stack.enter_context(open_like(Path(original), video.format).select(frames=options.frames))
        all_decisions = decide_video(
            filter_,
            video,
            originals,
            qps,
            output,
            offsets=options.qp_offsets,
            ctu=options.ctu_size,
            beside=auxiliary,
            progress=report,
        )
        if options.decisions_file is not None:
            size = video.format.width, video.format.height
            write_decisions(Path(options.decisions_file), all_decisions, *size, options.ctu_size)
        counts = count_decisions(all_decisions)
        return FilteredFile(output, len(all_decisions), counts, tuple(notes), filter_.runtime)


def _check_combination(options: FilterOptions) -> None:
    """Raise ConfigError for options that do not fit together."""
    if options.original is None:
        reason = "needs --original: decisions are made against the original pictures"
        if options.decisions_file is not None:
            raise ConfigError(f"{options.decisions_file} {reason}")
        if tuple(options.qp_offsets) != (0,):
            raise ConfigError(f"--qp-offsets {reason}")
    elif options.decisions_file is not None and not str(options.decisions_file).endswith(STATISTICS_SUFFIXES):
        raise ConfigError(f"{options.decisions_file} is written as block statistics: end its name in .vtmbmsstats")
    if options.model is None:
        unfit = {
            "--original": options.original,
            "--plane": options.planes or None,
            "--blocks": options.blocks,
            "--slice-type": options.slice_type,
            "--update": options.update,
            "--exact or --float": options.exact,
        }
        if given := [name for name, value in unfit.items() if value is not None]:
            raise ConfigError(f"{given[0]} needs weights: name them with -m")


def slice_qps(qp: int | Sequence[int] | None, source: Path, video: "Video", complete: bool) -> list[int]:
    """Return the slice QP of all pictures or of each picture, from the argument or from the bitstream."""
    from codecnn.filtering import check_slice_qp, stream_qps

    if qp is None:
        qp = stream_qps(source, len(video), all_pictures=complete)
    qps = [qp] if isinstance(qp, int) else list(qp)
    for value in qps:
        check_slice_qp(value, video.format.bit_depth)
    return qps


def _auxiliary_planes(
    filter_: "PictureFilter", video: "Video", options: FilterOptions, stack: ExitStack
) -> "PlaneSource":
    """Collect the auxiliary planes of a network from files, a CU table and the bitstream."""
    from codecnn.base.planes import REBUILT_PLANES, REFERENCE_PLANES, SLICE_TYPE_PLANE, TEMPORAL_PLANES, TREE_PLANES
    from codecnn.codec import first_references, read_blocks, read_output_pictures, stream_plane_reader
    from codecnn.filtering import auxiliary_planes, stream_slice_types, temporal_source
    from codecnn.pictures.files import open_like, stream_codec

    source, blocks, complete = Path(options.source), options.blocks, options.frames is None
    codec = stream_codec(source)
    is_vvc = codec == "vvc"
    videos = {name: stack.enter_context(open_like(Path(file), video.format)) for name, file in options.planes.items()}
    table = None
    if blocks is not None:
        table = read_blocks(blocks)
    elif is_vvc and any(name in TREE_PLANES for name in filter_.planes):
        table = read_blocks(source)
    missing = [name for name in filter_.planes if name in REBUILT_PLANES and name not in videos]
    rebuilt = stream_plane_reader(source, missing) if is_vvc and missing else None
    temporal_names = [name for name in filter_.planes if name in TEMPORAL_PLANES and name not in videos]
    needs_references = any(name in REFERENCE_PLANES for name in temporal_names)
    if rebuilt is not None or (is_vvc and needs_references) or (table is not None and blocks is None):
        count = len(read_output_pictures(source))
        if count < len(video) or (complete and count > len(video)):
            raise ConfigError(
                f"{source} has the headers of {count} pictures and decodes to {len(video)}, so its planes cannot be "
                "assigned to pictures: give them with --plane and --blocks"
            )
    types: list[str] = [options.slice_type] if options.slice_type else []
    if SLICE_TYPE_PLANE in filter_.planes and not types and codec is not None:
        types = stream_slice_types(source, len(video), all_pictures=complete)
    temporal = None
    if temporal_names and (is_vvc or not needs_references):
        references = first_references(source, len(video)) if needs_references else []
        temporal = temporal_source(temporal_names, video, references)
    return auxiliary_planes(filter_.planes, video.format, videos, table, rebuilt, types, temporal)
