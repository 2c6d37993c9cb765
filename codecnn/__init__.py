"""Train, evaluate and understand CNN in-loop filters for VVC and HEVC, on data from the real encoders.

What a researcher needs stands here; a room is loaded when one of its names is first used, torch by those that need it.

Pictures     open_video, psnr, bd_rate, view
Data         build_dataset, open_dataset, read_blocks, label_blocks, predict_block_modes, load_table, correlate
Networks     create_model, list_models, load_model, load_filter, train, evaluate, export
"""

import lazy_loader

__version__ = "0.2.0"

# The names and their homes are those of __init__.pyi, which type checkers read as well.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
