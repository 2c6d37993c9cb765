"""The `hevc` back end: libx265 and the HEVC decoder of the ffmpeg in imageio-ffmpeg.

Constant QP means that every I, P and B slice has the QP of the settings, which x265's statistics must confirm. x265 has
CTUs of at most 64, QPs up to 51, quadtree splits only, and no low-delay B pictures: `ldb` is coded with P pictures.
Neither the bitstream nor the statistics depend on the number of threads.
"""

import contextlib
import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from codecnn.base.errors import ConfigError, EncoderError, MissingFileError
from codecnn.base.files import write_text
from codecnn.codec.base import CodecSettings, CodedPicture, CodedSequence, coded_format
from codecnn.codec.blocks.table import BlockTable
from codecnn.codec.blocks.x265_analysis import clear_stale_entries, coded_size, read_x265_analysis
from codecnn.codec.checks import (
    check_depth,
    check_even,
    check_hevc,
    check_params,
    check_preset,
    verify_slice_qp,
    verify_x265_bits,
    verify_x265_psnr,
)
from codecnn.codec.encoders.padding import code_padded, padded_size
from codecnn.codec.ffmpeg import decode_stream, encoder_input, join_params, library_identity
from codecnn.pictures.files import Video, VideoFormat, ffmpeg_path, open_raw, require_encoder, run

_PRESETS = "ultrafast superfast veryfast faster fast medium slow slower veryslow placebo"
PRESETS = tuple(_PRESETS.split())

CONSTANT_QP = dict.fromkeys(("ipratio", "pbratio"), "1")
CONSTANT_QP |= dict.fromkeys(("aq-mode", "cutree", "scenecut", "psy-rd", "psy-rdoq"), "0")
"""Parameters that switch off QP offsets by slice type, QP adaptation, scene cuts and psycho-visual decisions."""

REPRODUCIBLE = {"frame-threads": "1", "wpp": "0", "lookahead-slices": "0", "info": "0"}
"""Parameters that keep the bitstream independent of the number of threads and of the processor."""

CONFIGURATION_PARAMS = {
    "ai": {"keyint": "1"},
    "ra": {"keyint": "32", "open-gop": "1", "bframes": "7", "b-adapt": "0", "b-pyramid": "1"},
    "ldb": {"keyint": "-1", "bframes": "0"},
}

NO_LOOP_FILTERS = {"no-deblock": "1", "no-sao": "1"}

SMALLEST = 16
"""Least width and height that ffmpeg passes to x265; x265 also needs at least one CTU."""

LARGEST_CTU = 64

_SHORT_LOOKAHEAD = {"ultrafast": "8"}
"""Preset -> rc-lookahead, where that of the preset is not more than the 7 B pictures in random access.

At constant QP with fixed groups of pictures the look-ahead decides nothing that is coded.
"""

_STATISTICS_LEVEL = {"csv-log-level": "2", "psnr": "1", "analysis-save-reuse-level": "10"}
_THREAD_PARAM = "pools"


def x265_params(settings: CodecSettings, analysis: str, statistics: str) -> dict[str, str]:
    """Return the parameters of x265 for `settings`; a pure function.

    Args:
        settings: Settings of the encode.
        analysis: Analysis file to write.
        statistics: CSV file of statistics to write.

    Returns:
        Values by x265's own names.

    Raises:
        ConfigError: HEVC or x265 does not have these settings.
    """
    check_preset("libx265", settings.preset, PRESETS)
    check_hevc(settings)
    params = {"qp": str(settings.qp), **CONFIGURATION_PARAMS[settings.configuration], **CONSTANT_QP, **REPRODUCIBLE}
    if settings.configuration == "ra" and settings.preset in _SHORT_LOOKAHEAD:
        params["rc-lookahead"] = _SHORT_LOOKAHEAD[settings.preset]
    if settings.ctu_size is not None:
        params["ctu"] = str(settings.ctu_size)
    if not settings.loop_filters:
        params |= NO_LOOP_FILTERS
    params |= settings.params
    params |= {_THREAD_PARAM: "none" if settings.threads == 1 else str(settings.threads)}
    params |= {"csv": statistics, "analysis-save": analysis, **_STATISTICS_LEVEL}
    return check_params(params, names="[A-Za-z0-9-]+")


