"""Rules on means with their 95 % intervals: points of a curve, bounds, similar settings, and ranks.

They need no single runs, so they also judge the values that a paper's file of all numbers keeps.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

from bentpipe.format import brief, plural
from bentpipe.reproduction.rules import (
    DIRECTION_ONLY,
    NOT_REPRODUCED,
    REPRODUCED,
    RULES,
    Rule,
    Verdict,
    within_from,
)
from bentpipe.reproduction.toml_table import TomlTable
from bentpipe.stats.intervals import Summary

__all__ = [
    "SHAPES",
    "About",
    "Ahead",
    "Bound",
    "Curve",
    "MeanRule",
    "Rank",
    "Similar",
    "Weaker",
    "apart",
    "rule_from",
]

SHAPES = ("rises", "falls", "rises then falls", "falls then rises", "constant")
"""Claimed shapes of a curve."""

Points = Sequence[tuple[str, Summary]]
"""Points of a curve in the order of the axis: label and value."""


def apart(ours: Summary, theirs: Summary) -> Summary:
    """Return the difference of two independent means with its 95 % interval.

    Each end of the interval has the distance from the difference that the two ends concerned have from their
    means, added as squares (Zou and Donner 2008). A value without an interval, as of a fluid model, is exact.
    """
    if ours.mean is None or theirs.mean is None:
        return Summary(None, None, None, 0)
    (low, high), (least, most) = _ends(ours), _ends(theirs)
    gap = ours.mean - theirs.mean
    below = math.hypot(ours.mean - low, most - theirs.mean)
    above = math.hypot(high - ours.mean, theirs.mean - least)
    return Summary(gap, None, None, min(ours.runs, theirs.runs), gap - below, gap + above)


def _ends(value: Summary) -> tuple[float, float]:
    mean = value.mean or 0.0
    return (mean if value.low is None else value.low, mean if value.high is None else value.high)


def _is_above(ours: Summary, theirs: Summary) -> bool:
    """Return whether a mean is significantly above another."""
    low = apart(ours, theirs).low
    return low is not None and low > 0


@dataclass(frozen=True, slots=True)
class Curve:
    """Rule: a measure has a claimed shape over the points of an axis."""

    name: str
    shape: str
    """One of `SHAPES`."""
    within: float = 0.0
    """For a constant curve: allowed difference from the mean of its points, as a share of that mean."""

    @property
    def text(self) -> str:
        """Description of the rule."""
        if self.shape == "constant":
            return f"every point of the curve is within {100 * self.within:g} % of the mean of all points"
        if self.shape in _ENDS:
            return (
                f"the curve {self.shape}: its last point is significantly {_ENDS[self.shape]} its first, and"
                " no later point is significantly on the opposite side of an earlier one; direction only:"
                " the first of these alone"
            )
        first, second = self.shape.split(" then ")
        return f"up to one of its inner points the curve {first}, and from there on it {second}"

    def judge(self, points: Points) -> Verdict:
        """Judge one curve."""
        known = [(label, value) for label, value in points if value.mean is not None]
        if len(known) < max(2, len(points)):
            return Verdict(NOT_REPRODUCED, "not every point has a value")
        if self.shape == "constant":
            return self._judge_constant(known)
        if self.shape in _ENDS:
            return _judge_trend(known, rises=self.shape == "rises")
        rises = self.shape.startswith("rises")
        for place in range(1, len(known) - 1):
            halves = (known[: place + 1], rises), (known[place:], not rises)
            if all(_judge_trend(half, rises=up).verdict == REPRODUCED for half, up in halves):
                return Verdict(REPRODUCED, f"turns at {known[place][0]}: {_course(known)}")
        return Verdict(NOT_REPRODUCED, f"no turn: {_course(known)}")

    def _judge_constant(self, points: Points) -> Verdict:
        mean = math.fsum(value.mean or 0.0 for _, value in points) / len(points)
        label, worst = max(points, key=lambda each: abs((each[1].mean or 0.0) - mean))
        off = abs((worst.mean or 0.0) - mean) / abs(mean) if mean else math.inf
        verdict = REPRODUCED if off <= self.within else NOT_REPRODUCED
        return Verdict(
            verdict, f"{brief(100 * off, 2)} % off the mean at {label}, allowed {100 * self.within:g} %"
        )


_ENDS = {"rises": "above", "falls": "below"}
"""Shapes without a turn, and the side of the first point on which the last one is."""


def _judge_trend(points: Points, *, rises: bool) -> Verdict:
    """Judge a curve that rises, or falls."""

    def follows(later: Summary, earlier: Summary) -> bool:
        return _is_above(later, earlier) if rises else _is_above(earlier, later)

    (first, start), (last, end) = points[0], points[-1]
    if not follows(end, start):
        opposite = follows(start, end)
        side = "on the opposite side of" if opposite else "not significantly different from"
        return Verdict(NOT_REPRODUCED, f"{last} is {side} {first}: {_course(points)}")
    back = [(a, b) for (a, value), (b, later) in combinations(points, 2) if follows(value, later)]
    if back:
        return Verdict(DIRECTION_ONLY, f"turns between {back[0][0]} and {back[0][1]}: {_course(points)}")
    return Verdict(REPRODUCED, _course(points))


def _course(points: Points) -> str:
    return ", ".join(f"{brief(value.mean or 0.0, 3)} at {label}" for label, value in points)


@dataclass(frozen=True, slots=True)
class Bound:
    """Rule: a measure is above or below a number of the text."""

    name: str
    low: float
    """Number that it must exceed; minus infinity without."""
    high: float
    """Number that it must stay below; infinity without."""

    @property
    def text(self) -> str:
        """Description of the rule."""
        return f"the 95 % interval of the mean is {self._range}"

    @property
    def _range(self) -> str:
        above = f"above {self.low:g}" if self.low > -math.inf else ""
        below = f"below {self.high:g}" if self.high < math.inf else ""
        return " and ".join(each for each in (above, below) if each)

    def judge(self, points: Points) -> Verdict:
        """Judge the values of one case at every point."""
        for label, value in points:
            if value.mean is None:
                return Verdict(NOT_REPRODUCED, "not every point has a value")
            low, high = _ends(value)
            if not (low > self.low and high < self.high):
                at = f" at {label}" if label else ""
                return Verdict(NOT_REPRODUCED, f"{_value(value)}{at}, claimed {self._range}")
        return Verdict(
            REPRODUCED, f"{'; '.join(_value(value) for _, value in points)}, claimed {self._range}"
        )


@dataclass(frozen=True, slots=True)
class About:
    """Rule: a measure is within a share of a number of the text."""

    name: str
    printed: float
    within: float
    """Allowed difference as a share of the printed number."""

    @property
    def text(self) -> str:
        """Description of the rule."""
        return f"the mean is within {100 * self.within:g} % of the printed {self.printed:g}"

    def judge(self, points: Points) -> Verdict:
        """Judge the values of one case at every point."""
        values = "; ".join("no value" if value.mean is None else _value(value) for _, value in points)
        near = all(
            value.mean is not None and abs(value.mean - self.printed) <= self.within * abs(self.printed)
            for _, value in points
        )
        text = f"{values}, printed {self.printed:g}, allowed {100 * self.within:g} %"
        return Verdict(REPRODUCED if near else NOT_REPRODUCED, text)


@dataclass(frozen=True, slots=True)
class Similar:
    """Rule: a measure of one setting is within a share of another's."""

    name: str
    within: float
    """Allowed difference as a share of the other's mean."""

    @property
    def text(self) -> str:
        """Description of the rule."""
        return f"the means differ by at most {100 * self.within:g} % of the second"

    def judge(self, ours: Summary, theirs: Summary) -> Verdict:
        """Compare two settings."""
        if ours.mean is None or theirs.mean is None:
            return Verdict(NOT_REPRODUCED, "one of the two has no value")
        off = abs(ours.mean - theirs.mean)
        verdict = REPRODUCED if off <= self.within * abs(theirs.mean) else NOT_REPRODUCED
        share = f"{brief(100 * off / abs(theirs.mean), 2)} % apart" if theirs.mean else "no share of 0"
        return Verdict(
            verdict,
            f"{brief(ours.mean, 3)} and {brief(theirs.mean, 3)}, {share}, allowed {100 * self.within:g} %",
        )


