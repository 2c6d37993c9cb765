"""Packages import each other's public names from the package, which import-linter does not check."""

import ast
from collections.abc import Sequence
from pathlib import Path

import pytest

GROUPS = ("pictures", "vvc", "modes", "signalling")
"""Folders whose subfolders are packages of their own."""
OPEN = ("base", "api", "cli")
"""Packages whose modules others import: not all that they use is public."""

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted((ROOT / "codecnn").rglob("*.py"))


def public_names(package: Path) -> set[str]:
    """Return the public names of a package, of which a few are modules."""
    stub = package / "__init__.pyi"
    tree = ast.parse(stub.read_text("utf-8") if stub.is_file() else "")
    return {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}


def package_of(parts: Sequence[str]) -> str:
    """Return the package of a module, given the parts of its name from "codecnn" on."""
    return ".".join(parts[1:3] if parts[1] in GROUPS else parts[1:2])


def imports_around_packages(source: str, package: str) -> list[str]:
    """List the modules of other packages that a source file imports instead of the packages themselves."""
    modules = []
    for node in ast.walk(ast.parse(source)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            # `from codecnn.codec import base` imports a module as well.
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            parts = name.split(".")
            if parts[0] == "codecnn" and len(parts) > 2 and parts[1] not in OPEN and package_of(parts) != package:
                file = ROOT.joinpath(*parts).with_suffix(".py")
                if file.is_file() and parts[-1] not in public_names(file.parent):
                    modules.append(name)
    return modules


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_public_names_of_other_packages_come_from_the_package(path):
    package = package_of(path.relative_to(ROOT).with_suffix("").parts)
    assert imports_around_packages(path.read_text("utf-8"), package) == []


def test_import_of_a_module_of_another_package_is_found():
    source = "def f():\n    from codecnn.pictures.files.raw import open_raw\n    import codecnn.codec.base\n"
    source += "    from codecnn.pictures.files import raw\n    from codecnn.pictures.files import open_video\n"
    assert imports_around_packages(source, "codec") == ["codecnn.pictures.files.raw", "codecnn.pictures.files.raw"]
    assert imports_around_packages(source, "pictures.files") == ["codecnn.codec.base"]
