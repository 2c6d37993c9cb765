"""The `streams` back end: supplied bitstreams or decoded pictures, which were coded elsewhere.

There is no encoder log, so the back end checks what it can. For a bitstream: number, size, chroma format and bit depth
of its pictures against the original; slice QPs and configuration from the headers; the MD5 of every picture that has
one; and that the access units add up to the size of the file. For all pictures: that they can come from their original
at these slice QPs (`verify_original`), unless that check is switched off for pictures without a bitstream. It cannot
check the slice QPs, the configuration and the stated bits of pictures without a bitstream, nor which encoder was used
with which settings.
"""

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.fft import dctn

from codecnn.base.errors import ConfigError
from codecnn.codec.base import CodecSettings, CodedPicture, CodedSequence, SuppliedFacts
from codecnn.codec.blocks.vvc_stream import StreamInfo
from codecnn.codec.checks import measured_picture
from codecnn.codec.ffmpeg import decode_stream
from codecnn.codec.headers import access_units, output_pictures, picture_bits, read_headers, slice_qp
from codecnn.codec.stream_qp import choose_qps
from codecnn.pictures.files import (
    Picture,
    Video,
    VideoFormat,
    byte_stream,
    check_end,
    check_pictures,
    convert,
    create_video,
    ffmpeg_identity,
    ffmpeg_path,
    open_raw,
    open_video,
    stream_codec,
)

STREAMS = "streams"
"""Name of the back end in recipes."""

UNKNOWN_CODEC = "unknown"
"""Codec and slice type of pictures without a bitstream."""

UNKNOWN_PRESET = "unknown preset"
"""Preset of sequences that were coded elsewhere."""

DCT_SIZE = 8
"""Width and height in samples of the DCT blocks of `expected_mse`."""

MAX_RATIO = 6.0
"""Largest luma MSE of a picture as a multiple of the expected MSE.

libvvenc and x265 stay below 2 at constant QP and below 4 with perceptual QP adaptation, which codes blocks at other QPs
than the slice QP. A picture compared with another original of its size and QP has at least 23.
"""

MIN_RATIO = 0.2
"""Smallest luma MSE, as a multiple of the expected MSE, of the pictures with the lowest slice QP.

Pictures with higher QPs may copy samples that were coded at a lower QP. libvvenc and x265 stay above 0.4. Together the
two limits detect most slice QPs that are stated 15 too low or 20 too high, and none that are wrong by 5.
"""

_ROUNDING = 0.25
"""MSE at 8 bit that is always allowed: three times the error of rounding to integers."""

_SHIFT_LIMIT = -0.5
"""Limit that decides to which of two neighbouring originals a decoded picture belongs.

The measure is the MSE to the neighbouring original minus the MSE to its own, divided by the MSE between the two. It is
about 1 for a picture coded from its own original, about -1 for one coded from the neighbour, and 0 for a still scene
whose noise is not coded.
"""

_SUFFIXES = {"vvc": "266", "hevc": "265", "avc": "264", "av1": "obu"}
"""Suffixes of the bitstreams in a store."""

_Luma = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SuppliedStream:
    """A file of decoded pictures: a stream of VVC, HEVC, AVC or AV1, also in a container, or a video with its QPs.

    Attributes:
        path: The file.
        stated_qps: Slice QPs of a video: one for all pictures or one for each; empty for a bitstream, whose slice QPs
            are read. A stream of AVC or AV1 with stated QPs is taken as a video.
        reading: Arguments of `open_video` for what the video file does not specify.
        picture_bits: Bits of each picture of a video; empty if they are unknown.
        total_bits: Bits of all pictures of a video together; None if they are unknown.
        checked: Check that the pictures of a video can come from their original at these QPs.

    Raises:
        ConfigError: A bitstream of VVC or HEVC has stated QPs, or a video has none.
    """

    path: Path
    stated_qps: tuple[int, ...] = ()
    reading: Mapping[str, Any] = field(default_factory=dict)
    picture_bits: tuple[int, ...] = ()
    total_bits: int | None = None
    checked: bool = True

    def __post_init__(self) -> None:
        codec = stream_codec(self.path)
        if codec in ("vvc", "hevc") and self.stated_qps:
            raise ConfigError(f"{self.path} contains its slice QPs: name it as a stream, without slice_qp")
        if codec is None and not self.stated_qps:
            raise ConfigError(
                f"{self.path} does not contain its slice QPs, only streams of VVC, HEVC, AVC and AV1 do: "
                "name it as {decoded: FILE, slice_qp: QP}"
            )

    @property
    def is_vvc(self) -> bool:
        """True for a VVC bitstream, whose CUs codecnn reads."""
        return stream_codec(self.path) == "vvc"

    def lowest_qp(self) -> int:
        """Return the lowest slice QP, which is that of the I slices; raise the errors of `read_headers`, `slice_qp`."""
        if self.stated_qps:
            return min(self.stated_qps)
        return min(slice_qp(picture, self.path) for picture in output_pictures(read_headers(self.path)))


