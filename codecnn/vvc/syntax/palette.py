"""Palette coding units (H.266 clauses 7.3.11.6 and 7.4.12.6): a list of colours and an index for each sample."""

from codecnn.base.compiled import compiled
from codecnn.vvc.syntax import contexts as c
from codecnn.vvc.syntax import state as st
from codecnn.vvc.syntax.cabac import decode_bin, decode_bypass, decode_bypass_bits, truncated_binary
from codecnn.vvc.syntax.log import keep_palette
from codecnn.vvc.syntax.state import Work
from codecnn.vvc.syntax.transform import decode_chroma_qp_offset, decode_qp_delta

_SUBSET = 16
"""Samples whose flags, indices and escape values stand together in the stream."""


@compiled
def exp_golomb(w: Work, order: int) -> int:
    """Decode a k-th order Exp-Golomb value in bypass bins (clause 9.3.3.5); the length is limited in damaged data."""
    value = 0
    while order < 24 and decode_bypass(w):
        value += 1 << order
        order += 1
    return value + decode_bypass_bits(w, order)


@compiled
def palette_unit(w: Work) -> None:
    """Parse palette_coding() of the current coding unit: its palette, then indices and escape values."""
    n = w.n
    first = 1 if n[st.TREE] == st.DUAL_CHROMA else 0
    last = 1 if n[st.TREE] == st.DUAL_LUMA else 3 if n[st.CHROMA] else 1
    width, height = n[st.W], n[st.H]
    if first:
        width, height = width >> n[st.SUB_WIDTH], height >> n[st.SUB_HEIGHT]
    local = n[st.TREE] != st.SINGLE and not (n[st.DUAL_TREE] and n[st.IS_I])
    size = palette_entries(w, first, last, local)
    if n[st.FAULT]:
        return
    escapes = 1 if size == 0 else decode_bypass(w)
    symbols = size + escapes
    transposed = decode_bin(w, c.PALETTE_TRANSPOSE_FLAG) if symbols > 1 else 0
    if escapes and n[st.QP_DELTA] and not n[st.QP_CODED] and not first:
        decode_qp_delta(w)
    if escapes and n[st.CHROMA_QP_OFFSET] and not n[st.CHROMA_QP_CODED] and n[st.TREE] != st.DUAL_LUMA:
        decode_chroma_qp_offset(w)
    palette_indices(w, first, last, width, height, symbols, transposed == 1)
    update_predictor(w, first, last, local)
    if n[st.KEEP]:
        keep_palette(w, first, last, width, height)


@compiled
def palette_entries(w: Work, first: int, last: int, local: bool) -> int:
    """Parse CurrentPaletteEntries: reused entries of the predictor, then new entries.

    Args:
        w: State of the parser.
        first: First component.
        last: Last component + 1.
        local: The unit belongs to a local dual tree.

    Returns:
        Number of entries, or 0 with FAULT_PALETTE set.
    """
    n = w.n
    most = 31 if n[st.TREE] == st.SINGLE else 15
    predicted = n[st.PREDICTOR_SIZE + first]
    n[st.REUSED : st.REUSED + st.MAX_PALETTE] = 0
    size = at = 0
    while at < predicted and size < most:
        run = exp_golomb(w, 0)
        if run == 1:
            break
        at += max(0, run - 1)
        if at >= predicted:
            n[st.FAULT] = st.FAULT_PALETTE
            return 0
        n[st.REUSED + at] = 1
        for component in range(3):
            entry = n[st.PREDICTOR + st.MAX_PALETTE * component + at]
            n[st.PALETTE_ENTRIES + st.MAX_PALETTE * component + size] = entry
        size += 1
        at += 1
    new = exp_golomb(w, 0) if size < most else 0
    if size + new > most:
        n[st.FAULT] = st.FAULT_PALETTE
        return 0
    for component in range(3):
        for i in range(size, size + new):
            # Components that a tree does not have are grey in the predictor of units that have all components.
            value = 1 << (n[st.BIT_DEPTH] - 1)
            if first <= component < last:
                value = decode_bypass_bits(w, n[st.BIT_DEPTH])
            n[st.PALETTE_ENTRIES + st.MAX_PALETTE * component + i] = value
    n[st.PALETTE_SIZE] = size + new
    return size + new


