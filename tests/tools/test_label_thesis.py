"""The matrix trained by, judged by: what labels are worth by each judge, and that nothing is trained twice."""

import re

import numpy as np
import pytest

from tools import label_thesis
from tools.label_thesis import COSTS, TRIED, excess, main


def test_the_matrix(tiny_store, tmp_path, monkeypatch):
    where = ["--store", str(tiny_store.folder), "--test", str(tiny_store.folder), "-o", str(tmp_path), "--only"]
    settings = ["--qps", "32,42", "--sizes", "8", "--seeds", "2", "--steps", "3", "--blocks", "16"]
    main([*where, "from the standard", *settings])
    text = (tmp_path / "table.md").read_text()
    first = text.split("\n\n")[1]  # the others have differences
    rows = {line.split(" | ")[0][2:]: line for line in first.splitlines() if line.startswith("| ")}
    for number, cost in enumerate(COSTS):
        values = [float(cell) for cell in re.findall(r"\| (\d+\.\d+) \(", rows[f"labels {cost}"])]
        assert values[number] == 0, "nothing is cheaper than its own labels"
        assert min(value for other, value in enumerate(values) if other != number) > 0
        assert f"from the standard {cost} of 1" in rows
    assert (tmp_path / "thesis.png").stat().st_size > 10_000
    monkeypatch.setattr(label_thesis, "learn", None)
    main([*where, "from the standard", *settings])
    assert (tmp_path / "table.md").read_text() == text
    with pytest.raises(TypeError):
        main([*where, "from nothing", *settings])


def test_excess_is_the_mean_over_qps_of_sums_over_pictures():
    best = np.array([[[10.0, 100.0], [30.0, 100.0]]])
    chosen = np.array([[[12.0, 100.0], [30.0, 110.0]]])
    whole, second = excess(chosen, best, np.array([[1.0, 1.0], [0.0, 2.0]]))[:, 0]
    assert whole == pytest.approx(100 * (2 / 40 + 10 / 200) / 2)
    assert second == pytest.approx(100 * (0 + 0.1) / 2)
    assert max(TRIED) == 16
