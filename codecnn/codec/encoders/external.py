"""Coding with the user's own programs: run them, and hold what they state against what they wrote."""

import filecmp
import gzip
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from codecnn.codec.base import CodecSettings, CodecTools, CodedPicture, CodedSequence, coded_format
from codecnn.codec.checks import prove_decoded, prove_slice_qp
from codecnn.codec.decode import decode_stream
from codecnn.codec.encoders.jvet import RECONSTRUCTION, parse_log
from codecnn.codec.encoders.programs import About, EncoderProgram, Job, about, cfg_digest, find_program, resolve_cfg
from codecnn.codec.encoders.unfiltered import code_unfiltered
from codecnn.errors import ConfigError, EncoderError, FormatError
from codecnn.runs import write_text
from codecnn.video import VideoFormat, ffmpeg_identity, ffmpeg_path, open_raw, run

DECODER_VERSION = r"(\w+(?: software:)? Decoder Version \[?[\w.-]+\]?|[Vv][Vv]de[cC]\w*\b.*? version:? +v?\d\S*)"
"""The banners of DecoderApp, TAppDecoder and vvdecapp."""

PREDICTION = "prediction.yuv"
TRACE = "blocks.vtmbmsstats"
TRACE_RULE = "D_BLOCK_STATISTICS_ALL:poc>=0"

_UNSTEADY = re.compile(
    r"\bFile\b|started @|finished @|\bsec\.|Encoder Version|SIMD|Threads|PARALLEL PROCESSING|\bstats\b", re.IGNORECASE
)
"""Lines of a log that tell of the machine, the time or the place."""


