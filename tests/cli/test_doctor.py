"""Findings of `codecnn doctor`: GPU, cores, instruction sets and advice."""

from dataclasses import replace

import pytest

from codecnn.cli.doctor import (
    GpuFacts,
    IdleCores,
    cores_finding,
    gpu_finding,
    idle_cores,
    instructions_finding,
    nvidia_driver,
    usable_cores,
)
from tests.helpers.commands import result_of

GPU = GpuFacts("2.13.0+cu130", "CUDA 13.0", "580.65.06", ("NVIDIA H200",), "", None)


@pytest.mark.parametrize(
    ("changes", "text", "advice"),
    [
        ({}, "NVIDIA H200", ""),
        (
            {"version": "2.13.0+cpu", "built_for": None},
            "built for the CPU, but the NVIDIA driver 580.65.06",
            "install",
        ),
        (
            {"built_for": None, "driver": None},
            "no NVIDIA driver is loaded, and torch 2.13.0+cu130 is built for the CPU",
            "",
        ),
        ({"driver": None}, "no NVIDIA driver is loaded", "--gpus all"),
        ({"visible": ""}, "CUDA_VISIBLE_DEVICES='' hides", "unset"),
        (
            {"visible": "0", "error": "The NVIDIA driver is too old"},
            "driver 580.65.06: The NVIDIA driver is too",
            "update",
        ),
    ],
)
def test_reason_for_an_unused_gpu(changes, text, advice):
    finding = gpu_finding(replace(GPU, **({"devices": ()} | changes if changes else {})))
    assert text in finding.found
    assert advice in finding.advice
    assert bool(advice) == bool(finding.advice)
    assert finding.ok == (not changes)


def test_advice_on_cores_and_instructions():
    def advice(threads, cores, idle):
        return cores_finding(threads, cores, IdleCores(idle, "in 0.3 s")).advice

    assert "OMP_NUM_THREADS=2" in advice(8, 2, 2.0)
    assert advice(2, 8, 7.8) == "7.8 of 8 cores are idle (in 0.3 s): set OMP_NUM_THREADS=8 to use them."
    # Cores that other processes use are not advised.
    assert advice(2, 8, 2.4) == ""
    assert "OMP_NUM_THREADS=5" in advice(2, 8, 5.2)
    assert "other processes use the processor, 0.4 of 2 cores are idle (in 0.3 s)" in advice(2, 2, 0.4)
    assert advice(2, 2, 1.9) == advice(1, 2, 0.2) == ""
    plain = instructions_finding({"avx2": True, "avx512_f": True, "avx512_vnni": True})
    assert plain.found == "AVX2, AVX-512, VNNI; no AMX bf16"
    assert "float32" in plain.advice
    rich = instructions_finding({"avx2": True, "avx512_vnni": True, "amx_bf16": True, "amx_int8": True})
    assert (rich.found, rich.advice) == ("AVX2, VNNI, AMX bf16, AMX int8", "")
    assert instructions_finding({}).found == "none that torch reports"


def test_idle_cores_are_those_that_nobody_uses_now(tmp_path, monkeypatch):
    cores = sorted(usable_cores())
    path = tmp_path / "stat"
    # Columns: user, nice, system, idle, iowait, irq, softirq, steal, guest, guest_nice.
    first = "cpu  9 9 9 9 9 9 9 9 0 0\n" + "".join(f"cpu{core} 5 0 5 100 10 0 0 0 0 0\n" for core in range(200))
    busy, idle = "5 0 45 100 10 0 0 0 0 0", "5 0 5 130 20 0 0 0 0 0"
    path.write_text(first)
    second = first.splitlines()[0] + "".join(f"\ncpu{core} {busy}" for core in range(200))

    def pass_time(seconds):
        path.write_text(second.replace(f"cpu{cores[-1]} {busy}", f"cpu{cores[-1]} {idle}"))

    monkeypatch.setattr("time.sleep", pass_time)
    assert idle_cores(0.5, path) == IdleCores(1.0, "in 0.5 s")
    monkeypatch.setattr("os.getloadavg", lambda: (len(cores) + 1.0, 0.0, 0.0))
    fallback = idle_cores(0.5, tmp_path / "none")
    assert (fallback.count, "load" in fallback.measured) == (0.0, True)
    monkeypatch.undo()
    assert 0 <= idle_cores(0.05).count <= len(cores)


def test_driver_version_is_read(tmp_path):
    path = tmp_path / "version"
    path.write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\nGCC version: 12\n"
    )
    assert nvidia_driver(path) == "580.65.06"


def test_command_examines_this_machine(run):
    findings = {finding["what"]: finding for finding in result_of(run, "doctor")}
    assert {"ffmpeg", "VVC encoder", "torch", "GPU", "CPU", "instructions"} <= findings.keys()
    assert findings["GPU"]["ok"] or findings["GPU"]["found"].startswith("not used: ")
    status, text, _ = run("doctor")
    assert (status, "not used" in text or findings["GPU"]["ok"]) == (0, True)
