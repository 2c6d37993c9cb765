"""The pictures before a codec's in-loop filters, from a second encode without them."""

from dataclasses import replace
from pathlib import Path

from codecnn.codec.base import Codec, CodecSettings
from codecnn.runs import remove_tree
from codecnn.video import VideoFormat


def code_unfiltered(
    codec: Codec, source: Path, source_format: VideoFormat, settings: CodecSettings, folder: Path
) -> Path:
    """Code `source` again with the loop filters off; its decoded pictures become `folder`/unfiltered.yuv.

    In all intra no picture is predicted from a filtered one, so these are the pictures before the filters of the
    first encode too, as long as no filter takes part in its decisions.
    """
    again = folder / "without_loop_filters"
    again.mkdir(parents=True, exist_ok=True)
    try:
        plain = replace(settings, loop_filters=False, unfiltered=False)
        decoded = codec.encode(source, source_format, plain, again).decoded
        decoded.replace(folder / "unfiltered.yuv")
    finally:
        remove_tree(again)
    return folder / "unfiltered.yuv"
