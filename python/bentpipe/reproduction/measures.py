"""Measures of one run: metrics, and quantities of papers that are no metrics.

A paper's data define a measure by one of `MEASURES` with its parameters, or by a metric of docs/metrics.md.
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import polars as pl

from bentpipe.models.engines import QUANTITIES, moments
from bentpipe.models.oscillation import oscillation
from bentpipe.reproduction.toml_table import TomlTable
from bentpipe.stats import objectives
from bentpipe.stats.metrics import METRICS, Recorded, find
from bentpipe.stats.recorded import jain, number, scaled

__all__ = ["MEASURES", "Measure", "Objective", "RunData", "measure_from", "metric"]


@dataclass(frozen=True, slots=True)
class RunData:
    """Recorded tables and counters of one run, and its measured time."""

    recorded: Recorded
    seconds: float
    """Measured time [s]."""
    trace: pl.DataFrame | None = None
    """Windows of the traced flows, of experiments that name some."""


_Compute = Callable[[RunData], float | None]


@dataclass(frozen=True, slots=True)
class Measure:
    """A number computed from a run."""

    name: str
    label: str
    unit: str
    compute: _Compute = field(repr=False)
    series: tuple[str, float] | None = None
    """Column of the series and its scale if the measure is the column's mean over the whole run."""


@dataclass(frozen=True, slots=True)
class Objective:
    """A measure and its better direction."""

    measure: Measure
    less: bool
    """True if less is better."""

    @property
    def ranked(self) -> objectives.Objective:
        """Objective as the rank sums use it."""
        return objectives.Objective(self.measure.name, "min" if self.less else "max")

    def gain(self, ours: float | None, theirs: float | None) -> float | None:
        """Return the improvement of `ours` over `theirs` [%], negative if worse; `None` without either."""
        if ours is None or not theirs:
            return None
        return 100 * (theirs - ours if self.less else ours - theirs) / abs(theirs)


def _flows(run: RunData, traffic: Sequence[str]) -> pl.DataFrame:
    flows = run.recorded.flows
    return flows.filter(pl.col("traffic").cast(pl.String).is_in(list(traffic))) if traffic else flows


def _goodput(table: TomlTable) -> tuple[str, _Compute]:
    """Payload over the measured time: of all flows together, or the mean over the sessions."""
    traffic, of = table.strings("traffic", []), table.choice("of", ["total", "mean"])

    def compute(run: RunData) -> float | None:
        flows = _flows(run, traffic)
        sessions = 1 if of == "total" else flows["session"].n_unique()
        total = float(flows["bytes"].sum())
        return total * 8e-3 / run.seconds / sessions if flows.height else None

    return "kbit/s", compute


def _completion_time(table: TomlTable) -> tuple[str, _Compute]:
    """Time from opening to the last byte, of the flows that completed within the measured time."""
    traffic, of = table.strings("traffic", []), table.choice("of", ["mean", "p50", "p95"], "mean")

    def compute(run: RunData) -> float | None:
        flows = _flows(run, traffic).filter(pl.col("completed") & (pl.col("closed") >= 0))
        times = flows["completion_time"].cast(pl.Float64)
        if times.is_empty():
            return None
        return number(times.mean() if of == "mean" else times.quantile(float(of[1:]) / 100, "linear"))

    return "s", compute


def _packet_mean(column: str, weight: pl.Expr) -> Callable[[TomlTable], tuple[str, _Compute]]:
    """Return a measure that is the weighted mean over the flows of a column in seconds."""

    def build(table: TomlTable) -> tuple[str, _Compute]:
        traffic = table.strings("traffic", [])

        def compute(run: RunData) -> float | None:
            flows = _flows(run, traffic).filter(pl.col(column).is_not_null())
            weights = flows.select(weight.cast(pl.Float64)).to_series()
            total = float(weights.sum())
            return 1e3 * float((flows[column] * weights).sum()) / total if total else None

        return "ms", compute

    return build


def _loss(table: TomlTable) -> tuple[str, _Compute]:
    """Share of dropped packets among dropped and delivered data packets."""
    return "%", _packet_loss(table.strings("traffic", []))


def _packet_loss(traffic: Sequence[str], without: str = "") -> _Compute:
    """Return the share of dropped packets [%], less those that the counter `without` has."""

    def compute(run: RunData) -> float | None:
        flows = _flows(run, traffic)
        dropped, delivered = int(flows["drops"].sum()), int(flows["packets"].sum())
        counted = dropped - (run.recorded.counters.get(without) or 0)
        return 100 * counted / (dropped + delivered) if dropped + delivered else None

    return compute


def _loss_ratio(table: TomlTable) -> tuple[str, _Compute]:
    """Loss of some traffic over that of other traffic; 1 without a bias."""
    ours, theirs = (_packet_loss(table.strings(key)) for key in ("traffic", "than"))

    def compute(run: RunData) -> float | None:
        loss, base = ours(run), theirs(run)
        return loss / base if loss is not None and base else None

    return "", compute


