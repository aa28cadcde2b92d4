"""What one run's time series says of itself: when it has settled, and how well it knows its mean.

docs/statistics.md has the formulas and their sources.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bentpipe.statistics import BATCH_MEANS, Summary, half_width

__all__ = ["Settling", "batch_means", "mser", "settling"]

_Floats = npt.NDArray[np.float64]

_MSER_BATCH = 5
"""Samples whose mean MSER-5 takes for one."""
_LEFT = 5
"""Batches that are never cut off: a few equal ones at the end would look settled."""
_BATCHES = 20
"""Batches whose means an interval comes from."""
_PARTS = 6
"""Parts of a batch, which show whether batches are correlated more surely than they do themselves."""
_SHORTEST = 2
"""Samples that a part must have."""
_CORRELATED = 0.3
"""Above this lag-1 autocorrelation of the parts, there is no interval."""
_CLEAR = 4.0
"""Standard errors by which the mean of what is cut off must differ from that of the rest."""


def mser(values: npt.ArrayLike, batch: int = _MSER_BATCH) -> int | None:
    """Return how many samples at the beginning do not belong to the steady state; None if it is not reached.

    MSER (White 1997), on means of `batch` samples (MSER-5: White, Cobb & Spratt 2000): of all truncations,
    the one that makes the mean of the rest most certain. One in the second half means that the series is too
    short to tell.
    """
    series = np.asarray(values, dtype=np.float64)
    count = len(series) // batch
    if count < 2 * _LEFT:
        return None
    means = series[: count * batch].reshape(count, batch).mean(axis=1)
    means = means - means.mean()
    left = np.arange(count, 0, -1)
    sums, squares = (np.cumsum(each[::-1])[::-1] for each in (means, means**2))
    # Squared deviations of what is left from its own mean, over the square of how much is left.
    error = (squares - sums**2 / left) / left**2
    best = int(np.argmin(error[: count - _LEFT + 1]))
    return best * batch if best <= count // 2 else None


def batch_means(values: npt.ArrayLike) -> Summary:
    """Return the mean of one stationary series with its 95 % interval from the means of batches.

    Without an interval, `note` says why.
    """
    series = np.asarray(values, dtype=np.float64)
    if len(series) == 0:
        return Summary(None, None, None, 0)
    mean = float(series.mean())
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
    half = half_width(float(_batches(series, _BATCHES).std(ddof=1)), _BATCHES)
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
    """Whether the two means differ by more than chance would have them."""


def settling(runs: Sequence[npt.ArrayLike]) -> Settling:
    """Apply MSER-5 to a quantity's series of each run, and see whether what it cuts off is different."""
    series = [np.asarray(run, dtype=np.float64) for run in runs]
    # A run that does not settle counts as one that settles after all others.
    cuts = sorted(math.inf if cut is None else cut for cut in map(mser, series))
    cut = cuts[(len(cuts) - 1) // 2] if cuts else math.inf
    if math.isinf(cut):
        return Settling(None, None, None, clear=False)
    samples = int(cut)
    rests = [run[samples:] for run in series]
    after = float(np.mean([rest.mean() for rest in rests]))
    if samples == 0:
        return Settling(0, None, after, clear=False)
    gaps = [float(run[:samples].mean() - rest.mean()) for run, rest in zip(series, rests, strict=True)]
    variance = (
        sum(_long_run_variance(rest) * (1 / samples + 1 / len(rest)) for rest in rests) / len(series) ** 2
    )
    gap = float(np.mean(gaps))
    return Settling(samples, after + gap, after, clear=abs(gap) > _CLEAR * math.sqrt(variance))


def _long_run_variance(series: _Floats) -> float:
    """Return n times the variance of the mean of n samples, from the means of batches."""
    batches = min(_BATCHES, len(series) // 2)
    return len(series) // batches * float(_batches(series, batches).var(ddof=1))


def _batches(series: _Floats, count: int) -> _Floats:
    """Return the means of `count` equal batches; what does not fill one is left out at the beginning."""
    size = len(series) // count
    means: _Floats = series[len(series) - count * size :].reshape(count, size).mean(axis=1)
    return means


def _lag1(values: _Floats) -> float:
    """Return the lag-1 autocorrelation; 0 for values that are all equal."""
    gaps = values - values.mean()
    square = float(gaps @ gaps)
    return float(gaps[1:] @ gaps[:-1]) / square if square > 0 else 0.0
