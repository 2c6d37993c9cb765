"""Networks of a view: filtered pictures, and the gain of each CTU and the decisions of an encoder on it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from codecnn.pictures.files import Picture
from codecnn.pictures.metrics import block_sums

if TYPE_CHECKING:
    from codecnn.filtering import NetworkFilter

Plane = npt.NDArray[Any]
Auxiliary = Callable[[tuple[str, ...]], Mapping[str, Plane]]
"""A function that returns the auxiliary planes of a picture by their names."""


@dataclass(frozen=True, eq=False)
class CtuValues:
    """Effect of a network on the CTUs of a picture; arrays of shape (CTU rows, CTU columns) by component (y, u, v).

    Attributes:
        gain: Gain in dB: 10·log10 of the squared error of the decoded picture over that of the filtered picture. NaN
            where one of them has no error.
        on: True where an encoder that knows the original uses the network at full strength or scaled.
        scale: Factor of the network's residual that the encoder signals.
    """

    gain: Mapping[str, npt.NDArray[np.float64]]
    on: Mapping[str, npt.NDArray[np.bool_]]
    scale: Mapping[str, float]


class Networks:
    """Networks by the name of their layer."""

    def __init__(self, models: Sequence[Path | str], device: str) -> None:
        """Load networks.

        Args:
            models: Weights.
            device: "auto", "cpu", "cuda" or "cuda:N".

        Raises:
            ModelError: A network cannot be loaded.
        """
        self._networks: dict[str, NetworkFilter] = {}
        if not models:
            return
        # Imported here because torch takes seconds to import.
        from codecnn.filtering import load_filter
        from codecnn.models import pick_device

        self._networks = {
            layer: load_filter(model, device=pick_device(device))
            for layer, model in zip(layer_names(len(models)), models, strict=True)
        }

    def apply(
        self, decoded: Picture, qp: int, auxiliary: Auxiliary, original: Picture | None, ctu: int
    ) -> tuple[dict[str, Picture], dict[str, CtuValues]]:
        """Filter a picture with each network.

        Args:
            decoded: The decoded picture.
            qp: QP of its slices.
            auxiliary: Source of auxiliary planes.
            original: The original picture, or None.
            ctu: CTU size in luma samples.

        Returns:
            Pictures by layer, and if there is an original the effect on the CTUs by layer.
        """
        if not self._networks:
            return {}, {}
        from codecnn.filtering import decide_picture, round_samples

        pictures, values = {}, {}
        for layer, network in self._networks.items():
            samples = network.samples(decoded, qp, auxiliary(network.planes))
            pictures[layer] = round_samples(decoded, samples)
            if original is not None:
                source, before = _comparable(original, decoded)
                known = {name: plane for name, plane in samples.items() if "yuv".index(name) < len(before.planes)}
                _, decision = decide_picture(source, before, {0: known}, qp=qp, ctu=ctu)
                gain = _gains(source, before, pictures[layer], ctu, tuple(decision.flags))
                values[layer] = CtuValues(gain, decision.flags, decision.scales)
        return pictures, values


def layer_names(count: int) -> tuple[str, ...]:
    """Return the names of the layers of `count` networks: filtered, filtered 2, ..."""
    return tuple(f"filtered {number}" if number > 1 else "filtered" for number in range(1, count + 1))


def network_titles(models: Sequence[Path | str]) -> dict[str, str]:
    """Return a title for the layer of each network: its name, with a number if two have the same."""
    names = [Path(model).name.removesuffix(".safetensors") for model in models]
    unique = [name if names.count(name) == 1 else f"{name} ({i})" for i, name in enumerate(names, 1)]
    return dict(zip(layer_names(len(models)), unique, strict=True))


def _comparable(original: Picture, decoded: Picture) -> tuple[Picture, Picture]:
    """Return both pictures in 4:2:0, or in luma only if one of them has no chroma or another chroma format."""
    height, width = decoded.y.shape
    half = (height + 1) // 2, (width + 1) // 2
    both = [picture.planes[1:] for picture in (original, decoded)]
    count = 3 if all(len(chroma) == 2 and chroma[0].shape == half for chroma in both) else 1
    return Picture(original.planes[:count], original.bit_depth), Picture(decoded.planes[:count], decoded.bit_depth)


def _gains(
    original: Picture, before: Picture, after: Picture, ctu: int, names: Sequence[str]
) -> dict[str, npt.NDArray[np.float64]]:
    height, width = before.y.shape
    gains = {}
    for name in names:
        source, first, second = (
            picture.planes["yuv".index(name)].astype(np.int64) for picture in (original, before, after)
        )
        # Chroma CTUs are smaller by the ratio of the planes.
        step_y, step_x = (ctu // round(full / part) for full, part in zip((height, width), first.shape, strict=True))
        grid = np.arange(0, first.shape[0], step_y), np.arange(0, first.shape[1], step_x)
        errors = [block_sums((source - each) ** 2, *grid).astype(np.float64) for each in (first, second)]
        ratio = np.full(errors[0].shape, np.nan)
        known = (errors[0] > 0) & (errors[1] > 0)
        ratio[known] = 10 * np.log10(errors[0][known] / errors[1][known])
        gains[name] = ratio
    return gains
