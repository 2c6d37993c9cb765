"""The VVC decoder as plain Python, so that tests can call its functions one by one.

Numba compiles them without a wrapper for Python. Plain Python also raises IndexError for an index beyond an array, and
`Checked` arrays raise it for a negative one; compiled code would access other memory.
"""

import contextlib
import sys
from unittest import mock

import numba
import numpy as np

import codecnn.base.compiled
import codecnn.vvc
from codecnn.base.records import new_record


@contextlib.contextmanager
def without_compilation():
    """Import modules of `codecnn.vvc` anew as plain Python; all other code keeps the compiled ones."""

    def ours():
        return [name for name in sys.modules if name.startswith(("codecnn.vvc", "codecnn.base.compiled"))]

    vvc, compiled, before = codecnn.vvc, codecnn.base.compiled, {name: sys.modules.pop(name) for name in ours()}
    try:
        with mock.patch.object(numba.config, "DISABLE_JIT", 1):
            yield
    finally:
        for name in ours():
            del sys.modules[name]
        sys.modules.update(before)
        codecnn.vvc, codecnn.base.compiled = vvc, compiled


with without_compilation():
    from codecnn.vvc.decoder import (  # noqa: F401
        alf,
        block_state,
        cells,
        coding_units,
        cross_component,
        deblocking,
        edge_filters,
        geometric_motion,
        inter_prediction,
        intra_prediction,
        loop_filters,
        luma_mapping,
        merge,
        motion,
        references,
        refinement,
        sao,
        subblock_merge,
        temporal_motion,
        transforms,
    )
    from codecnn.vvc.decoder import frame as fr
    from codecnn.vvc.decoder import interpolation_filters as ip  # noqa: F401
    from codecnn.vvc.decoder import records as rc
    from codecnn.vvc.decoder import residual as residuals  # noqa: F401
    from codecnn.vvc.decoder.initialise import new_frame, no_motion  # noqa: F401
    from codecnn.vvc.syntax import log as lg  # noqa: F401
    from codecnn.vvc.syntax import maps  # noqa: F401
    from codecnn.vvc.syntax import state as st  # noqa: F401

SIDE = 192
"""Width and height of the pictures of the tests."""


class Checked(np.ndarray):
    """Array that refuses negative indices, which compiled code would count from the end without notice."""

    def __getitem__(self, index):
        self._check(index)
        return super().__getitem__(index)

    def __setitem__(self, index, value):
        self._check(index)
        super().__setitem__(index, value)

    def _check(self, index):
        for number in index if isinstance(index, tuple) else (index,):
            if isinstance(number, int | np.integer) and number < 0:
                raise IndexError(f"the index {number} is negative")


def as_checked(value):
    """Return an array as `Checked`, and anything else as it is."""
    return value.view(Checked) if isinstance(value, np.ndarray) else value


def checked(function):
    """Return a function that calls `function` with its arrays as `Checked`."""

    def call(*arguments):
        return function(*map(as_checked, arguments))

    call.__name__ = function.__name__
    return call


def vectors_of(cells, field="mv"):
    """Return the vectors of cells of motion, x and y of L0, then of L1, shape (rows, columns, 4)."""
    return np.stack([cells[field][axis][..., i] for i in range(2) for axis in ("x", "y")], -1)


def put_vectors(cells, values):
    """Set the vectors of cells of motion; the last axis of `values` is x and y of L0, then of L1."""
    for number in range(4):
        cells["mv"]["xy"[number % 2]][..., number // 2] = values[..., number]


def empty_frame(bit_depth):
    """Return a picture of luma only that is entirely reconstructed and one slice."""
    pic, current = new_record(rc.PictureValues), new_record(rc.Position)
    pic.width = pic.height = pic.stride[0] = SIDE
    pic.bit_depth, pic.ctb_log2_size_y, current.region, pic.pred[0] = bit_depth, 7, 1, SIDE * SIDE
    pic.log2_transform_range, pic.max_tb_size_y = 15, 64
    known = np.zeros((SIDE // 4, SIDE // 4), cells.BLOCK_CELL)
    known.view(np.int32)[...] = 1
    return fr.Frame(
        pic=pic,
        slice=new_record(rc.SliceValues),
        current=current,
        scratch=new_record(rc.Scratch, np.int32),
        tables=fr.TABLES,
        planes=np.zeros(2 * SIDE * SIDE, np.int32),
        known=known,
        log=np.zeros(4096, np.int64),
        unit=new_record(rc.InterUnit),
        candidates=new_record(rc.Candidates),
        motion=no_motion(SIDE // 4, SIDE // 4),
        references=np.zeros(1, np.uint16),
        fetched=np.zeros(rc.INTER_BLOCK, np.uint16),
        collocated=np.zeros((1, 1), cells.COLLOCATED_CELL),
    )


def random_frame(rng, bit_depth, sub=(0, 0), smooth=0):
    """Return a picture of random samples: frame, and reconstruction and prediction planes by component."""
    f = empty_frame(bit_depth)
    f.pic.sps_chroma_format_idc, f.pic.log2_sub_width_c, f.pic.log2_sub_height_c = 3 - sum(sub), *sub
    sizes = [(SIDE, SIDE), *[(SIDE >> sub[1], SIDE >> sub[0])] * 2]
    f = f._replace(planes=np.zeros(3 * sum(h * w for h, w in sizes), np.int32))
    kinds = [[], [], []]
    at = 0
    for starts, planes in zip((f.pic.recon, f.pic.pred, f.pic.resid), kinds, strict=True):
        for component, (height, width) in enumerate(sizes):
            starts[component], f.pic.stride[component] = at, width
            planes.append(f.planes[at : at + height * width].reshape(height, width))
            at += height * width
    for plane in kinds[0]:
        plane[:] = rng.integers(0, 1 << bit_depth, plane.shape)
        if smooth:
            steps = rng.integers(-smooth, smooth + 1, plane.shape).cumsum(0).cumsum(1)
            plane[:] = (steps + (1 << (bit_depth - 1))).clip(0, (1 << bit_depth) - 1)
    return f, kinds[0], kinds[1]