@compiled
def palette_indices(w: Work, first: int, last: int, width: int, height: int, symbols: int, transposed: bool) -> None:
    """Parse PaletteIndexMap and PaletteEscapeVal of the unit.

    The traverse scan runs along rows, or columns if `transposed`, in alternating direction.
    """
    n = w.n
    size = n[st.PALETTE_SIZE]
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
                before = place > 0 and n[st.COPIED + place_at(place - 1, line, transposed)] == 1
                copying = False
                if place >= line and not before:
                    copying = decode_bin(w, c.COPY_ABOVE_PALETTE_INDICES_FLAG) == 1
                run_at = place
            n[st.COPIED + at] = int(copying)
            begins |= (1 - same) << (place - start)
        for place in range(start, stop):
            at = place_at(place, line, transposed)
            if n[st.COPIED + at]:
                n[st.INDICES + at] = n[st.INDICES + (at - 1 if transposed else at - 64)]
            elif begins >> (place - start) & 1:
                n[st.INDICES + at] = palette_index(w, place, line, transposed, symbols) if symbols > 1 else 0
            else:
                n[st.INDICES + at] = n[st.INDICES + place_at(place - 1, line, transposed)]
        for component in range(first, last):
            for place in range(start, stop):
                at = place_at(place, line, transposed)
                if n[st.INDICES + at] == size and has_sample(w, first, component, at):
                    n[st.ESCAPES + 4096 * component + at] = exp_golomb(w, 5)


@compiled
def place_at(place: int, line: int, transposed: bool) -> int:
    """Return the position of place `place` of the traverse scan (clause 6.5.8) in maps of 64 columns."""
    row, column = place // line, place % line
    if row & 1:
        column = line - 1 - column
    return 64 * column + row if transposed else 64 * row + column


@compiled
def has_sample(w: Work, first: int, component: int, at: int) -> bool:
    """Return True if `component` has a sample at position `at` of the maps.

    A unit that begins with chroma (`first` 1) has maps in chroma samples.
    """
    n = w.n
    if component == 0 or first:
        return True
    return bool((at >> 6) & ((1 << n[st.SUB_HEIGHT]) - 1) == 0 and at & ((1 << n[st.SUB_WIDTH]) - 1) == 0)


@compiled
def palette_index(w: Work, place: int, line: int, transposed: bool, symbols: int) -> int:
    """Decode palette_idx_idc.

    The code omits the index of the previous sample or of the sample above, which would have been copied.
    """
    n = w.n
    if place == 0:
        return truncated_binary(w, symbols - 1)
    value = truncated_binary(w, symbols - 2)
    before = place_at(place - 1, line, transposed)
    if n[st.COPIED + before]:
        at = place_at(place, line, transposed)
        before = at - 1 if transposed else at - 64
    return value + int(value >= n[st.INDICES + before])


@compiled
def update_predictor(w: Work, first: int, last: int, local: bool) -> None:
    """Update the palette predictor (clause 7.4.12.6).

    The new predictor holds the palette, then the entries of the old predictor that were not reused.
    """
    n = w.n
    most = 63 if n[st.TREE] == st.SINGLE or local else 31
    size = n[st.PALETTE_SIZE]
    for at in range(n[st.PREDICTOR_SIZE + first]):
        if size < most and not n[st.REUSED + at]:
            for component in range(3):
                entry = n[st.PREDICTOR + st.MAX_PALETTE * component + at]
                n[st.PALETTE_ENTRIES + st.MAX_PALETTE * component + size] = entry
            size += 1
    n[st.PREDICTOR_SIZE + first] = size
    begin, end = (0, 3) if local else (first, last)
    for component in range(begin, end):
        for at in range(size):
            entry = n[st.PALETTE_ENTRIES + st.MAX_PALETTE * component + at]
            n[st.PREDICTOR + st.MAX_PALETTE * component + at] = entry
