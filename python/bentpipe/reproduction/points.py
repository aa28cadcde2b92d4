"""The points of an experiment: given one by one, or computed by a law."""

import math
from collections.abc import Callable

from bentpipe.reproduction.paper import Point
from bentpipe.reproduction.table import Table
from bentpipe.runs.plan import overrides_from

__all__ = ["LAWS", "overrides_of", "points_from"]


def overrides_of(given: Table) -> tuple[str, ...]:
    """Return what the table `set` changes in a scenario."""
    return tuple(overrides_from(given.table("set").values()))


def points_from(given: Table) -> tuple[Point, ...]:
    """Read `points`: a list of them, or what computes them; without it, a single one."""
    if "points" not in given:
        return (Point("", 0.0, ()),)
    if given.is_table("points"):
        laws = given.table("points")
        found = LAWS[laws.choice("law", LAWS)](laws)
        # Where there is none, not all keys were read.
        if found:
            laws.done()
        return tuple(found)
    points = []
    for each in given.tables("points"):
        x = each.take("x", float)
        points.append(Point(each.take("label", str, f"{x:g}"), x, overrides_of(each)))
        each.done()
    return tuple(points)


def _above_zero(given: Table, key: str) -> float:
    value = given.take(key, float)
    if not 0 < value < math.inf:
        raise given.wrong(key, value, "a number above 0")
    return value


def _check_share(given: Table, key: str, share: float) -> None:
    if not 0 < share < 100:
        raise given.wrong(key, share, "above 0 and below 100 %")


def _files(given: Table, share: float, short: float, ratio: float) -> tuple[str, ...]:
    """Return what makes short files `share` of a load of short and long ones, `ratio` times as long."""
    load = _above_zero(given, "load") * _above_zero(given, "rate_bps")
    sources = given.whole("sources")
    found = []
    for name, size, part in (("short", short, share), ("long", short * ratio, 1 - share)):
        interval = sources * size * 8 / (part * load)
        found += [
            f'traffic.{name}.size="{size:.0f} B"',
            f'traffic.{name}.interval={{ exponential = "{interval:.9f} s" }}',
        ]
    return tuple(found)


def _shares(given: Table) -> list[Point]:
    """Short files' share of a constant load [%]: the sizes stay, and how often either begins changes."""
    short, ratio = _above_zero(given, "short_bytes"), _above_zero(given, "ratio")
    shares = given.numbers("shares")
    for each in shares:
        _check_share(given, "shares", each)
    return [Point(f"{each:g} %", each, _files(given, each / 100, short, ratio)) for each in shares]


def _sizes(given: Table) -> list[Point]:
    """Sizes of short files [KB] that are a constant share of a constant load."""
    share, ratio = given.take("share", float), _above_zero(given, "ratio")
    _check_share(given, "share", share)
    sizes = given.numbers("sizes_kb")
    for each in sizes:
        if not 0 < each < math.inf:
            raise given.wrong("sizes_kb", each, "above 0 KB")
    return [Point(f"{each:g} KB", each, _files(given, share / 100, 1000 * each, ratio)) for each in sizes]


def _one_value(given: Table) -> list[Point]:
    """Points at which several keys have one value, with a unit perhaps."""
    keys, unit = given.texts("keys"), given.take("unit", str, "")

    def point(value: float) -> Point:
        text = f"{int(value) if value.is_integer() else value} {unit}".strip()
        return Point(text, value, tuple(f"{key}={text}" for key in keys))

    return [point(each) for each in given.numbers("values")]


LAWS: dict[str, Callable[[Table], list[Point]]] = {
    "shares of a load": _shares,
    "sizes at a load": _sizes,
    "one value": _one_value,
}
"""What computes an experiment's points."""
