"""Renew docs/avqred_backlog.md and its figures: `make backlog`.

Or `python tools/backlog_page.py docs results/backlog`. Runs stored in the second folder are not repeated.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean

import altair as alt
import polars as pl

import bentpipe as bp
from bentpipe import Result, Scenario
from bentpipe.format import number
from bentpipe.models.stability import margins
from bentpipe.stats.intervals import paired, summarise
from bentpipe.stats.objectives import Judged, judged, limits_from, objectives_from
from blocks import table, with_blocks
from stored_runs import Runs, Values, draw, head, known, shown

__all__ = ["PAGE", "renew", "tuning_order"]

PAGE = "avqred_backlog.md"
NEW, OLD = "avqred_backlog", "AVQRED"
CAREFUL = "AVQRED 98"
"""AVQRED with 98 % of the rate as its capacity, a setting of live-gateway."""
TUNING_SEED, TUNING_RUNS = 501, 5
TARGETS = ("4 ms", "8 ms", "16.5 ms", "24 ms", "33 ms")
DRAIN_TIMES = ("200 ms", "350 ms", "500 ms", "1 s", "2 s")
CHOSEN = ("16.5 ms", "500 ms")
"""The defaults of `target` and `drain_time`."""
SHOWN, FULL = 6, "33 ms, 500 ms"
"""Rows of the grid on the page: the best, and one that fills the link."""
OBJECTIVES = (
    "throughput:max,throughput_std:min,queue_delay_mean:min,queue_std:min,loss_rate:min,drop_run_mean:min"
)
GATEWAY = ("throughput", "queue_mean", "queue_std", "queue_delay_p95", "loss_rate", "drop_run_mean")
DELAYS = (0, 12, 25, 50, 75, 100)
"""Delays from the mark point to the watched queue [ms]."""
GRID_DRAIN_TIMES = (25, 50, 100, 200, 500, 1000)
"""[ms]"""
GRID_DELAYS = (0, 50, 100)
GRID_CONNECTIONS = (80, 140)
WIDTH, HEIGHT = 390, 170


def comparison(result: Result, metrics: Sequence[str], baseline: str = OLD, *, placed: bool = False) -> str:
    """Return means with 95 % intervals, and the paired differences of the new algorithm from `baseline`.

    `placed` adds the places by rank sums.
    """
    values = result.values()
    places = {each.name: str(each.place) for each in judged(means(values), objectives_from(OBJECTIVES))}
    rows = []
    for setting in result.settings:
        found = [summarise(values[setting][name]) for name in metrics]
        rows.append([f"`{setting}`", *shown(found), places[setting]])
    differences = [paired(values[NEW][name], values[baseline][name]) for name in metrics]
    rows.append([f"`{NEW}` − `{baseline}`", *shown(differences), ""])
    heads = ["setting", *map(head, metrics), "place"]
    return table(heads, rows) if placed else table(heads[:-1], [row[:-1] for row in rows])


def means(values: Values) -> dict[str, dict[str, float]]:
    """Return the means of the objectives."""
    names = [each.metric for each in objectives_from(OBJECTIVES)]
    return {setting: {name: fmean(known(values, setting, name)) for name in names} for setting in values}


def loaded(name: str, **overrides: str) -> Scenario:
    """Load a scenario with overrides, in which `__` stands for a dot."""
    return bp.load(name, set={key.replace("__", "."): value for key, value in overrides.items()})


def tuning_order(of: Mapping[str, Mapping[str, float]]) -> list[Judged]:
    """Order settings by rank sums, those first that carry as much as AVQRED with no longer delay."""
    limits = [f"throughput>={of[OLD]['throughput']}", f"queue_delay_mean<={of[OLD]['queue_delay_mean']}"]
    return judged(of, objectives_from(OBJECTIVES), limits_from(limits))


def tuning(runs: Runs) -> str:
    """Return the best settings of the grid."""
    names = {f"{t}, {d}": (t, d) for t in TARGETS for d in DRAIN_TIMES}
    own = {
        f'setting."{name}"': f'{{ algorithm = "{NEW}", target = "{t}", drain_time = "{d}" }}'
        for name, (t, d) in names.items()
    }
    scenario = bp.load("byun2007-gateway", set={"run.duration": "5 min", **own})
    result = runs.of("tuning", scenario, [*names, OLD], TUNING_RUNS, seed=TUNING_SEED)
    values = result.values()
    order = tuning_order(means(values))
    if order[0].name != ", ".join(CHOSEN):
        raise SystemExit(f"the best setting is {order[0].name}, not the default")
    metrics = [each.metric for each in objectives_from(OBJECTIVES)]
    rows = [
        [f"`{each.name}`" if each.name == OLD else each.name, str(each.place)]
        + [number(fmean(x for x in values[each.name][name] if x is not None)) for name in metrics]
        for each in order
        if each.place <= SHOWN or each.name == FULL
    ]
    heads = [head(name) for name in metrics]
    return table(["target, drain time", "place", *heads], rows)


def gateway(runs: Runs) -> str:
    """Compare on the 2007 gateway."""
    settings = ["RED 4", "AVQ", OLD, "PFAVQRED", "codel", "pie", NEW]
    result = runs.of("gateway", loaded("byun2007-gateway", run__duration="10 min"), settings)
    return comparison(result, GATEWAY, placed=True)


def parts(result: Result, setting: str, length: float = 10) -> list[list[float]]:
    """Return the mean queue of each third of a start, a value per seed."""
    series = result.series("transmit_queue").filter(pl.col("setting") == setting)
    thirds = series.with_columns((pl.col("time") // length).alias("part"))
    means = thirds.group_by("seed", "part").agg(pl.col("value").mean()).sort("seed")
    return [means.filter(pl.col("part") == index)["value"].to_list() for index in range(3)]


def queues(named: Mapping[str, list[list[float]]]) -> str:
    """Return the mean queues of a start as a table."""
    rows = []
    for name, found in named.items():
        rows.append([name, *shown(summarise(each) for each in found)])
    return table(["mean queue [packets]", "0 to 10 s", "10 to 20 s", "20 to 30 s"], rows)


def start(runs: Runs, figures: Path) -> str:
    """Compare the first half minute of 400 users who begin at once, simulated and live."""
    settings = ["RED 4", CAREFUL, "avqred", NEW]
    begin = {"run__warmup": "0 s", "run__duration": "30 s"}
    result = runs.of("start", loaded("live-gateway", **begin), settings)
    fast = runs.of(
        "start-return",
        loaded("live-gateway", link__satellite__reverse__rate="200 Mbps", **begin),
        settings[1:],
    )
    live = runs.of("live", loaded("live-gateway", **begin), settings[1:], 1, live=True)
    named = {f"`{name}`, simulated": parts(result, name) for name in settings}
    of_new, of_careful = parts(result, NEW), parts(result, CAREFUL)
    named[f"`{NEW}` − `{CAREFUL}`, paired"] = [
        [a - b for a, b in zip(*both, strict=True)] for both in zip(of_new, of_careful, strict=True)
    ]
    named |= {f"`{name}`, simulated, return link of 200 Mbit/s": parts(fast, name) for name in settings[1:]}
    named |= {f"`{name}`, live, one run": parts(live, name) for name in settings[1:]}
    charts = []
    for title, each in (("simulated", result), ("live", live)):
        every = each.series("transmit_queue")
        series = every.group_by("setting", "time").agg(pl.col("value").mean())
        charts.append(
            lines(series.sort("time"), "time", ("time [s]", f"queue, {title} [packets]"), 500, settings)
        )
    draw(figures / "start.svg", alt.vconcat(*charts))
    return queues(named)


def fade(runs: Runs) -> str:
    """Compare under rain fade, with the PEP and without."""
    metrics = ("throughput", "queue_delay_mean", "queue_delay_p95", "loss_rate", "drop_run_mean")
    settings = ["red", "codel", "pie", "avqred", NEW]
    plain = runs.of("fade", loaded("rain-fade"), settings)
    split = {"gateway__pep__split": '["tcp"]', "gateway__mark": "receive", "gateway__watch": "transmit"}
    with_pep = runs.of("fade-pep", loaded("rain-fade", **split), settings)
    return "\n\n".join(
        [
            "Without a PEP:",
            comparison(plain, metrics, "avqred"),
            "With a PEP:",
            comparison(with_pep, metrics, "avqred"),
        ]
    )


def unsplit(runs: Runs) -> str:
    """Compare on the 2007 gateway with flows that the PEP does not split."""
    scenario = loaded("byun2007-gateway", gateway__pep__split="[]", run__duration="5 min")
    result = runs.of("unsplit", scenario, ["RED 4", OLD, "codel", "pie", NEW])
    return comparison(result, ("throughput", "queue_mean", "queue_std", "loss_rate", "drop_run_mean"))


def delay(runs: Runs, figures: Path) -> str:
    """Vary the delay from the mark point to the watched queue."""
    compared = ("RED 4", OLD, NEW)
    rows, drawn = [], []
    for ms in DELAYS:
        scenario = loaded("byun2007-gateway", gateway__pep__delay=f"{ms} ms", run__duration="5 min")
        values = runs.of(f"delay-{ms}", scenario, ["RED 4", OLD, NEW], 5).values()
        cells = [f"{ms} ms"]
        for setting in compared:
            rates = known(values, setting, "throughput")
            cells += shown([summarise(rates), summarise(spread(values, setting))])
            drawn.append({"setting": setting, "delay": ms, "value": fmean(spread(values, setting))})
        rows.append(cells)
    data = pl.DataFrame(drawn)
    draw(
        figures / "delay.svg",
        lines(data, "delay", ("delay to the watched queue [ms]", "queue, std over mean"), 2, compared),
    )
    heads = [f"{setting}: {what}" for setting in ("RED 4", OLD, "new") for what in ("Mbit/s", "σ/mean")]
    return table(["delay", *heads], rows)


def spread(values: Values, setting: str) -> list[float]:
    """Return the queue's standard deviation over its mean, a value per run."""
    both = zip(known(values, setting, "queue_std"), known(values, setting, "queue_mean"), strict=True)
    return [std / mean for std, mean in both]


