"""Difference between filtering in tiles and in one piece, for every network, before and after rounding.

    python tools/benchmark.py tiles                                 noise of 418x234 in tiles of 64, 160 and 320
    python tools/benchmark.py tiles decoded_416x240_10bit.yuv --tiles 128 --networks rdn_yuv low_cost_17

The networks are untrained, with random last layers that change 10-bit samples by up to 20. The exit status is 1 if a
difference exceeds 1e-5 of full scale.
"""

import sys
from pathlib import Path

import numpy as np
import torch

from codecnn.filtering import FloatFilter
from codecnn.models import list_models
from codecnn.pictures.files import open_video
from tools.bench._common import QP, Row, auxiliary_planes, make_parser, noise_picture, randomised_model, row

TOLERANCE = 1e-5
"""Largest difference between tiles and one piece, as a share of full scale."""


def main(argv: list[str]) -> list[Row]:
    """Compare, print, and return a row for each network."""
    parser = make_parser("tiles", __doc__)
    parser.add_argument("picture", type=Path, nargs="?", help="video whose first picture is filtered [noise]")
    parser.add_argument("--tiles", type=int, nargs="+", default=[64, 160, 320], help="sizes of the tiles [64 160 320]")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="numbers of CPU threads [1 2]")
    parser.add_argument(
        "--networks",
        nargs="+",
        choices=list_models(),
        default=list_models(),
        metavar="NAME",
        help="architectures [all]",
    )
    options = parser.parse_args(argv)
    picture = noise_picture(234, 418)
    if options.picture is not None:
        with open_video(options.picture) as video:
            picture = video[0]
    full_scale, largest = 2**picture.bit_depth, dict.fromkeys(options.networks, 0.0)
    print("| network | tile | threads | largest difference, of full scale | samples that round differently |")
    print("|---|---:|---:|---:|---:|")
    for name in options.networks:
        model = randomised_model(name)
        torch.set_num_threads(options.threads[0])
        auxiliary = auxiliary_planes(model.planes, picture)
        whole = FloatFilter(model, tile=None).samples(picture, QP, auxiliary)
        count = sum(plane.size for plane in whole.values())
        for threads in options.threads:
            torch.set_num_threads(threads)
            for tile in options.tiles:
                tiled = FloatFilter(model, tile=tile).samples(picture, QP, auxiliary)
                difference = max(float(np.abs(tiled[c] - plane).max()) / full_scale for c, plane in whole.items())
                rounded = sum(int((np.rint(tiled[c]) != np.rint(plane)).sum()) for c, plane in whole.items())
                print(f"| `{name}` | {tile} | {threads} | {difference:.1e} | {rounded} of {count} |", flush=True)
                largest[name] = max(largest[name], difference)
    worst = max(largest.values())
    if worst > TOLERANCE:
        sys.exit(f"filtering in tiles differs by up to {worst:.1e} of full scale, more than {TOLERANCE}")
    return [
        row(f"`{name}`: difference of tiles from one piece", "of full scale", [difference])
        for name, difference in largest.items()
    ]
