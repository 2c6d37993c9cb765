"""Kill a build with SIGKILL at random moments, continue it, and compare the store with one that was left in peace.

    python tools/kills.py datasets/demo.yaml -n 100 -j 2 [KEY=VALUE ...]

Of every two kills one hits the whole process group and one the build alone, so that its encoders live on as orphans
that write while the next build runs. Exit 1 at the first store that differs; the seed is printed.
"""

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tqdm import tqdm

from codecnn.runs import sha256_file


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("-n", "--kills", type=int, default=100)
    parser.add_argument("-j", "--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        build = [sys.executable, "-m", "codecnn", "dataset", "build", str(options.recipe), *options.overrides]
        build += ["-j", str(options.jobs), "-o"]
        started = time.monotonic()
        subprocess.run([*build, f"{folder}/peace"], check=True, stdout=subprocess.DEVNULL)
        whole = time.monotonic() - started
        expected = _hashes(Path(folder) / "peace")
        print(f"seed {options.seed}; undisturbed: {len(expected)} files in {whole:.1f} s")
        units = []
        store = Path(folder) / "killed"
        for number in tqdm(range(options.kills), unit="kill"):
            while not _kill([*build, str(store)], rng.uniform(0, whole), alone=bool(number % 2)):
                shutil.rmtree(store)  # it was whole before the kill
            units.append(len(list(store.glob("coded/*/unit.json"))))
            subprocess.run([*build, str(store)], check=True, stdout=subprocess.DEVNULL)
            found = _hashes(store)
            if found != expected:
                changed = sorted(name for name in expected | found if expected.get(name) != found.get(name))
                print(f"kill {number}: the store differs in {', '.join(changed[:5])}")
                return 1
            shutil.rmtree(store)
    print(f"{options.kills} running builds killed, with {min(units)} to {max(units)} units done: all stores identical")
    return 0


def _kill(argv: list[str], after: float, *, alone: bool) -> bool:
    """Start `argv`, kill it `after` seconds; True if it was still running."""
    process = subprocess.Popen(argv, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(after)
    running = process.poll() is None
    with contextlib.suppress(ProcessLookupError):
        (os.kill if alone else os.killpg)(process.pid, signal.SIGKILL)
    process.wait()
    return running


def _hashes(folder: Path) -> dict[str, str]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): sha256_file(path) for path in files}


if __name__ == "__main__":
    sys.exit(main())
