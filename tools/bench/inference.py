"""Speed and memory of RDN inference against the network as people write it: NCHW, torch.cat, the picture in one piece.

    python tools/bench/inference.py --size 640x384                     both, in turn, each run in a process of its own
    python tools/bench/inference.py --size 1920x1080 --runs 3
    python tools/bench/inference.py --only codecnn --size 3840x2160    the peak memory of one way alone

Both ways have the same weights and the same 10-bit picture; figures are the least of the runs.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from codecnn.codec.base import QP_SCALE
from codecnn.filtering import filter_outputs
from codecnn.models import create_model, prepare
from codecnn.models.rdn import RDN

WAYS = ("eager", "codecnn")
QP = 37


class EagerRDN(nn.Module):
    """The peer: the layers of an RDN as its paper's public implementations have them."""

    def __init__(self, model: RDN) -> None:
        super().__init__()
        self.model = model

    def forward(self, rec: Tensor, qp: Tensor) -> Tensor:
        model = self.model
        x = (torch.cat([rec, qp], dim=1) - 0.5) * 4.0
        first = model.head(x)
        x = model.head2(first)
        outputs = []
        for block in model.blocks:
            dense = x
            for layer in block.layers:
                dense = torch.cat([dense, F.relu(layer(dense))], dim=1)
            x = x + block.fusion(dense)
            outputs.append(x)
        x = (
            model.fusion2(F.conv2d(torch.cat(outputs, dim=1), model.fusion.weight, model.fusion.bias))
            + first[:, :, 1:-1, 1:-1]
        )
        return rec[:, :, 2:-2, 2:-2] + model.tail(x) * 0.02 * model.gain(qp[:, :, :1, :1])


def awake_model(network: str) -> RDN:
    """The network with fixed weights under which its features keep their scale, and so do errors of rounding."""
    torch.manual_seed(0)
    model = create_model(network)
    assert isinstance(model, RDN)
    with torch.no_grad():
        for block in model.blocks:
            block.fusion.weight *= 0.3
    nn.init.normal_(model.tail.weight, std=0.05)
    return model.eval()


def picture(width: int, height: int) -> Tensor:
    """A 10-bit luma plane (1, 1, h, w) of waves and noise, in units of full scale."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:height, :width].astype(np.float32)
    waves = 512 + 300 * np.sin(x / 37) * np.cos(y / 23) + rng.normal(0, 20, (height, width)).astype(np.float32)
    return torch.from_numpy(np.clip(np.round(waves), 0, 1023).astype(np.float32) / 1024)[None, None]


@torch.inference_mode()
def measure(way: str, network: str, width: int, height: int, save: Path | None) -> dict[str, float]:
    """Seconds of one pass over one picture and the peak resident memory of this process in MiB."""
    model, rec = awake_model(network), picture(width, height)
    qp = QP / QP_SCALE
    started = time.perf_counter()
    if way == "eager":
        padded = F.pad(rec, (2, 2, 2, 2), mode="replicate")
        result = EagerRDN(model)(padded, torch.full_like(padded, qp))
    else:
        result = filter_outputs(prepare(model), {"rec_y": rec, "qp": torch.full((1, 1, 1, 1), qp)})["y"]
    seconds = time.perf_counter() - started
    if save is not None:
        np.save(save, result.numpy())
    return {"seconds": seconds, "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", default="rdn_32_4_6_24", help="one of the RDNs without shuffle")
    parser.add_argument("--size", default="640x384", help="of the picture, WxH")
    parser.add_argument("--runs", type=int, default=3, help="of each way, in turn")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--only", choices=WAYS, help="measure this way once, in this process")
    parser.add_argument("--save", type=Path, help="with --only: write the filtered plane, .npy")
    args = parser.parse_args(argv)
    width, height = (int(part) for part in args.size.split("x"))
    if args.only:
        torch.set_num_threads(args.threads)
        print(json.dumps(measure(args.only, args.network, width, height, args.save)))
        return
    results: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for _ in range(args.runs):
        for way in WAYS:
            command = [sys.executable, __file__, "--only", way, "--network", args.network, "--size", args.size]
            done = subprocess.run(
                [*command, "--threads", str(args.threads)], check=True, capture_output=True, text=True
            )
            results[way].append(json.loads(done.stdout))
    best = {way: {key: min(run[key] for run in runs) for key in runs[0]} for way, runs in results.items()}
    print(f"{args.network}, {args.size}, {args.threads} threads, least of {args.runs} runs in turn")
    for way in WAYS:
        print(f"{way:8} {best[way]['seconds']:8.2f} s {best[way]['peak_mib']:8.0f} MiB resident")
    ratio = {key: best["codecnn"][key] / best["eager"][key] for key in best["eager"]}
    print(f"ratio    {ratio['seconds']:8.3f}   {ratio['peak_mib']:8.3f}")


if __name__ == "__main__":
    main(sys.argv[1:])
