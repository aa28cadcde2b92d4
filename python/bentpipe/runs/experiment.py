"""Execution of a plan: simulates the missing runs on several threads and writes the result."""

import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Protocol

from bentpipe._core import AlgorithmError, Cancelled, Progress, WatchError, simulate
from bentpipe.errors import ScenarioError, UsageError
from bentpipe.runs.capture import PACKETS, Captures
from bentpipe.runs.plan import Setting
from bentpipe.runs.qlog import Qlogs
from bentpipe.runs.result import Result
from bentpipe.runs.store import Store, pairs, read_manifest

__all__ = ["Silent", "Watcher", "checked_jobs", "cores", "execute"]

_POLL_SECONDS = 0.1


class Watcher(Protocol):
    """Observer of a comparison's progress, called from the thread that called `execute`."""

    def begin(self, total: int, done: int) -> None:
        """Report the number of wanted runs, and of those `done` already."""

    def progress(self, share: float) -> None:
        """Report the completed share of all simulated time, 0 to 1."""

    def finished(self, setting: str, seed: int, seconds: float) -> None:
        """Report that a run was written after `seconds` of wall time."""


class Silent:
    """An observer that ignores everything."""

    def begin(self, total: int, done: int) -> None:
        """Do nothing."""

    def progress(self, share: float) -> None:
        """Do nothing."""

    def finished(self, setting: str, seed: int, seconds: float) -> None:
        """Do nothing."""


@dataclass(slots=True)
class _Job:
    setting: Setting
    seed: int
    progress: Progress


def cores() -> int:
    """Return the number of processor cores available to this process."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def checked_jobs(jobs: int | None) -> int:
    """Return the number of concurrent runs, by default one per core; `UsageError` below one."""
    if jobs is not None and jobs < 1:
        raise UsageError(f"jobs is {jobs}, but at least 1 is needed")
    return jobs or cores()


def execute(
    store: Store,
    jobs: int | None = None,
    watcher: Watcher | None = None,
    captures: Captures | None = None,
    qlogs: Qlogs | None = None,
) -> Result:
    """Simulate the runs missing in `store` on `jobs` threads and complete the result.

    Their packets go to `captures` and their connections to `qlogs`.

    `KeyboardInterrupt` and errors cancel the current runs, keep the finished ones and propagate. Raises
    `ScenarioError` if a scenario is impossible, `UsageError` if a flow to trace does not exist,
    `AlgorithmError` if an AQM written in Python fails (these three leave no folder unless a run was
    finished), `SimulationError`, and `OSError` if a run cannot be written.
    """
    jobs = checked_jobs(jobs)
    watcher = watcher or Silent()
    wanted = list(pairs(store.plan))
    todo = [
        _Job(setting, seed, Progress())
        for setting, seed in wanted
        if not store.has(setting, seed)
        or any(each is not None and each.lacks(setting, seed) for each in (captures, qlogs))
    ]
    watcher.begin(len(wanted), len(wanted) - len(todo))
    if todo:
        try:
            _simulate_all(store, todo, jobs, len(wanted), watcher, captures, qlogs)
        except (AlgorithmError, ScenarioError, UsageError):
            store.discard()
            raise
    result = Result(store.folder, unfinished=True)
    if todo or not store.complete:
        store.finish(result.metrics(), result.rows(), result.warmup().rows(named=True))
        # The same result, since its metrics are computed.
        result.manifest = read_manifest(store.folder)
    return result


def _simulate_all(
    store: Store,
    todo: Sequence[_Job],
    jobs: int,
    total: int,
    watcher: Watcher,
    captures: Captures | None,
    qlogs: Qlogs | None,
) -> None:
    there = total - len(todo)
    pool = ThreadPoolExecutor(jobs, thread_name_prefix="bentpipe")
    futures: dict[Future[tuple[float, float] | None], _Job] = {}
    noted: set[Future[tuple[float, float] | None]] = set()

    def note(future: Future[tuple[float, float] | None]) -> None:
        # An error in a run is raised here, in place of its times.
        times = future.result()
        if times is not None and future not in noted:
            noted.add(future)
            job = futures[future]
            store.note(job.setting, job.seed, *times)
            watcher.finished(job.setting.name, job.seed, times[0])

    try:
        for job in todo:
            futures[pool.submit(_run, store, job, captures, qlogs)] = job
        pending = set(futures)
        while pending:
            done, pending = wait(pending, timeout=_POLL_SECONDS, return_when=FIRST_COMPLETED)
            for future in sorted(done, key=lambda future: todo.index(futures[future])):
                note(future)
            watcher.progress((there + sum(job.progress.fraction() for job in todo)) / total)
    except BaseException:
        for job in todo:
            job.progress.cancel()
        pool.shutdown(wait=True, cancel_futures=True)
        # Runs that were finished meanwhile are kept as well; the first error is the one that is told.
        for future in futures:
            with suppress(Exception, CancelledError):
                note(future)
        raise
    pool.shutdown(wait=True)


def _run(
    store: Store, job: _Job, captures: Captures | None, qlogs: Qlogs | None
) -> tuple[float, float] | None:
    """Simulate and write one run; return its wall time and its processor time [s], None if cancelled."""
    start = time.perf_counter()
    trace = list(store.plan.trace)
    try:
        with ExitStack() as stack:
            writing = stack.enter_context(captures.files(job.setting, job.seed)) if captures else None
            logging = stack.enter_context(qlogs.folder(job.setting, job.seed)) if qlogs else None
            run = simulate(
                job.setting.scenario,
                job.seed,
                job.progress,
                trace=trace,
                captures=writing.targets if writing else [],
                snap=captures.capture.snap if captures else None,
                packets=captures.capture.packets if captures else PACKETS,
                qlog=logging.target if logging else None,
            )
            store.add(job.setting, job.seed, run)
            if writing is not None:
                writing.keep(run)
            if logging is not None:
                logging.keep(run)
    except Cancelled:
        return None
    except AlgorithmError as error:
        text = f"{error}, in setting {job.setting.name}, seed {job.seed}"
        raise AlgorithmError(text) from error.__cause__
    except WatchError as error:
        raise UsageError(f"{error} ({job.setting.name}, seed {job.seed})") from None
    return time.perf_counter() - start, run.cpu_seconds
