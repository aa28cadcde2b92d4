"""Every kind of page in a browser: three widths, light and dark, print, and linked time windows.

Each page is opened once and resized. The results are short runs, made once for all tests.
"""

import json
import re
import shutil
from pathlib import Path

import pytest
from altair.utils import schemapi
from altair.vegalite.v6.schema.core import load_schema
from playwright.sync_api import Browser, Page

import bentpipe as bp
from bentpipe.models import markov_result
from bentpipe.models.stability import stability_map
from bentpipe.report.colours import DARK, INK, MUTED, PALETTE, PAPER, text_colour
from bentpipe.report.sources import SOURCES, linked
from bentpipe.report.stability import write_map
from bentpipe.reproduction import papers, reproduce
from bentpipe.reproduction.experiments import CLAIMS

WIDTHS = (400, 900, 1400)
PAPER_WIDTH = 703
"""Width of the text on A4: 210 mm less margins of 12 mm [px]."""
SHORT = {"run.duration": "4 s", "run.warmup": "2 s"}

SCRIPT = (Path(__file__).parent / "pages.js").read_text(encoding="utf-8")
"""Measurements in the browser."""


@pytest.fixture(scope="module")
def six(tmp_path_factory: pytest.TempPathFactory) -> bp.Result:
    """Six settings on a ship with five classes of traffic, without a significant difference."""
    return bp.compare(bp.load("ship", set=SHORT), runs=2, out=tmp_path_factory.mktemp("six") / "result")


