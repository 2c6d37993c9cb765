"""Variants of sources and stores of several encoder settings: draws, picture operations, keys and statistics."""

import json

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter, laplace
from skimage.io import imsave
from skimage.transform import rescale

from codecnn.api.config import load_recipe
from codecnn.base.errors import ConfigError
from codecnn.dataset import Recipe, Variant, build_store, expand, open_store, originals, store_stats
from codecnn.dataset.variants import VariantsSpec, area_mean, fit_scale, uniform, vary_picture, vary_rgb
from codecnn.pictures.files import Picture, VideoFormat, create_video, open_raw, open_video, read_still
from tests.helpers.store_units import hashes

EVERYTHING = {
    "count": 2,
    "scale": [0.5, 1],
    "linear_light": 0.5,
    "blur": {"range": [0.2, 0.6], "share": 0.5},
    "sharpen": {"range": [0.2, 0.8], "share": 0.5},
    "contrast": [0.9, 1.1],
    "gamma": [0.9, 1.1],
    "full_range": 0.5,
}


def natural_picture(height=160, width=224, seed=1):
    """Return an R'G'B' picture with edges and fine texture, without black and white."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    picture = 110 + 40 * (np.hypot(y - 80, x - 100) < 50) + 20 * np.sin(x / 3)
    noise = gaussian_filter(rng.normal(0, 25, (height, width, 3)), (0.7, 0.7, 0))
    return np.clip(picture[..., None] + noise, 0, 255).astype(np.uint8)


def detail(plane):
    """Return the energy of fine detail."""
    return np.mean(laplace(plane.astype(float)) ** 2)


def varied_rgb(**operations):
    return vary_rgb(natural_picture(), Variant(number=1, **operations)) / 65535


PLAIN = natural_picture() / 255


def expand_sources(tmp_path, names, **recipe):
    for name in names:
        (tmp_path / name).touch()
    values = {"name": "r", "qp": [32], "sequences": [{"source": name} for name in names], **recipe}
    return {source.name: source for source in expand(Recipe.model_validate(values), tmp_path)}


def test_draw_depends_on_seed_name_and_number_only(tmp_path):
    names = ["a.png", "b.png", "c.y4m"]
    sources = expand_sources(tmp_path, names, variants=EVERYTHING, seed=4)
    assert list(sources) == ["a", "a_v1", "a_v2", "b", "b_v1", "b_v2", "c", "c_v1", "c_v2"]
    assert sources["a"].variant is None
    assert len({sources[name].variant.scale for name in sources if sources[name].variant}) == 6
    alone = expand_sources(tmp_path, ["b.png"], variants=EVERYTHING | {"count": 1}, seed=4)
    turned = expand_sources(tmp_path, names[::-1], variants=EVERYTHING, seed=4)
    assert alone["b_v1"].variant == sources["b_v1"].variant
    assert {name: source.variant for name, source in turned.items()} == {
        name: source.variant for name, source in sources.items()
    }
    # Operations are drawn independently of each other.
    fewer = expand_sources(tmp_path, names, variants={**EVERYTHING, "blur": None}, seed=4)["a_v1"].variant
    assert (fewer.scale, fewer.gamma, fewer.kernel) == tuple(
        getattr(sources["a_v1"].variant, name) for name in ("scale", "gamma", "kernel")
    )
    other = expand_sources(tmp_path, names, variants=EVERYTHING, seed=5)
    assert other["a_v1"].variant != sources["a_v1"].variant
    # The draws of a seed never change.
    assert uniform(4, "a", 1, "scale") == pytest.approx(0.3625124, abs=1e-7)


def test_draws_fill_their_ranges_and_shares():
    spec = VariantsSpec.model_validate(EVERYTHING)
    drawn = [spec.draw(0, f"p{number}", 1, still=True) for number in range(400)]
    for name, (low, high) in {"scale": (0.5, 1), "contrast": (0.9, 1.1), "gamma": (0.9, 1.1)}.items():
        values = [getattr(variant, name) for variant in drawn]
        assert low <= min(values) < low + 0.03 * (high - low)
        assert high - 0.03 * (high - low) < max(values) <= high
        assert np.mean(values) == pytest.approx((low + high) / 2, abs=0.06 * (high - low))
    for name in ("blur", "sharpen"):
        assert np.mean([getattr(variant, name) > 0 for variant in drawn]) == pytest.approx(0.5, abs=0.08)
    assert min(variant.blur for variant in drawn if variant.blur) >= 0.2
    for name in ("linear_light", "full_range"):
        assert np.mean([getattr(variant, name) for variant in drawn]) == pytest.approx(0.5, abs=0.08)
    kernels = [variant.kernel for variant in drawn]
    assert all(kernels.count(kernel) > 70 for kernel in ("area", "bilinear", "bicubic", "lanczos"))
    of_video = [spec.draw(0, f"p{number}", 1, still=False) for number in range(400)]
    assert [variant.scale for variant in of_video] == [variant.scale for variant in drawn]
    assert {(variant.gamma, variant.linear_light, variant.full_range) for variant in of_video} == {(1, False, None)}


def test_variants_stay_in_the_group_and_split_of_their_source(tmp_path):
    sequences = [
        {"source": "a.png", "group": "scene"},
        {"source": "b.png", "split": "val"},
        {"source": "c.png", "split": "test", "variants": {"count": 1, "scale": [0.5, 0.5]}},
        {"source": "d.png", "variants": {"count": 0}},
        {"source": "e.png", "scales": [1, 0.5]},
    ]
    sources = expand_sources(
        tmp_path, ["a.png", "b.png", "c.png", "d.png", "e.png"], variants=EVERYTHING, sequences=sequences
    )
    placed = {name: (source.group, source.spec.split) for name, source in sources.items()}
    assert placed == {
        **dict.fromkeys(("a", "a_v1", "a_v2"), ("scene", "train")),
        "b": ("b", "val"),
        **dict.fromkeys(("c", "c_v1"), ("c", "test")),
        "d": ("d", "train"),
        **dict.fromkeys(("e", "e_x0.5", "e_v1", "e_v2"), ("e", "train")),
    }
    with pytest.raises(ConfigError, match="group 'a' lies in the splits"):
        expand_sources(
            tmp_path, [], variants=EVERYTHING,
            sequences=[{"source": "a.png"}, {"source": "b.png", "group": "a", "split": "val"}],
        )  # fmt: skip


@pytest.mark.parametrize("kernel", ["area", "bilinear", "bicubic", "lanczos"])
def test_kernels_scale_without_aliasing(kernel):
    small = varied_rgb(scale=0.5, kernel=kernel)
    assert small.shape == (80, 112, 3)
    boxes = PLAIN.reshape(80, 2, 112, 2, 3).mean(axis=(1, 3))
    if kernel == "area":
        assert np.abs(small - boxes).max() < 1e-4
    # The result is closer to scikit-image's resizing than plain subsampling is.
    expected = rescale(PLAIN, 0.5, order=3, anti_aliasing=True, channel_axis=2)
    assert np.sqrt(np.mean((small - expected) ** 2)) < 0.5 * np.sqrt(np.mean((PLAIN[::2, ::2] - expected) ** 2))
    assert small.mean() == pytest.approx(PLAIN.mean(), abs=0.002)


def test_kernels_differ_and_area_weights_split_samples():
    scaled = {kernel: varied_rgb(scale=0.73, kernel=kernel) for kernel in ("area", "bilinear", "bicubic", "lanczos")}
    assert {picture.shape for picture in scaled.values()} == {(116, 164, 3)}
    details = [detail(scaled[kernel]) for kernel in ("bilinear", "bicubic", "lanczos")]
    assert details == sorted(details)
    assert details[0] < 0.9 * details[2]
    # Three intervals of 5/3 samples each.
    assert area_mean(np.array([[1.0], [2], [3], [4], [5]]), 3).ravel() == pytest.approx([1.4, 3, 4.6])


def test_linear_light_keeps_light():
    """Black and white columns have half of the light, which R'G'B' codes as 188 of 255; their mean is 128."""
    columns = np.zeros((4, 8, 3), np.uint8)
    columns[:, ::2] = 255
    for linear, expected in ((True, 187.5), (False, 127.5)):
        small = vary_rgb(columns, Variant(number=1, scale=0.5, kernel="area", linear_light=linear)) / 65535 * 255
        assert small == pytest.approx(np.full((2, 4, 3), expected), abs=0.2)


