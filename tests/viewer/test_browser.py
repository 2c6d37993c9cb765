"""The page of the viewer in a browser: values, layers, overlays with legends, stepping, playing and links."""

import base64
import io
import json
import threading
import urllib.error
import urllib.request

import numpy as np
import pytest
from PIL import Image

from codecnn.pictures.files import VideoFormat, create_video, open_video
from codecnn.viewer import Page as ViewedPage
from codecnn.viewer import PageServer, stream_pictures, view
from tests.helpers.browser import Browser, needs_chromium
from tests.helpers.pages import Page

pytestmark = needs_chromium

CELLS = "[...document.querySelectorAll('#samples tr')].map(r => [...r.children].map(c => c.textContent))"
CHOSEN = "['checked', 'pressed'].flatMap(n => [...document.querySelectorAll(`nav [aria-${n}=true]`)])"
PRESSED = f"{CHOSEN}.map(b => b.firstChild.textContent)"
LINES = ["grid", "transforms", "motion", "strengths"]
OVERLAYS = [*LINES, "modes", "prediction", "QP", "depth", "bits", "gain", "decisions"]
LEGENDS = "[...document.querySelectorAll('.legend')].map(n => [n.dataset.overlay, n.innerText])"


def wait_for(browser, condition):
    """Wait until a JavaScript expression is true."""
    browser.value(
        f"new Promise(done => {{ const look = () => ({condition}) ? done() : setTimeout(look, 20); look(); }})"
    )


def pixels(browser):
    """Return the canvas as an array (h, w, 3)."""
    browser.value("render()")
    data = browser.value("canvas.toDataURL('image/png')").split(",")[1]
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")).astype(int)


def block_text(browser):
    return browser.value("document.getElementById('block').innerText")


def toggle(browser, *names):
    for name in names:
        browser.value(f"toggle(OVERLAYS.find(o => o.name === '{name}'))")


@pytest.fixture(scope="module")
def still(golden_file, tmp_path_factory):
    """The page of one intra picture with a network."""
    folder = tmp_path_factory.mktemp("browser")
    # A file name that would end the script element or begin another.
    stream = folder / "<script>alert(1)<.266"
    stream.write_bytes(golden_file("vvc/tiny136x72_ai_qp32.266").read_bytes())
    view(stream, folder / "v.html", model="low_cost_5")
    yield from opened(folder)


@pytest.fixture(scope="module")
def video(golden_file, tmp_path_factory):
    """The page of six pictures in random access with their originals and two networks."""
    folder = tmp_path_factory.mktemp("browser")
    stream = golden_file("vvc/tinyclip128x64_ra_qp37.266")
    with (
        open_video(stream) as decoded,
        create_video(folder / "source_128x64_8bit.yuv", VideoFormat(128, 64, "420", 8)) as out,
    ):
        rng = np.random.default_rng(1)
        for picture in decoded:
            noise = (rng.integers(-3, 4, plane.shape) for plane in picture.planes)
            planes = zip(picture.planes, noise, strict=True)
            out.write([np.clip((plane >> 2) + each, 0, 255).astype(np.uint8) for plane, each in planes])
    models = ["low_cost_5", "low_cost_17"]
    view(stream, folder / "v.html", frames=6, model=models, original=folder / "source_128x64_8bit.yuv")
    yield from opened(folder)


def opened(folder):
    browser = Browser(folder / "profile")
    try:
        browser.open(folder / "v.html")
        wait_for(browser, "document.body.dataset.ready === 'all'")
        yield browser, Page(folder / "v.html")
    finally:
        browser.close()


