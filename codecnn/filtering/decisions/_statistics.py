"""Decisions of the filter as block statistics, which YUView draws over the video, and in figures."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from codecnn.codec import write_block_values
from codecnn.filtering.decisions._component import SCALE_ONE, SCALE_RANGE
from codecnn.filtering.decisions._picture import Decision, sequence_pays
from codecnn.quality import ctu_grid


def write_decisions(path: Path | str, decisions: Sequence[Decision], width: int, height: int, ctu: int) -> None:
    """Write what was decided of each CTU of a sequence as a trace, .vtmbmsstats, or .vtmbmsstats.gz by the name.

    A block a CTU and picture: filter_y 0 or 1, scale_y in 1/256 where it is filtered, the same of u and v where the
    network filters them, and qp_offset. The POC is the picture's place in `decisions`.
    """
    grid = ctu_grid(width, height, ctu)
    names = tuple(decisions[0].flags)
    columns = {"poc": np.repeat(np.arange(len(decisions)), len(grid))}
    columns |= {name: np.tile(grid[:, index], len(decisions)) for index, name in enumerate("xywh")}
    ranges: dict[str, tuple[int, int]] = {}
    for name in names:
        flags = np.concatenate([decision.flags[name].ravel() for decision in decisions])
        scales = np.array([round(SCALE_ONE * decision.scales[name]) for decision in decisions])
        columns[f"filter_{name}"] = flags.astype(np.int64)
        columns[f"scale_{name}"] = np.ma.masked_where(~flags, np.repeat(scales, len(grid)))
        ranges |= {f"filter_{name}": (0, 1), f"scale_{name}": SCALE_RANGE}
    offsets = np.array([decision.qp_offset for decision in decisions])
    columns["qp_offset"] = np.repeat(offsets, len(grid))
    ranges["qp_offset"] = (int(offsets.min()), max(int(offsets.max()), int(offsets.min()) + 1))
    write_block_values(path, columns, ranges, width=width, height=height)


def count_decisions(decisions: Sequence[Decision]) -> dict[str, Any]:
    """How often what was decided in a sequence, what it costs in bits and gains in RD cost.

    `ctus_on` is the share of CTUs that are filtered, by component; `pays` is what `sequence_pays` says.
    """
    modes = [decision.mode for decision in decisions]
    offsets = [decision.qp_offset for decision in decisions if decision.mode != "off"]
    return {
        "pictures": {mode: modes.count(mode) for mode in ("off", "on", "ctu")},
        "ctus_on": {
            name: float(np.mean([decision.flags[name].mean() for decision in decisions])) for name in decisions[0].flags
        },
        "qp_offsets": {str(offset): offsets.count(offset) for offset in sorted(set(offsets))},
        "bits": sum(decision.bits for decision in decisions),
        "rd_cost_before": sum(decision.cost_before for decision in decisions),
        "rd_cost_after": sum(decision.cost_after for decision in decisions),
        "pays": sequence_pays(decisions),
    }
