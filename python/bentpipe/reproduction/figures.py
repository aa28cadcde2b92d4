"""Drawings of a paper's pictures, by kind.

Series are those of the first run of each case, decimated and not smoothed.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from bentpipe.format import brief, plural
from bentpipe.models.engines import QUANTITIES as MODEL_QUANTITIES
from bentpipe.models.engines import moments
from bentpipe.report import vega
from bentpipe.report.colours import INK, MUTED, of_settings
from bentpipe.report.decimate import bounds, decimate, plain, rounded_up, rows, short
from bentpipe.report.overlays import curves, known
from bentpipe.report.panels import Figure, Panel, time_axis
from bentpipe.reproduction.measures import Measure
from bentpipe.reproduction.paper import QUANTITIES, Picture, PrintedFigure, Quantity
from bentpipe.reproduction.rules import marks_to_window
from bentpipe.reproduction.runs import CaseRuns
from bentpipe.reproduction.verdicts import CurveValue, Verdicts

__all__ = ["figure", "printed_figure"]

_POINTS = 240
"""Buckets of a series in a panel of half a page."""
_SERIES_HEIGHT = 84
_ROW_HEIGHT = 24
_LINES = ("#D55E00", "#009E73", "#CC79A7")


def figure(verdicts: Verdicts, picture: Picture) -> Figure:
    """Draw a picture from our runs."""
    return _DRAWINGS[picture.kind](verdicts, picture)


def printed_figure(verdicts: Verdicts, printed: PrintedFigure) -> Figure | None:
    """Draw a printed figure: the cases that it shows of the first picture that corresponds to it.

    Panels keep the axes of the whole picture, so that figures can be compared. `None` without a picture.
    """
    pictures = {each.name: each for each in verdicts.paper.pictures}
    picture = next((pictures[name] for name in printed.by if name in pictures), None)
    if picture is None:
        return None
    options = {**picture.options, "shown": printed.cases or picture.cases}
    if printed.span:
        options["span"] = printed.span
    if picture.kind in _WHOLE:
        return figure(verdicts, replace(picture, options={**options, "columns": 1}))
    return figure(verdicts, replace(picture, cases=printed.cases or picture.cases, options=options))


_WHOLE = ("series", "flow throughput")
"""Kinds of pictures whose axes are those of all cases, whichever are shown."""


def _figure(
    picture: Picture,
    caption: str,
    charts: Sequence[vega.Chart],
    columns: int = 1,
    legend: Mapping[str, str] | None = None,
) -> Figure:
    panels = tuple(map(Panel, charts))
    return Figure(
        picture.name, picture.heading, caption, panels, max(1, columns), tuple((legend or {}).items())
    )


def _data(values: Sequence[Mapping[str, Any]]) -> vega.Chart:
    return vega.Chart(vega.InlineData(values=[dict(each) for each in values]))


def _colour(name: str, shade: Mapping[str, str]) -> vega.Color:
    scale = vega.Scale(domain=list(shade), range=list(shade.values()))
    return vega.Color(f"{name}:N", scale=scale, legend=None)


def _rows_axis(name: str, names: Sequence[str], **options: Any) -> vega.Y:  # noqa: ANN401
    axis = vega.Axis(labelColor=INK, **options)
    return vega.Y(f"{name}:N", title=None, sort=list(names), scale=vega.Scale(domain=list(names)), axis=axis)


def _shades(names: Sequence[str]) -> dict[str, str]:
    return of_settings(names, names)


def _row(label: str, found: CurveValue) -> dict[str, Any]:
    """Return a value as a chart's row, with its interval if it has one."""
    mean, low, high = found.found.mean, found.found.low, found.found.high
    row: dict[str, Any] = {label: found.curve, "mean": short(mean or 0.0), "x": found.x}
    return row if low is None or high is None else row | {"low": short(low), "high": short(high)}


# Measures over points.


