"""Runs of a paper's experiments: planned, found on disk, or simulated.

A run is stored under everything that determines it: the build of the core, the scenario's digest and the
seed. So each is simulated once, whichever experiment or paper needs it, and an interrupted reproduction
continues. The core's own tables and counters are stored, and measures are computed from them each time, so a
changed measure or metric makes no run stale.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from bentpipe import _core, files
from bentpipe.errors import ModelError
from bentpipe.models.fluid import solve
from bentpipe.reproduction.experiments import Experiment
from bentpipe.reproduction.measures import Measure, RunData
from bentpipe.reproduction.paper import Paper
from bentpipe.runs.experiment import checked_jobs
from bentpipe.runs.plan import load, make_plan
from bentpipe.runs.store import COUNTERS, core_digest, write_run
from bentpipe.runs.workers import OnProgress
from bentpipe.stats.metrics import Recorded
from bentpipe.tables import reading

__all__ = ["CaseRuns", "Library", "Plan", "keys_of", "plan", "runs_of", "simulate"]

_POLL_SECONDS = 0.2
_TABLES = ("series", "flows", "drop_runs")
_DROPS, _FLOWS = "drops", "flows"
_NO_FLOWS = "no-flows"
"""Empty table with the columns of flows, stored for experiments that do not keep flows."""


@dataclass(frozen=True, slots=True)
class CaseRuns:
    """Runs of one case of an experiment at one point: a scenario and its seeds."""

    experiment: str
    case: str
    point: str
    scenario: _core.Scenario
    digest: str
    """SHA-256 of everything that determines its results, except the seed."""
    seeds: tuple[int, ...]
    drops: bool
    """True to keep every drop."""
    flows: bool = True
    """True to keep the table of flows."""
    fluid: bool = False
    """True to solve the scenario's equations instead of simulating."""


Plan = Mapping[tuple[str, str, str], CaseRuns]
"""Runs by experiment, case and point."""


def plan(paper: Paper, *, quick: bool) -> Plan:
    """Plan all runs of a paper's experiments.

    Raises `ScenarioError`, `UsageError` or `ModelError` for the first impossible one.
    """
    return {
        (each.experiment, each.case, each.point): each
        for experiment in paper.experiments.values()
        for each in runs_of(experiment, quick=quick)
    }


def runs_of(experiment: Experiment, *, quick: bool) -> Iterator[CaseRuns]:
    """Yield the runs of every case of an experiment at each point."""
    runs = experiment.quick_runs if quick else experiment.runs
    last = experiment.quick_overrides if quick else ()
    for point in experiment.points:
        if quick and point.label not in experiment.quick_points:
            continue
        for case in experiment.cases:
            changes = [*experiment.overrides, *point.overrides, *case.overrides, *last]
            loaded = load(experiment.scenario, changes)
            settings = None if case.setting is None else [case.setting]
            found = make_plan(loaded, settings=settings, runs=runs, seed=experiment.seed)
            (setting,) = found.settings
            digest = setting.digest
            if experiment.fluid:
                digest = _model_digest(setting.scenario, digest, found.seeds[0])
            yield CaseRuns(
                experiment.name,
                case.label,
                point.label,
                setting.scenario,
                digest,
                found.seeds,
                experiment.drops,
                experiment.flows,
                experiment.fluid,
            )


def _model_digest(scenario: _core.Scenario, digest: str, seed: int) -> str:
    """Return the digest of a scenario's solution; raises `ModelError` if the equations do not cover it."""
    try:
        _core.fluid_inputs(scenario, seed)
    except _core.ModelError as error:
        label = f", setting {scenario.aqm}" if scenario.aqm else ""
        raise ModelError(f"{scenario.name}{label}: {error}") from None
    return hashlib.sha256(f"{digest} {json.dumps(scenario.models(), sort_keys=True)}".encode()).hexdigest()


def keys_of(some: Iterable[CaseRuns]) -> set[tuple[str, int]]:
    """Return digest and seed of each run, once."""
    return {(each.digest, seed) for each in some for seed in each.seeds}


@dataclass(frozen=True, slots=True)
class _Solution:
    """Solution of a scenario's equations as the tables of a run; it has neither flows nor single drops."""

    series: pl.DataFrame
    flows: pl.DataFrame
    drop_runs: pl.DataFrame
    drops: pl.DataFrame
    counters: Mapping[str, float]


def _solve(scenario: _core.Scenario, seed: int) -> _Solution:
    """Solve a scenario's equations; the seed draws a variable capacity."""
    empty = pl.DataFrame({"flow": []})
    return _Solution(solve(scenario, seed), empty, pl.DataFrame({"length": [], "count": []}), empty, {})


