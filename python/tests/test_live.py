"""Live runs: plans, configurations and records without root; small real runs as root."""

import ipaddress
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import polars as pl
import pytest
from conftest import environment, why_no_live_run
from patience import PATIENCE, wait_for
from preloaded import server

import bentpipe as bp
from bentpipe.errors import LiveError
from bentpipe.live_runs import namespaces, privileges, session
from bentpipe.live_runs.chain import CLIENTS, SERVERS, Chain, chain, check
from bentpipe.live_runs.namespaces import Network
from bentpipe.live_runs.privileges import missing_congestion_control, missing_permission
from bentpipe.live_runs.processes import Child, Programs, interruptible, programs
from bentpipe.live_runs.record import (
    _ENDS,
    _FLOWS,
    page_counters,
    probe_counters,
    read_flows,
    read_record,
    repeated_counters,
    unit_counters,
)
from bentpipe.live_runs.session import Session
from bentpipe.qoe import voice
from bentpipe.runs import store
from bentpipe.runs.plan import make_plan, shipped
from bentpipe.stats.differences import between, chosen

ROOT = Path(__file__).parents[2]
needs_root = pytest.mark.skipif(missing_permission() is not None, reason=str(missing_permission()))
NOWHERE = Programs("bentpipe-gateway", "bentpipe-testbed")


def planned(name: str, **changes: str) -> tuple[Chain, Session]:
    plan = make_plan(bp.load(name, set=changes), settings=None, runs=1)
    found = check(plan)
    return found, Session(plan.settings[0], found, 1, NOWHERE)


# ----- supported scenarios -----------------------------------------------------------------------------


def test_links_are_assigned_to_segments() -> None:
    found, _ = planned("live-gateway")
    assert [step.link for step in found.ground] == ["servers", "ingress"]
    assert found.satellite.link == "satellite"
    assert [step.link for step in found.users] == ["access", "clients"]
    assert not any(step.against for step in (*found.ground, found.satellite, *found.users))


def test_link_named_from_its_far_end_is_reversed(tmp_path: Path) -> None:
    changed = bp.load("live-smoke").text.replace(
        'between = ["terminal", "client"]', 'between = ["client", "terminal"]'
    )
    path = tmp_path / "turned.toml"
    path.write_text(changed)
    found, _ = planned(str(path))
    assert [step.against for step in found.users] == [True]
    assert [step.against for step in found.ground] == [False]


def test_every_host_has_its_own_address_on_its_side() -> None:
    found, _ = planned("live-gateway", **{"host.client.count": "260"})
    networks = {SERVERS: ("10.1.0.0/16", "fd00:b:0:1::/64"), CLIENTS: ("10.3.0.0/16", "fd00:b:0:3::/64")}
    for side, count in ((SERVERS, 60), (CLIENTS, 260)):
        pairs = found.addresses(side)
        assert len({four for four, _ in pairs}) == len({six for _, six in pairs}) == count
        for pair in pairs:
            for address, network in zip(pair, networks[side], strict=True):
                assert ipaddress.ip_address(address) in ipaddress.ip_network(network)


def test_mtu_is_the_segment_length_with_headers() -> None:
    found, _ = planned("live-gateway")
    assert found.mtu == 1360 + 20 + 20 + 12  # IPv4, TCP, timestamps


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("red-dumbbell", "it has no gateway"),
        ("two-gateways", "it has 2 gateways"),
        ("beam", "it has 1000 terminals"),
        ("mmpp-queue", "it has no gateway"),
    ],
)
def test_unsupported_scenario_gives_one_message(name: str, problem: str) -> None:
    plan = make_plan(bp.load(name), settings=None, runs=1)
    with pytest.raises(
        bp.UsageError, match=f"{name} cannot be live: {problem}; allowed: one gateway"
    ) as caught:
        check(plan)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"transport": "sctp"}, "traffic.web sends pages over sctp"),
        ({"algorithm": "prague"}, "traffic.web has the congestion control prague"),
    ],
)
def test_unsupported_transport_is_rejected(change: dict[str, str], problem: str) -> None:
    scenario = json.loads(bp.load("live-smoke").canonical())
    if "transport" in change:
        scenario["transports"][0]["protocol"] = "sctp"
    if "algorithm" in change:
        scenario["transports"][0]["algorithm"] = "prague"
    with pytest.raises(bp.UsageError, match=f"^live-smoke cannot be live: {problem}"):
        chain("live-smoke", scenario)


UPLOADS = """
[traffic.backup]
kind = "bulk"
from = "client"
to = "server"
flows = 2
[traffic.photos]
kind = "files"
from = "client"
to = "server"
sources = 2
size = "20 KB"
interval = "500 ms"
[traffic.calls_up]
kind = "cbr"
from = "client"
to = "server"
flows = 2
rate = "100 kbps"
packet = "1000 B"
"""


def with_uploads(folder: Path) -> Path:
    """`live-smoke` with uploads through RED at the terminal, 4 Mbit/s."""
    path = folder / "uploads.toml"
    text = bp.load("live-smoke").text.split("[traffic.web]")[0]
    queues = '[gateway.return]\naqm = { algorithm = "red" }\nregulator = { rate = "4 Mbps" }\n'
    path.write_text(text + queues + UPLOADS + LONG)
    return path


LONG = """
[traffic.long]
kind = "bulk"
from = "server"
to = "client"
flows = 1
"""


def test_uploads_are_sent_by_clients_through_the_queues_of_the_terminal(tmp_path: Path) -> None:
    scenario = bp.load(with_uploads(tmp_path), set={"run.subject": "gateway return"})
    found = check(make_plan(scenario, settings=None, runs=1))
    assert (found.uploads, found.has_return, found.subject) == (True, True, "terminal")
    assert {name: hosts.side for name, hosts in found.hosts.items()} == {"server": SERVERS, "client": CLIENTS}
    downloads, _ = planned("live-smoke")
    path = (found.ground, found.satellite, found.users)
    assert path == (downloads.ground, downloads.satellite, downloads.users)
    assert all(each.largest is None for each in found.listeners)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            'kind = "bulk"\nfrom = "client"',
            'kind = "pages"\nobjects_per_page = 2\nthink_time = "1 s"\nsessions = 2\nobject_size = "9 KB"\n'
            'from = "client"',
            "traffic.backup uploads pages",
        ),
        (
            "flows = 2\n[traffic.photos]",
            'rate_cap = "1 Mbps"\n[traffic.photos]',
            "traffic.backup has rate_cap",
        ),
        (
            "[gateway.return]\n",
            '[gateway.return]\nmarking = "window"\n',
            "its terminal has gateway.return.mark",
        ),
    ],
)
def test_unsupported_upload_gives_one_message(old: str, new: str, problem: str, tmp_path: Path) -> None:
    path = with_uploads(tmp_path)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1).replace("flows = 2\n[traffic.photos]", "[traffic.photos]", 1))
    with pytest.raises(bp.UsageError, match=f"uploads cannot be live: {problem}") as caught:
        check(make_plan(bp.load(path), settings=None, runs=1))
    assert "\n" not in str(caught.value)


QUIC = """
[transport.quic]
protocol = "quic"
algorithm = "cubic"
max_udp_payload = "1350 B"
"""
QUIC_TRANSFER = """
[traffic.long]
kind = "bulk"
from = "server"
to = "client"
transport = "quic"
flows = 1
"""


def over_quic(folder: Path, *traffic: str) -> str:
    """Write live-smoke with other traffic, by default a transfer over QUIC."""
    path = folder / "over-quic.toml"
    head = bp.load("live-smoke").text.split("[traffic.web]")[0]
    path.write_text(head + QUIC + "".join(traffic or [QUIC_TRANSFER]))
    return str(path)


def test_quic_is_served_by_the_testbed_beside_the_kernels_tcp(tmp_path: Path) -> None:
    tcp = '[traffic.tcp]\nkind = "bulk"\nfrom = "server"\nto = "client"\ntransport = "linux"\n'
    found, made = planned(over_quic(tmp_path, QUIC_TRANSFER, tcp))
    assert [(each.traffic, each.congestion) for each in found.listeners] == [("long", ""), ("tcp", "cubic")]
    assert found.congestions == ["cubic"]
    assert found.transport["name"] == "linux"
    assert made._plan()["traffic"]["long"] == {"port": 8000, "by": "serve", "family": 4}
    # Alone, nothing is left to the kernel.
    found, made = planned(over_quic(tmp_path))
    assert (found.congestions, found.transport, found.mtu, found.notes) == ([], {}, 1500, ())
    assert "tcp" not in tomllib.loads(made._config("gateway", Path("/keys")))


