"""Count how often 95 % intervals of simulated results cover the value of queueing theory: `make coverage`.

Poisson packets of exponential length at a link are an M/M/1 queue: at a load r, the mean number of waiting
packets is r² / (1 - r), and the mean wait is r / (1 - r) times the mean transmission time. Of 200 experiments
of five runs, or of one long run, 91 to 98 % must cover the true value. The exit code is 0 if all do.
"""

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import polars as pl

from bentpipe._core import Progress, Scenario, simulate
from bentpipe.cli.console import grid, stdout
from bentpipe.runs.experiment import cores
from bentpipe.stats.intervals import Summary, paired, summarise
from bentpipe.stats.metrics import Recorded, evaluate
from bentpipe.stats.steady import batch_means

EXPERIMENTS, RUNS = 200, 5
LOAD, RATE, PACKET = 600e3, 1e6, 1000
LEAST, MOST = 0.91, 0.98

TEXT = """
title = "M/M/1"
[run]
warmup = "20 s"
duration = "{duration} s"
[host.sender]
[host.receiver]
[link.wire]
between = ["sender", "receiver"]
rate = "{rate} bps"
queue = {{ }}
[traffic.t]
kind = "poisson"
from = "sender"
to = "receiver"
rate = "{load} bps"
packet = {{ exponential = "{packet} B" }}
"""


def true(rate: float) -> dict[str, float]:
    """Return the true value of each metric at a link of `rate` [bit/s]."""
    share, service = LOAD / rate, 8 * PACKET / rate
    return {
        "throughput": LOAD * 1e-6,
        "queue_mean": share**2 / (1 - share),
        "queue_time_average": share**2 / (1 - share),
        "queue_delay_mean": 1e3 * service * share / (1 - share),
    }


def scenario(rate: float, duration: float) -> Scenario:
    """Return the queue as a scenario."""
    text = TEXT.format(duration=duration, rate=rate, load=LOAD, packet=PACKET)
    return Scenario.parse(text, "mm1.toml", [])


def run(what: Scenario, rate: float, seed: int) -> tuple[dict[str, float | None], pl.Series]:
    """Simulate one run; return its metrics and the series of its queue."""
    found = simulate(what, seed, Progress())
    series, flows, drop_runs = map(pl.DataFrame, (found.series, found.flows, found.drop_runs))
    recorded = Recorded(series, flows, drop_runs, found.counters, rate)
    return evaluate(recorded), recorded.samples("transmit_queue")


def all_runs(rate: float, duration: float, runs: int) -> list[tuple[dict[str, float | None], pl.Series]]:
    """Simulate `runs` runs, each with its own seed, on all cores."""
    what = scenario(rate, duration)
    with ThreadPoolExecutor(cores()) as pool:
        return list(pool.map(partial(run, what, rate), range(1, runs + 1)))


def line(what: str, value: float, found: Sequence[Summary]) -> tuple[list[str], bool]:
    """Return a row of the table, and True if the coverage is within its limits."""
    given = [(each.low, each.high) for each in found if each.low is not None and each.high is not None]
    share = sum(low <= value <= high for low, high in given) / len(given)
    good = LEAST <= share <= MOST
    cells = [what, f"{value:.4g}", str(len(given)), f"{100 * share:.1f} %", "yes" if good else "NO"]
    return cells, good


def main() -> int:
    """Print the table; return the exit code."""
    first, second = (all_runs(rate, 100, EXPERIMENTS * RUNS) for rate in (RATE, 1.2 * RATE))
    groups = [range(RUNS * n, RUNS * (n + 1)) for n in range(EXPERIMENTS)]
    lines = []
    for metric, value in true(RATE).items():
        found = [summarise([first[n][0][metric] for n in group]) for group in groups]
        lines.append(line(f"{metric}, {RUNS} runs of 100 s", value, found))
    for metric in ("queue_mean", "queue_delay_mean"):
        gaps = [
            paired([first[n][0][metric] for n in group], [second[n][0][metric] for n in group])
            for group in groups
        ]
        value = true(RATE)[metric] - true(1.2 * RATE)[metric]
        lines.append(line(f"{metric}, minus that at 1.2 times the rate, paired", value, gaps))
    long = [batch_means(queue.to_numpy()) for _, queue in all_runs(RATE, 1000, EXPERIMENTS)]
    lines.append(line("queue_mean, 1 run of 1000 s, batch means", true(RATE)["queue_mean"], long))
    headings = ["M/M/1, load 60 %", "true value", "intervals", "coverage", "within 91 to 98 %"]
    stdout().print(grid(headings, [cells for cells, _ in lines], right=1))
    return 0 if all(good for _, good in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
