"""A gateway with several terminals: results, metrics, figures and the picture."""

from pathlib import Path

import polars as pl
import pytest
from playwright.sync_api import Browser

import bentpipe as bp
from bentpipe.report.comparison import render
from bentpipe.report.picture import picture
from bentpipe.report.picture_text import network
from bentpipe.report.terminal_charts import terminal_figures, worst_terminals
from bentpipe.report.terminal_series import evenly, terminal_series_figures
from bentpipe.stats.recorded import jain

NAMES = ["home.0", "home.1", "home.2", "ship"]
BEAM = """
title = "Three homes and a ship"
[run]
warmup = "2 s"
duration = "6 s"
[host.server]
[host.resident]
count = 6
[host.crew]
[terminal.home]
count = 3
plan = "home"
[terminal.ship]
plan = "ship"
[plan.home.down]
[plan.ship.down]
cir = "2 Mbps"
pir = "3 Mbps"
[gateway]
terminals = ["home", "ship"]
queues_per = "terminal"
regulator = { rate = "8 Mbps" }
[gateway.transmit_queue]
limit = "20 packets"
[link.ingress]
between = ["server", "gateway"]
[link.homes]
between = ["gateway", "home"]
delay = "5 ms"
[link.ships]
between = ["gateway", "ship"]
delay = "5 ms"
[link.lan]
between = ["home", "resident"]
[link.deck]
between = ["ship", "crew"]
[traffic.homes]
kind = "cbr"
from = "server"
to = "resident"
flows = 6
rate = "2 Mbps"
packet = "1000 B"
[traffic.ships]
kind = "cbr"
from = "server"
to = "crew"
flows = 1
rate = "5 Mbps"
packet = "1000 B"
"""


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> bp.Result:
    folder = tmp_path_factory.mktemp("terminals")
    path = folder / "beam.toml"
    path.write_text(BEAM, encoding="utf-8")
    return bp.compare(path, settings=["droptail", "drr"], runs=1, out=folder / "result")


def test_a_result_has_a_row_for_each_terminal(result: bp.Result) -> None:
    found = result.terminals()
    for setting in result.settings:
        mine = found.filter(pl.col("setting") == setting)
        assert mine["terminal"].to_list() == NAMES
        # Of 8 Mbit/s the ship gets its peak rate of 3, the homes share 5; 972 of 1000 bytes are payload.
        expected = [0.972 * each for each in (5 / 3, 5 / 3, 5 / 3, 3)]
        assert (mine["goodput"] / 1e6).to_list() == pytest.approx(expected, rel=0.02)
        assert mine["carrier_seconds"].sum() == pytest.approx(6, rel=1e-3)
    assert result.one("terminals", "drr", 1).columns == found.columns[2:]


def test_metrics_of_terminals_agree_with_their_table(result: bp.Result) -> None:
    values = result.values()["droptail"]
    table = result.terminals().filter(pl.col("setting") == "droptail")
    homes = table.filter(pl.col("group") == "home")["goodput"]
    assert values["terminal_goodput_min"] == [pytest.approx(table["goodput"].min() / 1e6)]  # type: ignore[operator]
    assert values["terminal_jain_index"] == [pytest.approx(jain(homes))]
    # Homes and the ship have the weight 1.
    assert values["terminal_weighted_jain_index"] == [pytest.approx(jain(table["goodput"]))]
    delays = table["queue_delay_p95"]
    assert values["terminal_delay_p95_max"] == [pytest.approx(delays.max() * 1e3)]  # type: ignore[operator]


def test_figures_show_each_group_of_terminals(result: bp.Result) -> None:
    found = terminal_figures(result)
    assert [figure.name for figure in found] == ["terminal-goodput", "terminal-delay", "terminal-carrier"]
    assert all(len(figure.panels) == 2 for figure in found)


def test_the_report_lists_the_terminals_that_wait_longest(result: bp.Result) -> None:
    droptail, drr = worst_terminals(result)
    assert (droptail["setting"], drr["setting"]) == ("droptail", "drr")
    for each in (droptail, drr):
        names = [row[0] for row in each["rows"]]
        # 20 packets leave a home at 5/3 Mbit/s and the ship at 3.
        assert names == NAMES
        drops, carrier = ([float(row[at]) for row in each["rows"]] for at in (3, 4))
        # Homes get 5/3 of 4 Mbit/s, the ship 3 of 5.
        assert drops == pytest.approx([100 * (1 - 5 / 12)] * 3 + [40], rel=0.01)
        assert carrier == pytest.approx([100 * 5 / 24] * 3 + [37.5], rel=0.01)
    assert "Terminals that wait longest" in render(result)


def test_series_of_terminals_add_up_to_their_totals(result: bp.Result) -> None:
    interval = 6 / 60
    sums = (
        result.terminal_series()
        .group_by("setting", "seed", "terminal", maintain_order=True)
        .agg(
            pl.len(),
            (pl.col("throughput").sum() * interval / 8).round().alias("sent_bytes"),
            pl.col("carrier_share").sum() * interval,
            pl.col("queue_delay").min().alias("least"),
            pl.col("queue_delay").max().alias("most"),
        )
    )
    both = result.terminals().join(sums, on=["setting", "seed", "terminal"], suffix="_sum", validate="1:1")
    assert (sums["len"] == 60).all()
    assert both["sent_bytes_sum"].to_list() == both["sent_bytes"].to_list()
    assert both["carrier_share"].to_list() == pytest.approx(both["carrier_seconds"].to_list(), rel=1e-9)
    # The mean of the whole run is exact to 1 %.
    assert (both["least"] <= both["queue_delay_mean"] * 1.01).all()
    assert (both["most"] >= both["queue_delay_mean"] * 0.99).all()