@pytest.mark.parametrize(
    ("more", "changes", "problem"),
    [
        (
            '[traffic.calls]\nkind = "voip"\nfrom = "server"\nto = "client"\ntransport = "quic"\n',
            {},
            "traffic.calls sends voip over quic",
        ),
        (
            "",
            {"transport.quic.max_udp_payload": "1473 B"},
            "transport.quic has max_udp_payload = 1473 B, and the MTU has room for 1472 B",
        ),
        (
            "",
            {"transport.quic.zero_rtt": "1 h"},
            "transport.quic has zero_rtt, which only simulations know",
        ),
        (
            "",
            {"transport.quic.scone": "true", "transport.quic.max_udp_payload": "1215 B"},
            "transport.quic has scone, which only simulations know",
        ),
        (
            "",
            {"gateway.throughput_advice": "share"},
            r"its gateway gives throughput advice \(gateway.throughput_advice\)",
        ),
        (
            '[traffic.web]\nkind = "pages"\nfrom = "server"\nto = "client"\ntransport = "quic"\n'
            'sessions = 1\nobject_size = "1 KB"\nhttp = "3"\nkeep_alive = "1 min"\n',
            {},
            "traffic.web has keep_alive, which only simulations know",
        ),
    ],
)
def test_unsupported_quic_gives_one_message(
    tmp_path: Path, more: str, changes: dict[str, str], problem: str
) -> None:
    with pytest.raises(bp.UsageError, match=f"^over-quic cannot be live: {problem}; allowed: one") as caught:
        planned(over_quic(tmp_path, QUIC_TRANSFER, more), **changes)
    assert "\n" not in str(caught.value)


def test_marks_behind_the_pep_are_refused() -> None:
    changes = {"gateway.marking": "ecn", "gateway.transmit_queue.scheduler": "fq_codel"}
    with pytest.raises(bp.UsageError, match=r"^live-smoke cannot be live: .* marks behind the PEP"):
        planned("live-smoke", **changes)


def test_codepoints_and_profiles_are_supported() -> None:
    changes = {"traffic.web.dscp": '"EF"', "traffic.web.profile": '[["6 h", 1]]'}
    found, made = planned("live-smoke", **changes)
    assert [each.dscp for each in found.listeners] == [46]
    # The load generator follows the profile of the scenario's text.
    assert "profile" in json.dumps(made._plan()["scenario"])


EVERYTHING = """
[traffic.files]
kind = "files"
from = "server"
to = "client"
transport = "linux"
sources = 3
interval = { exponential = "200 ms" }
size = { choice = ["5 KB", { uniform = ["1 KB", "20 KB"] }] }
rate_cap = "1412 kbps"

[traffic.long]
kind = "bulk"
from = "server"
to = "client"
transport = "linux"
rate_cap = "600 kbps"

[traffic.ticks]
kind = "cbr"
from = "server"
to = "client"
transport = "linux"
flows = 2
rate = "102.8 kbps"
packet = "1028 B"

[traffic.voice]
kind = "cbr"
from = "server"
to = "client"
flows = 2
rate = "102.8 kbps"
packet = "1028 B"
"""
"""Kinds of traffic in addition to the pages of live-smoke."""


def with_everything(folder: Path) -> Path:
    path = folder / "everything.toml"
    path.write_text(bp.load("live-smoke").text + EVERYTHING)
    return path


def test_every_kind_of_traffic_has_a_server(tmp_path: Path) -> None:
    found, made = planned(str(with_everything(tmp_path)))
    by = {name: each["by"] for name, each in made._plan()["traffic"].items()}
    assert by == {"web": "nginx", "files": "nginx", "long": "serve", "ticks": "serve", "voice": "serve"}
    served = {each.traffic: each for each in found.listeners}
    assert (served["web"].largest, served["files"].largest) == (60_000, 20_000)
    # The kernel paces payload: 1360 of a full segment's 1412 bytes.
    assert served["files"].rate_cap == 1_360_000
    assert served["web"].rate_cap is None


def test_unbounded_object_sizes_are_not_served_by_nginx() -> None:
    found, _ = planned("live-smoke", **{"traffic.web.object_size": "{ exponential = '20 KB' }"})
    assert found.listeners[0].largest is None


def test_deviations_of_the_kernel_are_noted(tmp_path: Path) -> None:
    assert planned("live-smoke")[0].notes == ()
    changes = {
        "transport.linux.initial_rto": "3 s",
        "transport.linux.min_rto": "300 ms",
        "transport.linux.mss": "536 B",
        "host.client.count": "1500",
    }
    assert planned("live-smoke", **changes)[0].notes == (
        'transport.linux: the kernel\'s values (preset "linux") apply for initial_rto',
        # 1280 bytes less IPv4, TCP and timestamps.
        "transport.linux: mss is 1228 B instead of 536 B: packets have 1280 to 1500 bytes",
        "host.client: 1500 hosts share 1000 addresses and their links",
    )
    path = tmp_path / "two.toml"
    path.write_text(
        bp.load("live-smoke").text
        + EVERYTHING.replace('transport = "linux"', 'transport = "other"', 1)
        + '[transport.other]\npreset = "linux"\nmss = "1300 B"\n'
    )
    assert planned(str(path))[0].notes == (
        "transport.other: transport.linux determines mss: all connections of a namespace share these"
        " settings",
    )


def test_receive_windows_follow_the_scenario() -> None:
    found, made = planned("live-smoke")
    assert found.receive_windows is None
    assert made._sysctls("clients")["net.ipv4.tcp_rmem"] == "4096 131072 6291456"
    changes = {"transport.linux.receive_window": "60 KB", "transport.linux.initial_receive_window": "30 KB"}
    found, made = planned("live-smoke", **changes)
    assert found.receive_windows == (30_000, 60_000)
    # The kernel's receive window is 0.6 of its buffer; it doubles the buffer size that a socket sets.
    assert made._sysctls("clients")["net.ipv4.tcp_rmem"] == "4096 50000 100000"
    assert made._sysctls("servers")["net.ipv4.tcp_rmem"] == "4096 131072 6291456"
    config = tomllib.loads(made._config("gateway", Path("/keys")))
    assert config["tcp"] == {"congestion": "cubic", "receive_buffer": "50000 B"}


def test_docs_list_live_support_of_all_shipped_scenarios() -> None:
    by: dict[str, list[str]] = {}
    for name in shipped():
        try:
            found = check(make_plan(bp.load(name), settings=None, runs=1))
            text = "; ".join(("yes", *found.notes))
        except bp.UsageError as error:
            text = "no: " + str(error).split(": ", 1)[1].split("; allowed")[0]
        by.setdefault(text, []).append(f"`{name}`")
    rows = [f"| {text} | {', '.join(names)} |\n" for text, names in by.items()]
    text = (ROOT / "docs" / "live.md").read_text(encoding="utf-8")
    table = text.split("| live | scenarios |\n| --- | --- |\n")[1].split("\n\n")[0] + "\n"
    assert table == "".join(rows)


# ----- plans and configurations ------------------------------------------------------------------------


def test_plan_has_all_namespaces_and_the_scenario() -> None:
    found, made = planned("live-smoke")
    plan = json.loads(json.dumps(made._plan()))
    assert [segment["name"] for segment in plan["segments"]] == ["internet", "space", "lan"]
    names = [segment[end]["device"] for segment in plan["segments"] for end in "ab"]
    assert len(set(names)) == 6
    assert plan["scenario"]["text"] == bp.load("live-smoke").text
    assert plan["until_s"] == 8
    assert set(plan["hosts"]) == set(found.hosts) == {"server", "client"}
    assert plan["traffic"]["web"]["by"] == "nginx"


def test_configurations_have_the_same_scenario_and_opposite_addresses() -> None:
    _, made = planned("live-smoke", **{"gateway.regulator.rate": "4 Mbps"})
    gateway, terminal = (tomllib.loads(made._config(role, Path("/keys"))) for role in ("gateway", "terminal"))
    assert gateway["scenario"] == terminal["scenario"]
    assert gateway["scenario"]["overrides"] == ["gateway.regulator.rate=4 Mbps"]
    assert gateway["satellite"]["local"] == terminal["satellite"]["peer"]
    assert gateway["satellite"]["peer"] == terminal["satellite"]["local"]
    assert terminal["satellite"]["rate"] == "2000000 bps"
    assert gateway["tcp"] == terminal["tcp"] == {"congestion": "cubic"}
    assert "record" in gateway
    assert "record" not in terminal


