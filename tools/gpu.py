"""What only a GPU can do, in one go on a machine that is lent for minutes: tests, benchmarks, chunks of training.

    python tools/gpu.py pack --store stores/zoo --train mine configs/zoo.yaml model.name=low_cost_17 -o gpu_pack
    python tools/gpu.py run --pack gpu_pack --out OUT [tests benchmarks mine]      there, until nothing is left
    python tools/gpu.py take OUT --pack gpu_pack                                   here, after every chunk

`pack` makes a folder that fits into --mib: part of a store, and the packages that a machine with PyTorch may lack. It
needs no network and no encoder there, only the repository beside the pack. `run` takes as many jobs as --minutes allow,
one after the other, writes OUT/done.json after each, and skips those that are done in it or in the pack; its exit
status is 0 when all are done, 1 when one failed, 3 when it is to be called again. Training is stopped in time and goes
on from its checkpoint, which comes back in parts of 15 MiB. `take` puts the results of a chunk into the pack, so
that the next one goes on from there on whatever machine, and runs into --runs. --device cpu tries all of it in small.
"""

import argparse
import hashlib
import io
import json
import lzma
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("pydantic", "pydantic-core", "annotated-types", "typing-inspection", "bayesian-optimization", "bjontegaard")
"""Of those that codecnn needs, what an image for PyTorch and NumPy tends to lack. imageio-ffmpeg, whose wheel is 65 MiB
by itself, stays behind: what is packed has been coded."""
FILES = ("original", "decoded", "unfiltered", "prediction", "residual", "block_planes", "transforms", "strengths")
"""A unit's files that training reads; bitstreams and logs stay behind."""
FILTERS = [{"id": lzma.FILTER_DELTA, "dist": 2}, {"id": lzma.FILTER_LZMA2, "preset": 1}]
"""Differences of neighbouring bytes of like weight of 16-bit samples: to about 0.4 of their size."""
PART = 15 * 2**20
"""Bytes of a file that comes back, at most."""
MARGIN = 45.0
"""Seconds of a chunk that are kept for stopping a training run and packing what it left."""
BENCHMARKS = {
    "benchmark-rdn": "training --network rdn_32_4_6_24 --patch 128 {training}",
    "benchmark-low_cost": "training --network low_cost_17 --patch 96 {training}",
    "benchmark-labels": "labels {labels}",
}
"""Words of tools/benchmark.py."""
SMALL = {"training": "--network low_cost_5 --patch 32 --batch 2 --steps 4 --turns 1", "labels": "--size 128x128"}
FULL = {"training": "--device cuda --batch 16 --steps 400", "labels": "--device cuda --size 1920x1088"}


@dataclass(frozen=True)
class Job:
    """A command, and whether it goes on where SIGTERM stopped it."""

    name: str
    argv: tuple[str, ...]
    run: Path | None = None


def pack(options: argparse.Namespace) -> None:
    """Write the pack: wheels, what is to be trained, and units until `mib` are full."""
    folder = options.pack
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if not options.no_wheels:
        fetch_wheels(folder / "wheels", options.python)
    (folder / "runs.json").write_text(json.dumps({name: words for name, *words in options.train}, indent=2))
    room = int(options.mib * 2**20) - size_of(folder)
    if options.store is not None:
        sequences, units = pack_store(options.store, folder / "store.xz", room)
        print(f"{units} units of {sequences} sequences of {options.store}")
    print(f"{folder}: {size_of(folder) / 2**20:.1f} MiB")


def fetch_wheels(folder: Path, python: str) -> None:
    """Download PACKAGES, in the versions that are here, for Linux on x86-64."""
    platforms = [f"--platform=manylinux{tag}_x86_64" for tag in ("_2_28", "_2_17", "2014")]
    wanted = [f"{name}=={metadata.version(name)}" for name in PACKAGES]
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", *platforms]
    subprocess.run([*pip, f"--python-version={python}", "--implementation=cp", "-d", folder, *wanted], check=True)


