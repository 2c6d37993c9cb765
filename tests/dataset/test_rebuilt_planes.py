"""Planes that a store rebuilds from its bitstreams, and their use by networks."""

import hashlib
import json

import numpy as np
import pytest
import torch

from codecnn.api.config import load_recipe
from codecnn.base.errors import ConfigError, StoreError
from codecnn.base.files import read_jsonl, write_json
from codecnn.base.planes import REBUILT_PLANES
from codecnn.codec import VvcCodec, read_pictures, residual_samples, stream_plane_reader
from codecnn.dataset import CtuPatches, build_store
from codecnn.filtering import FloatFilter, unit_planes
from codecnn.models import create_model, save_weights
from codecnn.pictures.files import VideoFormat, create_video, open_video
from tests.helpers.networks import SMALL, awaken

PLANES = f"planes=[{','.join(REBUILT_PLANES)}]"
FILES = {"unf": "unfiltered", "pred": "prediction", "resid": "residual"}


@pytest.fixture(scope="module")
def rebuilt_store(tiny_recipe, tmp_path_factory):
    folder = tmp_path_factory.mktemp("rebuilt")
    return build_store(load_recipe(tiny_recipe, ["qp=[42]", PLANES]), tiny_recipe.parent, folder / "store")


def test_rebuilt_files_equal_the_decoded_planes(rebuilt_store):
    samples = cells = 0
    for unit in rebuilt_store.units:
        names = [f"{kind}_{letter}" for kind in FILES for letter in "yuv"]
        ((_, planes),) = read_pictures(unit.path("bitstream"), (*names, "bs_v", "bs_h"))
        for kind, file in FILES.items():
            with unit.pictures_of(file) as video:
                assert (video.format, len(video)) == (unit.format, 1)
                for letter, plane in zip("yuv", video[0].planes, strict=True):
                    expected = planes[f"{kind}_{letter}"]
                    expected = expected + np.int32(512) if kind == "resid" else expected
                    np.testing.assert_array_equal(plane, expected)
                    samples += expected.size
        strengths = unit.cells("strengths")
        assert strengths.dtype == np.int8
        for stored, name in zip(strengths[0], ("bs_v", "bs_h"), strict=True):
            whole = stored.repeat(4, 0).repeat(4, 1)[: unit.format.height, : unit.format.width]
            np.testing.assert_array_equal(whole, planes[name])
            assert {0, 2} <= set(stored.ravel().tolist())
            cells += stored.size
    pictures = [(208, 144), (136, 96), (68, 52)]
    assert samples == 3 * sum(w * h * 3 // 2 for w, h in pictures)
    assert cells == 2 * sum(w * h // 16 for w, h in pictures)


def test_bitstreams_do_not_depend_on_rebuilt_planes(rebuilt_store, tiny_store):
    """Rebuilding needs neither a second encode nor another parameter of the encoder."""
    plain = {unit.name: unit for unit in tiny_store.units if unit.qp == 42}
    for unit in rebuilt_store.units:
        assert unit.path("bitstream").read_bytes() == plain[unit.name].path("bitstream").read_bytes()
        assert unit.argv == plain[unit.name].argv
        assert unit.key != plain[unit.name].key
    assert not {"residual", "strengths"} & set(read_jsonl(tiny_store.folder / "units.jsonl")[0])


def test_unfiltered_picture_equals_an_encode_without_in_loop_filters(golden_file):
    """Both golden streams are coded without EDO, so that the filters do not change any decision of the encoder."""
    form, digest = VideoFormat(512, 512, "420", 10), hashlib.md5()
    ((_, planes),) = read_pictures(golden_file("vvc/edo0_all_qp37.266"), ("unf_y", "unf_u", "unf_v"))
    for plane in planes.values():
        digest.update(plane.astype(form.dtype).tobytes())
    assert digest.hexdigest() == golden_file("vvc/edo0_nolf_qp37.md5").read_text().split()[0]


def test_loader_store_and_stream_provide_the_same_planes(rebuilt_store):
    (unit, *_) = rebuilt_store.split("val")
    names = ["rec_y", "qp", *REBUILT_PLANES]
    model = awaken(create_model("rdn", **SMALL, planes=names))
    assert model.channels == tuple(names)
    of_store = unit_planes(unit, 0, names)
    assert set(of_store) == set(REBUILT_PLANES)
    of_stream = stream_plane_reader(unit.path("bitstream"), REBUILT_PLANES)(0)
    patch = CtuPatches([unit], size=64, halo=0, planes=names)[0]
    for name in REBUILT_PLANES:
        np.testing.assert_array_equal(of_store[name], of_stream[name])
        scale = 1 if name.startswith("bs") else 1024
        np.testing.assert_array_equal(patch[name][0], of_store[name][:64, :64].astype(np.float32) / scale)
    planes = {name: torch.rand(1, 1, 16, 16) for name in names}
    channels = model.stack(planes)
    torch.testing.assert_close(channels[:, 3], (planes["pred_y"] - planes["rec_y"])[:, 0] * 64)
    torch.testing.assert_close(channels[:, 4], (planes["resid_y"][:, 0] - 0.5) * 64)
    torch.testing.assert_close(channels[:, 5], planes["bs_v"][:, 0] * 4 - 2)


def test_filter_reads_planes_from_a_stream_or_from_files(run, rebuilt_store, tmp_path):
    (unit, *_) = rebuilt_store.split("val")
    stream = unit.path("bitstream")
    model = awaken(create_model("rdn", **SMALL, planes=["rec_y", "qp", "pred_y", "resid_y", "bs_h"]))
    save_weights(tmp_path / "w.safetensors", model, "rdn", {})
    argv = ("filter", "-m", tmp_path / "w.safetensors", "-i", stream)
    status, _, err = run(*argv, "-o", tmp_path / "stream.y4m")
    assert status == 0, err
    assert run("partition", stream, "--planes", "pred_y,resid_y", "-o", tmp_path / "p")[0] == 0
    files = {path.name.split("_136x96")[0]: path for path in (tmp_path / "p").iterdir()}
    given = [part for name, path in files.items() for part in ("--plane", f"{name}={path}")]
    status, _, err = run(*argv, *given, "-o", tmp_path / "files.y4m")
    assert status == 0, err
    assert (tmp_path / "stream.y4m").read_bytes() == (tmp_path / "files.y4m").read_bytes()
    with open_video(tmp_path / "stream.y4m") as filtered, unit.decoded() as decoded:
        expected = FloatFilter(model)(decoded[0], 42, unit_planes(unit, 0, model.planes))
        np.testing.assert_array_equal(filtered[0].y, expected.y)
        assert np.mean(filtered[0].y != decoded[0].y) > 0.5


def test_evaluate_rebuilds_the_planes_of_a_network(run, tmp_path):
    rng = np.random.default_rng(0)
    with create_video(tmp_path / "clip_48x32.yuv", VideoFormat(48, 32, "420", 8)) as out:
        out.write([rng.integers(0, 256, shape).astype(np.uint8) for shape in out.format.plane_shapes])
    model = create_model("rdn", **SMALL, planes=["rec_y", "qp", "unf_y", "bs_v"])
    save_weights(tmp_path / "w.safetensors", model, "rdn", {})
    argv = ("evaluate", tmp_path / "clip_48x32.yuv", "-m", tmp_path / "w.safetensors", "-q", "37", "--preset", "faster")
    status, _, err = run(*argv, "-o", tmp_path / "e")
    assert status == 0, err
    (line,) = (tmp_path / "e" / "store" / "units.jsonl").read_text().splitlines()
    assert {"unfiltered", "strengths"} <= set(json.loads(line))
    assert "prediction" not in json.loads(line)


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["planes=[pred_y]", "codec=hevc"], "pred_y are rebuilt from VVC bitstreams, and hevc makes others"),
        (["planes=[unf_y]", "unfiltered=true"], "unf_y would be there twice, give it or unfiltered: true"),
        (["planes=[rec_y]"], "rec_y"),
    ],
)
def test_recipes_without_these_planes_are_refused(tiny_recipe, overrides, sentence):
    with pytest.raises(ConfigError, match=sentence):
        load_recipe(tiny_recipe, overrides)