def _refused(table: TomlTable) -> tuple[str, _Compute]:
    """Share of the packets that queues dropped, of traffic that alone has lossy links."""
    return "%", _packet_loss(table.strings("traffic"), "link_losses")


_GRID_SECONDS = 0.1
"""Interval at which windows are compared."""


def _smaller_window(table: TomlTable) -> tuple[str, _Compute]:
    """Share of the time in which the mean window of some traffic is below that of other traffic."""
    groups = [table.strings(key) for key in ("traffic", "than")]

    def compute(run: RunData) -> float | None:
        if run.trace is None or run.trace.is_empty():
            return None
        names = run.recorded.flows.select("flow", pl.col("traffic").cast(pl.String))
        trace = run.trace.filter(pl.col("leg") == 0).join(names, on="flow").sort("time")
        steps = int(run.seconds / _GRID_SECONDS)
        grid = pl.DataFrame({"time": [_GRID_SECONDS * step for step in range(1, steps + 1)]})
        means = []
        for traffic in groups:
            flows = trace.filter(pl.col("traffic").is_in(traffic)).partition_by("flow")
            if not flows:
                return None
            windows = [grid.join_asof(one.select("time", "cwnd"), on="time")["cwnd"] for one in flows]
            means.append(pl.DataFrame({str(at): each for at, each in enumerate(windows)}).mean_horizontal())
        return scaled(number((means[0] < means[1]).mean()), 100)

    return "%", compute


def _ends(table: TomlTable) -> tuple[str, _Compute]:
    """Deviation of the ends of flows over that of their starts; zero if all end together."""
    traffic = table.strings("traffic", [])

    def compute(run: RunData) -> float | None:
        done = _flows(run, traffic).filter(pl.col("completed"))
        starts, ends = (number(done[column].cast(pl.Float64).std()) for column in ("opened", "closed"))
        return ends / starts if ends is not None and starts else None

    return "", compute


def _load(table: TomlTable) -> tuple[str, _Compute]:
    """Offered load at the mark point over the capacity of the subject's link."""
    del table

    def compute(run: RunData) -> float | None:
        offered = number(run.recorded.samples("offered_load").mean())
        return None if offered is None else offered / run.recorded.capacity

    return "", compute


def _series(table: TomlTable) -> tuple[str, _Compute]:
    """Mean or standard deviation of a series column between two times since measuring began."""
    of = table.choice("of", ["mean", "std"], "mean")
    column, unit, scale = table.take("column", str), table.take("unit", str), table.take("scale", float, 1.0)
    begin, end = table.take("from", float, -math.inf), table.take("until", float, math.inf)

    def compute(run: RunData) -> float | None:
        series, time = run.recorded.series, pl.col("time")
        if column not in series.columns:
            return None
        known = series.filter(time > begin, time <= end)[column].fill_nan(None)
        return scaled(number(known.mean() if of == "mean" else known.std()), scale)

    return unit, compute


def _whole_series(table: TomlTable) -> tuple[str, float] | None:
    """Return column and scale of a `_series` measure that is a mean over the whole run."""
    if "from" in table or "until" in table or table.take("of", str, "mean") != "mean":
        return None
    return table.take("column", str), table.take("scale", float, 1.0)


def _settling(table: TomlTable) -> tuple[str, _Compute]:
    """Time from which the means of a column over some seconds stay near its mean at the end."""
    column, begin = table.take("column", str), table.take("from", float)
    seconds, last, within = (table.take(key, float) for key in ("seconds", "last", "within"))
    for key, value in (("seconds", seconds), ("last", last), ("within", within)):
        if not value > 0:
            raise table.error(key, value, "above 0")

    def compute(run: RunData) -> float | None:
        series = run.recorded.series.filter(pl.col("time") > begin).with_columns(
            pl.col(column).cast(pl.Float64).fill_nan(None)
        )
        end = number(series["time"].max())
        if end is None:
            return None
        settled = number(series.filter(pl.col("time") > end - last)[column].mean())
        means = (
            series.group_by(((pl.col("time") - begin) / seconds).ceil().alias("slot"))
            .agg(pl.col(column).mean())
            .sort("slot")
        )
        if settled is None:
            return None
        off = means.filter((pl.col(column) - settled).abs() > within * abs(settled))["slot"].max()
        return 0.0 if off is None else seconds * float(str(off))

    return "s", compute


def _share(table: TomlTable) -> tuple[str, _Compute]:
    """Share of the samples in which a column is at least, or at most, a value."""
    column = table.take("column", str)
    least, most = table.take("least", float, -math.inf), table.take("most", float, math.inf)

    def compute(run: RunData) -> float | None:
        return scaled(number(run.recorded.samples(column).is_between(least, most).mean()), 100)

    return "%", compute


