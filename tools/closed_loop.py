"""The filter in the loop of low delay, approximated with an encoder that does not know it; docs/evaluation.md says how.

    python tools/closed_loop.py CLIP -m WEIGHTS [-q 22,27,32,37] [-f 8] [--decisions ctu] [-o closed_loop.json]

Prints for each QP the mean gain in PSNR Y of a post-filter, of the filter applied twice and of the closed loop, the
bits of the closed loop against those without the filter, and BD-rates.
"""

import argparse
import sys
from dataclasses import asdict
from pathlib import Path

from tqdm import tqdm

from codecnn.errors import CodecnnError
from codecnn.evaluation.closed_loop import CHAINS, closed_loop, summarise_loops
from codecnn.filtering import FloatFilter
from codecnn.models import load_model
from codecnn.runs import provenance, write_json
from codecnn.video import open_video


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clip", type=Path)
    parser.add_argument("-m", "--model", type=Path, required=True)
    parser.add_argument("-q", "--qp", default="22,27,32,37")
    parser.add_argument("-f", "--frames", type=int, default=8)
    parser.add_argument("--preset", default="fast")
    parser.add_argument("--decisions", choices=("none", "ctu", "full"), default="none")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    network, card = load_model(options.model)
    qps = [int(qp) for qp in options.qp.split(",")]
    how = {"preset": options.preset, "decisions": options.decisions}
    with open_video(options.clip, frames=options.frames) as video, tqdm(disable=None, unit="picture") as bar:
        bar.total = 2 * len(video) * len(qps)
        pictures, filter_ = list(video), FloatFilter(network)
        loops = [closed_loop(filter_, pictures, video.format, qp, **how, progress=bar.update) for qp in qps]
    summary = summarise_loops(loops)
    print(f"{'QP':>4} {'slices':>7} {'post':>8} {'twice':>8} {'closed':>8} {'bits':>8}  reference")
    for loop in loops:
        cells = " ".join(f"{summary.gain_db[name][str(loop.qp)]:+8.4f}" for name in CHAINS[1:])
        ratio = 100 * (summary.bits_ratio[str(loop.qp)] - 1)
        print(f"{loop.qp:4} {loop.slice_qps[-1]:7} {cells} {ratio:+7.2f}%  {loop.reference_psnr:.1f} dB")
    rates = {name: "-" if rate is None else f"{rate:+.2f} %" for name, rate in summary.bd_rate.items()}
    print(f"BD-rate: post-filter {rates['post_filter']}, twice {rates['twice']}, closed loop {rates['closed_loop']}")
    if options.output:
        told = {"clip": options.clip.name, "weights_sha256": card.sha256, "decisions": options.decisions}
        told |= asdict(summary) | {"runs": [*map(asdict, loops)], "provenance": provenance()}
        write_json(options.output, told)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except CodecnnError as error:
        sys.exit(f"closed_loop: {error}")
