"""Train, evaluate and analyse CNN in-loop filters for VVC, HEVC and AV1 on the coding error of real encoders.

The package offers the functions that most users need. Each is loaded on first use, so importing codecnn is fast and
loads PyTorch only for functions that need it.

Pictures     open_video, psnr, bd_rate, view
Data         build_dataset, open_dataset, read_blocks, label_blocks, predict_block_modes, load_table, correlate
Networks     create_model, list_models, load_model, load_filter, train, filter_file, evaluate, export
"""

import lazy_loader

__version__ = "0.3.0"

# The public names are listed in __init__.pyi, which type checkers read as well.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
