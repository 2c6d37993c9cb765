"""What the viewer adds to the core."""

from codecnn.base.parts import Part

PART = Part(commands={"codecnn.viewer.commands": "pictures"})