class StreamsCodec:
    """The back end that takes a supplied stream instead of coding; see `codecnn.codec.Codec` for the contract."""

    name = STREAMS

    def __init__(self, supplied: SuppliedStream) -> None:
        self.supplied = supplied

    def identity(self) -> str:
        """Return the decoder, for example "unknown encoder, decoded by ffmpeg n9.0.2-17-g2a571b6068"."""
        return streams_identity()

    def encode(self, source: Path, source_format: VideoFormat, settings: CodecSettings, folder: Path) -> CodedSequence:
        """Copy the supplied file into a folder, decode it, and check that it was coded from the source.

        Args:
            source: Raw YUV file of the originals.
            source_format: Format of the originals.
            settings: Settings; only the configuration is used.
            folder: Folder for the bitstream, e.g. bitstream.266, and decoded.yuv.

        Returns:
            The sequence, whose pictures have the PSNR in full precision.

        Raises:
            ConfigError: The file does not belong to the source or to the settings.
            FormatError: The file cannot be read.
            EncoderError: The bitstream does not decode, or not to its own MD5s.
        """
        folder.mkdir(parents=True, exist_ok=True)
        with open_raw(source, source_format) as originals:
            if self.supplied.stated_qps:
                return self._take_pictures(originals, settings, folder)
            return take_stream(self.supplied.path, originals, settings.configuration, folder, verify=True)

    def _take_pictures(self, originals: Video, settings: CodecSettings, folder: Path) -> CodedSequence:
        path, decoded, stated = self.supplied.path, folder / "decoded.yuv", self.supplied.stated_qps
        with open_video(path, **self.supplied.reading) as outputs:
            video_format = replace(outputs.format, fps=originals.format.fps)
            _verify_format(path, video_format, len(outputs), originals.format, len(originals))
            qps = stated * len(outputs) if len(stated) == 1 else stated
            if len(qps) != len(outputs):
                raise ConfigError(f"{path} has {len(outputs)} pictures, and {len(qps)} slice QPs are given")
            bits: Sequence[int | None] = self.supplied.picture_bits or [None] * len(outputs)
            if len(bits) != len(outputs):
                raise ConfigError(f"{path} has {len(outputs)} pictures, and the bits of {len(bits)} are given")
            if self.supplied.checked:
                try:
                    verify_original(str(path), originals, outputs, qps, all_intra=settings.configuration == "ai")
                except ConfigError as error:
                    hint = "qp_scale converts the QPs of another codec, and check: false skips this check"
                    raise ConfigError(f"{error}; {hint}") from error
            pictures = tuple(
                _measured(originals[n], outputs[n], n, UNKNOWN_CODEC, qps[n], bits[n]) for n in range(len(qps))
            )
            with create_video(decoded, video_format) as writer:
                for picture in outputs:
                    writer.write(picture)
        return CodedSequence(
            bitstream=None,
            decoded=decoded,
            format=video_format,
            pictures=pictures,
            argv=(),
            encoder=self.identity(),
            log=None,
            supplied=SuppliedFacts(path.name),
            stated_bits=self.supplied.total_bits,
        )


