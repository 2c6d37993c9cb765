"""Function that measures videos against their original."""

from collections.abc import Sequence
from dataclasses import KW_ONLY
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from codecnn.api.groups import FileName, Fps, Frames, RawVideo, parse_names
from codecnn.base.choices import METRICS
from codecnn.base.cluster import Progress
from codecnn.base.errors import ConfigError
from codecnn.base.options import argument, option, progress_bar, record, verb
from codecnn.base.outputs import check_outputs

if TYPE_CHECKING:
    from codecnn.evaluation import VideoQuality


@record
class MeasureOptions(RawVideo):
    """Options of `measure`."""

    original: Annotated[FileName, argument("Original video.", "ORIGINAL", kind=Path)]
    videos: Annotated[
        Sequence[FileName], argument("Videos of the same size and length.", "VIDEO...", kind=Path, collect=tuple)
    ]
    _: KW_ONLY
    output: Annotated[
        FileName | None,
        option("-o", "--output", help="Values of each picture: .html with charts, .csv or .json."),
    ] = None
    metrics: Annotated[
        Sequence[str],
        option("--metrics", parse=parse_names, shown=",".join(METRICS), help="Metrics, a comma list."),
    ] = METRICS
    frames: Frames = None
    fps: Fps = None
    progress: Annotated[
        Progress | None, progress_bar("measuring", "picture", "Called with (pictures done, all pictures).")
    ] = None

    def reading(self) -> dict[str, Any]:
        """Return the arguments of `codecnn.open_video`."""
        return self.raw_format() | {"fps": self.fps, "frames": self.frames}


@verb(MeasureOptions)
def measure(options: MeasureOptions) -> "list[VideoQuality]":
    """Measure videos against their original: PSNR, SSIM, MS-SSIM, XPSNR, VMAF and VMAF NEG.

    Means are over the pictures, with the peak 255·2^(b-8) for PSNR. VMAF NEG does not reward sharpening over the
    original.

    Returns:
        The quality of each video, by picture and in the mean.

    Raises:
        ConfigError: A metric is unknown, or videos differ in size, chroma format or length.
        MissingFileError: A file does not exist.
        EncoderError: A file cannot be decoded or compared.
    """
    from codecnn.evaluation import check_report_name, measure_quality, write_qualities
    from codecnn.pictures.files import open_like, open_video

    names = [str(name).replace("-", "_") for name in options.metrics]
    if unknown := next((name for name in names if name not in METRICS), None):
        raise ConfigError(f"unknown metric {unknown!r}: use one of {', '.join(METRICS)}")
    videos = [options.videos] if isinstance(options.videos, Path | str) else list(options.videos)
    output = None if options.output is None else Path(options.output)
    check_outputs([output], [options.original, *videos])
    if output is not None:
        check_report_name(output)
    qualities = []
    with open_video(options.original, **options.reading()) as original:
        total = len(original) * len(videos)
        for index, path in enumerate(videos):

            def report(done: int, before: int = index * len(original)) -> None:
                if options.progress is not None:
                    options.progress(before + done, total)

            with open_like(path, original.format) as whole:
                video = whole.select(frames=options.frames)
                qualities.append(measure_quality(original, video, names, report))
    if output is not None:
        write_qualities(output, Path(options.original), qualities)
    return qualities
