"""The rehearsal device for the files cases_*.py, each of which needs a process of its own."""

import pytest


@pytest.fixture(autouse=True)
def device(request, monkeypatch) -> str:
    """The name of the rehearsal device; none in the process that starts the others."""
    from tests.helpers import rehearsal

    if request.path.name.startswith("cases_"):
        rehearsal.patch(monkeypatch)
    return rehearsal.NAME
