"""Reference samples of a block (H.266 clauses 6.4.4 and 8.4.5.2.8 to 8.4.5.2.10)."""

from codecnn.base.compiled import compiled
from codecnn.vvc.decoder.frame import Frame


@compiled
def available(f: Frame, component: int, x: int, y: int, ctb_x: int) -> bool:
    """Return True if a sample may be used for intra prediction.

    Clause 6.4.4, Derivation process for neighbouring block availability.

    It must be reconstructed and belong to the same slice and tile, and in a wavefront not to a CTU further right.

    Args:
        f: State of the picture.
        component: 0 Y, 1 Cb, 2 Cr.
        x: Column of the sample in its component.
        y: Row of the sample in its component.
        ctb_x: Column of the CTU of the current block.
    """
    if component:
        x, y = x << f.pic.log2_sub_width_c, y << f.pic.log2_sub_height_c
    if x < 0 or y < 0 or x >= f.pic.width or y >= f.pic.height:
        return False
    if f.known[y >> 2, x >> 2].region[1 if component else 0] != f.current.region:
        return False
    return not (f.pic.sps_entropy_coding_sync_enabled_flag and x >> f.pic.ctb_log2_size_y > ctb_x)


@compiled
def mark(f: Frame, chroma: bool, x: int, y: int, width: int, height: int) -> None:
    """Mark luma or chroma of a block, given in luma samples, as reconstructed.

    Part of clause 6.4.4, Derivation process for neighbouring block availability.
    """
    channel = 1 if chroma else 0
    for row in range(y >> 2, (y + height + 3) >> 2):
        for column in range(x >> 2, (x + width + 3) >> 2):
            f.known[row, column].region[channel] = f.current.region


@compiled
def fetch_references(f: Frame, component: int, x0: int, y0: int, ref_w: int, ref_h: int, line: int) -> int:
    """Copy the reference samples of a block to `scratch.reference[0]`.

    Clause 8.4.5.2.8, Reference sample availability marking process.
    Clause 8.4.5.2.9, Reference sample substitution process.

    They begin at the bottom left, go up to the corner and on to the top right: `ref_h` + `line` samples, the corner,
    and `ref_w` + `line` samples. An unavailable sample takes the value of the one before it, the first ones that of the
    first available one; if none is available, all are half the range (8.4.5.2.9).

    Args:
        f: State of the picture.
        component: 0 Y, 1 Cb, 2 Cr.
        x0: Column of the block in its component.
        y0: Row of the block in its component.
        ref_w: Samples above the block, without the corner.
        ref_h: Samples to the left of the block, without the corner.
        line: Reference line, 0 for the nearest.

    Returns:
        Position of the corner in the reference samples.
    """
    p = f.scratch.reference[0]
    ctb_x = (x0 << f.pic.log2_sub_width_c if component else x0) >> f.pic.ctb_log2_size_y
    stride, plane = f.pic.stride[component], f.pic.recon[component]
    left, top = x0 - 1 - line, y0 - 1 - line
    corner = ref_h + line
    any_available = False
    usable = False
    sub_x, sub_y = (f.pic.log2_sub_width_c, f.pic.log2_sub_height_c) if component else (0, 0)
    unit = -1
    at = 0
    for y in range(top + ref_h + line, top - 1, -1):
        if (y << sub_y) >> 2 != unit:
            unit = (y << sub_y) >> 2
            usable = available(f, component, left, y, ctb_x)
            if usable and not any_available:
                any_available = True
                for i in range(at):
                    p[i] = f.planes[plane + y * stride + left]
        if usable:
            p[at] = f.planes[plane + y * stride + left]
        elif any_available:
            p[at] = p[at - 1]
        at += 1
    unit = -1
    for x in range(left + 1, left + 1 + ref_w + line):
        if (x << sub_x) >> 2 != unit:
            unit = (x << sub_x) >> 2
            usable = available(f, component, x, top, ctb_x)
            if usable and not any_available:
                any_available = True
                for i in range(at):
                    p[i] = f.planes[plane + top * stride + x]
        if usable:
            p[at] = f.planes[plane + top * stride + x]
        elif any_available:
            p[at] = p[at - 1]
        at += 1
    if not any_available:
        for i in range(at):
            p[i] = 1 << (f.pic.bit_depth - 1)
    return corner


@compiled
def smooth_references(f: Frame, count: int) -> None:
    """Filter `count` reference samples by [1 2 1] / 4; the results are `scratch.reference[1]`.

    Clause 8.4.5.2.10, Reference sample filtering process.
    """
    p, filtered = f.scratch.reference[0], f.scratch.reference[1]
    filtered[0], filtered[count - 1] = p[0], p[count - 1]
    for i in range(1, count - 1):
        filtered[i] = (p[i - 1] + 2 * p[i] + p[i + 1] + 2) >> 2
