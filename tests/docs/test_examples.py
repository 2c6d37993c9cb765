"""The Python examples of README and docs run as they stand, on files that have the names they use.

Those of a tutorial need what its other blocks have made: test_tutorials.py runs them.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.documentation import BLOCKS, PAGES, ROOT, TUTORIALS

EXAMPLES = [
    pytest.param(page, text, id=f"{page.name}-{number}")
    for page in PAGES
    if page not in TUTORIALS
    for number, text in enumerate((text for own, kind, text in BLOCKS if (own, kind) == (page, "python")), 1)
]


def blocks_and_references() -> dict[str, Any]:
    """Three 8x8 blocks of 10 bit with their references, as docs/howto/labels.md and docs/howto/modes.md name them."""
    draw = np.random.default_rng(1).integers
    return {
        "corner": draw(0, 1024, 3),
        "top": draw(0, 1024, (3, 16)),
        "left": draw(0, 1024, (3, 16)),
        "original": draw(0, 1024, (3, 8, 8)),
        "width": 8,
        "height": 8,
        "bit_depth": 10,
    }


def mode_network_input() -> dict[str, Any]:
    import torch

    names = {name: torch.from_numpy(value) for name, value in blocks_and_references().items() if np.ndim(value)}
    return {**names, "block": names["original"], "qp": torch.tensor([22, 32, 37]), "width": 8, "height": 8}


def two_networks() -> dict[str, Any]:
    import torch

    from codecnn.models import create_model

    networks = {name: create_model("low_cost_5") for name in "ab"}
    batch = {"rec_y": torch.rand(2, 1, 48, 48), "qp": torch.full((2, 1, 1, 1), 0.5)}
    return {**networks, "planes": batch, "my_batches": [batch] * 4}


def own_network() -> dict[str, Any]:
    from torch.nn.functional import mse_loss

    from codecnn.models import create_model

    def loss(network: Any, batch: Any) -> Any:
        return mse_loss(network(batch), network.crop(batch["rec_y"]) + 0.01)

    return {"MyNetwork": lambda: create_model("low_cost_5"), "my_loss": loss, **two_networks()}


def pictures() -> dict[str, Any]:
    from codecnn.pictures.files import Picture, open_video

    rng = np.random.default_rng(2)
    original = rng.integers(300, 700, (64, 96)).astype(np.uint16)
    chroma = np.full((32, 48), 512, np.uint16)
    decoded = (original + rng.integers(-20, 21, original.shape)).astype(np.uint16)
    return {
        "original": Picture((original, chroma, chroma), 10),
        "picture": Picture((decoded, chroma, chroma), 10),
        "video": open_video("decoded_416x240_10bit.yuv"),
    }


GIVEN: dict[str, Callable[[], dict[str, Any]]] = {
    "check.md": own_network,
    "filter.md": pictures,
    "labels.md": blocks_and_references,
    "modes.md": mode_network_input,
}
"""Functions that set up what the text of a page says before its example, by page."""


@pytest.fixture(scope="module")
def desk(tmp_path_factory, tiny_store) -> Path:
    """A folder with the files that examples name."""
    from codecnn.codec import read_blocks, write_blocks
    from codecnn.models import weights_path
    from codecnn.modes.networks import create_mode_network, save_mode_network
    from codecnn.pictures.files import Picture, VideoFormat, create_video

    folder = tmp_path_factory.mktemp("desk")
    shipped = weights_path("low_cost_5")
    for target in ("best", "runs/mine/best"):
        (folder / target).parent.mkdir(parents=True, exist_ok=True)
        for suffix in (".safetensors", ".json"):
            shutil.copy(shipped.with_suffix(suffix), (folder / target).with_suffix(suffix))
    (folder / "runs/mine/config.json").write_text('{"schema": "codecnn.run/1"}')  # so that the folder is that of a run
    (folder / "runs/modes").mkdir()
    save_mode_network(
        folder / "runs/modes/best.safetensors", create_mode_network(features=8, blocks=1, layers=2), "modes", {}
    )
    size = VideoFormat(416, 240, "420", 10, 30)
    rng = np.random.default_rng(3)
    for path in ("original_416x240_10bit.yuv", "decoded_416x240_10bit.yuv"):
        with create_video(folder / path, size) as writer:
            for _ in range(2):
                writer.write(
                    Picture(tuple(rng.integers(300, 700, shape).astype(np.uint16) for shape in size.plane_shapes), 10)
                )
    picture = rng.integers(0, 256, 64 * 32 * 3 // 2).astype(np.uint8)
    for path in ("clip_64x32.yuv", "clip_decoded_64x32.yuv"):
        picture.tofile(folder / path)
    (folder / "configs").mkdir()
    shutil.copy(ROOT / "configs/demo.yaml", folder / "configs")
    stream = next(tiny_store.folder.glob("coded/*/*.266"))
    for name in ("bitstream.266", "stream.266"):
        shutil.copy(stream, folder / name)
    cus = folder / "stores/demo_hevc/coded/astronaut_qp32_0123456789ab/blocks.parquet"
    cus.parent.mkdir(parents=True)
    write_blocks(cus, read_blocks(stream))
    shutil.copytree(tiny_store.folder, folder / "stores/demo")
    return folder


@pytest.mark.parametrize(("page", "text"), EXAMPLES)
def test_example_runs(page, text, desk, monkeypatch):
    monkeypatch.chdir(desk)
    names = GIVEN.get(page.name, dict)()
    exec(compile(text, str(page), "exec"), names)


def test_figures_beside_an_example_are_what_it_computes(monkeypatch, desk):
    """docs/howto/labels.md writes the three costs of the notebook's example behind the lines that compute them."""
    text = next(text for page, text, *_ in (param.values for param in EXAMPLES) if "rate_cost(" in text)
    monkeypatch.chdir(desk)
    names: dict[str, Any] = {}
    checked = 0
    for line in text.splitlines():
        code, _, comment = line.partition("  # ")
        if comment:
            figures = [float(figure) for figure in comment.split(",")]
            np.testing.assert_allclose(np.asarray(eval(code, names)).ravel(), figures, rtol=5e-4)
            checked += 1
        else:
            exec(code, names)
    assert checked == 4
