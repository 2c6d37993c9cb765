"""What `make wheel` refuses; that it passes is for CI to see."""

import io
import tarfile
import zipfile

import pytest

from tools import wheel

HELD = ["codecnn/__init__.py", "codecnn/evaluation/templates/report.html.j2", "codecnn/_bundled/datasets/demo.yaml"]
TRACKED = ["README.md", "tests/conftest.py", *(name.removeprefix("codecnn/_bundled/") for name in HELD)]
METADATA = "codecnn-1.dist-info/METADATA"


@pytest.fixture(autouse=True)
def _tracked(monkeypatch):
    monkeypatch.setattr(wheel, "tracked", lambda: TRACKED)


@pytest.mark.parametrize("lost", [None, *HELD])
def test_a_wheel_that_lacks_a_file_is_refused(lost, tmp_path):
    path = _wheel(tmp_path, {*HELD, METADATA} - {lost})
    if lost is None:
        wheel.check_wheel(path)
    else:
        with pytest.raises(SystemExit, match=f"codecnn-1-py3-none-any.whl lacks {lost}"):
            wheel.check_wheel(path)


def test_a_wheel_holds_nothing_else(tmp_path):
    path = _wheel(tmp_path, {*HELD, METADATA, "tests/conftest.py"})
    with pytest.raises(SystemExit, match=r"should not hold tests/conftest\.py"):
        wheel.check_wheel(path)


def test_an_sdist_holds_what_is_tracked(tmp_path):
    wheel.check_sdist(_sdist(tmp_path, [*TRACKED, "PKG-INFO"]))
    with pytest.raises(SystemExit, match=r"lacks README\.md"):
        wheel.check_sdist(_sdist(tmp_path, TRACKED[1:]))
    with pytest.raises(SystemExit, match=r"should not hold stores/demo/store\.json"):
        wheel.check_sdist(_sdist(tmp_path, [*TRACKED, "stores/demo/store.json"]))


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
