"""Settings of a training run: the `training` part of a configuration."""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from codecnn.base.user_code import is_reference

LOSSES = ("mse", "l1", "charbonnier", "satd", "dct")
"""Losses of the filtered samples; `filter_loss` defines them."""


def _check_loss(name: str) -> str:
    if name not in LOSSES and not is_reference(name):
        raise ValueError(f"one of {', '.join(LOSSES)}, or package.module:function, is needed")
    return name


class Schema(BaseModel):
    """An immutable part of a YAML file in which unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class GroupSettings(Schema):
    """Optimiser options of a group of parameters; an option that is not given has the value of the whole network."""

    lr: float | None = Field(default=None, gt=0, description="learning rate at the end of the warm-up")
    weight_decay: float | None = Field(default=None, ge=0)


class ComponentSettings(Schema):
    """Relative weights of the components in loss and score; the defaults are those of YUV-PSNR."""

    y: float = Field(default=6, gt=0, allow_inf_nan=False)
    u: float = Field(default=1, gt=0, allow_inf_nan=False)
    v: float = Field(default=1, gt=0, allow_inf_nan=False)


class StartSettings(Schema):
    """Trained weights that replace the random initial weights of the network."""

    weights: str | None = Field(
        default=None,
        description=".safetensors file, optional only with lift; transfer.json reports what happened to each tensor",
    )
    rename: dict[str, str] = Field(default={}, description="names in the file that differ: {old: new}")
    adapt_first: bool = Field(
        default=True, description="extend the first convolution by zero weights for input planes that were added"
    )
    partial: bool = Field(default=False, description="load the tensors that fit instead of requiring all of them")
    grow: bool = Field(
        default=False,
        description="the weights are those of a smaller network of the same kind; the wider network starts as that one",
    )
    lift: bool = Field(
        default=False,
        description="the weights are those of a network at full resolution (shuffle 1) with 1/shuffle² of the "
        "features, random ones if no weights are given; the network starts as that one. Together with grow the network "
        "at full resolution may have fewer features",
    )
    revive: bool = Field(
        default=False,
        description="reinitialise units that ReLU sets to zero at every sample of some batches, with zero weights in "
        "the layer that reads them, so that they learn again",
    )
    freeze: list[str] = Field(
        default=[], description="patterns of parameter names that are not trained, such as blocks.*"
    )

    @model_validator(mode="after")
    def _check_combination(self) -> Self:
        if (self.grow or self.lift) and (self.rename or self.partial):
            raise ValueError(
                "grow and lift take all tensors of the other network by name: remove rename and partial from start"
            )
        if self.weights is None and (self.grow or not self.lift):
            raise ValueError("start needs weights: only lift without grow works without them")
        return self


class TeacherSettings(Schema):
    """Teacher networks whose filtered pictures are the first training targets (distillation)."""

    weights: list[str] = Field(
        min_length=1, description="files or names of the zoo; the target is the mean of their filtered pictures"
    )
    chroma: list[str] = Field(
        default=[], description="networks that teach U and V; those of weights then teach luma only"
    )
    symmetries: bool = Field(
        default=False, description="average each teacher over the eight flips and transposes of the picture"
    )
    precision: Literal["float32", "bfloat16"] = Field(
        default="float32",
        description="precision in which the teachers filter: bfloat16 is faster on processors that multiply it",
    )
    original: tuple[float, float] = Field(
        default=(0.0, 0.3),
        description="share of the original in the target, at the peak of the learning rate and at its end",
    )

    @model_validator(mode="before")
    @classmethod
    def _accept_names(cls, value: Any) -> Any:
        """Accept a name or a list of names in place of the options: `teacher: NAME`."""
        value = {"weights": value} if isinstance(value, str | list) else value
        if isinstance(value, dict):
            value = {
                name: [given] if isinstance(given, str) and name in ("weights", "chroma") else given
                for name, given in value.items()
            }
        return value


class LoopSettings(Schema):
    """Settings of the training loop, common to all tasks."""

    steps: int = Field(default=20_000, ge=1, description="optimiser steps")
    batch: int = Field(default=16, ge=1, description="examples per step: patches or blocks")
    augment: bool = Field(default=True, description="flip and transpose examples at random")
    optimiser: Literal["adamw", "muon", "sgd", "rmsprop"] = Field(
        default="adamw", description="muon: Muon for the weights of hidden convolutions, AdamW for the other parameters"
    )
    learning_rate: float = Field(default=1e-3, gt=0, description="learning rate at the end of the warm-up")
    muon_rate: float = Field(default=0.02, gt=0, description="learning rate of Muon at the end of the warm-up")
    modulation_rate: float = Field(
        default=1.0, gt=0, description="factor on the learning rate for the layers that scale features by the QP"
    )
    weight_decay: float = Field(default=1e-4, ge=0)
    warmup: int = Field(default=200, ge=0, description="steps of linear warm-up; a cosine to zero follows")
    groups: dict[str, GroupSettings] = Field(
        default={}, description="options by pattern of parameter names, such as head.*: {lr: 0.0001}"
    )
    clip: float = Field(default=0.5, gt=0, description="largest gradient norm; larger gradients are scaled down to it")
    ema: float = Field(
        default=0.999, ge=0, lt=1, description="decay of the exponential moving average of the weights; 0: no average"
    )
    validate_every: int = Field(default=1000, ge=1, description="steps between validations, each with a checkpoint")
    checkpoint_every: int = Field(
        default=500, ge=1, description="steps between checkpoints: the most that a crash can lose"
    )
    workers: int = Field(default=0, ge=0, description="processes that cut patches; 0: the training process cuts them")
    accumulate: int = Field(
        default=1, ge=1, description="parts of a batch whose gradients are added up, each with that much less memory"
    )
    precision: Literal["float32", "bfloat16", "auto"] = Field(
        default="float32",
        description="precision of the convolutions; residual, loss and weights stay float32; auto: the faster one",
    )
    tf32: bool = Field(
        default=False,
        description="let a GPU multiply float32 with the 10-bit mantissa of TF32; validation does not",
    )
    compile: bool | Literal["auto", "reduce-overhead"] = Field(
        default=False,
        description="torch.compile; the network runs uncompiled if that fails; auto: compile if it saves time; "
        "reduce-overhead: with CUDA graphs, which start all kernels of a pass at once",
    )
    deterministic: bool = Field(
        default=False,
        description="use only algorithms that give the same bits each time; an operation without one is an error",
    )
    threads: int | None = Field(
        default=None,
        ge=1,
        description="CPU threads; null: as many as OMP_NUM_THREADS says, else one per physical core, at most 8",
    )
    device: str = Field(default="auto", description="auto, cpu, cuda or cuda:N")
    boards: tuple[Literal["tensorboard", "wandb", "mlflow"], ...] = Field(
        default=("tensorboard",),
        description="programs that show the run, a name or a list: tensorboard, wandb (Weights & Biases), mlflow; "
        "[]: none",
    )
    seed: int = Field(default=0, ge=0)

    @field_validator("boards", mode="before")
    @classmethod
    def _accept_name(cls, value: Any) -> Any:
        """Accept a name in place of a list of names: `boards: wandb`."""
        return [value] if isinstance(value, str) else value

    @model_validator(mode="after")
    def _check_graphs(self) -> Self:
        if self.compile == "reduce-overhead" and self.accumulate > 1:
            raise ValueError(
                "compile: reduce-overhead needs accumulate 1, since the gradients of a part lie in memory that the "
                "next part overwrites: set compile true, or accumulate 1"
            )
        return self


class FilterSettings(LoopSettings):
    """Settings of the training of an in-loop filter. The defaults suit finished VVC pictures."""

    patch: int = Field(default=128, ge=8, description="width and height of a target patch in samples, a multiple of 8")
    positions: Literal["ctu", "random"] = Field(
        default="random", description="ctu: patches on the CTU grid; random: patches at any position"
    )
    error_exponent: float | None = Field(
        default=None,
        ge=0,
        description="draw a CTU, among those of equal QP, with a probability proportional to its area times this power "
        "of its MSE; null: draw all sequences equally often",
    )
    keep_objective: bool = Field(
        default=False,
        description="weight what error_exponent draws by 1/p, which keeps the mean loss of the uniform draw",
    )
    border: int = Field(
        default=0,
        ge=0,
        description="samples along the edges of a patch that do not count in the loss, since they lack context",
    )
    start: StartSettings | None = Field(default=None, description="weights to start from and the part that is frozen")
    teacher: TeacherSettings | None = Field(
        default=None, description="teacher networks for distillation: a name, a list of names, or a table of options"
    )
    quantise: Literal["int8"] | None = Field(
        default=None, description="int8: fine-tune the weights of start as an 8-bit network, which is then saved"
    )
    quantise_loss: float = Field(
        default=0.02,
        ge=0,
        description="loss in dB that 8-bit tensors may cause before quantise starts; the other tensors have 12 bits",
    )
    loss: Annotated[str, AfterValidator(_check_loss)] = Field(
        default="mse",
        description="loss of the filtered samples: mse, l1, charbonnier, satd or dct (the last two of the transformed "
        "error), or package.module:function, a function of the filtered planes and the batch",
    )
    components: ComponentSettings = Field(
        default=ComponentSettings(), description="weights of luma and chroma errors for networks that filter both"
    )
    weighting: Literal["picture", "none"] = Field(
        default="picture", description="picture: divide the error by that of the whole decoded picture; none: do not"
    )
    validation_pictures: int | None = Field(
        default=None, ge=1, description="validation pictures per QP of each store; null: all"
    )
    resident: bool = Field(
        default=False, description="hold all training pictures in GPU memory and cut patches there, without workers"
    )

    @model_validator(mode="after")
    def _check_quantise(self) -> Self:
        if self.quantise is not None and (self.start is None or self.start.weights is None or self.start.freeze):
            raise ValueError("quantise needs the weights of a trained network: set start.weights and no start.freeze")
        if self.quantise is not None and (self.precision != "float32" or self.compile is not False):
            raise ValueError("quantise computes integers in float32: set precision float32 and compile false")
        return self


FREE = ("workers", "resident", "checkpoint_every", "threads", "device", "compile", "deterministic", "boards")
"""Settings that affect only where and how fast a run trains and what shows it; they may change when it is resumed."""
