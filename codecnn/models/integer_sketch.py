"""The sketch of the search in integers: the same modes on every machine; see docs/integer/modes.md.

`sketch_logits` computes in float64, in which all its sums are exact; `sketch_reference` is the page in plain NumPy.
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from codecnn.errors import ConfigError, MissingFileError, ModelError
from codecnn.models.card import CARD_SCHEMA, Card, card_path, check_described, read_card
from codecnn.models.families.mode_sketch import FLAT, ModeSketch
from codecnn.planes import MAX_QP, QP_SCALE
from codecnn.runs import atomic_path, sha256_file, write_json

TASK = "integer_modes"
MIN_BIT_DEPTH, BIT_DEPTH = 8, 12
"""Bits of the samples: what labels and costs take at most."""
LARGEST = 2**15 - 1
INT32_MAX = 2**31 - 1
RATIO_BITS, LOG_BITS = 11, 9
"""Fractional bits of an excess over the mean one, which saturates at 16, and of the mean's binary logarithm."""
TABLE_BITS = 8
MAX_LOG = 39 << LOG_BITS
"""The sum of the excesses is below 2^39."""
CHECK_BLOCKS, CHECK_QPS = 32, (22, 37)

Ints = NDArray[np.int64]
Tensors = Mapping[str, NDArray[Any]]
_TYPES: dict[str, type[np.generic]] = dict.fromkeys(
    ("patterns", "predictors", "weight", "logarithm", "hidden", "hidden_log", "tail"), np.int16
) | {"offset": np.int32, "bias": np.int32}
_VALUES = {"residual_shift": 31, "flat": INT32_MAX, "hidden_shift": 31, "sharpness": LARGEST, "logit_bits": 31}
"""Numbers of a network, and the largest that each may be."""


@dataclass(frozen=True)
class IntegerSketch:
    """A mode network of 16-bit integers for blocks of one size, proven to need sums of 32 bits.

    tensors  patterns (s², k), predictors (4s+1, k, modes), weight (k, modes), logarithm (256,), hidden (h, modes),
             hidden_log (h,), offset (64, h), tail (modes, h), bias (modes,)
    values   those of docs/integer/modes.md

    Raises ModelError that names what does not fit, and the sum that could overflow.
    """

    tensors: Tensors
    values: Mapping[str, int]

    def __post_init__(self) -> None:
        for name, kind in _TYPES.items():
            if name not in self.tensors or self.tensors[name].dtype != kind:
                raise ModelError(f"it has no {name} of type {np.dtype(kind)}")
        for name, most in _VALUES.items():
            if type(value := self.values.get(name)) is not int or not 0 <= value <= most:
                raise ModelError(f"it has {name} {str(value)[:30]}, not 0 to {most}")
        if self.tensors["predictors"].ndim != 3 or self.tensors["hidden"].ndim != 2 or self.values["flat"] < 1:
            raise ModelError("it has predictors or hidden features that are none, or nothing for flat blocks")
        length, coefficients, modes = self.tensors["predictors"].shape
        side, hidden = length // 4, len(self.tensors["hidden"])
        shapes = {
            "patterns": (side**2, coefficients),
            "predictors": (4 * side + 1, coefficients, modes),
            "weight": (coefficients, modes),
            "logarithm": (1 << TABLE_BITS,),
            "hidden": (hidden, modes),
            "hidden_log": (hidden,),
            "offset": (MAX_QP + 1, hidden),
            "tail": (modes, hidden),
            "bias": (modes,),
        }
        for name, shape in shapes.items():
            if self.tensors[name].shape != shape or not 0 < modes <= 1 << 7:
                raise ModelError(f"it has {name} of shape {self.tensors[name].shape}, not {shape}")
        if not 0 <= int(self.tensors["logarithm"].min()) <= int(self.tensors["logarithm"].max()) <= 1 << LOG_BITS:
            raise ModelError("its logarithms are not from 0 to 1")
        for name, widest in zip(("residual", "excess", "hidden", "logit"), _widest(self), strict=True):
            if widest > INT32_MAX:
                raise ModelError(f"a sum on the way to its {name} can reach {widest}, beyond 32 bits")

    @property
    def modes(self) -> int:
        """How many modes it tells."""
        return int(self.tensors["predictors"].shape[2])

    @property
    def side(self) -> int:
        """The side of its blocks."""
        return int(self.tensors["predictors"].shape[0]) // 4

    @property
    def block_sizes(self) -> tuple[tuple[int, int], ...]:
        """(width, height) of the blocks that it tells modes of."""
        return ((self.side, self.side),)


