"""Reconstruction of one picture: its coding units, the in-loop filters, and the planes of the result."""

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from codecnn.base.ahead import InlineExecutor
from codecnn.base.compiled import compiled_once
from codecnn.base.errors import ConfigError, FormatError, UnsupportedError
from codecnn.base.records import Records
from codecnn.vvc.decoder import cells
from codecnn.vvc.decoder import frame as fr
from codecnn.vvc.decoder import records as rc
from codecnn.vvc.decoder.coding_units import reconstruct_units
from codecnn.vvc.decoder.initialise import new_frame, put_slice
from codecnn.vvc.decoder.loop_filters import FilteredPlanes, PictureFilters, inverse_mapped
from codecnn.vvc.decoder.picture_buffer import PictureBuffer
from codecnn.vvc.decoder.picture_log import PictureLog, read_log
from codecnn.vvc.decoder.plane_memory import PlaneMemory
from codecnn.vvc.syntax import COMPILATION, LumaMapping, ParsedCtus, ParsedPicture, SequenceParameterSet

Plane = npt.NDArray[Any]


class HookedPicture(NamedTuple):
    """Result of a `PictureHook`.

    Attributes:
        reference: Components that later pictures refer to, and that are compared with the hash in the stream.
        output: Components that are output.
        proven: False if the hook found that the output is not that of the encoder.
    """

    reference: list[Plane]
    output: list[Plane]
    proven: bool = True


PictureHook = Callable[[ParsedPicture, list[Plane]], HookedPicture]
"""A function that filters each picture in or behind the coding loop, after the in-loop filters of VVC.

It takes the parsed picture and its components, each (h, w), not cropped to the conformance window. It returns
components of the same shapes, with samples of the same bit depth, and must not change its input.
"""

PLANES = (
    *(f"{kind}_{letter}" for kind in ("pred", "unf", "resid", "dbf", "sao", "rec") for letter in "yuv"),
    "bs_v",
    "bs_h",
)
"""Planes of samples and boundary strengths.

Of each component: prediction, reconstruction before the in-loop filters, residual, picture after deblocking, after SAO
and the decoded picture, which is the picture after ALF, or after the `PictureHook` if there is one. Boundary strengths
of luma, 0 to 2, at the left (bs_v) and upper (bs_h) edges of 4x4 samples.
"""

MOTION_PLANES = ("mv_l0", "mv_l1", "ref_idx_l0", "ref_idx_l1", "motion_model")
"""Planes of motion, a cell for each 4x4 luma samples of the coded picture, int32.

`mv_l0` and `mv_l1` are the motion vectors of L0 and L1, shape (rows, columns, 2), horizontal first, in 1/16 luma
sample. `ref_idx_l0` and `ref_idx_l1` are the POC of the reference picture, shape (rows, columns). A block without
motion in a list has the vector 0 and NO_REFERENCE. `motion_model` is 0 for translation, 1 or 2 for affine motion of
four or six parameters, 3 for temporal subblocks, and -1 outside inter units. The cells cover the picture before the
crop to the conformance window.
"""

NO_REFERENCE = -(2**31)
"""Value of `ref_idx_l0` and `ref_idx_l1` of a block that does not use the list; a POC is never that small."""

_FAULTS = {
    rc.FAULT_BLOCK_VECTOR: "a block vector points to samples that are not reconstructed yet",
    rc.FAULT_REFERENCE: "a unit refers to an entry that its reference picture list does not have",
    rc.FAULT_SYMMETRIC: "sym_mvd_flag is set, but no reference pictures lie before and after the picture",
}


