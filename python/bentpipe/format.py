"""Formatting of numbers and names for the terminal, for reports and for messages."""

import difflib
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = [
    "ROUNDING",
    "and_list",
    "as_printed",
    "brief",
    "clock",
    "convert",
    "difference",
    "ends",
    "likelihood",
    "meant",
    "measured",
    "number",
    "number_of",
    "paragraphs",
    "percent",
    "plural",
    "quantity",
    "spread",
    "uncapitalized",
    "with_unit",
]

UNITS: dict[str, tuple[str, float]] = {
    "": ("share", 1.0),
    "%": ("share", 0.01),
    **{
        unit: ("rate", size)
        for unit, size in {"bit/s": 1.0, "kbit/s": 1e3, "Mbit/s": 1e6, "Gbit/s": 1e9}.items()
    },
    **{unit + "bit/s": ("rate", size) for unit, size in {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}.items()},
    **{unit + "bps": ("rate", size) for unit, size in {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}.items()},
    **{unit: ("time", size) for unit, size in {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}.items()},
    **{unit: ("time", size) for unit, size in {"min": 60.0, "h": 3600.0}.items()},
    **{
        unit: ("length", size)
        for unit, size in {"B": 1.0, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9}.items()
    },
    **{unit: ("length", size) for unit, size in {"KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30}.items()},
}
"""By unit: the quantity it measures and its size, as results and scenario files write units."""

_NUMBER = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([^\d\s].*?)?\s*")

ROUNDING = 1e-9
"""Share of the mean below which a standard deviation is a rounding error."""
_PAIR = math.tan(0.475 * math.pi)
"""Student's t with one degree of freedom, t(1; 0.975): the half-width of the interval of two runs, as a
multiple of half of their difference."""
_FAR = 900.0
"""Percentage above which a difference is written as a multiple."""


def number(value: float | None, decimals: int | None = None) -> str:
    """Write a number with four significant digits, or with the given decimals; a dash for None."""
    if value is None:
        return "–"
    if decimals is None:
        decimals = 0 if value == 0 else max(0, 3 - math.floor(math.log10(abs(value))))
        if value == int(value) and abs(value) >= 1:
            decimals = 0
    return f"{value:,.{decimals}f}".replace("-", "−")


def brief(value: float, digits: int = 6) -> str:
    """Write a number with at most `digits` significant digits and no trailing zeros."""
    rounded = float(f"{value:.{digits}g}")
    text = f"{rounded:,.0f}" if abs(rounded) >= 10**digits else f"{rounded:,.{digits}g}"
    return text.replace("-", "−")


def quantity(mean: float | None, ci95: float | None, runs: int | None = None) -> str:
    """Write a mean with its half-width, rounded to two digits of the half-width; the values of two runs."""
    if mean is None:
        return "–"
    if ci95 is None:
        return number(mean)
    if runs == 2:
        return ", ".join(_two(mean, ci95))
    # Two digits of the half-width, but at most six of the mean.
    size = math.floor(math.log10(abs(mean))) if mean else 0
    decimals = 5 - size if ci95 == 0 else min(5 - size, 1 - math.floor(math.log10(ci95)))
    decimals = max(0, decimals)
    if ci95 < 0.5 * 10.0**-decimals:
        return f"{number(mean)} ± 0"
    return f"{number(mean, decimals)} ± {number(ci95, decimals)}"


def _two(mean: float, ci95: float) -> list[str]:
    """Write the values of two runs, the smaller one first, with four digits of the larger."""
    low, high = mean - ci95 / _PAIR, mean + ci95 / _PAIR
    most = max(abs(low), abs(high))
    decimals = 3 - math.floor(math.log10(most)) if most else 0
    low, high = (round(value, max(0, decimals)) for value in (low, high))
    decimals = 0 if low == int(low) and high == int(high) else max(0, decimals)
    return [number(low, decimals), number(high, decimals)]


def ends(found: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Return the ends of a bar around a mean: those of its interval, of two runs their values."""
    mean, ci95 = found["mean"], found["ci95"]
    if found["runs"] == 2 and mean is not None and ci95 is not None:
        return mean - ci95 / _PAIR, mean + ci95 / _PAIR
    return found["ci_low"], found["ci_high"]


def measured(found: Mapping[str, Any], name: str = "mean", *, signed: bool = False) -> str:
    """Write a mean with its interval: `12.3 ± 0.4`, or `12.3 [12.0, 12.9]` for a bootstrap interval.

    Two runs have no useful interval, and are written as their values: `441, 459`. `signed` writes `+` before
    values above zero. `found` may lack `runs`.
    """
    mean, ci95, runs = found[name], found["ci95"], found.get("runs")
    plus = "+" if signed and mean and mean > 0 else ""
    if runs == 2 and mean is not None and ci95 is not None:
        if found.get("pairing") == "independent":
            return plus + number(mean)
        values = _two(mean, ci95)
        return ", ".join(
            f"+{each}" if signed and each.strip("0.,") and each[0] != "−" else each for each in values
        )
    if found["method"] != "bootstrap" or not ci95:
        return plus + quantity(mean, ci95)
    decimals = max(0, min(5, 1 - math.floor(math.log10(ci95))))
    low, high = number(found["ci_low"], decimals), number(found["ci_high"], decimals)
    return f"{plus}{number(mean, decimals)} [{low}, {high}]"


def likelihood(p: float | None) -> str:
    """Write a p-value; a dash for None."""
    if p is None:
        return "–"
    decimals = 4 if p < 0.01 else 3 if p < 0.1 else 2
    return "< 0.0001" if p < 0.0001 else f"{p:.{decimals}f}"


def percent(share: float) -> str:
    """Write a share in percent without decimals; only 0 and 1 are written as 0 and 100 %."""
    text = f"{100 * share:.0f}"
    if text in {"0", "100"} and 0 < share < 1:
        return "over 99 %" if share > 0.5 else "under 1 %"
    return f"{text} %"


def spread(found: Mapping[str, Any]) -> str:
    """Write an engine's standard deviation with three digits; a dash for None, 0 for rounding errors."""
    std, mean = found["std"], found["mean"]
    if std is None:
        return "–"
    return "0" if mean and std < ROUNDING * abs(mean) else brief(std, 3)


def difference(found: Mapping[str, Any]) -> str:
    """Write the difference of an engine's mean from the first engine's: `+12.3 ± 0.4 %`, or `× 12`."""
    value = found["difference"]
    if value is None:
        return "–"
    if value > _FAR:
        return f"× {brief(1 + value / 100, 2)}"
    text = quantity(value, found["difference_ci95"]) if found["difference_ci95"] else brief(value, 3)
    return f"{'+' if value > 0 else ''}{text} %"


def as_printed(found: Mapping[str, Any] | None) -> str:
    """Write a printed mean, with its standard deviation in parentheses."""
    if found is None:
        return ""
    text = "" if found["mean"] is None else brief(found["mean"])
    return text if found["std"] is None else f"{text} ({brief(found['std'])})".strip()


def convert(value: float, unit: str, to: str) -> float | None:
    """Convert between units; None if they measure different quantities."""
    if unit == to:
        return value
    kind, scale = UNITS.get(unit, (unit, 1.0))
    other, target = UNITS.get(to, (to, 1.0))
    return value * scale / target if kind == other else None


def number_of(text: str) -> tuple[float, str] | None:
    """Split a value into its number and its unit; None if it does not begin with a number."""
    found = _NUMBER.fullmatch(text)
    return (float(found[1]), found[2] or "") if found else None


def uncapitalized(label: str) -> str:
    """Return a label as it stands within a sentence; an abbreviation keeps its capitals."""
    return label if label[:2].isupper() else label[:1].lower() + label[1:]


def with_unit(label: str, unit: str) -> str:
    """Return a label with its unit in brackets, if it has one."""
    return f"{label} [{unit}]" if unit else label


def clock(seconds: float) -> str:
    """Write a time span: `45 s`, `2 min`, `1 h 30 min`."""
    if seconds < 60:
        return f"{seconds:g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = [(hours, "h"), (minutes, "min"), (rest, "s")]
    return " ".join(f"{count} {unit}" for count, unit in parts if count)


def paragraphs(text: str) -> list[str]:
    """Split a text at its empty lines and join the lines of each part."""
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n", text) if part.strip()]


def and_list(names: Iterable[str]) -> str:
    """Write `a`, `a and b`, or `a, b and c`."""
    each = list(names)
    return " and ".join([", ".join(each[:-1]), each[-1]] if len(each) > 1 else each)


def meant(name: str, known: Iterable[str], *, most: int = 1, cutoff: float = 0.6) -> str:
    """Write `did you mean a, b?` with the known names that are close to a wrong one; empty without any."""
    near = difflib.get_close_matches(name, list(known), n=most, cutoff=cutoff)
    return f"did you mean {', '.join(near)}?" if near else ""


def plural(count: int, noun: str) -> str:
    """Write `1 run`, `2 runs`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
