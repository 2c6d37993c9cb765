"""A teacher: larger networks whose filtered pictures a smaller one learns to make, before it learns from the originals.

The error that a codec leaves is mostly noise that no filter can tell: the mean gradient of a batch drowns in it. What a
trained network makes of the same picture has none of it (Hinton, Vinyals and Dean, "Distilling the Knowledge in a
Neural Network", 2015). Pictures are made once a store and kept in it, a file a unit.
"""

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from tqdm import tqdm

from codecnn.dataset import Unit
from codecnn.errors import ModelError
from codecnn.filtering import NetworkFilter, Precision, load_filter, unit_planes
from codecnn.models import weights_path
from codecnn.runs import sha256_file, sha256_json
from codecnn.training.distributed import gather, is_first, share
from codecnn.training.settings import TeacherSettings
from codecnn.video import Picture, create_video

FOLDER = "teachers"
SYMMETRIES = tuple(product((False, True), repeat=3))
"""Transposed, then flipped up-down, then left-right, or not."""

Plane = npt.NDArray[Any]


class Teacher:
    """The networks of `TeacherSettings`: what they make of a unit's pictures is the mean of what each makes.

    key      sha256 of all that decides the pictures, the units aside
    outputs  the components that any of the networks filters; what is made of one is the mean of those that filter it
             and are asked for it: those of `chroma`, where there are any, for U and V, and the others for luma

    Raises ModelError where one of `chroma` filters luma alone.
    """

    def __init__(self, settings: TeacherSettings, device: str | torch.device) -> None:
        asked = [(name, "y" if settings.chroma else "yuv") for name in settings.weights]
        asked += [(name, "uv") for name in settings.chroma]
        self._filters = [
            (_filter(name, components, settings.precision, device), components) for name, components in asked
        ]
        self._symmetries = SYMMETRIES if settings.symmetries else SYMMETRIES[:1]
        told: list[Any] = [[sha256_file(weights_path(name)) for name in settings.weights], settings.symmetries]
        if settings.chroma:
            told.append([sha256_file(weights_path(name)) for name in settings.chroma])
        if settings.precision != "float32":
            told.append(settings.precision)
        self.key = sha256_json(told)
        self.outputs = tuple(name for name in "yuv" if any(name in _made_by(*filter_) for filter_ in self._filters))

    def teach(self, units: Sequence[Unit]) -> list[Unit]:
        """The units with the teacher's pictures beside them; what is missing of these is made, each file whole or not.

        Every process of several must ask for the same units; each makes its share.
        """
        taught = [
            unit.model_copy(update={"teacher_file": f"{FOLDER}/{self.key[:16]}/{unit.key}.yuv"}) for unit in units
        ]
        shown = None if is_first() else True  # None: where there is a terminal
        for unit in tqdm(share(taught), desc="teacher", unit="unit", disable=shown):
            # Asked of each share by itself: what is missing of all of them changes while the others write.
            if not unit.path("teacher").is_file():
                self._write(unit)
        gather([])  # nobody reads before all are written
        return taught

    def _write(self, unit: Unit) -> None:
        path = unit.path("teacher")
        path.parent.mkdir(parents=True, exist_ok=True)
        with create_video(path, unit.format) as writer, unit.decoded() as decoded:
            for index, picture in enumerate(decoded):
                writer.write(self.picture(unit, index, picture))

    def picture(self, unit: Unit, index: int, decoded: Picture) -> Picture:
        """What the networks make of picture number `index` of a unit, rounded once to the samples' own bit depth.

        Components that none of them filters are the decoded ones.
        """
        made: dict[str, list[Plane]] = {name: [] for name in self.outputs}
        for (filter_, asked), symmetry in product(self._filters, self._symmetries):
            beside = unit_planes(unit, index, filter_.planes)
            turned = Picture(tuple(_turned(plane, symmetry) for plane in decoded.planes), decoded.bit_depth)
            samples = filter_.samples(
                turned, unit.pictures[index].qp, {name: _turned(plane, symmetry) for name, plane in beside.items()}
            )
            for name in _made_by(filter_, asked):
                made[name].append(_turned_back(samples[name], symmetry))
        limit = 2**decoded.bit_depth - 1
        mean = {name: np.clip(np.rint(np.mean(planes, axis=0)), 0, limit) for name, planes in made.items()}
        components = zip("yuv", decoded.planes, strict=False)
        return Picture(
            tuple(mean.get(name, plane).astype(plane.dtype) for name, plane in components), decoded.bit_depth
        )


def _filter(name: str, components: str, precision: Precision, device: str | torch.device) -> NetworkFilter:
    """A network that is to teach some of the components, of which it filters one at least."""
    filter_ = load_filter(name, precision=precision, device=device)
    if not _made_by(filter_, components):
        raise ModelError(f"the teacher {name} filters luma alone and cannot teach chroma")
    return filter_


def _made_by(filter_: NetworkFilter, components: str) -> list[str]:
    return [name for name in filter_.outputs if name in components]


def original_share(settings: TeacherSettings, step: int, steps: int, warmup: int) -> float:
    """The share α of the original in the target at a step, where the learning rate is that of before it.

    target = teacher + α (original - teacher), with α going from the first to the second value of `settings.original`
    as the learning rate goes from its peak to zero.
    """
    first, last = settings.original
    warmup = min(warmup, steps - 1)
    passed = max(step - warmup, 0) / (steps - warmup)
    return float(first + (last - first) * (1 - np.cos(np.pi * passed)) / 2)


def _turned(plane: Plane, symmetry: Sequence[bool]) -> Plane:
    transposed, down, across = symmetry
    plane = plane.T if transposed else plane
    return np.ascontiguousarray(plane[:: -1 if down else 1, :: -1 if across else 1])


def _turned_back(plane: Plane, symmetry: Sequence[bool]) -> Plane:
    transposed, down, across = symmetry
    plane = plane[:: -1 if down else 1, :: -1 if across else 1]
    return plane.T if transposed else plane
