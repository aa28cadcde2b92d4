"""Live runs with several terminals: plans and tables without root, a small real run as root."""

import ipaddress
import json
import re
import tomllib
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from conftest import why_no_live_run

import bentpipe as bp
from bentpipe.live_runs.chain import CLIENTS, SERVERS, Chain, check
from bentpipe.live_runs.processes import Programs
from bentpipe.live_runs.record import _ENDS, _FLOWS, Recorded
from bentpipe.live_runs.session import Session
from bentpipe.live_runs.terminals import _fairness, with_terminals
from bentpipe.runs.plan import make_plan
from engines_table import Compared, compared, verdict

needs_everything = pytest.mark.skipif(bool(why_no_live_run()), reason=why_no_live_run())
NAMES = [*(f"home.{number}" for number in range(6)), "office.0", "office.1"]


def planned(name: str | Path = "live-terminals", **changes: str) -> tuple[Chain, Session]:
    plan = make_plan(bp.load(str(name), set=changes), settings=None, runs=1)
    found = check(plan)
    return found, Session(plan.settings[0], found, 1, Programs("bentpipe-gateway", "bentpipe-testbed"))


# ----- supported scenarios -----------------------------------------------------------------------------


def test_each_terminal_has_a_satellite_link_and_a_network_of_its_users() -> None:
    found, _ = planned()
    assert [each.name for each in found.terminals] == NAMES
    assert [(each.satellite.link, each.number) for each in found.terminals] == [
        *(("homes", number) for number in range(6)),
        ("offices", 0),
        ("offices", 1),
    ]
    assert [each.rates[1] for each in found.terminals] == [1_000_000] * 6 + [2_000_000] * 2
    assert {name: hosts.side for name, hosts in found.hosts.items()} == {
        "server": SERVERS,
        "resident": CLIENTS,
        "clerk": CLIENTS,
    }
    for number, terminal in enumerate(found.terminals):
        ((four, six),) = found.behind(number)
        for address, network in zip((four, six), terminal.networks, strict=True):
            assert ipaddress.ip_address(address) in ipaddress.ip_network(network)


def test_host_is_behind_the_terminal_with_its_number_modulo_their_count() -> None:
    found, _ = planned(**{"host.resident.count": "18"})
    residents = found.hosts["resident"]
    assert [residents.terminal_of(host) for host in range(8)] == [0, 1, 2, 3, 4, 5, 0, 1]
    assert [pair[0] for pair in found.behind(1)] == ["10.3.1.1", "10.3.1.2", "10.3.1.3"]
    assert len(set(found.addresses(CLIENTS))) == 20


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"terminal.home.count": "18", "host.resident.count": "18"},
            "it has 20 terminals; allowed: one gateway",
        ),
        (
            {"gateway.queues_per": '"subscriber"'},
            'gateway.queues_per is "subscriber"; allowed: "carrier" and "terminal"',
        ),
        (
            {
                "gateway.regulator.rate": '"link"',
                "link.homes.rate": '"20 Mbps"',
                "link.offices.rate": '"20 Mbps"',
            },
            'gateway.regulator.rate is "link" with several terminals; allowed: a rate such as "20 Mbps"',
        ),
        (
            {"run.subject": '"gateway return"'},
            'run.subject is "gateway return" with several terminals; allowed: "gateway"',
        ),
        ({"host.resident.count": "1800"}, "host.resident has more than 250 hosts behind a terminal"),
        ({"gateway.return.marking": '"window"'}, 'its terminal has gateway.return.marking = "window"'),
    ],
)
def test_unsupported_terminals_give_one_message(changes: dict[str, str], problem: str) -> None:
    with pytest.raises(
        bp.UsageError, match=f"^live-terminals cannot be live: {re.escape(problem)}"
    ) as caught:
        planned(**changes)
    assert "\n" not in str(caught.value)


def test_pool_of_terminals_gives_one_message(tmp_path: Path) -> None:
    path = tmp_path / "pooled.toml"
    path.write_text(
        TWO.replace("[terminal.home]", '[pool.marine.down]\nweight = 1\n[terminal.home]\npool = "marine"')
    )
    with pytest.raises(
        bp.UsageError, match=r"^pooled cannot be live: it has pool.marine; allowed: terminals that"
    ):
        planned(path)


def test_traffic_between_terminals_gives_one_message() -> None:
    few = {"terminal.branch.count": "4", "host.clerk.count": "8", "gateway.regulator.rate": '"20 Mbps"'}
    with pytest.raises(
        bp.UsageError, match=r"^mesh-on-board cannot be live: traffic.* from terminal to terminal"
    ):
        planned("mesh-on-board", **few)


# ----- plans and configurations ------------------------------------------------------------------------


