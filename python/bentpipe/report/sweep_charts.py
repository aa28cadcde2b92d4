"""The figures of a sweep: lines against one factor, maps of two, main effects of more, points of a sample."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import polars as pl

from bentpipe.format import brief, convert, ends, number_of, plural, with_unit
from bentpipe.report import vega
from bentpipe.report.colours import LINE, PALETTE, PAPER, text_colour
from bentpipe.report.panels import Figure, Panel, Width
from bentpipe.stats.intervals import summarise
from bentpipe.stats.metrics import Metric
from bentpipe.sweeps.result import SweepResult, check_metrics

__all__ = ["Axis", "axes", "figure_against", "figures", "setting_colours"]

_DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3])
_NONE = LINE
_ON_DARK, _ON_LIGHT, _DARK_FROM = "#fff", "#111", 0.7
"""Colours of the numbers in a map in both schemes, and the share from which its colours are dark."""
_FAR = 20.0
"""Ratio of the largest mean to the smallest from which the axis is logarithmic."""
_FEW = 4
"""Maximum number of settings with strong bands."""
_WRITTEN = 120
"""Maximum number of cells of a map with values in them."""
_WIDE = 50.0
"""Ratio of a factor's largest value to its smallest from which its axis is logarithmic."""
_TICKS = 9
_BARS = 60
"""Maximum number of points of a sample with intervals."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A factor in figures and tables."""

    key: str
    values: tuple[str, ...]
    """Values as in the scenario file, in order."""
    unit: str
    log: bool
    numbers: dict[str, float] | None
    """Number of each value in `unit`; `None` unless all are numbers with one unit."""
    labels: dict[str, str]
    """Each value without its unit, with at least three digits and as many as distinguish it."""

    @property
    def title(self) -> str:
        """The key and its unit."""
        return with_unit(self.key, self.unit)

    @property
    def written(self) -> dict[str, str]:
        """Each value's label with its unit."""
        return {value: f"{label} {self.unit}".strip() for value, label in self.labels.items()}

    def x(self) -> vega.X:
        """Return the axis of a chart."""
        title = self.title
        if self.numbers is None:
            order = [self.labels[value] for value in self.values]
            return vega.X("x:N", title=title, sort=order, axis=vega.Axis(labelAngle=0))
        numbers = list(self.numbers.values())
        least, most = min(numbers), max(numbers)
        kind: Literal["log", "linear"] = "log" if self.log else "linear"
        zero = vega.Undefined if self.log else False
        scale = vega.Scale(type=kind, nice=False, zero=zero, domain=[least, most], padding=10)
        # If there are few values, they are the ticks. Less than a decade may hold no round number.
        ticks = numbers if len(numbers) <= _TICKS else _decades(least, most) if self.log else []
        if len(ticks) < 3 and len(numbers) > _TICKS:
            axis = vega.Axis(format=".3~r", tickCount=6)
        else:
            distinct = (d for d in (3, 4, 6) if len({f"{tick:.{d}g}" for tick in ticks}) == len(ticks))
            axis = vega.Axis(format=f".{next(distinct, 12)}~r", values=ticks)
        return vega.X("x:Q", title=title, scale=scale, axis=axis)

    def place(self, value: str) -> float | str:
        """Return a value in the form of a chart's data."""
        return self.labels[value] if self.numbers is None else self.numbers[value]


def _decades(least: float, most: float) -> list[float]:
    """Return the ticks of a logarithmic axis: 1, 2 and 5 of each decade, or only 1 for many decades."""
    low, high = math.floor(math.log10(least)), math.ceil(math.log10(most))
    steps = (1, 2, 5) if high - low <= 3 else (1,)
    ticks = [float(f"{step}e{power}") for power in range(low, high + 1) for step in steps]
    return [tick for tick in ticks if least <= tick <= most]


def axes(result: SweepResult, frame: pl.DataFrame) -> list[Axis]:
    """Return the factors of a sweep with the values of its runs."""
    log = {each["key"]: each["log"] for each in result.manifest.get("vary", [])}
    return [_axis(key, frame[key].unique().to_list(), log=log.get(key)) for key in result.factors]


