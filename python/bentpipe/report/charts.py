"""The figures of a result as Vega-Lite charts, for the report and as files for papers.

A figure has one or more panels. Time series are decimated for display: a bucket of samples becomes its mean
and a band from its smallest to its largest sample.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import polars as pl

from bentpipe.format import convert, ends
from bentpipe.report import vega
from bentpipe.report.colours import INK, MUTED, of_settings, text_colour
from bentpipe.report.decimate import (
    POINTS,
    as_float,
    bounds,
    decimate,
    ecdf,
    geometric,
    plain,
    rounded_up,
    samples_of,
)
from bentpipe.report.panels import Figure, Panel, ResultCharts, Width
from bentpipe.runs.result import Result
from bentpipe.stats.metrics import Recorded, find
from bentpipe.stats.ranking import MANY, drawn

__all__ = ["figures", "labels", "series_figure"]

_WINDOW = (50.0, 100.0)
_WIDE = 50
"""Ratio of the longest queue to the shortest above which the scale is logarithmic."""
_FIRST = 1000
_SHOWN = 0.995


def figures(result: Result, width: Width = "container") -> list[Figure]:
    """Return every figure that the result has data for; `width` is that of one column's panels [pixels]."""
    charts = _Charts(result, width)
    made = [
        charts.operating_points(),
        charts.over_time(
            "throughput", "throughput", "Throughput over time", "Rate sent on the link", "Mbit/s", 1e-6
        ),
        charts.over_time(
            "queue", "transmit_queue", "Queue over time", "Length of the transmit queue", "packets"
        ),
        charts.window(),
        charts.over_time(
            "mark-probability",
            "mark_probability",
            "Mark probability over time",
            "Share of the packets arriving at the mark point that were marked",
            "%",
            100,
        ),
        charts.first_drops(),
        charts.drop_runs(),
        charts.queue_distribution(),
        charts.goodput(),
        charts.completion_time(),
    ]
    return [figure for figure in made if figure is not None]


def series_figure(
    result: Result,
    column: str,
    label: str,
    unit: str,
    factor: float,
    *,
    settings: Sequence[str] | None,
    seed: int,
    width: Width,
) -> Figure | None:
    """Return the figure of one column of a run's time series, of these or of the best settings."""
    charts = _Charts(result, width)
    charts.seed = seed
    if settings is not None:
        shades = of_settings(result.settings, result.settings)
        charts.settings = list(settings)
        charts.colour |= {name: shades[name] for name in settings if name not in drawn(result)}
    return charts.over_time(column, column, label, label, unit, factor)


