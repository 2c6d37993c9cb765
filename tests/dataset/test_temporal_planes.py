"""Temporal planes of a coded clip with a scene cut: in stores, the loader, the filter, evaluations and views."""

import re

import numpy as np
import pytest
from skimage import data

from codecnn.api.config import load_recipe
from codecnn.base.errors import CodecnnError, ConfigError, StoreError
from codecnn.base.files import write_json
from codecnn.base.planes import NEIGHBOUR_PLANES, REFERENCE_PLANES, TEMPORAL_PLANES
from codecnn.dataset import CtuPatches, build_store
from codecnn.filtering import FloatFilter, unit_planes
from codecnn.models import create_model, save_weights
from codecnn.pictures.files import VideoFormat, create_video, open_video
from codecnn.pictures.motion import compensate_motion
from codecnn.viewer import shown_stream, shown_unit
from tests.helpers.networks import SMALL, awaken

CUT = 4
"""Number of the first picture of the second scene."""

PICTURES = 8


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    """Two photographs of which each moves by 1 or 2 samples a picture, with fresh noise, spliced together."""
    folder = tmp_path_factory.mktemp("clip")
    rng = np.random.default_rng(3)
    scenes = (data.camera()[180:, 100:], data.astronaut()[150:, 150:, 1])
    with create_video(folder / "spliced_96x64_30.yuv", VideoFormat(96, 64, "420", 8)) as out:
        for number in range(PICTURES):
            window = scenes[number >= CUT][number : number + 64, 2 * number : 2 * number + 96]
            noisy = (window + rng.normal(0, 3, window.shape)).clip(0, 255).astype(np.uint8)
            out.write([noisy, *[np.full((32, 48), 128, np.uint8)] * 2])
    return folder / "spliced_96x64_30.yuv"


def build(clip, name, **keys):
    """Build a store of the clip with one unit."""
    recipe = {"schema": 1, "name": name, "qp": [37], "ctu_size": 64, "sequences": [{"source": clip.name}]} | keys
    path = clip.with_name(f"{name}.yaml")
    write_json(path, recipe)
    return build_store(load_recipe(path), clip.parent, clip.with_name(name))


@pytest.fixture(scope="module")
def vvc(clip):
    """The unit of VVC in random access, with all temporal planes."""
    planes = [*NEIGHBOUR_PLANES, *REFERENCE_PLANES]
    return build(clip, "vvc", codec="vvc", preset="faster", configuration="ra", planes=planes).units[0]


@pytest.fixture(scope="module")
def hevc(clip):
    """The unit of HEVC in low delay, with the planes of the neighbours."""
    keys = {"preset": "veryfast", "configuration": "ldb", "planes": ["next_mc_y", "next2_mc_y"]}
    return build(clip, "hevc", codec="hevc", **keys).units[0]


def lists_of_the_encoder(unit):
    """Read the POCs of the first pictures of the reference lists from the encoder's log, by POC."""
    log = (unit.decoded_path.parent / "log.txt").read_text()
    lines = re.findall(r"^POC +(\d+) .*\[L0((?: \d+)*) *\] \[L1((?: \d+)*) *\]", log, re.MULTILINE)
    assert len({poc for poc, *_ in lines}) == len(lines) == PICTURES
    return {int(poc): [[int(entry) for entry in entries.split()] for entries in lists] for poc, *lists in lines}


def expected_plane(unit, number, name, lists):
    """Return the plane by the definition: a neighbour or reference, compensated, or the picture itself."""
    with unit.decoded() as decoded:
        pictures = [np.array(picture.y) for picture in decoded]
    current = pictures[number]
    if name[:4] in ("prev", "next"):
        other = number + (2 if "2" in name else 1) * (1 if name.startswith("next") else -1)
        other = min(max(other, 0), PICTURES - 1)  # the nearest picture beyond the ends
    else:
        entries = lists[number][int(name[3])]
        other = entries[0] if entries else -1
    if other in (-1, number):
        return current
    return compensate_motion(current, pictures[other], 10) if "_mc_" in name else pictures[other]


