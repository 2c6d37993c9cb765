"""Records of options: command line, Python function and help are made from one definition."""

import dataclasses
import inspect
import re
from dataclasses import KW_ONLY
from pathlib import Path
from typing import Annotated, Literal

import pytest
import typer

import codecnn
from codecnn import api, cli
from codecnn.base.errors import ConfigError, UnknownArgumentError, UsageError
from codecnn.base.options import argument, documented, fields_of, option, progress_bar, python_only, record, verb
from codecnn.cli import commands


def numbers(text):
    return tuple(map(int, text.split(",")))


@record
class Shared:
    """Options that several records share."""

    _: KW_ONLY
    depth: Annotated[int, option("--depth", group="Shape", minimum=1, help="Bits per sample.")] = 8


@record
class Options(Shared):
    """Options of `work`."""

    source: Annotated[Path | str, argument("File to read.")]
    output: Annotated[Path | str | None, option("-o", "--output", help="File to write.")]
    _: KW_ONLY
    qps: Annotated[
        tuple[int, ...],
        option(
            "-q", "--qp", parse=lambda text: tuple(map(int, text.split(","))), shown="22,27", help="QPs to code at."
        ),
    ] = (22, 27)
    names: Annotated[tuple[str, ...], option("--name", kind=str, collect=tuple, help="Names; may be repeated.")] = ()
    kind: Annotated[Literal["a", "b"], option("--kind", help="Kind of the work.")] = "a"
    hidden: Annotated[int, python_only("Value without a flag.")] = 3
    loud: Annotated[bool, python_only("Value of commands.", fixed=True)] = False
    progress: Annotated[object, progress_bar("working", "item", "Called with (done, all).")] = None


@verb(Options)
def work(options: Options) -> Options:
    """Do the work.

    Returns:
        The options.
    """
    if options.kind == "b":
        raise UsageError("kind b does nothing: give kind a")
    return options


@pytest.fixture
def call(monkeypatch):
    """Run a command that is made from the verb; returns the options that the work got."""
    app = typer.Typer()
    app.callback()(lambda: None)
    seen = []
    monkeypatch.setattr(commands, "EXAMPLES", {})
    commands.command("work", work, "codecnn work a", group=app)(lambda options, result, as_json: seen.append(result))

    def run(*words):
        app(["work", *words], standalone_mode=False)
        return seen[-1]

    return run


def values(options):
    return {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}


def test_command_and_function_give_the_same_record(call):
    found = values(call("a.yuv", "-o", "b.yuv", "-q", "32", "--name", "x", "--name", "y", "--depth", "10"))
    assert found.pop("progress") is not None
    assert found.pop("loud") is True
    expected = values(work("a.yuv", "b.yuv", qps=(32,), names=("x", "y"), depth=10))
    assert {name: str(value) for name, value in found.items()} == {
        name: str(value) for name, value in expected.items() if name in found
    }
    assert values(call("a.yuv"))["output"] is None


def test_defaults_of_the_command_are_those_of_the_record(call):
    found, expected = values(call("a.yuv")), values(work("a.yuv", None))
    assert {name: found[name] for name in ("qps", "names", "kind", "hidden", "depth")} == {
        name: expected[name] for name in ("qps", "names", "kind", "hidden", "depth")
    }


def test_errors_of_usage_and_unknown_arguments(call):
    with pytest.raises(typer.BadParameter, match="give kind a"):
        call("a.yuv", "--kind", "b")
    with pytest.raises(UnknownArgumentError, match="work has no argument 'dept': did you mean 'depth'"):
        work("a", "b", dept=3)
    with pytest.raises(TypeError, match="'output'"):
        work("a")
    with pytest.raises(dataclasses.FrozenInstanceError):
        work("a", "b").depth = 3


def test_signature_and_help_come_from_the_record():
    parameters = inspect.signature(work).parameters
    assert list(parameters)[:2] == ["source", "output"]
    assert (parameters["depth"].kind, parameters["depth"].annotation) == (inspect.Parameter.KEYWORD_ONLY, int)
    arguments = work.__doc__.split("Args:\n")[1].split("\n\n")[0].splitlines()
    assert arguments[0] == "    source: File to read."
    assert [line.split(":")[0].strip() for line in arguments] == list(parameters)
    assert work.__doc__.index("Args:") < work.__doc__.index("Returns:")
    assert documented("Do it.", Options).startswith("Do it.\n\nArgs:\n")


def test_every_option_of_every_command_has_one_definition_with_help():
    def walk(command, path):
        for name, each in getattr(command, "commands", {}).items():
            yield from walk(each, f"{path} {name}".strip())
        if not hasattr(command, "commands"):
            yield path, command

    for name, command in walk(typer.main.get_command(cli.app), ""):
        for parameter in command.params:
            assert re.fullmatch(r"\w.{9,}\.", parameter.help or ""), (name, parameter.name)
        first = [each for each in command.params if each.param_type_name == "option" and not each.rich_help_panel]
        assert len(first) <= 11, (name, [each.name for each in first])


@pytest.mark.parametrize("name", ["filter", "evaluate", "train", "build_dataset", "export", "label_blocks", "view"])
def test_public_functions_list_their_arguments(name):
    function = getattr(codecnn, name)
    for field in fields_of(vars(function)["verb"].record):
        assert f"\n    {field.name}: " in function.__doc__


def test_recipe_and_configuration_may_be_dictionaries(tmp_path):
    from codecnn.api.config import load_config, load_recipe

    recipe = {"name": "x", "qp": [32], "sequences": [{"source": str(tmp_path / "none.png")}]}
    assert load_recipe(recipe, ["qp=[27]"]).qp == [27]
    assert recipe["qp"] == [32]
    with pytest.raises(ConfigError, match="the recipe: unknown key 'qps': did you mean 'qp'"):
        load_recipe(recipe | {"qps": 3})
    config = {"model": {"name": "rdn"}, "store": str(tmp_path / "s"), "training": {"steps": 2}}
    assert load_config(config, ["training.steps=5"]).training.steps == 5
    with pytest.raises(ConfigError, match="give run"):
        api.train(config)
    with pytest.raises(ConfigError, match="use it with `codecnn train`"):
        api.build_dataset(config, tmp_path / "s")
