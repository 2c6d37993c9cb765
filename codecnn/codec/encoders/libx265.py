"""The `hevc` back end: libx265 and the HEVC decoder in the ffmpeg that imageio-ffmpeg brings.

Constant QP here means that every slice, I, P and B alike, has the QP asked for, and that x265's own statistics say so.
x265 ends at CTUs of 64 and at QP 51, splits by quadtree only, and knows no low-delay B pictures: `ldb` is coded with P
pictures. Neither the bitstream nor the statistics depend on the number of threads.
"""

import contextlib
import csv
import functools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from codecnn.codec.base import CodecSettings, CodedPicture, CodedSequence, coded_format
from codecnn.codec.blocks.table import BlockTable
from codecnn.codec.blocks.x265_analysis import clear_stale_entries, coded_size, read_x265_analysis
from codecnn.codec.decode import decode_stream
from codecnn.errors import ConfigError, EncoderError, FormatError, MissingFileError
from codecnn.runs import write_text
from codecnn.video import Picture, Video, VideoFormat, convert, open_raw
from codecnn.video.picture import Plane
from codecnn.video.process import ffmpeg_identity, ffmpeg_path, require_encoder, run

PRESETS = (
    *("ultrafast", "superfast", "veryfast", "faster", "fast"),
    *("medium", "slow", "slower", "veryslow", "placebo"),
)
CTU_SIZES = (16, 32, 64)
MAX_QP = 51
"""H.265 clause 7.4.7.1: SliceQpY ends at 51."""

CONSTANT_QP = {
    **{"ipratio": "1", "pbratio": "1", "aq-mode": "0", "cutree": "0", "scenecut": "0"},
    **{"psy-rd": "0", "psy-rdoq": "0"},
}
"""No QP offset by slice type, no adaptation by block, no I picture out of turn, no perceptual bias of the decisions."""

REPRODUCIBLE = {"frame-threads": "1", "wpp": "0", "lookahead-slices": "0", "info": "0"}
"""Whatever would let the number of threads or the processor's name reach the bitstream."""

CONFIGURATION_PARAMS = {
    "ai": {"keyint": "1"},
    "ra": {"keyint": "32", "open-gop": "1", "bframes": "7", "b-adapt": "0", "b-pyramid": "1"},
    "ldb": {"keyint": "-1", "bframes": "0"},
}

NO_LOOP_FILTERS = {"no-deblock": "1", "no-sao": "1"}

_STATISTICS_LEVEL = {"csv-log-level": "2", "psnr": "1", "analysis-save-reuse-level": "10"}
_THREAD_PARAM = "pools"

PSNR_TOLERANCE = 5.1e-4
"""dB between our PSNR and x265's, which prints three decimals."""

LOSSLESS_PSNR = 99.99
"""What x265 states for a plane without any error."""

_SEI_TYPES = (39, 40)
"""nal_unit_type of prefix and suffix SEI (H.265 table 7-1)."""


def x265_params(settings: CodecSettings, analysis: str, statistics: str) -> dict[str, str]:
    """x265's own parameters for `settings`; `analysis` and `statistics` are the files it writes beside the bitstream.

    Raises ConfigError for what HEVC or x265 does not have.
    """
    if settings.preset not in PRESETS:
        raise ConfigError(f"libx265 has no preset {settings.preset!r}: one of {', '.join(PRESETS)}")
    if settings.qp > MAX_QP:
        raise ConfigError(f"QP {settings.qp} is out of range for HEVC: 0 to {MAX_QP}")
    if settings.ctu_size not in (None, *CTU_SIZES):
        raise ConfigError(f"CTU size {settings.ctu_size} is not one of HEVC's 16, 32, 64")
    params = {"qp": str(settings.qp), **CONFIGURATION_PARAMS[settings.configuration], **CONSTANT_QP, **REPRODUCIBLE}
    if settings.ctu_size is not None:
        params["ctu"] = str(settings.ctu_size)
    if not settings.loop_filters:
        params |= NO_LOOP_FILTERS
    params |= {str(key): str(value) for key, value in settings.params.items()}
    params |= {_THREAD_PARAM: "none" if settings.threads == 1 else str(settings.threads)}
    params |= {"csv": statistics, "analysis-save": analysis, **_STATISTICS_LEVEL}
    for key, value in params.items():
        if not re.fullmatch(r"[A-Za-z0-9-]+", key) or not re.fullmatch(r"[A-Za-z0-9_.,+-]+", value):
            raise ConfigError(f"encoder parameter {key}={value!r} is not a plain name and value")
    return params