@pytest.fixture(scope="module")
def inter_store(tmp_path_factory):
    """A store of a clip of four pictures in random access, with all rebuilt planes."""
    folder = tmp_path_factory.mktemp("inter")
    rng = np.random.default_rng(4)
    scene = rng.integers(0, 256, (3, 96, 136)).astype(np.uint8)
    with create_video(folder / "clip_64x48.yuv", VideoFormat(64, 48, "420", 8)) as out:
        for shift in range(4):
            smooth = [plane[shift : shift + 48, 2 * shift : 2 * shift + 64] // 2 + 64 for plane in scene]
            out.write([smooth[0], smooth[1][::2, ::2], smooth[2][::2, ::2]])
    recipe = {
        "schema": 1, "name": "inter", "root": str(folder), "codec": "vvc", "preset": "faster", "configuration": "ra",
        "qp": [37], "ctu_size": 64, "planes": list(REBUILT_PLANES), "sequences": [{"source": "clip_64x48.yuv"}],
    }  # fmt: skip
    write_json(folder / "inter.yaml", recipe)
    return build_store(load_recipe(folder / "inter.yaml"), folder, folder / "store")


def test_planes_of_inter_pictures(inter_store):
    """The planes of a store are those of the decoder, and add up: prediction and residual, clipped, are `unf`."""
    (unit,) = inter_store.units
    assert {picture.slice_type for picture in unit.pictures} >= {"I", "B"}
    stream = unit.path("bitstream")
    decoded = [planes for _, planes in read_pictures(stream, ("rec_y", "unf_y", "pred_y", "resid_y", "bs_v"))]
    assert len(decoded) == 4
    with unit.decoded() as video:
        for number, planes in enumerate(decoded):
            np.testing.assert_array_equal(video[number].y, planes["rec_y"])
            np.testing.assert_array_equal(
                np.clip(planes["pred_y"].astype(int) + planes["resid_y"], 0, 1023), planes["unf_y"]
            )
            stored = unit_planes(unit, number, ["rec_y", "unf_y", "pred_y", "resid_y", "bs_v"])
            for name in ("unf_y", "pred_y"):
                np.testing.assert_array_equal(stored[name], planes[name])
            np.testing.assert_array_equal(stored["resid_y"], residual_samples(planes["resid_y"], 10))
            assert stored["bs_v"].shape == planes["bs_v"].shape
    assert any((planes["unf_y"] != planes["rec_y"]).any() for planes in decoded[1:])


def test_a_reader_of_inter_pictures_takes_any_order(inter_store):
    (unit,) = inter_store.units
    read = stream_plane_reader(unit.path("bitstream"), ["unf_y", "bs_v"])
    for number in (2, 3, 3, 0, 1):
        planes = read(number)
        stored = unit_planes(unit, number, ["rec_y", "unf_y", "bs_v"])
        np.testing.assert_array_equal(planes["unf_y"], stored["unf_y"])
        np.testing.assert_allclose(planes["bs_v"], stored["bs_v"])


def test_missing_planes_name_the_recipe_key(tiny_store):
    hint = r"the key planes: \[bs_v\] of its recipe rebuilds it"
    with pytest.raises(StoreError, match=f"has no plane 'bs_v': {hint}"):
        unit_planes(tiny_store.units[0], 0, ["bs_v"])
    with pytest.raises(StoreError, match=f"has no plane bs_v: {hint}"):
        CtuPatches(tiny_store.units, planes=["bs_v"])


def test_residual_is_clipped_to_the_sample_range():
    assert residual_samples(np.array([-600, -512, 0, 511, 600], np.int16), 10).tolist() == [0, 0, 512, 1023, 1023]


def test_planes_are_changed_without_coding_again(tiny_recipe, rebuilt_store, tmp_path, monkeypatch):
    """Adding, exchanging and removing planes gives the store of a new build, without --prune and without an encoder."""
    folder = tmp_path / "store"
    stores = (rebuilt_store.folder, folder)

    def build(*overrides, **options):
        recipe = load_recipe(tiny_recipe, ["qp=[42]", *overrides])
        return build_store(recipe, tiny_recipe.parent, folder, **options)

    build("planes=[bs_v, ts_y]", "times=true")
    plain = {path: path.read_bytes() for path in folder.rglob("*.266")}

    def refuse(*_):
        raise AssertionError("coded again")

    monkeypatch.setattr(VvcCodec, "encode", refuse)
    build(PLANES, "times=true")
    seconds = list(folder.rglob("seconds.json"))
    assert len(seconds) == len(plain) == len(list(folder.rglob("*.266")))
    assert not set(plain) & set(folder.rglob("*.266"))
    build(PLANES)  # a store with times keeps them
    for path in seconds:
        path.unlink()
    expected, built = (
        {path.relative_to(store): path for path in store.rglob("*") if path.is_file()} for store in stores
    )
    assert set(built) == set(expected)
    for name, path in expected.items():
        assert built[name].read_bytes() == path.read_bytes(), name
    build()
    assert not list(folder.rglob("residual.yuv"))
    stream = next(folder.rglob("bitstream.266"))
    samples = bytearray(stream.read_bytes())
    samples[-1] ^= 1
    stream.write_bytes(samples)
    with pytest.raises(StoreError, match=r"bitstream\.266 is damaged"):
        build(PLANES)
    with pytest.raises(AssertionError, match="coded again"):
        build("preset=fast", prune=True)