def _widest(network: IntegerSketch) -> tuple[int, ...]:
    """The largest magnitudes of the sums, rounding included, whatever the samples and in whatever order they add."""
    of = {name: tensor.astype(np.int64) for name, tensor in network.tensors.items()}
    size = np.abs(of["predictors"]).sum(0) + np.abs(of["patterns"]).sum(0)[:, None]
    residual = int(size.max()) * ((1 << BIT_DEPTH) - 1) + _half(network.values["residual_shift"] + BIT_DEPTH - 8)
    above, below = (np.clip(sign * of["weight"], 0, None).sum(0).max() * LARGEST for sign in (1, -1))
    hidden = np.abs(of["hidden"]).sum(1) * LARGEST + np.abs(of["hidden_log"]) * MAX_LOG
    hidden = hidden + np.abs(of["offset"]).max(0) + _half(network.values["hidden_shift"])
    logit = (np.abs(of["tail"]).sum(1) + network.values["sharpness"]) * LARGEST + np.abs(of["bias"])
    return residual, int(above + below), int(hidden.max()), int(logit.max())


def quantise_sketch(model: ModeSketch) -> IntegerSketch:
    """The integers of a network in float: of every layer the finest with which its weights fit into 16 bits and its
    sums into 32. Raises ModelError for weights that no scale fits."""
    real = {name: tensor.detach().double().numpy() for name, tensor in model.state_dict().items()}
    modes, length = model.options["modes"], 4 * model.options["side"] + 1
    predictors = real["predictors"].reshape(length, -1, modes)
    # In float the mean of the references is taken from all samples, here the corner: its mean goes into the weights.
    predictors = predictors + (real["patterns"].sum(0)[:, None] - predictors.sum(0)) / length
    told = real["hidden.weight"]

    size = (np.abs(predictors).sum(0) + np.abs(real["patterns"]).sum(0)[:, None]).max() * (1 << BIT_DEPTH)
    # Coefficients saturate where the block's mean is half the range of the samples off.
    residual_bits = 6 - int(math.log2(model.options["side"]))
    fine = _finest(max(np.abs(predictors).max(), np.abs(real["patterns"]).max()), size)
    weight = _finest(np.abs(real["weight"]).max(), np.abs(real["weight"]).sum(0).max() * LARGEST * 2)
    excess_bits = 10 + residual_bits + weight
    by_qp = real["hidden.bias"] + np.arange(MAX_QP + 1)[:, None] / QP_SCALE * told[:, modes]
    by_log = told[:, modes + 1] / 10
    by_qp = by_qp - (math.log2(modes) + excess_bits) * by_log
    sums = (
        np.abs(told[:, :modes]).sum(1) * LARGEST + np.abs(by_log) * 4 * MAX_LOG + np.abs(by_qp).max(0) * 2**RATIO_BITS
    )
    hidden = _finest(max(np.abs(told[:, :modes]).max(), 4 * np.abs(by_log).max()), sums.max())
    # The excesses over their mean add up to the number of modes, so that no feature is larger than this.
    largest = modes * np.clip(told[:, :modes], 0, None).max(1) + np.abs(by_qp).max(0) + np.abs(by_log) * MAX_LOG / 512
    feature = math.floor(math.log2(LARGEST / largest.max()))
    sharpness = float(real["sharpness"])
    sums = np.abs(real["tail.weight"]).sum(1) * LARGEST + np.abs(real["tail.bias"]) * 2**feature
    sums = sums + abs(sharpness) * LARGEST * 2.0 ** (feature - RATIO_BITS)
    tail = _finest(max(np.abs(real["tail.weight"]).max(), abs(sharpness) * 2.0 ** (feature - RATIO_BITS)), sums.max())

    def scaled(values: NDArray[Any], bits: int, kind: type[np.generic] = np.int16) -> NDArray[Any]:
        return np.rint(values * 2.0**bits).astype(kind)

    places = np.arange(1 << TABLE_BITS) + 0.5
    return IntegerSketch(
        {
            "patterns": scaled(real["patterns"], fine),
            "predictors": scaled(predictors, fine),
            "weight": scaled(real["weight"], weight),
            "logarithm": scaled(np.log2(1 + places / (1 << TABLE_BITS)), LOG_BITS),
            "hidden": scaled(told[:, :modes], hidden),
            "hidden_log": scaled(by_log, hidden + RATIO_BITS - LOG_BITS),
            "offset": scaled(by_qp, hidden + RATIO_BITS, np.int32),
            "tail": scaled(real["tail.weight"], tail),
            "bias": scaled(real["tail.bias"], tail + feature, np.int32),
        },
        {
            "residual_shift": fine - residual_bits - 2,
            "flat": max(1, round(modes * FLAT * 2.0**excess_bits)),
            "hidden_shift": hidden + RATIO_BITS - feature,
            "sharpness": round(sharpness * 2.0 ** (tail + feature - RATIO_BITS)),
            "logit_bits": tail + feature,
        },
    )


