"""Kill a build with SIGKILL at random moments, continue it, and compare the store with that of an undisturbed build.

    python tools/kills.py datasets/demo.yaml -n 100 -j 2 [KEY=VALUE ...]

Kills alternate between the whole process group and the build process alone, whose encoders then continue as orphans and
write while the next build runs. The exit status is 1 at the first store that differs; the seed is printed.
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
    """Run the kills; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=Path, help="recipe of the store")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="values that replace those of the recipe")
    parser.add_argument("-n", "--kills", type=int, default=100, help="number of kills [100]")
    parser.add_argument("-j", "--jobs", type=int, default=2, help="encoders at a time [2]")
    parser.add_argument("--seed", type=int, default=0, help="seed of the moments [0]")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        build = [sys.executable, "-m", "codecnn", "dataset", "build", str(options.recipe), *options.overrides]
        build += ["-j", str(options.jobs), "-o"]
        started = time.monotonic()
        subprocess.run([*build, f"{folder}/undisturbed"], check=True, stdout=subprocess.DEVNULL)
        duration = time.monotonic() - started
        expected = _hashes(Path(folder) / "undisturbed")
        print(f"seed {options.seed}; undisturbed: {len(expected)} files in {duration:.1f} s")
        units = []
        store = Path(folder) / "killed"
        for number in tqdm(range(options.kills), unit="kill"):
            while not _start_and_kill([*build, str(store)], rng.uniform(0, duration), group=number % 2 == 0):
                shutil.rmtree(store)  # the build had ended before the kill
            units.append(len(list(store.glob("coded/*/unit.json"))))
            subprocess.run([*build, str(store)], check=True, stdout=subprocess.DEVNULL)
            actual = _hashes(store)
            if actual != expected:
                changed = sorted(name for name in expected | actual if expected.get(name) != actual.get(name))
                print(f"kill {number}: the store differs in {', '.join(changed[:5])}")
                return 1
            shutil.rmtree(store)
    print(f"{options.kills} running builds killed, with {min(units)} to {max(units)} units done: all stores identical")
    return 0


def _start_and_kill(argv: list[str], after: float, *, group: bool) -> bool:
    """Start a command and kill it, or its process group, after some seconds; return whether it was still running."""
    process = subprocess.Popen(argv, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(after)
    running = process.poll() is None
    with contextlib.suppress(ProcessLookupError):
        (os.killpg if group else os.kill)(process.pid, signal.SIGKILL)
    process.wait()
    return running


def _hashes(folder: Path) -> dict[str, str]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): sha256_file(path) for path in files}


if __name__ == "__main__":
    sys.exit(main())
