"""Time and memory of `codecnn correlate` on a long table, with and without the bootstrap.

The table contains CTUs of pictures at four QPs in the order of a store, with all columns that the analysis uses. A
separate process writes it, since Linux starts the memory peak of a process with that of its parent.
"""

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tools.bench._common import Row, make_parser, row

QPS = (22, 27, 32, 37)
CTUS = 135
"""CTUs of 128x128 in a 1920x1080 picture."""


def main(argv: list[str]) -> list[Row]:
    """Measure, print, and return the rows."""
    parser = make_parser("correlate", __doc__)
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of the table [10 million]")
    parser.add_argument("--resamples", default="0,1000", help="bootstrap resamples, a run for each [0,1000]")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(argv)
    result = measure(options)
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        print(f"{options.rows} rows, {result['file_mib']:.0f} MiB of Parquet, load {result['load']:.1f}")
        for run in result["runs"]:
            print(
                f"{run['resamples']:5} resamples {run['seconds']:7.1f} s, CPU {run['cpu_seconds']:7.1f} s, "
                f"peak {run['peak_mib']:.0f} MiB"
            )
    return [
        row(f"correlation of {options.rows:,} CTUs, {run['resamples']} resamples: {kind}", unit, [run[key]])
        for run in result["runs"]
        for kind, unit, key in (("time", "s", "seconds"), ("memory", "MiB", "peak_mib"))
    ]


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure seconds and MiB of the command for each number of resamples."""
    result: dict[str, Any] = {"rows": options.rows, "load": os.getloadavg()[0], "runs": []}
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "ctus.parquet"
        writer = multiprocessing.get_context("spawn").Process(target=write_table, args=(table, options.rows))
        writer.start()
        writer.join()
        if writer.exitcode:
            sys.exit(f"the process that writes the table failed with status {writer.exitcode}")
        result["file_mib"] = table.stat().st_size / 2**20
        for resamples in options.resamples.split(","):
            result["runs"].append({"resamples": int(resamples)} | _run(table, Path(folder) / "out", resamples))
    return result


def write_table(path: Path, rows: int) -> None:
    """Write a table of `rows` CTUs in row groups of one million."""
    rng = np.random.default_rng(0)
    schema = None
    writer = None
    for start in range(0, rows, 1_000_000):
        index = np.arange(start, min(rows, start + 1_000_000))
        n = len(index)
        unit = index // CTUS
        qp = np.array(QPS)[unit % len(QPS)]
        content = np.sin(unit // len(QPS))
        depth = np.clip(5 + content - 0.06 * qp + rng.normal(0, 1.2, n), 0, 8)
        mse = np.exp(0.13 * qp + 0.7 * depth + content + rng.normal(0, 0.5, n) - 2)
        columns = {
            "sequence": pa.array(np.char.add("picture", (unit // len(QPS)).astype(str))),
            "poc": np.zeros(n, np.int32),
            "qp": qp.astype(np.int32),
            "mse_y": mse,
            "psnr_y": 10 * np.log10(1020**2 / mse),
            "mse_y_filtered": mse * (1 - 0.01 * rng.random(n) * depth),
            "depth_mean": depth,
            "depth_max": np.ceil(depth),
            "variance": np.exp(depth + rng.normal(0, 1, n)),
        }
        table = pa.table(columns)
        schema = schema or table.schema
        writer = writer or pq.ParquetWriter(path, schema)
        writer.write_table(table)
    writer.close()


def _run(table: Path, output: Path, resamples: str) -> dict[str, float]:
    """Measure seconds and peak memory of the command, its start included."""
    command = [sys.executable, "-m", "codecnn", "correlate", str(table), "-o", str(output), "--resamples", resamples]
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    if status:
        sys.exit(f"codecnn correlate failed with status {status}")
    kib = 1 if sys.platform != "darwin" else 1024
    return {
        "seconds": seconds,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "peak_mib": usage.ru_maxrss / (1024 * kib),
    }
