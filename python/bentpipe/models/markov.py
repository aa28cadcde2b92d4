"""The Markov model of a link's queue [R11 5]: loss, delay and occupancy of each class of traffic.

Classes of on/off mini-sources become two-state MMPPs (`bentpipe.models.mmpp`); together they feed an
MMPP/Erlang-k/1/L queue (`bentpipe.models.erlang_queue`), and this module reads both from a scenario:

    import bentpipe as bp
    from bentpipe.models import markov

    for row in markov.of(bp.load("mmpp-queue")).rows():
        print(row)

docs/markov.md states which parts are exact. This module does not depend on the simulator. [R11] is Rahmani,
Åhlund & Kanter 2011.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import gammaincc

from bentpipe._core import Scenario
from bentpipe.errors import UsageError
from bentpipe.models.erlang_queue import QueueResult, ramp, solve
from bentpipe.models.mmpp import Mmpp, TwoState, fit, moments, superpose

__all__ = ["ALL", "PAPER", "THRESHOLDS", "MarkovResult", "both", "control", "of"]

ALL = 0
"""Value of `states`: all combinations of the classes' states."""
PAPER = 8
"""Number of states that [R11] mentions, without derivation."""
THRESHOLDS = tuple(round(0.25 + 0.05 * i, 2) for i in range(15))
"""Thresholds of threshold control as shares of the buffer: 25 to 95 % [R11 5.3]."""

_FROM_SCENARIO = -1.0
_LONGEST = 65_535
"""Maximum length of a datagram [bytes]."""
_RARE = 1e-4
_KINDS = ("poisson", "on_off", "mmpp")


@dataclass(frozen=True, slots=True)
class MarkovResult:
    """The model's solution for the queue of a scenario's subject."""

    link: str
    """Name of the subject."""
    capacity: float
    """Rate of the link [bit/s]."""
    packet: float
    """Mean length of a packet [bytes]."""
    threshold: float | None
    """Threshold of threshold control as a share of the buffer; `None` without control."""
    queue: QueueResult
    notes: tuple[str, ...]
    """Properties of the scenario that the model simplifies or ignores."""

    @property
    def states(self) -> int:
        """States of the arrivals' chain."""
        return self.queue.states

    def compared(self) -> list[dict[str, Any]]:
        """Return the quantities that a simulation measures too: `quantity`, `unit`, `mean` and `std`.

        The model has no time series; `std` is None except for the queue.
        """
        q, bits = self.queue, 8 * self.packet * 1e-6
        rows: list[tuple[str, str, float, float | None]] = [
            ("throughput", "Mbit/s", q.utilization * self.capacity * 1e-6, None),
            ("offered_load", "Mbit/s", q.offered * bits, None),
            ("queue", "packets", q.queue_mean, q.queue_std),
            ("queue_delay", "ms", 1e3 * q.wait, None),
            ("mark_probability", "%", 100 * q.marked, None),
            ("loss_rate", "%", 100 * q.loss, None),
            *((f"loss_rate.{one.name}", "%", 100 * one.loss, None) for one in q.classes),
        ]
        return [dict(zip(("quantity", "unit", "mean", "std"), row, strict=True)) for row in rows]

    def rows(self) -> list[dict[str, Any]]:
        """Return every quantity: `quantity`, `class` (a class's name, or `all`), `unit`, `value`.

        If `class` is `all`, a quantity with the name of a metric is that metric, in its unit.
        """
        q, bits = self.queue, 8 * self.packet * 1e-6
        whole = [
            ("offered_load", "Mbit/s", q.offered * bits),
            ("throughput", "Mbit/s", q.utilization * self.capacity * 1e-6),
            ("utilization", "%", 100 * q.utilization),
            ("queue_mean", "packets", q.queue_mean),
            ("queue_std", "packets", q.queue_std),
            ("queue_p50", "packets", float(q.waiting(0.5))),
            ("queue_p95", "packets", float(q.waiting(0.95))),
            ("queue_p99", "packets", float(q.waiting(0.99))),
            ("queue_delay_mean", "ms", 1e3 * q.wait),
            ("drop_rate", "%", 100 * q.loss),
            ("mark_rate", "%", 100 * q.marked),
            ("offered", "packets/s", q.offered),
            ("loss", "", q.loss),
            ("packets", "packets", q.packets),
            ("delay", "s", q.delay),
            ("flow_balance", "", q.balance),
            ("residual", "", q.residual),
        ]
        rows = [("all", *row) for row in whole]
        for one in q.classes:
            rows += [
                (one.name, "offered", "packets/s", one.offered),
                (one.name, "loss", "", one.loss),
                (one.name, "packets", "packets", one.packets),
                (one.name, "wait", "s", one.wait),
                (one.name, "delay", "s", one.delay),
            ]
        return [
            {"quantity": quantity, "class": name, "unit": unit, "value": value}
            for name, quantity, unit, value in rows
        ]

    def distribution(self) -> list[dict[str, Any]]:
        """Return each number of packets in the system: `packets`, its `probability`, and `marking` there."""
        pairs = zip(self.queue.distribution.tolist(), self.queue.marking.tolist(), strict=True)
        return [{"packets": n, "probability": p, "marking": c} for n, (p, c) in enumerate(pairs)]


