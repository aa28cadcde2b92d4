"""The rules by which verdicts are computed; a paper's data names one with its parameters beside each claim.

docs/reproduce.md says what each verdict means.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bentpipe.format import brief, likelihood
from bentpipe.reproduction.table import Table
from bentpipe.stats.intervals import Summary, half_width, paired, summarise

__all__ = [
    "CALIBRATED",
    "DIRECTION_ONLY",
    "NOT_REPRODUCED",
    "NO_NUMBER",
    "REPRODUCED",
    "RULES",
    "VERDICTS",
    "Agree",
    "Change",
    "Gain",
    "Near",
    "Order",
    "Ratio",
    "Rule",
    "Verdict",
    "mean_of",
    "prediction",
    "rule_from",
]

REPRODUCED, DIRECTION_ONLY, NOT_REPRODUCED = "reproduced", "direction only", "not reproduced"
CALIBRATED, NO_NUMBER = "calibrated", "no number survives"
VERDICTS = (REPRODUCED, DIRECTION_ONLY, NOT_REPRODUCED, CALIBRATED, NO_NUMBER)

Values = Sequence[float | None]
"""One value a run, in the order of seeds; None where a run has none."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a rule says, and why in words with the numbers."""

    verdict: str
    reason: str


@dataclass(frozen=True, slots=True)
class Near:
    """A printed value is met within a share of it, or lies where a run of ours would be expected."""

    name: str
    within: float
    """Allowed difference as a share of the printed value."""
    runs: int = 5
    """Runs from which on the prediction interval is asked; of fewer it is so wide that it would hold most."""

    @property
    def text(self) -> str:
        """The rule in words."""
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
        """Judge `ours` beside `printed`; `base` is what its direction is told from: name, printed, ours."""
        found = summarise(ours)
        if found.mean is None:
            return Verdict(NOT_REPRODUCED, "no run of ours has a value")
        apart = _apart(printed, found.mean)
        if abs(found.mean - printed) <= self.within * abs(printed):
            return Verdict(REPRODUCED, f"{apart}, allowed {100 * self.within:g} %")
        low, high = prediction(found) if found.runs >= self.runs else (math.nan, math.nan)
        if low <= printed <= high:
            return Verdict(REPRODUCED, f"{apart}, inside our prediction interval")
        if base is None:
            return Verdict(NOT_REPRODUCED, f"{apart}, allowed {100 * self.within:g} %")
        same, why = _direction(printed, ours, base)
        return Verdict(DIRECTION_ONLY if same else NOT_REPRODUCED, f"{apart}; {why}")


@dataclass(frozen=True, slots=True)
class Agree:
    """A model is said to follow what it models: its value has to be near the simulator's."""

    name: str
    within: float
    """Allowed difference as a share of the simulator's value."""

    @property
    def text(self) -> str:
        """The rule in words."""
        return (
            f"every value of the model is within {100 * self.within:g} % of the mean of the simulator's runs"
        )

    def holds(self, model: Values, simulator: Values) -> tuple[bool, str]:
        """Return whether the model's value is near, and by how much the two differ."""
        ours, theirs = mean_of(model), mean_of(simulator)
        if ours is None or theirs is None:
            return False, "one of the two has no value"
        what = f"model {brief(ours, 4)}, simulator {brief(theirs, 4)} ({_apart(theirs, ours)})"
        return abs(ours - theirs) <= self.within * abs(theirs), what


@dataclass(frozen=True, slots=True)
class Order:
    """One setting is said to have more of something than others: each paired difference has to say so."""

    name: str

    @property
    def text(self) -> str:
        """The rule in words."""
        return "every paired difference has the claimed sign, and its 95 % interval excludes zero"

    def holds(self, more: Values, less: Values) -> tuple[bool, Summary]:
        """Return whether `more` is above `less` beyond chance, and the paired difference."""
        found = paired(more, less)
        return found.low is not None and found.low > 0, found


