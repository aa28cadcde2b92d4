"""The runs of a paper's experiments: what is wanted, what is there already, and how the rest is simulated.

A run is kept under what determines it (the build of the core, the scenario's digest, the seed), so that it is
simulated once, whichever experiment or paper asks for it, and an interrupted reproduction goes on. The core's
own tables and counters are kept, and measures taken from them each time, so that no change of a measure or a
metric makes a run stale.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from bentpipe import _core
from bentpipe.errors import ResultError
from bentpipe.reproduction.fluid import Solution, checked, digest_of, solved
from bentpipe.reproduction.measures import Measure, Seen
from bentpipe.reproduction.paper import Experiment, Paper
from bentpipe.runs.experiment import checked_jobs
from bentpipe.runs.plan import load, make_plan
from bentpipe.runs.store import COUNTERS, core_digest, write_run
from bentpipe.stats.metrics import Recorded

__all__ = ["Cell", "Library", "Teller", "cells_of", "plan", "simulate"]

_POLL_SECONDS = 0.2
_TABLES = ("series", "flows", "drop_runs")
_DROPS, _FLOWS = "drops", "flows"
_NO_FLOWS = "no-flows"
"""The table of flows without a row, where they are not kept."""

Teller = Callable[[int, int, int], None]
"""Is told how many runs are done, wanted and failed."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One case of an experiment at one point, and its seeds."""

    experiment: str
    case: str
    point: str
    scenario: _core.Scenario
    digest: str
    """SHA-256 of all that determines its results, the seed apart."""
    seeds: tuple[int, ...]
    drops: bool
    flows: bool = True
    """Whether the table of flows is kept."""
    fluid: bool = False
    """Whether its equations are solved, in place of a simulation."""


def plan(paper: Paper, *, quick: bool) -> dict[tuple[str, str, str], Cell]:
    """Return every cell of a paper's experiments, by experiment, case and point, before anything runs.

    Raises `ScenarioError`, `UsageError` or `ModelError` for the first that is impossible.
    """
    return {
        (cell.experiment, cell.case, cell.point): cell
        for experiment in paper.experiments.values()
        for cell in cells_of(experiment, quick=quick)
    }


def cells_of(experiment: Experiment, *, quick: bool) -> Iterator[Cell]:
    """Yield every case of one experiment at each point."""
    runs = experiment.quick_runs if quick else experiment.runs
    last = experiment.quick_overrides if quick else ()
    for point in experiment.points:
        if quick and point.label not in experiment.quick_points:
            continue
        for case in experiment.cases:
            changes = [*experiment.overrides, *point.overrides, *case.overrides, *last]
            loaded = load(experiment.scenario, changes)
            settings = None if case.setting is None else [case.setting]
            found = make_plan(loaded, settings=settings, runs=runs, seed=experiment.seed)
            (setting,) = found.settings
            digest = setting.digest
            if experiment.fluid:
                checked(setting.scenario, found.seeds[0])
                digest = digest_of(setting.scenario, digest)
            yield Cell(
                experiment.name,
                case.label,
                point.label,
                setting.scenario,
                digest,
                found.seeds,
                experiment.drops,
                experiment.flows,
                experiment.fluid,
            )


