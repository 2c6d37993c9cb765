"""Palette coding units (H.266 clauses 7.3.11.6 and 7.4.12.6): a list of colours and an index for each sample."""

from codecnn.base.compiled import compiled
from codecnn.vvc.syntax import contexts as c
from codecnn.vvc.syntax import state as st
from codecnn.vvc.syntax.cabac import decode_bin, decode_bypass, decode_bypass_bits, truncated_binary
from codecnn.vvc.syntax.log_writer import keep_palette
from codecnn.vvc.syntax.records import MAX_PALETTE, PALETTE_STRIDE
from codecnn.vvc.syntax.state import Work
from codecnn.vvc.syntax.transform import decode_chroma_qp_offset, decode_qp_delta

_SUBSET = 16
"""Samples whose flags, indices and escape values stand together in the stream."""


@compiled
def exp_golomb(w: Work, order: int) -> int:
    """Decode a k-th order Exp-Golomb value in bypass bins; the length is limited in damaged data.

    Clause 9.3.3.5, k-th order Exp-Golomb binarization process.
    """
    value = 0
    while order < 24 and decode_bypass(w):
        value += 1 << order
        order += 1
    return value + decode_bypass_bits(w, order)


@compiled
def palette_unit(w: Work) -> None:
    """Parse the palette of the current coding unit, then its indices and escape values.

    Clause 7.3.11.6, Palette coding syntax.
    """
    s = w.state
    first = 1 if s.cu.tree == st.DUAL_CHROMA else 0
    last = 1 if s.cu.tree == st.DUAL_LUMA else 3 if s.slice.sps_chroma_format_idc else 1
    width, height = s.cu.width, s.cu.height
    if first:
        width, height = width >> s.slice.log2_sub_width_c, height >> s.slice.log2_sub_height_c
    local = s.cu.tree != st.SINGLE and not (s.slice.sps_qtbtt_dual_tree_intra_flag and s.slice.is_i)
    size = palette_entries(w, first, last, local)
    if s.fault:
        return
    escapes = 1 if size == 0 else decode_bypass(w)
    symbols = size + escapes
    transposed = decode_bin(w, c.PALETTE_TRANSPOSE_FLAG) if symbols > 1 else 0
    if escapes and s.slice.pps_cu_qp_delta_enabled_flag and not s.qg.is_cu_qp_delta_coded and not first:
        decode_qp_delta(w)
    may_offset = s.slice.sh_cu_chroma_qp_offset_enabled_flag and not s.qg.is_cu_chroma_qp_offset_coded
    if escapes and may_offset and s.cu.tree != st.DUAL_LUMA:
        decode_chroma_qp_offset(w)
    palette_indices(w, first, last, width, height, symbols, transposed == 1)
    update_predictor(w, first, last, local)
    if s.current.keep_log:
        keep_palette(w, first, last, width, height)


@compiled
def palette_entries(w: Work, first: int, last: int, local: bool) -> int:
    """Parse CurrentPaletteEntries: reused entries of the predictor, then new entries.

    Part of clause 7.3.11.6, Palette coding syntax.

    Args:
        w: State of the parser.
        first: First component.
        last: Last component + 1.
        local: The unit belongs to a local dual tree.

    Returns:
        Number of entries, or 0 with FAULT_PALETTE set.
    """
    s = w.state
    palette = s.palette
    most = 31 if s.cu.tree == st.SINGLE else 15
    predicted = s.entropy.predictor_palette_size[first]
    for at in range(MAX_PALETTE):
        palette.entry_reuse_flags[at] = 0
    size = at = 0
    while at < predicted and size < most:
        run = exp_golomb(w, 0)
        if run == 1:
            break
        at += max(0, run - 1)
        if at >= predicted:
            s.fault = st.FAULT_PALETTE
            return 0
        palette.entry_reuse_flags[at] = 1
        for component in range(3):
            entry = s.entropy.predictor_palette_entries[component, at]
            palette.current_palette_entries[component, size] = entry
        size += 1
        at += 1
    new = exp_golomb(w, 0) if size < most else 0
    if size + new > most:
        s.fault = st.FAULT_PALETTE
        return 0
    for component in range(3):
        for i in range(size, size + new):
            # Components that a tree does not have are grey in the predictor of units that have all components.
            value = 1 << (s.slice.bit_depth - 1)
            if first <= component < last:
                value = decode_bypass_bits(w, s.slice.bit_depth)
            palette.current_palette_entries[component, i] = value
    palette.current_palette_size = size + new
    return size + new


