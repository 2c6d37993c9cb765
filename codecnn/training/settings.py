"""What a training run is asked to do; the `training` part of a configuration."""

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer, model_validator


class Schema(BaseModel):
    """A part of a YAML file whose unknown keys are errors; its values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class GroupSettings(Schema):
    """What the optimiser does differently with some parameters; what is not given stays as it is for all."""

    lr: float | None = Field(default=None, gt=0, description="learning rate at the end of the warm-up")
    weight_decay: float | None = Field(default=None, ge=0)


class ComponentSettings(Schema):
    """What each component weighs in loss and score, relative to the others; as in YUV-PSNR by default."""

    y: float = Field(default=6, gt=0, allow_inf_nan=False)
    u: float = Field(default=1, gt=0, allow_inf_nan=False)
    v: float = Field(default=1, gt=0, allow_inf_nan=False)


class StartSettings(Schema):
    """Weights to start from instead of the network's own random ones."""

    weights: str | None = Field(
        default=None,
        description=".safetensors, which only lift can do without; the report on every tensor goes to transfer.json",
    )
    rename: dict[str, str] = Field(default={}, description="names in the file that differ: {old: new}")
    adapt_first: bool = Field(default=True, description="let the first convolution follow where planes were added")
    partial: bool = Field(default=False, description="load what fits, instead of asking that all does")
    grow: bool = Field(
        default=False, description="the weights are those of a smaller network of this kind, as which this one starts"
    )
    lift: bool = Field(
        default=False,
        description="the weights are those of a network at full resolution (shuffle 1) and 1/shuffle² of the features, "
        "random ones where none are given, as which this one starts; with grow of fewer features still",
    )
    revive: bool = Field(
        default=False,
        description="give units that ReLU makes zero at every sample of some batches new weights, and what reads them "
        "none, so that they learn again",
    )
    freeze: list[str] = Field(default=[], description="patterns of parameters that stay as they are, such as blocks.*")

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.grow or self.lift) and (self.rename or self.partial):
            raise ValueError(
                "grow and lift take all of another network by its own names: rename and partial do not go with them"
            )
        if self.weights is None and (self.grow or not self.lift):
            raise ValueError("start needs weights: only lift without grow can do without")
        return self


class TeacherSettings(Schema):
    """Trained networks whose filtered pictures the network learns to make before it learns from the originals."""

    weights: list[str] = Field(min_length=1, description="files, or names of the zoo; the mean of what they make")
    chroma: list[str] = Field(
        default=[],
        description="networks that teach U and V; those of weights then teach luma alone",
    )
    symmetries: bool = Field(default=False, description="of each the mean over its eight flips and transposes")
    precision: Literal["float32", "bfloat16"] = Field(
        default="float32", description="that its pictures are made in: bfloat16 is quicker where processors multiply it"
    )
    original: tuple[float, float] = Field(
        default=(0.0, 0.3), description="share of the original in the target, at the rate's peak and where it is zero"
    )

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, value: Any) -> Any:
        """A teacher may be named alone: `teacher: NAME`, or a list of names."""
        value = {"weights": value} if isinstance(value, str | list) else value
        if isinstance(value, dict):
            value = {
                name: [given] if isinstance(given, str) and name in ("weights", "chroma") else given
                for name, given in value.items()
            }
        return value


class LoopSettings(Schema):
    """The numbers of the training loop, which any task has."""

    steps: int = Field(default=20_000, ge=1, description="optimiser steps")
    batch: int = Field(default=16, ge=1, description="examples a step: patches, or blocks")
    augment: bool = Field(default=True, description="flips and transposes")
    optimiser: Literal["adamw", "muon", "sgd", "rmsprop"] = Field(
        default="adamw", description="muon: for the weights of hidden convolutions, AdamW for the rest"
    )
    learning_rate: float = Field(default=1e-3, gt=0, description="at the end of the warm-up")
    muon_rate: float = Field(default=0.02, gt=0, description="Muon's own learning rate at the end of the warm-up")
    modulation_rate: float = Field(
        default=1.0, gt=0, description="learning rate of what scales features by the QP, as a factor on the others'"
    )
    weight_decay: float = Field(default=1e-4, ge=0)
    warmup: int = Field(default=200, ge=0, description="steps of linear warm-up; a cosine to zero follows")
    groups: dict[str, GroupSettings] = Field(
        default={}, description="by pattern of the parameters' names, such as head.*: {lr: 0.0001}"
    )
    clip: float = Field(default=0.5, gt=0, description="largest gradient norm")
    ema: float = Field(default=0.999, ge=0, lt=1, description="decay of the averaged weights that are kept; 0 for none")
    validate_every: int = Field(default=1000, ge=1, description="steps between validations, each with a checkpoint")
    checkpoint_every: int = Field(default=500, ge=1, description="steps between checkpoints, what a crash can lose")
    workers: int = Field(default=0, ge=0, description="processes that cut patches; 0 cuts them in the loop")
    accumulate: int = Field(
        default=1, ge=1, description="parts that a batch is worked off in, each with that much less memory"
    )
    precision: Literal["float32", "bfloat16", "auto"] = Field(
        default="float32",
        description="of the network's convolutions; residual, loss and weights stay float32; auto takes the faster one",
    )
    compile: bool | Literal["auto"] = Field(
        default=False, description="torch.compile; where it fails the network runs as it is; auto where it pays"
    )
    threads: int | None = Field(default=None, ge=1, description="CPU threads; null leaves the choice to torch")
    device: str = Field(default="auto", description="auto, cpu, cuda or cuda:N")
    seed: int = Field(default=0, ge=0)


