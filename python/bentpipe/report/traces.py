"""The figures of traced flows: windows and data in flight above round trips and timeouts, on one time axis.

A sender's variables hold until they change, so they are drawn as steps. Many changes are decimated: the time
axis is divided into some hundred intervals, each of which keeps its first, smallest, largest and last value.
"""

import polars as pl

from bentpipe.format import plural
from bentpipe.report import vega
from bentpipe.report.colours import MUTED
from bentpipe.report.decimate import as_float, rounded_up, rows
from bentpipe.report.panels import Figure, Panel, Width, one_run, time_axis
from bentpipe.runs.result import Result
from bentpipe.runs.store import TRACE

__all__ = ["steps", "trace_figures"]

_STRETCHES = 400
_KILO = 1e-3
_CWND, _FLIGHT, _SSTHRESH, _RESENT, _TIMEOUT = "cwnd", "in flight", "ssthresh", "resent", "timeout"
_RTT, _SRTT, _RTO = "RTT", "SRTT", "RTO"
_WINDOWS = {
    _CWND: "#0072B2",
    _FLIGHT: "#9ecae8",
    _SSTHRESH: "#4D4D4D",
    _RESENT: "#D55E00",
    _TIMEOUT: "#CC79A7",
}
_TIMES = {_RTT: "#56B4E9", _SRTT: "#0072B2", _RTO: "#E69F00"}
_WIDE_RANGE = 20
"""Ratio of the longest time to the shortest above which the axis is logarithmic."""


def trace_figures(result: Result, width: Width = "container") -> list[Figure]:
    """Return a figure for each traced flow or session; `width` as for `figures`."""
    made = [_figure(result, traced, width) for traced in result.traced]
    return [figure for figure in made if figure is not None]


def _figure(result: Result, traced: str, width: Width) -> Figure | None:
    seed = result.seeds[0]
    tables = {setting: _rows(result, setting, seed, traced) for setting in result.settings}
    tables = {setting: table for setting, table in tables.items() if len(table)}
    if not tables:
        return None
    every = pl.concat(tables.values())
    span = (as_float(every["time"].min()), as_float(every["time"].max()))
    top = rounded_up(1.02 * _KILO * max(as_float(every["cwnd"].max()), as_float(every["in_flight"].max())))
    panels = []
    for number, (setting, table) in enumerate(tables.items()):
        heading = vega.TitleParams(
            text=setting,
            subtitle=_counts(table),
            subtitleColor=MUTED,
            subtitleFontSize=11,
        )
        first, last = number == 0, number == len(tables) - 1
        windows = _windows(table, span, top, legend=first)
        times = _times(table, every, span, legend=first, last=last)
        panels.append(Panel(windows.properties(width=width, height=170, title=heading)))
        panels.append(Panel(times.properties(width=width, height=110)))
    beyond = as_float(every["ssthresh"].max()) * _KILO > top
    hidden = " A threshold beyond the axis is not shown." if beyond else ""
    caption = (
        f"State of the sending host's TCP in {one_run(seed, len(result.seeds))}. Above: congestion window"
        " (cwnd), data in flight and slow start threshold (ssthresh); triangles are retransmissions, vertical"
        " lines timeouts. Below: measured round trips (RTT), smoothed RTT (SRTT) and retransmission timeout"
        f" (RTO).{hidden}"
    )
    return Figure(_name(traced), _title(traced), caption, tuple(panels))


def _name(traced: str) -> str:
    return "trace-" + "".join(c if c.isalnum() else "-" for c in traced.casefold())


def _title(traced: str) -> str:
    kind, _, rest = traced.partition(":")
    if kind == "flow":
        return f"Flow {int(rest)} over time"
    name, _, number = rest.rpartition(":")
    return f"Session {int(number)} of {name} over time"


def _rows(result: Result, setting: str, seed: int, traced: str) -> pl.DataFrame:
    """Return the trace of the sending host in one run."""
    table = result.one(TRACE, setting, seed).filter(pl.col("leg") == 0)
    kind, _, rest = traced.partition(":")
    if kind == "flow":
        return table.filter(pl.col("flow") == int(rest))
    name, _, number = rest.rpartition(":")
    flows = result.one("flows", setting, seed)
    mine = flows.filter((pl.col("traffic").cast(pl.String) == name) & (pl.col("session") == int(number)))
    return table.filter(pl.col("flow").is_in(mine["flow"].implode()))


def _counts(table: pl.DataFrame) -> str:
    last = table.group_by("flow").agg(pl.col("retransmissions", "timeouts").max())
    resent, timeouts = (int(as_float(last[name].sum())) for name in ("retransmissions", "timeouts"))
    return f"{plural(resent, 'retransmission')}, {plural(timeouts, 'timeout')}"


