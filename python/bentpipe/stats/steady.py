"""What one run's time series says of itself: when it has settled, and how well it knows its mean.

docs/statistics.md has the formulas and their sources. There is no NumPy here, whose 12 MB a single run need
not carry, and no SciPy, whose 30 MB.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bentpipe.stats.intervals import BATCH_MEANS, Summary

__all__ = ["Settling", "batch_means", "mser", "settling"]

_MSER_BATCH = 5
"""Samples whose mean MSER-5 takes for one."""
_LEFT = 5
"""Batches that are never cut off: a few equal ones at the end would look settled."""
_BATCHES = 20
"""Batches whose means an interval comes from."""
_STUDENT = 2.093024054408263
"""Student's quantile t(19; 0.975), for so many batches."""
_PARTS = 6
"""Parts of a batch, which show whether batches are correlated more surely than they do themselves."""
_SHORTEST = 2
"""Samples that a part must have."""
_CORRELATED = 0.3
"""Above this lag-1 autocorrelation of the parts, there is no interval."""
_ROUNDING = 1e-9
"""Differences that are so small a share of the mean are the computer's."""
_CLEAR = 4.0
"""Standard errors by which the mean of what is cut off must differ from that of the rest."""


def mser(values: Iterable[float], batch: int = _MSER_BATCH) -> int | None:
    """Return how many samples at the beginning do not belong to the steady state; None if it is not reached.

    MSER (White 1997), on means of `batch` samples (MSER-5: White, Cobb & Spratt 2000): of all truncations,
    the one that makes the mean of the rest most certain. One in the second half means that the series is too
    short to tell.
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
        # Squared deviations of what is left from its own mean, over the square of how much is left.
        error = (square - total * total / left) / (left * left)
        if left >= _LEFT and error <= least:
            best, least = cut, error
    return best * batch if best <= count // 2 else None


def batch_means(values: Iterable[float]) -> Summary:
    """Return the mean of one stationary series with its 95 % interval from the means of batches.

    Without an interval, `note` says why.
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
    """What MSER-5 says of one quantity over the runs of a setting."""

    samples: int | None
    """Samples at the beginning that do not belong to the steady state: median over the runs that reach it;
    None if most do not."""
    before: float | None
    """Mean over those samples, and over the runs; None without any."""
    after: float | None
    """Mean over the rest."""
    clear: bool
    """Whether the two means differ by more than chance would have them; where most runs do not settle,
    those of the first and the second half."""


def settling(runs: Sequence[Iterable[float]]) -> Settling:
    """Apply MSER-5 to a quantity's series of each run, and see whether what it cuts off is different."""
    series = [[float(value) for value in run] for run in runs]
    # A run that does not settle counts as one that settles after all others.
    cuts = sorted(math.inf if cut is None else cut for cut in map(mser, series))
    cut = cuts[(len(cuts) - 1) // 2] if cuts else math.inf
    if math.isinf(cut):
        half = min((len(run) // 2 for run in series), default=0)
        return Settling(None, None, None, clear=half > 1 and _apart(series, half))
    samples = int(cut)
    rests = [run[samples:] for run in series]
    after = _mean([_mean(rest) for rest in rests])
    if samples == 0:
        return Settling(0, None, after, clear=False)
    before = _mean([_mean(run[:samples]) for run in series])
    return Settling(samples, before, after, clear=_apart(series, samples))


def _apart(series: Sequence[Sequence[float]], samples: int) -> bool:
    """Whether the means before and after so many samples differ by more than chance would have them."""
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
    """Return the means of `count` equal batches; what does not fill one is left out at the beginning."""
    size = len(series) // count
    first = len(series) - count * size
    return [_mean(series[start : start + size]) for start in range(first, len(series), size)]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _variance(values: Sequence[float]) -> float:
    mean = _mean(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


def _lag1(values: Sequence[float]) -> float:
    """Return the lag-1 autocorrelation; 0 for values that are all equal."""
    mean = _mean(values)
    gaps = [value - mean for value in values]
    square = math.fsum(gap * gap for gap in gaps)
    return math.fsum(a * b for a, b in zip(gaps[1:], gaps, strict=False)) / square if square > 0 else 0.0
