"""The page itself: samples and CUs packed into one HTML file that works from a disk, offline."""

import base64
import hashlib
import json
import zlib
from dataclasses import astuple
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import numpy.typing as npt

from codecnn.runs import write_text
from codecnn.video import Picture
from codecnn.viewer._gather import Shown


def write_page(path: Path | str, shown: Shown) -> None:
    """Write the page of one picture: its only script is its own, and its policy allows nothing else."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    script = _resource("view.js")
    page = environment.from_string(_resource("view.html.j2")).render(
        shown=shown,
        style=_resource("view.css"),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        # A "</script>" in a file's name would end the element.
        data=json.dumps(_data(shown), separators=(",", ":")).replace("<", "\\u003c"),
    )
    write_text(path, page)


def _data(shown: Shown) -> dict[str, Any]:
    """What the script reads; planes that are equal are there once."""
    planes: dict[str, str] = {}
    names: dict[bytes, str] = {}

    def named(layer: str, component: str, plane: npt.NDArray[Any]) -> str:
        digest = hashlib.sha256(component.encode() + plane.tobytes()).digest()
        if digest not in names:
            names[digest] = f"{layer}_{component}"
            planes[names[digest]] = pack_plane(plane)
        return names[digest]

    def components(layer: str, picture: Picture) -> list[str]:
        return [named(layer, letter, plane) for letter, plane in zip("yuv", picture.planes, strict=False)]

    layers = {name: components(name, picture) for name, picture in shown.layers.items()}
    return {
        "width": shown.form.width,
        "height": shown.form.height,
        "bitDepth": shown.form.bit_depth,
        "sizes": [[width, height] for height, width in shown.form.plane_shapes],
        "ctu": shown.ctu_size,
        "layers": layers,
        "planes": planes,
        "modes": [astuple(mode) for mode in shown.blocks.modes],
        "tools": shown.blocks.tools,
        "blocks": _packed(shown.blocks.rows.astype("<i2").tobytes()),
    }


def pack_plane(plane: npt.NDArray[Any]) -> str:
    """Samples (h, w) without loss: what a median predictor leaves, sign in the lowest bit, low bytes before high ones.

    The predictor is that of JPEG-LS (ITU-T T.87, A.3), of zeros outside of the plane; view.js undoes it.
    """
    samples = np.pad(plane.astype(np.int32), ((1, 0), (1, 0)))
    left, above, corner = samples[1:, :-1], samples[:-1, 1:], samples[:-1, :-1]
    guess = np.clip(left + above - corner, np.minimum(left, above), np.maximum(left, above))
    error = samples[1:, 1:] - guess
    folded = np.where(error < 0, -2 * error - 1, 2 * error).astype("<u4")
    return _packed((folded & 255).astype(np.uint8).tobytes() + (folded >> 8).astype("<u2").tobytes())


def _packed(content: bytes) -> str:
    return base64.b64encode(zlib.compress(content, 6)).decode()


def _resource(name: str) -> str:
    return resources.files("codecnn.viewer").joinpath(name).read_text(encoding="utf-8")
