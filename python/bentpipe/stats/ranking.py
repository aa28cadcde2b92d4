"""Ranking of settings by the metrics that have a better direction."""

from dataclasses import dataclass

from bentpipe.stats.differences import Runs
from bentpipe.stats.intervals import paired
from bentpipe.stats.metrics import METRICS, Metric

__all__ = ["BEHIND_PEP", "CRITERIA", "MANY", "Ranked", "drawn", "ranking"]

BEHIND_PEP = (
    "Drops behind the PEP: senders were told that these packets arrived, so they do not slow down, and the"
    " spacelink sends the packets again"
)

MANY = 7
"""Number of settings above which tables have a row for each, and figures show only the best."""

_DRAWN = 6

CRITERIA: tuple[Metric, ...] = tuple(metric for metric in METRICS if metric.better)
"""Metrics that rank settings."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """Place of one setting among others."""

    setting: str
    place: int
    """Overall place, 1 for the best; settings with the same mean rank share one."""
    mean: float
    """Mean of the ranks."""
    ranks: dict[str, int]
    """Rank by metric: one more than the number of significantly better settings."""


def ranking(result: Runs) -> list[Ranked]:
    """Rank the settings of a result, the best first.

    A setting is significantly better in a metric if the 95 % interval of the paired difference excludes zero;
    with one run, if its value is better. Settings without a value rank last. The place follows from the mean
    of the ranks over `CRITERIA`; ties keep their order.
    """
    ranks = {name: {metric.name: 1 for metric in CRITERIA} for name in result.settings}
    values = result.values()
    for metric in CRITERIA:
        for name in result.settings:
            for other in result.settings:
                if _is_better(metric, values[other][metric.name], values[name][metric.name]):
                    ranks[name][metric.name] += 1
    means = {name: sum(mine.values()) / len(mine) for name, mine in ranks.items()}
    return [
        Ranked(name, 1 + sum(other < means[name] for other in means.values()), means[name], ranks[name])
        for name in sorted(result.settings, key=means.__getitem__)
    ]


def drawn(result: Runs) -> list[str]:
    """Return the settings to show in figures: all, or the best of many, without duplicates by value."""
    if len(result.settings) <= MANY:
        return result.settings
    values, chosen = result.values(), list[str]()
    for name in (ranked.setting for ranked in ranking(result)):
        if all(values[name] != values[other] for other in chosen):
            chosen.append(name)
    return chosen[:_DRAWN]


def _is_better(metric: Metric, ours: list[float | None], theirs: list[float | None]) -> bool:
    """Return True if the runs `ours` are significantly better than those with the same seeds in `theirs`."""
    more, less = (ours, theirs) if metric.better == "more" else (theirs, ours)
    found = paired(more, less)
    if found.mean is None:
        return any(a is not None for a in ours) and all(b is None for b in theirs)
    return (found.mean if found.low is None else found.low) > 0
