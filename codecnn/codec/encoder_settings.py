"""Settings that x264 and x265 write as text into their streams (SEI message user_data_unregistered)."""

import functools
import re
from dataclasses import dataclass
from pathlib import Path

from codecnn.pictures.files import byte_stream, map_file, stream_codec

_IDENTIFIERS = {
    bytes.fromhex("dc45e9bde6d948b7962cd820d923eeef"): "x264",
    bytes.fromhex("2ca2de09b51747dbbb55a4fe7fc2fc4e"): "x265",
}
"""uuid_iso_iec_11578 of the message by encoder (x264 encoder/set.c, x265 encoder/encoder.cpp)."""
_SEARCHED_BYTES = 1 << 20
"""Length of the beginning of a stream that is searched: the message precedes the first picture."""
_MAX_TEXT = 8192
_SETTING = re.compile(r"([A-Za-z0-9_-]+)=(\S+)")


@dataclass(frozen=True)
class EncoderSettings:
    """Settings of an encoder.

    Attributes:
        program: "x264" or "x265".
        values: Values by the encoder's names, e.g. {"rc": "crf", "crf": "23.0", "aq-mode": "2"}.
        switches: Names without a value, e.g. {"lossless", "no-sao"}.
    """

    program: str
    values: dict[str, str]
    switches: frozenset[str] = frozenset()

    @property
    def lossless(self) -> bool:
        """True for pictures that are coded without loss: by x264 at QP 0 of its text, by x265 if it says so."""
        by_qp = self.program == "x264" and self.rate_control == "cqp" and self.quality == 0
        return by_qp or "lossless" in self.switches

    @property
    def rate_control(self) -> str:
        """Kind of rate control in the encoder's words, e.g. "crf", "cqp", "abr"; "unknown" if it is not stated."""
        return self.values.get("rc", "unknown")

    @property
    def quality(self) -> float | None:
        """Value of -crf, or of -qp at a constant QP; None for other kinds of rate control."""
        return self._number({"crf": "crf", "cqp": "qp"}.get(self.rate_control))

    @property
    def bit_rate(self) -> float | None:
        """Average bit rate asked for, in kbit/s; None for other kinds of rate control."""
        return self._number("bitrate" if self.rate_control == "abr" else None)

    def _number(self, name: str | None) -> float | None:
        try:
            return None if name is None else float(self.values[name])
        except (KeyError, ValueError):
            return None


def read_encoder_settings(path: Path | str) -> EncoderSettings | None:
    """Read the settings that an encoder wrote into a stream.

    Args:
        path: Stream of AVC or HEVC, also in a container; any other file has none.

    Returns:
        The settings; None if the stream has no such text.
    """
    path = Path(path)
    if stream_codec(path) not in ("avc", "hevc"):
        return None
    stream = byte_stream(path).path
    return _read(stream, stream.stat().st_mtime_ns)


@functools.cache
def _read(stream: Path, time: int) -> EncoderSettings | None:
    """Do the work of `read_encoder_settings`; `time` distinguishes versions of the file."""
    data = map_file(stream)[:_SEARCHED_BYTES].tobytes()
    for identifier, program in _IDENTIFIERS.items():
        start = data.find(identifier)
        if start >= 0:
            # The text ends with a zero, or where the trailing bits of the message begin.
            text = re.split(rb"[\x00\x80]", data[start + len(identifier) :][:_MAX_TEXT], maxsplit=1)[0]
            words = text.decode("ascii", errors="replace")
            switches = frozenset(word for word in words.split() if "=" not in word)
            return EncoderSettings(program, dict(_SETTING.findall(words)), switches)
    return None
