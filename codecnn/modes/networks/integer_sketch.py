"""Integer form of `ModeSketch`, which chooses the same modes on every machine (docs/explanation/integer_modes.md).

`sketch_logits` computes in float64, in which all its sums are exact; `sketch_reference` is the specification in NumPy.
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

from codecnn.base.errors import ConfigError, MissingFileError, ModelError
from codecnn.base.files import atomic_path, sha256_file, write_json
from codecnn.base.planes import MAX_QP, QP_SCALE
from codecnn.models import CARD_SCHEMA, Card, card_path, check_sha256, read_card
from codecnn.modes.networks.architectures import FLAT_EXCESS, ModeSketch

TASK = "integer_modes"

MIN_BIT_DEPTH, BIT_DEPTH = 8, 12
"""Smallest and largest bit depth of the samples; labels and costs have the same limit."""

LARGEST = 2**15 - 1
INT32_MAX = 2**31 - 1

RATIO_BITS, LOG_BITS = 11, 9
"""Fractional bits of an excess relative to the mean, which saturates at 16, and of the mean's binary logarithm."""

TABLE_BITS = 8
"""Logarithm of the number of entries in the table of logarithms."""

MAX_LOG = 39 << LOG_BITS
"""Largest logarithm, since the sum of the excesses is below 2^39."""

CHECK_BLOCKS, CHECK_QPS = 32, (22, 37)

Ints = NDArray[np.int64]
Tensors = Mapping[str, NDArray[Any]]
_TYPES: dict[str, type[np.generic]] = dict.fromkeys(
    ("patterns", "predictors", "weight", "logarithm", "hidden", "hidden_log", "tail"), np.int16
) | {"offset": np.int32, "bias": np.int32}
_VALUES = {"residual_shift": 31, "flat": INT32_MAX, "hidden_shift": 31, "sharpness": LARGEST, "logit_bits": 31}
"""Integer parameters of a network and their largest allowed values."""


@dataclass(frozen=True)
class IntegerSketch:
    """A mode network of 16-bit integers for blocks of one size, whose sums provably fit into 32 bits.

    Attributes:
        tensors: patterns (s², k), predictors (4s+1, k, modes), weight (k, modes), logarithm (256,), hidden (h, modes),
            hidden_log (h,), offset (64, h), tail (modes, h), bias (modes,).
        values: Integer parameters as in docs/explanation/integer_modes.md.

    Raises:
        ModelError: A tensor or value does not fit, or a sum could overflow.
    """

    tensors: Tensors
    values: Mapping[str, int]

    def __post_init__(self) -> None:
        for name, kind in _TYPES.items():
            if name not in self.tensors or self.tensors[name].dtype != kind:
                raise ModelError(f"it has no {name} of type {np.dtype(kind)}")
        for name, largest in _VALUES.items():
            if type(value := self.values.get(name)) is not int or not 0 <= value <= largest:
                raise ModelError(f"it has {name} {str(value)[:30]}, not 0 to {largest}")
        if self.tensors["predictors"].ndim != 3 or self.tensors["hidden"].ndim != 2 or self.values["flat"] < 1:
            raise ModelError("its predictors or hidden features have a wrong number of dimensions, or flat is 0")
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
        for name, bound in zip(("residual", "excess", "hidden", "logit"), _sum_bounds(self), strict=True):
            if bound > INT32_MAX:
                raise ModelError(f"a sum on the way to its {name} can reach {bound}, beyond 32 bits")

    @property
    def modes(self) -> int:
        """Number of modes."""
        return int(self.tensors["predictors"].shape[2])

    @property
    def side(self) -> int:
        """Width and height of the blocks."""
        return int(self.tensors["predictors"].shape[0]) // 4

    @property
    def block_sizes(self) -> tuple[tuple[int, int], ...]:
        """(width, height) of the blocks that the network takes."""
        return ((self.side, self.side),)


def _sum_bounds(network: IntegerSketch) -> tuple[int, ...]:
    """Return the largest possible magnitudes of the sums, with rounding, for any samples and order of addition."""
    of = {name: tensor.astype(np.int64) for name, tensor in network.tensors.items()}
    size = np.abs(of["predictors"]).sum(0) + np.abs(of["patterns"]).sum(0)[:, None]
    residual = int(size.max()) * ((1 << BIT_DEPTH) - 1) + _half(network.values["residual_shift"] + BIT_DEPTH - 8)
    above, below = (np.clip(sign * of["weight"], 0, None).sum(0).max() * LARGEST for sign in (1, -1))
    hidden = np.abs(of["hidden"]).sum(1) * LARGEST + np.abs(of["hidden_log"]) * MAX_LOG
    hidden = hidden + np.abs(of["offset"]).max(0) + _half(network.values["hidden_shift"])
    logit = (np.abs(of["tail"]).sum(1) + network.values["sharpness"]) * LARGEST + np.abs(of["bias"])
    return residual, int(above + below), int(hidden.max()), int(logit.max())