# ----- tables ------------------------------------------------------------------------------------------

NAMES = [
    "time",
    "offered_load",
    "throughput",
    "transmit_queue",
    "queue_delay",
    "mark_probability",
    "aqm.avg",
]
SUMMARY = {
    "offered_packets": 100,
    "offered_bytes": 150_000,
    "dropped_packets": 7,
    "marked_packets": 7,
    "marked_in_queue": 0,
    "left_queue": 93,
    "aqm_drops": 6,
    "overflow_drops": 1,
    "drops_elsewhere": 2,
    "receive_packets": 100,
    "receive_drops": 7,
    "transmit_packets": 95,
    "transmit_drops": 2,
    "sent_packets": 93,
    "sent_bytes": 139_500,
    "used_share": 0.93,
    "queue_time_average": 2.5,
    "queue_delay_mean": 0.1,
    "queue_delay_p50": 0.09,
    "queue_delay_p95": 0.2,
    "queue_delay_p99": 0.3,
    "queue_delay_max": 0.4,
    "jitter": 0.002,
    "drop_runs": [[1, 3], [2, 2]],
}


def written(folder: Path, *, complete: bool = True) -> Path:
    path = folder / "gateway.jsonl"
    lines: list[object] = [
        {
            "series": NAMES,
            "drops": ["time", "arrival", "place", "reason", "flow", "bytes", "client", "server"],
        },
        {"sample": [0.1, 6e6, 4e6, 3, 0.1, None, 1.5]},
        {"sample": [0.2, 6e6, 2e6, 5, None, 0.5, 2.5]},
        {"drop": [0.05, 3, "gateway receive", "aqm", 9, 1412, "10.3.0.1:4000", "10.1.0.1:8000"]},
        {"drop": [0.15, None, "gateway transmit", "overflow", 9, 1425, "10.3.0.2:4000", "10.1.0.1:8000"]},
        {"drop": [0.16, 4, "gateway receive", "aqm", 9, 1412, "10.3.0.9:4000", "10.1.0.1:8000"]},
        {"drop": [0.21, 5, "gateway receive", "aqm", 9, 1412, "10.3.0.1:4000", "10.1.0.1:8000"]},
    ]
    if complete:
        lines.append({"summary": SUMMARY, "nfqueue": {"queue_dropped": 0, "user_dropped": 0}})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


COLUMNS = [*_FLOWS, "connected", "intact", *_ENDS]
FLOWS = [
    # 50 000 B in 2 s: 200 kbit/s; in 4 s: 100 kbit/s; one unfinished, with the ends of another.
    [1, 4, "web", 1.0, 3.0, True, False, 50_000, 2.0, 200e3, None, 0, None, None, 0.1, True],
    [0, 3, "web", -1.0, 3.0, True, False, 40_000, 4.0, 100e3, None, 0, None, None, 0.1, True],
    [2, 5, "web", 5.0, None, False, False, 100, None, None, None, 0, None, None, 0.1, None],
    [3, 6, "web", -2.0, 0.01, False, False, 0, None, None, None, 0, None, None, 0.1, None],
]
ENDS = ["10.3.0.2:4000", "10.3.0.1:4000", "10.3.0.1:4000", "10.3.0.1:4000"]


def loaded(folder: Path) -> pl.DataFrame:
    path = folder / "flows.jsonl"
    rows = [[*row, client, "10.1.0.1:8000"] for row, client in zip(FLOWS, ENDS, strict=True)]
    path.write_text("".join(json.dumps(line) + "\n" for line in ({"columns": COLUMNS}, *rows)))
    return read_flows([path])


def test_record_has_the_columns_and_types_of_a_simulation(tmp_path: Path, result: bp.Result) -> None:
    found = read_record(written(tmp_path), loaded(tmp_path), 2, 6)
    for name in ("drops", "flows", "drop_runs"):
        table: pl.DataFrame = getattr(found, name)
        assert table.schema == result.one(name, result.settings[0], result.seeds[0]).schema, name
    series = result.one("series", result.settings[0], result.seeds[0])
    assert {name: series.schema[name] for name in NAMES} == found.series.schema
    assert found.series["queue_delay"].to_list() == [0.1, None]
    simulated = set(result.counters()["counter"].unique())
    # The emulator counts losses on links, and `repeated_counters` repeated data.
    alone = {"link_packets", "link_losses", "link_given_up", "repeated_bytes"}
    assert set(found.counters) == {name for name in simulated if "." not in name} - alone
    assert found.counters["dropped_packets"] == 7
    assert found.drops["time"].to_list() == [0.05, 0.15, 0.16]
    # The first drop's flow is the latest with its ends; the second's began later; the third's has no row.
    assert found.drops["flow"].to_list() == [0, None, None]
    assert found.flows["flow"].to_list() == [0, 1, 2, 3]
    assert found.flows["drops"].to_list() == [1, 0, 0, 0]


def test_metrics_of_a_record_match_a_worked_example(tmp_path: Path) -> None:
    scenario = bp.load("live-smoke")
    plan = make_plan(scenario, settings=None)
    into = store.Store.create(tmp_path / "result", plan, engine=store.LIVE, versions={"kernel": "6.1"})
    run = read_record(written(tmp_path), loaded(tmp_path), 2, 6)
    into.add(plan.settings[0], 1, run)
    into.note(plan.settings[0], 1, 8.0, 0.1, run.live)
    made = bp.Result(tmp_path / "result", unfinished=True)
    values = {name: per[0] for name, per in made.values()[plan.settings[0].name].items()}
    assert values["throughput"] == pytest.approx(3)
    assert values["queue_mean"] == pytest.approx(4)
    assert values["drop_rate"] == pytest.approx(7)
    assert values["drop_run_mean"] == pytest.approx((3 + 2 * 2) / 5)
    assert values["goodput_mean"] == pytest.approx(150)
    assert values["jain_index"] == pytest.approx(0.9)
    assert values["completed"] == 2
    assert values["unfinished"] == 1
    assert made.engine == "live"
    assert made.invalid == []
    into.close()


def test_page_metrics_of_a_record_match_a_worked_example(tmp_path: Path) -> None:
    path = tmp_path / "flows.jsonl"
    pages = [
        (0.5, 1.5, 0.25, False),
        (1.0, 4.0, 0.5, False),
        (2.0, 2.5, None, True),
        (-1.0, 1.0, 0.75, False),
    ]
    lines: list[object] = [{"columns": COLUMNS}]
    for opened, closed, first_byte, failed in pages:
        page = {"traffic": "web", "session": 0, "opened": opened, "closed": closed}
        lines.append({"page": page | {"first_byte": first_byte, "failed": failed}})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = page_counters(path, bp.load("live-smoke"))
    # Page times 1, 3 and 2 s; one page failed.
    expected = {"pages": 3, "pages_failed": 1, "page_time_mean": 2, "page_time_p50": 2, "page_time_p75": 2.5}
    expected |= {"page_time_p95": 2.9, "first_byte_p50": 0.5, "first_byte_p95": 0.725}
    assert found == pytest.approx({f"web.{name}": value for name, value in expected.items()})


def test_incomplete_record_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(LiveError, match="ended before it had written everything"):
        read_record(written(tmp_path, complete=False), loaded(tmp_path), 2, 6)


def live_result(folder: Path, lost: int = 0, late: float = 0.0, downs: int = 0) -> bp.Result:
    """Store the record above as a live result of live-smoke."""
    plan = make_plan(bp.load("live-smoke"), settings=None)
    into = store.Store.create(
        folder / "live", plan, engine=store.LIVE, versions={"kernel": "6.1", "cpus": "2"}
    )
    run = read_record(written(folder), loaded(folder), 2, 6)
    into.add(plan.settings[0], 1, run)
    known = {
        "nfqueue": {"user_dropped": lost, "queue_dropped": 0},
        "links": {"statistics": {"late": {"p99_s": late}}},
        "counters": {"downs": downs},
        "notes": ["transport.x: the kernel's values apply for sack"],
    }
    into.note(plan.settings[0], 1, 8.0, 0.1, known)
    made = bp.Result(folder / "live", unfinished=True)
    into.finish(made.metrics(), made.rows(), made.warmup().rows(named=True))
    into.close()
    return bp.open(folder / "live")


