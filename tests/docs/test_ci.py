"""The workflow of GitHub runs the steps of `.ci/run` on every version of Python that the package supports."""

import re
import tomllib

import yaml

from tests.helpers.documentation import ROOT


def test_the_workflow_has_the_steps_of_ci_run():
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text("utf-8"))
    job = workflow["jobs"]["ci"]
    steps = [step["run"].removesuffix(" PYTHON=python") for step in job["steps"] if "run" in step]
    assert steps == re.findall(r"^make .+", (ROOT / ".ci/run").read_text("utf-8"), re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    supported = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    assert job["strategy"]["matrix"]["python"] == supported
