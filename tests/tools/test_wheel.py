"""Archives that `make wheel` refuses; CI runs the whole command."""

import io
import re
import tarfile
import zipfile

import pytest

from tools import wheel

CONTAINED = [
    "codecnn/__init__.py",
    "codecnn/evaluation/templates/report.html.j2",
    "codecnn/_bundled/datasets/demo.yaml",
]
TRACKED = ["README.md", "tests/conftest.py", *(name.removeprefix("codecnn/_bundled/") for name in CONTAINED)]
METADATA = "codecnn-1.dist-info/METADATA"


@pytest.fixture
def tracked(monkeypatch):
    monkeypatch.setattr(wheel, "tracked_files", lambda: TRACKED)


@pytest.mark.usefixtures("tracked")
@pytest.mark.parametrize("missing", [None, *CONTAINED])
def test_wheel_without_a_file_is_refused(missing, tmp_path):
    path = _wheel(tmp_path, {*CONTAINED, METADATA} - {missing})
    if missing is None:
        wheel.check_wheel(path)
    else:
        with pytest.raises(SystemExit, match=re.escape(f"codecnn-1-py3-none-any.whl lacks {missing}")):
            wheel.check_wheel(path)


@pytest.mark.usefixtures("tracked")
def test_wheel_with_another_file_is_refused(tmp_path):
    path = _wheel(tmp_path, {*CONTAINED, METADATA, "tests/conftest.py"})
    with pytest.raises(SystemExit, match=r"should not contain tests/conftest\.py"):
        wheel.check_wheel(path)


@pytest.mark.usefixtures("tracked")
def test_sdist_contains_the_tracked_files(tmp_path):
    wheel.check_sdist(_sdist(tmp_path, [*TRACKED, "PKG-INFO"]))
    with pytest.raises(SystemExit, match=r"lacks README\.md"):
        wheel.check_sdist(_sdist(tmp_path, TRACKED[1:]))
    with pytest.raises(SystemExit, match=r"should not contain stores/demo/store\.json"):
        wheel.check_sdist(_sdist(tmp_path, [*TRACKED, "stores/demo/store.json"]))


def test_page_of_examples_is_tracked_and_has_examples():
    assert str(wheel.EXAMPLES.relative_to(wheel.REPOSITORY)) in wheel.tracked_files()
    assert "```python\n" in wheel.EXAMPLES.read_text(encoding="utf-8")


def _wheel(folder, names):
    path = folder / "codecnn-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in sorted(names):
            archive.writestr(name, "")
    return path


def _sdist(folder, names):
    path = folder / "codecnn-1.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(f"codecnn-1/{name}"), io.BytesIO())
    return path
