from .picture import PLANES as PLANES
from .picture import reconstruct as reconstruct
from .pictures import read_pictures as read_pictures
