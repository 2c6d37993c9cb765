"""The plane `slice_type`: from stores, streams and options into networks, in float, integers and training."""

import dataclasses
import json

import numpy as np
import pytest
import torch

from codecnn import api as verbs
from codecnn.api.config import checked
from codecnn.base.errors import ConfigError, StoreError
from codecnn.codec import output_pictures, read_headers
from codecnn.dataset import Recipe, TrainingBatches, build_store, open_store
from codecnn.evaluation import Entry, evaluate
from codecnn.filtering import FloatFilter, slice_type_plane, stream_qps, stream_slice_types, unit_planes
from codecnn.filtering.integer import EightBitNetwork, ExactFilter
from codecnn.models import as_card, create_model, load_model, save_weights
from codecnn.pictures.files import VideoFormat, open_video
from codecnn.viewer import FILTERED, shown_stream
from tests.helpers.clips import write_clip
from tests.helpers.networks import awaken
from tests.helpers.training import train_filter

FORM = VideoFormat(64, 64, "420", 8, 30)
SMALL = {"features": 8, "blocks": 1, "expansion": 2}
PLANES = ["rec_y", "qp", "slice_type"]


def network(std=0.12):
    return awaken(create_model("low_cost_17", **SMALL, planes=PLANES), std=std)


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "typed.safetensors"
    save_weights(path, network(), "low_cost_17", {})
    return path


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Stores of two clips of five pictures at two QPs, one in all intra and one in random access."""
    folder = tmp_path_factory.mktemp("video")
    for name in ("a", "b"):
        write_clip(folder / f"{name}_64x64_30.yuv", FORM, 5)
    sequences = [{"source": f"{name}_64x64_30.yuv", "split": split} for name, split in (("a", "train"), ("b", "val"))]
    values = {"name": "video", "preset": "faster", "qp": [32, 42], "ctu_size": 64, "sequences": sequences}
    return {
        configuration: build_store(
            checked(Recipe, values | {"codec": "vvc", "configuration": configuration}, "a test"),
            folder,
            folder / configuration,
        )
        for configuration in ("ai", "ra")
    }


def test_units_provide_it_for_each_picture(stores):
    for configuration, store in stores.items():
        unit = store.units[0]
        kinds = [picture.slice_type for picture in unit.pictures]
        assert (set(kinds) == {"I"}) is (configuration == "ai")
        for index, kind in enumerate(kinds):
            plane = unit_planes(unit, index, PLANES)["slice_type"]
            np.testing.assert_array_equal(plane, np.full((64, 64), kind != "I", np.float32))
    # Without a stream the slice types are unknown, unless the recipe says that all are intra.
    for configuration, store in stores.items():
        unit = open_store(store.folder).units[0]
        pictures = tuple(picture.model_copy(update={"slice_type": "unknown"}) for picture in unit.pictures)
        changed = unit.model_copy(update={"pictures": pictures})
        if configuration == "ai":
            assert changed.slice_type_value(0) == 0
        else:
            with pytest.raises(StoreError, match="no plane 'slice_type'"):
                changed.slice_type_value(0)


def test_it_is_read_from_a_stream_in_output_order(golden_file):
    stream = golden_file("vvc/tinyclip128x64_ra_qp37.266")
    types = {line["poc"]: line["type"] for line in json.loads(stream.with_suffix(".json").read_text())["frames"]}
    assert stream_slice_types(stream, 17) == [types[poc] for poc in sorted(types)]
    assert stream_slice_types(golden_file("hevc/clip_rab_amp_qp32.265"), 5) == list("IBBBP")
    with pytest.raises(ConfigError, match=r"clip\.yuv .*--slice-type"):
        stream_slice_types("clip.yuv", 1)


def filtered(source, qps, kinds):
    """Filter the first pictures of a video, each at its QP and slice type, and return their luma."""
    filter_ = FloatFilter(network())
    with open_video(source, frames=len(qps)) as video:
        form = video.format
        return [
            filter_(picture, qp, slice_type_plane(PLANES, kind, form)).y
            for picture, qp, kind in zip(video, qps, kinds, strict=True)
        ]


def test_a_stream_is_filtered_by_its_own_types(run, weights, golden_file, tmp_path):
    stream = golden_file("vvc/tinyclip128x64_ra_qp37.266")
    qps, kinds = stream_qps(stream, 3), stream_slice_types(stream, 3)
    assert {"I", "B"} <= set(kinds)

    def run_filter(source, name, *options):
        status, _, err = run("filter", "-m", weights, "-i", source, "-o", tmp_path / name, *options)
        if status:
            return err
        with open_video(tmp_path / name) as video:
            return [np.array(picture.y) for picture in video]

    by_stream = run_filter(stream, "own.y4m", "-f", 3)
    np.testing.assert_array_equal(by_stream, filtered(stream, qps, kinds))
    # Decoded pictures do not have slice types, so that an option must give them.
    plain = tmp_path / "plain.y4m"
    untyped = awaken(create_model("low_cost_17", **SMALL), std=0.0)
    FloatFilter(untyped).video(open_video(stream, frames=3), [0], plain)
    by_option = run_filter(plain, "b.y4m", "-q", ",".join(map(str, qps)), "--slice-type", "B")
    np.testing.assert_array_equal(by_option, filtered(stream, qps, "BBB"))
    assert (np.array(by_option[0]) != by_stream[0]).any()
    assert "'slice_type', which is read from a stream of VVC, HEVC, AVC or AV1" in run_filter(plain, "c.y4m", "-q", 37)


def test_integer_networks_take_it(stores):
    unit = stores["ra"].units[0]
    model = network(0.05)
    integers = EightBitNetwork.of(model, [unit], loss=0.02)
    batch = TrainingBatches([unit], batch=6, steps=1, size=16, halo=model.halo, planes=PLANES)[0]
    assert set(batch["slice_type"].flatten().tolist()) == {0.0, 1.0}
    full = batch | {"slice_type": batch["slice_type"].expand_as(batch["rec_y"])}
    torch.testing.assert_close(integers(batch), integers(full), rtol=0, atol=0)
    exact = ExactFilter(integers.integers())
    with unit.decoded() as decoded:
        intra, inter = (exact(decoded[0], 32, slice_type_plane(PLANES, kind, unit.format)).y for kind in "IB")
    assert (intra != inter).any()


def test_weights_of_stills_are_trained_for_video_and_evaluated(stores, tmp_path):
    """Training adds the plane to weights without it, on stores of both configurations, which the card lists."""
    stills = tmp_path / "stills.safetensors"
    save_weights(stills, awaken(create_model("low_cost_17", **SMALL), std=0.05), "low_cost_17", {})
    settings = {"steps": 24, "batch": 4, "patch": 32, "warmup": 2, "validate_every": 12, "threads": 1, "seed": 1}
    settings |= {"start": {"weights": str(stills)}, "learning_rate": 1e-4}
    mix = [(stores["ai"], 0.5), (stores["ra"], 0.5)]
    train_filter(mix, "low_cost_17", SMALL | {"planes": PLANES}, settings, tmp_path / "run")
    report = json.loads((tmp_path / "run" / "transfer.json").read_text())
    assert report["counts"]["adapted"] == 1
    model, card = load_model(tmp_path / "run" / "last.safetensors")
    assert model.head.weight[:, 4:].abs().max() > 0
    assert [store.configuration for store in card.trained_on] == ["ai", "ra"]
    learned = [unit for store, _ in mix for unit in store.split("train")]
    assert card.qps == tuple(sorted({picture.qp for unit in learned for picture in unit.pictures}))
    assert max(card.qps) > max(unit.qp for unit in learned)  # B slices lie above the QP of their sequence
    store = dataclasses.replace(
        stores["ra"], units=tuple(unit.model_copy(update={"split": "test"}) for unit in stores["ra"].units)
    )
    (results,) = evaluate([Entry("typed", as_card(card.json), FloatFilter(model))], store, "test", tmp_path / "out")
    assert not results.notes or all("trained" not in note for note in results.notes)
    assert {kind[0] for kind in results.picture_types} == {"I", "B"}


def test_the_page_of_a_stream_shows_an_inter_picture_filtered(weights, golden_file):
    stream = golden_file("vvc/tinyclip128x64_ra_qp37.266")
    assert stream_slice_types(stream, 2) == ["I", "B"]
    shown = shown_stream(stream, 1, model=weights)
    np.testing.assert_array_equal(shown.layers[FILTERED].y, filtered(stream, stream_qps(stream, 2), "IB")[1])


def test_weights_for_all_intra_take_the_qp_of_the_sequence(stores, tmp_path):
    """The QP is known if the clip has a second picture of the lowest temporal layer, the 17th, whose QP confirms it."""
    write_clip(tmp_path / "long_64x64_30.yuv", FORM, 17)
    values = {"name": "long", "preset": "faster", "qp": [32], "ctu_size": 64, "codec": "vvc", "configuration": "ra"}
    recipe = checked(Recipe, values | {"sequences": [{"source": "long_64x64_30.yuv"}]}, "a test")
    long = build_store(recipe, tmp_path, tmp_path / "long")

    def told(store, model, **options):
        source = store.units[0].path("bitstream")
        return verbs.filter(source, tmp_path / "filtered.y4m", model=model, exact=False, **options)

    slices = [picture.slice_qps[0] for picture in output_pictures(read_headers(long.units[0].path("bitstream")))]
    result = told(long, "low_cost_5")
    assert (result.qps, result.qp_source) == ((32,), "QP of the sequence")
    assert any("low_cost_17.vvc_video_mc" in note for note in result.notes)
    assert len(set(slices)) > 1
    assert list(told(long, "low_cost_17.vvc_video").qps) == slices
    assert told(long, "low_cost_5", qp=30).qps == (30,)
    assert len(told(stores["ra"], "low_cost_5").qps) > 1
    assert told(stores["ai"], "low_cost_5").notes == ()
