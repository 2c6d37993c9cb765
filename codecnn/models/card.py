"""The card of a weights file: the JSON beside it, as a record."""

from collections.abc import Iterator, Mapping
from dataclasses import field, fields
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.dataclasses import dataclass

from codecnn.errors import ModelError
from codecnn.runs import read_json, sha256_file

CARD_SCHEMA = 1


def card_path(weights: Path | str) -> Path:
    """The card of a weights file: `name.safetensors` has `name.json`."""
    return Path(weights).with_suffix(".json")


class MeanOfClasses(BaseModel):
    """Luma's gain in dB and BD-rate in % with its 95 % interval, every class of test pictures counted as one."""

    model_config = ConfigDict(frozen=True)

    classes: int
    gain_db: float
    bd_rate_y: float
    bd_rate_y_ci95: tuple[float, float]


class TestedOn(BaseModel):
    """The pictures of a test, by how many they are."""

    model_config = ConfigDict(frozen=True)

    pictures: int


class CardTest(BaseModel):
    """What an evaluation on pictures that no training saw found, by component ("y", "u", "v", ...).

    gain_db        dB of PSNR, by QP ("22") and "mean", mean over the pictures
    bd_rate        percent; None where the curves have none
    over_classes   where the pictures are of several classes
    """

    model_config = ConfigDict(frozen=True)

    store: TestedOn | None = None
    gain_db: dict[str, dict[str, float | None]]
    bd_rate: dict[str, float | None]
    over_classes: MeanOfClasses | None = None

    @property
    def luma(self) -> tuple[float | None, float | None]:
        """Luma's mean gain and BD-rate, over classes of pictures where the test has several, else over pictures."""
        if self.over_classes is not None:
            return self.over_classes.gain_db, self.over_classes.bd_rate_y
        return self.gain_db["y"]["mean"], self.bd_rate["y"]


class TrainedOn(BaseModel):
    """A store that a network was trained on: how its pictures were coded, and which they are.

    share      of the patches
    sequences  of the split train, by class ("" for those of none); `settings` says how many units each of several
               encoder settings coded, `varied` how many of the sequences are variants of others
    in_loop    the filter in whose loop they were coded: "weights", "network", "sha256", "decisions"
    """

    model_config = ConfigDict(frozen=True)

    name: str
    share: float
    encoder: str
    codec: str
    preset: str
    configuration: str
    loop_filters: bool
    ctu_size: int
    params: dict[str, str] = {}
    sequences: dict[str, int] = {}
    varied: int = 0
    settings: list[dict[str, Any]] = []
    in_loop: dict[str, str] | None = None

    @property
    def codecs(self) -> list[str]:
        """The codecs that its pictures were coded by."""
        return self.codec.split(" and ")


@dataclass(frozen=True, eq=False)
class Card(Mapping[str, Any]):
    """What a card says, by attribute; None where it does not say.

    task           "filter", "modes" or "integer"; cards from before there were mode networks do not tell
    network        the name that `create_model` knows, and its `options`
    sha256         of the weights file; of an integer network's source `source_sha256`
    data_key       of the store, or the label table, that the network was trained on, at the slice QPs `qps`
    trained_on     the stores that the network was trained on
    kmac_per_pixel and `parameters` as `Complexity` has them
    test           what an evaluation found
    json           the card as it lies on disk, with all that has no attribute here

    As a mapping it is that JSON, with all keys and in their order: `card["note"]`, `card.get("qps")`, `dict(card)`;
    `card | {...}` is another card.
    """

    json: dict[str, Any] = field(repr=False)
    options: dict[str, Any] = field(default_factory=dict)
    task: str = "filter"
    network: str | None = None
    sha256: str | None = None
    source_sha256: str | None = None
    data_key: str | None = None
    qps: tuple[int, ...] | None = None
    trained_on: tuple[TrainedOn, ...] | None = None
    kmac_per_pixel: float | None = None
    parameters: int | None = None
    test: CardTest | None = None

    def nearest_qp(self, qp: int) -> int:
        """The QP among those that the network learned, or between them, that is nearest; `qp` where `qps` says none."""
        return min(max(qp, min(self.qps)), max(self.qps)) if self.qps else qp

    def __getitem__(self, key: str) -> Any:
        return self.json[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.json)

    def __len__(self) -> int:
        return len(self.json)

    def __or__(self, changes: Mapping[str, Any]) -> "Card":
        return as_card({**self.json, **changes})


def as_card(content: Mapping[str, Any]) -> Card:
    """A card from the content of its JSON. Raises ModelError that names a key whose value has another type."""
    known = {one.name for one in fields(Card)} - {"json"}
    try:
        return Card(json=dict(content), **{name: content[name] for name in known & content.keys()})
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(str(part)[:80] for part in found["loc"])
        raise ModelError(f"not a card of weights: {place}: {found['msg'][:200]}") from error


def read_card(weights: Path | str) -> Card:
    """The card beside a weights file. Raises ModelError for one of another schema."""
    path = card_path(weights)
    content = read_json(path)
    whole = isinstance(content, dict) and isinstance(content.get("options"), dict)
    if not whole or content.get("schema") != CARD_SCHEMA:
        raise ModelError(f"{path} is not a card of schema {CARD_SCHEMA}")
    try:
        return as_card(content)
    except ModelError as error:
        raise ModelError(f"{path} is {error}") from error


def check_described(path: Path, sha256: str | None) -> None:
    """Raise ModelError where the file is not the one of which its card says the hash."""
    if sha256_file(path) != sha256:
        raise ModelError(
            f"{path} is not the file that its card describes (sha256 differs): copy both again, weights and card"
        )
