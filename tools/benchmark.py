"""Compare the speed of codecnn with named peers on this machine: python tools/benchmark.py NAME [options].

Each public module of tools/bench is a benchmark; its main(argv) prints figures and returns the rows of a table, which
`--table FILE` writes as JSON. `all` runs a fixed list of benchmarks and writes docs/reference/benchmark.md.
"""

import argparse
import importlib
import json
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent


def main(argv: list[str]) -> None:
    """Run the benchmark that the first argument names, or list the names."""
    names = ["all", *sorted(path.stem for path in (FOLDER / "bench").glob("[!_]*.py"))]
    if not argv or argv[0] not in names:
        sys.exit(f"usage: python tools/benchmark.py {{{','.join(names)}}} [options]")
    sys.path.insert(0, str(FOLDER.parent))
    if argv[0] == "all":
        importlib.import_module("tools.bench._report").main(argv[1:])
        return
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--table", type=Path)
    options, rest = parser.parse_known_args(argv[1:])
    rows = importlib.import_module(f"tools.bench.{argv[0]}").main(rest)
    if options.table is not None:
        options.table.write_text(json.dumps(rows))


if __name__ == "__main__":
    main(sys.argv[1:])