def _curves(verdicts: Verdicts, picture: Picture) -> Figure:
    """Draw measures against an experiment's points: a line per curve, with its 95 % interval."""
    values = verdicts.picture_values(picture)
    shade = _shades(list(dict.fromkeys(each.curve for each in values)))
    axis = verdicts.paper.experiments[picture.experiment].axis
    charts = [
        _curve_panel(
            [each for each in values if each.measure == measure],
            shade,
            axis,
            picture,
            _printed_levels(verdicts, picture, measure),
        ).properties(title=measure.label)
        for measure in picture.measures
    ]
    runs = max((each.found.runs for each in values), default=0)
    dashed = f" Dashed: {picture.row}'s row, as printed." if picture.row else ""
    caption = f"{picture.caption}{dashed} {plural(runs, 'run')} at each point."
    return _figure(picture, caption, charts, min(2, len(charts)), shade if len(shade) > 1 else None)


def _printed_levels(verdicts: Verdicts, picture: Picture, measure: Measure) -> list[float]:
    """Return the printed values of a panel: that of the picture's row, and those of its first measure."""
    row = verdicts.printed(picture, measure)
    marks = picture.options.get("marks", []) if measure == picture.measures[0] else []
    return [*([] if row is None else [row]), *marks]


def _curve_panel(
    found: Sequence[CurveValue],
    shade: Mapping[str, str],
    axis: str,
    picture: Picture,
    printed: Sequence[float],
) -> vega.Chart:
    values = [_row("curve", each) for each in found if each.found.mean is not None]
    unit = found[0].unit if found else ""
    xs = sorted({row["x"] for row in values})
    x = vega.X(
        "x:Q",
        title=axis + (", logarithmic" if picture.log else ""),
        scale=vega.Scale(type="log", nice=False) if picture.log else vega.Scale(nice=False, zero=False),
        axis=vega.Axis(values=xs[:: max(1, math.ceil(len(xs) / 8))], format=",.6~g", labelOverlap=True),
    )
    ends = [row[key] for row in values for key in ("low", "high", "mean") if key in row] or [0.0, 1.0]
    ends += printed
    # The axis of a measure that is never negative begins at zero, however wide its interval.
    least = min(0.0, *ends) if any(row["mean"] < 0 for row in values) else 0.0
    most = max(0.0, *ends)
    room = 0.05 * (most - least or 1.0)
    scale = vega.Scale(domain=[least - room if least < 0 else 0.0, most + room], nice=False, clamp=True)

    def y(name: str) -> vega.Y:
        return vega.Y(f"{name}:Q", title=unit, scale=scale)

    def level(value: float, dash: list[float], colour: str) -> vega.Chart:
        rule = _data([{"level": value}]).mark_rule(color=colour, strokeWidth=1, strokeDash=dash)
        chart: vega.Chart = rule.encode(y=y("level"))
        return chart

    base = _data(values).encode(x=x, color=_colour("curve", shade))
    layers = [
        base.mark_area(opacity=0.2).encode(y=y("low"), y2=vega.Y2("high:Q")),
        base.mark_line(strokeWidth=1.6).encode(y=y("mean")),
        base.mark_point(filled=True, size=36, opacity=1).encode(
            y=y("mean"),
            tooltip=[
                vega.Tooltip("curve:N"),
                vega.Tooltip("x:Q", title=axis),
                vega.Tooltip("mean:Q", title=unit, format=".4g"),
            ],
        ),
    ]
    if least < 0:
        layers.insert(0, level(0.0, [1, 0], MUTED))
    layers[:0] = [level(each, [4, 3], INK) for each in printed]
    return vega.layer(*layers).properties(width="container", height=230)


