"""Photograph the lab for docs/lab.md: docs/figures/lab-*.png.

python tools/lab_figures.py docs
"""

import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import BrowserContext, Page

sys.path.insert(0, str(Path(__file__).parents[1] / "python" / "tests"))

from browsers import chromium

import bentpipe as bp

_WIDE, _PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


def until(page: Page, condition: str) -> None:
    """Wait until a condition holds in a page."""
    end = time.monotonic() + 120
    while not page.evaluate(condition):
        if time.monotonic() > end:
            sys.exit(f"error: the lab does not reach {condition}")
        time.sleep(0.05)


def opened(page: Page, scenario: str) -> None:
    """Open a shipped scenario."""
    page.evaluate("lab.run.isOpen = false")
    page.select_option("#scenario", f"name:{scenario}")
    until(page, f"lab.run.isOpen && lab.run.name === '{scenario}'")


def seek(page: Page, seconds: float) -> None:
    """Go to a time, and let the page draw it."""
    page.evaluate(f"lab.run.socket.send('seek', {{ time: {seconds} }})")
    until(page, f"Math.abs(lab.run.now - {seconds}) < 1e-6 && !lab.run.isRunning")
    time.sleep(0.8)


def run(page: Page) -> None:
    """Show two settings side by side, and a change in the middle of the run."""
    opened(page, "byun2007-gateway")
    page.evaluate("lab.run.compare(['RED 1', 'AVQRED'])")
    until(page, "lab.run.isOpen")
    seek(page, 150)
    page.evaluate("lab.run.change('gateway.regulator.rate', '12 Mbps')")
    until(page, "lab.run.changes.length === 1")
    seek(page, 180)


def packets(page: Page) -> None:
    """Show classes of traffic in slow motion."""
    opened(page, "quic-geo")
    seek(page, 40)
    page.select_option("#speed", "0.001")
    page.click("#step")
    time.sleep(0.5)


def form(page: Page) -> None:
    """Show the form of a part."""
    opened(page, "small-gateway")
    time.sleep(0.5)
    part = "document.querySelector('#picture [data-part=gateway]')"
    page.evaluate(f"{part}.dispatchEvent(new MouseEvent('click', {{ bubbles: true }}))")
    page.wait_for_selector("#part:not([hidden])")
    page.locator("#part").scroll_into_view_if_needed()


def wrong(page: Page) -> None:
    """Show a mistake in the text."""
    page.locator("#part button", has_text="Close").click()
    page.locator("#source summary").click()
    text = page.locator("#text")
    text.fill(re.sub(r'rate = "\d+ Mbps"', 'rate = "3 Mb"', text.input_value(), count=1))
    page.wait_for_selector("#text-error:not([hidden])")
    page.locator("#text-error").scroll_into_view_if_needed()


def story(page: Page) -> None:
    """Show a story at its second caption."""
    page.evaluate("scrollTo(0, 0)")
    page.click("[data-view=stories]")
    page.locator("#stories button").nth(3).click()
    page.wait_for_selector("#go-on")
    page.select_option("#speed", "0")
    page.click("#go-on")
    until(page, "lab.run.now >= 30 && !lab.run.isRunning")
    time.sleep(0.8)


def stories(page: Page) -> None:
    """Show the list of stories."""
    page.click("[data-view=stories]")


def result(page: Page) -> None:
    """Show a result."""
    page.click("[data-view=results]")
    page.get_by_role("button", name="small-gateway", exact=True).click()
    page.wait_for_selector("#result-grid figure")
    time.sleep(0.5)


PICTURES: dict[str, tuple[Callable[[Page], None], str, dict[str, int]]] = {
    "run": (run, "light", _WIDE),
    "packets": (packets, "dark", _WIDE),
    "form": (form, "light", _WIDE),
    "mistake": (wrong, "light", _WIDE),
    "story": (story, "light", _WIDE),
    "stories": (stories, "light", _WIDE),
    "result": (result, "dark", _WIDE),
    "phone": (run, "light", _PHONE),
}


def main(docs: Path) -> None:
    """Open a lab in a folder with a result, and photograph it."""
    with tempfile.TemporaryDirectory() as folder:
        bp.compare("small-gateway", "red,avqred", runs=1, out=Path(folder) / "small-gateway", progress=False)
        command = [sys.executable, "-m", "bentpipe", "lab", "--no-browser"]
        with (
            subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process,  # noqa: S603
            chromium() as browser,
        ):
            try:
                found = re.search(r"http\S+", process.stdout.readline() if process.stdout else "")
                if found is None:
                    sys.exit("error: the lab did not start")
                photograph(browser.new_context(), found[0], docs / "figures")
            finally:
                process.send_signal(signal.SIGINT)


def photograph(context: BrowserContext, address: str, folder: Path) -> None:
    """Take all pictures."""
    page = context.new_page()
    page.set_default_timeout(20_000)
    page.goto(address)
    page.wait_for_selector("body[data-ready=true]")
    until(page, "lab.run.isOpen")
    for name, (prepare, scheme, size) in PICTURES.items():
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        page.set_viewport_size({"width": size["width"], "height": size["height"]})
        page.click("[data-view=run]")
        page.evaluate("scrollTo(0, 0)")
        prepare(page)
        page.screenshot(path=folder / f"lab-{name}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