def _axis(key: str, values: Sequence[str], *, log: bool | None) -> Axis:
    found = {value: number_of(value) for value in values}
    units = sorted(each[1] for each in found.values() if each is not None)
    unit = max(units, key=units.count, default="")
    numbers: dict[str, float] = {}
    for value, each in found.items():
        number = None if each is None else convert(*each, unit)
        if number is not None:
            numbers[value] = number
    if len(numbers) < len(found):
        ordered = tuple(sorted(values))
        return Axis(key, ordered, "", log=False, numbers=None, labels={value: value for value in ordered})
    ordered = tuple(sorted(values, key=numbers.__getitem__))
    least, most = numbers[ordered[0]], numbers[ordered[-1]]
    # Values from the sweep file are unchanged; those computed by a range or a sample are shortened.
    exact = all(brief(numbers[value], 12) == brief(numbers[value], 5) for value in ordered)
    labels: dict[str, str] = {}
    for digits in (12,) if exact else (3, 4, 6, 12):
        labels = {value: brief(numbers[value], digits).replace(",", "") for value in ordered}
        if len(set(labels.values())) == len(labels):
            break
    wide = least > 0 and most / least >= _WIDE
    return Axis(key, ordered, unit, bool(log) or wide, {v: numbers[v] for v in ordered}, labels)


def setting_colours(settings: Sequence[str]) -> dict[str, str]:
    """Return a colour for each setting; if there are more than seven, some differ only in their dashes."""
    return {name: PALETTE[index % len(PALETTE)] for index, name in enumerate(settings)}


def figures(
    result: SweepResult,
    rows: Sequence[dict[str, Any]],
    frame: pl.DataFrame,
    metrics: Sequence[str],
    width: Width = "container",
) -> list[Figure]:
    """Return the figures of a sweep's `rows` and `frame`; `width` is that of one column's panels [pixels]."""
    charts = _Charts(result, rows, frame, metrics, width)
    return [figure for metric in check_metrics(metrics) if (figure := charts.figure(metric)) is not None]


def figure_against(
    result: SweepResult,
    rows: Sequence[dict[str, Any]],
    frame: pl.DataFrame,
    metric: Metric,
    key: str,
    width: Width,
) -> Figure | None:
    """Return the figure of a metric against one factor; None if it does not vary or nothing was measured."""
    charts = _Charts(result, rows, frame, [metric.name], width)
    several = len(charts.axes) > 1
    charts.axes = [axis for axis in charts.axes if axis.key == key]
    if several and charts.axes and not charts.sampled:
        return charts.main_effects(metric)
    return charts.figure(metric)