def _course(verdicts: Verdicts, picture: Picture) -> Figure:
    """Draw a measure over time, a panel per case, with the 95 % interval of its mean over the runs."""
    measure = next(each for each in picture.measures if each.series)
    shade = _shades(picture.cases)
    found = {case: verdicts.over_time(picture.experiment, case, measure) for case in picture.cases}
    begin, end = picture.options["span"] or (-math.inf, math.inf)
    found = {case: [each for each in some if begin <= each[0] <= end] for case, some in found.items()}
    marks = picture.options["marks"]
    ends = [*marks, *(mean + (half or 0.0) for some in found.values() for _, mean, half in some)]
    scale = vega.Scale(domain=[0.0, 1.05 * max(ends, default=1.0)], nice=False)

    def y(name: str) -> vega.Y:
        return vega.Y(f"{name}:Q", title=measure.unit, scale=scale)

    charts = []
    for case, some in found.items():
        values = [
            {"time": short(time), "mean": short(mean)}
            | ({} if half is None else {"low": short(max(mean - half, 0.0)), "high": short(mean + half)})
            for time, mean, half in some
        ]
        base = _data(values).encode(x=vega.X("time:Q", title="time [s]", scale=vega.Scale(nice=False)))
        chart = vega.layer(
            base.mark_area(opacity=0.3, color=shade[case]).encode(y=y("low"), y2=vega.Y2("high:Q")),
            base.mark_line(strokeWidth=1, color=shade[case]).encode(y=y("mean")),
            *(
                _data([{"mark": mark}]).mark_rule(color=INK, strokeDash=[4, 3]).encode(y=y("mark"))
                for mark in marks
            ),
        )
        charts.append(chart.properties(width="container", height=160, title=case))
    runs = max(
        (len(case.seeds) for key, case in verdicts.cases.items() if key[0] == picture.experiment), default=0
    )
    return _figure(picture, f"{picture.caption} {plural(runs, 'run')} of each.", charts, min(2, len(charts)))


# Cases side by side.


def _gains(verdicts: Verdicts, picture: Picture) -> Figure:
    """Draw gains, a panel per measure: a dot with its 95 % interval in the row of each other case."""
    values = verdicts.picture_values(picture)
    shade = _shades(list(dict.fromkeys(each.curve for each in values)))
    measures = dict.fromkeys(each.measure for each in values)
    charts = [_gain_panel([each for each in values if each.measure == one], shade) for one in measures]
    runs = max((each.found.runs for each in values), default=0)
    caption = f"{picture.caption} {plural(runs, 'run')} of each; bars are 95 % intervals of the mean."
    return _figure(picture, caption, charts, min(3, len(charts)))


def _gain_panel(found: Sequence[CurveValue], shade: Mapping[str, str]) -> vega.Chart:
    values: list[dict[str, Any]] = []
    for each in found:
        if each.found.mean is not None:
            mean = short(each.found.mean)
            row = {"low": mean, "high": mean} | _row("curve", each)
            values.append(row | {"text": brief(each.found.mean, 3)})
    ends = [row[key] for row in values for key in ("low", "high")] + [0.0]
    least = min(ends)
    span = max(ends) - least or 1.0
    # Leaves room for the number right of each interval.
    scale = vega.Scale(domain=[least - 0.04 * span if least < 0 else 0.0, max(ends) + 0.2 * span], nice=False)
    unit = found[0].unit

    def x(name: str) -> vega.X:
        return vega.X(f"{name}:Q", title=unit, scale=scale, axis=vega.Axis(tickCount=5, format=",.6~g"))

    names = [each.curve for each in found]
    colour = _colour("curve", {name: shade[name] for name in names})
    base = _data(values).encode(y=_rows_axis("curve", names))
    return vega.layer(
        _data([{"zero": 0.0}]).mark_rule(color=MUTED).encode(x=x("zero")),
        base.mark_rule(strokeWidth=1.8).encode(x=x("low"), x2="high:Q", color=colour),
        base.mark_point(filled=True, size=64, opacity=1).encode(
            x=x("mean"),
            color=colour,
            tooltip=[vega.Tooltip("curve:N"), vega.Tooltip("mean:Q", title=unit, format=".4g")],
        ),
        base.mark_text(align="left", dx=7, fontSize=11, color=INK).encode(x=x("high"), text="text:N"),
    ).properties(width="container", height=_ROW_HEIGHT * len(names), title=found[0].measure.label)


