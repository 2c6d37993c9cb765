"""One definition of an option: a field of a record of options, from which command line, Python and help are made.

A function that users call (a verb) takes one frozen record. Each field of the record is annotated with an `Option`:
its flags, its help, how a text becomes its value. `verb` makes the function that Python users call with the fields as
arguments; `codecnn.cli.commands` makes the command.

This module and those of records import nothing that takes long, because the command line imports all of them.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, dataclass_transform, get_args, get_origin

from codecnn.base.errors import ConfigError, UnknownArgumentError
from codecnn.base.keywords import nearest

Arguments = ParamSpec("Arguments")
Record = TypeVar("Record")
Result = TypeVar("Result")

_WIDTH = 116
"""Characters in a line of a docstring."""


@dataclass(frozen=True, eq=False)
class Option:
    """Definition of one field of a record of options.

    Attributes:
        help: Sentence on the value, for the command line and for Python.
        place: Where it stands on the command line; "python" and "progress" have no flag.
        flags: Flags, e.g. ("-o", "--output").
        group: Heading of the group in --help; "" is the first group, of what people need first.
        kind: Type of one value on the command line; None takes that of the annotation, or text if there is `parse`.
        parse: Function that converts one value of the command line.
        collect: Function that converts the list of all values of an option that may be repeated; None allows one value.
        metavar: Name of the value in --help.
        shown: Default as a text of the command line, for a value that `parse` returns.
        minimum: Smallest number.
        maximum: Largest number.
        complete: Function that completes a value in the shell.
        bar: Text and unit of a progress bar, e.g. ("coding", "unit").
        required: Whether the command line requires it although the record has a default.
        python: Sentence for Python alone, which follows `help`.
        fixed: Value that the command line gives to a field without a flag; None gives none.
    """

    help: str
    place: Literal["option", "argument", "python", "progress"]
    flags: tuple[str, ...] = ()
    group: str = ""
    kind: Any = None
    parse: Callable[[Any], Any] | None = None
    collect: Callable[[list[Any]], Any] | None = None
    metavar: str | None = None
    shown: str | None = None
    minimum: float | None = None
    maximum: float | None = None
    complete: Callable[[str], list[str]] | None = None
    bar: tuple[str, str] = ("", "")
    required: bool = False
    python: str = ""
    fixed: Any = None

    def read(self, value: Any) -> Any:
        """Convert what the command line gave; several values if the option may be repeated."""
        parse = self.parse or (lambda each: each)
        return parse(value) if self.collect is None else self.collect([parse(each) for each in value])


def option(
    *flags: str,
    help: str,  # noqa: A002
    group: str = "",
    kind: Any = None,
    parse: Callable[[Any], Any] | None = None,
    collect: Callable[[list[Any]], Any] | None = None,
    metavar: str | None = None,
    shown: str | None = None,
    minimum: float | None = None,
    maximum: float | None = None,
    complete: Callable[[str], list[str]] | None = None,
    required: bool = False,
    python: str = "",
) -> Option:
    """Define an option with flags; the arguments are the attributes of `Option`."""
    return Option(
        help,
        "option",
        flags,
        group,
        kind=kind,
        parse=parse,
        collect=collect,
        metavar=metavar,
        shown=shown,
        minimum=minimum,
        maximum=maximum,
        complete=complete,
        required=required,
        python=python,
    )


def argument(
    help: str,  # noqa: A002
    metavar: str | None = None,
    *,
    kind: Any = None,
    parse: Callable[[Any], Any] | None = None,
    collect: Callable[[list[Any]], Any] | None = None,
    python: str = "",
) -> Option:
    """Define an argument without a flag; the arguments are the attributes of `Option`."""
    return Option(help, "argument", kind=kind, parse=parse, collect=collect, metavar=metavar, python=python)


def python_only(help: str, fixed: Any = None) -> Option:  # noqa: A002
    """Define a field that the command line does not have, or to which it gives a fixed value."""
    return Option(help, "python", fixed=fixed)


def progress_bar(text: str, unit: str, help: str) -> Option:  # noqa: A002
    """Define a field for a function of (done, all); commands show a progress bar.

    Args:
        text: Text in front of the bar, e.g. "coding".
        unit: Unit of the counts, e.g. "picture".
        help: Sentence on the counts.
    """
    return Option(help, "progress", bar=(text, unit))


@dataclass(frozen=True)
class Field:
    """A field of a record of options.

    Attributes:
        name: Name of the field.
        type: Type of the field; a text where it names a type that is not imported.
        option: Its definition.
        default: Default value, or `dataclasses.MISSING`.
        keyword: Whether Python takes it as a keyword argument only.
    """

    name: str
    type: Any
    option: Option
    default: Any
    keyword: bool

    @property
    def required(self) -> bool:
        """True if there is no default."""
        return self.default is dataclasses.MISSING


def fields_of(record: type) -> list[Field]:
    """Return the fields of a record of options: positional ones, its own, then those of the records that it extends."""
    known = {field.name: field for field in dataclasses.fields(record)}
    names = dict.fromkeys(name for kind in record.__mro__ for name in vars(kind).get("__annotations__", {}))
    ordered = [known[name] for name in names if name in known]
    return [_field(field) for field in sorted(ordered, key=lambda field: field.kw_only is True)]


def _field(field: "dataclasses.Field[Any]") -> Field:
    if get_origin(field.type) is not Annotated:
        raise TypeError(f"the field {field.name} is not annotated with an Option")
    kind, definition, *_ = get_args(field.type)
    default = field.default
    if field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    return Field(field.name, kind, definition, default, field.kw_only is True)


@dataclass_transform(frozen_default=True, eq_default=False)
def record(kind: type[Record]) -> type[Record]:
    """Make a class a frozen dataclass of options.

    Records are equal only if they are the same, and have no `repr`: comparison and text of a record are never needed,
    and their functions would double the time in which the command line creates all records.
    """
    return dataclass(frozen=True, eq=False, repr=False)(kind)


@dataclass(frozen=True)
class Verb:
    """A function that users call, as the command line uses it.

    Attributes:
        record: Record of its options.
        work: Function of the record.
    """

    record: type
    work: Callable[[Any], Any]


def verb(
    options: Callable[Arguments, Record],
) -> Callable[[Callable[[Record], Result]], Callable[Arguments, Result]]:
    """Make the function that users call with arguments from one that takes a record of options.

    The signature is that of the record. The docstring gets a section of arguments from the record. An unknown keyword
    argument raises UnknownArgumentError.

    Args:
        options: The record, a frozen dataclass whose fields are annotated with an `Option`.
    """

    def decorate(work: Callable[[Record], Result]) -> Callable[Arguments, Result]:
        signature = _signature(options, work)  # type: ignore[arg-type]

        @functools.wraps(work)
        def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
            check_keywords(work.__name__, kwargs, signature.parameters)
            signature.bind(*args, **kwargs)  # its TypeError does not speak of a record
            return work(options(*args, **kwargs))

        vars(call)["__signature__"] = signature
        vars(call)["verb"] = Verb(options, work)  # type: ignore[arg-type]
        call.__doc__ = documented(work.__doc__ or "", options)  # type: ignore[arg-type]
        return call

    return decorate


def _signature(record: type, work: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a record with plain types, and its keyword arguments in the order of the help."""
    parameters = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY if field.keyword else inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=inspect.Parameter.empty if field.required else field.default,
            annotation=field.type,
        )
        for field in fields_of(record)
    ]
    return inspect.Signature(parameters, return_annotation=inspect.signature(work).return_annotation)