def x265_size(source_format: VideoFormat, settings: CodecSettings) -> tuple[int, int]:
    """Return the width and height that x265 codes for a source: even, and at least 16 and one CTU."""
    requested = str(settings.params.get("ctu", settings.ctu_size))
    ctu_size = min(int(requested), LARGEST_CTU) if requested.isdecimal() else SMALLEST
    return padded_size(source_format, minimum=max(SMALLEST, ctu_size))


def hevc_encode_argv(
    ffmpeg: str,
    source: str,
    source_format: VideoFormat,
    settings: CodecSettings,
    output: str,
    analysis: str,
    statistics: str,
) -> list[str]:
    """Return the ffmpeg command that codes a raw YUV file; a pure function.

    Args:
        ffmpeg: The ffmpeg program.
        source: Raw YUV file.
        source_format: Format of the source.
        settings: Settings of the encode.
        output: Bitstream to write.
        analysis: Analysis file to write.
        statistics: CSV file of statistics to write.

    Raises:
        ConfigError: HEVC or x265 does not have these settings.
        FormatError: Width or height is odd.
    """
    check_even("libx265", source_format)
    check_depth(source_format, settings)
    argv = encoder_input(ffmpeg, source, source_format, settings)
    argv += ["-c:v", "libx265", "-preset", settings.preset]
    argv += ["-x265-params", join_params(x265_params(settings, analysis, statistics))]
    return [*argv, "-f", "hevc", output]


def parse_statistics(lines: Iterable[str], chroma: str) -> tuple[CodedPicture, ...]:
    """Parse the CSV statistics of x265 (`csv-log-level` 2).

    Args:
        lines: Lines of the file.
        chroma: Chroma format of the pictures; 4:0:0 has no PSNR of U and V.

    Returns:
        The pictures in output order, `poc` counting from 0. `bits` are those of all NAL units of the picture except
        SEI, without start codes. The peak of the PSNR is 255 * 2^(bit_depth - 8).

    Raises:
        EncoderError: A line does not have this form, or a QP is not an integer.
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
                qp=_integer_qp(row["QP"]),
                bits=int(row["Bits"]),
                psnr_y=psnr["Y"],
                psnr_u=psnr.get("U"),
                psnr_v=psnr.get("V"),
            )
        except (KeyError, ValueError, IndexError) as error:
            raise EncoderError(
                f"x265's statistics do not contain an integer QP, bits and PSNR: {error} in {cells[:9]}"
            ) from error
        # POC restarts at every IDR picture, which follows all earlier pictures in output order.
        if picture.poc == 0 or not periods:
            periods.append([])
        periods[-1].append(picture)
    ordered = [picture for period in periods for picture in sorted(period, key=lambda picture: picture.poc)]
    return tuple(replace(picture, poc=poc) for poc, picture in enumerate(ordered))


def _integer_qp(text: str) -> int:
    """Return the mean QP of a picture's blocks; it is the slice QP only if it is an integer, else ValueError."""
    value = float(text)
    if value != int(value):
        raise ValueError(text)
    return int(value)


def has_qp_offsets(settings: CodecSettings) -> bool:
    """Return whether the user's parameters give P and B slices higher QPs."""
    return not {"ipratio", "pbratio"}.isdisjoint(settings.params)


@contextlib.contextmanager
def _uncropped(
    ffmpeg: str, bitstream: Path, decoded: Path, output_format: VideoFormat, size: tuple[int, int]
) -> Iterator[Video]:
    """Open the decoded pictures of the coded size, padded to whole CUs; that is `decoded` if nothing is cropped."""
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
    """Return the content of log.txt, which is the same in every run: encoder, parameters and x265's statistics."""
    portable = {key: value for key, value in params.items() if key != _THREAD_PARAM}
    lines = [f"encoder: {encoder}", f"preset: {preset}", f"x265-params: {join_params(portable)}"]
    lines.append("POC type QP bits PSNR_Y PSNR_U PSNR_V")
    for picture in pictures:
        psnr = [f"{value:.3f}" for value in (picture.psnr_y, picture.psnr_u, picture.psnr_v) if value is not None]
        lines.append(" ".join(map(str, (picture.poc, picture.slice_type, picture.qp, picture.bits, *psnr))))
    return "\n".join(lines) + "\n"


