"""libvvenc as a shared library that the user built, over ctypes: its functions, and the structs that cross the border.

Only what the API of libvvenc 1.15 (include/vvenc/vvenc.h) hands out is read through a layout of ours, and each layout
is held against what the library itself writes before anything is coded. The configuration stays opaque: settings go in
by name, as text.
"""

import ctypes
import functools
import os
from ctypes import CFUNCTYPE, POINTER, Structure, c_bool, c_char_p, c_int, c_int16, c_int64, c_ubyte, c_uint64, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from codecnn.errors import MissingFileError, ToolMissingError

LIBRARY_VARIABLE = "CODECNN_VVENC_LIBRARY"
"""Environment variable that names the library where no option does."""

CONFIG_BYTES = {"1.15.0-dev": 47312}
"""sizeof(vvenc_config) by the versions whose structs and whose order of coding and handing out pictures are known."""

CHROMA_FORMATS = {"400": 0, "420": 1}
"""vvencChromaFormat."""

_ROOM = 1 << 20
"""Bytes for a configuration of a size that is yet to be found out."""

_SIZE = (24, 16)
"""Width and height of the picture that layouts are tried on."""


class Plane(Structure):
    """vvencYUVPlane: samples as int16, `stride` in samples from row to row."""

    _fields_ = (("ptr", POINTER(c_int16)), ("width", c_int), ("height", c_int), ("stride", c_int))


class YuvBuffer(Structure):
    """vvencYUVBuffer, up to the fields that every build of the library has."""

    _fields_ = (("planes", Plane * 3), ("sequence_number", c_uint64), ("cts", c_int64), ("cts_valid", c_bool))


class AccessUnit(Structure):
    """The beginning of vvencAccessUnit: the bytes of one coded picture."""

    _fields_ = (("payload", POINTER(c_ubyte)), ("payload_size", c_int), ("payload_used", c_int))


LogCallback = CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_void_p)
PictureCallback = CFUNCTYPE(None, c_void_p, POINTER(YuvBuffer))

_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "vvenc_get_version": (c_char_p, ()),
    "vvenc_get_last_error": (c_char_p, (c_void_p,)),
    "vvenc_get_error_msg": (c_char_p, (c_int,)),
    "vvenc_init_default": (c_int, (c_void_p, c_int, c_int, c_int, c_int, c_int, c_int)),
    "vvenc_set_param": (c_int, (c_void_p, c_char_p, c_char_p)),
    "vvenc_set_msg_callback": (None, (c_void_p, c_void_p, LogCallback)),
    "vvenc_YUVBuffer_alloc": (POINTER(YuvBuffer), ()),
    "vvenc_YUVBuffer_alloc_buffer": (None, (POINTER(YuvBuffer), c_int, c_int, c_int)),
    "vvenc_YUVBuffer_free": (None, (POINTER(YuvBuffer), c_bool)),
    "vvenc_accessUnit_alloc": (POINTER(AccessUnit), ()),
    "vvenc_accessUnit_alloc_payload": (None, (POINTER(AccessUnit), c_int)),
    "vvenc_accessUnit_free": (None, (POINTER(AccessUnit), c_bool)),
    "vvenc_encoder_create": (c_void_p, ()),
    "vvenc_encoder_open": (c_int, (c_void_p, c_void_p)),
    "vvenc_encoder_set_RecYUVBufferCallback": (c_int, (c_void_p, c_void_p, PictureCallback)),
    "vvenc_encode": (c_int, (c_void_p, POINTER(YuvBuffer), POINTER(AccessUnit), POINTER(c_bool))),
    "vvenc_encoder_close": (c_int, (c_void_p,)),
}
"""Result and arguments of the functions that are called."""


class Functions(Protocol):
    """The functions of a library by their names; ctypes.CDLL is one."""

    def __getattr__(self, name: str) -> Any: ...


@dataclass(frozen=True)
class VvencLibrary:
    """A libvvenc that was loaded and found to be as it is known; `load_library` makes one."""

    path: Path
    version: str
    functions: Functions

    def config(self) -> "ctypes.Array[ctypes.c_char]":
        """Room for a vvenc_config."""
        return ctypes.create_string_buffer(CONFIG_BYTES[self.version])


