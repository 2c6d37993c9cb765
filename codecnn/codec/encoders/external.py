"""Back ends that run encoder programs of the user: VTM, HM, vvencapp, vvencFFapp.

A program is found in PATH or by its file, and asked for its version and options. `ExternalCodec` runs it and checks its
log against the bitstream and the pictures.
"""

import filecmp
import functools
import gzip
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from codecnn.base.errors import ConfigError, EncoderError, FormatError, MissingFileError, ToolMissingError
from codecnn.base.files import content_sha256, sha256_file, write_text
from codecnn.codec.base import CodecSettings, CodecTools, CodedPicture, CodedSequence, coded_format
from codecnn.codec.checks import verify_decoded, verify_slice_qp
from codecnn.codec.encoders.jvet_log import normalise_program_log, parse_log
from codecnn.codec.encoders.padding import MULTIPLE_OF_CHROMA, code_padded, padded_size
from codecnn.codec.encoders.unfiltered import code_unfiltered
from codecnn.codec.ffmpeg import decode_stream
from codecnn.pictures.files import VideoFormat, ffmpeg_identity, ffmpeg_path, open_raw, output_of, run

RECONSTRUCTION = "reconstruction.yuv"
"""File of the encoder's own decoded pictures, which must equal the pictures of the decoder."""

PREDICTION = "prediction.yuv"
TRACE = "blocks.vtmbmsstats"
TRACE_RULE = "D_BLOCK_STATISTICS_ALL:poc>=0"

DECODER_VERSION = r"(\w+(?: software:)? Decoder Version \[?[\w.-]+\]?|[Vv][Vv]de[cC]\w*\b.*? version:? +v?\d\S*)"
"""Regular expression for the banners of DecoderApp, TAppDecoder and vvdecapp."""

_OPTION = re.compile(r"^ +(?:-[\w-]+, *)? *--([\w-]+)", re.MULTILINE)
"""Line of the help text: "  -q, --QP  description" (doHelpOpt of program_options_lite.cpp, in VTM, HM and vvenc)."""


@dataclass(frozen=True)
class ProgramInfo:
    """Version of a program, and the long names of its options."""

    version: str
    options: frozenset[str]


@dataclass(frozen=True)
class Job:
    """One run of an encoder program.

    Attributes:
        options: Options that the program lists in its help.
        source: Raw YUV file, as the command names it.
        format: Format of the source.
        frames: Number of pictures to code.
        settings: Settings of the encode.
        cfg: Configuration files in order, as the command names them.
    """

    options: frozenset[str]
    source: str
    format: VideoFormat
    frames: int
    settings: CodecSettings
    cfg: Sequence[str]


@dataclass(frozen=True)
class EncoderProgram:
    """Properties of one encoder program.

    Attributes:
        name: Name of the back end.
        title: Name of the program in the identity.
        encoders: Usual names of the encoder.
        decoders: Usual names of the decoder.
        home: Web page of the sources.
        version: Regular expression for the banner in the help text; group 1 is the version.
        bitstream: Name of the bitstream file.
        arguments: Pure function that returns the arguments of a job; it raises ConfigError, FormatError,
            EncoderError or ToolMissingError for a job that the program cannot run.
        help_option: Option that prints the help text.
        usual_cfg: Configuration file that each coding configuration needs; None if none is needed.
        traces: The decoder can trace block statistics.
    """

    name: str
    title: str
    encoders: tuple[str, ...]
    decoders: tuple[str, ...]
    home: str
    version: str
    bitstream: str
    arguments: Callable[[Job], list[str]]
    help_option: str = "--help"
    usual_cfg: Mapping[str, str] | None = None
    traces: bool = False


def find_program(program: EncoderProgram, role: Literal["encoder", "decoder"], requested: str | None) -> str:
    """Return the absolute path of an encoder or decoder.

    Args:
        program: The encoder program.
        role: "encoder" or "decoder".
        requested: File or name in PATH; None tries the usual names of that role.

    Raises:
        ToolMissingError: There is no such executable.
    """
    usual = program.encoders if role == "encoder" else program.decoders
    for name in (requested,) if requested else usual:
        if path := shutil.which(Path(name).expanduser()):
            return str(Path(path).absolute())
    candidates = (
        f"{requested}, which is not an executable" if requested else f"{' or '.join(usual)}, which is not in PATH"
    )
    raise ToolMissingError(
        f"{program.name} needs the {role} {candidates}: name it in the recipe as tools: {{{role}: FILE}}; "
        f"its sources are at {program.home}"
    )


