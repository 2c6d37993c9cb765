"""Commands made from verbs: a record of options, the function that does the work, and one that prints its result."""

import inspect
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import typer
from rich.markup import escape

from codecnn.base.errors import UsageError
from codecnn.base.options import Field, fields_of, summary_of, verb_of
from codecnn.cli.application import EXAMPLES, RESUMABLE, app
from codecnn.cli.console import progress
from codecnn.cli.options import Json, Trust, limit_threads, permit_code

Printer = Callable[[Any, Any, bool], None]
"""Function that prints a result: (options, result, whether as JSON)."""
Print = TypeVar("Print", bound=Printer)


def command(
    name: str,
    function: Callable[..., Any],
    example: str,
    *,
    group: typer.Typer = app,
    threads: bool = False,
    trust: bool = False,
    json: bool = True,
    resumable: bool = False,
    before: Callable[[Any, bool], Any] | None = None,
) -> Callable[[Print], Print]:
    """Add a command that runs a verb and prints its result with the decorated function.

    Args:
        name: Name of the command, with that of its group, e.g. "dataset build".
        function: The verb.
        example: A correct command line, for the help and for errors of usage.
        group: Application to add the command to.
        threads: Use fewer CPU threads if other processes slow down all of them.
        trust: Add the option --trust for code of the user.
        json: Add the option --json.
        resumable: The command continues when it is run again.
        before: Called before the work with the record of options and whether the result is JSON; returns the record.
    """
    EXAMPLES[name] = example
    RESUMABLE.extend([name] if resumable else [])
    verb = verb_of(function)
    fields = fields_of(verb.record)

    def decorate(show: Print) -> Print:
        def run(**values: Any) -> None:
            as_json = values.get("as_json", False)
            try:
                with ExitStack() as stack:
                    options = verb.record(**_arguments(fields, values, stack))
                    if before is not None:
                        options = before(options, as_json)
                    if threads:
                        limit_threads(getattr(options, "device", "cpu"))
                    result = verb.work(options)
            except UsageError as error:
                raise typer.BadParameter(str(error)) from error
            show(options, result, as_json)

        parameters = [_parameter(field) for field in fields if field.option.place in ("option", "argument")]
        keyword = inspect.Parameter.KEYWORD_ONLY
        if trust:
            parameters.append(inspect.Parameter("trust", keyword, default=None, annotation=Trust))
        if json:
            parameters.append(inspect.Parameter("as_json", keyword, default=False, annotation=Json))
        vars(run)["__signature__"] = inspect.Signature(parameters)
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        run.__doc__ = "\n\n".join(" ".join(part.split()) for part in summary_of(function).split("\n\n"))
        group.command(name.rsplit(" ", 1)[-1])(run)
        return show

    return decorate


def _arguments(fields: list[Field], values: dict[str, Any], stack: ExitStack) -> dict[str, Any]:
    """Convert the values of a command line into arguments of a record; what was not given is left out."""
    permit_code(values.get("trust"))  # before weights are loaded
    arguments: dict[str, Any] = {}
    for field in fields:
        option = field.option
        if option.place == "progress":
            arguments[field.name] = stack.enter_context(progress(*option.bar))
        elif option.fixed is not None:
            arguments[field.name] = option.fixed
        elif (value := values.get(field.name)) not in (None, []):
            arguments[field.name] = option.read(value)
        elif field.required and option.place != "python":
            arguments[field.name] = None
    return arguments


def _parameter(field: Field) -> inspect.Parameter:
    """Return the parameter from which Typer makes an option or argument."""
    option = field.option
    kind = option.kind or (str if option.parse is not None and option.collect is None else _single(field.type))
    # Brackets in a help text are no markup of rich.
    shared: dict[str, Any] = {"help": escape(option.help), "metavar": option.metavar, "min": option.minimum}
    shared |= {"max": option.maximum, "autocompletion": option.complete}
    default: Any = inspect.Parameter.empty
    if not option.required and (not field.required or NoneType in get_args(field.type)):
        default = option.shown
        if default is None and option.parse is None and _fits(field.default, kind):
            default = field.default
    if option.place == "argument":
        info: Any = typer.Argument(**shared)
    else:
        show_default = default is not None and default is not False
        info = typer.Option(
            ..., *option.flags, **shared, rich_help_panel=option.group or None, show_default=show_default
        )
    annotated: Any = kind if option.collect is None else list[kind]  # type: ignore[valid-type]
    if default is None:
        annotated = annotated | None
    info.default = ... if default is inspect.Parameter.empty else default
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=info, annotation=annotated)


def _single(annotation: Any) -> Any:
    """Return the type of one value of a command line: that of an annotation without None, and a file for its name."""
    if get_origin(annotation) in (Union, UnionType):
        members = [member for member in get_args(annotation) if member is not NoneType]
        annotation = Path if Path in members else members[0]
    return annotation


def _fits(value: Any, kind: Any) -> bool:
    """Return whether a default can be that of a parameter of the command line."""
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    return isinstance(kind, type) and isinstance(value, kind | int if kind is float else kind)
