"""Variants of a source: the same pictures as other cameras, downscalers and tools would have left them.

A network learns what all its pictures have in common, a downscaler among it. What is drawn for a variant depends on the
recipe's seed, the source's name and the variant's number, each operation apart from the others: other sources, their
order, and operations that are added or taken away change nothing.
"""

import hashlib
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from codecnn.dataset.records import Variant
from codecnn.video import Picture, VideoFormat

Kernel = Literal["area", "bilinear", "bicubic", "lanczos"]
Real = npt.NDArray[np.float64]

SMALLEST = 128
"""Samples a side that no variant is scaled below: a CTU."""

_SHARPENED = 1.0
"""Sigma of the Gaussian whose difference sharpening adds, in luma samples: unsharp masking as cameras do it."""


class Drawn(BaseModel):
    """What a variant draws evenly from a range, with the probability `share`; else it is left as it is."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    range: tuple[float, float]
    share: float = Field(default=1, ge=0, le=1)


def _range(low: float, high: float) -> Any:
    """The type of a `Drawn`, or its range alone, within `low` to `high`."""

    def check(drawn: Drawn) -> Drawn:
        first, last = drawn.range
        if not low <= first <= last <= high:
            raise ValueError(f"the range {first:g} to {last:g} does not rise within {low:g} to {high:g}")
        return drawn

    as_record = BeforeValidator(lambda value: {"range": value} if isinstance(value, list | tuple) else value)
    return Annotated[Drawn | None, AfterValidator(lambda drawn: drawn and check(drawn)), as_record]


class VariantsSpec(BaseModel):
    """How many variants each source has, and what is drawn for them; what is not named is left as it is."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    count: int = Field(default=1, ge=0, description="variants beside the source itself")
    scale: _range(0.05, 1) = Field(default=None, description="of width and height, never below 128 samples a side")  # type: ignore[valid-type]
    kernels: list[Kernel] = Field(default=["area", "bilinear", "bicubic", "lanczos"], min_length=1)
    linear_light: float = Field(default=0, ge=0, le=1, description="probability; stills only")
    blur: _range(0, 5) = Field(default=None, description="sigma of a Gaussian, in luma samples")  # type: ignore[valid-type]
    sharpen: _range(0, 5) = Field(default=None, description="amount of unsharp masking of luma")  # type: ignore[valid-type]
    contrast: _range(0.1, 5) = Field(default=None, description="factor about the middle grey")  # type: ignore[valid-type]
    gamma: _range(0.1, 5) = Field(default=None, description="exponent of R'G'B' in 0 to 1; stills only")  # type: ignore[valid-type]
    full_range: float | None = Field(default=None, ge=0, le=1, description="probability; stills only")

    def draw(self, seed: int, name: str, number: int, *, still: bool) -> Variant:
        """Variant `number` of the source `name`. Y'CbCr has no known light or range, so only a `still` draws those."""

        def chance(what: str) -> float:
            return uniform(seed, name, number, what)

        found: dict[str, Any] = {"number": number}
        for what in ("scale", "blur", "sharpen", "contrast", *(("gamma",) if still else ())):
            drawn: Drawn | None = getattr(self, what)
            if drawn is not None and chance(f"{what} at all") < drawn.share:
                first, last = drawn.range
                found[what] = round(first + (last - first) * chance(what), 4)
        if "scale" in found:
            found["kernel"] = self.kernels[int(chance("kernel") * len(self.kernels))]
            if still:
                found["linear_light"] = chance("linear_light") < self.linear_light
        if still and self.full_range is not None:
            found["full_range"] = chance("full_range") < self.full_range
        return Variant(**found)