def test_blur_and_sharpening_change_fine_detail():
    assert detail(varied_rgb(blur=0.6)) < 0.7 * detail(PLAIN) < 0.7 * detail(varied_rgb(sharpen=0.5)) / 1.2
    assert varied_rgb(blur=0.6).mean() == pytest.approx(PLAIN.mean(), abs=1e-3)


def test_contrast_and_gamma():
    assert varied_rgb(contrast=1.2) == pytest.approx(np.clip((PLAIN - 0.5) * 1.2 + 0.5, 0, 1), abs=1e-4)
    assert varied_rgb(gamma=1.1) == pytest.approx(PLAIN**1.1, abs=1e-4)
    assert varied_rgb() == pytest.approx(PLAIN, abs=1e-5)


def test_extremes_are_clipped_and_never_wrap():
    hard = np.zeros((64, 64, 3), np.uint8)
    hard[16:48, 16:48] = 255
    clipped = vary_rgb(hard, Variant(number=1, scale=0.5, kernel="lanczos", sharpen=2, contrast=1.3))
    assert clipped.dtype == np.uint16
    assert (clipped[10:22, 10:22].min(), clipped[:6, :6].max()) == (65535, 0)
    planes = tuple(np.where(hard[:size, :size, 0] > 0, 1023, 0).astype("<u2") for size in (64, 32, 32))
    picture = vary_picture(Picture(planes, 10), "420", Variant(number=1, sharpen=2, contrast=1.3))
    assert {int(value) for plane in picture.planes for value in (plane.min(), plane.max())} == {0, 1023}
    assert (picture.y[20:44, 20:44].min(), picture.y[:12, :12].max()) == (1023, 0)


