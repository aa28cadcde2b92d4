"""Renew the live part of docs/quic.md: `make live-quic`, as root.

Or `python tools/live_quic_page.py docs results/live-quic`. Runs stored in the second folder are not repeated.
"""

import sys
from pathlib import Path
from statistics import fmean

import bentpipe as bp
from backlog_page import Runs, head, known, table, with_blocks
from bentpipe.format import quantity
from bentpipe.stats.intervals import summarise

__all__ = ["renew"]

PAGE = "quic.md"
SEED, LIVE_RUNS, SIMULATED_RUNS = 8001, 3, 10
SETTINGS = ("droptail", "pfavqred", "drr", "fq_codel")
METRICS = ("throughput", "queue_mean")
OF_TRAFFIC = ("long_quic.flow_goodput", "long_tcp.flow_goodput", "web_quic.page_time_p50")
CHANGES = {
    "run.warmup": "10 s",
    "run.duration": "30 s",
    "gateway.pep": '{ delay = "1 ms", buffer = "64 KB", buffer_per = "connection" }',
    "gateway.transmit_queue.limit": '"100 packets"',
}
TRAFFIC = """
[transport.quic]
protocol = "quic"
algorithm = "cubic"
max_udp_payload = "1350 B"

[traffic.long_quic]
kind = "bulk"
from = "server"
to = "client"
transport = "quic"

[traffic.long_tcp]
kind = "bulk"
from = "server"
to = "client"
transport = "linux"

[traffic.web_quic]
kind = "pages"
from = "server"
to = "client"
transport = "quic"
http = "3"
sessions = 2
objects_per_page = 10
object_size = "10 KB"
think_time = "1 s"
"""
"""In place of live-smoke's pages."""


def agreement(runs: Runs) -> str:
    """Compare live runs of a small link with simulated ones."""
    runs.folder.mkdir(parents=True, exist_ok=True)
    path = runs.folder / "small.toml"
    path.write_text(bp.load("live-smoke").text.split("[traffic.web]")[0] + TRAFFIC, encoding="utf-8")
    scenario = bp.load(path, set=CHANGES)
    live = runs.of("live", scenario, SETTINGS, LIVE_RUNS, seed=SEED, live=True)
    if live.invalid:
        raise SystemExit("; ".join(live.invalid))
    simulated = runs.of("simulated", scenario, SETTINGS, SIMULATED_RUNS, seed=SEED)
    rows = []
    for setting in SETTINGS:
        for name in (*METRICS, *OF_TRAFFIC):
            here, there = (known(each.values(), setting, name) for each in (live, simulated))
            expected = summarise(there)
            ratio = fmean(here) / fmean(there) - 1
            spread = " – ".join(quantity(each, None) for each in (min(here), max(here)))
            mean = quantity(expected.mean, expected.ci95)
            rows.append([f"`{setting}`: {head(name)}", mean, spread, f"{100 * ratio:+.0f} %"])
    return table(["setting and metric", "simulated", "live", "difference of means"], rows)


def renew(docs: Path, out: Path) -> None:
    """Perform the runs missing in `out`, and write the page's generated part."""
    runs = Runs(out)
    with_blocks(docs / PAGE, {"live": lambda: agreement(runs)}, "live-quic")


if __name__ == "__main__":
    renew(*map(Path, sys.argv[1:]))
