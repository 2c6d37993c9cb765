"""Integer networks: filters that compute the same samples on every machine, with 8-bit or 16-bit weights.

A filter inside the coding loop must give identical samples in the encoder and in every decoder. Float sums depend on
the order of their terms; integer sums do not. docs/explanation/integers.md specifies the operations and the file
format.

Data flow, with the modules in the order of their use:

1. Float graph. `codecnn.models.build_graph` turns a trained network into a list of operations on real numbers.
   For 8 bits `grid.fuse` first merges additions into the convolutions before them.
2. Calibration. `conversion` runs the graph on decoded pictures of a store and records how large each tensor becomes.
3. Quantisation. For 16 bits `conversion.quantise` chooses power-of-two scales. For 8 bits `grid` gives each channel of
   each tensor a scale, `mixed_precision` chooses which tensors keep 12 or 13 bits instead of 8, and `eight_bits` rounds
   the weights so that the error on the calibration's pictures is small. `integer_network` runs steps 1 to 3.
   `aware.EightBitNetwork` instead trains the weights with the rounding in place.
4. Integer network. `network.IntegerNetwork` holds the operations with integer tensors, and proves on construction that
   no sum can overflow, whatever the picture.
5. Engines, which all compute the same samples. `reference` is plain NumPy, one operation after the other, to be read
   and compared with. `torch_engine` computes exact float convolutions with PyTorch; `passes` holds its compiled loops
   that round and saturate. `row_engine` computes 8-bit networks row by row: `row_front` writes the planes as rows,
   `row_plan` orders the operations and packs the weights, and `row_kernels` holds the compiled loops. `row_sums`,
   `row_pairs` and `row_finish` emit their vector instructions (AVX-512 VNNI, and AMX where the processor has it).
6. Use. `exact.ExactFilter` filters pictures with the fastest engine. `exact.save_integer` and `load_integer` write and
   read files with a card, which holds MD5s that every loading machine must reproduce. `onnx_file` exports ONNX.
   Models for the SADL library of VTM are exported from the float graph, by `codecnn.models.export_onnx`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
