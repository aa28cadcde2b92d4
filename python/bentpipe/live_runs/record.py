"""Reads the records of a live run into a simulation's tables and counters, for the same metrics."""

import json
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import polars as pl

from bentpipe._core import Scenario
from bentpipe.errors import LiveError
from bentpipe.stats.recorded import mean, quantile

__all__ = [
    "Recorded",
    "link_counters",
    "page_counters",
    "probe_counters",
    "read_flows",
    "read_record",
    "repeated_counters",
    "return_counters",
    "unit_counters",
]

_DROPS = {
    "time": pl.Float64,
    "arrival": pl.UInt64,
    "place": pl.Categorical,
    "reason": pl.Categorical,
    "flow": pl.UInt32,
    "bytes": pl.UInt32,
}
_ENDS = {"client": pl.String, "server": pl.String}
"""Address and port of both ends of a flow; they join the gateway's drops with the load generator's flows."""
_DROP_RUNS = {"length": pl.UInt32, "count": pl.UInt64}
_FLOWS = {
    "flow": pl.UInt32,
    "session": pl.UInt32,
    "traffic": pl.Categorical,
    "opened": pl.Float64,
    "closed": pl.Float64,
    "completed": pl.Boolean,
    "failed": pl.Boolean,
    "bytes": pl.UInt64,
    "completion_time": pl.Float64,
    "goodput": pl.Float64,
    "drops": pl.UInt32,
    "packets": pl.UInt32,
    "delay": pl.Float64,
    "jitter": pl.Float64,
}
"""Columns that the load generator writes."""
_OPTIONAL: dict[str, pl.DataType | type[pl.DataType]] = {
    "received_units": pl.UInt32,
    "lost_units": pl.UInt32,
    "played": pl.UInt64,
    "late": pl.UInt64,
    "mouth_to_ear": pl.Float64,
    "burst_ratio": pl.Float64,
    "codec": pl.String,
    "startup_delay": pl.Float64,
    "stalls": pl.UInt32,
    "stalled": pl.Float64,
    "played_time": pl.Float64,
    "bitrate": pl.Float64,
    "switches": pl.UInt32,
    "playback_until": pl.List(pl.Float64),
    "playback_bitrate": pl.List(pl.Float64),
}
"""Columns that the load generator writes for data units, calls and viewings; null for other flows."""

_UDP_HEADERS = 28
"""Bytes of the IPv4 and UDP headers of a packet on the spacelink."""


@dataclass(frozen=True)
class Recorded:
    """One live run in the stored form of a simulated one."""

    series: pl.DataFrame
    drops: pl.DataFrame
    flows: pl.DataFrame
    drop_runs: pl.DataFrame
    counters: Mapping[str, float]
    live: Mapping[str, Any] = field(default_factory=dict)
    """Further facts about the run: losses at the tap, the spacelink, processor time."""
    rows: Sequence[Mapping[str, Any]] = ()
    """Packets sent to each peer, as recorded."""
    terminals: pl.DataFrame | None = None
    terminal_series: pl.DataFrame | None = None
    pages: pl.DataFrame | None = None
    trace: None = None

    def with_classes(self, scenario: Scenario) -> "Recorded":
        """Return the run with the class of each flow."""
        class_of = {name: traffic_class for name, traffic_class, _ in scenario.traffic}
        names = pl.col("traffic").cast(pl.String).replace_strict(class_of, return_dtype=pl.String)
        flows = self.flows.with_columns(names.cast(pl.Categorical).alias("class"))
        return replace(self, flows=flows)


