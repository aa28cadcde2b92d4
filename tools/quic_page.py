"""Renew docs/quic.md and its figure: `make quic`.

Or `python tools/quic_page.py docs results/quic`. Runs stored in the second folder are not repeated.
"""

import sys
from pathlib import Path
from statistics import fmean

import altair as alt
import polars as pl

import bentpipe as bp
from bentpipe.runs.plan import slug
from bentpipe.stats.intervals import summarise
from blocks import table, with_blocks
from stored_runs import Runs, Values, draw, known, shown

__all__ = ["PAGE", "renew"]

PAGE = "quic.md"
SCENARIO = "quic-geo"
SEED, RUNS = 8001, 5
SETTINGS = ("droptail", "red", "avqred", "pfavqred", "drr", "codel", "fq_codel", "cake")
COMPARED = ("red", "pfavqred", "drr", "fq_codel")
"""Settings under which transports and orbits are compared."""
METRICS = {
    "web_tcp.page_time_p75": "page over TCP, p75 [s]",
    "web_quic.page_time_p75": "page over QUIC, p75 [s]",
    "video_tcp.stalled": "video over TCP, stalled [%]",
    "video_quic.stalled": "video over QUIC, stalled [%]",
    "downloads_tcp.flow_goodput": "download over TCP [kbit/s]",
    "downloads_quic.flow_goodput": "download over QUIC [kbit/s]",
    "voice.mos": "calls, MOS",
    "throughput": "throughput [Mbit/s]",
}
TRANSPORTS = {
    "NewReno": {"algorithm": "newreno"},
    "CUBIC": {},
    "CUBIC, HyStart++": {"hystart": "true"},
    "BBR, version 1": {"algorithm": "bbr"},
    "CUBIC, first window of 32 packets": {"initial_window": "32"},
    "CUBIC, Careful Resume": {"careful_resume": "5 min"},
    "CUBIC, 0-RTT": {"zero_rtt": "1 h"},
    "CUBIC, 0-RTT and Careful Resume": {"zero_rtt": "1 h", "careful_resume": "5 min"},
    "BBR, version 3": {"algorithm": "bbr3"},
    "CUBIC, SEARCH": {"search": "true"},
}
"""QUIC of the scenario's users, with the keys that differ."""
ECN = {"gateway.marking": "ecn", "transport.tcp.ecn": "true", "transport.quic.ecn": "true"}
PRAGUE = ECN | {
    "transport.tcp.ecn": "accurate",
    "transport.tcp.algorithm": "prague",
    "transport.quic.algorithm": "prague",
}
MARKS: dict[str, tuple[str, dict[str, str]]] = {
    "`codel` drops": ("codel", {}),
    "`codel` marks": ("codel", ECN),
    "`fq_codel` drops": ("fq_codel", {}),
    "`fq_codel` marks": ("fq_codel", ECN),
    "`dualpi2` marks, all senders with Prague": ("dualpi2", PRAGUE),
}
"""Settings that drop or mark at the transmit queue, and what they change in the scenario."""
ADVICE = {"gateway.throughput_advice": "share", "transport.quic.scone": "true"}
"""Keys with which players over QUIC are told their share of the carrier."""
OF_ADVICE = {
    "video_quic.bitrate": "video over QUIC, bitrate [Mbit/s]",
    "video_quic.stalled": METRICS["video_quic.stalled"],
    "web_quic.page_time_p75": METRICS["web_quic.page_time_p75"],
    "downloads_quic.flow_goodput": METRICS["downloads_quic.flow_goodput"],
    "voice.mos": METRICS["voice.mos"],
}
BLOCKING = {"traffic.web_quic.render_blocking": "6"}
"""Objects of a page, of 20, that a browser needs first."""
OF_PRIORITIES = {
    "web_quic.render_time_p75": "time to render, p75 [s]",
    "web_quic.page_time_p75": METRICS["web_quic.page_time_p75"],
}
OF_MARKS = (
    "web_tcp.page_time_p75",
    "web_quic.page_time_p75",
    "video_quic.stalled",
    "downloads_tcp.flow_goodput",
    "downloads_quic.flow_goodput",
    "voice.mos",
)
OF_QUIC = ("web_quic.page_time_p75", "video_quic.stalled", "downloads_quic.flow_goodput", "voice.mos")
ORBITS = {"GEO, 250 ms": 250, "MEO, 70 ms": 70, "LEO, 15 ms": 15}
"""One-way delay of the satellite link [ms]."""
OF_ORBITS = (
    "web_tcp.page_time_p75",
    "web_quic.page_time_p75",
    "downloads_tcp.flow_goodput",
    "downloads_quic.flow_goodput",
)


ALONE = """
title = "One user loads pages of 1 MB over a GEO link"
[run]
duration = "120 s"
[host.server]
[host.user]
[link.satellite]
between = ["server", "user"]
rate = "20 Mbps"
delay = "280 ms"
queue = { limit = "1000 packets" }
[transport.quic]
protocol = "quic"
algorithm = "cubic"
[traffic.web]
kind = "pages"
from = "server"
to = "user"
transport = "quic"
http = "3"
sessions = 1
object_size = "1 MB"
think_time = "1 s"
"""


def cells(values: Values, setting: str, metrics: tuple[str, ...]) -> list[str]:
    """Return means with 95 % intervals."""
    return shown(summarise(known(values, setting, name)) for name in metrics)


