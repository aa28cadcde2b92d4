"""The figures of a reproduction: printed tables beside ours, and the paper's own figures from our runs."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import altair as alt

from bentpipe.format import plural
from bentpipe.report.charts import INK, MUTED, Drawing, Figure, Panel, colours
from bentpipe.report.decimate import short
from bentpipe.reproduction import comparison, pictures
from bentpipe.reproduction.judged import PICTURE, TABLE, Item, Judged, Spot
from bentpipe.reproduction.paper import Picture, Printed
from bentpipe.reproduction.rules import CALIBRATED, DIRECTION_ONLY, NO_NUMBER, NOT_REPRODUCED, REPRODUCED

__all__ = ["DRAWINGS", "SHADES", "figure", "overview"]

SHADES = {
    REPRODUCED: "#0072B2",
    DIRECTION_ONLY: "#E69F00",
    NOT_REPRODUCED: "#D55E00",
    CALIBRATED: "#9aa5b1",
    NO_NUMBER: "#4D4D4D",
}
"""A colour for each verdict."""
_FURTHEST = 10.0
"""Ratios beyond so many times are drawn at the edge."""


def overview(judged: Judged, table: Printed, experiment: str) -> Figure | None:
    """Return ours over what is printed, for every cell of a table, with the prediction interval."""
    items = [
        item
        for item in judged.items
        if item.kind == TABLE and item.name == table.name and item.experiment == experiment
    ]
    dots: list[dict[str, Any]] = []
    labels = []
    for item in items:
        ratio = _ratio(item)
        if ratio is not None:
            label = f"{item.row}, {item.text}"
            labels.append(label)
            dots.append({"cell": label, "verdict": item.verdict} | ratio)
    if not dots:
        return None
    spread = max(1.25, *(max(dot["ratio"], 1 / dot["ratio"]) for dot in dots))
    end = min(_FURTHEST, 1.08 * spread)
    for dot in dots:
        for key in ("ratio", "low", "high"):
            if key in dot:
                dot[key] = short(min(max(dot[key], 1 / end), end))
    scale = alt.Scale(type="log", domain=[1 / end, end], nice=False, clamp=True)
    ticks = [tick for tick in (0.1, 0.2, 0.5, 0.8, 1, 1.25, 2, 5, 10) if 1 / end <= tick <= end]

    def x(field: str) -> alt.X:
        return alt.X(
            f"{field}:Q",
            title="ours over the printed value, logarithmic",
            scale=scale,
            axis=alt.Axis(values=ticks, format="~g", grid=True),
        )

    y = alt.Y(
        "cell:N",
        title=None,
        sort=labels,
        axis=alt.Axis(labelLimit=320, labelFontSize=11, labelColor=INK, labelPadding=12),
    )
    known = [verdict for verdict in SHADES if any(dot["verdict"] == verdict for dot in dots)]
    colour = alt.Color(
        "verdict:N", scale=alt.Scale(domain=known, range=[SHADES[each] for each in known]), legend=None
    )
    base = alt.Chart(alt.InlineData(values=dots)).encode(color=colour)
    chart = alt.layer(
        alt.Chart(alt.InlineData(values=[{"one": 1.0}])).mark_rule(color=INK).encode(x=x("one")),
        base.mark_rule(strokeWidth=1.5).encode(x=x("low"), x2="high:Q", y=y),
        base.mark_point(filled=True, size=70, opacity=1).encode(
            x=x("ratio"),
            y=y,
            tooltip=[
                alt.Tooltip("cell:N"),
                alt.Tooltip("verdict:N"),
                alt.Tooltip("ratio:Q", format=".3g"),
            ],
        ),
    ).properties(width="container", height=max(90, 20 * len(labels)))
    legend = tuple((verdict, SHADES[verdict]) for verdict in known)
    caption = "Bars are where one more run of ours would be in 95 of 100 cases."
    return Figure(f"{table.name}-{experiment}", "", caption, (Panel(chart),), 1, legend)


def _ratio(item: Item) -> dict[str, float] | None:
    if not item.printed or item.ours.mean is None or item.ours.mean / item.printed <= 0:
        return None
    found = {"ratio": item.ours.mean / item.printed}
    low, high = item.predicted
    if low is not None and high is not None:
        found |= {
            "low": max(low / item.printed, 1 / _FURTHEST),
            "high": max(high / item.printed, 1 / _FURTHEST),
        }
    return found


def figure(judged: Judged, picture: Picture) -> Figure:
    """Draw one of the paper's figures, or of ours, from our runs."""
    return DRAWINGS.get(picture.kind, _curves)(judged, picture)


def _curves(judged: Judged, picture: Picture) -> Figure:
    """Draw measures against an experiment's points: a line a curve, with its 95 % interval."""
    (item,) = (each for each in judged.items if each.kind == PICTURE and each.name == picture.name)
    names = list(dict.fromkeys(spot.curve for spot in item.spots))
    shade = colours(names, names)
    axis = judged.paper.experiments[picture.experiment].axis
    panels = []
    for measure in picture.measures:
        spots = [spot for spot in item.spots if spot.measure == measure]
        chart = _panel(spots, shade, axis, picture, judged.printed(picture, measure))
        panels.append(Panel(chart.properties(title=measure.label)))
    runs = max((spot.found.runs for spot in item.spots), default=0)
    dashed = f" Dashed: {picture.row}'s row, as printed." if picture.row else ""
    return Figure(
        picture.name,
        picture.heading,
        f"{picture.caption}{dashed} {plural(runs, 'run')} at each point.",
        tuple(panels),
        min(2, len(panels)),
        tuple(shade.items()) if len(names) > 1 else (),
    )


