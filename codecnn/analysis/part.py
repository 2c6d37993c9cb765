"""The correlation analysis as a part: functions and commands that it adds."""

from codecnn.base.parts import Part

PART = Part(
    functions={"correlate_store": "codecnn.analysis:correlate_store"},
    commands={"codecnn.analysis.commands": "evaluation"},
)