def pack_store(folder: Path, target: Path, room: int) -> tuple[int, int]:
    """A store of as many whole sequences as fit into `room` bytes, compressed; returns how many, and their units.

    Splits are served in turn, each in an order that is drawn once and for all.
    """
    from codecnn.dataset import MANIFEST, UNITS, open_store
    from codecnn.runs import read_json, read_jsonl, sha256_json

    all_units = open_store(folder).units
    lines = {line["key"]: line for line in read_jsonl(folder / UNITS)}
    by_name = {unit.name: [other for other in all_units if other.name == unit.name] for unit in all_units}
    order = sorted(by_name, key=lambda name: hashlib.sha256(name.encode()).digest())
    chosen: list[str] = []
    with (
        target.open("wb") as raw,
        lzma.open(raw, "wb", format=lzma.FORMAT_XZ, filters=FILTERS) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        while order:
            wanted = ("train", "val", "train", "train")[len(chosen) % 4]
            name = next((name for name in order if by_name[name][0].split == wanted), order[0])
            order.remove(name)
            files = sorted({unit.path(file) for unit in by_name[name] for file in FILES if unit.has(file)})
            # Noise fills its ten of 16 bits; the compressor holds up to a MiB back.
            if raw.tell() + sum(path.stat().st_size for path in files) * 10 // 16 + 2**20 < room:
                chosen.append(name)
                for path in files:
                    tar.add(path, str(path.relative_to(folder)))
        units = [unit for name in chosen for unit in by_name[name]]
        key = sha256_json(sorted([unit.key, unit.files[unit.original_file]] for unit in units))
        manifest = read_json(folder / MANIFEST) | {"units": len(units), "data_key": key}
        listed = "".join(json.dumps(lines[unit.key]) + "\n" for unit in units)
        for file, text in ((UNITS, listed), (MANIFEST, json.dumps(manifest))):
            info = tarfile.TarInfo(file)
            info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()))
    if not {"train", "val"} <= {unit.split for unit in units}:
        sys.exit(f"{room / 2**20:.1f} MiB hold no sequence to train and one to validate on of {folder}")
    return len(chosen), len(units)


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def run(options: argparse.Namespace) -> int:
    """Take the jobs that are left, one after the other, within the time; returns the exit status."""
    deadline = time.monotonic() + 60 * options.minutes
    work, out = options.work.resolve(), options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    done = read_done(options.pack) | read_done(out)
    environment = prepare(options.pack, work)
    whole = True  # the chunk, of which nothing is used up yet
    for job in jobs(options, work):
        if done.get(job.name, {}).get("status") in ("done", *([] if options.jobs else ["failed"])):
            continue
        left = deadline - time.monotonic() - MARGIN
        if left <= 0:
            break
        done[job.name] = carry_out(job, environment, left, whole=whole)
        if job.run is not None:
            split_run(job.run, out)
        (out / "done.json").write_text(json.dumps(done, indent=2))
        whole = False
    statuses = set()
    for job in jobs(options, work):
        state = done.get(job.name, {"status": "to do"})
        statuses.add(state["status"])
        print(f"{state['status']:8} {job.name} {state.get('seconds', '')}")
    return 3 if statuses & {"to do", "goes on"} else 1 if "failed" in statuses else 0


