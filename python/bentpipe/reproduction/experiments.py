"""Experiments of a paper as data: scenarios, cases, points, and grids of settings to tune."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bentpipe.reproduction.measures import Measure, Objective
from bentpipe.reproduction.toml_table import TomlTable
from bentpipe.runs.plan import overrides_from, shipped

__all__ = [
    "CLAIMS",
    "Axis",
    "Case",
    "Experiment",
    "Grid",
    "Point",
    "Tuning",
    "experiments_from",
    "find_twice",
    "objectives_from",
]

CLAIMS = "claims.toml"
"""Name of the file with a paper's data."""

FindMeasure = Callable[[TomlTable, str, str], Measure]
"""Returns the measure of a name that a table has under a key."""


@dataclass(frozen=True, slots=True)
class Case:
    """One row or curve of an experiment: a setting and further overrides."""

    label: str
    setting: str | None
    """Setting of the scenario; `None` for the scenario without one."""
    overrides: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Point:
    """One point on an experiment's axis."""

    label: str
    x: float
    overrides: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Axis:
    """Parameters of an AQM that vary together."""

    names: tuple[str, ...]
    levels: tuple[tuple[object, ...], ...]
    """Values of the parameters at each level, as a scenario has them."""
    quick: tuple[int, ...]
    """Levels of a quick reproduction, counted from 0."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Settings of one AQM to try."""

    label: str
    """Label of the resulting case."""
    setting: str
    """Setting of the scenario that gives the parameters that are on no axis."""
    keep: int
    """Settings that run again."""
    axes: tuple[Axis, ...]

    def points(self, *, quick: bool) -> list[dict[str, object]]:
        """Return all combinations as values by parameter; the last axis varies fastest."""
        levels = [[axis.levels[i] for i in axis.quick] if quick else axis.levels for axis in self.axes]
        names = [name for axis in self.axes for name in axis.names]
        return [
            dict(zip(names, itertools.chain.from_iterable(row), strict=True))
            for row in itertools.product(*levels)
        ]

    def overrides(self, point: dict[str, object]) -> tuple[str, ...]:
        """Return the overrides that set the parameters of a point."""
        key = f'setting."{self.setting}"'
        return tuple(overrides_from({f"{key}.{name}": value for name, value in point.items()}))


@dataclass(frozen=True, slots=True)
class Tuning:
    """Search for the best setting of each AQM by rank sums [BB].

    All settings of all grids run and are ranked within their AQM. The best run again with other seeds and are
    ranked across AQMs. The best of each AQM is compared.
    """

    name: str
    objectives: tuple[Objective, ...]
    runs: int
    """Runs of each setting in each round."""
    seed: int
    quick_runs: int
    quick_keep: int
    grids: tuple[Grid, ...]

    def text(self, runs: int) -> str:
        """Return a description of the search with `runs` runs of each setting."""
        names = "; ".join(
            f"{each.measure.label} ({'less' if each.less else 'more'})" for each in self.objectives
        )
        return (
            f"{runs} runs of each setting, ranked within its AQM by: {names}. A rank r has the weight 2^r;"
            " the settings with the lowest sums run again with other seeds and are ranked across AQMs"
        )


@dataclass(frozen=True, slots=True)
class Experiment:
    """A scenario under every case, at every point, with the same seeds."""

    name: str
    title: str
    scenario: Path
    overrides: tuple[str, ...]
    cases: tuple[Case, ...]
    points: tuple[Point, ...]
    axis: str
    """Label and unit of the axis of points; empty for a single point."""
    runs: int
    seed: int
    drops: bool
    """True to keep every drop."""
    quick_runs: int
    quick_overrides: tuple[str, ...]
    quick_points: tuple[str, ...]
    """Labels of the points of a quick reproduction."""
    flows: bool = True
    """True to keep the table of flows, which may be far longer than all others."""
    tuning: Tuning | None = None
    """Search that finds the settings of the cases; `None` if they are given."""
    fluid: bool = False
    """True to solve the scenarios' equations instead of simulating."""
    trace: tuple[str, ...] = ()
    """Flows whose windows are kept, as `traffic:NAME:1`."""


def find_twice(names: list[str]) -> str | None:
    """Return the first name that occurs more than once."""
    return next((name for place, name in enumerate(names) if name in names[:place]), None)


def objectives_from(table: TomlTable, measure: FindMeasure) -> tuple[Objective, ...]:
    """Read `objectives`: measures with their better directions, `["throughput:max", "delay:min"]`."""
    found = []
    for text in table.strings("objectives"):
        name, _, direction = text.partition(":")
        if direction not in {"max", "min"}:
            raise table.error("objectives", text, f"{name}:max or {name}:min")
        found.append(Objective(measure(table, "objectives", name), direction == "min"))
    if not found:
        raise table.error("objectives", [], "at least one, as delay:min")
    return tuple(found)


