"""The lab's page in a browser."""

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import axe_playwright_python
import pytest
from lab_process import lab
from patience import PATIENCE, wait_for
from playwright.sync_api import Browser, BrowserContext, Page, Route
from test_terminals import BEAM

import bentpipe as bp
from bentpipe.lab.stories import listed
from bentpipe.runs.plan import scenario_path

PAGE = Path(bp.__file__).parent / "lab" / "page"
STORIES = listed()
GATEWAY = scenario_path("small-gateway").read_text()
SHORT = GATEWAY.replace('warmup = "10 s"', 'warmup = "0 s"').replace('duration = "60 s"', 'duration = "10 s"')


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, result: bp.Result) -> Path:
    """A folder with a scenario and a result."""
    place = tmp_path_factory.mktemp("lab")
    (place / "short.toml").write_text(SHORT)
    shutil.copytree(result.folder, place / "result")
    short = {"run.warmup": "1 s", "run.duration": "2 s"}
    factors = {"gateway.aqm.max_p": "0.1,0.2", "gateway.aqm.min_th": "10,20"}
    bp.sweep("small-gateway", factors, settings=["red", "ared"], set=short, runs=1, out=place / "sweep")
    (place / "beam.toml").write_text(BEAM)
    bp.compare(place / "beam.toml", ["droptail"], runs=1, out=place / "beam")
    # A shipped scenario of that name is opened all the same.
    (place / "small-gateway").mkdir()
    return place


@pytest.fixture(scope="module")
def entered(folder: Path, browser: Browser) -> Iterator[tuple[BrowserContext, str]]:
    """A browser that has opened the lab's address, and the address of its page."""
    with lab(folder, "short.toml") as (port, token):
        context = browser.new_context(viewport={"width": 1300, "height": 1000}, accept_downloads=True)
        first = context.new_page()
        first.goto(f"http://127.0.0.1:{port}/?token={token}")
        first.close()
        yield context, f"http://127.0.0.1:{port}/"
        context.close()


@pytest.fixture
def page(entered: tuple[BrowserContext, str]) -> Iterator[Page]:
    context, address = entered
    opened = context.new_page()
    faults: list[str] = []
    opened.on("pageerror", lambda error: faults.append(str(error)))
    opened.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    ready(opened, address)
    yield opened
    opened.close()
    assert faults == []


def ready(page: Page, address: str) -> None:
    page.goto(address)
    page.wait_for_selector("body[data-ready=true]")
    until(page, "lab.run.isOpen")


def until(page: Page, condition: str) -> None:
    """Wait until a condition holds; the page forbids what `wait_for_function` does."""
    end = time.monotonic() + PATIENCE
    while not page.evaluate(condition):
        message = page.locator("#message").text_content()
        assert time.monotonic() < end, (condition, page.evaluate("lab.run.now"), message)
        time.sleep(0.03)


def run_to_the_end(page: Page) -> None:
    page.select_option("#speed", "0")
    page.click("#play")
    until(page, "lab.run.now >= lab.run.end && !lab.run.isRunning")


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(each) for each in tasks]


def test_run_fills_charts_and_table_of_classes(page: Page) -> None:
    run_to_the_end(page)
    # Ten seconds, and a sample each tenth of a second.
    assert page.evaluate("lab.run.sides.map(side => side.columns.length)") == [100, 100]
    until(page, "document.querySelector('#served tbody td.number') !== null")
    assert "web" in page.inner_text("#served")
    assert page.locator("#grid figure canvas").count() >= 8
    # Something is drawn: not all pixels of the first chart are alike.
    assert page.evaluate("""() => {
        const canvas = document.querySelector('#grid canvas');
        const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
        return new Set(new Uint32Array(data.buffer)).size > 3;
    }""")


