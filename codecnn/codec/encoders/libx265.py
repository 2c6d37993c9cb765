"""The `hevc` back end: libx265 and the HEVC decoder in the ffmpeg that imageio-ffmpeg brings.

Constant QP here means that every slice, I, P and B alike, has the QP asked for, and that x265's own statistics say so.
x265 ends at CTUs of 64 and at QP 51, splits by quadtree only, and knows no low-delay B pictures: `ldb` is coded with P
pictures. Neither the bitstream nor the statistics depend on the number of threads.
"""

import contextlib
import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from codecnn.codec.base import CodecSettings, CodedPicture, CodedSequence, coded_format
from codecnn.codec.blocks._x265_analysis import clear_stale_entries, coded_size, read_x265_analysis
from codecnn.codec.blocks.table import BlockTable
from codecnn.codec.checks import prove_slice_qp, prove_x265_bits, prove_x265_psnr
from codecnn.codec.decode import decode_stream
from codecnn.codec.encoders.library import joined, library_identity, raw_input
from codecnn.codec.encoders.limits import check_depth, check_even, check_hevc, check_params, check_preset
from codecnn.errors import ConfigError, EncoderError, MissingFileError
from codecnn.runs import write_text
from codecnn.video import Video, VideoFormat, ffmpeg_path, open_raw, require_encoder, run

_PRESETS = "ultrafast superfast veryfast faster fast medium slow slower veryslow placebo"
PRESETS = tuple(_PRESETS.split())

CONSTANT_QP = dict.fromkeys(("ipratio", "pbratio"), "1")
CONSTANT_QP |= dict.fromkeys(("aq-mode", "cutree", "scenecut", "psy-rd", "psy-rdoq"), "0")
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


def x265_params(settings: CodecSettings, analysis: str, statistics: str) -> dict[str, str]:
    """x265's own parameters for `settings`; `analysis` and `statistics` are the files it writes beside the bitstream.

    Raises ConfigError for what HEVC or x265 does not have.
    """
    check_preset("libx265", settings.preset, PRESETS)
    check_hevc(settings)
    params = {"qp": str(settings.qp), **CONFIGURATION_PARAMS[settings.configuration], **CONSTANT_QP, **REPRODUCIBLE}
    if settings.ctu_size is not None:
        params["ctu"] = str(settings.ctu_size)
    if not settings.loop_filters:
        params |= NO_LOOP_FILTERS
    params |= settings.params
    params |= {_THREAD_PARAM: "none" if settings.threads == 1 else str(settings.threads)}
    params |= {"csv": statistics, "analysis-save": analysis, **_STATISTICS_LEVEL}
    return check_params(params, names="[A-Za-z0-9-]+")


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
    check_even("libx265", source_format)
    check_depth(source_format, settings)
    argv = raw_input(ffmpeg, source, source_format, "-loglevel", "info", "-nostats")
    argv += ["-fps_mode", "passthrough"]
    if source_format.chroma == "400" and source_format.bit_depth == 8 and settings.internal_bit_depth == 10:
        # ffmpeg widens grey by repeating the upper bits; without those it is the plain shift of every other format.
        argv += ["-vf", "format=gray10le,lut=y=bitand(val\\,1020)"]
    argv += ["-pix_fmt", coded_format(source_format, settings).ffmpeg_pix_fmt, "-c:v", "libx265"]
    argv += ["-preset", settings.preset, "-x265-params", joined(x265_params(settings, analysis, statistics))]
    return [*argv, "-f", "hevc", output]


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


def has_qp_offsets(settings: CodecSettings) -> bool:
    """Whether the user's parameters put P and B slices above the QP."""
    return not {"ipratio", "pbratio"}.isdisjoint(settings.params)


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
        decode_stream(ffmpeg, bitstream, path, padded_format, crop=False)
        with open_raw(path, padded_format) as video:
            yield video
    finally:
        path.unlink(missing_ok=True)


def log_text(encoder: str, preset: str, params: Mapping[str, str], pictures: Sequence[CodedPicture]) -> str:
    """What log.txt holds: encoder, parameters, and x265's statement of each picture, so equal for equal runs."""
    shown = {key: value for key, value in params.items() if key != _THREAD_PARAM}
    lines = [f"encoder: {encoder}", f"preset: {preset}", f"x265-params: {joined(shown)}"]
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


class HevcCodec:
    """HEVC by libx265; see `codecnn.codec.base.Codec` for the contract."""

    name = "hevc"

    def identity(self) -> str:
        """For example "libx265 4.3+49-020d7054, ffmpeg n9.0.2-17-g2a571b6068-20260930"."""
        return library_identity(ffmpeg_path(), "libx265", "yuv420p", r"HEVC encoder version (\S+)")

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
            prove_slice_qp(stated, settings, name, hierarchy=has_qp_offsets(settings))
            prove_x265_bits(bitstream.read_bytes(), stated, name)
            clear_stale_entries(analysis)
            decode_stream(ffmpeg, bitstream, decoded, output_format)
            with (
                open_raw(decoded, output_format) as pictures,
                _uncropped(ffmpeg, bitstream, decoded, output_format, coded_size(analysis)) as padded,
            ):
                proven = prove_x265_psnr(originals, pictures, padded, stated, name)
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
            encoder_seconds=done.cpu_seconds,
        )


def x265_tables(sequence: CodedSequence) -> BlockTable:
    """Every CU of a sequence that `HevcCodec` coded, its `qp` the slice QP that the log states.

    Raises MissingFileError without block statistics, FormatError when they are damaged.
    """
    if sequence.block_statistics is None:
        raise MissingFileError(f"{sequence.bitstream} has no block statistics beside it")
    return read_x265_analysis(sequence.block_statistics, {picture.poc: picture.qp for picture in sequence.pictures})
