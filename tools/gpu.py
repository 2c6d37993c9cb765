"""Try and measure codecnn on the GPU of this machine, in less than ten minutes, into one file.

    python tools/gpu.py -o gpu.json
    python tools/gpu.py -o gpu.json --device cpu     # each part in small sizes, to try the script

Parts, in this order; each starts only if there is time left for it, and gpu.json says of a part that did not run why:

- store: code datasets/demo.yaml, which also compiles the reader of bitstreams.
- tests: `pytest -m gpu`; they include the cases of tests/devices, which run on a pretended second device otherwise.
- steps: training steps in float32, TF32 and bfloat16, each uncompiled, compiled, and compiled with CUDA graphs
  (`compile: reduce-overhead`), by turns with plain PyTorch.
- two processes: steps per second of one training, and of two at the same time on one device.
- filtering: pictures of 1920x1080 in float32, TF32, bfloat16 and integers: pictures per second and memory.
- training: configs/student.yaml on the store, with as many steps as there is time for, and the gain on the validation
  picture. A CPU core with AMX takes 66,700 of these steps in an hour (docs/research/training_speed.md).

The script prints the figures as Markdown, for the section "On a GPU" of docs/reference/benchmark.md. The exit status is
1 if a test or a part failed.

A plain step is forward pass, mean squared error, backward pass and Adam on one batch that stays on the device. A step
of codecnn is that of `codecnn train`, which also cuts the next batch from the pictures in the memory of the device,
weights the loss, clips the gradient and averages the weights. CUDA events measure each step without waiting for the
device between steps. Filtering takes a picture from the memory of the host and returns it to there, which waits for the
device. Results in float32 must agree to one sample step. Every way runs untimed first; a figure is the median of a
turn, and a ratio the median over turns.
"""

import argparse
import contextlib
import datetime
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import codecnn
from codecnn.base.files import read_jsonl, write_json
from codecnn.base.runtime import current_device, float32_products
from codecnn.cli.doctor import nvidia_driver
from codecnn.training import LOG
from tools.bench._common import format_figure, markdown_table
from tools.bench._gpu import Form, Sizes, codecnn_trainer, filtering_rows, training_row
from tools.bench._report import machine, versions
from tools.bench.training import bench_units

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = "torch numpy numba"
LIMIT = 570
"""Seconds for all parts on a GPU."""
_AFTER_TESTS, _AFTER_STEPS = 330, 160
"""Seconds of the limit that are kept for what follows the tests, and the training steps."""
CORE_STEPS = 66_700
"""Steps of configs/student.yaml that a core with AMX takes in an hour: 54 ms each in bfloat16, compiled."""
FULL = Sizes(
    ("low_cost_17", "rdn_64_4_6_24_shuffle"),
    (1920, 1080),
    patch=128,
    batch=16,
    warm_up=20,
    steps=50,
    pictures=10,
    turns=3,
    seconds=10,
)
SMALL = Sizes(("low_cost_5",), (64, 48), patch=32, batch=2, warm_up=1, steps=2, pictures=2, turns=2, seconds=0.5)
"""Sizes on the CPU, too small for the figures to mean anything."""
CPU_RECIPE = [
    "preset=faster",
    "variants=null",
    "qp=[32, 42]",
    'sequences=[{source: "skimage:coins.png", split: train, scales: [0.25]}, '
    '{source: "skimage:rocket.jpg", split: val, scales: [0.25]}]',
]
CPU_TRAINING = ["model.name=low_cost_5", "training.batch=2", "training.compile=false"]
CPU_TRAINING += ["training.teacher=null", "training.start=null"]


class NotRunError(Exception):
    """A part cannot run here; the message says why."""


