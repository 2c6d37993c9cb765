"""Cards of weights files: JSON files of the same name that describe network, training and test."""

from collections.abc import Iterator, Mapping
from dataclasses import field, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass

from codecnn.base.errors import ModelError
from codecnn.base.files import read_json, sha256_file
from codecnn.base.notebook import facts_table
from codecnn.base.planes import MAX_QP

CARD_SCHEMA = 1
"""Version of the format of cards."""

NetworkQp = Annotated[int, Field(strict=True, ge=0, le=MAX_QP)]
"""QP as networks take it: slice QPs below 0 are 0."""
Count = Annotated[int, Field(strict=True, ge=0, le=2**53)]
Amount = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]


def card_path(weights: Path | str) -> Path:
    """Return the path of a weights file's card: `name.json` for `name.safetensors`."""
    return Path(weights).with_suffix(".json")


def weights_files(*weights: Path) -> list[Path]:
    """List the files of weights, for `check_outputs`: tensors and cards, also of the integer forms."""
    files = []
    for path in weights:
        stem = path.name.removesuffix(path.suffix)
        for form in (".int8", ".int16"):
            stem = stem.removesuffix(form)
        names = [f"{stem}{form}{suffix}" for form in ("", ".int8", ".int16") for suffix in (".safetensors", ".json")]
        files += [path, *(path.with_name(name) for name in names)]
    return files


class MeanOfClasses(BaseModel):
    """Luma gain and BD-rate of a test, averaged over classes of test pictures with equal weight.

    Attributes:
        classes: Number of classes.
        gain_db: PSNR gain in dB.
        bd_rate_y: BD-rate in percent.
        bd_rate_y_ci95: 95 % confidence interval of the BD-rate; None if it is unknown.
    """

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    classes: Count
    gain_db: float
    bd_rate_y: float
    bd_rate_y_ci95: tuple[float, float] | None


