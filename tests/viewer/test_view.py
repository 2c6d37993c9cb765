"""The page of the viewer: its samples and CUs equal those of decoder, parser and network; its use in a browser."""

import base64
import json
import re
import zlib

import numpy as np
import pytest

import codecnn
from codecnn.codec import read_blocks
from codecnn.errors import ConfigError, MissingFileError
from codecnn.filtering import load_filter
from codecnn.reconstruct import read_pictures
from codecnn.video import VideoFormat, create_video, open_video
from codecnn.viewer import mode_of, pack_plane, shown_stream, view
from tests.helpers.browser import Browser, needs_chromium
from tests.helpers.commands import result_of

STREAM = "vvc/tiny136x72_ai_qp32.266"


def unpacked(text, shape):
    """Decompress a plane sample by sample, with the median predictor as JPEG-LS defines it."""
    content = zlib.decompress(base64.b64decode(text))
    count = shape[0] * shape[1]
    low, high = np.frombuffer(content[:count], np.uint8), np.frombuffer(content[count:], "<u2")
    folded = (low.astype(int) + 256 * high.astype(int)).reshape(shape)
    out = np.zeros((shape[0] + 1, shape[1] + 1), int)
    for y in range(shape[0]):
        for x in range(shape[1]):
            left, above, corner = out[y + 1, x], out[y, x + 1], out[y, x]
            if corner >= max(left, above):
                guess = min(left, above)
            elif corner <= min(left, above):
                guess = max(left, above)
            else:
                guess = left + above - corner
            value = folded[y, x]
            out[y + 1, x + 1] = guess + (-(value + 1) // 2 if value % 2 else value // 2)
    return out[1:, 1:]


def read_page(path):
    """Return the data of a page, the planes of each layer, and the rows of the CUs."""
    data = json.loads(re.search(r'id="data">(.*?)</script>', path.read_text("utf-8"), re.S)[1])
    shapes = [(height, width) for width, height in data["sizes"]]
    layers = {
        name: [unpacked(data["planes"][plane], shape) for plane, shape in zip(planes, shapes, strict=False)]
        for name, planes in data["layers"].items()
    }
    rows = np.frombuffer(zlib.decompress(base64.b64decode(data["blocks"])), "<i2").reshape(-1, 10)
    return data, layers, rows


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (16, 7)])
def test_planes_are_compressed_without_loss(shape):
    rng = np.random.default_rng(0)
    for plane in (rng.integers(0, 65536, shape), rng.integers(0, 1024, shape), np.full(shape, 65535)):
        np.testing.assert_array_equal(unpacked(pack_plane(plane.astype(np.uint16)), shape), plane)


def test_modes_have_names_and_directions_of_the_standard():
    assert [mode_of(1, mode).name for mode in (0, 1, 18, 34, 50, 66)] == [
        "planar",
        "DC",
        "angular 18, horizontal",
        "angular 34, diagonal",
        "angular 50, vertical",
        "angular 66",
    ]
    directions = {mode: (mode_of(1, mode).dx, mode_of(1, mode).dy) for mode in (2, 18, 34, 50, 66)}
    assert directions == {2: (-32, 32), 18: (-32, 0), 34: (-32, -32), 50: (0, -32), 66: (32, -32)}
    assert (mode_of(1, 7, mip=True).name, mode_of(1, 26, standard="hevc").name) == ("MIP 7", "angular 26, vertical")
    assert [mode_of(pred, -1).name for pred in (0, 2, 3)] == ["inter", "block copy (IBC)", "palette"]


