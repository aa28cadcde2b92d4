"""Workers that simulate runs: threads of this process, or those of `bentpipe.runs.cluster`."""

import math
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from itertools import islice
from queue import Empty, SimpleQueue
from typing import Protocol

import polars as pl

from bentpipe import _core
from bentpipe.errors import AlgorithmError, ScenarioError, SimulationError, UsageError
from bentpipe.runs.dataset import Dataset, Failure, Run
from bentpipe.runs.experiment import checked_jobs
from bentpipe.runs.progress import OnProgress
from bentpipe.stats.metrics import Recorded, evaluate

__all__ = ["OnProgress", "Outcome", "Threads", "Workers", "measure", "simulate", "workers_from"]

_POLL_SECONDS = 0.2
_FLUSH_SECONDS = 2.0

Outcome = dict[str, float | None] | SimulationError | ScenarioError | AlgorithmError
"""Metrics of a run, or the error that prevented them."""


class Workers(Protocol):
    """Simulates runs."""

    def results(self, runs: Iterable[Run]) -> Generator[tuple[Run, Outcome] | None]:
        """Simulate the runs and yield each with its outcome when it finishes, in any order.

        None is yielded periodically while no run finishes. Closing the iterator cancels the current runs.
        """

    def close(self) -> None:
        """Release the workers' resources."""


class Threads:
    """Threads of this process; the core releases the interpreter lock while it simulates."""

    def __init__(self, jobs: int | None = None) -> None:
        """Simulate `jobs` runs at a time, by default one per core; `UsageError` below one."""
        self._jobs = checked_jobs(jobs)

    @property
    def jobs(self) -> int:
        """Number of concurrent runs."""
        return self._jobs

    def results(self, runs: Iterable[Run]) -> Generator[tuple[Run, Outcome] | None]:
        """Simulate the runs, see `Workers.results`."""
        queue = iter(runs)
        pool = ThreadPoolExecutor(self._jobs, thread_name_prefix="bentpipe")
        under_way: dict[Future[Outcome], tuple[Run, _core.Progress]] = {}
        finished = SimpleQueue[Future[Outcome]]()

        def submit(count: int) -> None:
            for run in islice(queue, count):
                progress = _core.Progress()
                future = pool.submit(_outcome, run, progress)
                under_way[future] = (run, progress)
                future.add_done_callback(finished.put)

        try:
            # A few more than threads, so that no thread waits and the futures of a million runs are never
            # held at once.
            submit(2 * self._jobs)
            while under_way:
                try:
                    future = finished.get(timeout=_POLL_SECONDS)
                except Empty:
                    yield None
                    continue
                submit(1)
                run, _ = under_way.pop(future)
                yield run, future.result()
        finally:
            for _, progress in under_way.values():
                progress.cancel()
            pool.shutdown(wait=True, cancel_futures=True)

    def close(self) -> None:
        """Do nothing: threads end with their runs."""


def workers_from(jobs: int | None, cluster: str | None) -> Workers:
    """Return `jobs` threads, or the workers of a `cluster`: `local:N` or a scheduler's address.

    Close them after use. Raises `UsageError` if both are given, or if the cluster cannot be used.
    """
    if cluster is None:
        return Threads(jobs)
    if jobs is not None:
        raise UsageError("--jobs is for threads, --cluster for the workers of a cluster: give one of them")
    from bentpipe.runs.cluster import Cluster

    return Cluster(cluster)


def _outcome(run: Run, progress: _core.Progress) -> Outcome:
    try:
        return measure(run.scenario, run.seed, progress)
    except (SimulationError, ScenarioError, AlgorithmError) as error:
        return error


def measure(scenario: _core.Scenario, seed: int, progress: _core.Progress) -> dict[str, float | None]:
    """Simulate a scenario and return every metric."""
    found = _core.simulate(scenario, seed, progress)
    known = {name: value if math.isfinite(value) else None for name, value in found.counters.items()}
    return evaluate(
        Recorded(
            series=pl.DataFrame(found.series),
            flows=pl.DataFrame(found.flows),
            drop_runs=pl.DataFrame(found.drop_runs),
            counters=known,
            capacity=scenario.capacity,
            traffic=scenario.traffic,
            pages=None if found.pages is None else pl.DataFrame(found.pages),
            limits=scenario.thresholds,
            drops=lambda: pl.LazyFrame(found.drops),
        )
    )


def simulate(
    runs: Iterable[Run], dataset: Dataset, workers: Workers, on_progress: OnProgress | None = None
) -> list[Failure]:
    """Simulate the runs missing in `dataset`, add their results, and return the failures in their order.

    An interruption keeps the finished runs.
    """
    wanted = list(runs)
    todo, same = [], set()
    for run in wanted:
        # Points that a setting ignores share a digest: their run is simulated once for all of them.
        if not dataset.has(run) and (run.digest, run.seed) not in same:
            todo.append(run)
            same.add((run.digest, run.seed))
    errors: dict[tuple[str, int], str] = {}
    done = len(wanted) - len(todo)
    notify = on_progress or (lambda *_: None)
    notify(done, len(wanted), 0)
    with closing(workers.results(todo)) as results:
        try:
            for result in results:
                if result is not None:
                    run, outcome = result
                    done += 1
                    if isinstance(outcome, Exception):
                        errors[run.digest, run.seed] = str(outcome)
                    else:
                        dataset.add(run, outcome)
                notify(done, len(wanted), len(errors))
                dataset.flush(_FLUSH_SECONDS)
        finally:
            dataset.flush(0.0)
    dataset.spread(wanted)
    failed = (run for run in wanted if (run.digest, run.seed) in errors)
    found = {(run.setting, run.point, run.seed): Failure(run, errors[run.digest, run.seed]) for run in failed}
    return list(found.values())
