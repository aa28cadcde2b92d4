"""Run additional cells on ns-2.35 (Debian's package ns2) and write them as tables.

    python python/tests/truth/ns2.py                         renews the tables in this folder: some minutes
    python python/tests/truth/ns2.py 900 1 FILE              900 ten-session cells, drawn from all with seed 1

The same Tcl gives the published cells exactly, for each seed.
"""

import csv
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from statistics import fmean, stdev

HERE = Path(__file__).parent
SEEDS = (1, 2, 3)

CLASSES = {
    "a": (("lossy10pct", 1), ("lossless", 9)),
    "b": (("lossy1pct", 1), ("lossless", 9)),
    "c": (("rtt1000ms", 1), ("rtt500ms", 9)),
    "d": (("rtt500ms", 5), ("rttlow", 5)),
}
TEN = (
    "simulator,case,variant,buffer_pkts,max_window,tcp,queue,sessions_class,n_sessions,goodput_bps_mean,"
    "goodput_bps_std,n_seeds,qlen_pkts_mean,qlen_pkts_mean_std_over_seeds,drops_mean,drops_std,"
    "bottleneck_departures_mean"
)
DUMBBELL = (
    "simulator,rtt_s,queue,tcp,n_flows,bottleneck_bps,buffer_pkts,max_window,n_seeds,utilization_mean,"
    "utilization_std,qlen_mean_pkts_mean,qlen_mean_pkts_std,drop_rate_mean,drop_rate_std,"
    "goodput_bps_total_mean,goodput_bps_total_std"
)


def ten_sessions() -> Iterator[tuple[str, ...]]:
    """Yield cells with unpublished buffers, windows and transports, and missing variants."""
    for case, queue in product("abcd", ("RED", "DRR")):
        for cell in product(("50", "100", "200"), ("20", "64", "1000"), ("Reno", "Newreno", "Sack1")):
            changed = sum(here != usual for here, usual in zip(cell, ("100", "64", "Reno"), strict=True))
            if changed == 1 and cell != ("50", "64", "Reno"):
                yield (case, "base", *cell, queue)
    for case in "abcd":
        for variant, queue in (("minrto_1s", "DRR"), ("minrto_1s", "RED"), ("era", "DRR")):
            yield (case, variant, "100", "64", "Reno", queue)
        for pair in (("20", "Reno"), ("1000", "Reno"), ("64", "Sack1"), ("64", "Newreno")):
            yield (case, "overhead_8.32ms", "100", *pair, "DropTail")
        yield (case, "overhead_8.32ms", "200", "64", "Reno", "DropTail")
    for queue in ("RED", "DRR"):
        yield ("d", "rttlow_10ms", "100", "64", "Reno", queue)


def all_ten_sessions() -> Iterator[tuple[str, ...]]:
    """Yield every cell whose figures must be met."""
    variants = ("base", "loss_after_bottleneck", "minrto_1s", "overhead_8.32ms", "rttlow_10ms", "era")
    factors = (
        ("50", "100", "200"),
        ("20", "64", "1000"),
        ("Reno", "Newreno", "Sack1"),
        ("DropTail", "RED", "DRR"),
    )
    for case, variant, *cell in product("abcd", variants, *factors):
        without_effect = (variant == "rttlow_10ms" and case != "d") or (
            variant == "loss_after_bottleneck" and case in "cd"
        )
        if not without_effect and (cell[-1] != "DropTail" or variant == "overhead_8.32ms"):
            yield (case, variant, *cell)


def dumbbell() -> Iterator[tuple[str, ...]]:
    """Yield cells with a long path, more queues, and SACK."""
    queues = ("DropTail", "RED", "PI", "REM", "Vq")
    for rtt, queue, tcp in product(("0.06", "0.56"), queues, ("Newreno", "Sack1")):
        yield (rtt, "10000", tcp, queue, "400", "50")
    for rtt, tcp, flows in product(("0.06", "0.2"), ("Newreno", "Sack1"), ("10", "50", "100")):
        yield (rtt, "10000", tcp, "ARED", "400", flows)


