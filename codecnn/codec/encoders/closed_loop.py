"""Low delay with a filter in the loop, by an encoder that does not know it: the way without libvvenc as a library.

Each picture is coded as the second of a stream of two. The first is the picture before it as the loop would hold it,
filtered, coded near-lossless so that it serves as the reference. So the encoder finds motion, decides and spends bits
against filtered references, and errors of the filter go on from picture to picture, as they would in the loop.

Not as in a real loop: there is one reference picture and no hierarchy of QPs, every slice has the same; the reference
differs from the filtered picture by what near-lossless coding leaves, which is told; motion vectors, ALF coefficients
and other states of earlier pictures cannot be reused.
"""

import math
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from codecnn.codec.base import CodecSettings, CodedPicture, coded_format
from codecnn.codec.checks import prove_decoded
from codecnn.codec.decode import decode_stream
from codecnn.codec.encoders.in_loop import LoopFilter
from codecnn.codec.encoders.jvet import parse_log
from codecnn.codec.encoders.libvvenc import encode_argv
from codecnn.errors import EncoderError
from codecnn.quality import psnr
from codecnn.video import Picture, VideoFormat, convert, create_video, ffmpeg_path, open_raw, run

REFERENCE_QP = 10
"""Slice QP of the first picture of a stream of two; still lower ones overflow the buffer that ffmpeg gives libvvenc."""

ONE_B_PICTURE = {"GOPSize": "1", "Frame1": "B 1 0 0 0 0 0 1 0 0 0 0 0 0 0 1 1 1 1 1 1"}
"""A group of one B picture, predicted from the one before it, its slice QP that of the sequence: libvvenc's own groups
of low delay add 5 to 8 to it, and reach some slice QPs from no QP of a sequence (28, 32, 37)."""


def code_closed_loop(
    originals: Iterable[Picture], video_format: VideoFormat, settings: CodecSettings, filter_: LoopFilter
) -> tuple[tuple[CodedPicture, ...], float]:
    """Code `originals`, each predicted from what `filter_` made of the picture before it.

    `filter_` is called as by `code_in_loop`. Every slice has the QP of `settings`, the first picture is intra. Returns
    the encoder's line on each picture, before the filter, with the picture's place for POC, and the lowest PSNR Y (dB)
    of a reference against the picture that it stands for. Raises EncoderError where the encoder does not do as it was
    asked, or its log does not prove the samples.
    """
    form = coded_format(video_format, settings)
    lines: list[CodedPicture] = []
    reference: Picture | None = None
    lowest = math.inf
    for number, original in enumerate(originals):
        line, picture, near = _code(convert(original, form.bit_depth), reference, form, settings)
        lines.append(replace(line, poc=number))
        lowest = min(lowest, near)
        reference = filter_(lines[-1], picture)
    return tuple(lines), lowest


def _code(
    source: Picture, reference: Picture | None, form: VideoFormat, settings: CodecSettings
) -> tuple[CodedPicture, Picture, float]:
    """Code `source` alone as intra, or after `reference`: its line of the log, decoded, and the reference's PSNR."""
    ffmpeg, qp = ffmpeg_path(), settings.qp
    with tempfile.TemporaryDirectory(prefix="codecnn-loop-") as name:
        path, stream, output = (Path(name) / file for file in ("source.yuv", "stream.266", "decoded.yuv"))
        with create_video(path, form) as writer:
            for picture in (source,) if reference is None else (reference, source):
                writer.write(picture)
        # The encoder has one QP for a stream. Its offset for intra pictures alone brings the first, the reference, to
        # REFERENCE_QP.
        first_qp = qp if reference is None else REFERENCE_QP
        one = {} if reference is None else {"IntraQPOffset": str(first_qp - qp)} | ONE_B_PICTURE
        configuration = "ai" if reference is None else "ldb"
        how = replace(settings, configuration=configuration, params={**settings.params, **one})
        argv = encode_argv(ffmpeg, f"file:{path}", form, how, f"file:{stream}")
        pictures = parse_log(run(argv, what=f"coding a picture at QP {qp}", cwd=Path(name)).stdout)
        told = [(picture.slice_type, picture.qp) for picture in pictures]
        if told != [("I", first_qp), *([] if reference is None else [("B", qp)])]:
            raise EncoderError(f"a picture at QP {qp} and its reference at QP {first_qp} were coded as slices {told}")
        decode_stream(ffmpeg, stream, output, form)
        prove_decoded(f"picture at QP {qp}", path, form, output, form, pictures)
        with open_raw(output, form) as video:
            decoded = [Picture(tuple(np.array(plane) for plane in picture.planes), form.bit_depth) for picture in video]
    near = math.inf if reference is None else psnr(reference.y, decoded[0].y, form.bit_depth)
    return pictures[-1], decoded[-1], near
