"""PSNR gains and BD-rates of rows of results."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from codecnn.base.errors import ConfigError, TableError
from codecnn.evaluation.rows import PLANES, PSNRS, QUALITIES, SIMILARITIES, ResultRow
from codecnn.pictures.metrics import MIN_POINTS, MIN_SIDE, bd_rate

Rates = dict[str, float | None]
"""BD-rates in % by quality measure; negative values save bits, None means that there is no BD-rate."""

Gains = dict[str, float]
"""Gains in dB by QP, e.g. "22", and their "mean"."""


def mean_gains(rows: Iterable[ResultRow], plane: str = "y", *, network: bool = False) -> Gains:
    """Compute the mean gain over the rows at each QP, and the mean over the QPs; empty if no gain is known.

    Args:
        rows: The rows.
        plane: Name from `PSNRS`.
        network: Take the gain of the network applied everywhere, without decisions.
    """
    by_qp: dict[int, list[float]] = defaultdict(list)
    for row in rows:
        if (gain := row.gain(plane, network=network)) is not None:
            by_qp[row.qp].append(gain)
    gains = {str(qp): float(np.mean(values)) for qp, values in sorted(by_qp.items())}
    return gains | {"mean": float(np.mean(list(gains.values())))} if gains else {}


def gains_by_plane(rows: Sequence[ResultRow], *, network: bool = False) -> dict[str, Gains]:
    """Compute `mean_gains` for each name of `PSNRS` that has any."""
    return {plane: gains for plane in PSNRS if (gains := mean_gains(rows, plane, network=network))}


def bd_rates(rows: Sequence[ResultRow], notes: list[str], *, method: str = "pchip", network: bool = False) -> Rates:
    """Compute the BD-rates of one sequence over its decoded pictures.

    `codecnn.pictures.metrics.bd_rate` refuses curves of fewer than four points, curves whose quality does not rise with
    the rate, and curves that share less than half of the shorter one's range, because the result would depend on the
    interpolation alone.

    Args:
        rows: The rows of the sequence, one a QP.
        notes: List that receives a sentence for each BD-rate that cannot be computed, except for missing planes.
        method: Interpolation, "pchip" or "akima".
        network: Take the network applied everywhere, without decisions and their bits.

    Returns:
        BD-rate in % by quality measure; None if it cannot be computed.
    """
    rates: Rates = {}
    unknown = []
    mode = rows[0].rate_mode
    bits = [row.bits for row in rows if row.bits is not None]
    if len(bits) < len(rows):
        notes.append(f"no BD-rate for {rows[0].name}: its bits are unknown: state bits or bitstream in the recipe")
    elif len(rows) < MIN_POINTS:
        notes.append(f"no BD-rate for {rows[0].name}: it needs {MIN_POINTS} {mode.plural}, not {len(rows)}")
    for name in QUALITIES:
        if name not in PLANES and not any(name in row.filtered(network) for row in rows):
            continue
        rates[name] = None
        before = [row.before.quality(name) for row in rows]
        after = [row.filtered(network).quality(name) for row in rows]
        if None in before or None in after:
            unknown.append(name)
            continue
        if len(bits) < max(len(rows), MIN_POINTS):
            continue
        decision_bits = [0 if network else row.flag_bits for row in rows]
        anchor = [(rate, value) for rate, value in zip(bits, before, strict=True) if value is not None]
        test = [(rate + c, b) for rate, b, c in zip(bits, after, decision_bits, strict=True) if b is not None]
        try:
            rates[name] = bd_rate(anchor, test, method)
        except (ConfigError, TableError) as error:
            notes.append(f"no BD-rate {name.upper()} for {rows[0].name}: {error}")
    reasons = []
    chroma = [row.before.quality(name) for row in rows for name in ("u", "v") if name in row.before]
    if chroma and not any(value is not None for value in chroma):
        reasons.append(f"its chroma has no error at any {mode.noun}, as that of grey pictures")
    searched = [name for name in unknown if not reasons or name not in ("u", "v")]
    if reasons := reasons + [reason for name in searched if (reason := _without_value(rows, name, network))]:
        names = ", ".join(map(str.upper, unknown))
        notes.append(f"no gain and no BD-rate {names} for {rows[0].name}: {'; '.join(reasons)}")
    return rates


def _without_value(rows: Sequence[ResultRow], name: str, network: bool) -> str | None:
    """Return why a quality measure has no value in some rows; None if the pictures have no such plane.

    There is none for "yuv_611" either, which has no value where one of its planes has none.
    """
    unknown = [row for row in rows if None in (row.before.quality(name), row.filtered(network).quality(name))]
    qps = ", ".join(str(row.qp) for row in unknown if name in row.before)
    if not qps or name == "yuv_611":
        return None
    qps = rows[0].rate_mode.text(qps)
    if name == "ms_ssim":
        return f"MS-SSIM has no value for pictures with a side below {MIN_SIDE} or without error ({qps})"
    where = "" if name in (*SIMILARITIES, "yuv_mse") else f" in {name.upper()}"
    return f"a picture has no error{where} at {qps}"


def unchanged_planes(rows: Sequence[ResultRow]) -> list[str]:
    """List the planes that a filter changes in no row, at no cost of bits; their BD-rate of 0 is no result."""
    return [plane for plane in PLANES if rows and all(row.gain(plane) == 0 and not row.flag_bits for row in rows)]


def without_unchanged(rates: Rates, rows: Sequence[ResultRow]) -> Rates:
    """Return BD-rates with None for the `unchanged_planes` of the rows."""
    unchanged = unchanged_planes(rows)
    return {name: None if name in unchanged else rate for name, rate in rates.items()}


def mean_rates(rates: Iterable[Rates]) -> Rates:
    """Average BD-rates over sequences; None for a quality measure that a sequence has no BD-rate of."""
    sequence_rates = list(rates)
    means: Rates = dict.fromkeys(PLANES)
    for name in (name for name in QUALITIES if any(name in each for each in sequence_rates)):
        known = [rate for each in sequence_rates if (rate := each.get(name)) is not None]
        means[name] = float(np.mean(known)) if len(known) == len(sequence_rates) else None
    return means
