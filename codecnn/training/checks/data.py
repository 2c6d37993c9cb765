"""Checks of the data: planes as the network sees them, the codec's error by QP, splits that share no picture."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from codecnn.dataset import ALIGNMENT, FILE_PLANES, Patch, PatchReader, Unit, as_floats, as_tensors
from codecnn.planes import CELL_PLANES, QP_PLANE, QP_SCALE
from codecnn.training.checks.base import Measured, check, few
from codecnn.training.checks.pictures import THRESHOLD, split_pictures, twins
from codecnn.training.task import Batch

QUARTER = 0.25
"""Share of full scale: samples that all lie below were read with two bits too many, or are of very dark pictures."""
SEQUENCES, PLACES = 12, 6
"""How many sequences the codec's error is measured in, and how many patches in the first picture of each."""
WIDE_STEP = 3
"""QPs this far apart must show in the error: the quantiser's step is 2^(3/6) = 1.4 times as large (H.266 8.7.3)."""


@check("planes", "a wrong bit depth scales samples by a power of two; a constant plane tells the network nothing")
def check_planes(batches: Sequence[Batch]) -> Measured:
    """Samples lie in [0, 1] and use that range, other planes lie in [0, 1], and none but the QP is constant."""
    ranges: dict[str, tuple[float, float]] = {}
    for name in (*FILE_PLANES, *CELL_PLANES):
        if planes := [batch[name] for batch in batches if name in batch]:
            # NumPy's, since they hand on NaN.
            ranges[name] = (
                float(np.min([p.min().item() for p in planes])),
                float(np.max([p.max().item() for p in planes])),
            )
    problems = []
    for name, (low, top) in ranges.items():
        if not (low >= 0 and top <= 1):
            problems.append(f"{name} runs from {low:.3f} to {top:.3f}")
        elif name in ("rec_y", "orig_y") and top <= QUARTER:
            problems.append(f"{name} stays below {top:.3f}")
        elif low == top:
            problems.append(f"{name} is {top:.3f} everywhere")
    shown = ", ".join(f"{name} {low:.2f} to {top:.2f}" for name, (low, top) in ranges.items())
    return not problems, "; ".join(problems) or shown


@check("QP plane", "the network must see the QP of each patch, q / 64")
def check_qps(batches: Sequence[Batch], units: Sequence[Unit]) -> Measured:
    """The QP plane takes several values, each of them the slice QP of a picture of the training set over 64."""
    if not all(QP_PLANE in batch for batch in batches):
        return None, "the network takes none"
    coded = {picture.qp for unit in units for picture in unit.pictures}
    if len(coded) == 1:
        return None, f"all pictures have QP {min(coded)}"
    seen = sorted({value * QP_SCALE for batch in batches for value in batch[QP_PLANE].flatten().tolist()})
    foreign = [f"{value:g}" for value in seen if value not in coded]
    measured = f"{few(foreign)}, where pictures have {_listed(coded)}" if foreign else f"values {_listed(seen)}"
    return len(seen) > 1 and not foreign, measured


def _listed(values: Sequence[float] | set[int]) -> str:
    shown = [f"{value:g}" for value in sorted(values)]
    return ", ".join(shown if len(shown) <= 8 else [*shown[:4], "...", *shown[-2:]])


@check(
    "codec's error",
    "originals and decoded pictures, or pictures and QPs, do not belong together: build the store again",
)
def check_codec_error(units: Sequence[Unit], size: int = 64) -> Measured:
    """What the codec left at each QP is an error that its quantiser can make, and rises with the QP.

    The same patches at every QP, cut as the loader cuts them. The quantiser's step is 2^((QP - 4) / 6) samples of 8
    bits (H.266 8.7.3); an error whose mean square is beyond the square of a step is not the codec's, but that of
    pictures that do not belong together.
    """
    errors = _errors_by_qp(units, size)
    qps = sorted(errors)
    if not qps:
        return None, "no sequence was coded"
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
    return not problems, few(problems) or "MSE " + ", ".join(f"{errors[qp]:.1f} at QP {qp}" for qp in qps)


def _step(qp: int) -> float:
    """The quantiser's step in samples of 8 bits."""
    return float(2 ** ((qp - 4) / 6))


def _errors_by_qp(units: Sequence[Unit], size: int) -> dict[int, float]:
    """Mean squared error of 8-bit samples by QP, over the same patches of sequences that have the most QPs."""
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


@check("splits", "gains on such pictures say nothing: give both the same group in the recipe, or leave one out")
def check_splits(training: Sequence[Unit], held: Sequence[Unit]) -> Measured:
    """No picture of the training split is in another: not by its group, not sample by sample, not as a near twin.

    A near twin looks the same when both are small: the same picture at half the size, cropped, noisy, or seen by the
    other eye. See `twins` for how alike counts.
    """
    if not held:
        return None, "there are no pictures but those to train on"
    groups = {unit.group for unit in training}
    shared = sorted(groups & {unit.group for unit in held})
    ours, theirs = split_pictures(training), split_pictures(held)
    same = [(a.name, b.name) for a in ours for b in theirs if a.digest == b.digest]
    alike = [(ours[i].name, theirs[j].name, value) for i, j, value in twins(ours, theirs)]
    alike = [(a, b, value) for a, b, value in alike if (a, b) not in same]
    problems = [f"group {few(shared)} on both sides"] if shared else []
    problems += [f"the same picture: {few([f'{a} and {b}' for a, b in same])}"] if same else []
    problems += [f"near twins: {few([f'{a} and {b} ({value:.2f})' for a, b, value in alike])}"] if alike else []
    counts = f"{len(ours)} pictures to train on, {len(theirs)} held back, none as alike as {THRESHOLD}"
    return not problems, "; ".join(problems) or counts