@dataclass(frozen=True, slots=True)
class Change:
    """One setting is said to have so many per cent more or less of something than another."""

    name: str
    low: float
    """Least of the claimed change [%]; minus infinity where the claim has none."""
    high: float
    """Most of it [%]; infinity where it has none."""

    @property
    def text(self) -> str:
        """The rule in words."""
        return (
            f"the mean paired change is {_range(self.low, self.high)}; direction only: it has the sign of"
            " that, and its 95 % interval excludes zero"
        )

    def judge(self, ours: Values, base: Values) -> tuple[Verdict, Summary]:
        """Judge by how many per cent `ours` is above `base`, run by run; return that, too."""
        changes = [_percent(a, b) for a, b in zip(ours, base, strict=True)]
        found = summarise(changes)
        if found.mean is None:
            return Verdict(NOT_REPRODUCED, "no two runs of ours have a value"), found
        what = f"{_signed(found.mean)} %{_between(found)}, claimed {_range(self.low, self.high)}"
        if self.low <= found.mean <= self.high:
            return Verdict(REPRODUCED, what), found
        same = (self.low >= 0 and found.low is not None and found.low > 0) or (
            self.high <= 0 and found.high is not None and found.high < 0
        )
        return Verdict(DIRECTION_ONLY if same else NOT_REPRODUCED, what), found


@dataclass(frozen=True, slots=True)
class Ratio:
    """Two printed values are so many times each other: ours have to be nearly as many times, and no less."""

    name: str
    within: float
    """Allowed difference as a share of the printed ratio."""

    @property
    def text(self) -> str:
        """The rule in words."""
        return (
            f"the mean of the runs' ratios is within {100 * self.within:g} % of the printed ratio, and their"
            " 95 % interval is on the printed side of 1; direction only: the latter alone"
        )

    def judge(self, printed: float, ours: Values) -> Verdict:
        """Judge the runs' ratios `ours` beside the printed one."""
        found = summarise(ours)
        if found.mean is None:
            return Verdict(NOT_REPRODUCED, "no two runs of ours have a value")
        what = f"× {brief(found.mean, 4)}, printed × {brief(printed, 4)}"
        near = abs(found.mean - printed) <= self.within * abs(printed)
        if printed == 1:
            return Verdict(REPRODUCED if near else NOT_REPRODUCED, what)
        edge = found.low if printed > 1 else found.high
        same = edge is not None and (edge > 1 if printed > 1 else edge < 1)
        if same:
            return Verdict(REPRODUCED if near else DIRECTION_ONLY, what)
        other = (
            found.high is not None
            and found.low is not None
            and (found.high < 1 if printed > 1 else found.low > 1)
        )
        why = "on the other side of 1" if other else "not told from 1"
        return Verdict(NOT_REPRODUCED, f"{what}: {why}")


@dataclass(frozen=True, slots=True)
class Gain:
    """One setting is said to be so many per cent better than several others, in one measure or over some."""

    name: str
    low: float
    """Least of the claimed gain [%], minus infinity where the claim has none; negative: so much is lost."""
    high: float
    """Most of it [%]; infinity where it has none."""
    of: str
    """What of the comparisons has to be between them: one of `GAINS`."""

    @property
    def text(self) -> str:
        """The rule in words."""
        return (
            f"{GAINS[self.of]} is {_range(self.low, self.high)}, where + is better; direction only: the sign"
            " of that, beyond chance"
        )

    def judge(self, gains: Mapping[str, Values]) -> tuple[Verdict, Summary]:
        """Judge by how many per cent a setting is better than each of `gains`, run by run."""
        found = {name: summarise(values) for name, values in gains.items()}
        means = {name: each.mean for name, each in found.items() if each.mean is not None}
        if not means or len(means) < len(found):
            missing = ", ".join(name for name in found if name not in means)
            return Verdict(NOT_REPRODUCED, f"no two runs of ours have a value: {missing}"), _NOTHING
        each_of = ", ".join(f"{name} {_signed(mean)}" for name, mean in means.items())
        if self.of == "greatest":
            first = max(means, key=lambda name: means[name])
            asked, head = [found[first]], f"{_signed(means[first])} %{_between(found[first])} over {first}"
        elif self.of == "each":
            least = min(means, key=lambda name: means[name])
            asked = list(found.values())
            head = f"{_signed(means[least])} %{_between(found[least])} at least"
        else:
            asked = [summarise([mean_of(row) for row in zip(*gains.values(), strict=True)])]
            head = f"{_signed(asked[0].mean or 0.0)} %{_between(asked[0])}"
        what = f"{head}, claimed {_range(self.low, self.high)} ({each_of})"
        mine = (
            asked[0]
            if len(asked) == 1
            else summarise([mean_of(r) for r in zip(*gains.values(), strict=True)])
        )
        if all(each.mean is not None and self.low <= each.mean <= self.high for each in asked):
            return Verdict(REPRODUCED, what), mine
        same = all(
            (self.low >= 0 and each.low is not None and each.low > 0)
            or (self.high <= 0 and each.high is not None and each.high < 0)
            for each in asked
        )
        return Verdict(DIRECTION_ONLY if same else NOT_REPRODUCED, what), mine


