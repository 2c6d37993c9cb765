"""Speed against peers, measured on this machine: python tools/benchmark.py NAME [options], --help for the options.

Each module of tools/bench is a benchmark of that name; its main(argv) does it all.
"""

import importlib
import sys
from pathlib import Path


def main(argv: list[str]) -> None:
    """Run the benchmark that the first word names, or list them."""
    names = sorted(path.stem for path in (Path(__file__).parent / "bench").glob("[!_]*.py"))
    if not argv or argv[0] not in names:
        sys.exit(f"usage: python tools/benchmark.py {{{','.join(names)}}} [options]")
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    importlib.import_module(f"tools.bench.{argv[0]}").main(argv[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
