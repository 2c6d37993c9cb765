"""Plan of a build: exact sizes against built stores, and what a plan says of settings that were not measured."""

import json
from collections import Counter

import numpy as np
import pytest
import yaml

import codecnn
from codecnn.pictures.files import VideoFormat, create_video

ESTIMATED = {"bitstream", "records"}
"""Kinds of file whose sizes are estimated."""


@pytest.fixture(scope="module")
def clip_recipe(tmp_path_factory):
    """A clip of 5 pictures of 67x48 in random access, every second one coded, with planes of each kind of file."""
    folder = tmp_path_factory.mktemp("clip")
    rng = np.random.default_rng(2)
    with create_video(folder / "noise_67x48_25.yuv", VideoFormat(67, 48, "420", 8)) as out:
        for _ in range(5):
            out.write([rng.integers(90, 150, shape).astype(np.uint8) for shape in ((48, 67), (24, 34), (24, 34))])
    recipe = {
        "name": "clip",
        "preset": "faster",
        "configuration": "ra",
        "qp": [37],
        "planes": ["unf_y", "resid_y", "bs_v", "mts", "prev_mc_y", "prev2_mc_y", "ref0_y"],
        "sequences": [{"source": "noise_67x48_25.yuv", "step": 2}],
        "encoders": [{"params": {"SAO": 0}}, {"preset": "fast"}],
    }
    (folder / "clip.yaml").write_text(yaml.safe_dump(recipe))
    return folder / "clip.yaml"


def sizes_of(store):
    """Return the bytes of a store by kind of file, originals once."""
    sizes = Counter()
    for path in {unit.original_path for unit in store.units}:
        sizes["originals"] += path.stat().st_size
    for unit in store.units:
        for name in ("decoded", "block_planes", "unfiltered", "residual", "strengths", "transforms"):
            sizes[name] += unit.path(name).stat().st_size if unit.has(name) else 0
        for name in ("neighbours", "second_neighbours", "references"):
            sizes[name] += unit.path(name).stat().st_size if unit.has(name) else 0
    return {name: size for name, size in sizes.items() if size}


def check_sizes(plan, store):
    total = plan.total
    assert {kind: size for kind, size in total.sizes.items() if kind not in ESTIMATED} == sizes_of(store)
    assert total.units == len(store.units)
    assert total.pictures == sum(len(unit.pictures) for unit in store.units)


def test_sizes_of_stills_are_those_of_the_store(tiny_recipe, tiny_store):
    check_sizes(codecnn.plan_dataset(tiny_recipe), tiny_store)


def test_sizes_of_variants_are_those_of_the_store(tiny_recipe, tmp_path):
    sequences = "sequences=[{source: a.png, scales: [1, 0.7]}, {source: small.png, split: val}]"
    overrides = ["qp=[42]", "variants={count: 2, scale: [0.5, 0.9]}", sequences]
    store = codecnn.build_dataset(tiny_recipe, tmp_path / "store", overrides=overrides)
    check_sizes(codecnn.plan_dataset(tiny_recipe, overrides=overrides), store)


def test_sizes_of_planes_are_those_of_the_store(clip_recipe, tmp_path):
    plan = codecnn.plan_dataset(clip_recipe)
    assert [row.pictures for row in plan.rows] == [3, 3]
    check_sizes(plan, codecnn.build_dataset(clip_recipe, tmp_path / "store"))


def test_settings_that_were_not_measured_have_no_hours(clip_recipe):
    plan = codecnn.plan_dataset(clip_recipe)
    own, fast = (row.core_hours for row in plan.rows)
    assert plan.not_measured == ("vvc faster ra SAO=0",)
    assert own.coding is None
    assert own.total is None
    assert plan.total.core_hours.total is None
    assert fast.total == pytest.approx(fast.coding + fast.rebuilding + fast.temporal + fast.other)
    assert min(fast.coding, fast.rebuilding, fast.temporal, fast.other) > 0


def test_hours_follow_qp_and_planes(tiny_recipe):
    def hours(*overrides):
        return codecnn.plan_dataset(tiny_recipe, overrides=["preset=fast", *overrides]).total.core_hours

    assert hours("qp=[22]").coding > hours("qp=[32]").coding > hours("qp=[42]").coding
    assert hours("qp=[32]").rebuilding == 0
    assert hours("qp=[32]", "planes=[unf_y]").rebuilding > 0
    one, two = hours("planes=[prev_mc_y]").temporal, hours("planes=[prev_mc_y, prev2_mc_y]").temporal
    assert two == pytest.approx(2 * one)
    assert hours("rate={qp: [32]}", "qp=[]").coding is None


def test_a_bit_rate_states_the_size_of_the_bitstream(clip_recipe):
    overrides = ["qp=[]", "rate={kbps: [100, 300]}", "planes=[]", "encoders=[]"]
    total = codecnn.plan_dataset(clip_recipe, overrides=overrides).total
    # Three pictures of a video of 25 Hz, of which every second one is coded.
    assert total.sizes["bitstream"] == (100 + 300) * 1000 * 3 / 12.5 / 8
    assert total.core_hours.coding is None


def test_hours_follow_the_configuration(clip_recipe):
    def coding(*overrides):
        overrides = ["preset=medium", "encoders=[]", *overrides]
        return codecnn.plan_dataset(clip_recipe, overrides=overrides).total.core_hours.coding

    assert coding("configuration=ldb") > coding("configuration=ra") > 0
    assert coding("configuration=ra", "ctc=true") > 0
    assert coding("configuration=ra", "ctc=true", "preset=faster") is None
    plan = codecnn.plan_dataset(clip_recipe, overrides=["preset=slow", "encoders=[]", "ctc=true"])
    assert plan.not_measured == ("vvc slow ra ctc",)


def test_command_prints_the_plan(tiny_recipe, run):
    status, out, _ = run("dataset", "plan", tiny_recipe, "preset=fast", "--json")
    assert status == 0
    plan = json.loads(out)
    assert plan == codecnn.plan_dataset(tiny_recipe, overrides=["preset=fast"]).to_json()
    assert plan["total"]["units"] == 6
    status, out, _ = run("dataset", "plan", tiny_recipe, "preset=slower")
    assert status == 0
    assert "vvc slower ai: the encoder's time is not measured" in out


def test_missing_sources_are_an_error(tiny_recipe, run):
    status, _, err = run("dataset", "plan", tiny_recipe, "root=elsewhere")
    assert status == 1
    assert "recipe 'tiny': no file of pictures matches" in err
    assert "elsewhere: root=FOLDER sets the folder of its pictures" in err
