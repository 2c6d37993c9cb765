"""What the integer form of a filter loses against the float one, from the results of both."""

from collections.abc import Mapping, Sequence
from typing import Any

from codecnn.evaluation.measure import Entry


def add_losses(entries: Sequence[Entry], every: Sequence[dict[str, Any]]) -> None:
    """Add to the results of each integer filter what it loses to the float one it was made from, if that took part.

    `loss_to_float`: {"name" of the float filter, "db": {"y": {"22": ..., "mean": ...}}, "bd_rate": {"y": ...}}. Losses
    are positive: PSNR gain in dB that is missing, BD-rate in percent points that is added. A note says it in words.
    """
    by_weights = {entry.card["sha256"]: results for entry, results in zip(entries, every, strict=True)}
    for entry, results in zip(entries, every, strict=True):
        plain = by_weights.get(entry.card.get("source_sha256"))
        if plain is None:
            continue
        db = {
            component: {qp: plain["gain_db"][component][qp] - gain for qp, gain in gains.items()}
            for component, gains in results["gain_db"].items()
        }
        rates = {
            component: None
            if rate is None or plain["bd_rate"][component] is None
            else rate - plain["bd_rate"][component]
            for component, rate in results["bd_rate"].items()
        }
        results["loss_to_float"] = {"name": plain["name"], "db": db, "bd_rate": rates}
        if "y" in db:
            results["notes"] = [*results["notes"], _note(plain["name"], db["y"]["mean"], rates)]


def _note(name: str, db: float, rates: Mapping[str, float | None]) -> str:
    rate = "no BD-rate" if rates["y"] is None else f"BD-rate Y {rates['y']:+.3f} points"
    return f"integers against {name} in float: PSNR Y {-db:+.4f} dB, {rate}"
