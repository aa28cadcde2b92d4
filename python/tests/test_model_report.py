import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from conftest import Command
from playwright.sync_api import Browser
from test_report import opened

import bentpipe as bp
from bentpipe import _core
from bentpipe.models.engines import Account, Moments, compared
from bentpipe.models.findings import findings, known_failures
from bentpipe.models.validation import Stationary
from bentpipe.report.fluid import _capacity
from bentpipe.report.overlays import over_time, ratios
from bentpipe.runs.store import _is_changed

_MARKS = """chart => [...chart.querySelectorAll(".mark-line path, .mark-symbol path")].map(
    mark => [mark.closest(".mark-line") !== null, (mark.getAttribute("d") || "").length])"""
"""Marks of a chart: whether each is a line, and the length of its path."""


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> bp.Validation:
    scenario = bp.load("red-dumbbell", set={"run.duration": "60 s", "run.warmup": "10 s"})
    return bp.validate(
        scenario, ["RED 60/120", "droptail"], runs=2, out=tmp_path_factory.mktemp("v") / "both"
    )


def rows_of(
    simulator: dict[str, tuple[float, float]], model: dict[str, tuple[float, float]]
) -> list[dict[str, Any]]:
    """Return rows of one setting, with a hundredth of the mean as the simulator's interval."""
    ours = {
        name: [Moments(mean * (1 + side * 0.01 / 12.7062), std) for side in (-1, 1)]
        for name, (mean, std) in simulator.items()
    }
    theirs = {name: [Moments(*pair)] for name, pair in model.items()}
    accounts = [Account("simulator", "", {"A": ours}, {}), Account("model", "", {"A": theirs}, {})]
    return compared(accounts, ["A"])


INPUTS = {
    "A": {
        "equations": "gateway",
        "effective": [{"key": "gateway.pep.delay", "value": "12 ms"}],
        "inputs": [
            {"symbol": "m", "what": "", "value": 400.0, "unit": ""},
            {"symbol": "R", "what": "", "value": 0.06, "unit": "s"},
            {"symbol": "S", "what": "", "value": 1400.0, "unit": "bytes"},
            {"symbol": "1 - decr", "what": "", "value": 0.5, "unit": ""},
            {"symbol": "MaxRcvWin", "what": "", "value": 11.0, "unit": "segments"},
        ],
    }
}


@pytest.mark.parametrize(
    ("mean", "words"),
    [
        (100.9, "agrees under A."),
        (104.0, "agrees under A."),
        (110.0, "is more by up to a quarter under A (× 1.1)."),
        (80.0, "is less by up to a quarter under A (× 0.8)."),
        (140.0, "is more, but below twice under A (× 1.4)."),
        (60.0, "is less, but above half under A (× 0.6)."),
        (40.0, "is half or less under A (× 0.4)."),
        (200.0, "is twice or more under A (× 2)."),
        (0.0, "is zero under A."),
    ],
)
def test_verdict_follows_from_ratio_of_means(mean: float, words: str) -> None:
    rows = rows_of({"queue": (100.0, 10.0)}, {"queue": (mean, 10.0)})
    found = findings(rows, ["simulator", "model"], {})
    assert found.lines == (f"Queue: the model's {words}".replace("× ", "×\u00a0"),)
    agrees = int("agrees" in words)
    assert found.summary[0].startswith(f"Of 1 mean of the model, {agrees} lie")
    assert found.reasons == ()


def test_a_quantity_that_the_first_engine_lacks_has_no_sentence() -> None:
    queue, loss = [Moments(50.0, 9.0)], [Moments(1.0, 0.1)]
    accounts = [
        Account("simulator", "", {"A": {"queue": queue}}, {}),
        *(Account(name, "", {"A": {"queue": queue, "loss_rate": loss}}, {}) for name in ("model", "live")),
    ]
    found = findings(compared(accounts, ["A"]), ["simulator", "model", "live"], {})
    assert found.lines == ("Queue: the model's agrees under A.", "Queue: the live run's agrees under A.")


