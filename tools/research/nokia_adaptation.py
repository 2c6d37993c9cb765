"""Measure the BD-rate that Nokia's base filter gains when it is adapted to each stream by Nokia's own script.

    CODECNN_NNCODEC=nnc/bin/python python tools/research/nokia_adaptation.py stores/video_test \\
        --nnpf ../fraunhoferhhi-vvdec -o results/nokia

The folder after --nnpf holds the repository nokia/fraunhoferhhi-vvdec. The Python that CODECNN_NNCODEC names needs
torch, click, onnx and nncodec. Its script `overfit.py` trains the multipliers of the network with the defaults of its
guide; trained networks stay in the output folder and are used again.

The change of all multipliers is coded by nncodec with the QP of its guide, a tensor of shape (1, n, 1, 1) for each
layer. Its own scripts for this are not used: the script `encode_weights_update.py` leaves out all tensors whose names
begin with `view`, which the multipliers have in an exported network, and in the base network equal multipliers of
several layers are one tensor, so `ioq_encode_weights_update.py` sends 3 of 35.

Each picture is filtered with its slice QP, as in the script. An update counts with the bits of its payload.
"""

import argparse
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from codecnn.dataset import Unit, open_store
from codecnn.pictures.files import convert
from codecnn.signalling.nnpf import CODER_VARIABLE
from tools.bench.rivals import BaseFilter
from tools.research.adaptation import Point, Psnrs, psnrs, report

DEPTH = 10
"""Bit depth of the pictures that the script reads."""

CODER = """
import sys
import numpy as np
import onnx
import onnx.numpy_helper
import torch
from nncodec.nn import decode, encode

base, adapted, exported, payload, qp, nonweight_qp = sys.argv[1:]
def multipliers(path):
    state = torch.load(path, map_location="cpu", weights_only=False)
    state = state.get("model_state_dict", state)
    return [state[f"_multiplier{n}._multiplier"].numpy()[None, :, None, None] for n in range(1, 36)]

plain, trained = multipliers(base), multipliers(adapted)
names = [f"{n:02d}" for n in range(35)]
changes = {name: b - a for name, a, b in zip(names, plain, trained)}
options = {"qp": int(qp), "qp_density": 2, "nonweight_qp": int(nonweight_qp), "use_dq": False, "verbose": False}
options["results"] = payload + ".folder"
with open(payload, "wb") as file:
    file.write(bytes(encode(dict(changes), options)))
decoded = decode(payload, options)
values = [a + decoded[name].reshape(a.shape) for name, a in zip(names, plain)]

# Every multiplier gets a tensor of its own; in the base network equal ones share a tensor.
network = onnx.load(base.replace(".pt", ".onnx"))
shared = {tensor.name: tensor for tensor in network.graph.initializer if tensor.name.startswith("view")}
nodes = [node for node in network.graph.node if any(name in shared for name in node.input)]
assert len(nodes) == len(values), len(nodes)
for kind, numbers in (("decoded", values), ("trained", trained)):
    for index, (node, value) in enumerate(zip(nodes, numbers)):
        name = f"multiplier{index + 1}"
        position = next(n for n, entry in enumerate(node.input) if entry.startswith(("view", "multiplier")))
        node.input[position] = name
        kept = [tensor for tensor in network.graph.initializer if tensor.name != name and tensor.name not in shared]
        del network.graph.initializer[:]
        network.graph.initializer.extend(kept)
        network.graph.initializer.append(onnx.numpy_helper.from_array(np.ascontiguousarray(value), name))
    onnx.checker.check_model(network)
    onnx.save(network, f"{exported}.{kind}.onnx")
"""
"""Codes the change of the multipliers, and writes the networks that a decoder has and that was trained."""


def write_inputs(unit: Unit, folder: Path) -> list[str]:
    """Write the original, the decoded pictures and a log of slice QPs; return the options that name them."""
    for name, video in (("original", unit.originals()), ("decoded", unit.decoded())):
        with video as pictures, (folder / f"{name}.yuv").open("wb") as file:
            for picture in pictures:
                for plane in convert(picture, DEPTH).planes:
                    file.write(plane.astype("<u2").tobytes())
    types = ["I" if picture.slice_type == "I" else "B" for picture in unit.pictures]
    lines = [
        f"POC {number} LId: 0 TId: 0 ( {kind}, {kind}-SLICE, QP {picture.qp} )\n"
        for number, (kind, picture) in enumerate(zip(types, unit.pictures, strict=True))
    ]
    (folder / "log.txt").write_text("".join(lines))
    files = {"input_yuv": "original.yuv", "recon_yuv": "decoded.yuv", "log_enc": "log.txt"}
    options: dict[str, Path | int] = {key: folder / name for key, name in files.items()}
    options |= {"width": unit.format.width, "height": unit.format.height, "bit_depth": DEPTH}
    return [text for key, value in options.items() for text in (f"--{key}", str(value))]


