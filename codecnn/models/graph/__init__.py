"""Networks as graphs of plain operations, for integer networks and exports.

`Graph` is a list of `Node`s, `Draft` builds one, and `run` computes it in real numbers. `onnx_model` and `Writer`
write a graph as ONNX and need the extra `export`; `mpv_shader` writes one as a shader for video players.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
