"""Measure what neighbouring pictures can add to decoded or filtered ones.

    python tools/research/temporal.py stores/video_ra stores/video_ldb --qp 27,37 --step 3
    python tools/research/temporal.py stores/video_ra --qp 27,37 --step 3 --model low_cost_17.vvc_video_mc

For every chosen picture, the least-squares combination of the decoded picture and its motion-compensated neighbours is
fitted to the original, in four classes of matching error: an oracle, since the weights are fitted to the original of
each picture. The search error is the sum of the squared differences of all blocks with their margins, relative to that
of a full search over quarter-sample vectors of up to 12 samples in the middle of one picture of each unit.

With --model, the combination starts from the picture that a filter returns: what is left in the neighbours after it.
"""

import argparse
import sys
from collections import defaultdict
from pathlib import Path

import numba
import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from codecnn.base.division import ceil_div
from codecnn.base.planes import NEIGHBOUR_PLANES
from codecnn.dataset import Unit, open_store
from codecnn.filtering import PictureFilter, load_filter, unit_planes
from codecnn.pictures.metrics import ctu_means, mse, psnr
from codecnn.pictures.motion import BLOCK, MARGIN, TemporalPlanes, search_motion

Plane = npt.NDArray[np.float64]

CLASSES = 4
REACH = 12
CROP = 160, 192
"""Height and width of the middle of a picture in which the full search runs."""

TAPS = {0: [64], 1: [-1, 4, -10, 58, 17, -5, 1], 2: [-1, 4, -11, 40, 40, -11, 4, -1], 3: [1, -5, 17, 58, -10, 4, -1]}
FIRST = {0: 0, 1: -3, 2: -3, 3: -2}


def combination_gain(original: Plane, decoded: Plane, neighbours: list[Plane], classes: int) -> float:
    """Return the PSNR gain in dB of the best combination of a decoded picture and other pictures.

    Args:
        original: Luma of the original, shape (h, w).
        decoded: Luma of the decoded picture.
        neighbours: Luma of further pictures; their differences from the decoded one are the terms of the combination.
        classes: Number of classes of equal size, by the least squared difference of 8x8 blocks, with weights each.
    """
    errors = np.min([ctu_means((other - decoded) ** 2, BLOCK) for other in neighbours], axis=0)
    limits = np.quantile(errors, np.arange(1, classes) / classes)
    blocks = np.searchsorted(limits, errors).reshape(ceil_div(decoded.shape[0], BLOCK), -1)
    member = blocks.repeat(BLOCK, 0).repeat(BLOCK, 1)[: decoded.shape[0], : decoded.shape[1]]
    combined = decoded.copy()
    for number in range(classes):
        inside = member == number
        terms = np.stack([other[inside] - decoded[inside] for other in neighbours], axis=1)
        # By the normal equations: the terms can be 0 everywhere, and their number is small.
        target = original[inside] - decoded[inside]
        weights = np.linalg.lstsq(terms.T @ terms, terms.T @ target, rcond=None)[0]
        combined[inside] += terms @ weights
    return float(10 * np.log10(mse(original, decoded) / mse(original, combined)))


def unit_gains(unit: Unit, step: int) -> dict[str, list[float]]:
    """Return the gains of every `step`-th picture of a unit that has two neighbours, by what is combined."""
    gains: dict[str, list[float]] = defaultdict(list)
    with unit.originals() as originals, unit.decoded() as decoded:
        names = ("prev_y", "next_y", "prev_mc_y", "next_mc_y")
        temporal = TemporalPlanes(names, lambda i: np.array(decoded[i].y), len(decoded), unit.format.bit_depth)
        for number in range(1, len(decoded) - 1, step):
            planes = temporal(number)
            previous, following, moved_previous, moved_following = (planes[name].astype(np.float64) for name in names)
            pair = originals[number].y.astype(np.float64), decoded[number].y.astype(np.float64)
            gains["both"].append(combination_gain(*pair, [moved_previous, moved_following], CLASSES))
            gains["previous"].append(combination_gain(*pair, [moved_previous], CLASSES))
            gains["one class"].append(combination_gain(*pair, [moved_previous, moved_following], 1))
            gains["not moved"].append(combination_gain(*pair, [previous, following], CLASSES))
    return gains


def gains_after(unit: Unit, step: int, filter_: PictureFilter) -> dict[str, list[float]]:
    """Return the gain of a filter, and what neighbours add to it, of every `step`-th picture with two on each side."""
    gains: dict[str, list[float]] = defaultdict(list)
    depth = unit.format.bit_depth
    with unit.originals() as originals, unit.decoded() as decoded:
        count = len(decoded)
        sources = {
            "decoded": [np.array(picture.y) for picture in decoded],
            "filtered": [
                filter_(picture, coded.qp, unit_planes(unit, number, filter_.planes)).y
                for number, (picture, coded) in enumerate(zip(decoded, unit.pictures, strict=True))
            ],
        }
        temporal = {
            name: TemporalPlanes(NEIGHBOUR_PLANES, pictures.__getitem__, count, depth)
            for name, pictures in sources.items()
        }
        for number in range(2, count - 2, step):
            original, start = originals[number].y.astype(np.float64), sources["filtered"][number].astype(np.float64)
            before = psnr(originals[number].y, sources["decoded"][number], depth)
            gains["filter"].append(psnr(originals[number].y, sources["filtered"][number], depth) - before)
            for name in sources:
                planes = temporal[name](number)
                moved = [plane.astype(np.float64) for plane in planes.values()]
                gains[f"{name}, 1"].append(combination_gain(original, start, moved[:2], CLASSES))
                gains[f"{name}, 1 and 2"].append(combination_gain(original, start, moved, CLASSES))
    return gains


