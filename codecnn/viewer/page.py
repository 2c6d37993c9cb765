"""The HTML page of a view: pictures, CUs and facts packed into one file that works offline."""

import base64
import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import numpy.typing as npt

from codecnn.base.files import atomic_path
from codecnn.viewer.filters import CtuValues
from codecnn.viewer.packing import as_text, deflate, pack_integers, pack_plane, pack_similar, thumbnail
from codecnn.viewer.shown import DECODED, ORIGINAL, PREDICTION, UNFILTERED, Shown

_SCRIPTS = ("samples.js", "painting.js", "overlays.js", "values.js", "timeline.js", "controls.js")
"""Parts of the script of the page, in their order."""

_REFERENCE_LAYERS = {PREDICTION: UNFILTERED, UNFILTERED: DECODED, ORIGINAL: DECODED}
"""Layer from which a layer may be predicted; that of the others is the decoded picture."""

LARGE_PAGE = 60_000_000
"""Size of a page in bytes above which a note names the ways to a smaller one."""


@dataclass(frozen=True)
class Viewed:
    """Summary of a written page.

    Attributes:
        page: The HTML file.
        title: Title of the page.
        pictures: Number of pictures.
        layers: Names of the layers.
        units: Number of CUs of all pictures.
        bytes: Size of the file.
        notes: Sentences on what is missing and why.
    """

    page: Path
    title: str
    pictures: int
    layers: tuple[str, ...]
    units: int
    bytes: int
    notes: tuple[str, ...]


class _Chunks:
    """Compressed data of the page, which the browser reads piece by piece."""

    def __init__(self) -> None:
        self.contents: list[bytes] = []

    def add(self, content: bytes) -> int:
        """Append a chunk and return its number."""
        self.contents.append(content)
        return len(self.contents) - 1


@dataclass(frozen=True)
class Page:
    """A page in memory.

    Attributes:
        title: Title with the numbers of the pictures.
        data: Facts of the pictures for the script.
        chunks: Compressed samples and arrays.
        units: Number of CUs of all pictures.
        notes: Sentences on what is missing and why.
    """

    title: str
    data: Mapping[str, Any]
    chunks: Sequence[bytes]
    units: int
    notes: tuple[str, ...]

    @staticmethod
    def of(title: str, pictures: Iterable[Shown]) -> "Page":
        """Collect a page; one picture at a time is in memory without compression."""
        chunks = _Chunks()
        summaries: list[dict[str, Any]] = []
        notes: list[str] = []
        layers: dict[str, str] = {}
        limits: dict[str, list[float]] = {}
        units = 0
        for shown in pictures:
            summaries.append(_summary(shown, chunks))
            layers |= {name: shown.titles.get(name, name) for name in shown.layers}
            notes += [note for note in shown.notes if note not in notes]
            units += len(shown.blocks)
            _widen(limits, shown)
        numbers = [summary["number"] for summary in summaries]
        title += f", picture {numbers[0]}" if len(numbers) == 1 else f", pictures {numbers[0]} to {numbers[-1]}"
        data = {"title": title, "layers": _ordered(layers), "pictures": summaries, "limits": limits}
        return Page(title, data, chunks.contents, units, tuple(notes))

    def html(self, served: bool) -> Iterator[bytes]:
        """Return the page in parts, in windows-1252; a served page fetches its chunks from chunk/NUMBER."""
        # What this encoding lacks is escaped: by JavaScript in the script, by references in the text.
        script = "\n".join(_resource(name) for name in _SCRIPTS).encode("ascii", "backslashreplace").decode()
        environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
        parts = environment.from_string(_resource("view.html.j2")).generate(
            title=self.title,
            style=_resource("view.css"),
            script=script,
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            # The text "</script>" in a file name would end the element.
            data=json.dumps(self.data, separators=(",", ":")).replace("<", "\\u003c"),
            chunks=() if served else (as_text(chunk).decode("latin-1") for chunk in self.chunks),
            served=served,
        )
        for part in parts:
            yield part.encode("latin-1", "xmlcharrefreplace")

    def write(self, path: Path) -> Viewed:
        """Write the page with its chunks into a file."""
        with atomic_path(path) as part, part.open("wb") as file:
            file.writelines(self.html(served=False))
        count, layers, size = len(self.data["pictures"]), tuple(self.data["layers"]), path.stat().st_size
        notes = self.notes
        if size > LARGE_PAGE:
            notes += (
                f"{path} has {size / 1e6:.0f} MB: take fewer pictures with -f, or let --serve show them one by one",
            )
        return Viewed(path, self.title, count, layers, self.units, size, notes)


def _ordered(layers: Mapping[str, str]) -> dict[str, str]:
    order = dict.fromkeys((ORIGINAL, PREDICTION, UNFILTERED, DECODED, *layers))
    return {name: layers[name] for name in order if name in layers}


