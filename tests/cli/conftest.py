"""A small network and its weights for the tests of the commands."""

import pytest

from codecnn.models import create_model, save_weights
from tests.helpers.networks import SMALL, awaken


@pytest.fixture(scope="session")
def network():
    return awaken(create_model("rdn", **SMALL))


@pytest.fixture(scope="session")
def weights(network, tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "w.safetensors"
    save_weights(path, network, "rdn", {})
    return path
