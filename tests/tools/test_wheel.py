"""What `make wheel` refuses; that it passes is for CI to see."""

import zipfile

import pytest

from tools import wheel

HELD = ["codecnn/__init__.py", "codecnn/evaluation/report/report.html.j2", "codecnn/_bundled/datasets/demo.yaml"]


@pytest.mark.parametrize("lost", [None, *HELD])
def test_a_wheel_that_lacks_a_file_is_refused(lost, tmp_path, monkeypatch):
    tracked = ["README.md", "tests/conftest.py", *(name.removeprefix("codecnn/_bundled/") for name in HELD)]
    monkeypatch.setattr(wheel, "tracked", lambda: tracked)
    path = tmp_path / "codecnn-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in HELD:
            if name != lost:
                archive.writestr(name, "")
    if lost is None:
        wheel.check_contents(path)
    else:
        with pytest.raises(SystemExit, match=f"codecnn-1-py3-none-any.whl lacks {lost}"):
            wheel.check_contents(path)
