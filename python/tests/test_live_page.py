"""The live gateway's built-in page, in a real browser, with the made-up figures of `examples/look.rs`."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).parents[2]
CHARTS = {
    "What limited the throughput": "share of the time shown",
    "Utilization": "% of the capacity",
    "Sent into the satellite": "Mbit/s",
    "Transmit queue": "packets, mean",
    "Signals of congestion": "packets/s",
    "Queueing delay": "ms",
    "Received from the satellite": "Mbit/s",
    "Spacelink round trip": "ms",
    "Spacelink loss": "% of packets",
    "Connections": "split TCP",
    "Connections that failed": "1/s",
}


@pytest.fixture(scope="module")
def program() -> Path:
    """Build what serves the page."""
    cargo = shutil.which("cargo")
    assert cargo, "cargo is missing"
    build = [cargo, "build", "--locked", "--quiet", "--package", "bentpipe-live", "--example", "look"]
    subprocess.run(build, check=True, cwd=ROOT, timeout=900)
    return ROOT / "target/debug/examples/look"


@pytest.fixture
def server(program: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    with subprocess.Popen([program, "127.0.0.1:0"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield process.stdout.readline().strip(), process
        process.kill()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = shutil.which("chromium")
    assert path, "chromium is missing; `make test` installs it"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


def text(page: Page, where: str) -> str:
    return page.locator(where).inner_text()


def test_the_page_shows_what_is_going_on(server: tuple[str, subprocess.Popen[str]], browser: Browser) -> None:
    """Everything is labelled, comes from here, moves on, and says so when it does not."""
    url, process = server
    page = browser.new_page(viewport={"width": 1360, "height": 1500})
    complaints: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(url)
    page.wait_for_selector("figure path")

    figures = page.locator("figure")
    assert figures.count() == len(CHARTS)
    for (title, unit), head in zip(CHARTS.items(), page.locator("figure h2").all_inner_texts(), strict=True):
        assert head.split("\n")[0] == f"{title} [{unit}]"
    last = "() => rows[rows.length - 1][0]"
    before = page.evaluate(last)
    page.wait_for_function(f"before => ({last})() > before", arg=before, timeout=10_000)
    assert page.evaluate("rows.length") == 600, "older samples make room"
    page.wait_for_function("document.querySelector('#bottleneck .big').textContent !== 'servers'")
    # The gateway is full: 20 Mbit/s, of which nine tenths and more are used.
    assert text(page, "#bottleneck .big") == "the satellite’s rate"
    assert 95 < float(text(page, "#utilization .big").split()[0]) <= 100
    assert text(page, "#utilization .more").endswith("of 20 Mbit/s")
    assert re.fullmatch(r"\d+(\.\d)? ms", text(page, "#delay .big"))
    assert 600 <= float(text(page, "#spacelink .big").split()[0]) <= 610
    assert "AQM AVQRED" in text(page, "#what")
    # A minute without anything, half a minute without a spacelink: its line has a gap there.
    strip = page.locator("figure").first
    assert "the spacelink 5 %" in strip.inner_text()
    assert strip.locator("rect").count() >= 8
    assert figures.nth(7).locator("path.line").count() == 2

    # Under the pointer, the legend tells of that time: here, in the outage.
    box = figures.nth(1).locator("svg").bounding_box()
    assert box
    page.mouse.move(box["x"] + 46 + (box["width"] - 54) * 375 / 600, box["y"] + 60)
    page.wait_for_selector(".cross", state="attached")
    legend = figures.nth(1).locator("ul").inner_text()
    assert re.match(r"used 0\s+at \d\d:\d\d:\d\d$", legend), legend
    page.mouse.move(5, 5)
    page.wait_for_selector(".cross", state="detached")

    assert not complaints
    assert all(each.startswith((url, "data:")) for each in asked), asked
    process.kill()
    page.wait_for_selector("#alive.stale", timeout=10_000)
    assert text(page, "#alive").startswith("no answer since ")


def test_it_is_light_or_dark_and_fits_a_telephone(
    server: tuple[str, subprocess.Popen[str]], browser: Browser
) -> None:
    grounds = []
    for scheme in ("light", "dark"):
        page = browser.new_page(color_scheme=scheme, viewport={"width": 390, "height": 800})
        page.goto(server[0])
        page.wait_for_selector("figure path")
        grounds.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert grounds[0] == "rgb(255, 255, 255)"
    assert max(int(x) for x in re.findall(r"\d+", grounds[1])) < 60
