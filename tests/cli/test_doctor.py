"""Findings of `codecnn doctor`: GPU, cores, instruction sets and advice."""

from dataclasses import replace

import pytest

from codecnn.doctor import GpuFacts, cores_finding, gpu_finding, instructions_finding, nvidia_driver
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
    assert "OMP_NUM_THREADS=2" in cores_finding(8, 2, 0.0).advice
    assert "6 cores are idle" in cores_finding(2, 8, 0.0).advice
    assert "load 3.0" in cores_finding(2, 2, 3.0).advice
    assert cores_finding(2, 2, 0.1).advice == ""
    plain = instructions_finding({"avx2": True, "avx512_f": True, "avx512_vnni": True})
    assert plain.found == "AVX2, AVX-512, VNNI; no AMX bf16"
    assert "float32" in plain.advice
    rich = instructions_finding({"avx2": True, "avx512_vnni": True, "amx_bf16": True, "amx_int8": True})
    assert (rich.found, rich.advice) == ("AVX2, VNNI, AMX bf16, AMX int8", "")
    assert instructions_finding({}).found == "none that torch reports"


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
