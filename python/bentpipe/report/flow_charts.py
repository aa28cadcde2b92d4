"""Figures of classes of traffic and of single flows: over time, and as distributions."""

from typing import Any

import polars as pl

from bentpipe.report import vega
from bentpipe.report.colours import PALETTE, of_settings
from bentpipe.report.decimate import as_float, rounded_up, short
from bentpipe.report.panels import Figure, Panel, ResultCharts, Width, time_axis
from bentpipe.runs.result import Result

__all__ = ["flow_figures"]

_SLOTS = 200
"""Intervals of time in which drops are counted."""
_FLOWS = 400
"""Maximum number of flows that a panel draws."""
_LEAST = 1e-3
"""Smallest goodput that is drawn [kbit/s]."""
_DISTRIBUTIONS = (
    ("class-goodput", "goodput", "Goodput of the flows of each class", "goodput [kbit/s]", 1e-3),
    ("class-delay", "delay", "One-way delay of the flows of each class", "mean one-way delay [ms]", 1e3),
    (
        "class-completion",
        "completion_time",
        "Completion time of the flows of each class",
        "completion time [s]",
        1.0,
    ),
)


def flow_figures(result: Result, width: Width = "container") -> list[Figure]:
    """Return the figures of classes and flows that the result has data for; `width` as for `figures`.

    A result with one class has no figures of classes, which would repeat those of all flows.
    """
    charts = _FlowCharts(result, width)
    made = [charts.flows(), charts.playback()]
    if len(charts.classes) > 1:
        made = [charts.drops(), *(charts.distribution(*each) for each in _DISTRIBUTIONS), *made]
    return [figure for figure in made if figure is not None]


