"""Which patches a training batch is made of: sources by their share, QPs evenly, then sequences or CTUs by error."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from codecnn.dataset.patches import Patch
from codecnn.dataset.store import CTUS, Unit
from codecnn.errors import ConfigError, StoreError

ALIGNMENT = 8
"""Random patches start on the 8x8 grid on which VVC and HEVC deblock; flips and transposes keep that grid in place."""

Positions = Literal["ctu", "random"]
UnitsShare = tuple[Sequence[Unit], float]
"""Units, and their share of the patches."""


@dataclass(frozen=True)
class _Ctus:
    """The CTUs of a source at one QP: (n, 6) rows unit, picture, x, y, w, h, and the running sum of their weights.

    `counts` (n,) is what the loss of a patch that a CTU brings counts.
    """

    rows: npt.NDArray[np.int32]
    cumulative: npt.NDArray[np.float64]
    counts: npt.NDArray[np.float64]


class Sampler:
    """Draws patches of `size` x `size` samples from the units of some sources, numbered through all of them.

    A source is drawn by its share, then one of its QPs evenly. Without `error_exponent` one of the sequences follows,
    evenly and not by area, since one large picture would make up most of a small set, then a picture and a place:
    "ctu", any CTU of the grid of `size`, or "random", any place on the 8x8 grid where the patch lies inside.

    From flat CTUs, which have next to no error, a filter learns little. So with an `error_exponent` a CTU of the
    store's table is drawn with a probability proportional to mse_y^error_exponent · area (0: by area alone). The patch
    is then the one of the grid of `size` that holds the CTU's upper left sample ("ctu"), or one that holds the CTU's
    middle, anywhere on the 8x8 grid ("random"). What has much error then counts more; with `keep_objective` a patch
    weighs p₀ / p instead, p its probability and p₀ that of an even draw (a sequence, then a CTU by area): the mean loss
    stays that of the even draw, and what changes is its noise (importance sampling). With `expected_error` mse_y is not
    the CTU's own but what its QP and depth lead to expect: exp(a·QP + b·depth + c), fitted to ln mse_y of all CTUs.

    A QP here is the one that the unit was asked for; pictures of an RA or LDB hierarchy bring their own slice QPs.
    """

    def __init__(
        self,
        sources: Sequence[UnitsShare],
        size: int,
        positions: Positions,
        error_exponent: float | None = None,
        *,
        keep_objective: bool = False,
        expected_error: bool = False,
    ) -> None:
        if any(share <= 0 for _, share in sources):
            raise ConfigError(f"shares must be positive, not {', '.join(str(share) for _, share in sources)}")
        self._size, self._positions = size, positions
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
            places, errors = _ctu_table(units, expected_error)
            self._ctus = [
                [
                    _weighted(places, errors, chosen, error_exponent, units[chosen[0]].qp, keep_objective)
                    for chosen in qps
                ]
                for qps in self._by_qp
            ]

    def draw(self, rng: np.random.Generator, count: int) -> list[Patch]:
        """`count` patches, independent of each other, from the numbers that `rng` gives next."""
        return [self._draw(rng) for _ in range(count)]

    def _draw(self, rng: np.random.Generator) -> Patch:
        source = 0 if len(self._by_qp) == 1 else _pick(rng, self._shares)
        which = int(rng.integers(len(self._by_qp[source])))
        if self._ctus is not None:
            return self._near_ctu(rng, self._ctus[source][which])
        chosen = self._by_qp[source][which]
        unit = chosen[int(rng.integers(len(chosen)))]
        picture = int(rng.integers(self._pictures[unit]))
        x, y = (self._start(rng, extent) for extent in self._sizes[unit])
        return Patch(unit, picture, x, y)

    def _start(self, rng: np.random.Generator, extent: int) -> int:
        if self._positions == "ctu":
            return int(rng.integers((extent - 1) // self._size + 1)) * self._size
        return int(rng.integers(max(extent - self._size, 0) // ALIGNMENT + 1)) * ALIGNMENT

    def _near_ctu(self, rng: np.random.Generator, ctus: _Ctus) -> Patch:
        which = _pick(rng, ctus.cumulative)
        unit, picture, x, y, w, h = ctus.rows[which].tolist()
        weight = float(ctus.counts[which])
        if self._positions == "ctu":
            return Patch(unit, picture, x // self._size * self._size, y // self._size * self._size, weight)
        width, height = self._sizes[unit]
        return Patch(unit, picture, self._around(rng, x + w // 2, width), self._around(rng, y + h // 2, height), weight)

    def _around(self, rng: np.random.Generator, middle: int, extent: int) -> int:
        """A start on the 8x8 grid from which a patch reaches over `middle`, and lies inside the picture if it fits."""
        last = max(extent - self._size, 0) // ALIGNMENT
        low = min(max((middle - self._size) // ALIGNMENT + 1, 0), last)
        high = min(middle // ALIGNMENT, last)
        return int(rng.integers(low, high + 1)) * ALIGNMENT


def _pick(rng: np.random.Generator, cumulative: npt.NDArray[np.float64]) -> int:
    """An index drawn by the weights whose running sum is `cumulative`.

    The last sum is left out of the search: rounding could else draw one index more than there are.
    """
    return int(np.searchsorted(cumulative[:-1], rng.random() * cumulative[-1], side="right"))


def _ctu_table(units: Sequence[Unit], expected: bool) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float64]]:
    """The CTUs of all units, whatever store they are from: (n, 6) rows unit, picture, x, y, w, h, and mse_y (n,), or
    the one that is `expected`."""
    places, errors, known = [], [], []
    told = ("qp", "depth_mean") if expected else ()
    for folder in dict.fromkeys(unit.folder for unit in units):
        table = pq.read_table(folder / CTUS, columns=["unit", "poc", "x", "y", "w", "h", "mse_y", *told])
        facts = np.array([table[name].to_numpy().astype(np.float64) for name in told]).reshape(len(told), len(table))
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
                raise StoreError(
                    f"{folder / CTUS} has no rows of sequence {unit.name!r} at QP {unit.qp}: build it again"
                )
            rows = order[starts[key] : starts[key + 1]]
            pictures = {picture.poc: index for index, picture in enumerate(unit.pictures)}
            picture = [pictures[value] for value in poc[rows].tolist()]
            places.append(
                np.stack([np.full(len(rows), number), picture, *(column[rows] for column in geometry)], axis=1)
            )
            errors.append(mse[rows])
            known.append(facts[:, rows])
    mse = np.concatenate(errors)
    return np.concatenate(places).astype(np.int32), _expected(mse, np.hstack(known)) if expected else mse


def _expected(mse: npt.NDArray[np.float64], known: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """exp(a·QP + b·depth + c) of CTUs with QP and depth `known` (2, n), the logarithm fitted by least squares."""
    if not np.isfinite(known).all():
        raise StoreError("expected_error needs the depth of every CTU, which the store's codec does not tell")
    columns, there = np.column_stack([*known, np.ones(len(mse))]), mse > 0
    slopes = np.linalg.lstsq(columns[there], np.log(mse[there]), rcond=None)[0]
    return np.asarray(np.exp(columns @ slopes))


def _weighted(
    places: npt.NDArray[np.int32],
    errors: npt.NDArray[np.float64],
    chosen: Sequence[int],
    exponent: float,
    qp: int,
    keep_objective: bool,
) -> _Ctus:
    """The CTUs of the units `chosen`, which are coded at `qp`, weighted by mse_y^exponent · area."""
    rows = np.flatnonzero(np.isin(places[:, 0], chosen))
    area = places[rows, 4].astype(np.float64) * places[rows, 5]
    weights = errors[rows] ** exponent * area
    cumulative = np.cumsum(weights)
    if not cumulative[-1] > 0:
        raise StoreError(f"no CTU at QP {qp} has any error to draw it by: leave error_exponent out")
    counts = np.ones(len(rows))
    if keep_objective:
        unit = places[rows, 0]
        even = area / np.bincount(unit, area)[unit] / len(chosen)
        # A CTU without error is never drawn, and has none to learn from.
        np.divide(even * cumulative[-1], weights, out=counts, where=weights > 0)
    return _Ctus(places[rows], cumulative, counts)
