"""The points of an experiment: given one by one, or computed by a law."""

from collections.abc import Callable

from bentpipe.plan import overrides_from
from bentpipe.reproduction.paper import Point
from bentpipe.reproduction.table import Table

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
        laws.done()
        return tuple(found)
    points = []
    for each in given.tables("points"):
        x = each.take("x", float)
        points.append(Point(each.take("label", str, f"{x:g}"), x, overrides_of(each)))
        each.done()
    return tuple(points)


def _files(given: Table, share: float, short: float, ratio: float) -> tuple[str, ...]:
    """Return what makes short files `share` of a load of short and long ones, `ratio` times as long."""
    load = given.take("load", float) * given.take("rate_bps", float)
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
    short, ratio, shares = (
        given.take("short_bytes", float),
        given.take("ratio", float),
        given.numbers("shares"),
    )
    for each in shares:
        if not 0 < each < 100:
            raise given.wrong("shares", each, "above 0 and below 100 %")
    return [Point(f"{each:g} %", each, _files(given, each / 100, short, ratio)) for each in shares]


def _sizes(given: Table) -> list[Point]:
    """Sizes of short files [KB] that are a constant share of a constant load."""
    share, ratio = given.take("share", float), given.take("ratio", float)
    return [
        Point(f"{each:g} KB", each, _files(given, share / 100, 1000 * each, ratio))
        for each in given.numbers("sizes_kb")
    ]


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
