"""A sweep: many points of a scenario, each simulated under the same settings and seeds, in one dataset.

A run is known by what determines it (the scenario's digest, the seed, the build of the core), so that one
that is in the dataset already is not simulated again, whichever sweep asked for it.
"""

import fcntl
import hashlib
import io
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import polars as pl

from bentpipe import _core, files
from bentpipe.errors import SimulationError, UsageError
from bentpipe.experiment import checked_jobs
from bentpipe.factors import Factor, factors_from, points
from bentpipe.metrics import METRICS, Recorded, evaluate, find
from bentpipe.plan import load, make_plan, scenario_path
from bentpipe.statistics import summarise
from bentpipe.store import core_digest

__all__ = ["Failure", "Precision", "Run", "Sweep", "SweepResult", "Teller", "sweep"]

FORMAT = "bentpipe-sweep"
MANIFEST, DATA, JOURNAL, FAILURES = "manifest.json", "data", "journal", "failures.json"
_FLUSH_SECONDS = 2.0
_POLL_SECONDS = 0.2
MOST_RUNS = 10_000_000


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a sweep."""

    point: tuple[str, ...]
    """The value of each factor."""
    setting: str
    scenario: _core.Scenario
    digest: str
    """SHA-256 of all that determines its result, the seed apart."""
    seed: int


@dataclass(frozen=True, slots=True)
class Failure:
    """A run that gave no result."""

    run: Run
    error: str


@dataclass(frozen=True, slots=True)
class Precision:
    """Runs are added until the 95 % interval of a metric is narrow enough at every point."""

    metric: str
    share: float
    """Half the interval's width as a share of the mean."""
    most: int = 100
    """Runs of one setting at one point, at most."""


Teller = Callable[[int, int, int], None]
"""Is told how many runs are done, wanted and failed."""


@dataclass(frozen=True)
class SweepResult:
    """A sweep's dataset."""

    folder: Path
    factors: tuple[str, ...]
    failures: tuple[Failure, ...] = ()

    def frame(self) -> pl.DataFrame:
        """Return one row a run: setting, a column for each factor, seed, digest, and every metric."""
        return _read(self.folder / DATA, self.factors)

    def rows(self, metrics: Sequence[str]) -> list[dict[str, Any]]:
        """Return for each setting and point the mean of each metric over the runs, with its 95 % interval."""
        found: list[dict[str, Any]] = []
        groups = self.frame().group_by("setting", *self.factors, maintain_order=True)
        for key, table in groups:
            named = dict(zip(("setting", *self.factors), key, strict=True))
            for name in metrics:
                metric = find(name)
                summary = summarise(table[name].to_list())
                found.append(
                    {
                        **named,
                        "metric": name,
                        "unit": metric.unit if metric else "",
                        "mean": summary.mean,
                        "std": summary.std,
                        "ci95": summary.ci95,
                        "runs": summary.runs,
                    }
                )
        return found


@dataclass
class Sweep:
    """What is to be simulated: every point under every setting with every seed."""

    scenario: str
    """The file."""
    overrides: list[str]
    factors: list[Factor]
    points: list[tuple[str, ...]]
    settings: list[str]
    seeds: list[int]
    cells: list[tuple[tuple[str, ...], str, _core.Scenario, str]] = field(default_factory=list)
    """Point, setting, scenario and digest: each with all seeds."""

    @classmethod
    def plan(
        cls,
        scenario: str | Path,
        vary: Sequence[str] | Mapping[str, str | Sequence[object]],
        *,
        settings: Sequence[str] | None = None,
        overrides: Sequence[str] = (),
        runs: int | None = None,
        seed: int | None = None,
        design: str = "grid",
        count: int | None = None,
    ) -> "Sweep":
        """Read every point's scenario, before anything runs.

        Raises `UsageError` if the factors or numbers make no sense, `ScenarioError` for the first point that
        is impossible.
        """
        base = load(scenario, overrides)
        factors = factors_from(vary)
        chosen = points(factors, design, count, seed=base.seed if seed is None else seed)
        names = list(base.settings if settings is None else settings)
        seeds: list[int] = []
        cells: dict[tuple[str, str], tuple[tuple[str, ...], str, _core.Scenario, str]] = {}
        for point in chosen:
            changes = [f"{each.key}={value}" for each, value in zip(factors, point, strict=True)]
            loaded = load(scenario, [*overrides, *changes])
            plan = make_plan(loaded, settings=names or None, runs=runs, seed=seed)
            seeds = list(plan.seeds)
            for each in plan.settings:
                if each.algorithm is not None:
                    raise UsageError(f"setting {each.name}: written in Python; a sweep allows the others")
                # A factor that a setting does not know makes no difference to it: one run stands for all.
                cells[each.name, f"{point} {each.digest}"] = (point, each.name, each.scenario, each.digest)
        if len(cells) * len(seeds) > MOST_RUNS:
            raise UsageError(f"the sweep has {len(cells) * len(seeds)} runs; allowed: at most {MOST_RUNS}")
        found = list(cells.values())
        labels = list(dict.fromkeys(cell[1] for cell in found))
        return cls(str(scenario_path(scenario)), list(overrides), factors, chosen, labels, seeds, found)

    def runs(self, seeds: Sequence[int] | None = None) -> Iterator[Run]:
        """Yield every run: all points and settings with the first seed, then with the next."""
        for seed in self.seeds if seeds is None else seeds:
            for point, setting, scenario, digest in self.cells:
                yield Run(point, setting, scenario, digest, seed)


