"""Codec back ends by name, and the CU tables of what they coded."""

from codecnn.codec.base import Codec, CodecTools, CodedSequence
from codecnn.codec.blocks._vtm_reader import read_vtm_stats
from codecnn.codec.blocks.table import BlockTable
from codecnn.codec.blocks.vvc_partition import READER, SUFFIXES, coded_table
from codecnn.codec.encoders.external import ExternalCodec
from codecnn.codec.encoders.hm import HM
from codecnn.codec.encoders.libvvenc import VvcCodec
from codecnn.codec.encoders.libx265 import HevcCodec, x265_tables
from codecnn.codec.encoders.programs import EncoderProgram
from codecnn.codec.encoders.vtm import VTM
from codecnn.codec.encoders.vvencapp import VVENC
from codecnn.errors import ConfigError

BUNDLED: dict[str, type[VvcCodec] | type[HevcCodec]] = {"vvc": VvcCodec, "hevc": HevcCodec}
"""Back ends that come with the package."""

EXTERNAL: dict[str, EncoderProgram] = {program.name: program for program in (VTM, HM, VVENC)}
"""Back ends that take the user's own programs."""

CODECS = (*BUNDLED, *EXTERNAL)


NO_TOOLS = CodecTools()


def get_codec(name: str, tools: CodecTools = NO_TOOLS) -> Codec:
    """The back end called `name`, with the user's own programs for those that take any.

    Raises ConfigError for an unknown back end, and for tools that it does not take.
    """
    if name in EXTERNAL:
        return ExternalCodec(EXTERNAL[name], tools)
    if name not in BUNDLED:
        raise ConfigError(f"unknown codec {name!r}: one of {', '.join(CODECS)}")
    if tools != NO_TOOLS:
        raise ConfigError(f"{name} takes no tools, it codes with the ffmpeg of imageio-ffmpeg")
    return BUNDLED[name]()


def block_table(sequence: CodedSequence) -> BlockTable | None:
    """The CUs of a coded sequence, None where nothing tells them.

    They come from x265's analysis file or VTM's trace of block statistics (.vtmbmsstats, .vtmbmsstats.gz), and else
    from the bitstream if that is VVC. Raises EncoderError where that is not what the encoder's log says of it,
    UnsupportedError where it uses what codecnn does not read.
    """
    if sequence.block_statistics is None:
        bitstream = sequence.bitstream
        return None if bitstream is None or bitstream.suffix not in SUFFIXES else coded_table(sequence)
    if sequence.block_statistics.name.endswith((".vtmbmsstats", ".vtmbmsstats.gz")):
        return read_vtm_stats(sequence.block_statistics)
    return x265_tables(sequence)


def block_reader(codec: str, tools: CodecTools) -> int | None:
    """The version of codecnn's own reader where that gives the CUs of what `codec` codes, else None."""
    if tools.trace:
        return None
    return READER if makes_vvc(codec) else None


def makes_vvc(codec: str) -> bool:
    """Whether the back end called `codec` codes VVC."""
    return codec == "vvc" or (codec in EXTERNAL and EXTERNAL[codec].bitstream.endswith(SUFFIXES))