def of(
    scenario: Scenario,
    *,
    stages: int | None = None,
    states: int | None = None,
    threshold: float | None = _FROM_SCENARIO,
    fitted: bool = True,
) -> MarkovResult:
    """Solve the queue of a scenario's subject, which must be a link.

    `stages` is k of Erlang-k service; None: the scenario's `model.erlang_stages`. `states` is the number of
    states of the arrivals: the last classes of the file are merged into one two-state class to reach it;
    `ALL`: no merging; None: the scenario's `model.states`, or `ALL`. `threshold` replaces the scenario's
    threshold; None: drop tail. With `fitted` false, N on/off flows become N + 1 states, exactly, instead of a
    fitted two-state class; feasible for few flows.

    Raises `UsageError` if the model does not cover the scenario (other traffic, another AQM, a limit in
    bytes, a link whose rate changes), or if there is no solution for the parameters.
    """
    whole, table = json.loads(scenario.canonical()), scenario.models()
    stages = table["erlang_stages"] if stages is None else stages
    states = table["states"] or ALL if states is None else states
    link = _subject(whole)
    name, wire = link["name"], link["forward"]
    limit, declared = _queue(name, wire["queue"])
    if threshold == _FROM_SCENARIO:
        threshold = declared
    notes: list[str] = []
    traffic = _crossing(whole, notes)
    lengths = [_length(t["name"], _own(t)["packet"]) for t in traffic]
    means = [length.mean for length in lengths]
    sources = [_source(t, mean) for t, mean in zip(traffic, means, strict=True)]
    rates = [source.mean_rate for source in sources]
    packet = float(np.average(means, weights=rates)) if sum(rates) > 0 else means[0]
    _note_lengths(traffic, lengths, packet, stages, notes)
    constant = [t["name"] for t in traffic if "on_off" in t["kind"]]
    if constant:
        notes.append(f"{', '.join(constant)}: Poisson while on, where a simulation sends at a constant rate")
    classes = _classes(sources, states, fitted=fitted)
    # The link's queue holds the waiting packets; one more is in transmission.
    places = limit + 1
    marking = None if threshold is None else ramp(places, threshold, of_waiting=True)
    found = solve(superpose(classes), wire["rate"] / (8 * packet), stages, places, marking)
    return MarkovResult(name, wire["rate"], packet, threshold, found, tuple(notes))


def control(
    scenario: Scenario,
    thresholds: Sequence[float] = THRESHOLDS,
    *,
    stages: int | None = None,
    states: int | None = None,
) -> list[MarkovResult]:
    """Solve the queue under threshold control, once for each threshold (a share of the buffer); see `of`."""
    return [of(scenario, stages=stages, states=states, threshold=th) for th in thresholds]


