"""Pictures before the codec's in-loop filters, from a second stream that is coded without any.

In all intra, prediction takes unfiltered samples of the same picture, so a filter changes no decision unless the
encoder tries it out while it decides (vvenc's EDO). Then both streams hold the same CUs, and the second one decodes to
what the first one's filters are given: of VVC that is proven bin by bin, of HEVC by HM there is evidence in the
pictures. ffmpeg's VVC decoder cannot leave the filters out (`-skip_loop_filter` does nothing), which is why it takes a
second stream.
"""

from dataclasses import replace
from pathlib import Path

from codecnn.codec.base import Codec, CodecSettings
from codecnn.codec.blocks.vvc_partition import SUFFIXES
from codecnn.codec.checks import prove_alike, prove_same_cus
from codecnn.errors import UnsupportedError
from codecnn.runs import remove_tree
from codecnn.video import VideoFormat


def code_unfiltered(
    codec: Codec, source: Path, source_format: VideoFormat, settings: CodecSettings, bitstream: Path, decoded: Path
) -> Path:
    """Code `source` again without loop filters; the pictures become unfiltered.yuv beside `bitstream`, returned.

    `bitstream` and `decoded` are what coding it with loop filters gave. Everything else that the second run leaves is
    removed. Raises what `codec.encode` raises, and EncoderError unless both streams were decided alike: by
    `prove_same_cus` where codecnn reads them, else by `prove_alike`.
    """
    work, path = bitstream.with_name("unfiltered"), bitstream.with_name("unfiltered.yuv")
    name = f"{source.stem} at QP {settings.qp}"
    work.mkdir(parents=True, exist_ok=True)
    try:
        plain = codec.encode(source, source_format, replace(settings, loop_filters=False, unfiltered=False), work)
        read = bitstream.suffix in SUFFIXES
        if read:
            assert plain.bitstream is not None
            try:
                prove_same_cus(name, bitstream, plain.bitstream)
            except UnsupportedError:
                read = False
        if not read:
            prove_alike(name, source, source_format, decoded, plain.decoded, plain.format)
        plain.decoded.replace(path)
    finally:
        remove_tree(work)
    return path
