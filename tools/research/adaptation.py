"""Measure the BD-rate that updates of a filter gain, with all their bits, over the filter without update.

    python tools/research/adaptation.py stores/video_test -m low_cost_yuv_17.video
    python tools/research/adaptation.py stores/video_test -m low_cost_17.video --components y
    python tools/research/adaptation.py stores/video_test -m low_cost_yuv_17 --onnx
    python tools/research/adaptation.py stores/video_test --nnpf ../fraunhoferhhi-vvdec --overfitted overfitted

Every stream of the store is adapted by `codecnn adapt` and filtered with and without its update. The PSNRs are those of
the filtered pictures. If no update pays, the stream is as it was. The last lines also compare both with the decoded
pictures.

With --onnx updates are for other decoders: float weights, the QP of the sequence for all of its pictures, coded by
nncodec. With --nnpf the filter is the base filter of nokia/fraunhoferhhi-vvdec, with the slice QPs, and its updates are
those of that repository's scripts: DIR/SEQUENCE_QP.bin (encode_weights_update.py) and .onnx (decode_weights_update.py).
"""

import argparse
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from codecnn import verbs
from codecnn.dataset import Unit, open_store
from codecnn.filtering import load_filter, stream_qps
from codecnn.models import weights_path
from codecnn.nnpf import coded_update_characteristics, describe_weights, insert_messages, read_messages
from codecnn.quality import bd_rate, psnr, psnr_yuv_611
from codecnn.video import Picture, convert, open_video
from tools.bench.rivals import BaseFilter

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


def adapt_by_codecnn(unit: Unit, model: str, components: list[str] | None, onnx: bool) -> tuple[float, Psnrs, Psnrs]:
    """Return the bits of an update of a stream, and the PSNRs without and with it."""
    filtering: dict[str, Any] = {"exact": False, "qp": unit.qp} if onnx else {}
    fitting: dict[str, Any] = {"onnx_uri": URI, "qp": unit.qp} if onnx else {}
    with tempfile.TemporaryDirectory() as folder:
        update, output = Path(folder) / "update.json", Path(folder) / "filtered.y4m"
        stream = unit.path("bitstream")
        verbs.filter_file(stream, model, output, **filtering)
        with open_video(output) as filtered:
            plain = psnrs(filtered, unit)
        options = {"components": components, "every_irap": False, **fitting}
        result = verbs.adapt(model, unit.original_path, stream, update, **options)
        if result.output is None:
            return 0.0, plain, plain
        verbs.filter_file(stream, model, output, update=update, **filtering)
        with open_video(output) as filtered:
            return result.bits, plain, psnrs(filtered, unit)


def adapt_by_nokia(unit: Unit, base: BaseFilter, folder: Path) -> tuple[float, Psnrs, Psnrs]:
    """Return the bits of an update that the scripts made, and the PSNRs without and with it."""
    path = folder / f"{unit.name}_{unit.qp}"
    stream = read_messages(unit.path("bitstream"))
    described = describe_weights(
        weights_path("low_cost_yuv_17"), load_filter("low_cost_yuv_17"), stream.info, onnx_uri=URI
    )
    message = coded_update_characteristics(path.with_name(f"{path.name}.bin").read_bytes(), described.nnpfc_id)
    sizes = [len(insert_messages(stream, described, update=each, every_irap=False)) for each in (None, message)]
    results = []
    for filter_ in (base, BaseFilter(path.with_name(f"{path.name}.onnx"))):
        with unit.decoded() as decoded:
            qps = stream_qps(unit.path("bitstream"), len(decoded))
            results.append(psnrs((filter_(one, qp) for one, qp in zip(decoded, qps, strict=True)), unit))
    return 8.0 * (sizes[1] - sizes[0]), results[0], results[1]


def main() -> None:
    """Print the streams, the BD-rates of each sequence and their mean."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("-m", "--model", help="name of weights")
    parser.add_argument("--onnx", action="store_true", help="adapt float weights for decoders that read ONNX")
    parser.add_argument("--nnpf", type=Path, help="checkout of nokia/fraunhoferhhi-vvdec")
    parser.add_argument("--overfitted", type=Path, metavar="DIR", help="updates of that repository's scripts")
    parser.add_argument("--components", help="components that may change and that count, e.g. y; default: all")
    parser.add_argument("--split", help="split of the store's sequences, e.g. val; default: all")
    parser.add_argument("--sequences", help="names of sequences; default: all")
    arguments = parser.parse_args()
    components = arguments.components.split(",") if arguments.components else None
    measure: Callable[[Unit], tuple[float, Psnrs, Psnrs]]
    if arguments.nnpf is not None and arguments.overfitted is not None:
        base = BaseFilter(arguments.nnpf / "nnpf/models/model3.onnx")
        measure = partial(adapt_by_nokia, base=base, folder=arguments.overfitted)
    elif arguments.model:
        measure = partial(adapt_by_codecnn, model=arguments.model, components=components, onnx=arguments.onnx)
    else:
        parser.error("name weights (-m), or a checkout (--nnpf) and its updates (--overfitted)")
    curves: dict[str, list[Point]] = defaultdict(list)
    for unit in open_store(arguments.store).units:
        if arguments.split and unit.split != arguments.split:
            continue
        if arguments.sequences and unit.name not in arguments.sequences.split(","):
            continue
        if unit.bits is None:
            parser.error(f"{arguments.store} has no bitstreams")
        bits, plain, updated = measure(unit)
        with unit.decoded() as pictures:
            decoded = psnrs(pictures, unit)
        curves[unit.name].append(Point(unit.bits, bits, decoded, plain, updated))
        gains = ", ".join(f"{name} {updated[name] - plain[name]:+.4f} dB" for name in plain)
        print(f"{unit.name}, QP {unit.qp}: {unit.bits} bits, update {bits:.0f} bits, {gains}", flush=True)
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


if __name__ == "__main__":
    main()
