"""How a paper tunes, as data: grids of settings, what they are ranked by, and how many are kept."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

from bentpipe.reproduction.measures import Measure
from bentpipe.reproduction.table import Table
from bentpipe.runs.plan import overrides_from
from bentpipe.stats.objectives import Objective

__all__ = ["Aim", "Axis", "Grid", "Tuning", "aims_from", "tuning_from"]


@dataclass(frozen=True, slots=True)
class Aim:
    """A measure, and whether less of it is better."""

    measure: Measure
    less: bool

    @property
    def objective(self) -> Objective:
        """As the rank sums take it."""
        return Objective(self.measure.name, "min" if self.less else "max")

    def gain(self, ours: float | None, theirs: float | None) -> float | None:
        """Return by how many per cent of `theirs` ours is better, worse if negative; None without either."""
        if ours is None or not theirs:
            return None
        return 100 * (theirs - ours if self.less else ours - theirs) / abs(theirs)


@dataclass(frozen=True, slots=True)
class Axis:
    """Parameters of an AQM that change together."""

    names: tuple[str, ...]
    levels: tuple[tuple[object, ...], ...]
    """A value of each parameter at each level, as a scenario has it."""
    quick: tuple[int, ...]
    """Levels that a quick reproduction has, counted from 0."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The settings of one AQM that are tried."""

    label: str
    """What it is called as a case."""
    setting: str
    """The scenario's setting whose parameters are changed; what is on no axis is as there."""
    keep: int
    axes: tuple[Axis, ...]

    def points(self, *, quick: bool) -> list[dict[str, object]]:
        """Return every combination, by parameter, the last axis changing fastest."""
        chosen = [
            [each.levels[place] for place in each.quick] if quick else each.levels for each in self.axes
        ]
        return [
            {
                name: value
                for axis, level in zip(self.axes, row, strict=True)
                for name, value in zip(axis.names, level, strict=True)
            }
            for row in itertools.product(*chosen)
        ]

    def overrides(self, point: dict[str, object]) -> tuple[str, ...]:
        """Return what sets the parameters of a point."""
        key = f'setting."{self.setting}"'
        return tuple(overrides_from({f"{key}.{name}": value for name, value in point.items()}))


@dataclass(frozen=True, slots=True)
class Tuning:
    """Every setting of every grid is run, ranked among its AQM's, and the best are run again.

    Ranks are those of [BB]: one in each measure, weighted 2^rank and added up, the lowest sum the best. Those
    that run again are ranked across AQMs, and the best of each AQM is what is compared.
    """

    name: str
    aims: tuple[Aim, ...]
    runs: int
    """Runs of each setting, and again of each that is kept, with other seeds."""
    seed: int
    quick_runs: int
    quick_keep: int
    grids: tuple[Grid, ...]

    def text(self, runs: int) -> str:
        """Return the rule in words, with so many runs of each setting."""
        names = "; ".join(f"{each.measure.label} ({'less' if each.less else 'more'})" for each in self.aims)
        return (
            f"{runs} runs of each setting. Ranks are among those of the same AQM by: {names}. A rank r weighs"
            " 2^r, and the lowest sums run again with other seeds and are ranked across AQMs"
        )


def tuning_from(name: str, given: Table, measured: Callable[[Table, str, str], Measure]) -> Tuning:
    """Read a tuning: `objectives`, `runs`, `keep` and a `grid` an AQM; `measured` finds a measure."""
    quick = given.table("quick")
    keep, runs = given.whole("keep", 3), given.whole("runs", least=2)
    found = Tuning(
        name,
        aims_from(given, measured),
        runs,
        given.whole("seed", 1, least=0),
        min(runs, quick.whole("runs", runs, least=2)),
        quick.whole("keep", keep),
        tuple(given.named("grid", lambda label, each: _grid(label, each, keep)).values()),
    )
    if not found.grids:
        raise given.wrong("grid", {}, "one grid at least")
    quick.done()
    given.done()
    return found


def aims_from(given: Table, measured: Callable[[Table, str, str], Measure]) -> tuple[Aim, ...]:
    """Read `objectives`: measures with the way that is better, `["throughput:max", "delay:min"]`."""
    found = []
    for text in given.texts("objectives"):
        name, _, way = text.partition(":")
        if way not in {"max", "min"}:
            raise given.wrong("objectives", text, f"{name}:max or {name}:min")
        found.append(Aim(measured(given, "objectives", name), way == "min"))
    if not found:
        raise given.wrong("objectives", [], "one at least, as delay:min")
    return tuple(found)


def _grid(label: str, given: Table, keep: int) -> Grid:
    axes = tuple(map(_axis, given.tables("axes")))
    if not axes:
        raise given.wrong("axes", [], "one axis at least")
    names = [name for axis in axes for name in axis.names]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise given.wrong("axes", twice, "each parameter on one axis")
    found = Grid(label, given.take("setting", str, label), given.whole("keep", keep), axes)
    given.done()
    return found


def _axis(given: Table) -> Axis:
    names = given.texts("vary")
    levels = []
    for each in given.take("levels", list):
        level = each if isinstance(each, list) else [each]
        if len(level) != len(names) or any(isinstance(value, list | dict) for value in level):
            raise given.wrong("levels", each, f"a value of each of {', '.join(names) or 'vary'}")
        levels.append(tuple(level))
    if not names or not levels:
        raise given.wrong("levels", levels, "one parameter and one level at least")
    everything = list(range(1, len(levels) + 1))
    few = given.take("quick", list, everything)
    for place in few or [None]:
        if place not in everything or isinstance(place, bool):
            raise given.wrong("quick", place, f"numbers of levels, 1 to {len(levels)}")
    found = Axis(tuple(names), tuple(levels), tuple(place - 1 for place in few))
    given.done()
    return found
