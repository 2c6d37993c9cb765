"""The rehearsal device for every test of this folder, which runs last."""

import pytest

from tests.helpers import rehearsal


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move the tests of this folder to the end: a process that has registered a device cannot fork any more."""
    items.sort(key=lambda item: "rehearsal" in item.path.parts)


@pytest.fixture(autouse=True)
def device(monkeypatch) -> str:
    """The name of the rehearsal device."""
    rehearsal.patch(monkeypatch)
    return rehearsal.NAME