def test_grey_pictures_and_ycbcr():
    grey = vary_rgb(natural_picture()[..., 0], Variant(number=1, scale=0.5, kernel="area"))
    assert grey.shape == (80, 112)
    planes = tuple(np.ascontiguousarray(natural_picture()[::step, ::step, 1]).astype("<u2") * 4 for step in (1, 2, 2))
    picture = Picture(planes, 10)
    small = vary_picture(picture, "420", Variant(number=1, scale=0.5, kernel="bicubic", blur=0.5, contrast=0.9))
    assert [plane.shape for plane in small.planes] == [(80, 112), (40, 56), (40, 56)]
    assert small.y.dtype == planes[0].dtype
    softer = vary_picture(picture, "420", Variant(number=1, blur=1.2))
    assert all(detail(new) < 0.7 * detail(old) for new, old in zip(softer.planes, planes, strict=True))
    sharper = vary_picture(picture, "420", Variant(number=1, sharpen=0.5))
    assert detail(sharper.y) > 1.2 * detail(picture.y)
    assert np.array_equal(sharper.planes[1], planes[1])
    flat = vary_picture(picture, "420", Variant(number=1, contrast=0.8))
    assert all(
        np.abs(new.astype(int) - 512 - (old.astype(int) - 512) * 0.8).max() <= 0.5
        for new, old in zip(flat.planes, planes, strict=True)
    )


def convert(recipe, folder, number=1):
    source = expand(recipe, folder)[number]
    return originals.convert_original(recipe, source, originals.original_name(recipe, source, folder), folder)


def test_full_range_and_names_of_originals(tmp_path):
    """Originals of other draws have other names; full range equals reading the still in full range."""
    imsave(tmp_path / "a.png", natural_picture(), check_contrast=False)
    values = {"name": "r", "qp": [32], "sequences": [{"source": "a.png"}]}
    originals_by_share = {}
    for share in (0, 1):
        recipe = Recipe.model_validate(values | {"variants": {"full_range": share}})
        originals_by_share[share] = convert(recipe, tmp_path)
        with open_raw(tmp_path / originals_by_share[share].name, originals_by_share[share].format) as pictures:
            expected = read_still(tmp_path / "a.png", full_range=bool(share))
            for plane, same in zip(pictures[0].planes, expected.planes, strict=True):
                assert np.abs(plane.astype(int) - same).max() <= 1
    assert originals_by_share[0].name != originals_by_share[1].name