def hevc_encode_argv(
    ffmpeg: str,
    source: str,
    source_format: VideoFormat,
    settings: CodecSettings,
    output: str,
    analysis: str,
    statistics: str,
) -> list[str]:
    """The command that codes the raw YUV file `source` into `output`; a pure function of its arguments.

    Raises ConfigError for settings that HEVC does not have, FormatError for an odd picture size.
    """
    if source_format.width % 2 or source_format.height % 2:
        raise FormatError(
            f"libx265 needs an even width and height, not {source_format.width}x{source_format.height}: pad to even"
        )
    if source_format.bit_depth > settings.internal_bit_depth:
        raise ConfigError(
            f"a source of {source_format.bit_depth} bit cannot be coded at {settings.internal_bit_depth} bit internally"
        )
    params = x265_params(settings, analysis, statistics)
    shift: tuple[str, ...] = ()
    if source_format.chroma == "400" and source_format.bit_depth == 8 and settings.internal_bit_depth == 10:
        # ffmpeg widens grey by repeating the upper bits; without those it is the plain shift of every other format.
        shift = ("-vf", "format=gray10le,lut=y=bitand(val\\,1020)")
    return [
        *(ffmpeg, "-hide_banner", "-nostdin", "-y", "-loglevel", "info", "-nostats", "-f", "rawvideo"),
        *("-pix_fmt", source_format.ffmpeg_pix_fmt, "-s", f"{source_format.width}x{source_format.height}"),
        *("-r", str(source_format.fps or 30), "-i", source, "-fps_mode", "passthrough", *shift),
        *("-pix_fmt", coded_format(source_format, settings).ffmpeg_pix_fmt),
        *("-c:v", "libx265", "-preset", settings.preset),
        *("-x265-params", _joined(params), "-f", "hevc", output),
    ]


def _joined(params: Mapping[str, str]) -> str:
    return ":".join(f"{key}={value}" for key, value in params.items())


def parse_statistics(lines: Iterable[str], chroma: str) -> tuple[CodedPicture, ...]:
    """The pictures of x265's CSV file (`csv-log-level` 2), in output order, `poc` counting them from 0.

    `bits` are those of all NAL units of the picture but SEI, without start codes. PSNR has the peak 255·2^(b-8); 4:0:0
    has none for U and V. Raises EncoderError when a line is not of this form or a QP is not one whole number.
    """
    reader = csv.reader(lines, skipinitialspace=True)
    names = [name.strip() for name in next(reader, [])]
    periods: list[list[CodedPicture]] = []
    for cells in reader:
        row = dict(zip(names, (cell.strip() for cell in cells), strict=False))
        try:
            psnr = {plane: float(row[f"{plane} PSNR"]) for plane in ("Y" if chroma == "400" else "YUV")}
            picture = CodedPicture(
                poc=int(row["POC"]),
                slice_type=row["Type"][0].upper(),
                qp=_whole(row["QP"]),
                bits=int(row["Bits"]),
                psnr_y=psnr["Y"],
                psnr_u=psnr.get("U"),
                psnr_v=psnr.get("V"),
            )
        except (KeyError, ValueError, IndexError) as error:
            raise EncoderError(
                f"x265's statistics do not tell whole QP, bits and PSNR: {error} in {cells[:9]}"
            ) from error
        # POC starts again at every IDR picture, which all pictures before it precede in output order.
        if picture.poc == 0 or not periods:
            periods.append([])
        periods[-1].append(picture)
    ordered = [picture for period in periods for picture in sorted(period, key=lambda picture: picture.poc)]
    return tuple(replace(picture, poc=poc) for poc, picture in enumerate(ordered))


