"""Byte streams of HEVC and AVC that end inside their last slice.

ffmpeg's decoders do not notice it: behind the end of the data they read zeros, and the rest of the picture is
arbitrary. A whole slice says itself where it ends, so bytes that follow it do not change its picture; those that follow
a slice that is cut do.
"""

import hashlib
import re
import tempfile
from pathlib import Path

from codecnn.base.errors import FormatError
from codecnn.pictures.files.annexb import last_period
from codecnn.pictures.files.decoding import advice, decoder_arguments
from codecnn.pictures.files.ffmpeg import DEMUXERS, execute, ffmpeg_path, input_arguments
from codecnn.pictures.files.raw import map_file

_CODECS = ("hevc", "avc")
"""Codecs whose decoder does not report it."""
_FURTHER_BYTES = bytes.fromhex("5ac3963ce1871e78b4d22d4b693c96a5") * 4
"""Bytes without a start code that are appended to the last slice."""
_COMPARED = 32
"""Number of pictures at the end that are compared: up to 16 follow the last one in output order, and leading pictures
may be left out."""
_DIGEST = re.compile(r"^0,.*, *([0-9a-f]{32})$", re.MULTILINE)


def check_end(stream: Path, codec: str, pix_fmt: str, decoded: Path, count: int, name: str) -> None:
    """Raise FormatError if the last slice of a byte stream is cut.

    The pictures from the last one at which decoding can start are decoded again. A stream with other data behind its
    last slice, e.g. a hash of the picture, is not decoded, because it is whole.

    Args:
        stream: Byte stream.
        codec: Codec of the stream; those other than HEVC and AVC are not checked.
        pix_fmt: ffmpeg's pixel format of the decoded pictures.
        decoded: Raw file of all its decoded pictures.
        count: Their number.
        name: Name of the file in messages.
    """
    if codec not in _CODECS:
        return
    data = map_file(stream)
    period = last_period(data, codec)
    if period is None:
        return
    first = max(period.pictures - _COMPARED, 0)
    with tempfile.TemporaryDirectory(prefix="codecnn-", ignore_cleanup_errors=True) as folder:
        copy = Path(folder) / f"period.{codec}"

        def digests(further: bytes) -> list[str]:
            with copy.open("wb") as file:
                for part in period.parts:
                    file.write(data[part].data)
                file.write(further)
            argv = [ffmpeg_path(), "-hide_banner", "-nostdin", "-loglevel", "error"]
            argv += [argument for argument in decoder_arguments() if argument != "-xerror"]
            argv += [*input_arguments(copy, DEMUXERS[codec]), "-fps_mode", "passthrough", "-noautoscale"]
            argv += ["-vf", f"select=gte(n\\,{first})"]
            return _DIGEST.findall(execute([*argv, "-pix_fmt", pix_fmt, "-f", "framemd5", "-"]).stdout)

        changed = digests(_FURTHER_BYTES)
        if changed == _last_digests(decoded, count, len(changed)):
            return
        # The period alone lacks the leading pictures that refer to pictures before it, so it is decoded as well.
        plain = digests(b"")
    if changed == plain:
        return
    same = next((n for n, pair in enumerate(zip(plain, changed, strict=False)) if pair[0] != pair[1]), len(plain) - 1)
    whole = max(count - len(plain) + same, 0)
    raise FormatError(f"{name} is cut off inside its last picture{advice(whole)}")


def _last_digests(decoded: Path, count: int, wanted: int) -> list[str]:
    """Return the MD5s of the last pictures of a raw file of `count` pictures."""
    data = map_file(decoded)
    size = data.size // count
    return [hashlib.md5(data[n * size : (n + 1) * size].data).hexdigest() for n in range(max(count - wanted, 0), count)]
