"""Single charts of results, as `plot` of the results' classes returns them."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import altair as alt

from bentpipe.errors import ResultError, UsageError
from bentpipe.format import ends, meant, with_unit
from bentpipe.models.engines import QUANTITIES, Account, Quantity
from bentpipe.report import vega
from bentpipe.report.charts import series_figure
from bentpipe.report.colours import INK, MUTED, of_settings
from bentpipe.report.comparison import joined
from bentpipe.report.decimate import bounds, decimate
from bentpipe.report.overlays import curves, engine_colours, known
from bentpipe.report.panels import CONFIG, Figure, Panel
from bentpipe.report.sweep_charts import figure_against
from bentpipe.report.sweep_charts import figures as sweep_figures
from bentpipe.report.tuning import figures as tune_figures
from bentpipe.runs.former_names import SERIES as FORMER_SERIES
from bentpipe.runs.result import Result
from bentpipe.stats.metrics import DEPRECATED, Metric, find
from bentpipe.stats.ranking import drawn
from bentpipe.stats.services import services
from bentpipe.sweeps.result import SweepResult
from bentpipe.tuning.result import TuneResult

if TYPE_CHECKING:
    import polars as pl

    from bentpipe.pages import Plot

__all__ = ["SERIES", "accounts_chart", "result_chart", "sweep_chart", "tune_chart"]

SERIES: dict[str, tuple[str, str, float]] = {
    "offered_load": ("Offered load", "Mbit/s", 1e-6),
    "capacity": ("Capacity", "Mbit/s", 1e-6),
    "arrival_rate": ("Arrival rate", "Mbit/s", 1e-6),
    "throughput": ("Throughput", "Mbit/s", 1e-6),
    "receive_queue": ("Receive queue", "packets", 1.0),
    "transmit_queue": ("Transmit queue", "packets", 1.0),
    "transmit_queue_bytes": ("Transmit queue", "kB", 1e-3),
    "queue_delay": ("Queueing delay", "ms", 1e3),
    "mark_probability": ("Mark probability", "%", 100.0),
    "pep_buffers": ("PEP buffers", "kB", 1e-3),
    "transit_time": ("Transit time", "ms", 1e3),
    "window_limit": ("Window limit", "kB", 1e-3),
    "goodput": ("Goodput", "Mbit/s", 1e-6),
    "one_way_delay": ("One-way delay", "ms", 1e3),
    "committed_share": ("Carrier time of the committed rates", "%", 100.0),
    "windows_closed": ("Connections with a closed window", "connections", 1.0),
}
"""Label, unit and factor to it of the series in docs/results.md; others are drawn as they are."""
_KINDS: dict[str, Any] = {"layer": alt.LayerChart, "concat": alt.ConcatChart, "vconcat": alt.VConcatChart}
"""Classes of charts with several parts, by the key of the parts."""
_WIDTH = 560
"""Width of a chart [px]: with its axis, it fits the output of a notebook's cell."""


def result_chart(
    result: Result,
    name: str,
    *,
    settings: str | Sequence[str] | None,
    seed: int | None,
    kind: str | None,
) -> "Plot":
    """Return the chart of a series or of a metric, see `Result.plot`."""
    if kind not in (None, "series", "metric"):
        raise UsageError(f'plot: kind is {kind!r}; allowed: "series", "metric"')
    chosen = _settings(settings, result.settings)
    if seed is not None and seed not in result.seeds:
        raise UsageError(f"plot: found the seed {seed}; allowed: {', '.join(map(str, result.seeds))}")
    series = [] if kind == "metric" else _series_of(result, chosen or result.settings)
    metrics = {} if kind == "series" else {metric.name: metric for metric in result.known_metrics}
    if name in series:
        label, unit, factor = SERIES.get(name, (name, "", 1.0))
        first = result.seeds[0] if seed is None else seed
        figure = series_figure(result, name, label, unit, factor, settings=chosen, seed=first, width=_WIDTH)
        return _finished(figure, name, title=f"{label}, seed {first}")
    if name not in metrics:
        what = {"series": "series", "metric": "metric"}.get(kind or "", "series or metric")
        former = {"series": FORMER_SERIES, "metric": DEPRECATED}.get(
            kind or "", {**DEPRECATED, **FORMER_SERIES}
        )
        raise _unknown(what, name, [*series, *metrics], former)
    return _finished(_metric_figure(result, metrics[name], chosen), name)


def _series_of(result: Result, settings: Sequence[str]) -> list[str]:
    """Return the series that any of the settings has."""
    columns = dict[str, None]()
    for setting in settings:
        columns |= dict.fromkeys(result.one("series", setting, result.seeds[0]).columns)
    return [name for name in columns if name != "time"]


