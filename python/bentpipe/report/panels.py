"""Figures and their panels, their common style, and what all charts of a result share."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import polars as pl

from bentpipe.report import vega
from bentpipe.report.colours import AXIS, GRID, INK, MUTED, of_settings, text_colour
from bentpipe.report.decimate import as_float, detail, ecdf, rounded_up, rows
from bentpipe.runs.result import Result
from bentpipe.stats.ranking import drawn

__all__ = ["CONFIG", "Figure", "Panel", "ResultCharts", "Width", "limit_line", "one_run", "time_axis"]

Width = int | Literal["container"]

_SHOWN = 0.995
"""Share of the values that the axis of a distribution covers."""
_DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [10, 4], [4, 2, 1, 2], [1, 3])
_FONT = "Inter, 'Helvetica Neue', 'Liberation Sans', Arial, sans-serif"

CONFIG: dict[str, Any] = {
    "font": _FONT,
    "view": {"stroke": None},
    "axis": {
        "labelColor": MUTED,
        "titleColor": INK,
        "titleFontWeight": "normal",
        "titleFontSize": 12,
        "labelFontSize": 11,
        "gridColor": GRID,
        "domainColor": AXIS,
        "tickColor": AXIS,
        "tickSize": 4,
        "titlePadding": 8,
    },
    "axisX": {"grid": False, "labelFlush": False, "tickCount": 8, "labelOverlap": True, "labelSeparation": 4},
    "axisY": {"domain": False, "ticks": False, "minExtent": 34, "tickCount": 4},
    "legend": {
        "labelColor": INK,
        "titleColor": INK,
        "labelFontSize": 12,
        "orient": "top",
        "direction": "horizontal",
        "symbolStrokeWidth": 2.5,
        "symbolSize": 260,
        "padding": 0,
        "offset": 8,
    },
    "rule": {"color": INK},
    "text": {"color": INK},
    "title": {"anchor": "start", "color": INK, "fontSize": 13, "fontWeight": 600, "offset": 6},
}


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart of a figure."""

    chart: vega.Chart
    details: tuple[tuple[list[dict[str, float]], dict[str, Any]], ...] = ()
    """Rows that a time series draws, and its samples for a window of time, see `decimate.detail`."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure with title, caption and panels."""

    name: str
    title: str
    caption: str
    panels: tuple[Panel, ...]
    columns: int = 1
    legend: tuple[tuple[str, str], ...] = ()
    """Names and colours, if the panels have no legend."""


def time_axis(span: tuple[float, float], *, last: bool = True, **options: Any) -> vega.X:  # noqa: ANN401
    """Return the axis of the measured time in `span` [s]; only the last panel's has a title."""
    title = "time since measuring began [s]" if last else None
    return vega.X("time:Q", title=title, scale=vega.Scale(domain=list(span), nice=False), **options)


def limit_line(limit: float, **options: Any) -> vega.Chart:  # noqa: ANN401
    """Draw a limit as a dashed line across a panel, whose vertical axis has these options."""
    rule = vega.Chart(vega.InlineData(values=[{"limit": limit}]))
    rule = rule.mark_rule(color=INK, strokeDash=[4, 3], strokeWidth=1)
    return rule.encode(y=vega.Y("limit:Q", **options))


def one_run(seed: int, runs: int) -> str:
    """Return the words for one of several runs, the first of them."""
    return f"the run with seed {seed}" + ("" if runs == 1 else f", the first of {runs}")