def _bars(verdicts: Verdicts, picture: Picture) -> Figure:
    """Draw a bar with its interval for every case, a panel per measure."""
    marks = picture.options["marks"]
    values = verdicts.picture_values(picture)
    charts = []
    for place, measure in enumerate(picture.measures):
        printed = {
            each.curve: value
            for each in values
            if (value := verdicts.printed(picture, measure, each.curve.partition(", ")[0])) is not None
        }
        mark = marks[place] if place < len(marks) else None
        some = [each for each in values if each.measure == measure]
        charts.append(_bar_panel(some, measure, mark, printed))
    runs = max((each.found.runs for each in values), default=0)
    rings = " Rings: printed." if picture.table else ""
    caption = f"{picture.caption} Means over {plural(runs, 'run')} with their 95 % intervals.{rings}"
    return _figure(picture, caption, charts, min(3, len(charts)))


def _bar_panel(
    found: Sequence[CurveValue], measure: Measure, mark: float | None, printed: Mapping[str, float]
) -> vega.Chart:
    names = list(dict.fromkeys(each.curve for each in found))
    values: list[dict[str, Any]] = []
    for each in found:
        if each.found.mean is not None:
            end = max(each.found.high or 0.0, each.found.mean, printed.get(each.curve, 0.0))
            values.append(_row("case", each) | {"text": brief(each.found.mean, 3), "end": short(end)})
    top = max([*(row["end"] for row in values), mark or 0.0, 1e-9])
    scale = vega.Scale(domain=[0, 1.18 * top], nice=False)

    def x(name: str, **options: Any) -> vega.X:  # noqa: ANN401
        return vega.X(f"{name}:Q", title=measure.unit, scale=scale, **options)

    base = _data(values).encode(y=_rows_axis("case", names))
    layers = [
        base.mark_bar(opacity=0.7, height=11).encode(
            x=x("mean", axis=vega.Axis(tickCount=5)), color=_colour("case", _shades(names))
        ),
        base.mark_rule(color=INK, strokeWidth=1.5).encode(x=x("low"), x2="high:Q"),
        base.mark_text(align="left", dx=12 if printed else 6, fontSize=11, color=INK).encode(
            x=x("end"), text="text:N"
        ),
    ]
    if printed:
        rings = [{"case": name, "printed": value} for name, value in printed.items()]
        ring = _data(rings).mark_point(size=90, color=INK, strokeWidth=2, opacity=1)
        layers.append(ring.encode(y=_rows_axis("case", names), x=x("printed")))
    if mark is not None:
        layers.append(_data([{"mark": mark}]).mark_rule(color=INK, strokeDash=[4, 3]).encode(x=x("mark")))
    return vega.layer(*layers).properties(width="container", height=21 * len(names), title=measure.label)


def _cuts(_: Verdicts, picture: Picture) -> Figure:
    """Draw a buffer's limit after a number of cuts, down to the window, for each size of a cut."""
    limit, window = picture.options["limit"], picture.options["window"]
    points: list[dict[str, Any]] = []
    ends: list[dict[str, Any]] = []
    for decr in picture.options["decr"]:
        needed = marks_to_window(limit, window, decr)
        name = f"× {decr:g}"
        points += [{"case": name, "n": n, "left": short(1e-3 * limit * decr**n)} for n in range(needed + 1)]
        ends.append(points[-1] | {"text": str(needed)})
    shade = _shades([each["case"] for each in ends])
    most = max(each["n"] for each in ends)
    x = vega.X("n:Q", title="marks", scale=vega.Scale(nice=False, domain=[0, 1.06 * most]))
    y = vega.Y(
        "left:Q",
        title="limit [KB], logarithmic",
        scale=vega.Scale(type="log", domain=[0.4e-3 * window, 1.4e-3 * limit], nice=False),
        axis=vega.Axis(values=[5, 10, 20, 50, 100, 200, 500], format="~g"),
    )
    colour = _colour("case", shade)
    last = _data(ends).encode(x=x, y=y, color=colour)
    chart = vega.layer(
        _data([{"left": 1e-3 * window}]).mark_rule(color=INK, strokeDash=[4, 3]).encode(y=y),
        _data(points).mark_line(strokeWidth=1.8).encode(x=x, y=y, color=colour),
        last.mark_point(filled=True, size=50, opacity=1),
        last.mark_text(dy=15, fontSize=12).encode(text="text:N"),
    ).properties(width="container", height=260)
    return _figure(picture, picture.caption, [chart], 1, shade)