def both(scenario: Scenario, *, stages: int | None = None) -> list[MarkovResult]:
    """Solve the queue with all states, and with fewer: `model.states`, or `PAPER` if merging can reach it.

    If all states are too many, only with `model.states`.
    """
    fewer = scenario.models()["states"]
    try:
        found = [of(scenario, stages=stages, states=ALL)]
    except UsageError:
        if fewer is None:
            raise
        return [of(scenario, stages=stages, states=fewer)]
    if fewer is not None or found[0].states > PAPER:
        try:
            found.append(of(scenario, stages=stages, states=fewer or PAPER))
        except UsageError:
            if fewer is not None:
                raise
    return found[:1] if found[-1].states == found[0].states else found


def _subject(whole: Mapping[str, Any]) -> Mapping[str, Any]:
    if "link" not in whole["subject"]:
        name = whole["gateways"][whole["subject"]["gateway"]]["name"]
        raise UsageError(
            f"gateway.{name}: the Markov model takes a link with a queue as the subject, not a gateway"
        )
    link: Mapping[str, Any] = whole["links"][whole["subject"]["link"]]
    wire, at = link["forward"], f"link.{link['name']}"
    hosts = {host["name"]: host["count"] for host in whole["hosts"]}
    for end in link["between"]:
        if hosts.get(end, 1) > 1:
            raise UsageError(
                f"{at}: each of the {hosts[end]} hosts of {end} has its own link, but the Markov model takes"
                " a single link"
            )
    if not wire["rate"]:
        raise UsageError(f"{at}: the Markov model takes a link with a constant rate")
    if link.get("handover"):
        raise UsageError(f"{at}.handover: the Markov model takes a link without handovers")
    if wire["loss"]:
        raise UsageError(f"{at}.loss: the Markov model takes a link without random loss")
    extra = sorted(set(wire) - {"rate", "delay", "loss", "queue"})
    if extra:
        raise UsageError(
            f"{at}: found {', '.join(extra)}, but the Markov model takes a link with only a constant rate"
            " and a queue"
        )
    return link


def _queue(link: str, queue: Mapping[str, Any]) -> tuple[int, float | None]:
    """Return the queue's limit [packets] and its threshold."""
    at, limit, aqm = f"link.{link}.queue", queue["limit"], queue["aqm"]
    if limit["packets"] is None or limit["bytes"] is not None:
        raise UsageError(f"{at}.limit: the Markov model takes a limit in packets, not in bytes")
    if queue["scheduler"] != "fifo":
        scheduler = queue["scheduler"]
        found = scheduler if isinstance(scheduler, str) else scheduler["algorithm"]
        raise UsageError(f"{at}.scheduler: {found}, but the Markov model takes only fifo")
    if aqm["algorithm"] != "droptail":
        raise UsageError(
            f"{at}.aqm: {aqm['algorithm']}, but the Markov model takes only droptail, with or without a"
            " `threshold`"
        )
    threshold = aqm.get("threshold")
    if isinstance(threshold, list):
        raise UsageError(
            f"{at}.aqm.threshold: found one that changes, but the Markov model takes a constant one"
        )
    return limit["packets"], None if threshold is None else float(threshold)


def _crossing(whole: Mapping[str, Any], notes: list[str]) -> list[Mapping[str, Any]]:
    """Return the traffic that passes the subject's queue, in the order of the file."""
    subject, found = whole["subject"]["link"], []
    for traffic in whole["traffic"]:
        route, at = traffic["route"], f"traffic.{traffic['name']}"
        place = next((i for i, hop in enumerate(route) if hop == {"link": subject, "forward": True}), None)
        (kind, own), *_ = traffic["kind"].items()
        if place is None:
            if {"link": subject, "forward": False} in route and own.get("transport") is not None:
                raise UsageError(f"{at}: the Markov model does not cover acknowledgements on the subject")
            continue
        if kind not in _KINDS:
            raise UsageError(f"{at}: kind {kind}, but the Markov model takes {', '.join(_KINDS)}")
        if own.get("transport") is not None:
            raise UsageError(
                f"{at}.transport: the Markov model takes only datagrams without congestion control"
            )
        if own.get("away"):
            raise UsageError(f"{at}.away: the Markov model takes only traffic that is always present")
        for hop in route[:place]:
            if "link" not in hop:
                raise UsageError(
                    f"{at}: it passes a gateway before the subject, which the Markov model does not cover"
                )
            _check_before(at, whole["links"][hop["link"]], hop, notes)
        _note_start(whole, traffic, notes)
        found.append(traffic)
    if not found:
        raise UsageError(f"no traffic crosses link.{whole['links'][subject]['name']}")
    return found


