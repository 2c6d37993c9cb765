"""The approximated coding loop: a filter without effect changes nothing, any other changes the references."""

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from codecnn.api.config import load_recipe
from codecnn.base.errors import ConfigError
from codecnn.codec import CodecSettings, VvcCodec
from codecnn.dataset import build_store
from codecnn.pictures.files import Picture, VideoFormat, create_video, open_raw, open_video
from codecnn.pictures.metrics import psnr
from tests.helpers.filters import toward_entry
from tools.research.approximated_loop import closed_loop

FORMAT = VideoFormat(64, 64, "420", 8, 30)
CODED = VideoFormat(64, 64, "420", 10, 30)


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    """Write two pictures of a texture that moves by two samples and is smooth enough for inter prediction."""
    y, x = np.mgrid[:64, :68]
    rng = np.random.default_rng(3)
    texture = 128 + 50 * np.sin(x / 3) * np.cos(y / 4) + np.cumsum(rng.normal(0, 3, (64, 68)), axis=1)
    plane = np.clip(texture, 16, 235).astype(np.uint8)
    grey = np.full((32, 32), 128, np.uint8)
    path = tmp_path_factory.mktemp("clip") / "moving_64x64_30.yuv"
    with create_video(path, FORMAT) as out:
        for i in range(2):
            out.write(Picture((plane[:, 2 * i : 64 + 2 * i].copy(), grey, grey), 8))
    return path


def loop(clip, share, qp=37, **options):
    """Code a clip in the loop; returns the rows by chain, and the lowest PSNR of a reference."""
    settings = CodecSettings(qp=qp, preset="faster", configuration="ldb", ctu_size=128)
    with open_video(clip) as video:
        entry = toward_entry([4.0 * picture.y for picture in video], left=share, right=share)
        result = closed_loop(entry, "moving", video, settings, **options)
    return {row.chain: row for row in result.rows}, result.reference_psnr


def test_filter_without_effect_changes_nothing(clip, tmp_path):
    rows, reference_psnr = loop(clip, 0.0, decisions="none", before=tmp_path / "before.yuv")
    assert len({(row.bits, row.psnr_y, row.psnr_u) for row in rows.values()}) == 1
    assert reference_psnr > 45
    # The first picture equals that of an all-intra encode at the same QP.
    settings = CodecSettings(qp=37, preset="faster", ctu_size=128)
    coded = VvcCodec().encode(clip, FORMAT, settings, tmp_path / "intra")
    with open_raw(tmp_path / "before.yuv", CODED) as before, open_raw(coded.decoded, CODED) as intra:
        assert np.array_equal(before[0].y, intra[0].y)
        with open_video(clip) as video:
            psnrs = [psnr(4 * a.y.astype(np.uint16), b.y, 10) for a, b in zip(video, before, strict=True)]
    assert rows["without"].psnr_y == pytest.approx(np.mean(psnrs), abs=1e-9)
    assert rows["without"].bits > coded.pictures[0].bits


def test_good_filter_improves_the_next_picture(clip):
    rows, _ = loop(clip, 0.8, decisions="none")
    # A better reference leaves less residual to code, which a post-filter cannot change.
    assert rows["post_filter"].bits == rows["without"].bits
    in_loop, post_filter = rows["in_loop"], rows["post_filter"]
    assert post_filter.psnr_y > rows["without"].psnr_y + 3
    assert in_loop.psnr_y > post_filter.psnr_y or in_loop.bits < 0.95 * post_filter.bits


def test_harmful_filter_is_not_used(clip):
    rows, _ = loop(clip, -0.5, decisions="ctu")
    plain = rows["without"]
    for chain in ("post_filter", "in_loop"):
        assert not rows[chain].used
        assert (rows[chain].bits, rows[chain].flag_bits, rows[chain].psnr_y) == (plain.bits, 0, plain.psnr_y)
    assert (rows["in_loop_throughout"].bits, rows["in_loop_throughout"].flag_bits) == (plain.bits, 2)
    rows, _ = loop(clip, -0.5, decisions="none")
    assert rows["in_loop"].psnr_y < plain.psnr_y


def test_tool_codes_at_the_slice_qp_and_its_pictures_become_units(clip, tmp_path, monkeypatch, capsys):
    """The groups of pictures of libvvenc in low delay use QP 32 for no inter slice, so QP 32 tests the slice QP."""
    script = Path(__file__).resolve().parents[2] / "tools" / "research" / "closed_loop.py"
    argv = [script, clip, "-m", "low_cost_5", "-q", "32,37", "--preset", "faster", "-o", tmp_path / "out"]
    monkeypatch.setattr(sys, "argv", list(map(str, argv)))
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(str(script), run_name="__main__")
    assert stop.value.code == 0
    assert "no BD-rate for moving: it needs 4 QPs, not 2" in capsys.readouterr().out
    recipe = tmp_path / "out" / "units.yaml"
    store = build_store(load_recipe(recipe), recipe.parent, tmp_path / "store")
    assert [[picture.qp for picture in unit.pictures] for unit in store.units] == [[32, 32], [37, 37]]
    for unit in store.units:
        assert unit.decoded_path.read_bytes() == (recipe.parent / unit.given.file).read_bytes()
        assert unit.split == "train"


def test_one_picture_is_refused(clip):
    with (
        open_video(clip, frames=1) as video,
        pytest.raises(ConfigError, match="at least two pictures, not 1"),
    ):
        closed_loop(toward_entry([4.0 * video[0].y]), "moving", video, CodecSettings(qp=37, ctu_size=128))
