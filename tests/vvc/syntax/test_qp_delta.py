"""cu_qp_delta_abs and cu_qp_delta_sign_flag: binarization, range of CuQpDeltaVal, and QpY (H.266 clause 8.7.1)."""

from types import SimpleNamespace
from unittest import mock

import pytest

from tests.helpers.plain_decoder import without_compilation

with without_compilation():
    from codecnn.vvc.syntax import cabac, state, transform


def bins_of(delta):
    """Return the bins of a CuQpDeltaVal: a prefix of at most five ones, an Exp-Golomb suffix of order 0, the sign."""
    magnitude = abs(delta)
    bins = [1] * min(magnitude, 5) + [0] * (magnitude < 5)
    if magnitude >= 5:
        code = f"{magnitude - 4:b}"
        bins += [1] * (len(code) - 1) + [0] + [int(bit) for bit in code[1:]]
    return bins + [int(delta < 0)] * (magnitude > 0)


def decode(delta, qp, bit_depth):
    """Return QpY after a coded CuQpDeltaVal at the predicted QP `qp`, and the fault."""
    qg = SimpleNamespace(qp_y=qp, is_cu_qp_delta_coded=0)
    work = SimpleNamespace(
        state=SimpleNamespace(qg=qg, slice=SimpleNamespace(bit_depth=bit_depth), fault=state.FAULT_NONE)
    )
    bins = iter(bins_of(delta))
    with (
        mock.patch.object(transform, "decode_bin", side_effect=bins),
        mock.patch.object(transform, "decode_bypass", side_effect=bins),
        mock.patch.object(cabac, "decode_bypass", side_effect=bins),
    ):
        transform.decode_qp_delta(work)
    assert list(bins) == []
    assert qg.is_cu_qp_delta_coded == 1
    return qg.qp_y, work.state.fault


@pytest.mark.parametrize("bit_depth", [8, 10, 12, 16])
def test_qp_wraps_within_its_range(bit_depth):
    offset = 6 * (bit_depth - 8)
    for delta in range(-(32 + offset // 2), 32 + offset // 2):
        for qp in (-offset, 0, 30, 63):
            qp_y, fault = decode(delta, qp, bit_depth)
            assert fault == state.FAULT_NONE
            assert -offset <= qp_y <= 63
            assert (qp_y - qp - delta) % (64 + offset) == 0


@pytest.mark.parametrize("bit_depth", [8, 10, 12, 16])
def test_differences_out_of_range_are_a_fault(bit_depth):
    offset = 6 * (bit_depth - 8)
    assert decode(32 + offset // 2, 30, bit_depth) == (30, state.FAULT_QP)
    assert decode(-(33 + offset // 2), 30, bit_depth) == (30, state.FAULT_QP)
