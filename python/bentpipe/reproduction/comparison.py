"""The figure of gains: by how many per cent one case is better than others."""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from bentpipe.format import brief, plural
from bentpipe.report.charts import INK, MUTED, Drawing, Figure, Panel, colours
from bentpipe.report.decimate import short
from bentpipe.reproduction.judged import PICTURE, Judged, Spot
from bentpipe.reproduction.paper import Picture

__all__ = ["gains"]

_ROW = 24
"""Height of a row [pixels]."""
_MOST_COLUMNS = 3


def gains(judged: Judged, picture: Picture) -> Figure:
    """Draw a panel a measure: a dot with its 95 % interval in the row of each other case."""
    (item,) = (each for each in judged.items if each.kind == PICTURE and each.name == picture.name)
    names = list(dict.fromkeys(spot.curve for spot in item.spots))
    shade = colours(names, names)
    measures = dict.fromkeys(spot.measure for spot in item.spots)
    panels = [
        Panel(_dots([spot for spot in item.spots if spot.measure == measure], shade)) for measure in measures
    ]
    runs = max((spot.found.runs for spot in item.spots), default=0)
    return Figure(
        picture.name,
        picture.heading,
        f"{picture.caption} {plural(runs, 'run')} of each; bars are 95 % intervals of the mean.",
        tuple(panels),
        min(_MOST_COLUMNS, max(1, len(panels))),
    )


def _dots(spots: Sequence[Spot], shade: Mapping[str, str]) -> Drawing:
    values: list[dict[str, Any]] = []
    for spot in spots:
        one = spot.found
        if one.mean is None:
            continue
        row: dict[str, Any] = {"curve": spot.curve, "mean": short(one.mean), "text": brief(one.mean, 3)}
        low, high = (one.mean, one.mean) if one.low is None or one.high is None else (one.low, one.high)
        values.append(row | {"low": short(low), "high": short(high)})
    ends = [row[key] for row in values for key in ("low", "high")] + [0.0]
    least = min(ends)
    span = max(ends) - least or 1.0
    # Room for the number right of each interval.
    scale = alt.Scale(domain=[least - 0.04 * span if least < 0 else 0.0, max(ends) + 0.2 * span], nice=False)
    names = [spot.curve for spot in spots]

    def x(field: str) -> alt.X:
        return alt.X(
            f"{field}:Q", title=spots[0].unit, scale=scale, axis=alt.Axis(tickCount=5, format=",.6~g")
        )

    y = alt.Y("curve:N", title=None, sort=names, scale=alt.Scale(domain=names), axis=alt.Axis(labelColor=INK))
    colour = alt.Color(
        "curve:N", scale=alt.Scale(domain=names, range=[shade[each] for each in names]), legend=None
    )
    base = alt.Chart(alt.InlineData(values=values)).encode(y=y)
    layers = [
        base.mark_rule(strokeWidth=1.8).encode(x=x("low"), x2="high:Q", color=colour),
        base.mark_point(filled=True, size=64, opacity=1).encode(
            x=x("mean"),
            color=colour,
            tooltip=[alt.Tooltip("curve:N"), alt.Tooltip("mean:Q", title=spots[0].unit, format=".4g")],
        ),
        base.mark_text(align="left", dx=7, fontSize=11, color=INK).encode(x=x("high"), text="text:N"),
    ]
    line = alt.Chart(alt.InlineData(values=[{"zero": 0.0}])).mark_rule(color=MUTED)
    layers.insert(0, line.encode(x=x("zero")))
    return alt.layer(*layers).properties(
        width="container", height=_ROW * len(names), title=spots[0].measure.label
    )
