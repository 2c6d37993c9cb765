"""Starting programs: which ffmpeg, and errors in one sentence."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from codecnn.errors import DiskFullError, EncoderError, ToolMissingError
from codecnn.video import ffmpeg_encoders, ffmpeg_identity, ffmpeg_path, require_encoder, run


def script(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def test_the_ffmpeg_of_imageio_codes_vvc_and_hevc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CODECNN_FFMPEG", raising=False)
    ffmpeg = ffmpeg_path()
    assert ffmpeg_identity(ffmpeg).startswith("ffmpeg ")
    assert {"libvvenc", "libx265"} <= ffmpeg_encoders(ffmpeg)
    require_encoder(ffmpeg, "libvvenc")
    with pytest.raises(ToolMissingError, match="without libxyz"):
        require_encoder(ffmpeg, "libxyz")


def test_named_ffmpeg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CODECNN_FFMPEG", sys.executable)
    assert ffmpeg_path() == sys.executable
    with pytest.raises(ToolMissingError, match="does not answer"):
        ffmpeg_identity(sys.executable)
    for bad in (tmp_path, tmp_path / "absent", ""):
        monkeypatch.setenv("CODECNN_FFMPEG", str(bad))
        with pytest.raises(ToolMissingError, match="CODECNN_FFMPEG"):
            ffmpeg_path()


def test_run_gives_both_outputs_and_the_folder(tmp_path: Path) -> None:
    done = run(script("import os, sys; print(os.getcwd()); sys.stderr.write('told')"), what="x", cwd=tmp_path)
    assert (Path(done.stdout.strip()), done.stderr) == (tmp_path.resolve(), "told")


def test_run_tells_the_processor_time_of_its_own_child() -> None:
    """Waiting costs none, and neither does what others do at the same time."""
    busy = "import time; end = time.process_time() + 0.4\nwhile time.process_time() < end: pass"
    with ThreadPoolExecutor(2) as pool:
        working, waiting = pool.map(lambda text: run(script(text), what="x"), (busy, "import time; time.sleep(1)"))
    assert working.cpu_seconds > 0.4 > waiting.cpu_seconds


def test_run_leaves_no_program_behind_when_it_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    def interrupted(number: int, options: int) -> None:
        started.append(number)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "wait4", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(script("import os, time; os.close(1); os.close(2); time.sleep(60)"), what="x")
    with pytest.raises(ProcessLookupError):
        os.kill(started[0], 0)


def test_run_tells_the_cause() -> None:
    lines = [
        "[libvvenc @ 0x55d31b50b540] cannot init the VVC encoder: size must be a multiple of 2",
        "[vost#0:0 @ 0x55d31b50b540] Task finished with error code: -22 (Invalid argument)",
        "Conversion failed!",
    ]
    with pytest.raises(EncoderError) as told:
        run(script(f"import sys; sys.exit({chr(10).join(lines)!r})"), what="coding astronaut at QP 32")
    assert str(told.value) == (
        "coding astronaut at QP 32 failed (exit status 1): cannot init the VVC encoder: size must be a multiple of 2"
    )
    with pytest.raises(EncoderError, match=r"exit status 3.*printed nothing"):
        run(script("raise SystemExit(3)"), what="x")


@pytest.mark.parametrize("status", [0, 1])
def test_run_tells_a_full_disk(status: int) -> None:
    text = f"import sys; sys.stderr.write('av_interleaved_write_frame(): No space left on device'); sys.exit({status})"
    with pytest.raises(DiskFullError, match="while coding"):
        run(script(text), what="coding")


def test_run_without_the_program(tmp_path: Path) -> None:
    for program in (tmp_path / "absent", tmp_path):
        with pytest.raises(ToolMissingError, match=str(program)):
            run([str(program)], what="x")
