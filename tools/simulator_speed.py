"""Measure the simulator's speed beside ns-2, as installed: `make bench`, `make speed`.

    python tools/simulator_speed.py [PART...]       print times, of the rows whose name has one of the parts
    python tools/simulator_speed.py docs=DOCS       also renew the tables of DOCS/performance-simulator.md

Of several runs the fastest counts, as other load can only slow a run down. A dumbbell runs here and on ns-2
by turns, since a machine's speed changes within minutes. Times leave out what it takes to set a run up: here
by the difference of a long and a short run. On ns-2 that can take longer than the run, so the script counts
the time between their ends.
"""

import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from blocks import table, with_blocks

__all__ = ["Row", "blocks"]

ROOT = Path(__file__).resolve().parents[1]

SCENARIOS = (("byun2007-gateway", "RED 4"), ("byun2007-gateway", "AVQRED"), ("red-dumbbell", ""))
RUNS = 3
ROUNDS = 9
"""Runs of a dumbbell on each simulator, by turns."""

TERMINALS = (10, 100, 1000, 10_000)
"""Numbers of terminals that share one carrier with the same traffic."""
BEAM_ENDS = (20, 50)
"""Lengths of two runs of a beam [s]."""

Row = tuple[str, ...]


class Measured(NamedTuple):
    """A run."""

    seconds: float
    """Processor time [s]."""
    packets: float
    """Packets that the observed queue sent, the warm-up's in proportion."""
    simulated: float
    """Length [s]."""
    memory: float = 0.0
    """Peak beyond that of the process before the run [MB]."""


