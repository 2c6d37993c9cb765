"""Filtering of decoded pictures."""

from pathlib import Path
from typing import Annotated

import typer
from tqdm import tqdm

from codecnn.cli.app import app
from codecnn.cli.options import BitDepth, Chroma, Device, Frames, Model, Rate, Size, Tile, parse_qps
from codecnn.console import err
from codecnn.errors import ConfigError


@app.command("filter")
def filter_command(
    model: Model,
    source: Annotated[Path, typer.Option("-i", "--input", help="decoded pictures: YUV, Y4M, or a bitstream")],
    output: Annotated[Path, typer.Option("-o", "--output", help="filtered pictures: raw YUV, or Y4M by its suffix")],
    qp: Annotated[str, typer.Option("-q", "--qp", help="slice QP of all pictures, or a comma list with one a picture")],
    size: Size = None,
    bit_depth: BitDepth = None,
    chroma: Chroma = None,
    rate: Rate = None,
    frames: Frames = None,
    tile: Tile = 640,
    device: Device = "auto",
) -> None:
    """Filter decoded pictures; the output has the format of the input."""
    from codecnn.evaluation.sweep import untrained_qp
    from codecnn.filtering import filter_video, float_filter
    from codecnn.models import load_model
    from codecnn.training import pick_device
    from codecnn.video import open_video

    if output.resolve() == source.resolve():
        raise ConfigError(f"input and output are the same file, {output}")
    network, card = load_model(model)
    where = pick_device(device)
    for value in sorted(set(parse_qps(qp))):
        if note := untrained_qp(card, value):
            err.print(f"codecnn: {note}", markup=False, highlight=False, soft_wrap=True)
    with (
        open_video(source, size=size, bit_depth=bit_depth, chroma=chroma, fps=rate, frames=frames) as video,
        tqdm(total=len(video), desc="filtering", unit="picture", disable=None) as bar,
    ):
        filter_video(
            float_filter(network, device=where, tile=tile),
            video,
            parse_qps(qp),
            output,
            progress=lambda _done: bar.update(),
        )
