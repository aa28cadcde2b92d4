"""Limits of good and bad for each measure of quality, with their sources.

A value at the limit of good is good; a value at the limit of bad is fair. A scenario's table `thresholds` and
`with_overrides` change limits.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from bentpipe.errors import UsageError

__all__ = [
    "THRESHOLDS",
    "Grade",
    "Limits",
    "Threshold",
    "markdown",
    "of_scenario",
    "rating",
    "with_overrides",
]

Grade = Literal["good", "fair", "bad"]

Limits = Sequence[tuple[str, float, float]]
"""Limits that a scenario sets: measure, good and bad of each."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """Limits of one measure."""

    measure: str
    """Kind of traffic and quantity."""
    description: str
    """Meaning of the values."""
    unit: str
    """Unit of the values, empty for a number."""
    good: float
    """Limit up to which, or from which, values are good."""
    bad: float
    """Limit beyond which values are bad."""
    source: str
    """Recommendation or paper with its section, for good and for bad."""
    higher: bool = False
    """True if higher values are better."""

    def grade(self, value: float) -> Grade:
        """Return the grade of a value."""
        sign = 1 if self.higher else -1
        if sign * value >= sign * self.good:
            return "good"
        return "bad" if sign * value < sign * self.bad else "fair"


THRESHOLDS: Mapping[str, Threshold] = MappingProxyType(
    {
        each.measure: each
        for each in (
            Threshold(
                "voice.r",
                "rating of a call",
                "",
                80,
                60,
                "ITU-T G.109 (09/1999), Table 1: satisfied from 80, nearly all users dissatisfied below 60",
                higher=True,
            ),
            Threshold(
                "voice.mos",
                "opinion of a call",
                "",
                4.03,
                3.10,
                "ITU-T G.107 (06/2015), Table B.1: MOS of R = 80 and 60",
                higher=True,
            ),
            Threshold(
                "voice.delay",
                "one-way delay from mouth to ear",
                "ms",
                150,
                400,
                "ITU-T G.114 (05/2003); G.1010 (11/2001), Table I.1: preferred, and limit",
            ),
            Threshold(
                "voice.loss",
                "packets lost or too late",
                "%",
                1,
                3,
                "good: 3GPP TS 23.501, Table 5.7.4-1, 5QI 1; bad: ITU-T G.1010 (11/2001), Table I.1",
            ),
            Threshold(
                "page.ttfb",
                "time to first byte",
                "s",
                0.8,
                1.8,
                "Google Web Vitals: Time to First Byte",
            ),
            Threshold(
                "page.load",
                "time from request to the last object",
                "s",
                2,
                4,
                "ITU-T G.1010 (11/2001), Table I.2: web browsing, preferred and acceptable",
            ),
            Threshold(
                "video.mos",
                "opinion of a video session",
                "",
                4,
                3,
                "ITU-T P.910 (2008), absolute category rating: 4 is good, 3 is fair",
                higher=True,
            ),
            Threshold(
                "video.startup",
                "time from request to the first picture",
                "s",
                2,
                10,
                "good: Krishnan, Sitaraman, IMC 2012, abstract: viewers leave after 2 s; bad: ITU-T G.1010 "
                "(11/2001), Table I.1: one-way video",
            ),
            Threshold(
                "video.stalls",
                "stalled time as a share of media time",
                "%",
                1,
                7,
                "good: Krishnan, Sitaraman, IMC 2012, abstract: 1 % costs 5 % of the viewing time; bad, "
                "derived: Hoßfeld et al., ISM 2011: one stall per minute has MOS 3 at 4.4 s",
            ),
            Threshold(
                "game.delay",
                "one-way delay",
                "ms",
                50,
                200,
                "good: 3GPP TS 23.501, Table 5.7.4-1, 5QI 3; bad: ITU-T G.1010 (11/2001), Table I.2",
            ),
            Threshold(
                "game.loss",
                "packets lost",
                "%",
                0.1,
                3,
                "good: 3GPP TS 23.501, Table 5.7.4-1, 5QI 3; bad: Beigbeder et al., NetGames 2004: up to 3 % "
                "without effect on players",
            ),
            Threshold(
                "iot.delay",
                "one-way delay of a message to a device",
                "ms",
                2000,
                10_000,
                "good: RFC 7252, section 4.8: CoAP repeats after ACK_TIMEOUT; bad: ITU-R M.2412-0, section "
                "7.1.3: a packet later than 10 s is in outage",
            ),
            Threshold(
                "iot.loss",
                "messages lost, or too late",
                "%",
                1,
                10,
                "good: ITU-R M.2412-0, section 7.1.3: outage of 1 %; bad, a convention: one message in "
                "a hundred is lost twice in a row",
            ),
            Threshold(
                "download.time",
                "time for a file of up to 10 MB",
                "s",
                15,
                60,
                "ITU-T G.1010 (11/2001), Table I.2: bulk data, preferred and acceptable",
            ),
            Threshold(
                "download.plan",
                "goodput as a share of the subscriber's plan",
                "%",
                95,
                80,
                "FCC, Measuring Broadband America 2015, Chart 5",
                higher=True,
            ),
            Threshold(
                "responsiveness",
                "round trips under load",
                "RPM",
                1000,
                300,
                "draft-ietf-ippm-responsiveness-09, classification: good from 1000, poor below 300",
                higher=True,
            ),
        )
    }
)
"""Thresholds by measure."""


def rating(
    measure: str, value: float | None, thresholds: Mapping[str, Threshold] = THRESHOLDS
) -> Grade | None:
    """Return the grade of a value of a measure; None if the value is None or NaN, such as without traffic."""
    if measure not in thresholds:
        raise UsageError(f"thresholds have no measure {measure!r}: {', '.join(thresholds)} are allowed")
    if value is None or math.isnan(value):
        return None
    return thresholds[measure].grade(value)


def of_scenario(limits: Limits) -> dict[str, Threshold]:
    """Return the thresholds with the limits that a scenario sets, as `Scenario.thresholds`."""
    changed = dict(THRESHOLDS)
    for measure, good, bad in limits:
        changed[measure] = replace(changed[measure], good=good, bad=bad, source="set in the scenario")
    return changed


def with_overrides(overrides: Mapping[str, Mapping[str, object]]) -> dict[str, Threshold]:
    """Return the thresholds with other limits: `good`, `bad` or both by measure."""
    changed = dict(THRESHOLDS)
    for measure, limits in overrides.items():
        if measure not in changed:
            raise UsageError(f"thresholds have no measure {measure!r}: {', '.join(changed)} are allowed")
        values = {name: _limit(measure, name, value) for name, value in limits.items()}
        if not values:
            continue
        base = changed[measure]
        new = replace(
            base,
            good=values.get("good", base.good),
            bad=values.get("bad", base.bad),
            source="set by the user",
        )
        if (new.good < new.bad) if new.higher else (new.good > new.bad):
            raise UsageError(
                f"thresholds of {measure} are good {new.good:g} and bad {new.bad:g}: good at "
                f"{'least' if new.higher else 'most'} {new.bad:g} is allowed, because "
                f"{'higher' if new.higher else 'lower'} values are better"
            )
        changed[measure] = new
    return changed


def _limit(measure: str, name: str, value: object) -> float:
    """Return a limit as a number, or raise an error that names it."""
    if name not in ("good", "bad"):
        raise UsageError(f"thresholds of {measure} have a limit {name!r}: good, bad are allowed")
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise UsageError(f"threshold {name!r} of {measure} is {value!r}: a finite number is allowed")
    return float(value)


def markdown() -> str:
    """Return the table of thresholds for docs/qoe.md."""
    lines = ["| measure | description | good | bad | source |", "| --- | --- | --: | --: | --- |"]
    for each in THRESHOLDS.values():
        unit = f" {each.unit}" if each.unit else ""
        good, bad = (
            (f"≥ {each.good:g}", f"< {each.bad:g}")
            if each.higher
            else (f"≤ {each.good:g}", f"> {each.bad:g}")
        )
        lines.append(
            f"| `{each.measure}` | {each.description} | {good}{unit} | {bad}{unit} | {each.source} |"
        )
    return "\n".join(lines) + "\n"
