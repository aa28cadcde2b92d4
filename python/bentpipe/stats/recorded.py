"""A run's records, and a figure of it: what the tables of metrics are made of."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add
from typing import Literal

import polars as pl

from bentpipe.qoe.thresholds import Limits

__all__ = [
    "Flows",
    "Metric",
    "Recorded",
    "Traffic",
    "jain",
    "known",
    "maximum",
    "mean",
    "number",
    "pairwise_sum",
    "quantile",
    "scaled",
    "std",
]


Traffic = Sequence[tuple[str, str, str]]
"""Name, class and kind of each traffic of a scenario, in its order."""


class Recorded:
    """Tables and counters of one run, from which its metrics are computed."""

    def __init__(
        self,
        series: pl.DataFrame,
        flows: pl.DataFrame,
        drop_runs: pl.DataFrame,
        counters: Mapping[str, float | None],
        capacity: float,
        traffic: Traffic = (),
        pages: pl.DataFrame | None = None,
        limits: Limits = (),
        drops: Callable[[], pl.LazyFrame] | None = None,
    ) -> None:
        """Take the tables and counters of one run; `capacity` is that of the subject's link [bit/s].

        Without `traffic` the run has no metrics of classes. `pages` is the table of that name, None if no
        gateway has several terminals; `limits` are the thresholds that the scenario sets; `drops` returns the
        table of that name, often the largest, of which only what is needed is read.
        """
        self.series = series
        self.flows = flows
        self.drop_runs = drop_runs
        self.counters = counters
        self.capacity = capacity
        self.traffic = traffic
        self.pages = pages
        self.limits = limits
        self.drops = drops
        self._samples: dict[str, pl.Series] = {}
        self._of_class: dict[str, Flows] = {}
        self.opinions: dict[str, pl.DataFrame] = {}
        """Opinions of the calls and viewings of a class, once computed."""
        self.experience: dict[str, pl.DataFrame] = {}
        """Experience of the terminals with traffic of a class, once computed."""

    def samples(self, column: str) -> pl.Series:
        """Return the finite samples of one column of the series, empty if the subject has no such column."""
        found = self._samples.get(column)
        if found is None:
            found = known(self.series[column]) if column in self.series else pl.Series([], dtype=pl.Float64)
            self._samples[column] = found
        return found

    @cached_property
    def all_flows(self) -> "Flows":
        """All flows."""
        return Flows(self.flows)

    def of_class(self, traffic_class: str) -> "Flows":
        """Return the flows of a class of traffic."""
        found = self._of_class.get(traffic_class)
        if found is None:
            of = self.flows["class"].cast(pl.String) == traffic_class
            found = self.all_flows if of.sum() == len(of) else Flows(self.flows.filter(of))
            self._of_class[traffic_class] = found
        return found

    @property
    def drop_share(self) -> float | None:
        """Share of the offered packets that were dropped at the mark point, 0 to 1; None without packets."""
        offered, dropped = self.counters["offered_packets"], self.counters["dropped_packets"]
        return dropped / offered if offered and dropped is not None else None


class Flows:
    """Flows of a run or of a class, and figures that several metrics have in common.

    Series need no query of polars, which takes longer than the rest.
    """

    def __init__(self, table: pl.DataFrame) -> None:
        """Take rows of the table of flows."""
        self.table = table

    @cached_property
    def goodput(self) -> pl.Series:
        """Goodput of each flow that has one [bit/s]."""
        return known(self.table["goodput"])

    @cached_property
    def _closed(self) -> pl.Series:
        """True for each flow that ended within the measured time; flows opened during the warm-up count."""
        return self.table["closed"] >= 0

    @cached_property
    def _completed(self) -> pl.Series:
        return self._closed & self.table["completed"]

    @property
    def completed(self) -> float | None:
        """Number of the flows that completed within the measured time."""
        return number(self._completed.sum())

    @property
    def failed(self) -> float | None:
        """Number of the flows that failed within the measured time."""
        return number((self._closed & self.table["failed"]).sum())

    @cached_property
    def completion(self) -> pl.Series:
        """Completion time of each flow that completed within the measured time [s]."""
        return known(self.table["completion_time"].filter(self._completed))


def known(column: pl.Series) -> pl.Series:
    """Return the finite values of a column."""
    found = column.cast(pl.Float64)
    # Sums and counts take a hundredth of the time in which polars plans a query.
    if math.isnan(found.sum()):
        found = found.fill_nan(None)
    missing = found.null_count()
    return found if not missing else found.clear() if missing == len(found) else found.drop_nulls()


def mean(values: pl.Series) -> float | None:
    """Return the mean; None without values."""
    return number(values.mean())


def std(values: pl.Series) -> float | None:
    """Return the standard deviation; None below two values."""
    return number(values.std())


def maximum(values: pl.Series) -> float | None:
    """Return the maximum; None without values."""
    return number(values.max())


def quantile(values: pl.Series, share: float) -> float | None:
    """Return the quantile `share`, interpolated; None without values."""
    return number(values.quantile(share, interpolation="linear"))


def number(value: object) -> float | None:
    """Return a finite number; None for anything else."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def scaled(value: float | None, factor: float) -> float | None:
    """Return `factor` times the value; None without one."""
    return None if value is None else value * factor


def pairwise_sum(values: Sequence[float]) -> float:
    """Return the sum as NumPy computes it, to the last digit, without importing NumPy."""
    count = len(values)
    if count > 128:
        half = count // 2 - count // 2 % 8
        return pairwise_sum(values[:half]) + pairwise_sum(values[half:])
    total, rest = 0.0, 0
    if count >= 8:
        rest = count - count % 8
        a, b, c, d, e, f, g, h = (reduce(add, values[first:rest:8]) for first in range(8))
        total = ((a + b) + (c + d)) + ((e + f) + (g + h))
    return reduce(add, values[rest:], total)


def jain(values: pl.Series) -> float | None:
    """Return Jain's fairness index; None without values or if all are zero."""
    squares = number((values * values).sum())
    total = number(values.sum())
    return total**2 / (len(values) * squares) if total is not None and squares else None


_ABOVE_100 = {"rain_goodput", "rain_carrier_time", "committed_share_max", "stalled", "terminal_stalled_p90"}
"""Metrics in percent that can exceed 100 %."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of a run."""

    name: str
    """Name in files, tables and on the command line."""
    label: str
    """Name in reports."""
    unit: str
    """Unit; empty for a pure number."""
    group: str
    doc: str
    of: Callable[[Recorded], float | None]
    """Computes the value of one run; None if the run has none (a completion time without flows)."""
    headline: bool = False
    """True if the terminal's table shows it; reports and files hold every metric."""
    better: Literal["more", "less"] | None = None
    """Better direction, for metrics that rank settings; None for the others."""
    mean_of: str | None = None
    """Column of the series whose mean the metric is, up to a factor; None for other metrics."""
    of_terminals: bool = False
    """True if a run has it only if a gateway has several terminals."""
    of_return: bool = False
    """True if a run has it only if terminals have queues in the return direction."""

    @property
    def scale(self) -> tuple[float, float]:
        """Least and greatest possible value, in its unit."""
        kind = self.name.rpartition(".")[2]
        if "mos" in kind.split("_"):
            return 1.0, 5.0
        if kind.endswith("jain_index"):
            return 0.0, 1.0
        if kind.endswith("correlation"):
            return -1.0, 1.0
        return 0.0, 100.0 if self.unit == "%" and kind not in _ABOVE_100 else math.inf
