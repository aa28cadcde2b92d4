"""What a paper's figures are, measured on one run: metrics, and quantities that metrics do not have.

A measure of a paper's data names one of `MEASURES` with parameters, or a metric of docs/results.md.
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import polars as pl

from bentpipe.models.engines import QUANTITIES, moments
from bentpipe.models.oscillation import oscillation
from bentpipe.reproduction.table import Table
from bentpipe.stats.metrics import METRICS, Recorded, find

__all__ = ["MEASURES", "Measure", "Seen", "measure_from", "metric"]


@dataclass(frozen=True, slots=True)
class Seen:
    """One run, as measures see it."""

    recorded: Recorded
    seconds: float
    """Measured time."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A number that a run has."""

    name: str
    label: str
    unit: str
    doc: str
    of: Callable[[Seen], float | None] = field(repr=False)
    course: tuple[str, float] | None = None
    """The column of the series that it is the mean of, and a factor; None of a part of the time."""


def _flows(seen: Seen, traffic: Sequence[str]) -> pl.DataFrame:
    flows = seen.recorded.flows
    return flows.filter(pl.col("traffic").cast(pl.String).is_in(list(traffic))) if traffic else flows


def _goodput(given: Table) -> tuple[str, str, Callable[[Seen], float | None]]:
    """Payload delivered over the measured time, of all flows of some traffic or of each session's mean."""
    traffic, of = given.texts("traffic", []), given.choice("of", ["total", "mean"])

    def measure(seen: Seen) -> float | None:
        flows = _flows(seen, traffic)
        sessions = 1 if of == "total" else flows["session"].n_unique()
        total = float(flows["bytes"].sum())
        return total * 8e-3 / seen.seconds / sessions if flows.height else None

    return "kbit/s", "Payload delivered over the measured time" + _whose(traffic), measure


def _completion_time(given: Table) -> tuple[str, str, Callable[[Seen], float | None]]:
    """Time from opening to the last byte, of the flows that completed within the measured time."""
    traffic, of = given.texts("traffic", []), given.choice("of", ["mean", "p50", "p95"], "mean")

    def measure(seen: Seen) -> float | None:
        flows = _flows(seen, traffic).filter(pl.col("completed") & (pl.col("closed") >= 0))
        times = flows["completion_time"].cast(pl.Float64)
        if times.is_empty():
            return None
        found = times.mean() if of == "mean" else times.quantile(float(of[1:]) / 100, "linear")
        return float(found) if isinstance(found, int | float) else None

    return "s", "Time from opening to the last byte" + _whose(traffic), measure


def _weighted(values: str, weights: pl.Expr) -> Callable[[Sequence[str]], Callable[[Seen], float | None]]:
    """Return what takes the mean of a column of flows [s], each flow with its weight, in milliseconds."""

    def of(traffic: Sequence[str]) -> Callable[[Seen], float | None]:
        def measure(seen: Seen) -> float | None:
            flows = _flows(seen, traffic).filter(pl.col(values).is_not_null())
            weight = flows.select(weights.cast(pl.Float64))
            total = float(weight.to_series().sum())
            return 1e3 * float((flows[values] * weight.to_series()).sum()) / total if total else None

        return measure

    return of


_DELAY = _weighted("delay", pl.col("packets"))
_JITTER = _weighted("jitter", pl.col("packets").cast(pl.Int64) - 1)


def _delay(given: Table) -> tuple[str, str, Callable[[Seen], float | None]]:
    """Time that packets with data are under way from host to host: mean over the packets of some traffic."""
    traffic = given.texts("traffic", [])
    return "ms", "Mean time of packets with data from host to host" + _whose(traffic), _DELAY(traffic)


def _jitter(given: Table) -> tuple[str, str, Callable[[Seen], float | None]]:
    """Difference between the delays of a flow's packets that came one after the other: mean over them."""
    traffic = given.texts("traffic", [])
    doc = "Mean difference between the delays of a flow's packets that came one after the other"
    return "ms", doc + _whose(traffic), _JITTER(traffic)


def _loss(given: Table) -> tuple[str, str, Callable[[Seen], float | None]]:
    """Share of some traffic's packets that were dropped: of these and of those with data that came."""
    traffic = given.texts("traffic", [])

    def measure(seen: Seen) -> float | None:
        flows = _flows(seen, traffic)
        dropped, came = int(flows["drops"].sum()), int(flows["packets"].sum())
        return 100 * dropped / (dropped + came) if dropped + came else None

    return "%", "Share of the packets that were dropped" + _whose(traffic), measure


def _load(given: Table) -> tuple[str, str, Callable[[Seen], float | None]]:
    """Rate that arrives at the mark point over the capacity of the subject's link."""
    del given

    def measure(seen: Seen) -> float | None:
        offered = seen.recorded.samples("offered_load").mean()
        return float(offered) / seen.recorded.capacity if isinstance(offered, int | float) else None

    return "", "Rate that arrives at the mark point over the link's capacity", measure


