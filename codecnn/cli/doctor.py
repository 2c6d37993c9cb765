"""Examination of the machine: required programs, GPU, processor, and advice on what is missing or slow."""

import contextlib
import os
import re
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codecnn.base.errors import CodecnnError
from codecnn.codec import EXTERNAL
from codecnn.pictures.files import ffmpeg_encoders, ffmpeg_identity, ffmpeg_path


@dataclass(frozen=True)
class Finding:
    """Result of one examination.

    Attributes:
        what: Subject, e.g. "VVC encoder".
        found: What was found, e.g. "libvvenc", or why it is not used.
        ok: Whether it can be used.
        optional: Whether codecnn works without it.
        advice: Sentence on what to do or what would be faster; "" if there is nothing to do.
    """

    what: str
    found: str
    ok: bool
    optional: bool
    advice: str = ""


@dataclass(frozen=True)
class GpuFacts:
    """Facts that decide whether PyTorch can use a GPU.

    Attributes:
        version: Version of PyTorch.
        built_for: Version of CUDA or ROCm that PyTorch was built for; None for a CPU build.
        driver: Version of the loaded NVIDIA driver; None without a driver.
        devices: Names of the GPUs that PyTorch can use.
        error: Error message of PyTorch when it initialises CUDA.
        visible: Value of CUDA_VISIBLE_DEVICES; None if it is not set.
    """

    version: str
    built_for: str | None
    driver: str | None
    devices: tuple[str, ...]
    error: str
    visible: str | None


_LIBRARIES = {
    "VVC encoder": ("libvvenc",),
    "HEVC encoder": ("libx265", "libkvazaar"),
    "AV1 encoder": ("libaom-av1", "libsvtav1"),
    "AVC encoder": ("libx264",),
}
"""Encoder libraries of ffmpeg by the row of the table."""


def examine() -> list[Finding]:
    """Examine ffmpeg, encoders, PyTorch, GPU, processor cores and instruction sets of this machine."""
    findings: list[Finding] = []

    def add(what: str, result: str | None, optional: bool = False) -> None:
        findings.append(Finding(what, result or "not found", result is not None, optional))

    ffmpeg = identity = None
    encoders: frozenset[str] = frozenset()
    with contextlib.suppress(CodecnnError):
        ffmpeg = ffmpeg_path()
        identity = ffmpeg_identity(ffmpeg)
        encoders = ffmpeg_encoders(ffmpeg)
    add("ffmpeg", identity)
    for title, libraries in _LIBRARIES.items():
        add(title, ", ".join(name for name in libraries if name in encoders) or None)

    for program in EXTERNAL.values():
        installed = [name for name in program.encoders if shutil.which(name)]
        add(f"{program.title} encoder", installed[0] if installed else None, optional=True)

    import torch

    add("torch", torch.__version__)
    findings += [gpu_finding(_gpu_facts()), cores_finding(torch.get_num_threads(), len(usable_cores()), idle_cores())]
    findings.append(instructions_finding(_capabilities()))
    return findings


def gpu_finding(facts: GpuFacts) -> Finding:
    """Describe the GPUs that PyTorch uses, or why it uses none and what to do."""
    if facts.devices:
        return Finding("GPU", ", ".join(facts.devices), True, True)
    advice = ""
    if facts.built_for is None and facts.driver is None:
        why = f"not used: no NVIDIA driver is loaded, and torch {facts.version} is built for the CPU"
    elif facts.built_for is None:
        why = f"not used: torch {facts.version} is built for the CPU, but the NVIDIA driver {facts.driver} is loaded"
        advice = "install the torch build for your driver: https://pytorch.org/get-started/locally has the command."
    elif facts.visible is not None and not re.search(r"\d|GPU|MIG", facts.visible):
        why = f"not used: CUDA_VISIBLE_DEVICES={facts.visible!r} hides every GPU"
        advice = "unset CUDA_VISIBLE_DEVICES, or set it to 0."
    elif facts.driver is None:
        why = f"not used: torch {facts.version} is built for {facts.built_for}, and no NVIDIA driver is loaded"
        advice = "install the NVIDIA driver, or start the container with GPUs (docker run --gpus all)."
    else:
        why = f"not used: torch {facts.version} for {facts.built_for}, NVIDIA driver {facts.driver}: {facts.error}"
        advice = "update the driver if it is too old, or install a torch build for an older CUDA."
    return Finding("GPU", why, False, True, advice)


@dataclass(frozen=True)
class IdleCores:
    """Idle cores among those that this process may use.

    Attributes:
        count: Idle cores; parts of a core add up.
        measured: What was measured, e.g. "in 0.3 s".
    """

    count: float
    measured: str


