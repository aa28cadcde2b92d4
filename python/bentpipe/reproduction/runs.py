"""Runs of a paper's experiments: planned, found on disk, or simulated in the rounds of a search.

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
from typing import TYPE_CHECKING, Any

import polars as pl

from bentpipe import _core, files
from bentpipe.errors import ModelError
from bentpipe.models.engines import QUANTITIES
from bentpipe.models.fluid import kind_of, solve
from bentpipe.reproduction.experiments import Case, Experiment, Grid, Tuning
from bentpipe.reproduction.measures import Measure, RunData
from bentpipe.reproduction.paper import Paper
from bentpipe.runs.experiment import checked_jobs
from bentpipe.runs.plan import check_watch, load, make_plan
from bentpipe.runs.store import COUNTERS, core_digest, write_run
from bentpipe.runs.workers import OnProgress
from bentpipe.stats.intervals import summarise
from bentpipe.stats.metrics import Recorded
from bentpipe.stats.objectives import judged, kept
from bentpipe.tables import reading

if TYPE_CHECKING:
    from bentpipe.models.markov import MarkovResult

__all__ = [
    "CaseRuns",
    "Library",
    "PaperRuns",
    "Plan",
    "Search",
    "Simulation",
    "Trial",
    "Tuned",
    "plan",
    "searches",
    "with_best",
]

_POLL_SECONDS = 0.2
_TABLES = ("series", "flows", "drop_runs")
_DROPS, _FLOWS, _TRACE = "drops", "flows", "trace"
_NO_FLOWS = "no-flows"
"""Empty table with the columns of flows, stored for experiments that do not keep flows."""
_Means = Mapping[str, dict[str, float | None]]
"""Means over the runs, by case and measure."""


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
    """True to solve the scenario's model instead of simulating."""
    trace: tuple[str, ...] = ()
    """Flows whose windows are kept."""


Plan = Mapping[tuple[str, str, str], CaseRuns]
"""Runs by experiment, case and point."""


def plan(paper: Paper, *, quick: bool) -> Plan:
    """Plan all runs of a paper's experiments.

    Raises `ScenarioError`, `UsageError` or `ModelError` for the first impossible one.
    """
    return {
        (each.experiment, each.case, each.point): each
        for experiment in paper.experiments.values()
        for each in _runs_of(experiment, quick=quick)
    }


def _runs_of(experiment: Experiment, *, quick: bool) -> Iterator[CaseRuns]:
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
            digest, flows = setting.digest, experiment.flows
            if experiment.trace:
                check_watch(setting.scenario, experiment.trace, ())
                digest = hashlib.sha256(f"{digest} {' '.join(experiment.trace)}".encode()).hexdigest()
            if experiment.fluid:
                flows = kind_of(setting.scenario) == "markov"
                digest = _model_digest(setting.scenario, digest, found.seeds[0])
            yield CaseRuns(
                experiment.name,
                case.label,
                point.label,
                setting.scenario,
                digest,
                found.seeds,
                experiment.drops,
                flows,
                experiment.fluid,
                experiment.trace,
            )


def _model_digest(scenario: _core.Scenario, digest: str, seed: int) -> str:
    """Return the digest of a scenario's solution; raises `ModelError` if the equations do not cover it."""
    code = b""
    try:
        if kind_of(scenario) == "fluid":
            _core.fluid_inputs(scenario, seed)
        else:
            from bentpipe.models import erlang_queue, markov, mmpp

            # Stored runs depend on the build of the core, which has the fluid equations but not this model.
            code = b"".join(Path(str(each.__file__)).read_bytes() for each in (markov, mmpp, erlang_queue))
    except _core.ModelError as error:
        label = f", setting {scenario.aqm}" if scenario.aqm else ""
        raise ModelError(f"{scenario.name}{label}: {error}") from None
    key = f"{digest} {json.dumps(scenario.models(), sort_keys=True)}".encode()
    return hashlib.sha256(key + code).hexdigest()


def _keys_of(some: Iterable[CaseRuns]) -> set[tuple[str, int]]:
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
    """Solve a scenario's model; the seed draws a variable capacity."""
    empty, runs = pl.DataFrame({"flow": []}), pl.DataFrame({"length": [], "count": []})
    if kind_of(scenario) == "fluid":
        return _Solution(solve(scenario, seed), empty, runs, empty, {})
    from bentpipe.models import markov

    return _Solution(*_markov_tables(markov.both(scenario)[0]), runs, empty, {})