class _Charts(ResultCharts):
    """Draws the figures of one result."""

    @property
    def _which_settings(self) -> str:
        more = len(self.all) - len(self.settings)
        return (
            f" The {len(self.settings)} best by rank are coloured; the other figures show only these."
            " Point at a dot without a name to see it."
            if more
            else ""
        )

    def over_time(
        self, name: str, column: str, title: str, quantity: str, unit: str, factor: float = 1
    ) -> Figure | None:
        series = {setting: self._series(setting, column, factor) for setting in self.settings}
        known = {setting: table for setting, table in series.items() if table is not None}
        if not known:
            return None
        decimated = {setting: decimate(table) for setting, table in known.items()}
        limits = dict(self.capacity) if column == "throughput" else {}
        changing = self._changing(limits, (0.0, self.duration))
        fixed = [limit for setting, limit in limits.items() if setting not in changing]
        domain = bounds([*decimated.values(), *changing.values()], fixed, from_zero=not limits)
        panels = []
        for setting, table in decimated.items():
            values = known[setting]["value"].drop_nulls()
            mean, std = values.mean(), values.std()
            note = f"mean {plain(mean)}, standard deviation {plain(std)} {unit}"
            panels.append(
                Panel(
                    self._curve(
                        table,
                        setting,
                        (0.0, self.duration),
                        domain,
                        unit,
                        last=setting == list(decimated)[-1],
                        height=110,
                        width=self.width,
                        note=note,
                        limit=changing.get(setting, limits.get(setting)),
                    ),
                    self._details((table, known[setting])),
                )
            )
        interval = float(self.result.manifest["scenario"]["sample_interval"])
        size = max(1, math.ceil(max(len(table) for table in known.values()) / POINTS))
        how = (
            f"Sampled every {interval * 1e3:g} ms."
            if size == 1
            else f"Sampled every {interval * 1e3:g} ms; the line is the mean of {size} samples"
            f" ({size * interval:g} s), the band spans their minimum and maximum."
        )
        dashed = " The dashed line is the link's capacity." if limits else ""
        caption = f"{quantity} in {self._which_run}. {how}{dashed}"
        return Figure(name, title, caption, tuple(panels))

    def _changing(self, settings: Iterable[str], span: tuple[float, float]) -> dict[str, pl.DataFrame]:
        """Return the decimated capacity [Mbit/s] in `span` of settings whose link's capacity changes."""
        known = {setting: self._series(setting, "capacity", 1e-6) for setting in settings}
        return {
            setting: decimate(table.filter(pl.col("time").is_between(*span)))
            for setting, table in known.items()
            if table is not None
        }

    def window(self) -> Figure | None:
        start, end = _WINDOW
        if self.duration < end:
            start, end = max(0.0, self.duration - (end - start)), self.duration
        if end - start >= self.duration:
            return None
        parts: list[tuple[str, str, float, str, dict[str, float]]] = [
            ("throughput", "Mbit/s", 1e-6, "throughput", self.capacity),
            ("transmit_queue", "packets", 1, "transmit queue", {}),
        ]
        tables: dict[tuple[str, str], pl.DataFrame] = {}
        most = 0
        for setting in self.settings:
            for column, _, factor, *_ in parts:
                series = self._series(setting, column, factor)
                if series is not None:
                    inside = series.filter(pl.col("time").is_between(start, end, closed="right")).drop_nulls()
                    most = max(most, len(inside))
                    if len(inside):
                        tables[setting, column] = decimate(inside)
        if not tables:
            return None
        changing = self._changing(self.capacity, (start, end))
        panels = []
        for setting in self.settings:
            for column, unit, factor, label, limits in parts:
                table = tables.get((setting, column))
                if table is None:
                    continue
                same = [other for (_, name), other in tables.items() if name == column]
                panels.append(
                    Panel(
                        self._curve(
                            table,
                            setting,
                            (start, end),
                            bounds(
                                [*same, *(changing.values() if limits else ())],
                                [limit for other, limit in limits.items() if other not in changing],
                                from_zero=not limits,
                            ),
                            unit,
                            last=setting == self.settings[-1],
                            height=120,
                            width=self._half(),
                            note=label,
                            limit=changing.get(setting, limits[setting]) if limits else None,
                        ),
                        self._details((table, self._series(setting, column, factor))),
                    )
                )
        caption = (
            f"The same run from {start:g} to {end:g} s: {samples_of(most)} of the rate sent on the link and"
            " of the transmit queue. The dashed line is the link's capacity. While the queue is empty, the"
            " link is idle."
        )
        columns = len({column for _, column in tables})
        return Figure("window", f"Magnified: {start:g} to {end:g} s", caption, tuple(panels), columns)

    def operating_points(self) -> Figure | None:
        """Draw throughput against queue length, with intervals and printed values."""
        points_of: list[tuple[str, dict[str, float]]] = []
        printed_of: list[tuple[str, dict[str, float]]] = []
        for setting in self.all:
            queue, rate = self.stats[setting, "queue_mean"], self.stats[setting, "throughput"]
            if queue["mean"] is None or rate["mean"] is None:
                continue
            both = _cross("x", queue) | _cross("y", rate)
            points_of.append((setting, both))
            at = {"x": self._printed(setting, "queue_mean"), "y": self._printed(setting, "throughput")}
            known = {axis: value for axis, value in at.items() if value is not None}
            if len(known) == 2:
                printed_of.append((setting, known))
        points, printed = [point for _, point in points_of], [point for _, point in printed_of]
        if not points:
            return None
        spots, levels = (
            [point[key] for point in points + printed for key in keys if key in point]
            for keys in (("x", "x_low", "x_high"), ("y", "y_low", "y_high"))
        )
        capacity = max(self.capacity.values())
        # Intervals and printed values may lie above the capacity.
        low, high = min(levels), max(capacity, *levels)
        wide = max(spots) > _WIDE * min(point["x"] for point in points)
        least, most = max(0.5 * min(point["x"] for point in points), 0.1), 3 * max(spots)
        end = rounded_up(max(spots) * 1.12)
        across = (math.log10(least), math.log10(most)) if wide else (0.0, end)
        x_scale = (
            vega.Scale(type="log", domain=[least, most], nice=False, clamp=True)
            if wide
            else vega.Scale(domain=[0, end], nice=False)
        )
        span = max(high - low, 0.02 * capacity)
        # Labels are placed between these ends; `nice` would let Vega move them.
        up = (low - 0.25 * span, high + 0.05 * span)
        y_scale = vega.Scale(domain=up, zero=False, nice=False)

        def x(field: str) -> vega.X:
            return vega.X(
                f"{field}:Q",
                title="mean transmit queue [packets]" + (", logarithmic" if wide else ""),
                scale=x_scale,
                axis=vega.Axis(format="~s") if wide else vega.Undefined,
            )

        def y(field: str) -> vega.Y:
            return vega.Y(f"{field}:Q", title="throughput [Mbit/s]", scale=y_scale)

        colour = vega.Color(
            "setting:N",
            scale=vega.Scale(domain=self.all, range=[self.colour[name] for name in self.all]),
            legend=None,
        )
        tooltip = [
            vega.Tooltip("setting:N"),
            vega.Tooltip("x:Q", title="queue [packets]", format=".1f"),
            vega.Tooltip("y:Q", title="throughput [Mbit/s]", format=".2f"),
        ]
        base = vega.Chart(
            vega.InlineData(values=[point | {"setting": name} for name, point in points_of])
        ).encode(color=colour)
        layers: list[vega.Chart] = [
            base.mark_rule(strokeWidth=1.5).encode(x=x("x_low"), x2="x_high:Q", y=y("y")),
            base.mark_rule(strokeWidth=1.5).encode(x=x("x"), y=y("y_low"), y2="y_high:Q"),
            base.mark_point(filled=True, size=80, opacity=1).encode(x=x("x"), y=y("y"), tooltip=tooltip),
        ]
        height = 300 if len(self.all) <= MANY else 460
        named = [(name, point, False) for name, point in points_of]
        if len(self.all) <= MANY:
            named += [(name, point, True) for name, point in printed_of]
        drawn_width = 900 if self.width == "container" else self.width
        places = labels(
            [name for name, *_ in named],
            [(math.log10(max(at["x"], least)) if wide else at["x"], at["y"]) for _, at, _ in named],
            across,
            up,
            (drawn_width, height),
        )
        told: list[dict[str, Any]] = []
        for number, (name, point, theirs) in enumerate(named):
            told.append(
                {
                    "name": name,
                    "x": point["x"],
                    "y": point["y"],
                    "size": 11 if theirs else 12 if name in self.settings else 10,
                    "weight": 600 if name in self.settings and not theirs else 400,
                }
            )
            label = vega.Chart(vega.InlineData(values=[{"x": point["x"], "y": point["y"]}]))
            layers.append(
                label.mark_text(
                    align=vega.ExprRef(f"labels[{number}].align"),
                    dx=vega.ExprRef(f"labels[{number}].dx"),
                    dy=vega.ExprRef(f"labels[{number}].dy"),
                    opacity=vega.ExprRef(f"labels[{number}].opacity"),
                    fontSize=told[-1]["size"],
                    fontWeight=told[-1]["weight"],
                    fontStyle="italic" if theirs else "normal",
                    color=text_colour(self.colour[name]) if name in self.settings else MUTED,
                    text=name,
                ).encode(x=x("x"), y=y("y"))
            )
        if printed:
            rows = [point | {"setting": name} for name, point in printed_of]
            layers.append(
                vega.Chart(vega.InlineData(values=rows))
                .mark_point(shape="diamond", size=100, filled=False, strokeWidth=1.8)
                .encode(x=x("x"), y=y("y"), color=colour, tooltip=tooltip)
            )
        # A page places the labels again for its width.
        start = [
            {"align": place[0], "dx": place[1], "dy": place[2], "opacity": 1}
            if place
            else {"align": "left", "dx": 0, "dy": 0, "opacity": 0}
            for place in places
        ]
        chart = vega.layer(*layers).add_params(vega.param(name="labels", value=start))
        chart = chart.properties(width=self.width, height=height, usermeta={"labels": told})
        runs = len(self.result.seeds)
        bars = (
            f"bars are 95 % confidence intervals over {runs} runs"
            if runs > 2
            else "bars span the two runs"
            if runs == 2
            else "one run; bars, if any, are 95 % confidence intervals from batch means"
        )
        hollow = " Hollow diamonds are the printed values." if printed else ""
        caption = (
            "Throughput and mean queue of each setting; better settings are nearer to the upper left."
            f" Dots are means, {bars}.{hollow}{self._which_settings}"
        )
        return Figure("operating-points", "Throughput against queue", caption, (Panel(chart),))

    def _printed(self, setting: str, metric: str) -> float | None:
        """Return the source's printed value of a metric, in the metric's unit."""
        known = find(metric)
        for row in self.result.manifest["printed"]:
            if known and row["setting"] == setting and row["metric"] == metric:
                return convert(float(row["value"]), row["unit"], known.unit)
        return None

    def first_drops(self) -> Figure | None:
        rows = []
        for setting in self.settings:
            drops = self.result.one("drops", setting, self.seed, ("arrival", "reason"))
            early = drops.filter(pl.col("arrival") < _FIRST).filter(pl.col("reason") != "loss")
            rows += [{"setting": setting, "arrival": arrival} for arrival in early["arrival"].to_list()]
        if not rows:
            return None
        chart = (
            vega.Chart(vega.InlineData(values=rows))
            .mark_tick(thickness=1, opacity=0.85, size=26)
            .encode(
                x=vega.X(
                    "arrival:Q",
                    title="arrival number at the mark point",
                    scale=vega.Scale(domain=[0, _FIRST], nice=False),
                ),
                y=vega.Y(
                    "setting:N",
                    title=None,
                    sort=self.settings,
                    scale=vega.Scale(domain=self.settings),
                    axis=vega.Axis(labelFontSize=12, labelColor=INK),
                ),
                color=vega.Color("setting:N", scale=self._scale(), legend=None),
            )
            .properties(width=self.width, height=38 * len(self.settings))
        )
        counts = ", ".join(f"{name} {sum(row['setting'] == name for row in rows)}" for name in self.settings)
        caption = (
            f"Each tick is a dropped packet among the first {_FIRST:,} that arrived at the mark point after"
            f" measuring began, in {self._which_run} ({counts}). Clusters are bursts of drops, which affect"
            " many connections at once."
        )
        return Figure("first-drops", f"Drops among the first {_FIRST:,} packets", caption, (Panel(chart),))

    def drop_runs(self) -> Figure | None:
        pooled = (
            self.result.drop_runs().group_by("setting", "length").agg(pl.col("count").sum()).sort("length")
        )
        if not len(pooled):
            return None
        counters = self.result.counters()
        longest = min(int(as_float(pooled["length"].max())), 40)
        known = [name for name in self.settings if name in set(pooled["setting"].cast(pl.String))]
        expected: dict[str, list[dict[str, float]]] = {}
        for setting in known:
            total = {
                name: as_float(
                    counters.filter((pl.col("setting") == setting) & (pl.col("counter") == name))[
                        "value"
                    ].sum()
                )
                for name in ("offered_packets", "dropped_packets")
            }
            share = total["dropped_packets"] / total["offered_packets"] if total["offered_packets"] else 0.0
            expected[setting] = [
                {"length": length, "expected": expectation}
                for length in range(1, longest + 1)
                if (expectation := geometric(share, total["offered_packets"], length)) >= 0.5
            ]
        # Long runs are few: the line of independent drops may be far above all bars.
        most = max(
            [as_float(pooled["count"].max())]
            + [each["expected"] for line in expected.values() for each in line]
        )
        scale = vega.Scale(type="log", domain=[0.5, 10 ** math.ceil(math.log10(most * 1.2))], nice=False)
        panels = []
        for setting in known:
            mine = pooled.filter(pl.col("setting") == setting)
            bars = [
                {"length": row["length"], "count": row["count"], "floor": 0.5}
                for row in mine.filter(pl.col("length") <= longest).iter_rows(named=True)
            ]
            x = vega.X(
                "length:Q",
                title="consecutive drops [packets]" if setting == known[-1] else None,
                scale=vega.Scale(domain=[0.4, longest + 0.6], nice=False),
                axis=vega.Axis(tickMinStep=1, format="d"),
            )
            y_axis = vega.Axis(values=[10**power for power in range(9)], format="~s")
            width = max(2, min(16, 260 // longest))
            chart = vega.layer(
                vega.Chart(vega.InlineData(values=bars))
                .mark_bar(color=self.colour[setting], width=width, opacity=0.75)
                .encode(
                    x=x,
                    y=vega.Y("count:Q", title="runs", scale=scale, axis=y_axis),
                    y2="floor:Q",
                    tooltip=[vega.Tooltip("length:Q"), vega.Tooltip("count:Q", title="runs", format=",")],
                ),
                vega.Chart(vega.InlineData(values=expected[setting]))
                .mark_line(
                    color=INK,
                    strokeWidth=1.2,
                    strokeDash=[3, 2],
                    point=vega.OverlayMarkDef(color=INK, size=14, filled=True),
                )
                .encode(x=x, y=vega.Y("expected:Q", title="runs", scale=scale)),
            )
            mean = self.stats[setting, "drop_run_mean"]["mean"]
            independent = self.stats[setting, "drop_run_independent"]["mean"]
            note = f"mean run {plain(mean)} packets; {plain(independent)} if drops were independent"
            panels.append(
                Panel(
                    chart.properties(width=self.width, height=130, title=self._heading(setting, note)),
                )
            )
        beyond = pooled.filter(pl.col("length") > longest).group_by("setting", maintain_order=True)
        tails = beyond.agg(count=pl.col("count").sum(), most=pl.col("length").max())
        cut = "".join(
            f" {name} also has {count:,} longer runs, the longest of {most:,} packets."
            for name, count, most in tails.iter_rows()
        )
        caption = (
            f"Number of runs of consecutive drops at the mark point by length, {self._all_runs} (logarithmic"
            " scale). The dashed line is the geometric distribution for independent drops at the same rate:"
            f" bars above it on the right are bursts, a sign of global synchronization.{cut}"
            f"{_without(self.settings, known)}"
        )
        return Figure("drop-runs", "Runs of consecutive drops", caption, tuple(panels))

    def queue_distribution(self) -> Figure | None:
        return self._distribution(
            "queue-distribution",
            "Distribution of the queue",
            "transmit queue [packets]",
            "Share of samples with a transmit queue up to the given length",
            lambda setting: self._pool(setting, lambda run: run.samples("transmit_queue")),
            "samples",
        )

    def goodput(self) -> Figure | None:
        return self._distribution(
            "goodput",
            "Goodput of the flows",
            "goodput [kbit/s]",
            "Share of flows with a goodput up to the given rate; a steeper curve means a fairer setting",
            lambda setting: self._pool(setting, lambda run: run.all_flows.goodput) * 1e-3,
            "flows",
        )

    def completion_time(self) -> Figure | None:
        return self._distribution(
            "completion-time",
            "Completion time of the flows",
            "completion time [s]",
            "Share of flows with a completion time, from opening to the last byte, up to the given time,"
            " among those completed within the measured time",
            lambda setting: self._pool(setting, lambda run: run.all_flows.completion),
            "flows",
        )

    def _pool(self, setting: str, of: Callable[[Recorded], pl.Series]) -> pl.Series:
        """Return the values of all runs of a setting."""
        return pl.concat([of(self.result.recorded(setting, seed)) for seed in self.result.seeds])

    def _distribution(
        self,
        name: str,
        title: str,
        axis: str,
        caption: str,
        values: Callable[[str], pl.Series],
        things: str,
    ) -> Figure | None:
        rows: list[dict[str, Any]] = []
        counts, tops = [], []
        for setting in self.settings:
            known = values(setting)
            if not len(known):
                continue
            counts.append(f"{setting} {len(known):,}")
            tops.append(as_float(known.quantile(_SHOWN, interpolation="higher")))
            rows += [{"setting": setting, "value": value, "share": share} for value, share in ecdf(known)]
        if not rows:
            return None
        chart = (
            vega.Chart(vega.InlineData(values=rows))
            .mark_line(strokeWidth=2, interpolate="step-after", clip=True)
            .encode(
                x=vega.X(
                    "value:Q", title=axis, scale=vega.Scale(domain=[0, rounded_up(max(tops))], nice=False)
                ),
                y=vega.Y(
                    "share:Q",
                    title=f"share of {things} [%]",
                    scale=vega.Scale(domain=[0, 100]),
                    axis=vega.Axis(values=[0, 25, 50, 75, 100], tickCount=5),
                ),
                color=vega.Color("setting:N", scale=self._scale(), legend=vega.Legend(title=None)),
                strokeDash=vega.StrokeDash("setting:N", scale=self._dash(), legend=vega.Legend(title=None)),
            )
            .properties(width=self.width, height=230)
        )
        text = (
            f"{caption}; {self._all_runs} ({things}: {', '.join(counts)}). The axis ends where all curves"
            f" exceed {100 * _SHOWN:g} %."
        )
        return Figure(name, title, text, (Panel(chart),))


def labels(
    names: Sequence[str],
    points: Sequence[tuple[float, float]],
    across: tuple[float, float],
    up: tuple[float, float],
    size: tuple[float, float],
) -> list[tuple[Literal["left", "center", "right"], int, int] | None]:
    """Place a label beside each point such that labels do not overlap each other or points.

    `across` and `up` are the ends of the axes, `size` their lengths [pixels]. Returns the alignment and the
    offset of each label [pixels]; None if there is no room. Earlier labels are placed first.
    """
    spots = [
        (
            (x - across[0]) / ((across[1] - across[0]) or 1) * size[0],
            (up[1] - y) / ((up[1] - up[0]) or 1) * size[1],
        )
        for x, y in points
    ]
    taken = [(x - 5, y - 5, x + 5, y + 5) for x, y in spots]
    found: list[tuple[Literal["left", "center", "right"], int, int] | None] = []
    choices: tuple[tuple[Literal["left", "center", "right"], int, int], ...] = (
        ("left", 7, -13),
        ("left", 7, 14),
        ("right", -7, -13),
        ("right", -7, 14),
        ("center", 0, -15),
        ("center", 0, 17),
        ("left", 9, 1),
        ("right", -9, 1),
        ("left", 10, -24),
        ("left", 10, 25),
    )
    for name, (x, y) in zip(names, spots, strict=True):
        wide = 7 * len(name)
        chosen = None
        for side, dx, dy in choices:
            left = x + dx - {"left": 0, "center": wide / 2, "right": wide}[side]
            box = (left, y + dy - 7, left + wide, y + dy + 7)
            inside = box[0] >= 0 and box[2] <= size[0] + 40 and box[1] >= -10 and box[3] <= size[1] + 5
            if inside and not any(
                box[0] < c[2] and c[0] < box[2] and box[1] < c[3] and c[1] < box[3]
                for c in taken
                if c != (x - 5, y - 5, x + 5, y + 5)
            ):
                chosen = (side, dx, dy)
                taken.append(box)
                break
        found.append(chosen)
    return found


def _cross(axis: str, found: dict[str, Any]) -> dict[str, float]:
    low, high = (found["mean"] if end is None else end for end in ends(found))
    return {axis: found["mean"], f"{axis}_low": low, f"{axis}_high": high}


def _without(settings: Sequence[str], drawn: Sequence[str]) -> str:
    names = [name for name in settings if name not in drawn]
    return f" No drops: {', '.join(names)}." if names else ""
