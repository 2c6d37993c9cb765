"""Records: structures of integers whose fields compiled functions and plain Python address by name.

A class that derives from `Record` declares the fields, e.g.

    class MotionVector(Record):
        x: int
        y: int

    class Motion(Record):
        mv: Annotated[Array[MotionVector], 2]
        ref_idx: Annotated[Array[int], 2]

so that `motion.mv[0].x` is a number, and mypy knows the fields. A record is a NumPy scalar of its class, an array of
records a NumPy array. Numba knows them by their NumPy type, and compiles the access to a load from an address.
"""

import functools
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Generic,
    SupportsIndex,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

import numba
import numba.np.arrayobj
import numpy as np
import numpy.typing as npt

T = TypeVar("T")


class Array(Generic[T]):
    """Type of an array in a record, of integers (`Array[int]`), of records or of arrays; `Annotated` adds its shape.

    The shape of an array of arrays, e.g. `Annotated[Array[Array[int]], 3, 64]`, is that of all of it. In compiled
    functions arrays of different lengths have different types: `[:]` gives the type of a part of an array to each.
    """

    shape: tuple[int, ...]

    @overload
    def __getitem__(self, index: slice) -> "Array[T]": ...

    @overload
    def __getitem__(self, index: SupportsIndex | tuple[SupportsIndex, ...]) -> T: ...

    def __getitem__(self, index: Any) -> Any:
        """Return an element, or a part of the array; a record or an array is a view, whose changes change the array."""
        raise NotImplementedError

    def __setitem__(self, index: Any, value: Any) -> None:
        """Set elements."""
        raise NotImplementedError


if TYPE_CHECKING:
    # The stubs of NumPy do not allow classes that derive from np.void.
    from builtins import object as _Scalar
else:
    _Scalar = np.void


class Record(_Scalar):
    """Base of the classes that declare the fields of a record."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Return a field; a record or an array is a view."""
            try:
                return self[name]
            except ValueError:
                raise AttributeError(f"{type(self).__name__} has no field {name}") from None

        def __setattr__(self, name: str, value: Any) -> None:
            """Set a field."""
            try:
                self[name] = value
            except ValueError:
                raise AttributeError(f"{type(self).__name__} has no field {name}") from None


R = TypeVar("R", bound=Record)


def record_dtype(kind: type[Record], integer: type[np.signedinteger[Any]] = np.int64) -> np.dtype[Any]:
    """Return the NumPy type of a record, laid out as a struct of C.

    Args:
        kind: Class that declares the fields.
        integer: NumPy type of all integers in the record.

    Raises:
        ValueError: A field has the name of an attribute of NumPy scalars, such as size or data.
    """
    # To mypy a class is not hashable.
    dtype: np.dtype[Any] = cast(Any, _cached_dtype)(kind, integer)
    return dtype


@functools.cache
def _cached_dtype(kind: Any, integer: Any) -> np.dtype[Any]:
    fields: list[tuple[Any, ...]] = []
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if hasattr(np.void, name):
            raise ValueError(f"{kind.__name__}.{name} hides np.void.{name}: choose another name")
        element, *shape = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        while get_origin(element) is Array:
            (element,) = get_args(element)
        dtype = np.dtype(integer) if element is int else _cached_dtype(element, integer)
        fields.append((name, dtype, tuple(shape)) if shape else (name, dtype))
    return np.dtype((kind, np.dtype(fields, align=True)))


def new_record(kind: type[R], integer: type[np.signedinteger[Any]] = np.int64) -> R:
    """Return a record whose numbers are all 0.

    Args:
        kind: Class that declares the fields.
        integer: NumPy type of all integers in the record.
    """
    return cast(R, np.zeros(1, record_dtype(kind, integer))[0])


def record_at(numbers: npt.NDArray[np.int64], at: int, dtype: np.dtype[Any]) -> Any:
    """Return a record that lies in an array of int64 numbers; a change to one changes the other.

    Args:
        numbers: The array, one-dimensional and contiguous.
        at: Position of the first number of the record.
        dtype: Type of the record, as `record_dtype` returns it.
    """
    return numbers[at : at + dtype.itemsize // 8].view(dtype)[0]


def _record_at(_context: Any, numbers: Any, at: Any, dtype: Any) -> Any:
    def address(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        make_array: Any = numba.np.arrayobj.make_array
        array = make_array(signature.args[0])(context, builder, arguments[0])
        return builder.bitcast(builder.gep(array.data, [arguments[1]]), context.get_value_type(signature.return_type))

    return dtype.dtype(numbers, at, dtype), address


_compiled_record_at: Any = numba.extending.intrinsic(_record_at)


@numba.extending.overload(record_at)
def _overload_record_at(numbers: Any, at: Any, dtype: Any) -> Any:
    def record(numbers: Any, at: Any, dtype: Any) -> Any:
        return _compiled_record_at(numbers, at, dtype)

    return record


Records = npt.NDArray[Any]
"""Array whose elements are records, e.g. of the cells of a picture."""
