"""Approximation of a filter in the coding loop with the encoder of ffmpeg, which does not know the filter."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from codecnn.base.errors import ConfigError, EncoderError
from codecnn.base.files import atomic_path
from codecnn.base.leftovers import temporary_folder
from codecnn.codec import CodecSettings, CodedPicture, coded_format
from codecnn.codec.checks import verify_decoded
from codecnn.codec.encoders.jvet_log import parse_log
from codecnn.codec.encoders.libvvenc import encode_argv
from codecnn.codec.ffmpeg import decode_stream
from codecnn.evaluation import Entry
from codecnn.filtering import Decisions, Filtered
from codecnn.pictures.files import Picture, Video, VideoFormat, convert, create_video, ffmpeg_path, open_raw, run
from codecnn.pictures.metrics import psnr
from codecnn.signalling.in_loop import (
    LoopPicture,
    LoopRow,
    LoopStream,
    MessageWriter,
    check_in_loop,
    loop_parameters,
    make_rows,
)
from codecnn.signalling.in_loop.coding import decider, filter_behind, loop_picture
from codecnn.signalling.in_loop.encoder import LoopFilter

REFERENCE_QP = 10
"""Slice QP of the reference in `code_closed_loop`; lower QPs overflow the buffer that ffmpeg allocates for libvvenc."""

ONE_B_PICTURE = {"GOPSize": "1", "Frame1": "B 1 0 0 0 0 0 1 0 0 0 0 0 0 0 1 1 1 1 1 1"}
"""Parameters of a group of one B picture, predicted from the preceding picture, at the QP of the sequence.

