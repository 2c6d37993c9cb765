"""Filters that a stream carries in post-filter messages: their description, and filtering with them.

PyTorch takes seconds to import, so packages that need it are imported inside the functions.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from codecnn.api import FilteredFile, FilterOptions, slice_qps
from codecnn.api.groups import read_qps
from codecnn.base.errors import ConfigError, FormatError
from codecnn.base.planes import SLICE_TYPE_PLANE

if TYPE_CHECKING:
    from codecnn.codec import StreamInfo
    from codecnn.filtering import NetworkFilter


def describe_carried(file: Path, info: "StreamInfo") -> list[str]:
    """Describe the filters that a stream carries in post-filter messages."""
    from codecnn.signalling.nnpf import Characteristics, describe_network, read_messages

    try:
        pictures = read_messages(file, info).pictures
    except FormatError as error:
        return [f"not known: {error}"]
    filters = {
        f"{message.nnpfc_id} ({', '.join(message.purposes)}; {describe_network(message)})"
        for picture in pictures
        for message in picture.messages
        if isinstance(message, Characteristics)
    }
    return sorted(filters)


def carries_filter(source: Path) -> bool:
    """Return whether a file is a stream with post-filter messages."""
    from codecnn.pictures.files import stream_codec
    from codecnn.signalling.nnpf import read_messages

    return stream_codec(source) in ("vvc", "hevc") and read_messages(source).has_messages


def filter_carried(options: FilterOptions) -> FilteredFile:
    """Filter a stream with the filters that it carries; see `filter`."""
    from codecnn.evaluation import untrained_qp
    from codecnn.filtering import auxiliary_planes, filter_video, stream_slice_types
    from codecnn.models import pick_device
    from codecnn.pictures.files import is_container, open_video
    from codecnn.signalling.nnpf import active_filters, describe_network, load_carried, read_messages

    source, output = Path(options.source), Path(options.output)
    settings: dict[str, Any] = {"precision": options.precision, "device": pick_device(options.device)}
    settings |= {"tile": options.tile, "memory": options.memory}
    if is_container(output):
        raise ConfigError(f"{source} carries filters, whose pictures are written as .y4m or .yuv, not as {output}")
    stream = read_messages(source)
    active = active_filters(stream)
    notes = [
        f"{source}: a message is ignored ({reason})"
        for reason in dict.fromkeys(reason for picture in stream.pictures for reason in picture.skipped)
    ]
    loaded: dict[str, NetworkFilter] = {}
    chosen: list[NetworkFilter | None] = []
    for position, filters in enumerate(active):
        if len(filters) > 1:
            raise ConfigError(
                f"{source} activates {len(filters)} filters for picture {position}, and codecnn applies one: "
                "name weights with -m"
            )
        if not filters:
            chosen.append(None)
            continue
        characteristics = filters[0].characteristics
        update = filters[0].update
        key = f"{characteristics.nnpfc_tag_uri} {characteristics.nnpfc_uri} {characteristics.nnpfc_mode_idc} {update}"
        if key not in loaded:
            loaded[key] = load_carried(characteristics, str(source), update=update, **settings)
            changes = "" if update is None else f", with an {describe_network(update)}"
            network = describe_network(characteristics)
            notes.append(f"{source} carries filter {characteristics.nnpfc_id}: {network}{changes}")
        chosen.append(loaded[key])
    with open_video(source, **options.video_options()) as video:
        complete = options.frames is None
        if len(active) < len(video) or (complete and len(active) > len(video)):
            raise ConfigError(
                f"{source} has the headers of {len(active)} pictures and decodes to {len(video)}, so its filters "
                "cannot be assigned to pictures: name weights with -m"
            )
        chosen = chosen[: len(video)]
        takes_qp = any("qp" in filter_.planes for filter_ in loaded.values())
        qps = slice_qps(read_qps(options.qp), source, video, complete) if takes_qp else [0]
        filtered = sum(filter_ is not None for filter_ in chosen)
        notes.append(f"{filtered} of {len(video)} pictures are filtered")
        for filter_ in loaded.values():
            used = {qps[n if len(qps) > 1 else 0] for n, each in enumerate(chosen) if each is filter_}
            notes += [note for value in sorted(used) if takes_qp and (note := untrained_qp(filter_.card, value))]

        def report(done: int) -> None:
            if options.progress is not None:
                options.progress(done, len(video))

        planes = sorted({name for filter_ in loaded.values() for name in filter_.planes})
        types = stream_slice_types(source, len(video), all_pictures=complete) if SLICE_TYPE_PLANE in planes else []
        beside = auxiliary_planes(planes, video.format, {}, None, slice_types=types)
        filter_video(chosen, video, qps, output, beside=beside, progress=report)
        runtime = next(iter(loaded.values())).runtime if loaded else None
        return FilteredFile(output, len(video), None, tuple(notes), runtime)