def queues(runs: Runs, figures: Path) -> str:
    """Compare the scenario's settings, and draw the page load times."""
    result = runs.of("queues", bp.load(SCENARIO), SETTINGS, RUNS, seed=SEED)
    values = result.values()
    drawn = [
        {"setting": setting, "transport": transport, "time": fmean(known(values, setting, metric))}
        for setting in SETTINGS
        for transport, metric in (("TCP, split", "web_tcp.page_time_p75"), ("QUIC", "web_quic.page_time_p75"))
    ]
    times = alt.Chart(pl.DataFrame(drawn)).encode(
        alt.Y("setting:N", sort=list(SETTINGS), title=None),
        alt.X("time:Q", scale=alt.Scale(type="log"), title="page load time, 75th percentile [s]"),
    )
    dots = times.mark_point(filled=True, size=90).encode(
        alt.Color("transport:N", scale=alt.Scale(range=["#b5482f", "#2f6db5"]), title=None),
        alt.Shape("transport:N", title=None),
    )
    lines = times.mark_line(color="#999").encode(alt.Detail("setting:N"))
    draw(figures / "pages.svg", (lines + dots).properties(width=390, height=210))
    rows = [[f"`{setting}`", *cells(values, setting, tuple(METRICS))] for setting in SETTINGS]
    return table(["setting", *METRICS.values()], rows)


def transports(runs: Runs) -> str:
    """Compare QUIC's congestion controls."""
    rows: list[list[str]] = []
    for setting in COMPARED:
        for name, keys in TRANSPORTS.items():
            loaded = bp.load(SCENARIO, set={f"transport.quic.{key}": value for key, value in keys.items()})
            folder = f"transports-{setting}-{slug(name, ())}"
            values = runs.of(folder, loaded, [setting], RUNS, seed=SEED).values()
            rows.append([f"`{setting}`: {name}", *cells(values, setting, OF_QUIC)])
    return table(["setting and congestion control", *(METRICS[name] for name in OF_QUIC)], rows)


def marks(runs: Runs) -> str:
    """Compare drops with marks at the transmit queue."""
    rows = []
    for name, (setting, keys) in MARKS.items():
        loaded = bp.load(SCENARIO, set=keys)
        values = runs.of(f"marks-{slug(name, ())}", loaded, [setting], RUNS, seed=SEED).values()
        rows.append([name, *cells(values, setting, OF_MARKS)])
    return table(["transmit queue", *(METRICS[name] for name in OF_MARKS)], rows)


def advice(runs: Runs) -> str:
    """Compare videos that follow throughput advice with those that measure only."""
    rows = []
    advised = runs.of("advice", bp.load(SCENARIO, set=ADVICE), COMPARED, RUNS, seed=SEED).values()
    without = runs.of("queues", bp.load(SCENARIO), SETTINGS, RUNS, seed=SEED).values()
    for setting in COMPARED:
        for name, values in (("without", without), ("with advice", advised)):
            rows.append([f"`{setting}`, {name}", *cells(values, setting, tuple(OF_ADVICE))])
    return table(["setting", *OF_ADVICE.values()], rows)


def priorities(runs: Runs) -> str:
    """Compare pages whose objects are sent in turn with pages by the priorities of browsers."""
    rows: list[list[str]] = []
    kinds = {
        name: runs.of(
            f"priorities-{value}",
            bp.load(SCENARIO, set=BLOCKING | {"traffic.web_quic.priorities": value}),
            COMPARED,
            RUNS,
            seed=SEED,
        ).values()
        for name, value in (("in turn", "false"), ("by priority", "true"))
    }
    for setting in COMPARED:
        for name, values in kinds.items():
            rows.append([f"`{setting}`, {name}", *cells(values, setting, tuple(OF_PRIORITIES))])
    return table(["setting and order of objects", *OF_PRIORITIES.values()], rows)


def alone(runs: Runs) -> str:
    """Load pages one after the other on an idle link."""
    path = runs.write("alone.toml", ALONE)
    rows = []
    for name, keys in TRANSPORTS.items():
        loaded = bp.load(path, set={f"transport.quic.{key}": value for key, value in keys.items()})
        flows = runs.of(f"alone-{slug(name, ())}", loaded, ["droptail"], 1, seed=SEED).flows()
        done = flows.filter(pl.col("completed"))
        times = (done["closed"] - done["opened"]).to_list()
        later = summarise(times[1:])
        rows.append([name, f"{times[0]:.2f}", f"{later.mean:.2f}"])
    return table(["congestion control", "first page [s]", "later pages, mean [s]"], rows)


def orbits(runs: Runs) -> str:
    """Vary the satellite's delay."""
    rows = []
    for name, delay in ORBITS.items():
        loaded = bp.load(
            SCENARIO,
            set={"link.satellite.delay": f"{delay} ms", "link.satellite.reverse.delay": f"{delay} ms"},
        )
        values = runs.of(f"orbit-{delay}", loaded, COMPARED, RUNS, seed=SEED).values()
        rows += [[f"{name}: `{setting}`", *cells(values, setting, OF_ORBITS)] for setting in COMPARED]
    return table(["satellite and setting", *(METRICS[name] for name in OF_ORBITS)], rows)


def renew(docs: Path, out: Path) -> None:
    """Simulate the runs missing in `out`, and write the page's generated parts and its figure."""
    runs = Runs(out)
    blocks = {
        "queues": lambda: queues(runs, docs / "figures" / "quic"),
        "transports": lambda: transports(runs),
        "marks": lambda: marks(runs),
        "advice": lambda: advice(runs),
        "priorities": lambda: priorities(runs),
        "alone": lambda: alone(runs),
        "orbits": lambda: orbits(runs),
    }
    with_blocks(docs / PAGE, blocks, "quic")


if __name__ == "__main__":
    renew(*map(Path, sys.argv[1:]))