def test_pictures_of_a_series_are_varied_equally(tmp_path):
    (tmp_path / "s").mkdir()
    for number in (1, 2):
        imsave(tmp_path / "s" / f"{number}.png", natural_picture(260, 300), check_contrast=False)
    spec = {"source": "s", "series": True, "variants": EVERYTHING}
    recipe = Recipe.model_validate({"name": "r", "qp": [32], "sequences": [spec]})
    source, original = expand(recipe, tmp_path)[1], convert(recipe, tmp_path)
    assert original.variant.scale == source.variant.scale
    assert original.format.width == 2 * round(150 * source.variant.scale)
    first, second = open_raw(tmp_path / original.name, original.format)
    assert np.array_equal(first.y, second.y)
    with pytest.raises(ConfigError, match="change are for still pictures"):
        open_video(tmp_path / original.name, size="2x2", change=lambda samples: samples)


def test_no_side_becomes_shorter_than_a_ctu():
    variant = Variant(number=1, scale=0.5, kernel="area")
    assert fit_scale(variant, 1024, 300).scale == 0.5
    assert fit_scale(variant, 1024, 200).scale == pytest.approx(0.64)
    assert fit_scale(variant, 1024, 100).scale == 1


@pytest.mark.parametrize(
    ("variants", "message"),
    [
        ({"scale": [1, 0.5]}, "does not rise within"),
        ({"scale": [0.5, 2]}, "does not rise within"),
        ({"gamma": [0, 1]}, "does not rise within"),
        ({"blur": {"range": [0.1, 0.2], "share": 2}}, "share"),
        ({"kernels": ["cubic"]}, "kernels"),
        ({"sharpness": 1}, "unknown key 'variants.sharpness'"),
    ],
)
def test_invalid_variants_are_refused(tiny_recipe, variants, message):
    with pytest.raises(ConfigError, match=message):
        load_recipe(tiny_recipe, [f"variants={json.dumps(variants)}"])


ENCODERS = [
    {"share": 6},
    {"share": 3, "preset": "fast", "params": {"EDO": 0}, "ctu_size": 64},
    {"share": 1, "source_bit_depth": 8},
]


def test_each_training_source_draws_an_encoder(tmp_path):
    names = [f"p{number}.png" for number in range(300)]
    sources = expand_sources(tmp_path, names, encoders=ENCODERS)
    drawn = [source.encoder.share for source in sources.values()]
    assert len(sources) == 300
    for share in (6, 3, 1):
        assert drawn.count(share) == pytest.approx(30 * share, abs=25)
    alone = expand_sources(tmp_path, names[100:103][::-1], encoders=ENCODERS)
    assert all(source.encoder == sources[name].encoder for name, source in alone.items())
    other = expand_sources(tmp_path, names, encoders=ENCODERS, seed=1)
    assert [source.encoder for source in other.values()] != [source.encoder for source in sources.values()]


def test_without_shares_each_encoder_codes_each_training_source(tmp_path):
    sequences = [{"source": "a.png"}, {"source": "b.png", "split": "val"}]
    encoders = [{}, {"preset": "slow"}]
    sources = expand_sources(tmp_path, ["a.png", "b.png"], sequences=sequences, encoders=encoders)
    assert {name: source.group for name, source in sources.items()} == {"a_e1": "a", "a_e2": "a", "b": "b"}
    assert sources["a_e2"].encoder.preset == "slow"
    with pytest.raises(ConfigError, match="no sequence of the split train"):
        expand_sources(tmp_path, ["b.png"], sequences=sequences[1:], encoders=encoders)


def test_encoder_settings(tiny_recipe):
    recipe = load_recipe(tiny_recipe, [f"encoders={json.dumps(ENCODERS)}", "params={ALF: 0, EDO: 1}"])
    fast = recipe.settings(32, recipe.encoders[1])
    assert (fast.preset, fast.ctu_size, dict(fast.params)) == ("fast", 64, {"ALF": "0", "EDO": "0"})
    assert recipe.settings(32, recipe.encoders[0]) == recipe.settings(32)
    assert recipe.settings(32).params == {"ALF": "0", "EDO": "1"}
    with pytest.raises(ConfigError, match="all of them a share, or none"):
        load_recipe(tiny_recipe, ["encoders=[{share: 1}, {preset: fast}]"])
    with pytest.raises(ConfigError, match="ctu_size"):
        load_recipe(tiny_recipe, ["encoders=[{ctu_size: 65}]"])