@functools.cache
def program_info(program: str, help_option: str, version: str) -> ProgramInfo:
    """Read version and options from the help text of a program.

    The exit status is ignored, because the test models exit with 1 after their help.

    Args:
        program: The executable.
        help_option: Option that prints the help text.
        version: Regular expression for the banner; group 1 is the version.

    Raises:
        ToolMissingError: The help text has no such banner, so it is another program.
    """
    text = output_of([program, help_option])
    banner = re.search(version, text)
    if banner is None:
        raise ToolMissingError(f"{program} does not answer {help_option} with its version: it is another program")
    return ProgramInfo(banner[1], frozenset(_OPTION.findall(text)))


class ExternalCodec:
    """A back end that runs an encoder program of the user; see `codecnn.codec.Codec` for the contract.

    Raises:
        ConfigError: The program cannot trace, or the prediction arguments do not contain {output}.
    """

    def __init__(self, program: EncoderProgram, tools: CodecTools) -> None:
        if tools.trace and not program.traces:
            raise ConfigError(f"{program.name} has no block statistics to trace: only vtm has")
        if tools.prediction and not any("{output}" in part for part in tools.prediction):
            raise ConfigError(f"the prediction arguments {' '.join(tools.prediction)!r} do not contain {{output}}")
        self.name = program.name
        self.program = program
        self.tools = tools

    def identity(self) -> str:
        """Return versions, and the sha256 of programs and cfg files.

        For example "VTM 23.13 (6b86b273ff34), cfg 5feceb66ffc8, ffmpeg n9.0.2".
        """
        path, info = self._encoder()
        encoder = f"{self.program.title} {info.version} ({content_sha256(path)[:12]})"
        digest = f", cfg {_cfg_digest(self.tools.cfg)}" if self.tools.cfg else ""
        decoder = self._decoder()
        decoded_by = ffmpeg_identity(ffmpeg_path())
        if decoder:
            decoded_by = f"{_decoder_info(decoder).version} ({content_sha256(decoder)[:12]})"
        return f"{encoder}{digest}, {decoded_by}"

    def encode(self, source: Path, source_format: VideoFormat, settings: CodecSettings, folder: Path) -> CodedSequence:
        """Code a raw YUV file into a folder: the bitstream, decoded.yuv, log.txt, and the requested planes.

        Pictures of odd size with subsampled chroma are padded for the program, and the decoded pictures are cropped
        (see `code_padded`).

        Raises:
            ToolMissingError: The program is missing or too old.
            ConfigError: The program cannot code these settings.
            FormatError: The program cannot code this source format.
            EncoderError: A program fails, or the log, the pictures of the encoder and the decoded pictures disagree.
        """
        size = padded_size(source_format, multiple=MULTIPLE_OF_CHROMA[source_format.chroma])
        return code_padded(self._encode, source, source_format, settings, folder, size)

    def _encode(self, source: Path, source_format: VideoFormat, settings: CodecSettings, folder: Path) -> CodedSequence:
        """Do the work of `encode` for a size that the program takes."""
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{source.stem} at QP {settings.qp}"
        cfg = _resolve_cfg(self.tools.cfg, self.program.usual_cfg, settings.configuration, self.name)
        encoder, info = self._encoder()
        with open_raw(source, source_format) as originals:
            frames = len(originals)
        job = Job(info.options, str(source.resolve()), source_format, frames, settings, [str(path) for path in cfg])
        argv = [encoder, *self.program.arguments(job)]
        # The command in the results has the names of files without folders, so it is the same on every machine.
        portable = self.program.arguments(replace(job, source=source.name, cfg=[path.name for path in cfg]))
        output_format = coded_format(source_format, settings)
        bitstream, decoded, log = folder / self.program.bitstream, folder / "decoded.yuv", folder / "log.txt"
        reconstruction = folder / RECONSTRUCTION
        for stale in (bitstream, decoded, reconstruction, folder / PREDICTION, folder / TRACE):
            stale.unlink(missing_ok=True)
        try:
            done = run(argv, what=f"coding {name}", cwd=folder)
            pictures = parse_log(done.stdout, len(output_format.plane_shapes))
            verify_slice_qp(pictures, settings, name)
            if len(pictures) != frames:
                raise EncoderError(f"{name}: the source has {frames} pictures, the encoder's log {len(pictures)}")
            if not bitstream.is_file():
                raise EncoderError(f"coding {name} wrote no bitstream")
            statistics = self._decode(name, bitstream, decoded, output_format)
            verify_decoded(name, source, source_format, decoded, output_format, pictures)
            # Only the test models write their reconstruction.
            if reconstruction.is_file() and not filecmp.cmp(reconstruction, decoded, shallow=False):
                raise EncoderError(f"{name}: the decoded pictures are not those that the encoder wrote")
        finally:
            reconstruction.unlink(missing_ok=True)
        folders = [str(path.parent) for path in (folder.resolve() / "x", source.resolve(), *cfg)]
        write_text(log, normalise_program_log(self.identity(), done.stdout, folders))
        unfiltered = None
        if settings.unfiltered:
            plain = ExternalCodec(self.program, replace(self.tools, trace=False, prediction=()))
            unfiltered = code_unfiltered(plain, source, source_format, settings, bitstream, decoded)
        return CodedSequence(
            bitstream=bitstream,
            decoded=decoded,
            format=output_format,
            pictures=pictures,
            argv=(Path(encoder).name, *portable),
            encoder=self.identity(),
            log=log,
            block_statistics=statistics,
            unfiltered=unfiltered,
            prediction=self._predict(name, bitstream, output_format, pictures),
            encoder_seconds=done.cpu_seconds,
        )

    def _encoder(self) -> tuple[str, ProgramInfo]:
        """Return path, version and options of the encoder."""
        path = find_program(self.program, "encoder", self.tools.encoder)
        return path, program_info(path, self.program.help_option, self.program.version)

    def _decoder(self) -> str | None:
        """Return the path of the decoder; None for ffmpeg."""
        if self.tools.decoder is None and not self.tools.trace and not self.tools.prediction:
            return None
        return find_program(self.program, "decoder", self.tools.decoder)

    def _decode(self, name: str, bitstream: Path, decoded: Path, output_format: VideoFormat) -> Path | None:
        """Decode the bitstream; return the file of block statistics if a trace is requested."""
        decoder = self._decoder()
        if decoder is None:
            decode_stream(ffmpeg_path(), bitstream, decoded, output_format)
            return None
        # The same options for DecoderApp, TAppDecoder and vvdecapp. Without -d the test models write the bit depth of
        # the bitstream.
        argv = [decoder, "-b", bitstream.name, "-o", decoded.name]
        trace = bitstream.with_name(TRACE)
        if self.tools.trace:
            # DecAppCfg.cpp of VTM has the option under #if ENABLE_TRACING only.
            if "TraceFile" not in _decoder_info(decoder).options:
                raise EncoderError(f"{Path(decoder).name} has no option TraceFile: build it with ENABLE_TRACING")
            argv += [f"--TraceFile={trace.name}", f"--TraceRule={TRACE_RULE}"]
        try:
            run(argv, what=f"decoding {name}", cwd=bitstream.parent)
            if not decoded.is_file():
                raise EncoderError(f"decoding {name} wrote no pictures")
            return _compress_trace(trace, name) if self.tools.trace else None
        finally:
            trace.unlink(missing_ok=True)

    def _predict(
        self, name: str, bitstream: Path, output_format: VideoFormat, pictures: Sequence[CodedPicture]
    ) -> Path | None:
        """Run the decoder again to write its prediction signal, one picture for each coded picture."""
        decoder = self._decoder()
        if decoder is None or not self.tools.prediction:
            return None
        prediction = bitstream.with_name(PREDICTION)
        arguments = [part.replace("{output}", prediction.name) for part in self.tools.prediction]
        run([decoder, "-b", bitstream.name, *arguments], what=f"predicting {name}", cwd=bitstream.parent)
        if not prediction.is_file():
            raise EncoderError(f"the decoder wrote no prediction for {name}: its arguments were {' '.join(arguments)}")
        try:
            with open_raw(prediction, output_format) as written:
                count = len(written)
        except FormatError as error:
            raise EncoderError(f"the prediction of {name} is not raw YUV of {output_format}: {error}") from error
        if count != len(pictures):
            raise EncoderError(f"the prediction of {name} has {count} pictures, {len(pictures)} were coded")
        return prediction