def _input(_: Verdicts, picture: Picture) -> Figure:
    """Draw a measured input of a model, and the Fourier series that the model takes."""
    options = picture.options
    scale, interval, measured = options["scale"], options["interval"], options["measured"]
    span = interval * len(measured)

    def fourier(time: float) -> float:
        angle = 2 * math.pi * time / span
        waves = enumerate(zip(options["cos"], options["sin"], strict=True), start=1)
        parts = [a * math.cos(k * angle) + b * math.sin(k * angle) for k, (a, b) in waves]
        return math.fsum([float(options["mean"]), *parts])

    times = [interval * n for n in range(len(measured))]
    shade = {"measured": "#9aa5b1", "Fourier series": "#0072B2"}
    series = {"measured": measured, "Fourier series": [fourier(time) for time in times]}
    values = [
        {"name": name, "time": short(time), "value": short(scale * value)}
        for name, some in series.items()
        for time, value in zip(times, some, strict=True)
    ]
    chart = (
        _data(values)
        .mark_line(strokeWidth=1.4)
        .encode(
            x=vega.X("time:Q", title="time [s]", scale=vega.Scale(domain=[0, span], nice=False)),
            y=vega.Y("value:Q", title=options["unit"], scale=vega.Scale(zero=False)),
            color=_colour("name", shade),
        )
        .properties(width="container", height=200)
    )
    return _figure(picture, picture.caption, [chart], 1, shade)


# First runs.


def _cases(verdicts: Verdicts, picture: Picture) -> Iterator[tuple[str, CaseRuns]]:
    """Yield the simulated cases of a picture with their labels, at its points or at the first."""
    points = picture.options.get("points", [])
    first = verdicts.paper.experiments[picture.experiment].points[0].label
    for point in points or [first]:
        for case in picture.cases:
            found = verdicts.cases.get((picture.experiment, case, point))
            if found is not None:
                yield f"{case}, {point}" if points else case, found


def _heading(name: str, colour: str, note: str) -> vega.TitleParams:
    return vega.TitleParams(
        text=name,
        color=colour,
        subtitle=note or vega.Undefined,
        subtitleColor=MUTED,
        subtitleFontSize=11,
        subtitlePadding=1,
        offset=3,
    )


def _decimated(inside: pl.DataFrame, *, all_samples: bool) -> tuple[pl.DataFrame, int]:
    """Return a series decimated for a panel, and the number of samples per point."""
    found = decimate(inside, len(inside) if all_samples else _POINTS)
    return found, math.ceil(len(inside) / max(1, len(found)))


def _sampling(samples: int) -> str:
    if samples == 1:
        return "Every sample."
    return f"Lines are means of {samples} samples, bands span the smallest and the largest of them."