@dataclass(frozen=True, slots=True)
class Weaker:
    """Rule: the change from one setting to another is smaller in one experiment than in another."""

    name: str

    @property
    def text(self) -> str:
        """Description of the rule."""
        return (
            "the mean paired change is smaller than in the other experiment, and the 95 % interval of the"
            " difference of the two excludes zero"
        )

    def judge(self, ours: Summary, theirs: Summary) -> Verdict:
        """Compare two changes [%]."""
        if ours.mean is None or theirs.mean is None:
            return Verdict(NOT_REPRODUCED, "no pair of our runs has a value")
        text = f"change of {_value(ours)} %, in the other experiment {_value(theirs)} %"
        return Verdict(REPRODUCED if _is_above(theirs, ours) else NOT_REPRODUCED, text)


@dataclass(frozen=True, slots=True)
class Rank:
    """Rule: settings of one AQM take the first places of a search by rank sums."""

    name: str
    places: int
    """Number of first places that are all claimed."""

    @property
    def text(self) -> str:
        """Description of the rule."""
        return f"in the last round of the search its settings take the first {plural(self.places, 'place')}"

    def judge(self, case: str, ranked: Sequence[str]) -> Verdict:
        """Judge the AQMs of the ranked settings, the best first."""
        if not ranked:
            return Verdict(NOT_REPRODUCED, "no settings were ranked")
        mine = [place for place, aqm in enumerate(ranked, start=1) if aqm == case]
        verdict = REPRODUCED if mine[: self.places] == list(range(1, self.places + 1)) else NOT_REPRODUCED
        return Verdict(verdict, f"places {', '.join(map(str, mine)) or 'none'} of {len(ranked)}")


