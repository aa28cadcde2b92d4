"""Record the congestion window of the kernel's CUBIC while an application writes now and then.

`python windows.py` prints the table `crates/transport/tests/linux/windows.csv`, with which the transport's
tests compare it: as root, two minutes. A row has the case, round-trip time [ms], the lost segment, a write's
time after the handshake [ms] and size [segments], and before it the least and the greatest window and
ssthresh of five runs [segments].
"""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import lab
from lab import Case

MSS = 1448
QUEUE = 2000
RUNS = 5
LATE_MAX, ATTEMPTS = 3.0, 10
"""Limit of the lateness of a valid run, which HyStart depends on [ms], and of attempts at one."""
INFINITE = 0x7FFF_FFFF
"""TCP_INFINITE_SSTHRESH."""

Writes = list[tuple[int, int]]


def every(first: int, step: int, count: int, segments: int) -> Writes:
    """Return equal writes, `step` ms apart."""
    return [(first + i * step, segments) for i in range(count)]


CASES: dict[str, tuple[int, tuple[int, ...], Writes]] = {
    "slow start: half of the window": (100, (), every(0, 200, 12, 20)),
    "slow start: a segment at a time": (100, (), every(0, 30, 60, 1)),
    "slow start: pauses of less than an RTO": (100, (), every(0, 260, 10, 100)),
    "slow start: then few": (100, (), [(0, 300), *every(1000, 50, 60, 3)]),
    "pauses of several RTOs": (
        40,
        (),
        [(0, 400), (1500, 100), (2200, 100), (2700, 100), (3600, 200), (6000, 10)],
    ),
    "after a loss: few": (100, (60,), [(0, 300), *every(1500, 100, 40, 6)]),
    "after a loss: pauses of less than an RTO": (100, (60,), [(0, 300), *every(1500, 290, 20, 120)]),
    "after a loss: pauses of an RTO": (100, (60,), [(0, 300), *every(1500, 700, 8, 150)]),
    "after a loss: full": (100, (60,), [(0, 300), *every(1500, 1000, 5, 1000)]),
    "long path: pages": (560, (), every(0, 2800, 6, 150)),
    "long path: after a loss": (560, (60,), [(0, 250), *every(5000, 1200, 10, 40)]),
}


def measured(name: str) -> list[tuple[int, int]]:
    """Return window and ssthresh before each write of a case."""
    rtt, lost, writes = CASES[name]
    case = Case(
        name,
        rtt=rtt,
        queue=QUEUE,
        lost=lost,
        seconds=(writes[-1][0] + 2 * rtt) / 1e3 + 1,
        writes=tuple((at / 1e3, segments * MSS) for at, segments in writes),
    )
    for _ in range(ATTEMPTS):
        trace = lab.measure(case, verbose=True)
        if trace.late_max <= LATE_MAX:
            break
        print(f"{name}: {trace.late_max:.1f} ms late, once more", file=sys.stderr)
    else:
        sys.exit(f"{name}: {ATTEMPTS} times late: the machine is too busy")
    begun = trace.samples[0][0]
    before = [[s for s in trace.samples if s[0] < begun + at / 1e3 - 0.005] for at, _ in writes]
    return [(last[-1] if last else trace.samples[0])[1:3] for last in before]


def rows(name: str, runs: list[list[tuple[int, int]]]) -> Iterator[str]:
    """Yield the rows of a case after all its runs."""
    rtt, lost, writes = CASES[name]
    for (at, size), found in zip(writes, zip(*runs, strict=True), strict=True):
        ends = [end(values) for values in zip(*found, strict=True) for end in (min, max)]
        state = ("" if value == INFINITE else str(value) for value in ends)
        yield ",".join([name, str(rtt), *map(str, lost or [""]), str(at), str(size), *state])


if __name__ == "__main__":
    if why := lab.unavailable():
        sys.exit(f"the kernel cannot be measured: {why}")
    with ThreadPoolExecutor(4) as pool:
        runs = list(pool.map(measured, [name for name in CASES for _ in range(RUNS)]))
    for i, name in enumerate(CASES):
        print("\n".join(rows(name, runs[i * RUNS : (i + 1) * RUNS])))