def _series(verdicts: Verdicts, picture: Picture) -> Figure:
    """Draw a quantity over time, a panel per case, all with the same axes."""
    options = picture.options
    name, columns, by_rows = options["quantity"], options["columns"], options["order"] == "rows"
    quantity = QUANTITIES[name]
    tables: dict[str, pl.DataFrame] = {}
    notes: dict[str, str] = {}
    span, seed, samples = options["span"], 0, 1
    for label, case in _cases(verdicts, picture):
        run = verdicts.first_run(case)
        table, seed = run.recorded.series, case.seeds[0]
        if name not in table.columns:
            continue
        if span and span[1] > run.seconds:
            # The end of a run that is too short.
            span = (max(0.0, run.seconds - (span[1] - span[0])), run.seconds)
        start, end = span or (0.0, run.seconds)
        values = table.select("time", (pl.col(name).cast(pl.Float64) * quantity.factor).alias("value"))
        inside = values.filter(pl.col("time").is_between(start, end, closed="right"))
        decimated, per_point = _decimated(inside, all_samples=bool(span))
        if not decimated.is_empty():
            tables[label], samples = decimated, max(samples, per_point)
            mean, std = inside["value"].mean(), inside["value"].std()
            notes[label] = f"{plain(mean)} ± {plain(std)} {quantity.unit}"
    caption = (
        f"{picture.caption} {_sampling(samples)} Above each panel, mean ± standard deviation of its samples."
        f" Run with seed {seed}. Axis: {quantity.label} [{quantity.unit}]."
    )
    if not tables:
        return _figure(picture, f"{caption} No run has it.", [])
    domain = bounds(list(tables.values()), [], from_zero=quantity.from_zero)
    tables = {label: table for label, table in tables.items() if label in options.get("shown", tables)}
    printed = {label: verdicts.printed_moments(picture, label) for label in tables}
    if "shown" in options:
        notes |= {label: f"{notes[label]}{_printed_note(*printed[label])}" for label in tables}
    names = list(tables)
    deep = math.ceil(len(names) / columns)
    # Cases at several points share a colour, and so do neighbours if columns are compared.
    groups = names if by_rows else [f"row {n % deep}" for n in range(len(names))]
    if options["points"]:
        groups = [label.rpartition(", ")[0] for label in names]
    by_group = _shades(list(dict.fromkeys(groups)))
    last = max(float(table["time"].max() or 0.0) for table in tables.values())  # type: ignore[arg-type]
    charts = []
    for place, (label, group) in enumerate(zip(names, groups, strict=True)):
        below = place >= len(names) - columns if by_rows else place % deep == deep - 1
        chart = _series_panel(
            tables[label], quantity, span or (0.0, last), domain, by_group[group], below=below
        )
        if "shown" in options:
            chart = _with_printed(chart, printed[label][0], quantity, domain)
        title = _heading(label, by_group[group], notes[label])
        charts.append(chart.properties(width="container", height=_SERIES_HEIGHT, title=title))
    if not by_rows:
        # Panels fill the grid by rows; this order makes them read down the columns.
        places = (column * deep + row for row in range(deep) for column in range(columns))
        charts = [charts[place] for place in places if place < len(charts)]
    return _figure(picture, caption, charts, columns)


def _series_panel(
    table: pl.DataFrame,
    quantity: Quantity,
    span: tuple[float, float],
    domain: tuple[float, float],
    colour: str,
    *,
    below: bool,
) -> vega.Chart:
    x = time_axis(span, last=below, axis=vega.Axis(labels=below, tickCount=6))
    scale = vega.Scale(domain=list(domain), nice=False, zero=False)

    def y(name: str) -> vega.Y:
        return vega.Y(f"{name}:Q", title=quantity.unit, scale=scale)

    base = _data(rows(table)).encode(x=x)
    layers = [base.mark_line(color=colour, strokeWidth=1.1, clip=True).encode(y=y("mean"))]
    if not table["low"].equals(table["high"]):
        band = base.mark_area(color=colour, opacity=0.28, clip=True)
        layers.insert(0, band.encode(y=y("low"), y2=vega.Y2("high:Q")))
    return vega.layer(*layers)


def _printed_note(mean: float | None, std: float | None) -> str:
    parts = ["" if mean is None else brief(mean, 3), "" if std is None else f"± {brief(std, 3)}"]
    text = " ".join(part for part in parts if part)
    return f"; printed {text}" if text else ""


