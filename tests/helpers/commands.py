"""Commands in tests."""

import json

import typer

from codecnn import cli


def result_of(run, *argv):
    """What a command that succeeds prints with --json; `run` is the fixture."""
    status, text, err = run(*argv, "--json")
    assert status == 0, text + err
    return json.loads(text)


def read_command(words):
    """Let the command line take the words without running anything."""
    command, context = typer.main.get_command(cli.app), None
    while hasattr(command, "commands"):
        assert words, "the command of a group is missing"
        assert words[0] in command.commands, f"there is no command {words[0]}"
        command, words = command.commands[words[0]], words[1:]
    context = command.make_context(command.name, list(words))
    return command.name, context.params
