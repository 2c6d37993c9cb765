"""Reconstruction of intra pictures: initialisation from the headers, and the planes of the result."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from codecnn.errors import ConfigError, FormatError, MissingFileError, UnsupportedError
from codecnn.reconstruct import frame as fr
from codecnn.reconstruct.coding_units import reconstruct_units
from codecnn.reconstruct.frame import TABLES
from codecnn.video import byte_stream
from codecnn.vvc import (
    CTU_LOG_SIZE,
    LMCS_APS,
    SCALING_APS,
    ConformanceWindow,
    LumaMapping,
    Picture,
    SequenceParameterSet,
    Slice,
    compiled_once,
    inverse_map,
    parsed_ctus,
    read_lmcs_aps,
    read_scaling_list_aps,
)
from codecnn.vvc import read_pictures as parsed_pictures

Plane = npt.NDArray[Any]

PLANES = ("pred_y", "pred_u", "pred_v", "unf_y", "unf_u", "unf_v", "resid_y", "resid_u", "resid_v", "bs_v", "bs_h")
"""Planes that can be reconstructed.

Prediction, reconstruction before the in-loop filters and residual of each component; boundary strengths of luma, 0 to
2, at the left (bs_v) and upper (bs_h) edges of 4x4 samples.
"""

_KINDS = {"pred": fr.PRED, "unf": fr.RECON, "resid": fr.RESI}

WIDEST_RANGE = 18
"""Largest log2 of the range of coefficients.

The sum of 64 products of coefficients of 19 bits, which 12-bit pictures with extended precision have, and transMatrix
fits into 32 bits; that of wider coefficients does not.
"""
_LOG_SIZE = 4 * CTU_LOG_SIZE


def read_pictures(
    path: Path | str, planes: Sequence[str] = ("pred_y", "unf_y")
) -> Iterator[tuple[int, dict[str, Plane]]]:
    """Read a VVC stream and reconstruct planes of its intra pictures.

    The first call on a machine compiles for about two minutes.

    Args:
        path: VVC byte stream (Annex B), or a container with a VVC stream.
        planes: Names of `PLANES`.

    Yields:
        POC and planes by name of each intra picture, in decoding order; pictures with P or B slices are skipped. Planes
        have the shape (h, w) without the margin of the conformance window; residuals are int16, the others uint16. Luma
        is scaled as in decoded pictures: luma mapping (LMCS) is inverted, except for the residual of mapped samples.

    Raises:
        ConfigError: A plane does not exist.
        MissingFileError: The file does not exist.
        FormatError: The stream is damaged.
        UnsupportedError: The stream uses an unsupported tool, or no picture is intra.
    """
    path = Path(path)
    if not path.is_file():
        raise MissingFileError(f"{path} does not exist")
    stream = byte_stream(path, ("vvc",))
    any_intra = False
    picture = None
    try:
        for picture in parsed_pictures(stream.path.read_bytes()):
            if picture.is_intra:
                any_intra = True
                yield picture.poc, reconstruct(picture, planes)
    except FormatError as error:
        where = "" if picture is None else f", POC {picture.poc}"
        raise type(error)(f"{path}{where}: {error}") from None
    if not any_intra:
        raise UnsupportedError(f"{path}: no picture is intra, and codecnn reconstructs intra pictures only")


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
    frame, sizes = _frame(picture)
    mappings: dict[int, LumaMapping] = {}
    index = -1
    for ctus in parsed_ctus(picture, _LOG_SIZE):
        if ctus.number != index:
            index = ctus.number
            mapping = _put_slice(frame.p, ctus.part)
            if mapping is not None:
                mappings[index] = mapping
        with compiled_once(reconstruct_units, "the reconstruction of intra pictures", "one and a half minutes"):
            reconstruct_units(frame._replace(log=ctus.log), len(ctus.log))
        if frame.p[fr.FAULT]:
            raise FormatError(f"slice {index}: a block vector points to samples that are not reconstructed yet")
    window = pps.conformance_window
    out: dict[str, Plane] = {}
    for name in planes:
        kind, letter = name.split("_")
        if kind == "bs":
            strengths = frame.known[fr.STRENGTH_V if letter == "v" else fr.STRENGTH_H]
            _clear_subpicture_edges(strengths if letter == "v" else strengths.T, sps, letter == "v")
            out[name] = _spread(strengths)[_inside(window, sps, sizes[0], 0)].astype(np.uint16)
            continue
        component = "yuv".index(letter)
        (height, width), first = sizes[component], int(frame.p[_KINDS[kind] + component])
        plane = frame.planes[first : first + height * width].reshape(height, width)
        if component == 0 and mappings and kind != "resid":
            plane = _mapped_back(plane, frame.known[fr.LUMA_REGION], mappings, sps.bit_depth)
        inside = _inside(window, sps, (height, width), component)
        out[name] = plane[inside].astype(np.int16 if kind == "resid" else np.uint16)
    return out


def _inside(
    window: ConformanceWindow, sps: SequenceParameterSet, size: tuple[int, int], component: int
) -> tuple[slice, slice]:
    """Return the rows and columns of a component inside the conformance window."""
    down, right = (0, 0) if component else (sps.log2_sub_height_c, sps.log2_sub_width_c)
    rows = slice(window.top << down, size[0] - (window.bottom << down))
    return rows, slice(window.left << right, size[1] - (window.right << right))


def _clear_subpicture_edges(strengths: npt.NDArray[np.int32], sps: SequenceParameterSet, columns: bool) -> None:
    """Zero the strengths along subpicture edges that no in-loop filter crosses, in place.

    Args:
        strengths: Strengths in cells of 4x4 samples, shape (cells along an edge, edges).
        sps: Active SPS.
        columns: The edges are vertical; False if `strengths` is transposed.
    """
    cells = 1 << (sps.ctb_log2_size_y - 2)
    for subpicture in sps.subpictures:
        first, length, across, size = subpicture.y, subpicture.height, subpicture.x, subpicture.width
        if not columns:
            first, length, across, size = subpicture.x, subpicture.width, subpicture.y, subpicture.height
        for edge in (across, across + size):
            if not subpicture.filtered and edge * cells < strengths.shape[1]:
                strengths[first * cells : (first + length) * cells, edge * cells] = 0


def _spread(cells: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Repeat each cell over its 4x4 samples."""
    return np.repeat(np.repeat(cells, 4, 0), 4, 1)


