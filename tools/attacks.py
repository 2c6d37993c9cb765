"""Attack codecnn as kills, full disks, mistakes and hostile files do, and report what held.

    python tools/attacks.py [-n 10] [--seed 0] [--only kills mistakes]

Run it before each release; docs/explanation/reliability.md has the figures. Every attack works on a training set of two
small pictures of scikit-image, in a temporary folder. The exit status is 1 if an attack succeeded.
"""

import argparse
import contextlib
import os
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from codecnn.base.files import sha256_file
from codecnn.models import weights_files, weights_path

RECIPE = """\
schema: 1
name: attacks
codec: vvc
preset: faster
qp: [32, 37]
sequences:
  - {source: "skimage:brick.png", split: train, scales: [0.25]}
  - {source: "skimage:coins.png", split: val, scales: [0.25]}
  - {source: "skimage:camera.png", split: test, scales: [0.25]}
"""
CONFIG = """\
store: STORE
model: {name: rdn, options: {features: 4, blocks: 1, layers: 2, growth: 4, shuffle: 2}}
training: {steps: 60, batch: 2, patch: 32, validate_every: 20, precision: float32, seed: 1}
"""
MEMORY_LIMIT = 3 << 30
"""Bytes of resident memory that no command may exceed on a hostile file."""
TIME_LIMIT = 300
"""Seconds after which a command counts as hanging."""
EXPECTED_STATUSES = {0, 1, 2}
"""Exit statuses of a command that did its work or refused it in a sentence."""


@dataclass
class Work:
    """Inputs of the attacks.

    Attributes:
        folder: Temporary folder of one attack.
        store: A complete training set; attacks copy it before they change it.
        recipe: Recipe of the training set.
        config: Configuration of a training that takes seconds.
        stream: A VVC stream of the training set.
        video: The original pictures of the stream, Y4M.
        rng: Source of the moments and places of the attacks.
        count: Number of repetitions of the random attacks.
    """

    folder: Path
    store: Path
    recipe: Path
    config: Path
    stream: Path
    video: Path
    rng: random.Random
    count: int


@dataclass
class Outcome:
    """Result of a command.

    Attributes:
        status: Exit status; negative for a signal, None for a command that exceeded the time limit.
        text: Last line of standard error.
        traceback: The command ended with a traceback or reported a bug.
        peak: Largest resident memory in bytes.
        seconds: Duration.
    """

    status: int | None
    text: str
    traceback: bool
    peak: int
    seconds: float

    @property
    def fault(self) -> str:
        """Say why the outcome is a fault; empty if the command did its work or refused it in a sentence."""
        if self.status is None:
            return f"no end after {TIME_LIMIT} s"
        if self.traceback:
            return f"traceback: {self.text}"
        if self.status not in EXPECTED_STATUSES:
            return f"exit status {self.status}: {self.text}"
        if self.peak > MEMORY_LIMIT:
            return f"{self.peak >> 20} MiB of memory"
        return ""


def command(*arguments: str | Path) -> list[str]:
    """Return the command line of a codecnn command."""
    return [sys.executable, "-m", "codecnn", *map(str, arguments)]


def run(*arguments: str | Path, cwd: Path | None = None) -> Outcome:
    """Run a codecnn command to its end and measure it."""
    started = time.monotonic()
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command(*arguments), cwd=cwd, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True
        )
        timer = _kill_later(process, TIME_LIMIT)
        _, wait_status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(wait_status)
        expired = not timer()
        errors.seek(0)
        text = errors.read().decode(errors="replace").strip()
    return Outcome(
        None if expired else process.returncode,
        text.rsplit("\n", 1)[-1][-200:],
        "Traceback (most recent call last)" in text or "a bug in codecnn" in text,
        usage.ru_maxrss * 1024,
        time.monotonic() - started,
    )


def _kill_later(process: "subprocess.Popen[bytes]", seconds: float) -> Callable[[], bool]:
    """Kill a process after some seconds; the returned function cancels that and returns whether it was in time."""
    fired = threading.Event()

    def kill() -> None:
        fired.set()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    timer = threading.Timer(seconds, kill)
    timer.start()

    def cancel() -> bool:
        timer.cancel()
        return not fired.is_set()

    return cancel