def sweep(
    scenario: str | Path,
    vary: Sequence[str] | Mapping[str, str | Sequence[object]],
    *,
    out: str | Path,
    settings: Sequence[str] | None = None,
    set: Sequence[str] = (),  # noqa: A002
    runs: int | None = None,
    seed: int | None = None,
    design: str = "grid",
    points: int | None = None,
    jobs: int | None = None,
    precision: Precision | None = None,
    told: Teller | None = None,
) -> SweepResult:
    """Simulate every point of a design under every setting with the same seeds, into the dataset `out`.

    `vary` are factors, as `{"gateway.aqm.w_q": "0.01:0.2:log:8"}`; see `factors_from`. What is in the dataset
    already is not simulated again; `precision` adds runs where an interval is still too wide. Raises
    `UsageError` and `ScenarioError` before anything runs.
    """
    plan = Sweep.plan(
        scenario, vary, settings=settings, overrides=set, runs=runs, seed=seed, design=design, count=points
    )
    return execute(plan, Path(out), jobs=jobs, precision=precision, told=told)


def execute(
    plan: Sweep,
    folder: Path,
    *,
    jobs: int | None = None,
    precision: Precision | None = None,
    told: Teller | None = None,
) -> SweepResult:
    """Simulate what the dataset in `folder` lacks of `plan`; on an interruption what is finished stays."""
    jobs = checked_jobs(jobs)
    _check(precision)
    keys = tuple(factor.key for factor in plan.factors)
    with _Dataset(folder, plan, keys) as dataset:
        failures = _simulate(plan.runs(), dataset, jobs, told)
        failed = {(each.run.digest, each.run.seed) for each in failures}
        while precision is not None:
            more = _wider(plan, dataset, precision, failed)
            if not more:
                break
            new = _simulate(more, dataset, jobs, told)
            failures += new
            failed |= {(each.run.digest, each.run.seed) for each in new}
        dataset.finish(failures)
    return SweepResult(folder, keys, tuple(failures))


def _check(precision: Precision | None) -> None:
    if precision is None:
        return
    check_metrics([precision.metric])
    if not 0 < precision.share < 1:
        raise UsageError(
            f"the interval is to be {precision.share:.2%} of the mean; allowed: above 0 and below 100 %"
        )
    if precision.most < 2:
        raise UsageError(f"at most {precision.most} runs; allowed: 2 or more, for one has no interval")


def precision_from(text: str, metric: str, most: int) -> Precision:
    """Read a precision, `2%` or `0.02`; `UsageError` for anything else."""
    share = text.strip()
    try:
        value = float(share.removesuffix("%")) / (100 if share.endswith("%") else 1)
    except ValueError:
        raise UsageError(f"--until-ci {text}: allowed: a share of the mean, as 2% or 0.02") from None
    found = Precision(metric, value, most)
    _check(found)
    return found


def check_metrics(names: Sequence[str]) -> None:
    """Raise `UsageError` unless these are metrics."""
    for name in names:
        if find(name) is None:
            known = ", ".join(metric.name for metric in METRICS)
            raise UsageError(f"metric {name}: there is none of that name; allowed: {known}")


def _wider(plan: Sweep, dataset: "_Dataset", precision: Precision, failed: set[tuple[str, int]]) -> list[Run]:
    """Return the runs that are still wanted: as many as the interval found so far makes likely."""
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
            ratio = summary.ci95 / (precision.share * abs(summary.mean)) if summary.mean else math.inf
            if ratio <= 1:
                continue
            # The width falls with the root of the runs; at most twice as many, for it is uncertain itself.
            aim = min(math.ceil(tried * ratio**2) if math.isfinite(ratio) else 2 * tried, 2 * tried)
        elif values:
            aim = max(2, tried + 1)
        else:
            continue
        seeds = range(first + tried, first + min(max(aim, tried + 1), precision.most))
        wanted += [Run(point, setting, scenario, digest, seed) for seed in seeds]
    return wanted


