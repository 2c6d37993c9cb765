"""Codec back ends by name, and the CU tables of the sequences that they coded."""

from collections.abc import Callable

from codecnn.base.errors import ConfigError
from codecnn.base.rate_modes import RateName
from codecnn.codec.base import Codec, CodecTools, CodedSequence
from codecnn.codec.blocks.table import BlockTable
from codecnn.codec.blocks.vtm_statistics import read_vtm_stats
from codecnn.codec.blocks.vvc_stream import READER_VERSION, VVC_SUFFIXES, coded_table
from codecnn.codec.encoders.external import EncoderProgram, ExternalCodec
from codecnn.codec.encoders.libaom import Av1Codec
from codecnn.codec.encoders.libkvazaar import KvazaarCodec
from codecnn.codec.encoders.libsvtav1 import SvtAv1Codec
from codecnn.codec.encoders.libvvenc import VvcCodec
from codecnn.codec.encoders.libx264 import AvcCodec
from codecnn.codec.encoders.libx265 import HevcCodec, x265_tables
from codecnn.codec.encoders.program_arguments import HM, VTM, VVENC
from codecnn.codec.encoders.rate_control import RATES, RateControlCodec

BUNDLED: dict[str, Callable[[], Codec]] = {
    "vvc": VvcCodec,
    "hevc": HevcCodec,
    "av1": Av1Codec,
    "svtav1": SvtAv1Codec,
    "avc": AvcCodec,
    "kvazaar": KvazaarCodec,
}
"""Back ends that use the ffmpeg of imageio-ffmpeg."""

EXTERNAL: dict[str, EncoderProgram] = {program.name: program for program in (VTM, HM, VVENC)}
"""Back ends that use programs of the user."""

CODECS = (*BUNDLED, *EXTERNAL)
"""Names of all back ends that code."""

NO_TOOLS = CodecTools()


def get_codec(name: str, tools: CodecTools = NO_TOOLS, *, rate: RateName | None = None) -> Codec:
    """Return a codec back end.

    Args:
        name: One of CODECS.
        tools: Programs of the user, for a back end of EXTERNAL.
        rate: The setting `rate`: the encoder codes under its own rate control instead of at constant QP.

    Raises:
        ConfigError: The back end does not exist, or does not take these tools.
    """
    if rate is not None and name not in RATES:
        raise ConfigError(f"codec {name} has no rate control here: one of {', '.join(RATES)}, or qp")
    if name in EXTERNAL:
        return ExternalCodec(EXTERNAL[name], tools)
    if name not in BUNDLED:
        raise ConfigError(f"unknown codec {name!r}: one of {', '.join(CODECS)}")
    if tools != NO_TOOLS:
        raise ConfigError(f"{name} takes no tools, it codes with the ffmpeg of imageio-ffmpeg")
    return BUNDLED[name]() if rate is None else RateControlCodec(BUNDLED[name]())


def block_table(sequence: CodedSequence) -> BlockTable | None:
    """Read the CUs of a coded sequence; None if it has neither block statistics nor a VVC bitstream.

    Block statistics are x265's analysis file or VTM's trace; without them the VVC bitstream is parsed. CUs that begin
    in the padding of pictures that were padded for the encoder are left out.

    Raises:
        EncoderError: The bitstream contradicts the encoder's log.
        FormatError: The block statistics or the bitstream are damaged.
        UnsupportedError: The bitstream uses a feature that codecnn does not read.
    """
    table = _block_table(sequence)
    if table is None or sequence.coded_size is None:
        return table
    return table.select((table.x < sequence.format.width) & (table.y < sequence.format.height))


def _block_table(sequence: CodedSequence) -> BlockTable | None:
    """Return the result of `block_table` with the CUs in the padding of a padded sequence."""
    if sequence.block_statistics is None:
        bitstream = sequence.bitstream
        return None if bitstream is None or bitstream.suffix not in VVC_SUFFIXES else coded_table(sequence)
    if sequence.block_statistics.name.endswith((".vtmbmsstats", ".vtmbmsstats.gz")):
        return read_vtm_stats(sequence.block_statistics)
    return x265_tables(sequence)


def block_reader_version(codec: str, tools: CodecTools) -> int | None:
    """Return the version of codecnn's VVC reader if it provides the CUs of this back end, else None."""
    if tools.trace:
        return None
    return READER_VERSION if codes_vvc(codec) else None


def codes_vvc(codec: str) -> bool:
    """Return whether the back end with this name codes VVC."""
    return codec == "vvc" or (codec in EXTERNAL and EXTERNAL[codec].bitstream.endswith(VVC_SUFFIXES))


def internal_bit_depth(codec: str) -> int:
    """Return the bit depth at which the back end with this name codes by default: 10 unless it codes 8 bit only."""
    return 8 if codec == "kvazaar" else 10


def standard_of(codec: str) -> str:
    """Return the standard that a back end codes, by its name in `pictures.files.STANDARD_NAMES`, e.g. "hevc"."""
    if codec in EXTERNAL:
        return "vvc" if codes_vvc(codec) else "hevc"
    return {"svtav1": "av1", "kvazaar": "hevc"}.get(codec, codec)
