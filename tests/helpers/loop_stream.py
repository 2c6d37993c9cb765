"""The stream of tests/data/loop: a clip coded with a small network in the loop, by decisions that cover the syntax.

The network has weights from formulas, so that it restores nothing; the stream serves to compare decoders.
"""

import hashlib
from pathlib import Path

import numpy as np

from codecnn.base.division import ceil_div
from codecnn.codec import CodecSettings
from codecnn.filtering import Filtered, load_filter, slice_type_plane
from codecnn.filtering.decisions import SignalledDecision, apply_decision
from codecnn.filtering.integer import save_integer
from codecnn.pictures.files import Picture, VideoFormat, open_raw
from codecnn.signalling.in_loop import MessageWriter, code_in_loop, loop_parameters
from tests.helpers.golden import sources
from tests.helpers.integer_zoo import formula_eight

FORMAT = VideoFormat(200, 136, "420", 8, 30)
PICTURES, CTU_SIZE, QP = 5, 64, 37
PLANES = ["rec_y", "rec_u", "rec_v", "qp", "slice_type"]
BEHIND = (1, 4)
"""Pictures that are filtered behind the loop."""


def loop_clip(folder: Path) -> Path:
    """Write five pictures of 200x136 of the clip of `sources`."""
    clip = np.frombuffer(sources()["clip_416x240_17f_8b420"], np.uint8).reshape(17, -1)
    path = folder / "clip_200x136_30.yuv"
    with path.open("wb") as file:
        for picture in clip[:PICTURES]:
            at = 0
            for step in (1, 2, 2):
                width, height = 416 // step, 240 // step
                plane = picture[at : at + width * height].reshape(height, width)
                file.write(plane[40 // step : 176 // step, 40 // step : 240 // step].tobytes())
                at += width * height
    return path


def loop_decisions() -> list[SignalledDecision]:
    """Return a decision for each picture: all modes, whole and partial scales, all QP offsets."""
    rows, columns = ceil_div(FORMAT.height, CTU_SIZE), ceil_div(FORMAT.width, CTU_SIZE)
    chessboard = np.add.outer(np.arange(rows), np.arange(columns)) % 2 == 0
    edge = np.zeros((rows, columns), bool)
    edge[-1], edge[:, -1] = True, True
    full, empty = np.ones_like(edge), np.zeros_like(edge)
    kinds = {"off": empty, "on": full, "edge": edge, "chessboard": chessboard}
    table = [
        (("on", "on", "on"), (128, 48, 256), 0),
        (("edge", "off", "chessboard"), (256, 256, 64), -5),
        (("off", "off", "off"), (256, 256, 256), 0),
        (("chessboard", "edge", "off"), (16, 96, 256), 5),
        (("off", "on", "edge"), (256, 16, 320), 0),
    ]
    decisions = []
    for names, scales, offset in table:
        modes = [name if name in ("off", "on") else "ctu" for name in names]
        decisions.append(
            SignalledDecision(
                dict(zip("yuv", modes, strict=True)),
                {component: kinds[name] for component, name in zip("yuv", names, strict=True)},
                {component: scale / 256 for component, scale in zip("yuv", scales, strict=True)},
                offset,
            )
        )
    return decisions


def write_loop_network(folder: Path) -> Path:
    """Write the network: `low_cost_yuv_17` with 8 features and 1 block, 8-bit integers, weights from formulas."""
    options = {"features": 8, "blocks": 1, "expansion": 2, "planes": PLANES}
    path = folder / "small.int8.safetensors"
    save_integer(path, formula_eight("low_cost_yuv_17", options), {"network": "low_cost_yuv_17"})
    return path


def code_loop_stream(library, weights: Path, folder: Path) -> None:
    """Code loop.266, and write the MD5 of the pictures that the encoder outputs into loop.md5."""
    filter_ = load_filter(weights)
    parameters = loop_parameters(filter_, filter_.card.sha256, "full", CTU_SIZE, "by_picture")
    messages = MessageWriter(parameters, picture_hashes=True)
    decisions, digest = loop_decisions(), hashlib.md5()

    def filter_picture(coded, decoded: Picture) -> Picture:
        decision = decisions[coded.poc]
        planes = slice_type_plane(filter_.planes, coded.slice_type, FORMAT)
        samples = filter_.samples(decoded, coded.qp + decision.qp_offset, planes)
        picture = apply_decision(decoded, samples, decision, CTU_SIZE)
        behind = decoded if coded.poc in BEHIND else None
        filtered = Filtered(picture, picture, 0.0, decision)
        messages.put(filtered, coded.slice_type, coded.qp, behind)
        for plane in picture.planes:
            digest.update(plane.astype("<u2").tobytes())
        return picture if behind is None else behind

    settings = CodecSettings(qp=QP, preset="faster", configuration="ldb", ctu_size=128)
    with open_raw(loop_clip(folder), FORMAT) as video:
        code_in_loop(library, video, FORMAT, settings, folder / "loop.266", filter_picture, None, messages.add)
    (folder / "loop.md5").write_text(f"{digest.hexdigest()}\n")