def experiments_from(top: TomlTable, folder: Path, measure: FindMeasure) -> dict[str, Experiment]:
    """Read `quick`, `cases`, `tuning` and `experiment` of a paper's data in `folder`."""
    return _Reader(top, folder, measure).experiments


class _Reader:
    """Reads experiments with the case lists, tunings and experiments that they refer to."""

    def __init__(self, top: TomlTable, folder: Path, measure: FindMeasure) -> None:
        self._folder = folder
        self._quick = top.table("quick")
        lists = top.table("cases")
        self._cases = {name: tuple(lists.each(name, _case)) for name in lists.rest()}
        self._tunings = top.named("tuning", lambda name, table: _tuning(name, table, measure))
        self._tables: dict[str, TomlTable] = {}
        group = top.table("experiment")
        self.experiments = {name: self._experiment(name, group.table(name)) for name in group.rest()}

    def _experiment(self, name: str, table: TomlTable) -> Experiment:
        title = table.take("title", str)
        if "like" in table:
            table = table.inherit(self._tables[table.choice("like", self._tables)], "set")
            table.take("like", str)
        table.take("title", str)
        self._tables[name] = table.unread()
        quick = table.table("quick") if "quick" in table else self._quick.unread()
        fluid = table.choice("engine", ["simulator", "model"], "simulator") == "model"
        # A model has one solution.
        runs = min(1, table.integer("runs", 1)) if fluid else table.integer("runs", least=2)
        points = _points(table)
        labels = [each.label for each in points]
        found = Experiment(
            name,
            title,
            self._scenario(table),
            _overrides(table),
            self._cases_of(table),
            points,
            table.take("axis", str, ""),
            runs,
            table.integer("seed", 1, least=0),
            table.take("drops", bool, default=False),
            min(runs, quick.integer("runs", least=2)),
            _overrides(quick),
            tuple(quick.names("points", labels) if "points" in quick else labels),
            table.take("flows", bool, default=True) and not fluid,
            self._tunings[table.choice("tuned", self._tunings)] if "tuned" in table else None,
            fluid,
            tuple(table.strings("trace", [])),
        )
        _check_tuned(table, found)
        for key, some in (("points", labels), ("cases", [case.label for case in found.cases])):
            if not some:
                raise table.error(key, [], "at least one")
            twice = find_twice(some)
            if twice is not None:
                raise table.error(key, twice, "each label once")
        quick.finish()
        table.finish()
        return found

    def _cases_of(self, table: TomlTable) -> tuple[Case, ...]:
        if "tuned" in table:
            if "cases" in table:
                raise table.error("cases", "", "no cases in a tuned experiment")
            grids = self._tunings[table.choice("tuned", self._tunings)].grids
            return tuple(Case(each.label, each.setting, ()) for each in grids)
        if "cases" not in table:
            return (Case("as it is", None, ()),)
        if table.is_string("cases"):
            return self._cases[table.choice("cases", self._cases)]
        return tuple(table.each("cases", _case))

    def _scenario(self, table: TomlTable) -> Path:
        name = table.take("scenario", str)
        if (self._folder / name).is_file():
            return self._folder / name
        known = shipped()
        if name in known:
            return known[name]
        raise table.error("scenario", name, f"a file beside {CLAIMS}, or one of {', '.join(known)}")


def _check_tuned(table: TomlTable, found: Experiment) -> None:
    tuning = found.tuning
    if tuning is None:
        return
    if len(found.points) > 1:
        raise table.error("points", len(found.points), "no points in a tuned experiment")
    used = tuning.seed + 2 * tuning.runs
    if tuning.seed - found.runs < found.seed < used:
        raise table.error("seed", found.seed, f"{used} or more: the tuning uses the seeds before it")


def _overrides(table: TomlTable) -> tuple[str, ...]:
    """Return the overrides of a scenario in the table `set`."""
    return tuple(overrides_from(table.table("set").values()))


def _case(table: TomlTable) -> Case:
    label = table.take("label", str)
    return Case(label, table.take("setting", str, label) or None, _overrides(table))


def _tuning(name: str, table: TomlTable, measure: FindMeasure) -> Tuning:
    """Read a tuning: `objectives`, `runs`, `keep`, and a `grid` per AQM."""
    quick = table.table("quick")
    keep, runs = table.integer("keep", 3), table.integer("runs", least=2)
    found = Tuning(
        name,
        objectives_from(table, measure),
        runs,
        table.integer("seed", 1, least=0),
        min(runs, quick.integer("runs", runs, least=2)),
        quick.integer("keep", keep),
        tuple(table.named("grid", lambda label, each: _grid(label, each, keep)).values()),
    )
    if not found.grids:
        raise table.error("grid", {}, "at least one grid")
    quick.finish()
    return found