def check_keywords(name: str, given: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """Raise UnknownArgumentError for a keyword argument that a function does not have."""
    if unknown := sorted(given.keys() - known.keys()):
        raise UnknownArgumentError(f"{name} has no argument {unknown[0]!r}: {nearest(unknown[0], known)}")


def verb_of(function: Callable[..., Any]) -> Verb:
    """Return record and work of a function that `verb` made."""
    found: Verb = vars(function)["verb"]
    return found


def documented(text: str, record: type) -> str:
    """Return a docstring with a section of the arguments, whose texts are those of the options."""
    lines = inspect.cleandoc(text).splitlines()
    sections = ("Returns:", "Raises:", "Yields:")
    place = next((number for number, line in enumerate(lines) if line in sections), len(lines))
    head = lines[:place] if place < len(lines) or not lines else [*lines, ""]
    return "\n".join([*head, "Args:", *_argument_lines(record), *(["", *lines[place:]] if lines[place:] else [])])


def _argument_lines(record: type) -> Iterator[str]:
    for field in fields_of(record):
        line = f"    {field.name}:"
        for word in f"{field.option.help} {field.option.python}".split():
            if len(line) + len(word) >= _WIDTH:
                yield line
                line = "       "
            line = f"{line} {word}"
        yield line


def summary_of(function: Callable[..., Any]) -> str:
    """Return the docstring of a verb without its sections of arguments, results and errors."""
    text = inspect.cleandoc(verb_of(function).work.__doc__ or "")
    for section in ("Returns:", "Raises:", "Yields:"):
        text = text.split(f"\n{section}\n")[0]
    return text.rstrip()


def pair(flag: str, example: str) -> Callable[[str], tuple[str, str]]:
    """Return a function that parses NAME=FILE.

    Args:
        flag: The option, for the message.
        example: A correct value, for the message.
    """

    def parse(text: str) -> tuple[str, str]:
        name, equals, file = text.partition("=")
        if not equals:
            raise ConfigError(f"{flag} {text!r} is not NAME=FILE, e.g. {example}")
        return name, file

    return parse