def test_page_of_a_stream_equals_decoder_parser_and_network(golden_file, tmp_path):
    stream = golden_file(STREAM)
    with open_video(stream) as video:
        form, decoded = video.format, video[0]
    originals = tmp_path / "source_136x72_8bit.yuv"
    source = [(plane >> 2).astype(np.uint8) for plane in decoded.planes]
    with create_video(originals, VideoFormat(136, 72, "420", 8)) as out:
        out.write(source)
    viewed = view(stream, tmp_path / "v.html", model="low_cost_5", original=originals)
    data, layers, rows = read_page(tmp_path / "v.html")
    assert list(layers) == ["original", "prediction", "unfiltered", "decoded", "filtered"]
    ((_, expected),) = read_pictures(stream, ("pred_y", "pred_u", "pred_v", "unf_y", "unf_u", "unf_v"))
    for name, planes in (
        ("original", [plane.astype(int) << 2 for plane in source]),
        ("prediction", [expected[f"pred_{letter}"] for letter in "yuv"]),
        ("unfiltered", [expected[f"unf_{letter}"] for letter in "yuv"]),
        ("decoded", decoded.planes),
        ("filtered", load_filter("low_cost_5")(decoded, 32).planes),
    ):
        for plane, reference in zip(layers[name], planes, strict=True):
            np.testing.assert_array_equal(plane, reference)
    assert data["layers"]["filtered"][1] == "decoded_u", "a plane that the network does not change is stored once"
    table = read_blocks(stream)
    columns = ("channel", "x", "y", "w", "h", "qt_depth", "mt_depth", "qp")
    np.testing.assert_array_equal(rows[:, :8], np.column_stack([getattr(table, name) for name in columns]))
    names = [data["modes"][number][0] for number in rows[:, 8]]
    for name, channel, mode in zip(names, table.channel, table.intra_mode, strict=True):
        assert channel or name == f"MIP {mode}" or name == mode_of(1, mode).name
    assert any(name.startswith("MIP") for name in names)
    assert any("ISP" in data["tools"][number] or "LFNST" in data["tools"][number] for number in rows[:, 9])
    assert (viewed.units, viewed.notes, form.bit_depth) == (len(table), (), data["bitDepth"])
    with create_video(tmp_path / "two_136x72_8bit.yuv", VideoFormat(136, 72, "420", 8)) as out:
        out.write(source)
        out.write(source)
    viewed = view(stream, tmp_path / "v.html", original=tmp_path / "two_136x72_8bit.yuv")
    assert viewed.notes == ("The original has 2 pictures and the stream 1: picture 0 of each is compared.",)


def test_cus_of_a_view_equal_those_of_the_parser(golden_file):
    stream = golden_file(STREAM)
    table = read_blocks(stream)
    units = list(shown_stream(stream).blocks)
    for name in ("channel", "x", "y", "w", "h", "qt_depth", "mt_depth", "qp"):
        assert [getattr(unit, name) for unit in units] == getattr(table, name).tolist()
    for unit, mode in zip(units, table.intra_mode, strict=True):
        assert unit.channel or unit.mode.name == f"MIP {mode}" or unit.mode == mode_of(1, mode)
    assert {unit.mode.kind for unit in units} >= {"planar", "angular", "MIP"}
    assert any("LFNST" in unit.tools or "ISP" in unit.tools for unit in units)


def test_inter_picture_has_its_prediction(golden_file, tmp_path):
    viewed = view(golden_file("vvc/tinyclip128x64_ra_qp37.266"), tmp_path / "v.html", picture=1)
    _, layers, rows = read_page(tmp_path / "v.html")
    assert set(layers) == {"decoded", "prediction", "unfiltered"}
    assert len(rows)
    assert not any("prediction" in note for note in viewed.notes)


def test_picture_of_a_store_is_shown_with_its_original(run, tiny_store, tmp_path):
    unit = next(unit for unit in tiny_store.units if unit.qp == 32 and unit.split == "test")
    argv = ("view", tiny_store.folder, "-o", tmp_path / "v.html", "--sequence", unit.name, "-q", "32")
    facts = result_of(run, *argv)
    data, layers, rows = read_page(tmp_path / "v.html")
    assert facts["layers"] == list(layers) == ["original", "prediction", "unfiltered", "decoded"]
    assert facts["picture"] == f"{unit.name} at QP 32, picture 0"
    with unit.originals() as originals, unit.decoded() as decoded:
        np.testing.assert_array_equal(layers["original"][0], originals[0].y)
        np.testing.assert_array_equal(layers["decoded"][2], decoded[0].v)
    assert len(rows) == facts["cus"] > 0
    assert data["ctu"] == tiny_store.manifest.recipe.ctu_size


