"""Pages of the documentation and their code blocks."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
TUTORIALS = sorted((ROOT / "docs/tutorials").glob("*.md"))
"""Pages whose code blocks form one program."""
BLOCKS = [
    (page, kind, text)
    for page in PAGES
    for kind, text in re.findall(r"^```([^\n]*)\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S)
]
"""Code blocks: page, language, text."""
