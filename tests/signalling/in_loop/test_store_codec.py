"""Units coded with a CNN filter in the prediction loop: their pictures, checks, reuse and errors."""

import pickle

import numpy as np
import pytest

import codecnn
from codecnn.api.config import load_recipe
from codecnn.base.errors import ConfigError, EncoderError, MissingFileError, ModelError, UnsupportedError
from codecnn.base.files import sha256_file
from codecnn.codec import decode_pictures as decode_in_loop
from codecnn.codec import decode_stream
from codecnn.dataset import InLoopSpec, build_store, verify_store
from codecnn.evaluation import Entry, evaluate
from codecnn.filtering import FloatFilter, filter_key, load_filter
from codecnn.models import as_card, create_model, load_model, save_weights, weights_path
from codecnn.pictures.files import VideoFormat, ffmpeg_path, open_raw
from codecnn.signalling.in_loop import (
    LIBRARY_VARIABLE,
    InLoopCodec,
    LoopFilter,
    encoder,
    evaluate_in_loop,
    in_loop_codec,
)
from tests.helpers.clips import write_clip
from tests.helpers.networks import SMALL, awaken
from tests.helpers.training import train_filter

CLIPS = {"a": (68, 64, "train"), "b": (64, 64, "val")}
"""Width, height and split of the clips; the first width is no multiple of 8, as in variants of a recipe."""
RECIPE = """
name: loop
preset: faster
configuration: ldb
qp: [42]
ctu_size: 128
in_loop: {weights: low_cost_5, decisions: none}
sequences:
"""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clips")
    text = RECIPE
    for seed, (name, (width, height, split)) in enumerate(CLIPS.items()):
        source = f"{name}_{width}x{height}_30.yuv"
        write_clip(folder / source, VideoFormat(width, height, "420", 8, 30), 3, seed=seed)
        text += f"  - {{source: {source}, name: {name}, split: {split}}}\n"
    (folder / "loop.yaml").write_text(text)
    return folder / "loop.yaml"


@pytest.fixture(scope="module")
def store(vvenc_library, recipe, tmp_path_factory):
    folder = tmp_path_factory.mktemp("store") / "loop"
    return codecnn.build_dataset(recipe, folder, overrides=[f"in_loop.library={vvenc_library.path}"])


def files(store):
    return {path.relative_to(store): path.read_bytes() for path in sorted(store.rglob("*")) if path.is_file()}


# --- with the library -------------------------------------------------------------------------------------------------


def test_units_hold_the_pictures_before_the_filter(vvenc_library, store, tmp_path):
    filter_, sha256 = load_filter("low_cost_5"), sha256_file(weights_path("low_cost_5"))
    for unit in store.units:
        assert unit.in_loop.model_dump() == {
            "weights": "low_cost_5.vvc",
            "network": "low_cost_5",
            "sha256": sha256,
            "decisions": "none",
        }
        assert [picture.slice_type for picture in unit.pictures] == ["I", "B", "B"]
        assert unit.pictures[0].qp == 42 < unit.pictures[1].qp
        assert (unit.format.width, unit.format.height) == ({"a": 72, "b": 64}[unit.name], 64)
        assert unit.block_planes() is not None
        # Other decoders do not output the filtered pictures, whose hashes are in the stream.
        with pytest.raises(EncoderError):
            decode_stream(ffmpeg_path(), unit.path("bitstream"), tmp_path / "plain.yuv", unit.format)
        pictures = decode_in_loop(unit.path("bitstream"), ("rec_y",), LoopFilter("low_cost_5"))
        with pytest.raises(UnsupportedError, match="computed in float"):
            next(pictures)
    # An evaluation in the loop codes the same stream, and outputs the filtered pictures of the unit.
    unit = store.units[1]
    card = as_card({"network": "low_cost_5", "sha256": sha256})
    with unit.originals() as video:
        evaluate_in_loop(
            [Entry("own", card, filter_)],
            {"b": video},
            (42,),
            vvenc_library,
            tmp_path,
            preset="faster",
            decisions="none",
            picture_hashes=True,
        )
    (folder,) = tmp_path.glob("coded/b_own_*")
    assert (folder / "stream.266").read_bytes() == unit.path("bitstream").read_bytes()
    with open_raw(folder / "pictures.yuv", unit.format) as shown, unit.decoded() as decoded:
        for coded, a, b in zip(unit.pictures, shown, decoded, strict=True):
            np.testing.assert_array_equal(a.y, filter_(b, coded.qp).y)
            assert (a.y != b.y).any()
    assert all(problem is None for _, problem in verify_store(store))
    assert "with low_cost_5.vvc (" in store.manifest.encoder
    assert store.manifest.recipe.in_loop.model_dump() == {"weights": "low_cost_5", "decisions": "none", "exact": False}
    assert str(vvenc_library.path) not in (store.folder / "manifest.json").read_text()


