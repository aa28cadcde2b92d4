"""The live gateway's page in a browser, with made-up values of `examples/look.rs` and in a run."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import why_no_live_run
from patience import PATIENCE, wait_for
from playwright.sync_api import Browser, Page, Route

import bentpipe as bp
from bentpipe.live_runs.chain import check
from bentpipe.live_runs.processes import Child, Programs, programs
from bentpipe.live_runs.session import Session
from bentpipe.runs.plan import make_plan

ROOT = Path(__file__).parents[2]
CHARTS = {
    "Bottleneck over time": "share of the time shown",
    "Utilization": "% of the capacity",
    "Sent into the satellite": "Mbit/s",
    "Transmit queue": "packets, mean",
    "Congestion signals": "packets/s",
    "Queueing delay": "ms",
    "Received from the satellite": "Mbit/s",
    "Spacelink round trip": "ms",
    "Spacelink loss": "% of packets",
    "Connections": "split TCP",
    "Failed connections": "1/s",
}


@pytest.fixture(scope="module")
def program() -> Path:
    """Path of the page's server, built as by `make build-tests` to avoid a second compilation."""
    cargo = shutil.which("cargo")
    assert cargo, "cargo is missing"
    build = [cargo, "build", "--locked", "--quiet", "--profile", "test", "--workspace", "--example", "look"]
    subprocess.run(build, check=True, cwd=ROOT, timeout=PATIENCE)
    return ROOT / "target/debug/examples/look"