@dataclass
class Session:
    """State of a call of the script.

    Attributes:
        device: Device of the measurements.
        folder: Temporary folder.
        deadline: Value of `time.monotonic` at which all parts must have ended.
        parts: Results by name of the part.
    """

    device: torch.device
    folder: Path
    deadline: float
    parts: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def on_gpu(self) -> bool:
        """True if the device is a GPU."""
        return self.device.type == "cuda"

    @property
    def sizes(self) -> Sizes:
        """Sizes of the measurements."""
        return FULL if self.on_gpu else SMALL

    @property
    def left(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - time.monotonic()


def main(argv: Sequence[str]) -> int:
    """Run all parts; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="gpu.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path, required=True, help="file of the results, .json")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N or cpu [cuda]")
    parser.add_argument("--second-process", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    device = torch.device(options.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        parser.error("torch finds no GPU: `codecnn doctor` says why; --device cpu tries the script without one")
    if options.second_process:
        train_on_request(device)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        limit = LIMIT if device.type == "cuda" else float("inf")
        session = Session(device, Path(folder), time.monotonic() + limit)
        result = {
            "date": datetime.date.today().isoformat(),
            "device": describe_device(device),
            "versions": versions(PACKAGES),
            "parts": session.parts,
        }
        for name, seconds, part in PARTS:
            session.parts[name] = run_part(session, seconds, part)
            write_json(options.output, result)  # the results so far survive a later failure
            print(f"{name}: {session.parts[name]['status']} in {session.parts[name]['seconds']} s", flush=True)
    print(format_report(result))
    return int(any(part["status"] == "failed" for part in session.parts.values()))


def run_part(session: Session, seconds: float, part: Callable[[Session], dict[str, Any]]) -> dict[str, Any]:
    """Run a part that takes about `seconds` on a GPU, and return its result with status, reason and seconds."""
    started = time.monotonic()
    try:
        if session.left <= seconds:
            raise NotRunError(f"{session.left:.0f} of {LIMIT} s are left, and it needs about {seconds:.0f}")
        with current_device(session.device), float32_products():
            result = {"status": "done", **part(session)}
    except NotRunError as error:
        result = {"status": "not run", "why": str(error)}
    except Exception as error:
        traceback.print_exc()
        result = {"status": "failed", "why": f"{type(error).__name__}: {error}"}
    return result | {"seconds": round(time.monotonic() - started, 1)}


def describe_device(device: torch.device) -> dict[str, Any]:
    """Return name, memory and driver of the device, and the versions of CUDA and cuDNN that torch uses."""
    if device.type == "cpu":
        return {"type": "cpu", "name": machine()["cpu"]}
    properties = torch.cuda.get_device_properties(device)
    return {
        "type": "cuda",
        "name": properties.name,
        "memory_gib": round(properties.total_memory / 2**30, 1),
        "capability": f"{properties.major}.{properties.minor}",
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "driver": nvidia_driver(),
    }


def build_store(session: Session) -> dict[str, Any]:
    """Build the store of the training."""
    overrides = [] if session.on_gpu else CPU_RECIPE
    store = codecnn.build_dataset(
        ROOT / "datasets/demo.yaml", session.folder / "store", overrides=overrides, jobs=os.cpu_count() or 1
    )
    return {"units": len(store.units)}


def gpu_test_files() -> list[Path]:
    """Return the test files that contain tests marked gpu; collecting all others would take longer than these tests."""
    return sorted(path for path in (ROOT / "tests").rglob("test_*.py") if "mark.gpu" in path.read_text("utf-8"))


def run_gpu_tests(session: Session) -> dict[str, Any]:
    """Run the tests marked gpu."""
    if not session.on_gpu:
        raise NotRunError("the tests marked gpu need a GPU")
    result = run_tests(gpu_test_files(), limit=session.left - _AFTER_TESTS)
    if result["exit"]:
        why = ", ".join(result["failed"]) or f"pytest ended with status {result['exit']}"
        result |= {"status": "failed", "why": why}
    return result


def run_tests(files: Sequence[Path], limit: float) -> dict[str, Any]:
    """Run the tests marked gpu in some files.

    Warnings are not errors, since other versions of packages than those that codecnn is tested with may be installed.

    Args:
        files: The test files.
        limit: Seconds after which pytest is stopped.

    Returns:
        The "exit" status of pytest, the number of "passed" and "skipped" tests, and the names of "failed" tests.

    Raises:
        NotRunError: pytest was stopped.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-W", "default", "-p", "no:cacheprovider"]
        command += ["-c", str(ROOT / "pyproject.toml"), f"--junitxml={report}", *map(str, files)]
        process = subprocess.Popen(command, cwd=ROOT, start_new_session=True)
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # tests start processes of their own
            process.wait()
            raise NotRunError(f"the tests were stopped after {limit:.0f} s: run pytest -m gpu by itself") from None
        cases = list(ET.parse(report).iter("testcase")) if report.exists() else []
    failed = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    skipped = sum(case.find("skipped") is not None for case in cases)
    return {
        "exit": status,
        "passed": len(cases) - len(failed) - skipped,
        "skipped": skipped,
        "failed": [f"{case.get('classname')}::{case.get('name')}" for case in failed],
    }


def measure_steps(session: Session) -> dict[str, Any]:
    """Measure training steps in all forms that the device has."""
    precisions = ("float32", "bfloat16", "tf32") if session.on_gpu else ("float32", "bfloat16")
    first = session.sizes.networks[0]
    forms = [(network, Form(precision)) for network in session.sizes.networks for precision in precisions]
    if session.on_gpu:
        forms += [(first, Form(precision, how)) for how in ("reduce-overhead", True) for precision in precisions]
        not_run = []
    else:
        forms.append((first, Form("float32", "reduce-overhead")))
        not_run = ["TF32, which processors do not have", "CUDA graphs, which need a GPU"]
    units, rows = bench_units(session.folder), []
    for network, form in forms:
        if session.left < _AFTER_STEPS:
            not_run.append(f"{network} in {form}: no time was left")
        else:
            rows.append(training_row(network, form, units, session.device, session.sizes))
    failed = [f"{row['what']}: {row['failed']}" for row in rows if "failed" in row]
    failure = {"status": "failed", "why": "; ".join(failed)} if failed else {}
    return {"rows": rows, "not_run": not_run, **failure}


def measure_two_processes(session: Session) -> dict[str, Any]:
    """Measure the training steps per second of one process, and of two at the same time."""
    bench_units(session.folder)
    alone, together = ([*_steps_at_once(session, count)] for count in (1, 2))
    return {
        "alone_steps_per_second": alone[0],
        "together_steps_per_second": together,
        "together_over_alone": sum(together) / alone[0],
    }


def _steps_at_once(session: Session, count: int) -> Iterator[float]:
    """Train in several processes at the same time, and yield the steps per second of each."""
    command = [sys.executable, __file__, "-o", str(session.folder), "--device", str(session.device), "--second-process"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(subprocess.Popen(command, **pipes)) for _ in range(count)]
        for process in processes:
            if process.stdout.readline() != "ready\n":
                raise RuntimeError(f"a training process ended with status {process.wait()}: its message is above")
        for process in processes:
            process.stdin.write("start\n")
            process.stdin.flush()
        for process in processes:
            yield float(json.loads(process.stdout.readline())["steps_per_second"])


def train_on_request(device: torch.device) -> None:
    """Warm up a training, print "ready", wait for a line, train for some seconds, and print the steps per second."""
    sizes = FULL if device.type == "cuda" else SMALL
    with tempfile.TemporaryDirectory() as folder, current_device(device):
        form = Form("bfloat16" if device.type == "cuda" else "float32")
        with codecnn_trainer(sizes.networks[0], form, bench_units(Path(folder)), device, sizes) as trainer:
            for _ in range(sizes.warm_up):
                trainer.step(next(trainer.batches))
            print("ready", flush=True)
            sys.stdin.readline()
            started, steps = time.monotonic(), 0
            while time.monotonic() - started < sizes.seconds:
                trainer.step(next(trainer.batches))
                steps += 1
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            print(json.dumps({"steps_per_second": steps / (time.monotonic() - started)}), flush=True)


def measure_filtering(session: Session) -> dict[str, Any]:
    """Measure the filtering of pictures in all precisions that the device has."""
    precisions = ["float32", *(["tf32"] if session.on_gpu else []), "bfloat16"]
    rows = []
    for number, network in enumerate(session.sizes.networks):
        rows += filtering_rows(network, [*precisions, *([] if number else ["integers"])], session.device, session.sizes)
    not_run = [] if session.on_gpu else ["TF32, which processors do not have", "the memory of the GPU"]
    return {"rows": rows, "not_run": not_run}


def train_student(session: Session) -> dict[str, Any]:
    """Train configs/student.yaml for as many steps as there is time for."""
    if not (session.folder / "store").exists():
        raise NotRunError("the store was not built")
    rows = session.parts.get("steps", {}).get("rows", [])
    speeds = [row["steps_per_second"] for row in rows if "bfloat16" in row["what"] and "steps_per_second" in row]
    # The patches of the measured steps are larger; start, teacher, compiling and validation take the rest of the time.
    steps = max(200, int(0.5 * session.left * max(speeds, default=20))) if session.on_gpu else 4
    overrides = [
        f"store={session.folder / 'store'}",
        f"training.device={session.device}",
        f"training.steps={steps}",
        f"training.validate_every={steps}",
        f"training.warmup={min(100, steps // 2)}",
        "training.boards=[]",
    ]
    overrides += ["training.precision=bfloat16", "training.resident=true"] if session.on_gpu else CPU_TRAINING
    started = time.monotonic()
    run = session.folder / "run"
    result = codecnn.train(ROOT / "configs/student.yaml", run, overrides=overrides)
    seconds = time.monotonic() - started
    notes = [record["text"] for record in read_jsonl(run / LOG) if record["event"] == "note"]
    facts = {"steps": steps, "training_seconds": round(seconds, 1), "gain_db": result.best_score, "notes": notes}
    if session.on_gpu:
        facts["core_hours"] = steps / CORE_STEPS
    return facts


PARTS: tuple[tuple[str, float, Callable[[Session], dict[str, Any]]], ...] = (
    ("store", 60, build_store),
    ("tests", 390, run_gpu_tests),
    ("steps", 180, measure_steps),
    ("two processes", 60, measure_two_processes),
    ("filtering", 40, measure_filtering),
    ("training", 60, train_student),
)
"""Name, seconds that must be left on a GPU, and function of each part."""


def format_report(result: Mapping[str, Any]) -> str:
    """Format the result as Markdown: device and versions, a line for each part, and the table."""
    device, parts = result["device"], result["parts"]
    facts = [device["name"]]
    if device["type"] == "cuda":
        facts += [f"{device['memory_gib']} GiB", f"CUDA {device['cuda']}, cuDNN {device['cudnn']}"]
        facts.append(f"driver {device['driver']}")
    facts += [f"{name} {version}" for name, version in result["versions"].items()]
    lines = [", ".join(facts) + f"; {result['date']}.", ""]
    if device["type"] == "cpu":
        lines += ["**Small sizes on the CPU: the figures mean nothing.**", ""]
    lines += [f"- {name}: {_summary(part)}" for name, part in parts.items()]
    rows = [row for part in parts.values() for row in part.get("rows", []) if "failed" not in row]
    return "\n".join([*lines, "", *markdown_table(rows)])


def _summary(part: Mapping[str, Any]) -> str:
    """Describe the result of a part without its rows."""
    facts = {name: value for name, value in part.items() if name not in ("status", "why", "seconds", "rows") and value}
    shown = [f"{name.replace('_', ' ')} {_shown(value)}" for name, value in facts.items()]
    text = f"{part['status']}, {part['seconds']} s"
    return "; ".join([text, *([part["why"]] if "why" in part else []), *shown])


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    return format_figure(value) if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
