"""How runs are given to workers, in simulated time: the machine's load is not in it."""

import heapq
import itertools
import queue
import random
from collections.abc import Callable
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from bentpipe import _core
from bentpipe.runs import cluster, worker_tasks
from bentpipe.runs.dataset import Run
from bentpipe.runs.store import build_digest
from bentpipe.stats.metrics import METRICS
from bentpipe.sweeps.sweep import Sweep


class Timer:
    """Stands in for `threading.Timer`, in a worker's own time."""

    now = 0.0
    waiting: "list[tuple[float, Timer]]"

    def __init__(self, wait: float, call: Callable[[], None]) -> None:
        self.due = Timer.now + wait
        self.call = call

    def start(self) -> None:
        Timer.waiting.append((self.due, self))

    def cancel(self) -> None:
        Timer.waiting = [each for each in Timer.waiting if each[1] is not self]


class Future:
    """A list that was given to a worker."""

    def __init__(self) -> None:
        self.status = "pending"
        self.tell: Callable[[Future], None] = lambda _: None

    def add_done_callback(self, tell: "Callable[[Future], None]") -> None:
        self.tell = tell

    def cancel(self) -> None:
        self.status = "cancelled"
        self.tell(self)


class Workers:
    """Stands in for Dask: so many workers of so many threads, each with a row of lists, in simulated time.

    Lists are simulated by `worker_tasks.work` itself. A message takes up to `delay` [s]; messages of a list
    keep their order. It replaces the client of a sweep and its inbox.
    """

    status = "running"

    def __init__(
        self, count: int, threads: int, delay: float, seconds: dict[int, float], rng: random.Random
    ) -> None:
        self.now = 0.0
        self.delay = delay
        self.seconds = seconds
        self.rng = rng
        self.threads = threads
        self.rows: dict[str, list[tuple[bytes, Future]]] = {f"worker-{i}": [] for i in range(count)}
        self.busy = dict.fromkeys(self.rows, 0)
        self.at_worker = ""
        self.there = dict.fromkeys(self.rows, 0.0)
        """When the last list for a worker comes."""
        self.heard = 0.0
        """When the last message of a list comes."""
        self.given: list[tuple[float, str]] = []
        """When a list was given to which worker."""
        self.begun: list[tuple[int, float, str]] = []
        """Each run that was begun, when, and where."""
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.number = itertools.count()
        self.inbox: list[tuple[Any, ...]] = []
        self.topics: dict[str, Callable[[tuple[float, Any]], None]] = {}

    def at(self, time: float, what: Callable[[], None]) -> None:
        heapq.heappush(self.events, (time, next(self.number), what))

    # The inbox.

    def put(self, message: tuple[Any, ...]) -> None:
        self.inbox.append(message)

    def get(self, timeout: float) -> tuple[Any, ...]:
        until = self.now + timeout
        while not self.inbox and self.events and self.events[0][0] <= until:
            self.now, _, what = heapq.heappop(self.events)
            what()
        if self.inbox:
            return self.inbox.pop(0)
        self.now = until
        raise queue.Empty

    # The client.

    def subscribe_topic(self, topic: str, handler: Callable[[tuple[float, Any]], None]) -> None:
        self.topics[topic] = handler

    def unsubscribe_topic(self, topic: str) -> None:
        del self.topics[topic]

    def run(self, what: object, *_: object, on_error: str) -> dict[str, dict[str, object]]:
        del on_error
        about = {
            "threads": self.threads,
            "version": _core.__version__,
            "build": build_digest(),
        }
        return {name: {"id": name, "name": name} | about for name in self.rows if what is worker_tasks.admit}

    def run_on_scheduler(self, what: object) -> None:
        pass

    def submit(self, _: object, job: bytes, *, workers: list[str], **__: object) -> Future:
        future, worker = Future(), workers[0]
        self.given.append((self.now, worker))

        def arrives() -> None:
            self.rows[worker].append((job, future))
            self.begin(worker)

        self.there[worker] = max(self.there[worker], self.now + self.delay * self.rng.random())
        self.at(self.there[worker], arrives)
        return future

    # The workers.

    def begin(self, worker: str) -> None:
        """Begin the next list, if a thread has nothing to do."""
        if self.busy[worker] == self.threads or not self.rows[worker]:
            return
        job, future = self.rows[worker].pop(0)
        if future.status == "cancelled":
            self.begin(worker)
            return
        self.busy[worker] += 1
        Timer.now, Timer.waiting = self.now, []
        self.at_worker, self.heard = worker, 0.0
        worker_tasks.work(job)

        def ends() -> None:
            self.busy[worker] -= 1
            self.begin(worker)

        def ended() -> None:
            if future.status == "pending":
                future.status = "finished"
                future.tell(future)

        self.at(Timer.now, ends)
        self.at(self.comes(Timer.now), ended)

    def comes(self, sent: float) -> float:
        """Return when a message comes."""
        self.heard = max(self.heard, sent + self.delay * self.rng.random())
        return self.heard

    def simulate(self, job: worker_tasks.Job, _: int, seed: int) -> dict[str, float]:
        """Stand in for `worker_tasks._outcome`: the worker's time goes on, and its timers run off."""
        del job
        self.begun.append((seed, Timer.now, self.at_worker))
        end = Timer.now + self.seconds[seed]
        while Timer.waiting and min(Timer.waiting, key=lambda each: each[0])[0] <= end:
            due, timer = min(Timer.waiting, key=lambda each: each[0])
            Timer.now = due
            timer.cancel()
            timer.call()
        Timer.now = end
        return {metric.name: float(seed) for metric in METRICS}

    def log_event(self, topic: str, message: tuple[Any, ...]) -> None:
        sent = Timer.now
        self.at(self.comes(sent), lambda: self.topics[topic]((sent, message)))


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    plan = Sweep.plan("small-gateway", {"gateway.pep.delay": "1 ms"}, settings=["red"], runs=60)
    return list(plan.runs())


