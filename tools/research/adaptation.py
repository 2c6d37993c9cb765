"""Measure the BD-rate that updates of a filter gain, with all their bits, over the filter without update.

    python tools/research/adaptation.py stores/video_test -m low_cost_yuv_17.vvc_video
    python tools/research/adaptation.py stores/video_test -m low_cost_17.vvc_video --components y
    python tools/research/adaptation.py stores/video_test -m low_cost_yuv_17 --onnx

Every stream of the store is adapted by `codecnn adapt` and filtered with and without its update. The PSNRs are those of
the filtered pictures. If no update pays, the stream is as it was. The last lines also compare both with the decoded
pictures.

With --onnx updates are for other decoders: float weights, the QP of the sequence for all of its pictures, coded by
nncodec.
"""

import argparse
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from codecnn import api as verbs
from codecnn import signalling
from codecnn.dataset import Unit, open_store
from codecnn.pictures.files import Picture, convert, open_video
from codecnn.pictures.metrics import bd_rate, psnr, psnr_yuv_611

URI = "file://model3.onnx"
"""URI of the ONNX file, which is the same for all streams."""

Psnrs = dict[str, float]
Pictures = Iterable[Picture]


class Point(NamedTuple):
    """A stream: its bits, those of its update, and the PSNRs of decoded, filtered and adapted pictures."""

    bits: float
    update: float
    decoded: Psnrs
    filtered: Psnrs
    adapted: Psnrs


def psnrs(pictures: Pictures, unit: Unit) -> Psnrs:
    """Return the PSNR of pictures by component, mean over the pictures, and that of YUV 6:1:1."""
    with unit.originals() as originals:
        depth = unit.format.bit_depth
        values = [
            [psnr(a, b, depth) for a, b in zip(convert(one, depth).planes, other.planes, strict=True)]
            for one, other in zip(pictures, originals, strict=True)
        ]
    y, u, v = np.mean(values, axis=0).tolist()
    return {"y": y, "u": u, "v": v, "yuv": psnr_yuv_611(y, u, v)}


def adapt(unit: Unit, model: str, components: list[str] | None, onnx: bool) -> tuple[float, Psnrs, Psnrs]:
    """Return the bits of an update of a stream, and the PSNRs without and with it."""
    filtering: dict[str, Any] = {"exact": False, "qp": unit.qp} if onnx else {}
    fitting: dict[str, Any] = {"onnx_uri": URI, "qp": unit.qp} if onnx else {}
    with tempfile.TemporaryDirectory() as folder:
        update, output = Path(folder) / "update.json", Path(folder) / "filtered.y4m"
        stream = unit.path("bitstream")
        verbs.filter(stream, output, model=model, **filtering)
        with open_video(output) as filtered:
            plain = psnrs(filtered, unit)
        options = {"components": components, "every_irap": False, **fitting}
        result = signalling.adapt(model, unit.original_path, stream, update, **options)
        if result.output is None:
            return 0.0, plain, plain
        verbs.filter(stream, output, model=model, update=update, **filtering)
        with open_video(output) as filtered:
            return result.bits, plain, psnrs(filtered, unit)


def report(curves: dict[str, list[Point]]) -> None:
    """Print the BD-rates of each sequence and their mean, from the points of each sequence."""
    for title, before, after in (
        ("update", "filtered", "adapted"),
        ("filter over decoded", "decoded", "filtered"),
        ("both over decoded", "decoded", "adapted"),
    ):
        rates: dict[str, list[float]] = defaultdict(list)
        for name, points in curves.items():
            for component in points[0].decoded:
                anchor = [(point.bits, getattr(point, before)[component]) for point in points]
                extra = [point.update * (after == "adapted") for point in points]
                test = [
                    (point.bits + more, getattr(point, after)[component])
                    for point, more in zip(points, extra, strict=True)
                ]
                rates[component].append(bd_rate(anchor, test))
            listed = ", ".join(f"{component} {values[-1]:+.2f} %" for component, values in rates.items())
            print(f"{title}: {name}: {listed}")
        print(f"{title}: mean: " + ", ".join(f"{name} {np.mean(values):+.2f} %" for name, values in rates.items()))


def main() -> None:
    """Print the streams, the BD-rates of each sequence and their mean."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("-m", "--model", required=True, help="name of weights")
    parser.add_argument("--onnx", action="store_true", help="adapt float weights for decoders that read ONNX")
    parser.add_argument("--components", help="components that may change and that count, e.g. y; default: all")
    parser.add_argument("--split", help="split of the store's sequences, e.g. val; default: all")
    parser.add_argument("--sequences", help="names of sequences; default: all")
    arguments = parser.parse_args()
    components = arguments.components.split(",") if arguments.components else None
    curves: dict[str, list[Point]] = defaultdict(list)
    for unit in open_store(arguments.store).units:
        if arguments.split and unit.split != arguments.split:
            continue
        if arguments.sequences and unit.name not in arguments.sequences.split(","):
            continue
        if unit.bits is None:
            parser.error(f"{arguments.store} has no bitstreams")
        bits, plain, updated = adapt(unit, arguments.model, components, arguments.onnx)
        with unit.decoded() as pictures:
            decoded = psnrs(pictures, unit)
        curves[unit.name].append(Point(unit.bits, bits, decoded, plain, updated))
        gains = ", ".join(f"{name} {updated[name] - plain[name]:+.4f} dB" for name in plain)
        print(f"{unit.name}, QP {unit.qp}: {unit.bits} bits, update {bits:.0f} bits, {gains}", flush=True)
    report(curves)


if __name__ == "__main__":
    main()
