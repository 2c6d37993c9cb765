"""A whole sequence through a network, picture by picture."""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from codecnn.errors import ConfigError
from codecnn.filtering.frame import DEFAULT_TILE, filter_luma
from codecnn.models import FilterNetwork
from codecnn.video import Picture, Video, create_video


def filter_picture(
    model: FilterNetwork,
    picture: Picture,
    qp: int,
    *,
    tile: int | None = DEFAULT_TILE,
    device: str | torch.device = "cpu",
) -> Picture:
    """The picture with its luma filtered; chroma planes are passed on as they are."""
    luma = filter_luma(model, picture.y, qp, picture.bit_depth, tile=tile, device=device)
    return Picture((luma, *picture.planes[1:]), picture.bit_depth)


def filter_video(
    model: FilterNetwork,
    video: Video,
    qps: Sequence[int],
    output: Path,
    *,
    tile: int | None = DEFAULT_TILE,
    device: str | torch.device = "cpu",
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
            qp = qps[0] if len(qps) == 1 else qps[index]
            out.write(filter_picture(model, picture, qp, tile=tile, device=device))
            if progress is not None:
                progress(index + 1)
