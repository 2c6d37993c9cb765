"""Imports of codecnn.models in a new process: which packages it loads, and that all architectures are known."""

import subprocess
import sys


def run_in_new_process(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_imports_of_models():
    """Neither codecs nor the bitstream parser are loaded, and architectures are known without further imports."""
    code = (
        "import sys, codecnn, codecnn.models as models; print(*codecnn.list_models(), sep=','); "
        "print(codecnn.create_model('edsr').halo); "
        "[getattr(models, name) for name in dir(models)]; models.create_model('low_cost_17'); print(*sys.modules)"
    )
    names, halo, *modules = run_in_new_process(code)
    assert {"low_cost_17", "rdn", "low_cost_yuv_17", "dncnn"} <= set(names.split(","))
    assert halo == "0"
    assert "codecnn.models.families.rdn" in modules
    loaded = [
        name for name in modules if name.startswith(("codecnn.codec", "codecnn.vvc.syntax", "codecnn.vvc.decoder"))
    ]
    assert not loaded
