"""Hold-out runs: candidates of a search are simulated again with seeds that the search never used.

The best of many noisy values is probably one with favourable noise, and the bias grows with the number of
candidates. Only runs that had no part in the choice give an unbiased estimate.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bentpipe.errors import UsageError
from bentpipe.runs.dataset import Dataset, Failure, Run
from bentpipe.runs.workers import OnProgress, Workers, simulate
from bentpipe.stats.intervals import Summary, holm, paired, summarise
from bentpipe.stats.objectives import Judge, Values

__all__ = ["APART", "RESAMPLES", "Figure", "Samples", "figures", "fresh_seeds", "means", "rerun", "winners"]

APART = 1_000_000
"""Distance between the first seed of a search and the first hold-out seed."""

Samples = Mapping[str, Mapping[str, Sequence[float | None]]]
"""Values of the runs by setting and metric, in the order of the seeds."""

_SEED = 20070402
RESAMPLES = 999
"""Number of resamples that estimate how often each setting is best."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One metric of one setting, in the search and on hold-out seeds."""

    setting: str
    metric: str
    searched: float | None
    """Mean over the search's runs; None without runs."""
    found: Summary
    """Mean over the hold-out runs with its interval."""
    against: Summary | None
    """Paired difference from the baseline over hold-out runs; None for the baseline itself or without one."""
    p_holm: float | None = None
    """p-value of the difference, corrected over all figures that have one."""

    def row(self) -> dict[str, Any]:
        """Return the figure as a dictionary, ready for JSON."""
        against = self.against or Summary(None, None, None, 0)
        return {
            "setting": self.setting,
            "metric": self.metric,
            "searched": self.searched,
            "mean": self.found.mean,
            "ci95": self.found.ci95,
            "ci_low": self.found.low,
            "ci_high": self.found.high,
            "method": self.found.method,
            "runs": self.found.runs,
            "difference": against.mean,
            "difference_ci95": against.ci95,
            "difference_low": against.low,
            "difference_high": against.high,
            "difference_method": against.method,
            "p": against.p,
            "p_holm": self.p_holm,
        }


def fresh_seeds(used: Collection[int], count: int) -> list[int]:
    """Return `count` seeds that are not `used`, starting `APART` above the lowest of those.

    They do not depend on the length of the search. Raises `UsageError` below one.
    """
    if count < 1:
        raise UsageError(f"{count} fresh runs are wanted; allowed: 1 or more")
    taken, seed, found = set(used), min(used, default=1) + APART, list[int]()
    while len(found) < count:
        # Seeds are 64 bits wide.
        seed %= 2**64
        if seed not in taken:
            found.append(seed)
        seed += 1
    return found


def rerun(
    chosen: Mapping[str, Run],
    seeds: Sequence[int],
    metrics: Iterable[str],
    dataset: Dataset,
    workers: Workers,
    on_progress: OnProgress | None = None,
) -> tuple[dict[str, dict[str, list[float | None]]], list[Failure]]:
    """Simulate each of `chosen` with each seed, into `dataset`; runs in the dataset are not repeated.

    Returns the samples of the metrics, None for a failed run, and the failures.
    """
    wanted = {name: [replace(run, seed=seed) for seed in seeds] for name, run in chosen.items()}
    # Seed by seed, so that an interrupted call has results of every candidate.
    runs = [of[index] for index in range(len(seeds)) for of in wanted.values()]
    failures = simulate(runs, dataset, workers, on_progress)
    samples: dict[str, dict[str, list[float | None]]] = {}
    for name, mine in wanted.items():
        rows = [dataset.metrics(run) or {} for run in mine]
        samples[name] = {metric: [row.get(metric) for row in rows] for metric in metrics}
    return samples, failures


def figures(
    samples: Samples, metrics: Sequence[str], searched: Values | None = None, baseline: str | None = None
) -> list[Figure]:
    """Return every metric of every setting; the family of the corrected p-values is all differences.

    Differences are paired by run, from the setting `baseline`.
    """
    found = []
    for name, mine in samples.items():
        for metric in metrics:
            before = (searched or {}).get(name, {}).get(metric)
            against = None
            if baseline is not None and name != baseline:
                against = paired(mine[metric], samples[baseline][metric])
            found.append(Figure(name, metric, before, summarise(mine[metric]), against))
    corrected = holm([each.against.p if each.against else None for each in found])
    return [replace(each, p_holm=p) for each, p in zip(found, corrected, strict=True)]


def means(samples: Samples) -> dict[str, dict[str, float | None]]:
    """Return the mean of each metric over the runs that have a value."""
    return {
        name: {metric: summarise(values).mean for metric, values in mine.items()}
        for name, mine in samples.items()
    }


def winners(samples: Samples, judge: Judge, resamples: int = RESAMPLES) -> dict[str, float]:
    """Return, by setting, the share of paired resamples of the runs in which it is judged best.

    A resample draws seeds with replacement, the same for every setting, and `judge` sees the means; settings
    that share the first place share the win. The shares add up to 1. Few runs make the shares overconfident,
    as in every bootstrap.
    """
    import numpy as np

    wins = dict.fromkeys(samples, 0.0)
    tables = {
        name: {metric: np.array(of, dtype=float) for metric, of in mine.items()}
        for name, mine in samples.items()
    }
    runs = {len(values) for mine in tables.values() for values in mine.values()}
    if len(runs) != 1 or runs == {0}:
        raise UsageError("settings have different numbers of runs, or none; allowed: the same seeds for all")
    size = runs.pop()
    draws = np.random.Generator(np.random.PCG64(_SEED)).integers(0, size, (resamples, size))
    drawn: dict[str, dict[str, list[float]]] = {}
    for name, mine in tables.items():
        drawn[name] = {}
        for metric, values in mine.items():
            known = ~np.isnan(values)
            count = known[draws].sum(axis=1)
            total = np.where(known, values, 0.0)[draws].sum(axis=1)
            drawn[name][metric] = np.where(count > 0, total / np.maximum(count, 1), np.nan).tolist()
    for index in range(resamples):
        table = {
            name: {metric: None if of[index] != of[index] else of[index] for metric, of in mine.items()}
            for name, mine in drawn.items()
        }
        first = [each.name for each in judge(table) if each.place == 1]
        for name in first:
            wins[name] += 1 / len(first)
    return {name: count / resamples for name, count in wins.items()}
