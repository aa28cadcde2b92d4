"""Measure the lab's page: first paint, points and frames per second in this machine's Chromium, and its size.

.venv/bin/python tools/lab_bench.py
"""

import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Page

sys.path.insert(0, str(Path(__file__).parents[1] / "python" / "tests"))

from browsers import chromium
from lab_process import lab

import bentpipe

_SETTINGS = ("droptail", "red", "avqred")
_POINTS = (
    "lab.run.sides.reduce((sum, side) => sum + side.columns.length"
    " * side.rows.reduce((lines, row) => lines + row.series.length, 0), 0)"
)

_COUNT_OFFERED = """
window.offered = 0
const offered = () => { window.offered += 1; requestAnimationFrame(offered) }
requestAnimationFrame(offered)
"""


def measured(page: Page) -> None:
    """Print the figures of a page that has been opened."""
    paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    print(f"first contentful paint    {paint:.0f} ms (target: below 1000)")
    for setting in _SETTINGS[:-2]:
        page.select_option("#add-setting", setting)
        until(page, f"lab.run.isOpen && lab.run.settings.includes('{setting}')")
    page.select_option("#window", "0")
    page.evaluate("lab.run.socket.send('seek', { time: lab.run.end - 15 })")
    until(page, "lab.run.now >= lab.run.end - 15.001")
    page.evaluate("window.drawn = 0; lab.run.charts.onDrawn = () => (window.drawn += 1)")
    page.evaluate(_COUNT_OFFERED)
    page.select_option("#speed", "1")
    page.click("#play")
    time.sleep(2)
    before = page.evaluate("[window.drawn, lab.run.frames, performance.now(), window.offered]")
    time.sleep(5)
    after = page.evaluate("[window.drawn, lab.run.frames, performance.now(), window.offered]")
    seconds = (after[2] - before[2]) / 1e3
    print(f"points                    {page.evaluate(_POINTS):,}")
    print(f"charts drawn              {page.evaluate('lab.run.charts.visible.size')}")
    print(f"drawn per second          {(after[0] - before[0]) / seconds:.1f} (target: 60 at 50,000 points)")
    print(f"offered by the browser    {(after[3] - before[3]) / seconds:.1f} per second")
    print(f"frames with data          {(after[1] - before[1]) / seconds:.1f} per second")


def until(page: Page, condition: str) -> None:
    """Wait until a condition holds; exits after two minutes."""
    end = time.monotonic() + 120
    while not page.evaluate(condition):
        if time.monotonic() > end:
            raise SystemExit(f"lab_bench: the page did not reach this in two minutes: {condition}")
        time.sleep(0.05)


def main() -> None:
    """Open the lab and measure it."""
    folder = Path(bentpipe.__file__).parent / "lab" / "page"
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"size of the page          {size / 1e3:.0f} kB (target: below 1000)")
    with (
        tempfile.TemporaryDirectory() as place,
        lab(Path(place), "geo-operator") as (port, token),
        chromium() as browser,
    ):
        page = browser.new_page(viewport={"width": 1300, "height": 1000})
        page.goto(f"http://127.0.0.1:{port}/?token={token}")
        page.wait_for_selector("body[data-ready=true]")
        until(page, "lab.run.isOpen")
        measured(page)


if __name__ == "__main__":
    main()