class _Charts:
    def __init__(
        self,
        result: SweepResult,
        rows: Sequence[dict[str, Any]],
        frame: pl.DataFrame,
        metrics: Sequence[str],
        width: Width,
    ) -> None:
        self.newest = result.newest(frame)
        self.metrics = metrics
        self.width: Width = width
        self.alone = width != "container"
        """True if each figure is a separate file."""
        self.settings = list(dict.fromkeys(row["setting"] for row in rows))
        self.colour = setting_colours(self.settings)
        self.named = self.alone or len(self.settings) > len(PALETTE)
        """True if charts have legends; the page's legend does not show dashes."""
        everything = axes(result, frame)
        self.axes = [axis for axis in everything if len(axis.values) > 1]
        self.factors = [axis.key for axis in self.axes]
        """Keys of all factors, also of those that are not drawn."""
        self.points = math.prod(len(axis.values) for axis in self.axes)
        self.fixed = [axis for axis in everything if len(axis.values) == 1]
        self.rows = rows
        self.sampled = result.manifest.get("design", "grid") != "grid"

    def figure(self, metric: Metric) -> Figure | None:
        """Return the figure for the design; None if nothing varies or nothing was measured."""
        rows = [row for row in self.rows if row["metric"] == metric.name and row["mean"] is not None]
        if not rows or not self.axes:
            return None
        if self.sampled:
            return self._points(metric, rows)
        if len(self.axes) == 1:
            return self._lines(metric, rows)
        if len(self.axes) == 2:
            return self._maps(metric, rows)
        return self.main_effects(metric)

    def _lines(self, metric: Metric, rows: Sequence[dict[str, Any]]) -> Figure:
        axis = self.axes[0]
        values = [self._value(axis, row) for row in rows]
        vertical = self._vertical(metric, values)
        chart = self._against(axis, values, vertical, 280, self.width, named=self.named)
        few = min(row["runs"] for row in rows)
        caption = f"{_doc(metric)} Mean over the runs at each point{self._given()}" + (
            ", with its 95 % confidence interval as a band."
            if few > 2
            else "; the band spans the two runs."
            if few == 2
            else "; one run has no interval, so differences may be due to chance."
        )
        return Figure(
            metric.name, _heading(metric), caption + vertical.note, (Panel(chart),), 1, self._legend()
        )

    def _value(self, axis: Axis, row: dict[str, Any]) -> dict[str, Any]:
        low, high = ends(row)
        return {
            "x": axis.place(row[axis.key]),
            "mean": row["mean"],
            "low": low,
            "high": high,
            "setting": row["setting"],
        }

    def _against(
        self,
        axis: Axis,
        values: Sequence[dict[str, Any]],
        y: "_Vertical",
        height: int,
        width: Width,
        *,
        joined: bool = True,
        bars: bool = True,
        named: bool,
    ) -> vega.Chart:
        """Draw means against a factor: joined by lines with bands, or as points with bars."""
        base = vega.Chart(vega.InlineData(values=list(values))).encode(x=axis.x())
        # A page has one legend for all figures; a separate file needs its own.
        legend = vega.Legend(title=None, symbolOpacity=1, symbolType="stroke", columns=8) if named else None
        shades = vega.Scale(domain=self.settings, range=[self.colour[name] for name in self.settings])
        colour = vega.Color("setting:N", scale=shades, legend=legend, sort=self.settings)
        low, high = y.of("low"), vega.Y2("high:Q")
        layers: list[vega.Chart] = []
        if joined and axis.numbers is not None:
            opacity = 0.2 if len(self.settings) <= _FEW else 0.08
            layers.append(base.mark_area(opacity=opacity).encode(y=low, y2=high, color=colour))
        elif bars:
            layers.append(
                base.mark_rule(strokeWidth=1.2, opacity=0.7).encode(
                    y=low, y2=high, color=colour, **self._apart(axis)
                )
            )
        if joined and axis.numbers is not None:
            line = base.mark_line(strokeWidth=2).encode(y=y.of("mean"), color=colour)
            layers.append(line.encode(strokeDash=self._dash(legend)))
        point = base.mark_point(filled=True, size=34 if joined else 26, opacity=0.9 if joined else 0.7)
        layers.append(point.encode(y=y.of("mean"), color=colour, **self._apart(axis)))
        return vega.layer(*layers).properties(width=width, height=height)

    def _apart(self, axis: Axis) -> dict[str, Any]:
        """Return the offset that separates settings on an axis of words."""
        if axis.numbers is not None:
            return {}
        return {"xOffset": vega.XOffset("setting:N", sort=self.settings)}

    def _maps(self, metric: Metric, rows: Sequence[dict[str, Any]]) -> Figure:
        columns = min(len(self.settings), 2 if len(self.axes[0].values) > 6 else 3)
        panels = tuple(Panel(self._map(metric, rows, name, columns)) for name in self.settings)
        runs = sorted({row["runs"] for row in rows})
        counted = ("" if len(runs) == 1 else f"{runs[0]} to ") + plural(runs[-1], "run")
        caption = (
            f"{_doc(metric)} Mean over the runs at each point ({counted}){self._given()};"
            " the table has the intervals. All maps share one colour scale; grey: no value."
        )
        return Figure(metric.name, _heading(metric), caption, panels, columns)

    def _map(self, metric: Metric, rows: Sequence[dict[str, Any]], name: str, columns: int) -> vega.Chart:
        x, y = self.axes
        means = [row["mean"] for row in rows]
        least, most = min(means), max(means)
        written = len(x.values) * len(y.values) <= _WRITTEN and len(x.values) <= (20 if columns == 1 else 9)
        there = {(row[x.key], row[y.key]): row for row in rows if row["setting"] == name}
        cells = []
        for at_x in x.values:
            for at_y in y.values:
                row = there.get((at_x, at_y))
                mean = None if row is None else row["mean"]
                share = 0.0 if mean is None or most == least else (mean - least) / (most - least)
                cells.append(
                    {
                        "x": x.labels[at_x],
                        "y": y.labels[at_y],
                        "mean": mean,
                        "text": "–" if mean is None else brief(mean, 3),
                        "ink": _ON_DARK if mean is not None and share > _DARK_FROM else _ON_LIGHT,
                    }
                )
        names_x, names_y = ([axis.labels[value] for value in axis.values] for axis in (x, y))
        names_y.reverse()
        # Labels that do not fit side by side are rotated; if there are many, some are omitted.
        room = {1: 800, 2: 370, 3: 220}[columns] / len(names_x)
        turned = 6.5 * max(map(len, names_x)) + 4 > room
        step = max(1, math.ceil(14 / room))
        base = vega.Chart(vega.InlineData(values=cells)).encode(
            x=vega.X(
                "x:N",
                title=x.title,
                sort=names_x,
                axis=vega.Axis(
                    labelAngle=-45 if turned else 0,
                    values=names_x[::step],
                    tickCount=len(names_x),
                    domain=False,
                    ticks=False,
                    labelOverlap=False,
                ),
            ),
            y=vega.Y(
                "y:N",
                title=y.title,
                sort=names_y,
                axis=vega.Axis(
                    values=names_y[:: max(1, math.ceil(len(names_y) / 28))],
                    tickCount=len(names_y),
                    labelOverlap=False,
                    domain=False,
                    ticks=False,
                ),
            ),
        )
        colour = vega.Color(
            "mean:Q",
            scale=vega.Scale(
                scheme="yellowgreenblue",
                domain=[least, most] if most > least else [least, least + 1],
                nice=False,
            ),
            legend=vega.Legend(
                title=_heading(metric),
                titleLimit=320,
                gradientLength=200,
                tickCount=4,
                format="~r",
            )
            if self.settings.index(name) < columns
            else None,
        )
        # Cells without a mean are left out of the second layer.
        heat = base.mark_rect(stroke=PAPER, strokeWidth=1)
        layers: list[vega.Chart] = [heat.encode(color=vega.value(_NONE)), heat.encode(color=colour)]
        if written:
            layers.append(
                base.mark_text(fontSize=11).encode(
                    text="text:N", color=vega.Color("ink:N", scale=None, legend=None)
                )
            )
        height = max(120, min(420, 30 * len(y.values)))
        title = vega.TitleParams(text=name, color=text_colour(self.colour[name]))
        layered: vega.Chart = vega.layer(*layers).resolve_scale(color="independent")
        drawing: vega.Chart = layered.properties(width=self._share(columns), height=height, title=title)
        return drawing

    def main_effects(self, metric: Metric) -> Figure | None:
        """Draw the main effect of each factor, averaged over the others, with intervals over seeds."""
        drawn: list[tuple[Axis, list[dict[str, Any]]]] = []
        for axis in self.axes:
            values = self._main_effect(axis, metric)
            if values:
                drawn.append((axis, values))
        if not drawn:
            return None
        y = self._vertical(metric, [value for _, values in drawn for value in values])
        columns = 1 if len(drawn) == 1 else 2
        panels = tuple(
            Panel(
                self._against(
                    axis, values, y, 220, self._share(columns), named=self.named and index < columns
                )
            )
            for index, (axis, values) in enumerate(drawn)
        )
        caption = (
            f"{_doc(metric)} Main effect of each factor: at each of its values, the mean over all values of"
            f" the other {plural(len(self.factors) - 1, 'factor')}{self._given()}. Panels do not show"
            " interactions between factors: see the table. Bands: 95 % confidence intervals over the seeds"
            f" common to all points, or the values of two seeds.{self._without_common_seeds(drawn)}"
            f"{self._without_values(metric)}"
        )
        return Figure(metric.name, _heading(metric), caption + y.note, panels, columns, self._legend())

    def _without_common_seeds(self, drawn: Sequence[tuple[Axis, list[dict[str, Any]]]]) -> str:
        """Return the sentence on settings that are not drawn."""
        there = {value["setting"] for _, values in drawn for value in values}
        missing = [name for name in self.settings if name not in there]
        return f" Without a seed that has values at all points: {', '.join(missing)}." if missing else ""

    def _without_values(self, metric: Metric) -> str:
        """Return the sentence on points at which every run failed or measured nothing."""
        known = self.newest.drop_nulls(metric.name)
        counts = {
            name: known.filter(pl.col("setting") == name).select(self.factors).n_unique()
            for name in self.settings
        }
        few = [
            f"{name} ({self.points - n} of {self.points})"
            for name, n in counts.items()
            if 0 < n < self.points
        ]
        if not few:
            return ""
        return f" Points without a value are left out, which shifts the means of {', '.join(few)}."

    def _main_effect(self, axis: Axis, metric: Metric) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        known = self.newest.drop_nulls(metric.name)
        for name in self.settings:
            part = known.filter(pl.col("setting") == name)
            # Only seeds with values at all points: otherwise points would have unequal weights. A point
            # without any value does not count.
            wanted = part.select(self.factors).n_unique()
            counts = part.group_by("seed").len()
            seeds = counts.filter(pl.col("len") == wanted)["seed"].implode()
            by_seed = (
                part.filter(pl.col("seed").is_in(seeds))
                .group_by(axis.key, "seed")
                .agg(pl.col(metric.name).mean())
            )
            for value in axis.values:
                means = by_seed.filter(pl.col(axis.key) == value).sort("seed")[metric.name].to_list()
                summary = summarise(means)
                low, high = (min(means), max(means)) if len(means) == 2 else (summary.low, summary.high)
                if summary.mean is not None:
                    found.append(
                        {
                            "x": axis.place(value),
                            "mean": summary.mean,
                            "low": low,
                            "high": high,
                            "setting": name,
                        }
                    )
        return found

    def _points(self, metric: Metric, rows: Sequence[dict[str, Any]]) -> Figure:
        """Draw the points of a sample against each factor."""
        values = {axis.key: [self._value(axis, row) for row in rows] for axis in self.axes}
        y = self._vertical(metric, [value for each in values.values() for value in each])
        columns = 1 if len(self.axes) == 1 else 2
        few = len(rows) <= _BARS * len(self.settings)
        panels = tuple(
            Panel(
                self._against(
                    axis,
                    values[axis.key],
                    y,
                    220,
                    self._share(columns),
                    joined=False,
                    bars=few,
                    named=self.named and index < columns,
                )
            )
            for index, axis in enumerate(self.axes)
        )
        most = max(row["runs"] for row in rows)
        bars = (
            f" Bars: {'95 % confidence intervals' if most > 2 else 'the two runs'}."
            if few and most > 1
            else ""
        )
        caption = (
            f"{_doc(metric)} Each point is the mean over the runs at one point of the design"
            f"{self._given()}, drawn against each factor; the other factors vary too and cause spread.{bars}"
        )
        return Figure(metric.name, _heading(metric), caption + y.note, panels, columns, self._legend())

    def _vertical(self, metric: Metric, values: Sequence[dict[str, Any]]) -> "_Vertical":
        """Return the axis for values and their intervals, from zero if they are near it."""
        numbers = [
            value[key] for value in values for key in ("mean", "low", "high") if value[key] is not None
        ]
        title = _heading(metric) if self.alone else metric.unit or metric.label
        means = [value["mean"] for value in values]
        if min(means) > 0 and max(means) >= _FAR * min(means):
            # An interval may extend below zero, which a logarithmic axis cannot show.
            floor = 0.7 * min(means)
            for value in values:
                value |= {key: max(value[key], floor) for key in ("low", "high") if value[key] is not None}
            return _Vertical(title, (floor, 1.05 * max(numbers)), log=True)
        least, most = min(numbers), max(numbers)
        if 0 <= least < 0.4 * most:
            least = 0.0
        margin = 0.04 * (most - least) or 0.5 * abs(most) or 1.0
        return _Vertical(title, (least if least == 0 else least - margin, most + margin))

    def _share(self, columns: int) -> Width:
        if self.width == "container" or columns == 1:
            return self.width
        return int(self.width * (0.46 if columns == 2 else 0.3))

    def _dash(self, legend: vega.Legend | None) -> vega.StrokeDash:
        dashes = [_DASHES[index // len(PALETTE) % len(_DASHES)] for index in range(len(self.settings))]
        return vega.StrokeDash(
            "setting:N", scale=vega.Scale(domain=self.settings, range=dashes), legend=legend
        )

    def _legend(self) -> tuple[tuple[str, str], ...]:
        return () if self.named else tuple(self.colour.items())

    def _given(self) -> str:
        fixed = ", ".join(f"{axis.key} = {axis.values[0]}" for axis in self.fixed)
        return f", with {fixed}" if fixed else ""


def _heading(metric: Metric) -> str:
    return with_unit(metric.label, metric.unit)


def _doc(metric: Metric) -> str:
    """Return a metric's description as a sentence."""
    return metric.doc.rstrip(".") + "."


@dataclass(frozen=True, slots=True)
class _Vertical:
    """Common vertical axis of a figure's panels."""

    title: str
    domain: tuple[float, float]

    log: bool = False

    def of(self, name: str) -> vega.Y:
        kind: Literal["log", "linear"] = "log" if self.log else "linear"
        zero = vega.Undefined if self.log else False
        scale = vega.Scale(type=kind, domain=list(self.domain), nice=False, zero=zero, clamp=self.log)
        if not self.log:
            return vega.Y(f"{name}:Q", title=self.title, scale=scale)
        ticks = _decades(*self.domain)
        axis = vega.Axis(values=ticks, tickCount=len(ticks), format="~r")
        return vega.Y(f"{name}:Q", title=self.title, scale=scale, axis=axis)

    @property
    def note(self) -> str:
        """Sentence on the axis for the caption."""
        return " The vertical axis is logarithmic; bands are clipped to it." if self.log else ""
