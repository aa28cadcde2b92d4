"""Which of several settings is best by several metrics at once: objectives, limits and two rules.

Rank sums are Byun & Baras's rule [BB]: rank the settings in each metric, give rank r the weight 2^r, and keep
those with the lowest sums. A setting that is second everywhere so beats one that is first here and last
there, and how far values are apart does not matter.

Power is the rate that a link carries over the time a byte takes to get through (Giessler, Haenle, König &
Pade 1978; Kleinrock 1979). It asks what a shorter queue is worth: as large a share of the response time as it
costs of the rate.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from bentpipe.errors import UsageError
from bentpipe.format import convert, number_of
from bentpipe.stats.metrics import Metric, named_metric

__all__ = [
    "Judge",
    "Judged",
    "Limit",
    "Objective",
    "Values",
    "by_power",
    "inverse_power",
    "judged",
    "kept",
    "limits_from",
    "objectives_from",
]

Values = Mapping[str, Mapping[str, float | None]]
"""By setting and metric, one value, as the mean over the runs; None where there is none."""

_LIMIT = re.compile(r"\s*(\w+)\s*(<=|>=)\s*(.+?)\s*")
_BETTER: Mapping[str | None, Literal["max", "min"]] = {"more": "max", "less": "min"}


@dataclass(frozen=True, slots=True)
class Objective:
    """A metric, and which way is better."""

    metric: str
    direction: Literal["max", "min"]

    def __str__(self) -> str:
        return f"{self.metric}:{self.direction}"

    @property
    def known(self) -> Metric:
        """The metric with its label and unit."""
        return named_metric(self.metric, f"objective {self}")

    def gain(self, ours: float, theirs: float) -> float:
        """Return by how much `ours` is better, in the metric's unit; negative where it is worse."""
        return ours - theirs if self.direction == "max" else theirs - ours


@dataclass(frozen=True, slots=True)
class Limit:
    """A bound that a setting is to keep, whatever else it does well."""

    metric: str
    sign: Literal["<=", ">="]
    bound: float
    """In the metric's unit."""

    def __str__(self) -> str:
        unit = self.known.unit
        return f"{self.metric} {self.sign} {self.bound:g}{' ' + unit if unit else ''}"

    @property
    def known(self) -> Metric:
        """The metric with its label and unit."""
        return named_metric(self.metric, f"limit {self.metric}")

    def excess(self, value: float | None) -> float:
        """Return how far a value is outside, as a share of the bound (of 1 if that is 0); 0 within.

        Infinite without a value: what is not known is not kept.
        """
        if value is None:
            return math.inf
        beyond = value - self.bound if self.sign == "<=" else self.bound - value
        return max(0.0, beyond / (abs(self.bound) or 1.0))


@dataclass(frozen=True, slots=True)
class Judged:
    """One setting among others."""

    name: str
    place: int
    """1 for the best; settings that the rule cannot tell apart share one."""
    total: float
    """What the rule adds up, the less the better: an integer, the sum of 2^rank over the objectives; or the
    response time over the rate [s per Mbit/s], which is one over the power."""
    ranks: dict[str, int]
    """By metric: one more than the number of settings that are better; empty where there are no ranks."""
    excess: float = 0.0
    """How far it is outside the limits, as the sum of the shares; 0 if it keeps them all."""


def objectives_from(given: str | Sequence[str | Objective]) -> list[Objective]:
    """Read objectives: `throughput:max,queue_delay_mean:min`, as a text or a list of such parts.

    Where a metric ranks settings (docs/results.md) the direction may be left out. Raises `UsageError` for a
    metric that is unknown, given twice or without a direction, and if there is none.
    """
    parts = given.split(",") if isinstance(given, str) else list(given)
    found: list[Objective] = []
    for part in parts:
        objective = part if isinstance(part, Objective) else _objective(part)
        if any(each.metric == objective.metric for each in found):
            raise UsageError(f"objective {objective.metric}: found twice; allowed: each metric once")
        found.append(objective)
    if not found:
        raise UsageError("no objective is named; allowed: metrics, as throughput:max,queue_delay_mean:min")
    return found


def _objective(text: str) -> Objective:
    name, colon, way = (part.strip() for part in text.partition(":"))
    metric = named_metric(name, f"objective {text.strip() or '(empty)'}")
    if way in {"max", "min"}:
        return Objective(metric.name, "max" if way == "max" else "min")
    if colon:
        raise UsageError(f'objective {text.strip()}: found the direction "{way}"; allowed: max, min')
    if metric.better is None:
        raise UsageError(
            f"objective {name}: found no direction, and neither is better by itself; allowed: {name}:max,"
            f" {name}:min"
        )
    return Objective(metric.name, _BETTER[metric.better])