def test_the_heat_map_begins_with_the_terminal_that_waits_longest(result: bp.Result) -> None:
    heat, one = terminal_series_figures(result)
    means = result.terminal_series().group_by("terminal").agg(pl.col("queue_delay").mean())
    expected = means.sort("queue_delay", descending=True)["terminal"].to_list()
    assert len(heat.panels) == 2
    for panel in heat.panels:
        (rows,) = panel.chart.to_dict()["datasets"].values()
        assert [row["terminal"] for row in rows] == expected
    known = one.panels[0].chart.to_dict()["usermeta"]["terminal"]["values"]
    assert list(known) == expected


def test_click_on_the_heat_map_chooses_the_terminal(
    browser: Browser, result: bp.Result, tmp_path: Path
) -> None:
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    page.goto(Path(result.report(tmp_path / "report.html")).as_uri())
    page.wait_for_selector("html[data-charts=drawn]")
    listed = page.locator("select.terminal").first
    before = listed.input_value()
    cell = page.locator("#terminal-heat .mark-rect.role-mark path").last
    cell.click()
    chosen = cell.evaluate("cell => cell.__data__.datum.terminal")
    assert chosen != before
    assert listed.input_value() == chosen
    page.close()


def test_the_heat_map_of_many_terminals_has_rows_at_equal_distances() -> None:
    names = [str(number) for number in range(1000)]
    assert evenly(names, 5) == ["0", "250", "500", "749", "999"]
    assert evenly(names[:3], 5) == ["0", "1", "2"]
    assert evenly(names[:1], 5) == ["0"]


USERS = """
title = "Homes with pages and calls"
[run]
warmup = "2 s"
duration = "20 s"
[host.server]
[host.resident]
count = 6
[terminal.home]
count = 3
[gateway]
terminals = ["home"]
queues_per = "terminal"
regulator = { rate = "2 Mbps" }
[link.ingress]
between = ["server", "gateway"]
[link.homes]
between = ["gateway", "home"]
delay = "5 ms"
[link.lan]
between = ["home", "resident"]
[traffic.web]
kind = "pages"
from = "server"
to = "resident"
sessions = 6
objects_per_page = 2
object_size = "20 KB"
think_time = { exponential = "1 s" }
[traffic.voice]
kind = "voip"
from = "server"
to = "resident"
flows = 3
"""


def test_pages_and_calls_of_terminals_add_up_to_those_of_the_classes(tmp_path: Path) -> None:
    path = tmp_path / "users.toml"
    path.write_text(USERS, encoding="utf-8")
    found = bp.compare(path, settings=["droptail"], runs=1, out=tmp_path / "result")
    table, counters = found.terminals(), found.counters_of("droptail", 1)
    assert table["pages"].sum() == counters["web.pages"]
    loading = float((table["pages"] * table["page_time_mean"]).sum()) / int(table["pages"].sum())
    assert loading == pytest.approx(counters["web.page_time_mean"], rel=0.01)
    calls = found.flows().filter(pl.col("class").cast(pl.String) == "voice").sort("flow")
    assert calls["terminal"].cast(pl.String).to_list() == ["home.0", "home.1", "home.2"]
    (worst,) = worst_terminals(found)
    # Each home has one call.
    scores = [float(row[6]) for row in worst["rows"]]
    assert sum(scores) / 3 == pytest.approx(found.values()["droptail"]["voice.mos"][0], abs=1e-3)


def test_a_result_with_one_terminal_says_that_it_has_no_such_table(tmp_path: Path) -> None:
    alone = bp.compare("small-gateway", set=["run.duration=2 s"], runs=1, out=tmp_path / "result")
    with pytest.raises(bp.ResultError, match="no gateway of the scenario has several terminals"):
        alone.terminals()
    assert terminal_figures(alone) == []
    with pytest.raises(bp.ResultError, match="has no series of terminals"):
        alone.terminal_series()
    assert terminal_series_figures(alone) == []
    assert worst_terminals(alone) == []
    assert not any(metric.of_terminals for metric in alone.known_metrics)


def test_the_picture_names_the_terminals_and_their_plans() -> None:
    home = network(bp.Scenario.parse(BEAM, "beam.toml", [])).nodes["home"]
    assert (home.count, home.note) == (3, "terminals; plan home (weight 1)")
    drawn = picture(bp.Scenario.parse(BEAM, "beam.toml", []))
    assert "× 3" in drawn
    assert "terminals; plan home (weight 1)" in drawn


def test_rain_takes_more_of_the_carrier_than_the_committed_rates_leave(tmp_path: Path) -> None:
    (tmp_path / "beam.toml").write_text(BEAM)
    capacity = '{ uniform = ["1 Mbps", "4 Mbps"], every = "100 ms" }'
    changes = {
        "gateway.regulator.rate": "link",
        "link.homes.rate": "8 Mbps",
        "link.ships.capacity": capacity,
        "run.sample_interval": "100 ms",
        "run.duration": "60 s",
    }
    result = bp.run(tmp_path / "beam.toml", set=changes, out=tmp_path / "result")
    (values,) = result.values().values()
    # 2 Mbit/s at 1 to 4 Mbit/s: at most twice the carrier's time, and more than all of it below 2 Mbit/s. The
    # share of 600 independent draws has a standard deviation of 1.9 %.
    assert 180 < (values["committed_share_max"][0] or 0) <= 200
    assert values["committed_excess"][0] == pytest.approx(100 / 3, abs=8)
    fixed = bp.run(tmp_path / "beam.toml", out=tmp_path / "fixed")
    assert next(iter(fixed.values().values()))["committed_excess"] == [None]