def test_plan_has_a_satellite_and_a_lan_for_each_terminal() -> None:
    _, made = planned()
    plan = json.loads(json.dumps(made._plan()))
    segments = {segment["name"]: segment for segment in plan["segments"]}
    each = [name for number in range(8) for name in (f"space-{number}", f"lan-{number}")]
    assert list(segments) == ["internet", *each]
    assert segments["space-7"]["links"] == [{"link": "offices", "against": False, "terminal": 1}]
    assert segments["lan-7"]["links"] == [{"link": "office_access", "against": False}]
    ends = {(end["netns"], end["device"]) for one in plan["segments"] for end in (one["a"], one["b"])}
    assert len(ends) == 2 * len(segments)


def test_gateway_has_the_plans_and_each_terminal_its_rate() -> None:
    _, made = planned()
    gateway = tomllib.loads(made._config("gateway", Path("/keys")))
    assert gateway["terminals"]["queues_per"] == "terminal"
    assert gateway["plan"] == {
        "home": {"pir": "8000000 bps", "weight": 1, "burst": "15000 B"},
        "office": {"cir": "1000000 bps", "weight": 3, "burst": "15000 B"},
    }
    assert "peer" not in gateway["satellite"]
    terminals = [tomllib.loads(made._config(f"terminal-{number}", Path("/keys"))) for number in range(8)]
    assert len({each["satellite"]["local"] for each in terminals}) == 8
    for number, terminal in enumerate(terminals):
        assert terminal["satellite"]["peer"] == gateway["satellite"]["local"]
        assert terminal["satellite"]["rate"] == ("1000000 bps" if number < 6 else "2000000 bps")
        assert terminal["satellite"]["keys"] == f"/keys/terminal-{number}"
        assert terminal["record"]["file"].endswith(f"terminal-{number}.jsonl")


def test_terminals_that_share_their_queues_have_no_plans(tmp_path: Path) -> None:
    path = tmp_path / "shared.toml"
    text = TWO.replace('queues_per = "terminal"\n', "").replace('plan = "home"\n', "")
    path.write_text(text.replace("[plan.home.down]\nweight = 1\n", ""))
    _, made = planned(path)
    gateway = tomllib.loads(made._config("gateway", Path("/keys")))
    assert gateway["terminals"]["queues_per"] == "carrier"
    assert "plan" not in gateway


# ----- tables ------------------------------------------------------------------------------------------

TWO = """
title = "Two terminals"
[run]
warmup = "1 s"
duration = "6 s"
[host.server]
[host.resident]
count = 2
[terminal.home]
count = 2
plan = "home"
[plan.home.down]
weight = 1
[link.outside]
between = ["server", "gateway"]
[gateway]
terminals = ["home"]
queues_per = "terminal"
aqm = { algorithm = "red" }
regulator = { rate = "8 Mbps" }
[gateway.return]
[link.homes]
between = ["gateway", "home"]
reverse = { rate = "1 Mbps" }
[link.inside]
between = ["home", "resident"]
[transport.default]
preset = "linux"
[traffic.down]
kind = "bulk"
from = "server"
to = "resident"
flows = 2
[traffic.up]
kind = "bulk"
from = "resident"
to = "server"
flows = 2
[traffic.web]
kind = "pages"
from = "server"
to = "resident"
sessions = 2
object_size = "10 KB"
think_time = "1 s"
"""
RETURN = (
    "sent_bytes",
    "sent_packets",
    "receive_drops",
    "receive_packets",
    "transmit_drops",
    "transmit_packets",
)


def row(
    name: str, packets: int, sent: int, dropped: int, delays: list[tuple[float, int]]
) -> dict[str, object]:
    """Return a terminal's row of a record, all of it in the second of 60 intervals of 100 ms."""
    intervals: list[list[float]] = [[0, 0, 0.0] for _ in range(60)]
    intervals[1] = [packets, sent, sum(delay * count for delay, count in delays)]
    counts = {"sent_packets": packets, "sent_bytes": sent, "dropped_packets": dropped}
    return {"terminal": name, **counts, "delays": delays, "intervals": intervals}


def recorded(rows: list[dict[str, object]], flows: pl.DataFrame, counters: dict[str, float]) -> Recorded:
    return Recorded(pl.DataFrame(), pl.DataFrame(), flows, pl.DataFrame(), counters, {}, rows)


