"""Statistics of labels against sums of the costs of the reference implementation."""

import numpy as np
import pytest

from codecnn.base.errors import TableError
from codecnn.modes.labels import CostComparison, LabelSettings, Source, add_up, compare_costs, encoder_agreement
from codecnn.vvc.intra import block_costs_reference, block_positions, blocks_at, reference_lines

SETTINGS = LabelSettings(((8, 8),))


@pytest.fixture(scope="module")
def noise() -> Source:
    rng = np.random.default_rng(4)
    original, decoded = (rng.integers(300, 700, (32, 40)).astype(np.uint16) for _ in range(2))
    return Source("noise", 0, original, decoded, 10)


def _costs(source: Source, cost: str) -> tuple[np.ndarray, np.ndarray]:
    positions = block_positions(40, 32, 8, 8)
    lines = reference_lines(source.references, positions, 8, 8, 10)
    return positions, block_costs_reference(lines, blocks_at(source.original, positions, 8, 8), 10, cost)


def test_cost_of_choosing_by_hadamard(noise: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codecnn.modes.labels.statistics._CHUNK", 300)
    (row,) = compare_costs(noise, SETTINGS)
    (_, dct), (_, hadamard) = _costs(noise, "dct"), _costs(noise, "hadamard")
    best_dct, best_hadamard = dct.argmin(1), hadamard.argmin(1)
    assert (row.size, row.blocks, row.another) == ("8x8", 20, (best_dct != best_hadamard).sum())
    assert row.another > 0
    assert row.dct_of_dct == pytest.approx(dct.min(1).sum(), rel=1e-6)
    assert row.dct_of_hadamard == pytest.approx(dct[np.arange(20), best_hadamard].sum(), rel=1e-6)


def test_agreement_with_the_modes_of_an_encoder(noise: Source) -> None:
    positions, dct = _costs(noise, "dct")
    order = dct.argsort(1, kind="stable")
    modes = np.where(np.arange(20) < 5, order[:, 0], np.where(np.arange(20) < 12, order[:, 2], order[:, 30]))
    blocks = np.concatenate((positions, np.full((20, 2), 8)), 1)
    beyond = np.array([[32, 24, 16, 8], [0, 0, 128, 128]])  # beyond the edge; larger than a predicted block
    (row,) = encoder_agreement(noise, np.concatenate((blocks, beyond)), np.append(modes, (0, 0)), SETTINGS)
    assert (row.size, row.blocks, row.same_dct, row.top_dct) == ("8x8", 20, 5, 12)
    assert row.dct_of_dct == pytest.approx(dct.min(1).sum(), rel=1e-6)
    assert row.dct_of_encoder == pytest.approx(dct[np.arange(20), modes].sum(), rel=1e-6)
    _, hadamard = _costs(noise, "hadamard")
    assert row.same_hadamard == (hadamard.argmin(1) == modes).sum()
    with pytest.raises(TableError, match="noise: a CU of 8x8"):
        encoder_agreement(noise, blocks, modes - 67, SETTINGS)


def test_add_up() -> None:
    parts = [CostComparison("4x4", 1, 2, 3.5, 4.0), CostComparison("4x4", 10, 20, 30.0, 40.5)]
    assert add_up(parts) == CostComparison("4x4", 11, 22, 33.5, 44.5)