def _summary(shown: Shown, chunks: _Chunks) -> dict[str, Any]:
    """Return the facts of a picture for the page, and add its data to `chunks`."""
    header, form = shown.header, shown.form
    height, width = shown.layers[DECODED].y.shape
    return {
        "number": header.number,
        "poc": header.poc,
        "type": header.slice_type,
        "qps": sorted(set(header.slice_qps)),
        "temporal": header.temporal_id,
        "bits": header.bits,
        "hash": header.hash,
        "width": width,
        "height": height,
        "bitDepth": form.bit_depth,
        "format": str(form),
        "sizes": [plane.shape[::-1] for plane in shown.layers[DECODED].planes],
        "cus": len(shown.blocks),
        "ctu": shown.coding.ctu_size,
        "offset": shown.coding.offset,
        # JSON has no infinity: null is the PSNR of a picture without error.
        "psnr": {
            name: [None if math.isinf(value) else round(value, 4) for value in values]
            for name, values in shown.psnr.items()
        },
        "notes": shown.notes,
        "layers": _planes(shown, chunks),
        "detail": _detail(shown, chunks),
        "thumbnail": thumbnail(shown.layers[DECODED]),
    }


def _planes(shown: Shown, chunks: _Chunks) -> dict[str, list[dict[str, Any]]]:
    """Compress the planes; a layer whose plane is that of another one refers to it."""
    # A layer follows the one it may be predicted from.
    order = [DECODED, *(name for name in (UNFILTERED, PREDICTION, ORIGINAL) if name in shown.layers)]
    order += [name for name in shown.layers if name not in order]
    layers: dict[str, list[dict[str, Any]]] = {}
    for name in order:
        base = shown.layers.get(_REFERENCE_LAYERS.get(name, DECODED), shown.layers[DECODED])
        base_name = next(key for key, picture in shown.layers.items() if picture is base)
        layers[name] = []
        for component, plane in enumerate(shown.layers[name].planes):
            if name == DECODED:
                layers[name].append({"chunk": chunks.add(pack_plane(plane)), "shift": 0})
                continue
            like = base.planes[component]
            if np.array_equal(plane, like):
                layers[name].append({"like": base_name})
                continue
            content, uses_like, shift = pack_similar(plane, like)
            source = {"chunk": chunks.add(content), "shift": shift}
            layers[name].append(source | {"like": base_name} if uses_like else source)
    return layers


def _detail(shown: Shown, chunks: _Chunks) -> dict[str, Any]:
    """Compress the coding of the blocks: numbers of chunks by their content, with the shapes of the arrays."""
    coding, blocks = shown.coding, shown.blocks
    texts = {
        "modes": [astuple(mode) for mode in blocks.modes],
        "tools": blocks.tools,
        "bits": None if coding.ctu_bits is None else coding.ctu_bits.ravel().tolist(),
        "networks": {name: _ctu_values(values) for name, values in shown.ctus.items()},
    }
    arrays: dict[str, npt.NDArray[Any] | None] = {
        "blocks": blocks.rows.T,
        "transforms": None if coding.transforms is None else coding.transforms.T,
        "vectors": None if coding.vectors is None else np.moveaxis(coding.vectors, -1, 1),
        "references": coding.references,
        "strengths": coding.strengths,
    }
    detail: dict[str, Any] = {
        "text": chunks.add(deflate(json.dumps(texts, separators=(",", ":")).encode())),
        "arrays": {
            name: {"chunk": chunks.add(pack_integers(array)), "shape": array.shape}
            for name, array in arrays.items()
            if array is not None
        },
    }
    return detail


def _ctu_values(values: CtuValues) -> dict[str, Any]:
    return {
        "gain": {
            name: [None if math.isnan(value) else round(value, 3) for value in gain.ravel().tolist()]
            for name, gain in values.gain.items()
        },
        "on": {name: on.ravel().astype(int).tolist() for name, on in values.on.items()},
        "scale": dict(values.scale),
    }


_LARGEST_GAIN = 2.0
"""Largest gain of a CTU in dB that colours tell apart; a CTU without much error can gain far more."""


def _widen(limits: dict[str, list[float]], shown: Shown) -> None:
    """Extend the ranges of values, which give the colours of all pictures, by those of a picture."""
    rows = shown.blocks.rows
    values: dict[str, npt.NDArray[Any]] = {"QP": rows[:, 7], "depth": rows[:, 5] + rows[:, 6]}
    if shown.coding.ctu_bits is not None:
        values["bits"] = shown.coding.ctu_bits
    gains = [np.abs(gain).ravel() for network in shown.ctus.values() for gain in network.gain.values()]
    if gains:
        known = np.concatenate(gains)
        values["gain"] = np.minimum(known[np.isfinite(known)], _LARGEST_GAIN)
    for name, each in values.items():
        if each.size:
            low, high = limits.get(name, [math.inf, -math.inf])
            limits[name] = [min(low, round(float(each.min()), 2)), max(high, round(float(each.max()), 2))]


def _resource(name: str) -> str:
    return resources.files("codecnn.viewer").joinpath("web", name).read_text(encoding="utf-8")
