"""Options of `filter`."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, field
from typing import Annotated, Any, Literal

from codecnn.api.groups import (
    AUXILIARY,
    COMPUTATION,
    DECISIONS,
    MEMORY,
    FileName,
    Fps,
    Frames,
    Memory,
    NetworkComputation,
    OptionalModel,
    RawVideo,
    parse_qps,
)
from codecnn.base.cluster import Progress
from codecnn.base.options import option, pair, progress_bar, record


@record
class FilterOptions(RawVideo, NetworkComputation):
    """Options of `filter`."""

    source: Annotated[
        FileName,
        option(
            "-i",
            "--input",
            help="Decoded pictures (YUV, Y4M), or a stream of VVC, HEVC, AVC or AV1, also in MP4, MKV or TS; "
            "- is Y4M from a pipe.",
        ),
    ]
    output: Annotated[
        FileName,
        option(
            "-o",
            "--output",
            help="Video to write: .mkv (lossless) or .mp4, with sound, subtitles and times of the input; .y4m or .yuv: "
            "pictures only; - is Y4M to a pipe. An existing file is replaced once the new one is whole.",
        ),
    ]
    _: KW_ONLY
    model: OptionalModel = None
    qp: Annotated[
        int | Sequence[int] | FileName | None,
        option(
            "-q",
            "--qp",
            kind=str,
            help="QP that the network takes, e.g. 37; a comma list or a file with one QP per picture (default: from "
            "the stream).",
        ),
    ] = None
    effort: Annotated[
        Literal["fast", "normal", "best"] | None,
        option(
            "--effort",
            kind=Literal["fast", "normal", "best"],
            help="Time that a picture may take, without -m (default: normal).",
        ),
    ] = None
    encode: Annotated[
        str | None,
        option(
            "--encode",
            help='Encoder of ffmpeg and its options for .mkv and .mp4, e.g. "libx265 -crf 16" (default: lossless FFV1 '
            "in .mkv, libx264 -crf 8 in .mp4).",
        ),
    ] = None
    frames: Frames = None
    original: Annotated[
        FileName | None,
        option("--original", help="Original pictures; enables decisions by rate-distortion cost."),
    ] = None
    fps: Fps = None
    planes: Annotated[
        Mapping[str, FileName],
        option(
            "--plane",
            metavar="NAME=FILE",
            kind=str,
            parse=pair("--plane", "unf_y=unfiltered.yuv"),
            collect=dict,
            group=AUXILIARY,
            help="File of an auxiliary plane, e.g. unf_y=unfiltered.yuv; may be repeated (default: from a VVC stream).",
        ),
    ] = field(default_factory=dict)
    blocks: Annotated[
        FileName | None,
        option(
            "--blocks",
            group=AUXILIARY,
            help="CU table for networks that take depth, modes or cu_qp (default: from a VVC stream).",
        ),
    ] = None
    slice_type: Annotated[
        Literal["I", "P", "B"] | None,
        option(
            "--slice-type",
            kind=Literal["I", "P", "B"],
            group=AUXILIARY,
            help="Slice type of all pictures, for networks that take it (default: stream).",
        ),
    ] = None
    update: Annotated[
        FileName | None,
        option("--update", group=AUXILIARY, help="Update of the weights for this sequence, from codecnn adapt."),
    ] = None
    decisions_file: Annotated[
        FileName | None,
        option("--decisions", group=DECISIONS, help="Write the decisions as block statistics, e.g. d.vtmbmsstats."),
    ] = None
    qp_offsets: Annotated[
        Sequence[int],
        option(
            "--qp-offsets",
            parse=parse_qps,
            shown="0",
            group=DECISIONS,
            help="QP offsets that the decisions try besides 0, e.g. -5,5.",
        ),
    ] = (0,)
    ctu_size: Annotated[int, option("--ctu", group=DECISIONS, help="CTU size of the decisions in luma samples.")] = 128
    memory: Memory = MEMORY
    jobs: Annotated[
        int,
        option(
            "-j",
            "--jobs",
            minimum=1,
            group=COMPUTATION,
            help="Number of processes, for .mkv and .mp4.",
        ),
    ] = 1
    progress: Annotated[
        Progress | None, progress_bar("filtering", "picture", "Called with (pictures done, all pictures).")
    ] = None

    def video_options(self) -> dict[str, Any]:
        """Return the arguments of `codecnn.open_video` for the source."""
        return self.raw_format() | {"fps": self.fps, "frames": self.frames}
