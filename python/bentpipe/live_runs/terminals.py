"""Tables and counters of the terminals of a live run whose gateway has several, as a simulation has them."""

import json
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import polars as pl

from bentpipe._core import Scenario
from bentpipe.live_runs.chain import Chain
from bentpipe.live_runs.record import Recorded
from bentpipe.stats.recorded import jain

__all__ = ["with_terminals"]

_INTERVALS = 60
"""Most intervals into which the gateway divides a measurement."""
_SUMS = (
    "sent_bytes",
    "sent_packets",
    "receive_drops",
    "receive_packets",
    "transmit_drops",
    "transmit_packets",
)
"""Counters of terminals that add up."""

Delays = Sequence[tuple[float, int]]
"""Queueing delays in ascending order [s], and the packets with each."""


def with_terminals(
    recorded: Recorded,
    flows: pl.DataFrame,
    load: Path,
    chain: Chain,
    scenario: Scenario,
    backs: Sequence[Recorded],
) -> Recorded:
    """Return a run with the tables and counters of its terminals.

    `flows` are those of `read_flows`, `load` is the load generator's record, and `backs` are the records of
    the terminals in the order of the chain, none without queues there.
    """
    of_address = {
        address: terminal.name
        for number, terminal in enumerate(chain.terminals)
        for pair in chain.behind(number)
        for address in pair
    }
    clients = pl.col("client").str.replace(r":\d+$", "").str.strip_chars("[]")
    behind = flows.select(
        "flow", terminal=clients.replace_strict(of_address, default=None, return_dtype=pl.String)
    )
    with_names = recorded.flows.join(behind, on="flow", how="left", maintain_order="left")
    pages = _pages(load, chain, scenario)
    uploads = {each.traffic for each in chain.listeners if each.upload}
    table = _terminals(recorded.rows, with_names, pages, uploads, chain, scenario, backs)
    counters = dict(recorded.counters) | _fairness(table, chain)
    if backs:
        counters |= _return_counters(backs)
    return replace(
        recorded,
        flows=with_names.with_columns(pl.col("terminal").cast(pl.Categorical)),
        terminals=table,
        terminal_series=_series(recorded.rows, chain, scenario, backs),
        pages=pages,
        counters=counters,
    )


def _terminals(
    rows: Iterable[Mapping[str, Any]],
    flows: pl.DataFrame,
    pages: pl.DataFrame,
    uploads: set[str],
    chain: Chain,
    scenario: Scenario,
    backs: Sequence[Recorded],
) -> pl.DataFrame:
    """Return the table `terminals` of a simulation."""
    of_name = {row["terminal"]: row for row in rows}
    is_upload = pl.col("traffic").cast(pl.String).is_in(list(uploads))
    table: dict[str, list[Any]] = {}
    for number, terminal in enumerate(chain.terminals):
        own = flows.filter(pl.col("terminal") == terminal.name)
        times = pages.filter(pl.col("terminal").cast(pl.String) == terminal.name)["load_time"].drop_nulls()
        row = of_name.get(terminal.name, {})
        delays = row.get("delays", [])
        sent = row.get("sent_bytes", 0)
        values: dict[str, Any] = {
            "terminal": terminal.name,
            "group": terminal.group,
            "goodput": _goodput(own.filter(~is_upload), scenario),
            "sent_packets": row.get("sent_packets", 0),
            "sent_bytes": sent,
            "dropped_packets": row.get("dropped_packets", 0),
            "carrier_seconds": 8 * sent / chain.carrier if chain.carrier else None,
            "queue_delay_mean": _mean([row]),
            "queue_delay_p50": _quantile(delays, 0.5),
            "queue_delay_p95": _quantile(delays, 0.95),
            "queue_delay_p99": _quantile(delays, 0.99),
            "pages": len(times),
            "page_time_mean": times.mean(),
            "page_time_max": times.max(),
        }
        if backs:
            back = _only(backs[number])
            delays = back.get("delays", [])
            values |= {
                "return_goodput": _goodput(own.filter(is_upload), scenario),
                "return_sent_packets": back.get("sent_packets", 0),
                "return_sent_bytes": back.get("sent_bytes", 0),
                "return_dropped_packets": back.get("dropped_packets", 0),
                "return_carrier_seconds": 0.0,
                "return_queue_delay_mean": _mean([back]),
                "return_queue_delay_p95": _quantile(delays, 0.95),
            }
        for key, value in values.items():
            table.setdefault(key, []).append(value)
    counts = ("pages", "sent_packets", "sent_bytes", "dropped_packets")
    whole = {*counts, *(f"return_{name}" for name in counts)}
    texts = {"terminal", "group"}
    schema = {key: pl.String if key in texts else pl.UInt64 if key in whole else pl.Float64 for key in table}
    return pl.DataFrame(table, schema=schema)


def _goodput(flows: pl.DataFrame, scenario: Scenario) -> float:
    """Return the payload that flows delivered over the measured time [bit/s]."""
    return 8 * int(flows["bytes"].sum()) / scenario.duration


