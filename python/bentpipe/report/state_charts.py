"""Figures of the state of AQMs and schedulers over time: the columns of `series` with a dot in their name."""

from typing import TYPE_CHECKING

from bentpipe.report.decimate import as_float, bounds, decimate
from bentpipe.report.panels import Figure, Panel, ResultCharts, Width
from bentpipe.runs.result import Result
from bentpipe.stats.states import State, state_of

if TYPE_CHECKING:
    import polars as pl

__all__ = ["state_figures"]


def state_figures(result: Result, width: Width = "container") -> list[Figure]:
    """Return the figure of all states that change, a panel for each; `width` as for `figures`."""
    charts = _StateCharts(result, width)
    found = charts.states()
    return [] if found is None else [found]


class _StateCharts(ResultCharts):
    def states(self) -> Figure | None:
        drawn: list[tuple[str, str, State, pl.DataFrame]] = []
        for setting in self.settings:
            table = self.result.one("series", setting, self.seed)
            columns = dict.fromkeys(table.columns)
            for column in columns:
                state = state_of(column, columns)
                if state is None:
                    continue
                series = self._series(setting, column, state.factor)
                if series is not None and series["value"].drop_nulls().n_unique() > 1:
                    drawn.append((setting, column, state, series))
        if not drawn:
            return None
        panels = []
        for number, (setting, column, state, series) in enumerate(drawn):
            small = decimate(series)
            low, high = bounds([small], [], from_zero=as_float(small["low"].min()) >= 0)
            panels.append(
                Panel(
                    self._curve(
                        small,
                        setting,
                        (0.0, self.duration),
                        (low, high),
                        state.unit or " ",
                        last=number >= len(drawn) - 2,
                        height=100,
                        width=self._half(),
                        note=f"{column}: {state.label}" if state.label else column,
                    ),
                    self._details((small, series)),
                )
            )
        return Figure(
            "states",
            "State of the algorithms over time",
            f"What each AQM or scheduler keeps, in {self._which_run}; each panel has its own scale. States"
            " that do not change are left out. The page of each algorithm defines them.",
            tuple(panels),
            columns=2,
        )
