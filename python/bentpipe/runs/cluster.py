"""Simulation of runs on the workers of a Dask cluster, or on worker processes of this machine.

A task simulates runs for about two seconds. Dask repeats the task of a worker that died; the runs of a task
that ended too many workers are simulated again one by one. Towards the end of a sweep, a task that has not
returned for much longer than expected is also given to another worker, and the first result counts (backup
tasks: Dean & Ghemawat 2004, section 3.6): its worker may be frozen or unreachable.
"""

import contextlib
import logging
import pickle
import queue
import threading
import time
import uuid
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sized
from concurrent.futures import CancelledError
from dataclasses import dataclass
from itertools import islice

from distributed import Client, Future, KilledWorker
from distributed.comm.core import CommClosedError

from bentpipe.errors import ClusterError, SimulationError, UsageError
from bentpipe.runs import worker_tasks
from bentpipe.runs.dataset import Run
from bentpipe.runs.local_cluster import LocalWorkers
from bentpipe.runs.workers import Outcome

__all__ = ["Cluster", "task_length"]

_POLL_SECONDS = 0.2
_CONNECT_SECONDS = 5.0
_NO_WORKER_SECONDS = 300.0
_LOOK_SECONDS = 0.5
"""Interval of checks of the scheduler and the workers [s]."""
_RESULT_SECONDS = 1.0
"""Longest wait for the result of a finished task [s]."""
_CANCEL_SECONDS = 5.0
"""Longest wait for workers to cancel their tasks [s]."""
_TASK_SECONDS = 2.0
_TASK_SECONDS_PER_THREAD = 0.02
"""Tasks are longer with many workers, so that the scheduler handles at most fifty per second."""
_SHORTEST_TASK_SECONDS = 0.1
_OVERDUE_SECONDS = 10.0
"""Age of a task from which it may be overdue [s]."""
_OVERDUE_FACTOR = 5.0
"""A task is overdue after this multiple of its expected duration."""
_TASKS_PER_THREAD = 2
"""Number of submitted tasks per thread: one is simulated while the next waits."""
_ALLOWED = (
    "local:N for N processes of this machine, or a scheduler's address as tcp://host:8786 or tls://host:8786"
)


class Cluster:
    """Workers of a Dask cluster."""

    def __init__(self, where: str) -> None:
        """Start worker processes (`local:N`), or connect to a scheduler's address.

        Raises `UsageError` without a scheduler, without workers, or with workers of another build.
        """
        self.where = where
        count = _local_count(where)
        self.local: LocalWorkers | None = None
        self._client: Client | None = None
        self._levels = _silence_loggers()
        try:
            self.local = LocalWorkers(count) if count else None
            self._client = _connect(where, self.local.address if self.local else where)
            self._check_workers()
        except BaseException:
            self.close()
            raise

    @property
    def client(self) -> Client:
        """Connection to the scheduler."""
        if self._client is None:
            raise UsageError(f"{self.where}: is closed")
        return self._client

    def _check_workers(self) -> None:
        """Raise `UsageError` unless there are workers, all of this build."""
        deadline = time.monotonic() + _CONNECT_SECONDS
        found: dict[str, str | Exception | None] = {}
        while not found:
            answers = self.client.run(worker_tasks.build_fault, worker_tasks.build(), on_error="return")
            # A worker that died meanwhile is left out.
            found = {of: each for of, each in answers.items() if not isinstance(each, CommClosedError)}
            if not found and time.monotonic() > deadline:
                raise UsageError(
                    f"{self.where}: a cluster without workers; allowed: at least one, for example of"
                    f" `dask worker {self.where}`"
                )
            time.sleep(0 if found else _POLL_SECONDS)
        wrong = {address: fault for address, fault in found.items() if fault is not None}
        if wrong:
            address, fault = next(iter(wrong.items()))
            if isinstance(fault, Exception):
                fault = f"Bentpipe cannot be used there: {fault}"
            several = f" ({len(wrong)} of {len(found)} workers cannot take part)" if len(found) > 1 else ""
            raise UsageError(f"worker {address}: {fault}{several}")

    def results(self, runs: Iterable[Run]) -> Generator[tuple[Run, Outcome] | None]:
        """Simulate the runs, see `Workers.results`.

        Raises `ClusterError` if the scheduler disappears, or remains without workers.
        """
        sweep = _Sweep(self, runs)
        try:
            yield from sweep.results()
        except Exception as error:
            # If the scheduler is gone, that is the cause of any failure, and of cancelled tasks.
            if self.client.status == "running" and not isinstance(error, CancelledError):
                raise
            raise ClusterError(f"cluster {self.where}: its scheduler is gone") from None
        finally:
            sweep.close()

    def close(self) -> None:
        """Leave the cluster; end the worker processes of this machine."""
        if self._client is not None:
            with contextlib.suppress(Exception):
                self._client.close()
            self._client = None
        if self.local is not None:
            self.local.close()
            self.local = None
        for logger, level in self._levels:
            logger.setLevel(level)
        self._levels = []


