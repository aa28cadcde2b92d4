"""Means over runs with 95 % intervals, differences between settings, and corrected p-values.

docs/statistics.md gives the methods and their sources.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = [
    "BATCH_MEANS",
    "BOOTSTRAP",
    "LEVEL",
    "STUDENT",
    "Summary",
    "difference",
    "half_width",
    "holm",
    "paired",
    "summarise",
]

LEVEL = 0.05
"""Significance level: 1 minus the confidence of intervals, and the bound of p-values."""
STUDENT, BOOTSTRAP, BATCH_MEANS = "student", "bootstrap", "batch means"

_FEWEST, _MOST = 20, 1000
"""Range of runs in which Shapiro and Wilk's test chooses between Student's interval and the bootstrap. With
fewer runs the test has little power; with more the mean is close to normal whatever the runs are."""
_TWO = "two runs: the interval has one degree of freedom, so tables show both values"
_RESAMPLES = 9999
_SEED = 20070401
_ROUNDING = 1e-12
"""Share of the two values below which their difference is a rounding error."""


@dataclass(frozen=True, slots=True)
class Summary:
    """One quantity over several runs, in the unit of its values."""

    mean: float | None
    """Mean over the runs, or difference of two means; None without values."""
    std: float | None
    """Sample standard deviation between runs; None below two runs, and for two independent samples."""
    ci95: float | None
    """Half-width of the 95 % confidence interval of the mean; None without an interval."""
    runs: int
    """Runs that have a value; pairs of them for a paired difference."""
    low: float | None = None
    """Lower end of the interval."""
    high: float | None = None
    """Upper end of the interval; the mean need not be in the middle."""
    method: str | None = None
    """Method of the interval: `STUDENT`, `BOOTSTRAP` or `BATCH_MEANS`; None without an interval."""
    p: float | None = None
    """Two-sided p-value of a true mean of zero, by the same method; None without an interval."""
    note: str | None = None
    """Reason why there is no interval, or why it is not the usual one."""

    def row(self) -> dict[str, Any]:
        """Return mean and interval by the names that tables and JSON have for them."""
        return {
            "mean": self.mean,
            "std": self.std,
            "ci95": self.ci95,
            "runs": self.runs,
            "ci_low": self.low,
            "ci_high": self.high,
            "method": self.method,
        }

    def times(self, factor: float) -> "Summary":
        """Return the summary in another unit, multiplied by `factor` > 0."""
        mean, std, ci95, low, high = (
            None if value is None else value * factor
            for value in (self.mean, self.std, self.ci95, self.low, self.high)
        )
        return replace(self, mean=mean, std=std, ci95=ci95, low=low, high=high)


def half_width(std: float, runs: int) -> float:
    """Return the half-width of the 95 % Student interval of a mean over `runs` >= 2 independent values."""
    return _student(runs - 1) * std / math.sqrt(runs)


def summarise(values: Sequence[float | None]) -> Summary:
    """Summarise one value per run; runs with None are left out."""
    known = [value for value in values if value is not None]
    runs = len(known)
    if runs == 0:
        return Summary(None, None, None, 0)
    mean, std = _moments(known)
    if runs == 1:
        return Summary(mean, None, None, 1)
    found = _judge(mean, [known], [std / math.sqrt(runs)], half_width(std, runs))
    if runs == 2:
        found = replace(found, note=_TWO)
    return Summary(mean, std, (found.high - found.low) / 2 if found.skew else found.half, runs, *found.rest)


def paired(ours: Sequence[float | None], theirs: Sequence[float | None]) -> Summary:
    """Summarise the paired differences `ours` minus `theirs`; pairs that lack a value are left out."""
    return summarise([_minus(a, b) for a, b in zip(ours, theirs, strict=True)])


def difference(ours: Sequence[float | None], theirs: Sequence[float | None]) -> Summary:
    """Summarise the difference of the means of two independent samples, `ours` minus `theirs`.

    Uses Welch's interval, which allows for different variances; `runs` counts the smaller sample.
    """
    first = [value for value in ours if value is not None]
    second = [value for value in theirs if value is not None]
    runs = min(len(first), len(second))
    if runs == 0:
        return Summary(None, None, None, 0)
    (mean, std), (other, spread) = _moments(first), _moments(second)
    gap = _minus(mean, other)
    if gap is None or runs == 1:
        return Summary(gap, None, None, runs)
    errors = [std / math.sqrt(len(first)), spread / math.sqrt(len(second))]
    # Welch 1947, Satterthwaite 1946: the degrees of freedom of a sum of two estimated variances.
    parts = [error**2 for error in errors]
    shares = sum(part**2 / (size - 1) for part, size in zip(parts, (len(first), len(second)), strict=True))
    freedom = sum(parts) ** 2 / shares if shares else 1.0
    half = _student(freedom) * math.sqrt(sum(parts))
    found = _judge(gap, [first, [-value for value in second]], errors, half, freedom)
    return Summary(gap, None, (found.high - found.low) / 2 if found.skew else half, runs, *found.rest)


def holm(values: Sequence[float | None]) -> list[float | None]:
    """Correct the p-values of one family (Holm 1979); None stands for no test and is not counted.

    With m tests, the smallest p-value is multiplied by m, the next by m - 1 and so on; the results never
    decrease in this order and never exceed 1.
    """
    order = sorted((p, index) for index, p in enumerate(values) if p is not None)
    found: list[float | None] = [None] * len(values)
    before = 0.0
    for rank, (p, index) in enumerate(order):
        before = min(1.0, max(before, (len(order) - rank) * p))
        found[index] = before
    return found


@dataclass(frozen=True, slots=True)
class _Judged:
    half: float
    low: float
    high: float
    method: str
    p: float
    skew: bool = False
    note: str | None = None

    @property
    def rest(self) -> tuple[Any, ...]:
        """Fields of `Summary` that describe the interval."""
        return self.low, self.high, self.method, self.p, self.note


def _judge(
    mean: float, samples: list[list[float]], errors: list[float], half: float, freedom: float | None = None
) -> _Judged:
    """Return the interval of a sum of means of independent samples, and the p-value of a zero sum.

    `errors` are the standard errors of the means, `half` is the half-width by Student's distribution with
    `freedom` degrees of freedom (by default those of one sample).
    """
    # Imported late: SciPy takes 30 MB and NumPy 12 MB, which single runs do not need.
    from scipy.special import stdtr

    error = math.sqrt(sum(each**2 for each in errors))
    if error == 0:
        return _Judged(half, mean, mean, STUDENT, 1.0 if mean == 0 else 0.0)
    freedom = len(samples[0]) - 1 if freedom is None else freedom
    plain = _Judged(half, mean - half, mean + half, STUDENT, float(2 * stdtr(freedom, -abs(mean / error))))
    if not any(_skew(sample) for sample in samples):
        return plain
    import numpy as np

    pivots = _pivots(samples)
    if pivots is None:
        note = "not normal, but with too few different values for the bootstrap"
        return _Judged(plain.half, plain.low, plain.high, STUDENT, plain.p, note=note)
    # Order statistics of the pivots at rank LEVEL / 2 from either end, which is an integer.
    rank = round(LEVEL / 2 * (_RESAMPLES + 1))
    low, high = mean - pivots[-rank] * error, mean - pivots[rank - 1] * error
    above = 1 + np.count_nonzero(pivots >= mean / error)
    below = 1 + np.count_nonzero(pivots <= mean / error)
    p = min(1.0, 2 * float(min(above, below)) / (_RESAMPLES + 1))
    return _Judged(half, float(low), float(high), BOOTSTRAP, p, skew=True)


def _skew(sample: list[float]) -> bool:
    """Return True if the sample has a size to be tested and Shapiro and Wilk's test rejects normality."""
    if not _FEWEST <= len(sample) <= _MOST or min(sample) == max(sample):
        return False
    from scipy.stats import shapiro

    # The test loses precision for values that are large compared with their differences.
    mean, std = _moments(sample)
    return bool(shapiro([(value - mean) / std for value in sample]).pvalue < LEVEL)


