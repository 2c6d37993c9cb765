"""Sampling of training patches: stores by share, QPs uniformly, then sequences uniformly or CTUs by their error."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from codecnn.base.division import ceil_div
from codecnn.base.errors import ConfigError, StoreError
from codecnn.dataset.patches import Patch
from codecnn.dataset.store import CTUS
from codecnn.dataset.unit import Unit

ALIGNMENT = 8
"""Random patches start on the 8x8 grid on which VVC and HEVC deblock; flips and transposes keep that grid in place."""

Positions = Literal["ctu", "random"]
UnitsShare = tuple[Sequence[Unit], float]
"""Units, and their share of the patches."""


@dataclass(frozen=True)
class _Ctus:
    """The CTUs of one source at one QP, with their weights.

    Attributes:
        rows: Unit, picture, x, y, w, h of each CTU, shape (n, 6).
        cumulative: Running sum of the sampling weights, shape (n,).
        loss_weights: Weight of the loss of a patch drawn by each CTU, shape (n,).
    """

    rows: npt.NDArray[np.int32]
    cumulative: npt.NDArray[np.float64]
    loss_weights: npt.NDArray[np.float64]


class Sampler:
    """Draws patches from the units of several sources, numbered consecutively.

    A source is drawn by its share, then one of its QPs uniformly. Without `error_exponent` a sequence is drawn next,
    uniformly and not by area, so that one large picture does not make up most of a small set. Then follow a picture and
    a position: a CTU of the grid of `size` ("ctu"), or any position on the 8x8 grid at which the patch lies inside the
    picture ("random").

    A filter learns little from flat CTUs, which have almost no error. With `error_exponent` a CTU of the store's table
    is therefore drawn with a probability proportional to mse_y^error_exponent · area (0: by area alone). The patch is
    then the one of the grid of `size` that holds the CTU's upper left sample ("ctu"), or any patch on the 8x8 grid that
    holds the CTU's centre ("random"). CTUs with much error then count more. With `keep_objective` a patch is weighted
    by p₀ / p instead, where p is its probability and p₀ that of a uniform draw (a sequence, then a CTU by area): the
    mean loss remains that of the uniform draw, and only its variance changes (importance sampling).

    The QP of a unit is the requested one; the pictures of an RA or LDB hierarchy have their own slice QPs.
    """

    def __init__(
        self,
        sources: Sequence[UnitsShare],
        size: int,
        positions: Positions,
        error_exponent: float | None = None,
        *,
        keep_objective: bool = False,
        border: int = 0,
    ) -> None:
        """Index the units.

        Args:
            sources: Units and their share of the patches, which must be positive.
            size: Width and height of a patch in luma samples.
            positions: "ctu" or "random".
            error_exponent: Exponent of the CTUs' MSE in their probability; None draws sequences uniformly.
            keep_objective: Weight patches so that the mean loss is that of a uniform draw.
            border: Samples along a patch's edges that are not valid, as for `PatchReader`. A patch of the CTU grid
                without any valid sample inside the picture is moved towards the picture's centre.

        Raises:
            ConfigError: A share is not positive.
            StoreError: A store's table has no rows of a unit, or no CTU at a QP has any error.
        """
        if any(share <= 0 for _, share in sources):
            raise ConfigError(f"shares must be positive, not {', '.join(str(share) for _, share in sources)}")
        self._size, self._positions, self._border = size, positions, border
        units = [unit for group, _ in sources for unit in group]
        self._sizes = [(form.width, form.height) for form in (unit.format for unit in units)]
        self._pictures = [len(unit.pictures) for unit in units]
        self._shares = np.cumsum([share for _, share in sources])
        self._by_qp: list[list[list[int]]] = []
        first = 0
        for group, _ in sources:
            qps = sorted({unit.qp for unit in group})
            self._by_qp.append([[first + i for i, unit in enumerate(group) if unit.qp == qp] for qp in qps])
            first += len(group)
        self._ctus: list[list[_Ctus]] | None = None
        if error_exponent is not None:
            rows, errors = _read_ctus(units)
            self._ctus = [
                [_weighted(rows, errors, chosen, error_exponent, units[chosen[0]].qp, keep_objective) for chosen in qps]
                for qps in self._by_qp
            ]

    def draw(self, rng: np.random.Generator, count: int) -> list[Patch]:
        """Draw `count` patches independently of each other from the next numbers of `rng`."""
        return [self._draw(rng) for _ in range(count)]

    def _draw(self, rng: np.random.Generator) -> Patch:
        source = 0 if len(self._by_qp) == 1 else _pick(rng, self._shares)
        qp_index = int(rng.integers(len(self._by_qp[source])))
        if self._ctus is not None:
            return self._patch_by_ctu(rng, self._ctus[source][qp_index])
        chosen = self._by_qp[source][qp_index]
        unit = chosen[int(rng.integers(len(chosen)))]
        picture = int(rng.integers(self._pictures[unit]))
        x, y = (self._start(rng, extent) for extent in self._sizes[unit])
        return Patch(unit, picture, x, y)

    def _start(self, rng: np.random.Generator, extent: int) -> int:
        if self._positions == "ctu":
            return self._with_valid_samples(int(rng.integers((extent - 1) // self._size + 1)) * self._size, extent)
        return int(rng.integers(max(extent - self._size, 0) // ALIGNMENT + 1)) * ALIGNMENT

    def _patch_by_ctu(self, rng: np.random.Generator, ctus: _Ctus) -> Patch:
        index = _pick(rng, ctus.cumulative)
        unit, picture, x, y, w, h = ctus.rows[index].tolist()
        weight = float(ctus.loss_weights[index])
        width, height = self._sizes[unit]
        if self._positions == "ctu":
            x, y = (
                self._with_valid_samples(start // self._size * self._size, extent)
                for start, extent in ((x, width), (y, height))
            )
            return Patch(unit, picture, x, y, weight)
        return Patch(unit, picture, self._around(rng, x + w // 2, width), self._around(rng, y + h // 2, height), weight)

    def _with_valid_samples(self, start: int, extent: int) -> int:
        """Return the start of a patch of the CTU grid, moved if the border covers all its samples in the picture.

        It is moved towards the start of the picture by the border, rounded up to the 8x8 grid. The samples of the CTU
        in the picture are then valid; with a border that is not a multiple of 8, at least other samples are.
        """
        if start > 0 and extent - start <= self._border:
            return max(start - ceil_div(self._border, ALIGNMENT) * ALIGNMENT, 0)
        return start

    def _around(self, rng: np.random.Generator, centre: int, extent: int) -> int:
        """Draw a start on the 8x8 grid so that the patch holds `centre`, and is inside the picture if it fits."""
        last = max(extent - self._size, 0) // ALIGNMENT
        low = min(max((centre - self._size) // ALIGNMENT + 1, 0), last)
        high = min(centre // ALIGNMENT, last)
        return int(rng.integers(low, high + 1)) * ALIGNMENT


def _pick(rng: np.random.Generator, cumulative: npt.NDArray[np.float64]) -> int:
    """Draw an index by weights whose running sum is `cumulative`.

    The last sum is excluded from the search, since rounding could otherwise return an index past the end.
    """
    return int(np.searchsorted(cumulative[:-1], rng.random() * cumulative[-1], side="right"))


def _read_ctus(units: Sequence[Unit]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float64]]:
    """Read the CTUs of units of any stores: rows (n, 6) of unit, picture, x, y, w, h, and their mse_y (n,)."""
    rows, errors = [], []
    for folder in dict.fromkeys(unit.folder for unit in units):
        table = pq.read_table(folder / CTUS, columns=["unit", "poc", "x", "y", "w", "h", "mse_y"])
        mse, poc = table["mse_y"].to_numpy(), table["poc"].to_numpy()
        geometry = [table[name].to_numpy() for name in "xywh"]
        keys = table["unit"].combine_chunks().dictionary_encode()
        row_key = keys.indices.to_numpy()
        key_number = {key: number for number, key in enumerate(keys.dictionary.to_pylist())}
        order = np.argsort(row_key, kind="stable")
        starts = np.searchsorted(row_key[order], np.arange(len(key_number) + 1))
        for number, unit in enumerate(units):
            if unit.folder != folder:
                continue
            key = key_number.get(unit.key)
            if key is None:
                raise StoreError(f"{folder / CTUS} has no rows of sequence {unit.title}: build it again")
            chosen = order[starts[key] : starts[key + 1]]
            pictures = {picture.poc: index for index, picture in enumerate(unit.pictures)}
            picture = [pictures[value] for value in poc[chosen].tolist()]
            columns = [np.full(len(chosen), number), picture, *(column[chosen] for column in geometry)]
            rows.append(np.stack(columns, axis=1))
            errors.append(mse[chosen])
    return np.concatenate(rows).astype(np.int32), np.concatenate(errors)


def _weighted(
    rows: npt.NDArray[np.int32],
    errors: npt.NDArray[np.float64],
    units: Sequence[int],
    exponent: float,
    qp: int,
    keep_objective: bool,
) -> _Ctus:
    """Weight the CTUs of `units`, which are coded at `qp`, by mse_y^exponent · area."""
    chosen = np.flatnonzero(np.isin(rows[:, 0], units))
    area = rows[chosen, 4].astype(np.float64) * rows[chosen, 5]
    weights = errors[chosen] ** exponent * area
    cumulative = np.cumsum(weights)
    if not cumulative[-1] > 0:
        raise StoreError(f"no CTU at QP {qp} has any error to draw it by: leave error_exponent out")
    loss_weights = np.ones(len(chosen))
    if keep_objective:
        unit = rows[chosen, 0]
        uniform = area / np.bincount(unit, area)[unit] / len(units)
        # A CTU without error is never drawn; its weight stays 1.
        np.divide(uniform * cumulative[-1], weights, out=loss_weights, where=weights > 0)
    return _Ctus(rows[chosen], cumulative, loss_weights)