def _check_before(at: str, link: Mapping[str, Any], hop: Mapping[str, Any], notes: list[str]) -> None:
    """Check a link ahead of the subject: loss is an error, a rate adds a note."""
    wire = link["forward" if hop["forward"] else "reverse"]
    if wire["loss"] or link.get("handover") or set(wire) - {"rate", "delay", "loss", "queue"}:
        raise UsageError(
            f"{at}: link.{link['name']}, ahead of the subject, is more than a constant rate and a queue,"
            " which the Markov model does not cover"
        )
    note = f"link.{link['name']} is ignored: its rate spaces packets before they reach the queue"
    if wire["rate"] and note not in notes:
        notes.append(note)


def _own(traffic: Mapping[str, Any]) -> Mapping[str, Any]:
    own: Mapping[str, Any] = next(iter(traffic["kind"].values()))
    return own


@dataclass(frozen=True, slots=True)
class _Length:
    """Distribution of packet lengths of one traffic entry."""

    mean: float
    """Mean length [bytes]."""
    scv: float
    """Squared coefficient of variation."""
    beyond: float = 0.0
    """Share of lengths above the maximum of a datagram."""


def _length(name: str, distribution: object) -> _Length:
    if isinstance(distribution, int | float):
        return _Length(float(distribution), 0.0)
    table: dict[str, Any] = distribution if isinstance(distribution, dict) else {"unknown": distribution}
    (kind, value), *_ = table.items()
    match kind:
        case "fixed":
            return _Length(float(value), 0.0)
        case "exponential":
            return _Length(float(value), 1.0, math.exp(-_LONGEST / value))
        case "erlang":
            k, mean = value["shape"], float(value["mean"])
            return _Length(mean, 1 / k, float(gammaincc(k, k * _LONGEST / mean)))
        case "uniform":
            low, high = value["low"], value["high"]
            return _Length((low + high) / 2, ((high - low) / (high + low)) ** 2 / 3)
        case "choice":
            parts = [(weight, _length(name, inner)) for weight, inner in value]
            mean = sum(weight * each.mean for weight, each in parts)
            square = sum(weight * each.mean**2 * (1 + each.scv) for weight, each in parts)
            return _Length(mean, square / mean**2 - 1, sum(weight * each.beyond for weight, each in parts))
        case _:
            raise UsageError(
                f"traffic.{name}.packet: {kind}, but the Markov model takes a fixed, exponential, erlang or"
                " uniform length, or a choice of these"
            )


def _note_lengths(
    traffic: Sequence[Mapping[str, Any]],
    lengths: Sequence[_Length],
    packet: float,
    stages: int,
    notes: list[str],
) -> None:
    for t, length in zip(traffic, lengths, strict=True):
        at = f"traffic.{t['name']}"
        if not math.isclose(length.mean, packet, rel_tol=1e-9):
            notes.append(
                f"{at}: packets with a mean of {length.mean:g} B are served with the overall mean,"
                f" {packet:g} B"
            )
        elif not math.isclose(length.scv, 1 / stages, rel_tol=1e-9):
            notes.append(
                f"{at}: lengths have a squared coefficient of variation of {length.scv:.3g}, Erlang-{stages}"
                f" service has {1 / stages:.3g}"
            )
        if length.beyond > _RARE:
            notes.append(
                f"{at}: {100 * length.beyond:.2g} % of the lengths are above {_LONGEST} B, the limit in a"
                " simulation"
            )


