"""Choice of the best settings by several metrics at once: objectives, limits, rank sums and power.

Rank sums are the rule of Byun & Baras [BB]: rank the settings in each metric, give rank r the weight 2^r, and
keep those with the lowest sums. A setting that is second everywhere beats one that is first in one metric and
last in another; the sizes of the differences do not matter.

Power is throughput over response time (Giessler, Haenle, König & Pade 1978; Kleinrock 1979). A shorter queue
pays off if it reduces the response time by a larger share than the throughput.
"""

import math
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from operator import ge
from typing import Literal, TypeVar

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
    "pareto",
]

Values = Mapping[str, Mapping[str, float | None]]
"""Mean over the runs, by setting and metric; None without a value."""

_LIMIT = re.compile(r"\s*(.+?)\s*(<=|>=)\s*(.+?)\s*")
_BETTER: Mapping[str | None, Literal["max", "min"]] = {"more": "max", "less": "min"}


@dataclass(frozen=True, slots=True)
class Objective:
    """A metric and its better direction."""

    metric: str
    direction: Literal["max", "min"]

    def __str__(self) -> str:
        return f"{self.metric}:{self.direction}"

    @property
    def known(self) -> Metric:
        """Metric of the objective, with its label and unit."""
        return named_metric(self.metric, f"objective {self}")

    def gain(self, ours: float, theirs: float) -> float:
        """Return the improvement of `ours` over `theirs` in the metric's unit; negative if it is worse."""
        return ours - theirs if self.direction == "max" else theirs - ours


@dataclass(frozen=True, slots=True)
class Limit:
    """A bound on a metric that settings must meet before any objective counts."""

    metric: str
    sign: Literal["<=", ">="]
    bound: float
    """Bound in the metric's unit."""

    def __str__(self) -> str:
        unit = self.known.unit
        return f"{self.metric} {self.sign} {self.bound:g}{' ' + unit if unit else ''}"

    @property
    def known(self) -> Metric:
        """Metric of the limit, with its label and unit."""
        return named_metric(self.metric, f"limit {self.metric}")

    def excess(self, value: float | None) -> float:
        """Return the excess over the bound as a share of it (of 1 if the bound is 0); 0 within the limit.

        Infinite without a value: an unknown value violates the limit.
        """
        if value is None:
            return math.inf
        beyond = value - self.bound if self.sign == "<=" else self.bound - value
        return max(0.0, beyond / (abs(self.bound) or 1.0))


@dataclass(frozen=True, slots=True)
class Judged:
    """Place of one setting among others."""

    name: str
    place: int
    """Place, 1 for the best; settings that the rule cannot tell apart share one."""
    total: float
    """Score, the lower the better: the sum of 2^rank over the objectives (an integer), or the inverse of the
    power, response time over throughput [s per Mbit/s]."""
    ranks: dict[str, int]
    """Rank by metric: one more than the number of better settings; empty for the power."""
    excess: float = 0.0
    """Sum of the excesses over the limits; 0 if all limits are met."""


def objectives_from(given: str | Sequence[str | Objective]) -> list[Objective]:
    """Parse objectives: `throughput:max,queue_delay_mean:min`, as one string or a list of parts.

    The direction is optional for metrics that rank settings (docs/results.md). Raises `UsageError` for a
    metric that is unknown, given twice or without a direction, and for an empty list.
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
    """Parse limits: `queue_delay_p95<=50` in the metric's unit, or `queue_delay_p95<=0.05 s`.

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
    least, most = metric.scale
    if (sign == "<=" and changed < least) or (sign == ">=" and changed > most):
        scale = f"{least:g} or more" if most == math.inf else f"{least:g} to {most:g}"
        raise UsageError(
            f'limit "{text}": no value can meet it; {metric.name} is {scale}'
            + (f" {metric.unit}" if metric.unit else "")
        )
    return Limit(metric.name, "<=" if sign == "<=" else ">=", changed)


def judged(
    values: Values, objectives: Sequence[Objective], limits: Sequence[Limit] = (), margin: float = 0.0
) -> list[Judged]:
    """Order settings by their rank sums, the best first.

    The rank of a setting in a metric is one more than the number of settings with a better value: equal
    values share a rank, and the next rank is skipped. Settings without a value rank last. The score is the
    sum of 2^rank over the objectives. Equal sums share a place and keep their order. With a `margin`, a value
    is better only if the difference exceeds this share of the larger of the two.

    Settings that meet all limits rank first, among themselves. The others follow in the order of their
    excess, ties by their sums among the others.
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


Key = TypeVar("Key", bound=Hashable)


def pareto(values: Mapping[Key, Sequence[float | None]], objectives: Sequence[Objective]) -> list[Key]:
    """Return the Pareto front: the keys whose `values`, one for each objective, no other key's dominate.

    Keys that lack a value are left out. Keys with equal values are all in the front.
    """
    known = {
        key: [
            each.gain(value, 0.0) for each, value in zip(objectives, mine, strict=True) if value is not None
        ]
        for key, mine in values.items()
        if None not in mine
    }
    return [
        key
        for key, mine in known.items()
        if not any(other != mine and all(map(ge, other, mine)) for other in known.values())
    ]


Judge = Callable[[Values], list[Judged]]
"""Orders settings, the best first."""


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
    """Return response time over throughput [s per Mbit/s], see `by_power`; infinite without a value."""
    rate, queue = values.get("throughput"), values.get("queue_delay_mean")
    response = values.get("pep_sojourn")
    if round_trip is not None:
        response = None if queue is None else round_trip + 1e-3 * queue
    return math.inf if not rate or response is None else response / rate


def kept(order: Sequence[Judged], count: int) -> list[str]:
    """Return the names of the first `count` settings; `UsageError` if `count` is below 1."""
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
