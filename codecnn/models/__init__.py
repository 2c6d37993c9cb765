"""Filter networks, their weights, their cost, and how they start from other weights.

A filter network takes named planes and returns filtered samples (`FilterNetwork`, `named_outputs`).

- Architectures: `create_model`, `list_models`, `describe_model`; `register` adds one, `as_filter_network` converts a
  module; sets of input planes have names, `PLANE_SETS`.
- Weights: `load_model`, `save_weights`, `Card`, `read_card`; shipped ones by name: `list_weights`, `weights_path`,
  `zoo_cards`; `write_shared` writes a folder to share; a checkpoint of PyTorch becomes a weights file with
  `convert_checkpoint`.
- Networks of parts: `load_network` and `write_network` read and write weights of any task.
- Cost: `complexity`, `peak_memory`, `full_cost`, `complexity_table`.
- Inference and export: `fold`, `prepare`, `pick_device`, `build_graph`, `export_onnx`.
- Training: `load_partial`, `grow`, `lift`, `revive`, `freeze`, `parameter_groups`.

Graphs of operations, which integer networks and exports use, are in `codecnn.models.graph`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