libvvenc's own low-delay groups add 5 to 8 to the QP, so some slice QPs cannot be reached by any QP of a sequence.
"""


@dataclass(frozen=True)
class ClosedLoop:
    """One sequence through all chains of the approximated loop, with all slices at the same QP.

    Attributes:
        rows: One row for each of `CHAINS`.
        reference_psnr: Lowest luma PSNR in dB of a reference picture against the filtered picture it stands for.
    """

    rows: tuple[LoopRow, ...]
    reference_psnr: float


def closed_loop(
    entry: Entry,
    name: str,
    video: Video,
    settings: CodecSettings,
    *,
    decisions: Decisions = "ctu",
    before: Path | None = None,
    progress: Callable[[], None] = lambda: None,
) -> ClosedLoop:
    """Approximate coding with the filter in the loop by `code_closed_loop`.

    Args:
        entry: The filter.
        name: Name of the sequence.
        video: Original video.
        settings: Encoder settings; every slice is coded at their QP.
        decisions: "none", "ctu" or "full".
        before: Raw YUV file that receives the input pictures of the filter in the loop; None writes none.
        progress: Called once a coded picture.

    Returns:
        The rows, whose bits are those of the pictures alone, and the quality of the references.

    Raises:
        ConfigError: The video has fewer than two pictures.
        ModelError: The network needs more than decoded pictures.
        EncoderError: The encoder fails or does not keep to the settings.
    """
    if len(video) < 2:
        raise ConfigError(f"a closed loop needs at least two pictures, not {len(video)}")
    check_in_loop(entry.name, entry.filter)
    form, ctu = coded_format(video.format, settings), settings.ctu_size
    assert ctu is not None
    decide = decider(entry, form, decisions, ctu)
    parameters = loop_parameters(entry.filter, entry.card.sha256, decisions, ctu)

    def unfiltered(_: Picture, decoded: Picture, __: CodedPicture) -> Filtered:
        return Filtered(decoded, decoded, 0.0)

    plain, inputs, plain_psnr = _code_chain(video, settings, unfiltered, None, progress)
    post_filtered, _ = filter_behind(video, inputs, plain, decide, MessageWriter(parameters), lambda: None)
    looped, inputs, looped_psnr = _code_chain(video, settings, decide, MessageWriter(parameters), progress)
    if before is not None:
        with atomic_path(before) as part, create_video(part, form) as out:
            for picture in inputs:
                out.write(picture)
    first, second, third = (
        LoopStream(tuple(pictures), sum(picture.bits for picture in pictures), Path())
        for pictures in (plain, post_filtered, looped)
    )
    rows = make_rows(name, entry.name, settings.qp, (first, second, third), form, decisions, Path())
    return ClosedLoop(tuple(rows), min(plain_psnr, looped_psnr))


def _code_chain(
    video: Video,
    settings: CodecSettings,
    decide: Callable[[Picture, Picture, CodedPicture], Filtered],
    messages: MessageWriter | None,
    progress: Callable[[], None],
) -> tuple[list[LoopPicture], list[Picture], float]:
    """Code with `decide` in the loop; returns picture records, inputs of the filter, and the PSNR of the references."""
    pictures: list[LoopPicture] = []
    inputs: list[Picture] = []

    def filter_(coded: CodedPicture, decoded: Picture) -> Picture:
        filtered = decide(video[coded.poc], decoded, coded)
        picture = loop_picture(coded, video[coded.poc], filtered)
        if messages is not None:
            bits = messages.put(filtered, coded.slice_type, coded.qp)
            picture = picture.model_copy(update={"message_bits": bits})
        pictures.append(picture)
        inputs.append(decoded)
        progress()
        return filtered.picture

    _, reference_psnr = code_closed_loop(video, video.format, settings, filter_)
    return pictures, inputs, reference_psnr


def code_closed_loop(
    originals: Iterable[Picture], video_format: VideoFormat, settings: CodecSettings, filter_: LoopFilter
) -> tuple[tuple[CodedPicture, ...], float]:
    """Code pictures with a filter in an emulated loop: each is predicted from the filtered preceding picture.

    Every picture is coded as the second of a stream of two. The first one is the filtered preceding picture, coded
    near-lossless as the reference. So motion search, decisions and bits depend on filtered references, and errors of
    the filter propagate as in a real loop.

    It differs from a real loop: there is one reference picture and no QP hierarchy; the reference differs from the
    filtered picture by the near-lossless coding error, which is returned; and motion vectors, ALF coefficients and
    other states of earlier pictures cannot be reused.

    Args:
        originals: Original pictures.
        video_format: Format of the originals.
        settings: Settings of the encode. Every slice has its QP, and the first picture is intra.
        filter_: Filter, called as by `code_in_loop`.

    Returns:
        The log entry of every picture, which describes the picture before the filter, with its position as POC, and
        the lowest PSNR of Y in dB between a coded reference and the filtered picture.

    Raises:
        EncoderError: The encoder uses other slice types or QPs, or its log does not confirm the samples.
    """
    loop_format = coded_format(video_format, settings)
    pictures: list[CodedPicture] = []
    reference: Picture | None = None
    lowest_psnr = math.inf
    for number, original in enumerate(originals):
        source = convert(original, loop_format.bit_depth)
        coded, decoded, reference_psnr = _code_after(source, reference, loop_format, settings)
        pictures.append(replace(coded, poc=number))
        lowest_psnr = min(lowest_psnr, reference_psnr)
        reference = filter_(pictures[-1], decoded)
    return tuple(pictures), lowest_psnr


def _code_after(
    source: Picture, reference: Picture | None, video_format: VideoFormat, settings: CodecSettings
) -> tuple[CodedPicture, Picture, float]:
    """Code `source` after `reference` or as intra; return log entry, decoded picture and PSNR of the reference."""
    ffmpeg, qp = ffmpeg_path(), settings.qp
    with temporary_folder("loop") as name:
        path, stream, output = (Path(name) / file for file in ("source.yuv", "stream.266", "decoded.yuv"))
        with create_video(path, video_format) as writer:
            for picture in (source,) if reference is None else (reference, source):
                writer.write(picture)
        # The encoder has one QP for a stream; its offset for intra pictures sets the QP of the reference.
        first_qp = qp if reference is None else REFERENCE_QP
        params = {} if reference is None else {"IntraQPOffset": str(first_qp - qp)} | ONE_B_PICTURE
        configuration = "ai" if reference is None else "ldb"
        pair_settings = replace(settings, configuration=configuration, params={**settings.params, **params})
        argv = encode_argv(ffmpeg, f"file:{path}", video_format, pair_settings, f"file:{stream}")
        pictures = parse_log(run(argv, what=f"coding a picture at QP {qp}", cwd=Path(name)).stdout)
        slices = [(picture.slice_type, picture.qp) for picture in pictures]
        if slices != [("I", first_qp), *([] if reference is None else [("B", qp)])]:
            raise EncoderError(f"a picture at QP {qp} and its reference at QP {first_qp} were coded as slices {slices}")
        decode_stream(ffmpeg, stream, output, video_format)
        verify_decoded(f"picture at QP {qp}", path, video_format, output, video_format, pictures)
        with open_raw(output, video_format) as video:
            decoded = [
                Picture(tuple(np.array(plane) for plane in picture.planes), video_format.bit_depth) for picture in video
            ]
    reference_psnr = math.inf if reference is None else psnr(reference.y, decoded[0].y, video_format.bit_depth)
    return pictures[-1], decoded[-1], reference_psnr
