"""Streams as damage leaves them."""

import numpy as np


def mutated(streams: list[bytes], rng: np.random.Generator) -> bytes:
    """A stream with bits flipped, cut off, spliced with another, with bytes replaced, or with NAL units moved."""
    data = bytearray(streams[rng.integers(len(streams))])
    kind = rng.integers(5)
    at = int(rng.integers(len(data)))
    if kind == 0:
        for bit in rng.integers(8 * len(data), size=rng.choice([1, 2, 8, 64])):
            data[bit // 8] ^= 1 << (bit % 8)
    elif kind == 1:
        del data[at:]
    elif kind == 2:
        other = streams[rng.integers(len(streams))]
        data[at:] = other[rng.integers(len(other)) :]
    elif kind == 3:
        data[at : at + int(rng.integers(1, 40))] = rng.bytes(int(rng.integers(40)))
    else:
        units = [bytes(unit) for unit in data.split(b"\0\0\1")[1:]]
        others = streams[rng.integers(len(streams))].split(b"\0\0\1")[1:]
        for _ in range(rng.choice([1, 2, 8])):
            place = rng.integers(len(units))
            source = (units, others)[rng.integers(2)]
            units[place : place + rng.integers(2)] = [source[rng.integers(len(source))]]
        data = bytearray(b"".join(b"\0\0\1" + unit for unit in units))
    return bytes(data)
