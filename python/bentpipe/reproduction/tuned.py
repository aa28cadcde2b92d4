"""Tune the AQMs of an experiment as its paper does, and put the best setting of each in its cases.

Runs are planned, kept and repeated as those of any experiment (`bentpipe.reproduction.runs`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bentpipe.reproduction.grids import Grid, Tuning
from bentpipe.reproduction.paper import Case, Experiment, Paper
from bentpipe.reproduction.runs import Cell, Library, cells_of
from bentpipe.stats.intervals import summarise
from bentpipe.stats.objectives import judged, kept

__all__ = ["Search", "Trial", "Tuned", "searches", "with_winners"]


@dataclass(frozen=True, slots=True)
class Trial:
    """One setting of a grid, as one round ranked it."""

    aqm: str
    parameters: str
    """What its grid sets, as text."""
    values: dict[str, float | None]
    """By measure, the mean over the runs."""
    ranks: dict[str, int]
    total: int
    """Sum of 2^rank."""
    place: int
    chosen: bool
    """Whether it was kept: to run again, or as the best of its AQM."""

    def as_row(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {
            "aqm": self.aqm,
            "parameters": self.parameters,
            "values": self.values,
            "ranks": self.ranks,
            # A sum of powers of two may be beyond what a reader of JSON holds.
            "sum": str(self.total),
            "place": self.place,
            "chosen": self.chosen,
        }


@dataclass(frozen=True, slots=True)
class Tuned:
    """What came out of tuning an experiment."""

    experiment: str
    tuning: Tuning
    rule: str
    """In words."""
    first: tuple[Trial, ...]
    """Every setting, ranked among those of its AQM, in the order of the grids."""
    again: tuple[Trial, ...]
    """Those that were kept, ranked across AQMs, the best first."""
    cases: tuple[Case, ...]
    """The best setting of each AQM."""

    def as_row(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {
            "experiment": self.experiment,
            "rule": self.rule,
            "first": [each.as_row() for each in self.first],
            "again": [each.as_row() for each in self.again],
        }


class Search:
    """The tuning of one experiment: which runs it needs next, and what they say."""

    def __init__(self, experiment: Experiment, tuning: Tuning, *, quick: bool) -> None:
        """Plan the first round; `ScenarioError` for a setting that is impossible."""
        self.experiment = experiment
        self._tuning = tuning
        self._quick = quick
        self._runs = tuning.quick_runs if quick else tuning.runs
        self._tried = {
            case.label: (grid, case) for grid in tuning.grids for case in _cases(grid, quick=quick)
        }
        self.first = self._cells([case for _, case in self._tried.values()], tuning.seed)
        self._trials: tuple[Trial, ...] = ()

    def _cells(self, cases: Sequence[Case], seed: int) -> list[Cell]:
        planned = replace(
            self.experiment, cases=tuple(cases), runs=self._runs, quick_runs=self._runs, seed=seed
        )
        return list(cells_of(planned, quick=self._quick))

    def _keep(self, grid: Grid) -> int:
        return min(grid.keep, self._tuning.quick_keep) if self._quick else grid.keep

    @property
    def runs_again(self) -> int:
        """Runs of the second round, before it is known of which settings."""
        grids = self._tuning.grids
        return self._runs * sum(min(self._keep(grid), len(grid.points(quick=self._quick))) for grid in grids)

    def _means(self, cells: Sequence[Cell], library: Library) -> dict[str, dict[str, float | None]]:
        measures = [each.measure for each in self._tuning.aims]
        found = {}
        for cell in cells:
            library.measure(cell, measures)
            found[cell.case] = {each.name: summarise(library.values(cell, each)).mean for each in measures}
        return found

    def _ranked(
        self, means: dict[str, dict[str, float | None]], chosen: Sequence[str] | None, keep: int = 0
    ) -> Iterator[Trial]:
        order = judged(means, [each.objective for each in self._tuning.aims])
        some = kept(order, keep) if chosen is None else chosen
        for each in order:
            grid, case = self._tried[each.name]
            yield Trial(
                grid.label,
                case.label.removeprefix(f"{grid.label}: "),
                means[each.name],
                each.ranks,
                int(each.total),
                each.place,
                each.name in some,
            )

    def again(self, library: Library) -> list[Cell]:
        """Rank the first round's settings, and return what has to run again, with seeds of its own."""
        means = self._means(self.first, library)
        trials: list[Trial] = []
        for grid in self._tuning.grids:
            mine = {name: found for name, found in means.items() if self._tried[name][0] == grid}
            trials += self._ranked(mine, None, self._keep(grid))
        self._trials = tuple(trials)
        chosen = [f"{each.aqm}: {each.parameters}" for each in trials if each.chosen]
        cases = [case for label, (_, case) in self._tried.items() if label in chosen]
        return self._cells(cases, self._tuning.seed + self._tuning.runs)

    def tuned(self, again: Sequence[Cell], library: Library) -> Tuned:
        """Rank those that ran again across AQMs, and return the best of each."""
        means = self._means(again, library)
        order = judged(means, [each.objective for each in self._tuning.aims])
        best: dict[str, str] = {}
        for each in order:
            best.setdefault(self._tried[each.name][0].label, each.name)
        cases = [replace(self._tried[best[grid.label]][1], label=grid.label) for grid in self._tuning.grids]
        return Tuned(
            self.experiment.name,
            self._tuning,
            self._tuning.text(self._runs),
            self._trials,
            tuple(self._ranked(means, list(best.values()))),
            tuple(cases),
        )

    def last(self, found: Tuned) -> list[Cell]:
        """Return the best settings as the experiment compares them."""
        return list(cells_of(replace(self.experiment, cases=found.cases), quick=self._quick))


def _cases(grid: Grid, *, quick: bool) -> Iterator[Case]:
    for point in grid.points(quick=quick):
        text = ", ".join(f"{name} {_value(value)}" for name, value in point.items())
        yield Case(f"{grid.label}: {text}", grid.setting, grid.overrides(point))


def _value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value}"


def searches(paper: Paper, *, quick: bool) -> list[Search]:
    """Plan the tuning of those experiments of a paper that are tuned."""
    return [
        Search(each, each.tuning, quick=quick)
        for each in paper.experiments.values()
        if each.tuning is not None
    ]


def with_winners(paper: Paper, found: Sequence[Tuned]) -> Paper:
    """Return a paper whose tuned experiments compare the best settings."""
    cases = {each.experiment: each.cases for each in found}
    return replace(
        paper,
        experiments={
            name: replace(each, cases=cases[name]) if name in cases else each
            for name, each in paper.experiments.items()
        },
    )