_LONG_STORIES = {"1-behind-the-pep", "2-consecutive-drops", "6-quic"}


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(number, id=story["name"], marks=[pytest.mark.long] * (story["name"] in _LONG_STORIES))
        for number, story in enumerate(STORIES)
    ],
)
def test_story_is_told_to_its_end(page: Page, number: int) -> None:
    page.click("[data-view=stories]")
    page.locator("#stories button").nth(number).click()
    page.wait_for_selector("#story:not([hidden])")
    story = STORIES[number]
    for count, caption in enumerate(story["caption"], start=1):
        place = f"{count} of {len(story['caption'])}"
        until(page, f"document.querySelector('#story p').textContent.endsWith('{place}')")
        assert page.inner_text("#story p:nth-of-type(2)") == " ".join(caption["text"].split())
        assert page.evaluate("lab.run.now") == pytest.approx(caption["at"], abs=1e-6)
        if count < len(story["caption"]):
            page.select_option("#speed", "0")
            page.click("#go-on")
    page.get_by_role("button", name="End of the story").click()
    assert page.locator("#story").is_hidden()


def test_story_pauses_at_its_captions_after_a_restart(page: Page) -> None:
    number, story = next((i, each) for i, each in enumerate(STORIES) if each["name"] == "4-udp-flood")
    page.click("[data-view=stories]")
    page.locator("#stories button").nth(number).click()
    page.wait_for_selector("#story:not([hidden])")
    until(page, "lab.run.isOpen")
    for again in (
        "document.getElementById('restart').click()",
        "lab.run.compare(lab.run.settings.slice(0, 1))",
    ):
        page.evaluate(again)
        until(page, "lab.run.isOpen && lab.run.now === 0")
        page.select_option("#speed", "0")
        page.click("#play")
        until(page, "!lab.run.isRunning && lab.run.now > 0")
        assert page.evaluate("lab.run.now") == pytest.approx(story["caption"][1]["at"])
    # Another text is another run, of which the captions say nothing.
    page.evaluate("document.getElementById('source').open = true")
    page.fill("#text", page.input_value("#text") + "\n")
    page.wait_for_selector("#story", state="hidden")


def test_slider_changes_the_run_and_is_marked_in_the_charts(page: Page) -> None:
    page.select_option("#speed", "0")
    page.click("#second")
    until(page, "lab.run.now >= 1")
    slider = page.get_by_label("regulator.rate", exact=True)
    slider.evaluate("slider => { slider.value = 0; slider.dispatchEvent(new Event('change')); }")
    until(page, "lab.run.changes.length === 1")
    assert page.inner_text("#changes").startswith("1.00 s: gateway.regulator.rate = ")
    assert page.evaluate("lab.run.charts.marks.length") == 1
    run_to_the_end(page)
    rate = page.evaluate("lab.run.sides[0].columns.last('throughput')")
    assert rate < 1e6


def test_what_cannot_change_is_told_and_the_run_goes_on(page: Page) -> None:
    page.click("#second")
    until(page, "lab.run.now >= 1")
    page.evaluate("lab.run.change('host.client.count', '30')")
    page.wait_for_selector("#message:not([hidden])")
    assert page.inner_text("#message").startswith("host.client.count cannot change during a run")
    page.click("#second")
    until(page, "lab.run.now >= 2")


def test_error_during_a_run_stays_until_something_is_run(page: Page) -> None:
    page.select_option("#speed", "0.1")
    page.click("#play")
    until(page, "lab.run.now > 0.01")
    page.evaluate("lab.run.change('host.client.count', '30')")
    until(
        page, "document.getElementById('message').textContent.startsWith('host.client.count cannot change')"
    )
    until(page, "!lab.run.isRunning")
    page.click("#second")
    until(page, "lab.run.now >= 1")
    assert page.locator("#message").is_visible()
    page.click("#play")
    assert page.locator("#message").is_hidden()