def prepare(packed: Path, work: Path) -> dict[str, str]:
    """Install the wheels and unpack the store and the runs of the pack, where that is to be done; the environment."""
    site, store, wheels = work / "site", work / "store", sorted(packed.glob("wheels/*.whl"))
    if wheels and not site.exists():
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-compile"]
        subprocess.run([*pip, "--target", f"{site}.part", *map(str, wheels)], check=True)
        Path(f"{site}.part").rename(site)
    if (packed / "store.xz").exists() and not store.exists():
        with tarfile.open(packed / "store.xz") as tar:
            tar.extractall(f"{store}.part", filter="data")
        Path(f"{store}.part").rename(store)
    join_runs(packed, work / "runs", keep=True)
    path = os.pathsep.join(filter(None, [str(site), str(ROOT), os.environ.get("PYTHONPATH")]))
    tests = {"CODECNN_TEST_STORE": str(store)} if store.exists() else {}
    return os.environ | {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1"} | tests


def jobs(options: argparse.Namespace, work: Path) -> Iterator[Job]:
    """The jobs that are asked for, the short ones first."""
    runs = json.loads((options.pack / "runs.json").read_text())
    known, python = ["tests", "benchmarks", *runs], sys.executable
    names, sizes = options.jobs or known, SMALL if options.device == "cpu" else FULL
    if not set(names) <= set(known):
        sys.exit(f"{options.pack} has the jobs {', '.join(known)}, not all of {', '.join(names)}")
    if "tests" in names:
        marked = sorted(str(path) for path in (ROOT / "tests").rglob("test_*.py") if "mark.gpu" in path.read_text())
        # Versions of packages are the machine's own, and so is what they warn of.
        pytest = [python, "-m", "pytest", "-q", "-m", "gpu", "-W", "default", "-p", "no:cacheprovider"]
        yield Job("tests", (*pytest, *marked, *(["--collect-only"] if options.device == "cpu" else [])))
    if "benchmarks" in names:
        for name, words in BENCHMARKS.items():
            yield Job(name, (python, str(ROOT / "tools/benchmark.py"), *words.format(**sizes).split()))
    for name in [name for name in runs if name in names]:
        folder = work / "runs" / name
        words = [*runs[name], f"store={work / 'store'}", f"training.device={options.device}", "-o", str(folder)]
        resume = ["--resume"] if (folder / "checkpoint.pt").exists() else []
        yield Job(name, (python, "-m", "codecnn", "train", *words, *resume), folder)


def carry_out(job: Job, environment: dict[str, str], seconds: float, *, whole: bool) -> dict[str, Any]:
    """Run a job for so long at most; returns its status, time and last output.

    One that is cut off is tried again in the next chunk, unless it had a `whole` one and cannot go on from there.
    """
    print(f"\n{job.name}: {shlex.join(job.argv)}", flush=True)
    started = time.monotonic()
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    # In a group of its own, so that what it starts ends with it.
    process = subprocess.Popen(job.argv, cwd=ROOT, env=environment, start_new_session=True, **pipes)
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            output, _ = process.communicate(timeout=MARGIN / 2)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
    tail = output[-4000:]
    print(tail, flush=True)
    stopped = time.monotonic() - started >= seconds or process.returncode == 128 + signal.SIGTERM
    goes_on = stopped and (job.run is not None or not whole)
    status = "goes on" if goes_on else "done" if process.returncode == 0 else "failed"
    return {"status": status, "seconds": round(time.monotonic() - started, 1), "output": tail}


def split_run(folder: Path, out: Path) -> None:
    """The run's folder, without TensorBoard's events, as OUT/NAME.tar.0, NAME.tar.1, ...; nothing where none is yet."""
    for old in out.glob(f"{folder.name}.tar.*"):
        old.unlink()
    if not (folder / "checkpoint.pt").exists():
        return
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as tar:
        for path in sorted(folder.iterdir()):
            if not path.name.startswith("events."):
                tar.add(path, f"{folder.name}/{path.name}")
    for index, start in enumerate(range(0, whole.tell(), PART)):
        (out / f"{folder.name}.tar.{index}").write_bytes(whole.getbuffer()[start : start + PART])


def join_runs(folder: Path, runs: Path, *, keep: bool = False) -> None:
    """Unpack the runs whose parts lie in `folder` into `runs`; with `keep` those that are there stay as they are."""
    for first in sorted(folder.glob("*.tar.0")):
        name = first.name.removesuffix(".tar.0")
        if keep and (runs / name / "checkpoint.pt").exists():
            continue
        parts = sorted(folder.glob(f"{name}.tar.*"), key=lambda part: int(part.suffix[1:]))
        with tarfile.open(fileobj=io.BytesIO(b"".join(part.read_bytes() for part in parts))) as tar:
            tar.extractall(runs, filter="data")


def take(options: argparse.Namespace) -> None:
    """Put what a chunk brought back into the pack, its runs also into `runs`."""
    done = read_done(options.pack) | read_done(options.out)
    (options.pack / "done.json").write_text(json.dumps(done, indent=2))
    for first in options.out.glob("*.tar.0"):
        for old in options.pack.glob(f"{first.name[:-1]}*"):
            old.unlink()
        for part in options.out.glob(f"{first.name[:-1]}*"):
            shutil.copy(part, options.pack / part.name)
    join_runs(options.pack, options.runs)
    print(f"{options.pack}: {size_of(options.pack) / 2**20:.1f} MiB")


def read_done(folder: Path) -> dict[str, Any]:
    """What is done, by the name of the job."""
    return json.loads(path.read_text()) if (path := folder / "done.json").exists() else {}


def main(argv: Sequence[str]) -> int:
    """Pack, run or take."""
    parser = argparse.ArgumentParser(prog="gpu.py", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    packing = verbs.add_parser("pack")
    packing.add_argument("--store", type=Path, help="of which a part is packed")
    packing.add_argument("--train", nargs="+", action="append", default=[], metavar="NAME CONFIG KEY=VALUE")
    packing.add_argument("--mib", type=float, default=48, help="of the pack; a run that comes back needs room [48]")
    packing.add_argument("--python", default="3.12", help="of the machine [3.12]")
    packing.add_argument("--no-wheels", action="store_true", help="the machine lacks no package")
    running = verbs.add_parser("run")
    running.add_argument("jobs", nargs="*", help="tests, benchmarks, names of runs [all]")
    running.add_argument("--work", type=Path, default=Path("gpu_work"), help="folder for what is unpacked [gpu_work]")
    running.add_argument("--out", type=Path, required=True)
    running.add_argument("--minutes", type=float, default=9)
    running.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    taking = verbs.add_parser("take")
    taking.add_argument("out", type=Path, help="what came back")
    taking.add_argument("--runs", type=Path, default=Path("runs"))
    for verb in (packing, running, taking):
        verb.add_argument("-o" if verb is packing else "--pack", dest="pack", type=Path, default=Path("gpu_pack"))
    options = parser.parse_args(argv)
    return {"pack": pack, "run": run, "take": take}[options.verb](options) or 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main(sys.argv[1:]))