def _frame(picture: Picture) -> tuple[fr.Frame, list[tuple[int, int]]]:
    """Allocate the arrays for a picture; return them and the (height, width) of its components."""
    sps, pps = picture.sps, picture.pps
    height, width = pps.pps_pic_height_in_luma_samples, pps.pps_pic_width_in_luma_samples
    sub_x, sub_y = sps.log2_sub_width_c, sps.log2_sub_height_c
    sizes = [(height, width), *[(height >> sub_y, width >> sub_x)] * (2 if sps.sps_chroma_format_idc else 0)]
    p = np.zeros(fr.NUMBERS, np.int64)
    p[fr.WIDTH], p[fr.HEIGHT], p[fr.SUB_X], p[fr.SUB_Y] = width, height, sub_x, sub_y
    p[fr.CHROMA], p[fr.BIT_DEPTH], p[fr.LOG2_CTU] = sps.sps_chroma_format_idc, sps.bit_depth, sps.ctb_log2_size_y
    p[fr.WAVEFRONT] = sps.sps_entropy_coding_sync_enabled_flag
    p[fr.COLLOCATED] = sps.sps_chroma_vertical_collocated_flag
    p[fr.TRANSFORM_RANGE] = sps.log2_transform_range
    p[fr.MIN_QP_TS] = sps.min_qp_prime_ts
    for kind, table in enumerate(sps.chroma_qp_tables):
        at = fr.QP_TABLE + fr.QP_TABLE_SIZE * kind
        p[at : at + len(table)] = table
    total = 0
    for first in (fr.RECON, fr.PRED, fr.RESI):
        for component, (rows, columns) in enumerate(sizes):
            p[fr.STRIDE + component] = columns
            p[first + component] = total
            total += rows * columns
    p[fr.VPDU_X] = -1
    return fr.Frame(
        p,
        np.concatenate([np.zeros(fr.SCRATCH, np.int32), TABLES]),
        np.zeros(total, np.int32),
        np.zeros((fr.KNOWN, height // 4, width // 4), np.int32),
        np.zeros(0, np.int64),
        np.full((fr.MOTION, height // 4, width // 4), -1, np.int32),
        np.zeros(1, np.uint16),
        np.zeros((fr.STORED, 1, 1), np.int32),
    ), sizes


def _put_slice(p: npt.NDArray[np.int64], part: Slice) -> LumaMapping | None:
    """Set the values of a slice in `Frame.p`; return its luma mapping, if it has one."""
    h, ph = part.header, part.picture_header
    sps, pps = ph.sps, ph.pps
    p[fr.DEBLOCKED] = not h.sh_deblocking_filter_disabled_flag
    p[fr.ACROSS_TILES], p[fr.ACROSS_SLICES] = pps.tiles.filter_across_tiles, pps.tiles.filter_across_slices
    for first, places in zip((fr.COLUMNS, fr.ROWS), ph.virtual_boundaries, strict=True):
        p[first : first + len(places)] = places
    p[fr.DEP_QUANT], p[fr.JOINT_SIGN] = h.sh_dep_quant_used_flag, ph.ph_joint_cbcr_sign_flag
    p[fr.QP_OFFSET : fr.QP_OFFSET + 3] = np.add(pps.chroma_qp_offsets, h.chroma_qp_offsets)
    for i, offsets in enumerate(pps.chroma_qp_offset_list):
        at = fr.QP_LIST + 3 * (i + 1)
        p[at : at + len(offsets)] = offsets
    p[fr.LISTS] = h.sh_explicit_scaling_list_used_flag
    p[fr.LISTS_FOR_LFNST] = not sps.sps_scaling_matrix_for_lfnst_disabled_flag
    p[fr.LISTS_NOT_FOR_ACT] = sps.lists_disabled_for_act[0] if sps.lists_disabled_for_act else -1
    if h.sh_explicit_scaling_list_used_flag:
        lists = read_scaling_list_aps(_parameter_set(part, SCALING_APS, ph.ph_scaling_list_aps_id, "scaling list"))
        for number, (side, entries, dc) in enumerate(lists):
            matrix = np.array(entries).reshape(side, side)
            enlarged = np.kron(matrix, np.ones((8 // side, 8 // side), np.int64))
            p[fr.LISTS_AT + 64 * number : fr.LISTS_AT + 64 * (number + 1)] = enlarged.ravel()
            p[fr.LISTS_DC + number] = dc
    p[fr.LMCS], p[fr.LMCS_CHROMA] = h.sh_lmcs_used_flag, h.sh_lmcs_used_flag and ph.ph_chroma_residual_scale_flag
    if not h.sh_lmcs_used_flag:
        return None
    mapping = read_lmcs_aps(_parameter_set(part, LMCS_APS, ph.ph_lmcs_aps_id, "LMCS"), sps.bit_depth)
    p[fr.LMCS_MIN], p[fr.LMCS_MAX] = mapping.first, mapping.last
    p[fr.PIVOT : fr.PIVOT + 17] = mapping.pivot
    p[fr.CHROMA_SCALE : fr.CHROMA_SCALE + 16] = mapping.chroma_scale
    p[fr.LUMA_SCALE : fr.LUMA_SCALE + 16] = mapping.scale
    return mapping


def _parameter_set(part: Slice, kind: int, number: int, what: str) -> bytes:
    """Return the payload of a parameter set, or raise FormatError if it is missing."""
    if (kind, number) not in part.parameter_sets:
        raise FormatError(f"there is no {what} parameter set {number}")
    return part.parameter_sets[kind, number]


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
