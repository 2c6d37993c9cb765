"""Cards with any number in any place: weights load and filter as before, or one sentence refuses them."""

import contextlib
import copy
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codecnn.base.errors import CodecnnError, ModelError
from codecnn.base.files import write_json
from codecnn.filtering import load_filter
from codecnn.models import card_path, create_model, weights_path
from codecnn.modes.labels import predict_block_modes
from codecnn.modes.networks import create_mode_network
from codecnn.pictures.files import Picture
from codecnn.signalling.nnpf import WEIGHTS_TAG, Characteristics, embedding_uri, load_carried
from codecnn.signalling.updates import read_update_file
from tests.helpers.fuzzing import time_limit
from tests.helpers.integer_zoo import save_sixteen_bits

QPS = (0, 22, 40, 63)
NUMBERS = st.one_of(
    st.integers(-70, 130),
    st.sampled_from([-(2**63), 2**31, 2**63, 10**30, 1e308, 0.5, -0.0, float("nan"), float("inf"), True, None, "7"]),
    st.lists(st.integers(-2, 70), max_size=3),
)
PROPERTY = settings(
    max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def result_of(call: Callable[[], Any]) -> Any:
    """Return the result of a call; None if a sentence refuses it, which is checked."""
    with contextlib.suppress(CodecnnError), time_limit():
        return call()
    with pytest.raises(CodecnnError, match=r"\A[^\n]{10,999}\Z"):
        call()
    return None


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all numbers of a JSON value."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from places(item, (*path, key))
    elif isinstance(value, int | float):
        yield path


def replaced(value: Any, path: tuple[Any, ...], number: Any) -> Any:
    changed = copy.deepcopy(value)
    place = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = number
    return changed


def filtered(filter_: Any) -> list[bytes]:
    y, x = np.mgrid[:24, :40]
    picture = Picture(((73 * x**2 + 151 * y**2 + 29 * x * y).astype(np.uint16) % 1024,), 10)
    return [filter_(picture, qp).y.tobytes() for qp in QPS]


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copies of shipped weights whose cards the tests rewrite."""
    folder = tmp_path_factory.mktemp("weights")
    for name in ("low_cost_5", "low_cost_5.int8"):
        shutil.copy(weights_path(name), folder / f"{name}.safetensors")
    save_sixteen_bits(folder / "low_cost_5.int16.safetensors")
    shutil.copytree(folder, folder / "intact")
    for name in ("low_cost_5", "low_cost_5.int8"):
        shutil.copy(card_path(weights_path(name)), folder / "intact" / f"{name}.json")
    return folder


@pytest.mark.parametrize("name", ["low_cost_5", "low_cost_5.int8", "low_cost_5.int16"])
@PROPERTY
@given(data=st.data())
def test_any_number_of_a_card(copies: Path, name: str, data: st.DataObject) -> None:
    """The QPs clamp the slice QP and may change the result; nothing else that is accepted does."""
    intact = copies / "intact" / f"{name}.safetensors"
    card = json.loads(card_path(intact).read_text()) | {"ctu_size": 128}
    acting = [path for path in places(card) if path[0] in ("options", "nodes", "qps", "bits", "bit_depth", "schema")]
    path = data.draw(st.sampled_from(acting) | st.sampled_from(list(places(card))))
    number = data.draw(NUMBERS)
    weights = copies / f"{name}.safetensors"
    weights.with_suffix(".json").write_text(json.dumps(replaced(card, path, number)))
    result = result_of(lambda: filtered(load_filter(weights)))
    if result is not None and path[0] not in ("qps", "options"):
        assert result == filtered(load_filter(intact))


def embedded(weights: Path) -> Characteristics:
    """Return a post-filter message that embeds weights with their card."""
    uri = {"nnpfc_tag_uri": WEIGHTS_TAG, "nnpfc_uri": embedding_uri(weights)}
    return Characteristics(
        nnpfc_purpose=1, nnpfc_id=3, nnpfc_base_flag=True, nnpfc_mode_idc=1, nnpfc_property_present_flag=False, **uri
    )


@pytest.mark.parametrize("qps", [[59, 64], [-5], [2**31], [], [22.5], ["22"], [True], 22, [[22]]])
@pytest.mark.parametrize("name", ["low_cost_5", "low_cost_5.int8"])
def test_qps_out_of_range_are_refused(copies: Path, name: str, qps: Any) -> None:
    """A QP of 64 has no row in the tables of a network, and one of -5 selects the row of 59; also within a stream."""
    card = json.loads(weights_path(name).with_suffix(".json").read_text())
    weights = copies / f"{name}.safetensors"
    weights.with_suffix(".json").write_text(json.dumps(card | {"qps": qps}))
    with pytest.raises(ModelError, match="qps"):
        load_filter(weights)
    with pytest.raises(ModelError, match=r"filter 3: .*qps"):
        load_carried(embedded(weights), "stream.266")


def test_an_intact_card_within_a_stream(copies: Path) -> None:
    weights = copies / "low_cost_5.int8.safetensors"
    shutil.copy(weights_path("low_cost_5.int8").with_suffix(".json"), weights.with_suffix(".json"))
    assert filtered(load_carried(embedded(weights), "stream.266")) == filtered(load_filter("low_cost_5.int8"))


@pytest.mark.parametrize("name", ["modes_8", "modes_8.int16"])
@settings(PROPERTY, max_examples=10)
@given(data=st.data())
def test_any_number_of_the_card_of_a_mode_network(tmp_path: Path, name: str, data: st.DataObject) -> None:
    source = weights_path(name)
    card = json.loads(source.with_suffix(".json").read_text()) | {"ctu_size": 128}
    acting = [path for path in places(card) if path[0] in ("options", "values", "ctu_size")]
    changed = replaced(card, data.draw(st.sampled_from(acting)), data.draw(NUMBERS))
    weights = tmp_path / f"{name}.safetensors"
    shutil.copy(source, weights)
    weights.with_suffix(".json").write_text(json.dumps(changed))
    (tmp_path / "picture_32x32.yuv").write_bytes(bytes(range(256)) * 6)
    modes = result_of(lambda: predict_block_modes(tmp_path / "picture_32x32.yuv", models=[weights]))
    assert modes is None or modes.blocks == 16


def test_an_option_beyond_64_bits_gives_one_sentence() -> None:
    """PyTorch's own message is followed by frames of its C++ code."""
    for create in (create_mode_network, create_model):
        name, option = ("mode_sketch", "hidden") if create is create_mode_network else ("rdn", "features")
        with pytest.raises(ModelError, match=r"\A[^\n]{10,400}\Z"):
            create(name, **{option: 2**63})


@settings(PROPERTY, max_examples=100)
@given(data=st.data())
def test_any_number_of_an_update(tmp_path: Path, data: st.DataObject) -> None:
    whole = {"weights": "w", "weights_sha256": "0" * 64, "update": "AA", "stream": "s", "pictures": 3, "changed": 2}
    whole |= {"bits": 90, "gain_db": {"y": 0.1}, "rate_change": -0.01, "schema": 1, "task": "update"}
    write_json(tmp_path / "whole.json", whole)
    assert read_update_file(tmp_path / "whole.json").gain_db == {"y": 0.1}
    place = data.draw(st.sampled_from(list(places(whole))))
    (tmp_path / "u.json").write_text(json.dumps(replaced(whole, place, data.draw(NUMBERS))))
    update = result_of(lambda: read_update_file(tmp_path / "u.json"))
    if update is not None:
        assert min(update.pictures, update.changed, update.bits) >= 0
        assert np.isfinite([update.rate_change, *update.gain_db.values()]).all()
