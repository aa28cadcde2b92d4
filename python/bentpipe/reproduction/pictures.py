"""Figures of single runs and of settings side by side, beyond curves over an experiment's points.

All series are of the first run of each case, and decimated, not smoothed.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import altair as alt
import polars as pl

from bentpipe.format import brief
from bentpipe.models.engines import QUANTITIES as BOTH
from bentpipe.models.engines import moments
from bentpipe.report.charts import INK, MUTED, Drawing, Figure, Panel, colours
from bentpipe.report.decimate import bounds, decimate, rounded_up, rows, short
from bentpipe.report.overlays import curves, known
from bentpipe.reproduction.judged import Judged
from bentpipe.reproduction.kinds import QUANTITIES, Quantity
from bentpipe.reproduction.laws import marks_to_window
from bentpipe.reproduction.measures import Measure
from bentpipe.reproduction.paper import Picture
from bentpipe.reproduction.runs import Cell
from bentpipe.stats.intervals import summarise

__all__ = ["bars", "cuts", "first_drops", "flow_throughput", "models", "series"]

_POINTS = 240
"""Buckets of a series in a panel of half a page."""
_HEIGHT = 84
_LINES = ("#D55E00", "#009E73", "#CC79A7")


def _cells(judged: Judged, picture: Picture) -> Iterator[tuple[str, Cell]]:
    """Yield the simulated cases of a picture with their names: at its points, or at their first."""
    points = picture.options.get("points", [])
    known = [point.label for point in judged.paper.experiments[picture.experiment].points]
    for point in points or [known[0]]:
        for case in picture.cases:
            cell = judged.cells.get((picture.experiment, case, point))
            if cell is not None:
                yield f"{case}, {point}" if points else case, cell


def _ordered(panels: Sequence[Panel], columns: int, order: str) -> tuple[Panel, ...]:
    """Return panels so that they read down the columns of a grid that is filled by rows, where asked for."""
    if order == "rows":
        return tuple(panels)
    deep = math.ceil(len(panels) / columns)
    return tuple(
        panels[column * deep + row]
        for row in range(deep)
        for column in range(columns)
        if column * deep + row < len(panels)
    )


def _heading(name: str, colour: str, note: str) -> alt.TitleParams:
    return alt.TitleParams(
        text=name,
        color=colour,
        subtitle=note or alt.Undefined,
        subtitleColor=MUTED,
        subtitleFontSize=11,
        subtitlePadding=1,
        offset=3,
    )


def series(judged: Judged, picture: Picture) -> Figure:
    """Draw a quantity over time, a panel a case, all with the same axes."""
    quantity = QUANTITIES[picture.options["quantity"]]
    tables: dict[str, pl.DataFrame] = {}
    notes: dict[str, str] = {}
    span, seed, samples = picture.options["span"], 0, 1
    for case, cell in _cells(judged, picture):
        seen = judged.seen(cell)
        table = seen.recorded.series
        seed = cell.seeds[0]
        if picture.options["quantity"] not in table.columns:
            continue
        value = pl.col(picture.options["quantity"]).cast(pl.Float64) * quantity.factor
        known = table.select("time", value.alias("value"))
        if span and span[1] > seen.seconds:
            # A run that is over before: its end.
            span = (max(0.0, seen.seconds - (span[1] - span[0])), seen.seconds)
        start, end = span or (0.0, seen.seconds)
        inside = known.filter(pl.col("time").is_between(start, end, closed="right"))
        decimated = decimate(inside, len(inside) if span else _POINTS)
        if decimated.is_empty():
            continue
        samples = max(samples, math.ceil(len(inside) / len(decimated)))
        tables[case] = decimated
        mean, std = inside["value"].mean(), inside["value"].std()
        notes[case] = f"{_text(mean)} ± {_text(std)} {quantity.unit}"
    names = list(tables)
    columns = picture.options["columns"]
    deep = math.ceil(len(names) / columns)
    # Panels that stand beside each other have one colour where columns are what is compared.
    group = names if picture.options["order"] == "rows" else [f"row {n % deep}" for n in range(len(names))]
    if picture.options["points"]:
        group = [name.rpartition(", ")[0] for name in names]
    by_group = colours(group, list(dict.fromkeys(group)))
    shade = {name: by_group[each] for name, each in zip(names, group, strict=True)}
    caption = _series_caption(picture, quantity, seed, samples)
    if not tables:
        return Figure(picture.name, picture.heading, f"{caption} No run has it.", ())
    domain = bounds(list(tables.values()), [], from_zero=quantity.from_zero)
    ends = (
        span or (0.0, max(float(table["time"].max() or 0.0) for table in tables.values()))  # type: ignore[arg-type]
    )
    last = len(names) - (columns if picture.options["order"] == "rows" else 1)
    panels = []
    for place, case in enumerate(names):
        below = place >= last if picture.options["order"] == "rows" else place % deep == deep - 1
        panels.append(
            Panel(
                _over_time(tables[case], quantity, ends, domain, shade[case], below=below).properties(
                    width="container", height=_HEIGHT, title=_heading(case, shade[case], notes[case])
                )
            )
        )
    ordered = _ordered(panels, columns, picture.options["order"])
    return Figure(picture.name, picture.heading, caption, ordered, columns)


def _series_caption(picture: Picture, quantity: Quantity, seed: int, samples: int) -> str:
    how = (
        f"The line is the mean of {samples} samples, the band spans the smallest and the largest of them."
        if samples > 1
        else "Every sample."
    )
    what = f"Above each panel, mean ± standard deviation of its samples. Run with seed {seed}."
    return f"{picture.caption} {how} {what} Axis: {quantity.label} [{quantity.unit}]."


def _over_time(
    table: pl.DataFrame,
    quantity: Quantity,
    span: tuple[float, float],
    domain: tuple[float, float],
    colour: str,
    *,
    below: bool,
) -> Drawing:
    x = alt.X(
        "time:Q",
        title="time since measuring began [s]" if below else None,
        scale=alt.Scale(domain=list(span), nice=False),
        axis=alt.Axis(labels=below, tickCount=6),
    )
    y_scale = alt.Scale(domain=list(domain), nice=False, zero=False)
    base = alt.Chart(alt.InlineData(values=rows(table))).encode(x=x)
    line = base.mark_line(color=colour, strokeWidth=1.1, clip=True)
    layers = [line.encode(y=alt.Y("mean:Q", title=quantity.unit, scale=y_scale))]
    if not table["low"].equals(table["high"]):
        band = base.mark_area(color=colour, opacity=0.28, clip=True)
        layers.insert(
            0, band.encode(y=alt.Y("low:Q", title=quantity.unit, scale=y_scale), y2=alt.Y2("high:Q"))
        )
    return alt.layer(*layers)


def first_drops(judged: Judged, picture: Picture) -> Figure:
    """Draw which of the first packets that arrived at the mark point were dropped, a row a case."""
    count = picture.options["count"]
    found: list[dict[str, Any]] = []
    names, seed = [], 0
    for case, cell in _cells(judged, picture):
        drops, seed = judged.drops(cell), cell.seeds[0]
        early = drops.filter((pl.col("arrival") < count) & (pl.col("reason").cast(pl.String) == "aqm"))
        names.append(f"{case}: {early.height}")
        found += [{"case": names[-1], "arrival": each} for each in early["arrival"].to_list()]
    shade = colours(names, names)
    chart = (
        alt.Chart(alt.InlineData(values=found))
        .mark_tick(thickness=1, opacity=0.85, size=20)
        .encode(
            x=alt.X(
                "arrival:Q",
                title="number of the packet since measuring began",
                scale=alt.Scale(domain=[0, count], nice=False),
            ),
            y=alt.Y(
                "case:N",
                title=None,
                sort=names,
                scale=alt.Scale(domain=names),
                axis=alt.Axis(labelFontSize=12, labelColor=INK, labelLimit=240),
            ),
            color=alt.Color(
                "case:N",
                scale=alt.Scale(domain=names, range=[shade[each] for each in names]),
                legend=None,
            ),
        )
        .properties(width="container", height=30 * len(names))
    )
    caption = f"{picture.caption} Beside each name, how many. Run with seed {seed}."
    return Figure(picture.name, picture.heading, caption, (Panel(chart),))


def flow_throughput(judged: Judged, picture: Picture) -> Figure:
    """Draw the throughput of flows: a dot for each that completed, a line for each that does not end."""
    traffic, lines, count = (picture.options[key] for key in ("traffic", "lines", "count"))
    dots: dict[str, list[dict[str, Any]]] = {}
    steady: dict[str, list[dict[str, Any]]] = {}
    notes, seed, top = {}, 0, 0.0
    for case, cell in _cells(judged, picture):
        seen, seed = judged.seen(cell), cell.seeds[0]
        flows = seen.recorded.flows.with_columns(pl.col("traffic").cast(pl.String))
        some = (
            flows.filter(pl.col("traffic").is_in(traffic) & pl.col("completed") & (pl.col("opened") >= 0))
            .sort("opened", "flow")
            .head(count)
        )
        rates = (some["goodput"].cast(pl.Float64) / 1e3).to_list()
        dots[case] = [{"n": place + 1, "rate": short(rate)} for place, rate in enumerate(rates)]
        steady[case] = [
            {
                "flow": name,
                "rate": short(
                    float(flows.filter(pl.col("traffic") == name)["bytes"].sum()) * 8e-3 / seen.seconds
                ),
            }
            for name in lines
        ]
        top = max([top, *rates, *(each["rate"] for each in steady[case])])
        middle = pl.Series(rates, dtype=pl.Float64)
        notes[case] = f"{_text(middle.mean())} ± {_text(middle.std())} kbit/s"
    names = list(dots)
    shade = colours(names, names)
    ranks = alt.Scale(domain=list(lines), range=[_LINES[i % len(_LINES)] for i in range(len(lines))])
    y_scale = alt.Scale(type="symlog", constant=20, domain=[0, rounded_up(top)], nice=False)
    ticks = alt.Axis(values=[0, 20, 50, 100, 200, 500, 1000])
    panels = []
    columns = picture.options["columns"]
    for place, case in enumerate(names):
        below = place >= len(names) - columns
        x = alt.X(
            "n:Q",
            title="connection, in the order of opening" if below else None,
            scale=alt.Scale(domain=[0, count], nice=False),
            axis=alt.Axis(labels=below, tickCount=5),
        )
        y = alt.Y("rate:Q", title="kbit/s", scale=y_scale, axis=ticks)
        chart = alt.layer(
            alt.Chart(alt.InlineData(values=dots[case]))
            .mark_circle(size=9, opacity=0.65, color="#0072B2")
            .encode(x=x, y=y),
            alt.Chart(alt.InlineData(values=steady[case]))
            .mark_rule(strokeWidth=1.8)
            .encode(y=y, color=alt.Color("flow:N", scale=ranks, legend=None)),
        ).properties(width="container", height=130, title=_heading(case, shade[case], notes[case]))
        panels.append(Panel(chart))
    caption = (
        f"{picture.caption} Above each panel, mean ± standard deviation of the dots. The axis is logarithmic"
        f" above 20 kbit/s. Run with seed {seed}."
    )
    legend = (("a connection", "#0072B2"), *((name, _LINES[i % len(_LINES)]) for i, name in enumerate(lines)))
    return Figure(picture.name, picture.heading, caption, tuple(panels), columns, legend)


def models(judged: Judged, picture: Picture) -> Figure:
    """Draw simulator and models over each other: a row a case, a column a quantity."""
    engines, span = judged.engines(picture), picture.options["span"]
    shade = colours([label for _, label in engines], [label for _, label in engines])
    named = {each.name: each for each in BOTH}
    panels, seed, samples = [], 0, 1
    for case in picture.cases:
        runs = {
            label: (cell, judged.seen(cell))
            for experiment, label in engines
            if (cell := judged.cells.get((experiment, case, ""))) is not None
        }
        for name in picture.options["quantities"]:
            tables: dict[str, pl.DataFrame] = {}
            notes = []
            ends = (0.0, max(seen.seconds for _, seen in runs.values()))
            ends = (
                (max(0.0, min(span[0], ends[1] - (span[1] - span[0]))), min(span[1], ends[1]))
                if span
                else ends
            )
            for label, (cell, seen) in runs.items():
                seed = seed if cell.fluid else cell.seeds[0]
                found = known(seen.recorded.series, named[name])
                if found is None:
                    continue
                inside = found.filter(pl.col("time").is_between(*ends, closed="right"))
                tables[label] = decimate(inside, len(inside) if span else _POINTS)
                samples = max(samples, math.ceil(len(inside) / max(1, len(tables[label]))))
                during = seen.recorded.series.filter(pl.col("time").is_between(*ends, closed="right"))
                notes.append(f"{label} {_moments(*moments(during, named[name]))}")
            domain = bounds(list(tables.values()), [], from_zero=name != "throughput")
            if named[name].unit == "%":
                domain = domain[0], min(100.0, domain[1])
            drawing = curves(
                tables,
                shade,
                named[name],
                ends,
                domain,
                heading=f"{case}: {named[name].label.lower()}",
                note="\n".join(notes),
                limit=None,
                last=case == picture.cases[-1],
                width="container",
            )
            panels.append(Panel(drawing))
    how = (
        f"Lines are means of {samples} samples, bands span the smallest and the largest of them."
        if samples > 1
        else "Every sample."
    )
    caption = f"{picture.caption} {how} Above each panel, mean ± standard deviation. Run with seed {seed}."
    legend = tuple(shade.items())
    columns = len(picture.options["quantities"])
    return Figure(picture.name, picture.heading, caption, tuple(panels), columns, legend)


def _moments(mean: float | None, std: float | None) -> str:
    """Write a mean with three digits, and a deviation with as many decimals at most."""
    if mean is None:
        return "–"
    decimals = 2 - math.floor(math.log10(abs(mean))) if mean else 2
    return f"{brief(mean, 3)}" + ("" if std is None else f" ± {brief(round(std, max(0, decimals)), 3)}")


def bars(judged: Judged, picture: Picture) -> Figure:
    """Draw a measure of every case as a dot with its interval, a panel a measure."""
    marks = picture.options["marks"]
    panels = []
    for place, measure in enumerate(picture.measures):
        mark = marks[place] if place < len(marks) else None
        panels.append(Panel(_bars(judged, picture, measure, mark)))
    runs = max((len(cell.seeds) for _, cell in _cells(judged, picture)), default=0)
    caption = f"{picture.caption} Means over {runs} runs with their 95 % intervals."
    return Figure(picture.name, picture.heading, caption, tuple(panels), min(3, max(1, len(panels))))


def _bars(judged: Judged, picture: Picture, measure: Measure, mark: float | None) -> Drawing:
    values: list[dict[str, Any]] = []
    names = [case for case, _ in _cells(judged, picture)]
    shade = colours(names, names)
    for case, cell in _cells(judged, picture):
        found = summarise(judged.values(cell.experiment, cell.case, measure, cell.point))
        if found.mean is None:
            continue
        row: dict[str, Any] = {"case": case, "mean": short(found.mean), "text": brief(found.mean, 3)}
        row["end"] = short(found.high or found.mean)
        if found.low is not None and found.high is not None:
            row |= {"low": short(found.low), "high": short(found.high)}
        values.append(row)
    top = max([*(row.get("high", row["mean"]) for row in values), mark or 0.0, 1e-9])
    scale = alt.Scale(domain=[0, 1.18 * top], nice=False)
    x = alt.X("mean:Q", title=measure.unit, scale=scale, axis=alt.Axis(tickCount=5))
    y = alt.Y("case:N", title=None, sort=names, scale=alt.Scale(domain=names), axis=alt.Axis(labelColor=INK))
    colour = alt.Color(
        "case:N", scale=alt.Scale(domain=names, range=[shade[each] for each in names]), legend=None
    )
    base = alt.Chart(alt.InlineData(values=values)).encode(y=y)
    layers = [
        base.mark_bar(opacity=0.7, height=11).encode(x=x, color=colour),
        base.mark_rule(color=INK, strokeWidth=1.5).encode(
            x=alt.X("low:Q", title=measure.unit, scale=scale), x2="high:Q"
        ),
        base.mark_text(align="left", dx=6, fontSize=11, color=INK).encode(
            x=alt.X("end:Q", title=measure.unit, scale=scale), text="text:N"
        ),
    ]
    if mark is not None:
        line = alt.Chart(alt.InlineData(values=[{"mark": mark}])).mark_rule(color=INK, strokeDash=[4, 3])
        layers.append(line.encode(x=alt.X("mark:Q", title=measure.unit, scale=scale)))
    return alt.layer(*layers).properties(width="container", height=21 * len(names), title=measure.label)


def cuts(judged: Judged, picture: Picture) -> Figure:
    """Draw what is left of a buffer after so many cuts, and where each kind of cut passes the window."""
    del judged
    limit, window = picture.options["limit"], picture.options["window"]
    points: list[dict[str, Any]] = []
    ends: list[dict[str, Any]] = []
    names = []
    for decr in picture.options["decr"]:
        needed = marks_to_window(limit, window, decr)
        name = f"× {decr:g}"
        names.append(name)
        points += [{"case": name, "n": n, "left": short(1e-3 * limit * decr**n)} for n in range(needed + 1)]
        ends.append(
            {"case": name, "n": needed, "left": short(1e-3 * limit * decr**needed), "text": str(needed)}
        )
    shade = colours(names, names)
    colour = alt.Color(
        "case:N", scale=alt.Scale(domain=names, range=[shade[each] for each in names]), legend=None
    )
    x = alt.X("n:Q", title="marks", scale=alt.Scale(nice=False, domain=[0, 1.06 * max(e["n"] for e in ends)]))
    low, high = 0.4e-3 * window, 1.4e-3 * limit
    y_scale = alt.Scale(type="log", domain=[low, high], nice=False)
    y = alt.Y(
        "left:Q",
        title="limit [KB], logarithmic",
        scale=y_scale,
        axis=alt.Axis(values=[5, 10, 20, 50, 100, 200, 500], format="~g"),
    )
    last = alt.Chart(alt.InlineData(values=ends)).encode(x=x, y=y, color=colour)
    chart = alt.layer(
        alt.Chart(alt.InlineData(values=[{"left": 1e-3 * window}]))
        .mark_rule(color=INK, strokeDash=[4, 3])
        .encode(y=y),
        alt.Chart(alt.InlineData(values=points)).mark_line(strokeWidth=1.8).encode(x=x, y=y, color=colour),
        last.mark_point(filled=True, size=50, opacity=1),
        last.mark_text(dy=15, fontSize=12).encode(text="text:N"),
    ).properties(width="container", height=260)
    legend = tuple((name, shade[name]) for name in names)
    return Figure(picture.name, picture.heading, picture.caption, (Panel(chart),), 1, legend)


def _text(value: object) -> str:
    return brief(float(value), 3) if isinstance(value, int | float) else "–"
