"""Values that options of several functions take."""

from typing import Literal

Precision = Literal["float32", "bfloat16", "tf32"]
"""Precision of float networks; "tf32" is float32 with the faster products of GPUs."""

Decisions = Literal["none", "ctu", "full"]
"""Kinds of decisions: none, on/off flags and scales, or these and QP offsets."""

Tile = int | Literal["auto"] | None
"""Largest side of the tiles in luma samples; None is the picture in one piece, "auto" a side fast on the device."""

METRICS = ("psnr", "ssim", "ms_ssim", "xpsnr", "vmaf", "vmaf_neg")
"""Names of the quality metrics of videos."""
