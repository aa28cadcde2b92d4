"""Figures of the terminals of a gateway with several: what each was sent, and how long it waited."""

import polars as pl

from bentpipe.report.panels import Figure, ResultCharts, Width
from bentpipe.runs.result import Result
from bentpipe.runs.store import TERMINALS

__all__ = ["terminal_figures"]

_FIGURES = (
    ("terminal-goodput", "goodput", "Goodput of the terminals", "goodput [Mbit/s]", 1e-6),
    (
        "terminal-delay",
        "queue_delay_p95",
        "Queueing delay of the terminals",
        "95th percentile of the queueing delay [ms]",
        1e3,
    ),
    (
        "terminal-carrier",
        "carrier_seconds",
        "Carrier time of the terminals",
        "share of the carrier's time [%]",
        100.0,
    ),
)


def terminal_figures(result: Result, width: Width = "container") -> list[Figure]:
    """Return the figures of terminals; none if every gateway has one. `width` as for `figures`."""
    if not result.manifest.get(TERMINALS):
        return []
    charts = _TerminalCharts(result, width)
    made = [charts.distribution(*each) for each in _FIGURES]
    return [figure for figure in made if figure is not None]


class _TerminalCharts(ResultCharts):
    def __init__(self, result: Result, width: Width) -> None:
        super().__init__(result, width)
        self.terminals = result.terminals().with_columns(pl.col("carrier_seconds") / self.duration)

    def distribution(self, name: str, column: str, title: str, axis: str, factor: float) -> Figure | None:
        """Draw the distribution of a column, a panel per group of terminals and a curve per setting."""
        panels = []
        for group in self.terminals["group"].unique(maintain_order=True):
            mine = self.terminals.filter(pl.col("group") == group)
            values = {
                setting: mine.filter(pl.col("setting") == setting)[column].drop_nulls() * factor
                for setting in self.settings
            }
            panel = self._shares(values, axis, "terminals", str(group))
            if panel is not None:
                panels.append(panel)
        if not panels:
            return None
        caption = f"Share of the terminals of a group with up to the given value; {self._all_runs}."
        legend = tuple((setting, self.colour[setting]) for setting in self.settings)
        return Figure(name, title, caption, tuple(panels), 2, legend)
