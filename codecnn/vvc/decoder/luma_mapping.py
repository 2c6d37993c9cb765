"""Luma mapping with chroma scaling in reconstruction (H.266 clauses 7.4.3.19, 8.7.5.2 and 8.7.5.3)."""

from codecnn.base.compiled import compiled
from codecnn.base.records import Array
from codecnn.vvc.decoder.frame import Frame, clip, residual_limit


@compiled
def chroma_scale(f: Frame, x: int, y: int, cu_width: int, cu_height: int) -> int:
    """Derive varScale of a chroma block from the mean luma next to its block of 64x64.

    Clause 8.7.5.3, Picture reconstruction with luma dependent chroma residual scaling process for chroma samples.

    For a coding unit that is larger than 64x64, the luma next to the whole unit counts.

    Args:
        f: State of the picture.
        x: Column of the block in luma samples.
        y: Row of the block in luma samples.
        cu_width: Width of the coding unit in luma samples.
        cu_height: Height of the coding unit in luma samples.

    Returns:
        Scale factor with 11 fractional bits.
    """
    planes = f.planes
    size = min(64, 1 << f.pic.ctb_log2_size_y)
    x, y = x & -size, y & -size
    scale: int = f.current.vpdu_scale
    if f.current.vpdu_x == x and f.current.vpdu_y == y:
        return scale
    f.current.vpdu_x, f.current.vpdu_y = x, y
    # Larger units are aligned to their size.
    x, y = x & -max(size, cu_width), y & -max(size, cu_height)
    total = sides = 0
    stride, plane = f.pic.stride[0], f.pic.recon[0]
    if x > 0 and f.known[y >> 2, (x - 1) >> 2].region[0] == f.current.region:
        sides += 1
        for i in range(size):
            total += planes[plane + min(y + i, f.pic.height - 1) * stride + x - 1]
    if y > 0 and f.known[(y - 1) >> 2, x >> 2].region[0] == f.current.region:
        sides += 1
        for i in range(size):
            total += planes[plane + (y - 1) * stride + min(x + i, f.pic.width - 1)]
    mean = 1 << (f.pic.bit_depth - 1)
    if sides:
        mean = (total + (sides * size >> 1)) // (sides * size)
    index = f.slice.lmcs_min_bin_idx
    while index <= f.slice.lmcs_max_bin_idx and mean >= f.slice.lmcs_pivot[index + 1]:
        index += 1
    scale = f.current.vpdu_scale = f.slice.chroma_scale_coeff[min(index, 15)]
    return scale


@compiled
def scale_residual(f: Frame, residual: Array[int], count: int, scale: int) -> None:
    """Scale the first `count` numbers of a chroma residual.

    Part of clause 8.7.5.3, Picture reconstruction with luma dependent chroma residual scaling process for chroma
    samples.
    """
    peak, limit = (1 << f.pic.bit_depth) - 1, residual_limit(f)
    for i in range(count):
        value = clip(residual[i], -peak - 1, peak)
        magnitude = (abs(value) * scale + 1024) >> 11
        residual[i] = clip(-magnitude if value < 0 else magnitude, -limit, limit - 1)


@compiled
def map_luma(f: Frame, x: int, y: int, width: int, height: int) -> None:
    """Map the luma prediction of an inter block forward, in place.

    Clause 8.7.5.2, Picture reconstruction with mapping process for luma samples.

    Args:
        f: State of the picture.
        x: Column of the block.
        y: Row of the block.
        width: Width of the block.
        height: Height of the block.
    """
    planes = f.planes
    log2_bin = f.pic.bit_depth - 4
    for row in range(y, y + height):
        at = f.pic.pred[0] + row * f.pic.stride[0] + x
        for i in range(at, at + width):
            index = planes[i] >> log2_bin
            part = planes[i] - (index << log2_bin)
            planes[i] = f.slice.lmcs_pivot[index] + ((f.slice.scale_coeff[index] * part + 1024) >> 11)