def test_served_page_fetches_its_pictures(golden_file, tmp_path):
    stream = golden_file("hevc/clip_rab_amp_qp32.265")
    page = ViewedPage.of(stream.name, stream_pictures(stream, 0, 3))
    with PageServer(page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for path, host, status in (("", "example.org", 403), ("chunk/9999", None, 404)):
            request = urllib.request.Request(server.url + path, headers={"Host": host} if host else {})
            with pytest.raises(urllib.error.HTTPError) as error:
                urllib.request.urlopen(request)
            assert error.value.code == status
        browser = Browser(tmp_path / "profile")
        try:
            browser.open_url(server.url)
            wait_for(browser, "document.body.dataset.ready === 'all'")
            browser.value("step(2); setComponent(1); zoom(1 / state.scale)")
            wait_for(browser, "document.body.dataset.shown === '2'")
            shown = pixels(browser)
            left, top = browser.value("[Math.round(state.left), Math.round(state.top)]")
            with open_video(stream, frames=3) as video:
                luma = np.array(video[2].y)
            corner = shown[max(top, 0) : max(top, 0) + 100, max(left, 0) : max(left, 0) + 100, 0]
            y, x = max(-top, 0), max(-left, 0)
            np.testing.assert_array_equal(corner, luma[y : y + 100, x : x + 100])
            assert browser.requests() == {"http", "data"}
            assert browser.problems() == []
        finally:
            browser.close()
            server.shutdown()


@pytest.fixture
def clip(video):
    """The page of several pictures in its first state."""
    browser, page = video
    browser.value("location.hash = ''")
    browser.value("state.x = state.y = null; state.component = 0; state.opacity = 0.5; setSplit(false); step(0)")
    browser.value("state.lines = new Set(['grid']); state.fill = null; choose(3); fit()")
    wait_for(browser, "document.body.dataset.shown === '0' && detailOf(0)")
    return browser, page


def test_values_under_the_pointer_equal_the_data(still):
    browser, page = still
    layers, rows, text = page.layers(), page.rows(), page.text()
    box = browser.value("(b => [b.left, b.top])(document.getElementById('canvas').getBoundingClientRect())")
    scale, left, top = browser.value("[state.scale, state.left, state.top]")
    tools = set()
    for x, y in ((0, 0), (77, 41), (135, 71), (20, 60)):
        at = {"x": box[0] + left + (x + 0.5) * scale, "y": box[1] + top + (y + 0.5) * scale}
        browser.call("Input.dispatchMouseEvent", type="mouseMoved", **at)
        assert browser.value("document.getElementById('place').textContent") == f"x {x}, y {y}"
        table = {row[0]: row[1:] for row in browser.value(CELLS)}
        for name, title in (
            ("prediction", "prediction"),
            ("decoded", "decoded"),
            ("unfiltered", "before in-loop filters"),
            ("filtered", "filtered"),
        ):
            values = [layers[name][0][y, x], *(plane[y // 2, x // 2] for plane in layers[name][1:])]
            assert table[title] == [str(value) for value in values]
        residual = layers["unfiltered"][0][y, x] - layers["prediction"][0][y, x]
        assert int(table["residual"][0].replace("−", "-")) == residual
        (row,) = [row for row in rows if not row[0] and row[1] <= x < row[1] + row[3] and row[2] <= y < row[2] + row[4]]
        shown = block_text(browser)
        assert f"{row[3]}×{row[4]} at {row[1]}, {row[2]}" in shown
        assert text["modes"][row[8]][0] in shown
        tools.add(text["tools"][row[9]])
    assert tools


def test_keys_switch_layers_and_overlays_and_zoom(still):
    browser, _ = still
    assert browser.value(PRESSED) == ["decoded", "colour", "grid"]
    for key in ("1", "c", "m", "g"):
        browser.key(key, text=key)
    assert browser.value(PRESSED) == ["prediction", "Y", "modes"]
    browser.key(" ", text=" ")
    assert browser.value(PRESSED) == ["decoded", "Y", "modes"]
    before = browser.value("state.scale")
    browser.key("+", text="+")
    assert browser.value("state.scale") == pytest.approx(1.5 * before)
    for key in ("m", "g", "c", "c", "c", "f"):
        browser.key(key, text=key)


def test_page_fits_a_phone_without_errors_and_requests(still):
    browser, _ = still
    browser.size(390, 844)
    assert browser.value("document.documentElement.scrollWidth") == 390
    assert browser.value("document.getElementById('canvas').clientHeight") > 300
    assert browser.value("document.getElementById('timeline').hidden")
    browser.size(1200, 900)
    assert browser.problems() == []
    assert browser.requests() == {"file"}
    assert browser.value("document.querySelector('h1').textContent").startswith("<script>alert(1)<.266")


def test_arrows_buttons_and_chart_step_through_pictures(clip):
    browser, page = clip
    strip = "[...document.querySelectorAll('#strip button')].map(b => b.getAttribute('aria-current'))"
    assert browser.value(strip) == ["true"] + ["false"] * 5

    def steps_to(number):
        wait_for(browser, f"document.body.dataset.shown === '{number}' && detailOf({number})")
        assert browser.value(strip).index("true") == number
        facts = page.pictures[number]
        assert f"picture {number}" in browser.value("document.getElementById('which').textContent")
        assert f"{facts['bits']:,}" in browser.value("document.getElementById('facts').innerText")
        # The picture on the canvas is that of the stream: luma at its centre, at one pixel a sample.
        browser.value("setComponent(1); zoom(1 / state.scale); state.lines.clear()")
        shown, luma = pixels(browser), page.plane(number, "decoded", 0)
        left, top = browser.value("[Math.round(state.left), Math.round(state.top)]")
        np.testing.assert_array_equal(shown[top : top + 64, left : left + 128, 0], luma >> 2)

    browser.key("ArrowRight")
    steps_to(1)
    browser.key("ArrowRight")
    steps_to(2)
    browser.key("ArrowLeft")
    steps_to(1)
    browser.key("End")
    steps_to(5)
    browser.key("ArrowRight")
    steps_to(5)
    browser.value("document.getElementById('previous').click()")
    steps_to(4)
    browser.value("document.querySelectorAll('#strip button')[2].click()")
    steps_to(2)
    browser.value("document.querySelectorAll('#chart .hit')[3].dispatchEvent(new MouseEvent('click'))")
    steps_to(3)
    assert browser.value("document.querySelectorAll('#chart .hit title')[3].textContent") == browser.value(
        "document.getElementById('which').textContent"
    )


def test_overlays_of_inter_pictures_have_legends_and_change_the_view(clip):
    browser, page = clip
    browser.value("step(2)")
    wait_for(browser, "document.body.dataset.shown === '2' && detailOf(2)")
    toggle(browser, "grid")
    plain = pixels(browser)
    names = browser.value("OVERLAYS.map(o => o.name)")
    assert names == OVERLAYS
    for name in names:
        toggle(browser, name)
        assert (pixels(browser) != plain).any(), name
        ((overlay, text),) = browser.value(LEGENDS)
        assert overlay == name
        title = browser.value(f"OVERLAYS.find(o => o.name === '{name}').title")
        assert text.startswith(title)
        assert len(text) > len(title)
        toggle(browser, name)
    assert browser.value(LEGENDS) == []
    toggle(browser, "prediction", "motion", "grid")
    texts = dict(browser.value(LEGENDS))
    assert list(texts) == ["grid", "motion", "prediction"]
    kinds = {mode[2] for mode in page.text(2)["modes"]}
    assert {"merge", "AMVP", "MMVD", "geometric"} <= kinds
    for kind in kinds - {"planar", "DC", "angular", "MIP"}:
        assert kind in texts["prediction"]
    assert "skip" in texts["prediction"]


def test_motion_under_the_pointer_and_its_arrows(clip):
    browser, page = clip
    vectors, references = page.array("vectors", 1), page.array("references", 1)
    rows, text = page.rows(1), page.text(1)
    browser.value("step(1)")
    wait_for(browser, "document.body.dataset.shown === '1' && detailOf(1)")
    browser.value("state.lines.clear()")
    seen = set()
    for row in rows[np.isin([text["modes"][mode][2] for mode in rows[:, 8]], ["merge", "AMVP"])]:
        x, y = row[1] + 1, row[2] + 1
        browser.value(f"point({x}, {y})")
        shown = dict(zip(*[iter(browser.value("[...$('block').children].map(n => n.textContent)"))] * 2, strict=True))
        for which in range(2):
            poc = references[which, y // 4, x // 4]
            if poc == -(2**31):
                assert f"L{which}" not in shown
                continue
            dx, dy = vectors[which, :, y // 4, x // 4] / 16
            expected = ", ".join(f"{value:+g}" if value else "0" for value in (dx, dy)) + f" to POC {poc}"
            expected = expected.replace("-", "−")
            assert shown[f"L{which}"] == expected
            seen.add((which, int(poc)))
    assert len(seen) > 1
    # An arrow ends where its vector points, in its colour: take the longest vector of a CU that is no subblock one.
    browser.value("state.x = null; fit()")
    plain = pixels(browser)
    toggle(browser, "motion")
    changed = (pixels(browser) != plain).any(axis=2)
    scale, left, top = browser.value("[state.scale, state.left, state.top]")
    for row in rows[np.isin([text["modes"][mode][2] for mode in rows[:, 8]], ["merge", "AMVP"])]:
        cx, cy = row[1] + row[3] // 2, row[2] + row[4] // 2
        for which in range(2):
            if references[which, cy // 4, cx // 4] == -(2**31):
                continue
            ends = np.array([cx, cy]) + vectors[which, :, cy // 4, cx // 4] / 16
            if not (1 < ends[0] < 127 and 1 < ends[1] < 63):
                continue
            px, py = round(left + ends[0] * scale), round(top + ends[1] * scale)
            assert changed[py - 3 : py + 4, px - 3 : px + 4].any()


def test_split_view_shows_two_networks_beside_each_other(clip):
    browser, page = clip
    browser.value("state.lines.clear(); setComponent(1); choose(views.findIndex(v => v.first === 'filtered 2'))")
    browser.value("zoom(1 / state.scale); setSplit(true)")
    browser.value("state.split = views.findIndex(v => v.first === 'filtered' && !v.second); refresh()")
    wait_for(browser, "[views[state.view], splitView()].every(view => isReady(0, view))")
    shown = pixels(browser)
    left, top, middle = browser.value("[Math.round(state.left), Math.round(state.top), canvas.width * state.divider]")
    luma = np.where(np.arange(128) + left < middle, page.plane(0, "filtered", 0), page.plane(0, "filtered 2", 0))
    away = np.abs(np.arange(128) + left - middle) > 12
    np.testing.assert_array_equal(
        shown[top + 40 : top + 64, left : left + 128, 0][:, away], (luma >> 2)[40:64][:, away]
    )
    assert (page.plane(0, "filtered", 0) != page.plane(0, "filtered 2", 0)).any()
    assert browser.value("$('split-view').selectedOptions[0].textContent") == "filtered, low_cost_5"


def test_gain_of_a_ctu_is_that_of_the_shown_network(clip):
    browser, page = clip
    networks = page.text()["networks"]
    toggle(browser, "gain")
    for layer, name in (("filtered", "low_cost_5"), ("filtered 2", "low_cost_17")):
        browser.value(f"choose(views.findIndex(v => v.first === '{layer}' && !v.second)); point(100, 10)")
        gain = networks[layer]["gain"]["y"][1]
        assert f"CTU gain Y\n{gain:+.2f} dB".replace("-", "−") in block_text(browser)
        assert name in dict(browser.value(LEGENDS))["gain"]


def test_link_leads_to_picture_position_and_overlays(clip):
    browser, _ = clip
    browser.value("step(4); choose(views.findIndex(v => v.title === 'coding error')); setComponent(2)")
    toggle(browser, "motion", "bits")
    browser.value("zoom(3, 200, 100); point(33, 21)")
    expected = browser.value("[state.index, state.view, state.component, state.fill, state.x, state.y]")
    position = browser.value("[state.scale, state.left, state.top]")
    link = browser.value("link()")
    wait_for(browser, "location.hash.includes('picture=4') && location.hash.includes('at=33')")
    assert browser.value("location.hash") == link
    browser.value("step(0); choose(3); setComponent(0); state.fill = null; state.lines.clear(); fit(); point(1, 1)")
    wait_for(browser, "location.hash.includes('picture=0')")
    browser.value(f"location.hash = {json.dumps(link)}")
    wait_for(browser, "state.index === 4 && state.x === 33")
    assert browser.value("[state.index, state.view, state.component, state.fill, state.x, state.y]") == expected
    assert browser.value("[state.scale, state.left, state.top]") == pytest.approx(position, abs=4)
    assert browser.value("[...state.lines].sort()") == ["grid", "motion"]


def test_saved_picture_is_the_view(clip, tmp_path):
    browser, _ = clip
    browser.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    browser.value("savePicture()")
    expected = pixels(browser)
    wait_for(browser, "pngLink.download")
    path = tmp_path / "tinyclip128x64_ra_qp37.266_0_decoded.png"
    for _ in range(200):
        if path.exists():
            break
        browser.value("new Promise(done => setTimeout(done, 50))")
    np.testing.assert_array_equal(np.asarray(Image.open(path).convert("RGB")), expected)


def test_page_of_several_pictures_has_no_errors(clip):
    browser, _ = clip
    assert browser.problems() == []
    # Thumbnails are data URIs.
    assert browser.requests() <= {"file", "data", "blob"}
