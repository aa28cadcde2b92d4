"""Orbits and traffic kinds of new scenarios, with the sources of their numbers."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bentpipe.format import brief, plural

__all__ = [
    "CLEAR_SKY",
    "LOWEST_VIDEO",
    "ORBITS",
    "PROFILES",
    "USES",
    "DayProfile",
    "Demand",
    "Orbit",
    "Use",
    "rate_text",
]


@dataclass(frozen=True, slots=True)
class Orbit:
    """An orbit and the delay over its satellite."""

    name: str
    title: str
    delay_ms: int
    """One-way delay from the gateway over the satellite to the terminal [ms]."""
    source: str
    handover_ms: int = 0
    """Greatest additional delay of a satellite with handovers, from which `delay_ms` then differs [ms]."""
    handover_delay_ms: int = 0
    """Smallest one-way delay with handovers [ms]."""


ORBITS: Mapping[str, Orbit] = {
    each.name: each
    for each in (
        Orbit(
            "geo",
            "GEO",
            260,
            "RFC 2488, section 2: 240 ms below the satellite, 279 ms at the edge of its view",
        ),
        Orbit("meo", "MEO", 70, "at a height of 8062 km, 54 ms below the satellite, 86 ms at the horizon"),
        Orbit(
            "leo",
            "LEO",
            20,
            "an assumption: half of a round trip of about 40 ms to a satellite at 550 km",
            handover_ms=15,
            handover_delay_ms=15,
        ),
    )
}
"""Orbits by name, in the order in which they are offered."""


@dataclass(frozen=True, slots=True)
class DayProfile:
    """Load over a day."""

    name: str
    source: str
    shares: tuple[float, ...]
    """Share of the peak at each full hour, from midnight."""


def _shares(text: str) -> tuple[float, ...]:
    return tuple(float(word) for word in text.split())


PROFILES: Mapping[str, DayProfile] = {
    each.name: each
    for each in (
        DayProfile(
            "fixed",
            "downstream of Orange France's fixed network, 2013 (Feknous et al., Internet traffic analysis:"
            " A case study from two major European operators, ISCC 2014; digitized by"
            " github.com/tmc-calc/mob-traffic-ds)",
            _shares(
                "0.92 0.82 0.62 0.45 0.33 0.25 0.20 0.19 0.26 0.36 0.48 0.60"
                " 0.70 0.70 0.71 0.74 0.80 0.81 0.84 0.88 0.91 0.92 0.99 0.99"
            ),
        ),
        DayProfile(
            "cellular",
            "mean of European cellular networks (EARTH project, deliverable D2.3, 2012; digitized by"
            " github.com/tmc-calc/mob-traffic-ds)",
            _shares(
                "0.79 0.62 0.42 0.28 0.20 0.16 0.15 0.19 0.26 0.39 0.51 0.59"
                " 0.64 0.65 0.68 0.72 0.75 0.78 0.81 0.86 0.94 0.99 1.00 0.92"
            ),
        ),
    )
}
"""Profiles of a day by name."""

CLEAR_SKY = {"es_n0": 13, "margin": 1, "efficiency": 3.300184}
"""Carrier of a fading link: Es/N0 and margin [dB], and the efficiency [bit/symbol] in clear sky (16APSK 5/6),
from ETSI EN 302 307-1, table 13."""

LOWEST_VIDEO = 145e3
"""Lowest bitrate of adaptive video [bit/s], of Apple's HLS Authoring Specification."""


@dataclass(frozen=True, slots=True)
class Demand:
    """The number of users of one kind, and the rates that bound what they get."""

    count: int
    down: float
    """Rate of the carrier to the subscribers [bit/s]."""
    plan: float | None
    """Rate of a subscriber [bit/s]."""


@dataclass(frozen=True, slots=True)
class Use:
    """One use of the link in a traffic mix; its name is that of the traffic."""

    name: str
    noun: str
    """One of them, for messages."""
    share: float
    """Default share of the subscribers."""
    comment: str
    """Model and sources, one or more lines."""
    keys: Callable[[Demand], list[str]]
    """Lines of its table, without `from` and `to`."""
    rate: Callable[[Demand], float] | None
    """Mean rate of one user [bit/s]; `None` if each takes all that it gets."""
    has_days: bool = True
    """True if its load follows that of people over a day."""


def rate_text(rate: float) -> str:
    """Write a rate as TOML, for example `20 Mbps`."""
    for unit, size in (("Gbps", 1e9), ("Mbps", 1e6), ("kbps", 1e3)):
        if rate >= size:
            return f"{brief(rate / size, 9).replace(',', '')} {unit}"
    return f"{rate:.0f} bps"


_OBJECTS, _OBJECT_SIZE = 68, 36
"""Objects of a page, and the mean size of one [KB]."""
_CYCLE = 35.0
"""Assumed time from one page to the next: reading, and 5 s of loading [s]."""