class ExternalCodec:
    """An encoder of the user's own; see `codecnn.codec.base.Codec` for the contract."""

    def __init__(self, program: EncoderProgram, tools: CodecTools) -> None:
        if tools.trace and not program.traces:
            raise ConfigError(f"{program.name} has no block statistics to trace: only vtm has")
        if tools.prediction and not any("{output}" in part for part in tools.prediction):
            raise ConfigError(f"the prediction arguments {' '.join(tools.prediction)!r} do not name {{output}}")
        self.name = program.name
        self.program = program
        self.tools = tools

    def identity(self) -> str:
        """For example "VTM 23.13, cfg 5feceb66ffc8, ffmpeg n9.0.2": versions, and the sha256 of each cfg file."""
        encoder = f"{self.program.title} {self._about_encoder()[1].version}"
        digest = f", cfg {cfg_digest(self.tools.cfg)}" if self.tools.cfg else ""
        decoder = self._decoder()
        decoded_by = _about_decoder(decoder).version if decoder else ffmpeg_identity(ffmpeg_path())
        return f"{encoder}{digest}, {decoded_by}"

    def encode(self, source: Path, source_format: VideoFormat, settings: CodecSettings, folder: Path) -> CodedSequence:
        """Code `source` into `folder`: the bitstream, decoded.yuv, log.txt, and the planes that are asked for.

        Raises ToolMissingError or ConfigError for what is not there or not possible, EncoderError when a program
        fails or when the log, the encoder's pictures and the decoded ones do not agree.
        """
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{source.stem} at QP {settings.qp}"
        cfg = resolve_cfg(self.tools.cfg, self.program.usual_cfg, settings.configuration, self.name)
        encoder, said = self._about_encoder()
        with open_raw(source, source_format) as originals:
            frames = len(originals)
        job = Job(said.options, str(source.resolve()), source_format, frames, settings, [str(path) for path in cfg])
        argv = [encoder, *self.program.arguments(job)]
        # As results carry it: with the names of files, and none of the folders of this machine.
        shown = self.program.arguments(replace(job, source=source.name, cfg=[path.name for path in cfg]))
        output_format = coded_format(source_format, settings)
        bitstream, decoded, log = folder / self.program.bitstream, folder / "decoded.yuv", folder / "log.txt"
        reconstruction = folder / RECONSTRUCTION
        for stale in (bitstream, decoded, reconstruction, folder / PREDICTION, folder / TRACE):
            stale.unlink(missing_ok=True)
        try:
            done = run(argv, what=f"coding {name}", cwd=folder)
            pictures = parse_log(done.stdout, len(output_format.plane_shapes))
            prove_slice_qp(pictures, settings, name)
            if len(pictures) != frames:
                raise EncoderError(f"{name}: the source has {frames} pictures, the encoder's log {len(pictures)}")
            if not bitstream.is_file():
                raise EncoderError(f"coding {name} left no bitstream")
            statistics = self._decode(name, bitstream, decoded, output_format)
            prove_decoded(name, source, source_format, decoded, output_format, pictures)
            # Only the test models write their own pictures.
            if reconstruction.is_file() and not filecmp.cmp(reconstruction, decoded, shallow=False):
                raise EncoderError(f"{name}: the decoded pictures are not those that the encoder wrote")
        finally:
            reconstruction.unlink(missing_ok=True)
        places = [str(path.parent) for path in (folder.resolve() / "x", source.resolve(), *cfg)]
        write_text(log, normalised_log(self.identity(), done.stdout, places))
        unfiltered = None
        if settings.unfiltered:
            plain = ExternalCodec(self.program, replace(self.tools, trace=False, prediction=()))
            unfiltered = code_unfiltered(plain, source, source_format, settings, bitstream, decoded)
        return CodedSequence(
            bitstream=bitstream,
            decoded=decoded,
            format=output_format,
            pictures=pictures,
            argv=(Path(encoder).name, *shown),
            encoder=self.identity(),
            log=log,
            block_statistics=statistics,
            unfiltered=unfiltered,
            prediction=self._predict(name, bitstream, output_format, pictures),
            encoder_seconds=done.cpu_seconds,
        )

    def _about_encoder(self) -> tuple[str, About]:
        """The encoder's path and what it says of itself."""
        path = find_program(self.program, "encoder", self.tools.encoder)
        return path, about(path, self.program.help_option, self.program.version)

    def _decoder(self) -> str | None:
        """Path of the decoder to use; None for ffmpeg."""
        if self.tools.decoder is None and not self.tools.trace and not self.tools.prediction:
            return None
        return find_program(self.program, "decoder", self.tools.decoder)

    def _decode(self, name: str, bitstream: Path, decoded: Path, output_format: VideoFormat) -> Path | None:
        """Decode the stream; return its block statistics where they are asked for."""
        decoder = self._decoder()
        if decoder is None:
            decode_stream(ffmpeg_path(), bitstream, decoded, output_format)
            return None
        # DecoderApp, TAppDecoder and vvdecapp alike; without -d the test models write the bit depth of the stream.
        argv = [decoder, "-b", bitstream.name, "-o", decoded.name]
        trace = bitstream.with_name(TRACE)
        if self.tools.trace:
            # DecAppCfg.cpp of VTM has the option under #if ENABLE_TRACING only.
            if "TraceFile" not in _about_decoder(decoder).options:
                raise EncoderError(f"{Path(decoder).name} has no option TraceFile: build it with ENABLE_TRACING")
            argv += [f"--TraceFile={trace.name}", f"--TraceRule={TRACE_RULE}"]
        try:
            run(argv, what=f"decoding {name}", cwd=bitstream.parent)
            if not decoded.is_file():
                raise EncoderError(f"decoding {name} left no pictures")
            return _compressed(trace, name) if self.tools.trace else None
        finally:
            trace.unlink(missing_ok=True)

    def _predict(
        self, name: str, bitstream: Path, output_format: VideoFormat, pictures: Sequence[CodedPicture]
    ) -> Path | None:
        """Run the decoder again so that it writes its prediction signal, one picture for each coded one."""
        decoder = self._decoder()
        if decoder is None or not self.tools.prediction:
            return None
        prediction = bitstream.with_name(PREDICTION)
        extra = [part.replace("{output}", prediction.name) for part in self.tools.prediction]
        run([decoder, "-b", bitstream.name, *extra], what=f"predicting {name}", cwd=bitstream.parent)
        if not prediction.is_file():
            raise EncoderError(f"the decoder wrote no prediction for {name}: its arguments were {' '.join(extra)}")
        try:
            with open_raw(prediction, output_format) as written:
                found = len(written)
        except FormatError as error:
            raise EncoderError(f"the prediction of {name} is not raw YUV of {output_format}: {error}") from error
        if found != len(pictures):
            raise EncoderError(f"the prediction of {name} has {found} pictures, {len(pictures)} were coded")
        return prediction


def _about_decoder(decoder: str) -> About:
    return about(decoder, "--help", DECODER_VERSION)


def _compressed(trace: Path, name: str) -> Path:
    """`trace` as gzip, the same bytes every time. Raises EncoderError when the decoder traced nothing."""
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


def normalised_log(identity: str, stdout: str, places: Sequence[str]) -> str:
    """The identity, and the encoder's own lines without times, `places` and what depends on the machine."""
    lines = [line.rstrip() for line in stdout.replace("\r", "\n").splitlines()]
    kept = [line for line in lines if line and not _UNSTEADY.search(line) and not any(p in line for p in places)]
    kept = [re.sub(r"\[ET +[\d.]+ *\] ?", "", line) for line in kept]
    return "\n".join([identity, *kept]) + "\n"
