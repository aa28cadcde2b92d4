"""A run's records, and a figure of it: what the tables of metrics are made of."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import polars as pl

from bentpipe.qoe.thresholds import Limits

__all__ = [
    "Metric",
    "Recorded",
    "Traffic",
    "jain",
    "known",
    "maximum",
    "mean",
    "number",
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
    ) -> None:
        """Take the tables and counters of one run; `capacity` is that of the subject's link [bit/s].

        Without `traffic` the run has no metrics of classes. `pages` is the table of that name, None if no
        gateway has several terminals; `limits` are the thresholds that the scenario sets.
        """
        self.series = series
        self.flows = flows
        self.drop_runs = drop_runs
        self.counters = counters
        self.capacity = capacity
        self.traffic = traffic
        self.pages = pages
        self.limits = limits
        self._flows_of: dict[str, pl.DataFrame] = {}
        self.opinions: dict[str, pl.DataFrame] = {}
        """Opinions of the calls and viewings of a class, once computed."""
        self.experience: dict[str, pl.DataFrame] = {}
        """Experience of the terminals with traffic of a class, once computed."""

    def samples(self, column: str) -> pl.Series:
        """Return the finite samples of one column of the series, empty if the subject has no such column."""
        return (
            known(self.series[column]) if column in self.series.columns else pl.Series([], dtype=pl.Float64)
        )

    @cached_property
    def goodput(self) -> pl.Series:
        """Goodput of each flow that has one [bit/s]."""
        return known(self.flows["goodput"])

    @cached_property
    def closed(self) -> pl.DataFrame:
        """Flows that closed within the measured time, including those opened during the warm-up."""
        return self.flows.filter(pl.col("closed") >= 0)

    @cached_property
    def completion(self) -> pl.Series:
        """Completion time of each flow that completed within the measured time [s]."""
        return known(self.closed.filter(pl.col("completed"))["completion_time"])

    def flows_of(self, traffic_class: str) -> pl.DataFrame:
        """Return the flows of a class of traffic."""
        found = self._flows_of.get(traffic_class)
        if found is None:
            found = self.flows.filter(pl.col("class").cast(pl.String) == traffic_class)
            self._flows_of[traffic_class] = found
        return found

    @property
    def drop_share(self) -> float | None:
        """Share of the offered packets that were dropped at the mark point, 0 to 1; None without packets."""
        offered, dropped = self.counters["offered_packets"], self.counters["dropped_packets"]
        return dropped / offered if offered and dropped is not None else None


def known(column: pl.Series) -> pl.Series:
    """Return the finite values of a column."""
    return column.cast(pl.Float64).fill_nan(None).drop_nulls()


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


def jain(values: pl.Series) -> float | None:
    """Return Jain's fairness index; None without values or if all are zero."""
    squares = number((values**2).sum())
    total = number(values.sum())
    return total**2 / (len(values) * squares) if total is not None and squares else None


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
        if kind.startswith("mos"):
            return 1.0, 5.0
        if kind.endswith("jain_index"):
            return 0.0, 1.0
        return 0.0, 100.0 if self.unit == "%" else math.inf