def hashes(folder: Path, *patterns: str) -> dict[str, str]:
    """Hash the files of a folder, by relative name."""
    files = {path for pattern in patterns or ("**/*",) for path in folder.glob(pattern) if path.is_file()}
    return {str(path.relative_to(folder)): sha256_file(path) for path in sorted(files)}


# --- kills ------------------------------------------------------------------------------------------------------------


def kills(work: Work) -> Iterator[tuple[str, str]]:
    """Kill builds, trainings and evaluations at random moments, continue them, and compare with undisturbed ones."""
    weights = work.folder / "undisturbed/train/best.safetensors"
    jobs: dict[str, tuple[list[str | Path], tuple[str, ...]]] = {
        "build": (["dataset", "build", work.recipe, "-j", "2"], ()),
        "train": (["train", work.config, f"store={work.store}", "training.device=cpu"], ("best.safetensors",)),
        "evaluate": (["evaluate", work.store, "-m", weights, "--float"], ("pictures.csv",)),
    }
    for name, (arguments, patterns) in jobs.items():
        undisturbed = work.folder / "undisturbed" / name
        started = time.monotonic()
        outcome = run(*arguments, "-o", undisturbed)
        duration = time.monotonic() - started
        if outcome.status:
            yield f"kill {name}", f"the undisturbed command failed: {outcome.text}"
            continue
        expected = hashes(undisturbed, *patterns)
        assert expected, f"{name} wrote none of {patterns}"
        for number in range(work.count):
            folder = work.folder / "killed" / f"{name}{number}"
            argv = command(*arguments, "-o", folder)
            for _ in range(3):
                start_and_kill(argv, work.rng.uniform(0, duration), group=number % 2 == 0)
            resume = ["--resume"] if name == "train" and (folder / "checkpoint.pt").exists() else []
            outcome = run(*arguments, *resume, "-o", folder)
            fault = outcome.fault or (outcome.text if outcome.status else "")
            if not fault and hashes(folder, *patterns) != expected:
                fault = "the result differs from the undisturbed one"
            left_over = [path.name for path in folder.rglob("*.part-*")]
            yield f"kill {name}", fault or (f"left over: {left_over}" if left_over else "")


def start_and_kill(argv: list[str], after: float, *, group: bool) -> None:
    """Start a command and kill it, or its process group, after some seconds."""
    process = subprocess.Popen(argv, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(after)
    with contextlib.suppress(ProcessLookupError):
        (os.killpg if group else os.kill)(process.pid, signal.SIGKILL)
    process.wait()


# --- full disk --------------------------------------------------------------------------------------------------------


def full_disk(work: Work) -> Iterator[tuple[str, str]]:
    """Run commands on a file system with at most 8 KiB of free space, then once more with enough."""
    disk = work.folder / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", disk], capture_output=True, check=False
    )
    if mounted.returncode:
        print("full disk: skipped, a small file system can only be mounted by root")
        return
    jobs: dict[str, list[str | Path]] = {
        "build": ["dataset", "build", work.recipe, "-o", disk / "store"],
        "filter": ["filter", "-m", "low_cost_5", "-i", work.stream, "-o", disk / "filtered.y4m"],
        "decode": ["decode", work.stream, "-o", disk / "decoded.y4m"],
        "evaluate": ["evaluate", work.store, "-m", "low_cost_5", "-o", disk / "results"],
    }
    try:
        for name, arguments in jobs.items():
            for free in (0, 1 << 12, 1 << 13):
                _fill(disk, free)
                outcome = run(*arguments)
                fault = outcome.fault or ("" if outcome.status else "exit status 0 on a full disk")
                (disk / "filler").unlink()
                if not fault:
                    outcome = run(*arguments)
                    fault = outcome.fault or (outcome.text if outcome.status else "")
                yield f"full disk, {name}", fault
                for item in disk.iterdir():
                    shutil.rmtree(item) if item.is_dir() else item.unlink()
    finally:
        subprocess.run(["umount", disk], check=False)


