"""The metrics of a run: name, unit, description and computation of each, in the one table `METRICS`.

The command line, the reports and docs/metrics.md are generated from that table.
"""

import difflib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from bentpipe.errors import UsageError
from bentpipe.format import meant
from bentpipe.stats.class_metrics import CLASS_METRICS, class_metric, class_metrics
from bentpipe.stats.recorded import (
    Metric,
    Recorded,
    Traffic,
    jain,
    maximum,
    mean,
    number,
    pairwise_sum,
    quantile,
    scaled,
    std,
)

__all__ = [
    "DEPRECATED",
    "GROUPS",
    "METRICS",
    "Metric",
    "Recorded",
    "check_classes",
    "evaluate",
    "find",
    "markdown",
    "metrics_of",
    "named_metric",
]


def _share(run: Recorded, counter: str) -> float | None:
    """Return a counter as a share of the offered packets [%]."""
    offered, counted = run.counters.get("offered_packets"), run.counters.get(counter)
    return 100 * counted / offered if offered and counted is not None else None


def _mark_rate(run: Recorded) -> float | None:
    """Return the probability of a mark, on arrival or in the queue [%]."""
    # Earlier versions counted no marks in the queue apart.
    marked, in_queue = run.counters.get("marked_packets"), run.counters.get("marked_in_queue")
    if not in_queue or marked is None:
        return _share(run, "marked_packets")
    offered, left = run.counters["offered_packets"], run.counters["left_queue"]
    on_arrival = (marked - in_queue) / offered if offered else 0.0
    return 100 * (1 - (1 - on_arrival) * (1 - in_queue / left)) if left else None


def _ratio(run: Recorded, counted: str, total: str) -> float | None:
    """Return a counter as a share of another [%]; None if either is missing, or the total is 0."""
    part, whole = run.counters.get(counted), run.counters.get(total)
    return 100 * part / whole if whole and part is not None else None


def _link_loss(run: Recorded, counted: str) -> float | None:
    """Return the share of packets lost on links [%]; 0 if no link can lose any, None if it is unknown."""
    return 0.0 if run.counters.get("link_packets") == 0 else _ratio(run, counted, "link_packets")


def _repeated(run: Recorded) -> float | None:
    """Return the share of the carrier that repeats data [%].

    Repeated data passes the transmit queue in a simulation; in a live run the spacelink sends it.
    """
    return _ratio(run, "repeated_bytes", "carried_bytes" if "carried_bytes" in run.counters else "sent_bytes")


def _lost_at(run: Recorded, counters: Iterable[tuple[str, str]]) -> float | None:
    """Return the share of packets lost at any of the places with these counters [%]."""
    places = [_ratio(run, *place) for place in counters]
    lost = [100 - share for share in places if share is not None]
    return 100 - 100 * math.prod(passed / 100 for passed in lost) if lost else None


_PLACES = (
    ("receive_drops", "receive_packets"),
    ("transmit_drops", "transmit_packets"),
    ("link_losses", "link_packets"),
    ("link_given_up", "link_packets"),
)
"""Counters of dropped or lost packets, and of the packets sent there."""
_RETURN_PLACES = (
    ("return_receive_drops", "return_receive_packets"),
    ("return_transmit_drops", "return_transmit_packets"),
)
"""The same for the queues at terminals."""


def _return_throughput(run: Recorded) -> float | None:
    """Return the rate that terminals send [Mbit/s]."""
    sent, seconds = run.counters.get("return_sent_bytes"), run.counters.get("measured_seconds")
    return 8e-6 * sent / seconds if seconds and sent is not None else None


def _utilization(run: Recorded) -> float | None:
    """Return the share of what the link could send that it sent [%]."""
    used = number(run.counters.get("used_share"))
    return scaled(mean(run.samples("throughput")), 100 / run.capacity) if used is None else 100 * used


def _pep_sojourn(run: Recorded) -> float | None:
    held, rate = mean(run.samples("pep_buffers")), mean(run.samples("throughput"))
    return 8 * held / rate if held is not None and rate else None


