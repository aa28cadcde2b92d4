"""The documentation as a website, opened from files in a browser without a network."""

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from conftest import ROOT
from playwright.sync_api import Browser, Page

_HREF = re.compile(r'<a[^>]* href="?([^"\s>]+)')
TOOL = ROOT / "tools" / "website.py"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site; building it checks every link."""
    spec = importlib.util.spec_from_file_location("website", TOOL)
    assert spec is not None
    assert spec.loader is not None
    website: Any = importlib.util.module_from_spec(spec)
    sys.modules["website"] = website
    spec.loader.exec_module(website)
    website.BUILD = tmp_path_factory.mktemp("website") / "build"
    folder = Path(website.BUILD.parent / "site")
    found = website.build(folder)
    assert found == []
    (folder / "broken.html").write_text('<a href="nowhere.html">x</a><img src="https://example.org/x.png">')
    reasons = website.broken(folder)
    assert [reason.partition(": ")[2] for reason in reasons] == [
        "nowhere.html: there is no such file",
        "https://example.org/x.png: is loaded from a network",
    ]
    (folder / "broken.html").unlink()
    return folder


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page that fails if it asks for anything but files."""
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    yield page
    page.close()
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []


@pytest.mark.long
def test_every_page_of_the_docs_can_be_reached(site: Path) -> None:
    reached: set[Path] = set()
    found = [site / "index.html"]
    while found:
        path = found.pop()
        if path.suffix == ".html" and path not in reached:
            reached.add(path)
            links = [
                unquote(link).partition("#")[0] for link in _HREF.findall(path.read_text(encoding="utf-8"))
            ]
            found += [(path.parent / link).resolve() for link in links if link and "://" not in link]
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    pages = {path.with_name("index.html") if path.name == "README.html" else path for path in pages}
    assert sorted(str(path) for path in pages if site / path not in reached) == []


def test_search_finds_pages_without_a_network(site: Path, page: Page) -> None:
    page.goto((site / "index.html").as_uri())
    page.keyboard.press("Control+k")
    page.keyboard.type("retransmission timeout")
    page.wait_for_selector("text=/[1-9][0-9]* results/")


SHOWN = ("index.html", "choosing.html", "scenarios.html", "algorithms/red.html")


@pytest.fixture(scope="module", params=["light", "dark"])
def shown(site: Path, browser: Browser, request: pytest.FixtureRequest) -> Iterator[tuple[str, list[Page]]]:
    """A colour scheme, and some pages that were opened in it."""
    context = browser.new_context(color_scheme=request.param)
    pages = [context.new_page() for _ in SHOWN]
    for page, name in zip(pages, SHOWN, strict=True):
        page.goto((site / name).as_uri())
    yield request.param, pages
    context.close()


@pytest.mark.parametrize("width", [400, 1200])
def test_pages_fit_their_width_in_light_and_dark(shown: tuple[str, list[Page]], width: int) -> None:
    scheme, pages = shown
    for page, name in zip(pages, SHOWN, strict=True):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        levels = [int(part) for part in background.strip("rgba()").split(",")[:3]]
        assert (max(levels) < 80) == (scheme == "dark"), (name, background)
