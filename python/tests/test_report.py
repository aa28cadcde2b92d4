import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl
import pytest
from conftest import ROOT
from playwright.sync_api import Browser, ConsoleMessage, Page, Request

import bentpipe as bp
from bentpipe.models import markov_result
from bentpipe.report import charts
from bentpipe.report.charts import figures
from bentpipe.report.comparison import render, report_figures, write_figures
from bentpipe.report.traces import trace_figures

FIGURES = {
    "operating-points",
    "throughput",
    "queue",
    "window",
    "mark-probability",
    "first-drops",
    "drop-runs",
    "queue-distribution",
    "goodput",
    "completion-time",
    "states",
    "flows",
}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Report of the 2007 gateway, which has printed values, in shorter runs."""
    folder = tmp_path_factory.mktemp("report")
    scenario = (ROOT / "scenarios" / "byun2007-gateway.toml").read_text()
    short = scenario.replace('duration = "20 min"', 'duration = "1 min"')
    assert short != scenario
    (folder / "short.toml").write_text(short)
    result = bp.compare(folder / "short.toml", out=folder / "result")
    assert result.seeds == [1, 2, 3]
    return result.report(folder / "report.html")


_LONGEST = "marks => Math.max(0, ...marks.map(mark => (mark.getAttribute('d') || '').length))"
"""Length of the longest path among some marks."""


def opened(browser: Browser, path: Path, width: int) -> tuple[Page, list[str], list[str]]:
    """Open a report; return the page, the console's errors and the requests."""
    page = browser.new_page(viewport={"width": width, "height": 900})
    complaints: list[str] = []
    requests: list[str] = []

    def console(message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            complaints.append(message.text)

    def request(request: Request) -> None:
        if not request.url.startswith("data:"):
            requests.append(request.url)

    page.on("console", console)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", request)
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-charts=drawn]")
    return page, complaints, requests


@pytest.fixture(scope="module", params=[1280, 390])
def shown(
    report: Path, browser: Browser, request: pytest.FixtureRequest
) -> Iterator[tuple[Page, list[str], list[str], int]]:
    """The report as `opened` returns it, and its width."""
    found = opened(browser, report, request.param)
    yield *found, request.param
    found[0].close()