def test_steady_and_oscillating_queues_are_reported() -> None:
    still = findings(rows_of({"queue": (50.0, 20.0)}, {"queue": (50.0, 1.9)}), ["simulator", "model"], {})
    assert "is steady under A (1.9 against 20 packets)" in still.lines[1]
    wild = findings(rows_of({"queue": (50.0, 20.0)}, {"queue": (50.0, 41.0)}), ["simulator", "model"], {})
    assert "twice the standard deviation under A (41 against 20 packets)" in wild.lines[1]
    alike = findings(rows_of({"queue": (50.0, 20.0)}, {"queue": (50.0, 39.0)}), ["simulator", "model"], {})
    assert len(alike.lines) == 1


def test_window_below_one_segment_is_reported_with_its_equilibrium() -> None:
    # 24.6 Mbit/s of 1400 B segments are 2196.4 segments/s; in 60 ms, 400 connections have 0.3295 each.
    # Increase and decrease are in equilibrium at 1 / (1 + 0.3295² / 2) = 94.9 %.
    rows = rows_of(
        {"offered_load": (24.6, 1.0), "mark_probability": (18.0, 4.0)},
        {"offered_load": (68.0, 1.0), "mark_probability": (70.0, 4.0)},
    )
    (reason,) = findings(rows, ["simulator", "model"], INPUTS).reasons
    assert "under A 0.33 segments, equilibrium at 95 %, 18 % in the simulator" in reason
    other = {"A": {**INPUTS["A"], "equations": "end_to_end"}}
    assert findings(rows, ["simulator", "model"], other).reasons == ()
    # 900 Mbit/s are 12.05 segments each; the receive window is 11.
    rows = rows_of({"offered_load": (124.6, 1.0)}, {"offered_load": (900.0, 1.0)})
    (reason,) = findings(rows, ["simulator", "model"], INPUTS).reasons
    assert "under A (12.1 segments in flight, receive window 11)" in reason


def test_model_names_settings_for_which_its_equations_fail() -> None:
    # 1796.4 packets/s are 20 Mbit/s of 1391 B; in 60 ms, 400 connections have 0.27 each, and 90 have 1.2.
    known = {"μ": 1796.4, "R": 0.06, "m": 400.0, "S": 1400.0, "MaxRcvWin": 11.0}
    behind_pep = [{"key": "gateway.pep.delay", "value": "12 ms"}]

    def failures(
        equations: str, load: float = 60.0, effective: Sequence[object] = (), **changes: float
    ) -> list[str]:
        inputs = [{"symbol": symbol, "value": value} for symbol, value in {**known, **changes}.items()]
        row = {"setting": "A", "quantity": "offered_load", "mean": load}
        setting = {"name": "A", "equations": equations, "inputs": inputs, "effective": effective}
        return known_failures([setting], [row])

    (small,) = failures("gateway", effective=behind_pep)
    assert small.startswith("Under A a connection has 0.27 segments in flight at the link's capacity.")
    assert "model.equations=timeouts" in small
    (single,) = failures("single_queue")
    assert "model.equations=padhye" in single
    assert "timeouts" not in single
    assert failures("timeouts", effective=behind_pep) == []
    # Without split connections the borders are those of a link.
    (unsplit,) = failures("end_to_end", effective=[*behind_pep, {"key": "gateway.pep.split", "value": "[]"}])
    assert "the equations end_to_end differ from the simulator" in unsplit
    assert failures("end_to_end", m=50.0) == []
    # 250 Mbit/s are 14.9 segments each.
    (large,) = failures("padhye", load=250.0, m=90.0)
    assert large.startswith("Under A a connection has more in flight than its receive window")


