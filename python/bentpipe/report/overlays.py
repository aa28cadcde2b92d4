"""Figures that overlay several engines: time series of a setting, and ratios of means.

Time series are decimated for display as in a simulation's report.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from bentpipe.format import brief
from bentpipe.models.engines import QUANTITIES, Account, Quantity, moments, quantities
from bentpipe.report import vega
from bentpipe.report.colours import INK, MUTED, SOFT, of_settings
from bentpipe.report.decimate import POINTS, bounds, decimate, detail, rows, samples_of, short
from bentpipe.report.panels import Figure, Panel, Width, limit_line, time_axis
from bentpipe.runs.plan import slug

__all__ = ["curves", "engine_colours", "known", "over_time", "ratios"]

_WINDOW = (50.0, 100.0)
_SHOWN = ("queue", "throughput", "offered_load", "mark_probability")
_LEAST = 0.02
"""Smallest span of an axis as a share of its values; smaller variations are rounding errors."""
_FURTHEST = 100.0
"""Largest ratio on the axis; larger ones, and those below its inverse, are drawn at the end."""
_OF = {"std": "standard deviation", "mean": "mean"}
"""Labels of the compared values."""


def engine_colours(accounts: Sequence[Account]) -> dict[str, str]:
    """Return a colour for each engine, the same on every page; a model always has the second colour."""
    names = dict.fromkeys(["simulator", "model", *(account.engine for account in accounts)])
    return of_settings(list(names), list(names))


def over_time(
    accounts: Sequence[Account],
    settings: Sequence[str],
    capacity: Mapping[str, float],
    duration: float,
    interval: float,
    run: str,
    width: Width = "container",
) -> list[Figure]:
    """Return a figure for each setting: all quantities of all engines, over the whole time and magnified.

    `capacity` is each setting's link capacity [Mbit/s], `interval` the sampling interval [s], and `run` the
    description of the simulator's run, if any.
    """
    taken: set[str] = set()
    made = []
    for setting in settings:
        mine = [account for account in accounts if setting in account.series]
        if not mine:
            continue
        name = slug(setting, taken)
        taken.add(name)
        made.append(_setting(mine, setting, name, capacity[setting], duration, interval, run, width))
    return made


def _setting(
    accounts: Sequence[Account],
    setting: str,
    name: str,
    capacity: float,
    duration: float,
    interval: float,
    run: str,
    width: Width,
) -> Figure:
    start, end = _WINDOW
    if duration < end:
        start, end = max(0.0, duration - (end - start)), duration
    spans = [(0.0, duration), (start, end)] if end - start < duration else [(0.0, duration)]
    shade = engine_colours(accounts)
    shown = _quantities(accounts, setting)
    panels = []
    magnified = 0
    for quantity in shown:
        series = {
            account.engine: table
            for account in accounts
            if (table := known(account.series[setting], quantity)) is not None
        }
        whole = {engine: decimate(table) for engine, table in series.items()}
        rate = quantity.name in ("throughput", "offered_load")
        from_zero = quantity.name != "throughput"
        domain = bounds(list(whole.values()), [capacity] if rate else [], from_zero=from_zero)
        if domain[1] - domain[0] < _LEAST * domain[1]:
            domain = (1 - _LEAST) * domain[1], (1 + _LEAST) * domain[1]
        for span in spans:
            inside = {
                engine: decimate(table.filter(pl.col("time").is_between(*span, closed="right")))
                for engine, table in series.items()
            }
            note = ""
            if span == spans[-1]:
                inner = pl.col("time").is_between(*span, closed="right")
                magnified = max(magnified, *(len(table.filter(inner)) for table in series.values()))
            if span == spans[0]:
                # As in the tables: that of a share is over packets.
                means = [
                    f"{account.engine} {mean}" if len(accounts) > 1 else mean
                    for account in accounts
                    if account.engine in series
                    for mean in [_mean(account.series[setting], quantity)]
                ]
                note = f"mean: {', '.join(means)}"
            panels.append(
                Panel(
                    curves(
                        inside,
                        shade,
                        quantity,
                        span,
                        domain,
                        heading=quantity.label if span == spans[0] else f"{span[0]:g} to {span[1]:g} s",
                        note=note,
                        limit=capacity if rate else None,
                        last=quantity == shown[-1],
                        width=width,
                    ),
                    tuple(
                        (rows(inside[engine]), found)
                        for engine, table in series.items()
                        if (found := detail(table)) is not None
                    ),
                )
            )
    most = max(len(account.series[setting]) for account in accounts)
    size = max(1, math.ceil(most / POINTS))
    how = f"Sampled every {interval * 1e3:g} ms" + (
        "."
        if size == 1
        else f"; on the left, lines are means of {size} samples ({size * interval:g} s) and bands span their"
        " minimum and maximum."
    )
    which = f"The simulator's series is {run}. " if run else ""
    right = f" On the right, {samples_of(magnified)} of a part." if len(spans) > 1 else ""
    changing = any(
        "capacity" in account.series[setting].columns
        and _varies(account, setting, Quantity("capacity", "capacity", "", "", 1.0))
        for account in accounts
    )
    line = "the mean of the link's capacity, which changes" if changing else "the link's capacity"
    caption = f"{which}{how}{right} The dashed line is {line}."
    legend = tuple((account.engine, shade[account.engine]) for account in accounts)
    legend = legend if len(legend) > 1 else ()
    return Figure(f"over-time-{name}", setting, caption, tuple(panels), len(spans), legend)


def _quantities(accounts: Sequence[Account], setting: str) -> list[Quantity]:
    """Return the drawn quantities: known queue, rates and marks, then AQM state common to all engines."""
    columns = [set(account.series[setting].columns) for account in accounts]
    named = {each.name: each for each in QUANTITIES}
    shown = [
        named[name]
        for name in _SHOWN
        if any(known(account.series[setting], named[name]) is not None for account in accounts)
    ]
    own = [each for each in quantities(accounts[-1].series[setting]) if each.name.startswith("aqm.")]
    both = [each for each in own if all(each.column in of for of in columns)]
    return shown + [each for each in both if any(_varies(account, setting, each) for account in accounts)]


def _varies(account: Account, setting: str, quantity: Quantity) -> bool:
    distinct: int = account.series[setting][quantity.column].n_unique()
    return distinct > 1


def known(table: pl.DataFrame, quantity: Quantity) -> pl.DataFrame | None:
    """Return the known samples of a quantity as `time` and `value` in its unit; None without any."""
    if quantity.column not in table.columns:
        return None
    value = (pl.col(quantity.column).cast(pl.Float64).fill_nan(None) * quantity.factor).alias("value")
    found = table.select("time", value).drop_nulls()
    return found if len(found) else None


def _mean(table: pl.DataFrame, quantity: Quantity) -> str:
    mean, _ = moments(table, quantity)
    return "–" if mean is None else brief(mean, 3)


def curves(
    tables: Mapping[str, pl.DataFrame],
    shade: Mapping[str, str],
    quantity: Quantity,
    span: tuple[float, float],
    domain: tuple[float, float],
    *,
    heading: str,
    note: str,
    limit: float | None,
    last: bool,
    width: Width,
) -> vega.Chart:
    """Overlay decimated series: means as lines, extremes as bands; `note` may have several lines."""
    vertical: dict[str, Any] = {
        "title": quantity.unit or " ",
        "scale": vega.Scale(domain=list(domain), nice=False, zero=False),
        "axis": vega.Axis(format="~s") if domain[1] >= 10_000 else vega.Undefined,
    }
    low, mean = (vega.Y(f"{field}:Q", **vertical) for field in ("low", "mean"))
    lines: list[vega.Chart] = []
    areas: list[vega.Chart] = []
    for engine, table in tables.items():
        base = vega.Chart(vega.InlineData(values=rows(table))).encode(x=time_axis(span, last=last))
        area = base.mark_area(color=shade[engine], opacity=0.22)
        areas.append(area.encode(y=low, y2=vega.Y2("high:Q")))
        lines.append(base.mark_line(color=shade[engine], strokeWidth=1.3).encode(y=mean))
    layers = [*areas, *lines]
    if limit is not None:
        layers.append(limit_line(limit, **vertical))
    title = vega.TitleParams(
        text=heading,
        subtitle=note.split("\n") if note else " ",
        subtitleColor=MUTED,
        subtitleFontSize=11,
        fontWeight=600,
    )
    return vega.layer(*layers).properties(width=width, height=130, title=title)


def ratios(
    accounts: Sequence[Account], found: Sequence[Mapping[str, Any]], width: Width = "container"
) -> Figure | None:
    """Return the figure of the other engines' values as ratios to the first engine's."""
    first, *others = (account.engine for account in accounts)
    shade = engine_colours(accounts)
    # The AQM's internal state is only in the table.
    names = {each.name for each in QUANTITIES}
    shown = [row for row in found if row["quantity"] in names]
    labels: list[str] = []
    bands: list[dict[str, Any]] = []
    points: list[dict[str, Any]] = []
    order = list(dict.fromkeys(row["quantity"] for row in shown))
    for place, name in enumerate(order):
        mine = [row for row in shown if row["quantity"] == name]
        for row in mine:
            label = f"{row['label']}, {row['setting']}"
            found_here = [point for engine in others for point in _points(row, first, engine, label)]
            if not found_here:
                continue
            points += found_here
            labels.append(label)
            if place % 2 == 0:
                bands.append({"row": label})
    if not points:
        return None
    spread = max(3.0, *(max(p["ratio"], 1 / p["ratio"]) for p in points))
    end = min(_FURTHEST, 10.0 ** (math.ceil(10 * math.log10(1.2 * spread)) / 10))
    for point in points:
        for key in ("ratio", "low", "high"):
            if key in point:
                point[key] = short(min(max(point[key], 1 / end), end))
    scale = vega.Scale(type="log", domain=[1 / end, end], nice=False, clamp=True)
    ticks = [
        tick for tick in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if 1 / end <= tick <= end
    ]

    def x(field: str) -> vega.X:
        return vega.X(
            f"{field}:Q",
            title=f"{' or '.join(others)} / {first}, logarithmic",
            scale=scale,
            axis=vega.Axis(values=ticks, format="~g", grid=True),
        )

    y = vega.Y(
        "row:N",
        title=None,
        sort=labels,
        scale=vega.Scale(domain=labels),
        axis=vega.Axis(labelLimit=320, labelFontSize=11, labelColor=INK, labelPadding=20),
    )
    colour = vega.Color(
        "engine:N", scale=vega.Scale(domain=others, range=[shade[e] for e in others]), legend=None
    )
    tooltip = [vega.Tooltip("row:N"), vega.Tooltip("of:N"), vega.Tooltip("ratio:Q", format=".3g")]

    def dots(of: str, *, beyond: bool) -> vega.Chart:
        values = [p for p in points if p["of"] == _OF[of] and p["beyond"] == beyond]
        filled = of == "mean"
        shape = "circle" if filled else "diamond"
        chart: vega.Chart = (
            vega.Chart(vega.InlineData(values=values))
            .mark_point(filled=filled, size=60 if filled else 55, opacity=1, strokeWidth=1.6, shape=shape)
            .encode(x=x("ratio"), y=y, color=colour, tooltip=tooltip)
        )
        return chart

    def arrows(*, left: bool) -> vega.Chart:
        values = [p for p in points if p["beyond"] and (p["ratio"] < 1) == left]
        chart: vega.Chart = (
            vega.Chart(vega.InlineData(values=values))
            .mark_text(text="◂" if left else "▸", dx=-9 if left else 9, fontSize=13)
            .encode(x=x("ratio"), y=y, color=colour)
        )
        return chart

    layers: list[vega.Chart] = [
        vega.Chart(vega.InlineData(values=bands))
        .mark_rect(color=SOFT)
        .encode(y=y, x=vega.value(0), x2=vega.value("width")),
        vega.Chart(vega.InlineData(values=[{"one": 1.0}]))
        .mark_rule(color=INK, strokeWidth=1.2)
        .encode(x=x("one")),
        vega.Chart(vega.InlineData(values=[p for p in points if "low" in p]))
        .mark_rule(strokeWidth=1.5)
        .encode(x=x("low"), x2="high:Q", y=y, color=colour),
        dots("std", beyond=False),
        dots("mean", beyond=False),
        dots("std", beyond=True),
        dots("mean", beyond=True),
        arrows(left=True),
        arrows(left=False),
    ]
    chart = vega.layer(*layers).properties(width=width, height=max(120, 19 * len(labels)))
    caption = (
        "Dots are ratios of means, hollow diamonds ratios of standard deviations over time; on the line,"
        f" engines agree. Bars follow from the {first}'s 95 % interval. Arrows mark values beyond the axis,"
        " including zero."
    )
    legend = tuple((engine, shade[engine]) for engine in others) if len(others) > 1 else ()
    return Figure("ratios", f"Ratios to the {first}'s values", caption, (Panel(chart),), 1, legend)


def _points(row: Mapping[str, Any], first: str, engine: str, label: str) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    ours, theirs = row[first], row[engine]
    for of in _OF:
        base, value = ours[of], theirs[of]
        if value is None or not base or base < 0 or value < 0:
            continue
        ratio = value / base
        beyond = not 1 / _FURTHEST <= ratio <= _FURTHEST
        point: dict[str, Any] = {
            "row": label,
            "engine": engine,
            "of": _OF[of],
            "ratio": min(max(ratio, 1 / _FURTHEST), _FURTHEST),
            "beyond": beyond,
        }
        ci95 = ours["ci95"]
        if of == "mean" and ci95 is not None and not beyond:
            point["low"] = value / (base + ci95)
            point["high"] = value / (base - ci95) if base > ci95 else _FURTHEST
        made.append(point)
    return made
