"""What labels and mode networks add to the core."""

from codecnn.base.parts import Part

PART = Part(
    commands={"codecnn.modes.commands": "dataset"},
    tasks={"intra_modes": "codecnn.modes.training.config:IntraModesConfig"},
)