@dataclass
class Reconstruction:
    """A reconstructed picture.

    Attributes:
        picture: The parsed picture.
        frame: Its state after the last coding unit.
        images: Components by kind of plane, each (h, w), not cropped; `dbf`, `sao` and `rec` only if it is filtered.
        lists: For each slice its RefPicList, shape (2, 16).
        mappings: Luma mappings of the slices that have one by slice index; luma of `pred` in `images` is still mapped.
        filters: In-loop filters; None if the slice data is damaged.
        filtering: The work of the filters so far; the planes are complete when all is done.
        reference: Components that later pictures refer to; `images["rec"]` unless a hook filters behind the loop.
        proven: False if a hook found that the output is not that of the encoder.
    """

    picture: ParsedPicture
    frame: fr.Frame
    images: dict[str, list[Plane]]
    lists: list[Records] = field(default_factory=list)
    mappings: dict[int, LumaMapping] = field(default_factory=dict)
    filters: PictureFilters | None = None
    filtering: list[Future[None]] = field(default_factory=list)
    reference: list[Plane] = field(default_factory=list)
    proven: bool = True

    def planes(self, names: Sequence[str]) -> dict[str, Plane]:
        """Return planes by name, cropped to the conformance window.

        Args:
            names: Names of `PLANES` and `MOTION_PLANES`.

        Returns:
            Planes by name; samples are uint16, residuals int16 (int32 above 12 bit), strengths uint16, motion int32.
        """
        return {name: self._plane(*name.rsplit("_", 1)) for name in names}

    def arrays(self) -> list[Plane]:
        """Return the arrays that `PlaneMemory` may use again when neither the planes nor the motion are needed."""
        arrays = [self.frame.planes, self.frame.known, self.frame.motion]
        if self.filters is not None:
            arrays += [*self.filters.filtered.dbf, *self.filters.filtered.sao]
        return list({id(array): array for array in arrays}.values())

    def _plane(self, kind: str, suffix: str) -> Plane:
        if kind == "motion":
            return np.array(self.frame.motion["model"])
        if kind in ("mv", "ref_idx"):
            return self._motion(kind, int(suffix[1]))
        if kind == "bs":
            assert self.filters is not None
            strengths = self.filters.edges["bs"][cells.EDGE_VER if suffix == "v" else cells.EDGE_HOR]
            return np.repeat(np.repeat(strengths, 4, 0), 4, 1)[self._inside(0)].astype(np.uint16)
        component = "yuv".index(suffix)
        plane = self.images[kind][component]
        if kind == "pred" and component == 0 and self.mappings:
            depth = self.picture.sps.bit_depth
            plane = inverse_mapped(plane, self.frame.known["region"][..., 0], self.mappings, depth)
        plane = plane[self._inside(component)]
        if kind == "resid":
            return plane.astype(np.int16 if self.picture.sps.bit_depth <= 12 else np.int32)
        return plane.astype(np.uint16)

    def _inside(self, component: int) -> tuple[slice, slice]:
        """Return the rows and columns of a component inside the conformance window."""
        sps, window = self.picture.sps, self.picture.pps.conformance_window
        height, width = self.images["unf"][component].shape
        down, right = (0, 0) if component else (sps.log2_sub_height_c, sps.log2_sub_width_c)
        rows = slice(window.top << down, height - (window.bottom << down))
        return rows, slice(window.left << right, width - (window.right << right))

    def _motion(self, kind: str, number: int) -> Plane:
        motion = self.frame.motion
        ref_idx = motion["ref_idx"][..., number]
        if kind == "mv":
            vectors = np.stack([motion["mv"][axis][..., number] for axis in ("x", "y")], -1)
            return np.where(ref_idx[..., None] >= 0, vectors, 0)
        slices = np.maximum(self.frame.known["region"][..., 0] - 1, 0) // fr.SLICE_REGIONS
        pocs = np.stack([entries["poc"][number] for entries in self.lists])
        return np.where(ref_idx >= 0, pocs[slices, np.maximum(ref_idx, 0)], NO_REFERENCE).astype(np.int32)


def check_planes(names: Sequence[str], sps: SequenceParameterSet, allowed: Sequence[str] = PLANES) -> None:
    """Check that planes exist.

    Args:
        names: Names of planes.
        sps: Active SPS.
        allowed: Planes that the caller offers.

    Raises:
        ConfigError: A plane does not exist.
    """
    for name in names:
        if name not in allowed:
            raise ConfigError(f"there is no plane {name!r}: one of {', '.join(allowed)}")
        if not sps.sps_chroma_format_idc and name.endswith(("_u", "_v")) and name != "bs_v":
            raise ConfigError(f"the picture has no chroma, so no plane {name}")


