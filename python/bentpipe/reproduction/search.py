"""Simulation of papers in rounds: experiments with given settings, searches for settings, best ones found.

The runs of a search are planned and stored as those of any experiment (`bentpipe.reproduction.runs`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bentpipe.reproduction.experiments import Case, Experiment, Grid, Tuning
from bentpipe.reproduction.paper import Paper
from bentpipe.reproduction.runs import (
    CaseRuns,
    Library,
    Plan,
    keys_of,
    plan,
    runs_of,
    simulate,
)
from bentpipe.runs.workers import OnProgress
from bentpipe.stats.intervals import summarise
from bentpipe.stats.objectives import judged, kept

__all__ = ["PaperRuns", "Search", "Simulation", "Trial", "Tuned", "searches", "with_best"]

_Means = Mapping[str, dict[str, float | None]]
"""Means over the runs, by case and measure."""


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
        return list(runs_of(planned, quick=self._quick))

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
        if library.count(self.first) < len(keys_of(self.first)):
            return 0, 0
        second = self.second(library)
        found = library.count(second)
        if found < len(keys_of(second)):
            return found, 0
        return found, library.count(self.best(self.result(second, library)))

    def best(self, found: Tuned) -> list[CaseRuns]:
        """Return the runs of the best settings in the experiment's comparison."""
        return list(runs_of(replace(self.experiment, cases=found.cases), quick=self._quick))


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
        last_runs = len(keys_of(tuned))
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

        self.new_runs += simulate(cases, self._library, self._jobs, on_progress)