def _note_start(whole: Mapping[str, Any], traffic: Mapping[str, Any], notes: list[str]) -> None:
    """Note flows that begin after the warm-up; in the model they are always present."""
    if _share_after(_own(traffic).get("start", {"fixed": 0}), whole["run"]["warmup"]) > _RARE:
        notes.append(
            f"traffic.{traffic['name']}: it begins after the warm-up, but the model's is always present"
        )


def _share_after(start: Mapping[str, Any], time: float) -> float:
    """Return the share of start times after `time`, zero for those of a file."""
    (kind, value), *_ = start.items()
    match kind:
        case "fixed":
            return float(value > time)
        case "uniform":
            low, high = value["low"], value["high"]
            return float(low > time) if low == high else min(1.0, max(0.0, (high - time) / (high - low)))
        case "exponential":
            return math.exp(-time / value)
        case "normal" if value["std"] > 0:
            return math.erfc((time - value["mean"]) / (math.sqrt(2) * value["std"])) / 2
        case "normal":
            return float(value["mean"] > time)
        case "erlang":
            return float(gammaincc(value["shape"], value["shape"] * time / value["mean"]))
        case "pareto":
            least = value["mean"] * (value["shape"] - 1) / value["shape"]
            return 1.0 if time <= least else (least / time) ** float(value["shape"])
        case "choice":
            return float(sum(weight * _share_after(inner, time) for weight, inner in value))
        case _:
            return 0.0


def _source(traffic: Mapping[str, Any], packet: float) -> TwoState | Mmpp:
    """Return the source of one traffic entry [packets/s]."""
    name, own = traffic["name"], _own(traffic)
    kind, bits = next(iter(traffic["kind"])), 8 * packet
    if kind == "poisson":
        return Mmpp.poisson(own["flows"] * own["rate"] / bits, name)
    if kind == "on_off":
        on, off = (_exponential(name, key, own[key]) for key in ("on", "off"))
        return TwoState.on_off(own["rate"] / bits, on, off, own["flows"], name)
    sojourns = np.array([state["sojourn"] * 1e-9 for state in own["states"]])
    generator = np.array(own["transitions"], dtype=float) / sojourns[:, None]
    generator -= np.diag(generator.sum(axis=1))
    rates = np.array([state["rate"] / bits for state in own["states"]])
    return Mmpp(generator, rates, name).alike(own["flows"])


def _exponential(name: str, key: str, distribution: object) -> float:
    """Return the mean of an exponential time [s]."""
    if not (isinstance(distribution, dict) and "exponential" in distribution):
        found = next(iter(distribution)) if isinstance(distribution, dict) else "fixed"
        raise UsageError(f"traffic.{name}.{key}: {found}, but the Markov model takes only exponential times")
    mean = float(distribution["exponential"]) * 1e-9
    if mean <= 0:
        raise UsageError(
            f"traffic.{name}.{key}: a mean of {mean:g} s, but the Markov model takes times above 0"
        )
    return mean


def _classes(sources: Sequence[TwoState | Mmpp], states: int, *, fitted: bool) -> list[Mmpp]:
    """Return the classes as chains, with the last ones merged to reach `states` in total."""
    classes = [_alone(source, fitted=fitted) for source in sources]
    sizes = [math.prod(c.states for c in classes)]
    if states in (ALL, sizes[0]):
        return classes
    for first in range(len(sources) - 2, -1, -1):
        one = 2 if any(c.states > 1 for c in classes[first:]) else 1
        sizes.append(math.prod(c.states for c in classes[:first]) * one)
        if sizes[-1] == states:
            name = " + ".join(source.name for source in sources[first:])
            return [*classes[:first], fit(moments(sources[first:]), name)]
    possible = ", ".join(map(str, dict.fromkeys(sizes)))
    raise UsageError(f"states is {states}, but merging the last classes gives {possible}")


def _alone(source: TwoState | Mmpp, *, fitted: bool) -> Mmpp:
    if isinstance(source, Mmpp):
        return source
    return fit(moments([source]), source.name) if fitted else source.one.alike(source.flows)