def take_stream(
    path: Path,
    originals: Video,
    configuration: str,
    folder: Path,
    *,
    bit_depth: int | None = None,
    verify: bool = False,
) -> CodedSequence:
    """Copy a bitstream into a folder, decode it, and check it against its originals.

    Args:
        path: Stream of VVC, HEVC, AVC or AV1, also in a container.
        originals: Original pictures.
        configuration: Configuration of the settings.
        folder: Folder for the bitstream, e.g. bitstream.266, and decoded.yuv.
        bit_depth: Bit depth of the stream, to which the originals are converted; None: the originals have it.
        verify: Check that the pictures can come from these originals at their slice QPs (`verify_original`), as is due
            for a stream that codecnn did not code.

    Returns:
        The sequence, whose pictures have the PSNR in full precision.

    Raises:
        ConfigError: The stream does not belong to the originals or has another configuration.
        FormatError: The file cannot be read.
        EncoderError: The bitstream does not decode, or not to its own MD5s.
    """
    decoded = folder / "decoded.yuv"
    check_pictures(path)
    stream = byte_stream(path)
    bitstream = folder / f"bitstream.{_SUFFIXES[stream.codec]}"
    info, bits = read_headers(path), picture_bits(path)
    shutil.copyfile(stream.path, bitstream)
    stream_format = replace(originals.format, width=info.width, height=info.height, chroma=info.chroma)
    stream_format = replace(stream_format, bit_depth=info.bit_depth)
    depth = bit_depth or originals.format.bit_depth
    original_format = replace(originals.format, bit_depth=depth)
    output = output_pictures(info)
    _verify_format(path, stream_format, len(output), original_format, len(originals))
    _verify_configuration(path, info, configuration)
    # ffmpeg decodes grey of AVC as 4:2:0.
    filters = "extractplanes=y" if stream.codec == "avc" and info.chroma == "400" else None
    count = decode_stream(ffmpeg_path(), bitstream, decoded, stream_format, filters=filters, name=str(path))
    check_end(bitstream, stream.codec, stream_format.ffmpeg_pix_fmt, decoded, count, str(path))
    qps = [slice_qp(picture, path) for picture in output]
    with open_raw(decoded, stream_format) as outputs:
        _verify_format(path, stream_format, len(outputs), original_format, len(originals))
        if verify:
            verify_original(str(path), originals, outputs, qps, all_intra=configuration == "ai")
        pictures = tuple(
            _measured(convert(originals[n], depth), outputs[n], n, output[n].slice_type, qps[n], bits[n])
            for n in range(len(qps))
        )
    md5s = sum(unit.has_md5 for unit in access_units(path)) if stream.codec in ("vvc", "hevc") else 0
    return CodedSequence(
        bitstream=bitstream,
        decoded=decoded,
        format=stream_format,
        pictures=pictures,
        argv=(),
        encoder=streams_identity(),
        log=None,
        supplied=SuppliedFacts(path.name, stream.codec, info.ctu_size, md5s),
        network_qps=_network_qps(path, stream.codec, len(pictures)),
    )


def _network_qps(path: Path, codec: str, count: int) -> tuple[int, ...] | None:
    """Return the QPs that `codecnn filter` takes for a stream; None for VVC, where weights for video take slice QPs."""
    if codec == "vvc":
        return None
    qps = choose_qps(path, all_intra_weights=False).qps
    return qps if len(qps) == count else qps * count


def streams_identity() -> str:
    """Return the identity of encoder and decoder for supplied pictures."""
    return f"{UNKNOWN_CODEC} encoder, decoded by {ffmpeg_identity(ffmpeg_path())}"


def _verify_format(path: Path, video_format: VideoFormat, count: int, original: VideoFormat, originals: int) -> None:
    if video_format != original:
        raise ConfigError(
            f"{path} has pictures of {video_format}, its original as the recipe reads it {original}: "
            "size, chroma and internal_bit_depth must be those of the stream"
        )
    if count != originals:
        raise ConfigError(f"{path} has {count} pictures, its original {originals}")


def coded_configuration(info: StreamInfo) -> str:
    """Return the configuration of a stream: "ai" with I slices only, "ldb" if coded in output order, else "ra"."""
    if all(picture.slice_type == "I" for picture in info.pictures):
        return "ai"
    positions = [picture.position for picture in info.pictures if picture.position is not None]
    return "ldb" if positions == sorted(positions) else "ra"


def _verify_configuration(path: Path, info: StreamInfo, configuration: str) -> None:
    """Raise ConfigError if slice types or coding order in the headers contradict the configuration."""
    coded = coded_configuration(info)
    if (coded == "ai") != (configuration == "ai"):
        what = "I slices only" if coded == "ai" else "P or B slices"
        raise ConfigError(f"{path} has {what}, which contradicts the recipe's configuration {configuration}")
    if (coded, configuration) == ("ra", "ldb"):
        raise ConfigError(f"{path} outputs its pictures in another order than it codes them: it is ra, not ldb")


def _measured(original: Picture, output: Picture, poc: int, slice_type: str, qp: int, bits: int | None) -> CodedPicture:
    return measured_picture(CodedPicture(poc, slice_type, qp, bits, math.inf, None, None), original, output)


# --- comparison with the original ------------------------------------------------------------------------------------


