"""A whole sequence through a filter, picture by picture, and short forms for a network that filters only once."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

from codecnn.errors import ConfigError
from codecnn.filtering.frame import DEFAULT_TILE
from codecnn.filtering.picture_filter import NOTHING, Array, PictureFilter, float_filter
from codecnn.models import FilterNetwork
from codecnn.video import Picture, Video, create_video


def filter_picture(
    model: FilterNetwork,
    picture: Picture,
    qp: int,
    *,
    planes: Mapping[str, Array] | None = None,
    tile: int | None = DEFAULT_TILE,
    device: str | torch.device = "cpu",
) -> Picture:
    """One picture through a network, as `float_filter` does it; for several, make the filter once.

    `planes` holds what the network declares beyond the decoded components and the QP.
    """
    return float_filter(model, device=device, tile=tile)(picture, qp, planes or NOTHING)


def filter_luma(
    model: FilterNetwork,
    decoded: Array,
    qp: int,
    bit_depth: int,
    *,
    planes: Mapping[str, Array] | None = None,
    tile: int | None = DEFAULT_TILE,
    device: str | torch.device = "cpu",
) -> Array:
    """Filter the decoded luma plane (h, w) of a picture coded at slice QP `qp`; same shape and type."""
    return filter_picture(model, Picture((decoded,), bit_depth), qp, planes=planes, tile=tile, device=device).y


def filter_video(
    filter_: PictureFilter,
    video: Video,
    qps: Sequence[int],
    output: Path,
    *,
    progress: Callable[[int], None] | None = None,
) -> None:
    """Filter every picture of `video` and write `output` (raw YUV, or Y4M by its suffix) in the same format.

    `qps` holds one QP for all pictures, or one a picture. One picture is in memory at a time, and the output appears
    only when it is whole.
    """
    if len(qps) not in (1, len(video)):
        raise ConfigError(f"{len(qps)} QPs were given for {len(video)} pictures: give one, or one a picture")
    with create_video(output, video.format) as out:
        for index, picture in enumerate(video):
            out.write(filter_(picture, qps[0] if len(qps) == 1 else qps[index]))
            if progress is not None:
                progress(index + 1)
