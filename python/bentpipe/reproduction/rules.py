"""Rules that compute verdicts. A paper's data name one, with its parameters, beside each claim.

docs/reproduce.md defines the verdicts.
"""

import csv
import io
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import ClassVar

from bentpipe.format import brief, likelihood, number, plural
from bentpipe.reproduction.toml_table import TomlTable
from bentpipe.stats.intervals import Summary, half_width, paired, summarise

__all__ = [
    "CALIBRATED_AGREES",
    "CALIBRATED_DIFFERS",
    "DIRECTION_ONLY",
    "MAGNITUDE_DIFFERS",
    "NOTHING",
    "NOT_REPRODUCED",
    "NO_NUMBER",
    "REPRODUCED",
    "VERDICTS",
    "About",
    "Agree",
    "Ahead",
    "Bound",
    "CellRule",
    "Change",
    "Curve",
    "Formula",
    "Gain",
    "MeanRule",
    "Near",
    "Order",
    "Rank",
    "Ratio",
    "Similar",
    "Verdict",
    "Weaker",
    "apart",
    "formula_from",
    "marks_to_window",
    "mean_of",
    "prediction",
    "quotients",
    "rule_from",
]

REPRODUCED, DIRECTION_ONLY, NOT_REPRODUCED = "reproduced", "direction only", "not reproduced"
CALIBRATED_AGREES, CALIBRATED_DIFFERS = "calibrated, agrees", "calibrated, differs"
MAGNITUDE_DIFFERS, NO_NUMBER = "order of magnitude differs", "no number survives"
VERDICTS = (
    REPRODUCED,
    CALIBRATED_AGREES,
    DIRECTION_ONLY,
    CALIBRATED_DIFFERS,
    NOT_REPRODUCED,
    MAGNITUDE_DIFFERS,
    NO_NUMBER,
)
"""Verdicts, from the best to the worst."""
_MAGNITUDE = 10.0
"""Factor from the printed value from which on the order of magnitude differs."""
NOTHING = Summary(None, None, None, 0)
"""Summary of no runs."""

Values = Sequence[float | None]
"""One value per run, in the order of seeds; `None` for a run without a value."""
Baseline = tuple[str, float, Values]
"""Row from which a direction is judged: its name, its printed value and ours."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Verdict of a rule and its reason, with the numbers."""

    verdict: str
    reason: str


class CellRule(ABC):
    """Rule for a printed value of a table."""

    name: str

    @property
    @abstractmethod
    def text(self) -> str:
        """Description of the rule."""

    @abstractmethod
    def judge(self, printed: float, ours: Values, *, base: Baseline | None = None) -> Verdict:
        """Compare `ours` with `printed`."""


@dataclass(frozen=True, slots=True)
class Near(CellRule):
    """Rule: ours is within a share of the printed value, or the latter is in our prediction interval."""

    name: str
    within: float
    """Allowed difference as a share of the printed value."""
    runs: int = 5
    """Fewest runs for the prediction interval to count; that of fewer runs covers almost any value."""

    @property
    def text(self) -> str:
        """Description of the rule."""
        return (
            f"within {100 * self.within:g} % of the printed value, or the printed value inside our 95 %"
            f" prediction interval ({self.runs} runs or more)"
        )

    def judge(self, printed: float, ours: Values, *, base: Baseline | None = None) -> Verdict:
        """Compare `ours` with `printed`."""
        found = summarise(ours)
        if found.mean is None:
            return Verdict(NOT_REPRODUCED, "none of our runs has a value")
        apart = _deviation(printed, found.mean)
        if abs(found.mean - printed) <= self.within * abs(printed):
            return Verdict(REPRODUCED, f"{apart}, allowed {100 * self.within:g} %")
        low, high = prediction(found) if found.runs >= self.runs else (math.nan, math.nan)
        if low <= printed <= high:
            return Verdict(REPRODUCED, f"{apart}, inside our prediction interval")
        if base is None:
            return _missed(printed, found.mean, NOT_REPRODUCED, f"{apart}, allowed {100 * self.within:g} %")
        same, why = _direction(printed, ours, base)
        verdict = DIRECTION_ONLY if same else NOT_REPRODUCED
        return _missed(printed, found.mean, verdict, f"{apart}; {why}")