def _local_count(where: str) -> int:
    """Return the N of `local:N`, zero for an address; `UsageError` for anything else."""
    kind, _, rest = where.partition(":")
    if kind == "local":
        if not (rest.isascii() and rest.isdigit() and 1 <= int(rest) <= 1024):
            raise UsageError(f"cluster {where}: allowed: {_ALLOWED}; N from 1 to 1024")
        return int(rest)
    host, _, port = rest.removeprefix("//").rpartition(":")
    if kind not in {"tcp", "tls"} or not rest.startswith("//") or not host or not port.isdigit():
        raise UsageError(f"cluster {where}: allowed: {_ALLOWED}")
    return 0


def _silence_loggers() -> list[tuple[logging.Logger, int]]:
    """Keep Dask from writing to the terminal; return the former settings."""
    names = [name for name in logging.root.manager.loggerDict if name.split(".")[0] == "distributed"]
    levels = [(logging.getLogger(name), logging.getLogger(name).level) for name in names]
    for logger, _ in levels:
        logger.setLevel(logging.CRITICAL + 1)
    return levels


def _connect(where: str, address: str) -> Client:
    found: list[Client | Exception] = []

    def connect() -> None:
        try:
            found.append(Client(address, timeout=_CONNECT_SECONDS, set_as_default=False, name="bentpipe"))
        except Exception as error:
            found.append(error)

    # In a thread, because Dask waits forever for a server that accepts the connection and stays silent.
    thread = threading.Thread(target=connect, name="bentpipe-connect", daemon=True)
    thread.start()
    thread.join(_CONNECT_SECONDS + 1)
    client = found[0] if found else TimeoutError("connected, but got no answer")
    if isinstance(client, Exception):
        reason = next((line for line in str(client).splitlines() if line), type(client).__name__)
        raise UsageError(f"cluster {where}: no Dask scheduler answers there: {reason}") from None
    return client


@dataclass(frozen=True, slots=True, eq=False)
class _Task:
    """A task that has been submitted."""

    runs: list[Run]
    since: float
    """Time of its submission [s]."""
    backups: list[Future[worker_tasks.Done]]
    """All futures that simulate its runs; the first result counts."""


