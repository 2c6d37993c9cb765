"""What an encoder decides of the filter: on or off by CTU, its strength, and what it costs to say so.

What is said of a picture, in bits: one flag, whether the filter is used at all. If it is: which of the QP offsets,
log2 of their number, rounded up; then of each component whether it is off (1), on (2) or by CTU (2), where there is
one component only the latter two (1 each); of each that is not off one flag for a scale of 1, or 1 + 9 for another;
and by CTU the flags, coded as `flag_bits` says.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from codecnn.errors import ConfigError, FormatError
from codecnn.filtering._base import Planes, check_finite, components
from codecnn.filtering.decisions._component import SCALE_ONE, Choice, Component, Mode
from codecnn.filtering.decisions._rate_distortion import BoolArray, chroma_weight, rd_lambda
from codecnn.video import Picture, convert

CTU_SIZES = (16, 32, 64, 128, 256)
OFF_BITS = 1.0
"""What a picture without the filter says in a stream that has the filter: that it is off."""


@dataclass(frozen=True, eq=False)
class Decision:
    """What is decided of one picture, by component ("y", or "y", "u", "v").

    modes       off, on in every CTU, or by CTU
    flags       (CTU rows, CTU columns) bool, True where the component is filtered
    scales      what the network's residual is multiplied by, in 1/256; 1.0 where off
    qp_offset   what was added to the slice QP for the network; 0 where all is off
    bits        bits of all of this
    distortion_before, distortion_after  squared errors of the components that can be filtered, sample², those of
                chroma weighted; sums over the picture
    rd_lambda   λ, the squared error that one bit is worth, sample²
    """

    modes: dict[str, Mode]
    flags: dict[str, BoolArray]
    scales: dict[str, float]
    qp_offset: int
    bits: float
    distortion_before: float
    distortion_after: float
    rd_lambda: float

    @property
    def mode(self) -> Mode:
        """The mode of the picture: off if every component is, ctu if any component has flags, else on."""
        if all(mode == "off" for mode in self.modes.values()):
            return "off"
        return "ctu" if "ctu" in self.modes.values() else "on"

    @property
    def cost_before(self) -> float:
        """RD cost of the decoded picture, sample²: the same stream with the filter off in this picture."""
        return self.distortion_before + self.rd_lambda * OFF_BITS

    @property
    def cost_after(self) -> float:
        """RD cost as decided, sample²; never above `cost_before`."""
        return self.distortion_after + self.rd_lambda * self.bits


def decide_picture(
    original: Picture, decoded: Picture, filtered: Mapping[int, Picture | Planes], *, qp: int, ctu: int = 128
) -> tuple[Picture, Decision]:
    """The picture as an encoder would have it filtered, and what it decided.

    `filtered` holds what the network makes of `decoded` at full strength, by what was added to the slice QP `qp` for
    it: `{0: samples}`, or `{0: ..., 5: ..., -5: ...}` to choose from; `PictureFilter.samples` gives it. A picture
    stands for those of its planes that are not the decoded picture's own. `ctu` is the side of a CTU in luma samples;
    chroma is 4:2:0. `original` is brought to the bit depth of `decoded`.

    Minimised is D + λ·R over the components that can be filtered: D the squared error of the whole samples that
    come out, of chroma times `chroma_weight`, λ by `rd_lambda`, R all bits that the module's head lists. Each of
    the offsets is tried, with each component off, on, and by CTU, at full strength, at the least-squares scale of the
    picture (`residual_scale`) and at that of the CTUs which are then on. Where all that costs as much as off, the
    filter is off, and the picture comes back as it was decoded: `cost_after` is never above `cost_before`.

    Raises ConfigError for a CTU size that is none and for no candidates, FormatError where shapes do not fit,
    ModelError for samples that are not finite.
    """
    if ctu not in CTU_SIZES:
        raise ConfigError(f"CTU size {ctu} is not one of {', '.join(map(str, CTU_SIZES))}")
    if not filtered:
        raise ConfigError("there is nothing to decide on: no filtered picture was given")
    original = convert(original, decoded.bit_depth)
    candidates = {offset: _outputs(samples, decoded) for offset, samples in filtered.items()}
    names = tuple(next(iter(candidates.values())))
    _check(original, decoded, candidates, names)
    lambda_ = rd_lambda(qp, decoded.bit_depth)
    originals, made = components(original), components(decoded)
    parts = {
        name: Component(
            originals[name],
            made[name],
            ctu if name == "y" else ctu // 2,
            weight=1.0 if name == "y" else chroma_weight(qp),
            lambda_=lambda_,
            peak=2**decoded.bit_depth - 1,
        )
        for name in names
    }
    off = {name: component.off() for name, component in parts.items()}
    before = sum(choice.distortion for choice in off.values())

    def decision(chosen: Mapping[str, Choice], offset: int, bits: float) -> Decision:
        return Decision(
            modes={name: choice.mode for name, choice in chosen.items()},
            flags={name: choice.flags for name, choice in chosen.items()},
            scales={name: choice.scale / SCALE_ONE for name, choice in chosen.items()},
            qp_offset=offset,
            bits=bits,
            distortion_before=before,
            distortion_after=sum(choice.distortion for choice in chosen.values()),
            rd_lambda=lambda_,
        )

    best, planes = decision(off, 0, OFF_BITS), off
    header_bits = OFF_BITS + (len(candidates) - 1).bit_length()
    several = len(names) > 1
    for offset, samples in candidates.items():
        chosen = {}
        for name, component in parts.items():
            # A single component that is off is a picture that is off, and needs no word for it.
            choices = component.filtered(samples[name], mode_bits=2.0 if several else 1.0)
            choices += [off[name]] if several else []
            # Components share nothing but the offset, so the best of each is the best of all together.
            chosen[name] = min(choices, key=lambda choice: choice.cost(lambda_))
        decided = decision(chosen, offset, header_bits + sum(choice.bits for choice in chosen.values()))
        if decided.mode != "off" and decided.cost_after < best.cost_after:
            best, planes = decided, chosen
    if best.mode == "off":
        return decoded, best
    made |= {name: choice.plane for name, choice in planes.items()}
    return Picture(tuple(made.values()), decoded.bit_depth), best


def sequence_pays(decisions: Iterable[Decision]) -> bool:
    """Whether the filter is worth having in a stream of these pictures, their flags that say "off" counted.

    Where it is not, an encoder leaves the tool out of the sequence, which then costs no bit in any picture: the
    pictures are those decoded, and no bits are to be added. With this, a sequence's RD cost is never above that of the
    stream without the filter.
    """
    total = sum(decision.cost_after - decision.distortion_before for decision in decisions)
    return total < 0


def _outputs(samples: Picture | Planes, decoded: Picture) -> Planes:
    if not isinstance(samples, Picture):
        return samples
    own = components(decoded)
    return {name: plane for name, plane in components(samples).items() if plane is not own.get(name)}


def _check(original: Picture, decoded: Picture, candidates: Mapping[int, Planes], names: tuple[str, ...]) -> None:
    shapes = [plane.shape for plane in decoded.planes]
    if [plane.shape for plane in original.planes[: len(shapes)]] != shapes:
        theirs = ", ".join(f"{plane.shape[1]}x{plane.shape[0]}" for plane in original.planes)
        ours = ", ".join(f"{width}x{height}" for height, width in shapes)
        raise FormatError(f"the original's planes are {theirs}, those of the decoded picture {ours}")
    height, width = shapes[0]
    own = {name: plane.shape for name, plane in components(decoded).items()}
    for offset, samples in candidates.items():
        if tuple(samples) != names or not names:
            raise ConfigError(f"the candidate at QP offset {offset} filters {', '.join(samples) or 'nothing'}")
        for name, plane in samples.items():
            wanted = (height, width) if name == "y" else ((height + 1) // 2, (width + 1) // 2)
            if plane.shape != wanted or own.get(name) != wanted:
                raise FormatError(f"{name} of {plane.shape} does not fit a decoded 4:2:0 picture of {shapes}")
            check_finite(name, plane)
