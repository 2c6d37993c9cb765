"""Edits of MP4 and QuickTime files of one video track (ISO/IEC 14496-12), for files that ffmpeg does not write."""

import struct
from collections.abc import Iterator

_PARENTS = (b"moov", b"trak", b"mdia", b"minf", b"stbl", b"stsd")


def boxes(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield type and bytes of each box, header included."""
    at = 0
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at : at + 8])
        yield kind, data[at : at + size]
        at += size


def with_clean_aperture(data: bytes, width: int, height: int) -> bytes:
    """Add a centred clean aperture to the sample description; the moov box must be the last one."""
    start, end = _sample_entry(data)
    clap = struct.pack(">I4s8I", 40, b"clap", width, 1, height, 1, 0, 1, 0, 1)
    return _grown(_inserted(data, end, clap), start, 40)


def with_second_description(data: bytes, old: bytes, new: bytes) -> bytes:
    """Let the samples from the second chunk on use a second description, the first one with some bytes replaced.

    The moov box must be the last one, and the video its first track.
    """
    start, end = _sample_entry(data)
    second = data[start:end].replace(old, new)
    assert second != data[start:end]
    data = data[: start - 4] + struct.pack(">I", 2) + data[start:]
    data = _inserted(data, end, second)
    stsc = data.index(b"stsc")
    count = struct.unpack(">I", data[stsc + 8 : stsc + 12])[0]
    runs = [struct.unpack(">III", data[at : at + 12]) for at in range(stsc + 12, stsc + 12 + 12 * count, 12)]
    if all(chunk != 2 for chunk, _, _ in runs):
        runs.insert(1, (2, runs[0][1], 1))
        data = _inserted(data, stsc + 12, bytes(12), (*_PARENTS[:-1], b"stsc"))
    table = b"".join(struct.pack(">III", chunk, samples, min(chunk, 2)) for chunk, samples, _ in runs)
    return data[: stsc + 8] + struct.pack(">I", len(runs)) + table + data[stsc + 12 + len(table) :]


def _sample_entry(data: bytes) -> tuple[int, int]:
    start = data.index(b"stsd") + 12
    return start, start + struct.unpack(">I", data[start : start + 4])[0]


def _inserted(data: bytes, position: int, further: bytes, parents: tuple[bytes, ...] = _PARENTS) -> bytes:
    """Insert bytes into nested boxes, by default into the sample descriptions."""
    data = data[:position] + further + data[position:]
    for kind in parents:
        data = _grown(data, data.index(kind) - 4, len(further))
    return data


def _grown(data: bytes, start: int, by: int) -> bytes:
    """Increase the size of the box that begins at `start`."""
    size = struct.unpack(">I", data[start : start + 4])[0]
    return data[:start] + struct.pack(">I", size + by) + data[start + 4 :]