def expected_mse(luma: _Luma, qp: int) -> float:
    """Estimate the coding error of a picture from its DCT coefficients and the quantisation step.

    A uniform quantiser leaves step²/12 of each coefficient c, or c² if that is smaller and c becomes 0 (reverse
    water-filling: Cover and Thomas, "Elements of Information Theory", 2006, clause 10.3.3). The step of an orthonormal
    DCT is 2^((QP - 4) / 6) (H.265 clause 8.6.4.2; H.266 clause 8.7.3).

    Args:
        luma: Luma samples on the scale of 8 bit, shape (h, w). Rows and columns beyond whole 8x8 blocks are ignored.
        qp: Slice QP.

    Returns:
        Expected MSE in sample units squared at 8 bit.
    """
    height, width = (extent // DCT_SIZE * DCT_SIZE for extent in luma.shape)
    blocks = luma[:height, :width].reshape(height // DCT_SIZE, DCT_SIZE, width // DCT_SIZE, DCT_SIZE)
    energy = dctn(blocks, axes=(1, 3), norm="ortho") ** 2
    # Means are predicted from block to block, so a flat picture has no error.
    energy[:, 0, :, 0] = 0
    return float(np.minimum(energy, 2.0 ** ((qp - 4) / 3) / 12).mean())


def verify_original(name: str, originals: Video, decoded: Video, qps: Sequence[int], *, all_intra: bool) -> None:
    """Check that decoded pictures can be the originals coded at the given slice QPs.

    The luma MSE must lie between MIN_RATIO and MAX_RATIO times `expected_mse`. The decoded pictures must not be nearer
    to the preceding or following originals than to their own. In all intra every picture is compared with its
    neighbours; otherwise all pictures are compared together, because a picture that copies the preceding one is nearer
    to that original. U and V must not be interchanged.

    Args:
        name: Name of the file in error messages.
        originals: Original pictures.
        decoded: Decoded pictures of the same format.
        qps: Slice QP of every picture.
        all_intra: The pictures are coded in all intra.

    Raises:
        ConfigError: One of these conditions does not hold.
    """
    excess_sums, distance_sums = {-1: 0.0, 1: 0.0}, {-1: 0.0, 1: 0.0}
    problems: list[str] = []
    for number, qp in enumerate(qps):
        what = f"{name}, picture {number},"
        original, output = _luma(originals, number), _luma(decoded, number)
        error, expected = _mse(original, output), expected_mse(original, qp)
        too_large = error > MAX_RATIO * expected + _ROUNDING
        for step in excess_sums:
            if 0 <= number + step < len(originals):
                neighbour = _luma(originals, number + step)
                excess, distance = _mse(neighbour, output) - error, _mse(neighbour, original)
                if (too_large or all_intra) and excess < _SHIFT_LIMIT * distance:
                    raise ConfigError(_shift_message(what, step))
                excess_sums[step] += excess
                distance_sums[step] += distance
        difference = (
            f"{what} differs from its original by a luma MSE of {error:.2f} (at 8 bit), and QP {qp} gives about"
        )
        if too_large:
            problems.append(
                f"{difference} {expected:.2f}: the original or the sample scale is wrong, or the QP is higher"
            )
        if qp == min(qps) and error + _ROUNDING < MIN_RATIO * expected:
            problems.append(f"{difference} {expected:.2f}: the QP is lower, or the picture is not coded")
        if _has_interchanged_chroma(originals[number], decoded[number]):
            problems.append(f"{what} has U and V interchanged")
    # A shift also causes large errors, so it is reported first.
    for step, excess in excess_sums.items():
        if excess < _SHIFT_LIMIT * distance_sums[step]:
            raise ConfigError(_shift_message(name, step))
    if problems:
        raise ConfigError(problems[0])


def _has_interchanged_chroma(original: Picture, decoded: Picture) -> bool:
    """Return whether U and V are interchanged, as in the layout YV12."""
    if len(original.planes) == 1:
        return False
    (u, v), (decoded_u, decoded_v) = (
        [plane.astype(np.float64) for plane in picture.planes[1:]] for picture in (original, decoded)
    )
    in_order, interchanged = _mse(u, decoded_u) + _mse(v, decoded_v), _mse(u, decoded_v) + _mse(v, decoded_u)
    return interchanged - in_order < _SHIFT_LIMIT * 2 * _mse(u, v)


def _shift_message(name: str, step: int) -> str:
    return f"{name} is nearer to the original one picture {'later' if step > 0 else 'earlier'} than to its own"


def _luma(video: Video, number: int) -> _Luma:
    scaled: _Luma = video[number].y / 2.0 ** (video.format.bit_depth - 8)
    return scaled


def _mse(a: _Luma, b: _Luma) -> float:
    return float(np.mean((a - b) ** 2))