@pytest.fixture(scope="module")
def varied(tmp_path_factory):
    """Return a store of a still and a Y4M file, each with a variant, a validation picture, and two encoder settings."""
    folder = tmp_path_factory.mktemp("varied")
    imsave(folder / "a.png", natural_picture(), check_contrast=False)
    imsave(folder / "b.png", natural_picture(96, 136), check_contrast=False)
    form = VideoFormat(224, 160, "420", 8)
    with create_video(folder / "c.y4m", form) as out:
        out.write(Picture(tuple(np.ascontiguousarray(natural_picture()[::n, ::n, 0]) for n in (1, 2, 2)), 8))
    recipe = folder / "varied.yaml"
    variants = EVERYTHING | {"count": 1, "full_range": 1, "sharpen": [0.3, 0.6]}
    recipe.write_text(
        f"name: varied\npreset: faster\nqp: [42]\nseed: 1\nvariants: {json.dumps(variants)}\n"
        "encoders:\n  - {share: 1, params: {EDO: 0}}\n  - {share: 1, ctu_size: 64, source_bit_depth: 8}\nsequences:\n"
        "  - {source: a.png}\n  - {source: c.y4m}\n  - {source: b.png, split: val}\n"
    )
    return recipe, build_store(load_recipe(recipe), folder, folder / "store", jobs=2)


def test_store_and_statistics_describe_variants_and_encoders(varied, run):
    recipe, store = varied
    units = {unit.name: unit for unit in open_store(store.folder).units}
    assert list(units) == ["a", "a_v1", "c", "c_v1", "b"]
    assert [name for name in units if units[name].variant] == ["a_v1", "c_v1"]
    assert {unit.group for unit in units.values()} == {"a", "b", "c"}
    drawn = {source.name: source for source in expand(load_recipe(recipe), recipe.parent)}
    for name, unit in units.items():
        encoder = drawn[name].encoder
        if name == "b":
            assert (unit.coding.ctu_size, unit.coding.params, unit.coding.source_bit_depth) == (128, {}, None)
            continue
        assert unit.coding.params == encoder.params
        assert ("EDO=0" in " ".join(unit.argv)) == bool(encoder.params)
        assert ("CTUSize=64" in " ".join(unit.argv)) == (encoder.ctu_size == 64)
        with unit.originals() as originals:
            eight = all((plane % 4 == 0).all() for plane in originals[0].planes)
        assert eight == (encoder.source_bit_depth == 8 or name == "c")
    assert {unit.coding.source_bit_depth for unit in units.values()} == {None, 8}
    still = units["a_v1"].variant
    assert min(units["a_v1"].format.width, units["a_v1"].format.height) >= 128
    assert units["a_v1"].format.width == 2 * round(224 * still.scale / 2)
    stats = store_stats(store)
    assert stats["variants"]["sequences"] == 2
    assert stats["variants"]["full_range"] == 1
    assert stats["variants"]["scale"]["range"] == sorted(units[name].variant.scale for name in ("a_v1", "c_v1"))
    assert sum(sum(row["units"].values()) for row in stats["encoders"]) == 5
    _, out, _ = run("dataset", "stats", store.folder)
    lines = " ".join(out.split())
    assert "2 sequences are variants: scale " in lines
    assert "faster, CTU 128 EDO=0: units: train" in lines
    assert "faster, CTU 64, sources of 8 bit: units: train" in lines


def test_varied_builds_are_equal_file_by_file(varied, tmp_path):
    recipe, store = varied
    again = build_store(load_recipe(recipe), recipe.parent, tmp_path / "again")
    assert hashes(again.folder) == hashes(store.folder)


def test_stores_without_variants_omit_their_keys(tiny_store, run):
    assert not {"variants", "encoders"} & store_stats(tiny_store).keys()
    assert '"variant"' not in (tiny_store.folder / "units.jsonl").read_text()
    assert '"coding"' not in (tiny_store.folder / "units.jsonl").read_text()
    assert "variants" not in run("dataset", "stats", tiny_store.folder)[1]
