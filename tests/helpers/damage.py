"""Damaged bitstreams for tests of the parsers."""

import numpy as np


def mutated(streams: list[bytes], rng: np.random.Generator) -> bytes:
    """Return one of the streams with flipped bits, cut off, spliced, with replaced bytes, or with moved NAL units."""
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
        other_units = streams[rng.integers(len(streams))].split(b"\0\0\1")[1:]
        for _ in range(rng.choice([1, 2, 8])):
            position = rng.integers(len(units))
            source = (units, other_units)[rng.integers(2)]
            units[position : position + rng.integers(2)] = [source[rng.integers(len(source))]]
        data = bytearray(b"".join(b"\0\0\1" + unit for unit in units))
    return bytes(data)
