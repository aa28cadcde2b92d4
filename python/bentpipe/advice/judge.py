"""Judges of candidates: the service of the classes of traffic, power, or rank sums."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from bentpipe.stats.intervals import paired
from bentpipe.stats.objectives import (
    Judged,
    Limit,
    Objective,
    Values,
    by_power,
    inverse_power,
    judged,
    pareto,
)
from bentpipe.stats.services import Service
from bentpipe.tuning.holdout import Samples, means

__all__ = ["MARGIN", "MEAN", "TOLERANCE", "WORST", "Judgement", "Rule"]

Judgement = Literal["classes", "power", "rank"]
WORST, MEAN = "worst score", "mean score"
"""Keys of the scores of a setting's classes among its values."""
TOLERANCE = 0.1
"""Difference of scores that users would hardly notice: a tenth of the distance from bad to good, as 0.1 MOS
of a video or 0.2 s of a page. Smaller ones do not decide."""
MARGIN = 0.01
"""Margin within which values are equal in practice: they share a rank, and a power within this share of the
best is almost as good."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Rule by which candidates are judged."""

    objectives: tuple[Objective, ...]
    """Objectives: ranked, or shown beside the scores and the power."""
    limits: tuple[Limit, ...] = ()
    by: Judgement = "rank"
    """Judge: service of the classes, power (`objectives.by_power`) or rank sums."""
    round_trip: float | None = None
    """Round-trip time without queues [s], for the power without a PEP."""
    guards: tuple[Limit, ...] = ()
    """Limits beyond which the service of a class of traffic is bad."""
    services: tuple[Service, ...] = ()
    """Classes of traffic and the figures by which their users judge."""
    tolerances: Mapping[tuple[str, str, str], float] = field(default_factory=dict)
    """Difference that decides, by score and two settings; `TOLERANCE` for others."""

    @property
    def metrics(self) -> list[str]:
        """Metrics that the rule needs, those of classes first."""
        return [
            *(each.metric.name for each in self.services),
            *(each.metric for each in self.guards),
            *(each.metric for each in self.objectives),
            *(each.metric for each in self.limits),
        ]

    def judge(self, values: Values) -> list[Judged]:
        """Order settings, the best first.

        Those that make fewer classes bad come before all others.
        """
        found: list[Judged] = []
        for count in sorted({len(self.broken(mine)) for mine in values.values()}):
            group = {name: mine for name, mine in values.items() if len(self.broken(mine)) == count}
            found += [replace(each, place=each.place + len(found)) for each in self._ordered(group)]
        return found

    def broken(self, values: Mapping[str, float | None]) -> list[Limit]:
        """Return the guards that the values of a setting break."""
        return [guard for guard in self.guards if guard.excess(values.get(guard.metric)) > 0]

    def _ordered(self, values: Values) -> list[Judged]:
        if self.by == "classes":
            return self._by_classes(values)
        if self.by == "power":
            return by_power(values, self.round_trip, self.limits)
        return judged(values, self.objectives, self.limits, MARGIN)

    def _by_classes(self, values: Values) -> list[Judged]:
        """Order settings by the score of their worst-served class, the mean score, and power.

        Settings whose scores differ by no more than the tolerance go to the next step.
        """
        scores = self.scores(values)
        excess = {
            name: math.fsum(limit.excess(mine.get(limit.metric)) for limit in self.limits)
            for name, mine in values.items()
        }
        inverse = {name: self.inverse(mine) for name, mine in values.items()}
        found: list[Judged] = []
        for outside in sorted(set(excess.values())):
            group = [name for name in values if excess[name] == outside]
            while group:
                near = group
                for step in (WORST, MEAN):
                    best = max(near, key=lambda name: scores[name][step])
                    near = [name for name in near if self.equal(step, best, name, scores)]
                name = min(near, key=inverse.__getitem__)
                found.append(Judged(name, 1 + len(found), inverse[name], {}, outside))
                group = [other for other in group if other != name]
        return found

    def inverse(self, values: Mapping[str, float | None]) -> float:
        """Return the inverse of the power (`objectives.inverse_power`).

        If classes judge, only throughput that does not repeat data over the satellite counts.
        """
        rate, repeated = values.get("throughput"), values.get("retransmitted")
        if self.by == "classes" and rate is not None and repeated is not None:
            values = {**values, "throughput": rate * (1 - repeated / 100)}
        return inverse_power(values, self.round_trip)

    def equal(self, step: str, one: str, other: str, scores: Mapping[str, Mapping[str, float]]) -> bool:
        """Return True if two settings have the same score in practice."""
        tolerance = self.tolerances.get((step, one, other), TOLERANCE)
        return abs(scores[one][step] - scores[other][step]) <= tolerance

    def scores(self, values: Values) -> dict[str, dict[str, float]]:
        """Return the score of the worst-served class and the mean over the classes, by setting.

        Values that hold scores already keep them. A class without thresholds, as endless transfers, counts in
        the mean only: 2 for the best of the settings, and in proportion for the others.
        """
        best = {
            name: max(
                (value for mine in values.values() if (value := mine.get(name)) is not None), default=0.0
            )
            for name in (each.metric.name for each in self.services if each.threshold is None)
        }
        return {name: self._scores_of(mine, best) for name, mine in values.items()}

    def _scores_of(self, values: Mapping[str, float | None], best: Mapping[str, float]) -> dict[str, float]:
        worst, mean = values.get(WORST), values.get(MEAN)
        if worst is not None and mean is not None:
            return {WORST: worst, MEAN: mean}
        graded, others = list[float](), list[float]()
        for each in self.services:
            value = values.get(each.metric.name)
            score = each.score(value)
            if score is not None:
                graded.append(score)
            elif top := best[each.metric.name]:
                others.append(2.0 * (value or 0.0) / top)
        every = [*graded, *others]
        return {
            WORST: min(graded, default=0.0),
            MEAN: math.fsum(every) / len(every) if every else 0.0,
        }

    def with_scores(self, samples: Samples) -> dict[str, Mapping[str, Sequence[float | None]]]:
        """Return samples with the scores of every run; None for a run without any value."""
        best = {
            each.metric.name: max(
                (mean for mine in means(samples).values() if (mean := mine[each.metric.name]) is not None),
                default=0.0,
            )
            for each in self.services
            if each.threshold is None
        }
        found = dict[str, Mapping[str, Sequence[float | None]]]()
        for name, mine in samples.items():
            rows = [dict(zip(mine, row, strict=True)) for row in zip(*mine.values(), strict=True)]
            scores = [
                None if all(value is None for value in row.values()) else self._scores_of(row, best)
                for row in rows
            ]
            found[name] = {
                **mine,
                **{step: [None if each is None else each[step] for each in scores] for step in (WORST, MEAN)},
            }
        return found

    def judging(self, samples: Samples) -> "Rule":
        """Return the rule with tolerances from samples: half-widths of paired intervals of three or more."""
        tolerances = {}
        for step in (WORST, MEAN):
            for one, other in itertools.permutations(samples, 2):
                found = paired(samples[one][step], samples[other][step])
                half = found.ci95 if found.runs > 2 and found.ci95 is not None else 0.0
                tolerances[step, one, other] = max(TOLERANCE, half)
        return replace(self, tolerances=tolerances)

    def pick(self, values: Values) -> list[Judged]:
        """Order the points of a search, the best first.

        Only points that make the fewest classes bad are considered. Rank sums are computed over the Pareto
        front of the points that meet the limits: a search samples its
        space unevenly, and dominated points would shift the ranks of the others. If no point meets the
        limits, all are ranked.
        """
        least = min((len(self.broken(mine)) for mine in values.values()), default=0)
        values = {name: mine for name, mine in values.items() if len(self.broken(mine)) == least}
        if self.by != "rank":
            return self._ordered(values)
        within = {
            name: mine
            for name, mine in values.items()
            if all(limit.excess(mine.get(limit.metric)) == 0 for limit in self.limits)
        }
        if not within:
            return judged(values, self.objectives, self.limits)
        rows = {name: [mine.get(each.metric) for each in self.objectives] for name, mine in within.items()}
        best = pareto(rows, self.objectives) or within
        return judged({name: within[name] for name in best}, self.objectives)
