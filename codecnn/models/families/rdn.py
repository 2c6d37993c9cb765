"""RDN: residual dense networks, in the three forms of the notebook and with what there is to take away from them.

Source: Zhang et al., "Residual Dense Network for Image Super-Resolution", CVPR 2018, without the up-scaling, with an
unpadded head (132 -> 128), and with the network's output added to the decoded picture.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from codecnn.errors import ModelError
from codecnn.models.base import DECODED_PLANES, Filtered, FilterNetwork, QpGain
from codecnn.models.blocks import RDB, Fusion, Haar, InverseHaar, check_choice, check_counts, initialise
from codecnn.models.conditioning import CONDITIONING, QpModulation
from codecnn.models.registry import register


class RDN(FilterNetwork):
    """RDN(features, blocks, layers, growth), with `shuffle` the factor of PixelUnshuffle and PixelShuffle around it.

    planes -> unshuffle -> 3x3 -> 3x3 -> RDB ... RDB -> 1x1 -> 3x3 -> (+) -> 3x3 -> shuffle -> x gain(QP) -> (+) -> out
                           unpadded |      `------+------^ all D      ^                                      ^
                            first features -------------------------'         cropped rec_y ---------------'

    With shuffle s the trunk works on 1/s of the height and width, and the head takes 2·s samples on each side away.
    The last convolution starts at zero: an untrained network returns the decoded picture.

    conditioning      "plane": QP is a channel; "film", "se": it scales every block's features (`QpModulation`)
    global_residual   the first features are added behind the blocks
    local_residual    each block's input is added to its output
    output            "residual"; or "picture": the network makes the samples themselves, so there is no zero start
    head              "3x3": two unpadded convolutions, the first features between them; or "5x5": one, of equal halo
    upsampling        "shuffle"; or "transposed": a transposed convolution of the same support and cost
    transform         "unshuffle"; or "haar": the 2x2 DCT in front and behind, shuffle 2 only
    checkpoint        training computes each block again in the backward pass and keeps only its input
    """

    OUTPUTS: tuple[str, ...] = ("y",)

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
        checkpoint: bool = False,
    ) -> None:
        options: dict[str, Any] = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        check_counts("RDN", features=features, blocks=blocks, layers=layers, growth=growth, shuffle=shuffle)
        check_choice("RDN", "conditioning", conditioning, CONDITIONING)
        check_choice("RDN", "output", output, ("residual", "picture"))
        check_choice("RDN", "head", head, ("3x3", "5x5"))
        check_choice("RDN", "upsampling", upsampling, ("shuffle", "transposed"))
        check_choice("RDN", "transform", transform, ("unshuffle", "haar"))
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
        self.predicts_picture = output == "picture"
        self.global_residual = global_residual
        self.unshuffle = Haar() if transform == "haar" else nn.PixelUnshuffle(shuffle)
        inputs = self._inputs(shuffle)
        if head == "3x3":
            self.head = nn.Conv2d(inputs, features, 3)
            self.head2: nn.Conv2d | None = nn.Conv2d(features, features, 3)
        else:
            self.head = nn.Conv2d(inputs, features, 5)
            self.head2 = None
        self.blocks = nn.ModuleList(
            RDB(features, layers, growth, local_residual=local_residual, checkpoint=checkpoint) for _ in range(blocks)
        )
        self.fusion = Fusion(blocks, features)
        self.fusion2 = nn.Conv2d(features, features, 3, padding=1)
        self.tail: nn.Conv2d | nn.ConvTranspose2d
        self.shuffle: nn.Module
        if upsampling == "shuffle":
            self.tail = nn.Conv2d(features, self._tail_channels(shuffle), 3, padding=1)
            self.shuffle = InverseHaar() if transform == "haar" else nn.PixelShuffle(shuffle)
        else:
            self.tail = nn.ConvTranspose2d(features, 1, 3 * shuffle, stride=shuffle, padding=shuffle)
            self.shuffle = nn.Identity()
        self.gain = QpGain() if "qp" in self.planes and not self.predicts_picture else None
        initialise(self, self.head, self._sample_channels(), None if self.predicts_picture else self.tail)
        self.modulations = (
            None
            if conditioning == "plane"
            else nn.ModuleList(QpModulation(features, conditioning) for _ in range(blocks))
        )

    def _inputs(self, shuffle: int) -> int:
        return len(self.channels) * shuffle**2

    def _tail_channels(self, shuffle: int) -> int:
        return shuffle**2

    def _sample_channels(self) -> Iterator[slice]:
        """Channels of the head that hold samples: those of a plane together, but each band of a transform apart."""
        cells = self.head.in_channels // len(self.channels)
        step = 1 if isinstance(self.unshuffle, Haar) else cells
        for index, plane in enumerate(self.channels):
            if plane in DECODED_PLANES:
                for start in range(index * cells, (index + 1) * cells, step):
                    yield slice(start, start + step)

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
        made = self.shuffle(self.tail(self.features(self.unshuffle(self.stack(planes)), planes)))
        return made / 4.0 + 0.5 if self.predicts_picture else self.repaired(planes, made)


@register("rdn")
def rdn(**options: Any) -> RDN:
    """RDN with any of its options; the default is RDN(32, 3, 6, 16)."""
    return RDN(**options)


@register("rdn_32_3_6_16")
def rdn_32_3_6_16(**options: Any) -> RDN:
    """The notebook's small RDN: 32 features, 3 blocks of 6 layers, growth 16; 221 kMAC/pixel."""
    return RDN(**{"features": 32, "blocks": 3, "layers": 6, "growth": 16} | options)


@register("rdn_32_4_6_24")
def rdn_32_4_6_24(**options: Any) -> RDN:
    """The notebook's large RDN: 32 features, 4 blocks of 6 layers, growth 24; 523 kMAC/pixel."""
    return RDN(**{"features": 32, "blocks": 4, "layers": 6, "growth": 24} | options)


@register("rdn_64_4_6_24_shuffle")
def rdn_64_4_6_24_shuffle(**options: Any) -> RDN:
    """The notebook's down/up RDN: PixelUnshuffle, 64 features, 4 blocks of 6 layers, growth 24; 198 kMAC/pixel."""
    return RDN(**{"features": 64, "blocks": 4, "layers": 6, "growth": 24, "shuffle": 2} | options)
