"""Checks of the data: planes, coding error by QP, separate splits, unchanged files, and the speed of loading."""

import hashlib
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from scipy.ndimage import gaussian_filter

from codecnn.base.division import ceil_div
from codecnn.base.files import sha256_file
from codecnn.base.planes import CELL_PLANES, QP_PLANE, QP_SCALE
from codecnn.base.rate_modes import RateMode, rate_mode
from codecnn.dataset import ALIGNMENT, FILE_PLANES, Patch, PatchReader, Unit, as_floats, as_tensors
from codecnn.pictures.metrics import block_sums
from codecnn.training.checks.base import Measured, Setup, abbreviated, adam, check, train_step
from codecnn.training.execution import timed
from codecnn.training.task import Batch

QUARTER = 0.25
"""Share of full scale; samples that all lie below were read with two bits too many, or the pictures are very dark."""
SEQUENCES, PLACES = 12, 6
"""Number of sequences in which the coding error is measured, and of patches in the first picture of each."""
WIDE_STEP = 3
"""QP difference that must show in the error: the quantisation step is 2^(3/6) = 1.4 times larger (H.266 8.7.3)."""
TWIN_THRESHOLD = 0.5
"""Correlation above which two pictures are near twins; unrelated pictures stay below it (docs/research/checks.md)."""
SKETCH_SIDE, SIGMA, SHIFT = 24, 2.0, 1
"""Width and height of the sketches that are compared, blur that is subtracted from them, and largest shift."""
PICTURES = 8
"""Pictures of a sequence that are compared, spread over its length."""
HASHED_BYTES = 256 * 2**20
"""Amount of data whose hashes are verified."""
WAITING_BOUND = 0.1
"""Largest share of time spent waiting for data; training aims at 2 %, but a short measurement is inaccurate."""
WAITING_SECONDS = 12.0
"""Duration of the measurement of waiting, unless steps are so slow that a few of them take longer."""
KEPT_BATCHES = 32
"""Largest number of batches kept at a time for that measurement."""


@check("planes", "check the bit depth, which scales samples by a power of two; a constant plane carries no information")
def check_planes(batches: Sequence[Batch]) -> Measured:
    """Check that samples lie in [0, 1] and use that range, that other planes do so too, and that none is constant."""
    ranges: dict[str, tuple[float, float]] = {}
    for name in (*FILE_PLANES, *CELL_PLANES):
        if planes := [batch[name] for batch in batches if name in batch]:
            # The functions of NumPy propagate NaN.
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
    """Check that the QP plane takes several values, each the QP of a training picture for networks, divided by 64."""
    if not all(QP_PLANE in batch for batch in batches):
        return None, "the network does not take the QP"
    coded = {picture.qp_for_networks for unit in units for picture in unit.pictures}
    if len(coded) == 1:
        return None, f"all pictures have QP {min(coded)}"
    values = sorted({value * QP_SCALE for batch in batches for value in batch[QP_PLANE].flatten().tolist()})
    foreign = [f"{value:g}" for value in values if value not in coded]
    measured = (
        f"{abbreviated(foreign)}, while pictures have {_listed(coded)}" if foreign else f"values {_listed(values)}"
    )
    return len(values) > 1 and not foreign, measured


def _listed(values: Sequence[float] | set[int]) -> str:
    shown = [f"{value:g}" for value in sorted(values)]
    return ", ".join(shown if len(shown) <= 8 else [*shown[:4], "...", *shown[-2:]])


