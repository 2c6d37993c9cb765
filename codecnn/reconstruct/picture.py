"""Reconstruction of one picture: its coding units, and the planes of the result."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from codecnn.errors import ConfigError, FormatError, UnsupportedError
from codecnn.reconstruct import frame as fr
from codecnn.reconstruct.coding_units import reconstruct_units
from codecnn.reconstruct.deblocking import LUMA_H, LUMA_V
from codecnn.reconstruct.initialise import new_frame, put_slice
from codecnn.reconstruct.loop_filters import FilteredPlanes, derive_edges, filter_picture
from codecnn.vvc import (
    CTU_LOG_SIZE,
    ConformanceWindow,
    LumaMapping,
    Picture,
    SequenceParameterSet,
    compiled_once,
    inverse_map,
    parsed_ctus,
)
from codecnn.vvc import state as st

Plane = npt.NDArray[Any]

PLANES = (
    *(f"{kind}_{letter}" for kind in ("pred", "unf", "resid", "dbf", "sao", "rec") for letter in "yuv"),
    "bs_v",
    "bs_h",
)
"""Planes that can be reconstructed.

Of each component: prediction, reconstruction before the in-loop filters, residual, picture after deblocking, after SAO
and after ALF, which is the decoded picture. Boundary strengths of luma, 0 to 2, at the left (bs_v) and upper (bs_h)
edges of 4x4 samples.
"""

_KINDS = {"pred": fr.PRED, "unf": fr.RECON, "resid": fr.RESI}

WIDEST_RANGE = 18
"""Largest log2 of the range of coefficients.

The sum of 64 products of coefficients of 19 bits, which 12-bit pictures with extended precision have, and transMatrix
fits into 32 bits; that of wider coefficients does not.
"""
_LOG_SIZE = 4 * CTU_LOG_SIZE


def reconstruct(picture: Picture, planes: Sequence[str]) -> dict[str, Plane]:
    """Reconstruct planes of one intra picture.

    Args:
        picture: Picture whose slices are all I slices.
        planes: Names of `PLANES`.

    Returns:
        Planes by name, as `read_pictures` yields them.

    Raises:
        ConfigError: A plane does not exist.
        FormatError: The slice data is damaged.
        UnsupportedError: The picture uses an unsupported tool.
    """
    sps, pps = picture.sps, picture.pps
    components = 3 if sps.sps_chroma_format_idc else 1
    if sps.log2_transform_range > WIDEST_RANGE:
        raise UnsupportedError(f"extended precision at {sps.bit_depth} bit is not supported, only up to 12 bit")
    for name in planes:
        if name not in PLANES:
            raise ConfigError(f"there is no plane {name!r}: one of {', '.join(PLANES)}")
        if components == 1 and name.endswith(("_u", "_v")) and name != "bs_v":
            raise ConfigError(f"the picture has no chroma, so no plane {name}")
    frame, sizes = new_frame(picture)
    mappings: dict[int, LumaMapping] = {}
    index = -1
    ctbs = np.zeros((st.CTB_MAPS, 0, 0), np.int32)
    for ctus in parsed_ctus(picture, _LOG_SIZE):
        ctbs = ctus.ctbs
        if ctus.number != index:
            index = ctus.number
            mapping = put_slice(frame.p, ctus.part)
            if mapping is not None:
                mappings[index] = mapping
        with compiled_once(reconstruct_units, "the reconstruction of intra pictures", "one and a half minutes"):
            reconstruct_units(frame._replace(log=ctus.log), len(ctus.log))
        if frame.p[fr.FAULT]:
            raise FormatError(f"slice {index}: a block vector points to samples that are not reconstructed yet")
    window = pps.conformance_window
    images = {kind: _images(frame, first, sizes) for kind, first in _KINDS.items()}
    kinds = {name.split("_")[0] for name in planes}
    filtered = bool(kinds & set(FilteredPlanes._fields))
    for kind in ("pred", "unf"):
        if mappings and (kind in kinds or (filtered and kind == "unf")):
            regions = frame.known[fr.LUMA_REGION]
            images[kind][0] = _mapped_back(images[kind][0], regions, mappings, sps.bit_depth)
    edges = derive_edges(picture, frame) if filtered or "bs" in kinds else None
    if filtered and edges is not None:
        images |= filter_picture(picture, frame, ctbs, images["unf"], edges)._asdict()
    out: dict[str, Plane] = {}
    for name in planes:
        kind, letter = name.split("_")
        if kind == "bs" and edges is not None:
            strengths = edges[LUMA_V if letter == "v" else LUMA_H] & 3
            out[name] = _spread(strengths)[_inside(window, sps, sizes[0], 0)].astype(np.uint16)
            continue
        component = "yuv".index(letter)
        inside = _inside(window, sps, sizes[component], component)
        out[name] = images[kind][component][inside].astype(np.int16 if kind == "resid" else np.uint16)
    return out


def _images(frame: fr.Frame, first: int, sizes: list[tuple[int, int]]) -> list[Plane]:
    """Return the planes of the components that begin at p[first], as views of `Frame.planes`."""
    images = []
    for component, (height, width) in enumerate(sizes):
        at = int(frame.p[first + component])
        images.append(frame.planes[at : at + height * width].reshape(height, width))
    return images


def _inside(
    window: ConformanceWindow, sps: SequenceParameterSet, size: tuple[int, int], component: int
) -> tuple[slice, slice]:
    """Return the rows and columns of a component inside the conformance window."""
    down, right = (0, 0) if component else (sps.log2_sub_height_c, sps.log2_sub_width_c)
    rows = slice(window.top << down, size[0] - (window.bottom << down))
    return rows, slice(window.left << right, size[1] - (window.right << right))


def _spread(cells: Plane) -> Plane:
    """Repeat each cell over its 4x4 samples."""
    return np.repeat(np.repeat(cells, 4, 0), 4, 1)


def _mapped_back(
    plane: Plane, regions: npt.NDArray[np.int32], mappings: dict[int, LumaMapping], bit_depth: int
) -> Plane:
    """Invert the luma mapping of the slices in `mappings`, which is keyed by slice index."""
    slices = _spread((regions - 1) // fr.SLICE_REGIONS)[: plane.shape[0], : plane.shape[1]]
    out = plane.copy()
    for index, mapping in mappings.items():
        where = slices == index
        out[where] = np.array(inverse_map(mapping, bit_depth), np.int32)[plane[where]]
    return out