def _web(demand: Demand) -> list[str]:
    return [
        'kind = "pages"',
        'transport = "linux"',
        f"sessions = {demand.count}",
        'http = "2"   # or "1.1"',
        f"objects_per_page = {_OBJECTS}",
        f'object_size = {{ exponential = "{_OBJECT_SIZE} KB" }}',
        'think_time = { exponential = "30 s" }',
        f'ramp = {{ sessions = {demand.count}, over = "40 s" }}',
    ]


def _video(demand: Demand) -> list[str]:
    return [
        'kind = "dash"',
        'transport = "linux"',
        f"flows = {demand.count}",
        'start = { uniform = ["0 s", "10 s"] }',
    ]


def _voice(demand: Demand) -> list[str]:
    return [
        'kind = "voip"',
        f"flows = {demand.count}",
        'codec = "g711"   # or "g729": 24 kbit/s in packets of 60 B',
        'start = { uniform = ["0 s", "10 s"] }',
    ]


def _downloads(demand: Demand) -> list[str]:
    return [
        'kind = "bulk"',
        'transport = "linux"',
        f"flows = {demand.count}",
        'start = { uniform = ["0 s", "10 s"] }',
    ]


_DEVICES = 40
"""Devices of a household: 3GPP TR 45.820, Annex E.1."""
_PERIODS = ((0.40, 24 * 3600), (0.40, 2 * 3600), (0.15, 3600), (0.05, 1800))
"""Share of the devices and time between two reports or commands of one [s]: Annex E.2."""
_REPORTING = 0.8
"""Share of the devices that report; the others get commands: Annex E.2."""
_ACKNOWLEDGED = 0.5
"""Share of the reports that the application acknowledges: Annex E.2."""
_HEADERS = 4 + 13 + 8 + 40
"""CoAP, DTLS, UDP and IP without header compression [bytes]: Annex E.2."""
_HOUSEHOLDS = 10
"""Households per flow, because rates are whole numbers of bit/s."""
_COMMAND = 20
"""Payload of a command; an acknowledgement has none [bytes]: Annex E.2."""


def _iot_messages() -> tuple[float, float]:
    """Return the commands and acknowledgements to the devices of a household [1/s]."""
    rate = _DEVICES * sum(share / period for share, period in _PERIODS)
    return rate * (1 - _REPORTING), rate * _REPORTING * _ACKNOWLEDGED


def _iot_rate() -> float:
    """Return the rate to the devices of a household [bit/s]."""
    commands, acknowledgements = _iot_messages()
    return 8 * (commands * (_HEADERS + _COMMAND) + acknowledgements * _HEADERS)


def _iot(demand: Demand) -> list[str]:
    commands, acknowledgements = _iot_messages()
    flows = math.ceil(demand.count / _HOUSEHOLDS)
    weights = f"{brief(commands / acknowledgements, 6)}, 1"
    packet = f'choice = ["{_HEADERS + _COMMAND} B", "{_HEADERS} B"], weights = [{weights}]'
    return [
        'kind = "poisson"   # the sum of many periodic devices',
        'application = "iot"',
        f"flows = {flows}   # for {plural(demand.count, 'household')}",
        f'rate = "{max(1, round(demand.count * _iot_rate() / flows))} bps"   # a household:'
        f" {_iot_rate():.3g} bit/s, a message in {1 / (commands + acknowledgements):.0f} s",
        f"packet = {{ {packet} }}   # commands, acknowledgements",
    ]


USES: Mapping[str, Use] = {
    each.name: each
    for each in (
        Use(
            "web",
            "web session",
            0.6,
            "Objects and their sizes: 71 and 66 requests, 2652 and 2311 KB, medians of desktop and mobile"
            " pages (HTTP Archive, Web Almanac 2024). Reading time: 3GPP TR 25.892.",
            _web,
            lambda _: 8e3 * _OBJECTS * _OBJECT_SIZE / _CYCLE,
        ),
        Use(
            "video",
            "video stream",
            0.15,
            "Adapts to the throughput: bitrates of Apple's HLS Authoring Specification (H.264), 0.145 to"
            " 7.8 Mbit/s, by the player's buffer (BBA-0).",
            _video,
            None,
        ),
        Use(
            "voice",
            "call",
            0.2,
            "ITU-T G.711: 20 ms of speech in packets of 200 B with headers (RFC 3551); talk spurts and"
            " silences of ITU-T P.59.",
            _voice,
            lambda _: 80e3 * 1.004 / (1.004 + 1.587),
        ),
        Use(
            "downloads",
            "download",
            0.04,
            "Each takes all the rate that it gets, to the end of the run.",
            _downloads,
            None,
        ),
        Use(
            "iot",
            "IoT household",
            0.0,
            "Messages to IoT devices over CoAP: 3GPP TR 45.820 V13.1.0, 40 devices per household (Annex E.1);"
            " network commands of 20 B, and acknowledgements of half of the periodic reports, with 65 B of"
            " headers, every day, 2 h, 1 h or 30 min (40, 40, 15, 5 % of the devices; 80 % report, 20 % get"
            " commands; Annex E.2). Not included: the reports, which are uploads, and"
            " software updates, one per device in 180 days.",
            _iot,
            lambda _: _iot_rate(),
            has_days=False,
        ),
    )
}
"""Uses by name, in the order of the file."""
