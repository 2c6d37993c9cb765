"""One coded picture as a page to look into: its CUs, modes and QPs over prediction, unfiltered, decoded and filtered.

`view` writes the page of a VVC stream's or a store's picture; `shown_stream` and `shown_unit` gather what is on it, for
figures and statistics of your own: layers of samples, and `Blocks` of CUs with their modes.
"""

from codecnn.viewer._blocks import Blocks, CodingUnit, Mode
from codecnn.viewer._gather import Shown, shown_stream, shown_unit
from codecnn.viewer._page import write_page
from codecnn.viewer.view import Viewed, view

__all__ = ["Blocks", "CodingUnit", "Mode", "Shown", "Viewed", "shown_stream", "shown_unit", "view", "write_page"]
