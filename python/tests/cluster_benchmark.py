"""Measure the overhead of a cluster, the speed-up by a second thread, and the cost of runs: `make cluster`.

The same runs are simulated by `--cluster local:2` and by as many processes that get whole lists on_processes,
alternating, since the speed of a machine varies. Wall and processor time are printed, and executed
instructions if `perf` is installed: those do not depend on other load. The exit code is 0 if two threads are
1.8 times as fast as one. With a page as argument, the costs are written to it.
"""

import os
import pickle
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from bentpipe import _core
from bentpipe.cli.console import grid, stdout
from bentpipe.runs.cluster import Cluster
from bentpipe.runs.dataset import Dataset, Run
from bentpipe.runs.plan import load, make_plan
from bentpipe.runs.workers import Threads, measure
from bentpipe.sweeps.sweep import Sweep, execute
from reference import with_generated

PROCESSES = 2
LEAST_SPEED_UP = 1.8
SHORT = ["run.duration=100 ms", "run.warmup=0 s"]
"""Runs so short that they mostly compute metrics."""


@dataclass
class Cost:
    """Time and instructions of some runs."""

    wall: float
    """[s]"""
    cpu: float
    """[s]"""
    instructions: float | None


class Counter:
    """Counts instructions of processes outside the kernel, by `perf`."""

    def __init__(self, pids: Sequence[int]) -> None:
        command = ["perf", "stat", "-x,", "-e", "instructions:u", "-p", ",".join(map(str, pids))]
        self._perf = (
            subprocess.Popen(command, stderr=subprocess.PIPE, text=True) if shutil.which("perf") else None
        )
        time.sleep(0.5)

    def end(self) -> float | None:
        if self._perf is None:
            return None
        self._perf.send_signal(signal.SIGINT)
        found = self._perf.communicate()[1].split(",")[0]
        return float(found) if found.isdigit() else None