def _with_printed(
    chart: vega.Chart, mean: float | None, quantity: Quantity, domain: tuple[float, float]
) -> vega.Chart:
    """Return a panel with the printed mean as a dashed line."""
    if mean is None or not domain[0] <= mean <= domain[1]:
        return chart
    scale = vega.Scale(domain=list(domain), nice=False, zero=False)
    line = _data([{"printed": mean}]).mark_rule(color=INK, strokeDash=[4, 3])
    return vega.layer(chart, line.encode(y=vega.Y("printed:Q", title=quantity.unit, scale=scale)))


def _first_drops(verdicts: Verdicts, picture: Picture) -> Figure:
    """Mark the dropped ones of the first packets that arrived at the mark point, a row per case."""
    begin, end = picture.options.get("span", (0, picture.options["count"]))
    found: list[dict[str, Any]] = []
    names, seed = [], 0
    for label, case in _cases(verdicts, picture):
        drops, seed = verdicts.drops(case), case.seeds[0]
        inside = (pl.col("arrival") >= begin) & (pl.col("arrival") < end)
        early = drops.filter(inside & (pl.col("reason").cast(pl.String) == "aqm"))
        names.append(f"{label}: {early.height}")
        found += [{"case": names[-1], "arrival": each} for each in early["arrival"].to_list()]
    x = vega.X(
        "arrival:Q",
        title="number of the packet since measuring began",
        scale=vega.Scale(domain=[begin, end], nice=False),
    )
    chart = (
        _data(found)
        .mark_tick(thickness=1, opacity=0.85, size=20)
        .encode(
            x=x,
            y=_rows_axis("case", names, labelFontSize=12, labelLimit=240),
            color=_colour("case", _shades(names)),
        )
        .properties(width="container", height=30 * len(names))
    )
    caption = f"{picture.caption} Beside each name, the number of drops. Run with seed {seed}."
    return _figure(picture, caption, [chart])


def _flow_throughput(verdicts: Verdicts, picture: Picture) -> Figure:
    """Draw the throughput of flows: a dot for each that completed, a line for each that does not end."""
    traffic, lines, count, columns = (
        picture.options[key] for key in ("traffic", "lines", "count", "columns")
    )
    dots: dict[str, list[dict[str, Any]]] = {}
    steady: dict[str, list[dict[str, Any]]] = {}
    notes, seed, top = {}, 0, 0.0
    for label, case in _cases(verdicts, picture):
        run, seed = verdicts.first_run(case), case.seeds[0]
        flows = run.recorded.flows.with_columns(pl.col("traffic").cast(pl.String))
        some = (
            flows.filter(pl.col("traffic").is_in(traffic) & pl.col("completed") & (pl.col("opened") >= 0))
            .sort("opened", "flow")
            .head(count)
        )
        rates = (some["goodput"].cast(pl.Float64) / 1e3).to_list()
        dots[label] = [{"n": n, "rate": short(rate)} for n, rate in enumerate(rates, start=1)]
        sent = {name: float(flows.filter(pl.col("traffic") == name)["bytes"].sum()) for name in lines}
        steady[label] = [
            {"flow": name, "rate": short(total * 8e-3 / run.seconds)} for name, total in sent.items()
        ]
        top = max([top, *rates, *(each["rate"] for each in steady[label])])
        known_rates = pl.Series(rates, dtype=pl.Float64)
        notes[label] = f"{plain(known_rates.mean())} ± {plain(known_rates.std())} kbit/s"
        if "shown" in picture.options:
            notes[label] += _printed_note(*verdicts.printed_moments(picture, label))
    shade = _shades(list(dots))
    dots = {label: some for label, some in dots.items() if label in picture.options.get("shown", dots)}
    line_shade = {name: _LINES[i % len(_LINES)] for i, name in enumerate(lines)}
    y = vega.Y(
        "rate:Q",
        title="kbit/s",
        scale=vega.Scale(type="symlog", constant=20, domain=[0, rounded_up(top)], nice=False),
        axis=vega.Axis(values=[0, 20, 50, 100, 200, 500, 1000]),
    )
    charts = []
    for place, label in enumerate(dots):
        below = place >= len(dots) - columns
        x = vega.X(
            "n:Q",
            title="connection, in the order of opening" if below else None,
            scale=vega.Scale(domain=[0, count], nice=False),
            axis=vega.Axis(labels=below, tickCount=5),
        )
        chart = vega.layer(
            _data(dots[label]).mark_circle(size=9, opacity=0.65, color="#0072B2").encode(x=x, y=y),
            _data(steady[label]).mark_rule(strokeWidth=1.8).encode(y=y, color=_colour("flow", line_shade)),
        )
        title = _heading(label, shade[label], notes[label])
        charts.append(chart.properties(width="container", height=130, title=title))
    caption = (
        f"{picture.caption} Above each panel, mean ± standard deviation of the dots. The axis is logarithmic"
        f" above 20 kbit/s. Run with seed {seed}."
    )
    return _figure(picture, caption, charts, columns, {"a connection": "#0072B2"} | line_shade)