def limits_from(given: Sequence[str | Limit]) -> list[Limit]:
    """Read limits: `queue_delay_p95<=50`, in the metric's unit, or `queue_delay_p95<=0.05 s`.

    Raises `UsageError` for anything else.
    """
    return [each if isinstance(each, Limit) else _limit(each) for each in given]


def _limit(text: str) -> Limit:
    allowed = "METRIC<=NUMBER or METRIC>=NUMBER, as queue_delay_p95<=50"
    match = _LIMIT.fullmatch(text)
    if match is None:
        raise UsageError(f'limit "{text}": found no bound; allowed: {allowed}')
    name, sign, written = match.groups()
    metric = named_metric(name, f'limit "{text}"')
    number = number_of(written)
    if number is None or not math.isfinite(number[0]):
        raise UsageError(f'limit "{text}": found the bound {written}; allowed: {allowed}')
    bound, unit = number
    changed = convert(bound, unit, metric.unit) if unit else bound
    if metric.name == "utilization" and (changed is None or changed > 100):
        raise UsageError(
            f'limit "{text}": utilization is a share of the link\'s capacity, at most 100 %; limit throughput'
            " for a rate [Mbit/s]"
        )
    if changed is None:
        raise UsageError(f'limit "{text}": found the unit {unit}; allowed: {metric.unit or "none"}')
    return Limit(metric.name, "<=" if sign == "<=" else ">=", changed)


def judged(
    values: Values, objectives: Sequence[Objective], limits: Sequence[Limit] = (), margin: float = 0.0
) -> list[Judged]:
    """Judge settings by the papers' rule, the best first.

    A setting's rank in a metric is one more than the number of settings whose value is better, so equal
    values have equal ranks, and the next rank is left out. A setting without a value comes after all that
    have one. Its weight is 2^rank, summed over the objectives; the lowest sum is best. Equal sums share a
    place and keep the order in which they were given. With a `margin` a value is better only if it is by more
    than this share of the larger of the two.

    Settings that keep all limits come before those that do not, and are ranked among themselves; then come
    the others by how far they are outside, equal ones by their sums among the others.
    """
    excess = {
        name: math.fsum(limit.excess(mine.get(limit.metric)) for limit in limits)
        for name, mine in values.items()
    }
    within = [name for name in values if excess[name] == 0]
    beyond = [name for name in values if excess[name] > 0]
    found: list[tuple[tuple[float, int], str, dict[str, int]]] = []
    for group in (within, beyond):
        for name in group:
            ranks = {
                each.metric: 1 + sum(_better(each, values[other], values[name], margin) for other in group)
                for each in objectives
            }
            found.append(((excess[name], sum(2**rank for rank in ranks.values())), name, ranks))
    return [
        Judged(name, 1 + sum(other < key for other, _, _ in found), key[1], ranks, key[0])
        for key, name, ranks in sorted(found, key=lambda each: each[0])
    ]


Judge = Callable[[Values], list[Judged]]
"""Returns settings with their places, the best first."""


def by_power(values: Values, round_trip: float | None = None, limits: Sequence[Limit] = ()) -> list[Judged]:
    """Order settings by their power, the best first.

    The rate is `throughput`. The response time is `pep_sojourn`, or without a PEP the mean queueing
    delay plus `round_trip`, the round-trip time without queues [s]. Settings without a value come last.
    Settings that meet all limits rank first; the others follow in the order of their excess.
    """
    found: list[tuple[tuple[float, float], str]] = []
    for name, mine in values.items():
        excess = math.fsum(limit.excess(mine.get(limit.metric)) for limit in limits)
        found.append(((excess, inverse_power(mine, round_trip)), name))
    return [
        Judged(name, 1 + sum(other < key for other, _ in found), key[1], {}, key[0])
        for key, name in sorted(found, key=lambda each: each[0])
    ]


def inverse_power(values: Mapping[str, float | None], round_trip: float | None) -> float:
    """Return the response time over the rate [s per Mbit/s], see `by_power`; infinite without a value."""
    rate, queue = values.get("throughput"), values.get("queue_delay_mean")
    response = values.get("pep_sojourn")
    if round_trip is not None:
        response = None if queue is None else round_trip + 1e-3 * queue
    return math.inf if not rate or response is None else response / rate


def kept(order: Sequence[Judged], count: int) -> list[str]:
    """Return the names of so many settings, the best first; `UsageError` if not at least one is wanted."""
    if count < 1:
        raise UsageError(f"{count} settings are to be kept; allowed: 1 or more")
    return [each.name for each in order[:count]]


def _better(
    objective: Objective,
    ours: Mapping[str, float | None],
    theirs: Mapping[str, float | None],
    margin: float,
) -> bool:
    a, b = ours.get(objective.metric), theirs.get(objective.metric)
    if a is None or b is None:
        return a is not None
    return objective.gain(a, b) > margin * max(abs(a), abs(b))
