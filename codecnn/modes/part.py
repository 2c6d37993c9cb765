"""Labels and mode networks as a part: functions, commands and tasks that it adds."""

from codecnn.base.parts import Part

PART = Part(
    functions={"export_integers": "codecnn.modes.networks:export_integers"},
    commands={"codecnn.modes.commands": "dataset"},
    tasks={"intra_modes": "codecnn.modes.training.config:IntraModesConfig"},
    weights={
        "modes": ("a network of intra modes", "load_mode_network or `codecnn modes predict`"),
        "integer_modes": ("a network of intra modes in integers", "load_integer_sketch or `codecnn modes predict`"),
    },
)
