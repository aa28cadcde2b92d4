"""Parameter search in two rounds: in the full ranges, then around the best points.

Six parameters span a space too large for forty points. The second round searches the part spanned by the best
few points of the first, with a margin.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from bentpipe.format import number_of
from bentpipe.runs.dataset import read_all
from bentpipe.runs.workers import OnProgress, Workers
from bentpipe.stats.intervals import summarise
from bentpipe.stats.objectives import Judge
from bentpipe.tuning.result import DEFAULTS
from bentpipe.tuning.space import Parameter, Space
from bentpipe.tuning.tune import Tuning, execute

__all__ = ["Point", "explored", "narrowed"]

_BEST = 5
"""Number of points that define the second round's space."""
_BEYOND, _LEAST = 0.25, 0.05
"""Margin around them: a share of their span, and at least this share of the whole range."""


@dataclass(frozen=True, slots=True)
class Point:
    """A searched point, or the AQM's defaults."""

    table: Mapping[str, str]
    """Contents of the setting's table."""
    values: Mapping[str, float | None]
    """Mean of each metric over the search's runs."""


def explored(
    search: Tuning,
    folder: Path,
    judge: Judge,
    metrics: Sequence[str],
    workers: Workers,
    on_progress: OnProgress | None = None,
) -> tuple[dict[str, Point], dict[str, Any]]:
    """Search in two rounds with half of the trials each; return the points by name, and the cost.

    Only complete trials are returned; the defaults are a point like the others.
    """
    first = math.ceil(search.trials / 2)
    points, cost = _round("", replace(search, trials=first), folder / "wide", metrics, workers, on_progress)
    second = search.trials - first
    if not second or not points:
        return points, cost
    # The defaults lack values for the searched parameters: the second round looks around trials only.
    order = judge({name: each.values for name, each in points.items() if name != DEFAULTS})
    best = [points[each.name].table for each in order[:_BEST]]
    if not best:
        return points, cost
    near = replace(search.search, space=narrowed(search.space, best))
    more, spent = _round(
        "near ", replace(search, search=near, trials=second), folder / "near", metrics, workers, on_progress
    )
    more.pop(DEFAULTS, None)
    return points | more, {key: cost[key] + spent[key] for key in cost}


def narrowed(space: Space, tables: Sequence[Mapping[str, str]]) -> Space:
    """Return the part of a space spanned by points, given by their settings' tables, with a margin."""
    parameters = []
    for each in space.parameters:
        there = [table[each.name].strip('"') for table in tables]
        parameters.append(_around(each, there))
    return replace(space, parameters=tuple(parameters))


def _around(parameter: Parameter, there: Sequence[str]) -> Parameter:
    if parameter.low is None or parameter.high is None:
        return replace(parameter, values=tuple(dict.fromkeys(there)), chosen=True)
    numbers = [found[0] for each in there if (found := number_of(each)) is not None]
    scale = math.log if parameter.log else float
    low, high = scale(parameter.low), scale(parameter.high)
    least, most = scale(min(numbers)), scale(max(numbers))
    beyond = max(_BEYOND * (most - least), _LEAST * (high - low))
    least, most = max(low, least - beyond), min(high, most + beyond)
    back = math.exp if parameter.log else float
    return replace(parameter, low=back(least), high=back(most), chosen=True)


def _round(
    prefix: str,
    search: Tuning,
    folder: Path,
    metrics: Sequence[str],
    workers: Workers,
    on_progress: OnProgress | None,
) -> tuple[dict[str, Point], dict[str, Any]]:
    found = execute(search, folder, workers=workers, on_progress=on_progress).found
    keys = tuple(f"{search.space.prefix}.{each}" for each in search.space.names)
    runs = read_all(folder, keys).filter(pl.col("seed").is_in(search.seeds))
    by_digest = {str(digest): table for (digest,), table in runs.group_by("digest")}

    def seen(digest: str) -> dict[str, float | None]:
        mine = by_digest[digest].unique("seed").sort("seed")
        return {name: summarise(mine[name].to_list()).mean for name in metrics}

    points: dict[str, Point] = {}
    for trial in found["trials"]:
        if trial["outcome"] == "complete":
            digest = search.run(trial["point"]).digest
            points[f"{prefix}{trial['number']}"] = Point(search.space.table(trial["point"]), seen(digest))
    defaults = search.references()[DEFAULTS].digest
    if defaults in by_digest:
        points[DEFAULTS] = Point(search.space.table({}), seen(defaults))
    return points, {
        "trials": len(found["trials"]),
        "runs": found["runs"]["done"],
        "impossible": sum(1 for trial in found["trials"] if trial["outcome"] == "impossible"),
    }