class TestedOn(BaseModel):
    """Test pictures of a card: how many there are."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    pictures: Count


class CardTest(BaseModel):
    """Results of an evaluation on pictures that were not used for training.

    Attributes:
        store: The test pictures.
        gain_db: PSNR gain in dB, mean over the pictures, by component ("y", "u", "v", ...), then by QP ("22") and
            "mean".
        bd_rate: BD-rate in percent by component; None if the curves do not overlap.
        over_classes: Means over classes, if there are several.
        bits: Bits of the integers that computed the pictures; None is float32.
    """

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    store: TestedOn | None = None
    gain_db: dict[str, dict[str, float | None]]
    bd_rate: dict[str, float | None]
    over_classes: MeanOfClasses | None = None
    bits: Count | None = None

    @property
    def luma(self) -> tuple[float | None, float | None]:
        """Mean luma gain and BD-rate, over classes of pictures if there are several, else over pictures."""
        if self.over_classes is not None:
            return self.over_classes.gain_db, self.over_classes.bd_rate_y
        return self.gain_db.get("y", {}).get("mean"), self.bd_rate.get("y")


class TrainedOn(BaseModel):
    """A store that a network was trained on: its pictures and how they were coded.

    Attributes:
        name: Name of the store's recipe.
        share: Share of the patches that came from this store.
        encoder: Encoder and its version.
        codec: Codec, or several joined by " and ".
        preset: Encoder preset.
        configuration: Coding configuration: ai, ra or ldb.
        loop_filters: Whether the in-loop filters of the codec were on.
        ctu_size: Width and height of a CTU.
        params: Further encoder parameters.
        sequences: Number of training sequences by class ("" for those without a class).
        varied: Number of sequences that are variants of others.
        settings: Number of units for each of several encoder settings.
        in_loop: Filter in whose loop the pictures were coded: "weights", "network", "sha256", "decisions".
    """

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    name: str
    share: Amount
    encoder: str
    codec: str
    preset: str
    configuration: str
    loop_filters: bool
    ctu_size: Count
    params: dict[str, str] = {}
    sequences: dict[str, Count] = {}
    varied: Count = 0
    settings: list[dict[str, Any]] = []
    in_loop: dict[str, str] | None = None

    @property
    def codecs(self) -> list[str]:
        """Codecs of the pictures."""
        return self.codec.split(" and ")


@dataclass(frozen=True, eq=False, config=ConfigDict(allow_inf_nan=False))
class Card(Mapping[str, Any]):
    """A card as a record; attributes that the card does not have are None.

    As a mapping, the record is the JSON with all keys in their order: `card["note"]`, `card.get("qps")`,
    `dict(card)`; `card | {...}` is a new card.

    Attributes:
        json: Content of the card file, with all keys that have no attribute.
        options: Options of the network.
        task: "filter", "modes", "integer" or "integer_modes"; old cards without a task are those of filters.
        network: Name of the architecture for `create_model`.
        sha256: Hash of the weights file.
        code_sha256: For a network outside of codecnn, hash of its source files.
        source_sha256: For an integer network, hash of the float weights.
        data_key: Key of the store, or label table, that the network was trained on.
        qps: Slice QPs of the training pictures, as networks take them.
        trained_on: Stores that the network was trained on.
        kmac_per_pixel: Cost as in `Complexity`.
        parameters: Number of parameters as in `Complexity`.
        ctu_size: Width and height of a CTU, of a network of intra modes.
        test: Test results.
    """

    json: dict[str, Any] = field(repr=False)
    options: dict[str, Any] = field(default_factory=dict)
    task: str = "filter"
    network: str | None = None
    sha256: str | None = None
    code_sha256: str | None = None
    source_sha256: str | None = None
    data_key: str | None = None
    qps: Annotated[tuple[NetworkQp, ...], Field(min_length=1, max_length=MAX_QP + 1)] | None = None
    trained_on: tuple[TrainedOn, ...] | None = None
    kmac_per_pixel: Amount | None = None
    parameters: Count | None = None
    ctu_size: Literal[16, 32, 64, 128] | None = None
    test: CardTest | None = None

    def nearest_qp(self, qp: int) -> int:
        """Clamp a QP to the range of the training QPs; without `qps` only QPs below 0 are changed, to 0."""
        return min(max(qp, min(self.qps)), max(self.qps)) if self.qps else max(qp, 0)

    def __repr__(self) -> str:
        cost = "" if self.kmac_per_pixel is None else f", {self.kmac_per_pixel:.1f} kMAC/pixel"
        planes = ", ".join(map(str, self.options.get("planes", ())))
        qps = "" if self.qps is None else f", QPs {min(self.qps)} to {max(self.qps)}"
        return f"<Card of {self.network}{cost}, planes {planes or 'unknown'}{qps}>"

    def _repr_html_(self) -> str:
        """Show what the weights are, how they were trained and what they gain, in a notebook."""
        gain, rate = (None, None) if self.test is None else self.test.luma
        stores = [
            f"{each.name} ({each.codec} {each.preset} {each.configuration}, {each.share:.0%})"
            for each in self.trained_on or ()
        ]
        facts = {
            "network": self.network,
            "planes": ", ".join(map(str, self.options.get("planes", ()))) or None,
            "kMAC/pixel": self.kmac_per_pixel,
            "parameters": None if self.parameters is None else f"{self.parameters:,}",
            "QPs of the training": None if self.qps is None else ", ".join(map(str, self.qps)),
            "trained on": "; ".join(stores) or None,
            "gain Y on the test pictures": None if gain is None else f"{gain:+.3f} dB",
            "BD-rate Y on the test pictures": None if rate is None else f"{rate:+.2f} %",
            "SHA-256 of the weights": self.sha256,
        }
        return facts_table(facts.items(), "Weights")

    def __getitem__(self, key: str) -> Any:
        return self.json[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.json)

    def __len__(self) -> int:
        return len(self.json)

    def __or__(self, changes: Mapping[str, Any]) -> "Card":
        return as_card({**self.json, **changes})


def as_card(content: Mapping[str, Any]) -> Card:
    """Create a card from the content of its JSON file.

    Raises:
        ModelError: A value has a wrong type; the message names its key.
    """
    known = {attribute.name for attribute in fields(Card)} - {"json"}
    try:
        return Card(json=dict(content), **{name: content[name] for name in known & content.keys()})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(str(part)[:80] for part in first["loc"])
        raise ModelError(f"not a card of weights: {place}: {first['msg'][:200]}") from error


def read_card(weights: Path | str) -> Card:
    """Read the card of a weights file.

    Raises:
        MissingFileError: The card does not exist.
        ModelError: The file is no card, has another schema version, or belongs to a filter in integers.
    """
    path = card_path(weights)
    content = read_json(path)
    if isinstance(content, dict) and content.get("task") == "integer":
        raise ModelError(f"{path} is the card of a filter in integers, which load_filter and `codecnn filter` take")
    complete = isinstance(content, dict) and isinstance(content.get("options"), dict)
    if not complete or content.get("schema") != CARD_SCHEMA:
        raise ModelError(f"{path} is not a card of schema {CARD_SCHEMA}")
    try:
        return as_card(content)
    except ModelError as error:
        raise ModelError(f"{path} is {error}") from error


def check_sha256(path: Path, sha256: str | None) -> None:
    """Raise ModelError if the hash of the file is not `sha256`, the one on its card."""
    if sha256_file(path) != sha256:
        raise ModelError(
            f"{path} is not the file that its card describes (sha256 differs): copy both again, weights and card"
        )