@dataclass(frozen=True, slots=True)
class Ahead:
    """Rule: the best setting of one AQM has a better place in a search than that of another."""

    name: str

    @property
    def text(self) -> str:
        """Description of the rule."""
        return "in the last round of the search its best setting has the better place"

    def judge(self, more: str, than: str, ranked: Sequence[str]) -> Verdict:
        """Compare two AQMs by the AQMs of the ranked settings, the best first."""
        if more not in ranked or than not in ranked:
            return Verdict(NOT_REPRODUCED, "one of the two was not ranked")
        ours, theirs = ranked.index(more) + 1, ranked.index(than) + 1
        text = f"place {ours}, {than} {theirs} of {len(ranked)}"
        return Verdict(REPRODUCED if ours < theirs else NOT_REPRODUCED, text)


MeanRule = Curve | Bound | About | Similar | Weaker | Rank | Ahead


def _value(value: Summary) -> str:
    mean = brief(value.mean or 0.0, 3)
    if value.low is None or value.high is None:
        return mean
    return f"{mean} [{brief(value.low, 3)}, {brief(value.high, 3)}]"


def _curve(name: str, table: TomlTable) -> Curve:
    shape = table.choice("shape", SHAPES)
    return Curve(name, shape, within_from(table) if shape == "constant" else 0.0)


def _bound(name: str, table: TomlTable) -> Bound:
    low, high = table.take("above", float, -math.inf), table.take("below", float, math.inf)
    if not low < high or (math.isinf(low) and math.isinf(high)):
        raise table.error("above", low, "at least one of above and below, above less than below")
    return Bound(name, low, high)


_MEAN_RULES: dict[str, Callable[[str, TomlTable], MeanRule]] = {
    "curve": _curve,
    "bound": _bound,
    "about": lambda name, table: About(name, table.take("printed", float), within_from(table)),
    "similar": lambda name, table: Similar(name, within_from(table)),
    "weaker": lambda name, _: Weaker(name),
    "ahead": lambda name, _: Ahead(name),
    "rank": lambda name, table: Rank(name, table.integer("places")),
}
"""Readers of the rules on means, by kind."""


def rule_from(name: str, table: TomlTable) -> Rule | MeanRule:
    """Read a rule of a paper's data: `kind`, and the parameters of that kind."""
    kind = table.choice("kind", [*RULES, *_MEAN_RULES])
    return RULES[kind](name, table) if kind in RULES else _MEAN_RULES[kind](name, table)
