"""Decode VVC conformance streams, and compare their pictures with listed MD5s and with the hashes in the streams.

The MD5 of all decoded pictures of STREAM.266 stands in STREAM.md5 or in md5.txt beside it, in the form of md5sum. Such
a folder is a copy of https://github.com/ffvvc/tests, or tests/data/vvc. The exit status is 1 if any stream differs.
Small streams are decoded first. With -o the table is a file, and streams that it has are not decoded again.

python tools/conformance.py ffvvc_tests/conformance -o conformance.md
"""

import argparse
import contextlib
import hashlib
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from codecnn.base.errors import CodecnnError, UnsupportedError
from codecnn.codec import decode_pictures, read_output_pictures

HEAD = """\
| stream | pictures | equal to their hash | different | MD5 of all |
|---|---:|---:|---:|---|
"""
SUFFIXES = (".bit", ".266", ".vvc", ".bin", ".ts")


class Decoded(NamedTuple):
    """MD5 and verified hashes of a decoded stream.

    Attributes:
        md5: MD5 of all its pictures in output order, without the margin of the conformance window.
        hashes: Number of pictures by `DecodedPicture.hash`: ok, differs or none.
    """

    md5: str
    hashes: Counter[str]


def streams_in(folder: Path) -> list[Path]:
    """Return the streams in a folder and its subfolders, small ones first."""
    paths = (path for path in folder.rglob("*") if path.suffix in SUFFIXES)
    return sorted(paths, key=lambda path: (path.stat().st_size, path))


def listed_md5(stream: Path) -> str | None:
    """Return the MD5 that stands beside a stream, or None."""
    own, listing = stream.with_suffix(".md5"), stream.with_name("md5.txt")
    if own.is_file():
        return own.read_text().split()[0]
    if listing.is_file():
        for line in listing.read_text().splitlines():
            digest, _, name = line.partition("  ")
            if name == stream.name:
                return digest
    return None


def decode(stream: Path) -> Decoded:
    """Decode all pictures of a stream."""
    first = read_output_pictures(stream)[0].sps
    planes = [f"rec_{letter}" for letter in ("yuv" if first.sps_chroma_format_idc else "y")]
    digest, hashes = hashlib.md5(), Counter[str]()
    for picture in decode_pictures(stream, planes):
        hashes[picture.hash] += 1
        for plane in picture.planes.values():
            digest.update(plane.astype(np.uint8 if picture.bit_depth == 8 else "<u2").tobytes())
    return Decoded(digest.hexdigest(), hashes)


def row(stream: Path, name: str) -> str:
    """Decode a stream and return its row of the table."""
    counts = "- | - | -"
    try:
        decoded = decode(stream)
        counts = f"{decoded.hashes.total()} | {decoded.hashes['ok']} | {decoded.hashes['differs']}"
        expected = listed_md5(stream)
        result = "not listed" if expected is None else "equal" if decoded.md5 == expected else "differs"
    except UnsupportedError as error:
        result = f"refused: {error}"
    except CodecnnError as error:
        result = f"error: {error}"
    return f"| {name} | {counts} | {result} |\n"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder with streams")
    parser.add_argument("-o", dest="table", type=Path, help="file of the table (default: standard output)")
    arguments = parser.parse_args(argv)
    rows: dict[str, str] = {}
    if arguments.table is not None and arguments.table.is_file():
        lines = arguments.table.read_text().splitlines(keepends=True)
        rows = {line.split(" | ")[0].removeprefix("| "): line for line in lines[2:] if line.endswith(" |\n")}
    with contextlib.ExitStack() as stack:
        file = sys.stdout if arguments.table is None else stack.enter_context(arguments.table.open("w"))
        print(HEAD, *rows.values(), sep="", end="", file=file, flush=True)
        for stream in streams_in(arguments.folder):
            name = str(stream.relative_to(arguments.folder))
            if name not in rows:
                rows[name] = row(stream, name)
                print(rows[name], end="", file=file, flush=True)
    results = Counter(line.split(" | ")[-1].split(":")[0].removesuffix(" |\n") for line in rows.values())
    print("\nStreams:", ", ".join(f"{count} {result}" for result, count in sorted(results.items())) or "none")
    return 1 if not results or results["differs"] or results["error"] else 0


if __name__ == "__main__":
    sys.exit(main())