def steps(table: pl.DataFrame, column: str, factor: float = 1.0, *, ends: bool = True) -> pl.DataFrame:
    """Return `column` of a trace as decimated steps: `time`, `value`, `flow`.

    Of the changes in each of some hundred intervals of time, the first, smallest, largest and last are kept.
    With `ends`, each flow's last value is repeated at the end of its trace.
    """
    value = pl.col("value")
    known = table.select("time", "flow", value=pl.col(column).cast(pl.Float64) * factor).drop_nulls()
    if not len(known):
        return known.select("time", "value", "flow")
    start, end = as_float(known["time"].min()), as_float(known["time"].max())
    width = (end - start) / _STRETCHES or 1.0
    is_change = (value != value.shift().over("flow")).fill_null(value=True)
    is_end = pl.col("time") == pl.col("time").max().over("flow")
    changes = known.filter(is_change | is_end if ends else is_change).with_row_index("row")
    kept = changes.group_by("flow", stretch=((pl.col("time") - start) / width).floor()).agg(
        first=pl.col("row").first(),
        least=pl.col("row").get(value.arg_min()),
        most=pl.col("row").get(value.arg_max()),
        last=pl.col("row").last(),
    )
    chosen = pl.concat([kept[name] for name in ("first", "least", "most", "last")]).unique()
    return changes.filter(pl.col("row").is_in(chosen.implode())).select("time", "value", "flow")


def _events(table: pl.DataFrame, column: str, span: tuple[float, float]) -> list[dict[str, float]]:
    """Return the times at which a count rose, at the resolution of a screen."""
    width = (span[1] - span[0]) / _STRETCHES or 1.0
    before = pl.col(column).shift(fill_value=0).over("flow")
    times = table.filter(pl.col(column) > before).select("time")
    return rows(
        times.group_by((pl.col("time") / width).floor().alias("at")).agg(pl.col("time").min()).sort("at")
    )


def _chart(values: list[dict[str, float]], colours: dict[str, str], what: str, *, legend: bool) -> vega.Chart:
    """Return a chart of `values` with the colour and the legend entry of `what`."""
    scale = vega.Scale(domain=list(colours), range=list(colours.values()))
    key = vega.Legend(
        title=None, symbolType="square", symbolSize=70, symbolOpacity=1, labelFontSize=11, columnPadding=2
    )
    colour = vega.Color("what:N", scale=scale, legend=key if legend else None)
    chart = vega.Chart(vega.InlineData(values=values)).transform_calculate(what=f"'{what}'")
    return chart.encode(color=colour)


def _windows(table: pl.DataFrame, span: tuple[float, float], top: float, *, legend: bool) -> vega.Chart:
    axis = "window [kB]"
    y = vega.Y("value:Q", title=axis, scale=vega.Scale(domain=[0, top], nice=False), stack=None)

    def base(column: str, what: str) -> vega.Chart:
        chart = _chart(rows(steps(table, column, _KILO)), _WINDOWS, what, legend=legend)
        return chart.encode(x=time_axis(span, last=False), y=y, detail="flow:N")

    layers = [
        base("in_flight", _FLIGHT).mark_area(interpolate="step-after", clip=True, opacity=0.8),
        base("ssthresh", _SSTHRESH).mark_line(
            interpolate="step-after", clip=True, strokeWidth=1.2, strokeDash=[5, 3]
        ),
        base("cwnd", _CWND).mark_line(interpolate="step-after", clip=True, strokeWidth=1.4),
    ]
    for column, what in (("timeouts", _TIMEOUT), ("retransmissions", _RESENT)):
        chart = _chart(_events(table, column, span), _WINDOWS, what, legend=legend)
        chart = chart.encode(x=time_axis(span, last=False))
        if what == _TIMEOUT:
            layers.append(chart.mark_rule(strokeWidth=1.2))
        else:
            mark = chart.mark_point(shape="triangle-up", filled=True, size=36, opacity=0.9)
            layers.append(mark.encode(y=vega.value(166)))
    return vega.layer(*layers)


def _times(
    table: pl.DataFrame, every: pl.DataFrame, span: tuple[float, float], *, legend: bool, last: bool
) -> vega.Chart:
    longest = max(as_float(every[name].max()) for name in ("rtt", "srtt", "rto"))
    shortest = min(as_float(every[name].min()) or longest for name in ("rtt", "srtt", "rto"))
    if longest > _WIDE_RANGE * shortest:
        scale = vega.Scale(type="log", domain=[shortest / 1.2, longest * 1.2], nice=False)
        axis = vega.Axis(values=[10.0**power for power in range(-6, 6)], format="~r")
    else:
        scale = vega.Scale(domain=[0, rounded_up(1.02 * longest)], nice=False)
        axis = vega.Axis()
    y = vega.Y("value:Q", title="time [s]", scale=scale, axis=axis)

    def base(column: str, what: str, *, ends: bool = True) -> vega.Chart:
        chart = _chart(rows(steps(table, column, ends=ends)), _TIMES, what, legend=legend)
        return chart.encode(x=time_axis(span, last=last), y=y, detail="flow:N")

    return vega.layer(
        base("rto", _RTO).mark_line(interpolate="step-after", strokeWidth=1.4),
        base("rtt", _RTT, ends=False).mark_point(filled=True, size=9, opacity=0.8),
        base("srtt", _SRTT).mark_line(interpolate="step-after", strokeWidth=1.4),
    )
