"""Answers from which a scenario is written, and their checks."""

import difflib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from bentpipe import _core
from bentpipe.errors import UsageError
from bentpipe.format import UNITS, brief, number_of
from bentpipe.new_scenario.tables import ORBITS, PROFILES, USES, DayProfile, Orbit, rate_text

__all__ = [
    "MIX",
    "Answers",
    "check_aqm",
    "check_handover",
    "check_orbit",
    "check_plan",
    "check_profile",
    "check_subscribers",
    "default_aqm",
    "is_scheduler",
    "marks_where_it_watches",
    "mix_of",
    "rate_of",
]

MIX = ",".join(f"{use.name}={brief(100 * use.share)}%" for use in USES.values() if use.share)
"""Default traffic mix."""

_MOST_SUBSCRIBERS = 10_000
_MOST = 100_000
"""Limits of the subscribers, and of the users of one kind."""
_SLOWEST, _FASTEST = 1e3, 100e9
"""Bounds of a rate [bit/s]."""


@dataclass(frozen=True, slots=True)
class Answers:
    """Everything that a scenario is written from; the fields are checked already."""

    orbit: Orbit
    down: float
    """Rate of the carrier to the subscribers [bit/s]."""
    up: float
    """Rate of the return link [bit/s]."""
    subscribers: int
    plan: float | None
    """Rate of a subscriber [bit/s]; `None` for no limit."""
    mix: Mapping[str, int]
    """Number of users by the name of their use."""
    pep: bool
    rain: bool
    handover: bool
    aqm: str
    """Name of an AQM or scheduler."""
    profile: DayProfile | None = None
    """Load over a day; `None` for the peak all the time."""


def default_aqm(*, pep: bool) -> str:
    """Return the AQM or scheduler of a gateway if none is chosen.

    Behind a PEP, the satellite carries dropped data again, so the default there drops nothing and gives each
    flow a fair share. Elsewhere senders notice drops.
    """
    return "drr" if pep else "fq_codel"


def check_orbit(text: str, where: str = "--orbit") -> Orbit:
    """Return the orbit of this name."""
    name = text.strip().lower()
    if name not in ORBITS:
        raise UsageError(f'{where}: found "{text}"; allowed: {", ".join(ORBITS)}')
    return ORBITS[name]


def rate_of(text: str, where: str) -> float:
    """Return a rate [bit/s]."""
    found = number_of(text)
    units = {unit.lower(): size for unit, (kind, size) in UNITS.items() if kind == "rate" and unit}
    if found is None or found[1].lower() not in units:
        raise UsageError(
            f'{where}: found "{text}"; allowed: a rate with its unit, such as "20 Mbps" (bps, kbps, Mbps,'
            " Gbps)"
        )
    rate = found[0] * units[found[1].lower()]
    if not _SLOWEST <= rate <= _FASTEST:
        raise UsageError(f'{where}: found "{text}"; allowed: 1 kbps to 100 Gbps')
    return rate


def check_plan(text: str, down: float, where: str = "--plan") -> float | None:
    """Return the rate of a subscriber [bit/s]; `None` for no limit."""
    if text.strip().lower() in {"", "none", "no"}:
        return None
    rate = rate_of(text, where)
    if rate > down:
        raise UsageError(
            f'{where}: found "{text}"; allowed: at most the rate of the carrier, {rate_text(down)} (--down),'
            " or none for no limit"
        )
    return rate


def check_subscribers(text: str, where: str = "--subscribers") -> int:
    """Return the number of subscribers."""
    try:
        count = int(text)
    except ValueError:
        count = 0
    if not 1 <= count <= _MOST_SUBSCRIBERS:
        raise UsageError(f'{where}: found "{text}"; allowed: a whole number, 1 to {_MOST_SUBSCRIBERS}')
    return count


def mix_of(text: str, subscribers: int, where: str = "--mix") -> dict[str, int]:
    """Return the number of users by use, from counts or shares of the subscribers."""
    counts: dict[str, int] = {}
    for part in text.split(","):
        name, equals, value = (each.strip() for each in part.partition("="))
        key = name.lower()
        if key.startswith(("upload", "backup")):
            raise UsageError(
                f'{where}: found "{name}": a new scenario has downloads only; add uploads to the file as'
                f" docs/return-direction.md describes; allowed: {', '.join(USES)}"
            )
        if key not in USES:
            raise UsageError(
                f'{where}: found "{name}"; allowed: {", ".join(USES)}, each with a count or a share, such as'
                f' "web=60%,voice=20"{_near(key, USES)}'
            )
        if key in counts:
            raise UsageError(f'{where}: found "{key}" twice; give one count or share for it')
        counts[key] = _count(value if equals else "", subscribers, f"{where}: {key}")
    if not any(counts.values()):
        raise UsageError(
            f'{where}: found "{text}", which has no traffic; allowed: at least one count above 0'
        )
    return {name: counts[name] for name in USES if counts.get(name)}


def _count(text: str, subscribers: int, where: str) -> int:
    """Return a count from a number or a share of the subscribers; every share above 0 is at least one."""
    share = text.endswith("%")
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = math.nan
    count = value * subscribers / 100 if share else value
    # A comparison with NaN is false.
    if not 0 <= count <= _MOST or not (share or value == int(value)):
        raise UsageError(
            f'{where}: found "{text}"; allowed: a count such as 20, or a share of the subscribers such as'
            f" 20%, up to {_MOST} of each"
        )
    return max(round(count), 1) if count > 0 else 0


def check_aqm(text: str, where: str = "--aqm") -> str:
    """Return the name of an AQM or scheduler."""
    known = [*_registry()["aqms"], *_registry()["schedulers"]]
    name = text.strip().lower()
    if name not in known:
        raise UsageError(
            f'{where}: found "{text}"; allowed: {", ".join(known)}{_near(name, known)}'
            "\nThey are described by: bentpipe list aqms, bentpipe list schedulers"
        )
    return name


def check_profile(text: str, where: str = "--profile") -> DayProfile | None:
    """Return the load over a day of this name; `None` for none."""
    name = text.strip().lower()
    if name in {"", "none", "no"}:
        return None
    if name not in PROFILES:
        raise UsageError(f'{where}: found "{text}"; allowed: {", ".join(PROFILES)}, or none')
    return PROFILES[name]


def check_handover(orbit: Orbit, *, handover: bool, where: str = "--handover") -> bool:
    """Return `handover` if the orbit's satellites change within a run."""
    if handover and not orbit.handover_ms:
        able = [each.name for each in ORBITS.values() if each.handover_ms]
        raise UsageError(
            f"{where}: found --orbit {orbit.name}, whose satellites do not change within minutes; allowed:"
            f" with --orbit {', '.join(able)}"
        )
    return handover


@cache
def _registry() -> dict[str, dict[str, dict[str, object]]]:
    """Return the entries of the registry by kind and name."""
    found = json.loads(_core.registry())
    return {kind: {each["name"]: each for each in found[kind]} for kind in ("aqms", "schedulers")}


def is_scheduler(name: str) -> bool:
    """Return True for a scheduler, False for an AQM."""
    return name in _registry()["schedulers"]


def marks_where_it_watches(name: str) -> bool:
    """Return True for an AQM that can mark only at the queue that it watches."""
    return not is_scheduler(name) and _registry()["aqms"][name]["placement"] != "anywhere"


def _near(name: str, known: Mapping[str, object] | list[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else ""