def uniform(seed: int, *what: str | int) -> float:
    """A number in [0, 1) that hangs on `seed` and `what` alone, the same with every version of every library."""
    digest = hashlib.sha256("\0".join(map(str, (seed, *what))).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def fitted(variant: Variant, width: int, height: int) -> Variant:
    """The variant with the scale that a picture of this size has: never below SMALLEST samples a side."""
    if variant.scale == 1:
        return variant
    scale = min(max(variant.scale, SMALLEST / min(width, height)), 1.0)
    return variant.model_copy(update={"scale": scale})


def vary_rgb(samples: npt.NDArray[Any], variant: Variant) -> npt.NDArray[np.uint16]:
    """R'G'B' (h, w, 3), or grey (h, w), of all of their type's range, as `variant` has them, in 16 bit."""
    colours = samples.astype(np.float64).reshape(*samples.shape[:2], -1) / np.iinfo(samples.dtype).max
    shape = _scaled(samples.shape[0], variant.scale), _scaled(samples.shape[1], variant.scale)
    planes = []
    for plane in np.moveaxis(colours, 2, 0):
        if shape != plane.shape:
            light = _linear(plane) if variant.linear_light else plane
            small = np.clip(_resized(light, shape, variant.kernel), 0, 1)
            plane = _gamma_coded(small) if variant.linear_light else small
        plane = _sharpened(_blurred(plane, variant.blur, (1, 1)), variant.sharpen)
        # A negative number has no power.
        plane = np.clip((plane - 0.5) * variant.contrast + 0.5, 0, 1) ** variant.gamma
        planes.append(np.rint(plane * 65535).astype(np.uint16))
    return planes[0] if samples.ndim == 2 else np.stack(planes, axis=2)


def vary_picture(picture: Picture, chroma: str, variant: Variant) -> Picture:
    """A Y'CbCr picture as `variant` has it, plane by plane: all are resized and blurred, luma alone is sharpened.

    Contrast is a factor of the differences to 2^(b-1), of luma and of chroma alike, as it would be one of R'G'B'.
    """
    height, width = picture.y.shape
    form = VideoFormat(_scaled(width, variant.scale), _scaled(height, variant.scale), chroma, picture.bit_depth)
    middle, peak = 1 << (picture.bit_depth - 1), (1 << picture.bit_depth) - 1
    planes = []
    for index, (samples, shape) in enumerate(zip(picture.planes, form.plane_shapes, strict=True)):
        finer = picture.y.shape[0] / samples.shape[0], picture.y.shape[1] / samples.shape[1]
        plane = samples.astype(np.float64)
        if shape != plane.shape:
            plane = _resized(plane, shape, variant.kernel)
        plane = _blurred(plane, variant.blur, finer)
        if index == 0:
            plane = _sharpened(plane, variant.sharpen)
        plane = (plane - middle) * variant.contrast + middle
        planes.append(np.clip(np.rint(plane), 0, peak).astype(form.dtype))
    return Picture(tuple(planes), picture.bit_depth)


def _scaled(extent: int, scale: float) -> int:
    """Even, so that a smaller picture does not end in a row that is there twice."""
    return extent if scale == 1 else 2 * max(round(extent * scale / 2), 1)


def _resized(plane: Real, shape: tuple[int, int], kernel: str) -> Real:
    """`plane` in another size, antialiased: `kernel` is as wide as a sample of the smaller picture."""
    if kernel == "area":
        return _area(_area(plane, shape[0]).T, shape[1]).T
    from PIL import Image

    resample = getattr(Image.Resampling, kernel.upper())
    image = Image.fromarray(np.ascontiguousarray(plane, np.float32)).resize((shape[1], shape[0]), resample)
    resized: Real = np.asarray(image, np.float64)
    return resized


def _area(plane: Real, rows: int) -> Real:
    """The mean over the part of the rows that each of the `rows` covers. Pillow's box weighs a cut row as a whole."""
    edges = np.linspace(0, len(plane), rows + 1)
    whole = np.minimum(edges.astype(np.intp), len(plane) - 1)
    sums = np.concatenate((np.zeros((1, plane.shape[1])), np.cumsum(plane, axis=0)))
    until: Real = sums[whole] + (edges - whole)[:, None] * plane[whole]
    return np.diff(until, axis=0) * (rows / len(plane))


def _blurred(plane: Real, sigma: float, finer: tuple[float, float]) -> Real:
    """Blurred by a Gaussian of `sigma` luma samples, of which there are `finer` a sample of the plane, each way."""
    from scipy.ndimage import gaussian_filter

    return gaussian_filter(plane, (sigma / finer[0], sigma / finer[1]), mode="nearest") if sigma else plane


def _sharpened(plane: Real, amount: float) -> Real:
    return plane + amount * (plane - _blurred(plane, _SHARPENED, (1, 1))) if amount else plane


def _linear(plane: Real) -> Real:
    """R'G'B' to light by the transfer function of IEC 61966-2-1 (sRGB), both in 0 to 1."""
    light: Real = np.where(plane <= 0.04045, plane / 12.92, ((plane + 0.055) / 1.055) ** 2.4)
    return light


def _gamma_coded(light: Real) -> Real:
    """The inverse of `_linear`."""
    coded: Real = np.where(light <= 0.0031308, light * 12.92, 1.055 * light ** (1 / 2.4) - 0.055)
    return coded
