"""RDN: residual dense networks, in the three forms of the notebook, on quarter pictures, and less one part each.

Source: Zhang et al., "Residual Dense Network for Image Super-Resolution", CVPR 2018, without the up-scaling, with an
unpadded head (132 -> 128), and with the network's output added to the decoded picture.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor, nn

from codecnn.errors import ModelError
from codecnn.models._blocks import Haar, InverseHaar, check_choice, check_counts, initialise
from codecnn.models._conditioning import CONDITIONING, QpGain
from codecnn.models._dense import RDB, Fusion
from codecnn.models._registry import register
from codecnn.models.base import Filtered, Trunk
from codecnn.models.graph._draft import Draft, arrays
from codecnn.models.graph.nodes import Array


class RDN(Trunk):
    """RDN(features, blocks, layers, growth), with `shuffle` the factor of PixelUnshuffle and PixelShuffle around it.

    planes -> unshuffle -> 3x3 -> 3x3 -> RDB ... RDB -> 1x1 -> 3x3 -> (+) -> 3x3 -> shuffle -> x gain(QP) -> (+) -> out
                           unpadded |      `------+------^ all D      ^                                      ^
                            first features -------------------------'         cropped rec_y ---------------'

    With shuffle s the trunk works on 1/s of the height and width, and the head takes 2·s samples on each side away.
    The last convolution starts at zero, unless options say else: an untrained network returns the decoded picture.

    conditioning      "plane": QP is a channel; "film", "se": it scales every block's features (`QpModulation`)
    global_residual   the first features are added behind the blocks
    local_residual    each block's input is added to its output
    output            "residual"; or "picture": the network makes the samples themselves, so there is no zero start
    head              "3x3": two unpadded convolutions, the first features between them; or "5x5": one, of equal halo
    upsampling        "shuffle"; or "transposed": a transposed convolution of the same support and cost
    transform         "unshuffle"; or "haar": the 2x2 DCT in front and behind, shuffle 2 only
    initialisation    "zero": `initialise`; or "torch": what torch gives its convolutions, the last one included, with
                      which the notebook began: no centred head, no zeros, so the start is not the identity
    checkpoint        training computes each block again in the backward pass and keeps only its input
    """

    GROWS = ("features", "blocks", "layers", "growth")
    LIFTS: tuple[str, ...] = ("features", "growth")

    def __init__(
        self,
        features: int = 32,
        blocks: int = 3,
        layers: int = 6,
        growth: int = 16,
        shuffle: int = 1,
        planes: Sequence[str] = ("rec_y", "qp"),
        conditioning: str = "plane",
        global_residual: bool = True,
        local_residual: bool = True,
        output: str = "residual",
        head: str = "3x3",
        upsampling: str = "shuffle",
        transform: str = "unshuffle",
        initialisation: str = "zero",
        checkpoint: bool = False,
    ) -> None:
        options: dict[str, Any] = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        check_counts("RDN", features=features, blocks=blocks, layers=layers, growth=growth, shuffle=shuffle)
        check_choice("RDN", "conditioning", conditioning, CONDITIONING)
        check_choice("RDN", "output", output, ("residual", "picture"))
        check_choice("RDN", "head", head, ("3x3", "5x5"))
        check_choice("RDN", "upsampling", upsampling, ("shuffle", "transposed"))
        check_choice("RDN", "transform", transform, ("unshuffle", "haar"))
        check_choice("RDN", "initialisation", initialisation, ("zero", "torch"))
        if transform == "haar" and (shuffle != 2 or upsampling != "shuffle"):
            raise ModelError("RDN option transform: haar needs shuffle 2 and upsampling by shuffle")
        # 3x3 convolutions on the longest way: two in the head, all of every block, two in the tail. A sample of an
        # s x s cell sees whole cells, at most s - 1 samples more than the cells' distance.
        cells = 2 + blocks * layers + 2
        super().__init__(
            planes,
            halo=2 * shuffle,
            radius=cells * shuffle + shuffle - 1,
            stride=shuffle,
            outputs=self.OUTPUTS,
            beside=() if conditioning == "plane" else ("qp",),
        )
        self.options = {**options, "planes": list(planes)}
        self.factor = shuffle
        self.predicts_picture = output == "picture"
        self.global_residual = global_residual
        self.unshuffle = Haar() if transform == "haar" else nn.PixelUnshuffle(shuffle)
        self.head = nn.Conv2d(self.head_inputs(), features, 3 if head == "3x3" else 5)
        self.head2 = nn.Conv2d(features, features, 3) if head == "3x3" else None
        self.blocks = nn.ModuleList(
            RDB(features, layers, growth, local_residual=local_residual, checkpoint=checkpoint) for _ in range(blocks)
        )
        self.fusion = Fusion(blocks, features)
        self.fusion2 = nn.Conv2d(features, features, 3, padding=1)
        if upsampling == "shuffle":
            self.tail = nn.Conv2d(features, self.tail_outputs(), 3, padding=1)
            self.shuffle = InverseHaar() if transform == "haar" else nn.PixelShuffle(shuffle)
        else:
            self.tail = nn.ConvTranspose2d(features, 1, 3 * shuffle, stride=shuffle, padding=shuffle)
            self.shuffle = nn.Identity()
        self.gain = QpGain() if "qp" in self.planes and not self.predicts_picture else None
        if initialisation == "zero":
            initialise(self, self.head, self.head_spans(), None if self.predicts_picture else self.tail)
        self.modulate(conditioning, features)

    def head_spans(self) -> list[slice]:
        # The bands of a transform are apart: all but the first have no mean to take away.
        return self.sample_spans(self.factor**2, 1 if isinstance(self.unshuffle, Haar) else None)

    def _block_outputs(self, x: Tensor, planes: Mapping[str, Tensor]) -> Iterator[Tensor]:
        for index, block in enumerate(self.blocks):
            x = block(x)
            if self.modulations is not None:
                x = self.modulations[index](x, planes["qp"])
            yield x

    def features(self, x: Tensor, planes: Mapping[str, Tensor]) -> Tensor:
        """From the head to the last convolution: channels (n, c, h, w) -> features (n, f, h - 4, w - 4)."""
        first = self.head(x)
        x = first if self.head2 is None else self.head2(first)
        x = self.fusion2(self.fusion(self._block_outputs(x, planes)))
        if self.global_residual:
            x = x + (first if self.head2 is None else first[:, :, 1:-1, 1:-1])
        return x

    def forward(self, planes: Mapping[str, Tensor]) -> Filtered:
        """Filtered luma (n, 1, h - 2·halo, w - 2·halo), in the scale of `rec_y` (x / 2^bit_depth), not clipped."""
        return self.out_of_tail(planes, self.tail(self.features(self.into_head(planes), planes)))

    def out_of_tail(self, planes: Mapping[str, Tensor], made: Tensor) -> Filtered:
        return self.shuffle(made) / 4.0 + 0.5 if self.predicts_picture else super().out_of_tail(planes, made)

    def draw(self, draft: Draft) -> dict[str, str]:
        weight, bias = arrays(self.head)
        weight = self.unshuffle.into(weight) if isinstance(self.unshuffle, Haar) else weight
        first = draft.weights("head", self.draw_channels(draft, self.factor), weight, bias, pad=0)
        x = first if self.head2 is None else draft.conv("head2", first, self.head2)
        x = draft.conv("fusion", draft.joined("blocks", self.draw_blocks(draft, x)), self.fusion)
        x = draft.conv("fusion2", x, self.fusion2)
        if self.global_residual:
            skip = first if self.head2 is None else draft.add("head.cropped", "crop", first, size=1)
            x = draft.add("sum", "add", x, skip)
        return self.draw_tail(draft, x)

    def draw_tail(self, draft: Draft, x: str) -> dict[str, str]:
        residual = draft.weights("tail", x, *self._tail_arrays())
        return {"y": draft.shuffled("tail.shuffled", "shuffle", residual, self.factor)}

    def _tail_arrays(self) -> tuple[Array, Array]:
        """Weights and bias of the last convolution such that nothing but a shuffle follows."""
        weight, bias = arrays(self.tail)
        if isinstance(self.shuffle, InverseHaar):
            return self.shuffle.into(weight, bias)
        if isinstance(self.tail, nn.ConvTranspose2d):
            # Sample r of cell I takes tap r + s·(1 - d) of the cell I + d.
            s = self.factor
            taps = weight[:, 0].reshape(len(weight), 3, s, 3, s)[:, ::-1, :, ::-1]
            return taps.transpose(2, 4, 0, 1, 3).reshape(s**2, len(weight), 3, 3), np.repeat(bias, s**2)
        return weight, bias

    def draw_output(self, draft: Draft, output: str, residual: str) -> None:
        if self.predicts_picture:
            draft.add(output, "output", residual, tensors={"gain": np.array([0.25])}, crop=0)
        else:
            super().draw_output(draft, output, residual)

    def concatenated(self, name: str) -> list[int]:
        features, growth = self.options["features"], self.options["growth"]
        match name.split("."):
            case ["blocks", _, "layers", layer, "weight"]:
                return [features] + [growth] * int(layer)
            case ["blocks", _, "fusion", "weight"]:
                return [features] + [growth] * self.options["layers"]
            case ["fusion", "weight"]:
                return [features] * self.options["blocks"]
        return []


def _register(name: str, what: str, sizes: tuple[int, int, int, int], kmac: int, **options: Any) -> None:
    """Register an RDN of these features, blocks, layers and growth; its description tells them after `what`."""
    features, blocks, layers, growth = sizes
    told = f"{what} {features} features, {blocks} blocks of {layers} layers, growth {growth}"
    told += ", FiLM by QP" if options.get("conditioning") == "film" else ""
    counts = {"features": features, "blocks": blocks, "layers": layers, "growth": growth}
    register(name, RDN, f"{told}; {kmac} kMAC/pixel.", **counts, **options)


register("rdn", RDN, "RDN with any of its options; the default is RDN(32, 3, 6, 16).")

# The three networks of the notebook.
_register("rdn_32_3_6_16", "The notebook's small RDN:", (32, 3, 6, 16), 221)
_register("rdn_32_4_6_24", "The notebook's large RDN:", (32, 4, 6, 24), 523)
_register("rdn_64_4_6_24_shuffle", "The notebook's down/up RDN: PixelUnshuffle,", (64, 4, 6, 24), 198, shuffle=2)

# A trunk at half the height and width has four times the multiply-accumulates a sample to spend at the kMAC/pixel of
# the notebook's small RDN, and sees twice as far with as many layers.
_QUARTER = {"shuffle": 2, "conditioning": "film"}
_register("quarter_unshuffle", "RDN on unshuffled sub-pictures,", (64, 4, 6, 26), 219, **_QUARTER)
_register("quarter_haar", "RDN on the 2x2 DCT,", (64, 4, 6, 26), 219, **_QUARTER, transform="haar")
_register("quarter_light", "RDN on the 2x2 DCT,", (32, 2, 3, 16), 17, **_QUARTER, transform="haar")