def _decoder_info(decoder: str) -> ProgramInfo:
    return program_info(decoder, "--help", DECODER_VERSION)


def _compress_trace(trace: Path, name: str) -> Path:
    """Compress a trace with gzip, reproducibly; raise EncoderError if the decoder wrote none."""
    if not trace.is_file() or trace.stat().st_size == 0:
        raise EncoderError(f"decoding {name} traced nothing: the decoder must be built with ENABLE_TRACING")
    packed = trace.with_name(trace.name + ".gz")
    with (
        trace.open("rb") as plain,
        packed.open("wb") as file,
        gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=6, mtime=0) as target,
    ):
        shutil.copyfileobj(plain, target)
    return packed


def _resolve_cfg(cfg: Sequence[Path], usual: Mapping[str, str] | None, configuration: str, codec: str) -> list[Path]:
    """Return absolute paths of the configuration files; `usual` names the file that each configuration needs."""
    if not cfg and usual is not None:
        raise ConfigError(
            f"{codec} needs a configuration file for {configuration}: name {usual[configuration]} of its sources "
            "in the recipe as tools: {cfg: [FILE]}"
        )
    return [_existing(path).resolve() for path in cfg]


def _cfg_digest(cfg: Sequence[Path]) -> str:
    """Return the first 12 hexadecimal digits of the sha256 of each file, in order."""
    return "+".join(sha256_file(_existing(path))[:12] for path in cfg)


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise MissingFileError(f"the encoder's configuration file {path} does not exist")
    return path
