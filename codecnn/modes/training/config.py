"""Training configuration of the intra mode classifier."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Field

from codecnn.training import LoopSettings, Schema

if TYPE_CHECKING:  # these need torch, which a configuration does not
    from codecnn.base.cluster import Progress
    from codecnn.modes.training.task import IntraModesTask
    from codecnn.training.checks import Finding

Paths = Annotated[list[Path], BeforeValidator(lambda value: value if isinstance(value, list) else [value])]
"""One path or a list of paths."""


class IntraModesConfig(Schema):
    """Configuration that trains an intra mode classifier on label tables; unknown keys are errors."""

    task: Literal["intra_modes"] = "intra_modes"
    labels: Paths = Field(min_length=1, description="tables written by `codecnn labels`")
    validation: Paths = Field(
        default=[], description="tables of other pictures; default: the split 'val' of a labelled store"
    )
    cost: Literal["dct", "hadamard", "sad", "sse", "rate"] = Field(
        default="dct", description="cost that defines the best mode"
    )
    softness: float = Field(
        default=0.0,
        ge=0,
        le=10,
        description="modes within this share of the block's mean excess cost count as equally good; 0: best only",
    )
    validation_blocks: int = Field(
        default=4096, ge=1, description="number of 4x4 validation blocks; half as many of 8x8, and so on"
    )
    network: Literal["modes", "mode_sketch"] = Field(default="modes", description="kind of network")
    model: dict[str, int] = Field(default={}, description="options of the network, e.g. features, blocks, hidden")
    training: LoopSettings = LoopSettings()

    @property
    def data(self) -> list[Path]:
        """The tables that the training reads."""
        return [*self.labels, *self.validation]

    @property
    def weights(self) -> list[str]:
        """The weights that the training starts from: none."""
        return []

    def make_task(self, settings: LoopSettings | None = None, *, resume: bool = False) -> "IntraModesTask":
        """Create the task to train, with other settings if given."""
        from codecnn.modes.training.task import intra_modes_task

        return intra_modes_task(
            self.labels,
            self.validation,
            {"network": self.network, **self.model},
            settings or self.training,
            cost=self.cost,
            softness=self.softness,
            validation_blocks=self.validation_blocks,
        )

    def check(self, progress: "Progress | None" = None) -> "list[Finding]":
        """Run the checks that apply to any task; see `check_task`."""
        from codecnn.training.checks import check_task

        return check_task(self.make_task, self.training, progress)
