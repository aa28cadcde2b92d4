"""Pictures of scenarios: complete, within their page, and without text over text."""

import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from conftest import Command
from playwright.sync_api import Browser, Page

import bentpipe as bp
from bentpipe import _core
from bentpipe.report.picture import picture
from bentpipe.report.picture_text import network
from bentpipe.runs.plan import shipped

BRANCHED = """
title = "A network with branches, whose title is so long that it does not fit in a line"
[run]
duration = "5 s"
subject = "one"
[host.server]
count = 3
[host."cdn node"]
[router.exchange]
[host.office]
count = 20
[host.village]
count = 30
[link.a]
between = ["server", "exchange"]
rate = "1 Gbps"
delay = { fixed = "1 ms", jitter = { exponential = "2 ms" } }
[link."to cdn"]
between = ["exchange", "cdn node"]
rate = "10 Gbps"
loss = { gilbert_elliott = { good = "10 s", bad = "200 ms", loss_bad = 0.5 } }
[link.b]
between = ["exchange", "one"]
rate = "200 Mbps"
queue = { limit = { packets = 100, bytes = "1 MB" }, aqm = { preset = "RED 4" }, marking = "ecn" }
[link.c]
between = ["exchange", "two"]
rate = "100 Mbps"
delay = "10 ms"
[[gateway]]
name = "one"
terminal = "first-terminal"
regulator = { rate = "20 Mbps" }
aqm = { preset = "AVQRED" }
marking = "window"
pep = { buffer_per = "connection" }
[[gateway]]
name = "two"
terminal = "second-terminal"
regulator = { rate = "link" }
transmit_queue = { scheduler = "fq_codel" }
mark = "transmit"
pep = { split = [] }
[link.first]
between = ["one", "first-terminal"]
delay = "250 ms"
reverse = { rate = "2 Mbps", demand = { frame = "50 ms" } }
[link.second]
between = ["two", "second-terminal"]
capacity = { steps = [["0 s", "20 Mbps"], ["60 s", "12 Mbps"]], repeat = "75 s" }
delay = "20 ms"
handover = { delay = ["0 ms", "15 ms"], outage = "60 ms" }
[link.lan]
between = ["first-terminal", "office"]
access = "wifi"
[link.mast]
between = ["village", "second-terminal"]
rate = "3 Mbps"
loss = 0.01
[traffic.browsing]
kind = "pages"
from = "server"
to = "office"
sessions = 30
object_size = "30 KB"
[traffic.copies]
kind = "bulk"
from = "cdn node"
to = "village"
flows = 3
"""

SCENARIOS = [*shipped(), "branched"]


def scenario(name: str) -> _core.Scenario:
    return _core.Scenario.parse(BRANCHED, "branched", []) if name == "branched" else bp.load(name)


def texts(svg: str) -> list[str]:
    root = ET.fromstring(svg)  # noqa: S314
    found = [each.text or "" for each in root.iter("{http://www.w3.org/2000/svg}text")]
    return [text.replace("\N{NO-BREAK SPACE}", " ") for text in found]


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page()
    yield page
    page.close()


_BOXES = """
() => [...document.querySelectorAll("text")].map(each => {
    const box = each.getBBox();
    return [each.textContent, box.x, box.y, box.x + box.width, box.y + box.height];
})
"""


@pytest.mark.parametrize("name", SCENARIOS)
def test_texts_are_inside_the_picture_and_do_not_overlap(page: Page, tmp_path: Path, name: str) -> None:
    file = tmp_path / "x.svg"
    svg = picture(scenario(name))
    file.write_text(svg, encoding="utf-8")
    page.goto(file.as_uri())
    boxes = page.evaluate(_BOXES)
    assert len(boxes) > 10
    width, height = map(int, re.findall(r'viewBox="0 0 (\d+) (\d+)"', svg)[0])
    for text, left, top, right, bottom in boxes:
        assert left >= 0, text
        assert top >= 0, text
        assert right <= width, text
        assert bottom <= height, text
    # Ascenders and descenders of neighbouring lines may share a few pixels.
    for index, (text, left, top, right, bottom) in enumerate(boxes):
        for other, left_, top_, right_, bottom_ in boxes[index + 1 :]:
            across = min(right, right_) - max(left, left_)
            down = min(bottom, bottom_) - max(top, top_)
            assert across <= 0 or down <= 4, f"{text!r} is over {other!r}"


_UNDER = """
() => [...document.querySelectorAll("rect.aqm")].map(each => {
    const box = each.getBBox();
    return [box.x, box.y, box.x + box.width, box.y + box.height];
})
"""


@pytest.mark.parametrize("name", ["byun2007-gateway", "rain-fade", "branched"])
def test_text_of_a_queue_is_not_under_the_box_of_its_aqm(page: Page, tmp_path: Path, name: str) -> None:
    file = tmp_path / "x.svg"
    file.write_text(picture(scenario(name)), encoding="utf-8")
    page.goto(file.as_uri())
    for box in page.evaluate(_UNDER):
        for text, left, top, right, bottom in page.evaluate(_BOXES):
            across = min(right, box[2]) - max(left, box[0])
            down = min(bottom, box[3]) - max(top, box[1])
            inside = left >= box[0] and right <= box[2]
            assert inside or across <= 0 or down <= 0, text


