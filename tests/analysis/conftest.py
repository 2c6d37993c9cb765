"""Fixtures of the tests of the correlation analysis."""

import pytest

from codecnn.analysis import combination


@pytest.fixture
def quick(monkeypatch):
    """Shorten the search, for tests that do not depend on its result."""
    monkeypatch.setattr(combination, "STEPS", 1)
