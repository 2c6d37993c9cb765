"""Networks side by side: each trained on the same patches in the same steps, then measured on pictures it never saw.

    python tools/variants.py designs --store stores/zoo --test stores/zoo_test -o runs/designs
    python tools/variants.py notebook --store stores/zoo --test stores/zoo_test -o runs/notebook steps=20000

A variant that is done is not run again, one that was interrupted goes on from its checkpoint; table.md is written anew
after each. Gains are those of the weights that did best on the split "val" of the one store, on the split "test" of the
other; or with --split val on pictures of that split, which with validate_every=STEPS had no say in the weights.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from codecnn.config import parse_overrides
from codecnn.ctu.store import open_store
from codecnn.models import load_model
from codecnn.runs import read_json, write_json, write_text
from codecnn.training import TrainingSettings, pick_device, psnr_gain, train

Variant = tuple[str, dict[str, Any]]
LIGHT: dict[str, Any] = {"features": 32, "blocks": 2, "layers": 3, "growth": 16, "shuffle": 2}

DESIGNS: dict[str, Variant] = {
    "RDN at quarter resolution, QP as a plane": ("rdn", LIGHT),
    "the same, QP by FiLM": ("rdn", LIGHT | {"conditioning": "film"}),
    "the same, 2x2 DCT in front and behind": ("quarter_light", {}),
    "separable blocks": ("low_cost_17", {}),
    "depthwise blocks, as costly": (
        "low_cost_17",
        {"kind": "depthwise", "features": 48, "blocks": 6, "expansion": 2},
    ),
    "depthwise blocks, small": ("low_cost_5", {}),
    "separable blocks, as small": ("low_cost_5", {"kind": "separable", "features": 16, "blocks": 5, "expansion": 3}),
    "RDN, as small": ("rdn", {"features": 16, "blocks": 2, "layers": 3, "growth": 8, "shuffle": 2}),
    "RDN, and the picture before the codec's filters": (
        "rdn",
        LIGHT | {"conditioning": "film", "planes": ["rec_y", "qp", "unf_y"]},
    ),
}
"""What argues for the low-cost networks: the kinds of block at equal cost, how QP comes in, the second picture."""

BIG: dict[str, Any] = {"features": 32, "blocks": 4, "layers": 6, "growth": 24}
NOTEBOOK: dict[str, Variant] = {
    "RDN(32, 3, 6, 16)": ("rdn_32_3_6_16", {}),
    "RDN(32, 4, 6, 24)": ("rdn_32_4_6_24", {}),
    "RDN(64, 4, 6, 24), down and up": ("rdn_64_4_6_24_shuffle", {}),
    "RDN(32, 4, 6, 24) without global residual": ("rdn", BIG | {"global_residual": False}),
    "RDN(32, 4, 6, 24) without local residual": ("rdn", BIG | {"local_residual": False}),
    "RDN(32, 4, 6, 24), picture instead of residual": ("rdn", BIG | {"output": "picture"}),
    "RDN(32, 4, 6, 24), one 5x5 head": ("rdn", BIG | {"head": "5x5"}),
    "RDN(64, 4, 6, 24), transposed convolution up": ("rdn_64_4_6_24_shuffle", {"upsampling": "transposed"}),
}
"""The notebook's networks and its ablations; it gives 0.15, 0.20 and 0.08 dB for the first three."""

TABLES = {"designs": DESIGNS, "notebook": NOTEBOOK}


def run(name: str, variant: Variant, settings: TrainingSettings, args: argparse.Namespace) -> dict[str, Any]:
    """Train one variant, or go on with it, and measure it; the result is kept in its folder's result.json."""
    folder = args.output / "".join(c if c.isalnum() else "_" for c in name)
    result = folder / "result.json"
    if result.is_file():
        return dict(read_json(result))
    train(
        open_store(args.store), *variant, settings, folder,
        resume=(folder / "checkpoint.pt").is_file(), progress=True,
    )  # fmt: skip
    model, card = load_model(folder / "best.safetensors")
    device = pick_device(settings.device)
    gain = psnr_gain(model.to(device), open_store(args.test).split(args.split), device)
    row = {
        "name": name,
        "kmac_per_pixel": card["kmac_per_pixel"],
        "parameters": card["parameters"],
        "seconds": card["validation"]["seconds"],
        "gain_db": {str(qp): value for qp, value in gain.items()},
        "gain_mean_db": float(np.mean(list(gain.values()))),
    }
    write_json(result, row)
    return row


def table(rows: list[dict[str, Any]], settings: TrainingSettings) -> str:
    """The results in Markdown."""
    qps = list(rows[0]["gain_db"])
    lines = [
        f"{settings.steps} steps, batch {settings.batch}, patches {settings.patch}x{settings.patch}, "
        f"learning rate {settings.learning_rate:g}, seed {settings.seed}; gain in dB on pictures never trained on",
        "",
        f"| network | kMAC/pixel | parameters | mean | {' | '.join(f'QP {qp}' for qp in qps)} |",
        "|---|" + "---:|" * (3 + len(qps)),
    ]
    for row in rows:
        gains = " | ".join(f"{row['gain_db'][qp]:+.4f}" for qp in qps)
        facts = f"{row['kmac_per_pixel']:.1f} | {row['parameters']:,} | **{row['gain_mean_db']:+.4f}**"
        lines.append(f"| {row['name']} | {facts} | {gains} |")
    return "\n".join(lines) + "\n"


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--store", type=Path, required=True, help="to train on (split train) and choose on (val)")
    parser.add_argument("--test", type=Path, required=True, help="store that the table is about")
    parser.add_argument("--split", default="test", help="of that store [test]")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder of the runs, and of table.md")
    parser.add_argument("--only", help="variants whose name holds this")
    parser.add_argument("training", nargs="*", metavar="KEY=VALUE", help="training settings, such as steps=20000")
    args = parser.parse_intermixed_args(argv)
    settings = TrainingSettings(**parse_overrides(args.training))
    rows = []
    for name, variant in TABLES[args.table].items():
        if args.only is None or args.only in name:
            rows.append(run(name, variant, settings, args))
            write_text(args.output / "table.md", table(rows, settings))
    print(table(rows, settings))


if __name__ == "__main__":
    main(sys.argv[1:])
