"""Rules that compute verdicts. A paper's data name one, with its parameters, beside each claim.

docs/reproduce.md defines the verdicts.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bentpipe.format import brief, likelihood, number
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
    "RULES",
    "VERDICTS",
    "Agree",
    "CellRule",
    "Change",
    "Formula",
    "Gain",
    "Near",
    "Order",
    "Ratio",
    "Rule",
    "Verdict",
    "formula_from",
    "marks_to_window",
    "mean_of",
    "prediction",
    "quotients",
    "within_from",
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
    def judge(
        self,
        printed: float,
        ours: Values,
        *,
        base: tuple[str, float, Values] | None = None,
    ) -> Verdict:
        """Compare `ours` with `printed`; `base` is the baseline of directions: name, printed, ours."""


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

    def judge(
        self,
        printed: float,
        ours: Values,
        *,
        base: tuple[str, float, Values] | None = None,
    ) -> Verdict:
        """Compare `ours` with `printed`; `base` is the baseline of directions: name, printed, ours."""
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
        """Return whether the model agrees, and both values with their difference."""
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
        """Return whether `more` is significantly above `less`, and the paired difference.

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

Rule = CellRule | Agree | Order | Change | Ratio | Gain


def within_from(table: TomlTable) -> float:
    """Read an allowed difference as a share."""
    within = table.take("within", float)
    if not 0 < within < 1:
        raise table.error("within", within, "above 0 and below 1")
    return within


def _claimed_range(table: TomlTable) -> tuple[float, float]:
    low, high = table.take("low", float, -math.inf), table.take("high", float, math.inf)
    if not low < high or (math.isinf(low) and math.isinf(high)):
        raise table.error("low", low, "at least one of low and high, low below high")
    return low, high


RULES: dict[str, Callable[[str, TomlTable], Rule]] = {
    "near": lambda name, table: Near(name, within_from(table), table.integer("runs", 5, least=2)),
    "agree": lambda name, table: Agree(name, within_from(table)),
    "order": lambda name, table: Order(name, table.take("some", bool, default=False)),
    "change": lambda name, table: Change(name, *_claimed_range(table)),
    "ratio": lambda name, table: Ratio(name, within_from(table)),
    "gain": lambda name, table: Gain(name, *_claimed_range(table), table.choice("of", GAINS, "mean")),
}
"""Readers of the rules in a paper's data, by kind."""


@dataclass(frozen=True, slots=True)
class Formula:
    """A printed integer that follows from a formula without a simulation, and our value of it."""

    text: str
    """Description of the formula."""
    printed: float
    ours: float

    @property
    def rule(self) -> str:
        """Description of the rule."""
        return f"{self.text}; it must equal the printed number"

    def judge(self) -> Verdict:
        """Compare the two exact values."""
        verdict = REPRODUCED if self.ours == self.printed else NOT_REPRODUCED
        return Verdict(verdict, f"{number(self.ours)}, printed {number(self.printed)}")


def marks_to_window(limit: float, window: float, decr: float) -> int:
    """Return the number of cuts by the factor `decr`, 0 to 1, that bring a limit below a window [both bytes].

    The least n with `limit decr^n < window` ([B07] equation 2.1 without growth between the marks).
    """
    if window > limit:
        return 0
    return math.floor(math.log(window / limit) / math.log(decr)) + 1


def formula_from(table: TomlTable) -> Formula:
    """Read a formula: `law` (only `marks to window`), its inputs, and the `printed` number."""
    table.choice("law", ["marks to window"])
    limit, window, decr = (table.take(key, float) for key in ("limit_bytes", "window_bytes", "decr"))
    if not 0 < decr < 1:
        raise table.error("decr", decr, "above 0 and below 1")
    if not 0 < window <= limit:
        raise table.error("window_bytes", window, f"above 0 and at most {limit:g}")
    text = f"the least n with {limit:g} B × {decr:g}^n below {window:g} B"
    return Formula(text, table.take("printed", float), marks_to_window(limit, window, decr))


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


def _direction(printed: float, ours: Values, base: tuple[str, float, Values]) -> tuple[bool, str]:
    """Return whether the paired difference to `base` significantly has the printed sign, and why."""
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
