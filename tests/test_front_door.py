"""The front door: what `import codecnn` offers, how little it loads, and its verbs from pictures to results."""

import json
import subprocess
import sys

import pytest

import codecnn

WITHOUT_TORCH = ("bd_rate", "build_dataset", "correlate", "open_dataset", "open_video", "psnr", "read_blocks")
IMPORT_SECONDS = 0.1


def test_every_name_is_there_and_says_what_it_does():
    assert set(WITHOUT_TORCH) < set(codecnn.__all__) == set(dir(codecnn))
    for name in codecnn.__all__:
        assert len(getattr(codecnn, name).__doc__.splitlines()[0]) > 20, name


def test_torch_is_loaded_by_the_verbs_that_need_it():
    code = f"import codecnn, sys; [getattr(codecnn, name) for name in {WITHOUT_TORCH}]; print('torch' in sys.modules); "
    code += "codecnn.create_model; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_the_import_itself_takes_no_time():
    """The least of five processes, since others may run beside."""
    code = "import time; start = time.perf_counter(); import codecnn; print(time.perf_counter() - start)"
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(5)]
    assert min(float(done.stdout) for done in runs) < IMPORT_SECONDS


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