def run(script: str, cell: Sequence[str]) -> list[list[float]]:
    """Run one cell with every seed; return the printed numbers."""

    def run_with(seed: int) -> list[float]:
        command = ["ns", str(HERE / script), *cell, str(seed)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
        return [float(word) for word in done.stdout.split() if word != "|"]

    return [run_with(seed) for seed in SEEDS]


# Until then no timer that depends on the phase of ns-2's clock has retransmitted.
DROPS = (
    ("c", "50", "20", "10"),
    ("c", "100", "64", "11.5"),
    ("d", "50", "20", "5.6"),
    ("d", "100", "64", "4.1"),
)
"""Cases of `drr_drops.tcl`: case, buffer, window, seconds."""


def drr_drops() -> Iterator[list[str]]:
    """Yield the drops of each case with Reno and NewReno: case, buffer, window, tcp, seconds, time, flow."""
    for (*cell, seconds), tcp in product(DROPS, ("Reno", "Newreno")):
        with tempfile.NamedTemporaryFile() as trace:
            command = ["ns", str(HERE / "drr_drops.tcl"), *cell, tcp, seconds, trace.name]
            subprocess.run(command, timeout=600, check=True)
            words = [line.split() for line in Path(trace.name).read_text(encoding="utf-8").splitlines()]
        yield from ([*cell, tcp, seconds, word[1], word[7]] for word in words if word[0] == "d")


def mean_and_std(values: Sequence[float]) -> list[str]:
    """Return mean and standard deviation."""
    return [f"{fmean(values):.6g}", f"{stdev(values):.6g}"]


def ten_rows(cell: Sequence[str], seeds: Sequence[Sequence[float]]) -> Iterator[list[str]]:
    """Yield a row for each class of sessions."""
    first = CLASSES[cell[0]][0][1]
    queue, drops = mean_and_std([seed[10] for seed in seeds]), mean_and_std([seed[11] for seed in seeds])
    tail = [str(len(seeds)), *queue, *drops, f"{fmean(seed[12] for seed in seeds):.6g}"]
    parts = [slice(0, first), slice(first, 10)]
    for (name, count), part in zip(CLASSES[cell[0]], parts, strict=True):
        yield [
            "ns-2.35",
            *cell,
            name,
            str(count),
            *mean_and_std([fmean(seed[part]) for seed in seeds]),
            *tail,
        ]
    yield ["ns-2.35", *cell, "aggregate", "10", *mean_and_std([sum(seed[:10]) for seed in seeds]), *tail]


def dumbbell_row(cell: Sequence[str], seeds: Sequence[Sequence[float]]) -> list[str]:
    """Return the row of a cell."""
    rtt, window, tcp, queue, buffer, flows = cell
    return [
        *("ns-2.35", rtt, queue, tcp, flows, "2e7", buffer, window, str(len(seeds))),
        *mean_and_std([seed[3] * 1040 * 8 / 150 / 2e7 for seed in seeds]),
        *mean_and_std([seed[0] for seed in seeds]),
        *mean_and_std([seed[1] / seed[2] for seed in seeds]),
        *mean_and_std([seed[4] for seed in seeds]),
    ]


def write(path: Path, head: str, rows: Iterable[Sequence[str]]) -> None:
    """Write a table."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([head.split(","), *rows])


def run_all(script: str, cells: Sequence[Sequence[str]]) -> list[list[list[float]]]:
    """Run every cell with every seed."""
    with ThreadPoolExecutor() as pool:
        return list(pool.map(lambda cell: run(script, cell), cells))


def ten_table(cells: Sequence[Sequence[str]]) -> Iterator[list[str]]:
    """Run ten-session cells; yield the rows of their table."""
    for cell, seeds in zip(cells, run_all("ten_sessions.tcl", cells), strict=True):
        yield from ten_rows(cell, seeds)


def main(arguments: Sequence[str]) -> None:
    """Write the tables."""
    if arguments:
        count, seed, file = arguments
        cells = random.Random(int(seed)).sample(list(all_ten_sessions()), int(count))  # noqa: S311
        write(Path(file), TEN, ten_table(cells))
        return
    write(HERE / "ten_sessions_more.csv", TEN, ten_table(list(ten_sessions())))
    write(HERE / "drr_drops.csv", "case,buffer_pkts,max_window,tcp,seconds,time_s,flow", drr_drops())
    bells = list(dumbbell())
    found = zip(bells, run_all("dumbbell.tcl", bells), strict=True)
    write(HERE / "dumbbell_more.csv", DUMBBELL, [dumbbell_row(cell, seeds) for cell, seeds in found])


if __name__ == "__main__":
    main(sys.argv[1:])
