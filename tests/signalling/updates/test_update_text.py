"""The text form of updates: round trips, and refusal of everything that is damaged."""

import hashlib
import random

import numpy as np
import pytest

from codecnn.base.errors import FormatError
from codecnn.signalling.updates import Part, Update, read_update, write_update

SHA256 = hashlib.sha256(b"weights").hexdigest()
SIZES = (73, 73, 73)


def random_update(seed: int) -> Update:
    rng = np.random.default_rng(seed)
    parts = []
    for size in SIZES:
        if rng.random() < 0.3:
            parts.append(None)
            continue
        values = np.where(rng.random(size) < 0.1, rng.integers(-4, 5, size), 0)
        values[0] = rng.integers(-255, 256)
        parts.append(Part(int(rng.integers(0, 32)), tuple(values.tolist())))
    return Update(tuple(parts))


@pytest.mark.parametrize("seed", range(20))
def test_an_update_is_read_as_it_was_written(seed):
    update = random_update(seed)
    assert read_update(write_update(update, SHA256), SIZES, SHA256) == update


def test_a_sparse_update_takes_less_than_eight_bits_a_value():
    rng = np.random.default_rng(5)
    values = np.zeros(289, int)
    values[rng.choice(288, 25, replace=False)] = rng.choice([-1, 1], 25)
    text = write_update(Update((Part(7, tuple(values.tolist())),)), SHA256)
    assert 6 * len(text) <= 16 + 6 + 8 * 25


def test_limits():
    with pytest.raises(FormatError, match="larger than 255"):
        write_update(Update((Part(0, (256, 0)),)), SHA256)
    with pytest.raises(FormatError, match="not in 0 to 31"):
        write_update(Update((Part(32, (1, 0)),)), SHA256)
    with pytest.raises(FormatError, match="more than 65536"):
        read_update("A" * 65537, SIZES, SHA256)


def test_damage_and_other_weights_are_found():
    text = write_update(random_update(1), SHA256)
    with pytest.raises(FormatError, match="other weights"):
        read_update(text, SIZES, hashlib.sha256(b"others").hexdigest())
    with pytest.raises(FormatError):
        read_update(text, (73, 73, 74, 5), SHA256)
    generator = random.Random(2)
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    for _ in range(1000):
        damaged = list(text)
        kind = generator.randrange(4)
        at = generator.randrange(len(damaged))
        if kind == 0:
            damaged[at] = generator.choice(alphabet)
        elif kind == 1:
            del damaged[at:]
        elif kind == 2:
            damaged.insert(at, generator.choice(alphabet + "\0 é="))
        else:
            damaged[at : at + 4] = [generator.choice(alphabet) for _ in range(4)]
        if "".join(damaged) == text:
            continue
        with pytest.raises(FormatError):
            read_update("".join(damaged), SIZES, SHA256)
