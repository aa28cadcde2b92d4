"""Renew the comparison of several terminals, live and simulated, in docs/gateway-terminals.md.

`make live-terminals`, as root, or `python tools/live_terminals_page.py docs results/live-terminals`. Runs
stored in the second folder are not repeated.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median

import polars as pl

import bentpipe as bp
from bentpipe.format import quantity
from blocks import table, with_blocks
from engines_table import Compared, compared, verdict
from stored_runs import Runs, head, known

__all__ = ["of_groups", "of_subject", "of_terminals", "renew"]

PAGE = "gateway-terminals.md"
SCENARIO = "live-terminals"
SEED, RUNS = 9101, 9
"""Both engines have the same seeds, and so the same files at the same times."""
RATE, QUEUE, DROPS = 3, 30, 20
"""Bands of docs/live-bench.md: greatest difference of the medians in throughput, queue and drop rate [%]."""

Bands = Mapping[str, float | None]

SUBJECT: Bands = {
    "throughput": RATE,
    "queue_mean": QUEUE,
    "drop_rate": DROPS,
    "terminal_jain_index": None,
    "terminal_weighted_jain_index": None,
    "return_throughput": RATE,
    "return_queue_delay_mean": QUEUE,
    "return_drop_rate": None,
    "photos.fct_p50": None,
}
"""Metrics and their bands [%]; none for those without one."""


def of_subject(setting: str, simulated: bp.Result, live: bp.Result) -> list[Compared]:
    """Compare the queues of all terminals together."""
    before, after = simulated.values(), live.values()
    return [
        Compared(f"all: {head(metric)}", known(before, setting, metric), known(after, setting, metric), band)
        for metric, band in SUBJECT.items()
    ]


ACKNOWLEDGEMENT = 100
"""Longest acknowledgement without data, with IPv4 and TCP headers [bytes]."""


def _measured(result: bp.Result) -> pl.DataFrame:
    """Return the terminals of a result, with the acknowledgements that the gateway dropped."""
    keys = ["setting", "seed", "terminal"]
    flows = result.flows().select("setting", "seed", "flow", pl.col("terminal").cast(pl.String))
    short = result.drops().filter(
        (pl.col("bytes") <= ACKNOWLEDGEMENT) & pl.col("place").cast(pl.String).str.starts_with("gateway ")
    )
    counts = short.join(flows, on=["setting", "seed", "flow"]).group_by(keys).agg(dropped_acks=pl.len())
    found = result.terminals().join(counts, on=keys, how="left", maintain_order="left")
    return found.with_columns(pl.col("dropped_acks").fill_null(0))


def _columns(duration: float) -> dict[str, tuple[Callable[[], pl.Expr], float | None]]:
    """Return the quantities of a terminal with their bands."""

    def each(column: str, factor: float = 1) -> Callable[[], pl.Expr]:
        return lambda: factor * pl.col(column).cast(pl.Float64).mean() / duration

    def rate(column: str) -> Callable[[], pl.Expr]:
        return each(column, 8e-6)

    return {
        "throughput [Mbit/s]": (rate("sent_bytes"), RATE),
        "goodput [Mbit/s]": (lambda: 1e-6 * pl.col("goodput").mean(), None),
        "queueing delay, mean [ms]": (lambda: 1e3 * pl.col("queue_delay_mean").mean(), QUEUE),
        "dropped [packets/s]": (each("dropped_packets"), DROPS),
        "of these, acknowledgements [packets/s]": (each("dropped_acks"), None),
        "return throughput [Mbit/s]": (rate("return_sent_bytes"), RATE),
        "return goodput [Mbit/s]": (lambda: 1e-6 * pl.col("return_goodput").mean(), None),
        "return queueing delay, mean [ms]": (lambda: 1e3 * pl.col("return_queue_delay_mean").mean(), QUEUE),
    }


def _of(by: str, names: Sequence[str], setting: str, simulated: bp.Result, live: bp.Result) -> list[Compared]:
    """Compare quantities of each value of a column of `terminals`, means over its terminals in each run."""
    duration = simulated.manifest["scenario"]["duration"]
    columns = {name: each for name, each in _columns(duration).items() if name in names}
    found = []
    for value in simulated.terminals()[by].unique(maintain_order=True):
        before, after = (
            _measured(result)
            .filter((pl.col(by) == value) & (pl.col("setting") == setting))
            .group_by("seed", maintain_order=True)
            .agg(*(make().alias(name) for name, (make, _) in columns.items()))
            for result in (simulated, live)
        )
        found += [
            Compared(f"{value}: {name}", before[name].to_list(), after[name].to_list(), band)
            for name, (_, band) in columns.items()
        ]
    return found


def of_groups(setting: str, simulated: bp.Result, live: bp.Result) -> list[Compared]:
    """Compare the terminals of each plan: means over its terminals."""
    return _of("group", list(_columns(1)), setting, simulated, live)


def of_terminals(setting: str, simulated: bp.Result, live: bp.Result) -> list[Compared]:
    """Compare what each terminal is sent and sends."""
    names = ("throughput [Mbit/s]", "return throughput [Mbit/s]")
    return _of("terminal", names, setting, simulated, live)


def agreement(runs: Runs) -> str:
    """Compare live runs of terminals with simulated ones, setting by setting."""
    scenario = bp.load(SCENARIO)
    settings = scenario.settings
    simulated, live = runs.of_both("", scenario, settings, (RUNS, RUNS), SEED)
    parts = []
    for setting in settings:
        rows = [*of_subject(setting, simulated, live), *of_groups(setting, simulated, live)]
        every = of_terminals(setting, simulated, live)
        judged = [each for each in rows if each.band is not None]
        met = sum(verdict(each) == "met" for each in judged)
        alone = sum(verdict(each) == "met" for each in every)
        parts.append(
            f"`{setting}`: {met} of {len(judged)} bands are met; of the rates of single terminals, {alone} of"
            f" {len(every)}:\n\n{compared(rows)}\n\n{_short(every)}"
        )
    return "\n\n".join(parts)


def _short(rows: Sequence[Compared]) -> str:
    """Return the table of single terminals: a row for each, without intervals."""
    cells: dict[str, list[str]] = {}
    for each in rows:
        terminal = each.name.split(":")[0]
        shown = [quantity(median(values), None) for values in (each.simulated, each.live)]
        difference = "" if each.difference is None else f"{each.difference:+.1f} %"
        cells.setdefault(terminal, [terminal]).extend([*shown, difference])
    rate = ["simulated [Mbit/s]", "live", "difference"]
    return table(["terminal", *rate, *(f"return, {each}" for each in rate)], cells.values())


def renew(docs: Path, out: Path) -> None:
    """Perform the runs missing in `out`, and write the page's tables."""
    with_blocks(docs / PAGE, {"agreement": lambda: agreement(Runs(out))}, "live-terminals")


if __name__ == "__main__":
    renew(*map(Path, sys.argv[1:]))
