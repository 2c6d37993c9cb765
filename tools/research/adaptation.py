"""Measure the BD-rate that updates of `codecnn adapt` gain, with all their bits, over the filter without update.

    python tools/research/adaptation.py stores/video_test -m low_cost_yuv_17.video
    python tools/research/adaptation.py stores/video_test -m low_cost_17.video --components y

Every stream of the store is adapted and filtered with and without its update. The PSNRs are those of the filtered
pictures. If no update pays, the stream is as it was.
"""

import argparse
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from codecnn import verbs
from codecnn.dataset import Unit, open_store
from codecnn.quality import bd_rate, psnr, psnr_yuv_611
from codecnn.video import convert, open_video


def psnrs(path: Path, unit: Unit) -> dict[str, float]:
    """Return the PSNR of a filtered file by component, mean over the pictures, and that of YUV 6:1:1."""
    with open_video(path) as filtered, unit.originals() as originals:
        depth = unit.format.bit_depth
        values = [
            [psnr(a, b, depth) for a, b in zip(convert(one, depth).planes, other.planes, strict=True)]
            for one, other in zip(filtered, originals, strict=True)
        ]
    y, u, v = np.mean(values, axis=0).tolist()
    return {"y": y, "u": u, "v": v, "yuv": psnr_yuv_611(y, u, v)}


def measure(unit: Unit, model: str, components: list[str] | None) -> tuple[float, dict[str, float], dict[str, float]]:
    """Return the bits of an update of a stream, and the PSNRs without and with it."""
    with tempfile.TemporaryDirectory() as folder:
        update, output = Path(folder) / "update.json", Path(folder) / "filtered.y4m"
        stream = unit.path("bitstream")
        verbs.filter_file(stream, model, output)
        plain = psnrs(output, unit)
        result = verbs.adapt(model, unit.original_path, stream, update, components=components, every_irap=False)
        if result.output is None:
            return 0.0, plain, plain
        verbs.filter_file(stream, model, output, update=update)
        return result.bits, plain, psnrs(output, unit)


def main() -> None:
    """Print the streams, the BD-rates of each sequence and their mean."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("-m", "--model", required=True, help="name of weights with an integer form")
    parser.add_argument("--components", help="components that may change and that count, e.g. y; default: all")
    parser.add_argument("--split", help="split of the store's sequences, e.g. val; default: all")
    parser.add_argument("--sequences", help="names of sequences; default: all")
    arguments = parser.parse_args()
    components = arguments.components.split(",") if arguments.components else None
    curves: dict[str, list[tuple[float, float, dict[str, float], dict[str, float]]]] = defaultdict(list)
    for unit in open_store(arguments.store).units:
        if arguments.split and unit.split != arguments.split:
            continue
        if arguments.sequences and unit.name not in arguments.sequences.split(","):
            continue
        if unit.bits is None:
            parser.error(f"{arguments.store} has no bitstreams")
        bits, plain, updated = measure(unit, arguments.model, components)
        curves[unit.name].append((unit.bits, bits, plain, updated))
        gains = ", ".join(f"{name} {updated[name] - plain[name]:+.4f} dB" for name in plain)
        print(f"{unit.name}, QP {unit.qp}: {unit.bits} bits, update {bits:.0f} bits, {gains}", flush=True)
    rates: dict[str, list[float]] = defaultdict(list)
    for name, points in curves.items():
        for component in points[0][2]:
            anchor = [(stream, plain[component]) for stream, _, plain, _ in points]
            test = [(stream + update, updated[component]) for stream, update, _, updated in points]
            rates[component].append(bd_rate(anchor, test))
        print(f"{name}: " + ", ".join(f"{component} {values[-1]:+.2f} %" for component, values in rates.items()))
    print("mean: " + ", ".join(f"{component} {np.mean(values):+.2f} %" for component, values in rates.items()))


if __name__ == "__main__":
    main()