def cpu_of(pids: Sequence[int]) -> float:
    """Return the processor time of processes so far [s]."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / 100


def counted(pids: Sequence[int], work: Callable[[], None]) -> Cost:
    counter, before, start = Counter(pids), cpu_of(pids), time.perf_counter()
    work()
    wall = time.perf_counter() - start
    return Cost(wall, cpu_of(pids) - before, counter.end())


def short_runs(count: int) -> list[Run]:
    plan = make_plan(load("small-gateway", SHORT), settings=["red", "avq", "avqred", "codel"], runs=1)
    runs = (Run((), s.name, s.scenario, s.digest, n) for n in range(count) for s in plan.settings)
    return list(islice(runs, count))


def child() -> None:
    """Simulate a list of runs from the standard input."""
    scenarios, runs = pickle.load(sys.stdin.buffer)  # noqa: S301
    parsed = {
        digest: _core.Scenario.unpack(file, text, overrides, setting, parameters, {})
        for digest, (file, text, overrides, setting, parameters) in scenarios.items()
    }
    print("ready", flush=True)
    sys.stdin.buffer.readline()
    found = [tuple(measure(parsed[digest], seed, _core.Progress()).values()) for digest, seed in runs]
    print(len(found), flush=True)
    sys.stdin.buffer.readline()


def on_processes(runs: Sequence[Run]) -> Cost:
    """Return the cost of the runs on processes that get their shares on_processes."""
    packed = {run.digest: packed[:5] for run in runs[:100] if (packed := run.scenario.packed())}
    shares = [[(run.digest, run.seed) for run in runs[n::PROCESSES]] for n in range(PROCESSES)]
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, "child"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        for _ in range(PROCESSES)
    ]

    def send(text: bytes) -> None:
        for process in processes:
            if process.stdin is not None:
                process.stdin.write(text)

    def receive() -> list[bytes]:
        return [process.stdout.readline() for process in processes if process.stdout is not None]

    for process, share in zip(processes, shares, strict=True):
        if process.stdin is not None:
            process.stdin.write(pickle.dumps((packed, share)))
    receive()

    def work() -> None:
        send(b"go\n")
        if sum(map(int, receive())) != len(runs):
            sys.exit("runs are missing")

    try:
        return counted([process.pid for process in processes], work)
    finally:
        send(b"end\n")
        for process in processes:
            process.wait()


def on_cluster(cluster: Cluster, runs: Sequence[Run]) -> Cost:
    """Return the cost of the runs on a cluster, of all its processes."""

    def work() -> None:
        if sum(1 for each in cluster.results(runs) if each is not None) != len(runs):
            sys.exit("runs are missing")

    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    return counted([os.getpid(), *map(int, children)], work)


def print_overhead(count: int, rounds: int) -> None:
    """Print the overhead of Dask."""
    runs = short_runs(count)
    with closing(Cluster(f"local:{PROCESSES}")) as cluster:
        on_cluster(cluster, runs[:1000])
        found = [(on_processes(runs), on_cluster(cluster, runs)) for _ in range(rounds)]
    print(f"{count} runs on {PROCESSES} processes, on_processes and by Dask:")
    rows = [
        [
            str(number),
            cell(without.wall, by.wall, count),
            cell(without.cpu, by.cpu, count),
            cell(without.instructions, by.instructions, count),
        ]
        for number, (without, by) in enumerate(found, start=1)
    ]
    stdout().print(
        grid(["round", "wall, ms a run", "processor, ms a run", "10⁶ instructions a run"], rows, right=1)
    )


def cell(without: float | None, by: float | None, count: int) -> str:
    if without is None or by is None:
        return "–"
    scale = (1e-6 if without > 1e6 else 1e3) / count
    return f"{without * scale:.3f}, {by * scale:.3f}: {by / without - 1:+.1%}"


def speed_up(rounds: int) -> float:
    """Return the speed-up by a second thread, from the fastest round of each."""
    plan = make_plan(load("byun2007-gateway", ["run.duration=2 min"]), settings=["RED 4"], runs=8)
    setting = plan.settings[0]
    runs = [Run((), setting.name, setting.scenario, setting.digest, seed) for seed in plan.seeds]
    best = {1: float("inf"), 2: float("inf")}
    for _ in range(rounds):
        for jobs in best:
            start = time.perf_counter()
            for _ in Threads(jobs).results(runs):
                pass
            best[jobs] = min(best[jobs], time.perf_counter() - start)
    return best[1] / best[2]


def costs() -> str:
    """Return the cost of a run of some shipped scenarios, and of a million runs, as Markdown."""
    lines = [
        "| scenario, setting | simulated | per run | 10⁶ runs | on 100 cores |",
        "| --- | --: | --: | --: | --: |",
        *(
            cost(name, label, changes)
            for name, label, changes in (
                ("small-gateway", "red", SHORT),
                ("small-gateway", "red", []),
                ("red-dumbbell", "red", []),
                ("byun2007-gateway", "RED 4", []),
                ("byun2007-gateway", "AVQRED", []),
            )
        ),
    ]
    disk, memory = dataset()
    return "\n".join(
        [
            *lines,
            "",
            f"Per run, the dataset takes {disk / 1e3:.2f} kB on the disk and {memory / 1e3:.1f} kB in the"
            f" memory of the sweeping process: {disk / 1e3:.1f} and {memory / 1e3:.1f} GB for 10⁶ runs.",
            "",
        ]
    )


def cost(name: str, label: str, changes: list[str]) -> str:
    scenario = load(name, changes).with_setting(label)
    measure(scenario, 0, _core.Progress())
    seconds = []
    for seed in range(1, 4):
        start = time.thread_time()
        measure(scenario, seed, _core.Progress())
        seconds.append(time.thread_time() - start)
    found = statistics.median(seconds)
    hours = found * 1e6 / 3600
    return (
        f"| `{name}`, {label} | {scenario.warmup + scenario.duration:,g} s |"
        f" {float(f'{1e3 * found:.3g}'):,g} ms | {float(f'{hours:.2g}'):,g} core hours |"
        f" {hours / 100:.2g} h |"
    )


def dataset() -> tuple[float, float]:
    """Return the bytes of a run in a dataset: on the disk, and in memory while the dataset is open."""
    count = 500
    plan = Sweep.plan("small-gateway", {"gateway.pep.delay": "1 ms"}, settings=["red"], runs=count)
    with tempfile.TemporaryDirectory() as folder, closing(Threads()) as workers:
        result = execute(plan, Path(folder) / "sweep", workers=workers)
        files = (result.folder / "data").rglob("*.parquet")
        disk = sum(path.stat().st_size for path in files) / count
        tracemalloc.start()
        with Dataset(result.folder, ("gateway.pep.delay",), plan.about()) as there:
            before = tracemalloc.get_traced_memory()[0]
            for run in plan.runs(range(1000, 1000 + count)):
                # Distinct numbers, like those of a real run.
                found = there.metrics(next(plan.runs())) or {}
                there.add(run, {name: value and 1.5 * value for name, value in found.items()})
            memory = (tracemalloc.get_traced_memory()[0] - before) / count
        tracemalloc.stop()
    return disk, memory


def main(arguments: Sequence[str]) -> int:
    match arguments:
        case ["child"]:
            child()
            return 0
        case [page]:
            path = Path(page)
            path.write_text(with_generated(path.read_text(encoding="utf-8"), costs(), path), encoding="utf-8")
            return 0
        case [count, rounds]:
            print_overhead(int(count), int(rounds))
    found = speed_up(5)
    print(f"Two threads are {found:.2f} times as fast as one; required: at least {LEAST_SPEED_UP}.")
    return int(found < LEAST_SPEED_UP)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