def _finest(largest: float, sums: float) -> int:
    """Most fractional bits with which the largest weight fits into 16 bits and the largest sum into 31."""
    # A sum of rounded weights may be a little above that of the weights, and rounding adds a half.
    bits = min(math.log2(LARGEST / largest), math.log2(0.98 * INT32_MAX / sums)) if largest > 0 else 0.0
    if not math.isfinite(bits):
        raise ModelError("the network's weights are not finite numbers")
    return math.floor(bits)


def sketch_reference(network: IntegerSketch, line: NDArray[Any], block: NDArray[Any], bit_depth: int, qp: int) -> Ints:
    """Logits (n, modes) of reference lines (n, 4s+1) and blocks (n, s, s) of one picture, by docs/integer/modes.md."""
    _check(network, block, bit_depth)
    of = {name: tensor.astype(np.int64) for name, tensor in network.tensors.items()}
    modes, values = network.modes, network.values
    corner = line[:, 2 * network.side, None].astype(np.int64)
    x, y = line - corner, block.reshape(len(block), -1) - corner
    residual = np.einsum("ni,ikm->nkm", x, of["predictors"]) - (y @ of["patterns"])[:, :, None]
    size = np.minimum(_rounded(np.abs(residual), values["residual_shift"] + bit_depth - 8), LARGEST)
    estimate = np.einsum("nkm,km->nm", size, of["weight"])
    excess = estimate - estimate.min(1, keepdims=True)
    total = excess.sum(1) + values["flat"]
    ratio = np.minimum((excess * modes << RATIO_BITS) // total[:, None], LARGEST)
    power = np.array([int(value).bit_length() - 1 for value in total])
    place = (total << TABLE_BITS >> power) - (1 << TABLE_BITS)
    logarithm = (power << LOG_BITS) + of["logarithm"][place]
    sums = ratio @ of["hidden"].T + logarithm[:, None] * of["hidden_log"] + of["offset"][qp]
    hidden = np.clip(_rounded(sums, values["hidden_shift"]), 0, LARGEST)
    logits: Ints = hidden @ of["tail"].T + of["bias"] - values["sharpness"] * ratio
    return logits


def sketch_logits(
    network: IntegerSketch, line: NDArray[Any], block: NDArray[Any], bit_depth: int, qp: int, chunk: int = 128
) -> torch.Tensor:
    """What `sketch_reference` gives, float64 (n, modes), in a fraction of the time: `chunk` blocks at once."""
    _check(network, block, bit_depth)
    of = {name: torch.from_numpy(tensor.astype(np.float64)) for name, tensor in network.tensors.items()}
    predictors = of["predictors"].flatten(1)
    corner = line[:, 2 * network.side, None]
    x = torch.from_numpy((line - corner).astype(np.float64))
    y = torch.from_numpy((block.reshape(len(block), -1) - corner).astype(np.float64))
    parts = [
        _of_chunk(network, of, predictors, x[start : start + chunk], y[start : start + chunk], bit_depth, qp)
        for start in range(0, len(line), chunk)
    ]
    return torch.cat(parts) if parts else torch.empty(0, network.modes, dtype=torch.float64)


def _of_chunk(
    network: IntegerSketch,
    of: Mapping[str, torch.Tensor],
    predictors: torch.Tensor,
    x: torch.Tensor,
    y: torch.Tensor,
    bit_depth: int,
    qp: int,
) -> torch.Tensor:
    """Logits of a chunk of blocks. All numbers are integers below 2^53, quotients of two further from the next integer
    than float64 rounds, and halves of shifts exact."""
    values = network.values
    shift = values["residual_shift"] + bit_depth - 8
    size = (x @ predictors).view(len(x), *of["weight"].shape)
    size = size.sub_((y @ of["patterns"])[:, :, None]).abs_()
    size = size.add_(_half(shift)).mul_(2.0**-shift).floor_().clamp_(max=LARGEST)
    estimate = size.mul_(of["weight"]).sum(1)
    excess = estimate.sub_(estimate.amin(1, keepdim=True))
    total = excess.sum(1, keepdim=True) + values["flat"]
    mantissa, exponent = torch.frexp(total)
    place = (mantissa * (2 << TABLE_BITS)).long() - (1 << TABLE_BITS)
    logarithm = (exponent - 1) * (1 << LOG_BITS) + of["logarithm"][place]
    ratio = excess.mul_(network.modes << RATIO_BITS).div_(total).floor_().clamp_(max=LARGEST)
    sums = ratio @ of["hidden"].T + logarithm * of["hidden_log"] + of["offset"][qp]
    shift = values["hidden_shift"]
    hidden = sums.add_(_half(shift)).mul_(2.0**-shift).floor_().clamp_(0, LARGEST)
    return hidden @ of["tail"].T + of["bias"] - values["sharpness"] * ratio


def first_of(logits: torch.Tensor, network: IntegerSketch, top: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The `top` modes of largest logit and by how much, in nats, they lie below the first; of equals the lower mode."""
    modes = network.modes
    # With the mode's number as the last digits no two are equal, and the order is everywhere the same.
    unique = logits * modes + torch.arange(modes - 1, -1, -1, dtype=torch.float64)
    order = unique.topk(top, dim=1).indices
    best = logits.gather(1, order)
    return order, (best[:, :1] - best) * 2.0 ** -network.values["logit_bits"]


def save_integer_sketch(path: Path | str, network: IntegerSketch, card: Mapping[str, Any]) -> None:
    """Write a network to `path` (.safetensors) and its card beside it; `card` is that of the weights in float.

    The MD5s in the card are those of the plain NumPy form.
    """
    path = Path(path)
    with atomic_path(path) as part:
        part.write_bytes(save({name: np.ascontiguousarray(tensor) for name, tensor in network.tensors.items()}))
    made = {
        "schema": CARD_SCHEMA,
        "task": TASK,
        "source_sha256": card["sha256"],
        "sha256": sha256_file(path),
        "values": dict(network.values),
        "check": {str(qp): _md5(sketch_reference(network, *check_blocks(network.side), 10, qp)) for qp in CHECK_QPS},
    }
    write_json(card_path(path), {**card, **made})


def load_integer_sketch(path: Path | str) -> tuple[IntegerSketch, Card]:
    """The integer mode network of a file, and its card.

    Raises MissingFileError without file or card; ModelError where they are damaged or not of each other, where a sum
    could overflow, and where this machine does not compute the logits that the card says.
    """
    path = Path(path)
    for file in (path, card_path(path)):
        if not file.is_file():
            raise MissingFileError(f"{file} does not exist")
    card = read_card(path)
    if card.task != TASK:
        raise ModelError(f"{path} holds a network for {card.task!r}, not for {TASK!r}")
    check_described(path, card.sha256)
    try:
        network = IntegerSketch(load_file(path), card.get("values") or {})
        blocks = check_blocks(network.side)
        found = {str(qp): _md5(sketch_logits(network, *blocks, 10, qp).numpy()) for qp in CHECK_QPS}
    except (ModelError, SafetensorError, ValueError, TypeError, AttributeError) as error:
        raise ModelError(f"{path} is not an integer mode network that can be used: {error}") from error
    if card.get("check") != found:
        raise ModelError(f"{path}: its card says other logits than are computed here")
    return network, card


def check_blocks(side: int) -> tuple[Ints, Ints]:
    """The 10-bit reference lines and blocks of a card's MD5s, in docs/integer/modes.md."""
    count = 4 * side + 1
    j, i = np.arange(count + side**2), np.arange(CHECK_BLOCKS)[:, None]
    samples = 512 + (((73 * j**2 + 151 * i**2 + 29 * i * j) % 1024 - 512) >> (i % 8))
    return samples[:, :count], samples[:, count:].reshape(-1, side, side)


def _check(network: IntegerSketch, block: NDArray[Any], bit_depth: int) -> None:
    if block.shape[1:] != (network.side,) * 2:
        raise ModelError(f"the network tells modes of blocks of {network.side}x{network.side}, not of {block.shape}")
    if not MIN_BIT_DEPTH <= bit_depth <= BIT_DEPTH:
        raise ConfigError(f"mode networks in integers take {MIN_BIT_DEPTH} to {BIT_DEPTH} bit, not {bit_depth}")


def _md5(logits: NDArray[Any]) -> str:
    return hashlib.md5(np.ascontiguousarray(logits, dtype="<i4").tobytes(), usedforsecurity=False).hexdigest()


def _half(shift: int) -> int:
    return 1 << (shift - 1) if shift > 0 else 0


def _rounded(sums: Ints, shift: int) -> Ints:
    return (sums + _half(shift)) >> shift