def test_steps_back_and_jumps_reach_their_times(page: Page) -> None:
    page.click("#step")
    until(page, "lab.run.now > 0")
    first = page.evaluate("lab.run.now")
    assert first < 0.5
    page.select_option("#jump", "first drop")
    until(page, "lab.run.sides.some(side => side.drops.length)")
    dropped = page.evaluate("Math.min(...lab.run.sides.flatMap(side => side.drops))")
    assert 0 < dropped <= page.evaluate("lab.run.now")
    page.select_option("#jump", "end")
    until(page, "lab.run.now >= lab.run.end")
    first_samples = "Array.from(lab.run.sides[0].columns.columns.get('throughput').values.slice(0, 40))"
    before = page.evaluate(first_samples)
    page.click("#back")
    until(page, "Math.abs(lab.run.now - (lab.run.end - 5)) < 1e-6 && lab.run.sides[0].columns.length > 40")
    assert page.evaluate(first_samples) == before
    page.select_option("#jump", "longest flow")
    until(page, "lab.run.now < lab.run.end - 5")
    page.select_option("#jump", "end")
    until(page, "lab.run.now >= lab.run.end")
    page.select_option("#jump", "slowest page")
    until(page, "lab.run.now < lab.run.end && lab.run.events.length === 2")
    assert "slowest page begins" in page.inner_text("#changes")


def test_network_is_drawn_from_a_new_scenario(page: Page) -> None:
    page.click("#new")
    until(page, "lab.run.isOpen && lab.run.name === null && lab.run.found.title === 'New scenario'")
    page.select_option("#add-kind", "gateway")
    page.fill("#add-name", "hub")
    page.select_option("#add-from", "server")
    page.select_option("#add-to", "client")
    page.click("#adding button")
    page.wait_for_selector('#picture [data-part="link.hub-satellite"]')
    until(page, "lab.run.isOpen")
    page.locator('#picture [data-part="link.bottleneck"]').first.click()
    page.get_by_role("button", name="Remove").click()
    until(page, "!document.querySelector('#picture [data-part=\"link.bottleneck\"]') && lab.run.isOpen")
    page.select_option("#jump", "end")
    until(page, "lab.run.now >= lab.run.end")
    assert page.evaluate("lab.run.sides[0].columns.last('throughput')") > 1e6
    # A text that is wrong in between can be drawn on.
    page.select_option("#add-kind", "hosts")
    assert page.locator("#add-to").is_hidden()


def test_a_new_run_of_the_same_network_keeps_its_picture(page: Page) -> None:
    page.evaluate("document.querySelector('#picture svg').isKept = true")
    page.click("#restart")
    until(page, "lab.run.isOpen")
    assert page.evaluate("document.querySelector('#picture svg').isKept")
    assert page.inner_text("#clock").startswith("0 s of ")


def test_form_of_a_part_takes_no_clicks_once_another_is_chosen(page: Page) -> None:
    page.locator('#picture [data-part="gateway"]').first.click()
    until(page, "document.querySelector('#part h3')?.textContent === 'gateway'")
    held: list[Route] = []
    page.route("**/api/form", lambda route: held.append(route))
    with page.expect_request("**/api/form"):
        page.locator('#picture [data-part="link.satellite"]').first.press("Enter")
    until(page, "document.getElementById('part').inert")
    assert page.inner_text("#part h3") == "gateway"
    held[0].continue_()
    until(page, "!document.getElementById('part').inert")
    assert page.inner_text("#part h3") == "link.satellite"


def test_form_and_text_change_each_other(page: Page) -> None:
    page.locator('#picture [data-part="gateway"]').first.click()
    page.wait_for_selector("#part:not([hidden])")
    assert page.get_by_label("watch (default)").locator("option").all_inner_texts() == ["receive", "transmit"]
    field = page.get_by_label("regulator.rate", exact=True).and_(page.locator("#part input"))
    field.fill("2 Mbps")
    field.press("Tab")
    until(page, "document.getElementById('text').value.includes('2 Mbps')")
    page.locator("#source summary").click()
    text = page.locator("#text")
    text.fill(text.input_value().replace("2 Mbps", "2 Mega"))
    page.wait_for_selector("#text-error:not([hidden])")
    assert "gateway.regulator.rate" in page.inner_text("#text-error")
    assert 'found "2 Mega"; allowed: a rate' in page.inner_text("#text-error")
    text.fill(text.input_value().replace("2 Mega", "4 Mbps"))
    page.wait_for_selector("#text-error", state="hidden")
    until(page, "/4\\sMbit/.test(document.getElementById('picture').textContent)")


