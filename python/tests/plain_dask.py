"""Compare the lists of runs of `runs.cluster` with plain Dask tasks (docs/decisions/0016-clusters.md).

    python python/tests/plain_dask.py RUNS ROUNDS

Plain tasks are submitted with retries and gathered as they complete, one task per run or one per chunk of
runs. All variants simulate the same runs on the same worker processes, in turns; processor time is that of
the scheduler, the client and the workers together. In the end a worker is killed in the middle of each
variant.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from cluster_benchmark import counted, short_runs

from bentpipe import _core
from bentpipe.runs.cluster import Cluster
from bentpipe.runs.dataset import Run
from bentpipe.runs.workers import measure

PROCESSES = 2
_PARSED: dict[str, _core.Scenario] = {}


def task(chunk: Sequence[tuple[str, int]], scenarios: dict[str, Any]) -> list[tuple[float | None, ...]]:
    """Simulate the runs of one task; return their metrics."""
    found = []
    for digest, seed in chunk:
        if digest not in _PARSED:
            file, text, overrides, setting, parameters = scenarios[digest]
            _PARSED[digest] = _core.Scenario.unpack(file, text, overrides, setting, parameters, {})
        found.append(tuple(measure(_PARSED[digest], seed, _core.Progress()).values()))
    return found


def plain(cluster: Cluster, runs: Sequence[Run], size: int) -> int:
    """Simulate runs as tasks of `size` runs each; return the number of results."""
    from distributed import Client, as_completed

    scenarios = {run.digest: run.scenario for run in runs}
    packed = {digest: found[:5] for digest, each in scenarios.items() if (found := each.packed())}
    wanted = [(run.digest, run.seed) for run in runs]
    chunks = [wanted[first : first + size] for first in range(0, len(wanted), size)]
    done = 0
    scheduler = cluster.client.scheduler
    assert scheduler is not None
    with Client(scheduler.address, set_as_default=False) as client:
        futures = [client.submit(task, each, packed, retries=2, pure=False) for each in chunks]
        for _, result in as_completed(futures, loop=client.loop, with_results=True):
            done += len(result)
    return done


def lists(cluster: Cluster, runs: Sequence[Run]) -> int:
    """Simulate runs as lists; return the number of results."""
    return sum(1 for each in cluster.results(runs) if each is not None)


VARIANTS: dict[str, Callable[[Cluster, Sequence[Run]], int]] = {
    "lists": lists,
    "plain, 1 run per task": lambda cluster, runs: plain(cluster, runs, 1),
    "plain, 20 runs per task": lambda cluster, runs: plain(cluster, runs, 20),
}


def children() -> list[int]:
    """Return the processes that this one has started."""
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


def main(count: int, rounds: int) -> None:
    """Print the processor time per run of each variant, and what a killed worker costs."""
    runs = short_runs(count)
    with closing(Cluster(f"local:{PROCESSES}")) as cluster:
        for variant in VARIANTS.values():
            variant(cluster, runs[:200])
        for _ in range(rounds):
            for name, variant in VARIANTS.items():
                found = [0]

                def work(
                    variant: Callable[[Cluster, Sequence[Run]], int] = variant, found: list[int] = found
                ) -> None:
                    found[0] = variant(cluster, runs)

                cost = counted([os.getpid(), *children()], work)
                print(
                    f"{name}: {found[0]} results, {1e3 * cost.cpu / count:.3f} ms of processor time per run,"
                    f" {cost.wall:.1f} s of wall time",
                    flush=True,
                )
        for name, variant in VARIANTS.items():
            threading.Timer(3, lambda: os.kill(children()[0], signal.SIGKILL)).start()
            start = time.perf_counter()
            try:
                results = variant(cluster, runs)
            except Exception as error:
                print(f"{name}, a worker killed: {type(error).__name__}: {error}", flush=True)
            else:
                took = time.perf_counter() - start
                print(f"{name}, a worker killed: {results} results in {took:.1f} s", flush=True)


if __name__ == "__main__":
    import plain_dask  # workers find the task by the name of its module

    plain_dask.main(*map(int, sys.argv[1:]))
