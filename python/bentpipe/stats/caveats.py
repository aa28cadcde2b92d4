"""Caveats of a result: what its scenario gets wrong or cannot show, each with a remedy."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from bentpipe.format import brief, convert, number_of
from bentpipe.stats.differences import Runs
from bentpipe.stats.warmup import Warmup, warmup_warnings

__all__ = [
    "REMEDIES",
    "caveats",
    "few_runs",
    "fixed_capacity",
    "grouped",
    "hidden_queue",
    "hidden_queues",
    "overruns",
    "remedied",
    "round_trip",
    "tail_drop",
]

REMEDIES: Mapping[str, str] = {
    "empty_receive_queue": 'Set receive_queue.rate, or watch = "transmit".',
    "aqm_behind_pep": 'Choose an AQM that marks ahead of the PEP (mark = "receive").',
    "scheduler_behind_pep": "The metric retransmitted shows the share of the carrier that this costs.",
    "sequence_ranking": 'Set flow_key = "connection", or position = "seen".',
    "slow_satellite_link": 'Set regulator.rate = "link", or the rate below that of the link.',
    "small_spacelink_window": "Remove the key, whose default is enough, or set it to at least that.",
    "no_ecn_marks": "Set marking = 'ecn' in the queue that signals congestion, or ecn = false.",
    "no_ecn": "Set ecn = true in a transport, or marking = 'drop'.",
    "nothing_split": 'Set marking = "drop" or pep.split.',
    "late_handover": "Set a longer run.duration, or an earlier handover.at.",
    "late_start": "Set a longer run.warmup.",
    "short_queue": "Set a limit of several packets.",
    "shadowed_name": "Choose another name, unless this is on purpose.",
    "unknown_printed_setting": "Correct the name, or define the setting.",
    "preset_rate": "Use the algorithm instead of the preset: its defaults suit the link.",
    "committed_rates": "Lower cir, or the number of terminals.",
    "unconnected": "Remove it, or name it in a link.",
    "unused_override": "Remove the override, or name a setting that has the key.",
}
"""Remedy by code of a scenario's warning."""

TAIL_DROP = (
    "no AQM: drops only from the full transmit queue, behind the PEP, which has told senders that the packets"
    " arrived"
)
NO_DROP = "no AQM and no limit: never drops; only the PEP's buffers and windows bound the queue"

_UNIFORM = re.compile(r'\{ uniform = \["([^"]+)", "([^"]+)"\]')
"""A uniform delay, as a manifest lists it."""
_HIDDEN = 100.0
"""Shortest wait in the PEP's buffers that is reported [ms]."""
_OVERRUN = 10.0
"""Least share of packets that the spacelink sends in vain that is reported [%]."""


class Measured(Runs, Protocol):
    """A result, as `bentpipe.Result`."""

    manifest: dict[str, Any]

    @property
    def settled(self) -> list[Warmup]:
        """Settling times of the main series."""

    @property
    def invalid(self) -> list[str]:
        """Reasons why live runs are invalid."""

    @property
    def late(self) -> list[str]:
        """Live runs whose links were late."""


def caveats(result: Measured) -> list[str]:
    """Return what to know before reading a result, the gravest first: a sentence or two each."""
    found: dict[str, list[str]] = {}
    hidden: dict[str, tuple[float, float]] = {}
    overrun: dict[str, float] = {}
    means = {
        setting: {name: _mean(values) for name, values in mine.items()}
        for setting, mine in result.values().items()
    }
    for setting in result.manifest["settings"]:
        name, effective = setting["name"], setting["effective"]
        # Results of former releases have no codes.
        codes = setting.get("warning_codes", [""] * len(setting["warnings"]))
        lines = [remedied(*each) for each in zip(setting["warnings"], codes, strict=True)]
        lines += fixed_capacity(effective)
        if waits := hidden_queue(means[name], round_trip(effective)):
            hidden[name] = waits
        if (share := _overrun(means[name], effective)) is not None:
            overrun[name] = share
        for line in lines:
            found.setdefault(line, []).append(name)
    return [
        *result.invalid,
        *grouped(found, len(result.settings)),
        *hidden_queues(hidden),
        *overruns(overrun),
        *result.late,
        *warmup_warnings(result.settled),
        *few_runs(len(result.seeds)),
    ]


def grouped(found: Mapping[str, Sequence[str]], settings: int) -> list[str]:
    """Return the lines with the names of their settings, unless they hold for all."""
    return [
        line if len(names) == settings else f"{', '.join(names)}: {line}" for line, names in found.items()
    ]


def remedied(warning: str, code: str) -> str:
    """Return a scenario's warning as sentences, with what to do if its code is known."""
    text = warning if warning.endswith(".") else f"{warning}."
    return f"{text} {REMEDIES.get(code, '')}".rstrip()