def stable_range(runs: Runs, figures: Path) -> str:
    """Compare the fluid model's margins with simulations over drain time, delay and connections."""
    rows, drawn = [], []
    for ms in GRID_DRAIN_TIMES:
        fluid = margins(
            loaded("byun2007-gateway", model__feedback="round_trip", gateway__aqm__drain_time=f"{ms} ms"),
            settings=[NEW],
            vary={"connections": list(GRID_CONNECTIONS), "pep_delay": [x / 1000 for x in GRID_DELAYS]},
        )
        cells = [f"{ms} ms"]
        for connections in GRID_CONNECTIONS:
            for wait in GRID_DELAYS:
                at = fluid.filter(pl.col("at_connections") == connections)
                one = at.filter((pl.col("at_pep_delay") - wait / 1000).abs() < 1e-9).row(0, named=True)
                scenario = loaded(
                    "byun2007-gateway",
                    gateway__aqm__drain_time=f"{ms} ms",
                    gateway__pep__delay=f"{wait} ms",
                    traffic__web__sessions=str(connections),
                    traffic__web__ramp='{ sessions = 100, over = "5 s", pause = "0 s" }',
                    run__warmup="60 s",
                    run__duration="120 s",
                )
                values = runs.of(f"grid-{ms}-{wait}-{connections}", scenario, [NEW], 3).values()
                varies = fmean(spread(values, NEW))
                cells.append(f"{one['phase_margin']:.0f}°, {varies:.2f}")
                name = "stable" if one["stable"] else "unstable"
                drawn.append({"phase": one["phase_margin"], "spread": varies, "fluid model": name})
        many = loaded("byun2007-gateway", gateway__aqm__drain_time=f"{ms} ms", run__duration="2 min")
        values = runs.of(f"grid-{ms}-400", many, [NEW], 3).values()
        cells.append(f"{fmean(spread(values, NEW)):.2f}, {number(fmean(known(values, NEW, 'throughput')))}")
        rows.append(cells)
    clamped = alt.Scale(domain=[-100, 100], clamp=True)
    chart = (
        alt.Chart(pl.DataFrame(drawn))
        .mark_point(filled=True, size=50)
        .encode(
            alt.X("phase:Q", title="phase margin of the fluid model [degrees]", scale=clamped),
            alt.Y("spread:Q", title="simulated queue, std over mean"),
            alt.Color("fluid model:N"),
        )
        .properties(width=WIDTH, height=HEIGHT)
    )
    draw(figures / "stable.svg", chart)
    heads = [f"{n} connections, {ms} ms" for n in GRID_CONNECTIONS for ms in GRID_DELAYS]
    return table(["drain time", *heads, "400 sessions, 12 ms"], rows)