def _models(verdicts: Verdicts, picture: Picture) -> Figure:
    """Draw simulator and models over each other: a row per case, a column per quantity."""
    engines, span = verdicts.engines(picture), picture.options["span"]
    shade = _shades([label for _, label in engines])
    quantities = {each.name: each for each in MODEL_QUANTITIES}
    charts, seed, samples = [], 0, 1
    for case in picture.cases:
        found = {
            label: each
            for experiment, label in engines
            if (each := verdicts.cases.get((experiment, case, ""))) is not None
        }
        runs = {label: verdicts.first_run(each) for label, each in found.items()}
        seed = next((each.seeds[0] for each in found.values() if not each.fluid), seed)
        begin, end = 0.0, max(run.seconds for run in runs.values())
        if span:
            begin, end = max(0.0, min(span[0], end - (span[1] - span[0]))), min(span[1], end)
        inside = pl.col("time").is_between(begin, end, closed="right")
        for quantity in map(quantities.__getitem__, picture.options["quantities"]):
            tables: dict[str, pl.DataFrame] = {}
            notes = []
            for label, run in runs.items():
                series = known(run.recorded.series, quantity)
                if series is None:
                    continue
                tables[label], per_point = _decimated(series.filter(inside), all_samples=bool(span))
                samples = max(samples, per_point)
                notes.append(f"{label} {_moments(*moments(run.recorded.series.filter(inside), quantity))}")
            domain = bounds(list(tables.values()), [], from_zero=quantity.name != "throughput")
            if quantity.unit == "%":
                domain = domain[0], min(100.0, domain[1])
            charts.append(
                curves(
                    tables,
                    shade,
                    quantity,
                    (begin, end),
                    domain,
                    heading=f"{case}: {quantity.label.lower()}",
                    note="\n".join(notes),
                    limit=None,
                    last=case == picture.cases[-1],
                    width="container",
                )
            )
    caption = (
        f"{picture.caption} {_sampling(samples)} Above each panel, mean ± standard deviation. Run with seed"
        f" {seed}."
    )
    return _figure(picture, caption, charts, len(picture.options["quantities"]), shade)


def _moments(mean: float | None, std: float | None) -> str:
    """Return a mean with three digits, and a standard deviation with at most as many decimals."""
    if mean is None:
        return "–"
    decimals = 2 - math.floor(math.log10(abs(mean))) if mean else 2
    return f"{brief(mean, 3)}" + ("" if std is None else f" ± {brief(round(std, max(0, decimals)), 3)}")


_DRAWINGS: dict[str, Callable[[Verdicts, Picture], Figure]] = {
    "curves": _curves,
    "change": _curves,
    "course": _course,
    "bars": _bars,
    "gains": _gains,
    "series": _series,
    "first drops": _first_drops,
    "flow throughput": _flow_throughput,
    "cuts": _cuts,
    "models": _models,
    "input": _input,
}