def _grid(label: str, table: TomlTable, keep: int) -> Grid:
    axes = tuple(table.each("axes", _axis))
    if not axes:
        raise table.error("axes", [], "at least one axis")
    twice = find_twice([name for axis in axes for name in axis.names])
    if twice is not None:
        raise table.error("axes", twice, "each parameter on one axis")
    return Grid(label, table.take("setting", str, label), table.integer("keep", keep), axes)


def _axis(table: TomlTable) -> Axis:
    names = table.strings("vary")
    levels = []
    for each in table.take("levels", list):
        level = each if isinstance(each, list) else [each]
        if len(level) != len(names) or any(isinstance(value, list | dict) for value in level):
            raise table.error("levels", each, f"a value of each of {', '.join(names) or 'vary'}")
        levels.append(tuple(level))
    if not names or not levels:
        raise table.error("levels", levels, "at least one parameter and one level")
    every = list(range(1, len(levels) + 1))
    quick = table.take("quick", list, every)
    for number in quick or [None]:
        if number not in every or isinstance(number, bool):
            raise table.error("quick", number, f"numbers of levels, 1 to {len(levels)}")
    return Axis(tuple(names), tuple(levels), tuple(number - 1 for number in quick))


def _points(table: TomlTable) -> tuple[Point, ...]:
    """Read `points`: a list, or a law that computes them; without the key, a single point."""
    if "points" not in table:
        return (Point("", 0.0, ()),)
    if table.is_table("points"):
        law = table.table("points")
        found = _LAWS[law.choice("law", _LAWS)](law)
        # Without points, not all keys have been read.
        if found:
            law.finish()
        return tuple(found)
    return tuple(table.each("points", _point))


def _point(table: TomlTable) -> Point:
    x = table.take("x", float)
    return Point(table.take("label", str, f"{x:g}"), x, _overrides(table))


def _positive(table: TomlTable, key: str) -> float:
    value = table.take(key, float)
    if not 0 < value < math.inf:
        raise table.error(key, value, "a number above 0")
    return value


def _check_share(table: TomlTable, key: str, share: float) -> None:
    if not 0 < share < 100:
        raise table.error(key, share, "above 0 and below 100 %")


def _files(table: TomlTable, share: float, short: float, ratio: float) -> tuple[str, ...]:
    """Return overrides for short files as a `share` of the load, and long ones `ratio` times as long."""
    load = _positive(table, "load") * _positive(table, "rate_bps")
    sources = table.integer("sources")
    found = []
    for name, size, part in (("short", short, share), ("long", short * ratio, 1 - share)):
        interval = sources * size * 8 / (part * load)
        found += [
            f'traffic.{name}.size="{size:.0f} B"',
            f'traffic.{name}.interval={{ exponential = "{interval:.9f} s" }}',
        ]
    return tuple(found)


def _shares(table: TomlTable) -> list[Point]:
    """Vary the short files' share of a constant load [%] by the intervals; sizes are constant."""
    short, ratio = _positive(table, "short_bytes"), _positive(table, "ratio")
    shares = table.numbers("shares")
    for each in shares:
        _check_share(table, "shares", each)
    return [Point(f"{each:g} %", each, _files(table, each / 100, short, ratio)) for each in shares]


def _sizes(table: TomlTable) -> list[Point]:
    """Vary the size of short files [KB] at a constant share of a constant load."""
    share = table.take("share", float)
    _check_share(table, "share", share)
    # Long files are a multiple of the short ones, or have one size.
    ratio = _positive(table, "ratio") if "long_kb" not in table else None
    long_kb = _positive(table, "long_kb") if ratio is None else 0.0
    sizes = table.numbers("sizes_kb")
    for each in sizes:
        if not 0 < each < math.inf:
            raise table.error("sizes_kb", each, "above 0 KB")
    return [
        Point(f"{each:g} KB", each, _files(table, share / 100, 1000 * each, ratio or long_kb / each))
        for each in sizes
    ]


def _one_value(table: TomlTable) -> list[Point]:
    """Set several keys to one value per point, with an optional unit."""
    keys, unit = table.strings("keys"), table.take("unit", str, "")

    def point(value: float) -> Point:
        text = f"{int(value) if value.is_integer() else value} {unit}".strip()
        return Point(text, value, tuple(f"{key}={text}" for key in keys))

    return [point(each) for each in table.numbers("values")]


_LAWS: dict[str, Callable[[TomlTable], list[Point]]] = {
    "shares of a load": _shares,
    "sizes at a load": _sizes,
    "one value": _one_value,
}
"""Functions that compute an experiment's points."""