def course(workers: Workers, runs: list[Run], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the seeds of the runs, as they were found."""
    clock = SimpleNamespace(monotonic=lambda: workers.now)
    theirs = SimpleNamespace(monotonic=lambda: Timer.now)
    found = []
    with monkeypatch.context() as patch:
        patch.setattr(cluster, "time", clock)
        patch.setattr(worker_tasks, "time", theirs)
        patch.setattr("threading.Timer", Timer)
        patch.setattr(worker_tasks, "_outcome", workers.simulate)
        patch.setattr(
            "distributed.get_worker",
            lambda: SimpleNamespace(id=workers.at_worker, log_event=workers.log_event),
        )
        sweep = cluster._Sweep(workers, "simulated", None, runs)  # type: ignore[arg-type]
        sweep.inbox = workers  # type: ignore[assignment]
        with closing(sweep):
            for each in sweep.results():
                if each is not None:
                    run, outcome = each
                    assert outcome == {metric.name: float(run.seed) for metric in METRICS}
                    found.append(run.seed)
                assert workers.now < 10 * sum(workers.seconds.values()), "it never ends"
    return found


@pytest.mark.parametrize("case", range(8))
def test_lists_do_not_wait_behind_a_long_run(
    case: int, runs: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the others take, and wherever in a list the long ones are, as long as they leave a thread."""
    rng = random.Random(case)  # noqa: S311
    for _ in range(25):
        count, threads, delay = rng.randint(1, 4), rng.randint(1, 3), rng.choice([0.001, 0.05, 0.2])
        usual = rng.choice([0.003, 0.03, 0.3, 3.0])
        seconds = {each.seed: usual * rng.uniform(0.5, 2) for each in runs}
        long = set(rng.sample(list(seconds), rng.randint(0, count * threads - 1)))
        # They would have time to do all others, one after the other, and to lose many lists of two seconds.
        lasts = sum(seconds.values()) + 60
        workers = Workers(count, threads, delay, seconds | dict.fromkeys(long, lasts), rng)
        found = course(workers, runs, monkeypatch)
        what = f"{count} workers of {threads} threads, {usual} s, delay {delay} s, {long} long: {found}"
        assert sorted(found) == sorted(seconds), what
        assert set(found[len(found) - len(long) :]) == long, what
        assert len(workers.begun) == len(runs), what
        # A list is to take two seconds, and is late soon after: no more for a worker that is at a long run.
        for given, worker in workers.given:
            lasting = [
                b for seed, b, w in workers.begun if seed in long and w == worker and given < b + lasts
            ]
            assert threads > 1 or not lasting or given < min(lasting) + 3, what
