"""CITATION.cff names the version and the licence that the package has."""

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