def _pivots(samples: list[list[float]]) -> "npt.NDArray[np.float64] | None":
    """Return the sorted deviations of resampled means from the sample means, in standard errors.

    None if a resample has no variance.
    """
    import numpy as np

    gap, square = np.zeros(_RESAMPLES), np.zeros(_RESAMPLES)
    for stream, values in enumerate(samples):
        sample = np.array(values)
        drawn = sample[_draws(len(sample), stream)]
        gap += drawn.mean(axis=1) - sample.mean()
        # The mean of equal values may differ from them by a rounding error, which is no variance.
        differs = np.ptp(drawn, axis=1) > _ROUNDING * np.abs(sample).max()
        square += np.where(differs, drawn.var(axis=1, ddof=1), 0.0) / len(sample)
    return np.sort(gap / np.sqrt(square)) if square.min() > 0 else None


@lru_cache(maxsize=4)
def _draws(size: int, stream: int) -> "npt.NDArray[np.int16]":
    """Return the indexes of each resample, the same for every quantity so that quantities are comparable."""
    import numpy as np

    random = np.random.Generator(np.random.PCG64([_SEED, stream, size]))
    return random.integers(0, size, (_RESAMPLES, size), dtype=np.int16)


def _student(freedom: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 1 - LEVEL / 2))


def _moments(values: Sequence[float]) -> tuple[float, float]:
    """Return mean and sample standard deviation (0 for one value)."""
    mean = math.fsum(values) / len(values)
    squares = math.fsum((value - mean) ** 2 for value in values)
    return mean, math.sqrt(squares / (len(values) - 1)) if len(values) > 1 else 0.0


def _minus(a: float | None, b: float | None) -> float | None:
    """Return `a - b`, or 0 if that is a rounding error."""
    if a is None or b is None:
        return None
    return 0.0 if abs(a - b) <= _ROUNDING * max(abs(a), abs(b)) else a - b
