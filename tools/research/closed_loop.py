"""Approximate a filter in the coding loop of low delay with the bundled encoder, which does not know the filter.

    python tools/research/closed_loop.py CLIP -m WEIGHTS [-q 22,27,32,37] [-f 8] [--decisions ctu] [-o DIR]

docs/howto/inloop.md describes the approximation. The script prints for each slice QP the gain in PSNR Y of the
post-filter and of the filter in the loop, the bits of the latter relative to coding without a filter, and BD-rates. DIR
gets closed_loop.json, the inputs of the filter in the loop, and units.yaml, a recipe that builds a store from them.
"""

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path

import yaml
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from codecnn.base.errors import CodecnnError
from codecnn.base.files import provenance, write_json, write_text
from codecnn.codec import CodecSettings
from codecnn.evaluation import Entry
from codecnn.filtering import load_filter
from codecnn.pictures.files import Video, open_video
from codecnn.signalling.in_loop import CHAINS, rates_of
from tools.research.approximated_loop import closed_loop

CTU_SIZE = 128


def main() -> int:
    """Code the clip at every QP, print the table, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clip", type=Path, help="original video")
    parser.add_argument("-m", "--model", required=True, help="weights: a name of `codecnn models` or a file")
    parser.add_argument("-q", "--qp", default="22,27,32,37", help="slice QPs [22,27,32,37]")
    parser.add_argument("-f", "--frames", type=int, default=8, help="pictures of the clip [8]")
    parser.add_argument("--preset", default="fast", help="encoder preset [fast]")
    parser.add_argument("--decisions", choices=("none", "ctu", "full"), default="ctu", help="[ctu]")
    parser.add_argument("-o", "--output", type=Path, help="folder of the results")
    options = parser.parse_args()
    filter_, output = load_filter(options.model), options.output
    entry = Entry(Path(options.model).stem, filter_.card, filter_)
    qps = [int(qp) for qp in options.qp.split(",")]
    name, loops, inputs = options.clip.stem.partition("_")[0], [], {}
    with ExitStack() as stack:
        video = stack.enter_context(open_video(options.clip, frames=options.frames))
        bar = stack.enter_context(tqdm(disable=None, unit="picture", total=2 * len(video) * len(qps)))
        for qp in qps:
            settings = CodecSettings(qp=qp, preset=options.preset, configuration="ldb", ctu_size=CTU_SIZE)
            if output is not None:
                output.mkdir(parents=True, exist_ok=True)
                inputs[qp] = output / f"{name}_qp{qp}_{video.format.width}x{video.format.height}_10bit.yuv"
            loops.append(
                closed_loop(
                    entry,
                    name,
                    video,
                    settings,
                    decisions=options.decisions,
                    before=inputs.get(qp),
                    progress=bar.update,
                )
            )
        if output is not None:
            write_text(output / "units.yaml", _recipe(options.clip, video, inputs))
    rows = [row for loop in loops for row in loop.rows]
    notes: list[str] = []
    print(f"{'QP':>4} {'post':>8} {'loop':>8} {'bits':>8}  reference")
    for qp, loop in zip(qps, loops, strict=True):
        chains = {row.chain: row for row in loop.rows}
        plain, post_filter, in_loop = (chains[chain] for chain in ("without", "post_filter", "in_loop"))
        ratio = 100 * ((in_loop.bits + in_loop.message_bits) / plain.bits - 1)
        gains = " ".join(f"{(row.psnr_y or 0) - (plain.psnr_y or 0):+8.4f}" for row in (post_filter, in_loop))
        unused = "" if in_loop.used else ", coded without the filter"
        print(f"{qp:4} {gains} {ratio:+7.2f}%  {loop.reference_psnr:.1f} dB{unused}")
    rates = {chain: rates_of(rows, chain, notes) for chain in CHAINS if chain not in ("without", "chosen")}
    for chain, rate in rates.items():
        cells = " / ".join("-" if value is None else f"{value:+.2f}" for value in rate.values())
        print(f"BD-rate {CHAINS[chain]}: {cells} % (Y / U / V)")
    notes = list(dict.fromkeys(notes))
    for note in notes:
        print(note)
    if output is not None:
        result = {"clip": options.clip.name, "weights_sha256": filter_.card.sha256, "decisions": options.decisions}
        result |= {"bd_rate": rates, "rows": [row.model_dump() for row in rows], "notes": notes}
        write_json(output / "closed_loop.json", result | {"provenance": provenance()})
    return 0


def _recipe(clip: Path, video: Video, inputs: dict[int, Path]) -> str:
    """Return the recipe of a store of the filter's inputs by slice QP, which lie in the folder of the recipe."""
    streams = [{"decoded": path.name, "slice_qp": qp} for qp, path in inputs.items()]
    sequence = {"source": str(clip.resolve()), "frames": len(video), "split": "train", "streams": streams}
    recipe = {"name": "closed_loop", "codec": "streams", "configuration": "ldb", "ctu_size": CTU_SIZE}
    return yaml.safe_dump(recipe | {"sequences": [sequence]}, sort_keys=False)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except CodecnnError as error:
        sys.exit(f"closed_loop: {error}")