@pytest.fixture
def server(program: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    with subprocess.Popen([program, "127.0.0.1:0"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield process.stdout.readline().strip(), process
        process.kill()


def text(page: Page, where: str) -> str:
    return page.locator(where).inner_text()


def test_page_shows_the_gateway_state(server: tuple[str, subprocess.Popen[str]], browser: Browser) -> None:
    """Charts have labels, load no external resource, update, and report a lost connection."""
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
    page.wait_for_function(f"before => ({last})() > before", arg=before)
    assert page.evaluate("rows.length") == 600, "older samples make room"
    page.wait_for_function("document.querySelector('#bottleneck .big').textContent !== 'servers'")
    # The gateway is saturated: over 90 % of 20 Mbit/s are used.
    assert text(page, "#bottleneck .big") == "the satellite’s rate"
    assert 95 < float(text(page, "#utilization .big").split()[0]) <= 100
    assert text(page, "#utilization .more").endswith("of 20 Mbit/s")
    assert re.fullmatch(r"\d+(\.\d)? ms", text(page, "#delay .big"))
    assert 600 <= float(text(page, "#spacelink .big").split()[0]) <= 610
    assert "AQM AVQRED" in text(page, "#what")
    # A minute without traffic; a line has a gap during half a minute without spacelink.
    strip = page.locator("figure").first
    assert "the spacelink 5 %" in strip.inner_text()
    assert strip.locator("rect").count() >= 8
    assert figures.nth(7).locator("path.line").count() == 2

    # The legend shows the values under the pointer, in the middle of the moving outage.
    outage = page.evaluate("rows.flatMap((row, i) => value(row, 'up') === 0 ? [i] : [])")
    assert len(outage) == 30
    box = figures.nth(1).locator("svg").bounding_box()
    assert box
    page.mouse.move(box["x"] + 46 + (box["width"] - 54) * outage[15] / 600, box["y"] + 60)
    page.wait_for_selector(".cross", state="attached")
    legend = figures.nth(1).locator("ul").inner_text()
    assert re.match(r"used 0\s+at \d\d:\d\d:\d\d$", legend), legend
    page.mouse.move(5, 5)
    page.wait_for_selector(".cross", state="detached")

    assert not complaints
    assert all(each.startswith((url, "data:")) for each in asked), asked
    process.kill()
    page.wait_for_selector("#alive.stale")
    assert text(page, "#alive").startswith("no answer since ")


def test_page_continues_when_the_clock_is_set_back(
    server: tuple[str, subprocess.Popen[str]], browser: Browser
) -> None:
    page = browser.new_page()
    kept: list[int] = []

    def set_back(route: Route) -> None:
        # From the second answer on, as if the clock had been set back by half of the time shown.
        since = f"since={kept[-1] if kept else 0}"
        answer = route.fetch(url=re.sub(r"since=.*", since, route.request.url))
        state = answer.json()
        if kept:
            back = kept[-1] - kept[len(kept) // 2]
            state["samples"] = [[row[0] - back, *row[1:]] for row in state["samples"]][-1:]
        else:
            kept.extend(row[0] for row in state["samples"])
        route.fulfill(response=answer, json=state)

    page.route("**/state.json*", set_back)
    page.goto(server[0])
    page.wait_for_selector("figure path")
    wait_for(lambda: page.evaluate("rows[rows.length - 1][0]") < kept[-1])
    shown = page.evaluate("rows.map(row => row[0])")
    assert shown == sorted(set(shown))
    assert shown[0] == kept[0]
    page.unroute_all(behavior="wait")
    page.close()


def test_page_has_light_and_dark_themes_and_fits_a_phone(
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


LOOK = """
import json, sys
from browsers import chromium
with chromium() as browser:
    page = browser.new_page(viewport={"width": 1360, "height": 1500})
    complaints = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto("http://127.0.0.1:9180/")
    # Playwright's own way of waiting needs eval, which the page forbids.
    def used():
        text = page.locator("#utilization .big").inner_text().split()[0]
        return float(text) if text[0].isdigit() else 0
    while used() < 20:
        page.wait_for_timeout(100)
    seen = {each: page.locator(each).inner_text() for each in sys.argv[1:]}
    print(json.dumps(seen | {"figures": page.locator("figure").count(), "complaints": complaints}))
"""


class Shown(Session):
    """A live run while a browser shows the gateway's page."""

    def __init__(self, programs: Programs) -> None:
        plan = make_plan(bp.load("live-smoke", set={"run.duration": "240 s"}), settings=["red"], runs=1)
        super().__init__(plan.settings[0], check(plan), 1, programs)
        self.seen: dict[str, Any] = {}

    def _config(self, role: str, keys: Path) -> str:
        metrics = '\n[metrics]\nlisten = "127.0.0.1:9180"\ninterval = "500 ms"\n'
        return super()._config(role, keys) + (metrics if role == "gateway" else "")

    def _wait(self, others: list[Child], load: Child, progress: Callable[[float], None]) -> None:
        inside = ["nsenter", f"--net={self._network.path('gateway')}", sys.executable, "-c", LOOK]
        cards = ["#what", "#bottleneck .big", "#utilization .more", "#spacelink .big", "#connections .big"]
        here = Path(__file__).parent
        with subprocess.Popen([*inside, *cards], cwd=here, stdout=subprocess.PIPE, text=True) as looking:
            try:
                # The run lasts as long as the browser needs.
                self.seen = json.loads(looking.communicate(timeout=PATIENCE)[0])
            finally:
                looking.kill()


@pytest.mark.skipif(bool(why_no_live_run()), reason=why_no_live_run())
def test_page_shows_a_running_gateway() -> None:
    run = Shown(programs())
    run.run(lambda _: None)
    seen = run.seen
    assert seen["complaints"] == []
    assert seen["figures"] == len(CHARTS)
    assert "AQM red, scheduler fifo, marking drop" in seen["#what"]
    assert seen["#bottleneck .big"] in {"the satellite’s rate", "servers", "nothing"}
    assert re.fullmatch(r"[\d.]+ Mbit/s of 5 Mbit/s", seen["#utilization .more"])
    # 100 ms plus the delay of acknowledgements.
    assert 100 <= float(seen["#spacelink .big"].split()[0]) < 200
    assert 1 <= int(seen["#connections .big"]) <= 10
