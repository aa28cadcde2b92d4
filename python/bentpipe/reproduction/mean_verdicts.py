"""Verdicts on claims from means with their intervals, of runs or of a paper's file of all numbers."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from bentpipe.format import brief, plural
from bentpipe.reproduction.mean_rules import About, Ahead, Bound, Curve, Rank, Similar, apart
from bentpipe.reproduction.measures import Measure
from bentpipe.reproduction.paper import Check, Claim
from bentpipe.reproduction.rules import NOT_REPRODUCED, REPRODUCED, VERDICTS, Order, Verdict
from bentpipe.stats.intervals import Summary

__all__ = ["NAMED", "UNPAIRED", "Find", "Ranked", "join_reasons", "judge_by_means", "worst_of"]

NAMED = 3
"""Most comparisons that a reason names."""
UNPAIRED = "; differences of means, not paired"
"""End of the reason of an order that was judged without runs."""

Find = Callable[[str, str, Measure, str], Summary | None]
"""Returns a value by experiment, case, measure and point; `None` if it was not simulated."""
Ranked = Mapping[str, Sequence[str]]
"""AQMs of the settings that a search has ranked, by experiment, the best first."""


def judge_by_means(claim: Claim, find: Find, ranked: Ranked) -> Verdict | None:
    """Judge a claim by means; `None` if its rule needs runs, or without any value."""
    match claim.rule:
        case Curve() | Bound() | About() as rule:
            return worst_of(
                (f"{check.more}, {check.experiment}", rule.judge(points))
                for check in claim.checks
                if (points := _points(check, find))
            )
        case Rank() as rule:
            return worst_of(
                (
                    f"{check.more}, {check.experiment}",
                    rule.judge(check.more, ranked.get(check.experiment, ())),
                )
                for check in claim.checks
            )
        case Ahead() as rule:
            return worst_of(
                (
                    f"{check.more} against {check.than}, {check.experiment}",
                    rule.judge(check.more, check.than, ranked.get(check.experiment, ())),
                )
                for check in claim.checks
            )
        case Similar() as rule:
            return worst_of(
                (sides, rule.judge(ours, theirs)) for sides, ours, theirs in _compared(claim, find)
            )
        case Order(some=False):
            return _judge_order(claim, find)
    return None


def _points(check: Check, find: Find) -> list[tuple[str, Summary]]:
    """Return the simulated points of a single case."""
    found = ((point, find(check.experiment, check.more, check.measure, point)) for point in check.points)
    return [(point, value) for point, value in found if value is not None]


def _compared(claim: Claim, find: Find) -> Iterator[tuple[str, Summary, Summary]]:
    """Yield the simulated comparisons with both values."""
    for check in claim.checks:
        for point in check.points:
            ours, theirs = (find(*side, point) for side in check.sides)
            if ours is not None and theirs is not None:
                yield f"{check.described}{', ' + point if point else ''}", ours, theirs


def _judge_order(claim: Claim, find: Find) -> Verdict | None:
    failing, total = [], 0
    for sides, ours, theirs in _compared(claim, find):
        total += 1
        gap = apart(ours, theirs)
        if gap.mean is None or gap.low is None or gap.high is None:
            failing.append(f"{sides}: no value")
        elif gap.low <= 0:
            failing.append(f"{sides}: {brief(gap.mean, 3)} [{brief(gap.low, 3)}, {brief(gap.high, 3)}]")
    if not total:
        return None
    if not failing:
        return Verdict(REPRODUCED, f"holds in {plural(total, 'comparison')}{UNPAIRED}")
    fails = f"fails in {len(failing)} of {plural(total, 'comparison')}: {join_reasons(failing)}"
    return Verdict(NOT_REPRODUCED, f"{fails}{UNPAIRED}")


def worst_of(found: Iterator[tuple[str, Verdict]]) -> Verdict | None:
    """Return the worst of several verdicts with the reasons of those that share it; `None` without any."""
    every = list(found)
    if len(every) <= 1:
        return every[0][1] if every else None
    worst = max((verdict.verdict for _, verdict in every), key=VERDICTS.index)
    reasons = [f"{sides}: {verdict.reason}" for sides, verdict in every if verdict.verdict == worst]
    return Verdict(worst, f"{len(reasons)} of {len(every)} comparisons: {join_reasons(reasons)}")


def join_reasons(texts: Sequence[str]) -> str:
    """Return the first reasons, and the number of the others."""
    rest = len(texts) - NAMED
    return "; ".join(texts[:NAMED]) + (f", and {rest} more" if rest > 0 else "")
