"""Figures that do not exist: each has its reason, and none is missing that could be computed."""

import dataclasses

import numpy as np
import pytest

from codecnn.base.files import sha256_file, write_json
from codecnn.evaluation import (
    Cell,
    PictureMeasure,
    ResultRow,
    by_picture_type,
    evaluate,
    make_row,
    merge_results,
    results_json,
    summarise_rows,
    tables_of,
)
from codecnn.filtering import filter_and_decide, round_samples
from codecnn.models import as_card
from codecnn.pictures.files import Picture, create_video
from codecnn.pictures.metrics import psnr_yuv_mse
from codecnn.signalling.in_loop import LoopResults, LoopRow, rates_of
from tests.helpers.filters import rate_rows, toward_entry
from tests.helpers.store_units import make_unit

QPS = (42, 37, 32, 27)
FORM = {"width": 64, "height": 64, "bit_depth": 10, "chroma": "420", "fps": None}


def rows_of(folder, mses, form=FORM, name="clip"):
    """Create the rows of four QPs from the squared errors (Y, U, V) before the filter; it removes a fifth of each."""
    rows = []
    for qp, errors in zip(QPS, mses, strict=True):
        unit = make_unit(folder, name, qp, format=form, original="o.yuv", decoded=f"coded/{qp}/d.yuv")
        unit = unit.model_copy(update={"bits": 2 ** (60 - qp)})
        before, after = ([PictureMeasure(mse=tuple(share * e for e in errors))] for share in (1, 0.8))
        rows.append(make_row(unit, before, after))
    return rows


def test_chroma_without_error_has_a_reason_and_leaves_the_psnr_of_all_samples(tiny_store, tmp_path):
    rows = rows_of(tmp_path, [(16, 1, 0), (8, 0.5, 0), (4, 0, 0), (2, 0, 0)])
    assert [row.before.psnr["u"] is None for row in rows] == [False, False, True, True]
    assert rows[2].before.psnr["yuv_mse"] == pytest.approx(psnr_yuv_mse([4, 0, 0], [4096, 1024, 1024], 10))
    assert rows[2].before.psnr_of_mean_mse["v"] is None
    results = summarise_rows(rows, as_card({}), tiny_store, "test")
    assert results.bd_rate["yuv_mse"] == pytest.approx(results.bd_rate["y"], abs=2)
    assert (results.bd_rate["u"], results.bd_rate["v"], results.bd_rate["yuv_611"]) == (None, None, None)
    reasons = "a picture has no error in U at QP 32, 27; a picture has no error in V at QP 42, 37, 32, 27"
    assert f"no gain and no BD-rate U, V, YUV_611 for clip: {reasons}" in results.notes


def test_grey_pictures_have_one_reason(tiny_store, tmp_path):
    rows = rows_of(tmp_path, [(16, 0, 0), (8, 0, 0), (4, 0, 0), (2, 0, 0)])
    (note,) = summarise_rows(rows, as_card({}), tiny_store, "test").notes
    reason = "its chroma has no error at any QP, as that of grey pictures"
    assert note == f"no gain and no BD-rate U, V, YUV_611 for clip: {reason}"


def test_pictures_without_error_have_a_reason(tiny_store, tmp_path):
    rows = rows_of(tmp_path, [(16, 8, 8), (8, 4, 4), (4, 2, 2), (0, 0, 0)])
    assert rows[3].before.psnr["yuv_mse"] is None
    (note,) = summarise_rows(rows, as_card({}), tiny_store, "test").notes
    assert "no BD-rate Y, U, V, YUV_611, YUV_MSE for clip: a picture has no error in Y at QP 27" in note
    assert note.endswith("a picture has no error at QP 27")


def test_a_mean_over_pictures_is_known_though_one_has_no_error(tmp_path):
    unit = make_unit(tmp_path, "clip", 22, format=FORM, original="o.yuv", decoded="coded/22/d.yuv")
    row = make_row(unit, *[[PictureMeasure(mse=(4, 2, 2)), PictureMeasure(mse=(0, 0, 0))]] * 2)
    assert row.before.psnr["y"] is None
    assert row.before.psnr_of_mean_mse["y"] == pytest.approx(10 * np.log10(1020**2 / 2))
    assert row.before.psnr["yuv_mse"] == pytest.approx(psnr_yuv_mse([2, 1, 1], [4096, 1024, 1024], 10))


def test_a_missing_plane_is_no_plane_without_error(tiny_store, tmp_path):
    grey = rows_of(tmp_path, [(16,), (8,), (4,), (2,)], FORM | {"chroma": "400"}, "grey")
    assert "psnr_u" not in grey[0].to_json()
    assert ResultRow.model_validate(grey[0].to_json()) == grey[0]
    results = summarise_rows(grey, as_card({}), tiny_store, "test")
    assert (results.bd_rate["y"] < 0, results.bd_rate["u"], results.notes) == (True, None, ())
    (table,) = tables_of([results])
    assert "no BD-rate U, V and YUV for all sequences: no chroma, or none with an error" in table.notes


def test_tables_state_why_a_figure_is_missing(tiny_store, tmp_path, run):
    rows = [*rate_rows("long", 1.0), *rate_rows("short", 1.0)[:2]]
    results = summarise_rows(rows, as_card({"sha256": "a"}), tiny_store, "test", "half")
    write_json(tmp_path / "r" / "results.json", results_json([results]))
    status, text, err = run("jvet", tmp_path / "r", "-o", tmp_path / "o")
    assert status == 0, err
    page = (tmp_path / "o" / "report.html").read_text()
    for reason in (
        "no BD-rate for short: it needs 4 QPs, not 2",
        "no time of the encoder for all sequences: it was not recorded",
        "no time of the filter for all sequences: it was not recorded",
    ):
        assert reason in text
        assert f"<li>{reason}</li>" in page


