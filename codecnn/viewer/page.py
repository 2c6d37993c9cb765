"""The HTML page of a view: samples and CUs packed into one file that works offline."""

import base64
import hashlib
import json
import zlib
from dataclasses import astuple, dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import numpy.typing as npt

from codecnn.dataset import Unit, open_store
from codecnn.errors import ConfigError
from codecnn.runs import write_text
from codecnn.video import Picture
from codecnn.viewer.layers import Shown, shown_stream, shown_unit


@dataclass(frozen=True)
class Viewed:
    """Summary of a written page.

    Attributes:
        page: The HTML file.
        title: Title of the page.
        layers: Names of the layers.
        units: Number of CUs.
        bytes: Size of the file.
        notes: Sentences on what is missing and why.
    """

    page: Path
    title: str
    layers: tuple[str, ...]
    units: int
    bytes: int
    notes: tuple[str, ...]


def view(
    source: Path | str,
    output: Path | str,
    *,
    model: Path | str | None = None,
    original: Path | str | None = None,
    picture: int = 0,
    sequence: str | None = None,
    qp: int | None = None,
    device: str = "auto",
) -> Viewed:
    """Write an HTML page that shows one picture of a VVC stream or of a store.

    The page shows the layers of the picture, the CUs over them, and the values of the samples. It needs no other file.

    Args:
        source: VVC stream, also in a container, or folder of a store.
        output: Page to write, .html.
        model: Weights for a layer with the filtered picture.
        original: Original pictures of a stream, for layers with the coding error; a store holds its originals.
        picture: Number of the picture in output order, from 0.
        sequence: Sequence of a store; None takes the first unit that fits.
        qp: QP of a store's unit; None takes the first unit that fits.
        device: "auto", "cpu", "cuda" or "cuda:N".

    Returns:
        A summary of the page.

    Raises:
        ConfigError: The options do not fit together, or there is no such picture.
        MissingFileError: A file does not exist.
        FormatError: A file does not have the expected format.
        ModelError: The network cannot be loaded.
    """
    source, output = Path(source), Path(output)
    if output.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"{output} is written as an HTML page: end its name in .html")
    if not source.is_dir():
        if sequence is not None or qp is not None:
            raise ConfigError(f"{source} is a stream: leave out --sequence and -q, which choose a unit of a store")
        shown = shown_stream(source, picture, original=original, model=model, device=device)
    else:
        if original is not None:
            raise ConfigError(f"{source} is a store, which holds the originals of its pictures: leave out --original")
        unit = _find_unit(source, sequence, qp)
        shown = shown_unit(unit, picture, model=model, device=device)
    write_page(output, shown)
    return Viewed(output, shown.title, tuple(shown.layers), len(shown.blocks), output.stat().st_size, shown.notes)


def _find_unit(folder: Path, sequence: str | None, qp: int | None) -> Unit:
    """Return the first unit of a store with the given sequence and QP."""
    units = open_store(folder).units
    for unit in units:
        if sequence in (None, unit.name) and qp in (None, unit.qp):
            return unit
    names = list(dict.fromkeys(unit.name for unit in units))
    if sequence is not None and sequence not in names:
        more = ", ..." if len(names) > 5 else ""
        raise ConfigError(f"store {folder} has no sequence {sequence!r}: it has {', '.join(names[:5])}{more}")
    qps = sorted({unit.qp for unit in units if sequence in (None, unit.name)})
    raise ConfigError(f"store {folder} has no unit at QP {qp}: it has {', '.join(map(str, qps))}")


def write_page(path: Path | str, shown: Shown) -> None:
    """Write the HTML page of a view; its security policy allows no script but that of the page."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    script = _resource("view.js")
    page = environment.from_string(_resource("view.html.j2")).render(
        shown=shown,
        style=_resource("view.css"),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        # The text "</script>" in a file name would end the element.
        data=json.dumps(_data(shown), separators=(",", ":")).replace("<", "\\u003c"),
    )
    write_text(path, page)


def _data(shown: Shown) -> dict[str, Any]:
    """Return the data for the script; equal planes are stored once."""
    planes: dict[str, str] = {}
    names: dict[bytes, str] = {}

    def plane_name(layer: str, component: str, plane: npt.NDArray[Any]) -> str:
        digest = hashlib.sha256(component.encode() + plane.tobytes()).digest()
        if digest not in names:
            names[digest] = f"{layer}_{component}"
            planes[names[digest]] = pack_plane(plane)
        return names[digest]

    def components(layer: str, picture: Picture) -> list[str]:
        return [plane_name(layer, letter, plane) for letter, plane in zip("yuv", picture.planes, strict=False)]

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
    """Compress a plane without loss; view.js decompresses it.

    The samples are predicted by the median predictor of JPEG-LS (ITU-T T.87, A.3) with zeros outside of the plane. The
    prediction errors are mapped to unsigned numbers with the sign in the lowest bit, and all low bytes are stored
    before the high ones.

    Args:
        plane: Samples, shape (h, w), unsigned integers of at most 16 bits.

    Returns:
        Base64 of the deflated bytes.
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
