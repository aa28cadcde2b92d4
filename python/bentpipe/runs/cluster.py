"""Simulation of runs on the workers of a Dask cluster, or on worker processes of this machine.

Each worker is given lists of runs, about two seconds of work, and reports each result as it is found. A
worker that dies loses only its current run: this run is repeated, and the rest of its list goes to other
workers. Dask itself could repeat only whole lists, therefore each list is bound to its worker.
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
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bentpipe import _core
from bentpipe.errors import ClusterError, SimulationError, UsageError
from bentpipe.runs import worker_tasks
from bentpipe.runs.dataset import Run
from bentpipe.runs.local_cluster import LocalWorkers
from bentpipe.runs.store import build_digest
from bentpipe.runs.workers import Outcome

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["LOST", "Cluster"]

LOST = 3
"""Number of workers that may die with a run before it is given up."""

_POLL_SECONDS = 0.2
_CONNECT_SECONDS = 5.0
_NO_WORKER_SECONDS = 300.0
_CHUNK_SECONDS = 2.0
_CHUNK_SECONDS_A_SLOT = 0.02
"""Lists are longer with many workers, so that the scheduler handles at most fifty per second."""
_SHORTEST_CHUNK_SECONDS = 0.1
_SEND_SHARE = 0.05
"""Share of a list's time for which results of short runs are collected."""
_AHEAD_SECONDS = 0.25
"""Time before the end of a list at which the worker gets its next one [s]."""
_ALLOWED = (
    "local:N for N processes of this machine, or a scheduler's address as tcp://host:8786 or tls://host:8786"
)


@dataclass(eq=False)
class _Worker:
    address: str
    id: str
    threads: int
    chunks: "list[_Chunk]" = field(default_factory=list)
    """Unfinished runs of the worker in order; as many as it has threads are being simulated."""


@dataclass(eq=False)
class _Chunk:
    number: int
    worker: _Worker
    runs: list[Run]
    left: dict[int, Run]
    """Runs without a result, by index."""
    heard: float
    """Time when it was given to the worker, or when the worker last reported [s]."""
    alone: bool = False
    """True if nothing else may be at the worker at the same time."""
    future: "Future[None] | None" = None


class Cluster:
    """Workers of a Dask cluster."""

    def __init__(self, where: str) -> None:
        """Start worker processes (`local:N`), or connect to a scheduler's address.

        Raises `UsageError` without a scheduler, without workers, or with workers of another build.
        """
        self._where = where
        count = _local_count(where)
        self._local: LocalWorkers | None = None
        self._client: Client | None = None
        self._levels = _quiet()
        try:
            self._local = LocalWorkers(count) if count else None
            self._client = _connect(where, self._local.address if self._local else where)
            self._check_workers()
        except BaseException:
            self.close()
            raise

    @property
    def client(self) -> "Client":
        """Connection to the scheduler."""
        if self._client is None:
            raise UsageError(f"{self._where}: is closed")
        return self._client

    def _check_workers(self) -> None:
        """Raise `UsageError` unless there are workers, all of this build."""
        deadline = time.monotonic() + _CONNECT_SECONDS
        found: dict[str, Any] = {}
        while not found:
            found = self.client.run(worker_tasks.admit, on_error="return")
            if not found and time.monotonic() > deadline:
                raise UsageError(
                    f"{self._where}: a cluster without workers; allowed: at least one, for example of"
                    f" `dask worker {self._where}`"
                )
            time.sleep(0 if found else _POLL_SECONDS)
        wrong = {address: fault for address, about in found.items() if (fault := _fault(about))}
        if wrong:
            address, fault = next(iter(wrong.items()))
            several = f" ({len(wrong)} of {len(found)} workers cannot take part)" if len(found) > 1 else ""
            raise UsageError(f"worker {address}: {fault}{several}")

    def results(self, runs: Iterable[Run]) -> Generator[tuple[Run, Outcome] | None]:
        """Simulate the runs, see `Workers.results`.

        Raises `ClusterError` if the scheduler disappears, or remains without workers.
        """
        client = self.client
        sweep = _Sweep(client, self._where, self._local, runs)
        try:
            yield from sweep.results()
        except Exception:
            # If the scheduler is gone, that is the cause of any failure.
            if client.status == "running":
                raise
            raise ClusterError(f"cluster {self._where}: its scheduler is gone") from None
        finally:
            sweep.close()

    def close(self) -> None:
        """Leave the cluster; end the worker processes of this machine."""
        if self._client is not None:
            with contextlib.suppress(Exception):
                self._client.close()
            self._client = None
        if self._local is not None:
            self._local.close()
            self._local = None
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


