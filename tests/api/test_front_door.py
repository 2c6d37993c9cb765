"""The names of `import codecnn`: documentation, imports, and the way from pictures to results."""

import dataclasses
import inspect
import json
import subprocess
import sys

import numpy as np
import pytest

import codecnn
from codecnn.base.errors import CodecnnError, ConfigError

WITHOUT_TORCH = (
    *("bd_rate", "build_dataset", "correlate", "open_dataset", "open_video", "psnr", "read_blocks", "read_pictures"),
    *("CodecnnError", "forward_transform", "plan_dataset", "satd"),
)
SCRIPTS = (
    *("build_dataset", "correlate", "evaluate", "export", "filter", "label_blocks", "train", "view"),
    *("CodecnnError", "bd_rate", "create_model", "filter_luma", "forward_transform", "list_models", "list_weights"),
    *("load_filter", "load_model", "open_video", "predict_modes", "psnr", "read_pictures", "satd"),
)
"""Names that scripts rely on."""


def test_all_names_exist_and_are_documented():
    assert set(WITHOUT_TORCH) | set(SCRIPTS) < set(codecnn.__all__) == set(dir(codecnn))
    for name in codecnn.__all__:
        assert len(getattr(codecnn, name).__doc__.splitlines()[0]) > 20, name


WITHOUT_IMPORTS_OF_TORCH = f"""
import sys

class Refusal:
    def find_spec(self, name, *arguments):
        if name == "torch":
            raise ImportError("torch is refused")

sys.meta_path.insert(0, Refusal())
import codecnn

print([bool(getattr(codecnn, name)) for name in {WITHOUT_TORCH}])
codecnn.create_model
"""


def test_torch_is_loaded_only_by_functions_that_need_it():
    done = subprocess.run([sys.executable, "-c", WITHOUT_IMPORTS_OF_TORCH], capture_output=True, text=True, check=False)
    assert done.stdout == f"{[True] * len(WITHOUT_TORCH)}\n", done.stderr
    assert "ImportError: torch is refused" in done.stderr


@pytest.mark.parametrize("name", [name for name in codecnn.__all__ if name != "CodecnnError"])
def test_unknown_keywords_are_errors_that_name_the_nearest(name):
    """Every function of the front door, also those that pass options on to another one."""
    function = getattr(codecnn, name)
    arguments = ("rdn",) if name == "create_model" else ()
    known = {"create_model": "features", "evaluate": "frames", "filter": "bit_depth", "list_models": None}
    known |= dict.fromkeys(("label_blocks", "predict_block_modes"), "full_range") | {"list_weights": None}
    own = [key for key, value in inspect.signature(function).parameters.items() if value.kind is not value.VAR_KEYWORD]
    for keyword in {known.get(name, own[-1] if own else None), own[-1] if own else None, own[0] if own else None}:
        if keyword is None or (name == "create_model" and keyword != "features"):
            continue
        with pytest.raises(CodecnnError, match=rf"has no (argument|option) '{keyword}_': did you mean '{keyword}'\?"):
            function(*arguments, **{f"{keyword}_": 3})
    with pytest.raises(CodecnnError, match=r"has no (argument|option) 'zzzz': there are "):
        function(*arguments, zzzz=3)
    if name != "create_model":
        with pytest.raises(TypeError):
            function(zzzz=3)


def test_options_of_videos_are_refused_for_a_store(tiny_store, tmp_path):
    """A store states them itself, and leaving them unused would measure something else than was asked for."""
    for options in ({"frames": 3}, {"size": "64x64"}, {"step": 8}):
        with pytest.raises(ConfigError, match=rf"is a store, whose recipe states {next(iter(options))}: leave"):
            codecnn.evaluate(tiny_store, "low_cost_5", tmp_path, **options)
    assert list(tmp_path.iterdir()) == []


def test_from_pictures_to_results(tiny_recipe, tmp_path):
    store = codecnn.build_dataset(tiny_recipe, tmp_path / "store", overrides=["qp=[27,32,37,42]"], jobs=2)
    assert [unit.key for unit in codecnn.open_dataset(tmp_path / "store").units] == [unit.key for unit in store.units]
    config = tmp_path / "config.yaml"
    config.write_text(
        "model: {name: rdn, options: {features: 4, blocks: 1, layers: 1, growth: 4}}\n"
        "training: {steps: 2, batch: 2, patch: 32, validate_every: 2, warmup: 1, device: cpu, threads: 1}\n"
    )
    result = codecnn.train(config, tmp_path / "run", overrides=[f"store={store.folder}"])
    assert result.last["step"] == 2
    (results,) = codecnn.evaluate(store.folder, result.weights, tmp_path / "results", qps=[27, 32, 37, 42])
    assert list(results.qps) == [27, 32, 37, 42]
    assert results.bd_rate["y"] == pytest.approx(
        json.loads((tmp_path / "results/results.json").read_text())["bd_rate"]["y"]
    )
    facts = codecnn.export(result.weights, tmp_path / "net.safetensors", "int16", store=store.folder, pictures=1)
    assert codecnn.load_filter(tmp_path / "net.safetensors").card["accumulator_bits"] == facts["accumulator_bits"] == 32
    stream = store.units[0].path("bitstream")
    assert codecnn.read_blocks(stream).depth.max() >= 1