def lines(
    data: pl.DataFrame, x: str, titles: tuple[str, str], most: float, names: Sequence[str]
) -> alt.Chart:
    """Draw `value` over `x`, a line per setting, up to `most`."""
    chart: alt.Chart = (
        alt.Chart(data)
        .mark_line(clip=True, strokeWidth=1.4)
        .encode(
            alt.X(f"{x}:Q", title=titles[0], scale=alt.Scale(nice=False)),
            alt.Y("value:Q", title=titles[1], scale=alt.Scale(domain=[0, most])),
            alt.Color("setting:N", title=None, sort=list(names), legend=alt.Legend(orient="top")),
        )
        .properties(width=WIDTH, height=HEIGHT)
    )
    return chart


def renew(docs: Path, out: Path) -> None:
    """Simulate the runs missing in `out`, and write the page's generated parts and its figures."""
    figures, runs = docs / "figures" / "backlog", Runs(out)
    blocks: dict[str, Callable[[], str]] = {
        "start": lambda: start(runs, figures),
        "stable": lambda: stable_range(runs, figures),
        "fade": lambda: fade(runs),
        "unsplit": lambda: unsplit(runs),
        "delay": lambda: delay(runs, figures),
        "gateway": lambda: gateway(runs),
        "tuning": lambda: tuning(runs),
    }
    with_blocks(docs / PAGE, blocks, "backlog")


if __name__ == "__main__":
    renew(*map(Path, sys.argv[1:]))