@pytest.mark.parametrize("name", SCENARIOS)
def test_picture_names_every_node_link_and_traffic(name: str) -> None:
    found = network(scenario(name))
    words = texts(picture(scenario(name)))
    names = [*found.nodes, *(link.name for link in found.links), *(each.name for each in found.traffic)]
    assert set(names) <= set(words)


def test_picture_shows_rates_delays_queues_and_the_aqm() -> None:
    whole = " ".join(texts(picture(bp.load("byun2007-gateway"))))
    for text in (
        "100 Mbit/s, delay 20 ms to 40 ms per connection",
        "PEP: splits TCP; buffer 625 KB per user; delay 12 ms",
        "Regulator: 20 Mbit/s, released every 5 ms",
        "AQM RED 4",
        "max_th 120 packets",
        "drops",
        "watches",
        "× 60",
        "server → internet → gateway → terminal → lan → client",
    ):
        assert text in whole


def test_setting_replaces_the_aqm_of_the_picture() -> None:
    words = texts(picture(bp.load("small-gateway").with_setting("codel")))
    assert "AQM codel" in words
    assert "AQM red" not in words


def test_drop_tail_has_no_aqm_box() -> None:
    words = texts(picture(bp.load("small-gateway").with_setting("droptail")))
    assert "watches" not in words


def test_fading_link_handover_loss_and_access_are_described() -> None:
    whole = " ".join(texts(picture(scenario("branched"))))
    assert "steps of 20 Mbit/s, 12 Mbit/s" in whole
    assert "Handover every 15 s: additional delay 0 s to 15 ms, outage 60 ms" in whole
    assert "access wifi" in whole
    assert "loss 1 %" in whole
    assert "shrinks" in whole
    assert "Transmit queue: fq_codel, drops inside" in whole
    assert "No PEP: connections pass unsplit" in whole
    fading = " ".join(texts(picture(bp.load("rain-fade"))))
    assert "carrier of 2 Mbaud, rain fade with ACM" in fading


def test_colours_follow_the_reader_and_print_is_light() -> None:
    svg = picture(bp.load("small-gateway"))
    assert "@media screen and (prefers-color-scheme: dark)" in svg
    for name in set(re.findall(r'class="([^"]+)"', svg)):
        for each in name.split():
            assert re.search(rf"\.{each}\b", svg.split("@media")[0]), each


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_contrasts_with_its_background(browser: Browser, tmp_path: Path, scheme: str) -> None:
    file = tmp_path / "x.svg"
    file.write_text(picture(bp.load("small-gateway")), encoding="utf-8")
    page = browser.new_page(color_scheme="dark" if scheme == "dark" else "light")
    page.goto(file.as_uri())
    colours = page.evaluate(
        """() => [...document.querySelectorAll("text")].map(each => {
            const box = each.getBBox(), x = box.x + box.width / 2, y = box.y + box.height / 2;
            const below = [...document.querySelectorAll("rect")].filter(r => {
                const b = r.getBBox();
                return b.x <= x && x <= b.x + b.width && b.y <= y && y <= b.y + b.height;
            });
            return [each.textContent, getComputedStyle(each).fill, getComputedStyle(below.at(-1)).fill];
        })"""
    )
    page.close()
    assert len(colours) > 10
    for text, ink, paper in colours:
        lighter, darker = sorted((_luminance(ink), _luminance(paper)), reverse=True)
        # WCAG 2.2, success criterion 1.4.3.
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5, text


def _luminance(colour: str) -> float:
    """Return the relative luminance of `rgb(…)` (WCAG 2.2)."""
    parts = [int(each) / 255 for each in re.findall(r"\d+", colour)[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_show_writes_the_picture_beside_the_file(bentpipe: Command, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    bentpipe("new", "mine/x.toml", check=0)
    done = bentpipe("show", "mine/x.toml", "--picture", check=0)
    assert done.stdout == "Picture: mine/x.svg\n"
    assert (folder / "x.svg").read_text(encoding="utf-8").startswith("<svg")
    # A shipped scenario has no folder of the user's.
    done = bentpipe("show", "small-gateway", "--picture", check=0)
    assert done.stdout == "Picture: small-gateway.svg\n"


def test_picture_is_replaced_with_force_only(bentpipe: Command, tmp_path: Path) -> None:
    file = tmp_path / "p.svg"
    file.write_text("precious")
    done = bentpipe("show", "small-gateway", "--picture", "p.svg", check=2)
    assert done.stderr == (
        "error: p.svg: exists already; choose another --picture FILE.svg, or replace it with --force\n"
    )
    assert file.read_text() == "precious"
    bentpipe("show", "small-gateway", "--picture", "p.svg", "--force", check=0)
    assert file.read_text(encoding="utf-8").startswith("<svg")


def test_picture_with_another_suffix_is_refused(bentpipe: Command) -> None:
    done = bentpipe("show", "small-gateway", "--picture", "p.png", check=2)
    assert done.stderr == 'error: --picture: found "p.png"; allowed: a file name that ends in .svg\n'
