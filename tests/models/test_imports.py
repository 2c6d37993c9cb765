"""Imports of codecnn.models in a new process: which packages it loads, and that all architectures are known."""

import subprocess
import sys


def run_in_new_process(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_models_load_neither_codec_nor_bitstream_parser():
    code = (
        "import sys, codecnn.models as models; "
        "[getattr(models, name) for name in dir(models)]; models.create_model('low_cost_17'); print(*sys.modules)"
    )
    modules = run_in_new_process(code)
    assert "codecnn.models.families.rdn" in modules
    loaded = [name for name in modules if name.startswith(("codecnn.codec", "codecnn.vvc", "codecnn.reconstruct"))]
    assert not loaded


def test_architectures_are_known_without_further_imports():
    names = run_in_new_process("import codecnn; print(*codecnn.list_models())")
    assert {"low_cost_17", "rdn", "low_cost_yuv_17", "dncnn"} <= set(names)
    assert run_in_new_process("import codecnn; print(codecnn.create_model('edsr').halo)") == ["0"]
