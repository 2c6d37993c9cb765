"""Checks of the data: planes as the network sees them, the codec's error by QP, splits that share no picture."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from codecnn.codec.base import QP_SCALE
from codecnn.dataset.loader import as_floats, as_tensors
from codecnn.dataset.patches import CELL_PLANES, QP_PLANE, SAMPLE_PLANES, Patch, PatchReader
from codecnn.dataset.sampling import ALIGNMENT
from codecnn.dataset.store import Unit
from codecnn.training.checks.base import Finding, few, judged, skipped
from codecnn.training.checks.pictures import THRESHOLD, split_pictures, twins
from codecnn.training.task import Batch

QUARTER = 0.25
"""Of full scale. Samples that never go beyond it were read with two bits too many, or are of very dark pictures."""
SEQUENCES, PLACES = 12, 6
"""Of which the codec's error is measured: sequences, and patches in the first picture of each."""
WIDE_STEP = 3
"""QPs this far apart must show in the error: the quantiser's step is then 1.4 times as large."""


def check_planes(batches: Sequence[Batch]) -> Finding:
    """Samples lie in [0, 1] and use that range, other planes lie in [0, 1], and none but the QP is constant."""
    lowest: dict[str, float] = {}
    highest: dict[str, float] = {}
    for batch in batches:
        for name in (*SAMPLE_PLANES, *CELL_PLANES):
            if name in batch:
                # NumPy's, since they hand on NaN.
                lowest[name] = float(np.minimum(lowest.get(name, np.inf), batch[name].min().item()))
                highest[name] = float(np.maximum(highest.get(name, -np.inf), batch[name].max().item()))
    problems = []
    for name, top in highest.items():
        if not (lowest[name] >= 0 and top <= 1):
            problems.append(f"{name} runs from {lowest[name]:.3f} to {top:.3f}")
        elif name in ("rec_y", "orig_y") and top <= QUARTER:
            problems.append(f"{name} stays below {top:.3f}")
        elif lowest[name] == top:
            problems.append(f"{name} is {top:.3f} everywhere")
    ranges = ", ".join(f"{name} {lowest[name]:.2f} to {highest[name]:.2f}" for name in highest)
    return judged(
        "planes",
        not problems,
        "; ".join(problems) or ranges,
        "a wrong bit depth scales samples by a power of two; a constant plane tells the network nothing",
    )


def check_qps(batches: Sequence[Batch], units: Sequence[Unit]) -> Finding:
    """The QP plane takes several values, each of them the slice QP of a picture of the training set over 64."""
    name = "QP plane"
    if not all(QP_PLANE in batch for batch in batches):
        return skipped(name, "the network takes none")
    coded = {int(picture["qp"]) for unit in units for picture in unit.record["pictures"]}
    if len(coded) == 1:
        return skipped(name, f"all pictures have QP {min(coded)}")
    seen = sorted({value * QP_SCALE for batch in batches for value in batch[QP_PLANE].flatten().tolist()})
    foreign = [f"{value:g}" for value in seen if value not in coded]
    return judged(
        name,
        len(seen) > 1 and not foreign,
        f"{few(foreign)}, where pictures have {_listed(coded)}" if foreign else f"values {_listed(seen)}",
        "the network must see the QP of each patch, q / 64",
    )


def _listed(values: Sequence[float] | set[int]) -> str:
    shown = [f"{value:g}" for value in sorted(values)]
    return ", ".join(shown if len(shown) <= 8 else [*shown[:4], "...", *shown[-2:]])


