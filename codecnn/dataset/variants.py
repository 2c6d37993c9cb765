"""Variants of a source: the same pictures with another size, sharpness, contrast or range.

A network learns the properties that all its training pictures share, such as the kernel of one downscaler. Variants
vary these properties. The draws of a variant depend only on the recipe's seed, the source's name and the variant's
number, and each operation is drawn independently: adding sources, reordering them, or adding operations to a recipe
does not change the draws of the others.
"""

import hashlib
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from codecnn.dataset.records import Variant
from codecnn.pictures.files import Picture, VideoFormat

Kernel = Literal["area", "bilinear", "bicubic", "lanczos"]
Real = npt.NDArray[np.float64]

SMALLEST_SIDE = 128
"""Width and height in samples below which no variant is scaled: the size of a CTU."""

_SHARPENING_SIGMA = 1.0
"""Sigma in luma samples of the Gaussian of unsharp masking."""


class UniformDraw(BaseModel):
    """A value drawn uniformly from `range` with the probability `share`; otherwise the picture is unchanged."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    range: tuple[float, float]
    share: float = Field(default=1, ge=0, le=1)


def _range(low: float, high: float) -> Any:
    """Return the type of a `UniformDraw` within `low` to `high`, which may be given as its range alone."""

    def check(draw: UniformDraw) -> UniformDraw:
        first, last = draw.range
        if not low <= first <= last <= high:
            raise ValueError(f"the range {first:g} to {last:g} does not rise within {low:g} to {high:g}")
        return draw

    as_record = BeforeValidator(lambda value: {"range": value} if isinstance(value, list | tuple) else value)
    return Annotated[UniformDraw | None, AfterValidator(lambda draw: draw and check(draw)), as_record]


class VariantsSpec(BaseModel):
    """Number of variants of each source and the operations drawn for them; omitted operations are not applied."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    count: int = Field(default=1, ge=0, description="number of variants in addition to the source itself")
    scale: _range(0.05, 1) = Field(  # type: ignore[valid-type]
        default=None, description="factor of width and height; no side becomes shorter than 128 samples"
    )
    kernels: list[Kernel] = Field(default=["area", "bilinear", "bicubic", "lanczos"], min_length=1)
    linear_light: float = Field(default=0, ge=0, le=1, description="probability; stills only")
    blur: _range(0, 5) = Field(default=None, description="sigma of a Gaussian, in luma samples")  # type: ignore[valid-type]
    sharpen: _range(0, 5) = Field(default=None, description="amount of unsharp masking of luma")  # type: ignore[valid-type]
    contrast: _range(0.1, 5) = Field(default=None, description="factor about the middle grey")  # type: ignore[valid-type]
    gamma: _range(0.1, 5) = Field(default=None, description="exponent of R'G'B' in 0 to 1; stills only")  # type: ignore[valid-type]
    full_range: float | None = Field(default=None, ge=0, le=1, description="probability; stills only")

    def draw(self, seed: int, name: str, number: int, *, still: bool) -> Variant:
        """Draw one variant of a source.

        Args:
            seed: Seed of the recipe.
            name: Name of the source.
            number: Number of the variant, from 1.
            still: The source is a still picture. The transfer function and range of Y'CbCr files are not known, so
                gamma, linear light and full range are drawn for stills only.

        Returns:
            The variant.
        """

        def chance(operation: str) -> float:
            return uniform(seed, name, number, operation)

        values: dict[str, Any] = {"number": number}
        draws: dict[str, UniformDraw | None] = {"scale": self.scale, "blur": self.blur, "sharpen": self.sharpen}
        draws |= {"contrast": self.contrast, "gamma": self.gamma if still else None}
        for operation, draw in draws.items():
            if draw is not None and chance(f"{operation} at all") < draw.share:
                first, last = draw.range
                values[operation] = round(first + (last - first) * chance(operation), 4)
        if "scale" in values:
            values["kernel"] = self.kernels[int(chance("kernel") * len(self.kernels))]
            if still:
                values["linear_light"] = chance("linear_light") < self.linear_light
        if still and self.full_range is not None:
            values["full_range"] = chance("full_range") < self.full_range
        return Variant(**values)


