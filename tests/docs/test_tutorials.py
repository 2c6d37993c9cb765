"""Tutorials run from top to bottom in an empty folder, as a reader types them, and print what they say they print.

A block of `yaml`, or of `python` that begins with the name of a file, is saved under the name in its first line; `sh`
goes to a shell, other `python` to one interpreter for the whole page; `text` is what the block before it has printed.
"""

import os
import re
import subprocess
import sys

import pytest

from tests.helpers.documentation import BLOCKS, ROOT, TUTORIALS

NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?![\w.])")
TOLERANCE = {"filter": (0.05, 0.5), "correlation": (0.03, 0.05), "own_network": (0.05, 0.5)}
"""Tolerances (absolute, relative) of figures that depend on sums of floating-point numbers: of a training, a search."""
EXACT = (0.002, 0.0005)


def differences(printed: str, expected: str, tolerance: tuple[float, float] = EXACT) -> list[str]:
    """The lines of `printed` that say anything else than those of `expected`, or the same with other figures."""
    found = []
    lines, wanted = printed.split("\n"), expected.split("\n")
    for line, want in zip(lines, wanted, strict=False):
        same = NUMBER.sub("#", line).split() == NUMBER.sub("#", want).split()
        for number, other in zip(NUMBER.findall(line), NUMBER.findall(want), strict=False):
            own, its = float(number), float(other)
            same &= abs(own - its) <= max(tolerance[0], tolerance[1] * abs(its))
        if not same:
            found.append(f"{line!r} instead of {want!r}")
    return found if len(lines) == len(wanted) else [*found, f"{len(lines)} lines instead of {len(wanted)}"]


def shell(text: str) -> None:
    subprocess.run(["bash", "-ec", f'codecnn() {{ "{sys.executable}" -m codecnn "$@"; }}\n{text}'], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_it_runs_and_prints_what_it_says(page, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("MPLBACKEND", "agg")
    names = {"__name__": page.stem}
    printed = ""
    for kind, text in ((kind, text) for own, kind, text in BLOCKS if own == page):
        if kind == "text":
            assert differences(printed, text, TOLERANCE.get(page.stem, EXACT)) == []
        elif file := re.match(r"# (\S+\.(yaml|py))\n", text):
            (tmp_path / file[1]).write_text(text, "utf-8")
        else:
            exec(compile(text, str(page), "exec"), names) if kind == "python" else shell(text)
            printed = capfd.readouterr().out


def test_each_has_figures_and_is_python():
    assert {page.stem for page in TUTORIALS} == {
        "filter",
        "stream",
        "correlation",
        "codec",
        "own_network",
        "carried_filter",
    }
    for page in TUTORIALS:
        blocks = [(kind, text) for own, kind, text in BLOCKS if own == page]
        assert any(kind == "text" for kind, _ in blocks)
        for kind, text in blocks:
            if kind == "python":
                compile(text, str(page), "exec")
            assert kind != "yaml" or re.match(r"# \S+\.yaml\n", text), f"{page}: {text.splitlines()[0]}"


def test_what_differs_is_seen():
    said = "decoded  33.87 dB\nequal\n"
    assert differences("decoded 33.871 dB\nequal\n", said) == []
    assert len(differences("decoded 33.90 dB\nequal\n", said)) == 1
    assert differences("decoded 33.90 dB\nequal\n", said, (0.05, 0)) == []
    assert len(differences("decoded 33.87 dB\nnot equal\n", said)) == 1
    assert len(differences("decoded 33.87 dB\n", said)) == 2
    assert len(differences("coins: 3 of 2100 differ", "coins: 0 of 2100 differ")) == 1
