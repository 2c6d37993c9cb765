"""Low delay with the filter in the loop, by an encoder that does not know it: what a post-filter cannot tell.

Each picture is coded as the second of a stream of two. The first is the picture before it as the loop would hold it,
filtered, coded near-lossless so that it serves as the reference. So the encoder finds motion, decides and spends bits
against filtered references, and errors of the filter go on from picture to picture, as they would in the loop.

Not as in a real loop: there is one reference picture and no hierarchy of QPs (every picture is coded as POC 1, at the
slice QP that its configuration gives it); the reference differs from the filtered picture by what near-lossless coding
leaves, which is reported; motion vectors, ALF coefficients and other states of earlier pictures cannot be reused; and
the filter comes after all of the codec's own.
"""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from codecnn.codec.base import CodecSettings, CodedPicture
from codecnn.codec.checks import prove_decoded
from codecnn.codec.decode import decode_stream
from codecnn.codec.encoders.jvet import parse_log
from codecnn.codec.encoders.libvvenc import encode_argv
from codecnn.errors import ConfigError, EncoderError, TableError
from codecnn.filtering import Decisions, PictureFilter, filter_and_decide, slice_type_beside
from codecnn.quality.bdrate import bd_rate
from codecnn.quality.metrics import psnr
from codecnn.video import Picture, VideoFormat, convert, create_video, open_raw
from codecnn.video.process import ffmpeg_path, run

REFERENCE_QP = 10
"""Slice QP of the first picture of a stream of two; still lower ones overflow the buffer that ffmpeg gives libvvenc."""

BIT_DEPTH, CTU_SIZE = 10, 128
CHAINS = ("decoded", "post_filter", "twice", "closed_loop")
"""Chains of pictures: without the filter; those filtered once; filtered once more, which tells what over-filtering
costs; with the filter in the loop."""


@dataclass(frozen=True)
class Loop:
    """Pictures coded at `qp` with and without the filter in the loop: of each of CHAINS bits and PSNR Y by picture.

    Bits are a picture's own and those of what was decided of its filter. `reference_psnr` is the lowest PSNR Y, dB, of
    a reference against the picture that it stands for.
    """

    qp: int
    slice_qps: list[int]
    bits: dict[str, list[float]]
    psnr_y: dict[str, list[float]]
    reference_psnr: float


@dataclass(frozen=True)
class LoopSummary:
    """Gains by QP, dB, and BD-rates, %, of the chains over "decoded"; the closed loop's bits as a ratio to its bits."""

    gain_db: dict[str, dict[str, float]]
    bits_ratio: dict[str, float]
    bd_rate: dict[str, float | None]


def closed_loop(
    filter_: PictureFilter,
    originals: Sequence[Picture],
    video_format: VideoFormat,
    qp: int,
    *,
    preset: str = "fast",
    decisions: Decisions = "none",
    progress: Callable[[], None] | None = None,
) -> Loop:
    """Code `originals` at `qp` with and without the filter in the loop.

    Raises ConfigError for fewer than two pictures, EncoderError where the encoder does not do as it was asked.
    """
    if len(originals) < 2:
        raise ConfigError(f"a closed loop needs two pictures at least, not {len(originals)}")
    sources = [convert(original, BIT_DEPTH) for original in originals]
    coded_format = VideoFormat(video_format.width, video_format.height, video_format.chroma, BIT_DEPTH)
    shown: list[CodedPicture] = []
    references: list[float] = []
    chains: dict[str, list[tuple[Picture, float]]] = {name: [] for name in CHAINS}

    def through(source: Picture, decoded: Picture, coded: CodedPicture, bits: float) -> tuple[Picture, float]:
        beside = slice_type_beside(filter_.planes, coded.slice_type, coded_format)
        made = filter_and_decide(filter_, source, decoded, coded.qp, beside, decisions, CTU_SIZE)
        return made.picture, bits + made.bits

    # Each chain refers to its own pictures, so without and with the filter are two encodings from the second one on.
    for name in ("decoded", "closed_loop"):
        reference: Picture | None = None
        for source in sources:
            coded, picture, reference_psnr = _code(source, reference, coded_format, qp, preset)
            assert coded.bits is not None
            bits = float(coded.bits)
            if name == "closed_loop":
                picture, bits = through(source, picture, coded, bits)
            else:
                shown.append(coded)
            chains[name].append((picture, bits))
            references += [] if reference_psnr is None else [reference_psnr]
            reference = picture
            if progress is not None:
                progress()
    for name, before in (("post_filter", "decoded"), ("twice", "post_filter")):
        for source, coded, (picture, bits) in zip(sources, shown, chains[before], strict=True):
            chains[name].append(through(source, picture, coded, bits))
    psnrs = {
        name: [psnr(source.y, picture.y, BIT_DEPTH) for source, (picture, _) in zip(sources, chain, strict=True)]
        for name, chain in chains.items()
    }
    slice_qps = [coded.qp for coded in shown]
    return Loop(
        qp, slice_qps, {name: [bits for _, bits in chain] for name, chain in chains.items()}, psnrs, min(references)
    )