@pytest.fixture(scope="module")
def pages(six: bp.Result, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The path of a page of each kind."""
    folder = tmp_path_factory.mktemp("pages")
    small = bp.load("small-gateway", set=SHORT)
    dumbbell = bp.load("red-dumbbell", set=SHORT)
    both = bp.validate(dumbbell, ["RED 60/120"], runs=2, out=folder / "both")
    assert isinstance(both.model, bp.ModelResult)
    swept = bp.sweep(
        small,
        {"gateway.aqm.w_q": "0.01:0.2:log:2", "gateway.pep.delay": "0 ms,40 ms"},
        settings=["red", "avqred"],
        runs=2,
        metrics=["throughput", "queue_delay_mean", "queue_mean", "loss_rate", "goodput_mean", "queue_std"],
        out=folder / "sweep",
    )
    tuned = bp.tune(
        small, "red", ["throughput:max", "loss_rate:min"], trials=6, runs=2, fresh=2, out=folder / "tune"
    )
    advised = bp.advise(small, ["red", "droptail"], trials=2, search_runs=1, runs=2, out=folder / "advice")
    copied = shutil.copytree(papers()["jain2004"], folder / "paper")
    text = (copied / CLAIMS).read_text()
    (copied / CLAIMS).write_text(re.sub(r'("run.duration" = )"\d+ s"', r'\1"60 s"', text))
    (judged,) = reproduce([copied], quick=True, only=["table-1", "phase"], out=folder / "judged")
    axes = [("round_trip", [0.2, 0.4]), ("connections", [40.0, 60.0])]
    write_map(stability_map(dumbbell, x=axes[0], y=axes[1], settings=["pi", "red"]), folder)
    found = {
        "compare": six.report(folder / "compare.html"),
        "run": bp.run(small, out=folder / "run").report(folder / "run.html"),
        "sweep": swept.report(folder / "sweep.html"),
        "tune": tuned.report(folder / "tune.html"),
        "advise": advised.folder / "report.html",
        "validate": both.report(folder / "validate.html"),
        "model": both.model.report(folder / "model.html"),
        "markov": markov_result.solve(bp.load("mmpp-queue"), ["drop tail"]).report(folder / "markov.html"),
        "reproduce": judged.report,
        "stability": folder / "map.html",
    }
    return {name: Path(path) for name, path in found.items()}


class Opened:
    """A page in a browser, with what it complained about and what it asked for."""

    def __init__(self, browser: Browser, path: Path) -> None:
        self.page = browser.new_page(viewport={"width": 1400, "height": 900}, color_scheme="light")
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-charts=drawn]")
        self.page.add_script_tag(content=SCRIPT)

    def show(self, width: int = 1400, scheme: str = "light", media: str = "screen") -> Page:
        """Return the page at a width, in a colour scheme and for a medium."""
        self.page.emulate_media(color_scheme=scheme, media=media)  # type: ignore[arg-type]
        self.page.set_viewport_size({"width": width, "height": 900})
        # Charts take their width, labels their places, and tables their form after the layout.
        self.page.wait_for_function("edges().every((edge) => edge <= innerWidth + 1)")
        self.page.wait_for_function("labels('operating-points').pairs.length === 0")
        self.page.wait_for_function("overflowing().length === 0")
        return self.page


KINDS = ("compare", "run", "sweep", "tune", "advise", "validate", "model", "markov", "reproduce", "stability")


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_charts_of_the_page_are_valid_vega_lite(pages: dict[str, Path], kind: str) -> None:
    found = re.search(
        r'<script type="application/json" id="specs">(.*?)</script>', pages[kind].read_text(), re.S
    )
    assert found
    # A signal sets the time axis. Vega knows it; the schema of Vega-Lite does not.
    specs = json.loads(found[1].replace('{"signal":"span"}', "[0,1]"))
    assert bool(specs) == (kind != "advise")
    for spec in specs:
        # Vega-Lite also accepts null as a background.
        assert spec["config"].pop("background") is None
        spec["datasets"] = {name: rows[:3] for name, rows in spec["datasets"].items()}
        schemapi.validate_jsonschema(spec, load_schema())


@pytest.mark.parametrize("kind", KINDS)
def test_page_fits_every_width_scheme_and_paper(
    browser: Browser, six: bp.Result, pages: dict[str, Path], kind: str
) -> None:
    opened = Opened(browser, pages[kind])
    for width in WIDTHS:
        page = opened.show(width)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate("missing()") == []
    # At the widest, every point has its label.
    assert kind != "compare" or set(six.settings) <= set(page.evaluate("labels('operating-points').names"))
    for scheme in ("light", "dark"):
        assert opened.show(900, scheme).evaluate("faint()") == []
    # On paper: all columns, all parameters, light colours even in a dark scheme.
    closed = page.locator("details:not([open])").count()
    page = opened.show(PAPER_WIDTH, "dark", "print")
    assert page.evaluate("document.documentElement.scrollWidth") <= PAPER_WIDTH
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(31, 41, 51)"
    assert page.evaluate("folded()") == 0
    assert page.evaluate("sticky()") == 0
    assert max(page.evaluate("edges()"), default=0) <= PAPER_WIDTH + 1
    page = opened.show(1400, "light")
    page.wait_for_function(f"document.querySelectorAll('details:not([open])').length === {closed}")
    # The verdict is the first text below the title; the contents lead to every section.
    assert page.locator("h1 + .answer").inner_text().strip()
    links = page.evaluate("[...document.querySelectorAll('.contents a')].map((a) => a.hash.slice(1))")
    sections = page.evaluate("[...document.querySelectorAll('main h2[id]')].map((h) => h.id)")
    assert set(sections) <= set(links)
    assert all(page.locator(f'[id="{link}"]').count() == 1 for link in links)
    assert opened.complaints == []
    assert opened.requests == [pages[kind].as_uri(), *opened.requests[1:]]
    assert [url for url in opened.requests[1:] if not url.startswith("data:")] == []
    page.close()


def test_many_settings_are_rows_that_fit_every_width_and_paper(browser: Browser, tmp_path: Path) -> None:
    names = [f"red {each}" for each in range(15)]
    given = {
        f'setting."{name}"': f'{{ algorithm = "red", max_p = 0.{10 + at} }}' for at, name in enumerate(names)
    }
    many = bp.compare(bp.load("small-gateway", set={**SHORT, **given}), names, runs=2, out=tmp_path / "many")
    opened = Opened(browser, Path(many.report(tmp_path / "many.html")))
    for width in WIDTHS:
        page = opened.show(width)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate("missing()") == []
    heads = page.locator("table.transposed:visible").first.locator("tbody th[scope=row]")
    assert [each.strip() for each in heads.all_inner_texts()] == names
    opened.show(PAPER_WIDTH, "dark", "print")
    assert opened.complaints == []
    page.close()


def test_pdf_opens_details_and_closes_them_again(browser: Browser, pages: dict[str, Path]) -> None:
    page = Opened(browser, pages["compare"]).page
    page.evaluate("addEventListener('beforeprint', () => { window.seen = folded(); })")
    closed = page.locator("details:not([open])").count()
    assert closed > 3
    pdf = page.pdf(prefer_css_page_size=True)
    assert page.evaluate("window.seen") == 0
    assert page.locator("details:not([open])").count() == closed
    # A4 in points.
    assert re.search(rb"/MediaBox \[0 0 59[45](\.\d+)? 84[12](\.\d+)?\]", pdf)
    page.close()


def test_all_time_series_follow_one_window(browser: Browser, six: bp.Result, pages: dict[str, Path]) -> None:
    opened = Opened(browser, pages["compare"])
    page = opened.page
    home = page.evaluate("spans()")
    assert len(home) > 20
    assert {tuple(span) for span in home} == {(0.0, 4.0)}
    figure = page.locator("#throughput [data-chart]").first
    figure.scroll_into_view_if_needed()
    box = figure.bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.4, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, y, steps=3)
    page.mouse.up()
    page.wait_for_function("new Set(spans().map(String)).size === 1 && spans()[0][0] > 0")
    chosen = page.evaluate("spans()")
    assert len({tuple(span) for span in chosen}) == 1
    low, high = chosen[0]
    assert 1 < low < 2 < high < 3
    # Other figures show the samples of the window: each 100 ms, with a neighbour on each side.
    times = [row["time"] for row in page.evaluate("drawn('queue')")]
    assert len(times) == pytest.approx((high - low) / 0.1, abs=3)
    assert low - 0.25 < times[0] < low + 0.1
    series = six.one("series", six.settings[0], six.seeds[0]).select("time", "transmit_queue")
    samples = {round(time, 3): queue for time, queue in series.iter_rows()}
    for row in page.evaluate("drawn('queue')"):
        assert row["mean"] == pytest.approx(samples[round(row["time"], 3)], abs=0.1)
    # A window can also be typed, and a double click shows the whole run.
    page.fill("form.window input[name=from]", "1.75")
    page.press("form.window input[name=from]", "Enter")
    page.wait_for_function("spans().every((span) => span[0] === 1.75)")
    assert {tuple(round(end, 2) for end in span) for span in page.evaluate("spans()")} == {
        (1.75, round(high, 2))
    }
    figure.dblclick()
    page.wait_for_function("spans().every((span) => span[0] === 0)")
    assert page.evaluate("spans()") == home
    assert opened.complaints == []
    page.close()


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def _contrast(one: str, other: str) -> float:
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colour", [INK, MUTED, *PALETTE])
def test_text_colours_are_legible_in_both_schemes(colour: str) -> None:
    text = text_colour(colour)
    assert _contrast(text, PAPER) >= 4.5
    assert _contrast(DARK[text], DARK[PAPER]) >= 4.5
    # A curve needs 3:1 (WCAG 2.2, 1.4.11); on white, Okabe and Ito's yellow and light blue are below it.
    assert _contrast(DARK[colour], DARK[PAPER]) >= 3


def test_citations_are_linked_and_spelt_out() -> None:
    html, cited = linked(
        '<p title="[R11] 5">[B07] Table 3.1, [B07 4.4]</p><pre>[BB]</pre><code>a[B07]b</code>'
    )
    assert html.startswith('<p title="[R11] 5"><a class="cited" href="#source-B07">[B07]</a> Table 3.1, <a')
    assert ">[B07 4.4]</a>" in html
    assert "<pre>[BB]</pre>" in html
    assert set(cited) == {"B07", "BB", "R11"}
    assert "PhD dissertation, 2007" in cited["B07"]
    assert set(SOURCES) == {"B07", "BB", "JM", "R11"}


def test_metrics_with_the_same_values_share_a_row(browser: Browser, pages: dict[str, Path]) -> None:
    """A gateway that only drops at its mark point has one value for four rates."""
    page = Opened(browser, pages["run"]).page
    heads = page.locator("table.metrics:not(.ranking)").first.locator("tbody th[scope=row]").all()
    names = [head.inner_text().split("\n") for head in heads]
    joined = next(each for each in names if "Drop rate" in each)
    assert {"Drop rate", "Loss rate", "Dropped at the receive queue", "Mark rate"} <= set(joined)
    # Every metric is still in the table.
    assert sum(map(len, names)) == page.locator("dl.glossary:not(.sources) dt").count()
    page.close()
