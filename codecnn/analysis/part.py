"""What the correlation analysis adds to the core."""

from codecnn.base.parts import Part

PART = Part(
    functions={"correlate_store": "codecnn.analysis:correlate_store"},
    commands={"codecnn.analysis.commands": "evaluation"},
)
