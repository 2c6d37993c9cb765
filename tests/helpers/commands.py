"""Commands in tests."""

import json


def result_of(run, *argv):
    """What a command that succeeds prints with --json; `run` is the fixture."""
    status, text, err = run(*argv, "--json")
    assert status == 0, text + err
    return json.loads(text)