def test_seed_of_the_text_is_that_of_the_run_once_it_is_edited(page: Page) -> None:
    page.fill("#seed", "7")
    page.press("#seed", "Tab")
    until(page, "lab.run.isOpen && lab.run.seed === 7")
    page.evaluate("document.getElementById('source').open = true")
    page.fill("#text", SHORT + "\n")
    until(page, "lab.run.text.endsWith('\\n\\n') && lab.run.isOpen")
    assert page.input_value("#seed") == "7"
    page.fill("#text", re.sub(r"(?m)^seed = .*\n", "", SHORT).replace("[run]", "[run]\nseed = 5"))
    until(page, "lab.run.isOpen && lab.run.seed === 5")
    assert page.input_value("#seed") == "5"


def test_mistakes_in_the_text_are_told_beside_it(page: Page) -> None:
    page.evaluate("document.getElementById('source').open = true")
    page.fill("#text", "gateway = 1\n" + SHORT)
    page.wait_for_selector("#text-error:not([hidden])")
    assert "gateway" in page.inner_text("#text-error")
    page.route("**/api/check", lambda route: route.fulfill(content_type="application/json", body="{"))
    page.fill("#text", SHORT + "\n")
    until(page, "document.getElementById('text-error').textContent.includes('JSON')")


def test_saved_scenario_is_a_file_of_the_folder(page: Page, folder: Path) -> None:
    page.locator("#source summary").click()
    page.fill("#save-name", "kept.toml")
    page.click("#save")
    until(page, "document.getElementById('status').textContent.includes('kept.toml')")
    assert (folder / "kept.toml").read_text() == SHORT
    page.click("#save")
    page.wait_for_selector("#text-error:not([hidden])")
    assert "exists already" in page.inner_text("#text-error")


def test_edited_scenario_has_no_link_and_no_command_until_it_is_saved(page: Page) -> None:
    page.evaluate("document.getElementById('source').open = true")
    page.fill("#text", SHORT + "# edited\n")
    until(page, "lab.run.text.endsWith('# edited\\n') && lab.run.isOpen")
    for button in ("#copy-link", "#copy-command"):
        page.evaluate("document.getElementById('message').hidden = true")
        page.click(button)
        assert page.inner_text("#message").startswith("Save the scenario first")
    page.fill("#save-name", "edited.toml")
    page.click("#save")
    until(page, "!lab.run.isEdited")
    page.click("#copy-command")
    until(page, "!document.getElementById('message').textContent.startsWith('Save the')")
    assert page.evaluate("lab.run.command()").startswith("bentpipe compare edited.toml ")
    page.click("#new")
    until(page, "lab.run.isEdited")
    page.click("#copy-command")
    until(page, "document.getElementById('message').textContent.startsWith('Save the')")


def test_scenario_without_settings_has_a_command_and_says_what_a_setting_replaces(page: Page) -> None:
    page.evaluate("document.getElementById('source').open = true")
    # An edit keeps the settings of the run before.
    page.evaluate("lab.run.settings = []")
    page.fill("#text", re.sub(r"(?m)^settings = .*\n", "", SHORT))
    until(page, "lab.run.isOpen && lab.run.settings.length === 0 && lab.run.sides.length === 1")
    assert "--settings" not in page.evaluate("lab.run.command()")
    page.select_option("#add-setting", "codel")
    until(page, "lab.run.isOpen && lab.run.sides[0].label === 'codel'")
    assert "codel runs in place of the scenario as it is" in page.inner_text("#message")
    assert " --settings codel " in page.evaluate("lab.run.command()")