def _metric_figure(result: Result, metric: Metric, settings: Sequence[str] | None) -> Figure | None:
    """Draw a metric's mean and interval for each setting, the runs as ticks."""
    shown = list(settings or drawn(result))
    shade = of_settings(result.settings, drawn(result))
    values = result.values()
    stats = {row["setting"]: row for row in result.rows() if row["metric"] == metric.name}
    means, runs = list[dict[str, Any]](), list[dict[str, Any]]()
    for setting in shown:
        mean = stats[setting]["mean"]
        if mean is None:
            continue
        row: dict[str, Any] = {"setting": setting, "mean": mean, "colour": shade[setting]}
        low, high = ends(stats[setting])
        if low is not None and high is not None:
            row |= {"low": low, "high": high}
        means.append(row)
        runs += [
            {"setting": setting, "seed": seed, "value": value}
            for seed, value in zip(result.seeds, values[setting][metric.name], strict=True)
            if value is not None
        ]
    if not means:
        return None
    limits = [
        {"limit": limit, "text": text}
        for each in services(result.traffic, result.thresholds)
        if each.metric.name == metric.name and each.threshold is not None
        for limit, text in ((each.threshold.good, "good"), (each.threshold.bad, "bad"))
    ]
    marks = [row[key] for row in means for key in ("mean", "low", "high") if key in row]
    marks += [row["value"] for row in runs] + [row["limit"] for row in limits]
    least, most = min(marks), max(marks)
    margin = 0.06 * (most - least) or 0.05 * abs(most) or 1.0
    domain = [least if least == 0 else least - margin, most + margin]
    title = with_unit(metric.label, metric.unit)

    def x(field: str) -> vega.X:
        return vega.X(f"{field}:Q", title=title, scale=vega.Scale(domain=domain, nice=False, zero=False))

    y = vega.Y(
        "setting:N",
        title=None,
        sort=shown,
        scale=vega.Scale(domain=[row["setting"] for row in means]),
        axis=vega.Axis(labelFontSize=12, labelColor=INK, labelLimit=260, grid=True),
    )
    colour = vega.Color("colour:N", scale=None)
    tooltip = [
        vega.Tooltip("setting:N"),
        *(vega.Tooltip(f"{key}:Q", format=".4g") for key in ("mean", "low", "high")),
    ]
    base = vega.Chart(vega.InlineData(values=means)).encode(y=y, color=colour)
    layers: list[vega.Chart] = [
        vega.Chart(vega.InlineData(values=runs))
        .mark_tick(color=MUTED, opacity=0.55, thickness=1, size=14)
        .encode(x=x("value"), y=y, tooltip=["setting:N", "seed:Q", vega.Tooltip("value:Q", format=".4g")]),
        base.transform_filter("isValid(datum.low)")
        .mark_rule(strokeWidth=2)
        .encode(x=x("low"), x2=vega.X2("high:Q")),
        base.mark_point(filled=True, size=90, opacity=1).encode(x=x("mean"), tooltip=tooltip),
    ]
    if limits:
        across = vega.Chart(vega.InlineData(values=limits)).encode(x=x("limit"))
        layers += [
            across.mark_rule(color=INK, strokeDash=[4, 3], strokeWidth=1),
            across.mark_text(color=INK, fontSize=11, align="left", dx=3, baseline="top").encode(
                text="text:N", y=vega.value(2)
            ),
        ]
    drawing: vega.Chart = vega.layer(*layers).properties(width=_WIDTH, height=20 + 34 * len(means))
    return Figure(metric.name, title, metric.doc, (Panel(drawing),))


def sweep_chart(result: SweepResult, name: str, *, x: str | None) -> "Plot":
    """Return the chart of a metric at the points of a sweep, see `SweepResult.plot`."""
    frame = result.frame()
    if frame.is_empty():
        raise ResultError(f"{result.folder}: the sweep has no finished runs")
    metric = find(name)
    if metric is None or name not in frame.columns:
        other = {"setting", "seed", "digest", "core", *result.factors}
        raise _unknown("metric", name, [each for each in frame.columns if each not in other], DEPRECATED)
    rows = result.rows([name])
    if x is None:
        found = sweep_figures(result, rows, frame, [name], _WIDTH)
        return _finished(found[0] if found else None, name, "or nothing varies")
    if x not in result.factors:
        raise _unknown("factor", x, result.factors, {})
    figure = figure_against(result, rows, frame, metric, x, _WIDTH)
    return _finished(figure, name, f"or {x} does not vary")


