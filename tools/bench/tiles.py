"""Tiles against the picture in one piece, for every network: how far apart before rounding, how many samples after it.

    python tools/bench/tiles.py                                     noise of 418x234 in tiles of 64, 160 and 320
    python tools/bench/tiles.py decoded_416x240_10bit.yuv --tiles 128 --networks rdn_yuv low_cost_17

Networks are untrained but for last layers that move samples by up to 20 of 10 bit. Exits with 1 where one is more
than 1e-5 of full scale off.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import torch

from codecnn.filtering import FloatFilter
from codecnn.models import FilterNetwork, create_model, list_models
from codecnn.video import Picture, open_video
from tools.bench._rows import Row, row

TOLERANCE = 1e-5
QP = 37


def noise(height: int, width: int) -> Picture:
    """A 10-bit 4:2:0 picture in which every sample differs from its neighbours."""
    rng = np.random.default_rng(0)
    shapes = [(height, width)] + [((height + 1) // 2, (width + 1) // 2)] * 2
    return Picture(tuple(np.clip(rng.normal(512, 170, shape), 0, 1023).astype("<u2") for shape in shapes), 10)


@torch.no_grad()
def awake(name: str) -> FilterNetwork:
    """The network with its last layers drawn at random, at a strength that moves samples by 20 at most."""
    torch.manual_seed(0)
    model = create_model(name).eval()
    last = [weight for weight in model.parameters() if weight.ndim == 4 and not weight.any()]
    for weight in last:
        torch.nn.init.normal_(weight, std=0.02)
    probe = noise(48, 48)
    moved = np.abs(FloatFilter(model).samples(probe, QP, auxiliary_planes(model, probe))["y"] - probe.y).max()
    for weight in last:
        weight *= 20 / moved
    return model


def auxiliary_planes(model: FilterNetwork, picture: Picture) -> dict[str, np.ndarray]:
    """Return an unfiltered picture that differs by one step, if the network takes one."""
    return {"unf_y": picture.y ^ 1} if "unf_y" in model.planes else {}


def main(argv: list[str]) -> list[Row]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("picture", type=Path, nargs="?", help="a video whose first picture is taken")
    parser.add_argument("--tiles", type=int, nargs="+", default=[64, 160, 320])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--networks", nargs="+", choices=list_models(), default=list_models(), metavar="NAME")
    args = parser.parse_args(argv)
    picture = noise(234, 418)
    if args.picture is not None:
        with open_video(args.picture) as video:
            picture = video[0]
    full_scale, distances = 2**picture.bit_depth, dict.fromkeys(args.networks, 0.0)
    print("| network | tile | threads | farthest apart, of full scale | samples that round differently |")
    print("|---|---:|---:|---:|---:|")
    for name in args.networks:
        model = awake(name)
        torch.set_num_threads(args.threads[0])
        auxiliary = auxiliary_planes(model, picture)
        whole = FloatFilter(model, tile=None).samples(picture, QP, auxiliary)
        for threads in args.threads:
            torch.set_num_threads(threads)
            for tile in args.tiles:
                tiled = FloatFilter(model, tile=tile).samples(picture, QP, auxiliary)
                apart = max(float(np.abs(tiled[c] - plane).max()) / full_scale for c, plane in whole.items())
                count = sum(plane.size for plane in whole.values())
                differ = sum(int((np.rint(tiled[c]) != np.rint(plane)).sum()) for c, plane in whole.items())
                print(f"| `{name}` | {tile} | {threads} | {apart:.1e} | {differ} of {count} |", flush=True)
                distances[name] = max(distances[name], apart)
    worst = max(distances.values())
    if worst > TOLERANCE:
        sys.exit(f"tiles are up to {worst:.1e} of full scale off, more than {TOLERANCE}")
    return [row(f"`{name}`: tiles from one piece", "of full scale", [far]) for name, far in distances.items()]


if __name__ == "__main__":
    main(sys.argv[1:])
