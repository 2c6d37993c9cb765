"""Program that counts the context coded syntax elements of VVC streams, with the parser in plain Python.

It prints JSON: for each syntax element, the number of bins and of bins that are 1 in all streams of the command line.
"""

# ruff: noqa: T201 - the program prints its result.

import bisect
import collections
import json
import sys
from pathlib import Path

from codecnn.vvc.syntax import cabac, contexts

FIRST_CONTEXTS = sorted((value, name.lower()) for name, value in vars(contexts).items() if isinstance(value, int))
counts: collections.defaultdict[str, list[int]] = collections.defaultdict(lambda: [0, 0])
decode_bin = cabac.decode_bin


def counting_decode_bin(work, context):
    """Decode a bin and count it for its syntax element."""
    value = decode_bin(work, context)
    element = FIRST_CONTEXTS[bisect.bisect_right(FIRST_CONTEXTS, (context, "~")) - 1][1]
    counts[element][0] += 1
    counts[element][1] += int(value)
    return value


# Replace the function before the import of the modules that import it by name.
cabac.decode_bin = counting_decode_bin

from codecnn.vvc.syntax import coding_units, read_pictures  # noqa: E402

for name in sys.argv[1:]:
    for picture in read_pictures(Path(name).read_bytes()):
        coding_units(picture)
print(json.dumps(counts))
