"""Means over runs with 95 % intervals, and paired differences between settings."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Summary", "half_width", "summarise"]


@dataclass(frozen=True, slots=True)
class Summary:
    """One quantity over several runs, in the unit of its values."""

    mean: float | None
    """Mean over the runs; None without any."""
    std: float | None
    """Sample standard deviation between runs; None below two runs."""
    ci95: float | None
    """Half-width of the 95 % confidence interval of the mean; None below two runs."""
    runs: int
    """Runs that have a value."""


def half_width(std: float, runs: int) -> float:
    """Return the half-width of the 95 % Student interval of a mean over `runs` >= 2 independent values."""
    # SciPy is 30 MB that a single run need not carry.
    from scipy.special import stdtrit

    return float(stdtrit(runs - 1, 0.975)) * std / math.sqrt(runs)


def summarise(values: Sequence[float | None]) -> Summary:
    """Summarise one value per run; None stands for a run that has none and is left out."""
    known = [value for value in values if value is not None]
    runs = len(known)
    if runs == 0:
        return Summary(None, None, None, 0)
    mean = math.fsum(known) / runs
    if runs == 1:
        return Summary(mean, None, None, 1)
    std = math.sqrt(math.fsum((value - mean) ** 2 for value in known) / (runs - 1))
    return Summary(mean, std, half_width(std, runs), runs)