GAINS = {
    "mean": "the mean paired gain over all others",
    "greatest": "the greatest of the mean paired gains over the others",
    "each": "every mean paired gain over another",
}
"""What of several comparisons a claim is about."""
_NOTHING = Summary(None, None, None, 0)

Rule = Near | Agree | Order | Change | Ratio | Gain


def _within(given: Table) -> float:
    within = given.take("within", float)
    if not 0 < within < 1:
        raise given.wrong("within", within, "above 0 and below 1")
    return within


def _near(name: str, given: Table) -> Rule:
    return Near(name, _within(given), given.whole("runs", 5, least=2))


def _agree(name: str, given: Table) -> Rule:
    return Agree(name, _within(given))


def _order(name: str, given: Table) -> Rule:
    del given
    return Order(name)


def _change(name: str, given: Table) -> Rule:
    low, high = given.take("low", float, -math.inf), given.take("high", float, math.inf)
    if not low < high or (math.isinf(low) and math.isinf(high)):
        raise given.wrong("low", low, "one of low and high at least, low the lesser")
    return Change(name, low, high)


def _ratio(name: str, given: Table) -> Rule:
    return Ratio(name, _within(given))


def _gain(name: str, given: Table) -> Rule:
    of, change = given.choice("of", GAINS, "mean"), _change(name, given)
    assert isinstance(change, Change)  # noqa: S101
    return Gain(name, change.low, change.high, of)


RULES = {"near": _near, "agree": _agree, "order": _order, "change": _change, "ratio": _ratio, "gain": _gain}
"""What reads each kind of rule from a paper's data."""


def rule_from(name: str, given: Table) -> Rule:
    """Read a rule of a paper's data: `kind`, and the parameters of that kind."""
    rule = RULES[given.choice("kind", RULES)](name, given)
    given.done()
    return rule


def prediction(found: Summary) -> tuple[float, float]:
    """Return where one more run would be in 95 of 100 cases (Student); NaN below two runs.

    With n runs of mean m and deviation s it is m ± t s sqrt(1 + 1/n), which is the confidence interval's
    half-width times sqrt(n + 1).
    """
    if found.mean is None or found.std is None or found.runs < 2:
        return math.nan, math.nan
    half = half_width(found.std, found.runs) * math.sqrt(found.runs + 1)
    return found.mean - half, found.mean + half


def _direction(printed: float, ours: Values, base: tuple[str, float, Values]) -> tuple[bool, str]:
    """Return whether the paired difference to `base` has the printed sign beyond chance, and say so."""
    name, theirs, others = base
    step, found = printed - theirs, paired(ours, others)
    if step == 0 or found.mean is None or found.low is None or found.high is None:
        return False, f"nothing tells its direction from {name}"
    same = found.low > 0 if step > 0 else found.high < 0
    side = "above" if step > 0 else "below"
    if same:
        return True, f"{side} {name}, as printed (p {likelihood(found.p)})"
    other = found.high < 0 if step > 0 else found.low > 0
    return False, f"printed {side} {name}, ours {'on the other side' if other else 'not told from it'}"


def _apart(printed: float, mean: float) -> str:
    if printed == 0:
        return f"{_signed(mean)} from 0"
    return f"{_signed(100 * (mean - printed) / abs(printed))} %"


def _signed(value: float) -> str:
    text = brief(value, 3 if abs(value) >= 10 else 2)
    return text if text.startswith("−") or value == 0 else f"+{text}"


def _between(found: Summary) -> str:
    if found.low is None or found.high is None:
        return ""
    return f" [{_signed(found.low)}, {_signed(found.high)}]"


def _range(low: float, high: float) -> str:
    if low == -math.inf:
        return f"at most {_signed(high)} %"
    if high == math.inf:
        return f"at least {_signed(low)} %"
    return f"{_signed(low)} to {_signed(high)} %"


def mean_of(values: Values) -> float | None:
    """Return the mean of some values; None if one of them is missing."""
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known and len(known) == len(values) else None


def _percent(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None or b == 0 else 100 * (a - b) / abs(b)
