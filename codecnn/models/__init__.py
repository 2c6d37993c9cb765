"""Networks: named planes in, filtered samples out.

networks     `create_model`, `list_models`, `describe_model`; `FilterNetwork` is what they are, `named_outputs` what
             they return by component; `ModeNetwork` and `ModeSketch`, made by `create_mode_network`, tell intra modes
weights      `load_model`, `load_mode_network`, `save_weights`, `Card`; those of the package: `list_weights`,
             `weights_path`, `zoo_cards`; from elsewhere: `convert_checkpoint`
cost         `complexity` (a `Complexity`), `peak_memory`, `full_cost`, `complexity_table`
to filter    `fold`, `prepare`, `pick_device`; `build_graph` for export and integers
to train     `load_partial` (a `TransferReport`), `grow`, `lift`, `revive`, `freeze`, `parameter_groups`;
             `QpModulation`, which training looks after
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
