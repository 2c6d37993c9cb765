"""Which syntax elements a VVC stream uses: run as a program, with the parser in plain Python so that bins can be seen.

Prints JSON: context coded syntax element -> [bins, bins that are 1], over the streams that are named.
"""

# ruff: noqa: T201 - a program of the tests.

import bisect
import collections
import json
import sys
from pathlib import Path

from codecnn.vvc import cabac, contexts

FIRST = sorted((value, name.lower()) for name, value in vars(contexts).items() if isinstance(value, int))
counts: collections.defaultdict[str, list[int]] = collections.defaultdict(lambda: [0, 0])
decode_bin = cabac.decode_bin


def counted(work, context):
    value = decode_bin(work, context)
    one = counts[FIRST[bisect.bisect_right(FIRST, (context, "~")) - 1][1]]
    one[0] += 1
    one[1] += int(value)
    return value


# Before the modules that take the function by its name.
cabac.decode_bin = counted

from codecnn.vvc import coding_units, read_pictures  # noqa: E402

for name in sys.argv[1:]:
    for picture in read_pictures(Path(name).read_bytes()):
        coding_units(picture)
print(json.dumps(counts))