class FilterSettings(LoopSettings):
    """The loop's numbers and those of loop filters. The defaults are what worked on finished VVC pictures."""

    patch: int = Field(default=128, ge=8, description="side of a target patch in samples, a multiple of 8")
    positions: Literal["ctu", "random"] = Field(default="random", description="patches on the CTU grid, or anywhere")
    error_exponent: float | None = Field(
        default=None,
        ge=0,
        description="within a QP, draw a CTU by its area times this power of its MSE; null draws sequences evenly",
    )
    keep_objective: bool = Field(
        default=False, description="weigh what error_exponent draws by 1/p, so that the mean loss stays that without it"
    )
    expected_error: bool = Field(
        default=False, description="error_exponent is of the error that QP and depth lead to expect, not the CTU's own"
    )
    border: int = Field(
        default=0, ge=0, description="samples along a patch's edges that do not count: they lack their context"
    )
    start: StartSettings | None = Field(default=None, description="weights to start from, and what of them is frozen")
    teacher: TeacherSettings | None = Field(
        default=None, description="weights whose pictures are learned first: a name, several, or with its options"
    )
    quantise: Literal["int8"] | None = Field(
        default=None, description="int8: fine-tune the start's weights as a network of 8 bits, which is what is kept"
    )
    quantise_loss: float = Field(
        default=0.02, ge=0, description="dB that bytes may lose before quantise begins; other tensors have 12 bits"
    )
    loss: Literal["mse", "l1", "charbonnier", "satd", "dct"] = Field(
        default="mse", description="of the filtered samples; satd, dct: of the transformed error"
    )
    components: ComponentSettings = Field(
        default=ComponentSettings(), description="what the errors of luma and chroma weigh where both are filtered"
    )
    weighting: Literal["picture", "none"] = Field(
        default="picture", description="divide the error by that of the whole decoded picture, or by nothing"
    )
    validation_pictures: int | None = Field(
        default=None, ge=1, description="pictures a QP to validate on; null for all"
    )
    resident: bool = Field(
        default=False, description="hold all training pictures in the GPU's memory and cut there, without workers"
    )

    @model_validator(mode="after")
    def _quantisable(self) -> Self:
        if self.quantise is not None and (self.start is None or self.start.weights is None or self.start.freeze):
            raise ValueError("quantise needs the weights of a trained network, start.weights, and freezes none of them")
        if self.quantise is not None and (self.precision != "float32" or self.compile is not False):
            raise ValueError("quantise computes integers in float32: precision float32, compile false")
        return self

    @model_serializer(mode="wrap")
    def _in_written_order(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Cards and config.json list what belongs together side by side, whichever class declares it."""
        content: dict[str, Any] = dump(self)
        ordered: dict[str, Any] = {}
        for name in LoopSettings.model_fields:
            ordered |= {key: content[key] for key in (name, *_WRITTEN_AFTER.get(name, ()))}
        return ordered


_WRITTEN_AFTER = {
    "batch": ("patch", "positions"),
    "augment": ("error_exponent", "keep_objective", "expected_error", "border"),
    "groups": ("start", "teacher", "quantise", "quantise_loss", "loss", "components"),
    "ema": ("weighting",),
    "checkpoint_every": ("validation_pictures",),
    "workers": ("resident",),
}
"""Fields of FilterSettings, by the one of LoopSettings that they are written after."""

FREE = ("workers", "resident", "checkpoint_every", "threads", "device", "compile")
"""Settings that do not decide what is trained, but where and how fast; a run can be resumed with others."""
