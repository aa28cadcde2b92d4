"""Sampling and pruning of a search; both depend only on earlier results.

Trials are generated in generations. An Optuna sampler with its own seed draws a generation from the results
of the generations before, so that trials are the same for any number of processes, jobs and interruptions.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.samplers import BaseSampler, NSGAIISampler, RandomSampler, TPESampler
from optuna.trial import TrialState, create_trial

from bentpipe.errors import UsageError
from bentpipe.stats.intervals import LEVEL, paired
from bentpipe.stats.objectives import Objective, pareto
from bentpipe.tuning.space import Space
from bentpipe.tuning.study import COMPLETE, STOPPED, Proposal, Trial

__all__ = ["FEWEST", "SAMPLERS", "WILCOXON", "Search", "front", "mean_of", "means"]

SAMPLERS = ("tpe", "nsga2", "random", "grid")
FEWEST = 3
"""Minimum number of runs before a trial may be stopped."""
WILCOXON = 0.1
"""p-value below which a search for one objective stops a trial."""
_MANY = 50
"""Minimum number of complete trials for the importance of parameters, computed from their best tenth."""

Values = tuple[float | None, ...]


def means(trial: Trial) -> Values:
    """Return the mean of each objective over the runs of a trial that have a value."""
    return mean_of(trial.runs)


def mean_of(runs: Mapping[int, Values]) -> Values:
    """Return the mean of each column over the runs that have a value."""
    found = []
    for column in zip(*runs.values(), strict=True):
        known = [value for value in column if value is not None]
        found.append(math.fsum(known) / len(known) if known else None)
    return tuple(found)


def front(trials: Sequence[Trial], objectives: Sequence[Objective]) -> list[Trial]:
    """Return the Pareto front of the complete trials, see `pareto`."""
    complete = {place: means(each) for place, each in enumerate(trials) if each.outcome == COMPLETE}
    return [trials[place] for place in pareto(complete, objectives)]


@dataclass(frozen=True)
class Search:
    """Method of the search in a space."""

    space: Space
    objectives: Sequence[Objective]
    sampler: str = "tpe"
    seed: int = 1
    """Seed of the sampler."""
    generation: int = 10
    """Number of trials per generation."""
    pruning: bool = True

    def __post_init__(self) -> None:
        if self.sampler not in SAMPLERS:
            raise UsageError(f"--sampler {self.sampler}: allowed: {', '.join(SAMPLERS)}")
        if self.generation < 1:
            raise UsageError(f"--generation {self.generation}: at least 1 is needed")

    def distributions(self) -> dict[str, BaseDistribution]:
        """Return the parameters as Optuna distributions: shares of a range, or choices from a list."""
        return {
            each.name: FloatDistribution(0.0, 1.0)
            if each.low is not None and self.sampler != "grid"
            else CategoricalDistribution(each.values)
            for each in self.space.parameters
            if self.sampler != "grid"
        }

    def ask(
        self,
        generation: int,
        trials: Sequence[Trial],
        grid: Sequence[Mapping[str, str]] = (),
        most: int | None = None,
    ) -> list[Proposal]:
        """Return the trials of a generation, at most the first `most`, given those of earlier generations."""
        if self.sampler == "grid":
            first = generation * self.generation
            return [Proposal({}, point, {}) for point in grid[first : first + self.generation]]
        study = self._study(trials, self._sampler(generation))
        distributions = self.distributions()
        asked = [study.ask(distributions) for _ in range(min(self.generation, most or self.generation))]
        there = {each.number: each for each in study.get_trials(deepcopy=False)}
        found = []
        for each in asked:
            shares: dict[str, float | str] = dict(each.params)
            memory = _memory(there[each.number].system_attrs)
            found.append(Proposal(shares, self.space.point(shares), memory))
        return found

    def importance(self, trials: Sequence[Trial]) -> dict[str, float]:
        """Return the importance of each parameter for the best tenth of the trials, as shares of 1.

        Optuna's PED-ANOVA (Watanabe, Bansal & Hutter 2023); with several objectives, the best trials are
        those in front. Empty below fifty trials and for a grid.
        """
        complete = [each for each in trials if each.outcome == COMPLETE]
        if self.sampler == "grid" or len(complete) < _MANY or len(self.space.names) < 2:
            return {}
        found = optuna.importance.get_param_importances(
            self._study(complete), evaluator=optuna.importance.PedAnovaImportanceEvaluator()
        )
        return {name: float(found[name]) for name in self.space.names if name in found}

    def _sampler(self, generation: int) -> BaseSampler:
        seed = (self.seed * 1_000_003 + generation) % 2**32
        if self.sampler == "random":
            return RandomSampler(seed=seed)
        if self.sampler == "nsga2":
            return NSGAIISampler(population_size=max(2, self.generation), seed=seed)
        return TPESampler(n_startup_trials=self.generation, seed=seed)

    def _study(self, trials: Sequence[Trial], sampler: BaseSampler | None = None) -> optuna.Study:
        """Return an in-memory study with the earlier results."""
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        with warnings.catch_warnings():
            # Marked experimental since 2022; its decisions are tested here.
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            pruner = optuna.pruners.WilcoxonPruner(p_threshold=WILCOXON, n_startup_steps=FEWEST)
        study = optuna.create_study(
            directions=["maximize" if each.direction == "max" else "minimize" for each in self.objectives],
            sampler=sampler or RandomSampler(seed=0),
            pruner=pruner,
        )
        distributions = self.distributions()
        for each in sorted(trials, key=lambda trial: trial.number):
            values = means(each)
            known = [value for value in values if value is not None]
            usable = each.outcome in {COMPLETE, STOPPED} and len(known) == len(self.objectives)
            # Optuna recommends reporting a stopped trial's mean so far: it says more than the fact of
            # stopping.
            study.add_trial(
                create_trial(
                    state=TrialState.COMPLETE if usable else TrialState.FAIL,
                    values=known if usable else None,
                    params=dict(each.proposal.shares),
                    distributions=distributions,
                    system_attrs=dict(each.proposal.memory),
                    intermediate_values=self._steps(each.runs) if usable else {},
                )
            )
        return study

    def _steps(self, runs: Mapping[int, Values]) -> dict[int, float]:
        """Return the values of a search for one objective, in the order of the seeds."""
        if len(self.objectives) > 1:
            return {}
        return {
            step: math.nan if runs[seed][0] is None else runs[seed][0] or 0.0
            for step, seed in enumerate(sorted(runs))
        }

    def verdict(self, runs: Mapping[int, Values], before: Sequence[Trial], looks: int) -> str | None:
        """Return the reason to stop a trial with these runs; None to continue.

        `before` are the finished trials of earlier generations, `looks` is the maximum number of checks per
        trial. With one objective, Optuna's `WilcoxonPruner` decides. With several, a trial is stopped once
        some member of the front is better in every objective on the same seeds: the largest of the paired,
        one-sided p-values over the objectives is at most `LEVEL`, divided by the members and the looks. There
        is no correction for the fact that the same seeds chose the members (docs/tune.md).
        """
        if not self.pruning or len(runs) < FEWEST:
            return None
        if len(self.objectives) == 1:
            steps = self._steps(runs)
            if any(math.isnan(value) for value in steps.values()):
                return None
            study = self._study(before)
            trial = study.ask()
            for step, value in steps.items():
                trial.report(value, step)
            return f"worse than the best by Wilcoxon's test, p < {WILCOXON}" if trial.should_prune() else None
        members = front(before, self.objectives)
        level = LEVEL / max(1, len(members) * looks)
        for member in members:
            p = self._worse(runs, member)
            if p is not None and p <= level:
                return f"worse than trial {member.number} in every objective, p ≤ {level:.2g}"
        return None

    def _worse(self, runs: Mapping[int, Values], member: Trial) -> float | None:
        """Return the p-value of not being worse than `member` in every objective; None if it is not worse."""
        worst = 0.0
        seeds = [seed for seed in runs if seed in member.runs]
        for index, objective in enumerate(self.objectives):
            found = paired(
                [runs[seed][index] for seed in seeds], [member.runs[seed][index] for seed in seeds]
            )
            if found.p is None or found.mean is None or found.runs < len(runs):
                return None
            if objective.gain(found.mean, 0.0) >= 0:
                return None
            # An intersection of one-sided tests has the largest of their p-values (Berger 1982).
            worst = max(worst, found.p / 2)
        return worst


def _memory(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return a sampler's attributes of a trial, which it reads again later."""
    return {key: value for key, value in attrs.items() if "generation" in key}