class Library:
    """Runs on disk, each in a folder that appears when it is complete."""

    def __init__(self, folder: Path) -> None:
        """Use `folder`, which is created with the first run."""
        self._folder = folder / core_digest()[:16]
        self._values: dict[tuple[str, int, Measure], float | None] = {}

    def _path(self, case: CaseRuns, seed: int) -> Path:
        return self._folder / case.digest[:32] / str(seed)

    def has(self, case: CaseRuns, seed: int) -> bool:
        """Return whether a run is stored with all tables that its experiment needs."""
        folder = self._path(case, seed)
        needed = {f"{name}.parquet" for name in (*_TABLES, *([_DROPS] if case.drops else []))} | {COUNTERS}
        stored = {entry.name for entry in folder.iterdir()} if folder.is_dir() else set()
        if not case.flows and f"{_NO_FLOWS}.parquet" in stored:
            needed.remove(f"{_FLOWS}.parquet")
        return needed <= stored

    def count(self, some: Iterable[CaseRuns]) -> int:
        """Return the number of runs that are stored."""
        return len({(each.digest, s) for each in some for s in each.seeds if self.has(each, s)})

    def add(self, case: CaseRuns, seed: int, run: _core.Run | _Solution) -> None:
        """Write a run; safe from any thread. Raises `OSError` and leaves nothing behind on failure."""
        names = (*_TABLES, _DROPS) if case.drops else _TABLES
        tables = {name: pl.DataFrame(getattr(run, name)) for name in names}
        if not case.flows:
            tables[_NO_FLOWS] = tables.pop(_FLOWS).head(0)
        # May replace a run without its drops or flows.
        write_run(self._path(case, seed), tables, run.counters)

    def load(self, case: CaseRuns, seed: int) -> RunData:
        """Return a run; raises `ResultError` if it cannot be read."""
        folder = self._path(case, seed)
        with reading(folder, "; delete this folder"):
            files.check(folder)
            paths = {name: folder / f"{name}.parquet" for name in _TABLES}
            if not paths[_FLOWS].is_file():
                paths[_FLOWS] = folder / f"{_NO_FLOWS}.parquet"
            tables = {name: pl.read_parquet(path) for name, path in paths.items()}
            counters = json.loads((folder / COUNTERS).read_text(encoding="utf-8"))
        series, flows, drop_runs = (tables[name] for name in _TABLES)
        recorded = Recorded(series, flows, drop_runs, counters, case.scenario.capacity)
        return RunData(recorded, case.scenario.duration)

    def drops(self, case: CaseRuns, seed: int) -> pl.DataFrame:
        """Return every drop of a run that keeps them; raises `ResultError` if it cannot be read."""
        path = self._path(case, seed) / f"{_DROPS}.parquet"
        with reading(path, "; delete its folder"):
            return pl.read_parquet(path)

    def measure(self, case: CaseRuns, measures: Sequence[Measure]) -> None:
        """Compute several measures at once, so that each run is read from disk once."""
        for seed in case.seeds:
            missing = [each for each in measures if (case.digest, seed, each) not in self._values]
            if missing:
                run = self.load(case, seed)
                for each in missing:
                    self._values[case.digest, seed, each] = each.compute(run)

    def values(self, case: CaseRuns, measure: Measure) -> list[float | None]:
        """Return a measure of every run, in the order of the seeds."""
        self.measure(case, [measure])
        return [self._values[case.digest, seed, measure] for seed in case.seeds]


def simulate(
    cases: Sequence[CaseRuns],
    library: Library,
    jobs: int | None = None,
    on_progress: OnProgress = lambda *_: None,
) -> int:
    """Simulate the runs that `library` lacks, by default on one thread per core, and return their number.

    An interruption or an error stops the unfinished runs; the finished ones are kept. Raises
    `SimulationError`, `ScenarioError` and `OSError`.
    """
    jobs = checked_jobs(jobs)
    wanted: dict[tuple[str, int], CaseRuns] = {}
    for case in cases:
        for seed in case.seeds:
            # One run serves all cases that need it, so it keeps the tables that any of them needs.
            other = wanted.setdefault((case.digest, seed), case)
            wanted[case.digest, seed] = replace(
                case, drops=case.drops or other.drops, flows=case.flows or other.flows
            )
    todo = [(case, seed) for (_, seed), case in wanted.items() if not library.has(case, seed)]
    # The longest first, so that no thread is left alone at the end.
    todo.sort(key=lambda each: -each[0].scenario.duration * each[0].scenario.capacity)
    stored = len(wanted) - len(todo)
    on_progress(stored, len(wanted), 0)
    if not todo:
        return 0
    pool = ThreadPoolExecutor(jobs, thread_name_prefix="bentpipe")
    running: dict[Future[None], _core.Progress] = {}
    done, queue = 0, iter(todo)

    def submit() -> None:
        for case, seed in queue:
            control = _core.Progress()
            running[pool.submit(_run, library, case, seed, control)] = control
            if len(running) >= 2 * jobs:
                return

    try:
        submit()
        while running:
            finished, _ = wait(running, timeout=_POLL_SECONDS, return_when=FIRST_COMPLETED)
            for future in finished:
                future.result()
                del running[future]
                done += 1
            submit()
            on_progress(stored + done, len(wanted), 0)
    finally:
        for control in running.values():
            control.cancel()
        pool.shutdown(wait=True, cancel_futures=True)
    return len(todo)


def _run(library: Library, case: CaseRuns, seed: int, control: _core.Progress) -> None:
    run = _solve(case.scenario, seed) if case.fluid else _core.simulate(case.scenario, seed, control)
    library.add(case, seed, run)
