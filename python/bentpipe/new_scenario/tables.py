"""Orbits and traffic kinds of new scenarios, with the sources of their numbers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bentpipe.format import brief

__all__ = ["CLEAR_SKY", "LOWEST_VIDEO", "ORBITS", "USES", "Demand", "Orbit", "Use", "rate_text"]


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
    )
}
"""Uses by name, in the order of the file."""
