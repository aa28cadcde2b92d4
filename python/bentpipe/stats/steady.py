"""Steady state of one run's time series: end of the transient, and interval of the mean by batch means.

docs/statistics.md has the formulas and their sources. Uses neither NumPy (12 MB) nor SciPy (30 MB), which
single runs do not need.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bentpipe.stats.intervals import BATCH_MEANS, Summary

__all__ = ["Settling", "batch_means", "mser", "settling"]

_MSER_BATCH = 5
"""Samples per batch of MSER-5."""
_LEFT = 5
"""Batches that are never truncated: a few equal ones at the end would look settled."""
_BATCHES = 20
"""Number of batches from which an interval is computed."""
_STUDENT = 2.093024054408263
"""Quantile t(19; 0.975) of Student's distribution for that number of batches."""
_PARTS = 6
"""Parts per batch; their correlation shows correlated batches more reliably than the batches themselves."""
_SHORTEST = 2
"""Minimum number of samples per part."""
_CORRELATED = 0.3
"""Lag-1 autocorrelation of the parts above which no interval is given."""
_ROUNDING = 1e-9
"""Share of the mean below which differences are rounding errors."""
_CLEAR = 4.0
"""Standard errors by which the means before and after the truncation must differ."""
_HALF = 4
"""Minimum number of samples in each half of a run whose halves are compared: two batches of two."""


def mser(values: Iterable[float], batch: int = _MSER_BATCH) -> int | None:
    """Return the number of initial samples before the steady state; None if it is not reached.

    MSER (White 1997) on means of `batch` samples (MSER-5: White, Cobb & Spratt 2000): the truncation that
    minimises the standard error of the remaining mean. A truncation in the second half means that the series
    is too short to tell.
    """
    series = [float(value) for value in values]
    count = len(series) // batch
    if count < 2 * _LEFT:
        return None
    means = [sum(series[batch * n : batch * (n + 1)]) / batch for n in range(count)]
    middle = math.fsum(means) / count
    if max(means) - min(means) <= _ROUNDING * abs(middle):
        return 0
    best, least = 0, math.inf
    total = square = 0.0
    for cut in reversed(range(count)):
        gap, left = means[cut] - middle, count - cut
        total += gap
        square += gap * gap
        # Squared deviations of the remaining samples from their mean, over the square of their number.
        error = (square - total * total / left) / (left * left)
        if left >= _LEFT and error <= least:
            best, least = cut, error
    return best * batch if best <= count // 2 else None


def batch_means(values: Iterable[float]) -> Summary:
    """Return the mean of a stationary series with its 95 % interval from batch means.

    Without an interval, `note` gives the reason.
    """
    series = [float(value) for value in values]
    if not series:
        return Summary(None, None, None, 0)
    mean = _mean(series)
    parts = _BATCHES * _PARTS
    if len(series) < _SHORTEST * parts:
        note = f"no interval: {len(series)} samples, and batch means need {_SHORTEST * parts}"
        return Summary(mean, None, None, 1, note=note)
    found = _lag1(_batches(series, parts))
    if found > _CORRELATED:
        note = (
            f"no interval: the run is too short for batch means, of which {parts} have a lag-1"
            f" autocorrelation of {found:.2f}, above {_CORRELATED}"
        )
        return Summary(mean, None, None, 1, note=note)
    half = _STUDENT * math.sqrt(_variance(_batches(series, _BATCHES)) / _BATCHES)
    return Summary(mean, None, half, 1, mean - half, mean + half, BATCH_MEANS)


@dataclass(frozen=True, slots=True)
class Settling:
    """Result of MSER-5 for one quantity over the runs of a setting."""

    samples: int | None
    """Initial samples before the steady state: median over the runs that reach it; None if most do not."""
    before: float | None
    """Mean over those samples and the runs; None without such samples."""
    after: float | None
    """Mean over the remaining samples."""
    clear: bool
    """True if the two means differ significantly; if most runs do not settle, the means of the first and the
    second half."""


def settling(runs: Sequence[Iterable[float]]) -> Settling:
    """Apply MSER-5 to the series of each run, and test whether the truncated part differs."""
    series = [[float(value) for value in run] for run in runs]
    # A run that does not settle counts as settling after all others.
    cuts = sorted(math.inf if cut is None else cut for cut in map(mser, series))
    cut = cuts[(len(cuts) - 1) // 2] if cuts else math.inf
    if math.isinf(cut):
        half = min((len(run) // 2 for run in series), default=0)
        return Settling(None, None, None, clear=half >= _HALF and _apart(series, half))
    samples = int(cut)
    rests = [run[samples:] for run in series]
    after = _mean([_mean(rest) for rest in rests])
    if samples == 0:
        return Settling(0, None, after, clear=False)
    before = _mean([_mean(run[:samples]) for run in series])
    return Settling(samples, before, after, clear=_apart(series, samples))


def _apart(series: Sequence[Sequence[float]], samples: int) -> bool:
    """Return True if the means before and after that many samples differ significantly."""
    rests = [run[samples:] for run in series]
    before = _mean([_mean(run[:samples]) for run in series])
    after = _mean([_mean(rest) for rest in rests])
    variance = sum(_long_run_variance(rest) * (1 / samples + 1 / len(rest)) for rest in rests)
    return abs(before - after) > _CLEAR * math.sqrt(variance) / len(series)


def _long_run_variance(series: Sequence[float]) -> float:
    """Return n times the variance of the mean of n samples, from the means of batches."""
    batches = min(_BATCHES, len(series) // 2)
    return len(series) // batches * _variance(_batches(series, batches))


def _batches(series: Sequence[float], count: int) -> list[float]:
    """Return the means of `count` equal batches; surplus samples at the beginning are left out."""
    size = len(series) // count
    first = len(series) - count * size
    return [_mean(series[start : start + size]) for start in range(first, len(series), size)]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _variance(values: Sequence[float]) -> float:
    mean = _mean(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


def _lag1(values: Sequence[float]) -> float:
    """Return the lag-1 autocorrelation; 0 for a constant series."""
    mean = _mean(values)
    gaps = [value - mean for value in values]
    square = math.fsum(gap * gap for gap in gaps)
    return math.fsum(a * b for a, b in zip(gaps[1:], gaps, strict=False)) / square if square > 0 else 0.0
