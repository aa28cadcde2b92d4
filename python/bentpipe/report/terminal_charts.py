"""Figures and tables of the terminals of a gateway with several."""

import math
from statistics import mean
from typing import Any

import polars as pl

from bentpipe.format import number
from bentpipe.report.panels import Figure, ResultCharts, Width
from bentpipe.runs.result import Result
from bentpipe.runs.store import PAGES, TERMINALS
from bentpipe.stats.experience import GRADED
from bentpipe.stats.opinions import opinions
from bentpipe.stats.services import Service, services

__all__ = ["WORST", "group_table", "terminal_figures", "worst_served", "worst_terminals"]

WORST = 10
"""Number of terminals in the tables of the worst."""

_RAIN = 1
"""Least difference between terminals in rain and others that is worth a sentence [%]."""

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

    Values are means over the runs, as text: delay [ms], goodput [Mbit/s], drops and carrier time [%], the
    loading time of pages [s] and the opinion score of calls and viewings. Empty if every gateway has one
    terminal.
    """
    if not result.manifest.get(TERMINALS):
        return []
    sent, dropped = pl.col("sent_packets"), pl.col("dropped_packets")
    table = result.terminals()
    if "pages" in table.columns:
        loading = (pl.col("page_time_mean") * pl.col("pages")).sum() / pl.col("pages").sum()
        pages = loading.fill_nan(None)
    else:
        pages = pl.lit(None, dtype=pl.Float64)
    means = (
        table.group_by("setting", "terminal", maintain_order=True)
        .agg(
            pl.col("queue_delay_p95").mean() * 1e3,
            pl.col("goodput").mean() * 1e-6,
            (100 * dropped / (sent + dropped)).fill_nan(0).mean().alias("drop_rate"),
            pl.col("carrier_seconds").mean() * (100 / result.manifest["scenario"]["duration"]),
            pages,
        )
        .sort("queue_delay_p95", descending=True, nulls_last=True, maintain_order=True)
    )
    found = []
    for setting in result.settings:
        worst = means.filter(pl.col("setting") == setting).drop("setting").head(WORST)
        scores = _opinions(result, setting, worst["terminal"].to_list())
        rows = [
            [name, *(number(value) for value in values), number(scores.get(name))]
            for name, *values in worst.iter_rows()
        ]
        found.append({"setting": setting, "rows": rows})
    return found


def group_table(result: Result) -> dict[str, Any] | None:
    """Return the table of groups of terminals and pools, and who pays for rain; None without terminals.

    Values are means over the runs, as text: number of terminals, goodput of each [Mbit/s], carrier time and
    bytes [%], drops [%], the loading time of pages [s] and badly served terminals [%].
    """
    if not result.manifest.get(TERMINALS) or "page_time_mean" not in result.terminals().columns:
        return None
    percent = {
        "carrier_share": 100,
        "byte_share": 100,
        "drop_rate": 100,
        "page_time_mean": 1,
        "terminals_bad": 1,
    }
    groups = result.groups()
    if "terminals_bad" not in groups.columns:
        groups = groups.with_columns(terminals_bad=pl.lit(None, dtype=pl.Float64))
    means = groups.group_by("setting", "kind", "group", maintain_order=True)
    table = means.agg(
        pl.col("terminals").first(),
        (pl.col("goodput") / pl.col("terminals")).mean() * 1e-6,
        *(pl.col(name).mean() * factor for name, factor in percent.items()),
    )
    rows = [
        [setting, f"pool {group}" if kind == "pool" else group, f"{count:,}", *map(number, values)]
        for setting, kind, group, count, *values in table.iter_rows()
    ]
    rain = []
    for setting in result.settings:
        goodput, time = (result.summary(setting, f"rain_{name}").mean for name in ("goodput", "carrier_time"))
        if goodput is not None and time is not None and max(abs(goodput - 100), abs(time - 100)) >= _RAIN:
            shares = f"{number(goodput)} % of the goodput, {number(time)} % of the carrier time"
            rain.append(f"{setting}: {shares}")
    return {"rows": rows, "rain": rain}


def _opinions(result: Result, setting: str, terminals: list[str]) -> dict[str, float]:
    """Return the mean opinion score of the calls and viewings of each of these terminals that has any."""
    scores: dict[str, list[float]] = {name: [] for name in terminals}
    for seed in result.seeds:
        run = result.recorded(setting, seed)
        for traffic_class in sorted({each for _, each, kind in run.traffic if kind in {"voip", "dash"}}):
            for name, score in opinions(run, traffic_class).iter_rows():
                if name in scores:
                    scores[name].append(score)
    return {name: mean(found) for name, found in scores.items() if found}


def worst_served(result: Result) -> dict[str, Any] | None:
    """Return the terminals whose worst class is served worst, for each setting; None without any.

    `classes` are those that terminals are graded in: name, figure and unit. Each of `settings` has its name,
    the share of terminals with a bad grade in each class [%], and rows with the figure and the grade of a
    terminal in each class. Figures are means over the runs, as text; terminals are in the order of the score
    of their worst class (`scored`).
    """
    if not result.manifest.get(PAGES):
        return None
    kinds = {of: {kind for _, each, kind in result.traffic if each == of} for of in result.classes}
    known = [
        each
        for each in services(result.traffic, result.thresholds)
        if GRADED.keys() & kinds[each.traffic_class]
    ]
    graded = {
        each.traffic_class: each for each in known if each.metric.name.endswith((".mos", ".page_time_p75"))
    }
    figures = pl.when(pl.col("mos").is_null()).then("page_time_p75").otherwise("mos").mean().alias("figure")
    means = (
        result.experience()
        .drop_nulls("grade")
        .group_by("setting", "terminal", "class", maintain_order=True)
        .agg(figures)
    )
    found = [_served_worst(means.filter(pl.col("setting") == name), graded) for name in result.settings]
    if not any(found):
        return None
    return {
        "classes": [
            (name, each.metric.label.partition(": ")[2], each.metric.unit) for name, each in graded.items()
        ],
        "settings": [
            {
                "setting": setting,
                "bad": [number(result.summary(setting, f"{name}.terminals_bad").mean) for name in graded],
                "rows": rows,
            }
            for setting, rows in zip(result.settings, found, strict=True)
        ],
    }


def _served_worst(
    means: pl.DataFrame, graded: dict[str, Service]
) -> list[tuple[str, list[tuple[str, str | None]]]]:
    """Return the rows of `worst_served` of a setting, from the mean figure of each terminal in each class."""
    figures: dict[str, dict[str, float]] = {}
    for _, terminal, traffic_class, figure in means.iter_rows():
        if figure is not None and traffic_class in graded:
            figures.setdefault(terminal, {})[traffic_class] = figure

    def score(terminal: str) -> float:
        return min(graded[name].score(figure) or 0.0 for name, figure in figures[terminal].items())

    worst = sorted(figures, key=score)[:WORST]
    return [
        (
            terminal,
            [
                (_text(figures[terminal].get(name)), each.grade(figures[terminal].get(name)))
                for name, each in graded.items()
            ],
        )
        for terminal in worst
    ]


def _text(value: float | None) -> str:
    return "failed" if value == math.inf else number(value)


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
        return Figure(name, title, caption, tuple(panels), 2, self._setting_legend)
