"""Configuration of the documentation site, built by `make docs`."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(ROOT))

from codecnn import __version__  # noqa: E402

project = "codecnn"
author = project_copyright = "The codecnn authors"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "generated"]
# The pages of the repository are the site's, so that links between them and to its files hold in both places.
root_doc = "docs/site/index"
include_patterns = [
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "docs/examples/cpp/*.md",
    "docs/explanation/*.md",
    "docs/howto/*.md",
    "docs/reference/*.md",
    "docs/research/*.md",
    "docs/site/*.md",
    "docs/tutorials/*.md",
    "tests/data/README.md",
]
exclude_patterns = [".*", "build", "demo", "dist", "runs", "stores", "codecnn", "tools"]

myst_heading_anchors = 4
myst_enable_extensions = ["attrs_inline"]
suppress_warnings = ["myst.header"]

default_role = "code"
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_class_signature = "separated"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"codecnn {version}"
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
html_static_path = ["static"]
html_css_files = ["site.css"]
pygments_style = "friendly"
pygments_dark_style = "monokai"