def test_keyboard_alone_runs_steps_and_edits(page: Page) -> None:
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("ArrowRight")
    until(page, "lab.run.now >= 1")
    page.keyboard.press(".")
    until(page, "lab.run.now > 1")
    page.keyboard.press(" ")
    until(page, "lab.run.isRunning || lab.run.now > 1.5")
    page.keyboard.press(" ")
    until(page, "!lab.run.isRunning")
    # The parts of the picture are reached with Tab, and opened with Enter.
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.dataset?.part") == "gateway":
            break
    assert page.evaluate("document.activeElement.dataset.part") == "gateway"
    page.keyboard.press("Enter")
    page.wait_for_selector("#part:not([hidden])")
    assert page.evaluate("document.activeElement.closest('#part') !== null")
    page.get_by_role("button", name="Close").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.dataset.part") == "gateway"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", ["run", "stories", "results"])
def test_axe_has_no_serious_findings(page: Page, view: str, scheme: Literal["light", "dark"]) -> None:
    page.emulate_media(color_scheme=scheme)
    if view == "run":
        page.click("#second")
        page.locator("#source summary").click()
        page.locator('#picture [data-part="gateway"]').first.click()
        page.wait_for_selector("#part:not([hidden])")
    page.click(f"[data-view={view}]")
    if view == "results":
        page.get_by_role("button", name="result", exact=True).click()
        page.wait_for_selector("#result-grid figure")
    page.evaluate((Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text())
    found = page.evaluate("axe.run()")
    serious = [
        (each["id"], each["help"], [node["html"][:120] for node in each["nodes"][:3]])
        for each in found["violations"]
        if each["impact"] in {"serious", "critical"}
    ]
    assert serious == []


@pytest.mark.parametrize("view", ["run", "stories", "results"])
def test_phone_needs_no_sideways_scrolling(page: Page, view: str) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    page.click(f"[data-view={view}]")
    if view == "results":
        page.get_by_role("button", name="result", exact=True).click()
        page.wait_for_selector("#result-grid figure")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    if view == "run":
        run_to_the_end(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_reload_in_the_middle_comes_back_to_the_same_time(page: Page) -> None:
    page.select_option("#scenario", "name:small-gateway")
    until(page, "lab.run.isOpen && lab.run.name === 'small-gateway'")
    for second in (1, 2):
        page.click("#second")
        until(page, f"lab.run.now >= {second}")
    page.evaluate("lab.run.change('gateway.regulator.rate', '2 Mbps')")
    until(page, "lab.run.changes.length === 1")
    page.click("#copy-link")
    before = page.evaluate("[lab.run.now, lab.run.settings, lab.run.changes]")
    page.reload()
    page.wait_for_selector("body[data-ready=true]")
    until(page, "lab.run.isOpen && lab.run.now >= 2")
    assert page.evaluate("[lab.run.now, lab.run.settings, lab.run.changes]") == before


def test_address_has_the_time_at_which_a_run_stands(page: Page) -> None:
    page.select_option("#scenario", "name:small-gateway")
    until(page, "lab.run.isOpen && lab.run.name === 'small-gateway'")
    page.select_option("#speed", "100")
    page.click("#play")
    until(page, "lab.run.now > 2")
    page.click("#play")
    until(page, "!lab.run.isRunning && lab.run.queue.length === 0")
    until(page, "JSON.parse(decodeURIComponent(location.hash.slice(1))).at === lab.run.now")
    page.click("#second")
    until(page, "JSON.parse(decodeURIComponent(location.hash.slice(1))).at > 3")


def test_wrong_seed_is_told_and_the_run_stays(page: Page) -> None:
    seed = page.input_value("#seed")
    page.fill("#seed", "-1")
    page.press("#seed", "Tab")
    page.wait_for_selector("#message:not([hidden])")
    assert page.inner_text("#message") == "seed: found -1; allowed: a whole number from 0"
    assert page.input_value("#seed") == seed
    page.click("#second")
    until(page, "lab.run.now >= 1")


def test_scenario_with_a_mistake_runs_nothing_until_it_is_mended(page: Page, folder: Path) -> None:
    page.evaluate("lab.run.play()")
    (folder / "wrong.toml").write_text(SHORT.replace("[run]", "[run]\nwrong = 1"))
    page.reload()
    page.wait_for_selector("body[data-ready=true]")
    until(page, "lab.run.isOpen")
    page.select_option("#scenario", "file:wrong.toml")
    page.wait_for_selector("#text-error:not([hidden])")
    page.keyboard.press("Escape")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("ArrowRight")
    page.evaluate("document.getElementById('restart').click()")
    assert page.evaluate("[lab.run.isOpen, lab.run.found, document.getElementById('bar').inert]") == [
        False,
        None,
        True,
    ]
    page.fill("#text", SHORT)
    until(page, "lab.run.isOpen")
    page.click("#second")
    until(page, "lab.run.now >= 1")
    (folder / "wrong.toml").unlink()


def test_run_at_the_end_begins_again(page: Page) -> None:
    page.select_option("#jump", "end")
    until(page, "lab.run.now >= lab.run.end && !lab.run.isRunning")
    page.select_option("#speed", "1")
    page.click("#play")
    until(page, "lab.run.isRunning && lab.run.now > 0.1 && lab.run.now < lab.run.end")
    page.click("#play")
    until(page, "!lab.run.isRunning")


def test_two_tabs_have_runs_of_their_own(page: Page, entered: tuple[BrowserContext, str]) -> None:
    context, address = entered
    other = context.new_page()
    ready(other, address)
    other.click("#second")
    until(other, "lab.run.now >= 1")
    assert page.evaluate("lab.run.now") == 0
    other.close()


def test_views_are_saved_as_pictures(page: Page, tmp_path: Path) -> None:
    run_to_the_end(page)
    for button, begin in (("SVG", b"<svg xmlns"), ("PNG", b"\x89PNG")):
        with page.expect_download() as waiting:
            page.get_by_role("button", name=button, exact=True).click()
        waiting.value.save_as(tmp_path / button)
        content = (tmp_path / button).read_bytes()
        assert content.startswith(begin)
        assert len(content) > 5000


def test_values_of_a_chart_are_the_last_ones_again_without_a_cursor(page: Page) -> None:
    run_to_the_end(page)
    caption = page.locator("#grid figcaption").first
    until(page, "/[0-9]/.test(document.querySelector('#grid figcaption').textContent)")
    before = caption.inner_text()
    chart = page.locator("#grid .u-over").first
    chart.hover(position={"x": 5, "y": 20})
    until(page, f"document.querySelector('#grid figcaption').innerText !== {json.dumps(before)}")
    page.mouse.move(2, 2)
    until(page, f"document.querySelector('#grid figcaption').innerText === {json.dumps(before)}")


def test_saved_picture_has_the_curves_of_charts_out_of_view(page: Page, tmp_path: Path) -> None:
    page.set_viewport_size({"width": 500, "height": 300})
    run_to_the_end(page)
    with page.expect_download() as waiting:
        page.evaluate("document.querySelector('#charts .group button').click()")
    waiting.value.save_as(tmp_path / "charts.svg")
    svg = (tmp_path / "charts.svg").read_text()
    lines = re.findall(r' d="([^"]*)"><title>([^<]*)</title></path>', svg)
    assert page.evaluate("lab.run.charts.visible.size < lab.run.charts.charts.length")
    for wanted in ("throughput", "queueing delay", "web"):
        curves = [line.count("L") for line, label in lines if label == wanted]
        assert len(curves) == 2
        assert min(curves) > 10, wanted


def test_result_shows_charts_differences_and_flows(page: Page) -> None:
    page.click("[data-view=results]")
    page.get_by_role("button", name="result", exact=True).click()
    page.wait_for_selector("#result-grid figure")
    assert "bentpipe compare small-gateway --settings red,avqred" in page.inner_text("#result code")
    page.select_option("#one", "red")
    page.select_option("#other", "avqred")
    page.wait_for_selector("#difference-grid figure")
    page.get_by_label("Flows of").select_option("red")
    page.get_by_role("button", name="Show flow").first.click()
    zooms = "[...lab.results.charts.linked].map(each => JSON.stringify(each.view.zoom))"
    shown = page.evaluate(zooms)
    assert len(shown) == 2, "the difference zooms, too"
    assert shown[0] == shown[1] != "null"
    page.get_by_role("button", name="Report", exact=True).click()
    frame = page.frame_locator("#report-frame iframe")
    assert frame.locator("h1").first.inner_text()


def test_result_chosen_last_is_shown(page: Page, folder: Path) -> None:
    held: list[Route] = []
    page.route("**/api/series?path=result&*", lambda route: held.append(route))
    page.click("[data-view=results]")
    with page.expect_request("**/api/series?path=result&*"):
        page.get_by_role("button", name="result", exact=True).click()
    page.get_by_role("button", name="beam", exact=True).click()
    page.wait_for_selector("#result-grid figure")
    until(page, "lab.results.charts.runs?.[0].label === 'droptail'")
    wait_for(lambda: len(held) == len(bp.open(folder / "result").settings))
    for route in held:
        with page.expect_response("**/api/series?path=result&*"):
            route.continue_()
    page.wait_for_timeout(200)
    assert page.locator("#result-grid figcaption span").first.inner_text() == "droptail"
    assert page.evaluate("lab.results.runs.map(run => run.label)") == ["droptail"]
    assert page.evaluate("location.hash") == "#result=beam"


def test_opened_results_leave_no_charts_behind(page: Page) -> None:
    page.click("[data-view=results]")
    members = "uPlot.sync('result-grid').plots.length"
    counts = []
    for _ in range(3):
        page.evaluate("window.before = lab.results.charts")
        page.get_by_role("button", name="result", exact=True).click()
        until(page, "lab.results.charts !== window.before && lab.results.charts?.charts.length > 0")
        counts.append(page.evaluate(members))
    assert counts[0] == counts[1] == counts[2] > 0


def test_result_with_a_percent_sign_opens_again_on_reload(page: Page, folder: Path) -> None:
    shutil.copytree(folder / "result", folder / "loss 1%")
    page.reload()
    page.wait_for_selector("body[data-ready=true]")
    page.click("[data-view=results]")
    page.get_by_role("button", name="loss 1%", exact=True).click()
    page.wait_for_selector("#result-grid figure")
    until(page, "location.hash.startsWith('#result=')")
    page.reload()
    page.wait_for_selector("body[data-ready=true]")
    page.wait_for_selector("#result-grid figure")
    shutil.rmtree(folder / "loss 1%")


def test_damaged_link_is_told(entered: tuple[BrowserContext, str]) -> None:
    context, address = entered
    page = context.new_page()
    ready(page, f"{address}#%7B%")
    assert page.inner_text("#message").startswith("The link is damaged")
    page.close()


def test_link_to_a_result_that_is_gone_is_told(entered: tuple[BrowserContext, str]) -> None:
    context, address = entered
    page = context.new_page()
    ready(page, f"{address}#result=gone")
    assert page.inner_text("#message").endswith("gone: holds no result")
    assert page.locator("#results-view").is_visible()
    page.close()


def test_sweep_is_shown_as_small_multiples(page: Page) -> None:
    page.click("[data-view=results]")
    page.get_by_role("button", name="sweep", exact=True).click()
    page.wait_for_selector("#sweep-grid figure >> nth=1")
    captions = page.locator("#sweep-grid figcaption").all_inner_texts()
    assert [text.split("\n")[0].split("throughput")[0].strip() for text in captions] == ["red", "ared"]
    page.select_option("#sweep-metric", "queue_delay_mean")
    page.select_option("#sweep-factor", "gateway.aqm.min_th")
    assert "queue_delay_mean [ms]" in page.locator("#sweep-grid").inner_text()
    # As a correlation, all values are below zero.
    page.evaluate("""() => {
        for (const row of lab.results.found.rows) if (row.metric === 'queue_delay_mean') row.mean = -1;
        document.getElementById('sweep-metric').dispatchEvent(new Event('change'));
    }""")
    assert page.evaluate("lab.results.plots.map(plot => plot.scales.y.max)") == [0, 0]
    page.evaluate("""() => {
        for (const row of lab.results.found.rows) if (row.metric === 'queue_delay_mean') row.mean = null;
        document.getElementById('sweep-metric').dispatchEvent(new Event('change'));
    }""")
    assert page.locator("#sweep-grid").inner_text() == "No run has a value of queue_delay_mean."


def test_terminal_is_shown_in_charts_on_a_click(page: Page) -> None:
    page.click("[data-view=results]")
    page.get_by_role("button", name="beam", exact=True).click()
    page.get_by_label("Terminals of").select_option("droptail")
    page.get_by_role("button", name="Show terminal ship").click()
    page.wait_for_selector("#terminal-grid figure")
    assert "terminal ship, droptail" in page.inner_text("#terminal-grid")


def test_page_is_small_and_complete() -> None:
    sizes = {path.relative_to(PAGE): path.stat().st_size for path in PAGE.rglob("*") if path.is_file()}
    assert sum(sizes.values()) < 1_000_000
    # Nothing comes from elsewhere.
    for path in PAGE.glob("*.*"):
        assert "https://" not in path.read_text(), path


# ----- processes --------------------------------------------------------------------------------------------


@pytest.fixture
def alone(folder: Path, browser: Browser) -> Iterator[tuple[Page, Callable[[], list[int]]]]:
    """A page of a separate lab, and the processes of that lab's playbacks."""
    mine = set(children(os.getpid()))
    with lab(folder, "short.toml") as (port, token):
        begun = set(children(os.getpid())) - mine
        (server,) = {each for each in begun if b"bentpipe" in Path(f"/proc/{each}/cmdline").read_bytes()}
        page = browser.new_page()
        ready(page, f"http://127.0.0.1:{port}/?token={token}")

        def playbacks() -> list[int]:
            # The resource tracker of multiprocessing is another child.
            return [
                each
                for each in children(server)
                if b"spawn_main" in Path(f"/proc/{each}/cmdline").read_bytes()
            ]

        yield page, playbacks
        page.close()


def test_crash_of_a_run_is_a_message_and_the_page_goes_on(
    alone: tuple[Page, Callable[[], list[int]]],
) -> None:
    page, playbacks = alone
    (pid,) = playbacks()
    os.kill(pid, 9)
    page.wait_for_selector("#message:not([hidden])")
    assert "the process of the run ended with signal 9" in page.inner_text("#message")
    page.click("#restart")
    until(page, "lab.run.isOpen")
    run_to_the_end(page)


def test_closing_the_page_ends_its_process(alone: tuple[Page, Callable[[], list[int]]]) -> None:
    page, playbacks = alone
    assert len(playbacks()) == 1
    page.select_option("#speed", "0")
    page.click("#play")
    page.close()
    wait_for(lambda: not playbacks())


@pytest.mark.long
def test_hundred_runs_in_a_row_need_no_more_memory(alone: tuple[Page, Callable[[], list[int]]]) -> None:
    page, playbacks = alone
    (pid,) = playbacks()

    def resident() -> int:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

    memory = []
    page.select_option("#speed", "0")
    for _ in range(100):
        page.click("#restart")
        until(page, "lab.run.isOpen && lab.run.now === 0")
        page.click("#play")
        until(page, "lab.run.now >= lab.run.end")
        memory.append(resident())
    assert playbacks() == [pid]
    assert max(memory[-10:]) < 1.1 * max(memory[10:30]) + 4e6


def test_libraries_of_the_page_are_those_that_were_published() -> None:
    packages = json.loads((PAGE / "vendor" / "vendor.json").read_text())
    listed_files = {file["name"]: file["sha256"] for package in packages for file in package["files"]}
    there = {path.name for path in (PAGE / "vendor").iterdir()} - {"vendor.json"}
    assert there == set(listed_files)
    for name, digest in listed_files.items():
        assert hashlib.sha256((PAGE / "vendor" / name).read_bytes()).hexdigest() == digest
    assert all(package["license"] in {"MIT", "BSD-3-Clause"} for package in packages)
