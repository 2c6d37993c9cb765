"""CITATION.cff, CHANGELOG.md and the front page of the site name the version that the package has."""

import re
import tomllib

import yaml

import codecnn
from tests.helpers.documentation import ROOT


def test_the_citation_is_of_this_version():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert (cited["version"], cited["license"]) == (codecnn.__version__, project["license"])
    assert [author["name"] for author in cited["authors"]] == [author["name"] for author in project["authors"]]
    assert cited["keywords"] == project["keywords"]


def test_the_changelog_dates_this_version():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    unreleased, latest = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)[:2]
    assert (unreleased, latest) == ("Unreleased", f"{codecnn.__version__} ({cited['date-released']})")


def test_the_front_page_names_this_version():
    minor = codecnn.__version__.rpartition(".")[0]
    assert re.findall(r"codecnn (\d\S*)", (ROOT / "docs" / "site" / "index.md").read_text("utf-8")) == [minor]