class ResultCharts:
    """Draws time series and shares colours and texts for the figures of one result."""

    def __init__(self, result: Result, width: Width) -> None:
        self.result = result
        self.width: Width = width
        self.all = result.settings
        self.settings = drawn(result)
        self.colour = of_settings(self.all, self.settings)
        self.seed = result.seeds[0]
        self.capacity = {name: result.setting_info(name)["capacity"] * 1e-6 for name in self.all}
        self.stats = {(row["setting"], row["metric"]): row for row in result.rows()}
        self.duration = float(result.manifest["scenario"]["duration"])

    @property
    def _which_run(self) -> str:
        return one_run(self.seed, len(self.result.seeds))

    @property
    def _all_runs(self) -> str:
        runs = len(self.result.seeds)
        return "one run" if runs == 1 else f"all {runs} runs together"

    @property
    def _setting_legend(self) -> tuple[tuple[str, str], ...]:
        return tuple((setting, self.colour[setting]) for setting in self.settings)

    def _half(self) -> Width:
        return self.width if self.width == "container" else int(self.width * 0.46)

    def _series(self, setting: str, column: str, factor: float) -> pl.DataFrame | None:
        table = self.result.one("series", setting, self.seed)
        if column not in table.columns or table[column].null_count() == len(table):
            return None
        return table.select("time", (pl.col(column).cast(pl.Float64) * factor).alias("value"))

    def _scale(self) -> vega.Scale:
        return vega.Scale(domain=self.settings, range=[self.colour[name] for name in self.settings])

    def _dash(self) -> vega.Scale:
        dashes = [_DASHES[index % len(_DASHES)] for index in range(len(self.settings))]
        return vega.Scale(domain=self.settings, range=dashes)

    def _shares(self, values: Mapping[str, pl.Series], axis: str, of: str, title: str) -> Panel | None:
        """Draw the share of values up to each value, a curve per setting; None without values above 0."""
        points: list[dict[str, Any]] = []
        tops = [0.0]
        for setting, found in values.items():
            if len(found):
                tops.append(as_float(found.quantile(_SHOWN, interpolation="higher")))
                curve = ecdf(found)
                points += [{"setting": setting, "value": value, "share": share} for value, share in curve]
        if max(tops) <= 0:
            return None
        scale = vega.Scale(domain=[0, rounded_up(max(tops))], nice=False)
        chart = (
            vega.Chart(vega.InlineData(values=points))
            .mark_line(strokeWidth=1.8, interpolate="step-after", clip=True)
            .encode(
                x=vega.X("value:Q", title=axis, scale=scale, axis=vega.Axis(tickCount=5)),
                y=vega.Y(
                    "share:Q",
                    title=f"share of {of} [%]",
                    scale=vega.Scale(domain=[0, 100]),
                    axis=vega.Axis(values=[0, 50, 100]),
                ),
                color=vega.Color("setting:N", scale=self._scale(), legend=None),
                strokeDash=vega.StrokeDash("setting:N", scale=self._dash(), legend=None),
            )
            .properties(width=self._half(), height=150, title=title)
        )
        return Panel(chart)

    def _heading(self, setting: str, note: str = "") -> vega.TitleParams:
        return vega.TitleParams(
            text=setting,
            color=text_colour(self.colour[setting]),
            subtitle=note or vega.Undefined,
            subtitleColor=MUTED,
            subtitleFontSize=11,
        )

    def _curve(
        self,
        table: pl.DataFrame,
        setting: str,
        span: tuple[float, float],
        domain: tuple[float, float],
        axis: str,
        *,
        last: bool,
        height: int,
        width: Width,
        note: str = "",
        limit: float | pl.DataFrame | None = None,
    ) -> vega.Chart:
        """Draw a decimated series: the mean as a line, the extremes as a band; `limit` may be a series."""
        x = time_axis(span, last=last)
        vertical: dict[str, Any] = {
            "title": axis,
            "scale": vega.Scale(domain=list(domain), nice=False, zero=False),
        }
        low, mean = (vega.Y(f"{field}:Q", **vertical) for field in ("low", "mean"))
        base = vega.Chart(vega.InlineData(values=rows(table))).encode(x=x)
        colour = self.colour[setting]
        layers: list[vega.Chart] = [
            base.mark_area(color=colour, opacity=0.25).encode(y=low, y2=vega.Y2("high:Q")),
            base.mark_line(color=colour, strokeWidth=1.2).encode(y=mean),
        ]
        if isinstance(limit, pl.DataFrame):
            line = vega.Chart(vega.InlineData(values=rows(limit)))
            line = line.mark_line(color=INK, strokeDash=[4, 3], strokeWidth=1, interpolate="step-after")
            layers.append(line.encode(x=x, y=mean))
        elif limit is not None:
            layers.append(limit_line(limit, **vertical))
        return vega.layer(*layers).properties(width=width, height=height, title=self._heading(setting, note))

    def _details(
        self, *pairs: tuple[pl.DataFrame | None, pl.DataFrame | None]
    ) -> tuple[tuple[list[dict[str, float]], dict[str, Any]], ...]:
        """Return the samples behind drawn series, of which a page shows windows of time; none for files."""
        if self.width != "container":
            return ()
        return tuple(
            (rows(drawn), found)
            for drawn, samples in pairs
            if drawn is not None and samples is not None and (found := detail(samples)) is not None
        )
