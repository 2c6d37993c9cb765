"""The viewer as a part: functions and commands that it adds."""

from codecnn.base.parts import Part

PART = Part(commands={"codecnn.viewer.commands": "pictures"})