def read_record(path: Path, flows: pl.DataFrame, warmup: float, duration: float) -> Recorded:
    """Read the gateway's record and combine it with the flows of `read_flows`; times [s].

    `LiveError` if the record is incomplete.
    """
    columns: dict[str, list[str]] = {}
    samples: list[list[float | None]] = []
    drops: list[list[Any]] = []
    last: dict[str, Any] | None = None
    for line in _lines(path):
        if "sample" in line:
            samples.append(line["sample"])
        elif "drop" in line:
            drops.append(line["drop"])
        elif "series" in line:
            columns = line
        elif "summary" in line:
            last = line
    if last is None or not columns:
        raise LiveError(f"{path}: the gateway ended before it had written everything")
    names = columns["series"]
    series = pl.DataFrame(samples, schema=dict.fromkeys(names, pl.Float64), orient="row", strict=False)
    # Counters end with the last sample; omit drops between it and the gateway's stop.
    until = max((sample[0] or 0.0 for sample in samples), default=0.0)
    drops = [drop for drop in drops if drop[0] <= until]
    discarded, flows = _assigned_to_flows(
        pl.DataFrame(drops, schema={**_DROPS, **_ENDS}, orient="row"), flows
    )
    summary = last["summary"]
    lengths = pl.DataFrame(summary["drop_runs"], schema=_DROP_RUNS, orient="row")
    return Recorded(
        series.fill_nan(None),
        discarded,
        flows,
        lengths,
        _counters(summary, last.get("spacelink", {}), warmup, duration),
        {
            key: last[key]
            for key in ("measured", "carried", "nfqueue", "spacelink", "counters", "cpu")
            if key in last
        },
        last.get("terminals", ()),
    )