def test_datagrams_are_not_in_flight_in_the_connections_windows() -> None:
    """Of 54 segments for each of two connections, 19.8 of 20 Mbit/s are datagrams: 0.5 remain."""
    values = {"μ": 1796.4, "R": 0.06, "m": 2.0, "S": 1400.0, "P": 1391.0, "MaxRcvWin": 11.0, "1 - decr": 0.5}
    inputs: list[dict[str, object]] = [{"symbol": name, "value": value} for name, value in values.items()]
    inputs += [{"symbol": "", "value": 19.8e6, "unit": "bit/s"}]
    inputs += [{"symbol": "μ", "value": capacity} for capacity in (0.0, 2e4)]
    setting = {"name": "A", "equations": "end_to_end", "inputs": inputs, "effective": []}
    lines = known_failures([setting], [{"setting": "A", "quantity": "offered_load", "mean": 20.0}])
    assert [line.partition(" in flight")[0] for line in lines] == ["Under A a connection has 0.51 segments"]
    rows = rows_of(
        {"offered_load": (20.0, 1.0), "mark_probability": (18.0, 4.0)},
        {"offered_load": (20.0, 1.0), "mark_probability": (70.0, 4.0)},
    )
    (reason,) = findings(
        rows, ["simulator", "model"], {"A": {**setting, "equations": "single_queue"}}
    ).reasons
    assert "under A 0.54 segments" in reason


@pytest.mark.parametrize(
    ("changes", "fails"),
    [
        ([], False),
        (["link.satellite.rate=5 Mbps"], False),
        (["link.satellite.rate=3 Mbps"], True),
        (["link.satellite.capacity={ steps = [['0 s', '4 Mbps'], ['10 s', '1 Mbps']] }"], True),
        # The way back is the gateway's if the link is written from the terminal.
        (["link.satellite.reverse.rate=100 kbps"], False),
    ],
)
def test_model_names_links_that_are_slower_than_the_regulator(changes: list[str], fails: bool) -> None:
    """The regulator sends 4 Mbit/s, which the equations take for the capacity."""
    scenario = bp.load("small-gateway", ["run.duration=1 s", "run.warmup=5 s", *changes])
    result = bp.model(scenario, ["red"])
    lines = known_failures(result.manifest["settings"], result.rows())
    assert any("can be slower than the regulator" in line for line in lines) == fails


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ([], ['traffic.web.think_time = { exponential = "1 s" }']),
        (["traffic.web.think_time=0 s"], []),
        (
            ["traffic.web.think_time=0 s", "transport.default.algorithm=cubic"],
            ["transport.default.algorithm = cubic"],
        ),
    ],
)
def test_model_names_what_its_equations_leave_out(changes: list[str], named: list[str]) -> None:
    scenario = bp.load("small-gateway", ["run.duration=1 s", "run.warmup=5 s", *changes])
    result = bp.model(scenario, ["red"])
    lines = known_failures(result.manifest["settings"], result.rows())
    found = [line for line in lines if "equations do not include" in line]
    assert len(found) == len(named)
    assert all(name in line for line, name in zip(found, named, strict=True))


def test_model_follows_a_link_that_its_regulator_follows() -> None:
    steps = "link.satellite.capacity={ steps = [['0 s', '4 Mbps'], ['10 s', '1 Mbps']] }"
    changes = ["run.duration=1 s", "run.warmup=5 s", "gateway.regulator.rate=link", steps]
    result = bp.model(bp.load("small-gateway", changes), ["red"])
    lines = known_failures(result.manifest["settings"], result.rows())
    assert not any("regulator" in line for line in lines)
    capacities = {row["value"] for row in result.manifest["settings"][0]["inputs"] if row["symbol"] == "μ"}
    assert max(capacities) == pytest.approx(4 * min(capacities))


def test_command_warns_above_the_table(bentpipe: Command) -> None:
    done = bentpipe("model", "byun2007-gateway", "--duration", "20 s", "--settings", "RED 4", check=0)
    assert done.stdout.startswith("Warning: Under RED 4 a connection has 0.27 segments in flight")
    quiet = bentpipe("model", "red-dumbbell", "--duration", "20 s", "--settings", "avq", check=0)
    assert "Warning" not in quiet.stdout