def _series(given: Table) -> tuple[str, str, Callable[[Seen], float | None], tuple[str, float] | None]:
    """Mean or deviation of a column of the series between two times, counted from when measuring began."""
    of = given.choice("of", ["mean", "std"], "mean")
    column, unit, scale = given.take("column", str), given.take("unit", str), given.take("scale", float, 1.0)
    begin, end = given.maybe("from", float), given.maybe("until", float)

    def measure(seen: Seen) -> float | None:
        series, time = seen.recorded.series, pl.col("time")
        if column not in series.columns:
            return None
        within = series.filter(
            time > (-math.inf if begin is None else begin), time <= (math.inf if end is None else end)
        )
        known = within[column].fill_nan(None)
        found = known.mean() if of == "mean" else known.std()
        return scale * float(found) if isinstance(found, int | float) else None

    whole = begin is None and end is None and of == "mean"
    return (
        unit,
        f"{'Mean' if of == 'mean' else 'Deviation between samples'} of {column}",
        measure,
        (column, scale) if whole else None,
    )


def _flow_goodput(given: Table) -> tuple[str, str, Callable[[Seen], float | None]]:
    """Payload over the time from opening to the last byte, of the flows that completed while measuring."""
    traffic, of = given.texts("traffic", []), given.choice("of", ["mean", "std", "jain"])

    def measure(seen: Seen) -> float | None:
        values = _flows(seen, traffic).filter(pl.col("completed"))["goodput"].cast(pl.Float64).drop_nulls()
        if len(values) < 2:
            return None
        if of == "jain":
            squares = float((values**2).sum())
            return float(values.sum()) ** 2 / (len(values) * squares) if squares else None
        found = values.mean() if of == "mean" else values.std()
        return 1e-3 * float(found) if isinstance(found, int | float) else None

    unit = "" if of == "jain" else "kbit/s"
    return unit, "Goodput of a completed flow" + _whose(traffic), measure


def _averaged(given: Table) -> tuple[str, str, Callable[[Seen], float | None]]:
    """Take the standard deviation of a rate's means over so many seconds each."""
    rates = ("throughput", "arrival_rate")
    column, seconds = given.choice("of", rates), given.take("seconds", float)
    if not seconds > 0:
        raise given.wrong("seconds", seconds, "above 0 s")

    def measure(seen: Seen) -> float | None:
        times, rate = seen.recorded.series["time"], seen.recorded.samples(column)
        size = round(seconds / float(times[1] - times[0])) if len(times) > 1 else 0
        if size < 1 or len(rate) < 2 * size:
            return None
        means = rate.head(len(rate) // size * size).to_numpy().reshape(-1, size).mean(axis=1)
        return 1e-6 * float(means.std(ddof=1))

    return "Mbit/s", f"Standard deviation of the rate's means over {seconds:g} s", measure


def _swing(given: Table) -> tuple[str, str, Callable[[Seen], float | None]]:
    """How the transmit queue swings: `bentpipe.models.oscillation` says what each number is."""
    units = {"cv": "", "peak": "%", "period": "s"}
    of = given.choice("of", units)

    def measure(seen: Seen) -> float | None:
        times = seen.recorded.series["time"]
        if len(times) < 2:
            return None
        found = oscillation(seen.recorded.samples("transmit_queue"), float(times[1] - times[0]))[of]
        return _over(found, 100 if of == "peak" else 1)

    return units[of], "How the transmit queue swings", measure


def _quantity(given: Table) -> tuple[str, str, Callable[[Seen], float | None]]:
    """Take the mean or the deviation over time of what simulator and models both have."""
    known = {each.name: each for each in QUANTITIES}
    found = known[given.choice("quantity", known)]
    of = given.choice("of", ["mean", "std"], "mean")

    def measure(seen: Seen) -> float | None:
        mean, std = moments(seen.recorded.series, found)
        return mean if of == "mean" else std

    return (
        found.unit,
        f"{'Mean' if of == 'mean' else 'Deviation'} of {found.label.lower()} over time",
        measure,
    )


def _over(value: float | None, times: float) -> float | None:
    return None if value is None else value * times


def _whose(traffic: Sequence[str]) -> str:
    return f" of the traffic {', '.join(traffic)}" if traffic else ""


MEASURES: dict[str, Callable[[Table], tuple[str, str, Callable[[Seen], float | None]]]] = {
    "goodput": _goodput,
    "completion_time": _completion_time,
    "delay": _delay,
    "jitter": _jitter,
    "loss": _loss,
    "load": _load,
    "flow_goodput": _flow_goodput,
    "averaged_std": _averaged,
    "swing": _swing,
    "quantity": _quantity,
}
"""Takes the parameters that it needs, and returns unit, meaning and computation."""


@functools.cache
def metric(name: str) -> Measure | None:
    """Return a metric as a measure, None if there is none of that name."""
    found = find(name)
    if found is None:
        return None
    return Measure(name, found.label, found.unit, found.doc, lambda seen: found.of(seen.recorded))


def measure_from(name: str, given: Table) -> Measure:
    """Read a measure of a paper's data: `of` (or `metric`), `label`, and the parameters of `of`."""
    if "metric" in given:
        known = given.choice("metric", [each.name for each in METRICS])
        found = metric(known)
        assert found is not None  # noqa: S101
        label, of = given.take("label", str, found.label), found.of
        over = given.maybe("over_seconds", float)
        given.done()
        if over is None:
            return Measure(name, label, found.unit, found.doc, of)
        # What a paper counts over its own time, where ours may be another.
        doc = f"{found.doc} As many as in {over:g} s."
        return Measure(name, label, found.unit, doc, lambda seen: _over(of(seen), over / seen.seconds))
    kind = given.choice("kind", [*MEASURES, "series"])
    label = given.take("label", str)
    course = None
    if kind == "series":
        unit, doc, of, course = _series(given)
    else:
        unit, doc, of = MEASURES[kind](given)
    given.done()
    return Measure(name, label, unit, doc, of, course)