@check(
    "codec's error",
    "originals and decoded pictures, or pictures and QPs, do not belong together: build the store again",
)
def check_codec_error(units: Sequence[Unit], size: int = 64) -> Measured:
    """Check that the coding error at each QP is one that its quantiser can cause, and that it rises with the QP.

    A bit rate has no quantiser; the error must fall as it rises.

    The same patches are compared at every QP, cut as the loader cuts them. The quantisation step is 2^((QP - 4) / 6) in
    8-bit samples (H.266 8.7.3); a larger mean squared error than its square means that the pictures do not belong
    together.
    """
    if not units:
        return None, "no sequence was coded"
    mode, errors = _errors_by_qp(units, size)
    qps = sorted(errors, key=mode.from_best)
    problems = [f"none at {mode.text(qp)}" for qp in qps if errors[qp] == 0]
    problems += [
        f"MSE {errors[qp]:.0f} at {mode.text(qp)}, beyond the {_step(qp) ** 2:.0f} of its quantiser"
        for qp in qps
        if mode.falling and not errors[qp] <= _step(qp) ** 2
    ]
    problems += [
        f"MSE {errors[low]:.2f} at {mode.text(low)} but {errors[high]:.2f} at {mode.text(high)}"
        for low, high in pairwise(qps)
        if errors[high] <= errors[low] * (1 if mode.falling and high - low >= WIDE_STEP else 0.9)
    ]
    measured = ", ".join(f"{errors[qp]:.1f} at {mode.text(qp)}" for qp in qps)
    return not problems, abbreviated(problems) or f"MSE {measured}"


def _step(qp: int) -> float:
    """Return the quantisation step in 8-bit samples."""
    return float(2 ** ((qp - 4) / 6))


def _errors_by_qp(units: Sequence[Unit], size: int) -> tuple[RateMode, dict[int, float]]:
    """Return the MSE of 8-bit samples by QP, over the same patches of the sequences with the most QPs."""
    by_name: dict[tuple[RateMode, str, str], dict[int, int]] = defaultdict(dict)
    for index, unit in enumerate(units):
        by_name[rate_mode(unit.rate), str(unit.folder), unit.name][unit.qp] = index
    mode, qps = max(((key[0], set(by_qp)) for key, by_qp in by_name.items()), key=lambda each: len(each[1]))
    complete = [by_qp for key, by_qp in by_name.items() if key[0] == mode and by_qp.keys() >= qps]
    chosen = complete[:: ceil_div(len(complete), SEQUENCES)] if complete else []
    reader = PatchReader(units, size, 0, ("rec_y",))
    errors: dict[int, list[float]] = defaultdict(list)
    for by_qp in chosen:
        for qp in qps:
            form = units[by_qp[qp]].format
            patches = [Patch(by_qp[qp], 0, *place) for place in _places(form.width, form.height, size)]
            batch = as_floats(as_tensors(reader.cut(patches, [0] * len(patches))))
            squares = ((batch["rec_y"] - batch["orig_y"]) * 256).square() * batch["valid"]
            errors[qp].append(float(squares.sum() / batch["valid"].sum()))
    return mode, {qp: float(np.mean(values)) for qp, values in errors.items()}