def test_line_of_a_changing_capacity_is_its_mean() -> None:
    """As the caption says: 4 Mbit/s up to the middle of ten seconds, then 1 Mbit/s."""
    steps = "link.satellite.capacity={ steps = [['0 s', '4 Mbps'], ['10 s', '1 Mbps']] }"
    changes = ["run.duration=10 s", "run.warmup=5 s", "gateway.regulator.rate=link", steps]
    result = bp.model(bp.load("small-gateway", changes), ["red"])
    assert _capacity(result)["red"] == pytest.approx(2.5, abs=0.05)
    (figure,) = over_time([result.account()], ["red"], _capacity(result), 10.0, 0.1, "")
    assert "the mean of the link's capacity" in figure.caption


def test_mean_on_a_figure_is_that_of_the_table() -> None:
    """Of three packets none is marked, of one all: 25 %."""
    table = pl.DataFrame(
        {
            "time": [0.1, 0.2],
            "offered_load": [3e6, 1e6],
            "mark_probability": [0.0, 1.0],
            "capacity": [4e6, 4e6],
        }
    )
    account = Account("model", "", {"A": {}}, {"A": table})
    (figure,) = over_time([account], ["A"], {"A": 4.0}, 0.2, 0.1, "")
    assert "mean: 25" in json.dumps([panel.chart.to_dict() for panel in figure.panels])


def test_ratio_figure_has_a_point_per_ratio_and_arrows_beyond_the_axis() -> None:
    rows = rows_of(
        {"queue": (100.0, 10.0), "queue_delay": (10.0, 2.0)},
        {"queue": (25.0, 20.0), "queue_delay": (0.0, 0.0)},
    )
    accounts = [Account(name, "", {"A": {}}, {}) for name in ("simulator", "model")]
    figure = ratios(accounts, rows)
    assert figure is not None
    text = json.dumps(figure.panels[0].chart.to_dict())
    points = [json.loads(found) for found in re.findall(r'\{"row": "[^}]*"ratio": [^}]*\}', text)]
    shown = {(p["row"], p["of"]): (p["ratio"], p["beyond"]) for p in points}
    assert shown[("Queue, A", "mean")] == (0.25, False)
    assert shown[("Queue, A", "standard deviation")] == (2.0, False)
    assert shown[("Queueing delay, A", "mean")] == (0.01, True)
    low, high = next((p["low"], p["high"]) for p in points if p["row"] == "Queue, A" and p["of"] == "mean")
    assert low == pytest.approx(25 / 101, rel=1e-4)
    assert high == pytest.approx(25 / 99, rel=1e-4)


@pytest.fixture(scope="module")
def drawn(both: bp.Validation, tmp_path_factory: pytest.TempPathFactory) -> dict[Path, int]:
    """The pages of the validation and of its model, with their numbers of engines."""
    assert isinstance(both.model, bp.ModelResult)
    return {both.report(): 2, both.model.report(tmp_path_factory.mktemp("model") / "model.html"): 1}


@pytest.mark.parametrize("width", [1280, 390])
def test_model_pages_draw_offline_without_errors(
    browser: Browser, drawn: dict[Path, int], width: int
) -> None:
    for path, engines in drawn.items():
        page, complaints, requests = opened(browser, path, width)
        assert complaints == []
        assert requests == [path.as_uri()]
        ids = {figure.get_attribute("id") for figure in page.query_selector_all("figure")}
        over_time = {"over-time-red-60-120", "over-time-droptail"}
        assert ids == over_time | ({"ratios"} if engines == 2 else set())
        charts = page.query_selector_all("[data-chart]")
        # Queue, throughput, load and marks, and under RED the average; each whole and magnified.
        assert len(charts) == 2 * (5 + 4) + (1 if engines == 2 else 0)
        for chart in charts:
            marks = chart.evaluate(_MARKS)
            assert max(length for _, length in marks) > 20
            assert sum(is_line for is_line, _ in marks) in (engines, 0)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.close()