@dataclass(frozen=True, slots=True)
class Agree:
    """Rule: a model's value is within a share of the simulator's mean."""

    name: str
    within: float
    """Allowed difference as a share of the simulator's value."""

    @property
    def text(self) -> str:
        """Description of the rule."""
        return (
            f"every value of the model is within {100 * self.within:g} % of the mean of the simulator's runs"
        )

    def holds(self, model: Values, simulator: Values) -> tuple[bool, str]:
        """Return True if the model agrees, and both values with their difference."""
        ours, theirs = mean_of(model), mean_of(simulator)
        if ours is None or theirs is None:
            return False, "one of the two has no value"
        text = f"model {brief(ours, 4)}, simulator {brief(theirs, 4)} ({_deviation(theirs, ours)})"
        return abs(ours - theirs) <= self.within * abs(theirs), text


@dataclass(frozen=True, slots=True)
class Order:
    """Rule: one setting has more of a measure than others, in each paired difference or in some."""

    name: str
    some: bool = False
    """True if one comparison is enough, after Holm's correction for their number."""

    @property
    def text(self) -> str:
        """Description of the rule."""
        if self.some:
            return (
                "at least one paired difference has the claimed sign, with a p-value below 0.05 after Holm's"
                " correction for the number of comparisons"
            )
        return (
            "every paired difference has the claimed sign, and its 95 % interval excludes zero; a fluid model"
            " has one value without an interval"
        )

    def holds(self, more: Values, less: Values, *, exact: bool = False) -> tuple[bool, Summary]:
        """Return True if `more` is significantly above `less`, and the paired difference.

        Values that are `exact`, of a fluid model, have no interval: the sign decides.
        """
        found = paired(more, less)
        if exact:
            return found.mean is not None and found.mean > 0, found
        return found.low is not None and found.low > 0, found


@dataclass(frozen=True, slots=True)
class Change:
    """Rule: the paired change from one setting to another is within a range."""

    name: str
    low: float
    """Smallest claimed change [%]; minus infinity without a bound."""
    high: float
    """Largest claimed change [%]; infinity without a bound."""

    @property
    def text(self) -> str:
        """Description of the rule."""
        return (
            f"the mean paired change is {_range(self.low, self.high)}; direction only: it has the claimed"
            " sign, and its 95 % interval excludes zero"
        )

    def judge(self, ours: Values, base: Values) -> tuple[Verdict, Summary]:
        """Judge the change of each run of `ours` from `base` [%], and return it too."""
        found = summarise(
            [100 * (a - b) / abs(b) if a is not None and b else None for a, b in zip(ours, base, strict=True)]
        )
        if found.mean is None:
            return Verdict(NOT_REPRODUCED, "no pair of our runs has a value"), found
        text = f"{_signed(found.mean)} %{_interval(found)}, claimed {_range(self.low, self.high)}"
        return Verdict(_judge_range(self.low, self.high, [found]), text), found


@dataclass(frozen=True, slots=True)
class Ratio:
    """Rule: the ratio of two of our values is within a share of the printed ratio, on the same side of 1."""

    name: str
    within: float
    """Allowed difference as a share of the printed ratio."""

    @property
    def text(self) -> str:
        """Description of the rule."""
        return (
            f"the mean of the runs' ratios is within {100 * self.within:g} % of the printed ratio, and their"
            " 95 % interval is on the printed side of 1; direction only: the latter alone"
        )

    def judge(self, printed: float, ours: Values) -> Verdict:
        """Compare the runs' ratios `ours` with the printed one."""
        found = summarise(ours)
        if found.mean is None:
            return Verdict(NOT_REPRODUCED, "no pair of our runs has a value")
        text = f"× {brief(found.mean, 4)}, printed × {brief(printed, 4)}"
        near = abs(found.mean - printed) <= self.within * abs(printed)
        if printed == 1:
            return Verdict(REPRODUCED if near else NOT_REPRODUCED, text)
        above = found.low is not None and found.low > 1
        below = found.high is not None and found.high < 1
        if above if printed > 1 else below:
            return Verdict(REPRODUCED, text) if near else _missed(printed, found.mean, DIRECTION_ONLY, text)
        why = "on the opposite side of" if above or below else "not significantly different from"
        return _missed(printed, found.mean, NOT_REPRODUCED, f"{text}: {why} 1")


