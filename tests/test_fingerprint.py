"""Fingerprints of Python objects: what changes a computation changes the hash, and nothing else does."""

import functools
import random
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch
from torch import nn

from codecnn.errors import ConfigError
from codecnn.fingerprint import fingerprint
from codecnn.models import create_model

FILTER = """
import numpy as np
from functools import partial
STRENGTH = {strength}
TABLE = np.arange({table})
def helper(x):
    return x {operation} STRENGTH
class Base:
    scale = {scale}
    def apply(self, x):
        return helper(x) * self.scale
class Filter(Base):
    def __init__(self, taps):
        self.taps = taps
    def __call__(self, x):
        {comment}
        return self.apply(x) + TABLE.sum() + self.taps[0]
def make(offset):
    def inner(x):
        return [helper(y) + offset for y in x]
    return inner
plain = lambda x: helper(x)
objects = [Filter([{taps}]), make({offset}), plain, partial(helper, {offset}), Filter([{taps}]).__call__]
"""
VALUES = {"strength": 2, "table": 3, "operation": "+", "scale": 1.5, "taps": 7, "offset": 1, "comment": "# adds"}


def hashes(**changes):
    names = {"__name__": "user_filters"}
    exec(FILTER.format(**VALUES | changes), names)
    return [fingerprint(thing) for thing in names["objects"]]


@pytest.mark.parametrize(
    ("changes", "changed"),
    [
        ({}, ()),
        ({"comment": "# says something else"}, ()),
        ({"strength": 3}, (0, 1, 2, 3, 4)),
        ({"operation": "-"}, (0, 1, 2, 3, 4)),
        ({"table": 4}, (0, 4)),
        ({"scale": 2.5}, (0, 4)),
        ({"taps": 8}, (0, 4)),
        ({"offset": 2}, (1, 3)),
    ],
)
def test_code_closures_globals_and_attributes_count(changes, changed):
    pairs = zip(hashes(), hashes(**changes), strict=True)
    assert tuple(index for index, (a, b) in enumerate(pairs) if a != b) == changed


def test_weights_and_attributes_of_a_module_count():
    torch.manual_seed(0)
    model = create_model("low_cost_17")
    first = fingerprint(model)
    assert fingerprint(model) == first
    with torch.no_grad():
        next(model.parameters())[0, 0, 0, 0] += 1e-3
    second = fingerprint(model)
    model.halo += 2
    assert len({first, second, fingerprint(model)}) == 3
    assert fingerprint(nn.Conv2d(1, 1, 3, bias=False)) != fingerprint(nn.Conv2d(1, 1, 1, bias=False))


def test_arrays_count_by_value_type_and_shape():
    values = np.arange(6)
    assert fingerprint(values) == fingerprint(np.arange(12)[:6])
    others = [values + 1, values.astype(np.int32), values.reshape(2, 3), values[:5]]
    assert len({fingerprint(array) for array in [values, *others]}) == 5


def test_recursive_functions_and_cycles_end():
    def count(x):
        return count(x - 1) if x else 0

    cycle = [1]
    cycle.append(cycle)
    assert fingerprint(count) == fingerprint(count)
    assert fingerprint(cycle) != fingerprint([1, [1]])


@pytest.mark.parametrize(
    "thing",
    [np.random.default_rng(0), random.Random(0), (value for value in [1]), torch.Generator(), sys.stdout.buffer],
    ids=lambda thing: type(thing).__name__,
)
def test_state_that_cannot_be_read_is_an_error(thing):
    for holder in (thing, [thing], functools.partial(print, thing)):
        with pytest.raises(ConfigError, match="cannot be hashed"):
            fingerprint(holder)


def test_equal_in_every_process(tmp_path):
    """Hashes of strings, and with them the order of sets, differ from process to process."""
    (tmp_path / "own_filter.py").write_text("NAMES = {'a', 'b', 'c', 'd'}\ndef f(x):\n    return x in NAMES\n")
    code = "import own_filter; from codecnn.fingerprint import fingerprint; print(fingerprint(own_filter.f))"
    runs = [
        subprocess.run(
            [sys.executable, "-c", textwrap.dedent(f"import sys; sys.path.append({str(tmp_path)!r})\n{code}")],
            check=True,
            capture_output=True,
            text=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1] != ""


def test_module_of_the_user_counts_with_what_is_taken_from_it(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_helpers_fp.py").write_text("STRENGTH = 1\n")
    import own_helpers_fp

    def use(x):
        return x * own_helpers_fp.STRENGTH

    first = fingerprint(use)
    own_helpers_fp.STRENGTH = 2
    assert fingerprint(use) != first