def test_hevc_unit_is_shown_from_its_store(tiny_recipe, tmp_path):
    store = codecnn.build_dataset(tiny_recipe, tmp_path / "s", overrides=["codec=hevc", "qp=[32]", "ctu_size=32"])
    viewed = view(store.folder, tmp_path / "v.html")
    data, layers, rows = read_page(tmp_path / "v.html")
    assert list(layers) == ["original", "decoded"]
    assert "VVC streams only" in viewed.notes[0]
    table = read_blocks(store.units[0].path("blocks"))
    assert len(rows) == (table.poc == 0).sum()
    names = [data["modes"][number][0] for number in rows[:, 8]]
    assert names == [mode_of(1, mode, standard="hevc").name for mode in table.intra_mode[table.poc == 0]]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"picture": 5}, "has 1 picture; use --picture 0, not 5"),
        ({"qp": 32}, "is a stream"),
        ({"original": "small_64x64_8bit.yuv"}, "64x64 samples, but the decoded picture 136x72"),
    ],
)
def test_options_that_do_not_fit_are_refused(golden_file, tmp_path, monkeypatch, options, sentence):
    monkeypatch.chdir(tmp_path)
    np.zeros(64 * 64 * 3 // 2, np.uint8).tofile("small_64x64_8bit.yuv")
    with pytest.raises(ConfigError, match=sentence):
        view(golden_file(STREAM), tmp_path / "v.html", **options)
    assert not (tmp_path / "v.html").exists()


def test_missing_sequence_or_qp_is_named(tiny_store, tmp_path):
    with pytest.raises(ConfigError, match=r"no sequence 'missing': it has \w+"):
        view(tiny_store.folder, tmp_path / "v.html", sequence="missing")
    with pytest.raises(ConfigError, match=r"at QP 33: it has \d+"):
        view(tiny_store.folder, tmp_path / "v.html", qp=33)
    with pytest.raises(MissingFileError, match=r"x\.mp4 does not exist"):
        view(tmp_path / "x.mp4", tmp_path / "v.html")


@pytest.fixture(scope="module")
def browser(golden_file, tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    # A file name that would end the script element or begin another.
    stream = folder / "<script>alert(1)<.266"
    stream.write_bytes(golden_file(STREAM).read_bytes())
    view(stream, folder / "v.html", model="low_cost_5")
    browser = Browser(folder / "profile")
    try:
        browser.open(folder / "v.html")
        browser.value(
            "new Promise(done => { const look = () => "
            "document.body.dataset.ready === 'all' ? done() : setTimeout(look, 20); look(); })"
        )
        yield browser, folder / "v.html"
    finally:
        browser.close()


CELLS = "[...document.querySelectorAll('#samples tr')].map(r => [...r.children].map(c => c.textContent))"


@needs_chromium
def test_values_under_the_pointer_equal_the_data(browser):
    browser, path = browser
    data, layers, rows = read_page(path)
    box = browser.value("(b => [b.left, b.top])(document.getElementById('canvas').getBoundingClientRect())")
    scale, left, top = browser.value("[state.scale, state.left, state.top]")
    for x, y in ((0, 0), (77, 41), (135, 71)):
        at = {"x": box[0] + left + (x + 0.5) * scale, "y": box[1] + top + (y + 0.5) * scale}
        browser.call("Input.dispatchMouseEvent", type="mouseMoved", **at)
        assert browser.value("document.getElementById('place').textContent") == f"x {x}, y {y}"
        table = {row[0]: row[1:] for row in browser.value(CELLS)}
        for name, title in (
            ("prediction", "prediction"),
            ("decoded", "decoded"),
            ("unfiltered", "before in-loop filters"),
        ):
            values = [layers[name][0][y, x], *(plane[y // 2, x // 2] for plane in layers[name][1:])]
            assert table[title] == [str(value) for value in values]
        residual = layers["unfiltered"][0][y, x] - layers["prediction"][0][y, x]
        assert int(table["residual"][0].replace("−", "-")) == residual
        (row,) = [row for row in rows if not row[0] and row[1] <= x < row[1] + row[3] and row[2] <= y < row[2] + row[4]]
        text = browser.value("document.getElementById('block').innerText")
        assert f"{row[3]}×{row[4]} at {row[1]}, {row[2]}" in text
        assert data["modes"][row[8]][0] in text


@needs_chromium
def test_keys_switch_layers_and_overlays_and_zoom(browser):
    browser, _ = browser
    pressed = (
        "[...document.querySelectorAll('[aria-checked=true], [aria-pressed=true]')].map(b => b.firstChild.textContent)"
    )
    assert browser.value(pressed) == ["decoded", "colour", "grid"]
    for key in ("1", "c", "m", "g"):
        browser.key(key, text=key)
    assert browser.value(pressed) == ["prediction", "Y", "modes"]
    browser.key(" ", text=" ")
    assert browser.value(pressed) == ["decoded", "Y", "modes"]
    before = browser.value("state.scale")
    browser.key("+", text="+")
    assert browser.value("state.scale") == pytest.approx(1.5 * before)
    for key in ("m", "g", "c", "c", "c", "f"):
        browser.key(key, text=key)


@needs_chromium
def test_page_fits_a_phone_without_errors_and_requests(browser):
    browser, _ = browser
    browser.size(390, 844)
    assert browser.value("document.documentElement.scrollWidth") == 390
    assert browser.value("document.getElementById('canvas').clientHeight") > 300
    browser.size(1200, 900)
    assert browser.problems() == []
    assert browser.requests() == {"file"}
    assert browser.value("document.querySelector('h1').textContent").startswith("<script>alert(1)<.266")
