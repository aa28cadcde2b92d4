"""Figures of the terminals of a gateway over time: all of them as a heat map, and one of them."""

from collections.abc import Sequence
from typing import Any

import polars as pl

from bentpipe.report import vega
from bentpipe.report.decimate import as_float, rounded_up, short
from bentpipe.report.panels import Figure, Panel, ResultCharts, Width, time_axis
from bentpipe.runs.result import Result
from bentpipe.runs.store import TERMINAL_SERIES

__all__ = ["ROWS", "evenly", "terminal_series_figures"]

ROWS = 60
"""Most terminals that a heat map shows."""
_LEAST = 1.0
"""Delay [ms] from which colours differ."""
_QUANTITIES = (
    ("queue_delay", 1e3, "queueing delay [ms]"),
    ("throughput", 1e-6, "throughput [Mbit/s]"),
)


def terminal_series_figures(result: Result, width: Width = "container") -> list[Figure]:
    """Return the figures of terminals over time; none if every gateway has one. `width` as for `figures`."""
    if not result.manifest.get(TERMINAL_SERIES):
        return []
    charts = _SeriesCharts(result, width)
    return [charts.heat_map(), charts.one_terminal()] if charts.shown else []


def evenly(names: Sequence[str], count: int) -> list[str]:
    """Return at most `count` names at equal distances, with the first and the last."""
    count = min(count, len(names))
    return [names[round(number * (len(names) - 1) / max(1, count - 1))] for number in range(count)]


class _SeriesCharts(ResultCharts):
    def __init__(self, result: Result, width: Width) -> None:
        super().__init__(result, width)
        tables = [
            result.one(TERMINAL_SERIES, setting, self.seed).with_columns(setting=pl.lit(setting))
            for setting in self.settings
        ]
        self.series = pl.concat(tables)
        ranked = (
            self.series.group_by("terminal", maintain_order=True)
            .agg(pl.col("queue_delay").mean())
            .drop_nulls()
            .sort("queue_delay", descending=True, maintain_order=True)["terminal"]
        )
        self.terminals = len(ranked)
        self.shown = evenly(ranked.to_list(), ROWS)
        """Terminals of the figures, that with the longest delay first."""
        times = self.series["time"].unique().sort()
        self.step = as_float(times[1]) if len(times) > 1 else self.duration

    def _values(self, setting: str, terminal: str, column: str, factor: float) -> list[float | None]:
        of_terminal = (pl.col("setting") == setting) & (pl.col("terminal") == terminal)
        found = self.series.filter(of_terminal).sort("time")[column] * factor
        return [None if value is None else short(value) for value in found]

    def heat_map(self) -> Figure:
        """Draw the queueing delay of terminals over time, a panel per setting."""
        longest = as_float(self.series.filter(pl.col("terminal").is_in(self.shown))["queue_delay"].max())
        domain = [_LEAST, max(10 * _LEAST, rounded_up(longest * 1e3))]
        which = (
            f"{len(self.shown)} of {self.terminals} terminals, at equal distances in the order of mean delay"
            if len(self.shown) < self.terminals
            else f"all {self.terminals} terminals, in the order of mean delay"
        )
        caption = (
            f"Mean queueing delay in intervals of {self.step:.3g} s, {self._which_run}: {which} over all"
            " settings shown, the longest on top; the same rows in each panel. Empty: nothing was sent."
        )
        if self.width == "container":
            caption += " Click on a row to see its terminal in the next figure."
        panels = tuple(Panel(self._heat_map(setting, domain)) for setting in self.settings)
        return Figure("terminal-heat", "Delay of the terminals over time", caption, panels, 2)

    def _heat_map(self, setting: str, domain: list[float]) -> vega.Chart:
        rows: list[dict[str, Any]] = [
            {
                "terminal": terminal,
                "top": number,
                "delay": self._values(setting, terminal, "queue_delay", 1e3),
            }
            for number, terminal in enumerate(self.shown)
        ]
        count = len(self.shown)
        axis = vega.Axis(values=[], title="terminals, by delay")
        chart: vega.Chart = (
            vega.Chart(vega.InlineData(values=rows))
            .transform_flatten(["delay"])
            .transform_window(number="row_number()", groupby=["terminal"])
            .transform_calculate(
                time=f"(datum.number - 1) * {self.step}",
                until=f"min(datum.number * {self.step}, {self.duration})",
                below="datum.top + 1",
            )
            .transform_filter("isValid(datum.delay)")
            .mark_rect(clip=True, cursor="pointer")
            .encode(
                x=time_axis((0, self.duration)),
                x2="until:Q",
                y=vega.Y("top:Q", scale=vega.Scale(domain=[0, count], reverse=True, nice=False), axis=axis),
                y2="below:Q",
                color=vega.Color(
                    "delay:Q",
                    title="delay [ms]",
                    scale=vega.Scale(type="log", domain=domain, scheme="viridis", clamp=True),
                    legend=vega.Legend(orient="right", direction="vertical", gradientLength=120, tickCount=4),
                ),
                tooltip=[
                    vega.Tooltip("terminal:N"),
                    vega.Tooltip("time:Q", title="from [s]", format=".3~f"),
                    vega.Tooltip("delay:Q", title="delay [ms]", format=".3~s"),
                ],
            )
            .properties(
                width=self._half(), height=220, title=self._heading(setting), usermeta={"terminals": True}
            )
        )
        return chart

    def one_terminal(self) -> Figure:
        """Draw one terminal over time, a panel per quantity and a curve per setting."""
        panels = tuple(Panel(self._curves(*quantity)) for quantity in _QUANTITIES)
        caption = (
            f"Means in intervals of {self.step:.3g} s, {self._which_run}. No delay where nothing was sent."
        )
        if self.width != "container":
            caption += " The terminal with the longest mean delay."
        return Figure("terminal-one", "One terminal over time", caption, panels, 2, self._setting_legend)

    def _curves(self, column: str, factor: float, axis: str) -> vega.Chart:
        values = {
            terminal: {setting: self._values(setting, terminal, column, factor) for setting in self.settings}
            for terminal in self.shown
        }
        first = self.shown[0]
        rows = [
            {"time": short(number * self.step), "value": value, "setting": setting}
            for setting in self.settings
            for number, value in enumerate(values[first][setting])
        ]
        chart: vega.Chart = (
            vega.Chart(vega.InlineData(values=rows))
            .mark_line(strokeWidth=1.6, interpolate="step-after", clip=True)
            .encode(
                x=time_axis((0, self.duration)),
                y=vega.Y("value:Q", title=axis, scale=vega.Scale(zero=True)),
                color=vega.Color("setting:N", scale=self._scale(), legend=None),
                strokeDash=vega.StrokeDash("setting:N", scale=self._dash(), legend=None),
            )
            .add_params(vega.param(name="terminal", value=first))
            .properties(
                width=self._half(),
                height=180,
                title=vega.TitleParams(text=vega.ExprRef("terminal")),
                usermeta={"terminal": {"step": self.step, "values": values}}
                if self.width == "container"
                else {},
            )
        )
        return chart
