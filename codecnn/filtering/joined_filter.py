"""Luma of one filter and chroma of another as one `PictureFilter`."""

from codecnn.base.errors import ConfigError
from codecnn.base.runtime import Runtime
from codecnn.filtering.network_filter import NetworkFilter
from codecnn.filtering.planes import NO_PLANES, Planes, round_samples
from codecnn.models import Card
from codecnn.models.graph import Array
from codecnn.pictures.files import Picture


class JoinedFilter:
    """Luma of one network, and chroma of another that filters all components.

    Args:
        luma: The filter whose luma is taken.
        chroma: The filter whose chroma is taken.

    Raises:
        ConfigError: The second filter does not filter chroma.
    """

    outputs = ("y", "u", "v")

    def __init__(self, luma: NetworkFilter, chroma: NetworkFilter) -> None:
        if chroma.outputs != self.outputs:
            raise ConfigError(f"{chroma!r} does not filter chroma")
        self.luma, self.chroma = luma, chroma
        self.planes = tuple(dict.fromkeys((*luma.planes, *chroma.planes)))

    @property
    def card(self) -> Card:
        """Card of the weights for luma."""
        return self.luma.card

    @property
    def runtime(self) -> Runtime:
        """Runtime of the next picture's luma."""
        return self.luma.runtime

    def samples(self, picture: Picture, qp: int, beside: Planes = NO_PLANES) -> dict[str, Array]:
        """Filter a picture with both networks; see `PictureFilter.samples`."""
        return self.chroma.samples(picture, qp, beside) | {"y": self.luma.samples(picture, qp, beside)["y"]}

    def __call__(self, picture: Picture, qp: int, beside: Planes = NO_PLANES) -> Picture:
        """Filter a picture; see `PictureFilter`."""
        return round_samples(picture, self.samples(picture, qp, beside))
