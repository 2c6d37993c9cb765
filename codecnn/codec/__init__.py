"""Real encoders: argv as pure functions, subprocess, log parsing, block statistics."""

from codecnn.codec.base import Codec, CodecSettings, CodecTools, CodedPicture, CodedSequence
from codecnn.codec.blockstats import BlockTable
from codecnn.codec.vvc import VvcCodec
from codecnn.errors import ConfigError

__all__ = [
    "CODECS",
    "Codec",
    "CodecSettings",
    "CodecTools",
    "CodedPicture",
    "CodedSequence",
    "block_table",
    "get_codec",
]

CODECS = ("vvc", "hevc")


def get_codec(name: str) -> Codec:
    """The back end called `name`. Raises ConfigError for an unknown one."""
    if name == "vvc":
        return VvcCodec()
    if name == "hevc":
        from codecnn.codec.hevc import HevcCodec

        return HevcCodec()
    raise ConfigError(f"unknown codec {name!r}: one of {', '.join(CODECS)}")


def block_table(sequence: CodedSequence) -> BlockTable | None:
    """The CUs of a coded sequence where its encoder told them (x265's analysis file), else None."""
    if sequence.block_statistics is None:
        return None
    from codecnn.codec.hevc import x265_tables

    return x265_tables(sequence)
