"""Filtering of decoded pictures."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from tqdm import tqdm

from codecnn.cli.app import app
from codecnn.cli.options import (
    BitDepth,
    Chroma,
    Device,
    Exact,
    Frames,
    Json,
    Model,
    Precision,
    Rate,
    Size,
    Tile,
    parse_bytes,
    parse_qps,
)
from codecnn.console import err, print_facts, print_json
from codecnn.errors import ConfigError

if TYPE_CHECKING:
    from codecnn.filtering import Beside, PictureFilter
    from codecnn.video import Video


@app.command("filter")
def filter_command(
    model: Model,
    source: Annotated[Path, typer.Option("-i", "--input", help="decoded pictures: YUV, Y4M, or a bitstream")],
    output: Annotated[Path, typer.Option("-o", "--output", help="filtered pictures: raw YUV, or Y4M by its suffix")],
    qp: Annotated[
        str | None,
        typer.Option(
            "-q", "--qp", help="slice QP of all pictures, a comma list with one a picture, or a file of them [stream's]"
        ),
    ] = None,
    size: Size = None,
    bit_depth: BitDepth = None,
    chroma: Chroma = None,
    rate: Rate = None,
    frames: Frames = None,
    plane: Annotated[
        list[str] | None,
        typer.Option(
            "--plane",
            metavar="NAME=FILE",
            help="pictures for unf_y, pred_y, resid_y [an all-intra VVC stream's]",
        ),
    ] = None,
    blocks: Annotated[
        Path | None, typer.Option("--blocks", help="table of the CUs, for depth, modes, cu_qp [VVC streams tell them]")
    ] = None,
    slice_type: Annotated[
        Literal["I", "P", "B"] | None,
        typer.Option("--slice-type", help="of all pictures, for a network that takes it [a stream's]"),
    ] = None,
    original: Annotated[
        Path | None, typer.Option("--original", help="decide by rate-distortion cost against these pictures")
    ] = None,
    decisions: Annotated[
        Path | None, typer.Option("--decisions", help="what was decided, as block statistics (.vtmbmsstats)")
    ] = None,
    offsets: Annotated[
        str, typer.Option("--qp-offsets", help="to decide on: what is tried instead of the QP, such as -5,5")
    ] = "0",
    ctu: Annotated[int, typer.Option("--ctu", help="to decide on: side of a CTU in luma samples")] = 128,
    memory: Annotated[str, typer.Option("--memory", help="limit on what the network's tensors take")] = "2GiB",
    tile: Tile = None,
    device: Device = "auto",
    exact: Exact = None,
    precision: Precision = "float32",
    as_json: Json = False,
) -> None:
    """Filter decoded pictures; the output has the format of the input, its pictures in output order.

    With --original each picture is filtered as an encoder would: off, on or by CTU, at the best strength.
    """
    from codecnn import filtering
    from codecnn.evaluation import untrained_qp
    from codecnn.models import pick_device
    from codecnn.planes import MAX_QP
    from codecnn.video import open_like, open_video

    if output.resolve() == source.resolve():
        raise ConfigError(f"input and output are the same file, {output}")
    if original is None and decisions is not None:
        raise ConfigError(f"nothing is decided without the original: {decisions} needs --original")
    if decisions is not None and not decisions.name.endswith((".vtmbmsstats", ".vtmbmsstats.gz")):
        raise ConfigError(f"{decisions} would hold block statistics: end its name in .vtmbmsstats")
    tried = parse_qps(offsets)
    filter_ = filtering.load_filter(
        model,
        exact=exact,
        precision=precision,
        device=pick_device(device),
        tile=tile or "auto",
        memory=parse_bytes(memory),
    )
    with ExitStack() as stack:
        video = stack.enter_context(
            open_video(source, size=size, bit_depth=bit_depth, chroma=chroma, fps=rate, frames=frames)
        )
        qps = _qps(qp, source, len(video)) if "qp" in filter_.planes or original is not None else [0]
        if wrong := [value for value in qps if not 0 <= value <= MAX_QP]:
            raise ConfigError(f"QP {wrong[0]} is out of range: 0 to {MAX_QP}")
        for value in sorted(set(qps)) if "qp" in filter_.planes else []:
            if note := untrained_qp(filter_.card, value):
                err.print(f"codecnn: {note}", markup=False, highlight=False, soft_wrap=True)
        beside = _beside(filter_, source, video, plane or [], blocks, slice_type, stack)
        originals = None
        if original is not None:
            # Only where the first pictures of the video were asked for may the originals be more.
            originals = stack.enter_context(open_like(original, video.format).select(frames=frames))
        bar = stack.enter_context(tqdm(total=len(video), desc="filtering", unit="picture", disable=None))

        def report(_done: int) -> None:
            bar.update()

        facts: dict[str, Any] = {"output": str(output), "pictures": len(video)}
        if originals is None:
            filtering.filter_video(filter_, video, qps, output, beside=beside, progress=report)
        else:
            made = filtering.decide_video(
                filter_, video, originals, qps, output, offsets=tried, ctu=ctu, beside=beside, progress=report
            )
            if decisions is not None:
                filtering.write_decisions(decisions, made, video.format.width, video.format.height, ctu)
            facts["pictures"] = len(made)
            facts["decisions"] = filtering.count_decisions(made)
    if as_json:
        print_json(facts)
    elif originals is not None:
        print_facts(_summary(facts["decisions"]), as_json)


def _qps(text: str | None, source: Path, count: int) -> list[int]:
    """QPs by the option, or those of the stream: one for all pictures, or one a picture."""
    from codecnn.filtering import stream_qps

    if text is None:
        return stream_qps(source, count)
    if Path(text).is_file():
        return parse_qps(",".join(Path(text).read_text(encoding="utf-8", errors="replace").replace(",", " ").split()))
    return parse_qps(text)


def _beside(
    filter_: "PictureFilter",
    source: Path,
    video: "Video",
    planes: Sequence[str],
    blocks: Path | None,
    slice_type: str | None,
    stack: ExitStack,
) -> "Beside":
    """The planes beside the pictures: from the files named, and of the coding tree from a table or the VVC stream."""
    from codecnn.codec import STREAM_SUFFIXES, SUFFIXES, planes_of_stream, read_blocks
    from codecnn.filtering import planes_beside, stream_slice_types
    from codecnn.planes import REBUILT_PLANES, SLICE_TYPE_PLANE, TREE_PLANES
    from codecnn.video import open_like

    form, videos = video.format, {}
    is_vvc = source.suffix.lower() in SUFFIXES
    for item in planes:
        name, equals, file = item.partition("=")
        if not equals:
            raise ConfigError(f"--plane {item!r} is not NAME=FILE, such as unf_y=unfiltered.yuv")
        videos[name] = stack.enter_context(open_like(Path(file), form))
    table = None
    if blocks is not None:
        table = read_blocks(blocks)
    elif is_vvc and any(name in TREE_PLANES for name in filter_.planes):
        table = read_blocks(source)
    untold = [name for name in filter_.planes if name in REBUILT_PLANES and name not in videos]
    rebuilt = planes_of_stream(source, untold) if is_vvc and untold else None
    types = [slice_type] if slice_type else []
    if SLICE_TYPE_PLANE in filter_.planes and not types and source.suffix.lower() in STREAM_SUFFIXES:
        types = stream_slice_types(source, len(video))
    return planes_beside(filter_.planes, form, videos, table, rebuilt, types)


def _summary(counts: dict[str, Any]) -> dict[str, Any]:
    pictures = counts["pictures"]
    change = counts["rd_cost_after"] / counts["rd_cost_before"] - 1 if counts["rd_cost_before"] else 0.0
    return {
        "pictures": f"{pictures['off']} off, {pictures['on']} on, {pictures['ctu']} by CTU",
        "CTUs on": ", ".join(f"{name.upper()} {share:.1%}" for name, share in counts["ctus_on"].items()),
        "QP offsets": ", ".join(f"{offset}: {count}" for offset, count in counts["qp_offsets"].items()) or "none",
        "bits": counts["bits"],
        "RD cost": f"{change:+.3%}",
        "worth it": "yes" if counts["pays"] else "no: an encoder would leave the filter out of this sequence",
    }
