"""Content of the view of one picture: layers of samples, coding of the blocks, and facts."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from codecnn.pictures.files import Picture, VideoFormat
from codecnn.viewer.blocks import Blocks
from codecnn.viewer.coded import Coding
from codecnn.viewer.filters import CtuValues

ORIGINAL: str = "original"
PREDICTION: str = "prediction"
UNFILTERED: str = "unfiltered"
DECODED: str = "decoded"
FILTERED: str = "filtered"
"""Names of the layers, in the order of the page; further networks have the layers "filtered 2" and so on."""


@dataclass(frozen=True)
class Header:
    """Facts of a coded picture.

    Attributes:
        number: Position in output order.
        slice_type: Most general type of its slices: I, P or B.
        slice_qps: QPs of its slices.
        poc: Picture order count, None if it is unknown.
        temporal_id: Temporal sub-layer, None if it is unknown.
        bits: Size with all headers, None if it is unknown.
        hash: Comparison with the hash in the stream: "ok", "differs", "none", or "" if it is not compared.
    """

    number: int
    slice_type: str
    slice_qps: tuple[int, ...]
    poc: int | None = None
    temporal_id: int | None = None
    bits: int | None = None
    hash: str = ""


@dataclass(frozen=True, eq=False)
class Shown:
    """Content of the view of one picture.

    Attributes:
        title: Stream or sequence, and number of the picture.
        header: Facts of the coded picture.
        form: Format of the picture.
        layers: Pictures of the same format, by the name of the layer.
        coding: Coding of its blocks.
        psnr: PSNR of Y, U and V of each layer but the original, in dB; empty without an original.
        ctus: Effect of the networks on the CTUs, by layer.
        titles: Title of the layer of each network.
        notes: Sentences on what is missing and why.
    """

    title: str
    header: Header
    form: VideoFormat
    layers: Mapping[str, Picture]
    coding: Coding
    psnr: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    ctus: Mapping[str, CtuValues] = field(default_factory=dict)
    titles: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def blocks(self) -> Blocks:
        """CUs of the picture."""
        return self.coding.blocks
