"""Renew the live part of docs/quic.md: `make live-quic`, as root.

Or `python tools/live_quic_page.py docs results/live-quic`. Runs stored in the second folder are not repeated.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import bentpipe as bp
from blocks import with_blocks
from engines_table import Compared, compared, verdict
from stored_runs import Runs, head, known

__all__ = ["both_engines", "renew"]

PAGE = "quic.md"
SEED = 8001
SETTINGS = ("droptail", "pfavqred", "drr", "fq_codel")
FEW, MANY = (3, 20), (6, 40)
"""Runs live and simulated, of settings whose runs differ little, and of others."""
GOODPUT, PAGE_TIME, QUEUE = 5.0, 10.0, 30.0
"""Bands: greatest difference of the medians [%]."""
METRICS = {
    "throughput": None,
    "queue_mean": QUEUE,
    "long_quic.flow_goodput": GOODPUT,
    "web_quic.page_time_p50": PAGE_TIME,
}
OF_TCP = {"long_tcp.flow_goodput": GOODPUT}
CHANGES = {
    "run.warmup": "10 s",
    "run.duration": "30 s",
    "gateway.pep": (
        '{ delay = "1 ms", buffer = "64 KB", buffer_per = "connection", receive_buffer = "128 KB" }'
    ),
    "gateway.spacelink.datagram_header": '"59 B"',
    "gateway.spacelink.ack_delay": '"5 ms"',
    "link.ingress.delay": '"25 ms"',
    "gateway.transmit_queue.limit": '"100 packets"',
}
TWO = {"traffic.long_quic.flows": "2"}
QUIC = """
[transport.quic]
protocol = "quic"
algorithm = "cubic"
max_udp_payload = "1350 B"

[traffic.long_quic]
kind = "bulk"
from = "server"
to = "client"
transport = "quic"
"""
TCP = """
[traffic.long_tcp]
kind = "bulk"
from = "server"
to = "client"
transport = "linux"
"""
PAGES = """
[traffic.web_quic]
kind = "pages"
from = "server"
to = "client"
transport = "quic"
http = "3"
sessions = 2
objects_per_page = 10
object_size = "10 KB"
think_time = { exponential = "1 s" }
"""


def agreement(
    runs: Runs,
    name: str,
    traffic: tuple[str, Mapping[str, str]],
    many: Sequence[str],
    metrics: Mapping[str, float | None],
) -> str:
    """Compare live runs of live-smoke's link with simulated ones.

    `traffic` replaces its pages, with changes of the scenario; the runs of the settings `many` differ.
    """
    path = runs.write(f"{name}.toml", bp.load("live-smoke").text.split("[traffic.web]")[0] + traffic[0])
    scenario = bp.load(path, set={**CHANGES, **traffic[1]})
    few = [setting for setting in SETTINGS if setting not in many]
    rows = [
        *both_engines(runs, f"{name}-few-", scenario, (*FEW, SEED), few, metrics),
        *both_engines(runs, f"{name}-many-", scenario, (*MANY, SEED), many, metrics),
    ]
    judged = [each for each in rows if each.band is not None]
    met = sum(verdict(each) == "met" for each in judged)
    return f"{met} of {len(judged)} bands are met:\n\n{compared(rows)}"


def both_engines(
    runs: Runs,
    prefix: str,
    scenario: bp.Scenario,
    numbers: tuple[int, int, int],
    settings: Sequence[str],
    metrics: Mapping[str, float | None],
) -> list[Compared]:
    """Compare a scenario's metrics, each with its band or none, live and simulated.

    `prefix` begins the names of both results; `numbers` are those of live and simulated runs, and the seed.
    """
    live_runs, simulated_runs, seed = numbers
    simulated, live = runs.of_both(prefix, scenario, settings, (simulated_runs, live_runs), seed)
    before, after = simulated.values(), live.values()
    return [
        Compared(
            f"`{setting}`: {head(metric)}",
            known(before, setting, metric),
            known(after, setting, metric),
            band,
        )
        for setting in settings
        for metric, band in metrics.items()
    ]


def renew(docs: Path, out: Path) -> None:
    """Perform the runs missing in `out`, and write the page's generated parts."""
    runs = Runs(out)
    blocks = {
        "alone": lambda: agreement(runs, "alone", (QUIC + PAGES, TWO), ["pfavqred"], METRICS),
        "beside": lambda: agreement(
            runs, "beside", (QUIC + TCP + PAGES, {}), ["droptail", "pfavqred"], METRICS | OF_TCP
        ),
    }
    with_blocks(docs / PAGE, blocks, "live-quic")


if __name__ == "__main__":
    renew(*map(Path, sys.argv[1:]))