def uniform(seed: int, *key: str | int) -> float:
    """Return a number in [0, 1) that depends on `seed` and `key` only, on every machine and library version."""
    digest = hashlib.sha256("\0".join(map(str, (seed, *key))).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def fit_scale(variant: Variant, width: int, height: int) -> Variant:
    """Return the variant with its scale raised so that no side becomes shorter than SMALLEST_SIDE samples."""
    if variant.scale == 1:
        return variant
    scale = min(max(variant.scale, SMALLEST_SIDE / min(width, height)), 1.0)
    return variant.model_copy(update={"scale": scale})


def vary_rgb(samples: npt.NDArray[Any], variant: Variant) -> npt.NDArray[np.uint16]:
    """Apply a variant's operations to an R'G'B' or grey picture.

    Args:
        samples: Samples of shape (h, w, 3) or (h, w), unsigned integers that use the full range of their type.
        variant: The operations.

    Returns:
        16-bit samples of the scaled size, shape (h', w', 3) or (h', w').
    """
    colours = samples.astype(np.float64).reshape(*samples.shape[:2], -1) / np.iinfo(samples.dtype).max
    shape = scaled_extent(samples.shape[0], variant.scale), scaled_extent(samples.shape[1], variant.scale)
    planes = []
    for plane in np.moveaxis(colours, 2, 0):
        if shape != plane.shape:
            light = _linear(plane) if variant.linear_light else plane
            small = np.clip(_resized(light, shape, variant.kernel), 0, 1)
            plane = _gamma_coded(small) if variant.linear_light else small
        plane = _sharpened(_blurred(plane, variant.blur, (1, 1)), variant.sharpen)
        # Clipped first, since the power of a negative number is not defined.
        plane = np.clip((plane - 0.5) * variant.contrast + 0.5, 0, 1) ** variant.gamma
        planes.append(np.rint(plane * 65535).astype(np.uint16))
    return planes[0] if samples.ndim == 2 else np.stack(planes, axis=2)


def vary_picture(picture: Picture, chroma: str, variant: Variant) -> Picture:
    """Apply a variant's operations to a Y'CbCr picture.

    All planes are resized and blurred; only luma is sharpened. Contrast scales the difference from 2^(b-1) in all
    planes, which equals the same factor in R'G'B'.

    Args:
        picture: The picture.
        chroma: Chroma format: 400, 420, 422 or 444.
        variant: The operations.

    Returns:
        The picture in the scaled size, at the same bit depth.
    """
    height, width = picture.y.shape
    form = VideoFormat(
        scaled_extent(width, variant.scale), scaled_extent(height, variant.scale), chroma, picture.bit_depth
    )
    middle, peak = 1 << (picture.bit_depth - 1), (1 << picture.bit_depth) - 1
    planes = []
    for index, (samples, shape) in enumerate(zip(picture.planes, form.plane_shapes, strict=True)):
        subsampling = picture.y.shape[0] / samples.shape[0], picture.y.shape[1] / samples.shape[1]
        plane = samples.astype(np.float64)
        if shape != plane.shape:
            plane = _resized(plane, shape, variant.kernel)
        plane = _blurred(plane, variant.blur, subsampling)
        if index == 0:
            plane = _sharpened(plane, variant.sharpen)
        plane = (plane - middle) * variant.contrast + middle
        planes.append(np.clip(np.rint(plane), 0, peak).astype(form.dtype))
    return Picture(tuple(planes), picture.bit_depth)


def scaled_extent(extent: int, scale: float) -> int:
    """Return the scaled width or height, rounded to even so that padding to even sizes repeats no row or column."""
    return extent if scale == 1 else 2 * max(round(extent * scale / 2), 1)


def _resized(plane: Real, shape: tuple[int, int], kernel: str) -> Real:
    """Resize a plane to `shape` with antialiasing: the kernel is scaled to the sample distance of the result."""
    if kernel == "area":
        return area_mean(area_mean(plane, shape[0]).T, shape[1]).T
    from PIL import Image

    resample = Image.Resampling[kernel.upper()]
    image = Image.fromarray(np.ascontiguousarray(plane, np.float32)).resize((shape[1], shape[0]), resample)
    resized: Real = np.asarray(image, np.float64)
    return resized


def area_mean(plane: Real, rows: int) -> Real:
    """Average the rows of a plane (h, w) over `rows` intervals of equal height, with exact weights for split rows.

    Pillow's box filter gives a split row its full weight, so it is not used here.
    """
    edges = np.linspace(0, len(plane), rows + 1)
    whole = np.minimum(edges.astype(np.intp), len(plane) - 1)
    sums = np.concatenate((np.zeros((1, plane.shape[1])), np.cumsum(plane, axis=0)))
    until: Real = sums[whole] + (edges - whole)[:, None] * plane[whole]
    return np.diff(until, axis=0) * (rows / len(plane))


def _blurred(plane: Real, sigma: float, subsampling: tuple[float, float]) -> Real:
    """Blur with a Gaussian of `sigma` luma samples; `subsampling` is luma samples per sample of the plane (y, x)."""
    from scipy.ndimage import gaussian_filter

    return gaussian_filter(plane, (sigma / subsampling[0], sigma / subsampling[1]), mode="nearest") if sigma else plane


def _sharpened(plane: Real, amount: float) -> Real:
    return plane + amount * (plane - _blurred(plane, _SHARPENING_SIGMA, (1, 1))) if amount else plane


def _linear(plane: Real) -> Real:
    """Convert R'G'B' to linear light by the transfer function of IEC 61966-2-1 (sRGB), both in 0 to 1."""
    light: Real = np.where(plane <= 0.04045, plane / 12.92, ((plane + 0.055) / 1.055) ** 2.4)
    return light


def _gamma_coded(light: Real) -> Real:
    """Convert linear light to R'G'B', the inverse of `_linear`."""
    coded: Real = np.where(light <= 0.0031308, light * 12.92, 1.055 * light ** (1 / 2.4) - 0.055)
    return coded
