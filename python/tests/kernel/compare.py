"""Compare the transport preset `linux` with the kernel, on the same path with the same losses.

`python compare.py` measures every case and prints a row for each; docs/kernel.md shows the medians.
Arguments select cases by parts of their names. A case takes about ten seconds of real time; several run
in parallel.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from statistics import median

import lab
import polars as pl
from lab import Case, Trace

from bentpipe._core import Progress, Scenario, simulate

MSS = 1448
"""Payload beside the timestamps of a 1500-byte packet [bytes]."""
LATE_MEAN, LATE_MAX = 0.5, 20.0
"""Limits of the mean and maximum lateness of a valid run [ms]."""
ATTEMPTS = 3

ALGORITHMS = {"cubic": "cubic-linux", "reno": "newreno", "bbr": "bbr"}
"""Scenario names of the kernel's congestion controls."""

SCENARIO = """
title = "{name}"
[run]
duration = "{seconds} s"
[host.s]
[host.d]
[link.path]
between = ["s", "d"]
rate = "{rate} bps"
delay = "{delay} us"
{loss}
[link.path.queue]
limit = "{queue} packets"
[transport.t]
preset = "linux"
algorithm = "{algorithm}"
[traffic.bulk]
kind = "bulk"
from = "s"
to = "d"
transport = "t"
{bytes}
"""


@dataclass(frozen=True)
class Result:
    """One case in the kernel and in the simulator."""

    case: Case
    kernel: list[Trace]
    """Valid runs in the kernel by goodput; empty if the machine was too busy."""
    ours: float
    """Goodput in the simulator [bit/s]."""

    @property
    def goodput(self) -> float:
        """The kernel's goodput, the median [bit/s]."""
        return median(trace.goodput for trace in self.kernel)

    @property
    def ratio(self) -> float:
        """Ratio of the simulator's goodput to the kernel's."""
        return self.ours / self.goodput


def scenario(case: Case) -> Scenario:
    """Return the case as a scenario."""
    text = SCENARIO.format(
        name=case.name,
        seconds=case.seconds,
        rate=case.rate,
        delay=case.rtt * 500,
        queue=case.queue,
        loss=f'loss = {{ nth = {list(case.lost)}, of = "data" }}\nreverse.loss = 0' if case.lost else "",
        algorithm=ALGORITHMS[case.congestion],
        bytes=f'bytes = "{case.bytes} B"' if case.bytes else "",
    )
    return Scenario.parse(text, case.name, [])


def simulated(case: Case) -> float:
    """Return the goodput of the case in the simulator [bit/s]."""
    run = simulate(scenario(case), 1, Progress())
    flow = pl.DataFrame(run.flows)
    if case.bytes:
        return case.bytes * 8 / float(flow["completion_time"][0])
    return float(flow["bytes"][0]) * 8 / case.seconds


def measured(case: Case, runs: int) -> list[Trace]:
    """Return valid runs in the kernel; runs are repeated if the machine was too busy."""
    traces = []
    for _ in range(runs):
        for _ in range(ATTEMPTS):
            trace = lab.measure(case)
            late = trace.late_mean > LATE_MEAN or trace.late_max > LATE_MAX
            if not late and not lab.is_short_of_memory():
                traces.append(trace)
                break
    return sorted(traces, key=lambda trace: trace.goodput)


def compare(cases: Iterable[Case], runs: int = 1, jobs: int = 4) -> Iterator[Result]:
    """Compare cases in parallel."""
    with ThreadPoolExecutor(jobs) as pool:
        cases = list(cases)
        for case, kernel in zip(cases, pool.map(measured, cases, repeat(runs)), strict=True):
            yield Result(case, kernel, simulated(case))


def cases() -> list[Case]:
    """Return all cases."""
    found = []
    for congestion in ("cubic", "reno", "bbr"):
        for rtt, seconds in ((40, 10), (100, 12), (560, 20)):
            bdp = 10_000 * rtt // (8 * 1500)
            most = 10_000 * seconds // 12 + 1
            patterns: dict[str, dict[str, object]] = {
                "no loss, queue of one BDP": {},
                "no loss, queue of a quarter BDP": {"queue": max(bdp // 4, 8)},
                "one in slow start": {"lost": (40,)},
                "one in avoidance": {"lost": (3000,)},
                "every 300th": {"lost": tuple(range(300, most, 300))},
                "every 100th": {"lost": tuple(range(100, most, 100))},
                "3 of 10, every 1000": {
                    "lost": tuple(n + i for n in range(600, most, 1000) for i in (0, 4, 9))
                },
                "the last of 200": {"queue": 200, "bytes": 200 * MSS, "lost": (200,)},
                "the last 3 of 200": {
                    "queue": 200,
                    "bytes": 200 * MSS,
                    "lost": (198, 199, 200),
                },
            }
            for pattern, keys in patterns.items():
                name = f"{congestion}, {rtt} ms, {pattern}"
                fields = {"queue": bdp, "seconds": seconds, **keys}
                if keys.get("bytes"):
                    fields["seconds"] = 8 if rtt > 100 else 3
                found.append(Case(name, congestion=congestion, rtt=rtt, **fields))  # type: ignore[arg-type]
    return found


def row(result: Result) -> str:
    """Return a line of the table."""
    ours = f"{result.ours / 1e6:.3f}"
    if not result.kernel:
        return f"| {result.case.name} | too busy | | {ours} | | |"
    least, most = (result.kernel[i].goodput / 1e6 for i in (0, -1))
    spread = f"{least:.3f}–{most:.3f}" if len(result.kernel) > 1 else ""
    late = max(trace.late_max for trace in result.kernel)
    kernel = f"{result.goodput / 1e6:.3f} | {spread}"
    return f"| {result.case.name} | {kernel} | {ours} | {result.ratio:.3f} | {late:.1f} |"


def main() -> int:
    """Print the table; the exit code is 1 if a case differs by more than 10 %."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help="parts of the names of cases; default: all")
    parser.add_argument("--runs", type=int, default=1, help="runs of each case in the kernel")
    parser.add_argument("--jobs", type=int, default=4, help="cases at a time")
    arguments = parser.parse_args()
    if why := lab.unavailable():
        print(f"the kernel cannot be measured: {why}", file=sys.stderr)
        return 2
    chosen = [case for case in cases() if case.congestion in lab.algorithms()]
    chosen = [case for case in chosen if all(part in case.name for part in arguments.parts)]
    print("| case | kernel [Mbit/s] | range | simulator | ratio | latest [ms] |\n|---|---|---|---|---|---|")
    off = 0
    for result in compare(chosen, arguments.runs, arguments.jobs):
        print(row(result), flush=True)
        off += bool(result.kernel) and not 0.9 <= result.ratio <= 1.1
    print(f"{off} of {len(chosen)} are off by more than 10 %", file=sys.stderr)
    return int(off > 0)


if __name__ == "__main__":
    sys.exit(main())
