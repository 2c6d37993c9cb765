"""Programs: choice of ffmpeg, output, processor time, errors in one sentence."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from codecnn.base.errors import DiskFullError, EncoderError, ToolMissingError
from codecnn.pictures.files import ffmpeg_encoders, ffmpeg_identity, ffmpeg_path, require_encoder, run


def script(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def test_ffmpeg_of_imageio_encodes_vvc_and_hevc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CODECNN_FFMPEG", raising=False)
    ffmpeg = ffmpeg_path()
    assert ffmpeg_identity(ffmpeg).startswith("ffmpeg ")
    assert {"libvvenc", "libx265"} <= ffmpeg_encoders(ffmpeg)
    require_encoder(ffmpeg, "libvvenc")
    with pytest.raises(ToolMissingError, match="without libxyz"):
        require_encoder(ffmpeg, "libxyz")


def test_ffmpeg_of_the_environment_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CODECNN_FFMPEG", sys.executable)
    assert ffmpeg_path() == sys.executable
    with pytest.raises(ToolMissingError, match="does not answer"):
        ffmpeg_identity(sys.executable)
    for bad in (tmp_path, tmp_path / "absent", ""):
        monkeypatch.setenv("CODECNN_FFMPEG", str(bad))
        with pytest.raises(ToolMissingError, match="CODECNN_FFMPEG"):
            ffmpeg_path()


def test_run_returns_output_and_uses_the_folder(tmp_path: Path) -> None:
    finished = run(script("import os, sys; print(os.getcwd()); sys.stderr.write('text')"), what="x", cwd=tmp_path)
    assert (Path(finished.stdout.strip()), finished.stderr) == (tmp_path.resolve(), "text")


def test_processor_time_is_that_of_the_program() -> None:
    """Neither waiting nor programs that run at the same time count."""
    busy = "import time; end = time.process_time() + 0.4\nwhile time.process_time() < end: pass"
    with ThreadPoolExecutor(2) as pool:
        working, waiting = pool.map(lambda text: run(script(text), what="x"), (busy, "import time; time.sleep(1)"))
    assert working.cpu_seconds > 0.4 > waiting.cpu_seconds


def test_interrupted_run_kills_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    def interrupted(number: int, options: int) -> None:
        started.append(number)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "wait4", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(script("import os, time; os.close(1); os.close(2); time.sleep(60)"), what="x")
    with pytest.raises(ProcessLookupError):
        os.kill(started[0], 0)


def test_error_message_has_the_cause() -> None:
    lines = [
        "[libvvenc @ 0x55d31b50b540] cannot init the VVC encoder: size must be a multiple of 2",
        "[vost#0:0 @ 0x55d31b50b540] Task finished with error code: -22 (Invalid argument)",
        "Conversion failed!",
    ]
    with pytest.raises(EncoderError) as error:
        run(script(f"import sys; sys.exit({chr(10).join(lines)!r})"), what="coding astronaut at QP 32")
    assert str(error.value) == (
        "coding astronaut at QP 32 failed (exit status 1): cannot init the VVC encoder: size must be a multiple of 2"
    )
    statistics = "frame=    5 fps=0.0 q=-0.0 Lsize=      17KiB time=00:00:00.20 bitrate= 691.2kbits/s speed= 131x"
    lines = ["[in#0 @ 0x55d31b50b540] corrupt input packet in stream 0", statistics, "Conversion failed!"]
    with pytest.raises(EncoderError, match=r"exit status 1"):
        run(script(f"import sys; sys.exit({chr(10).join(lines)!r})"), what="decoding a.mp4")
    with pytest.raises(EncoderError, match=r"exit status 3.*printed nothing"):
        run(script("raise SystemExit(3)"), what="x")


@pytest.mark.parametrize("status", [0, 1])
def test_full_disk_is_reported(status: int) -> None:
    text = f"import sys; sys.stderr.write('av_interleaved_write_frame(): No space left on device'); sys.exit({status})"
    with pytest.raises(DiskFullError, match="while coding"):
        run(script(text), what="coding")


def test_missing_program_is_reported(tmp_path: Path) -> None:
    for program in (tmp_path / "absent", tmp_path):
        with pytest.raises(ToolMissingError, match=str(program)):
            run([str(program)], what="x")