_COUNTED = 10**9
"""Packets that a class sends in the table of flows of a Markov model, whose packets are not counted."""


def _markov_tables(found: "MarkovResult") -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return a Markov model's means as a series of one sample, and its classes as a flow each."""
    means = {row["quantity"]: row["mean"] for row in found.compared()}
    series = {each.column: [means[each.name] / each.factor] for each in QUANTITIES if each.name in means}
    flows = [
        {
            "flow": number,
            "traffic": one.name,
            "drops": round(_COUNTED * one.loss),
            "packets": _COUNTED - round(_COUNTED * one.loss),
            "delay": one.delay,
        }
        for number, one in enumerate(found.queue.classes)
    ]
    return pl.DataFrame({"time": [0.0], **series}), pl.DataFrame(flows)


class Library:
    """Runs on disk, each in a folder that appears when it is complete."""

    def __init__(self, folder: Path) -> None:
        """Use `folder`, which is created with the first run."""
        self._folder = folder / core_digest()[:16]
        self._values: dict[tuple[str, int, Measure], float | None] = {}

    def _path(self, case: CaseRuns, seed: int) -> Path:
        return self._folder / case.digest[:32] / str(seed)

    def has(self, case: CaseRuns, seed: int) -> bool:
        """Return True if a run is stored with all tables that its experiment needs."""
        folder = self._path(case, seed)
        more = [*([_DROPS] if case.drops else []), *([_TRACE] if case.trace else [])]
        needed = {f"{name}.parquet" for name in (*_TABLES, *more)} | {COUNTERS}
        stored = {entry.name for entry in folder.iterdir()} if folder.is_dir() else set()
        if not case.flows and f"{_NO_FLOWS}.parquet" in stored:
            needed.remove(f"{_FLOWS}.parquet")
        return needed <= stored

    def count(self, some: Iterable[CaseRuns]) -> int:
        """Return the number of runs that are stored."""
        return len({(each.digest, s) for each in some for s in each.seeds if self.has(each, s)})

    def add(self, case: CaseRuns, seed: int, run: _core.Run | _Solution) -> None:
        """Write a run; safe from any thread. Raises `OSError` and leaves nothing behind on failure."""
        path = self._path(case, seed)
        # It may replace a run of another experiment, whose tables it keeps.
        stored = {entry.stem for entry in path.glob("*.parquet")}
        more = [*([_DROPS] if case.drops or _DROPS in stored else []), *([_TRACE] if case.trace else [])]
        tables = {name: pl.DataFrame(getattr(run, name)) for name in (*_TABLES, *more)}
        if not (case.flows or _FLOWS in stored):
            tables[_NO_FLOWS] = tables.pop(_FLOWS).head(0)
        write_run(path, tables, run.counters)

    def load(self, case: CaseRuns, seed: int) -> RunData:
        """Return a run; raises `ResultError` if it cannot be read."""
        folder = self._path(case, seed)
        with reading(folder, "; delete this folder"):
            files.check(folder)
            paths = {name: folder / f"{name}.parquet" for name in _TABLES}
            if not paths[_FLOWS].is_file():
                paths[_FLOWS] = folder / f"{_NO_FLOWS}.parquet"
            tables = {name: pl.read_parquet(path) for name, path in paths.items()}
            trace = pl.read_parquet(folder / f"{_TRACE}.parquet") if case.trace else None
            counters = json.loads((folder / COUNTERS).read_text(encoding="utf-8"))
        series, flows, drop_runs = (tables[name] for name in _TABLES)
        recorded = Recorded(series, flows, drop_runs, counters, case.scenario.capacity)
        return RunData(recorded, case.scenario.duration, trace)

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