def test_builds_are_equal_and_finished_units_are_not_coded_again(vvenc_library, store, recipe, tmp_path, monkeypatch):
    """Also with several threads, and with the library of the environment variable."""
    monkeypatch.setenv(LIBRARY_VARIABLE, str(vvenc_library.path))
    again = codecnn.build_dataset(recipe, tmp_path / "again", jobs=2)
    assert files(again.folder) == files(store.folder)
    changed = next(again.folder.glob("coded/b_*/decoded.yuv"))
    changed.write_bytes(b"")
    stamps = {path: path.stat().st_mtime_ns for path in again.folder.glob("coded/a_*/*")}
    codecnn.build_dataset(recipe, tmp_path / "again")
    assert files(again.folder) == files(store.folder)
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps
    # Decisions and the integer network give other units, with a file of decisions. They can be decoded.
    exact = ["in_loop.exact=true", "in_loop.decisions=ctu", "times=true"]
    other = codecnn.build_dataset(recipe, tmp_path / "again", overrides=exact, prune=True)
    assert {unit.in_loop.weights for unit in other.units} == {"low_cost_5.vvc.int8"}
    assert not {unit.key for unit in other.units} & {unit.key for unit in store.units}
    assert all((other.folder / unit.decoded_file).with_name("decisions.vtmbmsstats").is_file() for unit in other.units)
    assert all(unit.encoder_seconds > 0 for unit in other.units)
    for unit in other.units:
        assert {picture.hash for picture in decode_in_loop(unit.path("bitstream"), (), LoopFilter())} == {"ok"}
    # Planes are rebuilt from the stream without coding it again.
    monkeypatch.setattr(InLoopCodec, "encode", None)
    more = codecnn.build_dataset(recipe, tmp_path / "again", overrides=[*exact, "planes=[cbf_y]"])
    for unit, before in zip(more.units, other.units, strict=True):
        assert unit.key != before.key
        assert unit.has("transforms")
        assert (unit.in_loop, unit.pictures, unit.argv) == (before.in_loop, before.pictures, before.argv)
        assert unit.decoded_path.with_name("decisions.vtmbmsstats").is_file()


def test_pictures_that_differ_from_the_log_leave_no_unit(vvenc_library, recipe, tmp_path, monkeypatch):
    monkeypatch.setenv(LIBRARY_VARIABLE, str(vvenc_library.path))
    plain = encoder.verify_picture

    def prove(name, coded, original, decoded):
        if coded.poc == 1:
            decoded.y[0, 0] ^= 1
        plain(name, coded, original, decoded)

    monkeypatch.setattr(encoder, "verify_picture", prove)
    with pytest.raises(EncoderError, match="POC 1: plane Y decodes to another MD5"):
        codecnn.build_dataset(recipe, tmp_path / "s")
    assert list((tmp_path / "s" / "coded").iterdir()) == []


def test_card_names_the_filter_of_the_training_data(store, tmp_path):
    settings = {"steps": 10, "batch": 2, "patch": 32, "warmup": 2, "validate_every": 10, "threads": 1, "seed": 1}
    planes = {"planes": ["rec_y", "qp", "slice_type"]}
    train_filter(
        store, "low_cost_17", {"features": 8, "blocks": 1, "expansion": 2} | planes, settings, tmp_path / "run"
    )
    model, card = load_model(tmp_path / "run" / "last.safetensors")
    (seen,) = card.trained_on
    assert seen.in_loop == store.units[0].in_loop.model_dump()
    (results,) = evaluate([Entry("one", card, FloatFilter(model))], store, "val", tmp_path / "out")
    label = "measured on the reconstruction before the in-loop filter (coded with low_cost_5 in the loop)"
    assert results.label == label


def test_unsuitable_or_changed_weights_are_refused(vvenc_library, recipe, tmp_path):
    spec = {"library": str(vvenc_library.path)}
    with pytest.raises(ModelError, match="vvc_unf needs the plane 'unf_y'"):
        in_loop_codec(InLoopSpec(weights="low_cost_17.vvc_unf", **spec), tmp_path)
    with pytest.raises(MissingFileError, match="weights"):
        in_loop_codec(InLoopSpec(weights="low_cost_6", **spec), tmp_path)
    weights = tmp_path / "own.safetensors"
    save_weights(weights, awaken(create_model("rdn", **SMALL)), "rdn", {})
    codec = in_loop_codec(InLoopSpec(weights="own.safetensors", **spec), tmp_path)
    assert codec.identity().endswith(
        f"with own ({filter_key(load_filter(weights))[:12]}) in the loop, decisions ctu in slice headers"
    )
    assert pickle.loads(pickle.dumps(codec)) == codec, "as it goes to the workers of a cluster"
    save_weights(weights, awaken(create_model("rdn", **SMALL), seed=1), "rdn", {})
    loaded = load_recipe(recipe)
    with pytest.raises(ConfigError, match=r"own\.safetensors has changed while a store"):
        build_store(loaded, recipe.parent, tmp_path / "s", codec=codec)


# --- everywhere -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("configuration=ra", "in_loop goes with configuration: ldb, not ra"),
        ("codec=hevc", "in_loop goes with codec: vvc, not hevc"),
        ("ctc=true", "in_loop goes with ctc: false, not true"),
        ("in_loop.weight=low_cost_5", "unknown key 'in_loop.weight': did you mean 'weights'"),
        ("in_loop.decisions=all", "in_loop.decisions"),
    ],
)
def test_invalid_in_loop_recipes_are_refused(recipe, override, words):
    with pytest.raises(ConfigError, match=words):
        load_recipe(recipe, [override])


def test_missing_library_is_one_sentence(run, recipe, monkeypatch, tmp_path):
    monkeypatch.delenv(LIBRARY_VARIABLE, raising=False)
    argv = ("dataset", "build", recipe, "-o", tmp_path / "s")
    for further, words in (
        ((), "in a recipe by in_loop.library"),
        (("in_loop.library=no.so",), "no.so does not exist"),
    ):
        status, _, err = run(*argv, *further)
        assert status == 1
        assert words in " ".join(err.split())
        assert "Traceback" not in err
    with pytest.raises(ConfigError, match="'loop'"):
        build_store(load_recipe(recipe), recipe.parent, tmp_path / "s")
    assert not (tmp_path / "s").exists()
