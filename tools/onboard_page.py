"""Renew docs/onboard.md and its figures: `make onboard`.

Or `python tools/onboard_page.py docs results/onboard`. Runs stored in the second folder are not repeated.
"""

import sys
from pathlib import Path
from statistics import fmean

import altair as alt
import polars as pl

import bentpipe as bp
from backlog_page import NEW, lines, spread
from bentpipe.stats.intervals import summarise
from blocks import table, with_blocks
from stored_runs import Runs, draw, head, known, shown

__all__ = ["PAGE", "SCENARIOS", "renew"]

PAGE = "onboard.md"
SCENARIOS = ("onboard-transparent", "onboard-mesh")
SEED, RUNS = 7001, 5
METRICS = (
    "throughput",
    "queue_mean",
    "queue_std",
    "queue_delay_p95",
    "loss_rate",
    "retransmitted",
    "drop_run_mean",
)
GROUND = ("red", "pie", "avqred", NEW, "slower")
BOARD = ("red", "codel", "pie", "avqred", NEW)
DELAYS = (10, 60, 120, 250)
"""Delays from the ground to the queue on board and back [ms]."""
SHOWN = (80, 100)
"""Time that is drawn [s]."""
LABELS = {"slower": f"{NEW}, 2 s"}
SLOWER = f'{{ algorithm = "{NEW}", drain_time = "2 s" }}'


def places(runs: Runs, scenario: str) -> str:
    """Compare AQMs on the ground and on board."""
    rows = []
    for place, mark, settings in (("ground", "receive", GROUND), ("on board", "transmit", BOARD)):
        loaded = bp.load(scenario, set={"gateway.mark": mark, "setting.slower": SLOWER})
        values = runs.of(f"{scenario}-{mark}", loaded, settings, RUNS, seed=SEED).values()
        for setting in settings:
            name = f"`{NEW}`, 2 s" if setting == "slower" else f"`{setting}`"
            found = (summarise(known(values, setting, metric)) for metric in METRICS)
            rows.append([f"{place}: {name}", *shown(found)])
    return table(["AQM", *map(head, METRICS)], rows)


def pictures(runs: Runs, figures: Path) -> None:
    """Draw the queue over a part of one run, AQM on the ground."""
    names = ["red", "avqred", NEW]
    charts = []
    for scenario in SCENARIOS:
        result = bp.open(runs.folder / f"{scenario}-receive")
        series = result.series("transmit_queue")
        part = series.filter(
            (pl.col("seed") == SEED) & pl.col("setting").is_in(names) & pl.col("time").is_between(*SHOWN)
        )
        title = f"queue, {scenario.removeprefix('onboard-')} [packets]"
        charts.append(lines(part, "time", ("time [s]", title), 500, names))
    draw(figures / "queue.svg", alt.vconcat(*charts))


def delays(runs: Runs, figures: Path) -> str:
    """Vary the delay, AQM on the ground, TCP from end to end."""
    names = ("red", "avqred", NEW, "slower")
    rows, drawn = [], []
    for ms in DELAYS:
        loaded = bp.load(
            "onboard-transparent",
            set={
                "gateway.pep.delay": f"{ms} ms",
                "link.satellite.reverse.delay": f"{ms} ms",
                "setting.slower": SLOWER,
            },
        )
        values = runs.of(f"delay-{ms}", loaded, names, RUNS, seed=SEED).values()
        cells = [f"{ms} ms"]
        for name in names:
            rates, varies = known(values, name, "throughput"), spread(values, name)
            cells += shown([summarise(rates), summarise(varies)])
            drawn.append({"setting": LABELS.get(name, name), "delay": ms, "value": fmean(rates)})
        rows.append(cells)
    labels = [LABELS.get(name, name) for name in names]
    titles = ("delay to the queue on board [ms]", "throughput [Mbit/s]")
    draw(figures / "delay.svg", lines(pl.DataFrame(drawn), "delay", titles, 20, labels))
    heads = [f"{name}: {what}" for name in labels for what in ("Mbit/s", "σ/mean")]
    return table(["delay", *heads], rows)


def renew(docs: Path, out: Path) -> None:
    """Simulate the runs missing in `out`, and write the page's generated parts and its figures."""
    figures, runs = docs / "figures" / "onboard", Runs(out)
    blocks = {
        "transparent": lambda: places(runs, SCENARIOS[0]),
        "mesh": lambda: places(runs, SCENARIOS[1]),
        "delay": lambda: delays(runs, figures),
    }
    with_blocks(docs / PAGE, blocks, "onboard")
    pictures(runs, figures)


if __name__ == "__main__":
    renew(*map(Path, sys.argv[1:]))
