"""Data in slice header extensions: they are read again, all else stays as it is, and other decoders skip them."""

import random
import subprocess

import pytest

from codecnn.base.errors import FormatError
from codecnn.codec import decode_pictures
from codecnn.pictures.files import ffmpeg_path
from codecnn.vvc.syntax import SliceExtensionWriter, access_units, extension_bits, read_pictures

LOW_DELAY = "vvc/tinyclip128x64_ld_qp37.266"


def extended(stream, sizes):
    """Write random bytes, many of them zero, into the slice headers of a stream; return the stream and the bytes."""
    rng, writer = random.Random(1), SliceExtensionWriter()
    data = [bytes(rng.choice((0, 0, 0, 1, 3, 255)) for _ in range(size)) for size in sizes]
    units = access_units(stream)
    return b"".join(writer.write(unit, each) for unit, each in zip(units, data, strict=True)), data


def ffmpeg_md5(path):
    argv = [ffmpeg_path(), "-v", "error", "-i", str(path), "-f", "md5", "-"]
    result = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert not result.stderr
    return result.stdout


@pytest.mark.parametrize("name", [LOW_DELAY, "vvc/tinyclip128x64_ra_qp37.266"])
def test_data_are_read_again_and_nothing_else_changes(golden_file, tmp_path, name):
    path = golden_file(name)
    stream = path.read_bytes()
    before = list(read_pictures(stream))
    changed, data = extended(stream, [(0, 1, 2, 3, 30, 256)[index % 6] for index in range(len(before))])
    after = list(read_pictures(changed))
    assert [picture.slice_extension for picture in after] == data
    assert all(picture.slice_extension is None for picture in before)
    for old, new in zip(before, after, strict=True):
        assert [part.rbsp[part.start :] for part in new.slices] == [part.rbsp[part.start :] for part in old.slices]
        assert (new.poc, new.hashes) == (old.poc, old.hashes)
        # A header ends at a byte, so that an extension takes up to seven bits more or less.
        added = 8 * (len(new.slices[0].rbsp) - len(old.slices[0].rbsp)) - extension_bits(new.slice_extension)
        assert -8 < added < 8
    other = tmp_path / "extended.266"
    other.write_bytes(changed)
    assert {picture.hash for picture in decode_pictures(other)} == {"ok"}
    assert ffmpeg_md5(other) == ffmpeg_md5(path)


def test_no_data_take_one_bit_a_slice(golden_file):
    """One bit rarely needs another byte: nine pictures grow by two bytes, as the extension of each by a bit says."""
    stream = golden_file(LOW_DELAY).read_bytes()
    changed, data = extended(stream, [0] * 9)
    assert [extension_bits(each) for each in data] == [1] * 9
    assert len(changed) - len(stream) <= 3


def test_data_replace_those_of_the_stream(golden_file):
    stream = golden_file(LOW_DELAY).read_bytes()
    first, _ = extended(stream, [30, 0, 256, 1, 2, 3, 4, 5, 6])
    sizes = [0, 5, 2, 1, 0, 0, 9, 9, 9]
    assert extended(first, sizes) == extended(stream, sizes)


def test_streams_that_cannot_be_extended_are_refused(golden_file):
    first, second = access_units(golden_file(LOW_DELAY).read_bytes())[:2]
    with pytest.raises(FormatError, match="holds 256 bytes, not 257"):
        SliceExtensionWriter().write(first, bytes(257))
    with pytest.raises(FormatError, match="there is no PPS 0"):
        SliceExtensionWriter().write(second, b"")
