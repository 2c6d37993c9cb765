"""Weights of public filters in the formats of TensorFlow 1 and Caffe, read without these frameworks.

TensorFlow: `NAME.index` is a table of LevelDB (blocks of entries with shared key prefixes, a footer of 48 bytes), whose
values are BundleEntryProto messages; `NAME.data-00000-of-00001` holds the tensors. Caffe: a NetParameter message.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from codecnn.base.errors import FormatError

Tensors = dict[str, npt.NDArray[np.float32]]

_FOOTER = 48
_MAGIC = 0xDB4775248B80FB57
_FLOAT = 1
"""DT_FLOAT of TensorFlow's types."""


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a number of seven bits a byte; return it and the position after it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield (number, value) of the fields of a protocol buffer; values of 4 and 8 bytes are bytes."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        value: int | bytes
        if kind == 0:
            value, at = _varint(message, at)
        elif kind in (1, 2, 5):
            size = 8 if kind == 1 else 4
            if kind == 2:
                size, at = _varint(message, at)
            if at + size > len(message):
                raise FormatError("a field of the message ends after its data")
            value, at = message[at : at + size], at + size
        else:
            raise FormatError(f"the message has a field of the unknown kind {kind}")
        yield number, value


def _block(data: bytes, handle: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of the block of a table that a handle (offset, size) points to."""
    offset, at = _varint(handle, 0)
    size, _ = _varint(handle, at)
    if data[offset + size] != 0:
        raise FormatError("the index is compressed, which is not supported")
    block = data[offset : offset + size]
    end = len(block) - 4 - 4 * int.from_bytes(block[-4:], "little")
    key, at = b"", 0
    while at < end:
        shared, at = _varint(block, at)
        rest, at = _varint(block, at)
        length, at = _varint(block, at)
        key = key[:shared] + block[at : at + rest]
        at += rest
        yield key, block[at : at + length]
        at += length


def read_tensorflow(prefix: Path) -> Tensors:
    """Read the float tensors of a TensorFlow checkpoint (format V2, one data file).

    Args:
        prefix: Path of the checkpoint without `.index`.

    Returns:
        Tensors by name, without those of the optimiser.

    Raises:
        FormatError: A file is damaged.
    """
    index = prefix.with_name(prefix.name + ".index").read_bytes()
    data = prefix.with_name(prefix.name + ".data-00000-of-00001").read_bytes()
    try:
        return dict(_bundle(index, data))
    except (FormatError, IndexError, ValueError) as error:
        raise FormatError(f"{prefix} is no checkpoint of TensorFlow: {error}") from None


def _bundle(index: bytes, data: bytes) -> Iterator[tuple[str, npt.NDArray[np.float32]]]:
    if int.from_bytes(index[-8:], "little") != _MAGIC:
        raise FormatError("the index has another magic number")
    footer = index[-_FOOTER:]
    at = 0
    for _ in range(2):
        _, at = _varint(footer, at)
    for _, handle in _block(index, footer[at:]):
        for key, value in _block(index, handle):
            name = key.decode()
            if not name or "/Adam" in name or name.endswith("_power"):
                continue
            entry = dict(_fields(value))
            if entry.get(1) != _FLOAT:
                continue
            shape = [
                int(size)
                for number, dim in _fields(bytes(entry.get(2, b"")))
                for _, size in _fields(dim)  # type: ignore[arg-type]
            ]
            offset, size = int(entry.get(4, 0)), int(entry[5])
            tensor = np.frombuffer(data[offset : offset + size], "<f4")
            yield name, tensor.reshape(shape)


def read_caffe(path: Path) -> Tensors:
    """Read the layers of a Caffe model.

    Args:
        path: The .caffemodel file.

    Returns:
        The tensors of each layer with weights, as "NAME/0" (weights, (outputs, inputs, rows, columns)) and "NAME/1"
        (bias).

    Raises:
        FormatError: The file is damaged.
    """
    tensors: Tensors = {}
    try:
        for number, layer in _fields(path.read_bytes()):
            if number != 100 or not isinstance(layer, bytes):
                continue
            parts = list(_fields(layer))
            name = next(bytes(value).decode() for field, value in parts if field == 1)
            blobs = [value for field, value in parts if field == 7]
            for index, blob in enumerate(blobs):
                tensors[f"{name}/{index}"] = _blob(bytes(blob))
    except (FormatError, IndexError, ValueError, StopIteration) as error:
        raise FormatError(f"{path} is no model of Caffe: {error}") from None
    if not tensors:
        raise FormatError(f"{path} is no model of Caffe: it has no layer with weights")
    return tensors


def _blob(blob: bytes) -> npt.NDArray[np.float32]:
    """Return the tensor of a BlobProto, whose values and sizes may be packed or not."""
    values = b"".join(bytes(value) for number, value in _fields(blob) if number == 5)
    shape: list[int] = []
    for number, value in _fields(blob):
        if number == 7:
            for _, sizes in _fields(bytes(value)):
                at = 0
                while isinstance(sizes, bytes) and at < len(sizes):
                    size, at = _varint(sizes, at)
                    shape.append(size)
                if isinstance(sizes, int):
                    shape.append(sizes)
    return np.frombuffer(values, "<f4").reshape(shape)