def _only(recorded: Recorded) -> Mapping[str, Any]:
    """Return what a terminal sent to its gateway; empty if it sent nothing while measuring."""
    return recorded.rows[0] if recorded.rows else {}


def _series(
    rows: Iterable[Mapping[str, Any]], chain: Chain, scenario: Scenario, backs: Sequence[Recorded]
) -> pl.DataFrame:
    """Return the table `terminal_series` of a simulation."""
    of_name = {row["terminal"]: row for row in rows}
    whole = round(scenario.duration * 1e9)
    length = max(1, math.ceil(whole / _INTERVALS))
    count = math.ceil(whole / length)
    table: list[dict[str, Any]] = []
    for number, terminal in enumerate(chain.terminals):
        none = [[0, 0, 0.0]] * count
        forth = of_name.get(terminal.name, {}).get("intervals", none)
        back = _only(backs[number]).get("intervals", none) if backs else none
        for at in range(count):
            seconds = (min(length * (at + 1), whole) - length * at) * 1e-9
            packets, sent, delay = forth[at]
            row = {
                "terminal": terminal.name,
                "time": length * at * 1e-9,
                "throughput": 8 * sent / seconds,
                "queue_delay": delay / packets if packets else None,
                "carrier_share": 8 * sent / chain.carrier / seconds if chain.carrier else None,
            }
            if backs:
                packets, sent, delay = back[at]
                row |= {
                    "return_throughput": 8 * sent / seconds,
                    "return_queue_delay": delay / packets if packets else None,
                }
            table.append(row)
    return pl.DataFrame(
        table, schema={key: pl.String if key == "terminal" else pl.Float64 for key in table[0]}
    )


def _pages(load: Path, chain: Chain, scenario: Scenario) -> pl.DataFrame:
    """Return the table `pages` of a simulation: a session's pages are those of one host."""
    class_of = {name: traffic_class for name, traffic_class, _ in scenario.traffic}
    hosts_of = {each.traffic: chain.hosts[each.clients] for each in chain.listeners}
    rows = []
    with load.open(encoding="utf-8") as file:
        for page in (line["page"] for line in map(json.loads, file) if "page" in line):
            hosts = hosts_of[page["traffic"]]
            terminal = chain.terminals[hosts.terminal_of(page["session"] % len(hosts.addresses))].name
            load_time = None if page["failed"] else page["closed"] - page["opened"]
            rows.append((page["closed"], class_of[page["traffic"]], terminal, load_time))
    schema = {
        "time": pl.Float64,
        "class": pl.Categorical,
        "terminal": pl.Categorical,
        "load_time": pl.Float64,
    }
    return pl.DataFrame(rows, schema=schema, orient="row")


def _fairness(table: pl.DataFrame, chain: Chain) -> dict[str, float]:
    """Return the counters of terminals of a simulation; those of rain are NaN: the carrier has one rate."""
    goodput = table["goodput"]
    within = [jain(group["goodput"]) for group in table.partition_by("group", maintain_order=True)]
    weights = pl.Series([1 if each.plan is None else each.plan["weight"] for each in chain.terminals])
    delays = [delay for delay in table["queue_delay_p95"] if delay is not None]
    return {
        "terminal_goodput_min": min(goodput.to_list()),
        "terminal_jain_index": min((index for index in within if index is not None), default=math.nan),
        "terminal_weighted_jain_index": _known(jain(goodput / weights)),
        "terminal_delay_p95_max": max(delays, default=math.nan),
        "carrier_seconds": float(table["carrier_seconds"].sum()),
        "terminal_rain_goodput": math.nan,
        "terminal_rain_time": math.nan,
    }


def _return_counters(backs: Sequence[Recorded]) -> dict[str, float]:
    """Return the counters of the queues at all terminals together."""
    counts: Counter[float] = Counter()
    for back in backs:
        counts.update(dict(_only(back).get("delays", [])))
    delays = sorted(counts.items())
    found = {f"return_{name}": sum(back.counters[name] for back in backs) for name in _SUMS}
    found["return_queue_delay_mean"] = _known(_mean([_only(back) for back in backs]))
    for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        found[f"return_queue_delay_{name}"] = _known(_quantile(delays, share))
    return found


def _known(value: float | None) -> float:
    return math.nan if value is None else value


def _mean(rows: Iterable[Mapping[str, Any]]) -> float | None:
    """Return the mean queueing delay of the packets of some terminals [s]; None without packets."""
    intervals = [each for row in rows for each in row.get("intervals", [])]
    packets = sum(count for count, _, _ in intervals)
    return sum(delay for _, _, delay in intervals) / packets if packets else None


def _quantile(delays: Delays, share: float) -> float | None:
    """Return a quantile of the delays [s]; None without packets."""
    reached = list(accumulate(count for _, count in delays))
    return delays[bisect_left(reached, share * reached[-1])][0] if reached else None
