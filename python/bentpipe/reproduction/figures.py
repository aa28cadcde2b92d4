"""The figures of a reproduction: printed tables beside ours, and the paper's own figures from our runs."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import altair as alt

from bentpipe.figures import INK, MUTED, Drawing, Figure, Panel, colours
from bentpipe.reproduction.judged import TABLE, Item, Judged
from bentpipe.reproduction.measures import Measure
from bentpipe.reproduction.paper import Picture, Printed
from bentpipe.reproduction.rules import CALIBRATED, DIRECTION_ONLY, NO_NUMBER, NOT_REPRODUCED, REPRODUCED
from bentpipe.statistics import Summary, summarise
from bentpipe.thinning import short

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
    return DRAWINGS[picture.kind](judged, picture)


def _curves(judged: Judged, picture: Picture) -> Figure:
    """Each measure against the points, a line a case, with its 95 % interval."""

    def found(case: str, measure: Measure, point: str) -> Summary:
        return summarise(judged.values(picture.experiment, case, measure, point))

    return _lines(judged, picture, [(case, case) for case in picture.cases], found, lambda m: m.unit)


def _change(judged: Judged, picture: Picture) -> Figure:
    """By how many per cent a measure is less in each case than in others, run by run."""
    pairs = {f"{case} over {than}": (case, than) for case in picture.cases for than in picture.than}

    def found(label: str, measure: Measure, point: str) -> Summary:
        case, than = pairs[label]
        ours = judged.values(picture.experiment, case, measure, point)
        theirs = judged.values(picture.experiment, than, measure, point)
        return summarise(
            [100 * (b - a) / b if a is not None and b else None for a, b in zip(ours, theirs, strict=True)]
        )

    labels = [(label, label) for label in pairs]
    return _lines(judged, picture, labels, found, lambda _: "% less", zero=True)


def _lines(
    judged: Judged,
    picture: Picture,
    labels: Sequence[tuple[str, str]],
    found: Callable[[str, Measure, str], Summary],
    unit: Callable[[Measure], str],
    *,
    zero: bool = False,
) -> Figure:
    experiment = judged.paper.experiments[picture.experiment]
    points = [
        each
        for each in experiment.points
        if any(key[0] == experiment.name and key[2] == each.label for key in judged.cells)
    ]
    names = [label for label, _ in labels]
    shade = colours(names, names)
    panels = []
    for measure in picture.measures:
        values = []
        for name, label in labels:
            for point in points:
                one = found(label, measure, point.label)
                if one.mean is not None:
                    row: dict[str, Any] = {"x": point.x, "case": name, "mean": short(one.mean)}
                    if one.low is not None and one.high is not None:
                        row |= {"low": short(one.low), "high": short(one.high)}
                    values.append(row)
        panels.append(
            Panel(
                _panel(
                    values, names, shade, experiment.axis, unit(measure), measure.label, picture, zero=zero
                )
            )
        )
    legend = tuple((name, shade[name]) for name in names) if len(names) > 1 else ()
    runs = max(
        (len(cell.seeds) for key, cell in judged.cells.items() if key[0] == experiment.name), default=0
    )
    caption = f"{picture.caption} {runs} runs at each point."
    title = f"{picture.where}: {picture.title}" if picture.where else picture.title
    return Figure(picture.name, title, caption, tuple(panels), min(2, len(panels)), legend)


def _panel(
    values: list[dict[str, Any]],
    names: list[str],
    shade: dict[str, str],
    axis: str,
    unit: str,
    heading: str,
    picture: Picture,
    *,
    zero: bool,
) -> Drawing:
    xs = sorted({row["x"] for row in values}) or [0.0, 1.0]
    scale = alt.Scale(type="log", nice=False) if picture.log else alt.Scale(nice=False, zero=False)
    ticks = _ticks(xs)
    x = alt.X(
        "x:Q",
        title=axis + (", logarithmic" if picture.log else ""),
        scale=scale,
        axis=alt.Axis(values=ticks, format="~g", labelOverlap=True),
    )
    ends = [row[key] for row in values for key in ("low", "high", "mean") if key in row]
    low, high = (min([*ends, 0.0]), max([*ends, 0.0])) if ends else (0.0, 1.0)
    room = 0.05 * (high - low or 1.0)
    y_scale = alt.Scale(domain=[low - room if low < 0 else 0.0, high + room], nice=False)
    colour = alt.Color(
        "case:N", scale=alt.Scale(domain=names, range=[shade[name] for name in names]), legend=None
    )
    base = alt.Chart(alt.InlineData(values=values)).encode(x=x, color=colour)
    layers = [
        base.mark_area(opacity=0.2).encode(y=alt.Y("low:Q", title=unit, scale=y_scale), y2=alt.Y2("high:Q")),
        base.mark_line(strokeWidth=1.6).encode(y=alt.Y("mean:Q", title=unit, scale=y_scale)),
        base.mark_point(filled=True, size=36, opacity=1).encode(
            y=alt.Y("mean:Q", title=unit, scale=y_scale),
            tooltip=[
                alt.Tooltip("case:N"),
                alt.Tooltip("x:Q", title=axis),
                alt.Tooltip("mean:Q", title=unit, format=".4g"),
            ],
        ),
    ]
    if zero:
        layers.insert(
            0,
            alt.Chart(alt.InlineData(values=[{"zero": 0.0}]))
            .mark_rule(color=MUTED, strokeWidth=1)
            .encode(y=alt.Y("zero:Q", title=unit, scale=y_scale)),
        )
    return alt.layer(*layers).properties(width="container", height=230, title=heading)


def _ticks(xs: list[float]) -> list[float]:
    """Return at most eight of the points, evenly spread."""
    step = max(1, math.ceil(len(xs) / 8))
    return xs[::step]


DRAWINGS: dict[str, Callable[[Judged, Picture], Figure]] = {"curves": _curves, "change": _change}
"""What draws each kind of figure."""
