"""Train, evaluate and analyse CNN in-loop filters for VVC, HEVC, AV1 and AVC on the coding error of real encoders.

The package offers the functions that most users need. Each is loaded on first use, so importing codecnn is fast and
loads PyTorch only for functions that need it.

Pictures     open_video, measure, psnr, bd_rate, view
Data         plan_dataset, build_dataset, open_dataset, patch_loader, picture_loader, load_table, correlate
Streams      read_pictures, read_blocks, write_filter, evaluate_in_loop
Networks     create_model, list_models, list_weights, load_model, load_filter, filter_luma
Work         train, filter, evaluate, export
Intra modes  label_blocks, predict_block_modes, predict_modes, satd, forward_transform

Every error that codecnn raises on purpose is a `CodecnnError`.
"""

from typing import Any

import lazy_loader

__version__ = "0.4.0"

# The public names are listed in __init__.pyi, which type checkers read as well.
_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    """Load a public name on first use; one of a part that is absent raises ToolMissingError."""
    try:
        return _load(name)
    except ModuleNotFoundError as error:
        from codecnn.base import errors, parts

        absent = str(error.name).removeprefix("codecnn.")
        if absent not in parts.absent_parts():
            raise
        raise errors.ToolMissingError(parts.missing_part(absent, f"codecnn.{name}")) from None
