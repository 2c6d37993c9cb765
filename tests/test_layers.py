"""Private modules are imported only by their package, which import-linter does not check."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted(path for folder in ("codecnn", "tools") for path in (ROOT / folder).rglob("*.py"))


def private_imports(source: str, package: str) -> list[str]:
    """List the private modules of other packages that a source file imports."""
    modules = []
    for node in ast.walk(ast.parse(source)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for parts in (name.split(".") for name in names if name.startswith("codecnn.")):
            if parts[1] != package and any(part.startswith("_") and not part.startswith("__") for part in parts[1:]):
                modules.append(".".join(parts))
    return modules


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_private_modules_are_imported_only_by_their_package(path):
    package = path.relative_to(ROOT).parts[1].removesuffix(".py") if path.is_relative_to(ROOT / "codecnn") else ""
    assert private_imports(path.read_text("utf-8"), package) == []


def test_import_of_a_private_module_of_another_package_is_found():
    source = "def f():\n    from codecnn.video._raw import x\n    import codecnn.filtering._frame\n"
    assert private_imports(source, "codec") == ["codecnn.video._raw.x", "codecnn.filtering._frame"]
    assert private_imports(source, "video") == ["codecnn.filtering._frame"]
