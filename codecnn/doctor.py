"""Which programs and devices codecnn finds, which are missing, and what would make it faster."""

import contextlib
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codecnn.codec import EXTERNAL
from codecnn.errors import CodecnnError
from codecnn.video import ffmpeg_encoders, ffmpeg_identity, ffmpeg_path


@dataclass(frozen=True)
class Finding:
    """One thing that was looked for; an optional one may be missing without harm.

    `advice` says in a sentence what to do about it, or what would be faster.
    """

    what: str
    found: str
    ok: bool
    optional: bool
    advice: str = ""


@dataclass(frozen=True)
class GpuFacts:
    """What decides whether torch can use an NVIDIA GPU, as it is here.

    version   of torch; `built_for` the version of CUDA or ROCm that it was built for, None for a CPU build
    driver    version of the NVIDIA driver that the kernel has loaded, None without
    devices   names of the GPUs that torch can use
    error     what torch says when it is asked for one
    visible   CUDA_VISIBLE_DEVICES, None where it is not set
    """

    version: str
    built_for: str | None
    driver: str | None
    devices: tuple[str, ...]
    error: str
    visible: str | None


def examine() -> list[Finding]:
    """Look for ffmpeg, the encoders, torch, a GPU, and what the processor can."""
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
    findings += [gpu_finding(_gpu_facts()), cores_finding(torch.get_num_threads(), usable_cores(), os.getloadavg()[0])]
    findings.append(instructions_finding(_capabilities()))
    return findings


def gpu_finding(facts: GpuFacts) -> Finding:
    """The GPUs that torch uses, or why it uses none and what to do about it."""
    if facts.devices:
        return Finding("GPU", ", ".join(facts.devices), True, True)
    advice = ""
    if facts.built_for is None and facts.driver is None:
        why = f"not used: no NVIDIA driver is here, and torch {facts.version} is built for the CPU"
    elif facts.built_for is None:
        why = f"not used: torch {facts.version} is built for the CPU, while the NVIDIA driver {facts.driver} is here"
        advice = "install the torch build for your driver: https://pytorch.org/get-started/locally has the command."
    elif facts.visible is not None and not re.search(r"\d|GPU|MIG", facts.visible):
        why = f"not used: CUDA_VISIBLE_DEVICES={facts.visible!r} hides every GPU"
        advice = "unset CUDA_VISIBLE_DEVICES, or set it to 0."
    elif facts.driver is None:
        why = f"not used: torch {facts.version} is built for {facts.built_for}, and no NVIDIA driver is loaded"
        advice = "install the NVIDIA driver, or in a container start it with its GPUs (docker run --gpus all)."
    else:
        why = f"not used: torch {facts.version} for {facts.built_for}, NVIDIA driver {facts.driver}: {facts.error}"
        advice = "a driver that is too old needs an update, or a torch build for an older CUDA."
    return Finding("GPU", why, False, True, advice)


def cores_finding(threads: int, cores: int, load: float) -> Finding:
    """The threads that torch computes with, of the cores that this process may use; `load` is that of a minute."""
    advice = ""
    if threads > cores:
        advice = f"{threads} threads wait for each other on {cores} cores: set OMP_NUM_THREADS={cores}."
    elif threads < cores:
        advice = f"{cores - threads} cores are left idle: OMP_NUM_THREADS={cores} would use them."
    elif load > 0.6 * cores:
        advice = f"others use the processor too (load {load:.1f}): fewer threads than cores may be faster."
    return Finding("CPU", f"{threads} threads on {cores} cores, load {load:.1f}", True, True, advice)


def instructions_finding(has: Mapping[str, Any]) -> Finding:
    """The instructions that matter to networks, by torch's names of them: bfloat16 and whole numbers."""
    named = {"AVX2": "avx2", "AVX-512": "avx512_f", "VNNI": "avx512_vnni", "AVX-VNNI": "avx_vnni"}
    named |= {"AVX-512 bf16": "avx512_bf16", "AMX bf16": "amx_bf16", "AMX int8": "amx_int8"}
    named |= {"NEON": "neon", "SVE": "sve", "bf16": "bf16", "i8mm": "i8mm"}
    found = [title for title, name in named.items() if has.get(name)]
    half = any("bf16" in title for title in found)
    missing = [title for title in ("VNNI", "AMX bf16") if title not in found] if "AVX2" in found else []
    text = ", ".join(found) or "none that torch tells"
    if missing:
        text += f"; no {', no '.join(missing)}"
    advice = "" if half else "bfloat16 is slower than float32 on this processor: precision auto trains in float32."
    return Finding("instructions", text, True, True, advice)


def usable_cores() -> int:
    """The cores that this process may run on, which may be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _gpu_facts() -> GpuFacts:
    import torch

    built_for = f"CUDA {torch.version.cuda}" if torch.version.cuda else None
    if getattr(torch.version, "hip", None):
        built_for = f"ROCm {torch.version.hip}"
    devices: tuple[str, ...] = ()
    error = ""
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
        devices = tuple(torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count()))
    except (RuntimeError, AssertionError) as problem:
        error = (str(problem).splitlines() or [""])[0]
    return GpuFacts(
        torch.__version__, built_for, nvidia_driver(), devices, error, os.environ.get("CUDA_VISIBLE_DEVICES")
    )


def nvidia_driver(told: Path = Path("/proc/driver/nvidia/version")) -> str | None:
    """The version of the NVIDIA driver that the kernel has loaded; None without, and "unknown" where it is not told."""
    if told.is_file():
        match = re.search(r"Kernel Module.*?\s(\d+\.\d[\d.]*)", told.read_text(errors="replace"))
        return match[1] if match else "unknown"
    return "unknown" if shutil.which("nvidia-smi") else None


def _capabilities() -> Mapping[str, Any]:
    import torch

    tell = getattr(torch.cpu, "get_capabilities", dict)
    has: Mapping[str, Any] = tell()
    return has
