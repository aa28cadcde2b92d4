"""Comparison of settings: paired or independent differences of metrics with corrected p-values.

docs/statistics.md describes the tests and the families over which p-values are corrected.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any, Protocol

import polars as pl

from bentpipe.errors import UsageError
from bentpipe.stats.intervals import LEVEL, Summary, difference, holm, paired, summarise
from bentpipe.stats.metrics import METRICS, Metric, named_metric

__all__ = [
    "INDEPENDENT",
    "NOTHING_SEEN",
    "PAIRED",
    "Comparison",
    "Runs",
    "between",
    "chosen",
    "corrected",
    "document",
    "frame",
    "within",
]

NOTHING_SEEN = "no difference seen"
PAIRED, INDEPENDENT = "paired by seed", "independent"

_TRAFFIC = ("traffic.", "host.", "run.warmup", "run.duration")
"""Keys that determine the traffic, together with the seed."""


class Runs(Protocol):
    """Runs of several settings with the same seeds, as `bentpipe.Result` has them."""

    folder: Path

    @property
    def engine(self) -> str:
        """Engine of the runs: `simulator` or `live`."""

    @property
    def settings(self) -> list[str]:
        """Names of the settings."""

    @property
    def seeds(self) -> list[int]:
        """Seeds of the runs of every setting."""

    def setting_info(self, name: str) -> dict[str, Any]:
        """Return the manifest's entry of a setting; raise `ResultError` for an unknown name."""

    def values(self) -> dict[str, dict[str, list[float | None]]]:
        """Return every metric of every setting: one value per seed, in the order of the seeds."""


@dataclass(frozen=True, slots=True)
class Side:
    """One setting of a result, under its name in a comparison."""

    name: str
    result: Runs
    setting: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Difference of one metric between two settings, `a` minus `b`, in the metric's unit."""

    a: str
    b: str
    metric: Metric
    mean_a: float | None
    mean_b: float | None
    runs_a: int
    runs_b: int
    """Runs that have a value (and a partner if they are paired), over which the means are taken."""
    pairing: str
    """`PAIRED` or `INDEPENDENT`."""
    found: Summary
    """Difference of the means."""
    p_holm: float | None = None
    """p-value of the difference, corrected over the family."""

    @property
    def verdict(self) -> str:
        """Conclusion as text: `A is higher`, or `no difference seen`."""
        return verdict(self.a, self.b, self.found, self.p_holm)

    def row(self) -> dict[str, Any]:
        """Return the comparison as a dictionary, ready for JSON."""
        return {
            "a": self.a,
            "b": self.b,
            "metric": self.metric.name,
            "unit": self.metric.unit,
            "mean_a": self.mean_a,
            "mean_b": self.mean_b,
            "runs_a": self.runs_a,
            "runs_b": self.runs_b,
            "difference": self.found.mean,
            "ci95": self.found.ci95,
            "ci_low": self.found.low,
            "ci_high": self.found.high,
            "method": self.found.method,
            "pairing": self.pairing,
            "runs": self.found.runs,
            "p": self.found.p,
            "p_holm": self.p_holm,
            "verdict": self.verdict,
        }


MEANS = {
    **dict.fromkeys(("mean", "std", "ci95"), pl.Float64),
    "runs": pl.UInt32,
    **dict.fromkeys(("ci_low", "ci_high"), pl.Float64),
    "method": pl.String,
}
"""Columns of a table with the rows of summaries."""
_SCHEMA = {
    **dict.fromkeys(("a", "b", "metric", "unit"), pl.String),
    **dict.fromkeys(("mean_a", "mean_b"), pl.Float64),
    **dict.fromkeys(("runs_a", "runs_b"), pl.UInt32),
    **dict.fromkeys(("difference", "ci95", "ci_low", "ci_high"), pl.Float64),
    **dict.fromkeys(("method", "pairing"), pl.String),
    "runs": pl.UInt32,
    **dict.fromkeys(("p", "p_holm"), pl.Float64),
    "verdict": pl.String,
}


def verdict(a: str, b: str, found: Summary, p: float | None) -> str:
    """Return the conclusion from a difference of `a` minus `b` and its corrected p-value."""
    if found.mean is None:
        return "no values"
    if p is None:
        return "one run cannot tell"
    if p > LEVEL or found.mean == 0:
        return NOTHING_SEEN
    return f"{a if found.mean > 0 else b} is higher"


def chosen(names: Sequence[str] | None) -> list[Metric]:
    """Return the metrics called `names`, by default those that rank settings.

    Raises `UsageError` if one is unknown, or if `names` is empty.
    """
    if names is None:
        return [metric for metric in METRICS if metric.better]
    found = [named_metric(name) for name in dict.fromkeys(names)]
    if not found:
        raise UsageError("name at least one metric to compare by")
    return found