def _whole(text: str) -> int:
    """The mean QP of a picture's blocks, which is the slice QP only if it is a whole number."""
    value = float(text)
    if value != int(value):
        raise ValueError(text)
    return int(value)


def prove_slice_qp(pictures: Sequence[CodedPicture], settings: CodecSettings, name: str) -> None:
    """Raise EncoderError unless every slice has the QP asked for, and all intra has I slices only.

    P and B slices may lie above it where `settings.params` asks for that by ipratio or pbratio.
    """
    if not pictures:
        raise EncoderError(f"x265's statistics for {name} list no picture")
    offsets = {"ipratio", "pbratio"} & settings.params.keys()
    for picture in pictures:
        wrong_type = settings.configuration == "ai" and picture.slice_type != "I"
        above = offsets and picture.slice_type != "I" and picture.qp > settings.qp
        if wrong_type or (picture.qp != settings.qp and not above):
            raise EncoderError(
                f"{name} POC {picture.poc} was coded as {picture.slice_type} slice at QP {picture.qp}, "
                f"not as {settings.configuration.upper()} at QP {settings.qp}"
            )


def prove_bits(bitstream: bytes, pictures: Sequence[CodedPicture], name: str) -> None:
    """Raise EncoderError unless the pictures' bits add up to the bitstream's NAL units but SEI, to the bit."""
    # A NAL unit never ends in a zero byte, so zeros before a start code belong to that (H.265 clause B.2).
    units = [unit.rstrip(b"\0") for unit in bitstream.split(b"\0\0\1")[1:]]
    found = 8 * sum(len(unit) for unit in units if unit and unit[0] >> 1 & 63 not in _SEI_TYPES)
    stated = sum(picture.bits for picture in pictures)
    if found != stated:
        raise EncoderError(f"{name}: x265 states {stated} bits and its bitstream has {found}")


def prove_psnr(
    originals: Sequence[Picture],
    decoded: Sequence[Picture],
    uncropped: Sequence[Picture],
    pictures: Sequence[CodedPicture],
    name: str,
) -> tuple[CodedPicture, ...]:
    """The pictures with their PSNR in full precision: 10·log10(peak²/MSE) in float64, peak = 255·2^(b-8).

    A source of fewer bits is shifted left first. Raises EncoderError unless as many pictures were decoded as coded,
    each of the PSNR that x265 states. Its statement takes in the rows that pad the height to whole CUs, of which
    `uncropped` has the decoded samples, and counts the samples of chroma as in 4:2:0 whatever the format.
    """
    if not len(originals) == len(pictures) == len(decoded) == len(uncropped):
        raise EncoderError(f"{name}: of {len(originals)} pictures {len(pictures)} were coded, {len(decoded)} decoded")
    proven = []
    for coded, original, output, padded in zip(pictures, originals, decoded, uncropped, strict=True):
        peak = 255.0 * 2 ** (output.bit_depth - 8)
        reference = convert(original, output.bit_depth)
        stated = [value for value in (coded.psnr_y, coded.psnr_u, coded.psnr_v) if value is not None]
        psnr = []
        for index, (plane, full) in enumerate(zip(reference.planes, padded.planes, strict=True)):
            extended = np.pad(plane, ((0, len(full) - len(plane)), (0, 0)), mode="edge")
            samples = reference.y.size / (4 if index else 1)
            ours = _psnr(_sse(extended, full[:, : plane.shape[1]]) / samples, peak)
            if abs(ours - stated[index]) > PSNR_TOLERANCE:
                raise EncoderError(
                    f"{name} POC {coded.poc}: PSNR {'YUV'[index]} is {ours:.4f} dB, x265 states {stated[index]:.3f}"
                )
            error = _sse(plane, output.planes[index])
            psnr.append(_psnr(error / plane.size, peak) if error else math.inf)
        chroma = (psnr[1], psnr[2]) if len(psnr) == 3 else (None, None)
        proven.append(replace(coded, psnr_y=psnr[0], psnr_u=chroma[0], psnr_v=chroma[1]))
    return tuple(proven)


