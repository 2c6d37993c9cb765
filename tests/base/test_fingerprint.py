"""Fingerprints: what decides a result changes the hash, nothing else does, and what cannot be read needs a key."""

import dataclasses
import enum
import functools
import importlib
import random
import subprocess
import sys
import textwrap
from importlib import metadata

import numpy as np
import pytest
import torch
from torch import nn

from codecnn.base import user_code
from codecnn.base.errors import ConfigError
from codecnn.base.fingerprint import fingerprint
from codecnn.models import create_model, list_models

FILTER = """
import {helper}
STRENGTH = {strength}
class Filter:
    scale = {scale}
    def __init__(self, taps):
        self.taps = taps
    def __call__(self, x):
        return x * self.scale + self.taps[0]
def plain(x):
    return x {operation} STRENGTH
def make(offset):
    def inner(x):
        return x + offset
    return inner
"""
VALUES = {"strength": 2, "operation": "+", "scale": 1.5}


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Provide a function that writes two modules of the user, the second imported by the first, and imports it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    names = [f"fp_{tmp_path.name}".replace("-", "_"), f"fp_{tmp_path.name}_helper".replace("-", "_")]

    def write(helper="STRENGTH = 1\n", **changes):
        for name, text in zip(names, (FILTER.format(helper=names[1], **VALUES | changes), helper), strict=True):
            (tmp_path / f"{name}.py").write_text(text)
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        return importlib.import_module(names[0])

    yield write
    for name in names:
        sys.modules.pop(name, None)


def hashes(module, offset=1, taps=7):
    objects = [module.plain, module.make(offset), functools.partial(module.plain, offset), module.Filter([taps])]
    return [fingerprint(thing) for thing in [*objects, objects[-1].__call__]]


def test_source_files_and_arguments_count(module):
    first = hashes(module())
    assert len(set(first)) == len(first)
    assert hashes(module()) == first
    for changes in ({"strength": 3}, {"operation": "-"}, {"scale": 2.5}, {"helper": "STRENGTH = 2\n"}):
        changed = hashes(module(**changes))
        assert not set(changed) & set(first), changes
    assert [a != b for a, b in zip(hashes(module(), offset=2), first, strict=True)] == [False, True, True, False, False]
    assert [a != b for a, b in zip(hashes(module(), taps=8), first, strict=True)] == [False, False, False, True, True]


def test_a_global_that_was_set_counts(module):
    """A loop over settings of a module, as in a notebook, gives each setting its own hash."""
    loaded = module()
    first = fingerprint(loaded.plain)
    loaded.STRENGTH = 3
    assert fingerprint(loaded.plain) != first


def test_a_file_that_changed_after_the_import_needs_a_key(module, tmp_path):
    loaded = module()
    (file,) = (path for path in tmp_path.glob("fp_*.py") if "helper" not in path.name)
    file.write_text(file.read_text().replace("x + STRENGTH", "x * STRENGTH"))
    with pytest.raises(ConfigError, match="plain"):
        fingerprint(loaded.plain)


def test_installed_package_counts_with_its_record(monkeypatch):
    """A package needs no __version__."""
    first = fingerprint(np.median)
    user_code._record_sha256.cache_clear()
    kind = type(metadata.distribution("numpy"))  # another package may have replaced that of Python
    read = kind.read_text

    def reinstalled(self, name):
        return f"{read(self, name)}another.py,sha256=0,1\n" if name == "RECORD" else read(self, name)

    monkeypatch.setattr(kind, "read_text", reinstalled)
    assert fingerprint(np.median) != first
    user_code._record_sha256.cache_clear()


class Kind(enum.Enum):
    """An enumeration whose members are given other values."""

    LOW = 1


class Steps(list):
    """A list with an attribute."""

    scale = 1


@dataclasses.dataclass(frozen=True)
class Settings:
    """A record of plain values."""

    strength: float
    name: str = "x"


def test_values_count_by_type_value_and_attributes(monkeypatch):
    scaled = Steps([1, 2])
    scaled.scale = 2
    things = [1, 1.0, True, "1", b"1", None, (1,), [1], {1}, {1: 2}, {2: 1}, np.float32(1), np.float64(1), torch.int8]
    things += [np.dtype("i1"), np.dtype("i2"), torch.device("cpu")]
    things += [Steps([1, 2]), Steps([1, 3]), [1, 2], scaled, Kind.LOW, Settings(1.0), Settings(2.0), Settings, Kind]
    assert len({fingerprint(thing) for thing in things}) == len(things)
    assert fingerprint({"b", "a"}) == fingerprint({"a", "b"})
    before = fingerprint(Kind.LOW)
    monkeypatch.setattr(Kind.LOW, "_value_", 2)
    assert fingerprint(Kind.LOW) != before, "members count by value"


def test_weights_and_attributes_of_a_network_count():
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
    empty = nn.Module()
    empty.register_buffer("table", torch.zeros(0, 3))
    assert fingerprint(empty) != fingerprint(nn.Module())
    hooked = nn.Conv2d(1, 1, 3)
    hooked.register_forward_hook(lambda *_: None)
    with pytest.raises(ConfigError, match="has hooks"):
        fingerprint(hooked)


def test_each_network_of_codecnn_has_a_fingerprint():
    for name in list_models()[::6]:
        fingerprint(create_model(name))


cycle = [1]
cycle.append(cycle)


@pytest.mark.parametrize(
    "thing",
    [
        np.random.default_rng(0),
        random.Random(0),
        (value for value in [1]),
        sys.stdout.buffer,
        np.zeros(3),
        torch.zeros(3),
        np.random.default_rng(0).normal,
        eval("lambda x: x", {"__name__": "typed_in_a_notebook"}),
    ],
    ids=lambda thing: type(thing).__name__,
)
def test_what_cannot_be_read_needs_a_key(thing):
    for holder in (thing, [thing], functools.partial(print, thing), lambda: thing):
        with pytest.raises(ConfigError):
            fingerprint(holder)
        assert fingerprint(holder, "a") == fingerprint(thing, "a") != fingerprint(thing, "b")


def test_recursion_ends():
    def count(x):
        return count(x - 1) if x else 0

    assert fingerprint(count) == fingerprint(count)
    with pytest.raises(ConfigError, match="contains itself"):
        fingerprint(cycle)


def test_equal_in_every_process(tmp_path):
    """Hashes of strings, and with them the order of sets, differ from process to process."""
    (tmp_path / "own_filter.py").write_text("NAMES = {'a', 'b', 'c', 'd'}\ndef f(x):\n    return x in NAMES\n")
    code = "import own_filter; from codecnn.base.fingerprint import fingerprint; print(fingerprint(own_filter.f))"
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
