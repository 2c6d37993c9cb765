"""Table of the CUs of a VVC stream with their motion, which needs the whole stream to be decoded."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from codecnn.base.errors import FormatError
from codecnn.codec.blocks.table import INTER, LUMA
from codecnn.codec.blocks.vvc_stream import output_units, table_of_units
from codecnn.vvc.syntax import CU_COLUMNS

_FLAGS = ("merge", "ciip", "gpm")
_VECTORS = ("mv_l0_x", "mv_l0_y", "mv_l1_x", "mv_l1_y")
_REFERENCES = ("ref_l0", "ref_l1")


def stream_motion(path: Path | str) -> pa.Table:
    """Decode a VVC stream and read every CU with its motion, in decoding order.

    Args:
        path: Byte stream (H.266 Annex B), or a container with a VVC stream.

    Returns:
        The columns of `stream_table`, and these, int32, null where a CU has no value:

        - merge: general_merge_flag; of IBC CUs, too
        - ciip, gpm: combined inter and intra prediction, geometric partitions
        - affine: 0 translation, 1 or 2 affine motion of four or six parameters, 3 temporal subblocks
        - mv_l0_x, mv_l0_y, mv_l1_x, mv_l1_y: vectors of the upper left 4x4 samples in 1/16 luma sample, before DMVR
        - ref_l0, ref_l1: POC of the reference picture

    Raises:
        MissingFileError: The file does not exist.
        FormatError: The stream is damaged, or a decoded picture differs from its hash.
        UnsupportedError: The stream uses a tool that codecnn does not support.
    """
    # Imported here because numba takes half a second to import.
    from codecnn.codec.vvc_pictures import read_pictures
    from codecnn.vvc.decoder import MOTION_PLANES, NO_REFERENCE

    units, positions = output_units(path)
    columns = dict(zip(CU_COLUMNS, units.T, strict=True))
    extra = {name: np.ma.masked_equal(columns[name], -1) for name in _FLAGS}
    for name in ("affine", *_VECTORS, *_REFERENCES):
        extra[name] = np.ma.array(np.zeros(len(units), np.int32), mask=True)
    inter = (columns["channel"] == LUMA) & (columns["pred_mode"] == INTER)
    count = 0
    for position, (_, planes) in enumerate(read_pictures(path, MOTION_PLANES)):
        count += 1
        rows = np.flatnonzero(inter & (positions == position))
        place = columns["y"][rows] >> 2, columns["x"][rows] >> 2
        extra["affine"][rows] = planes["motion_model"][place]
        for which in range(2):
            reference = planes[f"ref_idx_l{which}"][place]
            used = reference != NO_REFERENCE
            extra[_REFERENCES[which]][rows[used]] = reference[used]
            for axis in range(2):
                vectors = planes[f"mv_l{which}"][place][:, axis]
                extra[_VECTORS[2 * which + axis]][rows[used]] = vectors[used]
    if count != int(positions.max(initial=-1)) + 1:
        raise FormatError(f"{path}: {count} pictures are decoded, but the headers announce {positions.max() + 1}")
    table = table_of_units(units, positions).to_arrow()
    for name, values in extra.items():
        table = table.append_column(name, _arrow(values))
    return table


def _arrow(values: "np.ma.MaskedArray[Any, Any]") -> pa.Array:
    """Convert a masked array; masked values are null."""
    mask: npt.NDArray[np.bool_] = np.ma.getmaskarray(values)
    return pa.array(values.filled(0).astype(np.int32), mask=mask)
