"""Fixtures that every test file may use."""

import os
import signal
import sys
from pathlib import Path

# Tests run side by side: threads of several torch processes that wait for each other cost minutes.
os.environ.setdefault("OMP_NUM_THREADS", "1")
import pytest
from hypothesis import HealthCheck, settings

from tests.helpers.golden import SHARED, GoldenFile, lay_out

# In the background of a script processes ignore Ctrl-C, and what they start inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# On a busy machine any test may be slow.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

COMPILING = ("vvc", "codec", "dataset", "cli", "docs", "tools", "viewer", "filtering")
"""Folders of half of the tests, those that need the compiled reader and decoder of VVC; its own tests come first."""


def pytest_collection_modifyitems(items):
    """Sort the tests by folder, so that one worker of two compiles while the other runs tests without compiled code.

    With `--dist worksteal` each worker starts with one half of the tests. If both began with tests that need the
    decoder, one of them would wait for two minutes until the other has compiled it.
    """
    root = Path(__file__).parent

    def rank(item):
        folder = item.path.relative_to(root).parts[0] if item.path.is_relative_to(root) else ""
        return COMPILING.index(folder) if folder in COMPILING else len(COMPILING) + (folder != "pictures")

    items.sort(key=rank)


@pytest.fixture(autouse=True)
def threads_as_they_were():
    """One test's number of threads is not the next one's."""
    before = sys.modules["torch"].get_num_threads() if "torch" in sys.modules else None
    yield
    if before is not None:
        sys.modules["torch"].set_num_threads(before)


@pytest.fixture
def run(monkeypatch, capsys):
    """Run a command in this process; returns (exit status, stdout, stderr)."""

    from codecnn import cli

    def call(*argv):
        monkeypatch.setattr(sys, "argv", ["codecnn", *map(str, argv)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        captured = capsys.readouterr()
        return stop.value.code or 0, captured.out, captured.err

    return call


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of larger golden data and real pictures; a test that needs it skips without."""
    if not SHARED.is_dir():
        pytest.skip(f"needs the larger data, which {SHARED} is not: set CODECNN_TEST_DATA to its folder")
    return SHARED


@pytest.fixture(scope="session")
def vvenc_library():
    """The user's libvvenc as a shared library; a test that codes with a filter in the loop skips without."""
    from codecnn.signalling.in_loop import LIBRARY_VARIABLE, load_library

    if not (name := os.environ.get(LIBRARY_VARIABLE)):
        pytest.skip(f"needs libvvenc as a shared library: set {LIBRARY_VARIABLE} to its path (docs/howto/inloop.md)")
    return load_library(Path(name))


@pytest.fixture(scope="session")
def own_golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The golden data of tests/data, laid out as the larger set: vvc, hevc, intra, sources."""
    return lay_out(tmp_path_factory.mktemp("golden") / "repository")


@pytest.fixture(scope="session", params=["repository", *(["shared"] if SHARED.is_dir() else [])])
def golden(request: pytest.FixtureRequest) -> Path:
    """Folders of golden data: the repository's own (its name is "repository"), and the larger one where it is there."""
    return request.getfixturevalue("own_golden") if request.param == "repository" else SHARED / "golden"


@pytest.fixture(scope="session")
def golden_file(own_golden: Path) -> GoldenFile:
    """Path of a golden file by its name, such as "vvc/tiny64x64_ai_qp32.266"; skips if only the larger set has it."""

    def find(name: str) -> Path:
        if (own_golden / name).exists():
            return own_golden / name
        if not SHARED.is_dir():
            pytest.skip(f"needs {name} of the larger data, which {SHARED} is not: set CODECNN_TEST_DATA to its folder")
        return SHARED / "golden" / name

    return find


@pytest.fixture(scope="session")
def tiny_recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe of three small noisy pictures, one a split, one of them smaller than a CTU and of odd size."""
    import numpy as np
    from skimage.io import imsave

    folder = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(5)
    for name, (height, width) in {"a": (144, 208), "b": (96, 136), "small": (51, 67)}.items():
        y, x = np.mgrid[:height, :width]
        waves = 128 + 60 * np.sin(x / 7) * np.cos(y / 9)
        picture = waves[..., None] + rng.normal(0, 12, (height, width, 3)) + np.array([0, 20, -20])
        imsave(folder / f"{name}.png", np.clip(picture, 0, 255).astype(np.uint8), check_contrast=False)
    recipe = folder / "tiny.yaml"
    recipe.write_text(
        "name: tiny\npreset: faster\nqp: [32, 42]\nctu_size: 64\nsequences:\n"
        "  - {source: a.png, split: train}\n  - {source: b.png, split: val}\n  - {source: small.png, split: test}\n"
    )
    return recipe


@pytest.fixture(scope="session")
def tiny_store(tiny_recipe: Path, tmp_path_factory: pytest.TempPathFactory):
    """The store of `tiny_recipe`, built once; on a machine without an encoder the one that CODECNN_TEST_STORE names."""
    from codecnn.api.config import load_recipe
    from codecnn.dataset import build_store, open_store

    if "CODECNN_TEST_STORE" in os.environ:
        return open_store(os.environ["CODECNN_TEST_STORE"])
    return build_store(load_recipe(tiny_recipe), tiny_recipe.parent, tmp_path_factory.mktemp("store") / "tiny", jobs=2)