def _places(width: int, height: int, size: int) -> list[tuple[int, int]]:
    """Return the upper left corners of PLACES patches, spread over the picture on the grid of ALIGNMENT."""
    across, down = (max(extent - size, 0) for extent in (width, height))
    spread = [((2 * i + 1) / (2 * PLACES), (i * 5 % PLACES + 0.5) / PLACES) for i in range(PLACES)]
    return [(int(across * u) // ALIGNMENT * ALIGNMENT, int(down * v) // ALIGNMENT * ALIGNMENT) for u, v in spread]


@check("splits", "gains on such pictures are meaningless: give both the same group in the recipe, or leave one out")
def check_splits(training: Sequence[Unit], held: Sequence[Unit]) -> Measured:
    """Check that no training picture is in another split: not by its group, not by its samples, not as a near twin.

    A near twin looks the same at a small size: the same picture at half the size, cropped, noisy, or the other view of
    a stereo pair. See `twins`.
    """
    if not held:
        return None, "all pictures are training pictures"
    shared = sorted({unit.group for unit in training} & {unit.group for unit in held})
    trained, tested = picture_sketches(training), picture_sketches(held)
    same = [(a.name, b.name) for a in trained for b in tested if a.digest == b.digest]
    alike = [(trained[i].name, tested[j].name, value) for i, j, value in twins(trained, tested)]
    alike = [(a, b, value) for a, b, value in alike if (a, b) not in same]
    problems = [f"group {abbreviated(shared)} on both sides"] if shared else []
    problems += [f"the same picture: {abbreviated([f'{a} and {b}' for a, b in same])}"] if same else []
    near_twins = [f"{a} and {b} ({value:.2f})" for a, b, value in alike]
    problems += [f"near twins: {abbreviated(near_twins)}"] if alike else []
    counts = f"{len(trained)} training pictures and {len(tested)} others, none as alike as {TWIN_THRESHOLD}"
    return not problems, "; ".join(problems) or counts


@dataclass(frozen=True)
class PictureSketch:
    """A picture as it is compared.

    Attributes:
        name: Name to report.
        digest: Hash of its luma samples.
        sketch: Its small version, shape (SKETCH_SIDE, SKETCH_SIDE).
    """

    name: str
    digest: str
    sketch: npt.NDArray[np.float64]


def picture_sketches(units: Sequence[Unit]) -> list[PictureSketch]:
    """Return sketches of the originals of some units, each file once, up to PICTURES per file."""
    sketches = []
    files: dict[Path, Unit] = {}
    for unit in units:
        files.setdefault(unit.original_path, unit)
    for unit in files.values():
        with unit.originals() as video:
            chosen = sorted(set(np.linspace(0, len(video) - 1, PICTURES).round().astype(int).tolist()))
            for index in chosen:
                luma = np.asarray(video[index].y)
                name = unit.name if len(video) == 1 else f"{unit.name}[{index}]"
                shape = f"{luma.shape}{luma.dtype}".encode()
                sketches.append(
                    PictureSketch(name, hashlib.sha256(shape + luma.tobytes()).hexdigest(), sketch_picture(luma))
                )
    return sketches


def sketch_picture(luma: npt.NDArray[np.generic]) -> npt.NDArray[np.float64]:
    """Return a sketch of the shapes in a picture: the means of a grid of cells, less their blurred version.

    Without subtracting the blur, a bright sky above dark ground makes any two landscapes alike.

    Args:
        luma: Luma samples, shape (h, w).

    Returns:
        The sketch, shape (SKETCH_SIDE, SKETCH_SIDE).
    """
    luma = luma.astype(np.float64)
    # A cell of a very small picture may contain no sample; repeating samples does not change the means.
    luma = luma.repeat(ceil_div(SKETCH_SIDE, luma.shape[0]), axis=0).repeat(
        ceil_div(SKETCH_SIDE, luma.shape[1]), axis=1
    )
    rows, columns = (np.linspace(0, extent, SKETCH_SIDE + 1).astype(int) for extent in luma.shape)
    sums = block_sums(luma, rows[:-1], columns[:-1])
    means = sums / np.outer(np.diff(rows), np.diff(columns))
    sketch: npt.NDArray[np.float64] = means - gaussian_filter(means, SIGMA, mode="reflect")
    return sketch


def twins(a: Sequence[PictureSketch], b: Sequence[PictureSketch]) -> list[tuple[int, int, float]]:
    """Return index into `a`, index into `b` and correlation of every pair that reaches TWIN_THRESHOLD."""
    if not a or not b:
        return []
    likeness = correlations(np.stack([picture.sketch for picture in a]), np.stack([picture.sketch for picture in b]))
    pairs = np.argwhere(likeness >= TWIN_THRESHOLD)
    return [(int(i), int(j), float(likeness[i, j])) for i, j in pairs]


def correlations(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return Pearson's correlation of sketches, the largest over all shifts up to SHIFT.

    A uniform picture correlates with none.

    Args:
        a: Sketches, shape (n, SKETCH_SIDE, SKETCH_SIDE).
        b: Sketches, shape (m, SKETCH_SIDE, SKETCH_SIDE).

    Returns:
        Correlations, shape (n, m).
    """
    best = np.full((len(a), len(b)), -1.0)
    for down in range(-SHIFT, SHIFT + 1):
        for across in range(-SHIFT, SHIFT + 1):
            windows_a = _standardised(a[:, _overlap(down), :][:, :, _overlap(across)])
            windows_b = _standardised(b[:, _overlap(-down), :][:, :, _overlap(-across)])
            best = np.maximum(best, windows_a @ windows_b.T)
    return best


def _overlap(shift: int) -> slice:
    return slice(max(shift, 0), SKETCH_SIDE + min(shift, 0))


def _standardised(windows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    flat = windows.reshape(len(windows), -1)
    flat = flat - flat.mean(axis=1, keepdims=True)
    norm = np.linalg.norm(flat, axis=1, keepdims=True)
    standard: npt.NDArray[np.float64] = np.where(norm > 1e-6, flat / np.maximum(norm, 1e-6), 0)
    return standard


@check(
    "data untouched",
    "work on copies, without in-place operations on the input; `codecnn dataset verify` checks every file",
)
def check_data_untouched(setup: Setup, units: Iterable[Unit], batches: int = 4) -> Measured:
    """Check that training steps do not change their batch, that batches are equal when drawn again, and file hashes.

    Of the files of the units, about HASHED_BYTES are hashed.
    """
    network = setup.network()
    optimiser = adam(network)
    written: set[str] = set()
    drawn = []
    for batch in setup.draw(batches):
        drawn.append({key: tensor.clone() for key, tensor in batch.items()})
        tensors = dict(batch)
        train_step(setup, network, optimiser, batch)
        written |= {key for key, tensor in drawn[-1].items() if not torch.equal(tensors[key], tensor)}
        written |= batch.keys() ^ tensors.keys()
    changed = [
        index
        for index, (before, after) in enumerate(zip(drawn, setup.draw(batches), strict=True))
        if any(not torch.equal(tensor, before[key]) for key, tensor in after.items())
    ]
    hashed, damaged = _hash_files(units)
    problems = [f"written in place: {abbreviated(sorted(written))}"] if written else []
    problems += [f"{len(changed)} batches differ when drawn again"] if changed else []
    problems += [f"changed since the store was built: {abbreviated(damaged)}"] if damaged else []
    return not problems, "; ".join(problems) or f"{batches} batches" + (f", {hashed} files" if hashed else "")


def _hash_files(units: Iterable[Unit]) -> tuple[int, list[str]]:
    """Return the number of files that were hashed, and those whose hash differs from that in their unit."""
    hashed: set[Path] = set()
    damaged, size = [], 0
    for unit in units:
        for file, path in ((unit.decoded_file, unit.decoded_path), (unit.original_file, unit.original_path)):
            if path in hashed or size > HASHED_BYTES:
                continue
            hashed.add(path)
            size += path.stat().st_size
            if sha256_file(path) != unit.files[file]:
                damaged.append(str(path))
    return len(hashed), damaged


@check(
    "waiting for data",
    "data is the bottleneck: raise training.workers, set training.resident on a GPU, or move the store to a local disk",
    "note",
)
def check_waiting(
    step: Callable[[Batch], object],
    batches: Iterator[Batch],
    device: torch.device,
    *,
    prefetched: int = 0,
    rounds: int = 3,
    seconds: float | None = None,
) -> Measured:
    """Compare the speed of steps with loaded data to that with the same batches kept in memory.

    Both are timed in turn, and the median of the shares of all rounds counts, so that other work on the machine
    disturbs both alike. The kept batches are the loaded ones, since sizes may differ. A round is several times as long
    as the batches that loading processes hold in advance.

    Args:
        step: Function that trains on a batch.
        batches: Batches as training loads them.
        device: Device of the batches.
        prefetched: Batches that loading processes hold in advance.
        rounds: Smallest number of rounds.
        seconds: Duration of the measurement; None for WAITING_SECONDS.
    """
    seconds = WAITING_SECONDS if seconds is None else seconds
    first = next(batches)
    step(first)
    single = timed(lambda: step(first), device)
    count = max(1, 4 * prefetched, min(KEPT_BATCHES, int(seconds / (2 * rounds * single))))
    rounds = max(rounds, int(seconds / (2 * count * single)))
    rounds = rounds if rounds * 2 * count * single <= 2 * seconds else 1
    kept: list[Batch] = []

    def with_data() -> None:
        kept.clear()
        for _ in range(count):
            kept.append(next(batches))
            step(kept[-1])

    def with_kept() -> None:
        for batch in kept:
            step(batch)

    real, cached = [], []
    for _ in range(rounds):
        real.append(timed(with_data, device) / count)
        cached.append(timed(with_kept, device) / count)
    share = max(0.0, statistics.median(1 - fast / slow for fast, slow in zip(cached, real, strict=True)))
    fast, slow = statistics.median(cached), statistics.median(real)
    measured = f"{share:.1%} of the time: {1 / slow:.3g} steps/s, {1 / fast:.3g} with kept batches"
    return share <= WAITING_BOUND, measured
