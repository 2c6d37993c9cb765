"""Bitstreams of ISO/IEC 15938-17, for updates that other decoders read, coded by `nncodec`.

`nncodec` requires another NumPy than codecnn, so it runs in a Python of its own, which `CODECNN_NNCODEC` names.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from codecnn.base.errors import CodecnnError, ConfigError
from codecnn.base.leftovers import temporary_folder
from codecnn.signalling.nnpf.carriage import coded_update_characteristics
from codecnn.signalling.nnpf.messages import Characteristics
from codecnn.signalling.nnpf.onnx_layout import UPDATE_TENSORS

if TYPE_CHECKING:
    from codecnn.signalling.updates import LastLayer, Update

CODER_VARIABLE = "CODECNN_NNCODEC"
"""Environment variable with the Python program that can import `nncodec`."""

_SCRIPT = """
import sys
import numpy as np
from nncodec.nn import decode, encode

tensors, output = dict(np.load(sys.argv[1])), sys.argv[2]
qps = {name: int(qp) for name, qp in zip(tensors, sys.argv[3:])}
options = {"qp": min(qps.values()), "qp_per_tensor": qps, "qp_density": 2, "use_dq": False, "verbose": False,
           "results": sys.argv[2] + ".folder"}
content = bytes(encode(dict(tensors), options))
with open(output, "wb") as file:
    file.write(content)
decoded = decode(output, options)
same = decoded.keys() == tensors.keys() and all(np.array_equal(decoded[name], tensors[name]) for name in tensors)
sys.exit(0 if same else "nncodec decodes other values than it was given")
"""
"""Encodes tensors, and decodes them to see that their values survive. With density 2 a QP of -4·n is a step of 2^-n."""


def onnx_update_characteristics(update: "Update", layers: "Sequence[LastLayer]", number: int) -> Characteristics:
    """Return the message that updates the filter `number`, an adaptable ONNX file, as other decoders read it.

    Args:
        update: The update, of weights in float.
        layers: The last layers of the network.
        number: nnpfc_id.

    Raises:
        ConfigError: No program that runs `nncodec` is named.
        CodecnnError: It failed.
    """
    from codecnn.signalling.updates import real_change

    tensors, fractions = {}, {}
    for layer, part in zip(layers, update.parts, strict=True):
        if part is not None:
            name = UPDATE_TENSORS[layer.output]
            tensors[name], fractions[name] = real_change(layer, part).astype(np.float32), part.fraction
    return coded_update_characteristics(encode_tensors(tensors, fractions), number)


def encode_tensors(tensors: Mapping[str, npt.NDArray[np.float32]], fractions: Mapping[str, int]) -> bytes:
    """Code tensors as a bitstream of ISO/IEC 15938-17.

    Args:
        tensors: Tensors of two dimensions by name.
        fractions: Of each tensor, n if its values are multiples of 2^-n.

    Returns:
        The bitstream, which decodes to exactly these values.

    Raises:
        ConfigError: No program is named, or it does not exist.
        CodecnnError: The program failed.
    """
    program = os.environ.get(CODER_VARIABLE)
    if not program:
        raise ConfigError(
            "an update for other decoders is coded by nncodec, which needs a Python environment of its own: run "
            f"python3 -m venv nnc and nnc/bin/pip install nncodec, then set {CODER_VARIABLE}=nnc/bin/python"
        )
    with temporary_folder("nnc") as folder:
        entry, output = Path(folder) / "tensors.npz", Path(folder) / "update.nnc"
        Path(f"{output}.folder").mkdir()
        arrays: dict[str, Any] = {name: np.asarray(tensor, np.float32) for name, tensor in tensors.items()}
        np.savez(entry, **arrays)
        qps = [str(-4 * fractions[name]) for name in tensors]
        argv = [program, "-c", _SCRIPT, str(entry), str(output), *qps]
        try:
            result = subprocess.run(argv, capture_output=True, text=True, check=False)
        except OSError as error:
            raise ConfigError(f"{CODER_VARIABLE} names {program}, which cannot be run: {error.strerror}") from error
        if result.returncode:
            reason = (result.stderr.strip().splitlines() or ["no message"])[-1]
            raise CodecnnError(f"nncodec failed in {program}: {reason[:300]}")
        return output.read_bytes()
