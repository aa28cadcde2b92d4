"""Properties of every scenario, checked for generated networks, queues, transports and traffic.

A run checks its own counters (packets that arrived, left, were dropped and wait) and ends with an error where
they do not agree. LONG=1 makes more examples of each property, GENERATED=1000 as many as it says.
"""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from conftest import digests
from hypothesis import given, settings
from hypothesis import strategies as st

import bentpipe as bp
from bentpipe import _core

EXAMPLES = int(os.environ.get("GENERATED", "200" if os.environ.get("LONG") else "20"))
MORE = settings(max_examples=EXAMPLES)
FEW = settings(max_examples=max(2, EXAMPLES // 10))
Tables = dict[str, Any]

REGISTRY = json.loads(_core.registry())
QUEUES = [each["name"] for each in REGISTRY["aqms"] + REGISTRY["schedulers"]]
TRANSPORTS: list[Tables] = [
    {},
    {"algorithm": "cubic", "sack": True, "rack": True},
    {"algorithm": "bbr", "sack": True},
    {"algorithm": "reno", "delayed_ack": "100 ms"},
    {"protocol": "quic"},
    {"protocol": "sctp"},
]


def packet_sources(draw: st.DrawFn) -> Tables:
    kind = draw(st.sampled_from(["cbr", "poisson", "on_off", "voip"]))
    table: Tables = {"kind": kind, "flows": draw(st.integers(1, 4))}
    if kind == "voip":
        return table
    table |= {"rate": f"{draw(st.integers(50, 4000))} kbps", "packet": f"{draw(st.integers(60, 1500))} B"}
    if kind == "on_off":
        table |= {"on": {"exponential": "300 ms"}, "off": {"exponential": "300 ms"}}
    return table


def transfers(draw: st.DrawFn) -> Tables:
    kind = draw(st.sampled_from(["pages", "files", "bulk"]))
    size = f"{draw(st.integers(1, 200))} KB"
    match kind:
        case "pages":
            sessions = draw(st.integers(1, 6))
            return {
                "kind": kind,
                "sessions": sessions,
                "object_size": size,
                "think_time": {"exponential": "1 s"},
            }
        case "files":
            return {"kind": kind, "sources": draw(st.integers(1, 4)), "interval": "700 ms", "size": size}
        case _:
            return {"kind": kind, "flows": draw(st.integers(1, 4))} | draw(
                st.sampled_from([{}, {"bytes": size}])
            )


def impairments(draw: st.DrawFn, delay: int) -> Tables:
    """Delay and losses of a link, and its handovers."""
    forms: list[object] = [
        f"{delay} ms",
        {"fixed": f"{delay} ms", "jitter": {"exponential": "2 ms"}},
        {"uniform": [f"{delay} ms", f"{delay + 20} ms"], "per": "connection"},
        {"normal": {"mean": f"{delay + 20} ms", "std": "4 ms"}, "ordered": draw(st.booleans())},
    ]
    losses: list[object] = [
        0.001,
        0.02,
        {"gilbert_elliott": {"good": "900 ms", "bad": "50 ms", "loss_bad": 0.5}},
        {"bit_error_rate": 1e-6, "at": draw(st.sampled_from(["before_queue", "after_queue"]))},
        {"nth": [5, 17, 200], "of": "data"},
    ]
    link: Tables = {"delay": draw(st.sampled_from(forms))}
    if draw(st.booleans()):
        link["loss"] = draw(st.sampled_from(losses))
    if draw(st.integers(0, 3)) == 0:
        during = draw(st.sampled_from(["hold", "lose"]))
        link["handover"] = {"delay": ["0 ms", "15 ms"], "outage": "60 ms", "during": during}
    return link


def capacity(draw: st.DrawFn, rate: int) -> Tables:
    """A constant rate [kbit/s], or one that changes."""
    steps = [["0 s", f"{rate} kbps"], ["700 ms", f"{rate // 2} kbps"], ["900 ms", "0 bps"]]
    changing: list[Tables] = [
        {"steps": steps, "repeat": "1100 ms"},
        {"uniform": [f"{rate // 2} kbps", f"{rate} kbps"], "every": "100 ms"},
        {"symbol_rate": f"{rate} kbaud", "fade": {"clear_sky": 12, "median": 1.5, "sigma": 1.1}},
    ]
    constant: Tables = {"rate": f"{rate} kbps"}
    return draw(st.sampled_from([constant, constant, *({"capacity": each} for each in changing)]))


@st.composite
def scenarios(draw: st.DrawFn, *, gateway: bool | None = None) -> Tables:
    """A link's queue or a gateway's between servers and clients, and traffic in both directions."""
    rate = draw(st.integers(300, 20_000))
    delay = draw(st.integers(0, 300))
    link = impairments(draw, delay)
    queue: Tables = {"limit": draw(st.sampled_from(["20 packets", "60 KB", "500 packets"]))}
    tables: Tables = {
        "title": "Generated",
        "run": {"warmup": "1 s", "duration": "4 s", "settings": [draw(st.sampled_from(QUEUES))]},
        "host": {"server": {"count": draw(st.integers(1, 3))}, "client": {"count": draw(st.integers(1, 3))}},
        "transport": {"other": draw(st.sampled_from(TRANSPORTS))},
        "traffic": {},
    }
    ends = {"rate": "50 Mbps", "delay": f"{draw(st.integers(0, 20))} ms"}
    if draw(st.booleans()) if gateway is None else gateway:
        pep = draw(
            st.sampled_from(
                [{"split": []}, {"delay": "2 ms"}, {"buffer": "40 KB", "buffer_per": "connection"}]
            )
        )
        tables["gateway"] = {"regulator": {"rate": f"{rate} kbps"}, "transmit_queue": queue, "pep": pep}
        terminal = "terminal"
        satellite: Tables = {**link, "reverse": {"rate": "1 Mbps"}}
        if draw(st.booleans()):
            terminal, count = "dish", draw(st.integers(1, 3))
            tables["terminal"] = {terminal: {"count": count}}
            tables["host"]["client"]["count"] = count * draw(st.integers(1, 2))
            queues_per = draw(st.sampled_from(["carrier", "terminal", "subscriber"]))
            tables["gateway"] |= {"terminals": [terminal], "queues_per": queues_per}
        if draw(st.booleans()):
            tables["gateway"]["regulator"] = {"rate": "link"}
            satellite |= capacity(draw, rate)
        if draw(st.booleans()):
            tables["gateway"]["return"] = {
                "transmit_queue": {"limit": "40 packets"},
                "ack_filter": draw(st.booleans()),
            }
        tables["link"] = {
            "ingress": {"between": ["server", "gateway"], **ends},
            "satellite": {"between": ["gateway", terminal], **satellite},
            "access": {"between": [terminal, "client"], "rate": "50 Mbps", "delay": "1 ms"},
        }
    else:
        tables["router"] = {"west": {}, "east": {}}
        tables["link"] = {
            "left": {"between": ["server", "west"], **ends},
            "middle": {"between": ["west", "east"], **capacity(draw, rate), "queue": queue, **link},
            "right": {"between": ["east", "client"], "rate": "50 Mbps", "delay": "1 ms"},
        }
        tables["run"]["subject"] = "middle"
    for number in range(draw(st.integers(1, 3))):
        is_transfer = draw(st.booleans())
        table = transfers(draw) if is_transfer else packet_sources(draw)
        down = table["kind"] == "pages" or draw(st.integers(0, 3)) > 0
        table |= dict(
            zip(("from", "to"), ("server", "client") if down else ("client", "server"), strict=True)
        )
        is_sctp = tables["transport"]["other"].get("protocol") == "sctp"
        if is_transfer and draw(st.booleans()) and not (is_sctp and table["kind"] == "pages"):
            table["transport"] = "other"
        tables["traffic"][f"t{number}"] = table
    return tables


ROUND = st.sampled_from([100, 200, 400, 500, 800, 1000, 2000, 4000])
"""Rates [kbit/s] at which 50 bytes take whole microseconds, so that no rounding decides who comes first."""


@st.composite
def udp(draw: st.DrawFn) -> Tables:
    """Constant bit rates before a tail drop queue, from far below the link's rate to far above."""
    flows = draw(st.lists(st.tuples(st.integers(1, 30), ROUND), min_size=1, max_size=4))
    traffic = {
        f"t{number}": {
            "kind": "cbr",
            "from": "server",
            "to": "client",
            "flows": draw(st.integers(1, 3)),
            "packet": f"{50 * size} B",
            "rate": f"{rate} kbps",
        }
        for number, (size, rate) in enumerate(flows)
    }
    rate, limit = draw(ROUND), draw(st.integers(1, 60))
    queue = {"limit": f"{limit} packets", "aqm": {"algorithm": "droptail"}}
    link = {"rate": f"{rate} kbps", "delay": f"{2 * draw(st.integers(0, 150))} ms", "queue": queue}
    return {
        "title": "Generated",
        "run": {"warmup": "2 s", "duration": "4 s", "settings": ["droptail"], "subject": "middle"},
        "host": {"server": {"count": 1}, "client": {"count": 1}},
        "link": {"middle": {"between": ["server", "client"], **link}},
        "traffic": traffic,
    }


def scaled(tables: Tables, *, size: float = 1, time: float = 1, rate: float = 1) -> Tables:
    """Return a scenario with all sizes, times and rates multiplied."""

    def value(each: object) -> object:
        if isinstance(each, dict):
            return {key: value(inner) for key, inner in each.items()}
        number, _, unit = str(each).partition(" ")
        factor = {"B": size, "ms": time, "s": time, "kbps": rate}.get(unit)
        return each if factor is None else f"{float(number) * factor:g} {unit}"

    return {key: value(each) for key, each in tables.items()}


PACKETS = ("offered_packets", "sent_packets", "dropped_packets", "left_queue")


def counters(tables: Tables, out: Path) -> dict[str, float]:
    result = run(tables, out)
    found = result.counters_of(result.settings[0], result.seeds[0])
    return {name: value for name, value in found.items() if value is not None}


def run(tables: Tables, out: Path) -> bp.Result:
    return bp.compare(bp.Scenario.from_dict(tables), runs=1, out=out)


@MORE
@given(scenarios())
def test_payload_is_conserved(tables: Tables) -> None:
    """Goodput's samples add up to what flows received, and completed transfers have their sizes."""
    with tempfile.TemporaryDirectory() as folder:
        result = run(tables, Path(folder) / "result")
        setting, seed = result.settings[0], result.seeds[0]
        flows, series = result.one("flows", setting, seed), result.one("series", setting, seed)
        through = [name for name, each in tables["traffic"].items() if each["from"] == "server"]
        received = flows.filter(pl.col("traffic").is_in(through))["bytes"].sum()
        assert float(series["goodput"].sum()) * 0.1 / 8 == pytest.approx(received, rel=1e-9, abs=1)
        finite = flows.filter(pl.col("completed") & (pl.col("opened") >= 0))
        for name, each in tables["traffic"].items():
            size = each.get("size") or each.get("bytes")
            if size is not None:
                sizes = finite.filter(pl.col("traffic") == name)["bytes"].unique().to_list()
                assert sizes in ([], [1000 * int(size.split()[0])])


@MORE
@given(udp())
def test_twice_the_bytes_at_twice_the_rate_take_the_same_time(tables: Tables) -> None:
    with tempfile.TemporaryDirectory() as folder:
        once = counters(tables, Path(folder) / "once")
        twice = counters(scaled(tables, size=2, rate=2), Path(folder) / "twice")
    for name in (*PACKETS, "queue_delay_mean", "queue_delay_p95", "queue_time_average"):
        assert twice[name] == once[name], name
    assert twice["sent_bytes"] == 2 * once["sent_bytes"]


@MORE
@given(udp())
def test_half_of_each_time_at_twice_the_rate_passes_the_same_packets(tables: Tables) -> None:
    with tempfile.TemporaryDirectory() as folder:
        once = counters(tables, Path(folder) / "once")
        faster = counters(scaled(tables, time=0.5, rate=2), Path(folder) / "faster")
    for name in PACKETS:
        assert faster[name] == once[name], name
    assert faster["queue_delay_mean"] == pytest.approx(once["queue_delay_mean"] / 2, rel=1e-9)


@FEW
@given(scenarios())
def test_results_do_not_depend_on_the_number_of_workers(tables: Tables) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = []
        for jobs in (1, 2):
            scenario = bp.Scenario.from_dict(tables)
            result = bp.compare(scenario, runs=2, jobs=jobs, out=Path(folder) / f"{jobs}")
            found.append(digests(result.folder))
        assert found[0] == found[1]