def search_error(unit: Unit) -> float:
    """Return the error of the search relative to that of a full search, for the middle picture of a unit."""
    with unit.decoded() as decoded:
        number = len(decoded) // 2
        height, width = unit.format.height, unit.format.width
        top, left = max(height - CROP[0], 0) // 2, max(width - CROP[1], 0) // 2
        window = slice(top, top + CROP[0]), slice(left, left + CROP[1])
        current, reference = (np.array(decoded[i].y[window]) for i in (number, number - 1))
    phases = quarter_positions(reference.astype(np.int64), REACH + 64, (1 << unit.format.bit_depth) - 1)
    vectors = search_motion(current, reference, unit.format.bit_depth)
    searched, least = window_errors(current.astype(np.int64), phases, vectors.astype(np.int64), REACH, REACH + 64)
    # One is added because both are 0 in a picture that repeats the one before.
    return float((searched + 1) / (least + 1))


def quarter_positions(plane: npt.NDArray[np.int64], margin: int, peak: int) -> npt.NDArray[np.int64]:
    """Return the samples at all quarter positions of an extended plane, shape (4, 4, h', w')."""
    padded = np.pad(plane, margin + 8, mode="edge")

    def along(samples: npt.NDArray[np.int64], phase: int, axis: int) -> npt.NDArray[np.int64]:
        rolled = [tap * np.roll(samples, -FIRST[phase] - k, axis) for k, tap in enumerate(TAPS[phase])]
        return np.sum(rolled, axis=0)

    rows = [along(padded, phase, 0) for phase in range(4)]
    phases = [[(along(row, phase, 1) + 2048) >> 12 for phase in range(4)] for row in rows]
    return np.clip(np.array(phases)[..., 8:-8, 8:-8], 0, peak)


@numba.njit
def window_errors(current, phases, vectors, reach, margin):  # type: ignore[no-untyped-def]
    """Return the sums over all blocks of the error of given vectors, and of the least error of all vectors."""
    height, width = current.shape
    searched = least = 0
    for row in range(vectors.shape[0]):
        for column in range(vectors.shape[1]):
            y0, x0 = max(row * BLOCK - MARGIN, 0), max(column * BLOCK - MARGIN, 0)
            y1, x1 = min(row * BLOCK + BLOCK + MARGIN, height), min(column * BLOCK + BLOCK + MARGIN, width)
            best = np.int64(1) << 62
            side = 8 * reach + 1
            for k in range(-1, side * side):
                if k < 0:
                    vy, vx = vectors[row, column, 0], vectors[row, column, 1]
                else:
                    vy, vx = k // side - 4 * reach, k % side - 4 * reach
                plane = phases[vy & 3, vx & 3]
                dy, dx = margin + (vy >> 2), margin + (vx >> 2)
                total = 0
                for y in range(y0, y1):
                    for x in range(x0, x1):
                        total += (current[y, x] - plane[y + dy, x + dx]) ** 2
                    if total >= best:
                        break
                if k < 0:
                    searched += total
                best = min(best, total)
            least += best
    return searched, least


def main() -> None:
    """Print one row per store and QP, and one per sequence."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stores", nargs="+", type=Path)
    parser.add_argument("--qp", default="27,37", help="QPs of the units, e.g. 27,37")
    parser.add_argument("--sequences", default="", help="names of sequences; default: all")
    parser.add_argument("--model", "-m", help="weights of a filter whose pictures the neighbours are added to")
    parser.add_argument("--step", type=int, default=1, help="use every n-th picture")
    arguments = parser.parse_args()
    qps = [int(qp) for qp in arguments.qp.split(",")]
    filter_ = load_filter(arguments.model) if arguments.model else None
    for folder in arguments.stores:
        least = 4 if filter_ else 2
        units = [unit for unit in open_store(folder).units if unit.qp in qps and len(unit.pictures) > least]
        if arguments.sequences:
            units = [unit for unit in units if unit.name in arguments.sequences.split(",")]
        for qp in qps:
            means: dict[str, list[float]] = defaultdict(list)
            for unit in (unit for unit in units if unit.qp == qp):
                gains = gains_after(unit, arguments.step, filter_) if filter_ else unit_gains(unit, arguments.step)
                row = {name: float(np.mean(values)) for name, values in gains.items()}
                if filter_ is None:
                    row["search error"] = search_error(unit)
                for name, value in row.items():
                    means[name].append(value)
                report(f"{folder.name} QP {qp} {unit.name}", row)
            report(f"{folder.name} QP {qp} mean", {name: float(np.mean(values)) for name, values in means.items()})
            report(f"{folder.name} QP {qp} least", {name: min(values) for name, values in means.items()})
            report(f"{folder.name} QP {qp} largest", {name: max(values) for name, values in means.items()})


def report(title: str, row: dict[str, float]) -> None:
    """Print a row."""
    print(title, *(f"{name} {value:.4f}" for name, value in row.items()), sep="  ", flush=True)


if __name__ == "__main__":
    main()