def needs_filters(names: Sequence[str]) -> bool:
    """Return True if any of the planes exists only after the in-loop filters."""
    return not kinds_of(names).isdisjoint(FilteredPlanes._fields)


def kinds_of(names: Sequence[str]) -> set[str]:
    """Return the kinds of planes, e.g. "pred" of pred_y."""
    return {name.split("_")[0] for name in names}


def reconstruct(picture: ParsedPicture, planes: Sequence[str], hook: PictureHook | None = None) -> dict[str, Plane]:
    """Reconstruct planes of one intra picture.

    Args:
        picture: Picture whose slices are all I slices.
        planes: Names of `PLANES`.
        hook: Filter that is applied after the in-loop filters.

    Returns:
        Planes by name, as `read_pictures` yields them.

    Raises:
        ConfigError: A plane does not exist.
        FormatError: The slice data is damaged.
        UnsupportedError: The picture uses an unsupported tool, has P or B slices, or was coded with a CNN filter in
            the loop and there is no hook.
    """
    check_planes(planes, picture.sps)
    if not picture.is_intra:
        raise UnsupportedError(
            "the picture has P or B slices, so it depends on other pictures: codecnn.codec.read_pictures "
            "reconstructs whole streams"
        )
    strengths = "bs_v" in planes or "bs_h" in planes
    filtered = needs_filters(planes)
    if filtered:
        check_hook(picture, hook)
    decoded = reconstruct_picture(
        picture,
        read_log(picture),
        None,
        InlineExecutor(),
        filtered=filtered,
        strengths=strengths,
        kept=kinds_of(planes),
    )
    if filtered and hook is not None:
        apply_hook(decoded, hook)
    return decoded.planes(planes)


def check_hook(picture: ParsedPicture, hook: PictureHook | None) -> None:
    """Raise UnsupportedError if a picture was coded with a CNN filter in the loop and there is no hook."""
    if hook is None and picture.loop_filter is not None:
        raise UnsupportedError(
            "the stream was coded with a CNN filter in the loop: decode it with `codecnn decode`, or pass "
            "hook=codecnn.signalling.in_loop.LoopFilter()"
        )


def reconstruct_picture(
    picture: ParsedPicture,
    log: PictureLog,
    buffer: PictureBuffer | None,
    worker: Executor,
    memory: PlaneMemory | None = None,
    target: Sequence[Plane] = (),
    filtered: bool = True,
    strengths: bool = False,
    kept: Collection[str] = ("pred", "resid"),
) -> Reconstruction:
    """Reconstruct the coding units of one picture, and let the in-loop filters follow in the worker.

    Clause 8.1.2, Decoding process for a coded picture.

    Args:
        picture: The picture.
        log: Its log.
        buffer: Buffer with the reference pictures, after `PictureBuffer.begin`; None for intra pictures.
        worker: Executor that calls one function after the other.
        memory: Memory of the planes; None allocates them.
        target: Components that the decoded picture is written to, uint16; empty allocates them.
        filtered: Apply the in-loop filters.
        strengths: Derive the boundary strengths if it is not filtered.
        kept: Samples to keep besides the reconstruction: "pred" the prediction, "resid" the residual.

    Returns:
        The picture. Its planes are complete when all of `filtering` is done.

    Raises:
        FormatError: The slice data is damaged.
        UnsupportedError: The picture uses an unsupported tool.
    """
    frame, sizes = new_frame(picture, memory, kept)
    pic = frame.pic
    images = {
        kind: _images(frame, [int(starts[i]) for i in range(3)], sizes)
        for kind, starts in (("pred", pic.pred), ("unf", pic.recon), ("resid", pic.resid))
        if kind == "unf" or kind in kept
    }
    decoded = Reconstruction(picture, frame, images)
    rows = _FinishedRows(picture)
    if log.error is None:
        filters = PictureFilters(
            picture, frame, log.batches[0].ctbs, images["unf"], memory, target, filtered, strengths
        )
        images["unf"] = filters.unfiltered
        if filtered:
            images |= filters.filtered._asdict()
        decoded.filters, decoded.reference = filters, images.get("rec", [])
    for ctus in log.batches:
        if ctus.number == len(decoded.lists):
            frame = _begin_slice(decoded, ctus, buffer, frame)
        frame = frame._replace(log=ctus.log)
        frame.current.cu_at = 0
        for row, number in _rows_of_ctus(ctus):
            with compiled_once(reconstruct_units, *COMPILATION):
                reconstruct_units(frame)
            if frame.current.fault:
                raise FormatError(f"slice {ctus.number}: {_FAULTS[int(frame.current.fault)]}")
            if decoded.filters is not None and rows.add(row, number):
                ready = worker.submit(decoded.filters.advance, rows.finished, dict(decoded.mappings))
                decoded.filtering.append(ready)
    if log.error is not None:
        raise log.error
    return decoded