def _flow_goodput(table: TomlTable) -> tuple[str, _Compute]:
    """Goodput from opening to the last byte, of the flows that completed while measuring."""
    traffic, of = table.strings("traffic", []), table.choice("of", ["mean", "std", "jain"])

    def compute(run: RunData) -> float | None:
        values = _flows(run, traffic).filter(pl.col("completed"))["goodput"].cast(pl.Float64).drop_nulls()
        if len(values) < 2:
            return None
        if of == "jain":
            return jain(values)
        return scaled(number(values.mean() if of == "mean" else values.std()), 1e-3)

    return "" if of == "jain" else "kbit/s", compute


def _averaged(table: TomlTable) -> tuple[str, _Compute]:
    """Compute the standard deviation of a rate's means over intervals of some seconds."""
    column = table.choice("of", ("throughput", "offered_load", "arrival_rate"))
    seconds = table.take("seconds", float)
    if not seconds > 0:
        raise table.error("seconds", seconds, "above 0 s")

    def compute(run: RunData) -> float | None:
        times, rate = run.recorded.series["time"], run.recorded.samples(column)
        size = round(seconds / float(times[1] - times[0])) if len(times) > 1 else 0
        if size < 1 or len(rate) < 2 * size:
            return None
        means = rate.head(len(rate) // size * size).to_numpy().reshape(-1, size).mean(axis=1)
        return 1e-6 * float(means.std(ddof=1))

    return "Mbit/s", compute


def _swing(table: TomlTable) -> tuple[str, _Compute]:
    """Oscillation of a column, by default the transmit queue, as in `bentpipe.models.oscillation`."""
    units = {"cv": "", "peak": "%", "period": "s"}
    of, column = table.choice("of", units), table.take("column", str, "transmit_queue")

    def compute(run: RunData) -> float | None:
        times = run.recorded.series["time"]
        if len(times) < 2:
            return None
        found = oscillation(run.recorded.samples(column), float(times[1] - times[0]))[of]
        return scaled(found, 100 if of == "peak" else 1)

    return units[of], compute


def _accepted(table: TomlTable) -> tuple[str, _Compute]:
    """Share of the samples in which the AQM accepted packets at more than the capacity."""
    del table

    def compute(run: RunData) -> float | None:
        accepted = pl.col("offered_load") * (1 - pl.col("mark_probability"))
        above = run.recorded.series.select((accepted > run.recorded.capacity).cast(pl.Float64)).to_series()
        return scaled(number(above.fill_nan(None).mean()), 100)

    return "%", compute


def _quantity(table: TomlTable) -> tuple[str, _Compute]:
    """Mean or standard deviation over time of a quantity that both simulator and models have."""
    known = {each.name: each for each in QUANTITIES}
    found = known[table.choice("quantity", known)]
    of = table.choice("of", ["mean", "std"], "mean")
    return found.unit, lambda run: moments(run.recorded.series, found)[of == "std"]


MEASURES: dict[str, Callable[[TomlTable], tuple[str, _Compute]]] = {
    "goodput": _goodput,
    "completion_time": _completion_time,
    "delay": _packet_mean("delay", pl.col("packets")),
    # n packets have n - 1 differences of delay.
    "jitter": _packet_mean("jitter", pl.col("packets").cast(pl.Int64) - 1),
    "loss": _loss,
    "loss_ratio": _loss_ratio,
    "refused": _refused,
    "smaller_window": _smaller_window,
    "ends": _ends,
    "load": _load,
    "flow_goodput": _flow_goodput,
    "averaged_std": _averaged,
    "swing": _swing,
    "accepted": _accepted,
    "quantity": _quantity,
    "series": _series,
    "settling": _settling,
    "share": _share,
}
"""Builders by kind; each reads its parameters and returns unit and computation."""


@functools.cache
def metric(name: str) -> Measure | None:
    """Return a metric as a measure, or `None` for an unknown name."""
    found = find(name)
    if found is None:
        return None
    return Measure(name, found.label, found.unit, lambda run: found.of(run.recorded))


def measure_from(name: str, table: TomlTable) -> Measure:
    """Read a measure of a paper's data: `kind` (or `metric`), `label`, and the parameters of the kind."""
    if "metric" in table:
        found = metric(table.choice("metric", [each.name for each in METRICS]))
        assert found is not None  # noqa: S101
        label, compute = table.take("label", str, found.label), found.compute
        over = table.optional("over_seconds", float)
        if over is None:
            return Measure(name, label, found.unit, compute)
        # A paper's count refers to its own run length, which ours may not have.
        return Measure(name, label, found.unit, lambda run: scaled(compute(run), over / run.seconds))
    kind, label = table.choice("kind", MEASURES), table.take("label", str)
    unit, compute = MEASURES[kind](table)
    return Measure(name, label, unit, compute, _whole_series(table) if kind == "series" else None)