class _Sweep:
    """Simulation of some runs on a cluster, as tasks of about two seconds."""

    def __init__(self, cluster: Cluster, runs: Iterable[Run]) -> None:
        self.cluster = cluster
        self.client = cluster.client
        self.id = f"bentpipe-{uuid.uuid4().hex}"
        self.queue: Iterator[Run] = iter(runs)
        self.queued: int | None = len(runs) if isinstance(runs, Sized) else None
        """Number of runs in the queue, if known."""
        self.again: deque[Run] = deque()
        """Runs that a task returned without a result."""
        self.suspects: deque[Run] = deque()
        """Runs whose task ended its workers, or waited there: each is simulated alone in the end."""
        self.is_alone = False
        """True while the only task is a suspect's."""
        self.tasks: dict[Future[worker_tasks.Done], _Task] = {}
        """Tasks by future; one with a backup has two."""
        self.finished: queue.SimpleQueue[Future[worker_tasks.Done]] = queue.SimpleQueue()
        self.files: dict[str, Future[bytes]] = {}
        """Contents of the files that scenarios name, by digest."""
        self.threads = 0
        """Number of threads of all workers."""
        self.run_seconds = 0.0
        """Approximate duration of a run [s]."""
        self.looked = self.manned = 0.0

    def results(self) -> Generator[tuple[Run, Outcome] | None]:
        self.manned = time.monotonic()
        while True:
            now = time.monotonic()
            if now - self.looked >= _LOOK_SECONDS:
                self.looked = now
                self._update_workers(now)
                self._submit_backups(now)
            self._submit()
            if not self.tasks and (self.threads or self._is_done()):
                return
            try:
                future = self.finished.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                yield None
                continue
            yield from self._results_of(future)

    def _is_done(self) -> bool:
        return self.queued == 0 and not self.again and not self.suspects

    def _update_workers(self, now: float) -> None:
        """Replace ended worker processes and count threads.

        Raises `ClusterError` if the scheduler is gone, or after a long time without workers.
        """
        if self.client.status != "running":
            raise ClusterError(f"cluster {self.cluster.where}: its scheduler is gone")
        if self.cluster.local is not None:
            self.cluster.local.replace_dead()
        self.threads = sum(self.client.nthreads().values())
        if self.threads:
            self.manned = now
        elif now - self.manned > _NO_WORKER_SECONDS:
            raise ClusterError(
                f"cluster {self.cluster.where}: without workers for {_NO_WORKER_SECONDS:.0f} s"
            )

    def _submit(self) -> None:
        """Keep as many tasks submitted as workers need to stay busy."""
        while len(self.tasks) < _TASKS_PER_THREAD * self.threads:
            runs = self._next()
            if not runs:
                self.queued = 0
                break
            self._submit_task(runs)
            self.is_alone = False
        if not self.tasks and self.threads and self.suspects:
            self._submit_task([self.suspects.popleft()])
            self.is_alone = True

    def _next(self) -> list[Run]:
        left = None if self.queued is None else self.queued + len(self.again)
        count = task_length(self.run_seconds, left, self.threads)
        runs: list[Run] = []
        while self.again and len(runs) < count:
            runs.append(self.again.popleft())
        new = list(islice(self.queue, count - len(runs)))
        if self.queued is not None:
            self.queued -= len(new)
        return runs + new

    def _submit_task(self, runs: list[Run]) -> None:
        self._start(_Task(runs, time.monotonic(), []))

    def _start(self, task: _Task, workers: list[str] | None = None) -> None:
        """Submit a task, to one of some workers if they are given."""
        job, files = self._job(task.runs)
        future = self.client.submit(
            worker_tasks.work,
            pickle.dumps(job),
            files,
            pure=False,
            workers=workers,
            allow_other_workers=workers is not None,
        )
        self.tasks[future] = task
        task.backups.append(future)
        future.add_done_callback(self.finished.put)

    def _submit_backups(self, now: float) -> None:
        """Give overdue tasks to other workers, once nothing else is left for these."""
        if self.is_alone or self.again or self.queued != 0 or self.threads < 2:
            return
        expected = max(_task_seconds(self.threads), self.run_seconds)
        limit = max(_OVERDUE_SECONDS, _OVERDUE_FACTOR * expected)
        late = {
            future.key: task
            for future, task in self.tasks.items()
            if len(task.backups) == 1 and now - task.since > limit * _TASKS_PER_THREAD and not future.done()
        }
        if not late:
            return
        # A task that waits at the scheduler is on no worker; it will get one.
        holders = {worker: late.keys() & set(keys) for worker, keys in self.client.processing().items()}
        others = [worker for worker, keys in holders.items() if not keys]
        if not others:
            return
        # Files may be on the worker that does not answer.
        self.files = {}
        for key in set().union(*holders.values()):
            self._start(late[key], others)

    def _job(self, runs: list[Run]) -> tuple[worker_tasks.Job, dict[str, Future[bytes]]]:
        bases: dict[worker_tasks.Base, int] = {}
        sources: dict[str, int] = {}
        listed: list[worker_tasks.Source] = []
        entries: list[tuple[int, int]] = []
        needed: dict[str, Future[bytes]] = {}
        for run in runs:
            if run.digest not in sources:
                packed = run.scenario.packed()
                if packed is None:
                    raise UsageError(f"setting {run.setting}: its scenario cannot be sent to a cluster")
                file, text, overrides, setting, parameters, files = packed
                aqm = run.scenario.python_aqm
                code = None if aqm is None else aqm.packed()
                base = bases.setdefault((file, text, tuple(files)), len(bases))
                sources[run.digest] = len(listed)
                listed.append((base, tuple(overrides), setting, tuple(parameters), code, run.digest))
                needed |= {digest: self._file(run, path, digest) for path, digest in files}
            entries.append((sources[run.digest], run.seed))
        return worker_tasks.Job(
            self.id, worker_tasks.build(), list(bases), listed, entries, _task_seconds(self.threads)
        ), needed

    def _file(self, run: Run, path: str, digest: str) -> Future[bytes]:
        """Return the content of a file as a task: Dask sends it to the workers that need it."""
        if digest not in self.files:
            content = run.scenario.file(path)
            if content is None:
                raise UsageError(f"setting {run.setting}: {path} cannot be sent to a cluster")
            self.files[digest] = self.client.submit(bytes, content, pure=False)
        return self.files[digest]

    def _results_of(self, future: Future[worker_tasks.Done]) -> Generator[tuple[Run, Outcome] | None]:
        task = self.tasks.get(future)
        if task is None:
            return  # Its backup was faster.
        runs = task.runs
        try:
            done = future.result(timeout=_RESULT_SECONDS)
        except TimeoutError:
            # Its worker died after the task: Dask repeats it as soon as there is a worker.
            self.finished.put(future)
            yield None
            return
        except KilledWorker as error:
            del self.tasks[future]
            task.backups.remove(future)
            if task.backups:
                return
            if self.is_alone:
                deaths = error.allowed_failures + 1
                yield runs[0], SimulationError(f"given up: {deaths} workers died while they simulated it")
            else:
                # Dask blames every task of a worker that dies, also those that wait there.
                self.suspects.extend(runs)
            return
        for each in task.backups:
            del self.tasks[each]
        if len(task.backups) > 1:
            self.client.cancel([each for each in task.backups if each is not future])
        pace = done.seconds / len(done.outcomes)
        self.run_seconds = (self.run_seconds + pace) / 2 if self.run_seconds else pace
        self.again.extend(runs[len(done.outcomes) :])
        self._submit()
        for run, outcome in zip(runs, done.outcomes, strict=False):
            yield run, worker_tasks.unpacked_outcome(outcome, run.scenario.traffic)

    def close(self) -> None:
        """Cancel all tasks."""

        def cancel() -> None:
            with contextlib.suppress(Exception):
                self.client.cancel([*self.tasks, *self.files.values()])
                if self.tasks:
                    self.client.run(worker_tasks.stop, self.id, on_error="ignore")

        if self.client.status == "running":
            # In a thread, because Dask waits for a worker that does not answer.
            thread = threading.Thread(target=cancel, name="bentpipe-cancel", daemon=True)
            thread.start()
            thread.join(_CANCEL_SECONDS)
        self.tasks = {}


def _task_seconds(threads: int) -> float:
    return max(_TASK_SECONDS, _TASK_SECONDS_PER_THREAD * threads)


def task_length(run_seconds: float, left: int | None, threads: int) -> int:
    """Return the number of runs of a task.

    A task lasts about two seconds, and less towards the end, so that all workers finish together.
    `run_seconds` is the duration of a run [s], zero if unknown; `left` the number of runs left, if known;
    `threads` the number of threads of all workers.
    """
    if run_seconds == 0:
        return 1
    seconds = _task_seconds(threads)
    if left is not None:
        seconds = max(min(seconds, left * run_seconds / (2 * threads)), _SHORTEST_TASK_SECONDS)
    return max(1, int(seconds / run_seconds))
