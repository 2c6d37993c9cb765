"""Decode a bitstream with ffmpeg, and check the result against what the encoder's log says of it."""

import hashlib
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from codecnn.codec.base import CodedPicture
from codecnn.errors import EncoderError
from codecnn.video import VideoFormat, convert, open_raw
from codecnn.video.process import run

PSNR_TOLERANCE = 1e-4
"""dB between our PSNR and the log's, which prints four decimals."""


def decode_stream(
    ffmpeg: str, bitstream: Path, output: Path, video_format: VideoFormat, *, loop_filters: bool = True
) -> None:
    """Decode `bitstream` into the raw YUV file `output` in the samples of `video_format`, every picture once.

    `loop_filters` False leaves them out, which ffmpeg can for HEVC but not for VVC.
    """
    # A picture without its filters does not have the hash that the stream may state.
    checks = ("-err_detect", "crccheck+explode") if loop_filters else ("-skip_loop_filter", "all")
    argv = [
        *(ffmpeg, "-hide_banner", "-nostdin", "-y", "-loglevel", "error"),
        # Without these ffmpeg repairs a damaged stream as well as it can and says nothing.
        # One thread: units are coded side by side, and more would only get in each other's way.
        *("-threads", "1", "-xerror", *checks, "-i", f"file:{bitstream.resolve()}"),
        *("-fps_mode", "passthrough", "-f", "rawvideo", "-pix_fmt", video_format.ffmpeg_pix_fmt),
        f"file:{output.resolve()}",
    ]
    run(argv, what=f"decoding {bitstream.name}")


def check_decoded(
    name: str,
    source: Path,
    source_format: VideoFormat,
    decoded: Path,
    decoded_format: VideoFormat,
    pictures: Sequence[CodedPicture],
) -> None:
    """Raise EncoderError unless every decoded picture has the MD5 and the PSNR that the log states for it.

    The MD5 only where width and height are multiples of 8.

    PSNR here: 10·log10(peak²/MSE) in float64, peak = 255·2^(b-8), as HM, VTM and libvvenc log it.
    """
    with open_raw(source, source_format) as originals, open_raw(decoded, decoded_format) as outputs:
        if len(outputs) != len(pictures):
            raise EncoderError(f"{name}: {len(pictures)} pictures were coded and {len(outputs)} decoded")
        # Encoders hash the picture they code, padded to whole 8x8 blocks; of another size we only see the inner part.
        hashed = decoded_format.width % 8 == 0 and decoded_format.height % 8 == 0
        peak = 255.0 * 2 ** (decoded_format.bit_depth - 8)
        for coded, original, output in zip(pictures, originals, outputs, strict=True):
            reference = convert(original, decoded_format.bit_depth)
            for index, (a, b) in enumerate(zip(reference.planes, output.planes, strict=True)):
                if hashed and coded.md5 and hashlib.md5(b.tobytes()).hexdigest() != coded.md5[index]:
                    raise EncoderError(f"{name} POC {coded.poc}: plane {'YUV'[index]} decodes to another MD5")
                stated = (coded.psnr_y, coded.psnr_u, coded.psnr_v)[index]
                mse = float(np.mean((a.astype(np.float64) - b.astype(np.float64)) ** 2))
                if stated is None or mse == 0:
                    continue
                ours = 10 * math.log10(peak**2 / mse)
                if abs(ours - stated) > PSNR_TOLERANCE:
                    raise EncoderError(
                        f"{name} POC {coded.poc}: PSNR {'YUV'[index]} is {ours:.4f} dB, the encoder states {stated:.4f}"
                    )