def _simulate(runs: Any, dataset: "_Dataset", jobs: int, told: Teller | None) -> list[Failure]:  # noqa: ANN401
    wanted = list(runs)
    todo, same = [], set()
    for run in wanted:
        # Points that a setting does not know have one digest: their run is simulated once, for each.
        if not dataset.has(run) and (run.digest, run.seed) not in same:
            todo.append(run)
            same.add((run.digest, run.seed))
    failures: list[Failure] = []
    done = len(wanted) - len(todo)
    tell = told or (lambda *_: None)
    tell(done, len(wanted), 0)
    progresses: dict[Future[dict[str, float | None]], tuple[Run, _core.Progress]] = {}
    queue = iter(todo)
    pool = ThreadPoolExecutor(jobs, thread_name_prefix="bentpipe")
    try:
        # A few more than there are threads, so that none waits and a million futures are not held.
        for run in _some(queue, 2 * jobs):
            _submit(pool, run, progresses)
        while progresses:
            finished, _ = wait(progresses, timeout=_POLL_SECONDS, return_when=FIRST_COMPLETED)
            for future in finished:
                run, _ = progresses.pop(future)
                try:
                    dataset.add(run, future.result())
                except SimulationError as error:
                    failures.append(Failure(run, str(error)))
                done += 1
                for more in _some(queue, 1):
                    _submit(pool, more, progresses)
            dataset.flush(_FLUSH_SECONDS)
            if finished:
                tell(done, len(wanted), len(failures))
    except BaseException:
        for _, progress in progresses.values():
            progress.cancel()
        pool.shutdown(wait=True, cancel_futures=True)
        dataset.flush(0.0)
        raise
    pool.shutdown()
    dataset.flush(0.0)
    dataset.spread(wanted)
    return failures


def _some(runs: Iterator[Run], count: int) -> Iterator[Run]:
    for _ in range(count):
        run = next(runs, None)
        if run is None:
            return
        yield run


def _submit(
    pool: ThreadPoolExecutor,
    run: Run,
    under_way: dict[Future[dict[str, float | None]], tuple[Run, _core.Progress]],
) -> None:
    progress = _core.Progress()
    under_way[pool.submit(measure, run.scenario, run.seed, progress)] = (run, progress)


def measure(scenario: _core.Scenario, seed: int, progress: _core.Progress) -> dict[str, float | None]:
    """Simulate a scenario and return every metric."""
    found = _core.simulate(scenario, seed, progress)
    known = {name: value if math.isfinite(value) else None for name, value in found.counters.items()}
    return evaluate(
        Recorded(
            series=pl.DataFrame(found.series),
            flows=pl.DataFrame(found.flows),
            drop_runs=pl.DataFrame(found.drop_runs),
            counters=known,
            capacity=scenario.capacity,
        )
    )


_METRIC_NAMES = [metric.name for metric in METRICS]


