"""The golden data in the repository are complete, small, and coded from the stated sources."""

import hashlib
import json
from pathlib import Path

import pytest

from tests.helpers.golden import DATA, lay_out, listed, verified


def test_listed_files_are_unchanged_and_there_are_no_others():
    for name, digest in listed().items():
        verified(name, digest)
    files = {str(path.relative_to(DATA)) for path in DATA.glob("*/*") if path.parent.name != "__pycache__"}
    assert files == set(listed())
    assert sum((DATA / name).stat().st_size for name in files) < 600_000
    assert len(files) > 100


@pytest.mark.parametrize("damage", ["missing", "changed"])
def test_missing_or_changed_file_fails_with_its_name(tmp_path: Path, damage: str):
    if damage == "changed":
        (tmp_path / "tiny.266").write_bytes(b"other")
    with pytest.raises(AssertionError, match=r"tests/data/tiny\.266 is (listed .* missing|not the file)"):
        verified("tiny.266", hashlib.sha256(b"tiny").hexdigest(), tmp_path)


def test_sources_from_scikit_image_are_those_that_were_coded(own_golden: Path):
    recipes = [json.loads(path.read_text()) for path in sorted((own_golden / "vvc").glob("*.json"))]
    for recipe in recipes:
        content = (own_golden / "sources" / recipe["src"]).read_bytes()
        assert hashlib.md5(content).hexdigest() == recipe["source_md5"], recipe["name"]
    assert len({recipe["src"] for recipe in recipes}) == 9


def test_layout_in_another_folder_is_the_same(own_golden: Path, tmp_path: Path):
    again = lay_out(tmp_path / "again")
    files = [path.relative_to(again) for path in sorted(again.glob("*/*"))]
    assert len(files) == len(listed()) + 9
    assert all((again / file).read_bytes() == (own_golden / file).read_bytes() for file in files)