def _sse(a: Plane, b: Plane) -> float:
    return float(np.sum((a.astype(np.float64) - b.astype(np.float64)) ** 2))


def _psnr(mse: float, peak: float) -> float:
    return 10 * math.log10(peak**2 / mse) if mse else LOSSLESS_PSNR


@contextlib.contextmanager
def _uncropped(
    ffmpeg: str, bitstream: Path, decoded: Path, output_format: VideoFormat, size: tuple[int, int]
) -> Iterator[Video]:
    """The decoded pictures in the size they are coded in, padded to whole CUs; mostly that is `decoded` itself."""
    if size == (output_format.width, output_format.height):
        with open_raw(decoded, output_format) as video:
            yield video
        return
    padded_format = replace(output_format, width=size[0], height=size[1])
    path = decoded.with_name("uncropped.yuv")
    try:
        argv = [
            *(ffmpeg, "-hide_banner", "-nostdin", "-y", "-loglevel", "error", "-flags2", "ignorecrop"),
            *("-i", f"file:{bitstream.resolve()}", "-fps_mode", "passthrough", "-f", "rawvideo"),
            *("-pix_fmt", padded_format.ffmpeg_pix_fmt, f"file:{path.resolve()}"),
        ]
        run(argv, what=f"decoding {bitstream.name} uncropped")
        with open_raw(path, padded_format) as video:
            yield video
    finally:
        path.unlink(missing_ok=True)


def log_text(encoder: str, preset: str, params: Mapping[str, str], pictures: Sequence[CodedPicture]) -> str:
    """What log.txt holds: encoder, parameters, and x265's statement of each picture, so equal for equal runs."""
    shown = {key: value for key, value in params.items() if key != _THREAD_PARAM}
    lines = [f"encoder: {encoder}", f"preset: {preset}", f"x265-params: {_joined(shown)}"]
    lines.append("POC type QP bits PSNR_Y PSNR_U PSNR_V")
    for picture in pictures:
        psnr = [f"{value:.3f}" for value in (picture.psnr_y, picture.psnr_u, picture.psnr_v) if value is not None]
        lines.append(" ".join(map(str, (picture.poc, picture.slice_type, picture.qp, picture.bits, *psnr))))
    return "\n".join(lines) + "\n"


def _refuse_ignored_params(stderr: str) -> None:
    """ffmpeg passes over parameters that x265 does not know with a warning; here that is an error."""
    ignored = re.search(r"(?:Unknown option|Invalid value for)[: ]+(\S+?)(?:: (\S+?))?\.?$", stderr, re.MULTILINE)
    if ignored:
        raise ConfigError(f"libx265 does not take the parameter {ignored[1]}{f'={ignored[2]}' if ignored[2] else ''}")


@functools.cache
def _identity(ffmpeg: str) -> str:
    require_encoder(ffmpeg, "libx265")
    source = ["-f", "lavfi", "-i", "color=size=64x64:rate=1:duration=1", "-frames:v", "1", "-pix_fmt", "yuv420p"]
    done = run(
        [ffmpeg, "-hide_banner", "-nostdin", *source, "-c:v", "libx265", "-f", "null", "-"],
        what="asking libx265 for its version",
    )
    version = re.search(r"HEVC encoder version (\S+)", done.stderr)
    return f"libx265 {version[1] if version else 'of unknown version'}, {ffmpeg_identity(ffmpeg)}"