class _FlowCharts(ResultCharts):
    def __init__(self, result: Result, width: Width) -> None:
        super().__init__(result, width)
        names: dict[str, None] = {}
        for setting in self.settings:
            flows = self._flows(setting, self.seed)
            names |= dict.fromkeys(flows["class"].drop_nulls().unique(maintain_order=True))
        self.classes = [name for name in result.classes if name in names] or list(names)
        self.shade = of_settings(self.classes, self.classes[: len(PALETTE)])

    def _flows(self, setting: str, seed: int) -> pl.DataFrame:
        """Return the flows of a run; those of an earlier version have the name of their traffic as class."""
        flows = self.result.one("flows", setting, seed)
        name = "class" if "class" in flows.columns else "traffic"
        return flows.with_columns(pl.col(name).cast(pl.String).alias("class"))

    def _by_class(self) -> vega.Color:
        scale = vega.Scale(domain=self.classes, range=[self.shade[name] for name in self.classes])
        return vega.Color("class:N", scale=scale, legend=None)

    @property
    def _legend(self) -> tuple[tuple[str, str], ...]:
        return tuple(self.shade.items()) if len(self.classes) > 1 else ()

    def drops(self) -> Figure | None:
        """Draw the drops of each class over time, a panel per setting that drops."""
        slot = self.duration / _SLOTS
        counted: dict[str, pl.DataFrame] = {}
        for setting in self.settings:
            drops = self.result.one("drops", setting, self.seed, ("time", "flow"))
            if "flow" not in drops.columns:
                continue
            flows = self._flows(setting, self.seed).select("flow", "class")
            found = drops.join(flows, on="flow", how="inner")
            if len(found):
                counted[setting] = (
                    found.group_by("class", (pl.col("time") / slot).floor().cast(pl.Int64).alias("slot"))
                    .agg(count=pl.len())
                    .sort("class", "slot")
                )
        if not counted:
            return None
        top = rounded_up(1.02 * max(as_float(table["count"].max()) for table in counted.values()) / slot)
        panels = []
        for setting, table in counted.items():
            values: list[dict[str, Any]] = []
            for name in self.classes:
                mine = dict(table.filter(pl.col("class") == name).select("slot", "count").iter_rows())
                if mine:
                    rates = [short(mine.get(number, 0) / slot) for number in range(_SLOTS)]
                    values += [
                        {"time": short(number * slot), "rate": rate, "class": name}
                        for number, rate in enumerate([*rates, rates[-1]])
                    ]
            chart = (
                vega.Chart(vega.InlineData(values=values))
                .mark_line(interpolate="step-after", strokeWidth=1.2)
                .encode(
                    x=time_axis((0.0, self.duration), last=setting == list(counted)[-1]),
                    y=vega.Y("rate:Q", title="packets/s", scale=vega.Scale(domain=[0, top], nice=False)),
                    color=self._by_class(),
                )
                .properties(width=self.width, height=110, title=self._heading(setting))
            )
            panels.append(Panel(chart))
        quiet = [name for name in self.settings if name not in counted]
        none = f" No drops: {', '.join(quiet)}." if quiet else ""
        what = f"Packets dropped or lost of each class, in intervals of {slot:.3g} s"
        caption = f"{what}, in {self._which_run}.{none}"
        return Figure(
            "class-drops", "Drops of each class over time", caption, tuple(panels), legend=self._legend
        )

    def flows(self) -> Figure | None:
        """Draw each flow as a line from opening to closing at its goodput, a panel per setting."""
        found: dict[str, pl.DataFrame] = {}
        cut = False
        for setting in self.settings:
            known = self._flows(setting, self.seed).filter(pl.col("goodput") * 1e-3 >= _LEAST)
            if not len(known):
                continue
            every = -(-len(known) // _FLOWS)
            cut = cut or every > 1
            found[setting] = known.sort("opened").gather_every(every)
        if not found:
            return None
        rates = pl.concat([table["goodput"] for table in found.values()])
        least, most = (as_float(end) * 1e-3 for end in (rates.min(), rates.max()))
        scale = vega.Scale(type="log", domain=[0.8 * least, 1.25 * most], nice=False)
        panels = []
        for setting, table in found.items():
            values = [
                {
                    "time": short(max(row["opened"], 0.0)),
                    "end": short(self.duration if row["closed"] is None else max(row["closed"], 0.0)),
                    "goodput": short(row["goodput"] * 1e-3),
                    "class": row["class"],
                    "flow": row["flow"],
                    "kB": short(row["bytes"] * 1e-3),
                    "drops": row["drops"],
                }
                for row in table.iter_rows(named=True)
            ]
            base = vega.Chart(vega.InlineData(values=values)).encode(
                x=time_axis((0.0, self.duration), last=setting == list(found)[-1]),
                y=vega.Y("goodput:Q", title="kbit/s", scale=scale, axis=vega.Axis(format="~s", tickCount=4)),
                color=self._by_class(),
                tooltip=[vega.Tooltip(f"{name}:N") for name in ("class", "flow", "goodput", "kB", "drops")],
            )
            drawing: vega.Chart = vega.layer(
                base.mark_rule(strokeWidth=1.2, opacity=0.55).encode(x2="end:Q"),
                base.mark_point(filled=True, size=12, opacity=0.9),
            ).properties(width=self.width, height=130, title=self._heading(setting))
            panels.append(Panel(drawing))
        caption = (
            "Each line is a flow with a goodput, from its opening (dot) to its closing or the end, in"
            f" {self._which_run}; point at one for its numbers."
            + (f" Of many flows, up to {_FLOWS} are drawn, evenly chosen by opening." if cut else "")
        )
        return Figure("flows", "Goodput of each flow", caption, tuple(panels), legend=self._legend)

    def playback(self) -> Figure | None:
        """Draw the rate that each viewing plays over time, a panel per setting; gaps are stalls."""
        found: dict[str, list[dict[str, Any]]] = {}
        for setting in self.settings:
            flows = self._flows(setting, self.seed)
            if "playback_until" not in flows.columns:
                continue
            rows: list[dict[str, Any]] = []
            for row in flows.filter(pl.col("playback_until").is_not_null()).iter_rows(named=True):
                start = max(row["opened"], 0.0)
                for until, rate in zip(row["playback_until"], row["playback_bitrate"], strict=True):
                    if rate is not None and until > start:
                        rows.append(
                            {
                                "time": short(start),
                                "end": short(until),
                                "rate": short(rate * 1e-6),
                                "flow": str(row["flow"]),
                            }
                        )
                    start = until
            if rows:
                found[setting] = rows
        if not found:
            return None
        top = rounded_up(1.1 * max(row["rate"] for rows in found.values() for row in rows))
        panels = []
        for setting, rows in found.items():
            names = list(dict.fromkeys(row["flow"] for row in rows))
            shade = [PALETTE[number % len(PALETTE)] for number in range(len(names))]
            chart = (
                vega.Chart(vega.InlineData(values=rows))
                .mark_rule(strokeWidth=2.5, opacity=0.75)
                .encode(
                    x=time_axis((0.0, self.duration), last=setting == list(found)[-1]),
                    x2="end:Q",
                    y=vega.Y("rate:Q", title="Mbit/s", scale=vega.Scale(domain=[0, top], nice=False)),
                    color=vega.Color("flow:N", scale=vega.Scale(domain=names, range=shade), legend=None),
                    tooltip=["flow:N", "rate:Q"],
                )
                .properties(width=self.width, height=110, title=self._heading(setting))
            )
            panels.append(Panel(chart))
        caption = (
            f"Rate of the media that each viewing plays, a colour per flow, in {self._which_run}. A viewing"
            " without a line has not begun, or stalls."
        )
        return Figure("playback", "Playback of each viewing", caption, tuple(panels))

    def distribution(self, name: str, column: str, title: str, axis: str, factor: float) -> Figure | None:
        """Draw the distribution of a column of the flows, a panel per class and a curve per setting."""
        panels = []
        for number, traffic_class in enumerate(self.classes):
            values = {
                setting: self._values(setting, traffic_class, column) * factor for setting in self.settings
            }
            if (panel := self._shares(values, axis, "flows", traffic_class)) is not None:
                panels.append((number, panel))
        if not panels:
            return None
        missing = [each for number, each in enumerate(self.classes) if number not in dict(panels)]
        none = f" Without a value: {', '.join(missing)}." if missing else ""
        caption = f"Share of the flows of a class with up to the given value; {self._all_runs}.{none}"
        drawn = tuple(panel for _, panel in panels)
        return Figure(name, title, caption, drawn, 2, self._setting_legend)

    def _values(self, setting: str, traffic_class: str, column: str) -> pl.Series:
        """Return the known values of a column in all runs; of completion times, those while measuring."""
        found = [pl.Series([], dtype=pl.Float64)]
        for seed in self.result.seeds:
            flows = self._flows(setting, seed).filter(pl.col("class") == traffic_class)
            if column not in flows.columns:
                continue
            if column == "completion_time":
                flows = flows.filter(pl.col("completed") & (pl.col("closed") >= 0))
            found.append(flows[column].cast(pl.Float64).drop_nulls())
        return pl.concat(found)