def cores_finding(threads: int, cores: int, idle: IdleCores) -> Finding:
    """Compare the threads of PyTorch with the cores of this process.

    Args:
        threads: Number of CPU threads of PyTorch, which do nothing while the cores are measured.
        cores: Number of cores that this process may use.
        idle: How many of them are idle.

    Returns:
        The finding, with advice on the number of threads.
    """
    advice = ""
    free = min(round(idle.count), cores)
    idle_cores = f"{idle.count:.1f} of {cores} cores are idle ({idle.measured})"
    if threads > cores:
        advice = f"{threads} threads compete for {cores} cores: set OMP_NUM_THREADS={cores}."
    elif threads < free:
        advice = f"{idle_cores}: set OMP_NUM_THREADS={free} to use them."
    elif threads > max(free, 1):
        advice = f"other processes use the processor, {idle_cores}: fewer threads than {threads} may be faster."
    return Finding("CPU", f"{threads} thread{'s' if threads > 1 else ''}, {idle_cores}", True, True, advice)


def idle_cores(seconds: float = 0.3, path: Path = Path("/proc/stat")) -> IdleCores:
    """Measure how many of the cores that this process may use are idle now.

    Args:
        seconds: Time to measure.
        path: File of the kernel with the times of the cores (proc(5)). Without it the load average is used.
    """
    before = _core_times(path)
    if not before:
        load = os.getloadavg()[0]
        return IdleCores(max(len(usable_cores()) - load, 0.0), f"load {load:.1f} in the last minute")
    time.sleep(seconds)
    after = _core_times(path)
    shares = []
    for core in usable_cores() & before.keys() & after.keys():
        spent = [new - old for old, new in zip(before[core], after[core], strict=True)]
        shares.append((spent[_IDLE] + spent[_IOWAIT]) / sum(spent) if sum(spent) > 0 else 1.0)
    return IdleCores(sum(shares), f"in {seconds:g} s")


_IDLE, _IOWAIT = 3, 4
"""Columns of /proc/stat behind the name of the core."""


def _core_times(path: Path) -> dict[int, list[int]]:
    """Read the times of each core in user, nice, system, idle, iowait, irq, softirq and steal, in ticks."""
    try:
        text = path.read_text()
    except OSError:
        return {}
    rows = re.findall(r"^cpu(\d+)((?: \d+){8})", text, flags=re.MULTILINE | re.ASCII)
    return {int(core): [int(value) for value in values.split()] for core, values in rows}


def instructions_finding(has: Mapping[str, Any]) -> Finding:
    """List the instruction sets that speed up networks in bfloat16 and in integers.

    Args:
        has: Capabilities of the processor by PyTorch's names.

    Returns:
        The finding, with advice if bfloat16 is slow.
    """
    named = {"AVX2": "avx2", "AVX-512": "avx512_f", "VNNI": "avx512_vnni", "AVX-VNNI": "avx_vnni"}
    named |= {"AVX-512 bf16": "avx512_bf16", "AMX bf16": "amx_bf16", "AMX int8": "amx_int8"}
    named |= {"NEON": "neon", "SVE": "sve", "bf16": "bf16", "i8mm": "i8mm"}
    present = [title for title, name in named.items() if has.get(name)]
    has_bfloat16 = any("bf16" in title for title in present)
    missing = [title for title in ("VNNI", "AMX bf16") if title not in present] if "AVX2" in present else []
    text = ", ".join(present) or "none that torch reports"
    if missing:
        text += f"; no {', no '.join(missing)}"
    advice = (
        ""
        if has_bfloat16
        else "bfloat16 is slower than float32 on this processor: training with precision auto uses float32."
    )
    return Finding("instructions", text, True, True, advice)


def usable_cores() -> set[int]:
    """Return the numbers of the cores that this process may use, which may be fewer than those of the machine."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


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


def nvidia_driver(path: Path = Path("/proc/driver/nvidia/version")) -> str | None:
    """Read the version of the loaded NVIDIA driver.

    Args:
        path: File of the kernel that contains the version.

    Returns:
        The version, "unknown" if it cannot be read, None without a driver.
    """
    if path.is_file():
        match = re.search(r"Kernel Module.*?\s(\d+\.\d[\d.]*)", path.read_text(errors="replace"))
        return match[1] if match else "unknown"
    return "unknown" if shutil.which("nvidia-smi") else None


def _capabilities() -> Mapping[str, Any]:
    import torch

    get_capabilities = getattr(torch.cpu, "get_capabilities", dict)
    capabilities: Mapping[str, Any] = get_capabilities()
    return capabilities