def check_codec_error(units: Sequence[Unit], size: int = 64) -> Finding:
    """What the codec left at each QP is an error that its quantiser can make, and rises with the QP.

    The same patches at every QP, cut as the loader cuts them. The quantiser's step is 2^((QP - 4) / 6) samples of 8
    bits (H.266 8.7.3); an error whose mean square is beyond the square of a step is not the codec's, but that of
    pictures that do not belong together.
    """
    name = "codec's error"
    errors = _errors_by_qp(units, size)
    qps = sorted(errors)
    if not qps:
        return skipped(name, "no sequence was coded")
    problems = [f"none at QP {qp}" for qp in qps if errors[qp] == 0]
    problems += [
        f"MSE {errors[qp]:.0f} at QP {qp}, beyond the {_step(qp) ** 2:.0f} of its quantiser"
        for qp in qps
        if not errors[qp] <= _step(qp) ** 2
    ]
    problems += [
        f"MSE {errors[low]:.2f} at QP {low} but {errors[high]:.2f} at QP {high}"
        for low, high in pairwise(qps)
        if errors[high] <= errors[low] * (1 if high - low >= WIDE_STEP else 0.9)
    ]
    return judged(
        name,
        not problems,
        few(problems) if problems else "MSE " + ", ".join(f"{errors[qp]:.1f} at QP {qp}" for qp in qps),
        "originals and decoded pictures, or pictures and QPs, do not belong together: build the store again",
    )


def _step(qp: int) -> float:
    return float(2 ** ((qp - 4) / 6))


def _errors_by_qp(units: Sequence[Unit], size: int) -> dict[int, float]:
    """Mean squared error by QP, of 8-bit samples, over the same patches of sequences that have all QPs of the first."""
    by_name: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)
    for index, unit in enumerate(units):
        by_name[str(unit.folder), unit.name][unit.qp] = index
    wanted = max((set(found) for found in by_name.values()), key=len, default=set())
    complete = [found for found in by_name.values() if found.keys() >= wanted]
    chosen = complete[:: -(-len(complete) // SEQUENCES)] if complete else []
    reader = PatchReader(units, size, 0, ("rec_y",))
    errors: dict[int, list[float]] = defaultdict(list)
    for found in chosen:
        for qp in wanted:
            form = units[found[qp]].format
            patches = [Patch(found[qp], 0, *place) for place in _places(form.width, form.height, size)]
            batch = as_floats(as_tensors(reader.cut(patches, [0] * len(patches))))
            squares = ((batch["rec_y"] - batch["orig_y"]) * 256).square() * batch["valid"]
            errors[qp].append(float(squares.sum() / batch["valid"].sum()))
    return {qp: float(np.mean(values)) for qp, values in errors.items()}


def _places(width: int, height: int, size: int) -> list[tuple[int, int]]:
    """Upper left samples, spread over the picture on the grid of ALIGNMENT."""
    across, down = (max(extent - size, 0) for extent in (width, height))
    spread = [((2 * i + 1) / (2 * PLACES), (i * 5 % PLACES + 0.5) / PLACES) for i in range(PLACES)]
    return [(int(across * u) // ALIGNMENT * ALIGNMENT, int(down * v) // ALIGNMENT * ALIGNMENT) for u, v in spread]


def check_splits(training: Sequence[Unit], held: Sequence[Unit]) -> Finding:
    """No picture of the training split is in another: not by its group, not sample by sample, not as a near twin.

    A near twin looks the same when both are small: the same picture at half the size, cropped, noisy, or seen by the
    other eye. See `twins` for how alike counts.
    """
    name = "splits"
    if not held:
        return skipped(name, "there are no pictures but those to train on")
    groups = {str(unit.record.get("group", unit.name)) for unit in training}
    shared = sorted(groups & {str(unit.record.get("group", unit.name)) for unit in held})
    ours, theirs = split_pictures(training), split_pictures(held)
    same = [(a.name, b.name) for a in ours for b in theirs if a.digest == b.digest]
    alike = [(ours[i].name, theirs[j].name, value) for i, j, value in twins(ours, theirs)]
    alike = [(a, b, value) for a, b, value in alike if (a, b) not in same]
    problems = [f"group {few(shared)} on both sides"] if shared else []
    problems += [f"the same picture: {few([f'{a} and {b}' for a, b in same])}"] if same else []
    problems += [f"near twins: {few([f'{a} and {b} ({value:.2f})' for a, b, value in alike])}"] if alike else []
    return judged(
        name,
        not problems,
        "; ".join(problems)
        or f"{len(ours)} pictures to train on, {len(theirs)} held back, none as alike as {THRESHOLD}",
        "gains on such pictures say nothing: give both the same group in the recipe, or leave one out",
    )