class HevcCodec:
    """HEVC by libx265; see `codecnn.codec.base.Codec` for the contract."""

    name = "hevc"

    def identity(self) -> str:
        """For example "libx265 4.3+49-020d7054, ffmpeg n9.0.2-17-g2a571b6068-20260930"."""
        return _identity(ffmpeg_path())

    def encode(self, source: Path, source_format: VideoFormat, settings: CodecSettings, folder: Path) -> CodedSequence:
        """Code `source` into `folder`: bitstream.265, decoded.yuv, log.txt, analysis.dat (the block statistics).

        With `settings.unfiltered` also unfiltered.yuv, the same bitstream decoded without deblocking and SAO.
        Raises ConfigError or FormatError for what cannot be coded, and EncoderError when x265's statistics do not show
        the QP asked for, the bits of the bitstream, or the PSNR of the decoded pictures to their three decimals.
        """
        ffmpeg = ffmpeg_path()
        require_encoder(ffmpeg, "libx265")
        name = f"{source.stem} at QP {settings.qp}"
        bitstream, decoded, log = folder / "bitstream.265", folder / "decoded.yuv", folder / "log.txt"
        analysis, statistics = folder / "analysis.dat", folder / "x265.csv"
        output_format = coded_format(source_format, settings)
        outputs = (bitstream.name, analysis.name, statistics.name)
        argv = hevc_encode_argv(ffmpeg, f"file:{source.resolve()}", source_format, settings, *outputs)
        folder.mkdir(parents=True, exist_ok=True)
        with open_raw(source, source_format) as originals:
            # x265 appends to statistics that are already there.
            statistics.unlink(missing_ok=True)
            try:
                done = run(argv, what=f"coding {name}", cwd=folder)
                _refuse_ignored_params(done.stderr)
                if not statistics.is_file():
                    raise EncoderError(f"coding {name} left no statistics: x265 did not come to its end")
                with statistics.open(newline="") as lines:
                    stated = parse_statistics(lines, source_format.chroma)
            finally:
                statistics.unlink(missing_ok=True)
            prove_slice_qp(stated, settings, name)
            prove_bits(bitstream.read_bytes(), stated, name)
            clear_stale_entries(analysis)
            decode_stream(ffmpeg, bitstream, decoded, output_format)
            with (
                open_raw(decoded, output_format) as pictures,
                _uncropped(ffmpeg, bitstream, decoded, output_format, coded_size(analysis)) as padded,
            ):
                proven = prove_psnr(originals, pictures, padded, stated, name)
        unfiltered = None
        if settings.unfiltered:
            # All intra predicts from unfiltered samples of the same picture, so nothing drifts.
            unfiltered = folder / "unfiltered.yuv"
            decode_stream(ffmpeg, bitstream, unfiltered, output_format, loop_filters=False)
        params = x265_params(settings, analysis.name, statistics.name)
        write_text(log, log_text(self.identity(), settings.preset, params, stated))
        return CodedSequence(
            bitstream=bitstream,
            decoded=decoded,
            format=output_format,
            pictures=proven,
            argv=tuple(hevc_encode_argv("ffmpeg", source.name, source_format, settings, *outputs)),
            encoder=self.identity(),
            log=log,
            block_statistics=analysis,
            unfiltered=unfiltered,
        )


def x265_tables(sequence: CodedSequence) -> BlockTable:
    """Every CU of a sequence that `HevcCodec` coded, its `qp` the slice QP that the log states.

    Raises MissingFileError without block statistics, FormatError when they are damaged.
    """
    if sequence.block_statistics is None:
        raise MissingFileError(f"{sequence.bitstream} has no block statistics beside it")
    return read_x265_analysis(sequence.block_statistics, {picture.poc: picture.qp for picture in sequence.pictures})
