"""Filtering of a picture in patches, as a decoder does it: tensors of a post-filter (H.274 clause 8.28.1.2).

This is a plain reference for exported networks. It has the orders that `codecnn.signalling.nnpf.describe_weights`
writes: luma alone (0), and four luma phases with chroma (3), in which a patch is counted in samples of the tensor.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from codecnn.base.division import ceil_div
from codecnn.base.errors import UnsupportedError
from codecnn.pictures.files import Picture
from codecnn.signalling.nnpf.messages import Characteristics

_REPLICATION = 1

Tensor = npt.NDArray[np.float32]
"""Tensor (1, channels, h, w) with samples of 0 to 1."""


def filter_in_patches(
    picture: Picture, characteristics: Characteristics, strength: float, compute: Callable[[Tensor], Tensor]
) -> Picture:
    """Filter a picture as a decoder does that follows a message.

    Args:
        picture: The decoded picture, cropped.
        characteristics: The message; its input and output orders are 0 or 3, its padding is replication.
        strength: StrengthControlVal, the slice QP divided by the largest QP of the codec.
        compute: The network: from an input tensor to an output tensor.

    Returns:
        The filtered picture, with components that the network does not output passed on.

    Raises:
        UnsupportedError: The message has other orders, formats or padding.
    """
    c = characteristics
    orders: tuple[int | None, int | None] = (c.nnpfc_inp_order_idc, c.nnpfc_out_order_idc)
    formats = (c.nnpfc_inp_format_idc, c.nnpfc_out_format_idc)
    interleaved = c.nnpfc_inp_order_idc == 3
    if orders not in ((0, 0), (3, 3)) or any(formats) or c.nnpfc_padding_type != _REPLICATION:
        raise UnsupportedError(
            f"orders {orders}, formats {formats} and padding {c.nnpfc_padding_type} are not computed"
        )
    top = float((1 << picture.bit_depth) - 1)
    overlap = c.nnpfc_overlap or 0
    height, width = (c.nnpfc_patch_height_minus1 or 0) + 1, (c.nnpfc_patch_width_minus1 or 0) + 1
    rows, columns = (ceil_div(extent, 2 if interleaved else 1) for extent in picture.y.shape)
    around = (overlap, overlap + -rows % height), (overlap, overlap + -columns % width)
    inputs = _channels(picture, interleaved, around) / top
    filtered: npt.NDArray[np.float64] | None = None
    for y in range(0, rows, height):
        for x in range(0, columns, width):
            window = inputs[None, :, y : y + height + 2 * overlap, x : x + width + 2 * overlap]
            if (c.nnpfc_auxiliary_inp_idc or 0) & 1:
                window = np.concatenate((window, np.full_like(window[:, :1], strength)), axis=1)
            patch = compute(window.astype(np.float32))[0]
            if filtered is None:
                filtered = np.zeros((len(patch), rows + -rows % height, columns + -columns % width))
            filtered[:, y : y + height, x : x + width] = patch
    assert filtered is not None
    samples = np.clip(np.floor(filtered[:, :rows, :columns] * top + 0.5), 0, top).astype(picture.y.dtype)
    return _picture(picture, samples, interleaved)


def _channels(
    picture: Picture, interleaved: bool, around: tuple[tuple[int, int], tuple[int, int]]
) -> npt.NDArray[np.float64]:
    """Return the sample channels of the input tensor with tensor samples around the picture.

    They are luma, or its four phases in raster order, Cb and Cr. Outside of the picture each component has its nearest
    sample.
    """
    if not interleaved:
        return np.pad(picture.y, around, mode="edge")[None].astype(np.float64)
    rows, columns = ((2 * before, 2 * after) for before, after in around)
    y = np.pad(picture.y, (rows, columns), mode="edge")
    phases = [y[row::2, column::2] for row in (0, 1) for column in (0, 1)]
    chroma = [np.pad(plane, around, mode="edge") for plane in picture.planes[1:]]
    return np.stack([*phases, *chroma]).astype(np.float64)


def _picture(picture: Picture, samples: npt.NDArray[np.integer], interleaved: bool) -> Picture:
    """Return the picture of the channels of the output tensor."""
    if not interleaved:
        return Picture((samples[0], *picture.planes[1:]), picture.bit_depth)
    luma = np.empty_like(picture.y)
    for phase, (row, column) in enumerate(((0, 0), (0, 1), (1, 0), (1, 1))):
        luma[row::2, column::2] = samples[phase]
    return Picture((luma, samples[4], samples[5]), picture.bit_depth)