@compiled
def palette_indices(w: Work, first: int, last: int, width: int, height: int, symbols: int, transposed: bool) -> None:
    """Parse PaletteIndexMap and PaletteEscapeVal of the unit.

    Part of clause 7.3.11.6, Palette coding syntax.

    The traverse scan runs along rows, or columns if `transposed`, in alternating direction.
    """
    palette = w.state.palette
    size = palette.current_palette_size
    total = width * height
    line = height if transposed else width
    run_at = 0
    copying = False
    for start in range(0, total, _SUBSET):
        stop = min(total, start + _SUBSET)
        # First the flags that samples continue the run of the sample before, then indices, then escape values.
        begins = 0
        for place in range(start, stop):
            at = place_at(place, line, transposed)
            same = 0
            if symbols > 1 and place > 0:
                distance = place - run_at - 1
                if copying:
                    same = decode_bin(w, c.RUN_COPY_FLAG_ABOVE + (0 if distance == 0 else 1 if distance < 3 else 2))
                else:
                    same = decode_bin(w, c.RUN_COPY_FLAG_INDEX + min(distance, 4))
            if symbols <= 1:
                same = int(place > 0)
            elif not same:
                before = place > 0 and palette.copy_above[place_at(place - 1, line, transposed)] == 1
                copying = False
                if place >= line and not before:
                    copying = decode_bin(w, c.COPY_ABOVE_PALETTE_INDICES_FLAG) == 1
                run_at = place
            palette.copy_above[at] = int(copying)
            begins |= (1 - same) << (place - start)
        for place in range(start, stop):
            at = place_at(place, line, transposed)
            if palette.copy_above[at]:
                palette.index_map[at] = palette.index_map[at - 1 if transposed else at - PALETTE_STRIDE]
            elif begins >> (place - start) & 1:
                palette.index_map[at] = palette_index(w, place, line, transposed, symbols) if symbols > 1 else 0
            else:
                palette.index_map[at] = palette.index_map[place_at(place - 1, line, transposed)]
        for component in range(first, last):
            for place in range(start, stop):
                at = place_at(place, line, transposed)
                if palette.index_map[at] == size and has_sample(w, first, component, at):
                    palette.escape_val[component, at] = exp_golomb(w, 5)


@compiled
def place_at(place: int, line: int, transposed: bool) -> int:
    """Return the position in the maps of place `place` of the traverse scan.

    Clause 6.5.3, Horizontal and vertical traverse scan order array initialization process.
    """
    row, column = place // line, place % line
    if row & 1:
        column = line - 1 - column
    return PALETTE_STRIDE * column + row if transposed else PALETTE_STRIDE * row + column


@compiled
def has_sample(w: Work, first: int, component: int, at: int) -> bool:
    """Return True if `component` has a sample at position `at` of the maps.

    Part of clause 7.3.11.6, Palette coding syntax.

    A unit that begins with chroma (`first` 1) has maps in chroma samples.
    """
    if component == 0 or first:
        return True
    x, y = at % PALETTE_STRIDE, at // PALETTE_STRIDE
    v = w.state.slice
    return x % (1 << v.log2_sub_width_c) == 0 and y % (1 << v.log2_sub_height_c) == 0


@compiled
def palette_index(w: Work, place: int, line: int, transposed: bool, symbols: int) -> int:
    """Decode palette_idx_idc.

    Part of clause 7.3.11.6, Palette coding syntax.

    The code omits the index of the previous sample or of the sample above, which would have been copied.
    """
    palette = w.state.palette
    if place == 0:
        return truncated_binary(w, symbols - 1)
    value = truncated_binary(w, symbols - 2)
    before = place_at(place - 1, line, transposed)
    if palette.copy_above[before]:
        at = place_at(place, line, transposed)
        before = at - 1 if transposed else at - PALETTE_STRIDE
    return value + int(value >= palette.index_map[before])


@compiled
def update_predictor(w: Work, first: int, last: int, local: bool) -> None:
    """Update the palette predictor.

    Part of clause 7.4.12.6, Palette coding semantics.

    The new predictor holds the palette, then the entries of the old predictor that were not reused.
    """
    s = w.state
    palette = s.palette
    most = 63 if s.cu.tree == st.SINGLE or local else 31
    size = palette.current_palette_size
    for at in range(s.entropy.predictor_palette_size[first]):
        if size < most and not palette.entry_reuse_flags[at]:
            for component in range(3):
                entry = s.entropy.predictor_palette_entries[component, at]
                palette.current_palette_entries[component, size] = entry
            size += 1
    s.entropy.predictor_palette_size[first] = size
    begin, end = (0, 3) if local else (first, last)
    for component in range(begin, end):
        for at in range(size):
            entry = palette.current_palette_entries[component, at]
            s.entropy.predictor_palette_entries[component, at] = entry
