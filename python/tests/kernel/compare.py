"""The transport preset `linux` beside the kernel it is named after: the same path, the same losses.

`python compare.py` measures every case and prints the table of docs/kernel.md; names of cases, or parts of
them, choose some. The kernel takes as long as it takes: about ten seconds a case, several at a time.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import lab
import polars as pl
from lab import Case, Trace

from bentpipe._core import Progress, Scenario, simulate

MSS = 1448
"""Payload beside the timestamps of a 1500-byte packet [bytes]."""
LATE_MEAN, LATE_MAX = 0.5, 20.0
"""More lateness than this [ms], on the average or once, and a run says nothing."""
ATTEMPTS = 3

ALGORITHMS = {"cubic": "cubic-linux", "reno": "newreno", "bbr": "bbr"}
"""What the kernel's congestion controls are called in a scenario."""

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
{transport}
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
    kernel: Trace | None
    """None: the machine was too busy."""
    ours: float
    """Goodput in the simulator [bit/s]."""

    @property
    def ratio(self) -> float:
        """Ours over the kernel's."""
        return self.ours / self.kernel.goodput if self.kernel else float("nan")


def scenario(case: Case, transport: str | None = None) -> Scenario:
    """Return the case as a scenario."""
    text = SCENARIO.format(
        name=case.name,
        seconds=case.seconds,
        rate=case.rate,
        delay=case.rtt * 500,
        queue=case.queue,
        loss=f'loss = {{ nth = {list(case.lost)}, of = "data" }}\nreverse.loss = 0' if case.lost else "",
        transport=transport or f'preset = "linux"\nalgorithm = "{ALGORITHMS[case.congestion]}"',
        bytes=f'bytes = "{case.bytes} B"' if case.bytes else "",
    )
    return Scenario.parse(text, case.name, [])


def simulated(case: Case, transport: str | None = None) -> float:
    """Return the goodput of the case in the simulator [bit/s]."""
    run = simulate(scenario(case, transport), 1, Progress())
    flow = pl.DataFrame(run.flows)
    if case.bytes:
        return case.bytes * 8 / float(flow["completion_time"][0])
    return float(flow["bytes"][0]) * 8 / case.seconds


def measured(case: Case) -> Trace | None:
    """Return the case in the kernel; None where the machine was too busy each time."""
    for _ in range(ATTEMPTS):
        trace = lab.measure(case)
        if trace.late_mean <= LATE_MEAN and trace.late_max <= LATE_MAX:
            return trace
    return None


def compare(cases: Iterable[Case], jobs: int = 4) -> Iterator[Result]:
    """Compare cases, so many at a time."""
    with ThreadPoolExecutor(jobs) as pool:
        cases = list(cases)
        for case, kernel in zip(cases, pool.map(measured, cases), strict=True):
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
                    fields["seconds"] = 8
                found.append(Case(name, congestion=congestion, rtt=rtt, **fields))  # type: ignore[arg-type]
    return found


def row(result: Result) -> str:
    """Return a line of the table."""
    kernel = result.kernel
    if kernel is None:
        return f"| {result.case.name} | machine too busy | {result.ours / 1e6:.3f} | |"
    return (
        f"| {result.case.name} | {kernel.goodput / 1e6:.3f} | {result.ours / 1e6:.3f} | {result.ratio:.3f} |"
        f" {kernel.late_mean * 1e3:.0f} µs | {kernel.late_max:.1f} ms |"
    )


def main() -> int:
    """Print the table; the status is 1 where a case is off by more than 10 %."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help="parts of the names of cases; default: all")
    parser.add_argument("--jobs", type=int, default=4, help="cases at a time")
    arguments = parser.parse_args()
    if why := lab.unavailable():
        print(f"the kernel cannot be measured: {why}", file=sys.stderr)
        return 2
    chosen = [c for c in cases() if c.congestion in lab.algorithms()]
    chosen = [c for c in chosen if all(part in c.name for part in arguments.parts)]
    print("| case | kernel [Mbit/s] | ours | ratio | mean lateness | largest |\n|---|---|---|---|---|---|")
    off = 0
    for result in compare(chosen, arguments.jobs):
        print(row(result), flush=True)
        off += result.kernel is not None and not 0.9 <= result.ratio <= 1.1
    return int(off > 0)


if __name__ == "__main__":
    sys.exit(main())