@pytest.fixture
def decoded(golden_file):
    """A VVC stream of one intra picture."""
    return golden_file("vvc/tiny136x72_ai_qp32.266")


def test_filter_writes_filtered_pictures(decoded, tmp_path):
    output = tmp_path / "filtered_136x72_10bit.yuv"
    calls = []
    result = codecnn.filter(decoded, output, model="low_cost_5", progress=lambda *counts: calls.append(counts))
    assert (result.output, result.pictures, result.decisions, result.notes) == (output, 1, None, ())
    assert calls == [(1, 1)]
    filter_ = codecnn.load_filter("low_cost_5", exact=None)
    with codecnn.open_video(decoded) as before, codecnn.open_video(output) as after:
        assert np.array_equal(after[0].y, filter_(before[0], 32).y)
        assert not np.array_equal(after[0].y, before[0].y)
        with pytest.raises(dataclasses.FrozenInstanceError):
            result.pictures = 2
    explicit = codecnn.filter(decoded, tmp_path / "again_136x72_10bit.yuv", model="low_cost_5", qp=32)
    assert explicit.output.read_bytes() == output.read_bytes()
    assert codecnn.filter(decoded, output, model="low_cost_5", qp=[60]).notes[0].endswith("QP 60 is filtered as QP 42")


def test_filter_says_once_that_the_weights_are_of_another_codec(golden_file, tmp_path):
    stream = golden_file("hevc/chelsea178x130_ai_qp32_ctu32.265")
    output = tmp_path / "o.y4m"
    for options in ({}, {"qp": 32}):
        notes = codecnn.filter(stream, output, model="low_cost_5", **options).notes
        (note,) = notes
        assert note.startswith("the network was trained on pictures of VVC, not of HEVC; without -m")
    assert codecnn.filter(stream, output, model="low_cost_5.hevc").notes == ()


def test_filter_decides_with_an_original(decoded, tmp_path):
    """The filter lowers the RD cost against the filtered picture as original, but not against the decoded one."""
    filtered, output = tmp_path / "filtered_136x72_10bit.yuv", tmp_path / "out_136x72_10bit.yuv"
    codecnn.filter(decoded, filtered, model="low_cost_5")
    statistics = tmp_path / "d.vtmbmsstats"
    result = codecnn.filter(
        decoded, output, model="low_cost_5", original=filtered, decisions_file=statistics, ctu_size=64
    )
    assert result.decisions["pays"]
    assert result.decisions["rd_cost_after"] < result.decisions["rd_cost_before"]
    with (
        codecnn.open_video(decoded) as before,
        codecnn.open_video(filtered) as original,
        codecnn.open_video(output) as out,
    ):
        expected = [codecnn.psnr(original[0].y, each[0].y, 10) for each in (before, out)]
    psnrs = [result.decisions[key]["y"] for key in ("psnr_before", "psnr_after")]
    assert [psnr or np.inf for psnr in psnrs] == pytest.approx(expected)
    assert statistics.read_text().startswith("# VTMBMS Block Statistics")
    unchanged = codecnn.filter(decoded, output, model="low_cost_5", original=decoded)
    assert unchanged.decisions["pictures"] == {"off": 1, "on": 0, "ctu": 0}
    assert unchanged.decisions["psnr_after"] == {"y": None}
    with codecnn.open_video(decoded) as before, codecnn.open_video(output) as after:
        assert np.array_equal(after[0].y, before[0].y)


def test_filter_refuses_options_that_do_not_fit(decoded, tmp_path):
    output = tmp_path / "o_136x72_10bit.yuv"
    for options, message in (
        ({"qp": 64}, "QP 64 is out of range: -12 to 63 at 10 bit"),
        ({"qp": [22, 27]}, "2 QPs"),
        ({"decisions_file": "d.vtmbmsstats"}, "needs --original"),
        ({"decisions_file": "d.csv", "original": decoded}, "end its name in .vtmbmsstats"),
        ({"planes": {"unf_y": decoded}}, "takes no plane 'unf_y'"),
    ):
        with pytest.raises(ConfigError, match=message):
            codecnn.filter(decoded, output, model="low_cost_5", **options)
    with pytest.raises(ConfigError, match="the same file"):
        codecnn.filter(decoded, decoded, model="low_cost_5")
    assert list(tmp_path.iterdir()) == []