def _committed(run: Recorded) -> pl.Series:
    """Return the shares of the carrier's time that the committed rates take [%], empty without any."""
    if "committed_share" not in run.series.columns:
        return pl.Series(dtype=pl.Float64)
    return run.series["committed_share"].drop_nulls() * 100


def _run_mean(run: Recorded) -> float | None:
    count = run.drop_runs["count"].cast(pl.Float64)
    runs = number(count.sum())
    packets = number((run.drop_runs["length"] * count).sum())
    return packets / runs if runs and packets is not None else None


def _run_quantile(run: Recorded, share: float) -> float | None:
    runs = number(run.drop_runs["count"].sum())
    if not runs:
        return None
    table = run.drop_runs.sort("length")
    reached = table.filter(pl.col("count").cum_sum() >= share * runs)
    return float(reached["length"][0])


_ROWS = 65_536
"""Rows of the table of drops that are read at once."""


def _synchronization(run: Recorded) -> float | None:
    """Return the mean share of the open flows that lose packets in the same sample interval [%]."""
    times = run.series["time"] if "time" in run.series.columns else pl.Series(dtype=pl.Float64)
    if run.drops is None or len(times) < 2 or run.flows.is_empty():
        return None
    step = float(times[1] - times[0])
    drops = run.drops()
    queued = (pl.col("reason") == "aqm") | (pl.col("reason") == "overflow")
    pair = (pl.col("time") / step).cast(pl.Int64) * 2**32 + pl.col("flow")
    # In parts, since the table of a long run takes more memory than all else of it.
    parts = [
        drops.slice(first, _ROWS).filter(queued).select(pair=pair).drop_nulls().unique().collect()
        for first in range(0, drops.select(pl.len()).collect().item(), _ROWS)
    ]
    if not any(len(part) for part in parts):
        return None
    interval = (pl.col("pair") // 2**32).alias("interval")
    losing = pl.concat(parts).unique().group_by(interval).len("losing").sort("interval")
    starts = losing["interval"].cast(pl.Float64) * step
    began, ended = run.flows["opened"].sort(), run.flows["closed"].drop_nulls().sort()
    open_flows = began.search_sorted(starts + step).cast(pl.Int64) - ended.search_sorted(starts).cast(
        pl.Int64
    )
    shares = [
        min(100.0, 100 * lost / present)
        for lost, present in zip(losing["losing"], open_flows, strict=True)
        if present > 1
    ]
    return pairwise_sum(shares) / len(shares) if shares else None


def _correlation(run: Recorded) -> float | None:
    """Return the correlation of one-way delay and goodput between samples; None if either is constant."""
    if min(len(run.samples(name)) for name in ("one_way_delay", "goodput")) < 2:
        return None
    both = run.series.select(pl.col("one_way_delay", "goodput").cast(pl.Float64).fill_nan(None)).drop_nulls()
    if len(both) < 2 or not both["one_way_delay"].std() or not both["goodput"].std():
        return None
    return number(both.select(pl.corr("one_way_delay", "goodput")).item())


def _independent_run(run: Recorded) -> float | None:
    share = run.drop_share
    return None if share is None or share >= 1 else 1 / (1 - share)


def _series(
    column: str, of: Callable[[pl.Series], float | None], factor: float = 1
) -> Callable[..., float | None]:
    return lambda run: scaled(of(run.samples(column)), factor)


def _counter(name: str, factor: float = 1) -> Callable[[Recorded], float | None]:
    return lambda run: scaled(number(run.counters.get(name)), factor)


def _percentiles(
    names: Sequence[str],
    label: str,
    unit: str,
    group: str,
    of_what: str,
    of: Callable[[str, float], Callable[[Recorded], float | None]],
    **more: Mapping[str, Any],
) -> Iterator[Metric]:
    """Yield the median, the 95th and the 99th percentile of a quantity, the metrics with these names.

    `of` returns the computation of a metric from its name and share; `more` are further fields by name.
    """
    for name, share in zip(names, (0.5, 0.95, 0.99), strict=True):
        what = "median" if share == 0.5 else f"{100 * share:.0f}th percentile"
        doc = f"{what.capitalize()} of {of_what}."
        yield Metric(name, f"{label}, {what}", unit, group, doc, of(name, share), **more.get(name, {}))


LINK, QUEUE, DELAY, DROPS, FLOWS = GROUPS = ("Link", "Queue", "Delay", "Drops", "Flows")

METRICS: tuple[Metric, ...] = (
    Metric(
        "throughput",
        "Throughput",
        "Mbit/s",
        LINK,
        "Rate sent on the subject's link: mean over the samples.",
        _series("throughput", mean, 1e-6),
        headline=True,
        better="more",
        mean_of="throughput",
    ),
    Metric(
        "throughput_std",
        "Throughput, std",
        "Mbit/s",
        LINK,
        "Standard deviation of the throughput between samples.",
        _series("throughput", std, 1e-6),
    ),
    Metric(
        "utilization",
        "Utilization",
        "%",
        LINK,
        "Share of what the link could send that it sent: of its rate; of a capacity that varies, of what it"
        " was during the measurement; of a carrier that terminals share, of its time. A packet counts once"
        " it leaves the queue, so that a little more than 100 % is possible. In results of earlier versions"
        " it is a share of the scenario's mean capacity.",
        _utilization,
        mean_of="throughput",
    ),
    Metric(
        "arrival_rate",
        "Arrival rate",
        "Mbit/s",
        LINK,
        "Rate arriving at the gateway from the internet, before any drop: mean over the samples.",
        _series("arrival_rate", mean, 1e-6),
        mean_of="arrival_rate",
    ),
    Metric(
        "arrival_rate_std",
        "Arrival rate, std",
        "Mbit/s",
        LINK,
        "Standard deviation of the arrival rate between samples.",
        _series("arrival_rate", std, 1e-6),
    ),
    Metric(
        "offered_load",
        "Offered load",
        "Mbit/s",
        LINK,
        "Rate arriving at the mark point, before any drop: mean over the samples.",
        _series("offered_load", mean, 1e-6),
        headline=True,
        mean_of="offered_load",
    ),
    Metric(
        "queue_mean",
        "Queue, mean",
        "packets",
        QUEUE,
        "Length of the transmit queue: mean over the samples.",
        _series("transmit_queue", mean),
        headline=True,
        mean_of="transmit_queue",
    ),
    Metric(
        "queue_std",
        "Queue, std",
        "packets",
        QUEUE,
        "Standard deviation of the transmit queue's length between samples.",
        _series("transmit_queue", std),
        headline=True,
        better="less",
    ),
    *_percentiles(
        ("queue_p50", "queue_p95", "queue_p99"),
        "Queue",
        "packets",
        QUEUE,
        "the sampled queue length",
        lambda _, share: _series("transmit_queue", lambda values: quantile(values, share)),
    ),
    Metric(
        "queue_max",
        "Queue, maximum",
        "packets",
        QUEUE,
        "Maximum of the sampled queue length.",
        _series("transmit_queue", maximum),
    ),
    Metric(
        "queue_time_average",
        "Queue, time average",
        "packets",
        QUEUE,
        "Time average of the transmit queue's length, exact: every change counts, not the samples.",
        _counter("queue_time_average"),
    ),
    Metric(
        "pep_buffers_mean",
        "PEP buffers, mean",
        "kB",
        QUEUE,
        "Bytes held by the PEP until the terminal acknowledges them: mean over the samples.",
        _series("pep_buffers", mean, 1e-3),
        mean_of="pep_buffers",
    ),
    Metric(
        "pep_buffers_p95",
        "PEP buffers, 95th percentile",
        "kB",
        QUEUE,
        "95th percentile of the bytes held by the PEP.",
        _series("pep_buffers", lambda values: quantile(values, 0.95), 1e-3),
    ),
    Metric(
        "queue_delay_mean",
        "Queueing delay, mean",
        "ms",
        DELAY,
        "Sojourn time in the transmit queue: mean over the departed packets.",
        _counter("queue_delay_mean", 1e3),
        headline=True,
        better="less",
    ),
    *_percentiles(
        ("queue_delay_p50", "queue_delay_p95", "queue_delay_p99"),
        "Queueing delay",
        "ms",
        DELAY,
        "the sojourn time in the transmit queue",
        lambda name, _: _counter(name, 1e3),
        queue_delay_p95={"headline": True},
    ),
    Metric(
        "queue_delay_std",
        "Queueing delay, std",
        "ms",
        DELAY,
        "Standard deviation of the mean sojourn time in the transmit queue between samples.",
        _series("queue_delay", std, 1e3),
    ),
    Metric(
        "one_way_delay_mean",
        "One-way delay, mean",
        "ms",
        DELAY,
        "Time from the sending application to the receiving one, over data units of flows whose data pass the"
        " subject: mean over the samples.",
        _series("one_way_delay", mean, 1e3),
        mean_of="one_way_delay",
    ),
    Metric(
        "one_way_delay_std",
        "One-way delay, std",
        "ms",
        DELAY,
        "Standard deviation of the mean one-way delay between samples.",
        _series("one_way_delay", std, 1e3),
    ),
    Metric(
        "delay_goodput_correlation",
        "Correlation of delay and goodput",
        "",
        DELAY,
        "Correlation of one-way delay and goodput between samples: with both means and standard deviations"
        " the ellipse of RFC 7928, section 2.7.",
        _correlation,
    ),
    Metric(
        "pep_sojourn",
        "PEP sojourn time",
        "s",
        DELAY,
        "Time from a byte's arrival at the PEP to its acknowledgement by the terminal: mean bytes held over"
        " the mean throughput (Little's law). It includes the satellite's round trip and retransmissions.",
        _pep_sojourn,
        headline=True,
        better="less",
    ),
    Metric(
        "jitter",
        "Jitter",
        "ms",
        DELAY,
        "Mean absolute difference between the queueing delays of successive departures (RFC 3393).",
        _counter("jitter", 1e3),
    ),
    Metric(
        "drops",
        "Drops",
        "packets",
        DROPS,
        "Packets dropped at the mark point: by the AQM, or by tail drop.",
        _counter("dropped_packets"),
    ),
    Metric(
        "drop_rate",
        "Drop rate",
        "%",
        DROPS,
        "Packets dropped at the mark point, as a share of the packets offered to it.",
        lambda run: _share(run, "dropped_packets"),
    ),
    Metric(
        "drops_elsewhere",
        "Drops at the other queue",
        "packets",
        DROPS,
        "Packets dropped at the gateway's queue that is not the mark point. The satellite link retransmits"
        " those dropped behind the PEP.",
        _counter("drops_elsewhere"),
    ),
    Metric(
        "loss_rate",
        "Loss rate",
        "%",
        DROPS,
        "Packets dropped or lost on the way from the receive queue over the links, as a share of those sent:"
        " 100 % less the product of the shares that pass each place in turn.",
        lambda run: _lost_at(run, _PLACES),
        headline=True,
        better="less",
    ),
    Metric(
        "receive_drop_rate",
        "Dropped at the receive queue",
        "%",
        DROPS,
        "Packets dropped at the gateway's receive queue, by the AQM or for lack of room, as a share of those"
        " that arrived there.",
        lambda run: _ratio(run, "receive_drops", "receive_packets"),
        headline=True,
    ),
    Metric(
        "transmit_drop_rate",
        "Dropped at the transmit queue",
        "%",
        DROPS,
        "The same for the transmit queue, or for the queue of the subject's link. Behind a PEP, dropped"
        " packets are sent again over the satellite, and arrive again at the queue.",
        lambda run: _ratio(run, "transmit_drops", "transmit_packets"),
        headline=True,
    ),
    Metric(
        "link_loss_rate",
        "Lost on links",
        "%",
        DROPS,
        "Packets lost to errors, outages and handovers, as a share of those sent over links that can lose"
        " packets.",
        lambda run: _link_loss(run, "link_losses"),
        headline=True,
    ),
    Metric(
        "link_give_up_rate",
        "Given up at the retransmission limit",
        "%",
        DROPS,
        "Packets that a link layer gave up at its limit of tries, as a share of those sent over links that"
        " can lose packets.",
        lambda run: _link_loss(run, "link_given_up"),
    ),
    Metric(
        "retransmitted",
        "Repeated over the satellite",
        "%",
        DROPS,
        "Packets with data that the PEP link or a transport sends again, as a share of the bytes sent from"
        " the transmit queue; also if the queue had dropped the first copy. In a live run, of the bytes on"
        " the spacelink.",
        _repeated,
        headline=True,
    ),
    Metric(
        "mark_rate",
        "Mark rate",
        "%",
        DROPS,
        "Probability that the AQM marks a packet or drops it early, on arrival at the mark point or in the"
        " queue.",
        _mark_rate,
    ),
    Metric(
        "drop_run_mean",
        "Drop run length, mean",
        "packets",
        DROPS,
        "Mean number of consecutive drops at the mark point. Above `drop_run_independent`, drops come in"
        " bursts, a sign of global synchronization.",
        _run_mean,
        headline=True,
    ),
    Metric(
        "drop_run_p95",
        "Drop run length, 95th percentile",
        "packets",
        DROPS,
        "95th percentile of the number of consecutive drops.",
        lambda run: _run_quantile(run, 0.95),
    ),
    Metric(
        "drop_run_independent",
        "Drop run length, if independent",
        "packets",
        DROPS,
        "Mean run length of independent drops at the same rate: 1 / (1 - drop rate).",
        _independent_run,
        headline=True,
    ),
    Metric(
        "loss_synchronization",
        "Loss synchronization",
        "%",
        DROPS,
        "Share of the open flows that lose packets at a queue in the same sample interval: mean over the"
        " intervals with losses and at least two open flows (RFC 7928, section 2.4).",
        _synchronization,
    ),
    Metric(
        "goodput_total",
        "Goodput",
        "Mbit/s",
        FLOWS,
        "Payload that receiving applications read, of all flows whose data pass the subject: mean over the"
        " samples.",
        _series("goodput", mean, 1e-6),
        mean_of="goodput",
    ),
    Metric(
        "goodput_total_std",
        "Goodput, std",
        "Mbit/s",
        FLOWS,
        "Standard deviation of the goodput of all these flows between samples.",
        _series("goodput", std, 1e-6),
    ),
    Metric(
        "goodput_mean",
        "Goodput per flow, mean",
        "kbit/s",
        FLOWS,
        "Goodput of a flow: mean over the flows. A finite flow counts if it completed within the measured"
        " time; an endless flow counts with the bytes it moved in that time.",
        lambda run: scaled(mean(run.all_flows.goodput), 1e-3),
        headline=True,
    ),
    Metric(
        "goodput_std",
        "Goodput per flow, std",
        "kbit/s",
        FLOWS,
        "Standard deviation of the goodput between those flows.",
        lambda run: scaled(std(run.all_flows.goodput), 1e-3),
        headline=True,
    ),
    Metric(
        "jain_index",
        "Jain's fairness index",
        "",
        FLOWS,
        "Jain's fairness index of the goodput of those flows: 1 if all are equal.",
        lambda run: jain(run.all_flows.goodput),
        headline=True,
        better="more",
    ),
    Metric(
        "terminal_goodput_min",
        "Goodput of a terminal, least",
        "Mbit/s",
        FLOWS,
        "Payload that the users behind a terminal received over the measured time: that of the terminal with"
        " the least. Only if a gateway has several terminals.",
        _counter("terminal_goodput_min", 1e-6),
        of_terminals=True,
    ),
    Metric(
        "terminal_jain_index",
        "Jain's fairness index of terminals",
        "",
        FLOWS,
        "Jain's fairness index of the goodputs of the terminals of a group; that of the group with the least."
        " Only if a gateway has several terminals.",
        _counter("terminal_jain_index"),
        of_terminals=True,
    ),
    Metric(
        "terminal_weighted_jain_index",
        "Jain's fairness index of terminals by weight",
        "",
        FLOWS,
        "Jain's fairness index of goodput over the weight of the plan, of all terminals: 1 if each gets in"
        " proportion to its weight. Only if a gateway has several terminals.",
        _counter("terminal_weighted_jain_index"),
        of_terminals=True,
    ),
    Metric(
        "terminal_delay_p95_max",
        "Queueing delay of a terminal, 95th percentile, greatest",
        "ms",
        DELAY,
        "95th percentile of the sojourn time in the transmit queue over the packets to one terminal: that of"
        " the terminal with the greatest. Only if a gateway has several terminals.",
        _counter("terminal_delay_p95_max", 1e3),
        of_terminals=True,
    ),
    Metric(
        "rain_goodput",
        "Goodput in rain",
        "%",
        FLOWS,
        "Goodput of the terminals with the most rain over that of those with the least: of each group the"
        " third to which a byte takes the carrier longest, and the third to which it takes it for the"
        " shortest time. 100 % if others pay for the rain, and less if a terminal pays for its own.",
        _counter("terminal_rain_goodput", 100),
        of_terminals=True,
    ),
    Metric(
        "rain_carrier_time",
        "Carrier time in rain",
        "%",
        LINK,
        "The same of carrier time: 100 % if each terminal pays for its own rain, and more if others do.",
        _counter("terminal_rain_time", 100),
        of_terminals=True,
    ),
    Metric(
        "committed_share_max",
        "Carrier time of the committed rates, greatest",
        "%",
        LINK,
        "Share of the carrier's time that the committed rates (`cir`) of the terminals take at the rates of"
        " their links: greatest of the samples. Above 100 % not all can be kept.",
        lambda run: number(_committed(run).max()),
        of_terminals=True,
    ),
    Metric(
        "committed_excess",
        "Time of committed rates above the carrier",
        "%",
        LINK,
        "Share of the time in which the committed rates take more than the carrier: rain, or too many"
        " terminals. In an outage a terminal takes nothing.",
        lambda run: scaled(mean((_committed(run) > 100).cast(pl.Float64)), 100),
        of_terminals=True,
    ),
    Metric(
        "return_throughput",
        "Return throughput",
        "Mbit/s",
        LINK,
        "Rate that the terminals of the subject send over their return links, all together. Only if they have"
        " queues there, as for all metrics of the return direction.",
        _return_throughput,
        headline=True,
        of_return=True,
    ),
    Metric(
        "return_queue_delay_mean",
        "Return queueing delay, mean",
        "ms",
        DELAY,
        "Sojourn time in the transmit queues of the terminals: mean over the departed packets, with data or"
        " without.",
        _counter("return_queue_delay_mean", 1e3),
        headline=True,
        of_return=True,
    ),
    Metric(
        "return_queue_delay_p95",
        "Return queueing delay, 95th percentile",
        "ms",
        DELAY,
        "95th percentile of that sojourn time.",
        _counter("return_queue_delay_p95", 1e3),
        headline=True,
        of_return=True,
    ),
    Metric(
        "return_drop_rate",
        "Dropped at the terminals",
        "%",
        DROPS,
        "Packets dropped at the terminals: 100 % less the product of the shares that pass their receive and"
        " their transmit queues.",
        lambda run: _lost_at(run, _RETURN_PLACES),
        of_return=True,
    ),
    Metric(
        "fct_mean",
        "Flow completion time, mean",
        "s",
        FLOWS,
        "Time from opening a flow to its last byte: mean over the flows that completed within the measured"
        " time.",
        lambda run: mean(run.all_flows.completion),
    ),
    *_percentiles(
        ("fct_p50", "fct_p95", "fct_p99"),
        "Flow completion time",
        "s",
        FLOWS,
        "the flow completion time",
        lambda _, share: lambda run: quantile(run.all_flows.completion, share),
        fct_p50={"headline": True},
        fct_p95={"headline": True, "better": "less"},
    ),
    Metric(
        "completed",
        "Completed flows",
        "flows",
        FLOWS,
        "Flows that completed within the measured time.",
        lambda run: run.all_flows.completed,
        headline=True,
    ),
    Metric(
        "unfinished",
        "Unfinished flows",
        "flows",
        FLOWS,
        "Flows still open at the end. Completion times and the goodput of finite flows exclude them.",
        lambda run: number(run.flows["closed"].null_count()),
    ),
    Metric(
        "failed",
        "Failed flows",
        "flows",
        FLOWS,
        "Flows that failed within the measured time.",
        lambda run: run.all_flows.failed,
    ),
)

_BY_NAME = {metric.name: metric for metric in METRICS}

DEPRECATED = {
    "utilization_std": "throughput_std",
    "utilization_share": "utilization",
    "utilization_in": "arrival_rate",
    "utilization_in_std": "arrival_rate_std",
    "queue_time_mean": "queue_time_average",
    "pep_delay": "pep_sojourn",
}
"""Former names of metrics, by which they are no longer found, and their current names.

The former `utilization` [Mbit/s] is `throughput`; `utilization` now names a share [%].
"""


def find(name: str) -> Metric | None:
    """Return the metric called `name`, or `CLASS.METRIC` for a class of traffic; None for an unknown name."""
    return _BY_NAME.get(name) or class_metric(name)


def named_metric(name: str, where: str = "") -> Metric:
    """Return the metric called `name`; raise `UsageError`, prefixed by `where`, for an unknown name."""
    metric = find(name)
    if metric is None:
        traffic_class, dot, last = name.rpartition(".")
        if name in DEPRECATED:
            hint = f"it is now called {DEPRECATED[name]}"
        elif dot:
            of_classes = [each.name for each in CLASS_METRICS]
            near = difflib.get_close_matches(last, of_classes, n=1)
            hint = (
                f"did you mean {traffic_class}.{near[0]}?"
                if near
                else f"a class of traffic has {', '.join(of_classes)}"
            )
        else:
            hint = meant(name, _BY_NAME, most=3) or "docs/metrics.md lists them"
        raise UsageError(f'{where}{": " if where else ""}there is no metric "{name}"; {hint}')
    return metric


def check_classes(
    names: Iterable[str], traffic: Traffic, *, terminals: bool = True, returns: bool = True
) -> None:
    """Raise `UsageError` for a metric of a class that `traffic` does not have, or not of its kind.

    Also for those of terminals unless a gateway has several (`terminals`), and for those of the return
    direction unless terminals have queues there (`returns`).
    """
    known = {metric.name: metric for metric in class_metrics(traffic)}
    for name in names:
        if metric := _BY_NAME.get(name) or known.get(name):
            if metric.of_terminals and not terminals:
                raise UsageError(f"metric {name}: needs a gateway with several terminals")
            if metric.of_return and not returns:
                raise UsageError(f"metric {name}: needs queues at the terminals (gateway.return)")
            continue
        traffic_class, _, last = name.rpartition(".")
        classes = dict.fromkeys(each[1] for each in traffic)
        if traffic_class not in classes:
            raise UsageError(
                f'metric {name}: found the class of traffic "{traffic_class}";'
                f" allowed: {', '.join(classes) or 'none, as the result has no classes'}"
            )
        kinds = ", ".join(sorted({kind for _, of, kind in traffic if of == traffic_class}))
        raise UsageError(
            f'metric {name}: found "{last}" for traffic of kind {kinds}; allowed:'
            f" {', '.join(each.rpartition('.')[2] for each in known if each.startswith(f'{traffic_class}.'))}"
        )


def metrics_of(traffic: Traffic, *, terminals: bool = False, returns: bool = False) -> list[Metric]:
    """Return all metrics of a scenario with this traffic: `METRICS`, then those of each class.

    Those of terminals only with `terminals`: a gateway has several. Those of the return direction only
    with `returns`: terminals have queues there.
    """
    return [
        *(
            metric
            for metric in METRICS
            if (terminals or not metric.of_terminals) and (returns or not metric.of_return)
        ),
        *(metric for metric in class_metrics(traffic) if terminals or not metric.of_terminals),
    ]


def evaluate(run: Recorded) -> dict[str, float | None]:
    """Return every metric of one run, in the order of `metrics_of`; None for a metric without a value."""
    values = (
        (metric.name, metric.of(run)) for metric in metrics_of(run.traffic, terminals=True, returns=True)
    )
    return {name: value if value is None or math.isfinite(value) else None for name, value in values}


def markdown() -> str:
    """Return the table of metrics for docs/metrics.md."""
    lines = ["| metric | unit | description |", "| --- | --- | --- |"]
    lines += [f"| `{metric.name}` | {metric.unit or '–'} | {metric.doc} |" for metric in METRICS]
    return "\n".join(lines) + "\n"