def test_all_charts_draw_offline_without_errors(
    shown: tuple[Page, list[str], list[str], int], report: Path
) -> None:
    page, complaints, requests, width = shown
    assert complaints == []
    assert requests == [report.as_uri()]
    assert {figure.get_attribute("id") for figure in page.query_selector_all("figure")} == FIGURES
    charts = page.query_selector_all("[data-chart]")
    # Per setting: three over time, one of drop runs, two in the window and one of flows; the states
    # of RED, AVQ and AVQRED that change (the presets' virtual capacities do not); five others.
    assert len(charts) == 3 * 3 + 3 + 2 * 3 + 3 + (2 + 1 + 2) + 5
    for chart in charts:
        svg = chart.query_selector("svg")
        assert svg is not None
        box = svg.bounding_box()
        assert box is not None
        assert box["width"] > 200
        assert box["height"] > 60
        drawn = ".mark-line path, .mark-area path, .mark-rect path, .mark-symbol path"
        assert chart.eval_on_selector_all(drawn, _LONGEST) > 20, chart.inner_html()[:500]
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_broken_chart_is_reported_on_the_page(browser: Browser, report: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.html"
    broken.write_text(report.read_text().replace('"mark":{"type":"tick"', '"mark":{"type":"nonsense"'))
    page, complaints, _ = opened(browser, broken, 1280)
    assert complaints
    assert "could not be drawn" in page.inner_text("#first-drops")
    page.close()


def test_printed_values_are_shown_and_calibration_is_flagged(
    shown: tuple[Page, list[str], list[str], int],
) -> None:
    page, *_ = shown
    row = page.locator("table.metrics:not(.ranking)").first.locator("tr", has_text="Queue, mean").first
    text = row.inner_text()
    assert "±" in text
    assert "59.91" in text
    assert "29.62" in text
    assert "calibrated" in text
    assert "agreement with them is no evidence" in page.inner_text("main")
    assert "seeds 1, 2, 3" in page.inner_text("main")
    assert page.locator("h2", has_text="Differences from RED 4").count() == 1


def test_printed_values_are_hidden_for_a_changed_scenario(tmp_path: Path) -> None:
    changed = bp.load("byun2007-gateway", set={"run.duration": "5 s", "run.warmup": "5 s"})
    text = bp.run(changed, out=tmp_path / "result").report().read_text()
    assert 'class="printed"' not in text
    assert "The scenario was changed, so values printed in its source are not shown" in text
    without = bp.load("small-gateway", set={"run.duration": "5 s", "run.warmup": "5 s"})
    assert "printed in its source" not in bp.run(without, out=tmp_path / "without").report().read_text()


def test_report_is_one_small_file_without_external_resources(report: Path) -> None:
    html = report.read_text()
    assert len(html) < 5_000_000
    html = re.sub(r"(<script[^>]*>).*?</script>", r"\1", html, flags=re.DOTALL)
    assert not re.search(r'<(script|img|iframe)[^>]+src=|<link[^>]+href="(?!data:)|@import|url\(', html)


def test_text_from_a_scenario_is_escaped(browser: Browser, tmp_path: Path) -> None:
    text = (Path(bp.__file__).parent / "data/scenarios" / "small-gateway.toml").read_text()
    nasty = 'title = "</script><script>document.title = 1</script> & <b>"'
    path = tmp_path / "nasty.toml"
    path.write_text(re.sub(r"^title = .*$", nasty, text, flags=re.MULTILINE))
    result = bp.run(bp.load(path, set={"run.duration": "5 s"}), out=tmp_path / "out")
    page, complaints, _ = opened(browser, result.report(), 1280)
    assert complaints == []
    assert page.inner_text("h1") == "</script><script>document.title = 1</script> & <b>"
    page.close()


def test_single_run_of_a_single_setting_has_a_report(
    browser: Browser, scenario: bp.Scenario, tmp_path: Path
) -> None:
    result = bp.run(scenario, out=tmp_path / "out")
    page, complaints, _ = opened(browser, result.report(tmp_path / "alone.html"), 1280)
    assert complaints == []
    assert "differences may be due to chance" in page.inner_text(".warnings")
    assert "Differences" not in page.inner_text("main")
    page.close()


def test_page_says_that_equal_settings_are_equal(tmp_path: Path) -> None:
    # No queue builds up within two seconds.
    scenario = bp.load("byun2007-gateway", set={"run.warmup": "1 s", "run.duration": "1 s"})
    made = bp.compare(scenario, ["RED 4", "RED FC 1", "AVQRED FC 3"], runs=1, out=tmp_path / "made")
    assert "All settings are equal by mean rank" in render(made)


def test_scenario_without_gateway_has_a_report(browser: Browser, tmp_path: Path) -> None:
    scenario = bp.load("red-dumbbell", set={"run.duration": "5 s", "run.warmup": "5 s"})
    result = bp.compare(scenario, ["RED", "droptail"], runs=1, out=tmp_path / "out")
    page, complaints, _ = opened(browser, result.report(), 1280)
    assert complaints == []
    ids = {figure.get_attribute("id") for figure in page.query_selector_all("figure")}
    assert {"throughput", "queue", "goodput"} <= ids
    assert "completion-time" not in ids
    page.close()


def test_traced_flows_are_drawn(browser: Browser, tmp_path: Path) -> None:
    scenario = bp.load("red-dumbbell", set={"run.duration": "20 s", "run.warmup": "5 s"})
    traced = ["flow:3", "traffic:bulk:7"]
    result = bp.compare(scenario, ["RED", "droptail"], runs=1, out=tmp_path / "out", trace=traced)
    page, complaints, _ = opened(browser, result.report(), 390)
    assert complaints == []
    for name, title in (("trace-flow-3", "Flow 3"), ("trace-traffic-bulk-7", "Session 7 of bulk")):
        figure = page.locator(f"#{name}")
        assert title in figure.inner_text()
        charts = figure.locator("[data-chart]")
        assert charts.count() == 4
        for index in range(4):
            ink = charts.nth(index).locator(".mark-line path, .mark-area path")
            assert ink.evaluate_all(_LONGEST) > 100
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.close()
    paths = write_figures(bp.open(result.folder), tmp_path / "figures", ["svg"])
    assert {"trace-flow-3.svg", "trace-traffic-bulk-7.svg"} <= {path.name for path in paths}
    captions = [drawn.caption for drawn in trace_figures(result)]
    assert all(caption.endswith(".") and "seed" in caption for caption in captions)


def test_same_result_gives_the_same_report(result: bp.Result) -> None:
    assert render(result) == render(bp.open(result.folder))


def test_figures_are_written_as_files(result: bp.Result, tmp_path: Path) -> None:
    paths = write_figures(result, tmp_path / "figures", ["svg", "png", "pdf"])
    assert len(paths) == 3 * len(list(report_figures(result)))
    beginnings = {"svg": b"<svg", "png": b"\x89PNG", "pdf": b"%PDF"}
    for path in paths:
        content = path.read_bytes()
        assert content.startswith(beginnings[path.suffix[1:]]), path
        assert len(content) > 3_000
    with pytest.raises(bp.UsageError, match=r"exists already; .* replace it with force=True$"):
        write_figures(result, tmp_path / "figures", ["svg"])


def test_captions_state_the_runs(result: bp.Result) -> None:
    for figure in report_figures(result):
        assert figure.caption.endswith("."), figure.name
        assert re.search(r"run|seed", figure.caption), figure.name


def test_points_match_the_scale_of_their_labels(result: bp.Result) -> None:
    """If Vega rounded the axes' ends, points would move but not the boxes used for labels."""
    (points,) = (figure for figure in figures(result) if figure.name == "operating-points")
    layers = points.panels[0].chart.to_dict()["layer"]
    scales = [layer["encoding"][axis]["scale"] for layer in layers for axis in ("x", "y")]
    assert len(scales) >= 2 * (3 + len(result.settings))
    assert all(scale["nice"] is False and len(scale["domain"]) == 2 for scale in scales)


def test_interval_above_the_capacity_lies_within_its_axis(result: bp.Result) -> None:
    drawing = charts._Charts(result, 600)
    setting = result.settings[0]
    above = 1.5 * drawing.capacity[setting]
    row = drawing.stats[setting, "throughput"]
    drawing.stats[setting, "throughput"] = {**row, "runs": 3, "ci_low": 0.0, "ci_high": above}
    points = drawing.operating_points()
    assert points is not None
    first = points.panels[0].chart.to_dict()["layer"][0]
    assert first["encoding"]["y"]["scale"]["domain"][1] > above


def test_caption_tells_if_magnified_samples_are_means(tmp_path: Path) -> None:
    frequent = {"run.warmup": "1 s", "run.duration": "60 s", "run.sample_interval": "20 ms"}
    made = bp.compare(bp.load("small-gateway", set=frequent), ["red"], runs=1, out=tmp_path / "result")
    (window,) = (figure for figure in figures(made) if figure.name == "window")
    # 2,500 samples in 50 s.
    assert "means of 5 samples, with a band from the smallest to the largest, of the rate" in window.caption
    assert "dashed line is the link's capacity" in window.caption


def test_line_of_independent_drops_lies_within_its_panel(
    result: bp.Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As with long runs of drops, which are few.
    monkeypatch.setattr(charts, "geometric", lambda _share, _arrivals, length: 7e5 / length)
    (runs,) = (figure for figure in figures(result) if figure.name == "drop-runs")
    for panel in runs.panels:
        spec = panel.chart.to_dict()
        highest = max(row.get("expected", 0) for rows in spec["datasets"].values() for row in rows)
        assert highest == 7e5
        for layer in spec["layer"]:
            assert layer["encoding"]["y"]["scale"]["domain"][1] > highest


def test_magnified_samples_have_the_unit_of_their_curve(report: Path) -> None:
    drawn = {figure.name: figure for figure in figures(bp.open(report.parent / "result"))}
    whole = [samples for panel in drawn["throughput"].panels for _, samples in panel.details]
    magnified = [samples for panel in drawn["window"].panels[::2] for _, samples in panel.details]
    assert len(whole) > 1
    assert magnified == whole


def test_all_axes_have_a_unit(result: bp.Result) -> None:
    def titles(value: object) -> Iterator[str]:
        if isinstance(value, dict):
            for key, inner in value.items():
                if key in {"x", "y"} and isinstance(inner, dict) and isinstance(inner.get("title"), str):
                    yield inner["title"]
                yield from titles(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from titles(inner)

    units = re.compile(r"\[.+\]$|^(Mbit/s|packets|%|runs)$|arrival number")
    for figure in figures(result):
        found = [title for panel in figure.panels for title in titles(panel.chart.to_dict())]
        assert found, figure.name
        assert [title for title in found if not units.search(title)] == []


def test_markov_page_draws(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    markov_result.solve(bp.load("mmpp-queue"), ["drop tail"]).report(path)
    for width in (1280, 390):
        page, complaints, requests = opened(browser, path, width)
        assert complaints == []
        assert requests == [path.as_uri()]
        assert page.locator(".chart svg").count() == 1 + 2 + 2
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.close()


def test_changing_capacity_is_drawn(tmp_path: Path) -> None:
    steps = '{steps = [["0 s", "4 Mbps"], ["3 s", "1 Mbps"]]}'
    text = (
        'title = "steps"\nrun = { duration = "6 s" }\nhost = { s = {}, d = {} }\n[link.l]\n'
        f'between = ["s", "d"]\ncapacity = {steps}\ndelay = "10 ms"\nqueue = {{ limit = "50 packets" }}\n'
        '[traffic.t]\nkind = "bulk"\nfrom = "s"\nto = "d"\n'
    )
    result = bp.run(bp.Scenario.parse(text, "steps", []), out=tmp_path / "steps")
    capacity = result.series("capacity")
    assert set(capacity.filter(pl.col("time") < 2.9)["value"]) == {4e6}
    assert set(capacity.filter(pl.col("time") > 3.1)["value"]) == {1e6}
    result.report(tmp_path / "report.html")
    report = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "step-after" in report


def test_difference_with_a_p_value_of_zero_has_its_verdict_as_title(
    result: bp.Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = result.differences("red").with_columns(p=pl.lit(0.0), p_holm=pl.lit(0.0))
    monkeypatch.setattr(type(result), "differences", lambda *_: table)
    assert "p &lt; 0.0001, corrected &lt; 0.0001" in render(result)


def test_result_of_an_earlier_version_has_a_report(
    result: bp.Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier versions wrote flows without classes and playback, and drops without flows."""
    recorded = type(result).one
    missing = ["class", "delay", "playback_until", "playback_bitrate"]

    def one(
        of: bp.Result, table: str, setting: str, seed: int, columns: Sequence[str] | None = None
    ) -> pl.DataFrame:
        found = recorded(of, table, setting, seed, columns)
        return found.drop(missing if table == "flows" else ["flow"] if table == "drops" else [], strict=False)

    monkeypatch.setattr(type(result), "one", one)
    assert {"flows", "states"} <= {figure.name for figure in report_figures(result)}