def _fill(disk: Path, free: int) -> None:
    size = shutil.disk_usage(disk).free - free
    with (disk / "filler").open("wb") as file:
        for start in range(0, size, 1 << 20):
            file.write(bytes(min(1 << 20, size - start)))


# --- two writers ------------------------------------------------------------------------------------------------------


def two_writers(work: Work) -> Iterator[tuple[str, str]]:
    """Run a command twice at the same time with the same output: each does its work or is refused, none mixes."""
    alone = work.folder / "alone.safetensors"
    run("train", work.config, f"store={work.store}", "training.device=cpu", "-o", work.folder / "alone")
    shutil.copy(work.folder / "alone/best.safetensors", alone)
    jobs: dict[str, tuple[list[str | Path], Path, Path]] = {
        "build": (["dataset", "build", work.recipe, "-o"], work.folder / "store", work.store),
        "filter": (
            ["filter", "-m", "low_cost_5", "-i", work.stream, "-o"],
            work.folder / "f.y4m",
            work.folder / "g.y4m",
        ),
        "train": (
            ["train", work.config, f"store={work.store}", "training.device=cpu", "-o"],
            work.folder / "run",
            alone,
        ),
    }
    run(*jobs["filter"][0], work.folder / "g.y4m")
    for name, (arguments, output, expected) in jobs.items():
        for _ in range(work.count):
            writers = [
                subprocess.Popen(command(*arguments, output), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
                for _ in range(2)
            ]
            errors = [writer.communicate()[1].decode(errors="replace") for writer in writers]
            statuses = [writer.returncode for writer in writers]
            fault = (
                "" if 0 in statuses and set(statuses) <= EXPECTED_STATUSES else f"exit statuses {statuses}: {errors}"
            )
            result = output / "best.safetensors" if name == "train" else output
            same = (
                hashes(result) == hashes(expected) if result.is_dir() else sha256_file(result) == sha256_file(expected)
            )
            yield f"two writers, {name}", fault or ("" if same else "the result differs from that of one writer")
            shutil.rmtree(output) if output.is_dir() else output.unlink()


# --- outputs over inputs, folders of the user -------------------------------------------------------------------------


def mistakes(work: Work) -> Iterator[tuple[str, str]]:
    """Name an input as the output, by path, symbolic link and hard link, and folders of the user as outputs."""
    stream, video, weights = work.folder / "s.266", work.folder / "v.y4m", work.folder / "w.safetensors"
    shutil.copy(work.stream, stream)
    shutil.copy(work.video, video)
    for file in filter(Path.is_file, weights_files(weights_path("low_cost_5"))):
        shutil.copy(file, work.folder / file.name.replace("low_cost_5.vvc", "w"))
    filter_ = ["filter", "-m", weights, "-i", stream, "--original", video, "-o"]
    adapt = ["adapt", "-m", weights, "--original", video, "--stream", stream, "-o"]
    cases: list[tuple[list[str | Path], Path]] = [
        (filter_, stream),
        (filter_, video),
        (filter_, weights),
        (adapt, stream),
        (adapt, video),
        (adapt, weights),
        (["decode", stream, "-o"], stream),
        (["view", stream, "--original", video, "-o"], stream),
        (["view", stream, "--original", video, "-o"], video),
        (["nnpf", "write", stream, "-m", weights, "-o"], stream),
        (["export", "-m", weights, "-o"], weights),
        (["partition", stream, "-o"], stream),
        (["labels", "-i", video, "-o"], video),
        (["modes", "predict", "-i", video, "-o"], video),
    ]
    for arguments, target in cases:
        for kind in ("path", "symbolic link", "hard link"):
            before, output = hashes(work.folder, "*.*"), target
            if kind != "path":
                output = work.folder / f"link{target.suffix}"
                (output.symlink_to if kind == "symbolic link" else output.hardlink_to)(target)
            outcome = run(*arguments, output)
            if kind != "path":
                output.unlink(missing_ok=True)
            fault = outcome.fault or ("" if outcome.status else f"{kind} accepted")
            changed = hashes(work.folder, "*.*") != before
            yield (
                "output over input",
                f"{arguments[0]}: an input changed" if changed else fault and f"{arguments[0]}: {fault}",
            )
    yield from _folders(work, video, weights)


def _folders(work: Work, video: Path, weights: Path) -> Iterator[tuple[str, str]]:
    """Name a folder of the user as the output of every command that writes into a folder."""
    cases: dict[str, list[str | Path]] = {
        "dataset build": ["dataset", "build", work.recipe],
        "train": ["train", work.config, f"store={work.store}", "training.device=cpu"],
        "evaluate": ["evaluate", video, "-m", weights, "-q", "37"],
        "evaluate of a store": ["evaluate", work.store, "-m", weights],
        "correlate": ["correlate", work.store],
    }
    names = (
        "config.json",
        "log.jsonl",
        "manifest.json",
        "units.jsonl",
        "notes.txt",
        "originals/a.png",
        "coded/b.266",
        "cells/c.parquet",
        "x.part-0",
        "best.safetensors",
        "report.html",
    )
    for name, arguments in cases.items():
        project = work.folder / "project"
        for file in names:
            (project / file).parent.mkdir(parents=True, exist_ok=True)
            (project / file).write_text(f"of the user: {file}")
        before = hashes(project)
        outcome = run(*arguments, "-o", project)
        after = hashes(project)
        lost = [file for file in before if after.get(file) != before[file]]
        yield "output into a folder of the user", f"{name}: {lost} lost or changed" if lost else outcome.fault
        shutil.rmtree(project)
    copy = work.folder / "store"
    shutil.copytree(work.store, copy)
    before = hashes(copy)
    run("evaluate", copy, "-m", weights, "-o", copy)
    after = hashes(copy)
    lost = [file for file in before if after.get(file) != before[file]]
    yield "evaluation into its own store", f"{lost} lost or changed" if lost else ""


# --- damaged caches ---------------------------------------------------------------------------------------------------


def damaged_caches(work: Work) -> Iterator[tuple[str, str]]:
    """Truncate, change or empty files of stores and results; commands give the old result or refuse in a sentence."""
    results = work.folder / "results"
    evaluate = ["evaluate", work.store, "-m", "low_cost_5", "-o"]
    run(*evaluate, results)
    expected = hashes(results, "pictures.csv")
    for _ in range(2 * work.count):
        copy = work.folder / "copy"
        shutil.copytree(results, copy)
        target = work.rng.choice([path for path in sorted(copy.rglob("*")) if path.is_file()])
        damage(target, work.rng)
        outcome = run(*evaluate, copy)
        same = outcome.status != 0 or hashes(copy, "pictures.csv") == expected
        fault = outcome.fault or ("" if same else "another result")
        yield "damaged results", fault and f"{target.name}: {fault}"
        shutil.rmtree(copy)
    for _ in range(2 * work.count):
        copy = work.folder / "copy"
        shutil.copytree(work.store, copy)
        target = work.rng.choice([path for path in sorted(copy.rglob("*")) if path.is_file()])
        damage(target, work.rng)
        verified, built = run("dataset", "verify", copy), run("dataset", "build", work.recipe, "-o", copy)
        fault = verified.fault or built.fault
        if not fault and verified.status == 0 and built.status == 0 and hashes(copy) != hashes(work.store):
            fault = "neither verify nor build notices"
        yield "damaged store", fault and f"{target.name}: {fault}"
        shutil.rmtree(copy)


def damage(path: Path, rng: random.Random) -> None:
    """Truncate a file, change some of its bytes, or empty it."""
    data = bytearray(path.read_bytes())
    kind = rng.choice(("truncate", "change", "empty"))
    if kind == "truncate":
        del data[rng.randrange(len(data) or 1) :]
    elif kind == "empty":
        data.clear()
    else:
        for _ in range(rng.randint(1, 8)):
            if data:
                data[rng.randrange(len(data))] = rng.randrange(256)
    path.write_bytes(data)


# --- bombs and damaged streams ----------------------------------------------------------------------------------------


def bombs(work: Work) -> Iterator[tuple[str, str]]:
    """Read small files that stand for large or deep content: each in bounded time and memory."""
    files = {
        "png8.png": png(13000, 13000, 8),
        "png16.png": png(13000, 13000, 16),
        "deep.json": b"[" * 200_000,
        "deep.yaml": b"a: " + b"[" * 20_000,
        "billion.yaml": b"a: &a [x,x,x,x,x,x,x,x,x]\n"
        + b"".join(b"%c: &%c [%s]\n" % (98 + i, 98 + i, b",".join([b"*%c" % (97 + i)] * 9)) for i in range(9)),
        "sei.266": b"\0\0\0\1\0\xb9\x05\x01\0\x80" * 80_000 + work.stream.read_bytes(),
        "long.y4m": b"YUV4MPEG2 W99999999 H99999999 F30:1\nFRAME\n",
        "digits.y4m": b"YUV4MPEG2 W" + b"9" * 5000 + b" H8 F30:1\nFRAME\n",
    }
    for name, content in files.items():
        path = work.folder / name
        path.write_bytes(content)
        for arguments in (
            ["info", path],
            ["filter", "-m", "low_cost_5", "-q", "32", "-i", path, "-o", work.folder / "o.y4m"],
        ):
            if path.suffix in (".json", ".yaml"):
                arguments = ["dataset", "build", path, "-o", work.folder / "s"]
            outcome = run(*arguments)
            yield "bomb", outcome.fault and f"{name}, {arguments[0]}: {outcome.fault}"


def png(width: int, height: int, bits: int) -> bytes:
    """Return a PNG of zeros, grey."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    packer = zlib.compressobj(9)
    row = bytes(1 + width * bits // 8)
    data = b"".join(packer.compress(row) for _ in range(height)) + packer.flush()
    header = struct.pack(">IIBBBBB", width, height, bits, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def damaged_streams(work: Work) -> Iterator[tuple[str, str]]:
    """Decode and filter damaged streams: pictures that are whole, or a refusal in a sentence."""
    for number in range(4 * work.count):
        path = work.folder / f"d{number % 2}.266"
        shutil.copy(work.stream, path)
        damage(path, work.rng)
        for arguments in (
            ["info", path],
            ["decode", path],
            ["filter", "-m", "low_cost_5", "-i", path, "-o", path.with_suffix(".y4m")],
        ):
            outcome = run(*arguments)
            yield "damaged stream", outcome.fault and f"{arguments[0]}: {outcome.fault}"


ATTACKS = {
    attack.__name__: attack
    for attack in (kills, full_disk, two_writers, mistakes, damaged_caches, bombs, damaged_streams)
}


def main() -> int:
    """Run the attacks; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=10, help="repetitions of the random attacks [10]")
    parser.add_argument("--seed", type=int, default=0, help="seed of moments and places [0]")
    parser.add_argument("--only", nargs="+", choices=ATTACKS, default=list(ATTACKS), help="attacks to run [all]")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faults: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        (root / "recipe.yaml").write_text(RECIPE)
        (root / "config.yaml").write_text(CONFIG)
        prepared = run("dataset", "build", root / "recipe.yaml", "-j", "2", "-o", root / "store")
        if prepared.status:
            raise SystemExit(f"the training set cannot be built: {prepared.text}")
        stream = sorted((root / "store/coded").glob("*/*.266"))[0]
        video = root / "video.y4m"
        subprocess.run(command("decode", stream, "-o", video), check=True, stdout=subprocess.DEVNULL)
        for attack in options.only:
            (root / attack).mkdir()
            paths = (root / attack, root / "store", root / "recipe.yaml", root / "config.yaml", stream, video)
            for kind, fault in ATTACKS[attack](Work(*paths, random.Random(options.seed), options.n)):
                faults.setdefault(kind, []).append(fault)
                if fault:
                    print(f"FAULT {kind}: {fault}", flush=True)
            shutil.rmtree(root / attack)
            print(f"{attack} done", file=sys.stderr, flush=True)
    print("\n| attack | tried | held |\n|---|---:|---:|")
    for kind, results in faults.items():
        print(f"| {kind} | {len(results)} | {results.count('')} |")
    return int(any(fault for results in faults.values() for fault in results))


if __name__ == "__main__":
    sys.exit(main())
