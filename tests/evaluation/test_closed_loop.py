"""The closed loop: with a filter that does nothing it is the open one; what the filter does reaches the references."""

import numpy as np
import pytest

from codecnn.codec import CodecSettings
from codecnn.codec.encoders.libvvenc import VvcCodec
from codecnn.errors import ConfigError
from codecnn.evaluation import psnr
from codecnn.evaluation.closed_loop import CHAINS, Loop, closed_loop, summarise_loops
from codecnn.video import Picture, VideoFormat, create_video, open_raw
from tests.helpers.filters import Toward

FORMAT = VideoFormat(64, 64, "420", 8, 30)


def toward(originals, share):
    return Toward([4.0 * original.y for original in originals], share, share)


@pytest.fixture(scope="module")
def originals():
    """Two pictures of a texture that moves by two samples, smooth enough to be predicted."""
    y, x = np.mgrid[:64, :68]
    rng = np.random.default_rng(3)
    texture = 128 + 50 * np.sin(x / 3) * np.cos(y / 4) + np.cumsum(rng.normal(0, 3, (64, 68)), axis=1)
    plane = np.clip(texture, 16, 235).astype(np.uint8)
    grey = np.full((32, 32), 128, np.uint8)
    return [Picture((plane[:, 2 * i : 64 + 2 * i].copy(), grey, grey), 8) for i in range(2)]


def test_a_filter_that_does_nothing_closes_no_loop(originals):
    run = closed_loop(toward(originals, 0.0), originals, FORMAT, 37, preset="faster")
    for name in CHAINS:
        assert run.psnr_y[name] == run.psnr_y["decoded"]
        assert run.bits[name] == run.bits["decoded"]
    assert run.slice_qps[0] == 37 < run.slice_qps[1]
    assert run.reference_psnr > 45


def test_a_good_filter_helps_the_next_picture(originals, tmp_path):
    run = closed_loop(toward(originals, 0.8), originals, FORMAT, 37, preset="faster")
    psnrs, bits = run.psnr_y, run.bits
    # The first picture is intra, so there the loop is the post-filter.
    assert psnrs["closed_loop"][0] == psnrs["post_filter"][0] > psnrs["decoded"][0] + 6
    assert bits["closed_loop"][0] == bits["decoded"][0]
    # A reference near the original leaves little to code, which a post-filter cannot tell.
    assert bits["post_filter"] == bits["decoded"]
    assert psnrs["closed_loop"][1] > psnrs["post_filter"][1] or bits["closed_loop"][1] < 0.9 * bits["decoded"][1]
    assert psnrs["twice"][0] > psnrs["post_filter"][0]
    with create_video(tmp_path / "first.yuv", FORMAT) as out:
        out.write(originals[0])
    coded = VvcCodec().encode(
        tmp_path / "first.yuv", FORMAT, CodecSettings(qp=37, preset="faster", ctu_size=128), tmp_path
    )
    assert bits["decoded"][0] == coded.pictures[0].bits
    with open_raw(coded.decoded, coded.format) as video:
        assert psnrs["decoded"][0] == psnr(originals[0].y.astype(np.uint16) * 4, video[0].y, 10)


def test_decisions_keep_a_harmful_filter_out_of_the_loop(originals):
    run = closed_loop(toward(originals, -0.5), originals, FORMAT, 37, preset="faster", decisions="ctu")
    assert run.psnr_y["closed_loop"] == run.psnr_y["decoded"]
    assert np.subtract(run.bits["closed_loop"], run.bits["decoded"]).tolist() == [1, 1]
    assert np.subtract(run.bits["twice"], run.bits["decoded"]).tolist() == [2, 2]


def test_summary():
    """Bits halve every 3 dB: 0.3 dB better at equal bits is 2^-0.1 of them, and a tenth fewer bits is a tenth fewer."""

    def run(index, qp):
        level, bits = 40.0 - 3 * index, 8000.0 / 2**index
        psnrs = {"decoded": [level] * 2, "post_filter": [level + 0.2, level + 0.4], "twice": [level - 1] * 2}
        shares = dict.fromkeys(CHAINS[:3], 1) | {"closed_loop": 0.9}
        spent = {name: [share * bits] * 2 for name, share in shares.items()}
        return Loop(qp, [qp, qp], spent, psnrs | {"closed_loop": [level] * 2}, 50.0)

    summary = summarise_loops([run(index, qp) for index, qp in enumerate((22, 27, 32, 37))])
    assert summary.bd_rate["post_filter"] == pytest.approx(100 * (2**-0.1 - 1), abs=0.01)
    assert summary.bd_rate["closed_loop"] == pytest.approx(-10, abs=0.01)
    assert summary.gain_db["twice"] == {str(qp): pytest.approx(-1) for qp in (22, 27, 32, 37)}
    assert summary.bits_ratio["22"] == pytest.approx(0.9)
    short = summarise_loops([run(0, 22)])
    assert short.bd_rate == dict.fromkeys(CHAINS[1:])


def test_one_picture_is_no_loop(originals):
    with pytest.raises(ConfigError, match="two pictures at least, not 1"):
        closed_loop(toward(originals, 0.0), originals[:1], FORMAT, 37)
