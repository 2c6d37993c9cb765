"""Any function of a picture as a `PictureFilter`."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from codecnn.base.errors import ConfigError, ModelError
from codecnn.filtering.planes import NO_PLANES, Planes, check_slice_qp, components, round_samples
from codecnn.models.graph import Array
from codecnn.pictures.files import Picture


class FunctionFilter:
    """A filter that calls a function of the user for every picture.

    Args:
        function: Takes a `Picture`, and the slice QP if it has a parameter `qp`. Returns a `Picture` of the same size
            and bit depth, or luma alone, shape (h, w). Samples may be floats; they are rounded and clipped.
        key: Text that stands for all that decides the samples, if `codecnn.base.fingerprint` cannot hash the function;
            another function, or another state of it, must have another key.

    Raises:
        ConfigError: The function needs other arguments.
    """

    planes = ("rec_y", "rec_u", "rec_v", "qp")
    outputs = ("y", "u", "v")

    def __init__(self, function: Callable[..., Any], *, key: str | None = None) -> None:
        self.function = function
        self.name = function_name(function)
        self.key = None if key is None else f"{self.name}: {key}"
        try:
            parameters = inspect.signature(function).parameters
        except (TypeError, ValueError):  # written in C
            parameters = {}  # type: ignore[assignment]
        self._takes_qp = "qp" in parameters
        needed = [
            name
            for name, parameter in list(parameters.items())[1:]
            if parameter.default is parameter.empty
            and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        ]
        if unknown := [name for name in needed if name != "qp"]:
            raise ConfigError(
                f"{self.name} needs the argument {unknown[0]!r}: a filter takes a picture, and its slice QP as qp"
            )

    def samples(self, picture: Picture, qp: int, beside: Planes = NO_PLANES) -> dict[str, Array]:
        """Call the function and return its planes by component; see `PictureFilter.samples`."""
        check_slice_qp(qp, picture.bit_depth)
        # A copy, so that a function that works in place does not change the decoded picture it is compared with.
        copied = Picture(tuple(np.array(plane) for plane in picture.planes), picture.bit_depth)
        filtered = self.function(copied, qp=qp) if self._takes_qp else self.function(copied)
        if isinstance(filtered, np.ndarray):
            filtered = Picture((filtered, *picture.planes[1:]), picture.bit_depth)
        expected, got = _geometry(picture), _geometry(filtered)
        if expected != got:
            raise ModelError(f"{self.name} returns {got} for {expected}: return a picture of the same size and depth")
        return components(filtered)

    def __call__(self, picture: Picture, qp: int, beside: Planes = NO_PLANES) -> Picture:
        """Filter a picture; see `PictureFilter`."""
        return round_samples(picture, self.samples(picture, qp, beside))


def function_name(function: Any) -> str:
    """Return the name of a function, or of the class of an object."""
    return str(getattr(function, "__name__", None) or type(function).__name__)


def _geometry(picture: Any) -> str:
    if not isinstance(picture, Picture):
        return type(picture).__name__
    sizes = " ".join("x".join(map(str, plane.shape[::-1])) for plane in picture.planes)
    return f"planes {sizes} of {picture.bit_depth} bits"