def _assigned_to_flows(drops: pl.DataFrame, flows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Assign drops to the load generator's flows, and count each flow's drops.

    A drop belongs to the latest flow that began between the same two ends; null if that flow ended before
    measuring began and has no row.
    """
    ends = list(_ENDS)
    begun = flows.drop_nulls(ends).select("flow", *ends, time="opened").sort("time")
    numbered = (
        drops.drop("flow")
        .with_row_index("order")
        .sort("time")
        .join_asof(begun, on="time", by=ends, strategy="backward", check_sortedness=False)
        .sort("order")
    )
    counts = numbered.drop_nulls("flow").group_by("flow").agg(drops=pl.len().cast(pl.UInt32))
    counted = flows.drop("drops").join(counts, on="flow", how="left", maintain_order="left")
    counted = counted.with_columns(pl.col("drops").fill_null(0))
    return numbered.select(*_DROPS), _as_simulated(counted.select(*_FLOWS, *_OPTIONAL))


def _as_simulated(flows: pl.DataFrame) -> pl.DataFrame:
    """Return flows with the columns of a simulation's; each traffic is a class."""
    first = list(_FLOWS)[: list(_FLOWS).index("traffic") + 1]
    rest = [name for name in _FLOWS if name not in first]
    return flows.select(*first, pl.col("traffic").alias("class"), *rest, *_OPTIONAL)


def _counters(
    summary: Mapping[str, Any], spacelink: Mapping[str, Any], warmup: float, duration: float
) -> dict[str, float]:
    """Return the counters of a simulation; NaN for those unknown in a live run."""

    def number(value: object) -> float:
        return float(value) if isinstance(value, int | float) else math.nan

    found = {name: number(value) for name, value in summary.items() if name not in {"seconds", "drop_runs"}}
    found["space_packets"] = number(spacelink.get("sent_packets"))
    found["space_retransmissions"] = number(spacelink.get("lost_packets"))
    found["space_acks"] = math.nan
    found["events"] = math.nan
    found["measured_seconds"] = duration
    found["simulated_seconds"] = warmup + duration
    return found


def return_counters(path: Path, flows: pl.DataFrame, warmup: float, duration: float) -> dict[str, float]:
    """Return the counters of the return direction of a simulation from the terminal's record.

    `LiveError` if the record is incomplete.
    """
    counters = read_record(path, flows, warmup, duration).counters
    names = (
        "sent_bytes",
        "sent_packets",
        "queue_delay_mean",
        "queue_delay_p50",
        "queue_delay_p95",
        "queue_delay_p99",
        "receive_drops",
        "receive_packets",
        "transmit_drops",
        "transmit_packets",
    )
    return {f"return_{name}": counters[name] for name in names}


def link_counters(statistics: Mapping[str, Any]) -> dict[str, float]:
    """Return the counters of packets on links that can lose some, from the emulator's statistics."""
    return {name: float(value) for name, value in statistics.get("measured", {}).items()}


def repeated_counters(carried: Mapping[str, float], scenario: Scenario) -> dict[str, float]:
    """Return the bytes that the spacelink repeated and carried while measuring, headers included.

    QUIC sends the data of lost packets again, but not datagrams: of the lost bytes, the share of streams in
    the bytes written counts. NaN with TCP that is not split, whose retransmissions the hosts alone know.
    """
    transmitted, written = carried["sent_bytes"], carried["written_bytes"]
    canonical = json.loads(scenario.canonical())
    (gateway,) = canonical["gateways"]
    kinds = [kind for each in canonical["traffic"] for kind in each["kind"].values()]
    numbers = {kind.get("transport") for kind in kinds} - {None}
    used = {canonical["transports"][number].get("protocol", "tcp") for number in numbers}
    if "quic" in used or ("tcp" in used and "tcp" not in gateway["pep"]["split"]):
        repeated = math.nan
    else:
        lost = carried["lost_bytes"] + _UDP_HEADERS * carried["lost_packets"]
        repeated = lost * written / (written + carried["datagram_bytes"]) if written else 0.0
    return {"repeated_bytes": repeated, "carried_bytes": float(transmitted)}


def read_flows(paths: Sequence[Path]) -> pl.DataFrame:
    """Read the load generator's records: a simulation's flow table, with the ends of each flow.

    The flows of the second record, that of uploads, are numbered after those of the first.
    """
    names: list[str] = []
    rows: list[list[Any]] = []
    schema = {**_FLOWS, **_OPTIONAL, **_ENDS}
    for path in paths:
        first = max((row[0] + 1 for row in rows), default=0)
        for line in _lines(path):
            if isinstance(line, dict):
                names = line.get("columns", names)
            else:
                row = dict(zip(names, line, strict=True))
                row["flow"] += first
                rows.append([row.get(name) if name in _OPTIONAL else row[name] for name in schema])
    return pl.DataFrame(rows, schema=schema, orient="row").sort("flow")


def page_counters(path: Path, scenario: Scenario) -> dict[str, float]:
    """Return the page counters of a simulation from the load generator's record, by `CLASS.COUNTER`.

    Times [s] are NaN without a page.
    """
    class_of = {name: traffic_class for name, traffic_class, _ in scenario.traffic}
    pages = [line["page"] for line in _lines(path) if isinstance(line, dict) and "page" in line]
    found: dict[str, float] = {}
    for traffic_class in {each for _, each, kind in scenario.traffic if kind == "pages"}:
        own = [page for page in pages if class_of[page["traffic"]] == traffic_class]
        done = [page for page in own if not page["failed"]]
        load = pl.Series([page["closed"] - page["opened"] for page in done], dtype=pl.Float64)
        first_byte = pl.Series([page["first_byte"] for page in done], dtype=pl.Float64).drop_nulls()
        values = {
            "pages": len(done),
            "pages_failed": len(own) - len(done),
            "page_time_mean": mean(load),
            "page_time_p50": quantile(load, 0.5),
            "page_time_p75": quantile(load, 0.75),
            "page_time_p95": quantile(load, 0.95),
            "first_byte_p50": quantile(first_byte, 0.5),
            "first_byte_p95": quantile(first_byte, 0.95),
        }
        found |= {
            f"{traffic_class}.{name}": math.nan if value is None else float(value)
            for name, value in values.items()
        }
    return found


def probe_counters(path: Path, scenario: Scenario) -> dict[str, float]:
    """Return the counters of probes of a simulation from the load generator's record, by `CLASS.COUNTER`.

    Times [s] are means without the longest 5 % (draft-ietf-ippm-responsiveness, TMP); NaN without a probe.
    """
    class_of = {name: traffic_class for name, traffic_class, _ in scenario.traffic}
    lines = [line for line in _lines(path) if isinstance(line, dict)]
    found: dict[str, float] = {}
    for traffic_class in {each for _, each, kind in scenario.traffic if kind == "probe"}:
        own = [
            line["probe"]
            for line in lines
            if "probe" in line and class_of[line["probe"]["traffic"]] == traffic_class
        ]
        done = [probe for probe in own if probe["http"] is not None]
        load: Counter[float] = Counter()
        for line in lines:
            if "units" in line and class_of[line["units"]["traffic"]] == traffic_class:
                load.update(dict(line["units"]["delays"]))
        values = {"probes": float(len(done)), "probes_failed": float(len(own) - len(done))}
        for step in ("connect", "tls", "http", "request"):
            values[f"probe_{step}"] = _trimmed_mean(Counter(probe[step] for probe in done))
        values["load_delay"] = _trimmed_mean(load)
        found |= {f"{traffic_class}.{name}": value for name, value in values.items()}
    return found


def _trimmed_mean(counts: Counter[float], share: float = 0.95) -> float:
    """Return the mean of the shortest `share` of some times, given with their numbers; NaN without any."""
    most = left = math.ceil(share * counts.total())
    total = 0.0
    for value, count in sorted(counts.items()):
        total += value * min(count, left)
        left -= min(count, left)
    return total / most if most else math.nan


def unit_counters(paths: Sequence[Path], flows: pl.DataFrame, scenario: Scenario) -> dict[str, float]:
    """Return the counters of data units of a simulation from the records of load, by `CLASS.COUNTER`.

    Units are datagrams, and blocks of 1,024 bytes of an object, that were sent while measuring. Delays [s]
    are recorded to three digits. What a failed connection had sent is not recorded: NaN lost units. Classes
    without units have no counters; `late_units` needs a deadline of all of the class's traffic.
    """
    class_of = {name: traffic_class for name, traffic_class, _ in scenario.traffic}
    failed = flows.filter(pl.col("failed") & (pl.col("closed") >= 0))["traffic"].cast(pl.String).unique()
    uncertain = {class_of[name] for name in failed}
    lines = (line for path in paths for line in _lines(path))
    units = [line["units"] for line in lines if isinstance(line, dict) and "units" in line]
    found: dict[str, float] = {}
    for traffic_class in dict.fromkeys(class_of[each["traffic"]] for each in units):
        own = [each for each in units if class_of[each["traffic"]] == traffic_class]
        received, lost = (sum(each[name] for each in own) for name in ("received", "lost"))
        counters = {
            "received_units": received,
            "lost_units": math.nan if traffic_class in uncertain else lost,
        }
        counts: Counter[float] = Counter()
        for each in own:
            counts.update(dict(each["delays"]))
        delays = sorted(counts.items())
        if delays:
            reached = list(accumulate(count for _, count in delays))
            counters["delay_mean"] = sum(delay * count for delay, count in delays) / received
            for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
                counters[f"delay_{name}"] = delays[bisect_left(reached, share * received)][0]
            counters["jitter"] = sum(each["jitter_sum"] for each in own) / received
        late = [each["late"] for each in own]
        if None not in late:
            counters["late_units"] = sum(late)
        found |= {f"{traffic_class}.{name}": float(value) for name, value in counters.items()}
    return found


def _lines(path: Path) -> Iterator[Any]:
    """Yield the JSON values of a file; `LiveError` if a line is not JSON."""
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                try:
                    yield json.loads(line)
                except ValueError:
                    raise LiveError(f"{path}:{number}: is not JSON: {line[:80].rstrip()}") from None
    except OSError as error:
        raise LiveError(f"{path}: cannot be read: {error.strerror}") from None