def test_tables_of_picture_types_state_the_reason(tmp_path):
    """Bits of the second type do not rise with its quality."""
    cells, types = [], {}
    for index, qp in enumerate(QPS):
        pictures = [(0, 0, 40.0, "I"), (1, 1, 40.0, "B")]
        unit = make_unit(
            tmp_path, "clip", qp, pictures=pictures, format=FORM, original="o.yuv", decoded=f"c/{qp}/d.yuv"
        )
        facts = [{"bits": 1000 * 2**index}, {"bits": 100}]
        coded = [picture.model_copy(update=each) for picture, each in zip(unit.pictures, facts, strict=True)]
        unit = unit.model_copy(update={"pictures": tuple(coded)})
        before, after = ([PictureMeasure(mse=(share * 4.0**-index,) * 3)] * 2 for share in (16, 12))
        cells.append(Cell("m", unit, before, after, tmp_path))
        types[unit.key] = ("I", "B")
    notes = []
    figures = by_picture_type(cells, types, notes)
    assert figures["I"].bd_rate["y"] < 0
    assert figures["B"].bd_rate["y"] is None
    assert notes[0].startswith("pictures of type B: no BD-rate Y for clip: BD-rate is not defined")


def test_figures_in_the_loop_state_the_reason(tmp_path):
    rows = []
    for index, qp in enumerate(QPS):
        facts = {"name": "clip", "model": "half", "qp": qp, "pictures": 1, "pictures_off": 0}
        facts |= {"used": True, "seconds_per_picture": 0.1, "folder": "x", "bits": 1000 * 2**index}
        for chain, gain in (("without", 0.0), ("post_filter", 1.0), ("in_loop", 1.0)):
            level = 30 + 3 * index + gain
            rows.append(LoopRow(chain=chain, psnr_y=level, psnr_u=None if qp == 27 else level, **facts))
    notes = []
    assert rates_of(rows, "in_loop", notes)["u"] is None
    assert notes == ["no BD-rate U of in_loop for clip: a picture has no error in U at QP 27"]
    settings = {"decisions": "ctu", "settings": {"preset": "medium"}, "library": "libvvenc", "rows": tuple(rows)}
    settings["models"] = {"half": {"weights_sha256": "abc", "kmac_per_pixel": 1.0, "parameters": 2, "device": "cpu"}}
    loop = LoopResults(**settings, bd_rate={"half": {}}, bd_rate_per_sequence={})
    write_json(tmp_path / "loop" / "in_loop.json", loop.model_dump())
    table, _ = merge_results([tmp_path / "loop"], tmp_path / "table")
    assert "no gain and no BD-rate U, V for clip: a picture has no error in U at QP 27" in table.notes
    assert "no time of the encoder for all sequences: it was not recorded" in table.notes


class FewSamples:
    """Filter that corrects the first samples of the picture that it was made for, and none of another."""

    planes, outputs = ("rec_y",), ("y",)

    def __init__(self, original, count):
        self.original, self.count = original.astype(float), count

    def samples(self, picture, qp, beside=None):
        plane = picture.y.astype(float)
        first = np.abs(self.original - plane).max() < 100
        plane.flat[: self.count * first] = self.original.flat[: self.count * first]
        return {"y": plane}

    def __call__(self, picture, qp, beside=None):
        return round_samples(picture, self.samples(picture, qp, beside))


@pytest.fixture
def long_store(tiny_store, tmp_path):
    """Provide a sequence of 12 pictures, of which a filter can improve the first alone."""
    rng = np.random.default_rng(3)
    files = {"original": "o.yuv", "decoded": "coded/d.yuv", "split": "test", "bits": 9000, "format": FORM}
    unit = make_unit(tmp_path, "long", 37, pictures=[(poc, 0, 30.0) for poc in range(12)], **files)
    (tmp_path / "coded").mkdir()
    with (
        create_video(unit.original_path, unit.format) as originals,
        create_video(unit.decoded_path, unit.format) as decoded,
    ):
        for level in (300, *[600] * 11):
            planes = [rng.integers(level - 100, level + 100, shape) for shape in unit.format.plane_shapes]
            noisy = [plane + rng.integers(-30, 31, plane.shape) for plane in planes]
            for video, samples in ((originals, planes), (decoded, noisy)):
                video.write(Picture(tuple(plane.astype(np.uint16) for plane in samples), 10))
    hashes = {name: sha256_file(tmp_path / name) for name in ("o.yuv", "coded/d.yuv")}
    return dataclasses.replace(tiny_store, units=(unit.model_copy(update={"files": hashes}),))


def test_crops_of_a_sequence_that_counts_as_switched_off_show_decoded_pictures(long_store, tmp_path):
    """The first picture alone would be filtered, but the flags of the other eleven cost more than it gains."""
    (unit,) = long_store.units
    with unit.originals() as originals, unit.decoded() as decoded:
        original, picture = originals[0], decoded[0]
        for count in range(1, 1000):
            entry = toward_entry([])
            entry = dataclasses.replace(entry, filter=FewSamples(np.array(original.y), count))
            alone = filter_and_decide(entry.filter, original, picture, 37, {}, "ctu", 64)
            if alone.decision.mode != "off":
                break
    (results,) = evaluate([entry], long_store, "test", tmp_path / "out", decisions="ctu")
    assert results.sequences[0].after.psnr["y"] == results.sequences[0].before.psnr["y"]
    assert "+0.000 dB in this region" in (tmp_path / "out" / "report.html").read_text()
