"""Sources of a recipe: refused before anything is coded."""

import json
import os
import signal
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from skimage.io import imsave

from codecnn.api.config import load_recipe
from codecnn.api.demo import run_demo
from codecnn.base.errors import CodecnnError, ConfigError, FormatError, StoppedError, StoreError
from codecnn.dataset import build_store, open_store
from codecnn.pictures.files import open_video
from tests.helpers.still_kinds import KINDS

WRITE = {kind.name: kind.write for kind in KINDS}


def write_recipe(folder: Path, *sources: str) -> Path:
    """Write a recipe of sequences, each given as the content of its mapping."""
    path = folder / "recipe.yaml"
    lines = "".join(f"  - {{{source}, split: train}}\n" for source in sources)
    path.write_text(f"name: mine\npreset: faster\nqp: [42]\nctu_size: 64\nsequences:\n{lines}")
    return path


def build(recipe: Path, store: Path, **options):
    return build_store(load_recipe(recipe), recipe.parent, store, **options)


@pytest.fixture
def encoder_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail when anything is coded."""
    monkeypatch.setattr("codecnn.codec.encoders.libvvenc.VvcCodec.encode", None)


def test_all_files_that_cannot_be_read_are_named_before_coding(tmp_path: Path, encoder_is_off: None) -> None:
    for name in ("rgb.png", "cmyk.tif", "lab.tif", "pages_of_sizes.tif"):
        WRITE[name](tmp_path / name)
    (tmp_path / "a_64x48_v210.yuv").write_bytes(bytes(64 * 48 * 3))
    (tmp_path / "text.mp4").write_text("no video")
    names = ["rgb.png", "cmyk.tif", "lab.tif", "pages_of_sizes.tif", "a_64x48_v210.yuv", "text.mp4"]
    recipe = write_recipe(tmp_path, *(f"source: {name}" for name in names))
    with pytest.raises(FormatError, match="5 files of recipe 'mine'") as error:
        build(recipe, tmp_path / "store")
    for name, reason in zip(names[1:], ("CMYK", "Lab", "different sizes", "v210", "not a video"), strict=True):
        assert f"{name}" in str(error.value)
        assert reason in str(error.value)
    assert "rgb.png" not in str(error.value)
    assert not list((tmp_path / "store" / "coded").iterdir())
    assert not (tmp_path / "store" / "originals").exists()


def test_a_single_file_has_its_own_message(tmp_path: Path, encoder_is_off: None) -> None:
    WRITE["rgb.png"](tmp_path / "rgb.png")
    WRITE["cmyk.tif"](tmp_path / "cmyk.tif")
    recipe = write_recipe(tmp_path, "source: rgb.png", "source: cmyk.tif, scales: [1, 0.5]")
    with pytest.raises(FormatError, match=r"^\S+cmyk\.tif .* CMYK"):
        build(recipe, tmp_path / "store")
    recipe = write_recipe(tmp_path, "source: a_8x4.yuv, start: 3")
    (tmp_path / "a_8x4.yuv").write_bytes(bytes(96))
    with pytest.raises(ConfigError, match="has 2 pictures: start 3"):
        build(recipe, tmp_path / "store")


def test_folders_are_checked_too(tmp_path: Path, encoder_is_off: None) -> None:
    (tmp_path / "frames").mkdir()
    for number, size in enumerate(((8, 12), (8, 14))):
        imsave(tmp_path / "frames" / f"{number}.png", np.zeros((*size, 3), np.uint8), check_contrast=False)
    recipe = write_recipe(tmp_path, "source: frames, series: true")
    with pytest.raises(FormatError, match=r"1\.png is 14x8"):
        build(recipe, tmp_path / "store")


def test_pictures_that_are_mostly_padding_have_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    imsave(tmp_path / "tiny.png", np.full((9, 17, 3), 90, np.uint8), check_contrast=False)
    imsave(tmp_path / "odd.png", np.full((33, 35, 3), 90, np.uint8), check_contrast=False)
    store = build(write_recipe(tmp_path, "source: tiny.png", "source: odd.png"), tmp_path / "store")
    assert [(unit.format.width, unit.format.height) for unit in store.units] == [(32, 32), (36, 34)]
    (warning,) = [record.getMessage() for record in caplog.records if "padded" in record.getMessage()]
    assert "tiny.png has pictures of 17x9, which are padded to at least 32x32" in warning


@pytest.mark.parametrize("old", ["gone", "there"])
def test_the_name_of_a_raw_file_is_part_of_the_key(tmp_path: Path, old: str) -> None:
    """The same bytes under a name that states another size are other pictures."""
    recipe = write_recipe(tmp_path, "source: 'clip_*.yuv', name: same")
    (tmp_path / "clip_64x32.yuv").write_bytes(bytes(range(256)) * 12)
    first = build(recipe, tmp_path / "store")
    (tmp_path / "clip_64x32.yuv").rename(tmp_path / "clip_32x64.yuv")
    second = build(recipe, tmp_path / "store", prune=old == "gone", keep=old == "there")
    sizes = [[(unit.format.width, unit.format.height) for unit in store.units] for store in (first, second)]
    assert sizes == [[(64, 32)], [(32, 64)]]
    assert first.units[0].path("bitstream").is_file() == (old == "there")


def test_source_that_is_replaced_at_equal_size_and_time_is_hashed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the build is complete, when the hashes of sources are cached; also while the source is read."""
    recipe, source = write_recipe(tmp_path, "source: clip_64x32.yuv"), tmp_path / "clip_64x32.yuv"
    source.write_bytes(bytes(range(256)) * 12)
    time = source.stat().st_mtime_ns

    def replace(value: int) -> None:
        source.write_bytes(bytes([value]) * 256 * 12)
        os.utime(source, ns=(time, time))

    def opened(*arguments: object, **options: object) -> object:
        video = open_video(*arguments, **options)
        replace(1)
        return video

    with monkeypatch.context() as patched:
        patched.setattr("codecnn.dataset.originals.open_video", opened)
        with pytest.raises(StoreError, match=r"clip_64x32\.yuv changed"):
            build(recipe, tmp_path / "store")
    replace(2)
    (unit,) = build(recipe, tmp_path / "store").units
    with unit.originals() as originals:
        assert np.unique(originals[0].y).tolist() == [8], "2 of 8 bit in 10 bit"