class _Dataset:
    """The dataset while it is written: parquet files, one folder a setting, and a journal before."""

    def __init__(self, folder: Path, plan: Sweep, keys: tuple[str, ...]) -> None:
        self.folder = folder
        self.plan = plan
        self.keys = keys
        self._core = core_digest()
        self._rows: dict[tuple[str, tuple[str, ...], int], dict[str, Any]] = {}
        self._by_digest: dict[str, dict[int, dict[str, Any]]] = {}
        self._new: list[dict[str, Any]] = []
        self._part = 0
        self._flushed = time.monotonic()
        self._lock: int | None = None

    def __enter__(self) -> "_Dataset":
        try:
            if not os.path.lexists(self.folder):
                self.folder.mkdir(parents=True)
                self._write_manifest("incomplete")
            manifest = _manifest_of(self.folder)
            self._lock = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UsageError(f"{self.folder}: another Bentpipe is writing to this folder") from None
            self._check_factors(manifest["factors"])
            self._load()
            self._write_manifest("incomplete")
        except OSError as error:
            self._close()
            raise UsageError(f"{self.folder}: cannot be written: {error.strerror}") from None
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _check_factors(self, there: list[str]) -> None:
        if there != list(self.keys):
            raise UsageError(
                f"{self.folder}: has the factors {', '.join(there) or 'none'}, found"
                f" {', '.join(self.keys) or 'none'}; allowed: the same, or another folder"
            )

    def _close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _load(self) -> None:
        tables = [_read(self.folder / DATA, self.keys)]
        parts = sorted((self.folder / JOURNAL).glob("*.parquet"))
        tables += [pl.read_parquet(part) for part in parts]
        self._part = len(parts)
        for table in tables:
            for row in table.iter_rows(named=True):
                self._keep(row)

    def _keep(self, row: dict[str, Any]) -> None:
        point = tuple(row[key] for key in self.keys)
        self._rows[row["setting"], point, row["seed"]] = row
        if row["core"] == self._core:
            self._by_digest.setdefault(row["digest"], {})[row["seed"]] = row

    def has(self, run: Run) -> bool:
        return run.seed in self._by_digest.get(run.digest, {})

    def values(self, digest: str, metric: str) -> dict[int, float | None]:
        """Return a metric of the runs of a digest, by seed."""
        return {seed: row[metric] for seed, row in self._by_digest.get(digest, {}).items()}

    def add(self, run: Run, metrics: dict[str, float | None]) -> None:
        row = {
            "setting": run.setting,
            **dict(zip(self.keys, run.point, strict=True)),
            "seed": run.seed,
            "digest": run.digest,
            "core": self._core,
            **metrics,
        }
        self._keep(row)
        self._new.append(row)

    def spread(self, runs: Sequence[Run]) -> None:
        """Write a run that stands for several points at each of them, under each name."""
        for run in runs:
            there = self._by_digest.get(run.digest, {}).get(run.seed)
            key = (run.setting, run.point, run.seed)
            if there is not None and self._rows.get(key, {}).get("digest") != run.digest:
                self.add(run, {name: there[name] for name in _METRIC_NAMES})
        self.flush(0.0)

    def flush(self, seconds: float) -> None:
        """Put what is new on the disk, if that was last done so many seconds ago."""
        if not self._new or time.monotonic() - self._flushed < seconds:
            return
        journal = self.folder / JOURNAL
        journal.mkdir(exist_ok=True)
        files.write(journal / f"{self._part:06}.parquet", _parquet(_table(self._new, self.keys)))
        self._part += 1
        self._new = []
        self._flushed = time.monotonic()

    def finish(self, failures: Sequence[Failure]) -> None:
        """Sort all runs into one file a setting, and take the journal away."""
        rows = sorted(self._rows.values(), key=lambda row: _order(row, self.keys))
        table = _table(rows, self.keys)
        for (setting,), part in table.group_by("setting", maintain_order=True):
            folder = self.folder / DATA / f"setting={quote(str(setting), safe=' ')}"
            folder.mkdir(parents=True, exist_ok=True)
            files.write(folder / "runs.parquet", _parquet(part.drop("setting")))
        listed = [
            {
                "setting": each.run.setting,
                "point": dict(zip(self.keys, each.run.point, strict=True)),
                "seed": each.run.seed,
                "error": each.error,
            }
            for each in failures
        ]
        files.write_json(self.folder / FAILURES, listed)
        self._write_manifest("complete")
        for old in (self.folder / JOURNAL).glob("*.parquet"):
            old.unlink()

    def _write_manifest(self, status: str) -> None:
        plan = self.plan
        text = Path(plan.scenario).read_bytes()
        files.write_json(
            self.folder / MANIFEST,
            {
                "format": FORMAT,
                "format_version": 1,
                "status": status,
                "core": {"version": _core.__version__, "sha256": self._core},
                "scenario": {"name": Path(plan.scenario).stem, "sha256": hashlib.sha256(text).hexdigest()},
                "overrides": plan.overrides,
                "factors": list(self.keys),
                "settings": plan.settings,
                "points": len(plan.points),
                "seeds": plan.seeds,
            },
        )


def _order(row: dict[str, Any], keys: tuple[str, ...]) -> tuple[Any, ...]:
    return (row["setting"], *(_natural(row[key]) for key in keys), row["seed"])


def _natural(value: str) -> tuple[float, str]:
    """Order values by their number, if they begin with one, then by their text."""
    try:
        return float(value.split()[0]), value
    except (ValueError, IndexError):
        return math.inf, value


def _table(rows: Sequence[dict[str, Any]], keys: tuple[str, ...]) -> pl.DataFrame:
    schema: dict[str, Any] = {"setting": pl.String, **dict.fromkeys(keys, pl.String), "seed": pl.UInt64}
    schema |= {"digest": pl.String, "core": pl.String, **dict.fromkeys(_METRIC_NAMES, pl.Float64)}
    columns = {name: [row[name] for row in rows] for name in schema}
    return pl.DataFrame(columns, schema=schema)


def _read(folder: Path, keys: tuple[str, ...]) -> pl.DataFrame:
    parts = sorted(folder.glob("setting=*/*.parquet"))
    if not parts:
        return _table([], keys)
    return pl.read_parquet(parts, hive_partitioning=True).select(_table([], keys).columns)


def _parquet(table: pl.DataFrame) -> bytes:
    buffer = io.BytesIO()
    table.write_parquet(buffer, compression="zstd")
    return buffer.getvalue()


def _manifest_of(folder: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        manifest = None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise UsageError(f"{folder}: exists already and is not a sweep's; choose another folder")
    return manifest
