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
from typing import Any

import numpy as np

from codecnn.codec.base import CodecSettings, CodedPicture
from codecnn.codec.decode import check_decoded, decode_stream
from codecnn.codec.encoders.libvvenc import encode_argv, parse_log
from codecnn.errors import ConfigError, EncoderError, TableError
from codecnn.evaluation.measure import Decisions, filter_and_decide
from codecnn.filtering import PictureFilter
from codecnn.quality.bdrate import bd_rate
from codecnn.quality.metrics import psnr
from codecnn.video import Picture, VideoFormat, convert, create_video, open_raw
from codecnn.video.process import ffmpeg_path, run

REFERENCE_QP = 10
"""Slice QP of the first picture of a stream of two; still lower ones overflow the buffer that ffmpeg gives libvvenc."""

BIT_DEPTH, CTU = 10, 128
CHAINS = ("decoded", "post_filter", "twice", "closed_loop")


@dataclass(frozen=True)
class Link:
    """One picture of a chain as the loop holds it, its slice QP and bits, and how near its reference is, PSNR Y."""

    picture: Picture
    qp: int
    bits: float
    reference_psnr: float | None


def closed_loop(
    filter_: PictureFilter,
    originals: Sequence[Picture],
    video_format: VideoFormat,
    qp: int,
    *,
    preset: str = "fast",
    decisions: Decisions = "none",
    progress: Callable[[], None] | None = None,
) -> dict[str, Any]:
    """Code `originals` at `qp` with and without the filter in the loop: bits and PSNR Y of each picture.

    Returns {"qp", "slice_qps", "bits": {chain: a list}, "psnr_y": {chain: a list}, "reference_psnr"} for the CHAINS:
    "decoded" without the filter, "post_filter" its pictures filtered once, "twice" filtered once more, which tells what
    over-filtering costs, and "closed_loop" with the filter. The bits are a picture's own and those of what was decided
    of its filter. "reference_psnr" is the lowest PSNR Y, dB, of a reference against the picture that it stands for.
    Raises ConfigError for fewer than two pictures, EncoderError where the encoder does not do as it was asked.
    """
    if len(originals) < 2:
        raise ConfigError(f"a closed loop needs two pictures at least, not {len(originals)}")
    sources = [convert(original, BIT_DEPTH) for original in originals]
    coded_format = VideoFormat(video_format.width, video_format.height, video_format.chroma, BIT_DEPTH)

    def through(source: Picture, decoded: Picture, slice_qp: int) -> tuple[Picture, float]:
        picture, row, _ = filter_and_decide(filter_, source, decoded, slice_qp, {}, decisions, CTU)
        return picture, float(row.get("bits", 0))

    plain: list[Link] = []
    looped: list[Link] = []
    for chain, inside in ((plain, False), (looped, True)):
        reference: Picture | None = None
        for source in sources:
            coded, decoded, reference_psnr = _code(source, reference, coded_format, qp, preset)
            picture, bits = through(source, decoded, coded.qp) if inside else (decoded, 0.0)
            chain.append(Link(picture, coded.qp, coded.bits + bits, reference_psnr))
            reference = picture
            if progress is not None:
                progress()
    chains = {"decoded": [(link.picture, link.bits) for link in plain]}
    for name, before in (("post_filter", "decoded"), ("twice", "post_filter")):
        chains[name] = []
        for source, link, (picture, bits) in zip(sources, plain, chains[before], strict=True):
            filtered, own = through(source, picture, link.qp)
            chains[name].append((filtered, bits + own))
    chains["closed_loop"] = [(link.picture, link.bits) for link in looped]
    return {
        "qp": qp,
        "slice_qps": [link.qp for link in plain],
        "bits": {name: [bits for _, bits in chain] for name, chain in chains.items()},
        "psnr_y": {
            name: [psnr(source.y, picture.y, BIT_DEPTH) for source, (picture, _) in zip(sources, chain, strict=True)]
            for name, chain in chains.items()
        },
        "reference_psnr": min(link.reference_psnr for link in (*plain, *looped) if link.reference_psnr is not None),
    }


def summarise_loops(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """From `closed_loop` at each QP: mean gains over the chain without filter in dB, and BD-rates in %.

    {"gain_db": {chain: {QP: ...}}, "bits_ratio": {QP: ...} of the closed loop, "bd_rate": {chain: ...}}; a BD-rate is
    None where there is none.
    """
    psnrs = {name: [float(np.mean(run_["psnr_y"][name])) for run_ in runs] for name in CHAINS}
    bits = {name: [float(np.sum(run_["bits"][name])) for run_ in runs] for name in CHAINS}
    rates: dict[str, float | None] = {}
    for name in CHAINS[1:]:
        anchor, test = (list(zip(bits[chain], psnrs[chain], strict=True)) for chain in ("decoded", name))
        try:
            rates[name] = bd_rate(anchor, test)
        except TableError:
            rates[name] = None
    qps = [str(run_["qp"]) for run_ in runs]

    def by_qp(values: Sequence[float]) -> dict[str, float]:
        return dict(zip(qps, values, strict=True))

    return {
        "gain_db": {
            name: by_qp([b - a for a, b in zip(psnrs["decoded"], psnrs[name], strict=True)]) for name in CHAINS[1:]
        },
        "bits_ratio": by_qp([b / a for a, b in zip(bits["decoded"], bits["closed_loop"], strict=True)]),
        "bd_rate": rates,
    }


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
        wanted = [qp] if reference is None else [REFERENCE_QP]
        params = {"IntraQPOffset": str(wanted[0] - qp)}
        configuration = "ai" if reference is None else "ldb"
        settings = CodecSettings(qp=qp, preset=preset, configuration=configuration, ctu_size=CTU, params=params)
        argv = encode_argv(ffmpeg, f"file:{path}", coded_format, settings, f"file:{stream}")
        pictures = parse_log(run(argv, what=f"coding a picture at QP {qp}", cwd=Path(name)).stdout)
        types = "".join(picture.slice_type for picture in pictures)
        if types != ("I" if reference is None else "IB") or pictures[0].qp != wanted[0]:
            raise EncoderError(
                f"a stream of two at QP {qp} came out as slices {types!r}, the first at QP {pictures[0].qp}"
            )
        decode_stream(ffmpeg, stream, output, coded_format)
        check_decoded(f"picture at QP {qp}", path, coded_format, output, coded_format, pictures)
        with open_raw(output, coded_format) as video:
            decoded = [Picture(tuple(np.array(plane) for plane in picture.planes), BIT_DEPTH) for picture in video]
    told = None if reference is None else psnr(reference.y, decoded[0].y, BIT_DEPTH)
    return pictures[-1], decoded[-1], told
