"""Binding of libvvenc as a shared library that the user builds: its functions, structs and reference pictures.

The binding uses ctypes and the API of libvvenc 1.15 (include/vvenc/vvenc.h). Every struct layout is compared with what
the library writes before anything is coded. The configuration stays opaque: settings are passed by name, as text.
"""

import ctypes
import functools
import os
from ctypes import CFUNCTYPE, POINTER, Structure, c_bool, c_char_p, c_int, c_int16, c_int64, c_ubyte, c_uint64, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from codecnn.base.division import ceil_div
from codecnn.base.errors import EncoderError, MissingFileError, ToolMissingError
from codecnn.pictures.files import VideoFormat

LIBRARY_VARIABLE = "CODECNN_VVENC_LIBRARY"
"""Environment variable that names the library if no option does."""

CONFIG_BYTES = {"1.15.0-dev": 47312}
"""Supported versions, with their sizeof(vvenc_config).

For a supported version, the structs and the order in which pictures are coded and returned are known.
"""

CHROMA_FORMATS = {"400": 0, "420": 1}
"""Values of vvencChromaFormat."""

_CONFIG_BUFFER_BYTES = 1 << 20
"""Buffer for a configuration whose size is not verified yet."""

_TEST_SIZE = (24, 16)
"""Width and height of the picture with which layouts are tested."""

_MARGIN = 16
"""Margin in luma samples on each side of a reference picture, beyond one CTU (EncStage.h, Picture::create)."""

_ALIGNMENT = 32
"""Alignment of rows in samples (MEMORY_ALIGN_DEF_SIZE of CommonDef.h)."""


class Plane(Structure):
    """vvencYUVPlane: samples as int16; `stride` is the distance of two rows in samples."""

    _fields_ = (("ptr", POINTER(c_int16)), ("width", c_int), ("height", c_int), ("stride", c_int))


class YuvBuffer(Structure):
    """vvencYUVBuffer, up to the last field that every build of the library has."""

    _fields_ = (("planes", Plane * 3), ("sequence_number", c_uint64), ("cts", c_int64), ("cts_valid", c_bool))


class AccessUnit(Structure):
    """Beginning of vvencAccessUnit: the bytes of one coded picture."""

    _fields_ = (("payload", POINTER(c_ubyte)), ("payload_size", c_int), ("payload_used", c_int))


LogCallback = CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_void_p)
PictureCallback = CFUNCTYPE(None, c_void_p, POINTER(YuvBuffer))

SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
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
"""Result and argument types of the functions that codecnn calls."""


class Functions(Protocol):
    """The functions of a library by their names; ctypes.CDLL is one."""

    def __getattr__(self, name: str) -> Any: ...


@dataclass(frozen=True)
class VvencLibrary:
    """A loaded and verified libvvenc, as `load_library` returns it."""

    path: Path
    version: str
    functions: Functions

    def config(self) -> "ctypes.Array[ctypes.c_char]":
        """Allocate a vvenc_config."""
        return ctypes.create_string_buffer(CONFIG_BYTES[self.version])


def find_library(path: Path | str | None = None) -> VvencLibrary:
    """Load libvvenc from the file `path`, or from the file that LIBRARY_VARIABLE names.

    Raises:
        MissingFileError: The file does not exist.
        ToolMissingError: No file is named, or the file is not a supported libvvenc.
    """
    named = path or os.environ.get(LIBRARY_VARIABLE)
    if not named:
        raise ToolMissingError(
            "a filter inside the loop needs libvvenc as a shared library: name the file by --vvenc-library or "
            f"{LIBRARY_VARIABLE}, in a recipe by in_loop.library; docs/howto/inloop.md says how to build it"
        )
    return load_library(Path(named))


@functools.cache
def load_library(path: Path) -> VvencLibrary:
    """Load libvvenc from a file.

    Raises:
        MissingFileError: The file does not exist.
        ToolMissingError: The file is not a shared library of this machine, not libvvenc, of a version that is not in
            CONFIG_BYTES, or built with structs of another layout.
    """
    if not path.is_file():
        raise MissingFileError(
            f"{path} does not exist: build libvvenc as a shared library as docs/howto/inloop.md says"
        )
    try:
        return checked_library(path, ctypes.CDLL(str(path.resolve())))
    except OSError as error:
        if isinstance(error, ToolMissingError):
            raise
        raise ToolMissingError(f"{path} cannot be loaded as a shared library: {error}") from error


def checked_library(path: Path, functions: Functions) -> VvencLibrary:
    """Verify the functions of the file `path`; raise ToolMissingError unless they are those of a supported libvvenc."""
    for name, (result, arguments) in SIGNATURES.items():
        try:
            function = getattr(functions, name)
        except AttributeError:
            raise ToolMissingError(f"{path} is not a usable libvvenc: it has no function {name}") from None
        function.restype, function.argtypes = result, arguments
    version = functions.vvenc_get_version().decode(errors="replace")
    if version not in CONFIG_BYTES:
        raise ToolMissingError(
            f"{path} is libvvenc {version}, which is not known to return the reference picture in its reconstruction "
            f"callback before it is used: build {' or '.join(CONFIG_BYTES)}, as docs/howto/inloop.md says"
        )
    _check_config(path, version, functions)
    _check_buffers(path, functions)
    return VvencLibrary(path, version, functions)