@dataclass(frozen=True, slots=True)
class Gain:
    """Rule: the gain of one setting over several others, in one objective or averaged over several."""

    name: str
    low: float
    """Smallest claimed gain [%]; minus infinity without a bound, negative for a loss."""
    high: float
    """Largest claimed gain [%]; infinity without a bound."""
    of: str
    """Aggregate of the gains that must be in the range: one of `GAINS`."""

    @property
    def text(self) -> str:
        """Description of the rule."""
        return (
            f"{GAINS[self.of]} is {_range(self.low, self.high)}, where + is better; direction only: it has"
            " the claimed sign, and its 95 % interval excludes zero"
        )

    def judge(self, gains: Mapping[str, Values]) -> tuple[Verdict, Summary]:
        """Judge a setting's gains over others [%], one per run, and return the aggregate too."""
        overall = summarise([mean_of(row) for row in zip(*gains.values(), strict=True)])
        return self.judge_means({name: summarise(values) for name, values in gains.items()}, overall)

    def judge_means(
        self, found: Mapping[str, Summary], overall: Summary = NOTHING
    ) -> tuple[Verdict, Summary]:
        """Judge the mean gains over others; only the rule of their mean needs `overall`."""
        means = {name: each.mean for name, each in found.items() if each.mean is not None}
        if not means or len(means) < len(found):
            missing = ", ".join(name for name in found if name not in means)
            return Verdict(NOT_REPRODUCED, f"no pair of our runs has a value: {missing}"), NOTHING
        required = [overall]
        head = f"{_signed(overall.mean or 0.0)} %{_interval(overall)}"
        if self.of == "greatest":
            first = max(means, key=lambda name: means[name])
            overall, required = found[first], [found[first]]
            head = f"{_signed(means[first])} %{_interval(found[first])} over {first}"
        elif self.of == "each":
            least = min(means, key=lambda name: means[name])
            required = list(found.values())
            head = f"{_signed(means[least])} %{_interval(found[least])} at least"
        over = ", ".join(f"{name} {_signed(mean)}" for name, mean in means.items())
        text = f"{head}, claimed {_range(self.low, self.high)} ({over})"
        return Verdict(_judge_range(self.low, self.high, required), text), overall