def test_run_with_uncounted_losses_is_invalid(tmp_path: Path) -> None:
    made = live_result(tmp_path, lost=3)
    assert made.invalid == [
        "red, seed 1: not valid: 3 packets overflowed the kernel's queue before the gateway's AQM;"
        " the machine was too slow"
    ]
    page = made.report().read_text()
    assert "not valid: 3 packets" in page
    assert "live: Linux 6.1, 2 cores" in page
    assert "of real time after" in page


@pytest.mark.parametrize(("downs", "lost"), [(1, "lost, and"), (2, "lost 2 times, and")])
def test_run_with_lost_spacelink_is_invalid(tmp_path: Path, downs: int, lost: str) -> None:
    (text,) = live_result(tmp_path, downs=downs).invalid
    assert text.startswith(f"red, seed 1: not valid: the spacelink was {lost} packets bypassed")


def test_late_emulator_is_reported(tmp_path: Path) -> None:
    assert live_result(tmp_path, late=0.009).late == []
    (tmp_path / "busy").mkdir()
    made = live_result(tmp_path / "busy", late=0.0123)
    text = "red, seed 1: one packet in a hundred left the emulated links at least 12 ms late"
    assert len(made.late) == 1
    assert made.late[0].startswith(text)
    assert made.notes == ["transport.x: the kernel's values apply for sack"]
    page = made.report().read_text()
    assert text in page
    assert "values apply for sack" in page


def test_live_and_simulated_runs_are_compared_by_engine(tmp_path: Path) -> None:
    simulated = bp.run(bp.load("live-smoke"), out=tmp_path / "simulated")
    found = between(simulated, live_result(tmp_path), chosen(["throughput"]))
    assert [(each.a, each.b) for each in found] == [("simulator: red", "live: red")]
    assert found[0].pairing == "paired by seed"
    assert found[0].mean_b == pytest.approx(3)


# ----- the system --------------------------------------------------------------------------------------


def run_cli(*arguments: str, within: tuple[str, ...] = (), cwd: Path) -> subprocess.CompletedProcess[str]:
    if not within:
        return server().run("live", *arguments, folder=cwd, environment=environment())
    command = [*within, sys.executable, "-c", "from bentpipe.cli import main; main()", "live", *arguments]
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=PATIENCE, check=False, env=environment()
    )


