"""Simulate a day with ten million connections, and measure the memory: `make soak`.

    python tools/soak.py DOCS

Renews the generated part of DOCS/performance-simulator.md, and its figure. The exit code is 1 if the memory
grows by anything but the rows of the connections in the result.
"""

import resource
import sys
import threading
import time
from pathlib import Path
from statistics import linear_regression
from tempfile import TemporaryDirectory

import altair as alt
import polars as pl

from bentpipe import _core
from bentpipe.runs.plan import load
from blocks import table, with_blocks
from stored_runs import draw

SCENARIO = """
title = "A day of short transfers"

[run]
duration = "24 h"
sample_interval = "60 s"

[host.s]
count = 1200

[host.d]
count = 1200

[router.a]

[router.b]

[link.left]
between = ["s", "a"]
rate = "100 Mbps"
delay = "5 ms"

[link.bottleneck]
between = ["a", "b"]
rate = "20 Mbps"
delay = "20 ms"
queue = { limit = "400 packets", aqm = { algorithm = "red" } }

[link.right]
between = ["b", "d"]
rate = "100 Mbps"
delay = "5 ms"

[transport.tcp]
preset = "linux"

[traffic.files]
kind = "files"
from = "s"
to = "d"
sources = 1200
transport = "tcp"
size = "10 KB"
interval = { exponential = "10 s" }
"""
HOURS = 24
ROW = 128
"""Length of a connection's row in the simulator [bytes]; a test of the recorder compares it."""
MOST = 1.02
"""Greatest growth over that of the rows."""
_SHOWN = (1, 6, 12, 18, 24)


def memory() -> float:
    """Return the memory of this process [MB]."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 1e6


def simulated(scenario: _core.Scenario) -> tuple[list[tuple[float, float]], float, int]:
    """Simulate; return samples of simulated time [h] and memory [MB], processor time [s], and connections."""
    progress, ended, samples = _core.Progress(), threading.Event(), []

    def watch() -> None:
        while not ended.wait(0.2):
            samples.append((progress.fraction() * HOURS, memory()))

    thread = threading.Thread(target=watch)
    thread.start()
    began = time.process_time()
    found = _core.simulate(scenario, 1, progress)
    took = time.process_time() - began
    ended.set()
    thread.join()
    return samples, took, pl.DataFrame(found.flows).height


def main() -> int:
    """Simulate, and write the part of the page and its figure."""
    docs = Path(sys.argv[1])
    with TemporaryDirectory() as folder:
        path = Path(folder) / "day.toml"
        path.write_text(SCENARIO, encoding="utf-8")
        scenario = load(path)
    samples, took, connections = simulated(scenario)
    while_running = [(hours, size) for hours, size in samples if 0.5 < hours < HOURS]
    slope, first = linear_regression(*zip(*while_running, strict=True))
    rows = connections / HOURS * ROW / 1e6
    shown = pl.DataFrame(
        [
            {"hours": hours, "MB": value, "memory": what}
            for hours, size in while_running
            for what, value in (("process", size), ("without rows", size - rows * hours))
        ]
    )
    axis = alt.Y("MB:Q", title="memory [MB]", scale=alt.Scale(domainMin=0))
    lines = (
        alt.Chart(shown)
        .mark_line()
        .encode(alt.X("hours:Q", title="simulated time [h]"), axis, color="memory:N")
    )
    draw(docs / "figures" / "soak.svg", lines.properties(width=420, height=180))
    near = {hour: min(while_running, key=lambda each: abs(each[0] - hour))[1] for hour in _SHOWN}
    text = (
        f"{connections:,} connections in {HOURS} simulated hours took {took:.0f} s of processor time. The"
        f" memory grew by {slope / (connections / HOURS) * 1e6:.1f} bytes for each connection, from"
        f" {first:.0f} MB on; its row in the result has {ROW}.\n\n"
    )
    text += table(
        ["simulated hours", *map(str, _SHOWN)],
        [
            ["memory [MB]", *(f"{near[hour]:.0f}" for hour in _SHOWN)],
            ["without rows [MB]", *(f"{near[hour] - rows * hour:.0f}" for hour in _SHOWN)],
        ],
    )
    with_blocks(docs / "performance-simulator.md", {"day": lambda: text}, "soak")
    print(text)
    return int(slope > MOST * rows)


if __name__ == "__main__":
    sys.exit(main())