def _simulate(
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
    if case.fluid:
        library.add(case, seed, _solve(case.scenario, seed))
    else:
        library.add(case, seed, _core.simulate(case.scenario, seed, control, trace=list(case.trace)))


@dataclass(frozen=True, slots=True)
class Trial:
    """One setting of a grid with its rank in one round."""

    aqm: str
    parameters: str
    """Parameters that the grid sets, as text."""
    values: dict[str, float | None]
    """Means over the runs, by measure."""
    ranks: dict[str, int]
    total: int
    """Sum of 2^rank."""
    place: int
    chosen: bool
    """True if it runs again, or is the best of its AQM."""

    def as_row(self) -> dict[str, Any]:
        """Return the trial as a JSON object."""
        return {
            "aqm": self.aqm,
            "parameters": self.parameters,
            "values": self.values,
            "ranks": self.ranks,
            # A sum of powers of two may exceed the integers of a JSON reader.
            "sum": str(self.total),
            "place": self.place,
            "chosen": self.chosen,
        }


@dataclass(frozen=True, slots=True)
class Tuned:
    """Result of the search for an experiment's settings."""

    experiment: str
    tuning: Tuning
    rule: str
    """Description of the search."""
    first: tuple[Trial, ...]
    """All settings, ranked within their AQM, in the order of the grids."""
    again: tuple[Trial, ...]
    """Settings that ran again, ranked across AQMs, the best first."""
    cases: tuple[Case, ...]
    """Best setting of each AQM."""

    def as_row(self) -> dict[str, Any]:
        """Return the result as a JSON object."""
        return {
            "experiment": self.experiment,
            "rule": self.rule,
            "first": [each.as_row() for each in self.first],
            "again": [each.as_row() for each in self.again],
        }


class Search:
    """Search for the settings of one experiment: the runs of each round, and their ranking."""

    def __init__(self, experiment: Experiment, tuning: Tuning, *, quick: bool) -> None:
        """Plan the first round; raises `ScenarioError` for an impossible setting."""
        self.experiment = experiment
        self._tuning = tuning
        self._quick = quick
        self._runs = tuning.quick_runs if quick else tuning.runs
        self._settings = {
            case.label: (grid, case) for grid in tuning.grids for case in _cases(grid, quick=quick)
        }
        self.first = self._plan([case for _, case in self._settings.values()], tuning.seed)
        self._first_trials: tuple[Trial, ...] = ()

    def _plan(self, cases: Sequence[Case], seed: int) -> list[CaseRuns]:
        planned = replace(
            self.experiment, cases=tuple(cases), runs=self._runs, quick_runs=self._runs, seed=seed
        )
        return list(_runs_of(planned, quick=self._quick))

    def _keep(self, grid: Grid) -> int:
        return min(grid.keep, self._tuning.quick_keep) if self._quick else grid.keep

    @property
    def second_round_runs(self) -> int:
        """Number of runs of the second round, known before its settings are."""
        grids = self._tuning.grids
        return self._runs * sum(min(self._keep(grid), len(grid.points(quick=self._quick))) for grid in grids)

    def _means(self, runs: Sequence[CaseRuns], library: Library) -> dict[str, dict[str, float | None]]:
        measures = [each.measure for each in self._tuning.objectives]
        found = {}
        for each in runs:
            library.measure(each, measures)
            found[each.case] = {one.name: summarise(library.values(each, one)).mean for one in measures}
        return found

    def _ranked(self, means: _Means, chosen: Sequence[str] | None, keep: int = 0) -> Iterator[Trial]:
        """Rank settings; `chosen` marks the chosen ones, by default the best `keep`."""
        order = judged(means, [each.ranked for each in self._tuning.objectives])
        if chosen is None:
            chosen = kept(order, keep)
        for each in order:
            grid, case = self._settings[each.name]
            yield Trial(
                grid.label,
                case.label.removeprefix(f"{grid.label}: "),
                means[each.name],
                each.ranks,
                int(each.total),
                each.place,
                each.name in chosen,
            )

    def second(self, library: Library) -> list[CaseRuns]:
        """Rank the settings of the first round, and return the best for the second, with other seeds."""
        means = self._means(self.first, library)
        trials: list[Trial] = []
        for grid in self._tuning.grids:
            mine = {name: found for name, found in means.items() if self._settings[name][0] == grid}
            trials += self._ranked(mine, None, self._keep(grid))
        self._first_trials = tuple(trials)
        chosen = {f"{each.aqm}: {each.parameters}" for each in trials if each.chosen}
        cases = [case for label, (_, case) in self._settings.items() if label in chosen]
        return self._plan(cases, self._tuning.seed + self._tuning.runs)

    def result(self, second: Sequence[CaseRuns], library: Library) -> Tuned:
        """Rank the settings of the second round across AQMs, and return the best of each AQM."""
        means = self._means(second, library)
        best: dict[str, str] = {}
        for each in judged(means, [one.ranked for one in self._tuning.objectives]):
            best.setdefault(self._settings[each.name][0].label, each.name)
        return Tuned(
            self.experiment.name,
            self._tuning,
            self._tuning.text(self._runs),
            self._first_trials,
            tuple(self._ranked(means, list(best.values()))),
            tuple(
                replace(self._settings[best[grid.label]][1], label=grid.label) for grid in self._tuning.grids
            ),
        )

    def stored(self, library: Library) -> tuple[int, int]:
        """Return the numbers of stored runs of the second round and of the best settings.

        An interrupted search may have more than its first round.
        """
        if library.count(self.first) < len(_keys_of(self.first)):
            return 0, 0
        second = self.second(library)
        found = library.count(second)
        if found < len(_keys_of(second)):
            return found, 0
        return found, library.count(self.best(self.result(second, library)))

    def best(self, found: Tuned) -> list[CaseRuns]:
        """Return the runs of the best settings in the experiment's comparison."""
        return list(_runs_of(replace(self.experiment, cases=found.cases), quick=self._quick))


def _cases(grid: Grid, *, quick: bool) -> Iterator[Case]:
    for point in grid.points(quick=quick):
        text = ", ".join(f"{name} {_value(value)}" for name, value in point.items())
        yield Case(f"{grid.label}: {text}", grid.setting, grid.overrides(point))


def _value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value}"