def _quiet() -> list[tuple[logging.Logger, int]]:
    """Keep Dask from writing to the terminal; return the former settings."""
    import distributed  # noqa: F401

    names = [name for name in logging.root.manager.loggerDict if name.split(".")[0] == "distributed"]
    levels = [(logging.getLogger(name), logging.getLogger(name).level) for name in names]
    for logger, _ in levels:
        logger.setLevel(logging.CRITICAL + 1)
    return levels


def _connect(where: str, address: str) -> "Client":
    from distributed import Client

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


def _fault(about: dict[str, Any] | Exception) -> str | None:
    """Return the reason why a worker cannot take part."""
    if isinstance(about, Exception):
        return f"Bentpipe cannot be used there: {about}"
    here = _core.__version__, build_digest()
    there = about["version"], about["build"]
    if there == here:
        return None
    return (
        f"found Bentpipe {there[0]} of build {there[1][:12]};"
        f" allowed: the same as here, {here[0]} of build {here[1][:12]}"
    )


class _Sweep:
    """Simulation of some runs on a cluster."""

    def __init__(self, client: "Client", where: str, local: LocalWorkers | None, runs: Iterable[Run]) -> None:
        self.client = client
        self.where = where
        self.local = local
        self.id = f"bentpipe-{uuid.uuid4().hex}"
        self.queue: Iterator[Run] = iter(runs)
        self.queued: int | None = len(runs) if isinstance(runs, Sized) else None
        """Number of runs in the queue, if known."""
        self.again: deque[Run] = deque()
        """Runs returned to be assigned again."""
        self.suspects: deque[Run] = deque()
        """Runs that may have killed their worker; each becomes a separate list."""
        self.lost: dict[tuple[str, int], int] = {}
        """Number of workers that died with a run, by digest and seed."""
        self.workers: dict[str, _Worker] = {}
        self.there: set[str] = set()
        """Addresses of all workers of the scheduler, whether they take part or not."""
        self.seen: set[str] = set()
        """Names of all workers seen."""
        self.chunks: dict[int, _Chunk] = {}
        self.next = 0
        self.pace = 0.0
        """Approximate time of a run [s]."""
        self.files: dict[str, bytes] = {}
        """File contents sent to all workers, by digest; the digest of a path never changes within a sweep."""
        self.inbox: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        self.looked = self.manned = time.monotonic()

    def results(self) -> Generator[tuple[Run, Outcome] | None]:
        # The client keeps handlers of topics forever: they hold no more of this sweep than its inbox.
        inbox = self.inbox
        self.client.subscribe_topic(self.id, lambda event: inbox.put(("found", *event[1])))
        self.client.subscribe_topic("all", self._hear)
        found = self.client.run(worker_tasks.admit, on_error="return")
        self.there |= set(found)
        self._admit(found)
        while True:
            self._hand_out()
            if not self.chunks and not self.again and not self.suspects and self.queued == 0:
                return
            now = time.monotonic()
            if now - self.looked >= _POLL_SECONDS:
                self.looked = now
                self._look(now)
            try:
                what, *rest = self.inbox.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                yield None
                continue
            match what:
                case "found":
                    yield from self._found(*rest)
                case "ended":
                    self._ended(*rest)
                case "gone":
                    yield from self._gone(*rest)
                case "came":
                    self._ask(*rest)
                case "admitted":
                    self._admit(*rest)

    # Incoming messages; `_hear` is called in a thread of the client.

    def _hear(self, event: tuple[float, Any]) -> None:
        _, message = event
        if isinstance(message, dict) and message.get("action") == "remove-worker":
            self.inbox.put(("gone", message["worker"], bool(message.get("expected"))))
        elif isinstance(message, dict) and message.get("action") == "add-worker":
            self.inbox.put(("came", message["worker"]))

    def _ask(self, address: str) -> None:
        """Ask a worker for its properties; in a thread, since it may never answer."""
        self.there.add(address)

        def ask() -> None:
            with contextlib.suppress(Exception):
                found = self.client.run(worker_tasks.admit, workers=[address], on_error="return")
                self.client.run(worker_tasks.keep, self.id, self.files, workers=[address], on_error="ignore")
                self.inbox.put(("admitted", found))

        threading.Thread(target=ask, name="bentpipe-admit", daemon=True).start()

    def _admit(self, found: dict[str, Any]) -> None:
        """Admit workers; a late worker of another build is ignored."""
        for address, about in found.items():
            if _fault(about) is None and address in self.there and address not in self.workers:
                self.workers[address] = _Worker(address, about["id"], about["threads"])
                self.seen.add(about["name"])

    def _found(
        self, number: int, last: bool, seconds: float, packed: bytes
    ) -> Generator[tuple[Run, Outcome] | None]:
        chunk = self.chunks.get(number)
        if chunk is None:
            return
        chunk.heard = time.monotonic()
        results = pickle.loads(packed)  # noqa: S301
        if results:
            pace = seconds / len(results)
            self.pace = pace if self.pace == 0 else (self.pace + pace) / 2
        finished = [(chunk.left.pop(index, None), outcome) for index, outcome in results]
        if last or not chunk.left:
            self._close(chunk)
            self.again.extend(chunk.left.values())
        self._hand_out()
        for run, outcome in finished:
            if run is not None:
                yield run, worker_tasks.found(outcome)

    def _ended(self, number: int, future: "Future[None]") -> None:
        """Handle Dask's news that a list ended: it failed, or its results should have arrived."""
        chunk = self.chunks.get(number)
        if chunk is None:
            return
        if future.status == "error":
            from distributed import KilledWorker

            error = future.exception()
            if isinstance(error, KilledWorker):
                # The death of the worker is reported separately.
                return
            raise error
        self._close(chunk)
        self.again.extend(chunk.left.values())
        if len(chunk.left) == len(chunk.runs) and chunk.worker.address in self.workers:
            # Another worker may have the same address now.
            del self.workers[chunk.worker.address]
            self._ask(chunk.worker.address)

    def _gone(self, address: str, expected: bool) -> Generator[tuple[Run, Outcome]]:
        """Assign the unfinished runs of a worker again; yield the runs that killed too many workers."""
        self.there.discard(address)
        worker = self.workers.pop(address, None)
        for chunk in list(worker.chunks) if worker else ():
            left = list(chunk.left.values())
            self._close(chunk)
            if expected:
                self.again.extendleft(reversed(left))
            elif len(chunk.runs) > 1:
                # Results may have been lost, even those of a whole list: any unfinished run may be the cause.
                self.suspects.extend(left)
            else:
                for run in left:
                    lost = self.lost[run.digest, run.seed] = self.lost.get((run.digest, run.seed), 0) + 1
                    if lost < LOST:
                        self.suspects.append(run)
                    else:
                        yield run, SimulationError(f"given up: {lost} workers died while they simulated it")

    def _look(self, now: float) -> None:
        """Check that the cluster is alive, and whether work is stuck."""
        if self.client.status != "running":
            raise ClusterError(f"cluster {self.where}: its scheduler is gone")
        if self.local is not None:
            self.local.replace_dead(self.seen)
        if self.workers:
            self.manned = now
        elif now - self.manned > _NO_WORKER_SECONDS:
            raise ClusterError(f"cluster {self.where}: without workers for {_NO_WORKER_SECONDS:.0f} s")
        self._take_back(now)

    # Outgoing lists.

    def _hand_out(self) -> None:
        # Idle workers first: little may be left.
        for has_room in (self._is_idle, self._is_soon_idle):
            for worker in self.workers.values():
                while has_room(worker):
                    runs, alone = self._next(worker)
                    if not runs:
                        break
                    self._give(worker, runs, alone)

    def _is_idle(self, worker: _Worker) -> bool:
        """Return True if a thread of the worker is idle."""
        return len(worker.chunks) < worker.threads and not any(chunk.alone for chunk in worker.chunks)

    def _is_soon_idle(self, worker: _Worker) -> bool:
        """Return True if a thread of the worker will soon be idle, and no next list waits."""
        if any(chunk.alone for chunk in worker.chunks):
            return False
        if len(worker.chunks) >= 2 * worker.threads or self.pace == 0:
            return False
        # A long list is not soon done: another one would wait behind it.
        now = time.monotonic()
        soon = [chunk for chunk in worker.chunks if not self._is_late(chunk, now)]
        return any(len(chunk.left) * self.pace < _AHEAD_SECONDS for chunk in soon)

    def _is_late(self, chunk: _Chunk, now: float) -> bool:
        """Return True if a list was silent for longer than its whole planned time."""
        return now - chunk.heard > self.seconds + 2 * _POLL_SECONDS

    @property
    def slots(self) -> int:
        return sum(worker.threads for worker in self.workers.values())

    @property
    def seconds(self) -> float:
        """Planned time of a list [s]."""
        return max(_CHUNK_SECONDS, _CHUNK_SECONDS_A_SLOT * self.slots)

    def _next(self, worker: _Worker) -> tuple[list[Run], bool]:
        """Return the runs for a worker, and whether it must have nothing else."""
        for _ in range(len(self.suspects)):
            run = self.suspects.popleft()
            # Its last chance: if the worker dies again, nothing else can be the cause.
            alone = self.lost.get((run.digest, run.seed), 0) == LOST - 1
            if not alone or not worker.chunks:
                return [run], alone
            self.suspects.append(run)
        if self.suspects and worker is min(self.workers.values(), key=lambda each: len(each.chunks)):
            # It gets one of them as soon as it is idle.
            return [], False
        count = self._count()
        runs: list[Run] = []
        while self.again and len(runs) < count:
            runs.append(self.again.popleft())
        while self.queued != 0 and len(runs) < count:
            run_ = next(self.queue, None)
            if run_ is None:
                self.queued = 0
                break
            if self.queued is not None:
                self.queued -= 1
            runs.append(run_)
        return runs, False

    def _count(self) -> int:
        """Return the number of runs in a list."""
        if self.pace == 0:
            return 1
        seconds = self.seconds
        if self.queued is not None:
            # Towards the end lists are shorter, so that all workers finish together.
            left = (self.queued + len(self.again)) * self.pace
            seconds = max(min(seconds, left / (2 * self.slots)), _SHORTEST_CHUNK_SECONDS)
        return max(1, int(seconds / self.pace))

    def _give(self, worker: _Worker, runs: list[Run], alone: bool) -> None:
        number = self.next
        self.next += 1
        job = self._job(number, worker, runs)
        chunk = _Chunk(number, worker, runs, dict(enumerate(runs)), time.monotonic(), alone)
        self.chunks[number] = chunk
        worker.chunks.append(chunk)
        chunk.future = self.client.submit(
            worker_tasks.work,
            pickle.dumps(job),
            key=f"{self.id}-{number}",
            workers=[worker.address],
            allow_other_workers=False,
            pure=False,
        )
        chunk.future.add_done_callback(lambda future: self.inbox.put(("ended", number, future)))

    def _job(self, number: int, worker: _Worker, runs: list[Run]) -> worker_tasks.Job:
        bases: dict[worker_tasks.Base, int] = {}
        sources: dict[str, int] = {}
        listed: list[worker_tasks.Source] = []
        entries: list[tuple[int, int]] = []
        missing: dict[str, bytes] = {}
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
                for path, digest in files:
                    if digest not in self.files and (content := run.scenario.file(path)) is not None:
                        missing[digest] = content
            entries.append((sources[run.digest], run.seed))
        if missing:
            self.files |= missing
            self.client.run(worker_tasks.keep, self.id, missing, on_error="ignore")
        seconds = self.seconds
        return worker_tasks.Job(
            self.id, number, worker.id, list(bases), listed, entries, seconds, _SEND_SHARE * seconds
        )

    def _take_back(self, now: float) -> None:
        """Give the runs that wait behind a long one to idle workers."""
        if self.queued != 0 or self.again or self.suspects:
            return
        if all(len(worker.chunks) >= worker.threads for worker in self.workers.values()):
            return
        for worker in self.workers.values():
            under_way, waiting = worker.chunks[: worker.threads], worker.chunks[worker.threads :]
            late = [chunk for chunk in under_way if self._is_late(chunk, now)]
            for chunk in late:
                # The worker starts none of them any more: the list's time is over.
                for index in list(chunk.left)[1:]:
                    self.again.append(chunk.left.pop(index))
            for chunk in waiting if len(late) == worker.threads else ():
                self._close(chunk, cancel=True)
                self.again.extend(chunk.left.values())

    def _close(self, chunk: _Chunk, *, cancel: bool = False) -> None:
        """Finish a list."""
        self.chunks.pop(chunk.number, None)
        given, threads = chunk.worker.chunks, chunk.worker.threads
        if chunk in given:
            was_under_way = given.index(chunk) < threads
            given.remove(chunk)
            if was_under_way and len(given) >= threads:
                # The worker has come to it.
                given[threads - 1].heard = time.monotonic()
        if chunk.future is not None and cancel:
            chunk.future.cancel()
        chunk.future = None

    def close(self) -> None:
        """Cancel all lists, and leave nothing behind."""
        with contextlib.suppress(Exception):
            if self.chunks and self.client.status == "running":
                futures = [chunk.future for chunk in self.chunks.values() if chunk.future is not None]
                self.client.cancel(futures)
                self.client.run(worker_tasks.stop, self.id, on_error="ignore")
            self.chunks.clear()
            if self.files:
                self.client.run(worker_tasks.forget, self.id, on_error="ignore")
            for topic in (self.id, "all"):
                self.client.unsubscribe_topic(topic)
            # The scheduler keeps a topic's last messages. A lambda is pickled by value: no Bentpipe needed
            # there.
            topic = self.id
            self.client.run_on_scheduler(lambda dask_scheduler: dask_scheduler._broker.truncate(topic))