def _refuse_ignored_params(stderr: str) -> None:
    """Raise ConfigError for a parameter that x265 does not know; ffmpeg ignores it with a warning."""
    ignored = re.search(r"(?:Unknown option|Invalid value for)[: ]+(\S+?)(?:: (\S+?))?\.?$", stderr, re.MULTILINE)
    if ignored:
        raise ConfigError(f"libx265 does not take the parameter {ignored[1]}{f'={ignored[2]}' if ignored[2] else ''}")


class HevcCodec:
    """HEVC coded by libx265; see `codecnn.codec.Codec` for the contract."""

    name = "hevc"

    def identity(self) -> str:
        """Return encoder and decoder, for example "libx265 4.3+49-020d7054, ffmpeg n9.0.2-17-g2a571b6068-20260930"."""
        return library_identity(ffmpeg_path(), "libx265", "yuv420p", r"HEVC encoder version (\S+)")

    def encode(self, source: Path, source_format: VideoFormat, settings: CodecSettings, folder: Path) -> CodedSequence:
        """Code a raw YUV file into bitstream.265, decoded.yuv, log.txt and analysis.dat (the block statistics).

        Pictures of odd size, below 16 samples or smaller than a CTU are padded for x265, and the decoded pictures are
        cropped (see `code_padded`). With `settings.unfiltered` the bitstream is also decoded without deblocking and
        SAO, into unfiltered.yuv.

        Args:
            source: Raw YUV file.
            source_format: Format of the source.
            settings: Settings of the encode.
            folder: Output folder.

        Raises:
            ConfigError: HEVC or x265 does not have these settings.
            FormatError: The source is not raw YUV of this format.
            EncoderError: The encoder fails; a slice QP is not that of the settings; the bits do not add up to the
                bitstream; or the PSNR differs from the statistics.
        """
        size = x265_size(source_format, settings)
        return code_padded(self._encode, source, source_format, settings, folder, size)

    def _encode(self, source: Path, source_format: VideoFormat, settings: CodecSettings, folder: Path) -> CodedSequence:
        """Do the work of `encode` for a size that x265 takes."""
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
            # x265 appends to an existing file.
            statistics.unlink(missing_ok=True)
            try:
                done = run(argv, what=f"coding {name}", cwd=folder)
                _refuse_ignored_params(done.stderr)
                if not statistics.is_file():
                    raise EncoderError(f"coding {name} wrote no statistics: x265 did not finish")
                with statistics.open(newline="") as lines:
                    stated = parse_statistics(lines, source_format.chroma)
            finally:
                statistics.unlink(missing_ok=True)
            verify_slice_qp(stated, settings, name, hierarchy=has_qp_offsets(settings))
            verify_x265_bits(bitstream.read_bytes(), stated, name)
            clear_stale_entries(analysis)
            decode_stream(ffmpeg, bitstream, decoded, output_format)
            with (
                open_raw(decoded, output_format) as pictures,
                _uncropped(ffmpeg, bitstream, decoded, output_format, coded_size(analysis)) as padded,
            ):
                verified = verify_x265_psnr(originals, pictures, padded, stated, name)
        unfiltered = None
        if settings.unfiltered:
            # All intra predicts from unfiltered samples of the same picture, so this does not drift.
            unfiltered = folder / "unfiltered.yuv"
            decode_stream(ffmpeg, bitstream, unfiltered, output_format, loop_filters=False)
        params = x265_params(settings, analysis.name, statistics.name)
        write_text(log, log_text(self.identity(), settings.preset, params, stated))
        return CodedSequence(
            bitstream=bitstream,
            decoded=decoded,
            format=output_format,
            pictures=verified,
            argv=tuple(hevc_encode_argv("ffmpeg", source.name, source_format, settings, *outputs)),
            encoder=self.identity(),
            log=log,
            block_statistics=analysis,
            unfiltered=unfiltered,
            encoder_seconds=done.cpu_seconds,
        )


def x265_tables(sequence: CodedSequence) -> BlockTable:
    """Read the CUs of a sequence that `HevcCodec` coded; their `qp` is the slice QP.

    Raises:
        MissingFileError: The sequence has no block statistics.
        FormatError: The block statistics are damaged.
    """
    if sequence.block_statistics is None:
        raise MissingFileError(f"there are no block statistics for {sequence.bitstream}")
    return read_x265_analysis(sequence.block_statistics, {picture.poc: picture.qp for picture in sequence.pictures})
