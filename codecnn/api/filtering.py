"""Function that filters a file with weights, with or without the decisions of an encoder.

PyTorch takes seconds to import, so packages that need it are imported inside the functions.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codecnn.base.cluster import Progress
from codecnn.base.errors import ConfigError, FormatError
from codecnn.base.keywords import checked_keywords
from codecnn.base.outputs import check_outputs
from codecnn.base.parts import extension
from codecnn.base.planes import (
    REBUILT_PLANES,
    REFERENCE_PLANES,
    SLICE_TYPE_PLANE,
    TEMPORAL_PLANES,
    TREE_PLANES,
)

if TYPE_CHECKING:
    from codecnn.base.runtime import Runtime
    from codecnn.filtering import PictureFilter, PlaneSource, Precision, Tile
    from codecnn.pictures.files import Video

STATISTICS_SUFFIXES = (".vtmbmsstats", ".vtmbmsstats.gz")
"""Suffixes of files with block statistics."""

_VIDEO_KEYS = ("size", "bit_depth", "chroma", "fps", "frames", "packing")
"""Options of `open_video` that `filter_file` takes for its source."""


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


@checked_keywords(_VIDEO_KEYS)
def filter_file(
    source: Path | str,
    model: Path | str | None,
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
    update: Path | str | None = None,
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
        model: Weights: a file, or a name from `codecnn models`. None takes the filters that a stream of VVC or HEVC
            carries in post-filter messages, for the pictures for which they are activated.
        output: File to write: raw YUV, or Y4M by its suffix. "-" is Y4M to standard output.
        qp: Slice QP of all pictures or of each, 0 to 63, at more than 8 bit also below 0; None reads it from a VVC or
            HEVC bitstream.
        planes: Files of auxiliary planes by name, e.g. {"unf_y": "unfiltered.yuv"}; missing planes are reconstructed
            from a VVC bitstream.
        blocks: CU table of the pictures, for networks that take planes of the coding tree; a VVC bitstream needs none.
        slice_type: "I", "P" or "B" for all pictures, for networks that take it; None reads it from a bitstream.
        original: Original pictures; their presence enables decisions.
        decisions_file: File for the decisions as block statistics (.vtmbmsstats); needs `original`.
        qp_offsets: QP offsets that the decisions try.
        ctu_size: CTU width and height in luma samples for the decisions.
        update: Update of the weights that `adapt` wrote; needs integers.
        exact: True computes in integers, False in float, None in integers if 8-bit weights exist.
        precision: Precision of float networks, "float32", "bfloat16" or, on a GPU, "tf32".
        device: "auto", "cpu", "cuda" or "cuda:N".
        tile: Largest tile side in samples; does not change the result.
        memory: Limit in bytes for the tensors of the network; None takes the default.
        progress: Called with (pictures done, all pictures).
        **options: Options of `open_video` for the source: size, bit_depth, chroma, fps, frames, packing.

    Returns:
        The number of pictures, the decisions, and notes.

    Raises:
        ConfigError: The options do not fit together, an output is an input, or a QP is missing or out of range.
        MissingFileError: A file does not exist.
        FormatError: A file does not have the stated format.
        ModelError: The weights do not fit.
    """
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

    source, output = Path(source), Path(output)
    inputs = input_files(source, original, blocks, update, *(planes or {}).values())
    weights = [] if model is None else weights_files(weights_path(model))
    check_outputs([output, decisions_file], [*inputs, *weights])
    if decisions_file is not None:
        if original is None:
            raise ConfigError(f"{decisions_file} needs --original: decisions are made against the original pictures")
        if not str(decisions_file).endswith(STATISTICS_SUFFIXES):
            raise ConfigError(f"{decisions_file} is written as block statistics: end its name in .vtmbmsstats")
    if original is None and tuple(qp_offsets) != (0,):
        raise ConfigError("--qp-offsets needs --original: decisions are made against the original pictures")
    if model is None:
        unfit = {
            "--original": original,
            "--plane": planes,
            "--blocks": blocks,
            "--slice-type": slice_type,
            "--update": update,
            "--exact or --float": exact,
        }
        if given := [name for name, value in unfit.items() if value not in (None, {})]:
            raise ConfigError(f"{given[0]} needs weights: name them with -m")
        settings = {"precision": precision, "device": pick_device(device), "tile": tile, "memory": memory}
        return extension("signalling.filter_carried")(source, output, qp, settings, progress, options)  # type: ignore[no-any-return]
    filter_ = load_filter(model, exact=exact, precision=precision, device=pick_device(device), tile=tile, memory=memory)
    if update is not None:
        filter_ = extension("signalling.apply_update")(filter_, update, str(model))
    if qp is not None and stream_codec(source) is not None:
        # Otherwise the headers are not read, and their reader would not warn that the pictures are fields.
        with suppress(FormatError):
            read_headers(source)
    with ExitStack() as stack:
        video = stack.enter_context(open_video(source, **options))
        takes_qp = "qp" in filter_.planes
        complete = options.get("frames") is None
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
        if not complete and len(video) < options["frames"]:
            notes.append(f"{source} has {len(video)} pictures, fewer than the {options['frames']} asked for")
        auxiliary = _auxiliary_planes(filter_, source, video, complete, planes or {}, blocks, slice_type, stack)

        def report(done: int) -> None:
            if progress is not None:
                progress(done, len(video))

        if original is None:
            filter_video(filter_, video, qps, output, beside=auxiliary, progress=report)
            return FilteredFile(output, len(video), None, tuple(notes), filter_.runtime)
        # With `frames`, the original may have more pictures than are filtered.
        originals = stack.enter_context(open_like(Path(original), video.format).select(frames=options.get("frames")))
        all_decisions = decide_video(
            filter_, video, originals, qps, output, offsets=qp_offsets, ctu=ctu_size, beside=auxiliary, progress=report
        )
        if decisions_file is not None:
            write_decisions(Path(decisions_file), all_decisions, video.format.width, video.format.height, ctu_size)
        counts = count_decisions(all_decisions)
        return FilteredFile(output, len(all_decisions), counts, tuple(notes), filter_.runtime)


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
    from codecnn.codec import first_references, read_blocks, read_output_pictures, stream_plane_reader
    from codecnn.filtering import auxiliary_planes, stream_slice_types, temporal_source
    from codecnn.pictures.files import open_like, stream_codec

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
    temporal_names = [name for name in filter_.planes if name in TEMPORAL_PLANES and name not in videos]
    needs_references = any(name in REFERENCE_PLANES for name in temporal_names)
    if rebuilt is not None or (is_vvc and needs_references) or (table is not None and blocks is None):
        count = len(read_output_pictures(source))
        if count < len(video) or (complete and count > len(video)):
            raise ConfigError(
                f"{source} has the headers of {count} pictures and decodes to {len(video)}, so its planes cannot be "
                "assigned to pictures: give them with --plane and --blocks"
            )
    types = [slice_type] if slice_type else []
    if SLICE_TYPE_PLANE in filter_.planes and not types and codec is not None:
        types = stream_slice_types(source, len(video), all_pictures=complete)
    temporal = None
    if temporal_names and (is_vvc or not needs_references):
        references = first_references(source, len(video)) if needs_references else []
        temporal = temporal_source(temporal_names, video, references)
    return auxiliary_planes(filter_.planes, video.format, videos, table, rebuilt, types, temporal)