def test_unsupported_scenario_is_reported_before_missing_root(tmp_path: Path) -> None:
    done = run_cli("red-dumbbell", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: red-dumbbell cannot be live: it has no gateway")
    assert not list(tmp_path.iterdir())


def test_check_option_reports_live_support(tmp_path: Path) -> None:
    done = run_cli("live-smoke", "--check", "--settings", "red", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "live-smoke can be live: 8 s for red\n"
    done = run_cli("small-gateway", "--check", "--format", "json", cwd=tmp_path)
    found = json.loads(done.stdout)
    assert (found["seconds"], found["settings"]) == (210, ["red", "avq", "avqred"])
    assert len(found["notes"]) == 1
    assert "delayed_ack" in found["notes"][0]
    assert run_cli("red-dumbbell", "--check", cwd=tmp_path).returncode == 2
    assert not list(tmp_path.iterdir())


def test_missing_root_and_user_namespaces_give_one_message_with_remedy(tmp_path: Path) -> None:
    # /proc of a process namespace hides nothing, so the helper program is hidden instead.
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "unshare").write_text("#!/bin/sh\necho 'unshare failed: Operation not permitted' >&2\nexit 1\n")
    (tools / "unshare").chmod(0o755)
    drop = ("setpriv", "--bounding-set", "-sys_admin,-net_admin") if os.geteuid() == 0 else ()
    done = subprocess.run(
        [*drop, sys.executable, "-c", "from bentpipe.cli import main; main()", "live", "live-smoke"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env=environment() | {"PATH": f"{tools}:{os.environ['PATH']}"},
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr == (
        "error: a live run creates network namespaces and needs root: repeat it with sudo, or allow this user"
        " to use user namespaces and /dev/net/tun (now: unshare failed: Operation not permitted)\n"
    )


def test_inaccessible_tun_device_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(privileges, "_has_capabilities", lambda: False)
    monkeypatch.setattr(privileges, "_TUN", "/nowhere/tun")
    text = privileges.user_namespace_command(["live"])
    assert isinstance(text, str)
    assert text.endswith("(now: /nowhere/tun cannot be opened)")


def left(number: int) -> list[str]:
    """Return the namespaces and the folder of a process's live run."""
    folders = ((namespaces.NETNS, f"bp-{number}-*"), (namespaces.RUNS, str(number)))
    return [str(path) for folder, pattern in folders if folder.is_dir() for path in folder.glob(pattern)]


@needs_root
def test_next_run_removes_only_leftovers_of_killed_runs() -> None:
    # A run creates a network with a process that outlives its parent.
    code = """
import subprocess, sys, time
from bentpipe.live_runs.namespaces import Network
network = Network()
network.__enter__()
inside = ["nsenter", f"--net={network.path('clients')}", "setsid", "sleep", "600"]
print(network.number, subprocess.Popen(inside).pid, flush=True)
time.sleep(600)
"""
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout is not None
        number, sleeper = killed.stdout.readline().split()
        with Network() as mine:
            # A living run is not removed.
            assert Path(f"/run/netns/bp-{number}-servers").exists()
            assert Path("/proc", sleeper).exists()
            killed.send_signal(signal.SIGKILL)
            killed.wait()
            assert Path(f"/run/netns/bp-{number}-servers").exists()
            with Network(mine.number + 10_000_000):
                assert not Path(f"/run/netns/bp-{number}-servers").exists()
                assert not (namespaces.RUNS / number).exists()
                assert not _alive(int(sleeper))
                assert mine.path("servers").exists()
                assert mine.folder.is_dir()
        assert not mine.path("servers").exists()
        assert not mine.folder.exists()


def _alive(process: int) -> bool:
    try:
        return Path("/proc", str(process), "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@needs_root
def test_child_ends_with_the_thread_that_started_it(tmp_path: Path) -> None:
    code = f"""
import os, signal, sys
from pathlib import Path
from bentpipe.live_runs.namespaces import Network
from bentpipe.live_runs.processes import Child
with Network() as network:
    child = Child("sleeper", ["sleep", "6000"], network.path("servers"), Path({str(tmp_path)!r}))
    while Path(f"/proc/{{child.process.pid}}/comm").read_text() != "sleep\\n":
        pass
    print(os.getpid(), child.process.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == -signal.SIGKILL
    number, child = map(int, done.stdout.split())
    wait_for(lambda: not _alive(child))
    assert left(number)
    with Network():
        assert not left(number)


@needs_root
def test_last_messages_of_a_failed_program_are_quoted(tmp_path: Path) -> None:
    with Network() as network:
        command = ["sh", "-c", "echo something is wrong >&2; exit 3"]
        with Child("gateway", command, network.path("gateway"), tmp_path) as child:
            child.wait(time.monotonic() + PATIENCE)
            with pytest.raises(LiveError, match="gateway ended with code 3: something is wrong"):
                child.check()


@needs_root
def test_signals_are_deferred_during_clean_up(monkeypatch: pytest.MonkeyPatch) -> None:
    remove = namespaces._remove

    def interrupted(number: int, *, keep: bool = False) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        remove(number, keep=keep)

    network = Network()
    with pytest.raises(KeyboardInterrupt), network:
        monkeypatch.setattr(namespaces, "_remove", interrupted)
    assert not left(network.number)


def test_all_programs_are_stopped_despite_signals() -> None:
    ended: list[str] = []

    def run() -> None:
        with interruptible(), session._exit_stack_without_signals() as stack:
            stack.callback(ended.append, "emulator")
            stack.callback(os.kill, os.getpid(), signal.SIGTERM)
            stack.callback(ended.append, "load")

    with pytest.raises(KeyboardInterrupt):
        run()
    assert ended == ["load", "emulator"]


def test_missing_congestion_control_is_reported_before_the_run() -> None:
    assert missing_congestion_control(["reno"]) is None
    text = missing_congestion_control(["reno", "nosuch"])
    assert text is not None
    assert re.fullmatch(r"this kernel's TCP lacks the congestion control nosuch; allowed: .*reno.*", text)


# ----- real runs -----------------------------------------------------------------------------------------


needs_everything = pytest.mark.skipif(bool(why_no_live_run()), reason=why_no_live_run())
SHORT = ("live-smoke", "--setting", "red", "--duration", "3 s", "--warmup", "1 s")


def check_run(made: bp.Result) -> None:
    """Check a short live run of live-smoke."""
    assert made.engine == "live"
    assert made.invalid == []
    values = {name: per[0] or 0.0 for name, per in made.values()["red"].items()}
    assert 0.5 < values["throughput"] <= 5 * 1.001
    assert values["completed"] >= 5
    assert values["failed"] == 0
    series, drops = made.one("series", "red", 1), made.one("drops", "red", 1)
    (run,) = made.manifest["runs"]
    measured = run["live"]["measured"]
    # Samples are due every 100 ms while measuring and never early; a late one replaces those it missed.
    times = series["time"].to_list()
    slots = [int(time * 10 + 1e-6) for time in times]
    assert slots == sorted(set(slots))
    assert slots[0] >= 1
    assert len(slots) > 1
    assert slots[-2] < 30 <= slots[-1]
    assert measured["begin_s"] >= 0
    assert measured["end_s"] == pytest.approx(times[-1], abs=1e-9)
    counters = {row["counter"]: row["value"] for row in made.counters().iter_rows(named=True)}
    assert len(drops) == counters["dropped_packets"] + counters["drops_elsewhere"] > 0
    # Samples weighted by their intervals agree with the counters of the measured time.
    spans = [to - begin for begin, to in zip([measured["begin_s"], *times], times, strict=False)]
    for column, counter in (("offered_load", "offered_bytes"), ("throughput", "sent_bytes")):
        sampled = sum(rate * span for rate, span in zip(series[column], spans, strict=True))
        assert sampled == pytest.approx(counters[counter] * 8, rel=1e-9)
    # Drops belong to flows that were open at that time, and agree with the flows' drop counts.
    flows = made.one("flows", "red", 1)
    assert flows["drops"].sum() == drops["flow"].drop_nulls().len()
    assert drops["flow"].null_count() < 0.05 * len(drops)
    of_flow = drops.join(flows.select("flow", "opened", "drops"), on="flow")
    assert (of_flow["time"] >= of_flow["opened"]).all()
    assert of_flow.group_by("flow").agg(pl.len() == pl.col("drops").first())["len"].all()
    # The satellite carried the users' payload plus headers and data in flight.
    got = made.flows()["bytes"].sum()
    assert 0.5 < got / counters["sent_bytes"] < 1.1
    # The emulator counted at least the bytes that the gateway sent while measuring; no packet was lost.
    links = {(link["link"], link["direction"]): link for link in run["live"]["links"]["statistics"]["links"]}
    satellite = links["satellite", "forward"]
    assert satellite["bytes"] > counters["sent_bytes"]
    assert not satellite["dropped"]
    assert run["live"]["spacelink"]["lost_packets"] == 0


@needs_everything
def test_short_run_gives_a_result_like_a_simulation_and_cleans_up(tmp_path: Path) -> None:
    done = run_cli(*SHORT, "--out", "result", "--keep", "kept", "--format", "json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert {row["metric"] for row in json.loads(done.stdout)} >= {"throughput", "queue_mean"}
    made = bp.open(tmp_path / "result")
    check_run(made)
    assert made.manifest["versions"]["kernel"] == os.uname().release
    assert (tmp_path / "result" / "report.html").is_file()
    kept = {path.name for path in (tmp_path / "kept" / "red" / "1").iterdir()}
    assert {"gateway.toml", "terminal.toml", "plan.json", "gateway.jsonl", "flows.jsonl"} <= kept
    number = int(
        re.findall(r"/run/bentpipe-live/(\d+)/", (tmp_path / "kept/red/1/gateway.toml").read_text())[0]
    )
    assert not left(number)


@needs_everything
@pytest.mark.parametrize("http", ["1.1", "2"])
def test_pages_load_as_in_the_simulation(tmp_path: Path, http: str) -> None:
    # Without congestion the page time is a number of round trips, simulated and live.
    changes = {
        "run.warmup": "1 s",
        "run.duration": "4 s",
        "gateway.regulator.rate": "50 Mbps",
        "traffic.web.http": f'"{http}"',
        "traffic.web.objects_per_page": "13",
        "traffic.web.object_size": '"2 KB"',
        "traffic.web.sessions": "2",
    }
    scenario = bp.load("live-smoke", set=changes)
    live = bp.live(scenario, "red", out=tmp_path / "live")
    assert live.invalid == []
    simulated = bp.compare(scenario, "red", out=tmp_path / "simulated", runs=1)
    found, expected = ({n: per[0] for n, per in r.values()["red"].items()} for r in (live, simulated))
    assert found["web.pages_failed"] == 0
    assert (found["web.pages"] or 0) > 0
    # A busy machine adds to the round trips.
    for name in ("web.page_time_p50", "web.first_byte_p50"):
        ratio = (found[name] or 0) / (expected[name] or math.nan)
        assert 0.95 < ratio < 2, (name, found[name], expected[name])


@pytest.mark.parametrize(
    ("split", "datagrams", "expected"),
    [
        # 10 packets lost, 13 720 B with their UDP and IP headers, of 686 000 B.
        ('["tcp"]', 0, 2.0),
        # A quarter of the bytes written are datagrams, which are not sent again.
        ('["tcp"]', 200_000, 1.5),
        ("[]", 0, None),
    ],
)
def test_repeated_share_of_the_carrier_matches_a_worked_example(
    split: str, datagrams: int, expected: float | None
) -> None:
    scenario = bp.load("live-smoke", set={"gateway.pep.split": split})
    carried = {"sent_bytes": 686_000, "lost_packets": 10, "lost_bytes": 13_440}
    carried |= {"written_bytes": 600_000, "datagram_bytes": datagrams}
    counters = repeated_counters(carried, scenario)
    if expected is None:
        assert math.isnan(counters["repeated_bytes"])
    else:
        assert 100 * counters["repeated_bytes"] / counters["carried_bytes"] == pytest.approx(expected)


def test_repeated_share_is_unknown_with_quic_between_hosts(tmp_path: Path) -> None:
    carried = {"sent_bytes": 686_000, "lost_packets": 10, "lost_bytes": 13_440}
    carried |= {"written_bytes": 0, "datagram_bytes": 600_000}
    counters = repeated_counters(carried, bp.load(over_quic(tmp_path)))
    assert math.isnan(counters["repeated_bytes"])


def test_probes_of_a_class_match_a_worked_example(tmp_path: Path) -> None:
    path = tmp_path / "flows.jsonl"
    steps = [
        {"connect": 0.1 + 0.01 * i, "tls": 0.2, "http": 0.3 if i < 20 else None, "request": 0.15}
        for i in range(21)
    ]
    lines: list[dict[str, object]] = [{"probe": {"traffic": "probe", **each}} for each in steps]
    units: dict[str, object] = {"traffic": "long", "received": 20, "lost": 0, "late": None, "jitter_sum": 0.0}
    units["delays"] = [[0.4, 10], [0.5, 9], [7.0, 1]]
    lines.append({"units": units})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "probes.toml").write_text(bp.load("live-smoke").text.split("[traffic.web]")[0] + PROBES)
    found = probe_counters(path, bp.load(tmp_path / "probes.toml"))
    # Of 20 probes and 20 units, the longest is left out: 0.1 to 0.28 s; 10 times 0.4 and 9 times 0.5 s.
    expected = {"probes": 20, "probes_failed": 1, "probe_connect": 0.19, "probe_tls": 0.2, "probe_http": 0.3}
    expected |= {"probe_request": 0.15, "load_delay": 8.5 / 19}
    assert found == pytest.approx({f"speed.{name}": value for name, value in expected.items()})


def test_units_of_a_class_match_a_worked_example(tmp_path: Path) -> None:
    path = tmp_path / "flows.jsonl"
    ticks = {"received": 94, "lost": 6, "late": 4, "jitter_sum": 0.5, "delays": [[0.1, 90], [0.3, 4]]}
    voice = {"received": 6, "lost": 0, "late": None, "jitter_sum": 0.7, "delays": [[0.2, 4], [0.3, 2]]}
    lines = [{"units": {"traffic": "ticks", **ticks}}, {"units": {"traffic": "voice", **voice}}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    text = bp.load("live-smoke").text + EVERYTHING
    for name in ("ticks", "voice"):
        text = text.replace(f"[traffic.{name}]", f'[traffic.{name}]\nclass = "short"')
    (tmp_path / "short.toml").write_text(text)
    scenario = bp.load(tmp_path / "short.toml")
    schema = {"traffic": pl.String, "failed": pl.Boolean, "closed": pl.Float64}
    flows = pl.DataFrame([["web", True, 2.0], ["ticks", True, -1.0]], schema=schema, orient="row")
    # Of 100 delays, 90 are 100 ms, 4 are 200 ms and 6 are 300 ms.
    delays = {"mean": 0.116, "p50": 0.1, "p95": 0.3, "p99": 0.3}
    expected = {"received_units": 100, "lost_units": 6, "jitter": 0.012}
    expected |= {f"delay_{name}": value for name, value in delays.items()}
    found = unit_counters([path], flows, scenario)
    assert found == pytest.approx({f"short.{name}": value for name, value in expected.items()})
    # A flow of the class failed while measuring.
    failed = pl.DataFrame([["ticks", True, 1.0]], schema=schema, orient="row")
    assert math.isnan(unit_counters([path], failed, scenario)["short.lost_units"])


@needs_everything
def test_losses_on_the_satellite_are_measured_and_sent_again(tmp_path: Path) -> None:
    loss = 0.03
    changes = {"run.warmup": "1 s", "run.duration": "3 s", "link.satellite.loss": str(loss)}
    made = bp.live(bp.load("live-smoke", set=changes), "red", out=tmp_path / "result")
    assert made.invalid == []
    values = {name: per[0] for name, per in made.values()["red"].items()}
    counters = {row["counter"]: row["value"] for row in made.counters().iter_rows(named=True)}
    # Four standard deviations of independent losses.
    packets = counters["link_packets"]
    assert packets > 500
    spread = 4 * math.sqrt(loss * (1 - loss) / packets)
    assert values["link_loss_rate"] == pytest.approx(100 * counters["link_losses"] / packets)
    assert values["link_loss_rate"] == pytest.approx(100 * loss, abs=100 * spread)
    dropped = [values[name] or 0 for name in ("receive_drop_rate", "transmit_drop_rate", "link_loss_rate")]
    assert values["loss_rate"] == pytest.approx(
        100 - 100 * math.prod(1 - share / 100 for share in dropped), abs=1e-9
    )
    # Counters leave out the warm-up, which the emulator's totals contain.
    links = made.manifest["runs"][0]["live"]["links"]["statistics"]["links"]
    satellite = {link["direction"]: link for link in links if link["link"] == "satellite"}
    assert packets < 0.9 * sum(link["packets"] for link in satellite.values())
    # What the forward link loses is sent again; a busy machine adds spurious retransmissions.
    share = satellite["forward"]["dropped"]["loss"] / satellite["forward"]["packets"]
    assert 0.3 * share < (values["retransmitted"] or 0) / 100 < 3 * share


@needs_everything
def test_codepoints_select_the_tin_live(tmp_path: Path) -> None:
    # Three overloads; nginx serves web, the testbed long; voice is not split. The quanta of their tins are
    # 64, 1024 and 256. In one tin, web's four connections get more than the others.
    text = bp.load("live-smoke").text.replace("sessions = 10", 'sessions = 4\ndscp = "CS1"')
    path = tmp_path / "codepoints.toml"
    common = 'from = "server"\nto = "client"\n'
    path.write_text(
        f'{text}\n[traffic.long]\nkind = "bulk"\ntransport = "linux"\n{common}'
        f'[traffic.voice]\nkind = "cbr"\nrate = "2 Mbps"\npacket = "1000 B"\ndscp = "EF"\n{common}'
    )
    scheduler = '{ algorithm = "cake", diffserv = "diffserv4", rtt = "1000 s" }'
    changes = {
        "gateway.regulator.rate": "2 Mbps",
        "gateway.transmit_queue": f'{{ scheduler = {scheduler}, limit = "10 MB" }}',
        "gateway.pep.buffer_per": '"connection"',
        "run.warmup": "1 s",
        "run.duration": "3 s",
    }
    made = bp.live(bp.load(path, set=changes), "droptail", out=tmp_path / "result")
    assert made.invalid == []
    flows = made.one("flows", "droptail", 1)
    got = dict(flows.group_by(pl.col("traffic").cast(pl.String)).agg(pl.col("bytes").sum()).iter_rows())
    total = sum(got.values())
    quanta = {"web": 64, "long": 1024, "voice": 256}
    for name, quantum in quanta.items():
        assert got[name] / total == pytest.approx(quantum / sum(quanta.values()), rel=0.5), (name, got)


VIDEO = """
[traffic.video]
kind = "dash"
from = "server"
to = "client"
transport = "linux"
flows = 2
ladder = ["300 kbps", "600 kbps", "1200 kbps"]
segment = "500 ms"
buffer = "2 s"
start = "1500 ms"
"""


@needs_everything
@pytest.mark.parametrize("transport", ["linux", "quic"])
def test_adaptive_video_plays_as_in_the_simulation(tmp_path: Path, transport: str) -> None:
    path = over_quic(tmp_path, VIDEO)
    changes = {
        "traffic.video.transport": transport,
        "run.warmup": "1 s",
        "run.duration": "5 s",
        "gateway.regulator.rate": "20 Mbps",
        "link.ingress.delay": "10 ms",
    }
    scenario = bp.load(path, set=changes)
    live = bp.live(scenario, "red", out=tmp_path / "live")
    assert live.invalid == []
    simulated = bp.compare(scenario, "red", out=tmp_path / "simulated", runs=1)
    found, expected = (r.one("flows", "red", 1).sort("session") for r in (live, simulated))
    assert found.schema == expected.schema
    assert found["stalls"].to_list() == expected["stalls"].to_list() == [0, 0]
    # All begin with the lowest rate and play the highest once the buffer is full.
    for mine, theirs in zip(found.iter_rows(named=True), expected.iter_rows(named=True), strict=True):
        assert (mine["playback_bitrate"][1], mine["playback_bitrate"][-1]) == (300e3, 1200e3), mine
        # A busy machine adds to the round trips.
        assert 0.95 < mine["startup_delay"] / theirs["startup_delay"] < 2, (mine, theirs)
        assert mine["bitrate"] == pytest.approx(theirs["bitrate"], rel=0.25)
        assert mine["played_time"] == pytest.approx(theirs["played_time"], rel=0.15)
    mos = [each.values()["red"]["video.mos"][0] for each in (live, simulated)]
    assert mos[0] == pytest.approx(mos[1], abs=0.3)


CALLS = """
[traffic.calls]
kind = "voip"
from = "server"
to = "client"
flows = 4
start = { uniform = ["0 s", "500 ms"] }

[traffic.long]
kind = "bulk"
from = "server"
to = "client"
transport = "linux"
flows = 2
"""


@needs_everything
def test_calls_are_rated_by_what_their_receivers_measure(tmp_path: Path) -> None:
    path = tmp_path / "calls.toml"
    path.write_text(bp.load("live-smoke").text.split("[traffic.web]")[0] + CALLS)
    changes = {"run.warmup": "2 s", "run.duration": "6 s", "gateway.regulator.rate": "4 Mbps"}
    scenario = bp.load(path, set=changes)
    live = bp.live(scenario, "red", out=tmp_path / "live")
    assert live.invalid == []
    simulated = bp.compare(scenario, "red", out=tmp_path / "simulated", runs=1)
    found, expected = (each.one("flows", "red", 1) for each in (live, simulated))
    assert found.schema == expected.schema
    calls = found.filter(pl.col("traffic") == "calls")
    scores = []
    for call in calls.iter_rows(named=True):
        # The gateway's drops, but for packets on their way at the start and the end.
        assert call["lost_units"] == pytest.approx(call["drops"], abs=10)
        missing = call["late"] + call["lost_units"]
        assert missing + call["played"] == pytest.approx(call["received_units"] + call["lost_units"], abs=5)
        rating = voice.call(
            1e3 * call["mouth_to_ear"],
            100 * missing / (missing + call["played"]),
            "g711-plc",
            burst_r=max(1.0, call["burst_ratio"]),
        )
        scores.append(voice.mos(rating.r))
    values = {name: per[0] for name, per in live.values()["red"].items()}
    assert values["calls.mos"] == pytest.approx(sum(scores) / 4, abs=1e-6)
    lost, received = (int(calls[name].sum()) for name in ("lost_units", "received_units"))
    assert values["calls.loss_rate"] == pytest.approx(100 * lost / (lost + received), abs=1e-6)
    assert 0 < lost < received
    # The way takes at least 5 + 50 + 1 ms; a byte cannot wait for longer than the run.
    for traffic in ("calls", "long"):
        assert 56 < (values[f"{traffic}.delay_p50"] or 0) < 8e3
    # The gateway's kernel holds up to 128 KB of each transfer, which the simulated PEP does not accept.
    waiting = 1e3 * 2 * 128 * 1024 * 8 / 4e6
    simulated_delay = simulated.values()["red"]["long.delay_p50"][0] or 0
    assert 0.9 * simulated_delay < (values["long.delay_p50"] or 0) < 2 * (simulated_delay + waiting)


PROBES = """
[traffic.probe]
kind = "probe"
class = "speed"
from = "server"
to = "client"
transport = "linux"
sessions = 2
interval = "200 ms"

[traffic.long]
kind = "bulk"
class = "speed"
from = "server"
to = "client"
transport = "linux"
flows = 2
"""


@needs_everything
def test_probes_measure_the_responsiveness_of_the_path(tmp_path: Path) -> None:
    path = tmp_path / "probes.toml"
    path.write_text(bp.load("live-smoke").text.split("[traffic.web]")[0] + PROBES)
    changes = {"run.warmup": "1 s", "run.duration": "4 s", "gateway.regulator.rate": "20 Mbps"}
    live = bp.live(bp.load(path, set=changes), "red", out=tmp_path / "live")
    assert live.invalid == []
    values = {name: per[0] for name, per in live.values()["red"].items()}
    # The terminal answers the handshake within 2 ms; TLS handshake and request take 2 x (5 + 50 + 1) ms at
    # least: 60 / ((2 + 112 + 112) / 3) ms. A busy machine, and queues, add to it.
    assert 60 < (values["speed.rpm_foreign"] or 0) < 797
    # The request takes half of 112 ms, the data of the load the other half.
    assert 30 < (values["speed.rpm_loaded"] or 0) < 536


@needs_everything
def test_uploads_pass_the_aqm_of_the_terminal_and_are_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[str] = []
    stop = Child.stop

    def noted(self: Child, *limit: float) -> str:
        stopped.append(self.name)
        return stop(self, *limit)

    monkeypatch.setattr(Child, "stop", noted)
    # With 1 ms to the terminal RED can drop whole windows, and uploads wait for timeouts.
    changes = {
        "run.warmup": "2 s",
        "run.duration": "6 s",
        "run.subject": "gateway return",
        "link.access.delay": "20 ms",
    }
    scenario = bp.load(with_uploads(tmp_path), set=changes)
    live = bp.live(scenario, "red", out=tmp_path / "live")
    assert live.invalid == []
    # To the other end, its stop would be a loss of the spacelink.
    assert stopped.index("terminal") < stopped.index("gateway")
    simulated = bp.compare(scenario, "red", out=tmp_path / "simulated", runs=1)
    flows, expected = (each.one("flows", "red", 1) for each in (live, simulated))
    assert flows.schema == expected.schema
    assert not flows["failed"].any()
    got = dict(flows.group_by(pl.col("traffic").cast(pl.String)).agg(pl.col("bytes").sum()).iter_rows())
    assert set(got) == {"backup", "photos", "calls_up", "long"}
    assert min(got.values()) > 0
    # Drops at the terminal are assigned to uploads, and to acknowledgements of the download.
    drops = dict(flows.group_by(pl.col("traffic").cast(pl.String)).agg(pl.col("drops").sum()).iter_rows())
    assert drops["backup"] > 0, drops
    metrics = live.values()["red"]
    # The subject is the terminal.
    assert 1 < (metrics["throughput"][0] or 0) < 4.1
    assert 0 < (metrics["receive_drop_rate"][0] or 0) < 50
    # At least the propagation delay; RED and the link add to it. A bulk upload that waits for timeouts
    # may deliver only what its socket took before the measurement, and then has no delay.
    assert (metrics["calls_up.delay_p50"][0] or 0) > 76


@needs_everything
def test_every_kind_of_traffic_is_delivered(tmp_path: Path) -> None:
    changes = {"run.warmup": "1 s", "run.duration": "3 s", "gateway.regulator.rate": "50 Mbps"}
    made = bp.live(bp.load(with_everything(tmp_path), set=changes), "red", out=tmp_path / "result")
    assert made.invalid == []
    flows = made.one("flows", "red", 1)
    assert not flows["failed"].any()
    got = dict(flows.group_by(pl.col("traffic").cast(pl.String)).agg(pl.col("bytes").sum()).iter_rows())
    assert set(got) == {"web", "files", "long", "ticks", "voice"}
    assert min(got.values()) > 0
    # Two sources of 12.5 packets/s with 1000 bytes; rates include headers. The queue is empty.
    assert got["voice"] == pytest.approx(2 * 12.5 * 1000 * 3, abs=2000)
    assert got["ticks"] == pytest.approx(2 * 12.5 * 1000 * 3, rel=0.1)
    # At least the propagation delay: 5 to 10, 50 and 1 ms. A busy machine adds to it.
    values = {name: per[0] for name, per in made.values()["red"].items()}
    assert 56 < (values["voice.delay_mean"] or 0) < 500
    assert (values["voice.delay_p50"] or 0) <= (values["voice.delay_p99"] or 0)
    assert values["voice.loss_rate"] == 0
    assert flows.filter(pl.col("traffic") == "voice")["received_units"].sum() == pytest.approx(75, abs=2)
    # Blocks of the transfer have crossed the same links. Packets over TCP, and what nginx serves, have none.
    assert 56 < (values["long.delay_p50"] or 0) <= (values["long.delay_p99"] or 0) < 3000
    assert values["long.loss_rate"] == 0
    assert {values[f"{name}.delay_p50"] for name in ("ticks", "web", "files")} == {None}
    by_kind = made.manifest["runs"][0]["live"]["load"]["summary"]["traffic"]
    assert by_kind["files"]["completed"] >= 10
    assert by_kind["web"]["completed"] >= 5
    assert sum(each["corrupt"] for each in by_kind.values()) == 0


QUIC_PAGES = """
[traffic.web]
kind = "pages"
from = "server"
to = "client"
transport = "quic"
http = "3"
sessions = 2
objects_per_page = 13
object_size = "2 KB"
think_time = "100 ms"
"""


@needs_everything
def test_pages_over_quic_load_as_in_the_simulation(tmp_path: Path) -> None:
    # Without congestion the page time is a number of round trips, simulated and live.
    changes = {"run.warmup": "1 s", "run.duration": "4 s"}
    scenario = bp.load(over_quic(tmp_path, QUIC_PAGES), set=changes)
    live = bp.live(scenario, "red", out=tmp_path / "live")
    assert live.invalid == []
    simulated = bp.compare(scenario, "red", out=tmp_path / "simulated", runs=1)
    found, expected = ({n: per[0] for n, per in r.values()["red"].items()} for r in (live, simulated))
    assert found["web.pages_failed"] == 0
    assert (found["web.pages"] or 0) > 0
    # A busy machine adds to the round trips.
    for name in ("web.page_time_p50", "web.first_byte_p50"):
        ratio = (found[name] or 0) / (expected[name] or math.nan)
        assert 0.95 < ratio < 2, (name, found[name], expected[name])


@needs_everything
def test_transfers_over_quic_fill_the_link_and_drops_are_assigned_to_them(tmp_path: Path) -> None:
    changes = {"run.warmup": "2 s", "run.duration": "6 s", "gateway.transmit_queue.limit": '"20 packets"'}
    changes |= {"traffic.long.flows": "4"}
    scenario = bp.load(over_quic(tmp_path), set=changes)
    made = bp.live(scenario, "droptail", out=tmp_path / "result")
    assert made.invalid == []
    flows, drops = (made.one(name, "droptail", 1) for name in ("flows", "drops"))
    (run,) = made.manifest["runs"]
    assert flows["traffic"].cast(pl.String).to_list() == ["long"] * 4
    assert run["live"]["load"]["summary"]["traffic"]["long"]["corrupt"] == 0
    # Unsplit: the gateway accepts no connection, and its transmit queue drops the flow's packets.
    assert run["live"]["counters"]["opened"] == 0
    assert run["live"]["spacelink"]["written_bytes"] == 0
    assert flows["drops"].sum() == drops["flow"].drop_nulls().len() == len(drops) > 0
    # Of 1378 bytes on the wire 1322 are payload: 28 of IP and UDP, 28 at least of QUIC. A busy machine
    # takes from it.
    simulated = bp.compare(scenario, "droptail", out=tmp_path / "simulated", runs=1)
    found, expected = (sum(r.one("flows", "droptail", 1)["goodput"].to_list()) for r in (made, simulated))
    assert found < 5e6 * 1322 / 1378
    assert 0.7 < found / expected < 1.1


@needs_everything
def test_marks_hold_prague_over_quic_at_a_short_queue_without_loss(tmp_path: Path) -> None:
    changes = {"run.warmup": "3 s", "run.duration": "6 s", "gateway.marking": "ecn"}
    changes |= {"transport.quic.ecn": "true", "transport.quic.algorithm": "prague"}
    changes |= {"traffic.long.flows": "2"}
    scenario = bp.load(over_quic(tmp_path), set=changes)
    live = bp.live(scenario, "red", out=tmp_path / "live")
    assert live.invalid == []
    simulated = bp.compare(scenario, "red", out=tmp_path / "simulated", runs=1)
    found, expected = ({n: per[0] or 0.0 for n, per in r.values()["red"].items()} for r in (live, simulated))
    (run,) = live.manifest["runs"]
    assert run["live"]["counters"]["ce_marked"] > 0
    # Prague needs several per cent of marks. A sender that did not see their number would not slow down.
    assert found["loss_rate"] == expected["loss_rate"] == 0
    assert 0.3 < found["mark_rate"] / expected["mark_rate"] < 3
    assert found["queue_mean"] < 2 * expected["queue_mean"]
    assert 0.5 < found["long.goodput"] / expected["long.goodput"] < 1.05


@needs_everything
def test_receive_window_limits_a_connection(tmp_path: Path) -> None:
    text = bp.load("live-smoke").text.split("[traffic.web]")[0]
    path = tmp_path / "window.toml"
    bulk = '[traffic.long]\nkind = "bulk"\nfrom = "server"\nto = "client"\ntransport = "linux"\n'
    path.write_text(text.replace('delay = "50 ms"', 'delay = "150 ms"') + bulk)
    changes = {
        "gateway.pep.split": "[]",
        "gateway.regulator.rate": "50 Mbps",
        "link.ingress.delay": "10 ms",
        "transport.linux.receive_window": "64 KB",
        "run.warmup": "2 s",
        "run.duration": "3 s",
    }
    made = bp.live(bp.load(path, set=changes), "droptail", out=tmp_path / "result")
    (rate,) = made.one("flows", "droptail", 1)["goodput"]
    # A round trip takes twice 150 + 10 + 1 ms, and longer on a busy machine: at most ten windows arrive in
    # 3 s, and one that was delayed before. The link would carry 30 times as much.
    assert 0.4 * 64_000 * 8 / 0.322 < rate < 11 * 64_000 * 8 / 3


@needs_everything
def test_unsplit_tcp_passes_the_aqm_and_arrives_intact(tmp_path: Path) -> None:
    changes = {"run.warmup": "1 s", "run.duration": "3 s", "gateway.pep.split": "[]"}
    made = bp.live(bp.load("live-smoke", set=changes), "red", out=tmp_path / "result")
    assert made.invalid == []
    values = {name: per[0] or 0.0 for name, per in made.values()["red"].items()}
    assert values["throughput"] > 1
    assert values["completed"] >= 5
    assert values["failed"] == 0
    live = made.manifest["runs"][0]["live"]
    assert live["counters"]["opened"] == 0
    assert live["counters"]["intercepted"] > 500
    assert live["spacelink"]["written_bytes"] == 0


@needs_everything
def test_incomplete_gateway_record_fails_the_run() -> None:
    class Full(Session):
        def _config(self, role: str, keys: Path) -> str:
            return re.sub('"[^"]*gateway.jsonl"', '"/dev/full"', super()._config(role, keys))

    plan = make_plan(
        bp.load("live-smoke", set={"run.duration": "1 s", "run.warmup": "0 s"}), settings=["red"]
    )
    run = Full(plan.settings[0], check(plan), 1, programs())
    with pytest.raises(LiveError, match=r"^gateway ended with code 1: .*No space left on device"):
        run.run(lambda _: None)


@needs_everything
def test_unwritable_keep_folder_is_reported_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("")
    done = run_cli(*SHORT, "--out", "result", "--keep", "kept/here", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "error: kept/here: cannot be created: Not a directory\n"
    assert not (tmp_path / "result").exists()


@needs_everything
def test_unprivileged_run_uses_a_user_namespace(tmp_path: Path) -> None:
    drop = ("setpriv", "--bounding-set", "-sys_admin,-net_admin")
    probe = subprocess.run(
        [*drop, "unshare", "--user", "--map-root-user", "--net", "--mount", "true"],
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    if probe.returncode:
        pytest.skip("this system gives no user namespaces")
    done = run_cli(*SHORT, "--out", "result", within=drop, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    check_run(bp.open(tmp_path / "result"))


@needs_everything
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 130), (signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_terminated_run_stops_all_its_programs(tmp_path: Path, number: signal.Signals, code: int) -> None:
    command = [sys.executable, "-c", "from bentpipe.cli import main; main()", "live", *SHORT]
    with subprocess.Popen(
        [*command, "--out", "result"], cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=environment()
    ) as running:
        record = namespaces.RUNS / str(running.pid) / "flows.jsonl"
        wait_for(record.exists)
        inside = {
            each
            for place in namespaces.PLACES
            for each in namespaces._processes(namespaces.NETNS / f"bp-{running.pid}-{place}")
        }
        # The emulator, nginx and its worker, both ends, the load generator.
        assert len(inside) >= 6
        running.send_signal(number)
        text = running.communicate(timeout=PATIENCE)[1]
        assert running.returncode == code
    wait_for(lambda: not any(map(_alive, inside)))
    if number == signal.SIGKILL:
        assert left(running.pid)
        with Network():
            pass
    else:
        assert "everything was stopped" in text
        assert not (tmp_path / "result").exists()
    assert not left(running.pid)


@needs_root
def test_gateway_follows_the_capacity_of_the_satellite() -> None:
    begin, low, high = 4.0, 1e6, 5e6
    steps = f'[["0 s", "{high:.0f} bps"], ["{begin} s", "{low:.0f} bps"]]'
    changes = {
        "gateway.regulator.rate": "link",
        "link.satellite.capacity": f"{{ steps = {steps} }}",
        "traffic.web.sessions": "30",
        "host.client.count": "30",
    }
    _, session = planned("live-smoke", **changes)
    session.programs = programs()
    run = session.run(lambda _: None)

    def mean(start: float, end: float) -> float:
        there = run.series.filter(pl.col("time").is_between(start, end, closed="right"))
        return sum(there["throughput"]) / len(there)

    # Times are counted from the start of measuring; half a second is for bytes released before. With RED,
    # thirty users get two thirds of the high rate, and nearly all of the low one.
    change = begin - session._scenario.warmup
    assert 2 * low < mean(0.5, change) < 1.02 * high
    assert 0.6 * low < mean(change + 0.5, session._scenario.duration) < 1.02 * low
    # Packets waited in the gateway; the satellite dropped none.
    links = run.live["links"]["statistics"]["links"]
    (satellite,) = (each for each in links if (each["link"], each["direction"]) == ("satellite", "forward"))
    assert satellite["dropped"] == {}
    assert satellite["delay_mean_s"] < 0.075


def test_gateway_and_emulator_share_the_modem_socket() -> None:
    _, session = planned("live-smoke", **{"gateway.regulator.rate": "link", "link.satellite.rate": "5 Mbps"})
    config = tomllib.loads(session._config("gateway", Path("/keys")))
    (space,) = (each for each in session._plan()["segments"] if each["name"] == "space")
    assert [link["modem"] for link in space["links"]] == [config["satellite"]["modem"]]
    assert "modem" not in tomllib.loads(session._config("terminal", Path("/keys")))["satellite"]
    _, other = planned("live-smoke")
    assert "modem" not in tomllib.loads(other._config("gateway", Path("/keys")))["satellite"]
    assert all("modem" not in link for each in other._plan()["segments"] for link in each["links"])