def quantise_sketch(model: ModeSketch) -> IntegerSketch:
    """Quantise a float network.

    Each layer gets the finest scale with which its weights fit into 16 bits and its sums into 32.

    Raises:
        ModelError: The weights are not finite, or no scale fits.
    """
    real = {name: tensor.detach().double().numpy() for name, tensor in model.state_dict().items()}
    modes, length = model.options["modes"], 4 * model.options["side"] + 1
    predictors = real["predictors"].reshape(length, -1, modes)
    # The float network subtracts the mean of the references from all samples, this one the corner sample; the weights
    # contain the subtraction of the mean.
    predictors = predictors + (real["patterns"].sum(0)[:, None] - predictors.sum(0)) / length
    mixing = real["hidden.weight"]

    size = (np.abs(predictors).sum(0) + np.abs(real["patterns"]).sum(0)[:, None]).max() * (1 << BIT_DEPTH)
    # Coefficients saturate if the mean of the block differs from the prediction by half the range of the samples.
    residual_bits = 6 - int(math.log2(model.options["side"]))
    fine = _fraction_bits(max(np.abs(predictors).max(), np.abs(real["patterns"]).max()), size)
    weight = _fraction_bits(np.abs(real["weight"]).max(), np.abs(real["weight"]).sum(0).max() * LARGEST * 2)
    excess_bits = 10 + residual_bits + weight
    by_qp = real["hidden.bias"] + np.arange(MAX_QP + 1)[:, None] / QP_SCALE * mixing[:, modes]
    by_log = mixing[:, modes + 1] / 10
    by_qp = by_qp - (math.log2(modes) + excess_bits) * by_log
    sums = (
        np.abs(mixing[:, :modes]).sum(1) * LARGEST + np.abs(by_log) * 4 * MAX_LOG + np.abs(by_qp).max(0) * 2**RATIO_BITS
    )
    hidden = _fraction_bits(max(np.abs(mixing[:, :modes]).max(), 4 * np.abs(by_log).max()), sums.max())
    # Excesses relative to their mean add up to the number of modes, which bounds the features.
    largest = modes * np.clip(mixing[:, :modes], 0, None).max(1) + np.abs(by_qp).max(0) + np.abs(by_log) * MAX_LOG / 512
    feature = math.floor(math.log2(LARGEST / largest.max()))
    sharpness = float(real["sharpness"])
    sums = np.abs(real["tail.weight"]).sum(1) * LARGEST + np.abs(real["tail.bias"]) * 2**feature
    sums = sums + abs(sharpness) * LARGEST * 2.0 ** (feature - RATIO_BITS)
    tail = _fraction_bits(
        max(np.abs(real["tail.weight"]).max(), abs(sharpness) * 2.0 ** (feature - RATIO_BITS)), sums.max()
    )

    def scaled(values: NDArray[Any], bits: int, kind: type[np.generic] = np.int16) -> NDArray[Any]:
        return np.rint(values * 2.0**bits).astype(kind)

    places = np.arange(1 << TABLE_BITS) + 0.5
    return IntegerSketch(
        {
            "patterns": scaled(real["patterns"], fine),
            "predictors": scaled(predictors, fine),
            "weight": scaled(real["weight"], weight),
            "logarithm": scaled(np.log2(1 + places / (1 << TABLE_BITS)), LOG_BITS),
            "hidden": scaled(mixing[:, :modes], hidden),
            "hidden_log": scaled(by_log, hidden + RATIO_BITS - LOG_BITS),
            "offset": scaled(by_qp, hidden + RATIO_BITS, np.int32),
            "tail": scaled(real["tail.weight"], tail),
            "bias": scaled(real["tail.bias"], tail + feature, np.int32),
        },
        {
            "residual_shift": fine - residual_bits - 2,
            "flat": max(1, round(modes * FLAT_EXCESS * 2.0**excess_bits)),
            "hidden_shift": hidden + RATIO_BITS - feature,
            "sharpness": round(sharpness * 2.0 ** (tail + feature - RATIO_BITS)),
            "logit_bits": tail + feature,
        },
    )


def _fraction_bits(largest: float, sums: float) -> int:
    """Return the most fractional bits with which the largest weight fits into 16 bits and the largest sum into 31."""
    # A sum of rounded weights may exceed the rounded sum a little, and rounding adds a half.
    bits = min(math.log2(LARGEST / largest), math.log2(0.98 * INT32_MAX / sums)) if largest > 0 else 0.0
    if not math.isfinite(bits):
        raise ModelError("the network's weights are not finite numbers")
    return math.floor(bits)


