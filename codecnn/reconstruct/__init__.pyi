from .pictures import PLANES as PLANES
from .pictures import read_pictures as read_pictures
from .pictures import reconstruct as reconstruct