class Library:
    """Runs on disk, each in a folder that appears when it is complete."""

    def __init__(self, folder: Path) -> None:
        """Keep them in `folder`, which is made when the first is written."""
        self._folder = folder / core_digest()[:16]
        self._known: dict[tuple[str, int, Measure], float | None] = {}

    def _run(self, cell: Cell, seed: int) -> Path:
        return self._folder / cell.digest[:32] / str(seed)

    def has(self, cell: Cell, seed: int) -> bool:
        """Whether a run is there with all that its experiment needs."""
        folder = self._run(cell, seed)
        needed = {f"{name}.parquet" for name in (*_TABLES, *([_DROPS] if cell.drops else []))} | {COUNTERS}
        there = {entry.name for entry in folder.iterdir()} if folder.is_dir() else set()
        if not cell.flows and f"{_NO_FLOWS}.parquet" in there:
            needed.remove(f"{_FLOWS}.parquet")
        return needed <= there

    def add(self, cell: Cell, seed: int, run: _core.Run | Solution) -> None:
        """Write a run; safe from any thread. Raises `OSError` and leaves nothing if it cannot."""
        names = (*_TABLES, _DROPS) if cell.drops else _TABLES
        tables = {name: pl.DataFrame(getattr(run, name)) for name in names}
        if not cell.flows:
            tables[_NO_FLOWS] = tables.pop(_FLOWS).head(0)
        # One without its drops or flows may stand there.
        write_run(self._run(cell, seed), tables, run.counters)

    def seen(self, cell: Cell, seed: int) -> Seen:
        """Return a run as measures see it; `ResultError` if it cannot be read."""
        folder = self._run(cell, seed)
        try:
            there = {name: folder / f"{name}.parquet" for name in _TABLES}
            if not there[_FLOWS].is_file():
                there[_FLOWS] = folder / f"{_NO_FLOWS}.parquet"
            tables = {name: pl.read_parquet(path) for name, path in there.items()}
            counters = json.loads((folder / COUNTERS).read_text(encoding="utf-8"))
        except (OSError, ValueError, pl.exceptions.PolarsError) as error:
            raise ResultError(f"{folder}: cannot be read: {error}; delete this folder") from None
        return Seen(
            Recorded(**tables, counters=counters, capacity=cell.scenario.capacity), cell.scenario.duration
        )

    def drops(self, cell: Cell, seed: int) -> pl.DataFrame:
        """Return every drop of a run that was kept with them; `ResultError` if it cannot be read."""
        path = self._run(cell, seed) / f"{_DROPS}.parquet"
        try:
            return pl.read_parquet(path)
        except (OSError, pl.exceptions.PolarsError) as error:
            raise ResultError(f"{path}: cannot be read: {error}; delete its folder") from None

    def measure(self, cell: Cell, measures: Sequence[Measure]) -> None:
        """Measure every run of a cell at once, for each is read from the disk once."""
        for seed in cell.seeds:
            missing = [each for each in measures if (cell.digest, seed, each) not in self._known]
            if missing:
                seen = self.seen(cell, seed)
                for each in missing:
                    self._known[cell.digest, seed, each] = each.of(seen)

    def values(self, cell: Cell, measure: Measure) -> list[float | None]:
        """Return a measure of every run of a cell, in the order of its seeds."""
        self.measure(cell, [measure])
        return [self._known[cell.digest, seed, measure] for seed in cell.seeds]


def simulate(
    cells: Sequence[Cell], library: Library, jobs: int | None = None, told: Teller | None = None
) -> int:
    """Simulate the runs that `library` lacks, on a thread per core by default, and return how many.

    On an interruption or an error, the runs under way are stopped and the finished ones stay. Raises
    `SimulationError`, `ScenarioError` and `OSError`.
    """
    jobs = checked_jobs(jobs)
    tell = told or (lambda *_: None)
    wanted: dict[tuple[str, int], Cell] = {}
    for cell in cells:
        for seed in cell.seeds:
            # One run stands for all that ask for it, so it keeps what any of them needs.
            other = wanted.setdefault((cell.digest, seed), cell)
            wanted[cell.digest, seed] = replace(
                cell, drops=cell.drops or other.drops, flows=cell.flows or other.flows
            )
    todo = [(cell, seed) for (_, seed), cell in wanted.items() if not library.has(cell, seed)]
    # The longest first, so that no thread is left alone with one at the end.
    todo.sort(key=lambda each: -_weight(each[0]))
    there = len(wanted) - len(todo)
    tell(there, len(wanted), 0)
    if not todo:
        return 0
    pool = ThreadPoolExecutor(jobs, thread_name_prefix="bentpipe")
    running: dict[Future[None], _core.Progress] = {}
    done, queue = 0, iter(todo)

    def submit() -> None:
        for cell, seed in queue:
            progress = _core.Progress()
            running[pool.submit(_one, library, cell, seed, progress)] = progress
            if len(running) >= 2 * jobs:
                return

    try:
        submit()
        while running:
            finished, _ = wait(running, timeout=_POLL_SECONDS, return_when=FIRST_COMPLETED)
            for future in finished:
                future.result()
                del running[future]
                done += 1
            submit()
            tell(there + done, len(wanted), 0)
    finally:
        for progress in running.values():
            progress.cancel()
        pool.shutdown(wait=True, cancel_futures=True)
    return len(todo)


def _weight(cell: Cell) -> float:
    return cell.scenario.duration * cell.scenario.capacity


def _one(library: Library, cell: Cell, seed: int, progress: _core.Progress) -> None:
    run = solved(cell.scenario, seed) if cell.fluid else _core.simulate(cell.scenario, seed, progress)
    library.add(cell, seed, run)
