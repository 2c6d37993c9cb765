"""Writing of the log (`codecnn.vvc.syntax.log`) by the slice parser."""

from codecnn.base.compiled import compiled
from codecnn.base.records import copy_record, record_at
from codecnn.vvc.syntax import state as st
from codecnn.vvc.syntax.log import (
    BLOCK_HEADER,
    CODING_UNIT,
    LEVEL_SHIFT,
    TRANSFORM_UNIT,
    UNIT_HEADER,
    CodingUnit,
    TransformUnit,
)
from codecnn.vvc.syntax.records import LEVEL_STRIDE, PALETTE_STRIDE
from codecnn.vvc.syntax.state import Work


@compiled
def begin_unit(w: Work) -> None:
    """Reserve the header of the current coding unit, which `end_unit` fills in."""
    current = w.state.current
    current.unit_at = current.log_at
    current.log_at += UNIT_HEADER


@compiled
def end_unit(w: Work) -> None:
    """Fill in the header of the current coding unit."""
    s = w.state
    s.cu.length = s.current.log_at - s.current.unit_at
    header: CodingUnit = record_at(w.log, s.current.unit_at, CODING_UNIT)
    copy_record(header, s.cu)


@compiled
def begin_transform_unit(
    w: Work, x: int, y: int, width: int, height: int, has_chroma: bool, coded: int, joint: int
) -> int:
    """Append the header of a transform unit, except for the results of its residual.

    Args:
        w: State of the parser.
        x: Column of its first luma sample.
        y: Row of its first luma sample.
        width: Width in luma samples.
        height: Height in luma samples.
        has_chroma: The unit has chroma blocks.
        coded: Coded block flags, one bit for each component.
        joint: tu_joint_cbcr_residual_flag.

    Returns:
        Position of the header in the log.
    """
    s = w.state
    at: int = s.current.log_at
    s.current.log_at += BLOCK_HEADER
    s.cu.num_transform_units += 1
    tu: TransformUnit = record_at(w.log, at, TRANSFORM_UNIT)
    tu.x, tu.y, tu.width, tu.height = x, y, width, height
    tu.has_chroma, tu.coded, tu.transform_skip = int(has_chroma), coded, 0
    tu.joint = (coded & 2) + (coded >> 2) if joint else 0
    return at


@compiled
def keep_block(w: Work, unit: int, component: int, skip: int, levels: int) -> None:
    """Store the results of one component in the header of a transform unit.

    Args:
        w: State of the parser.
        unit: Position of the header.
        component: 0 Y, 1 Cb, 2 Cr.
        skip: transform_skip_flag.
        levels: Number of levels.
    """
    tu: TransformUnit = record_at(w.log, unit, TRANSFORM_UNIT)
    tu.transform_skip |= skip << component
    tu.num_levels[component] = levels


@compiled
def keep_level(w: Work, at: int, level: int, odd: int) -> None:
    """Append one level, packed as the level, one bit `odd`, and y and x in five bits each.

    Args:
        w: State of the parser.
        at: Position in the planes of levels.
        level: The level; FAULT_LEVEL is set if it is out of range.
        odd: 1 if dependent quantization used the quantizer of odd multiples (QState > 1).
    """
    s = w.state
    if abs(level) > 1 << s.slice.log2_transform_range:
        s.fault = st.FAULT_LEVEL
        return
    y, x = at // LEVEL_STRIDE - 1, at % LEVEL_STRIDE - 1
    w.log[s.current.log_at] = level << LEVEL_SHIFT | odd << 10 | y << 5 | x
    s.current.log_at += 1


@compiled
def keep_palette(w: Work, first: int, last: int, width: int, height: int) -> None:
    """Append the samples of a palette unit.

    Args:
        w: State of the parser.
        first: First component.
        last: Last component + 1.
        width: Width in samples of the first component.
        height: Height in samples of the first component.
    """
    s = w.state
    size = s.palette.current_palette_size
    for component in range(first, last):
        sub_x, sub_y = (s.slice.log2_sub_width_c, s.slice.log2_sub_height_c) if component and not first else (0, 0)
        for y in range(0, height, 1 << sub_y):
            for x in range(0, width, 1 << sub_x):
                at = PALETTE_STRIDE * y + x
                index = s.palette.index_map[at]
                if index == size:
                    value = -1 - s.palette.escape_val[component, at]
                else:
                    value = s.palette.current_palette_entries[component, index]
                w.log[s.current.log_at] = value
                s.current.log_at += 1