def test_planes_of_a_store_are_those_of_neighbours_and_references(vvc, hevc):
    lists = lists_of_the_encoder(vvc)
    assert any(entries[0][:1] != entries[1][:1] for entries in lists.values() if entries[0])
    for unit, names in ((vvc, TEMPORAL_PLANES), (hevc, ["prev_y", "next_y", *NEIGHBOUR_PLANES])):
        for number in range(PICTURES):
            planes = unit_planes(unit, number, names)
            for name in names:
                expected = expected_plane(unit, number, name, lists)
                np.testing.assert_array_equal(planes[name], expected, err_msg=f"{name} of {number}")


def test_loader_cuts_the_planes_of_the_store(vvc):
    patches = CtuPatches([vvc], size=64, halo=0, planes=tuple(TEMPORAL_PLANES))
    for index in (0, len(patches) // 2, len(patches) - 2):
        patch, number = patches[index], patches.patches[index].picture
        for name, plane in unit_planes(vvc, number, TEMPORAL_PLANES).items():
            np.testing.assert_array_equal(patch[name][0] * 1024, plane[:64, :64], err_msg=name)


def network(tmp_path, planes):
    """Write weights of a network that takes the planes, and return the file and the network."""
    model = awaken(create_model("rdn", **SMALL, planes=["rec_y", "qp", *planes]))
    save_weights(tmp_path / "w.safetensors", model, "rdn", {})
    return tmp_path / "w.safetensors", model


@pytest.mark.parametrize("codec", ["vvc", "hevc"])
def test_filter_and_view_compute_the_planes_of_the_store(run, codec, tmp_path, request):
    unit = request.getfixturevalue(codec)
    weights, model = network(tmp_path, TEMPORAL_PLANES if codec == "vvc" else ["prev_y", *NEIGHBOUR_PLANES])
    filter_ = FloatFilter(model)
    status, _, err = run("filter", "-m", weights, "-i", unit.path("bitstream"), "-o", tmp_path / "f.y4m")
    assert status == 0, err
    with open_video(tmp_path / "f.y4m") as filtered, unit.decoded() as decoded:
        for number, (picture, output) in enumerate(zip(decoded, filtered, strict=True)):
            expected = filter_(picture, unit.pictures[number].qp, unit_planes(unit, number, model.planes))
            np.testing.assert_array_equal(output.y, expected.y)
            plain = filter_(picture, unit.pictures[number].qp, dict.fromkeys(model.planes, picture.y))
            assert number in (0,) or (output.y != plain.y).any()
        last = np.array(filtered[PICTURES - 1].y)
    if codec == "vvc":
        layers = shown_stream(unit.path("bitstream"), PICTURES - 1, model=weights, device="cpu").layers
        np.testing.assert_array_equal(layers["filtered"].y, last)
    layers = shown_unit(unit, PICTURES - 1, model=weights, device="cpu").layers
    np.testing.assert_array_equal(layers["filtered"].y, last)


def test_filter_of_decoded_pictures_needs_no_stream_for_neighbours(run, vvc, tmp_path):
    weights, _ = network(tmp_path, ["next_mc_y", "prev_y"])
    (tmp_path / "decoded_96x64_10bit.yuv").write_bytes(vvc.decoded_path.read_bytes())
    for source, output, more in (
        (tmp_path / "decoded_96x64_10bit.yuv", "a.yuv", ()),
        (vvc.path("bitstream"), "b.yuv", ()),
        (tmp_path / "decoded_96x64_10bit.yuv", "c.yuv", ("-f", "3")),
    ):
        status, _, err = run("filter", "-m", weights, "-i", source, "-q", "37", *more, "-o", tmp_path / output)
        assert status == 0, err
    whole, cut = (tmp_path / "a.yuv").read_bytes(), (tmp_path / "c.yuv").read_bytes()
    assert whole == (tmp_path / "b.yuv").read_bytes()
    # With 3 pictures the sequence ends at the third one, which then has no following picture.
    picture = len(whole) // PICTURES
    assert (cut[: 2 * picture], len(cut)) == (whole[: 2 * picture], 3 * picture)
    assert cut[2 * picture :] != whole[2 * picture : 3 * picture]


def test_planes_of_references_need_a_vvc_stream(run, hevc, tmp_path):
    weights, _ = network(tmp_path, ["ref0_mc_y"])
    status, _, err = run("filter", "-m", weights, "-i", hevc.path("bitstream"), "-o", tmp_path / "f.y4m")
    assert (status, "reference list 0" in err) == (1, True)
    with pytest.raises(ConfigError, match=r"ref1_y .* hevc"):
        build(tmp_path / "none.yuv", "refused", codec="hevc", planes=["prev_mc_y", "ref1_y"])


def test_missing_planes_name_the_recipe_key(tiny_store):
    hint = r"the key planes: \[prev_mc_y\] of its recipe computes it"
    for read in (
        lambda: unit_planes(tiny_store.units[0], 0, ["prev_mc_y"]),
        lambda: CtuPatches(tiny_store.units, planes=["prev_mc_y"]),
    ):
        with pytest.raises(StoreError, match=hint):
            read()
    # A still picture is its own neighbour, and needs no file.
    with tiny_store.units[0].decoded() as decoded:
        np.testing.assert_array_equal(unit_planes(tiny_store.units[0], 0, ["prev_y"])["prev_y"], decoded[0].y)


def test_added_planes_keep_the_bitstream(clip, vvc, monkeypatch):
    """A store gets temporal planes without its pictures being coded again."""
    keys = {"codec": "vvc", "preset": "faster", "configuration": "ra"}

    def refuse(*_):
        raise CodecnnError("coded again")

    monkeypatch.setattr("codecnn.codec.VvcCodec.encode", refuse)
    fewer = build(clip, "vvc", **keys, planes=["prev_mc_y"]).units[0]
    assert [fewer.has(file) for file in ("neighbours", "second_neighbours", "references")] == [True, False, False]
    both = build(clip, "vvc", **keys, planes=[*NEIGHBOUR_PLANES, *REFERENCE_PLANES]).units[0]
    assert both == vvc


def test_evaluate_builds_a_store_with_the_planes(run, clip, tmp_path):
    weights, _ = network(tmp_path, ["prev_mc_y", "unf_y"])
    argv = ("evaluate", clip, "-m", weights, "--codec", "hevc", "-q", "37", "--preset", "veryfast", "-f", "2")
    status, out, err = run(*argv, "-o", tmp_path / "e")
    assert status == 0, out + err
    (line,) = (tmp_path / "e" / "store" / "units.jsonl").read_text().splitlines()
    assert '"neighbours"' in line
    assert '"unfiltered"' in line


@pytest.mark.parametrize("codec", ["vvc", "hevc"])
def test_a_scene_cut_does_not_hurt(codec, request):
    """A mean with the neighbours loses much across the cut; with the compensated ones nothing changes there."""
    unit = request.getfixturevalue(codec)
    gains, changed = {}, []
    with unit.decoded() as decoded, unit.originals() as originals:
        for number in range(PICTURES):
            coded, original = decoded[number].y.astype(float), originals[number].y.astype(float)
            planes = unit_planes(unit, number, ["prev_y", "next_y", *NEIGHBOUR_PLANES])
            for name, plane in planes.items():
                mixed = 0.75 * coded + 0.25 * plane
                if "_mc_" in name and 0 < number < PICTURES - 1 and number not in (CUT - 1, CUT):
                    changed.append(np.mean(plane != coded))
                gains[number, name] = 10 * np.log10(np.mean((coded - original) ** 2) / np.mean((mixed - original) ** 2))
    for number, name in ((CUT, "prev"), (CUT - 1, "next")):
        assert gains[number, f"{name}_mc_y"] == 0
        assert gains[number, f"{name}_y"] < -1
    for number, name in ((CUT, "prev2"), (CUT + 1, "prev2"), (CUT - 1, "next2"), (CUT - 2, "next2")):
        assert gains[number, f"{name}_mc_y"] == 0
    assert max(changed) > 0.5