def within(
    result: Runs, metrics: Sequence[Metric], settings: Sequence[str] | None = None
) -> list[Comparison]:
    """Compare the settings of a result pairwise; the family is the whole list.

    Raises `ResultError` for an unknown setting, `UsageError` for fewer than two settings.
    """
    _check_metrics(metrics, result)
    names = list(dict.fromkeys(result.settings if settings is None else settings))
    for name in names:
        result.setting_info(name)
    if len(names) < 2:
        raise UsageError(
            f"{result.folder}: has one setting, {names[0]}; a comparison needs two"
            if len(result.settings) < 2
            else f"{result.folder}: name at least two settings; allowed: {', '.join(result.settings)}"
        )
    sides = [Side(name, result, name) for name in names]
    return corrected([_compare(a, b, metric) for a, b in combinations(sides, 2) for metric in metrics])


def between(
    ours: Runs, theirs: Runs, metrics: Sequence[Metric], settings: Sequence[str] | None = None
) -> list[Comparison]:
    """Compare two results: settings of the same name, or the only settings of both.

    The family is the whole list. Runs are paired where the same seed means the same traffic and at least two
    seeds are shared. Raises `ResultError` for an unknown setting, `UsageError` if the results have no setting
    in common.
    """
    if settings is not None:
        pairs = [(name, name) for name in dict.fromkeys(settings)]
    elif len(ours.settings) == len(theirs.settings) == 1:
        pairs = [(ours.settings[0], theirs.settings[0])]
    else:
        pairs = [(name, name) for name in ours.settings if name in theirs.settings]
    if not pairs:
        raise UsageError(
            f"{ours.folder} and {theirs.folder} have no setting in common: one has"
            f" {', '.join(ours.settings)}, the other {', '.join(theirs.settings)}"
        )
    for side in (ours, theirs):
        _check_metrics(metrics, side)
    first, second = _labels(ours, theirs)
    found = []
    for mine, other in pairs:
        a, b = Side(f"{first}: {mine}", ours, mine), Side(f"{second}: {other}", theirs, other)
        found += [_compare(a, b, metric) for metric in metrics]
    return corrected(found)


def _check_metrics(metrics: Sequence[Metric], result: Runs) -> None:
    """Raise `UsageError` for a metric of a class of traffic that the result does not have."""
    known = next(iter(result.values().values()), {})
    for metric in metrics:
        if metric.name not in known:
            classes = dict.fromkeys(name.rpartition(".")[0] for name in known if "." in name)
            raise UsageError(
                f"{result.folder}: has no metric {metric.name}; its classes of traffic are"
                f" {', '.join(classes) or 'not recorded'}"
            )


def corrected(family: Sequence[Comparison]) -> list[Comparison]:
    """Return the comparisons of one family with their p-values corrected."""
    values = holm([each.found.p for each in family])
    return [replace(each, p_holm=p) for each, p in zip(family, values, strict=True)]


def document(comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """Return a family of comparisons, ready for JSON."""
    return {
        "correction": "holm",
        "family": sum(each.found.p is not None for each in comparisons),
        "level": LEVEL,
        "comparisons": [each.row() for each in comparisons],
    }


def frame(comparisons: Sequence[Comparison]) -> pl.DataFrame:
    """Return comparisons as a data frame."""
    return pl.DataFrame([each.row() for each in comparisons], schema=_SCHEMA)


def _compare(a: Side, b: Side, metric: Metric) -> Comparison:
    ours, theirs = a.result.values()[a.setting][metric.name], b.result.values()[b.setting][metric.name]
    seeds = [seed for seed in a.result.seeds if seed in set(b.result.seeds)]
    together = (len(seeds) > 1 or a.result.seeds == b.result.seeds) and _same_traffic(a, b)
    if together:
        # Means over the paired runs only, so that their difference is the difference found.
        by_seed = (dict(zip(side.result.seeds, v, strict=True)) for side, v in ((a, ours), (b, theirs)))
        mine, other = by_seed
        seeds = [seed for seed in seeds if mine[seed] is not None and other[seed] is not None]
        ours, theirs = [mine[seed] for seed in seeds], [other[seed] for seed in seeds]
    found = (paired if together else difference)(ours, theirs)
    one, two = summarise(ours), summarise(theirs)
    pairing = PAIRED if together else INDEPENDENT
    return Comparison(a.name, b.name, metric, one.mean, two.mean, one.runs, two.runs, pairing, found)


def _same_traffic(a: Side, b: Side) -> bool:
    """Return True if the same seed gives both settings the same traffic."""
    if a.result is b.result:
        return True
    ours, theirs = (
        {
            row["key"]: row["value"]
            for row in side.result.setting_info(side.setting)["effective"]
            if row["key"].startswith(_TRAFFIC)
        }
        for side in (a, b)
    )
    return ours == theirs


def _labels(ours: Runs, theirs: Runs) -> tuple[str, str]:
    """Return names of two results: their engines if these differ, else names or paths of their folders."""
    if ours.engine != theirs.engine:
        return ours.engine, theirs.engine
    first, second = ours.folder, theirs.folder
    return (first.name, second.name) if first.name != second.name else (str(first), str(second))
