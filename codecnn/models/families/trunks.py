"""RDNs whose trunk works on quarter pictures, wider at the kMAC/pixel of the notebook's small RDN.

A trunk at half the height and width has four times the multiply-accumulates a sample to spend, and sees twice as far
with as many layers. Its channels are the four unshuffled sub-pictures of every plane, or their 2x2 DCT.
"""

from typing import Any

from codecnn.models.families.rdn import RDN
from codecnn.models.registry import register

_WIDE: dict[str, Any] = {"features": 64, "blocks": 4, "layers": 6, "growth": 26, "shuffle": 2, "conditioning": "film"}
_LIGHT: dict[str, Any] = {"features": 32, "blocks": 2, "layers": 3, "growth": 16, "shuffle": 2, "conditioning": "film"}


@register("quarter_unshuffle")
def quarter_unshuffle(**options: Any) -> RDN:
    """RDN on unshuffled sub-pictures, 64 features, 4 blocks of 6 layers, growth 26, FiLM by QP; 219 kMAC/pixel."""
    return RDN(**_WIDE | options)


@register("quarter_haar")
def quarter_haar(**options: Any) -> RDN:
    """RDN on the 2x2 DCT, 64 features, 4 blocks of 6 layers, growth 26, FiLM by QP; 219 kMAC/pixel."""
    return RDN(**_WIDE | {"transform": "haar"} | options)


@register("quarter_light")
def quarter_light(**options: Any) -> RDN:
    """RDN on the 2x2 DCT, 32 features, 2 blocks of 3 layers, growth 16, FiLM by QP; 17 kMAC/pixel."""
    return RDN(**_LIGHT | {"transform": "haar"} | options)
