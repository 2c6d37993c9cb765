"""Distillation: larger networks filter the training pictures, and the network learns from these before the originals.

Most of the coding error is noise that no filter can predict, and it dominates the gradient of a batch. The pictures of
a trained network have no such noise (Hinton, Vinyals and Dean, "Distilling the Knowledge in a Neural Network", 2015).
The pictures of a teacher are computed once per store and kept in it, one file per unit.
"""

import math
import sys
import time
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from tqdm import tqdm

from codecnn.base.errors import ModelError
from codecnn.base.files import sha256_json
from codecnn.dataset import Unit
from codecnn.filtering import NetworkFilter, Precision, filter_key, load_filter, unit_planes
from codecnn.pictures.files import Picture, create_video
from codecnn.training.distributed import gather, is_first, share
from codecnn.training.monitor import SECONDS_PER_LINE
from codecnn.training.settings import TeacherSettings

FOLDER = "teachers"
"""Folder of a store that holds the pictures of teachers."""
SYMMETRIES = tuple(product((False, True), repeat=3))
"""Transposes and flips: whether to transpose, then to flip up-down, then left-right."""

Plane = npt.NDArray[Any]


class Teacher:
    """One or several networks whose mean filtered pictures are training targets.

    Attributes:
        key: sha256 of everything that determines the pictures, apart from the units.
        outputs: Components that any of the networks filters. A component is the mean over the networks that filter it
            and teach it: those of the setting `chroma`, if any, teach U and V, and the others luma.
    """

    def __init__(self, settings: TeacherSettings, device: str | torch.device) -> None:
        """Load the networks.

        Args:
            settings: Names of the networks and how they filter.
            device: Device to filter on.

        Raises:
            ModelError: A network of `chroma` filters luma only.
        """
        taught = [(name, "y" if settings.chroma else "yuv") for name in settings.weights]
        taught += [(name, "uv") for name in settings.chroma]
        self._filters = [
            (_load_teacher(name, components, settings.precision, device), components) for name, components in taught
        ]
        self._symmetries = SYMMETRIES if settings.symmetries else SYMMETRIES[:1]
        keys = [[filter_key(filter_), components] for filter_, components in self._filters]
        self.key = sha256_json([keys, settings.symmetries])
        self.outputs = tuple(name for name in "yuv" if any(name in _taught_by(*filter_) for filter_ in self._filters))

    def teach(self, units: Sequence[Unit]) -> list[Unit]:
        """Return the units with the pictures of the teacher attached; missing pictures are computed.

        Each file is complete or absent. Every process of several must pass the same units and computes its share.
        """
        taught = [
            unit.model_copy(update={"teacher_file": f"{FOLDER}/{self.key[:16]}/{unit.key}.yuv"}) for unit in units
        ]
        disable = None if is_first() else True  # None: shown on a terminal only
        missing = [unit for unit in share(taught) if not unit.path("teacher").is_file()]
        last = -math.inf
        for number, unit in enumerate(tqdm(missing, desc="teacher", unit="unit", disable=disable)):
            if is_first() and not sys.stderr.isatty() and time.monotonic() - last >= SECONDS_PER_LINE:
                tqdm.write(f"teacher: {number} of {len(missing)} units are filtered", file=sys.stderr)
                last = time.monotonic()
            # Checked again: other processes write too.
            if not unit.path("teacher").is_file():
                self._write(unit)
        gather([])  # no process reads before all files are written
        return taught

    def _write(self, unit: Unit) -> None:
        path = unit.path("teacher")
        path.parent.mkdir(parents=True, exist_ok=True)
        with create_video(path, unit.format) as writer, unit.decoded() as decoded:
            for index, picture in enumerate(decoded):
                writer.write(self.picture(unit, index, picture))

    def picture(self, unit: Unit, index: int, decoded: Picture) -> Picture:
        """Filter picture number `index` of a unit and round the mean of the networks once, to the original bit depth.

        Components that no network filters are the decoded ones.

        Args:
            unit: The unit.
            index: Number of the picture in the unit.
            decoded: The decoded picture.
        """
        filtered: dict[str, list[Plane]] = {name: [] for name in self.outputs}
        for (filter_, components), symmetry in product(self._filters, self._symmetries):
            planes = unit_planes(unit, index, filter_.planes)
            transformed = Picture(tuple(_transform(plane, symmetry) for plane in decoded.planes), decoded.bit_depth)
            samples = filter_.samples(
                transformed,
                unit.pictures[index].qp_for_networks,
                {name: _transform(plane, symmetry) for name, plane in planes.items()},
            )
            for name in _taught_by(filter_, components):
                filtered[name].append(_transform_back(samples[name], symmetry))
        limit = 2**decoded.bit_depth - 1
        mean = {name: np.clip(np.rint(np.mean(samples, axis=0)), 0, limit) for name, samples in filtered.items()}
        named_planes = zip("yuv", decoded.planes, strict=False)
        return Picture(
            tuple(mean.get(name, plane).astype(plane.dtype) for name, plane in named_planes), decoded.bit_depth
        )


def _load_teacher(name: str, components: str, precision: Precision, device: str | torch.device) -> NetworkFilter:
    """Load a network that teaches some of the components, at least one of which it filters."""
    filter_ = load_filter(name, precision=precision, device=device)
    if not _taught_by(filter_, components):
        raise ModelError(
            f"the teacher {name} filters luma only and cannot teach chroma: remove it from training.teacher.chroma"
        )
    return filter_


def _taught_by(filter_: NetworkFilter, components: str) -> list[str]:
    """Return those of the components that a network filters."""
    return [name for name in filter_.outputs if name in components]


def original_share(settings: TeacherSettings, step: int, steps: int, warmup: int) -> float:
    """Return the share α of the original in the training target at a step.

    target = teacher + α (original - teacher). α goes from the first to the second value of `settings.original` as the
    learning rate, at that step, goes from its peak to zero.

    Args:
        settings: Settings of the teacher.
        step: Number of the step; the first is 0.
        steps: Steps of the run.
        warmup: Steps of the warm-up.
    """
    first, last = settings.original
    warmup = min(warmup, steps - 1)
    passed = max(step - warmup, 0) / (steps - warmup)
    return float(first + (last - first) * (1 - np.cos(np.pi * passed)) / 2)


def _transform(plane: Plane, symmetry: Sequence[bool]) -> Plane:
    transposed, down, across = symmetry
    plane = plane.T if transposed else plane
    return np.ascontiguousarray(plane[:: -1 if down else 1, :: -1 if across else 1])


def _transform_back(plane: Plane, symmetry: Sequence[bool]) -> Plane:
    transposed, down, across = symmetry
    plane = plane[:: -1 if down else 1, :: -1 if across else 1]
    return plane.T if transposed else plane
