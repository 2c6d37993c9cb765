"""The notebook's table again: its three networks and what it changed about them, each trained on the same patches.

    python tools/notebook.py --store stores/zoo --test stores/zoo_test -o runs/notebook steps=20000

The notebook claims 0.15, 0.20 and 0.08 dB for the three over finished VVC pictures and nothing without the global
residual; of its other changes no figures are known. A variant that is done is not run again, one that was
interrupted goes on from its checkpoint; table.md is written anew after each.
"""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools import variants

BIG: dict[str, Any] = {"features": 32, "blocks": 4, "layers": 6, "growth": 24}
NOTEBOOK: dict[str, variants.Variant] = {
    "RDN(32, 3, 6, 16)": ("rdn_32_3_6_16", {}),
    "RDN(32, 4, 6, 24)": ("rdn_32_4_6_24", {}),
    "RDN(64, 4, 6, 24), down and up": ("rdn_64_4_6_24_shuffle", {}),
    "RDN(32, 4, 6, 24) without global residual": ("rdn", BIG | {"global_residual": False}),
    "RDN(32, 4, 6, 24) without local residual": ("rdn", BIG | {"local_residual": False}),
    "RDN(32, 4, 6, 24), picture instead of residual": ("rdn", BIG | {"output": "picture"}),
    "RDN(32, 4, 6, 24), one 5x5 head": ("rdn", BIG | {"head": "5x5"}),
    "RDN(64, 4, 6, 24), transposed convolution up": ("rdn_64_4_6_24_shuffle", {"upsampling": "transposed"}),
}
CLAIMS = {
    "RDN(32, 3, 6, 16)": "+0.15",
    "RDN(32, 4, 6, 24)": "+0.20",
    "RDN(64, 4, 6, 24), down and up": "+0.08",
    "RDN(32, 4, 6, 24) without global residual": "0",
}

if __name__ == "__main__":
    variants.main(sys.argv[1:], {"notebook": NOTEBOOK}, CLAIMS, __doc__)