GAINS = {
    "mean": "the mean paired gain over all others",
    "greatest": "the greatest of the mean paired gains over the others",
    "each": "each mean paired gain over another",
}
"""Aggregates of the gains over several settings, with their descriptions."""

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
    """Return True if a mean is significantly above another."""
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
    text: ClassVar = (
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
    text: ClassVar = "in the last round of the search its best setting has the better place"

    def judge(self, more: str, than: str, ranked: Sequence[str]) -> Verdict:
        """Compare two AQMs by the AQMs of the ranked settings, the best first."""
        if more not in ranked or than not in ranked:
            return Verdict(NOT_REPRODUCED, "one of the two was not ranked")
        ours, theirs = ranked.index(more) + 1, ranked.index(than) + 1
        text = f"place {ours}, {than} {theirs} of {len(ranked)}"
        return Verdict(REPRODUCED if ours < theirs else NOT_REPRODUCED, text)


Rule = CellRule | Agree | Order | Change | Ratio | Gain
"""Rule on single runs."""
MeanRule = Curve | Bound | About | Similar | Weaker | Rank | Ahead
"""Rule on means with their 95 % intervals.

It needs no single runs, so it also judges the values that a paper's file of all numbers keeps.
"""


def _within(table: TomlTable) -> float:
    """Read an allowed difference as a share."""
    within = table.take("within", float)
    if not 0 < within < 1:
        raise table.error("within", within, "above 0 and below 1")
    return within


def _range_from(table: TomlTable, least: str, most: str) -> tuple[float, float]:
    """Read a range that is open where `least` or `most` is missing."""
    low, high = table.take(least, float, -math.inf), table.take(most, float, math.inf)
    if not low < high or (math.isinf(low) and math.isinf(high)):
        raise table.error(least, low, f"at least one of {least} and {most}, {least} less than {most}")
    return low, high


def _curve(name: str, table: TomlTable) -> Curve:
    shape = table.choice("shape", SHAPES)
    return Curve(name, shape, _within(table) if shape == "constant" else 0.0)


RULES: dict[str, Callable[[str, TomlTable], Rule | MeanRule]] = {
    "near": lambda name, table: Near(name, _within(table), table.integer("runs", 5, least=2)),
    "agree": lambda name, table: Agree(name, _within(table)),
    "order": lambda name, table: Order(name, table.take("some", bool, default=False)),
    "change": lambda name, table: Change(name, *_range_from(table, "low", "high")),
    "ratio": lambda name, table: Ratio(name, _within(table)),
    "gain": lambda name, table: Gain(
        name, *_range_from(table, "low", "high"), table.choice("of", GAINS, "mean")
    ),
    "curve": _curve,
    "bound": lambda name, table: Bound(name, *_range_from(table, "above", "below")),
    "about": lambda name, table: About(name, table.take("printed", float), _within(table)),
    "similar": lambda name, table: Similar(name, _within(table)),
    "weaker": lambda name, _: Weaker(name),
    "ahead": lambda name, _: Ahead(name),
    "rank": lambda name, table: Rank(name, table.integer("places")),
}
"""Readers of the rules in a paper's data, by kind."""


def rule_from(name: str, table: TomlTable) -> Rule | MeanRule:
    """Read a rule of a paper's data: `kind`, and the parameters of that kind."""
    return RULES[table.choice("kind", RULES)](name, table)


@dataclass(frozen=True, slots=True)
class Formula:
    """A printed number that needs no simulation, and our value of it."""

    text: str
    """Description of the formula."""
    printed: float
    ours: float
    limit: bool = False
    """True if the number is an upper limit of ours."""

    @property
    def rule(self) -> str:
        """Description of the rule."""
        if self.limit:
            return f"{self.text} is at most {self.printed:g}"
        return f"{self.text}; it must equal the printed number"

    def judge(self) -> Verdict:
        """Compare the two values."""
        if self.limit:
            verdict = REPRODUCED if self.ours <= self.printed else NOT_REPRODUCED
            return Verdict(verdict, f"{brief(self.ours, 3)}, claimed at most {self.printed:g}")
        verdict = REPRODUCED if self.ours == self.printed else NOT_REPRODUCED
        return Verdict(verdict, f"{number(self.ours)}, printed {number(self.printed)}")


def marks_to_window(limit: float, window: float, decr: float) -> int:
    """Return the number of cuts by the factor `decr`, 0 to 1, that bring a limit below a window [both bytes].

    The least n with `limit decr^n < window` ([B07] equation 2.1 without growth between the marks).
    """
    if window > limit:
        return 0
    return math.floor(math.log(window / limit) / math.log(decr)) + 1


def formula_from(table: TomlTable, folder: Path) -> Formula:
    """Read a formula: its `law`, the law's inputs, and the `printed` number or the `most` that is claimed.

    Files are in `folder`.
    """
    if table.choice("law", ["marks to window", "time per packet"]) == "time per packet":
        return _time_per_packet(table, folder)
    limit, window, decr = (table.take(key, float) for key in ("limit_bytes", "window_bytes", "decr"))
    if not 0 < decr < 1:
        raise table.error("decr", decr, "above 0 and below 1")
    if not 0 < window <= limit:
        raise table.error("window_bytes", window, f"above 0 and at most {limit:g}")
    text = f"the least n with {limit:g} B × {decr:g}^n below {window:g} B"
    return Formula(text, table.take("printed", float), marks_to_window(limit, window, decr))


def _time_per_packet(table: TomlTable, folder: Path) -> Formula:
    """Read the greatest ratio of an AQM's time per packet to those of others, from a file of `make costs`."""
    file, ours, others = table.take("file", str), table.take("of", str), table.strings("than")
    text = (folder / file).read_text(encoding="utf-8")
    costs = {row["aqm"]: float(row["ns"]) for row in csv.DictReader(io.StringIO(text))}
    for key, names in (("of", [ours]), ("than", others)):
        for name in names:
            if name not in costs:
                raise table.error(key, name, ", ".join(costs))
    described = f"the greatest ratio of the time per packet of {ours} to that of {', '.join(others)}"
    ratio = max(costs[ours] / costs[name] for name in others)
    return Formula(described, table.take("most", float), ratio, limit=True)


def prediction(found: Summary) -> tuple[float, float]:
    """Return the 95 % prediction interval of one more run (Student); NaN below two runs.

    For n runs of mean m and standard deviation s it is m ± t s sqrt(1 + 1/n), the confidence interval's
    half-width times sqrt(n + 1).
    """
    if found.mean is None or found.std is None or found.runs < 2:
        return math.nan, math.nan
    half = half_width(found.std, found.runs) * math.sqrt(found.runs + 1)
    return found.mean - half, found.mean + half


def mean_of(values: Values) -> float | None:
    """Return the mean of values, or `None` if one of them is missing."""
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known and len(known) == len(values) else None


def quotients(ours: Values, theirs: Values) -> list[float | None]:
    """Return `ours` over `theirs`, run by run."""
    return [a / b if a is not None and b else None for a, b in zip(ours, theirs, strict=True)]


def _judge_range(low: float, high: float, found: Sequence[Summary]) -> str:
    """Return the verdict of means that must be between `low` and `high`, or have the range's sign."""
    if all(each.mean is not None and low <= each.mean <= high for each in found):
        return REPRODUCED
    same = all(
        (low >= 0 and each.low is not None and each.low > 0)
        or (high <= 0 and each.high is not None and each.high < 0)
        for each in found
    )
    return DIRECTION_ONLY if same else NOT_REPRODUCED


def _direction(printed: float, ours: Values, base: Baseline) -> tuple[bool, str]:
    """Return True if the paired difference to `base` significantly has the printed sign, and why."""
    name, theirs, others = base
    step, found = printed - theirs, paired(ours, others)
    if step == 0 or found.low is None or found.high is None:
        return False, f"no direction relative to {name}"
    above, below = found.low > 0, found.high < 0
    side = "above" if step > 0 else "below"
    if above if step > 0 else below:
        return True, f"{side} {name}, as printed (p {likelihood(found.p)})"
    ours_is = "on the opposite side" if above or below else "not significantly different"
    return False, f"printed {side} {name}, ours {ours_is}"


def _missed(printed: float, ours: float, verdict: str, reason: str) -> Verdict:
    """Return the verdict of a value off the printed one; with the factor if that is all, or large."""
    factor = ours / printed if printed else math.nan
    if factor > 0 and not 1 / _MAGNITUDE < factor < _MAGNITUDE:
        return Verdict(MAGNITUDE_DIFFERS, f"factor {brief(factor, 2)}; {reason}")
    if verdict == DIRECTION_ONLY and factor > 0:
        return Verdict(verdict, f"factor {brief(factor, 2)}; {reason}")
    return Verdict(verdict, reason)


def _deviation(printed: float, mean: float) -> str:
    if printed == 0:
        return f"{_signed(mean)} from 0"
    return f"{_signed(100 * (mean - printed) / abs(printed))} %"


def _signed(value: float) -> str:
    text = brief(value, 3 if abs(value) >= 10 else 2)
    return text if text.startswith("−") or value == 0 else f"+{text}"


def _interval(found: Summary) -> str:
    if found.low is None or found.high is None:
        return ""
    return f" [{_signed(found.low)}, {_signed(found.high)}]"


def _range(low: float, high: float) -> str:
    if low == -math.inf:
        return f"at most {_signed(high)} %"
    if high == math.inf:
        return f"at least {_signed(low)} %"
    return f"{_signed(low)} to {_signed(high)} %"


def _value(value: Summary) -> str:
    mean = brief(value.mean or 0.0, 3)
    if value.low is None or value.high is None:
        return mean
    return f"{mean} [{brief(value.low, 3)}, {brief(value.high, 3)}]"