def test_page_shows_summary_and_table(browser: Browser, both: bp.Validation, drawn: dict[Path, int]) -> None:
    page, _, _ = opened(browser, next(iter(drawn)), 1280)
    text = page.inner_text("main")
    assert "Differences between model and simulation" in text
    assert "seeds 1, 2" in text
    assert "fluid equations: end_to_end" in text
    assert page.query_selector(".warnings") is None
    row = page.locator("table.metrics tr", has_text="Throughput").first.inner_text()
    found = next(row for row in both.rows() if row["quantity"] == "throughput")
    assert f"{found['model']['mean']:.2f}" in row
    assert "±" in row
    page.close()


def test_printed_values_and_reconstruction_are_shown(browser: Browser, tmp_path: Path) -> None:
    model = bp.model(bp.load("byun2007-gateway", set={"run.duration": "20 s"}), ["RED 4", "AVQRED"])
    page, complaints, _ = opened(browser, model.report(tmp_path / "model.html"), 1280)
    assert complaints == []
    warnings = page.inner_text(".warnings")
    assert "Under RED 4 and AVQRED a connection has 0.27 segments in flight" in warnings
    assert "Reconstructed equations: gateway" in warnings
    assert "fitted to values printed in its source" in warnings
    assert "not independent" in warnings
    assert "measured series" in page.inner_text("dl.summary")
    inputs = page.inner_text("main")
    assert "long-lived TCP connections" in inputs
    assert "400" in inputs
    page.close()


def test_schema_describes_all_equations() -> None:
    kinds = json.loads(_core.schema())["$defs"]["Equations"]["oneOf"]
    assert {kind["const"] for kind in kinds} >= {"gateway", "new_connections", "single_queue", "end_to_end"}
    assert all(kind["description"].endswith(".") for kind in kinds)
    found = {kind["const"]: "reconstructed" in kind["description"] for kind in kinds}
    assert found["gateway"]
    assert not found["end_to_end"]


def test_markov_scenario_can_be_validated(browser: Browser, tmp_path: Path) -> None:
    scenario = bp.load("mmpp-queue", set={"run.duration": "5 s", "run.warmup": "1 s"})
    both = bp.validate(scenario, ["drop tail"], runs=2, out=tmp_path / "out")
    assert isinstance(both.model, Stationary)
    rows = {row["quantity"]: row for row in both.rows()}
    assert {"throughput", "queue", "queue_delay", "loss_rate"} <= set(rows)
    assert rows["queue"]["model"]["std"] > 0
    assert rows["throughput"]["model"]["std"] is None
    page, complaints, _ = opened(browser, both.report(), 390)
    assert complaints == []
    assert "has no time series" in page.inner_text("main")
    page.close()


def test_commands_write_their_pages(bentpipe: Command, tmp_path: Path) -> None:
    quick = ["red-dumbbell", "--duration", "3 s", "--set", "run.warmup=1 s", "--settings", "RED 60/120"]
    done = bentpipe("model", *quick, "--out", "m", check=0)
    assert "Report: m/report.html" in done.stdout
    done = bentpipe("validate", *quick, "--runs", "1", "--out", "v", check=0)
    assert "Report: v/report.html" in done.stdout
    for path in ("m/report.html", "v/report.html", "v/model/report.html"):
        assert (tmp_path / path).stat().st_size > 500_000


def test_validation_page_can_be_rewritten(
    bentpipe: Command, both: bp.Validation, drawn: dict[Path, int]
) -> None:
    page = both.folder / "report.html"
    assert page in drawn
    before = page.read_bytes()
    page.unlink()
    assert str(page) in bentpipe("report", str(both.folder), check=0).stdout
    assert page.read_bytes() == before
    done = bentpipe("report", str(both.folder), "--figures", "here", check=2)
    assert "simulation" in done.stderr


def test_model_table_of_a_scenario_keeps_printed_values() -> None:
    quick = {"run.duration": "1 s", "run.warmup": "1 s"}
    same = bp.load("byun2007-gateway", set={"model.step": "2 ms"})
    other = bp.load("byun2007-gateway", set={**quick, "model.step": "2 ms"})
    assert not _is_changed(same)
    assert _is_changed(other)
