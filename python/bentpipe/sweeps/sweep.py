"""Sweeps: many points of a scenario, simulated under the same settings and seeds, into one dataset."""

import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import count, islice
from pathlib import Path
from typing import Any

from bentpipe import _core
from bentpipe.errors import ScenarioError, UsageError
from bentpipe.runs.dataset import Dataset, Run
from bentpipe.runs.plan import Given, listed, make_plan, opened, read
from bentpipe.runs.python_aqm import Setting
from bentpipe.runs.source import digest_of, entry_of, key_of, metrics_digest
from bentpipe.runs.workers import OnProgress, Threads, Workers, simulate
from bentpipe.stats.intervals import summarise
from bentpipe.stats.metrics import check_classes
from bentpipe.sweeps.factors import Factor, factors_from, points
from bentpipe.sweeps.result import DEFAULT_METRICS, SweepResult, check_metrics, narrow

__all__ = ["MOST_ADDED", "Precision", "Sweep", "execute", "precision_from"]

MOST_RUNS = 10_000_000
MOST_ADDED = 100
"""Default limit of runs per setting and point, when runs are added until intervals are narrow enough."""


_OF_THE_SWEEP = ("run.seed", "run.runs", "run.settings")
"""Keys of the number of runs, which do not change a run."""


def _unquoted(key: str) -> str:
    """Return a dotted key without the quotes and spaces that TOML allows around its steps."""
    with suppress(tomllib.TOMLDecodeError):
        table: Any = tomllib.loads(f"{key} = 0")
        steps = []
        while isinstance(table, dict) and len(table) == 1:
            [(step, table)] = table.items()
            steps.append(step)
        return ".".join(steps)
    return key


@dataclass(frozen=True, slots=True)
class Precision:
    """Required precision: runs are added until the 95 % interval of a metric is narrow enough everywhere."""

    metric: str
    share: float
    """Half-width of the interval as a share of the mean."""
    most: int = MOST_ADDED
    """Limit of runs per setting and point."""


@dataclass
class Sweep:
    """Plan of a sweep: points, settings and seeds."""

    scenario: _core.Scenario
    """Scenario with its overrides, without point and setting."""
    overrides: list[str]
    factors: list[Factor]
    points: list[tuple[str, ...]]
    settings: list[str]
    seeds: list[int]
    cells: list[tuple[tuple[str, ...], str, _core.Scenario, str]] = field(default_factory=list)
    """Point, setting, scenario and digest; each is simulated with all seeds."""
    design: str = "grid"
    metrics: list[str] = field(default_factory=lambda: list(DEFAULT_METRICS))
    """Metrics shown in tables and reports."""
    title: str = ""
    description: str = ""
    warnings: list[str] = field(default_factory=list)
    """Warnings about factors without effect and similar mistakes."""
    left_out: list[str] = field(default_factory=list)
    """Settings left out of `all`, with the reasons."""
    base: str = ""
    """SHA-256 of the scenario with its overrides, without point and setting."""

    @classmethod
    def plan(
        cls,
        scenario: Given,
        vary: Sequence[str | Factor] | Mapping[str, str | Sequence[object]],
        *,
        settings: str | Sequence[str | Setting] | None = None,
        overrides: Sequence[str] = (),
        runs: int | None = None,
        seed: int | None = None,
        design: str = "grid",
        count: int | None = None,
        metrics: Sequence[str] | None = None,
    ) -> "Sweep":
        """Read the scenarios of all points, before anything runs.

        Raises `UsageError` if factors or numbers are out of range, `ScenarioError` for the first impossible
        point.
        """
        shown = list(dict.fromkeys(DEFAULT_METRICS if metrics is None else metrics))
        check_metrics(shown)
        settings = listed(settings)
        factors = factors_from(vary)
        varied = {_unquoted(factor.key) for factor in factors}
        for change in overrides:
            key = key_of(change)
            if _unquoted(key) in varied:
                raise UsageError(f"--set {change}: {key}: found in --vary as well; allowed: one of the two")
        source, overrides = opened(scenario, overrides)
        base = read(source, overrides, settings)
        check_classes(shown, base.traffic)
        for factor in factors:
            if _unquoted(factor.key) in _OF_THE_SWEEP:
                raise UsageError(
                    f"--vary {factor.key}: is the same at all points, so that runs are in pairs; allowed:"
                    " --seed, --runs, --settings"
                )
        chosen = points(factors, design, count, seed=base.seed if seed is None else seed)
        names = list(base.settings if settings is None else settings)
        seeds: list[int] = []
        cells: dict[tuple[str, str], tuple[tuple[str, ...], str, _core.Scenario, str]] = {}
        warnings, left_out = dict[str, None](), dict[str, None]()
        for point in chosen:
            changes = [f"{each.key}={value}" for each, value in zip(factors, point, strict=True)]
            try:
                loaded = read(source, [*overrides, *changes], names)
            except ScenarioError as error:
                for factor, value in zip(factors, point, strict=True):
                    before, given, problem = str(error).partition(f"--set {factor.key}={value}: ")
                    if given and not before:
                        raise factor.wrong(value, problem) from None
                raise
            plan = make_plan(loaded, settings=names or None, runs=runs, seed=seed)
            seeds = list(plan.seeds)
            left_out |= dict.fromkeys(plan.left_out)
            for each in plan.settings:
                warnings |= dict.fromkeys(each.scenario.warnings)
                digest = metrics_digest(each.scenario)
                cells[each.name, f"{point} {digest}"] = (point, each.name, each.scenario, digest)
        if len(cells) * len(seeds) > MOST_RUNS:
            raise UsageError(f"the sweep has {len(cells) * len(seeds)} runs; allowed: at most {MOST_RUNS}")
        found = list(cells.values())
        check_classes(
            shown,
            base.traffic,
            terminals=any(scenario.terminals for _, _, scenario, _ in found),
            returns=any(scenario.has_return for _, _, scenario, _ in found),
        )
        labels = list(dict.fromkeys(cell[1] for cell in found))
        # An override may apply to a setting only, invisible in the scenario without a setting.
        return cls(
            base,
            overrides,
            factors,
            chosen,
            labels,
            seeds,
            found,
            design,
            shown,
            f"Sweep: {base.title or base.name}",
            "",
            list(warnings),
            list(left_out),
            digest_of(base, overrides),
        )

    def about(self) -> dict[str, Any]:
        """Return the manifest entries of the sweep."""
        return {
            "title": self.title,
            "description": self.description,
            "scenario": entry_of(self.scenario, self.base),
            "overrides": self.overrides,
            "settings": self.settings,
            "design": self.design,
            "vary": [
                {"key": each.key, "log": each.log, "range": each.low is not None} for each in self.factors
            ],
            "points": len(self.points),
            "seeds": self.seeds,
            "metrics": self.metrics,
        }

    def runs(self, seeds: Sequence[int] | None = None) -> Iterator[Run]:
        """Yield every run: all points and settings with the first seed, then with the next."""
        for seed in self.seeds if seeds is None else seeds:
            for point, setting, scenario, digest in self.cells:
                yield Run(point, setting, scenario, digest, seed)