def test_tables_of_terminals_match_a_worked_example(tmp_path: Path) -> None:
    path = tmp_path / "two.toml"
    path.write_text(TWO)
    scenario = bp.load(path)
    found = check(make_plan(scenario, settings=None, runs=1))
    sent = [("down", "10.3.0.1", 3_000_000), ("down", "10.3.1.1", 750_000), ("up", "10.3.1.1", 600_000)]
    ends = pl.DataFrame(
        [(flow, f"{client}:4000", "10.1.0.1:80") for flow, (_, client, _) in enumerate(sent)],
        schema={"flow": _FLOWS["flow"], **_ENDS},
        orient="row",
    )
    flows = pl.DataFrame(
        [(flow, traffic, carried) for flow, (traffic, _, carried) in enumerate(sent)],
        schema={name: _FLOWS[name] for name in ("flow", "traffic", "bytes")},
        orient="row",
    )
    page = {"traffic": "web", "session": 3, "opened": 1.0, "closed": 1.5, "first_byte": 0.1, "failed": False}
    load = tmp_path / "flows.jsonl"
    load.write_text("".join(json.dumps({"page": page | {"failed": bad}}) + "\n" for bad in (False, True)))
    # The second terminal is first in the record: it was the first to be sent something.
    rows = [row("home.1", 100, 100_000, 1, [(0.01, 100)]), row("home.0", 4, 4000, 0, [(0.02, 3), (0.1, 1)])]
    backs = [
        recorded([], flows, dict.fromkeys(RETURN, 0.0)),
        recorded([row("", 10, 10_000, 2, [(0.5, 9), (1.0, 1)])], flows, dict.fromkeys(RETURN, 5.0)),
    ]
    run = with_terminals(recorded(rows, flows, {}), ends, load, found, scenario, backs)
    assert run.terminals is not None
    home = {each["terminal"]: each for each in run.terminals.rows(named=True)}
    # 3 MB and 750 KB within 6 s; 8 Mbit/s send a byte in 1 µs.
    assert [home[name]["goodput"] for name in ("home.0", "home.1")] == [4e6, 1e6]
    assert [home[name]["carrier_seconds"] for name in ("home.0", "home.1")] == pytest.approx([0.004, 0.1])
    assert home["home.0"]["queue_delay_mean"] == pytest.approx(0.04)
    assert (home["home.0"]["queue_delay_p50"], home["home.0"]["queue_delay_p95"]) == (0.02, 0.1)
    assert (home["home.1"]["dropped_packets"], home["home.1"]["return_dropped_packets"]) == (1, 2)
    assert (home["home.1"]["return_goodput"], home["home.0"]["return_goodput"]) == (8e5, 0)
    assert home["home.0"]["return_queue_delay_mean"] is None
    assert home["home.1"]["return_queue_delay_mean"] == pytest.approx(0.55)
    # Of two pages of the session with the number 3, one failed.
    assert (home["home.1"]["pages"], home["home.1"]["page_time_mean"], home["home.0"]["pages"]) == (1, 0.5, 0)
    assert run.terminal_series is not None
    series = run.terminal_series.filter((pl.col("terminal") == "home.1") & (pl.col("throughput") > 0))
    (only,) = series.rows(named=True)
    assert only["time"] == pytest.approx(0.1)
    assert (only["throughput"], only["queue_delay"], only["carrier_share"]) == pytest.approx((8e6, 0.01, 1.0))
    assert (only["return_throughput"], only["return_queue_delay"]) == pytest.approx((8e5, 0.55))
    assert run.flows["terminal"].cast(pl.String).to_list() == ["home.0", "home.1", "home.1"]
    # Jain's index of 4 and 1: 25 / (2 · 17).
    expected = {"terminal_jain_index": 25 / 34, "terminal_weighted_jain_index": 25 / 34}
    expected |= {"terminal_goodput_min": 1e6, "terminal_delay_p95_max": 0.1, "carrier_seconds": 0.104}
    expected |= {"return_sent_bytes": 5.0, "return_queue_delay_mean": 0.55, "return_queue_delay_p95": 1.0}
    assert {name: run.counters[name] for name in expected} == pytest.approx(expected)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (2, 3, 0, 1)])
def test_group_without_goodput_has_no_fairness_index(order: tuple[int, ...]) -> None:
    found, _ = planned()
    columns = {"group": ["idle", "idle", "busy", "busy"], "goodput": [0.0, 0.0, 1.0, 3.0]}
    table = pl.DataFrame(columns, schema={"group": pl.String, "goodput": pl.Float64})[list(order)]
    table = table.with_columns(queue_delay_p95=pl.lit(0.1), carrier_seconds=pl.lit(1.0))
    four = replace(found, terminals=found.terminals[:4])
    assert _fairness(table, four)["terminal_jain_index"] == pytest.approx(0.8)