@dataclass(frozen=True)
class Dumbbell:
    """Flows over one link with RED, on both simulators."""

    name: str
    flows: int
    rate_mbps: int
    round_trip_ms: int
    ends: tuple[int, int]
    """Lengths of two runs [s]."""
    queue: tuple[int, int, int] = (60, 120, 400)
    """Thresholds of RED, and the limit of its queue [packets]."""

    @property
    def label(self) -> str:
        """Name and network."""
        return f"{self.name}: {self.flows} flows, {self.rate_mbps} Mbit/s, {self.round_trip_ms} ms"

    def simulate(self, end: int) -> Measured:
        """Run it here."""
        edge = 10 if self.round_trip_ms < 100 else 15  # as in speed.tcl
        min_th, max_th, limit = self.queue
        return _simulate(
            "red-dumbbell",
            "run.warmup=0 s",
            f"run.duration={end} s",
            f"host.s.count={self.flows}",
            f"host.d.count={self.flows}",
            f"traffic.bulk.flows={self.flows}",
            f"link.left.delay={edge} ms",
            f"link.right.delay={edge} ms",
            f"link.bottleneck.delay={self.round_trip_ms // 2 - 2 * edge} ms",
            f"link.bottleneck.rate={self.rate_mbps} Mbps",
            f"link.bottleneck.queue.limit={limit} packets",
            f"link.bottleneck.queue.aqm.min_th={min_th}",
            f"link.bottleneck.queue.aqm.max_th={max_th}",
        )

    def run_on_ns2(self) -> float:
        """Run it on ns-2, and return the time per packet [ns]."""
        network = (
            f"{self.rate_mbps}Mb",
            str(self.round_trip_ms / 1000),
            str(self.flows),
            *map(str, self.ends),
        )
        done = subprocess.run(  # noqa: S603
            ("ns", str(ROOT / "python/tests/truth/speed.tcl"), *network),  # noqa: S607
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        seconds, packets = map(float, done.stdout.split())
        return seconds * 1e9 / packets


DUMBBELLS = (
    Dumbbell("S1", 50, 20, 560, (20, 200)),
    Dumbbell("S2", 400, 20, 60, (20, 220)),
    Dumbbell("S3", 400, 200, 60, (10, 30)),
)
LARGE = Dumbbell("S4", 50_000, 20_000, 60, (1, 10), (60_000, 120_000, 400_000))
"""The state of all flows is larger than a processor's cache. ns-2 does not run it."""


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024e-6


def _simulate(name: str, *overrides: str, setting: str = "") -> Measured:
    from bentpipe._core import Progress, Scenario, simulate

    scenario = Scenario.load(str(ROOT / f"scenarios/{name}.toml"), list(overrides))
    before = _peak()
    run = simulate(scenario.with_setting(setting) if setting else scenario, 1, Progress())
    simulated, measured = (run.counters[f"{time}_seconds"] for time in ("simulated", "measured"))
    packets = run.counters["sent_packets"] * simulated / measured
    return Measured(run.cpu_seconds, packets, simulated, _peak() - before)


def _fastest(run: Callable[[], Measured], runs: int = RUNS) -> Measured:
    return min(run() for _ in range(runs))


def _per_packet(short: Measured, long: Measured) -> float:
    """Return the time per packet [ns]."""
    return (long.seconds - short.seconds) * 1e9 / (long.packets - short.packets)


def _dumbbell(dumbbell: Dumbbell) -> Row:
    theirs, ours = [], []
    for _ in range(ROUNDS):
        ours.append([dumbbell.simulate(end) for end in dumbbell.ends])
        if shutil.which("ns"):
            theirs.append(dumbbell.run_on_ns2())
    each = _per_packet(*map(min, zip(*ours, strict=True)))
    beside = [f"{min(theirs):.0f}", f"{min(theirs) / each:.1f}"] if theirs else ["–", "–"]
    return dumbbell.label, f"{each:.0f}", *beside


def _beam(terminals: int, end: int) -> Measured:
    """Run the scenario `beam` with another number of terminals and the same committed rate in total."""
    homes, offices = terminals // 10 * 9, terminals // 10
    overrides = (
        "run.warmup=0 s",
        f"run.duration={end} s",
        f"terminal.home.count={homes}",
        f"terminal.office.count={offices}",
        f"host.resident.count={max(homes, 1800)}",
        f"host.clerk.count={max(offices, 200)}",
        "plan.home.down.pir=1 Gbps",
        f'plan.office.down={{ cir = "{100_000 // offices} kbps", pir = "1 Gbps", weight = 4 }}',
    )
    return _fastest(partial(_simulate, "beam", *overrides))


def _large() -> tuple[Row, Row]:
    """Return the row of S4, and its processor time and memory."""
    # The long run comes first: memory that another one has left would count.
    long = LARGE.simulate(LARGE.ends[1])
    each = _per_packet(LARGE.simulate(LARGE.ends[0]), long)
    return (LARGE.label, f"{each:.0f}", "–", "–"), (f"{long.seconds:.1f}", f"{long.memory:.0f}")


def _print(row: Sequence[str]) -> None:
    print(f"{row[0]:38}" + "".join(f"{cell:>13}" for cell in row[1:]), flush=True)


def measure(parts: Sequence[str] = ()) -> Iterator[tuple[str, Row]]:
    """Yield the rows whose names have one of the parts, each after its table, and print them."""

    def wanted(name: str) -> bool:
        return not parts or any(part in name for part in parts)

    def printed(name: str, row: Row) -> tuple[str, Row]:
        _print(row)
        return name, row

    # First, while the process is small.
    large = _large() if wanted(LARGE.name) else None
    _print(("scenario", "sim s/CPU s"))
    for name, setting in SCENARIOS:
        if wanted(label := f"{name}, {setting}" if setting else name):
            run = _fastest(partial(_simulate, name, setting=setting))
            yield printed("scenarios", (label, f"{run.simulated / run.seconds:.0f}"))
    _print(("dumbbell", "ns/packet", "of ns-2", "ns-2 = 1"))
    for dumbbell in DUMBBELLS:
        if wanted(dumbbell.name):
            yield printed("dumbbells", _dumbbell(dumbbell))
    if large is not None:
        row, (seconds, memory) = large
        yield printed("dumbbells", row)
        print(f"    {seconds} CPU s for {LARGE.ends[1]} s, {memory} MB")
        yield "large", (seconds, memory)
    if wanted("beam"):
        _print(("beam, terminals", "ns/packet", "10 = 1"))
        first = None
        for terminals in TERMINALS:
            each = _per_packet(*(_beam(terminals, end) for end in BEAM_ENDS))
            first = first or each
            yield printed("beam", (f"{terminals:,}", f"{each:.0f}", f"{each / first:.2f}"))


def blocks(rows: Sequence[tuple[str, Row]]) -> dict[str, str]:
    """Return the generated parts of the page from the rows of each table.

    Exits if a part is missing, such as the times of ns-2, which has to be installed.
    """
    of = {name: [row for each, row in rows if each == name] for name, _ in rows}
    if len(of) < 4 or all(row[-1] == "–" for row in of["dumbbells"]):
        raise SystemExit("simulator_speed: there are no times of ns-2, or not all tables; install ns2")
    [(seconds, memory)] = of["large"]
    large = f"{LARGE.name} takes {seconds} CPU s for {LARGE.ends[1]} s, and {memory} MB. Other scenarios:"
    return {
        "speed": "\n\n".join(
            [
                table(("scenario", "ns per packet", "of ns-2", "ns-2 = 1"), of["dumbbells"]),
                large,
                table(("scenario, setting", "simulated seconds per CPU second"), of["scenarios"]),
            ]
        ),
        "beam": table(("terminals", "ns per packet", "10 = 1"), of["beam"]),
    }


def main(arguments: Sequence[str]) -> None:
    """Measure; renew the page if its folder is given."""
    parts = [argument for argument in arguments if not argument.startswith("docs=")]
    rows = list(measure(parts))
    for folder in (argument.removeprefix("docs=") for argument in arguments if argument not in parts):
        page = Path(folder) / "performance-simulator.md"
        with_blocks(page, {name: partial(str, text) for name, text in blocks(rows).items()}, "speed")


if __name__ == "__main__":
    main(sys.argv[1:])