def sketch_reference(network: IntegerSketch, line: NDArray[Any], block: NDArray[Any], bit_depth: int, qp: int) -> Ints:
    """Compute logits as specified in docs/explanation/integer_modes.md, in NumPy.

    Args:
        network: The network.
        line: Reference samples, shape (n, 4s+1).
        block: Blocks of the same picture, shape (n, s, s).
        bit_depth: Bit depth of the samples, 8 to 12.
        qp: Slice QP.

    Returns:
        Logits, shape (n, modes), int64.
    """
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
    """Compute the same logits as `sketch_reference` much faster, as float64 (n, modes), `chunk` blocks at a time."""
    _check(network, block, bit_depth)
    of = {name: torch.from_numpy(tensor.astype(np.float64)) for name, tensor in network.tensors.items()}
    predictors = of["predictors"].flatten(1)
    corner = line[:, 2 * network.side, None]
    x = torch.from_numpy((line - corner).astype(np.float64))
    y = torch.from_numpy((block.reshape(len(block), -1) - corner).astype(np.float64))
    parts = [
        _chunk_logits(network, of, predictors, x[start : start + chunk], y[start : start + chunk], bit_depth, qp)
        for start in range(0, len(line), chunk)
    ]
    return torch.cat(parts) if parts else torch.empty(0, network.modes, dtype=torch.float64)


def _chunk_logits(
    network: IntegerSketch,
    of: Mapping[str, torch.Tensor],
    predictors: torch.Tensor,
    x: torch.Tensor,
    y: torch.Tensor,
    bit_depth: int,
    qp: int,
) -> torch.Tensor:
    """Compute the logits of a chunk of blocks in float64.

    All numbers are integers below 2^53; quotients of two are further from the next integer than float64 rounds, and
    the halves of shifts are exact.
    """
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


def top_modes(logits: torch.Tensor, network: IntegerSketch, top: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Select the `top` modes of largest logit; of equal logits the lower mode comes first.

    Returns:
        Modes (n, top), and the differences of their logits to the first, in nats (n, top).
    """
    modes = network.modes
    # With the mode number as last digits, no two values are equal, and the order is the same on every machine.
    unique = logits * modes + torch.arange(modes - 1, -1, -1, dtype=torch.float64)
    order = unique.topk(top, dim=1).indices
    best = logits.gather(1, order)
    return order, (best[:, :1] - best) * 2.0 ** -network.values["logit_bits"]


def save_integer_sketch(path: Path | str, network: IntegerSketch, card: Mapping[str, Any]) -> None:
    """Write an integer network and its card.

    Args:
        path: File to write, .safetensors.
        network: The network.
        card: Card of the float weights; the MD5s of `sketch_reference` for `check_blocks` are added.
    """
    path = Path(path)
    with atomic_path(path) as part:
        part.write_bytes(save({name: np.ascontiguousarray(tensor) for name, tensor in network.tensors.items()}))
    additions = {
        "schema": CARD_SCHEMA,
        "task": TASK,
        "source_sha256": card["sha256"],
        "sha256": sha256_file(path),
        "values": dict(network.values),
        "check": {str(qp): _md5(sketch_reference(network, *check_blocks(network.side), 10, qp)) for qp in CHECK_QPS},
    }
    write_json(card_path(path), {**card, **additions})


def load_integer_sketch(path: Path | str) -> tuple[IntegerSketch, Card]:
    """Load an integer mode network and its card.

    Raises:
        MissingFileError: The file or its card does not exist.
        ModelError: File and card are damaged or do not belong together, a sum could overflow, or this machine computes
            other logits than those on the card.
    """
    path = Path(path)
    for file in (path, card_path(path)):
        if not file.is_file():
            raise MissingFileError(f"{file} does not exist")
    card = read_card(path)
    if card.task != TASK:
        raise ModelError(f"{path} holds a network for {card.task!r}, not for {TASK!r}")
    check_sha256(path, card.sha256)
    try:
        network = IntegerSketch(load_file(path), card.get("values") or {})
        blocks = check_blocks(network.side)
        digests = {str(qp): _md5(sketch_logits(network, *blocks, 10, qp).numpy()) for qp in CHECK_QPS}
    except (ModelError, SafetensorError, ValueError, TypeError, AttributeError) as error:
        raise ModelError(f"{path} is not an integer mode network that can be used: {error}") from error
    if card.get("check") != digests:
        raise ModelError(f"{path}: its card says other logits than are computed here")
    return network, card


def check_blocks(side: int) -> tuple[Ints, Ints]:
    """Return the 10-bit reference lines and blocks for the MD5s of a card (docs/explanation/integer_modes.md)."""
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