def _begin_slice(decoded: Reconstruction, ctus: ParsedCtus, buffer: PictureBuffer | None, frame: fr.Frame) -> fr.Frame:
    """Set the values of the next slice; return the state with its reference pictures."""
    mapping = put_slice(frame.slice, ctus.part)
    if mapping is not None:
        decoded.mappings[ctus.number] = mapping
    if buffer is not None:
        collocated = buffer.put_references(frame.slice, ctus.part, decoded.picture)
        frame = frame._replace(references=buffer.samples, collocated=collocated)
    decoded.lists.append(np.array(frame.slice.ref_pic_list))
    return frame


def _rows_of_ctus(ctus: ParsedCtus) -> list[tuple[int, int]]:
    """Return the row and the number of consecutive CTUs that are in the same row of CTUs."""
    rows = (ctus.addresses // ctus.ctbs.shape[1]).tolist()
    return [(row, len(list(group))) for row, group in groupby(rows)]


class _FinishedRows:
    """Number of rows of CTUs that are reconstructed, whatever the order of the tiles.

    Attributes:
        finished: Number of rows from the upper edge of the picture on without a missing CTU.
    """

    def __init__(self, picture: ParsedPicture) -> None:
        self.finished = 0
        tiles = picture.pps.tiles
        self._missing = [tiles.columns[-1]] * tiles.rows[-1]

    def add(self, row: int, number: int) -> bool:
        """Count CTUs of a row; return True if `finished` changes."""
        self._missing[row] -= number
        before = self.finished
        while self.finished < len(self._missing) and not self._missing[self.finished]:
            self.finished += 1
        return self.finished > before


def apply_hook(decoded: Reconstruction, hook: PictureHook) -> None:
    """Apply a hook to a filtered picture.

    Args:
        decoded: The picture.
        hook: Filter that is applied after the in-loop filters.

    Raises:
        ConfigError: The hook returns components of other shapes.
    """
    for part in decoded.filtering:
        part.result()
    hooked = _hooked(hook, decoded.picture, [plane.astype(np.int32) for plane in decoded.images["rec"]])
    decoded.images["rec"], decoded.reference, decoded.proven = hooked.output, hooked.reference, hooked.proven


def _hooked(hook: PictureHook, picture: ParsedPicture, planes: list[Plane]) -> HookedPicture:
    """Apply a hook and check the shapes that it returns."""
    result = hook(picture, planes)
    expected = [plane.shape for plane in planes]
    for name, components in (("reference", result.reference), ("output", result.output)):
        shapes = [plane.shape for plane in components]
        if shapes != expected:
            raise ConfigError(f"the hook of the decoder returns a {name} of {shapes}, not {expected}")
    return result


def _images(frame: fr.Frame, starts: Sequence[int], sizes: list[tuple[int, int]]) -> list[Plane]:
    """Return planes of the components, which begin at `starts`, as views of `Frame.planes`."""
    images = []
    for start, (height, width) in zip(starts, sizes, strict=False):
        images.append(frame.planes[start : start + height * width].reshape(height, width))
    return images