def _check_config(path: Path, version: str, functions: Functions) -> None:
    """Raise unless vvenc_config begins with width and height, and ends with the callback and its context.

    The library sets these fields, and their values must appear at the offsets of the known layout.
    """
    buffer = ctypes.create_string_buffer(_CONFIG_BUFFER_BYTES)
    functions.vvenc_init_default(buffer, *_TEST_SIZE, 30, 0, 32, 0)
    callback = LogCallback(lambda *_: None)
    functions.vvenc_set_msg_callback(buffer, 0x5A5A5A5A, callback)
    size = CONFIG_BYTES[version]
    first = (c_int * 2).from_buffer(buffer)
    last = (c_void_p * 2).from_buffer(buffer, size - 2 * ctypes.sizeof(c_void_p))
    expected = (*_TEST_SIZE, ctypes.cast(callback, c_void_p).value, 0x5A5A5A5A)
    if (*first, *last) != expected or any(buffer.raw[size:]):
        raise ToolMissingError(
            f"{path} was built with another vvenc_config than the {size} bytes of libvvenc {version}"
        )


def _check_buffers(path: Path, functions: Functions) -> None:
    """Raise unless the structs of pictures and access units that the library allocates have plausible contents."""
    buffer, unit = functions.vvenc_YUVBuffer_alloc(), functions.vvenc_accessUnit_alloc()
    try:
        functions.vvenc_YUVBuffer_alloc_buffer(buffer, CHROMA_FORMATS["420"], *_TEST_SIZE)
        functions.vvenc_accessUnit_alloc_payload(unit, 4711)
        width, height = _TEST_SIZE
        sizes = [(plane.width, plane.height) for plane in buffer.contents.planes]
        whole = all(plane.ptr and plane.width <= plane.stride < 1 << 16 for plane in buffer.contents.planes)
        if not whole or sizes != [_TEST_SIZE, (width // 2, height // 2), (width // 2, height // 2)]:
            raise ToolMissingError(f"{path} was built with another vvencYUVBuffer than that of libvvenc 1.15")
        access = unit.contents
        if not access.payload or (access.payload_size, access.payload_used) != (4711, 0):
            raise ToolMissingError(f"{path} was built with another vvencAccessUnit than that of libvvenc 1.15")
    finally:
        functions.vvenc_YUVBuffer_free(buffer, True)
        functions.vvenc_accessUnit_free(unit, True)


@dataclass(frozen=True, eq=False)
class ReferencePlane:
    """A plane of a reference picture in the library's memory: `padded` includes margins of `margin` samples."""

    padded: NDArray[np.int16]
    margin: int

    @classmethod
    def of(cls, plane: Plane, video_format: VideoFormat, index: int, ctu_size: int) -> Self:
        """Map the plane `index` (0 Y, 1 U, 2 V) of a picture of `video_format`.

        The layout is that of PelStorage::create in CommonLib/Buffer.cpp: rows hold whole CTUs and both margins, and
        are padded for alignment.

        Raises:
            EncoderError: The memory has another layout, or the library did not extend the picture into the margins.
        """
        height, width = video_format.plane_shapes[index]
        shift = 1 if index else 0
        margin = (ctu_size + _MARGIN) >> shift
        row = (ceil_div(video_format.width, ctu_size) * ctu_size >> shift) + 2 * margin
        stride = ceil_div(row, _ALIGNMENT) * _ALIGNMENT
        actual = (plane.height, plane.width, plane.stride)
        if actual != (height, width, stride):
            raise EncoderError(
                f"libvvenc returned {'YUV'[index]} as {actual} rows, columns and stride, not "
                f"{(height, width, stride)}: its reference pictures do not have the layout of the supported version"
            )
        first = ctypes.addressof(plane.ptr.contents) - 2 * margin * (stride + 1)
        count = (height + 2 * margin - 1) * stride + width + 2 * margin
        flat = np.ctypeslib.as_array((ctypes.c_int16 * count).from_address(first))
        padded = np.lib.stride_tricks.as_strided(flat, (height + 2 * margin, width + 2 * margin), (2 * stride, 2))
        reference = cls(padded, margin)
        if not np.array_equal(padded, np.pad(reference.samples, margin, mode="edge")):
            raise EncoderError(
                f"libvvenc did not extend {'YUV'[index]} by {margin} samples, as the supported version does"
            )
        return reference

    @property
    def samples(self) -> NDArray[np.int16]:
        """Samples of the picture without margins, shape (h, w)."""
        return self.padded[self.margin : -self.margin, self.margin : -self.margin]

    def replace(self, samples: NDArray[Any]) -> None:
        """Overwrite the samples, shape (h, w), and extend them into the margins."""
        self.padded[...] = np.pad(samples, self.margin, mode="edge")


def plane_samples(plane: Plane) -> NDArray[np.int16]:
    """Return the samples of an input plane as a view of the library's memory, shape (h, w)."""
    # The memory may end with the last row, so the array must not extend to a whole stride there.
    flat = np.ctypeslib.as_array(plane.ptr, ((plane.height - 1) * plane.stride + plane.width,))
    return np.lib.stride_tricks.as_strided(flat, (plane.height, plane.width), (2 * plane.stride, 2))


def format_message(text: bytes, arguments: Any) -> str:
    """Format a message of the library: a C format and its va_list, which is a pointer on every 64-bit ABI."""
    buffer = ctypes.create_string_buffer(4096)
    _vsnprintf()(buffer, ctypes.c_size_t(len(buffer)), text, ctypes.c_void_p(arguments))
    return buffer.value.decode(errors="replace")


@functools.cache
def _vsnprintf() -> Any:
    return ctypes.CDLL(None).vsnprintf
