"""Names that a user writes, such as keyword arguments: an unknown one is an error that names the nearest known one."""

import functools
import inspect
from collections.abc import Callable, Collection
from difflib import get_close_matches
from typing import Any, ParamSpec, TypeVar

from codecnn.base.errors import UnknownArgumentError

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def nearest(name: str, known: Collection[str], otherwise: str | None = None) -> str:
    """Return a clause with the known name that is most similar to an unknown one.

    Args:
        name: The unknown name.
        known: The known names.
        otherwise: Clause to return if no name is similar; by default one with all names.
    """
    names = sorted(known)
    near = get_close_matches(name, names, 1) or get_close_matches(name.lower(), names, 1)
    if near:
        return f"did you mean {near[0]!r}?"
    return otherwise or f"there are {', '.join(names) or 'none'}"


def checked_keywords(
    *options: Callable[..., Any] | Collection[str],
) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Let a function raise UnknownArgumentError for keyword arguments that it does not have.

    Args:
        options: For a function that takes `**options`, what these are: names, or a function whose keyword-only
            arguments they are.
    """
    further = {name for each in options for name in (keywords_of(each) if callable(each) else each)}

    def decorate(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        parameters = inspect.signature(function).parameters.values()
        variable = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
        known = further | {parameter.name for parameter in parameters if parameter.kind not in variable}

        @functools.wraps(function)
        def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
            if not kwargs.keys() <= known:
                unknown = min(kwargs.keys() - known)
                raise UnknownArgumentError(
                    f"{function.__name__} has no argument {unknown!r}: {nearest(unknown, known)}"
                )
            return function(*args, **kwargs)

        return call

    return decorate


def keywords_of(function: Callable[..., Any]) -> set[str]:
    """Return the names of the keyword-only arguments of a function."""
    parameters = inspect.signature(function).parameters.values()
    return {parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY}


def option_names(build: Callable[..., Any]) -> set[str]:
    """Return the names of the arguments of a function or class; a class that passes options on has those of its base.

    Args:
        build: The function or class.
    """
    names: set[str] = set()
    kinds = [kind for kind in build.__mro__ if "__init__" in vars(kind)] if isinstance(build, type) else [build]
    for kind in kinds:
        parameters = inspect.signature(kind).parameters.values()
        names |= {each.name for each in parameters if each.kind is not each.VAR_KEYWORD}
        if all(each.kind is not each.VAR_KEYWORD for each in parameters):
            break
    return names
