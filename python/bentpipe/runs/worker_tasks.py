"""Work of a Dask worker for a sweep: simulates a list of runs and sends the results.

Scenarios are sent as text with the contents of the files that they name, since workers share no folders.
Results are sent through the scheduler as they are found, not at the end of the list, so that they survive the
worker.
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
"""Number of parsed scenarios to keep."""

Base = tuple[str, str, tuple[tuple[str, str], ...]]
"""Common part of many scenarios: file, text, and the paths and digests of the files that they name."""

Source = tuple[int, tuple[str, ...], str | None, tuple[str, ...], bytes | None, str]
"""A scenario: index of its base, overrides, setting, parameter names and pickle of an AQM written in Python,
and its expected digest."""

Packed = tuple[float | None, ...] | tuple[bool, str]
"""An outcome as sent: metrics without their names, or a failure (True if the scenario is wrong) and its
text."""


@dataclass(frozen=True, slots=True)
class Job:
    """A list of runs for one worker."""

    sweep: str
    """Identifier of the sweep, and topic of its results."""
    number: int
    worker: str
    """Identifier of the worker; another worker at the same address ignores the job."""
    bases: list[Base]
    sources: list[Source]
    runs: list[tuple[int, int]]
    """Index of the scenario, and seed."""
    budget: float
    """Time after which no further run is started [s]."""
    interval: float
    """Time for which results are collected before they are sent [s]."""


_lock = threading.Lock()
_files: dict[tuple[str, str], bytes] = {}
"""Contents of files, by sweep and digest."""
_scenarios: OrderedDict[str, _core.Scenario] = OrderedDict()
"""Parsed scenarios by digest, the most recently used last."""
_under_way: dict[str, set[_core.Progress]] = {}
_stopped: set[str] = set()


def admit(dask_worker: "Worker") -> dict[str, Any]:
    """Return the properties of this worker that the sweep checks."""
    return {
        "id": dask_worker.id,
        "name": str(dask_worker.name),
        "threads": dask_worker.state.nthreads,
        "version": _core.__version__,
        "build": build_digest(),
    }


def keep(sweep: str, files: Mapping[str, bytes]) -> None:
    """Keep the contents of files, by digest, until the sweep ends."""
    with _lock:
        _files.update({(sweep, digest): content for digest, content in files.items()})


def stop(sweep: str) -> None:
    """Cancel the sweep's runs on this worker."""
    with _lock:
        _stopped.add(sweep)
        for progress in _under_way.get(sweep, ()):
            progress.cancel()


def forget(sweep: str) -> None:
    """Forget the sweep's files."""
    with _lock:
        for key in [key for key in _files if key[0] == sweep]:
            del _files[key]


def work(packed: bytes) -> None:
    """Simulate the runs of a `Job` in order, sending messages `(number, last, seconds, results)`.

    `results` is a pickled list of run indexes and outcomes. A list of which a part was started late ends
    early.
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
    """Results of a list on their way to the sweep; none waits longer than the job's interval."""

    def __init__(self, job: Job, worker: "Worker") -> None:
        self._job = job
        self._worker = worker
        self._lock = threading.Lock()
        self._ready: list[tuple[int, Packed]] = []
        self._since = self._until = time.monotonic()
        """Times of the first and the last result that wait to be sent."""
        self._timer: threading.Timer | None = None

    def put(self, index: int, outcome: Packed, *, over: bool) -> None:
        """Add a run's result; the last one of the list sends all."""
        with self._lock:
            self._ready.append((index, outcome))
            self._until = time.monotonic()
            wait = self._since + self._job.interval - self._until
            if over or wait <= 0:
                self._send(over=over)
            elif self._timer is None:
                # The next run may take long: results do not wait for its end.
                self._timer = threading.Timer(wait, self._on_time)
                self._timer.daemon = True
                self._timer.start()

    def close(self) -> None:
        """Stop sending."""
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
    """Return the outcome from its sent form."""
    if isinstance(packed[0], bool):
        scenario, text = packed
        return ScenarioError(text) if scenario else SimulationError(text)
    return {metric.name: value for metric, value in zip(METRICS, packed, strict=True)}  # type: ignore[misc]