def fixed_capacity(effective: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line on capacities of an AQM that are set although the rate of its link varies.

    `effective` are the parameters in force, as a manifest lists them.
    """
    rows = {row["key"]: row for row in effective}
    found = []
    for key, row in rows.items():
        owner, dot, parameter = key.rpartition(".aqm.")
        if not dot or not parameter.endswith("capacity") or row["origin"] == "default":
            continue
        link = f"{owner.removesuffix('.queue')}.capacity"
        if _value(rows, f"{owner}.regulator.rate") == "link" or _value(rows, link) not in {"", "none"}:
            found.append(key)
    if not found:
        return []
    return [
        f"{', '.join(found)}: fixed, but the rate of the link varies; while the link is slower, the AQM acts"
        " too late. Without the key the default follows the link."
    ]


def round_trip(effective: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the mean round trip of the satellite link without queues [ms].

    The link is the gateway's with the longest delay. None without a gateway, with several whose round trips
    differ, and for delays that are neither constant nor uniform.
    """
    rows = {row["key"]: row for row in effective}
    gateways = [
        key.removesuffix(".pep.split").removeprefix("gateway.") for key in rows if key.endswith(".pep.split")
    ]
    found = {_round_trip_of(gateway, rows) for gateway in gateways}
    return found.pop() if len(found) == 1 else None


def _round_trip_of(gateway: str, rows: Mapping[str, Mapping[str, Any]]) -> float | None:
    trips = []
    for key in rows:
        link = key.removesuffix(".between")
        if link == key or f'"{gateway}"' not in _value(rows, key):
            continue
        forth = _value(rows, f"{link}.delay")
        # A delay that each connection draws once holds for both directions.
        there, back = map(_milliseconds, (forth, _value(rows, f"{link}.reverse.delay") or forth))
        if there is None or back is None:
            return None
        trips.append(there + back)
    return max(trips, default=None)


def hidden_queue(means: Mapping[str, float | None], trip: float | None) -> tuple[float, float] | None:
    """Return the waits in the PEP's buffers and in the queue [ms] if the first is longer; None otherwise.

    `means` are means over the runs by metric, `trip` is the round trip without queues [ms].
    """
    sojourn, queue = means.get("pep_sojourn"), means.get("queue_delay_mean")
    if sojourn is None or queue is None or trip is None:
        return None
    hidden = 1e3 * sojourn - trip - queue
    return (hidden, queue) if hidden > max(_HIDDEN, queue) else None


def hidden_queues(found: Mapping[str, tuple[float, float]]) -> list[str]:
    """Return a line on the settings whose data waits in the PEP's buffers, see `hidden_queue`."""
    if not found:
        return []
    waits = ", ".join(f"{name} {_time(pep)} against {_time(queue)}" for name, (pep, queue) in found.items())
    return [
        f"Data waits longer in the PEP's buffers than in the queue that the AQM controls: {waits}. Judge by"
        " pep_sojourn (these waits, the queue's and the round trip together) instead of queue_delay, and try"
        " a smaller pep.buffer."
    ]


def _overrun(means: Mapping[str, float | None], effective: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the transmit queue's drop rate [%] if a spacelink sends much of it again; None otherwise."""
    dropped, again = means.get("transmit_drop_rate"), means.get("retransmitted")
    if dropped is None or again is None or min(dropped, again) < _OVERRUN:
        return None
    return dropped if any(row["key"].endswith(".spacelink.window") for row in effective) else None


def overruns(found: Mapping[str, float]) -> list[str]:
    """Return a line on the settings whose transmit queue drops much of what the spacelink sends [%]."""
    if not found:
        return []
    rates = ", ".join(f"{name} {brief(rate, 2)} %" for name, rate in found.items())
    return [
        f"The transmit queue drops much of what the spacelink sends, which sends it again: {rates}. Its"
        " window is larger than path and queue together: set gateway.spacelink.window to the rate times the"
        " round trip, plus transmit_queue.limit."
    ]


def tail_drop(effective: Sequence[Mapping[str, Any]], *, behind_pep: bool) -> str:
    """Return where the subject drops packets without an AQM if it splits connections; else empty.

    `behind_pep` is true for a scheduler that drops by itself.
    """
    rows = {row["key"]: row for row in effective}
    back = ".return" if _value(rows, "run.subject").endswith(" return") else ""
    split = (key for key in rows if key.endswith(f"{back}.pep.split"))
    owner = next(split, "").removesuffix(".pep.split")
    if behind_pep or _value(rows, f"{owner}.pep.split") in {"", "[]"}:
        return ""
    if _value(rows, f"{owner}.aqm.algorithm") != "droptail":
        return ""
    limit = _value(rows, f"{owner}.transmit_queue.limit")
    return TAIL_DROP if limit not in {"", "none"} else NO_DROP


def few_runs(runs: int) -> list[str]:
    """Return a line if the runs of a setting are too few for intervals."""
    if runs == 1:
        return [
            "One run per setting: any intervals are from batch means, and differences may be due to chance."
            " Use --runs 5 or more."
        ]
    if runs == 2:
        return ["Two runs per setting are too few for intervals. Use --runs 5 or more."]
    return []


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _time(milliseconds: float) -> str:
    """Write a time with two digits: `85 ms`, `1.3 s`."""
    return f"{brief(milliseconds, 2)} ms" if milliseconds < 1000 else f"{brief(1e-3 * milliseconds, 2)} s"


def _value(rows: Mapping[str, Mapping[str, Any]], key: str) -> str:
    return str(rows[key]["value"]) if key in rows else ""


def _milliseconds(text: str) -> float | None:
    """Return the mean of a delay as a scenario writes it; None if it is neither constant nor uniform."""
    limits = _UNIFORM.match(text)
    total, texts = 0.0, limits.groups() if limits else (text,)
    for each in texts:
        found = number_of(each)
        time = None if found is None else convert(*found, "ms")
        if time is None:
            return None
        total += time
    return total / len(texts)
