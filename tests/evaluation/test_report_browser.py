"""The report in a browser: sliders, security policy, no network access, printing and dark mode."""

import base64
import dataclasses
import io
import json

import numpy as np
import pytest
from skimage.io import imread

from codecnn.evaluation import Crop, write_report
from tests.evaluation.test_report import make_results
from tests.helpers.browser import Browser, needs_chromium

pytestmark = needs_chromium


def _crop(name):
    original, decoded, filtered = (np.full((64, 64), level, np.uint16) for level in (600, 200, 800))
    return Crop(name, 37, original, decoded, filtered, 10, 30.0, 31.0)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    write_report(
        folder / "report.html", [make_results()], [_crop("first"), _crop('<img src=x onerror="alert(1)">')], []
    )
    browser = Browser(folder / "profile")
    try:
        browser.open(folder / "report.html")
        yield browser
    finally:
        browser.close()


SECOND = "document.querySelectorAll('.pair')[1]"
CLIP = f"getComputedStyle({SECOND}.querySelector('img + img')).clipPath"


def test_drag_and_key_move_the_boundary(browser):
    assert browser.value(CLIP) == "inset(0px 0px 0px 50%)"
    browser.value(f"{SECOND}.scrollIntoView({{block: 'center'}})")
    box = browser.value(f"(b => [b.left, b.top, b.width, b.height])({SECOND}.getBoundingClientRect())")
    left, top, width, height = box

    def mouse(kind, share):
        browser.call(
            "Input.dispatchMouseEvent",
            **{"type": kind, "x": left + share * width, "y": top + height / 2, "button": "left", "buttons": 1},
            clickCount=1,
        )

    mouse("mousePressed", 0.5)
    mouse("mouseMoved", 0.25)
    mouse("mouseReleased", 0.25)
    assert browser.value(f"parseFloat({CLIP}.split(' ')[3])") == pytest.approx(25, abs=0.5)
    assert browser.value("document.querySelectorAll('input.wipe')[1].valueAsNumber") == pytest.approx(25, abs=0.5)
    mouse("mouseMoved", 0.9)
    assert browser.value(f"parseFloat({CLIP}.split(' ')[3])") == pytest.approx(25, abs=0.5)
    browser.value("document.querySelectorAll('input.wipe')[1].focus()")
    browser.key("End", code="End", windowsVirtualKeyCode=35)
    assert browser.value(CLIP) == "inset(0px 0px 0px 100%)"
    first = "getComputedStyle(document.querySelector('.pair img + img')).clipPath"
    assert browser.value(first) == "inset(0px 0px 0px 50%)"


def test_boundary_hides_one_picture(browser):
    """With the boundary at the left the screenshot shows the filtered picture, at the right the decoded one."""
    shots = {}
    for at in (0, 100):
        browser.value(
            f"(s => {{ s.value = {at}; s.dispatchEvent(new Event('input')); }})(document.querySelector('input.wipe'))"
        )
        browser.value("document.querySelector('.pair').scrollIntoView({block: 'center'})")
        x, y, width, height = browser.value(
            "(b => [b.left + scrollX, b.top + scrollY, b.width, b.height])"
            "(document.querySelector('.pair').getBoundingClientRect())"
        )
        # Only the upper part, without the labels at the bottom; below, without the boundary line at either side.
        clip = {"x": x, "y": y, "width": width, "height": height * 0.8, "scale": 1}
        shot = browser.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)["data"]
        shots[at] = imread(io.BytesIO(base64.b64decode(shot)))[40:-40, 40:-40, :3].astype(int)
    assert np.abs(shots[100] - 50).max() <= 1
    assert np.abs(shots[0] - 200).max() <= 1


def test_page_has_no_errors_and_no_network_requests(browser):
    assert browser.value("[...document.images].every(i => i.complete && i.naturalWidth > 0)")
    assert browser.value("document.images.length") == 14
    assert browser.value("document.querySelectorAll('img[onerror]').length") == 0
    assert browser.problems() == []
    assert browser.requests() <= {"file", "data"}


def test_injected_script_is_refused(browser):
    """The security policy stops an injected script, and the browser reports it."""
    before = len(browser.problems())
    browser.value(
        "(s => { s.textContent = 'window.evil = 1'; document.body.append(s); s.remove(); })"
        "(document.createElement('script'))"
    )
    assert browser.value("window.evil") is None
    reports = browser.problems()[before:]
    assert any("Content Security Policy" in json.dumps(report) for report in reports)
    browser.events = [event for event in browser.events if event.get("params") not in reports]


def test_dark_narrow_and_printed(browser):
    light = browser.value("getComputedStyle(document.body).backgroundColor")
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    assert browser.value("getComputedStyle(document.body).backgroundColor") != light
    browser.call("Emulation.setEmulatedMedia", media="print", features=[])
    assert browser.value("getComputedStyle(document.querySelector('input.wipe')).display") == "none"
    assert base64.b64decode(browser.call("Page.printToPDF")["data"]).startswith(b"%PDF")
    browser.call("Emulation.setEmulatedMedia", media="", features=[])
    browser.call("Emulation.setDeviceMetricsOverride", width=360, height=700, deviceScaleFactor=1, mobile=False)
    assert browser.value("document.documentElement.scrollWidth") <= 360
    browser.call("Emulation.setDeviceMetricsOverride", width=1200, height=900, deviceScaleFactor=1, mobile=False)


def test_the_switch_shows_another_filter(browser, tmp_path):
    """Both switches of the page follow each other, by mouse and by key; only one filter is to be seen."""
    crops = [dataclasses.replace(_crop("first"), model=name) for name in ("run/best", "other")]
    write_report(tmp_path / "two.html", [make_results(), make_results(name="other")], crops, [])
    browser.open(tmp_path / "two.html")
    shown = "[...document.querySelectorAll('.pair img[data-filter]')].map(i => getComputedStyle(i).display !== 'none')"
    assert browser.value(shown) == [True, False]
    browser.value("document.querySelectorAll('input.filter')[1].click()")
    assert browser.value(shown) == [False, True]
    assert browser.value("document.querySelectorAll('.strip figure').length") == 4
    browser.value("document.querySelectorAll('input.filter')[1].focus()")
    browser.key("ArrowLeft", code="ArrowLeft", windowsVirtualKeyCode=37)
    assert browser.value(shown) == [True, False]
    assert browser.problems() == []
