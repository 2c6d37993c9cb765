"""A whole sequence through a network, picture by picture."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

from codecnn.errors import ConfigError, ModelError
from codecnn.filtering.frame import DEFAULT_TILE, Array, filter_components
from codecnn.models import FilterNetwork
from codecnn.models.base import CHROMA_PLANES
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
    """The picture with the components filtered that the network filters; the others are passed on as they are.

    `planes` holds what the network declares beyond the decoded components and the QP, see `filter_components`. Raises
    ModelError where it needs chroma and the picture's is not 4:2:0.
    """
    components = {**(planes or {}), "rec_y": picture.y}
    if any(name in CHROMA_PLANES for name in model.planes):
        height, width = picture.y.shape
        if len(picture.planes) != 3 or picture.planes[1].shape != ((height + 1) // 2, (width + 1) // 2):
            shapes = ", ".join(f"{plane.shape[1]}x{plane.shape[0]}" for plane in picture.planes)
            raise ModelError(f"the network needs 4:2:0 chroma, and the picture's planes are {shapes}")
        components |= {"rec_u": picture.planes[1], "rec_v": picture.planes[2]}
    filtered = filter_components(model, components, qp, picture.bit_depth, tile=tile, device=device)
    return Picture(
        tuple(filtered.get(name, plane) for name, plane in zip("yuv", picture.planes, strict=False)), picture.bit_depth
    )


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
