"""Helpers that run and parse commands."""

import json
import subprocess
import sys

import typer

from codecnn import cli


def result_of(run, *argv):
    """Run a command with --json and return its parsed output; `run` is the fixture."""
    status, text, err = run(*argv, "--json")
    assert status == 0, text + err
    return json.loads(text)


def codecnn(*arguments, **options) -> subprocess.CompletedProcess[bytes]:
    """Run codecnn in a process of its own, with its output as bytes."""
    return subprocess.run([sys.executable, "-m", "codecnn", *map(str, arguments)], capture_output=True, **options)


def read_command(words):
    """Parse a command line without running the command; returns its name and parameters."""
    command, context = typer.main.get_command(cli.app), None
    while hasattr(command, "commands"):
        assert words, "the command of a group is missing"
        assert words[0] in command.commands, f"there is no command {words[0]}"
        command, words = command.commands[words[0]], words[1:]
    context = command.make_context(command.name, list(words))
    return command.name, context.params