def summarise_loops(loops: Sequence[Loop]) -> LoopSummary:
    """Mean gains and BD-rates from `closed_loop` at each QP; a BD-rate is None where there is none."""
    psnrs = {name: [float(np.mean(loop.psnr_y[name])) for loop in loops] for name in CHAINS}
    bits = {name: [float(np.sum(loop.bits[name])) for loop in loops] for name in CHAINS}
    qps = [str(loop.qp) for loop in loops]
    gains: dict[str, dict[str, float]] = {}
    rates: dict[str, float | None] = {}
    for name in CHAINS[1:]:
        gains[name] = {qp: b - a for qp, a, b in zip(qps, psnrs["decoded"], psnrs[name], strict=True)}
        anchor, test = (list(zip(bits[chain], psnrs[chain], strict=True)) for chain in ("decoded", name))
        try:
            rates[name] = bd_rate(anchor, test)
        except TableError:
            rates[name] = None
    ratios = {qp: b / a for qp, a, b in zip(qps, bits["decoded"], bits["closed_loop"], strict=True)}
    return LoopSummary(gains, ratios, rates)


def _code(
    source: Picture, reference: Picture | None, coded_format: VideoFormat, qp: int, preset: str
) -> tuple[CodedPicture, Picture, float | None]:
    """Code `source` alone as intra, or after `reference`: its line of the log, decoded, and the reference's PSNR."""
    ffmpeg = ffmpeg_path()
    with tempfile.TemporaryDirectory(prefix="codecnn-loop-") as name:
        path, stream, output = (Path(name) / file for file in ("source.yuv", "stream.266", "decoded.yuv"))
        with create_video(path, coded_format) as writer:
            for picture in (source,) if reference is None else (reference, source):
                writer.write(picture)
        # The encoder has one QP for a stream. Its offset for intra pictures alone brings the first, the reference, to
        # REFERENCE_QP, while the second keeps the slice QP that low delay at `qp` gives it.
        first_qp = qp if reference is None else REFERENCE_QP
        params = {"IntraQPOffset": str(first_qp - qp)}
        configuration = "ai" if reference is None else "ldb"
        settings = CodecSettings(qp=qp, preset=preset, configuration=configuration, ctu_size=CTU_SIZE, params=params)
        argv = encode_argv(ffmpeg, f"file:{path}", coded_format, settings, f"file:{stream}")
        pictures = parse_log(run(argv, what=f"coding a picture at QP {qp}", cwd=Path(name)).stdout)
        types = "".join(picture.slice_type for picture in pictures)
        if types != ("I" if reference is None else "IB") or pictures[0].qp != first_qp:
            raise EncoderError(
                f"a stream of two at QP {qp} came out as slices {types!r}, the first at QP {pictures[0].qp}"
            )
        decode_stream(ffmpeg, stream, output, coded_format)
        prove_decoded(f"picture at QP {qp}", path, coded_format, output, coded_format, pictures)
        with open_raw(output, coded_format) as video:
            decoded = [Picture(tuple(np.array(plane) for plane in picture.planes), BIT_DEPTH) for picture in video]
    told = None if reference is None else psnr(reference.y, decoded[0].y, BIT_DEPTH)
    return pictures[-1], decoded[-1], told
