"""The blocks of code in the documentation, page by page."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
TUTORIALS = sorted((ROOT / "docs/tutorials").glob("*.md"))
"""Pages whose blocks belong together, from the first to the last."""
BLOCKS = [
    (page, kind, text)
    for page in PAGES
    for kind, text in re.findall(r"^```([^\n]*)\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S)
]
"""(page, what the block says it is, its text)."""
