"""The metrics of a class of traffic, `CLASS.METRIC`, such as `voice.loss_rate`.

A class is a traffic of the scenario, or several with the same `class`. A data unit is a packet of a packet
source; of a transfer, a segment sent for the first time. It is sent when the application hands it over, or
when the transport takes it from a transfer, and received when the receiving application has all of it: behind
a PEP too, both halves of the way are included.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Literal

import polars as pl

from bentpipe.stats.experience import GRADED, bad_terminals, over_terminals
from bentpipe.stats.opinions import opinions, viewings
from bentpipe.stats.recorded import (
    Metric,
    Recorded,
    Traffic,
    jain,
    known,
    mean,
    number,
    quantile,
    scaled,
)

__all__ = [
    "BOTTLENECKS",
    "CLASS_METRICS",
    "ClassMetric",
    "class_metric",
    "class_metrics",
    "markdown",
]


@dataclass(frozen=True, slots=True)
class ClassMetric:
    """One figure of a class of traffic."""

    name: str
    label: str
    unit: str
    doc: str
    of: Callable[[Recorded, str], float | None]
    """Computes the value of a class in one run; None if it has none."""
    better: Literal["more", "less"] | None = None
    """Better direction; None for a metric without one."""
    kinds: frozenset[str] | None = None
    """Kinds of traffic that have it; None for all."""
    of_terminals: bool = False
    """True if a run has it only if a gateway has several terminals."""


def _counter(name: str, factor: float = 1) -> Callable[[Recorded, str], float | None]:
    return lambda run, traffic_class: scaled(number(run.counters.get(f"{traffic_class}.{name}")), factor)


def _loss_rate(run: Recorded, traffic_class: str) -> float | None:
    received, lost = (run.counters.get(f"{traffic_class}.{name}_units") for name in ("received", "lost"))
    if received is None or lost is None or received + lost == 0:
        return None
    return 100 * lost / (received + lost)


def _limited(name: str) -> Callable[[Recorded, str], float | None]:
    def share(run: Recorded, traffic_class: str) -> float | None:
        samples = run.counters.get(f"{traffic_class}.limited_samples")
        return (
            100 * (run.counters.get(f"{traffic_class}.limited_by_{name}") or 0) / samples if samples else None
        )

    return share


def _lost_or_late(run: Recorded, traffic_class: str) -> float | None:
    counts = [run.counters.get(f"{traffic_class}.{name}_units") for name in ("received", "lost", "late")]
    received, lost, late = (count or 0 for count in counts)
    return None if None in counts or not received + lost else 100 * (lost + late) / (received + lost)


def _rpm_foreign(run: Recorded, traffic_class: str) -> float | None:
    steps = [run.counters.get(f"{traffic_class}.probe_{step}") for step in ("connect", "tls", "http")]
    times = [step for step in steps if step]
    return 60 * len(times) / sum(times) if len(times) == len(steps) else None


def _rpm_loaded(run: Recorded, traffic_class: str) -> float | None:
    request, load = (run.counters.get(f"{traffic_class}.{name}") for name in ("probe_request", "load_delay"))
    return 60 / (request + load) if request is not None and load is not None else None


def _rpm(run: Recorded, traffic_class: str) -> float | None:
    foreign, loaded = _rpm_foreign(run, traffic_class), _rpm_loaded(run, traffic_class)
    return foreign if loaded is None else None if foreign is None else (foreign + loaded) / 2


BOTTLENECKS: Mapping[str, tuple[str, str]] = {
    "carrier": ("the carrier", "the satellite link, with its queue and AQM, limited the flow"),
    "pep_buffer": ("the PEP's buffer", "the PEP's buffer limited the receive window of the gateway"),
    "receive_window": ("the receive window", "the window of the receiving host limited the flow"),
    "spacelink_window": (
        "the spacelink window",
        "the window of the spacelink or its stream limited the flow",
    ),
    "link": ("another link", "a link other than the satellite's limited the flow"),
    "loss": ("losses", "losses on a link that was not full kept the congestion window small"),
    "start_up": ("start-up", "the handshake went on, or the congestion window grew before the first loss"),
    "sender": ("the sender", "the sending application had nothing more to send"),
}
"""Resources that limit TCP and QUIC flows: label, and what the share of time counts (docs/results.md)."""


def _goodput(run: Recorded, traffic_class: str) -> float | None:
    seconds = run.counters.get("measured_seconds")
    delivered = number(run.of_class(traffic_class).table["bytes"].sum())
    return 8e-6 * delivered / seconds if seconds and delivered is not None else None


def _completion(share: float) -> Callable[[Recorded, str], float | None]:
    return lambda run, traffic_class: quantile(run.of_class(traffic_class).completion, share)


def _mos(share: float | None) -> Callable[[Recorded, str], float | None]:
    def of(run: Recorded, traffic_class: str) -> float | None:
        scores = opinions(run, traffic_class)["mos"]
        return mean(scores) if share is None else quantile(scores, share)

    return of


def _of_viewings(of: Callable[[pl.DataFrame], float | None]) -> Callable[[Recorded, str], float | None]:
    def value(run: Recorded, traffic_class: str) -> float | None:
        found = viewings(run, traffic_class)
        return of(found) if len(found) else None

    return value


def _per(viewings: pl.DataFrame, column: str, over: str, factor: float) -> float | None:
    counted, seconds = number(viewings[column].sum()), number(viewings[over].sum())
    return factor * counted / seconds if counted is not None and seconds else None


def _bitrate(viewings: pl.DataFrame) -> float | None:
    """Return the mean bitrate of what was played, over all viewings [Mbit/s]."""
    played = viewings.select(pl.col("bitrate") * pl.col("played_time"), pl.col("played_time")).sum()
    bits, seconds = (number(value) for value in played.row(0))
    return 1e-6 * bits / seconds if bits is not None and seconds else None


def _late_rate(run: Recorded, traffic_class: str) -> float | None:
    flows = run.of_class(traffic_class).table
    late, played = number(flows["late"].sum()), number(flows["played"].sum())
    return 100 * late / (late + played) if late is not None and played is not None and late + played else None


_RENDERED = frozenset({"rendered pages"})
_PAGES = _RENDERED | {"pages"}
_TRANSFERS = _PAGES | {"files", "bulk"}
_VOICE = frozenset({"voip"})
_VIDEO = frozenset({"dash"})
_OPINION = _VOICE | _VIDEO
_ON_TCP = _TRANSFERS | _VIDEO
_PROBES = frozenset({"probe"})
_DEADLINES = frozenset({"game", "iot"})

CLASS_METRICS: tuple[ClassMetric, ...] = (
    ClassMetric(
        "goodput",
        "Goodput",
        "Mbit/s",
        "Payload that the applications of the class received, over the measured time.",
        _goodput,
        better="more",
    ),
    ClassMetric(
        "flow_goodput",
        "Goodput per flow, mean",
        "kbit/s",
        "Goodput of a flow: mean over the flows, as `goodput_mean`.",
        lambda run, traffic_class: scaled(mean(run.of_class(traffic_class).goodput), 1e-3),
        better="more",
    ),
    ClassMetric(
        "loss_rate",
        "Loss rate",
        "%",
        "Data units lost for good, as a share of those sent: datagrams dropped or lost; over a reliable"
        " transport, units that a failed connection had not delivered. Retransmissions do not count.",
        _loss_rate,
        better="less",
    ),
    ClassMetric(
        "delay_mean",
        "One-way delay, mean",
        "ms",
        "Time from the sending application to the receiving one: mean over the data units.",
        _counter("delay_mean", 1e3),
        better="less",
    ),
    ClassMetric(
        "delay_p50",
        "One-way delay, median",
        "ms",
        "Median of the one-way delay.",
        _counter("delay_p50", 1e3),
        better="less",
    ),
    ClassMetric(
        "delay_p95",
        "One-way delay, 95th percentile",
        "ms",
        "95th percentile of the one-way delay.",
        _counter("delay_p95", 1e3),
        better="less",
    ),
    ClassMetric(
        "delay_p99",
        "One-way delay, 99th percentile",
        "ms",
        "99th percentile of the one-way delay.",
        _counter("delay_p99", 1e3),
        better="less",
    ),
    ClassMetric(
        "jitter",
        "Jitter",
        "ms",
        "Interarrival jitter (RFC 3550, section 6.4.1): mean over the data units of their flow's estimate J.",
        _counter("jitter", 1e3),
        better="less",
    ),
    ClassMetric(
        "jain_index",
        "Jain's fairness index",
        "",
        "Jain's fairness index of the goodput of the flows: 1 if all are equal.",
        lambda run, traffic_class: jain(run.of_class(traffic_class).goodput),
        better="more",
    ),
    ClassMetric(
        "fct_p50",
        "Flow completion time, median",
        "s",
        "Median of the completion time of the flows that completed within the measured time.",
        _completion(0.5),
        better="less",
        kinds=_TRANSFERS,
    ),
    ClassMetric(
        "fct_p95",
        "Flow completion time, 95th percentile",
        "s",
        "95th percentile of the completion time.",
        _completion(0.95),
        better="less",
        kinds=_TRANSFERS,
    ),
    ClassMetric(
        "completed",
        "Completed flows",
        "flows",
        "Flows that completed within the measured time.",
        lambda run, traffic_class: run.of_class(traffic_class).completed,
        kinds=_TRANSFERS,
    ),
    ClassMetric(
        "failed",
        "Failed flows",
        "flows",
        "Flows that failed within the measured time.",
        lambda run, traffic_class: run.of_class(traffic_class).failed,
        better="less",
        kinds=_TRANSFERS,
    ),
    ClassMetric(
        "page_time_p50",
        "Page load time, median",
        "s",
        "Median of the time from opening the first connection of a page to the last byte of its last object.",
        _counter("page_time_p50"),
        better="less",
        kinds=_PAGES,
    ),
    ClassMetric(
        "page_time_p75",
        "Page load time, 75th percentile",
        "s",
        "75th percentile of the page load time.",
        _counter("page_time_p75"),
        better="less",
        kinds=_PAGES,
    ),
    ClassMetric(
        "page_time_p95",
        "Page load time, 95th percentile",
        "s",
        "95th percentile of the page load time.",
        _counter("page_time_p95"),
        better="less",
        kinds=_PAGES,
    ),
    ClassMetric(
        "first_byte_p50",
        "Time to first byte, median",
        "s",
        "Median of the time from opening the first connection of a page to the first byte of an object.",
        _counter("first_byte_p50"),
        better="less",
        kinds=_PAGES,
    ),
    ClassMetric(
        "render_time_p50",
        "Time to render, median",
        "s",
        "Median of the time from opening the first connection of a page to the last byte of its first object"
        " and of those that block rendering, for pages with `render_blocking`.",
        _counter("render_time_p50"),
        better="less",
        kinds=_RENDERED,
    ),
    ClassMetric(
        "render_time_p75",
        "Time to render, 75th percentile",
        "s",
        "75th percentile of the time to render, for pages with `render_blocking`.",
        _counter("render_time_p75"),
        better="less",
        kinds=_RENDERED,
    ),
    ClassMetric(
        "pages",
        "Pages",
        "pages",
        "Pages loaded within the measured time.",
        _counter("pages"),
        better="more",
        kinds=_PAGES,
    ),
    ClassMetric(
        "pages_failed",
        "Failed pages",
        "pages",
        "Pages of which a connection failed, or that were given up, within the measured time.",
        _counter("pages_failed"),
        better="less",
        kinds=_PAGES,
    ),
    ClassMetric(
        "mos",
        "MOS, mean",
        "",
        "Mean opinion score, mean over the calls or viewings. Calls, 1 to 4.5: E-model (ITU-T G.107) of the"
        " delay from mouth to ear and the packets lost or late at the jitter buffer. Viewings, 1 to 5: ITU-T"
        " P.1203, mode 0, of bitrates, stalls and start-up delay (docs/qoe.md).",
        _mos(None),
        better="more",
        kinds=_OPINION,
    ),
    ClassMetric(
        "mos_p5",
        "MOS, 5th percentile",
        "",
        "5th percentile of the mean opinion scores of the calls or viewings: the worst served.",
        _mos(0.05),
        better="more",
        kinds=_OPINION,
    ),
    ClassMetric(
        "startup_p95",
        "Start-up delay, 95th percentile",
        "s",
        "95th percentile of the time from a viewer's request to the start of playback, over the viewings that"
        " began within the measured time.",
        _of_viewings(lambda viewings: quantile(known(viewings["startup_delay"]), 0.95)),
        better="less",
        kinds=_VIDEO,
    ),
    ClassMetric(
        "stalls",
        "Stalls",
        "1/min",
        "Interruptions of playback per minute played.",
        _of_viewings(lambda viewings: _per(viewings, "stalls", "played_time", 60)),
        better="less",
        kinds=_VIDEO,
    ),
    ClassMetric(
        "stalled",
        "Stalled time",
        "%",
        "Time during which playback was interrupted, as a share of the time played.",
        _of_viewings(lambda viewings: _per(viewings, "stalled", "played_time", 100)),
        better="less",
        kinds=_VIDEO,
    ),
    ClassMetric(
        "bitrate",
        "Video bitrate, mean",
        "Mbit/s",
        "Bitrate of the media played: mean over the time played.",
        _of_viewings(_bitrate),
        better="more",
        kinds=_VIDEO,
    ),
    ClassMetric(
        "switches",
        "Switches of bitrate",
        "1/min",
        "Changes of the bitrate per minute played.",
        _of_viewings(lambda viewings: _per(viewings, "switches", "played_time", 60)),
        kinds=_VIDEO,
    ),
    ClassMetric(
        "late_rate",
        "Late packets",
        "%",
        "Voice packets that missed their time at the jitter buffer, as a share of those that arrived.",
        _late_rate,
        better="less",
        kinds=_VOICE,
    ),
    ClassMetric(
        "lost_or_late",
        "Lost or late packets",
        "%",
        "Packets that were lost, or later than the application's `deadline`, as a share of those sent.",
        _lost_or_late,
        better="less",
        kinds=_DEADLINES,
    ),
    ClassMetric(
        "rpm",
        "Responsiveness",
        "RPM",
        "Round trips per minute (draft-ietf-ippm-responsiveness): the mean of `rpm_foreign` and `rpm_loaded`;"
        " the former alone without `bulk` traffic in the class.",
        _rpm,
        better="more",
        kinds=_PROBES,
    ),
    ClassMetric(
        "rpm_foreign",
        "Responsiveness on new connections",
        "RPM",
        "Round trips per minute of TCP handshake, TLS handshake and request, each on a new connection: from"
        " means without the longest 5 %.",
        _rpm_foreign,
        better="more",
        kinds=_PROBES,
    ),
    ClassMetric(
        "rpm_loaded",
        "Responsiveness on loaded connections",
        "RPM",
        "Round trips per minute of a probe's request and of the data of the class's `bulk` traffic, as if the"
        " response went on its connections behind data already sent.",
        _rpm_loaded,
        better="more",
        kinds=_PROBES,
    ),
    ClassMetric(
        "terminals_bad",
        "Terminals with bad service",
        "%",
        "Share of the terminals with traffic of the class whose users have bad service by the thresholds"
        " (docs/qoe.md): mean MOS of its calls, else of its viewings, else the 75th percentile of its page"
        " load time, where failed pages count as longer than any other. Only if a gateway has several"
        " terminals, as the next three.",
        bad_terminals,
        better="less",
        kinds=frozenset(GRADED),
        of_terminals=True,
    ),
    ClassMetric(
        "terminal_mos_p10",
        "MOS of a terminal, 10th percentile",
        "",
        "Mean MOS of a terminal's calls or viewings: 10th percentile over the terminals. A tenth of them have"
        " less.",
        over_terminals("mos", 0.1),
        better="more",
        kinds=_OPINION,
        of_terminals=True,
    ),
    ClassMetric(
        "terminal_page_time_p90",
        "Page load time of a terminal, 90th percentile",
        "s",
        "75th percentile of a terminal's page load time: 90th percentile over the terminals. None if failed"
        " pages decide it.",
        over_terminals("page_time_p75", 0.9),
        better="less",
        kinds=_PAGES,
        of_terminals=True,
    ),
    ClassMetric(
        "terminal_stalled_p90",
        "Stalled time of a terminal, 90th percentile",
        "%",
        "Stalled time of a terminal's viewings as a share of the time played: 90th percentile over the"
        " terminals that have played something.",
        over_terminals("stalled", 0.9),
        better="less",
        kinds=_VIDEO,
        of_terminals=True,
    ),
    *(
        ClassMetric(
            f"limited_by_{name}",
            f"Limited by {label}",
            "%",
            f"Share of the time of open TCP and QUIC flows in which {doc}.",
            _limited(name),
            kinds=_ON_TCP,
        )
        for name, (label, doc) in BOTTLENECKS.items()
    ),
)
"""Metrics of a class of traffic."""

_BY_NAME = {metric.name: metric for metric in CLASS_METRICS}


@cache
def class_metric(name: str) -> Metric | None:
    """Return the metric called `CLASS.METRIC`; None if there is no such metric of a class."""
    traffic_class, dot, last = name.rpartition(".")
    found = _BY_NAME.get(last)
    if found is None or not dot or not traffic_class:
        return None
    return Metric(
        name=name,
        label=f"{traffic_class}: {found.label}",
        unit=found.unit,
        group=traffic_class,
        doc=found.doc,
        of=partial(_of_class, found, traffic_class),
        better=found.better,
        of_terminals=found.of_terminals,
    )


def _of_class(metric: ClassMetric, traffic_class: str, run: Recorded) -> float | None:
    return metric.of(run, traffic_class)


def class_metrics(traffic: Traffic) -> list[Metric]:
    """Return the metrics of every class that its kinds of traffic have."""
    kinds: dict[str, set[str]] = {}
    for _, traffic_class, kind in traffic:
        kinds.setdefault(traffic_class, set()).add(kind)
    found = (
        class_metric(f"{traffic_class}.{metric.name}")
        for traffic_class, present in kinds.items()
        for metric in CLASS_METRICS
        if metric.kinds is None or metric.kinds & present
    )
    return [metric for metric in found if metric is not None]


def markdown() -> str:
    """Return the table of the metrics of a class for docs/metrics.md."""
    lines = ["| metric | unit | description |", "| --- | --- | --- |"]
    lines += [f"| `CLASS.{metric.name}` | {metric.unit or '–'} | {metric.doc} |" for metric in CLASS_METRICS]
    return "\n".join(lines) + "\n"
