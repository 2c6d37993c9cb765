"""Stores coded under rate control: the encoder's own QPs, the QPs that networks take, and settings that are refused."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest
from openpyxl import load_workbook

from codecnn.api.config import load_recipe
from codecnn.base.errors import CodecnnError, ConfigError, EncoderError
from codecnn.base.files import read_json
from codecnn.cli.console import print_gains
from codecnn.codec import choose_qps, output_pictures, read_headers
from codecnn.dataset import build_store, verify_store
from codecnn.dataset.patches import Patch, PatchReader
from codecnn.evaluation import Entry, Results, evaluate
from codecnn.models import as_card
from codecnn.pictures.files import VideoFormat
from codecnn.pictures.metrics import psnr
from tests.helpers.clips import write_clip
from tests.helpers.filters import Toward

FORM = VideoFormat(130, 98, "420", 8)
CLIP = "clip_130x98_8bit.yuv"
FRAMES = 6


def build(folder: Path, text: str, store: str = "store"):
    write_clip(folder / CLIP, FORM, FRAMES)
    recipe = folder / "recipe.yaml"
    recipe.write_text(
        f"name: rates\nconfiguration: ra\n{text}\nsequences: [{{source: {CLIP}, name: clip, split: test}}]\n"
    )
    return build_store(load_recipe(recipe), folder, folder / store)


@pytest.mark.parametrize(
    ("codec", "rate", "further"),
    [
        ("avc", "{crf: [24, 34]}", "preset: faster\ninternal_bit_depth: 8"),
        ("avc", "{qp: [24, 34]}", "preset: faster\ninternal_bit_depth: 10"),
        ("hevc", "{crf: [24, 34]}", "preset: faster\ninternal_bit_depth: 8\nctu_size: 64"),
        ("hevc", "{qp: [24, 34]}", "preset: ultrafast\ninternal_bit_depth: 10\nctu_size: 32"),
        ("av1", "{crf: [24, 44]}", "preset: faster\ninternal_bit_depth: 8"),
        ("svtav1", "{crf: [24, 44]}", "preset: faster\ninternal_bit_depth: 10"),
        ("vvc", "{qp: [27, 37]}", "preset: faster\nctu_size: 64\nplanes: [unf_y]"),
    ],
)
def test_a_store_holds_the_qps_of_the_stream_and_those_of_networks(
    tmp_path: Path, codec: str, rate: str, further: str
) -> None:
    store = build(tmp_path, f"codec: {codec}\nrate: {rate}\n{further}")
    assert not [problem for _, problem in verify_store(store) if problem]
    assert [str(unit.qp) for unit in store.units] == rate.split("[")[1].strip("]}").split(", ")
    for unit in store.units:
        stream = unit.path("bitstream")
        stated = [picture.slice_qps[0] for picture in output_pictures(read_headers(stream))]
        assert [picture.qp for picture in unit.pictures] == stated
        expected = stated
        if codec != "vvc":
            qps = choose_qps(stream, all_intra_weights=False).qps
            expected = list(qps if len(qps) == FRAMES else qps * FRAMES)
        assert [picture.qp_for_networks for picture in unit.pictures] == expected
        with unit.originals() as originals, unit.decoded() as decoded:
            assert (unit.format.width, unit.format.height) == (FORM.width, FORM.height)
            for picture, original, output in zip(unit.pictures, originals, decoded, strict=True):
                assert psnr(original.y, output.y, unit.format.bit_depth) == pytest.approx(picture.psnr_y, abs=1e-6)
    first, second = store.units
    assert first.psnr_y > second.psnr_y
    assert first.bits > second.bits
    assert build(tmp_path, f"codec: {codec}\nrate: {rate}\n{further}", "again").data_key == store.data_key


class Heard(Toward):
    """A filter that keeps the QPs that it is given."""

    def __init__(self, originals):
        super().__init__(originals)
        self.qps = set()

    def samples(self, picture, qp, beside=None):
        self.qps.add(qp)
        return super().samples(picture, qp)


def test_networks_are_trained_and_measured_at_their_qps(tmp_path: Path, capsys) -> None:
    store = build(tmp_path, "codec: hevc\nrate: {crf: [30]}\npreset: faster\ninternal_bit_depth: 8\nctu_size: 64")
    unit = store.units[0]
    assert 30 not in {picture.qp for picture in unit.pictures}
    reader = PatchReader(store.units, 32, 4)
    patches = [Patch(0, picture, 0, 0, 1.0) for picture in range(FRAMES)]
    np.testing.assert_array_equal(reader.cut(patches, [0] * FRAMES)["qp"].ravel(), [30] * FRAMES)
    with unit.originals() as originals:
        heard = Heard([np.array(picture.y) for picture in originals])
    card = as_card({"network": "heard", "kmac_per_pixel": 1.0, "parameters": 2, "sha256": "heard", "qps": [22, 37]})
    (results,) = evaluate([Entry("heard", card, heard)], store, "test", tmp_path / "results")
    assert heard.qps == {30}
    assert results.settings["rate"] == "crf"
    check_titles(tmp_path / "results", capsys, results)


def check_titles(folder: Path, capsys, results) -> None:
    """Check that values of -crf are not called QPs in any file of an evaluation, nor on the console."""
    print_gains([results])
    console = capsys.readouterr().out
    sheet = load_workbook(folder / "jvet.xlsx").worksheets[1]
    assert "crf" in [cell.value for cell in sheet[3]]
    page, table = ((folder / name).read_text() for name in ("report.html", "results.md"))
    for text in (console, page, table, repr(results), results._repr_html_()):
        assert "crf 30" in text
        assert "QP 30" not in text
    for name in ("results.csv", "pictures.csv"):
        with (folder / name).open(newline="") as file:
            assert {(row["qp"], row["rate"]) for row in csv.DictReader(file)} == {("30", "crf")}
    (row,) = Results.model_validate(read_json(folder / "results.json")).sequences
    assert (row.qp, row.rate) == (30, "crf")
    assert results.notes[0] == "no BD-rate for clip: it needs 4 values of crf, not 1"


def test_values_of_crf_have_their_name_in_stores(tmp_path: Path, run) -> None:
    store = build(tmp_path, "codec: avc\nrate: {crf: [24]}\npreset: faster\ninternal_bit_depth: 8")
    _, text, _ = run("dataset", "stats", tmp_path / "store")
    assert re.search(r"split . crf ", text.splitlines()[1])
    assert "crf 24>" in repr(store)
    assert "<th>crf</th>" in store._repr_html_()
    assert repr(store.units[0]).startswith("<Unit clip at crf 24:")
    _, _, err = run("evaluate", tmp_path / "store", "-m", "low_cost_5", "-q", "32", "-o", tmp_path / "results")
    assert "no pictures at crf 32" in err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("codec: hevc\nqp: [32]\nrate: {crf: [28]}", "give qp for constant QP, or rate"),
        ("codec: hevc\nrate: {crf: [28], qp: [32]}", "values of crf, or of qp"),
        ("codec: hevc\nrate: {crf: [28, 28]}", "twice"),
        ("codec: hevc\nrate: 24", "in place of crf"),
        ("codec: hevc\nrate: {bitrate: [1000]}", "in place of crf"),
        ("codec: hevc\nrate: {crf: [60]}", "above 51"),
        ("codec: av1\nrate: {qp: [28]}", "avc, hevc, vvc, not for av1"),
        ("codec: kvazaar\ninternal_bit_depth: 8\nrate: {crf: [28]}", "not for kvazaar"),
        ("codec: streams\nrate: {crf: [28]}", "takes no rate"),
        ("codec: hevc\nctu_size: 64\nrate: {crf: [28]}\nloop_filters: false", "loop_filters"),
    ],
)
def test_a_rate_that_does_not_fit_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(CodecnnError, match=words):
        build(tmp_path, text)


def test_a_parameter_that_changes_the_rate_is_found_in_the_stream(tmp_path: Path) -> None:
    text = "codec: hevc\nctu_size: 64\npreset: faster\nrate: {crf: [28]}\nparams: {qp: 40}"
    with pytest.raises(EncoderError, match="states rate control cqp at 40"):
        build(tmp_path, text)


def test_the_encoder_chooses_the_size_of_ctus(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="set ctu_size: 64"):
        build(tmp_path, "codec: hevc\nctu_size: 32\npreset: faster\nrate: {crf: [28]}")
