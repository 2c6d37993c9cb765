"""The closed loop: with a filter that does nothing it is the open one; what the filter does reaches the references."""

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from codecnn.codec import CodecSettings, VvcCodec
from codecnn.config import load_recipe
from codecnn.dataset import build_store
from codecnn.errors import ConfigError
from codecnn.evaluation import psnr
from codecnn.evaluation.in_loop import closed_loop
from codecnn.video import Picture, VideoFormat, create_video, open_raw, open_video
from tests.helpers.filters import toward_entry

FORMAT = VideoFormat(64, 64, "420", 8, 30)
CODED = VideoFormat(64, 64, "420", 10, 30)


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    """Two pictures of a texture that moves by two samples, smooth enough to be predicted."""
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
    """The rows of the loop by their chain, and how near references came."""
    settings = CodecSettings(qp=qp, preset="faster", configuration="ldb", ctu_size=128)
    with open_video(clip) as video:
        entry = toward_entry([4.0 * picture.y for picture in video], left=share, right=share)
        made = closed_loop(entry, "moving", video, settings, **options)
    return {row.chain: row for row in made.rows}, made.reference_psnr


def test_a_filter_that_does_nothing_closes_no_loop(clip, tmp_path):
    rows, near = loop(clip, 0.0, decisions="none", before=tmp_path / "before.yuv")
    assert len({(row.bits, row.psnr_y, row.psnr_u) for row in rows.values()}) == 1
    assert near > 45
    # The first picture is intra, as of the encoder alone; every one is at the QP asked for, and has its proofs.
    settings = CodecSettings(qp=37, preset="faster", ctu_size=128)
    coded = VvcCodec().encode(clip, FORMAT, settings, tmp_path / "intra")
    with open_raw(tmp_path / "before.yuv", CODED) as before, open_raw(coded.decoded, CODED) as intra:
        assert np.array_equal(before[0].y, intra[0].y)
        with open_video(clip) as video:
            ours = [psnr(4 * a.y.astype(np.uint16), b.y, 10) for a, b in zip(video, before, strict=True)]
    assert rows["without"].psnr_y == pytest.approx(np.mean(ours), abs=1e-9)
    assert rows["without"].bits > coded.pictures[0].bits


def test_a_good_filter_helps_the_next_picture(clip):
    rows, _ = loop(clip, 0.8, decisions="none")
    # A reference near the original leaves little to code, which a post-filter cannot tell.
    assert rows["post_filter"].bits == rows["without"].bits
    inside, behind = rows["in_loop"], rows["post_filter"]
    assert behind.psnr_y > rows["without"].psnr_y + 3
    assert inside.psnr_y > behind.psnr_y or inside.bits < 0.95 * behind.bits


def test_a_sequence_leaves_a_harmful_filter_out(clip):
    rows, _ = loop(clip, -0.5, decisions="ctu")
    plain = rows["without"]
    for chain in ("post_filter", "in_loop"):
        assert not rows[chain].used
        assert (rows[chain].bits, rows[chain].flag_bits, rows[chain].psnr_y) == (plain.bits, 0, plain.psnr_y)
    assert (rows["in_loop_throughout"].bits, rows["in_loop_throughout"].flag_bits) == (plain.bits, 2)
    rows, _ = loop(clip, -0.5, decisions="none")
    assert rows["in_loop"].psnr_y < plain.psnr_y


def test_the_tool_s_slices_are_on_the_ladder_and_its_pictures_become_units(clip, tmp_path, monkeypatch, capsys):
    """At QP 32, which libvvenc's own groups of low delay have for no slice that is not intra."""
    script = Path(__file__).resolve().parents[2] / "tools" / "closed_loop.py"
    argv = [script, clip, "-m", "low_cost_5", "-q", "32,37", "--preset", "faster", "-o", tmp_path / "out"]
    monkeypatch.setattr(sys, "argv", list(map(str, argv)))
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(str(script), run_name="__main__")
    assert stop.value.code == 0
    assert "no BD-rate for moving: it takes 4 QPs, not 2" in capsys.readouterr().out
    recipe = tmp_path / "out" / "units.yaml"
    store = build_store(load_recipe(recipe), recipe.parent, tmp_path / "store")
    assert [[picture.qp for picture in unit.pictures] for unit in store.units] == [[32, 32], [37, 37]]
    for unit in store.units:
        assert unit.decoded_path.read_bytes() == (recipe.parent / unit.given.file).read_bytes()
        assert unit.split == "train"


def test_one_picture_is_no_loop(clip):
    with (
        open_video(clip, frames=1) as video,
        pytest.raises(ConfigError, match="two pictures at least, not 1"),
    ):
        closed_loop(toward_entry([4.0 * video[0].y]), "moving", video, CodecSettings(qp=37, ctu_size=128))
