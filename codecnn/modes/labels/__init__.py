"""Labels: the best intra mode of every block of pictures, as a table with one row per block.

- `label_blocks` labels videos, still pictures or a store; `label_settings` and `LabelSettings` choose blocks and costs.
- `predict_block_modes` predicts modes with networks instead, `likeliest_modes` with one network for given blocks.
- `file_inputs`, `store_inputs` and `read_inputs` read the pictures; `label_pictures` and `write_labels` label them.
- `compare_costs` compares Hadamard with DCT costs, `encoder_agreement` the modes of an encoder with both.

Modules: `table` (settings, ranking, Parquet table), `labelling` (inputs, several machines), `predicting` (networks),
`statistics`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
