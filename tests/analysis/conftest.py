"""Fixtures of the tests of the correlation analysis."""

import pytest

from codecnn.analysis import _search as search


@pytest.fixture
def quick(monkeypatch):
    """A search of few steps, for what does not depend on it."""
    monkeypatch.setattr(search, "STEPS", 1)
