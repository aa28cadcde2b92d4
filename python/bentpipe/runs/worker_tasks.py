"""Work of a Dask worker for a sweep: simulates the runs of a task and returns the results.

Scenarios are sent as text with the contents of the files that they name, since workers share no folders.
"""

import pickle
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from bentpipe import _core
from bentpipe.errors import AlgorithmError, Cancelled, ScenarioError, SimulationError, UsageError
from bentpipe.runs.python_aqm import unpacked
from bentpipe.runs.source import metrics_digest
from bentpipe.runs.store import build_digest
from bentpipe.runs.workers import Outcome, measure
from bentpipe.stats.metrics import metrics_of
from bentpipe.stats.recorded import Traffic

__all__ = ["Base", "Done", "Job", "Source", "build", "build_fault", "stop", "unpacked_outcome", "work"]

_CACHED = 2000
"""Number of parsed scenarios to keep."""

Base = tuple[str, str, tuple[tuple[str, str], ...]]
"""Common part of many scenarios: file, text, and the paths and digests of the files that they name."""

Source = tuple[int, tuple[str, ...], str | None, tuple[str, ...], bytes | None, str]
"""A scenario: index of its base, overrides, setting, parameter names and pickle of an AQM written in Python,
and its expected digest."""

Packed = tuple[float | None, ...] | tuple[bool, str]
"""An outcome as sent: metrics without their names, in the order of `metrics_of`, or a failure (True if the
scenario is wrong) and its text."""


@dataclass(frozen=True, slots=True)
class Job:
    """Runs of one task."""

    sweep: str
    """Identifier of the sweep."""
    build: tuple[str, str]
    """Version and build of the sweep's Bentpipe."""
    bases: list[Base]
    sources: list[Source]
    runs: list[tuple[int, int]]
    """Index of the scenario, and seed."""
    seconds: float
    """Time after which no further run is started [s]."""


@dataclass(frozen=True, slots=True)
class Done:
    """Result of a task."""

    outcomes: list[Packed]
    """Outcomes of the first runs of the job; its time was over before the others."""
    seconds: float
    """Duration of the task [s]."""


_lock = threading.Lock()
_scenarios: OrderedDict[str, _core.Scenario] = OrderedDict()
"""Parsed scenarios by digest, the most recently used last."""
_under_way: dict[str, set[_core.Progress]] = {}
_stopped: set[str] = set()


def build() -> tuple[str, str]:
    """Return the version and the build of this Bentpipe."""
    return _core.__version__, build_digest()


def build_fault(wanted: tuple[str, str]) -> str | None:
    """Return why this worker cannot simulate for a sweep of the wanted build."""
    found = build()
    if found == wanted:
        return None
    return (
        f"found Bentpipe {found[0]} of build {found[1][:12]};"
        f" allowed: the same as the sweep's, {wanted[0]} of build {wanted[1][:12]}"
    )


def stop(sweep: str) -> None:
    """Cancel the sweep's runs on this worker."""
    with _lock:
        _stopped.add(sweep)
        for progress in _under_way.get(sweep, ()):
            progress.cancel()


def work(packed: bytes, files: Mapping[str, bytes]) -> Done:
    """Simulate the runs of a `Job` in order until its time is over; `files` has contents by digest.

    Raises `UsageError` on a worker of another build.
    """
    job: Job = pickle.loads(packed)  # noqa: S301
    if fault := build_fault(job.build):
        raise UsageError(f"a worker cannot take part: {fault}")
    begin = time.monotonic()
    outcomes: list[Packed] = []
    with suppress(Cancelled):
        for source, seed in job.runs:
            outcomes.append(_packed(_outcome(job, files, source, seed)))
            if time.monotonic() - begin >= job.seconds:
                break
    return Done(outcomes, time.monotonic() - begin)


def _outcome(job: Job, files: Mapping[str, bytes], source: int, seed: int) -> Outcome:
    progress = _core.Progress()
    with _lock:
        if job.sweep in _stopped:
            raise Cancelled
        _under_way.setdefault(job.sweep, set()).add(progress)
    try:
        return measure(_scenario(job, files, source), seed, progress)
    except (SimulationError, ScenarioError, AlgorithmError) as error:
        return error
    finally:
        with _lock:
            _under_way[job.sweep].discard(progress)


def _scenario(job: Job, files: Mapping[str, bytes], index: int) -> _core.Scenario:
    base, overrides, setting, parameters, aqm, digest = job.sources[index]
    with _lock:
        if digest in _scenarios:
            _scenarios.move_to_end(digest)
            return _scenarios[digest]
    file, text, named = job.bases[base]
    contents = {path: files[content] for path, content in named}
    scenario = _core.Scenario.unpack(file, text, list(overrides), setting, list(parameters), contents)
    if aqm is not None:
        scenario = scenario.with_python_aqm(unpacked(aqm))
    there = metrics_digest(scenario)
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
    return tuple(outcome.values())


def unpacked_outcome(packed: Packed, traffic: Traffic) -> Outcome:
    """Return the outcome of a run with this traffic from its sent form."""
    if isinstance(packed[0], bool):
        scenario, text = packed
        return ScenarioError(text) if scenario else SimulationError(text)
    names = (metric.name for metric in metrics_of(traffic, terminals=True, returns=True))
    return dict(zip(names, packed, strict=True))  # type: ignore[arg-type]
