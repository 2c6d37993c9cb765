"""Decisions of an encoder on the filter of one picture, and their reports.

A picture signals these bits: one flag that says whether the filter is used at all. If it is, the QP offset (log2 of the
number of offsets, rounded up), and for each component:

- its mode: off (1 bit), on (2) or by CTU (2); with one component only on and by CTU exist, 1 bit each;
- unless it is off, its scale: 1 bit for a scale of 1, or 1 + 9 bits for another scale (`scale_bits`);
- by CTU the flags, which cost `flag_bits`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from codecnn.base.errors import ConfigError, FormatError
from codecnn.codec import write_block_values
from codecnn.filtering.decisions.decision_code import PictureDecision
from codecnn.filtering.decisions.rate_distortion import (
    SCALE_ONE,
    SCALE_RANGE,
    BoolArray,
    Choice,
    Component,
    Mode,
    chroma_weight,
    rd_lambda,
    scale_residual,
)
from codecnn.filtering.planes import Planes, check_finite, components
from codecnn.pictures.files import Picture, convert
from codecnn.pictures.metrics import ctu_grid, psnr_of_mse

CTU_SIZES = (16, 32, 64, 128, 256)
"""Widths of a CTU in luma samples that decisions support."""
OFF_BITS = 1.0
"""Bits of a picture without the filter, in a stream that has the filter: the flag that says off."""


@dataclass(frozen=True, eq=False)
class Decision:
    """The decision on one picture; dictionaries are by component ("y", or "y", "u" and "v").

    Attributes:
        modes: Off, on in every CTU, or by CTU.
        flags: True where the component is filtered, shape (CTU rows, CTU columns).
        scales: Factor of the network's residual, a multiple of 1/256; 1.0 where the component is off.
        qp_offset: Offset to the slice QP for the network; 0 if all is off.
        bits: Bits that signal the decision.
        distortion_before: Squared error of the decoded components that can be filtered, in sample², chroma weighted.
        distortion_after: The same error after the decision.
        rd_lambda: λ, the squared error that equals the cost of one bit, in sample².
        psnr_before: PSNR of the decoded picture in dB; infinite if it equals the original.
        psnr_after: PSNR after the decision in dB.
    """

    modes: dict[str, Mode]
    flags: dict[str, BoolArray]
    scales: dict[str, float]
    qp_offset: int
    bits: float
    distortion_before: float
    distortion_after: float
    rd_lambda: float
    psnr_before: dict[str, float]
    psnr_after: dict[str, float]

    @property
    def mode(self) -> Mode:
        """Mode of the picture: off if every component is off, ctu if any component has flags, else on."""
        if all(mode == "off" for mode in self.modes.values()):
            return "off"
        return "ctu" if "ctu" in self.modes.values() else "on"

    @property
    def cost_before(self) -> float:
        """Rate-distortion cost of the decoded picture in sample²: the same stream with the filter off here."""
        return self.distortion_before + self.rd_lambda * OFF_BITS

    @property
    def cost_after(self) -> float:
        """Rate-distortion cost after the decision in sample²; never above `cost_before`."""
        return self.distortion_after + self.rd_lambda * self.bits


def decide_picture(
    original: Picture,
    decoded: Picture,
    filtered: Mapping[int, Picture | Planes],
    *,
    qp: int,
    ctu: int = 128,
    scale_step: int = 1,
) -> tuple[Picture, Decision]:
    """Decide on the filter of one picture as an encoder that knows the original.

    The decision minimises D + λ·R over the components that can be filtered: D is the squared error of the rounded
    samples, for chroma times `chroma_weight`; λ is `rd_lambda`; R counts all bits that the module documents. Each
    offset is tried, with each component off, on, and by CTU, at full strength, at the least-squares scale of the
    picture, and at that of the CTUs that are on. If nothing is cheaper than off, the decoded picture is returned.

    Args:
        original: The original picture; it is converted to the bit depth of `decoded`.
        decoded: The decoded picture; chroma is 4:2:0.
        filtered: Samples of the network at full strength by offset to the slice QP: `{0: samples}`, or
            `{0: ..., 5: ..., -5: ...}` to choose from; see `PictureFilter.samples`. A picture stands for those of its
            planes that are not the planes of `decoded`.
        qp: Slice QP of the picture.
        ctu: Width of a CTU in luma samples.
        scale_step: Distance of the scales in units of 1/256: 1, or `LOOP_SCALE_STEP` for streams with a filter in the
            loop.

    Returns:
        The picture as decided, and the decision.

    Raises:
        ConfigError: The CTU size is not supported, there are no candidates, or they differ in components.
        FormatError: Planes do not fit each other.
        ModelError: Samples are not finite.
    """
    if ctu not in CTU_SIZES:
        raise ConfigError(f"CTU size {ctu} is not one of {', '.join(map(str, CTU_SIZES))}")
    if not filtered:
        raise ConfigError("there is nothing to decide on: no filtered picture was given")
    original = convert(original, decoded.bit_depth)
    candidates = {offset: _filtered_planes(samples, decoded) for offset, samples in filtered.items()}
    names = tuple(next(iter(candidates.values())))
    _check_shapes(original, decoded, candidates, names)
    lambda_ = rd_lambda(qp, decoded.bit_depth)
    original_planes, decoded_planes = components(original), components(decoded)
    parts = {
        name: Component(
            original_planes[name],
            decoded_planes[name],
            ctu if name == "y" else ctu // 2,
            weight=1.0 if name == "y" else chroma_weight(qp),
            lambda_=lambda_,
            peak=2**decoded.bit_depth - 1,
            scale_step=scale_step,
        )
        for name in names
    }
    off = {name: component.off() for name, component in parts.items()}
    distortion_before = sum(choice.distortion for choice in off.values())

    def psnrs(choices: Mapping[str, Choice]) -> dict[str, float]:
        return {
            name: float(psnr_of_mse(choice.distortion / parts[name].weight / choice.plane.size, decoded.bit_depth))
            for name, choice in choices.items()
        }

    def decision_of(choices: Mapping[str, Choice], offset: int, bits: float) -> Decision:
        return Decision(
            modes={name: choice.mode for name, choice in choices.items()},
            flags={name: choice.flags for name, choice in choices.items()},
            scales={name: choice.scale / SCALE_ONE for name, choice in choices.items()},
            qp_offset=offset,
            bits=bits,
            distortion_before=distortion_before,
            distortion_after=sum(choice.distortion for choice in choices.values()),
            rd_lambda=lambda_,
            psnr_before=psnrs(off),
            psnr_after=psnrs(choices),
        )

    best, best_choices = decision_of(off, 0, OFF_BITS), off
    header_bits = OFF_BITS + (len(candidates) - 1).bit_length()
    several = len(names) > 1
    for offset, samples in candidates.items():
        chosen = {}
        for name, component in parts.items():
            # With a single component "off" is not a mode of the component: the picture's flag says it.
            choices = component.filtered(samples[name], mode_bits=2.0 if several else 1.0)
            choices += [off[name]] if several else []
            # Components share nothing but the offset, so that the best choice of each is the best combination.
            chosen[name] = min(choices, key=lambda choice: choice.cost(lambda_))
        decision = decision_of(chosen, offset, header_bits + sum(choice.bits for choice in chosen.values()))
        if decision.mode != "off" and decision.cost_after < best.cost_after:
            best, best_choices = decision, chosen
    if best.mode == "off":
        return decoded, best
    planes = decoded_planes | {name: choice.plane for name, choice in best_choices.items()}
    return Picture(tuple(planes.values()), decoded.bit_depth), best


def apply_decision(decoded: Picture, samples: Planes, decision: PictureDecision, ctu: int) -> Picture:
    """Filter a picture as a decision says; the result equals the picture that `decide_picture` returns with it.

    Args:
        decoded: The decoded picture.
        samples: Samples of the network at full strength by component, for the slice QP plus the offset of the decision.
        decision: The decision.
        ctu: Width of a CTU in luma samples.

    Returns:
        The filtered picture.
    """
    planes = components(decoded)
    peak = 2**decoded.bit_depth - 1
    for name, mode in decision.modes.items():
        if mode == "off":
            continue
        plane, size = planes[name], ctu if name == "y" else ctu // 2
        full = scale_residual(plane, samples[name], round(SCALE_ONE * decision.scales[name]), peak)
        mask = decision.flags[name].repeat(size, axis=0).repeat(size, axis=1)
        planes[name] = np.where(mask[: plane.shape[0], : plane.shape[1]], full, plane)
    return Picture(tuple(planes.values()), decoded.bit_depth)


def sequence_pays(decisions: Iterable[Decision]) -> bool:
    """Return whether the filter lowers the rate-distortion cost of a sequence, "off" flags counted.

    If it does not, an encoder disables the filter for the sequence, which then costs no bits in any picture: the
    pictures are the decoded ones, and no bits are added. With this rule the rate-distortion cost of a sequence is never
    above that of the stream without the filter.
    """
    total = sum(decision.cost_after - decision.distortion_before for decision in decisions)
    return total < 0


def _filtered_planes(samples: Picture | Planes, decoded: Picture) -> Planes:
    """Return the filtered planes: of a picture those that are not planes of the decoded picture."""
    if not isinstance(samples, Picture):
        return samples
    unfiltered = components(decoded)
    return {name: plane for name, plane in components(samples).items() if plane is not unfiltered.get(name)}


def _check_shapes(
    original: Picture, decoded: Picture, candidates: Mapping[int, Planes], names: tuple[str, ...]
) -> None:
    shapes = [plane.shape for plane in decoded.planes]
    if [plane.shape for plane in original.planes[: len(shapes)]] != shapes:
        original_sizes = ", ".join(f"{plane.shape[1]}x{plane.shape[0]}" for plane in original.planes)
        decoded_sizes = ", ".join(f"{width}x{height}" for height, width in shapes)
        raise FormatError(f"the original's planes are {original_sizes}, those of the decoded picture {decoded_sizes}")
    height, width = shapes[0]
    decoded_shapes = {name: plane.shape for name, plane in components(decoded).items()}
    for offset, samples in candidates.items():
        if tuple(samples) != names or not names:
            raise ConfigError(
                f"the candidate at QP offset {offset} filters {', '.join(samples) or 'nothing'}: "
                "all candidates must filter the same components"
            )
        for name, plane in samples.items():
            expected = (height, width) if name == "y" else ((height + 1) // 2, (width + 1) // 2)
            if plane.shape != expected or decoded_shapes.get(name) != expected:
                raise FormatError(f"{name} of shape {plane.shape} does not fit a decoded 4:2:0 picture of {shapes}")
            check_finite(name, plane)


def write_decisions(path: Path | str, decisions: Sequence[Decision], width: int, height: int, ctu: int) -> None:
    """Write the decisions on a sequence as block statistics, which YUView draws over the video.

    Each CTU of each picture is a block with `filter_y` (0 or 1), `scale_y` in units of 1/256 where it is filtered, the
    same for u and v if the network filters them, and `qp_offset`. The POC is the index of the picture in `decisions`.

    Args:
        path: File to write, .vtmbmsstats or .vtmbmsstats.gz.
        decisions: The decision on each picture.
        width: Width of the pictures in luma samples.
        height: Height of the pictures in luma samples.
        ctu: Width of a CTU in luma samples.
    """
    grid = ctu_grid(width, height, ctu)
    names = tuple(decisions[0].flags)
    columns = {"poc": np.repeat(np.arange(len(decisions)), len(grid))}
    columns |= {name: np.tile(grid[:, index], len(decisions)) for index, name in enumerate("xywh")}
    ranges: dict[str, tuple[int, int]] = {}
    for name in names:
        flags = np.concatenate([decision.flags[name].ravel() for decision in decisions])
        scales = np.array([round(SCALE_ONE * decision.scales[name]) for decision in decisions])
        columns[f"filter_{name}"] = flags.astype(np.int64)
        columns[f"scale_{name}"] = np.ma.masked_where(~flags, np.repeat(scales, len(grid)))
        ranges |= {f"filter_{name}": (0, 1), f"scale_{name}": SCALE_RANGE}
    offsets = np.array([decision.qp_offset for decision in decisions])
    columns["qp_offset"] = np.repeat(offsets, len(grid))
    ranges["qp_offset"] = (int(offsets.min()), max(int(offsets.max()), int(offsets.min()) + 1))
    write_block_values(path, columns, ranges, width=width, height=height)


def count_decisions(decisions: Sequence[Decision]) -> dict[str, Any]:
    """Count the decisions on a sequence.

    Args:
        decisions: The decision on each picture.

    Returns:
        `pictures` by mode, `ctus_on`, the share of filtered CTUs by component, `qp_offsets`, the number of filtered
        pictures by offset, `bits`, `rd_cost_before`, `rd_cost_after`, `pays`, the result of `sequence_pays`, and
        `psnr_before` and `psnr_after`, the mean over pictures in dB by component, None if one equals its original.
    """
    modes = [decision.mode for decision in decisions]
    offsets = [decision.qp_offset for decision in decisions if decision.mode != "off"]
    return {
        "pictures": {mode: modes.count(mode) for mode in ("off", "on", "ctu")},
        "ctus_on": {
            name: float(np.mean([decision.flags[name].mean() for decision in decisions])) for name in decisions[0].flags
        },
        "qp_offsets": {str(offset): offsets.count(offset) for offset in sorted(set(offsets))},
        "bits": sum(decision.bits for decision in decisions),
        "rd_cost_before": sum(decision.cost_before for decision in decisions),
        "rd_cost_after": sum(decision.cost_after for decision in decisions),
        "pays": sequence_pays(decisions),
        "psnr_before": _mean_psnrs([decision.psnr_before for decision in decisions]),
        "psnr_after": _mean_psnrs([decision.psnr_after for decision in decisions]),
    }


def _mean_psnrs(pictures: Sequence[Mapping[str, float]]) -> dict[str, float | None]:
    means = {name: float(np.mean([psnrs[name] for psnrs in pictures])) for name in pictures[0]}
    return {name: mean if np.isfinite(mean) else None for name, mean in means.items()}
