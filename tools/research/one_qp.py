"""Measure filters with the slice QP of each picture, and with the QP of the sequence for all of its pictures.

    python tools/research/one_qp.py stores/video_test_ra -m low_cost_17 -m low_cost_75

In random access and low delay the slice QPs of B pictures are higher than the QP of the sequence. Weights for stills
were trained on pictures whose error is that of their QP; an inter picture predicts much from pictures of lower QPs.
"""

import argparse
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from codecnn import api as verbs
from codecnn.dataset import open_store
from codecnn.pictures.files import open_video
from codecnn.pictures.metrics import MIN_POINTS, bd_rate
from tools.research.adaptation import Psnrs, psnrs

WAYS = ("slice QPs", "one QP")


def main() -> None:
    """Print the mean gains and the BD-rates over the decoded pictures of each sequence, and their means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("-m", "--model", action="append", required=True, help="name of weights; may be repeated")
    parser.add_argument("--split", help="split of the store's sequences, e.g. val; default: all")
    parser.add_argument("--component", nargs="+", default=["y"], help="components that the weights filter; default: y")
    arguments = parser.parse_args()
    curves: dict[tuple[str, str], dict[str, list[tuple[float, Psnrs]]]] = defaultdict(lambda: defaultdict(list))
    for unit in open_store(arguments.store).units:
        if arguments.split and unit.split != arguments.split:
            continue
        if unit.bits is None:
            parser.error(f"{arguments.store} has no bitstreams")
        with unit.decoded() as pictures:
            curves["", ""][unit.name].append((unit.bits, psnrs(pictures, unit)))
        for model in arguments.model:
            for way in WAYS:
                with tempfile.TemporaryDirectory() as folder:
                    output = Path(folder) / "filtered.y4m"
                    qp = unit.qp if way == "one QP" else None
                    verbs.filter(unit.path("bitstream"), output, model=model, exact=False, qp=qp)
                    with open_video(output) as filtered:
                        curves[model, way][unit.name].append((unit.bits, psnrs(filtered, unit)))
    decoded = curves.pop(("", ""))
    for (model, way), sequences in curves.items():
        for component in arguments.component:
            gains, rates = [], []
            for name, points in sequences.items():
                anchor = [(bits, psnr[component]) for bits, psnr in decoded[name]]
                test = [(bits, psnr[component]) for bits, psnr in points]
                gains.append(np.mean([after - before for (_, before), (_, after) in zip(anchor, test, strict=True)]))
                rates.append(bd_rate(anchor, test) if len(anchor) >= MIN_POINTS else np.nan)
            each = ", ".join(
                f"{name} {gain:+.3f} dB {rate:+.2f} %" for name, gain, rate in zip(sequences, gains, rates, strict=True)
            )
            print(f"{model}, {way}, {component}: {np.mean(gains):+.4f} dB {np.mean(rates):+.2f} %; {each}", flush=True)


if __name__ == "__main__":
    main()
