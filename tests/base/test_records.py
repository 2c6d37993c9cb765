"""Records have the same values in compiled functions and in plain Python."""

from typing import Annotated

import numba
import numpy as np
import pytest

from codecnn.base.records import Array, Record, new_record, record_at, record_dtype


class Vector(Record):
    """Vector."""

    x: int
    y: int


class Block(Record):
    """Block with vectors."""

    width: int
    mv: Annotated[Array[Vector], 2, 3]
    ref_idx: Annotated[Array[int], 2]


class Memory(Record):
    """Arrays of different lengths."""

    line: Annotated[Array[int], 4]
    blocks: Annotated[Array[Array[int]], 2, 6]


BLOCK = record_dtype(Block)


def move(block, i):
    """Change and return fields."""
    vector = block.mv[1, i]
    vector.x += 5
    block.mv[0, 0].y = vector.x - block.width
    block.ref_idx[1] = -1
    return vector.x


def move_logged(numbers, at):
    """Change a record in an array of numbers."""
    return move(record_at(numbers, at, BLOCK), 2)


@pytest.mark.parametrize("compiled", [False, True])
def test_fields_are_read_and_changed_in_place(compiled):
    block = new_record(Block)
    block.width, block.mv[1, 2].x = 8, 10
    function = numba.njit(move) if compiled else move
    assert function(block, 2) == 15
    assert (block.mv[1, 2].x, block.mv[0, 0].y, block.ref_idx.tolist()) == (15, 7, [0, -1])


@pytest.mark.parametrize("compiled", [False, True])
def test_record_in_an_array_of_numbers(compiled, monkeypatch):
    numbers = np.arange(40)
    if compiled:
        monkeypatch.setitem(globals(), "move", numba.njit(move))
        assert numba.njit(move_logged)(numbers, 10) == 26
    else:
        assert move_logged(numbers, 10) == 26
    # width, then x and y of six vectors, then ref_idx
    assert numbers[10:25].tolist() == [10, 11, 26 - 10, *range(13, 21), 26, 22, 23, -1]
    assert numbers[:10].tolist() == list(range(10))
    assert numbers[25:].tolist() == list(range(25, 40))


def swap(memory, second):
    """Exchange the first numbers of two arrays, of which one is chosen."""
    target = memory.line[:]
    if second:
        target = memory.blocks[1]
    source = memory.blocks[0]
    source[0], target[0] = target[0], source[0]
    return len(target)


@pytest.mark.parametrize("compiled", [False, True])
def test_parts_of_arrays_have_one_type_and_are_changed_in_place(compiled):
    memory = new_record(Memory, np.int32)
    memory.line[:], memory.blocks[:, 0] = 1, (2, 3)
    function = numba.njit(swap) if compiled else swap
    assert (function(memory, False), function(memory, True)) == (4, 6)
    assert memory.line.dtype == np.int32
    assert (memory.line.tolist(), memory.blocks[:, 0].tolist()) == ([2, 1, 1, 1], [3, 1])


def test_field_that_does_not_exist_is_an_error():
    block = new_record(Block)
    with pytest.raises(AttributeError, match="Block has no field height"):
        _ = block.height
    with pytest.raises(AttributeError, match="Vector has no field z"):
        block.mv[0, 0].z = 1


def test_layout_is_that_of_the_fields_in_order():
    assert BLOCK.itemsize == 8 * (1 + 12 + 2)
    assert record_dtype(Block, np.int32).itemsize == 4 * (1 + 12 + 2)
    assert list(BLOCK.names) == ["width", "mv", "ref_idx"]


def test_name_that_numpy_uses_is_refused():
    class Wrong(Record):
        size: int

    with pytest.raises(ValueError, match=r"Wrong\.size hides np\.void\.size"):
        record_dtype(Wrong)