def test_live_tables_have_the_columns_of_a_simulation(tmp_path: Path) -> None:
    path = tmp_path / "two.toml"
    path.write_text(TWO)
    scenario = bp.load(path, set={"run.duration": "1 s"})
    found = check(make_plan(scenario, settings=None, runs=1))
    simulated = bp.run(scenario, out=tmp_path / "simulated")
    flows = simulated.flows()
    none = pl.DataFrame(schema={"flow": pl.UInt32, **_ENDS})
    backs = [recorded([], flows, dict.fromkeys(RETURN, 0.0))] * 2
    load = tmp_path / "flows.jsonl"
    load.touch()
    run = with_terminals(recorded([], flows.drop("terminal"), {}), none, load, found, scenario, backs)
    for name in ("terminals", "terminal_series", "pages"):
        (stored,) = (tmp_path / "simulated" / "runs").rglob(f"{name}.parquet")
        table = getattr(run, name)
        expected = pl.read_parquet(stored)
        assert dict(table.schema) == dict(expected.schema), name
        if name != "pages":
            assert table.height == expected.height


# ----- a real run --------------------------------------------------------------------------------------


@needs_everything
def test_terminals_share_a_carrier_by_their_plans_live(tmp_path: Path) -> None:
    text = TWO.replace("[host.resident]\ncount = 2", "[host.resident]\ncount = 2\n[host.clerk]")
    text = text.replace(
        "[link.outside]", '[terminal.office]\nplan = "office"\n[plan.office.down]\nweight = 4\n[link.outside]'
    )
    text = text.replace('terminals = ["home"]', 'terminals = ["home", "office"]')
    text = (
        text.split("[traffic.web]")[0]
        + """
[link.offices]
between = ["gateway", "office"]
reverse = { rate = "1 Mbps" }
delay = "20 ms"
[link.inside_office]
between = ["office", "clerk"]
[traffic.office]
kind = "bulk"
from = "server"
to = "clerk"
"""
    )
    text = text.replace('between = ["gateway", "home"]', 'between = ["gateway", "home"]\ndelay = "20 ms"')
    # Without an AQM data wait for every terminal all the time.
    text = text.replace('rate = "8 Mbps" }', 'rate = "6 Mbps" }').replace('"red"', '"droptail"')
    path = tmp_path / "three.toml"
    path.write_text(
        text.replace('duration = "6 s"', 'duration = "8 s"').replace('warmup = "1 s"', 'warmup = "2 s"')
    )
    live = bp.live(path, out=tmp_path / "live", keep=tmp_path / "kept")
    assert live.invalid == []
    table = {each["terminal"]: each for each in live.terminals().rows(named=True)}
    assert list(table) == ["home.0", "home.1", "office"]
    sent = {name: each["sent_bytes"] for name, each in table.items()}
    # Weights 1, 1 and 4, as bytes, so that a busy machine does not matter.
    assert sent["office"] / (sent["home.0"] + sent["home.1"]) == pytest.approx(2, rel=0.1)
    assert sent["home.0"] / sent["home.1"] == pytest.approx(1, rel=0.1)
    # The queues together have sent what each has.
    counters = live.counters_of(live.settings[0], live.seeds[0])
    assert counters["sent_bytes"] == sum(sent.values())
    returned = sum(each["return_sent_bytes"] for each in table.values())
    assert counters["return_sent_bytes"] == pytest.approx(returned, rel=0.01)
    # The clients behind each terminal sent over its own return link.
    for name in ("home.0", "home.1"):
        assert 0.5e6 < table[name]["return_goodput"] < 1e6
    assert table["office"]["return_goodput"] == 0


# ----- the generated page ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("live", "band", "difference", "judged"),
    [
        ([10.1, 10.3, 10.2], 3, 2.0, "met"),
        ([10.1, 10.4, 10.5], 3, 4.0, "**missed**"),
        ([7.1, 6.9, 7.2], 30, -29.0, "met"),
        ([10.1, 10.4, 10.5], None, 4.0, ""),
    ],
)
def test_medians_within_the_band_are_met(
    live: list[float], band: float | None, difference: float, judged: str
) -> None:
    each = Compared("queue", [9.0, 10.0, 11.0], live, band)
    assert each.difference == pytest.approx(difference)
    assert verdict(each) == judged


def test_difference_from_zero_has_no_verdict() -> None:
    each = Compared("drops", [0.0, 0.0], [1.0, 2.0], 20)
    assert (each.difference, verdict(each)) == (None, "")


def test_runs_without_values_have_no_verdict() -> None:
    each = Compared("drops", [1.0, 2.0], [], 20)
    assert (each.difference, verdict(each)) == (None, "")
    assert compared([each]).splitlines()[-1].split("|")[3].strip() == ""


def test_rows_have_both_engines_the_difference_and_the_band() -> None:
    text = compared([Compared("home: throughput", [2.0, 2.0, 2.0], [2.05, 2.01], 3)])
    assert text.splitlines()[-1] == "| home: throughput | 2 ± 0 | 2.010 – 2.050 | +1.5 % | ± 3 | met |"
