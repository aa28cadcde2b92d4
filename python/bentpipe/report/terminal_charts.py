"""Figures and a table of the terminals of a gateway with several."""

from typing import Any

import polars as pl

from bentpipe.format import number
from bentpipe.report.panels import Figure, ResultCharts, Width
from bentpipe.runs.result import Result
from bentpipe.runs.store import TERMINALS

__all__ = ["WORST", "terminal_figures", "worst_terminals"]

WORST = 10
"""Number of terminals in the table of those that wait longest."""

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


def worst_terminals(result: Result) -> list[dict[str, Any]]:
    """Return the terminals with the longest 95th percentile of the queueing delay, for each setting.

    Values are means over the runs, as text: delay [ms], goodput [Mbit/s], drops and carrier time [%]. Empty
    if every gateway has one terminal.
    """
    if not result.manifest.get(TERMINALS):
        return []
    sent, dropped = pl.col("sent_packets"), pl.col("dropped_packets")
    means = (
        result.terminals()
        .group_by("setting", "terminal", maintain_order=True)
        .agg(
            pl.col("queue_delay_p95").mean() * 1e3,
            pl.col("goodput").mean() * 1e-6,
            (100 * dropped / (sent + dropped)).fill_nan(0).mean().alias("drop_rate"),
            pl.col("carrier_seconds").mean() * (100 / result.manifest["scenario"]["duration"]),
        )
        .sort("queue_delay_p95", descending=True, nulls_last=True, maintain_order=True)
    )
    return [
        {
            "setting": setting,
            "rows": [
                [name, *(number(value) for value in values)]
                for _, name, *values in means.filter(pl.col("setting") == setting).head(WORST).iter_rows()
            ],
        }
        for setting in result.settings
    ]


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