def overfit(unit: Unit, scripts: Path, folder: Path, epochs: int) -> Path:
    """Train the multipliers of the base filter on a stream; return the file of the trained network."""
    folder.mkdir(parents=True, exist_ok=True)
    trained = folder / "trained.pt"
    if trained.is_file():
        return trained
    environment = os.environ | {"PYTHONPATH": str(scripts / "models")}
    part = folder / "part.pt"
    models = ["--model_path", str(scripts / "models/model3.pt"), "--output_path", str(part)]
    settings = ["--block_size", "64", "--pad_size", "8", "--epochs", str(epochs), "--learning_rate", "0.0003"]
    argv = [os.environ[CODER_VARIABLE], str(scripts / "overfit.py"), *models, *write_inputs(unit, folder), *settings]
    with (folder / "overfit.log").open("w") as log:
        subprocess.run(
            [*argv, "--save_interval", "1000"], check=True, stdout=log, stderr=subprocess.STDOUT, env=environment
        )
    part.rename(trained)
    for name in ("original.yuv", "decoded.yuv"):
        (folder / name).unlink()
    return trained


def code(trained: Path, scripts: Path, qp: int) -> tuple[int, Path, Path]:
    """Code the change of a trained network; return the payload's bits, the decoded network and the trained one."""
    payload, exported = trained.with_name("update.nnc"), trained.with_name("network")
    Path(f"{payload}.folder").mkdir(exist_ok=True)
    files = [str(path) for path in (scripts / "models/model3.pt", trained, exported, payload)]
    argv = [os.environ[CODER_VARIABLE], "-c", CODER, *files, str(qp), "-75"]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    decoded, exact = (Path(f"{exported}.{kind}.onnx") for kind in ("decoded", "trained"))
    return 8 * payload.stat().st_size, decoded, exact


def filtered(unit: Unit, path: Path) -> Psnrs:
    """Return the PSNRs of a unit's pictures after an ONNX network."""
    base = BaseFilter(path)
    with unit.decoded() as decoded:
        qps = [picture.qp for picture in unit.pictures]
        return psnrs((base(convert(one, DEPTH), qp) for one, qp in zip(decoded, qps, strict=True)), unit)


def main() -> None:
    """Print the streams, the BD-rates of each sequence and their mean."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("--nnpf", type=Path, required=True, help="folder of nokia/fraunhoferhhi-vvdec")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder of the trained networks")
    parser.add_argument("--epochs", type=int, default=20, help="default: %(default)s, as in Nokia's guide")
    parser.add_argument(
        "--coder-qp", type=int, nargs="+", default=[-32], help="QPs of nncodec; default: -32, as in Nokia's guide"
    )
    parser.add_argument("--sequences", help="names of sequences; default: all")
    arguments = parser.parse_args()
    if CODER_VARIABLE not in os.environ:
        parser.error(f"{CODER_VARIABLE} must name a Python with torch, click, onnx and nncodec")
    scripts = arguments.nnpf.resolve() / "nnpf"
    titles = [*(f"coder QP {qp}" for qp in arguments.coder_qp), "without coding, no bits"]
    curves = {title: defaultdict[str, list[Point]](list) for title in titles}
    units = list(open_store(arguments.store).units)
    names = arguments.sequences.split(",") if arguments.sequences else list(dict.fromkeys(unit.name for unit in units))
    for unit in sorted((unit for unit in units if unit.name in names), key=lambda unit: names.index(unit.name)):
        if unit.bits is None:
            parser.error(f"{arguments.store} has no bitstreams")
        with unit.decoded() as pictures:
            decoded = psnrs(pictures, unit)
        plain = filtered(unit, scripts / "models/model3.onnx")
        trained = overfit(unit, scripts, arguments.output.resolve() / f"{unit.name}_qp{unit.qp}", arguments.epochs)
        for qp in arguments.coder_qp:
            bits, received, exact = code(trained, scripts, qp)
            curves[f"coder QP {qp}"][unit.name].append(Point(unit.bits, bits, decoded, plain, filtered(unit, received)))
        curves[titles[-1]][unit.name].append(Point(unit.bits, 0, decoded, plain, filtered(unit, exact)))
        for title in titles:
            point = curves[title][unit.name][-1]
            gains = ", ".join(
                f"{name} {plain[name] - decoded[name]:+.4f} {point.adapted[name] - plain[name]:+.4f}" for name in plain
            )
            print(
                f"{unit.name}, QP {unit.qp}, {title}: {unit.bits} bits, update {point.update} bits, gain in dB of the "
                f"filter and of its update: {gains}",
                flush=True,
            )
    for title in titles:
        print(f"\n{title}")
        report(curves[title])


if __name__ == "__main__":
    main()