def test_demo_has_no_prune_and_does_not_advise_it(tmp_path: Path, encoder_is_off: None) -> None:
    """A store that another command left there."""
    folder = tmp_path / "out" / "stores/demo"
    (folder / "coded" / "other_qp32_0123456789ab").mkdir(parents=True)
    (folder / "coded" / "other_qp32_0123456789ab" / "unit.json").touch()
    (folder / ".codecnn-store").touch()
    with pytest.raises(CodecnnError) as error:
        run_demo(tmp_path / "out", jobs=1, say=lambda _: None, progress=_no_progress)
    message = " ".join(str(error.value).split())
    assert f"remove {folder}" in message
    assert "--prune" not in message


def test_a_stopped_demo_says_how_it_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`codecnn demo` has no option --resume, which a stopped training names."""

    def stop(*_arguments: object, **_options: object) -> None:
        raise StoppedError("stopped by SIGINT after step 1: --resume continues", signal.SIGINT)

    monkeypatch.setattr("codecnn.api.demo.build_store", lambda *_, **__: SimpleNamespace(folder=tmp_path))
    monkeypatch.setattr("codecnn.api.demo.train", stop)
    with pytest.raises(StoppedError, match="run the same command again") as error:
        run_demo(tmp_path / "out", jobs=1, say=lambda _: None, progress=_no_progress)
    assert (error.value.signal, "--resume" in str(error.value)) == (signal.SIGINT, False)


class _no_progress:  # noqa: N801 - a context manager that is called as a function
    def __init__(self, *_: object) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def test_each_training_source_is_coded_at_some_of_the_qps(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    for name in "abcdef":
        imsave(tmp_path / f"{name}.png", rng.integers(0, 255, (32, 32, 3), np.uint8), check_contrast=False)
    sequences = "".join(
        f"  - {{source: {name}.png, split: {'val' if name == 'f' else 'train'}}}\n" for name in "fedcba"
    )

    def qps(count: int, listed: str = sequences, store: str = "all") -> dict[str, list[int]]:
        path = tmp_path / "recipe.yaml"
        path.write_text(
            f"name: mine\npreset: faster\nqp: [27, 32, 37]\nqps_per_source: {count}\nctu_size: 64\nsequences:\n{listed}"
        )
        build(path, tmp_path / f"{store}{count}")
        units = open_store(tmp_path / f"{store}{count}").units
        return {name: [unit.qp for unit in units if unit.name == name] for name in sorted({u.name for u in units})}

    single, double = qps(1), qps(2)
    assert double.pop("f") == single.pop("f") == [27, 32, 37]
    assert {len(values) for values in single.values()} == {1}
    assert len({values[0] for values in single.values()}) > 1, "the draw depends on the name"
    following = {27: 32, 32: 37, 37: 27}
    assert double == {name: sorted([first, following[first]]) for name, (first,) in single.items()}
    alone = qps(1, "  - {source: b.png, split: train}\n", "alone")
    assert json.loads((tmp_path / "alone1/manifest.json").read_text())["recipe"]["qps_per_source"] == 1
    assert alone == {"b": single["b"]}, "the draw does not depend on the other sources"


def test_more_qps_for_each_source_than_there_are_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text("name: mine\nqp: [27, 32]\nqps_per_source: 3\nsequences:\n  - {source: a.png, split: train}\n")
    with pytest.raises(ConfigError, match="qps_per_source"):
        load_recipe(path)