def execute(
    plan: Sweep,
    folder: Path,
    *,
    workers: Workers | None = None,
    precision: Precision | None = None,
    on_progress: OnProgress | None = None,
) -> SweepResult:
    """Simulate the runs missing in the dataset in `folder`, by default on one thread per core.

    An interruption keeps the finished runs.
    """
    _check(precision)
    workers = workers or Threads()
    keys = tuple(factor.key for factor in plan.factors)
    about = plan.about() | ({} if precision is None else {"until": asdict(precision)})
    with Dataset(folder, keys, about) as dataset:
        counter = _Count(on_progress)
        failures = simulate(plan.runs(), dataset, workers, counter.update)
        failed = {(each.run.digest, each.run.seed) for each in failures}
        while precision is not None:
            more = _wider(plan, dataset, precision, failed)
            if not more:
                break
            counter.next()
            new = simulate(more, dataset, workers, counter.update)
            failures += new
            failed |= {(each.run.digest, each.run.seed) for each in new}
        dataset.finish(failures)
    return SweepResult(folder)


class _Count:
    """Adds up the progress of several calls of `simulate`, each of which counts from zero."""

    def __init__(self, on_progress: OnProgress | None) -> None:
        self.on_progress = on_progress
        self.before = self.now = (0, 0, 0)

    def update(self, done: int, total: int, failed: int) -> None:
        before = self.before
        self.now = (before[0] + done, before[1] + total, before[2] + failed)
        if self.on_progress is not None:
            self.on_progress(*self.now)

    def next(self) -> None:
        self.before = self.now


def _check(precision: Precision | None) -> None:
    if precision is None:
        return
    check_metrics([precision.metric])
    if not 0 < precision.share < 1:
        raise UsageError(
            f"the interval is to be {precision.share:.2%} of the mean; allowed: above 0 and below 100 %"
        )
    if precision.most < 2:
        raise UsageError(f"--max-runs {precision.most}: allowed: 2 or more, because one run has no interval")


def precision_from(text: str, metric: str, most: int) -> Precision:
    """Parse a precision, `2%` or `0.02`; `UsageError` for anything else."""
    share = text.strip()
    try:
        value = float(share.removesuffix("%")) / (100 if share.endswith("%") else 1)
    except ValueError:
        raise UsageError(f"--until-ci {text}: allowed: a share of the mean, as 2% or 0.02") from None
    found = Precision(metric, value, most)
    _check(found)
    return found


def _wider(plan: Sweep, dataset: "Dataset", precision: Precision, failed: set[tuple[str, int]]) -> list[Run]:
    """Return the additional runs that are likely needed, estimated from the current intervals."""
    first = plan.seeds[0]
    wanted: list[Run] = []
    for point, setting, scenario, digest in plan.cells:
        there = dataset.values(digest, precision.metric)
        values = [value for value in there.values() if value is not None]
        tried = len(there) + sum(1 for each in failed if each[0] == digest)
        if tried >= precision.most or not there:
            continue
        summary = summarise(values)
        if summary.ci95 is not None and summary.mean is not None:
            if narrow(summary.mean, summary.ci95, precision.share):
                continue
            ratio = summary.ci95 / (precision.share * abs(summary.mean)) if summary.mean else math.inf
            # The width falls with the root of the runs. At most double them, since the estimate is uncertain.
            aim = min(math.ceil(tried * ratio**2) if math.isfinite(ratio) else 2 * tried, 2 * tried)
        elif values:
            aim = max(2, tried + 1)
        else:
            continue
        # Seeds in the dataset may have gaps, if an earlier sweep began with another seed.
        known = there.keys() | {seed for each, seed in failed if each == digest}
        number = min(max(aim, tried + 1), precision.most) - tried
        # Seeds are 64 bits wide.
        following = (seed % 2**64 for seed in count(first))
        seeds = islice((seed for seed in following if seed not in known), number)
        wanted += [Run(point, setting, scenario, digest, seed) for seed in seeds]
    return wanted