def _course(judged: Judged, picture: Picture) -> Figure:
    """Draw a measure over time, a panel a case, with the 95 % interval of its mean over the runs."""
    measure = next(each for each in picture.measures if each.course)
    shade = colours(picture.cases, picture.cases)
    found = {case: judged.course(picture.experiment, case, measure) for case in picture.cases}
    ends = [mean + (half or 0.0) for rows in found.values() for _, mean, half in rows]
    scale = alt.Scale(domain=[0.0, 1.05 * max(ends, default=1.0)], nice=False)
    panels = []
    for case, rows in found.items():
        values = [
            {"time": short(time), "mean": short(mean)}
            | ({} if half is None else {"low": short(max(mean - half, 0.0)), "high": short(mean + half)})
            for time, mean, half in rows
        ]
        x = alt.X("time:Q", title="time [s]", scale=alt.Scale(nice=False))
        base = alt.Chart(alt.InlineData(values=values)).encode(x=x)
        chart = alt.layer(
            base.mark_area(opacity=0.3, color=shade[case]).encode(
                y=alt.Y("low:Q", title=measure.unit, scale=scale), y2=alt.Y2("high:Q")
            ),
            base.mark_line(strokeWidth=1, color=shade[case]).encode(
                y=alt.Y("mean:Q", title=measure.unit, scale=scale)
            ),
        )
        panels.append(Panel(chart.properties(width="container", height=160, title=case)))
    runs = max(
        (len(cell.seeds) for key, cell in judged.cells.items() if key[0] == picture.experiment), default=0
    )
    caption = f"{picture.caption} {plural(runs, 'run')} of each."
    return Figure(picture.name, picture.heading, caption, tuple(panels), min(2, len(panels)))


def _panel(
    spots: Sequence[Spot], shade: dict[str, str], axis: str, picture: Picture, printed: float | None
) -> Drawing:
    values = []
    for spot in spots:
        one = spot.found
        if one.mean is not None:
            row: dict[str, Any] = {"x": spot.x, "curve": spot.curve, "mean": short(one.mean)}
            if one.low is not None and one.high is not None:
                row |= {"low": short(one.low), "high": short(one.high)}
            values.append(row)
    unit = spots[0].unit if spots else ""
    xs = sorted({row["x"] for row in values})
    x = alt.X(
        "x:Q",
        title=axis + (", logarithmic" if picture.log else ""),
        scale=alt.Scale(type="log", nice=False) if picture.log else alt.Scale(nice=False, zero=False),
        axis=alt.Axis(values=xs[:: max(1, math.ceil(len(xs) / 8))], format=",.6~g", labelOverlap=True),
    )
    ends = [row[key] for row in values for key in ("low", "high", "mean") if key in row] or [0.0, 1.0]
    ends += [] if printed is None else [printed]
    # What is never negative is not drawn so, however wide its interval.
    least = min(0.0, *ends) if any(row["mean"] < 0 for row in values) else 0.0
    most = max(0.0, *ends)
    room = 0.05 * (most - least or 1.0)
    scale = alt.Scale(domain=[least - room if least < 0 else 0.0, most + room], nice=False, clamp=True)

    def y(field: str) -> alt.Y:
        return alt.Y(f"{field}:Q", title=unit, scale=scale)

    colour = alt.Color(
        "curve:N", scale=alt.Scale(domain=list(shade), range=list(shade.values())), legend=None
    )
    base = alt.Chart(alt.InlineData(values=values)).encode(x=x, color=colour)
    layers = [
        base.mark_area(opacity=0.2).encode(y=y("low"), y2=alt.Y2("high:Q")),
        base.mark_line(strokeWidth=1.6).encode(y=y("mean")),
        base.mark_point(filled=True, size=36, opacity=1).encode(
            y=y("mean"),
            tooltip=[
                alt.Tooltip("curve:N"),
                alt.Tooltip("x:Q", title=axis),
                alt.Tooltip("mean:Q", title=unit, format=".4g"),
            ],
        ),
    ]
    if least < 0:
        layers.insert(0, _rule(0.0, y("level"), [1, 0], MUTED))
    if printed is not None:
        layers.insert(0, _rule(printed, y("level"), [4, 3], INK))
    return alt.layer(*layers).properties(width="container", height=230)


def _rule(level: float, y: alt.Y, dash: list[float], colour: str) -> alt.Chart:
    chart: alt.Chart = (
        alt.Chart(alt.InlineData(values=[{"level": level}]))
        .mark_rule(color=colour, strokeWidth=1, strokeDash=dash)
        .encode(y=y)
    )
    return chart


DRAWINGS: dict[str, Callable[[Judged, Picture], Figure]] = {
    "course": _course,
    "series": pictures.series,
    "first drops": pictures.first_drops,
    "flow throughput": pictures.flow_throughput,
    "bars": pictures.bars,
    "cuts": pictures.cuts,
    "models": pictures.models,
    "gains": comparison.gains,
}
"""What draws each kind of figure that is no curve."""