def find_library(path: Path | str | None = None) -> VvencLibrary:
    """The library in the file `path`, or in the file that LIBRARY_VARIABLE names. Raises as `load_library`."""
    named = path or os.environ.get(LIBRARY_VARIABLE)
    if not named:
        raise ToolMissingError(
            "a filter inside the loop needs libvvenc as a shared library: name the file by --vvenc-library or "
            f"{LIBRARY_VARIABLE}, in a recipe by in_loop.library; docs/inloop.md says how to build it"
        )
    return load_library(Path(named))


@functools.cache
def load_library(path: Path) -> VvencLibrary:
    """The shared library libvvenc in the file `path`.

    Raises MissingFileError without the file, ToolMissingError for one that is no shared library of this machine, no
    libvvenc, of a version that is not in CONFIG_BYTES, or built with structs of another layout.
    """
    if not path.is_file():
        raise MissingFileError(f"{path} does not exist: libvvenc is built as a shared library as docs/inloop.md says")
    try:
        return checked_library(path, ctypes.CDLL(str(path.resolve())))
    except OSError as error:
        if isinstance(error, ToolMissingError):
            raise
        raise ToolMissingError(f"{path} cannot be loaded as a shared library: {error}") from error


def checked_library(path: Path, functions: Functions) -> VvencLibrary:
    """The functions of the file `path` as a library, once they are found to be those known. Raises ToolMissingError."""
    for name, (result, arguments) in _FUNCTIONS.items():
        try:
            function = getattr(functions, name)
        except AttributeError:
            raise ToolMissingError(f"{path} is no libvvenc that can be used: it has no function {name}") from None
        function.restype, function.argtypes = result, arguments
    version = functions.vvenc_get_version().decode(errors="replace")
    if version not in CONFIG_BYTES:
        raise ToolMissingError(
            f"{path} is libvvenc {version}, of which it is not known that its reconstruction callback hands out the "
            f"reference picture before it is used: build {' or '.join(CONFIG_BYTES)}, as docs/inloop.md says"
        )
    _check_config(path, version, functions)
    _check_buffers(path, functions)
    return VvencLibrary(path, version, functions)


def _check_config(path: Path, version: str, functions: Functions) -> None:
    """Raise unless vvenc_config begins with width and height, and ends with the callback and its context.

    The library is asked to set them, and they are looked for where the known layout has them.
    """
    room = ctypes.create_string_buffer(_ROOM)
    functions.vvenc_init_default(room, *_SIZE, 30, 0, 32, 0)
    heard = LogCallback(lambda *_: None)
    functions.vvenc_set_msg_callback(room, 0x5A5A5A5A, heard)
    size = CONFIG_BYTES[version]
    told = (*(c_int * 2).from_buffer(room), *(c_void_p * 2).from_buffer(room, size - 2 * ctypes.sizeof(c_void_p)))
    if told != (*_SIZE, ctypes.cast(heard, c_void_p).value, 0x5A5A5A5A) or any(room.raw[size:]):
        raise ToolMissingError(
            f"{path} was built with another vvenc_config than the {size} bytes of libvvenc {version}"
        )


def _check_buffers(path: Path, functions: Functions) -> None:
    """Raise unless the structs of pictures and access units that the library allocates read as they should."""
    buffer, unit = functions.vvenc_YUVBuffer_alloc(), functions.vvenc_accessUnit_alloc()
    try:
        functions.vvenc_YUVBuffer_alloc_buffer(buffer, CHROMA_FORMATS["420"], *_SIZE)
        functions.vvenc_accessUnit_alloc_payload(unit, 4711)
        width, height = _SIZE
        sizes = [(plane.width, plane.height) for plane in buffer.contents.planes]
        whole = all(plane.ptr and plane.width <= plane.stride < 1 << 16 for plane in buffer.contents.planes)
        if not whole or sizes != [_SIZE, (width // 2, height // 2), (width // 2, height // 2)]:
            raise ToolMissingError(f"{path} was built with another vvencYUVBuffer than that of libvvenc 1.15")
        access = unit.contents
        if not access.payload or (access.payload_size, access.payload_used) != (4711, 0):
            raise ToolMissingError(f"{path} was built with another vvencAccessUnit than that of libvvenc 1.15")
    finally:
        functions.vvenc_YUVBuffer_free(buffer, True)
        functions.vvenc_accessUnit_free(unit, True)
