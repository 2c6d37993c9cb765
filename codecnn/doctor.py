"""Which programs and devices codecnn finds, and which are missing."""

import contextlib
import os
import shutil
from dataclasses import dataclass

from codecnn.codec import EXTERNAL
from codecnn.errors import CodecnnError
from codecnn.video.process import ffmpeg_encoders, ffmpeg_identity, ffmpeg_path


@dataclass(frozen=True)
class Finding:
    """One thing that was looked for; an optional one may be missing without harm."""

    what: str
    found: str
    ok: bool
    optional: bool


def examine() -> list[Finding]:
    """Look for ffmpeg, the encoders, torch and a GPU."""
    findings: list[Finding] = []

    def add(what: str, found: str | None, optional: bool = False) -> None:
        findings.append(Finding(what, found or "not found", found is not None, optional))

    ffmpeg = identity = None
    encoders: frozenset[str] = frozenset()
    with contextlib.suppress(CodecnnError):
        ffmpeg = ffmpeg_path()
        identity = ffmpeg_identity(ffmpeg)
        encoders = ffmpeg_encoders(ffmpeg)
    add("ffmpeg", identity)
    add("VVC encoder", "libvvenc" if "libvvenc" in encoders else None)
    add("HEVC encoder", "libx265" if "libx265" in encoders else None)

    for program in EXTERNAL.values():
        here = [name for name in program.encoders if shutil.which(name)]
        add(f"{program.title} encoder", here[0] if here else None, optional=True)

    import torch

    add("torch", torch.__version__)
    gpu = None
    if torch.cuda.is_available():
        gpu = ", ".join(torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count()))
    add("GPU", gpu, optional=True)
    add("CPU threads", f"{torch.get_num_threads()} of {os.cpu_count()}")
    return findings