def tune_chart(result: TuneResult, name: str) -> "Plot":
    """Return a chart of a search, see `TuneResult.plot`."""
    known_names = ("front", "parameters")
    if name not in known_names:
        raise _unknown("chart", name, known_names, {})
    found = next((each for each in tune_figures(result) if each.name == name), None)
    return _finished(found, name, "because no trial is complete")


def accounts_chart(
    accounts: Sequence[Account], name: str, of: Sequence[str], settings: str | Sequence[str] | None
) -> "Plot":
    """Return the chart of a quantity of engines over time, of the settings `of`; see `Validation.plot`."""
    shown = _settings(settings, of) or list(of)
    columns = dict.fromkeys(
        column for account in accounts for table in account.series.values() for column in table.columns
    )
    quantities = _quantities(columns)
    if name not in quantities:
        raise _unknown("quantity", name, list(quantities), FORMER_SERIES)
    quantity, shade = quantities[name], engine_colours(accounts)
    tables: dict[str, dict[str, pl.DataFrame]] = {}
    for setting in shown:
        for account in accounts:
            table = known(account.series[setting], quantity) if setting in account.series else None
            if table is not None:
                tables.setdefault(setting, {})[account.engine] = table
    if not tables:
        return _finished(None, name)
    small = {setting: {who: decimate(one) for who, one in mine.items()} for setting, mine in tables.items()}
    domain = bounds([one for mine in small.values() for one in mine.values()], [], from_zero=True)
    most = max(one["time"].max() for mine in tables.values() for one in mine.values())  # type: ignore[type-var]
    panels = []
    for setting, mine in small.items():
        drawing = curves(
            mine,
            shade,
            quantity,
            (0.0, float(most)),  # type: ignore[arg-type]
            domain,
            heading=setting,
            note=quantity.label,
            limit=None,
            last=setting == list(small)[-1],
            width=_WIDTH,
        )
        panels.append(Panel(drawing))
    legend = tuple((account.engine, shade[account.engine]) for account in accounts if account.series)
    figure = Figure(name, quantity.label, "", tuple(panels), legend=legend if len(legend) > 1 else ())
    return _finished(figure, name)


def _quantities(columns: Iterable[str]) -> dict[str, Quantity]:
    """Return the quantities that series with these columns have, by name and by column."""
    found = {}
    for column in columns:
        if column == "time":
            continue
        label, unit, factor = SERIES.get(column, (column, "", 1.0))
        quantity = next(
            (each for each in QUANTITIES if each.column == column),
            Quantity(column, column, label, unit, factor),
        )
        found[quantity.name] = found[column] = quantity
    return found


def _settings(asked: str | Sequence[str] | None, there: Sequence[str]) -> list[str] | None:
    """Return the requested settings; `UsageError` for an unknown one."""
    if asked is None:
        return None
    names = [asked] if isinstance(asked, str) and asked in there else asked
    names = [each.strip() for each in names.split(",")] if isinstance(names, str) else list(names)
    for name in names:
        if name not in there:
            raise _unknown("setting", name, there, {})
    if not names:
        raise UsageError(f"plot: found no settings; allowed: some of {', '.join(there)}")
    return names


def _unknown(what: str, name: str, names: Sequence[str], former: Any) -> UsageError:  # noqa: ANN401
    hint = f"it is now called {former[name]}" if name in former else ""
    hint = hint or meant(str(name), names, most=3, cutoff=0.5) or f"allowed: {', '.join(names)}"
    return UsageError(f'plot: there is no {what} "{name}"; {hint}')


def _finished(figure: Figure | None, name: str, reason: str = "", title: str = "") -> "Plot":
    """Return a figure as a chart in the style of the reports; raise `UsageError` without data to draw."""
    if figure is None:
        raise UsageError(f'plot: "{name}" has no value in any run{f", {reason}" if reason else ""}')
    share = 1.0 if figure.columns == 1 else 0.92 / figure.columns
    panels = tuple(Panel(_sized(panel.chart, int(_WIDTH * share))) for panel in figure.panels)
    chart = joined(replace(figure, panels=panels))
    if title:
        together = vega.concat(*(panel.chart for panel in panels), columns=1, spacing=14)
        chart = together.properties(background="white", padding=8, title=title)
    spec = {**chart.to_dict(), "config": CONFIG}
    kind = next((each for key, each in _KINDS.items() if key in spec), alt.Chart)
    plot: Plot = kind.from_dict(spec, validate=False)
    return plot


def _sized(chart: vega.Chart, width: int) -> vega.Chart:
    """Return a chart with a width in pixels if it has that of the page."""
    return chart.properties(width=width) if chart.width == "container" else chart
