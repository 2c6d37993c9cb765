"""The filter in the loop of low delay, approximated with an encoder that does not know it; docs/inloop.md says how.

    python tools/closed_loop.py CLIP -m WEIGHTS [-q 22,27,32,37] [-f 8] [--decisions ctu] [-o DIR]

Prints for each slice QP the gain in PSNR Y of a post-filter and of the filter in the loop, the latter's bits against
those without, and BD-rates. DIR gets closed_loop.json, the pictures that the filter in the loop got, and units.yaml, a
recipe that makes a store of them.
"""

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path

import yaml
from tqdm import tqdm

from codecnn.codec import CodecSettings
from codecnn.errors import CodecnnError
from codecnn.evaluation import Entry
from codecnn.evaluation.in_loop import CHAINS, closed_loop, rates_of
from codecnn.filtering import load_filter
from codecnn.runs import provenance, write_json, write_text
from codecnn.video import Video, open_video

CTU_SIZE = 128


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clip", type=Path)
    parser.add_argument("-m", "--model", required=True, help="a name of `codecnn models`, or a file")
    parser.add_argument("-q", "--qp", default="22,27,32,37")
    parser.add_argument("-f", "--frames", type=int, default=8)
    parser.add_argument("--preset", default="fast")
    parser.add_argument("--decisions", choices=("none", "ctu", "full"), default="ctu")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    filter_, output = load_filter(options.model), options.output
    entry = Entry(Path(options.model).stem, filter_.card, filter_)
    qps = [int(qp) for qp in options.qp.split(",")]
    name, loops, got = options.clip.stem.partition("_")[0], [], {}
    with ExitStack() as stack:
        video = stack.enter_context(open_video(options.clip, frames=options.frames))
        bar = stack.enter_context(tqdm(disable=None, unit="picture", total=2 * len(video) * len(qps)))
        for qp in qps:
            settings = CodecSettings(qp=qp, preset=options.preset, configuration="ldb", ctu_size=CTU_SIZE)
            form = video.format
            if output is not None:
                output.mkdir(parents=True, exist_ok=True)
                got[qp] = output / f"{name}_qp{qp}_{form.width}x{form.height}_10bit.yuv"
            how = {"decisions": options.decisions, "before": got.get(qp), "progress": bar.update}
            loops.append(closed_loop(entry, name, video, settings, **how))
        if output is not None:
            write_text(output / "units.yaml", _recipe(options.clip, video, got))
    rows = [row for loop in loops for row in loop.rows]
    notes: list[str] = []
    print(f"{'QP':>4} {'post':>8} {'loop':>8} {'bits':>8}  reference")
    for qp, loop in zip(qps, loops, strict=True):
        chains = {row.chain: row for row in loop.rows}
        plain, behind, inside = (chains[chain] for chain in CHAINS[:3])
        ratio = 100 * ((inside.bits + inside.flag_bits) / plain.bits - 1)
        gains = " ".join(f"{(one.psnr_y or 0) - (plain.psnr_y or 0):+8.4f}" for one in (behind, inside))
        left = "" if inside.used else ", coded without the filter"
        print(f"{qp:4} {gains} {ratio:+7.2f}%  {loop.reference_psnr:.1f} dB{left}")
    rates = {chain: rates_of(rows, chain, notes) for chain in CHAINS[1:]}
    for chain, rate in rates.items():
        cells = " / ".join("-" if value is None else f"{value:+.2f}" for value in rate.values())
        print(f"BD-rate {chain.replace('_', ' ')}: {cells} % (Y / U / V)")
    for note in dict.fromkeys(notes):
        print(note)
    if output is not None:
        told = {"clip": options.clip.name, "weights_sha256": filter_.card.sha256, "decisions": options.decisions}
        told |= {"bd_rate": rates, "rows": [row.model_dump() for row in rows], "notes": list(dict.fromkeys(notes))}
        write_json(output / "closed_loop.json", told | {"provenance": provenance()})
    return 0


def _recipe(clip: Path, video: Video, got: dict[int, Path]) -> str:
    """The recipe of a store of the pictures that the filter got, by slice QP, beside which it lies."""
    streams = [{"decoded": path.name, "slice_qp": qp} for qp, path in got.items()]
    sequence = {"source": str(clip.resolve()), "frames": len(video), "split": "train", "streams": streams}
    told = {"name": "closed_loop", "codec": "streams", "configuration": "ldb", "ctu_size": CTU_SIZE}
    return yaml.safe_dump(told | {"sequences": [sequence]}, sort_keys=False)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except CodecnnError as error:
        sys.exit(f"closed_loop: {error}")
