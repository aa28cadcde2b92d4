"""What a worker of a Dask cluster does for a sweep: it simulates a list of runs and sends on what it finds.

Scenarios come as text, with what is in the files that they name, for workers share no folders. Results go
through the scheduler as they are found and not when the list is done: they outlive the worker.
"""

import hashlib
import pickle
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bentpipe import _core
from bentpipe.errors import AlgorithmError, Cancelled, ScenarioError, SimulationError, UsageError
from bentpipe.runs.python_aqm import unpacked
from bentpipe.runs.store import build_digest
from bentpipe.runs.workers import Outcome, measure
from bentpipe.stats.metrics import METRICS

if TYPE_CHECKING:
    from distributed import Worker

__all__ = ["Base", "Job", "Source", "admit", "forget", "found", "keep", "stop", "work"]

_CACHED = 2000
"""Scenarios that are kept parsed."""

Base = tuple[str, str, tuple[tuple[str, str], ...]]
"""What many scenarios have in common: file, text, and the paths and digests of the files that they name."""

Source = tuple[int, tuple[str, ...], str | None, tuple[str, ...], bytes | None, str]
"""A scenario: index of its base, overrides, setting, parameter names and pickle of an AQM written in Python,
and the digest that it must have."""

Packed = tuple[float | None, ...] | tuple[bool, str]
"""An outcome as it is sent: metrics without their names; or whether the scenario is at fault, and why."""


@dataclass(frozen=True, slots=True)
class Job:
    """A list of runs for one worker."""

    sweep: str
    """Identifies the sweep, and the topic under which results are sent."""
    number: int
    worker: str
    """The worker's id: another one at the same address leaves the job alone."""
    bases: list[Base]
    sources: list[Source]
    runs: list[tuple[int, int]]
    """Index of the scenario, and seed."""
    budget: float
    """Time after which no further run is begun [s]."""
    interval: float
    """Time for which results are gathered before they are sent [s]."""


_lock = threading.Lock()
_files: dict[tuple[str, str], bytes] = {}
"""What is in files, by sweep and digest."""
_scenarios: OrderedDict[str, _core.Scenario] = OrderedDict()
"""Parsed scenarios by digest, the one used last at the end."""
_under_way: dict[str, set[_core.Progress]] = {}
_stopped: set[str] = set()


def admit(dask_worker: "Worker") -> dict[str, Any]:
    """Return what a sweep must know of this worker."""
    return {
        "id": dask_worker.id,
        "name": str(dask_worker.name),
        "threads": dask_worker.state.nthreads,
        "version": _core.__version__,
        "build": build_digest(),
    }


def keep(sweep: str, files: Mapping[str, bytes]) -> None:
    """Keep what is in files, by digest, until the sweep is over."""
    with _lock:
        _files.update({(sweep, digest): content for digest, content in files.items()})


def stop(sweep: str) -> None:
    """Stop the sweep's runs that are under way here, and begin no others."""
    with _lock:
        _stopped.add(sweep)
        for progress in _under_way.get(sweep, ()):
            progress.cancel()


def forget(sweep: str) -> None:
    """Let go of the sweep's files."""
    with _lock:
        for key in [key for key in _files if key[0] == sweep]:
            del _files[key]


def work(packed: bytes) -> None:
    """Simulate a `Job`'s runs in their order, sending messages `(number, last, seconds, results)`.

    `results` is a pickled list of the runs' indexes and what was found; a list of which a part was begun late
    ends early.
    """
    from distributed import get_worker

    job: Job = pickle.loads(packed)  # noqa: S301
    worker = get_worker()
    if worker.id != job.worker:
        return
    begun = time.monotonic()
    last = len(job.runs) - 1
    with closing(_Outbox(job, worker)) as outbox:
        for index, (source, seed) in enumerate(job.runs):
            try:
                outcome = _packed(_outcome(job, source, seed))
            except Cancelled:
                break
            over = index == last or time.monotonic() - begun >= job.budget
            outbox.put(index, outcome, over=over)
            if over:
                break


class _Outbox:
    """A list's results on their way: none waits here for longer than the job's interval."""

    def __init__(self, job: Job, worker: "Worker") -> None:
        self._job = job
        self._worker = worker
        self._lock = threading.Lock()
        self._ready: list[tuple[int, Packed]] = []
        self._since = self._until = time.monotonic()
        """What is ready was found between these two."""
        self._timer: threading.Timer | None = None

    def put(self, index: int, outcome: Packed, *, over: bool) -> None:
        """Take a run's result; with the list's last one all are sent."""
        with self._lock:
            self._ready.append((index, outcome))
            self._until = time.monotonic()
            wait = self._since + self._job.interval - self._until
            if over or wait <= 0:
                self._send(over=over)
            elif self._timer is None:
                # The next run may take long: what there is does not wait for its end.
                self._timer = threading.Timer(wait, self._on_time)
                self._timer.daemon = True
                self._timer.start()

    def close(self) -> None:
        """Send nothing more."""
        with self._lock:
            self._ready = []
            if self._timer is not None:
                self._timer.cancel()

    def _on_time(self) -> None:
        with self._lock:
            if self._ready:
                self._send(over=False)

    def _send(self, *, over: bool) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        found = pickle.dumps(self._ready)
        self._worker.log_event(self._job.sweep, (self._job.number, over, self._until - self._since, found))
        self._ready, self._since = [], self._until


def _outcome(job: Job, source: int, seed: int) -> Outcome:
    progress = _core.Progress()
    with _lock:
        if job.sweep in _stopped:
            raise Cancelled
        _under_way.setdefault(job.sweep, set()).add(progress)
    try:
        return measure(_scenario(job, source), seed, progress)
    except (SimulationError, ScenarioError, AlgorithmError) as error:
        return error
    finally:
        with _lock:
            _under_way[job.sweep].discard(progress)


def _scenario(job: Job, index: int) -> _core.Scenario:
    base, overrides, setting, parameters, aqm, digest = job.sources[index]
    with _lock:
        if digest in _scenarios:
            _scenarios.move_to_end(digest)
            return _scenarios[digest]
    file, text, named = job.bases[base]
    with _lock:
        files = {path: _files[job.sweep, content] for path, content in named}
    scenario = _core.Scenario.unpack(file, text, list(overrides), setting, list(parameters), files)
    if aqm is not None:
        scenario = scenario.with_python_aqm(unpacked(aqm))
    there = hashlib.sha256(scenario.canonical().encode()).hexdigest()
    if there != digest:
        raise UsageError(
            f"{file}: a worker reads it differently: found the digest {there[:12]}, allowed: {digest[:12]}"
        )
    with _lock:
        _scenarios[digest] = scenario
        if len(_scenarios) > _CACHED:
            _scenarios.popitem(last=False)
    return scenario


def _packed(outcome: Outcome) -> Packed:
    if isinstance(outcome, Exception):
        return type(outcome) is ScenarioError, str(outcome)
    return tuple(outcome[metric.name] for metric in METRICS)


def found(packed: Packed) -> Outcome:
    """Return the outcome that was sent."""
    if isinstance(packed[0], bool):
        scenario, text = packed
        return ScenarioError(text) if scenario else SimulationError(text)
    return {metric.name: value for metric, value in zip(METRICS, packed, strict=True)}  # type: ignore[misc]
