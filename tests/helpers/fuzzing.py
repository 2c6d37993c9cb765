"""Fuzzing: number of cases of each kind, allowed outcomes, and damage of bytes and JSON."""

import contextlib
import signal
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from codecnn.base.errors import CodecnnError

_STILLS = {"png": 100, "jpeg": 50, "tiff": 100, "other stills": 40, "deep png": 8, "kinds of stills": 220}
_VIDEOS = {"y4m header": 120, "y4m bytes": 100, "raw": 120, "streams": 32, "mp4": 8, "names": 80, "options": 60}
_VIDEOS |= {"containers": 20, "pixel formats": 120}
_TABLES = {"parquet": 50, "csv": 50, "vtm trace": 100, "x265 analysis": 100}
CASES = (
    _STILLS
    | _VIDEOS
    | _TABLES
    | {"store": 120, "yaml": 140, "weights": 50, "cards": 60, "post filters": 60, "updates": 60}
)
SECONDS = 20
"""Time limit of a case in seconds."""

Case = Callable[[np.random.Generator], Any]


def fuzz(kind: str, case: Case, count: int | None = None, both: int = -1) -> Counter[str]:
    """Run the cases of a kind and count their outcomes.

    Args:
        kind: Name of the kind, which also determines the seeds.
        case: Function that takes a generator; it raises AssertionError for an incorrect result.
        count: Number of cases; the default is that of `CASES`.
        both: More than this many cases must raise a CodecnnError, and more than this many must give a result.

    Returns:
        Number of cases with the outcomes "result" and "error".
    """
    outcomes: Counter[str] = Counter()
    for number in range(count or CASES[kind]):
        where = f"{kind}, case {number} (seed [{zlib.crc32(kind.encode())}, {number}])"
        rng = np.random.default_rng([zlib.crc32(kind.encode()), number])
        try:
            with time_limit():
                case(rng)
            outcomes["result"] += 1
        except CodecnnError as error:
            sentence = str(error)
            assert 10 < len(sentence) < 1000, f"{where}: {sentence!r}"
            assert "\n" not in sentence.replace("\\n", ""), f"{where}: {sentence!r}"
            outcomes["error"] += 1
        except Exception as error:
            raise AssertionError(f"{where}: {type(error).__name__}: {error}") from error
    assert outcomes.total() == (count or CASES[kind])
    assert min(outcomes["error"], outcomes["result"]) > both, outcomes
    return outcomes


@contextlib.contextmanager
def time_limit() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TimeoutError(f"not finished after {SECONDS} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def mutate(content: bytes, rng: np.random.Generator, first: int = 0) -> bytes:
    """Truncate, flip, overwrite, repeat or delete bytes from byte `first` on."""
    data = bytearray(content)
    at = int(rng.integers(first, len(data)))
    length = int(rng.integers(1, 16))
    match int(rng.integers(6)):
        case 0:
            del data[at:]
        case 1:
            data[at] ^= 1 << int(rng.integers(8))
        case 2:
            data[at : at + length] = rng.bytes(length)
        case 3:
            data[at:at] = data[at : at + length]
        case 4:
            del data[at : at + length]
        case _:
            data[at : at + length] = bytes([0, 255][int(rng.integers(2))] for _ in range(length))
    return bytes(data)


def pick(rng: np.random.Generator, values: list[Any]) -> Any:
    return values[int(rng.integers(len(values)))]


WRONG: list[Any] = [None, True, 0, -1, 1e308, 10**30, "", "x", "../../etc/passwd", "/etc/passwd", [], [1], {}, {"a": 1}]


def damage_json(value: Any, rng: np.random.Generator) -> Any:
    """Return the JSON with one value, at any depth, replaced, dropped, or under another key."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = pick(rng, sorted(value))
        rest = {k: v for k, v in value.items() if k != key}
        match int(rng.integers(4)):
            case 0:
                return rest
            case 1:
                return rest | {f"{key}?": value[key]}
        return value | {key: damage_json(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.7:
        index = int(rng.integers(len(value)))
        return [*value[:index], damage_json(value[index], rng), *value[index + 1 :]]
    return pick(rng, WRONG)