def searches(paper: Paper, *, quick: bool) -> list[Search]:
    """Plan the searches of a paper's tuned experiments."""
    return [
        Search(each, each.tuning, quick=quick)
        for each in paper.experiments.values()
        if each.tuning is not None
    ]


def with_best(paper: Paper, found: Sequence[Tuned]) -> Paper:
    """Return a paper whose tuned experiments compare the best settings."""
    cases = {each.experiment: each.cases for each in found}
    experiments = {
        name: replace(each, cases=cases.get(name, each.cases)) for name, each in paper.experiments.items()
    }
    return replace(paper, experiments=experiments)


@dataclass(frozen=True, slots=True)
class PaperRuns:
    """A paper with its tuned experiments and all of its runs."""

    paper: Paper
    tuned: tuple[Tuned, ...]
    trials: Sequence[CaseRuns]
    """Runs of the searches."""
    cases: Plan


class Simulation:
    """Simulates papers: first the runs that depend on no result, then those that the searches choose."""

    def __init__(
        self, papers: Sequence[Paper], library: Library, jobs: int, on_progress: OnProgress, *, quick: bool
    ) -> None:
        """Plan all runs that depend on no result."""
        self._library = library
        self._jobs = jobs
        self._on_progress = on_progress
        self._quick = quick
        self._papers = [(each, plan(each, quick=quick), searches(each, quick=quick)) for each in papers]
        self._done = 0
        self.new_runs = 0
        """Number of runs that were not stored before."""

    def run(self) -> list[PaperRuns]:
        """Simulate, and return the papers with their runs."""
        library = self._library
        every = [search for _, _, some in self._papers for search in some]
        given, tuned = list[CaseRuns](), list[CaseRuns]()
        for paper, cases, _ in self._papers:
            for each in cases.values():
                (given if paper.experiments[each.experiment].tuning is None else tuned).append(each)
        # An interrupted reproduction may have runs of later rounds.
        stored = [each.stored(library) for each in every]
        second_stored, last_stored = (sum(each[i] for each in stored) for i in (0, 1))
        last_runs = len(_keys_of(tuned))
        required = sum(each.second_round_runs for each in every) + last_runs
        first = [*given, *(case for each in every for case in each.first)]
        self._simulate(first, second_stored + last_stored, required)
        second = {search: search.second(library) for search in every}
        self._simulate([case for some in second.values() for case in some], last_stored, last_runs)
        made, last = list[PaperRuns](), list[CaseRuns]()
        for paper, cases, some in self._papers:
            found = tuple(each.result(second[each], library) for each in some)
            trials = [case for each in some for case in (*each.first, *second[each])]
            final = with_best(paper, found)
            if found:
                cases = plan(final, quick=self._quick)
            last += [each for each in cases.values() if final.experiments[each.experiment].tuning is not None]
            made.append(PaperRuns(final, found, trials, cases))
        self._simulate(last)
        return made

    def _simulate(self, cases: Sequence[CaseRuns], stored: int = 0, required: int = 0) -> None:
        """Simulate one round; `stored` of the `required` runs of later rounds exist already."""
        if not cases:
            return
        before = self._done

        def on_progress(done: int, wanted: int, failed: int) -> None:
            self._done = before + done
            self._on_progress(self._done + stored, before + wanted + required, failed)

        self.new_runs += _simulate(cases, self._library, self._jobs, on_progress)
