"""Inputs of a filter besides the pictures of a file (QPs, auxiliary planes), and the output of filtered pictures.

PyTorch takes seconds to import, so packages that need it are imported inside the functions.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codecnn import __version__
from codecnn.base.errors import ConfigError

if TYPE_CHECKING:
    from codecnn.api.filter_options import FilterOptions
    from codecnn.codec import StreamQps
    from codecnn.filtering import JoinedFilter, NetworkFilter, PictureFilter, PlaneSource
    from codecnn.models import Card
    from codecnn.pictures.files import Carrier, ContainerOutput, Video


def open_pictures(options: "FilterOptions", stack: ExitStack) -> "tuple[Video, Carrier | None]":
    """Open the pictures of a file, and for a container as output what else the file has.

    A container whose pictures are filtered into another one is decoded while it is read.
    """
    from codecnn.pictures.files import check_video, is_coded, is_container, open_video, read_carrier, stream_video

    source = Path(options.source)
    if not is_container(options.output) or not is_coded(source):
        # Pictures that are not coded have no tags besides those of their file.
        return stack.enter_context(open_video(source, **options.video_options())), None
    carrier = read_carrier(source)
    if carrier.times is None or options.frames is not None:
        return stack.enter_context(open_video(source, **options.video_options())), carrier
    check_video(source, **options.video_options())
    return stack.enter_context(stream_video(source, len(carrier.times.times))), carrier


def open_output(
    options: "FilterOptions", video: "Video", carrier: "Carrier | None", filter_: "PictureFilter", facts: dict[str, Any]
) -> "Path | ContainerOutput":
    """Return the file to write, or the container with the segments that are not yet coded.

    Args:
        options: Options of `filter`.
        video: The pictures.
        carrier: What else a coded video has.
        filter_: The filter.
        facts: JSON value of what decides the filtered pictures besides the file and the filter.
    """
    from codecnn.base.files import content_sha256
    from codecnn.filtering import filter_key
    from codecnn.pictures.files import (
        OTHER_CONTAINERS,
        STANDARD_STREAM,
        STILL_SUFFIXES,
        ContainerOutput,
        Encoding,
        ffmpeg_identity,
        ffmpeg_path,
        is_container,
        standard_input,
    )

    output = Path(options.output)
    if not is_container(output):
        # A name without a suffix may be a pipe or a device, to which raw samples are written.
        nameless = not output.suffix and str(output) != STANDARD_STREAM and (output.is_file() or not output.exists())
        if output.suffix.lower() in OTHER_CONTAINERS or nameless:
            raise ConfigError(f"{output}: videos are written as .mkv or .mp4, and pictures alone as .y4m or .yuv")
        if output.suffix.lower() in STILL_SUFFIXES:
            raise ConfigError(
                f"{output} would be a still picture, which filter does not write: end it in .y4m, .yuv, .mkv or .mp4; "
                f"`ffmpeg -i {output.stem}.y4m {output.name}` then makes the picture"
            )
        if options.encode is not None:
            raise ConfigError(f"--encode is for videos in .mkv and .mp4, not for {output}")
        return output
    source = standard_input() if str(options.source) == STANDARD_STREAM else Path(options.source)
    # Decisions against an original are never continued.
    files = {"blocks": options.blocks, "update": options.update, **options.planes}
    identity = facts | {
        "codecnn": __version__,
        "ffmpeg": ffmpeg_identity(ffmpeg_path()),
        "source": [content_sha256(file) for file in (sorted(source.iterdir()) if source.is_dir() else [source])],
        "reading": {name: str(value) for name, value in options.video_options().items()},
        "filter": filter_key(filter_),
        "slice_type": options.slice_type,
        "files": {name: content_sha256(file) for name, file in files.items() if file is not None},
    }
    encoding = Encoding.parse(options.encode, output)
    return ContainerOutput(output, video.format, len(video), encoding, identity, carrier, video.tags)


def network_qps(
    options: "FilterOptions", filter_: "NetworkFilter | JoinedFilter", video: "Video", chosen: bool
) -> "StreamQps":
    """Return the QPs that the network takes, from the option or from the stream.

    Where neither has one, it is assumed for weights that codecnn chose, and an error for others.
    """
    from codecnn.api.groups import read_qps
    from codecnn.codec import StreamQps, choose_qps
    from codecnn.evaluation import trained_on_intra
    from codecnn.filtering import ASSUMED_QP
    from codecnn.pictures.files import stream_codec

    source, qp, complete = Path(options.source), read_qps(options.qp), options.frames is None
    if qp is None and chosen and stream_codec(source) is None:
        return StreamQps((ASSUMED_QP,), "a guess: try -q 20 to 37 and compare")
    if qp is not None or stream_codec(source) is None:
        return StreamQps(tuple(slice_qps(qp, source, video, complete)), "-q")
    # The slice QPs are read in any case, because their reader checks the number of pictures.
    slices = slice_qps(None, source, video, complete)
    qps = choose_qps(source, all_intra_weights=trained_on_intra(filter_.card))
    return StreamQps(tuple(qps.qps[: len(slices)]), qps.source)


def options_without_stream(source: Path, model: Path | str | None) -> str:
    """Return the weights and the QP of a stream as options for its decoded pictures.

    Args:
        source: The stream.
        model: Weights that were named; None chooses some that need decoded pictures only.
    """
    from codecnn.base.planes import SLICE_TYPE_PLANE
    from codecnn.codec import choose_qps
    from codecnn.filtering import choose_weights
    from codecnn.models import read_card, weights_path
    from codecnn.pictures.files import stream_codec

    codec = stream_codec(source)
    weights = model
    qp = "QP"
    if codec is not None:
        # Those of VVC for other efforts take planes of its decoder.
        choice = choose_weights(source, "fast" if codec == "vvc" else "normal")
        weights = model or choice.weights
        qps = choose_qps(source, all_intra_weights=choice.content == "intra").qps
        qp = str(round(sum(qps) / len(qps)))
    if weights is None:
        return f"-q {qp}"
    types = SLICE_TYPE_PLANE in read_card(weights_path(weights)).options.get("planes", ())
    return f"-m {weights} -q {qp}{' --slice-type B' if types else ''}"


def fitting_notes(options: "FilterOptions", card: "Card", qps: Sequence[int], pictures: int) -> list[str]:
    """Return sentences about QPs, codecs and pictures that do not fit the weights or the options."""
    from codecnn.evaluation import other_codec, other_content, untrained_qps
    from codecnn.filtering import choose_weights
    from codecnn.pictures.files import stream_codec

    source = Path(options.source)
    notes = [] if (note := untrained_qps(card, qps)) is None else [note]
    codec = stream_codec(source)
    if codec is not None and options.model is not None:
        fit = choose_weights(source)
        note = other_codec(card, codec) or other_content(card, fit.content)
        notes += [] if note is None else [f"{note}; without -m codecnn takes {fit}"]
    if options.frames is not None and pictures < options.frames:
        notes.append(f"{source} has {pictures} pictures, fewer than the {options.frames} asked for")
    return notes


def slice_qps(qp: int | Sequence[int] | None, source: Path, video: "Video", complete: bool) -> list[int]:
    """Return the slice QP of all pictures or of each picture, from the argument or from the bitstream."""
    from codecnn.filtering import check_slice_qp, stream_qps

    if qp is None:
        qp = stream_qps(source, len(video), all_pictures=complete)
    qps = [qp] if isinstance(qp, int) else list(qp)
    for value in qps:
        check_slice_qp(value, video.format.bit_depth)
    return qps


def auxiliary_sources(
    filter_: "PictureFilter", video: "Video", options: "FilterOptions", stack: ExitStack
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
