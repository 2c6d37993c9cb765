"""Decoder of VVC pictures on top of the parser `codecnn.vvc.syntax`.

`Decoder` decodes the pictures of a stream in decoding order and compares them with their hashes; `reconstruct`
reconstructs one parsed intra picture. Both give planes: the decoded picture, the picture before and between the in-loop
filters, prediction, residual, boundary strengths and motion. `codecnn.codec.read_pictures` reads them from a file.

Clauses and tables are those of H.266 version 3 (09/2023), which includes the range extensions of version 2. A docstring
names each of its clauses in a line, "Clause 8.5.2.5, Derivation process for zero motion vector merging candidates.", or
"Part of clause ..." if the function implements a part of it. A subclause "General" has the title of the clause that it
belongs to. `tools/clauses.py` lists the functions by clause in docs/explanation/decoder.md.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
