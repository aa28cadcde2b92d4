"""Search of an AQM's parameters in a scenario: trials, front, winner, and its figures on hold-out seeds."""

import json
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from optuna.exceptions import StorageInternalError

from bentpipe import _core, files
from bentpipe.errors import ClusterError, ScenarioError, UsageError
from bentpipe.runs.dataset import Dataset, Failure, Run
from bentpipe.runs.plan import MOST_RUNS, Given, overrides_from, path_of
from bentpipe.runs.progress import OnProgress, reported
from bentpipe.runs.python_aqm import Setting
from bentpipe.runs.source import digest_of, entry_of, metrics_digest
from bentpipe.runs.store import build_digest
from bentpipe.runs.workers import Threads, Workers, simulate, workers_from
from bentpipe.stats.metrics import check_classes
from bentpipe.stats.objectives import Judged, Objective, judged, kept, objectives_from
from bentpipe.tuning.holdout import figures, fresh_seeds, rerun
from bentpipe.tuning.holdout import means as sample_means
from bentpipe.tuning.result import AS_GIVEN, DEFAULTS, JUDGES, TUNE, TuneResult
from bentpipe.tuning.search import FEWEST, Search, front, mean_of, means
from bentpipe.tuning.space import Space
from bentpipe.tuning.study import (
    COMPLETE,
    FAILED,
    IMPOSSIBLE,
    STOPPED,
    VALUELESS,
    Ledger,
    Trial,
    open_storage,
    unfinished,
    without_password,
)

__all__ = ["JOURNAL", "Tuning", "execute", "tune"]

JOURNAL = "study.journal"
MOST_TRIALS = 1_000_000
_POLL_SECONDS = 0.5
_KEEP = {"front": 1, "rank": 3}

OnMessage = Callable[[str], None]


@dataclass
class Tuning:
    """Plan of a search."""

    scenario: _core.Scenario
    """Scenario with the overrides outside the AQM's table."""
    search: Search
    seeds: list[int]
    trials: int
    """Limit of trials; a grid may have fewer points."""
    judge: str = "front"
    keep: int = 1
    """Number of the best trials that run again before the winner is chosen."""
    fresh: int = 10
    """Number of hold-out runs of the winner."""
    grid: list[dict[str, str]] = field(default_factory=list)

    @classmethod
    def plan(
        cls,
        scenario: Given,
        aqm: str,
        metrics: str | Sequence[str | Objective],
        *,
        trials: int | None = None,
        runs: int = 5,
        seed: int | None = None,
        vary: Sequence[str] | Mapping[str, str | Sequence[object]] = (),
        fix: Sequence[str] | Mapping[str, object] = (),
        overrides: Sequence[str] = (),
        sampler: str | None = None,
        generation: int = 10,
        pruning: bool = True,
        judge: str = "front",
        keep: int | None = None,
        fresh: int = 10,
    ) -> "Tuning":
        """Read the space and check all arguments, before anything runs.

        Raises `UsageError` and `ScenarioError` for wrong arguments.
        """
        if judge not in JUDGES:
            raise UsageError(f"--judge {judge}: allowed: {', '.join(JUDGES)}")
        for option, value, least, most in (
            ("--trials", 100 if trials is None else trials, 1, MOST_TRIALS),
            ("--runs", runs, 1, MOST_RUNS),
            ("--fresh", fresh, 2, MOST_RUNS),
            ("--keep", _KEEP[judge] if keep is None else keep, 1, MOST_TRIALS),
        ):
            if not least <= value <= most:
                raise UsageError(f"{option} {value}: allowed: from {least} to {most}")
        objectives = objectives_from(metrics)
        space = Space.of(scenario, aqm, vary=vary, fix=fix, overrides=overrides)
        base = space.as_given()
        names = [each.metric for each in objectives]
        check_classes(names, base.traffic, terminals=bool(base.terminals), returns=base.has_return)
        first = base.seed if seed is None else seed
        if not 0 <= first <= 2**64 - runs:
            raise UsageError(f"seed is {first}, but it must be from 0 to {2**64 - runs}")
        sampler = sampler or ("grid" if judge == "rank" else "tpe")
        search = Search(space, objectives, sampler, first, generation, pruning and sampler != "grid")
        grid = space.grid() if sampler == "grid" else []
        if sampler == "grid" and not grid:
            raise UsageError(f"--aqm {aqm}: no point of the grid is possible; use --vary")
        wanted = 100 if trials is None else trials
        if grid:
            wanted = min(len(grid), len(grid) if trials is None else trials)
        return cls(
            base,
            search,
            list(range(first, first + runs)),
            wanted,
            judge,
            _KEEP[judge] if keep is None else keep,
            fresh,
            grid,
        )

    @property
    def space(self) -> Space:
        """Search space."""
        return self.search.space

    @property
    def objectives(self) -> Sequence[Objective]:
        """Objectives."""
        return self.search.objectives

    @property
    def looks(self) -> int:
        """Maximum number of pruning checks per trial."""
        return max(0, len(self.seeds) - FEWEST)

    def digest(self) -> str:
        """Return the SHA-256 of the scenario with its overrides, without its AQM."""
        return digest_of(self.space.as_given(), self.space.overrides)

    def determined_by(self) -> dict[str, Any]:
        """Return everything that determines a trial, under the names used in messages."""
        return {
            "scenario": self.digest(),
            "AQM": " ".join(filter(None, [self.space.algorithm, self.space.source])),
            "core": build_digest(),
            "objectives": [str(each) for each in self.objectives],
            "seeds": [self.seeds[0], self.seeds[-1]],
            "space": [json.dumps(each.row(), ensure_ascii=False) for each in self.space.parameters],
            "fixed": [f"{name}={value}" for name, value in self.space.given.items()],
            # In a grid, parameters that are not varied are as in the setting.
            "setting": [f"{name}={value}" for name, value in self.space.setting.items()] if self.grid else [],
            "sampler": self.search.sampler,
            "generation": self.search.generation,
            "pruning": self.search.pruning,
        }

    def about(self) -> dict[str, Any]:
        """Return the manifest entries of the search."""
        return {
            "scenario": entry_of(self.scenario, self.digest()),
            "overrides": list(self.space.overrides),
            "settings": [self.space.aqm, DEFAULTS, AS_GIVEN],
            "points": self.trials,
            "seeds": self.seeds,
            "metrics": [each.metric for each in self.objectives],
            "tune": self.determined_by(),
        }

    def run(self, point: Mapping[str, str]) -> Run:
        """Return a run at a point, with the first seed; `ScenarioError` if the point is impossible."""
        values = tuple(point[name] for name in self.space.names)
        return self._run(self.space.aqm, self.space.build(point), values)

    def references(self) -> dict[str, Run]:
        """Return the references of the search: the AQM's defaults, and the scenario unchanged."""
        defaults = tuple(self.space.fixed(name) for name in self.space.names)
        given = self.space.as_given()
        own = {
            row["key"].removeprefix(f"{self.space.prefix}."): row["value"].removesuffix(" packets")
            for row in given.effective()
        }
        there = tuple(own.get(name, "–") for name in self.space.names)
        found = {
            DEFAULTS: self._run(DEFAULTS, self.space.under_defaults(), defaults),
            AS_GIVEN: self._run(AS_GIVEN, given, there),
        }
        if found[DEFAULTS].digest == found[AS_GIVEN].digest:
            del found[AS_GIVEN]
        return found

    def _run(self, setting: str, scenario: _core.Scenario, point: tuple[str, ...]) -> Run:
        return Run(point, setting, scenario, metrics_digest(scenario), self.seeds[0])


def tune(
    scenario: _core.Scenario | str | Path,
    aqm: str | Setting,
    metrics: str | Sequence[str | Objective],
    *,
    out: str | Path,
    trials: int | None = None,
    runs: int = 5,
    seed: int | None = None,
    vary: Sequence[str] | Mapping[str, str | Sequence[object]] = (),
    fix: Sequence[str] | Mapping[str, object] = (),
    set: Mapping[str, object] | Sequence[str] | None = None,  # noqa: A002
    sampler: str | None = None,
    generation: int = 10,
    pruning: bool = True,
    judge: str = "front",
    keep: int | None = None,
    fresh: int = 10,
    jobs: int | None = None,
    cluster: str | None = None,
    workers: Workers | None = None,
    storage: str | Path | None = None,
    study: str | None = None,
    progress: bool | None = None,
    on_progress: OnProgress | None = None,
    on_message: OnMessage | None = None,
) -> TuneResult:
    """Search the parameters of `aqm` for the best `metrics`, into the folder `out`.

    `scenario` is a path, a shipped name or a loaded scenario; `set` overrides its keys as in `load`. `aqm`
    is an algorithm, a setting, or a `Setting` with a class; `metrics` are objectives, as
    `"throughput:max,queue_delay_mean:min"`. `trials` (100) points of the registry's ranges are simulated
    with the same `runs` seeds each; `vary` restricts a parameter (`{"w_q": "0.01:0.2:log"}`), `fix` keeps
    one. The winner is chosen by `judge`, and simulated again with `fresh` hold-out seeds. An existing
    folder, or a study in `storage`, is continued. Runs execute on `jobs` threads, or on a `cluster`:
    `local:N` for N processes, or a scheduler's address. `on_progress` is called with the numbers of
    finished, wanted and failed runs, `on_message` with texts about other processes; `progress` is that of
    `compare`. See docs/tune.md. Raises `UsageError` and `ScenarioError` before anything runs.
    """
    plan = Tuning.plan(
        scenario,
        path_of(aqm),
        metrics,
        trials=trials,
        runs=runs,
        seed=seed,
        vary=vary,
        fix=fix,
        overrides=overrides_from(set),
        sampler=sampler,
        generation=generation,
        pruning=pruning,
        judge=judge,
        keep=keep,
        fresh=fresh,
    )
    with ExitStack() as stack:
        if workers is None:
            workers = stack.enter_context(closing(workers_from(jobs, cluster)))
        reporter = stack.enter_context(reported(progress, on_progress))
        return execute(
            plan,
            Path(out),
            workers=workers,
            storage=storage,
            study=study,
            on_progress=reporter.update,
            on_message=on_message,
        )


def execute(
    plan: Tuning,
    folder: Path,
    *,
    workers: Workers | None = None,
    storage: str | Path | None = None,
    study: str | None = None,
    on_progress: OnProgress | None = None,
    on_message: OnMessage | None = None,
) -> TuneResult:
    """Search, judge, and write the result to `folder`; an interruption keeps the finished runs."""
    workers = workers or Threads()
    began = time.monotonic()
    references = plan.references()
    keys = tuple(f"{plan.space.prefix}.{name}" for name in plan.space.names)
    with Dataset(folder, keys, plan.about()) as dataset:
        url = str(storage if storage is not None else folder / JOURNAL)
        where = without_password(url)
        name = study or f"{plan.scenario.name} {plan.space.aqm}"
        maximise = [each.direction == "max" for each in plan.objectives]
        try:
            ledger = Ledger(open_storage(url), name, maximise, plan.determined_by(), where)
            with closing(ledger):
                work = _Work(plan, ledger, dataset, workers, on_progress, on_message)
                trials = work.until_done()
            found = work.judge(trials, references)
        except StorageInternalError as error:
            reason = str(error.__cause__ or error).splitlines()[0]
            raise ClusterError(f"--storage {where}: failed during the search: {reason}") from None
        finally:
            dataset.flush(0.0)
        dataset.finish(work.failures)
    found |= {"seconds": round(time.monotonic() - began, 1), "storage": where, "study": name}
    files.write_json(folder / TUNE, files.sealed(found))
    result = TuneResult(folder)
    result.write()
    return result


class _Work:
    """One process's part in a search."""

    def __init__(
        self,
        plan: Tuning,
        ledger: Ledger,
        dataset: Dataset,
        workers: Workers,
        on_progress: OnProgress | None,
        on_message: OnMessage | None,
    ) -> None:
        self.plan = plan
        self.ledger = ledger
        self.dataset = dataset
        self.workers = workers
        self.failures: list[Failure] = []
        self._on_progress = on_progress or (lambda *_: None)
        self._on_message = on_message or (lambda _: None)
        self._waited_for: list[str] = []
        self._total = plan.trials * len(plan.seeds)
        self._done = 0

    def until_done(self) -> list[Trial]:
        """Simulate trials until the study has as many as wanted, and return them."""
        size = self.plan.search.generation
        generation = 0
        while generation * size < self.plan.trials:
            places = range(generation * size, min((generation + 1) * size, self.plan.trials))
            trials = self.ledger.trials()
            self._count(trials)
            if not unfinished(trials, places):
                generation += 1
                continue
            before = [trials[number] for number in range(places.start)]
            free = [place for place in places if place not in trials]
            if free:
                self.ledger.check()
                asked = self.plan.search.ask(generation, before, self.plan.grid, len(places))
                self.ledger.propose(
                    {place: asked[place - places.start] for place in free}, self.plan.search.distributions()
                )
                continue
            mine = self._take([trials[place] for place in places if trials[place].waiting])
            if mine:
                self._simulate(mine, before)
            else:
                self._wait()
        trials = self.ledger.trials()
        self._count(trials)
        return [trials[number] for number in range(self.plan.trials)]

    def _take(self, waiting: Sequence[Trial]) -> list[Trial]:
        """Claim half of the open trials, or one per thread; the rest is for other processes."""
        least = getattr(self.workers, "jobs", len(waiting))
        wanted = max(least, math.ceil(len(waiting) / 2))
        found: list[Trial] = []
        for trial in waiting:
            if len(found) >= wanted:
                break
            if self.ledger.take(trial):
                found.append(trial)
        return found

    def _wait(self) -> None:
        """Wait for the trials of other processes, and repeat those of dead ones."""
        others = self.ledger.repeat_left(self.plan.search.distributions())
        if others and others != self._waited_for:
            names = ", ".join(":".join(who.split(":")[:2]) for who in others)
            self._on_message(f"Waiting for trials of another process: {names}")
        self._waited_for = others
        if others:
            time.sleep(_POLL_SECONDS)

    def _count(self, trials: Mapping[int, Trial]) -> None:
        """Report progress; runs saved by a stopped trial count as done."""
        self._done = len(self.plan.seeds) * sum(
            1 for number, each in trials.items() if each.outcome is not None and number < self.plan.trials
        )

    def _simulate(self, trials: Sequence[Trial], before: Sequence[Trial]) -> None:
        """Simulate trials seed by seed, and stop those that are certainly worse."""
        plan, alive = self.plan, list[tuple[Trial, Run]]()
        for trial in trials:
            try:
                alive.append((trial, plan.run(trial.point)))
            except ScenarioError as error:
                self.ledger.tell(trial, IMPOSSIBLE, {}, None, str(error))
        done = 0
        while alive:
            # Before the minimum number of runs no trial is stopped, so that they can run concurrently.
            upto = min(len(plan.seeds), max(FEWEST, done + 1)) if plan.search.pruning else len(plan.seeds)
            self._runs([_at(run, seed) for seed in plan.seeds[done:upto] for _, run in alive])
            done = upto
            alive = [each for each in alive if not self._tell(*each, done, before)]

    def _tell(self, trial: Trial, run: Run, done: int, before: Sequence[Trial]) -> bool:
        """Store the outcome of a trial, if it has ended."""
        plan = self.plan
        runs, failed = self._values(run, plan.seeds[:done])
        if failed:
            self.ledger.tell(trial, FAILED, runs, None, failed)
            return True
        if done < len(plan.seeds):
            why = plan.search.verdict(runs, before, plan.looks)
            if why is not None:
                self.ledger.tell(trial, STOPPED, runs, None, why)
            return why is not None
        columns = mean_of(runs)
        known = [value for value in columns if value is not None]
        if len(known) < len(columns):
            names = [
                each.metric for each, value in zip(plan.objectives, columns, strict=True) if value is None
            ]
            self.ledger.tell(trial, VALUELESS, runs, None, f"no run has a value of {', '.join(names)}")
        else:
            self.ledger.tell(trial, COMPLETE, runs, known)
        return True

    def _values(self, run: Run, seeds: Sequence[int]) -> tuple[dict[int, tuple[float | None, ...]], str]:
        """Return the objectives of each run, and the failures."""
        found: dict[int, tuple[float | None, ...]] = {}
        for seed in seeds:
            metrics = self.dataset.metrics(_at(run, seed))
            if metrics is None:
                errors = [
                    each.error
                    for each in self.failures
                    if each.run.digest == run.digest and each.run.seed == seed
                ]
                return found, f"seed {seed}: {errors[-1] if errors else 'no result'}"
            found[seed] = tuple(metrics[each.metric] for each in self.plan.objectives)
        return found, ""

    def _runs(self, runs: Sequence[Run]) -> None:
        """Simulate the runs missing in the dataset."""
        base = self._done

        def on_progress(done: int, _: int, failed: int) -> None:
            self._on_progress(min(self._total, base + done), self._total, failed + len(self.failures))

        self.failures += simulate(runs, self.dataset, self.workers, on_progress)
        self._done = min(self._total, base + len(runs))

    def judge(self, trials: Sequence[Trial], references: Mapping[str, Run]) -> dict[str, Any]:
        """Choose the winner, simulate it on hold-out seeds, and return the whole result."""
        plan = self.plan
        metrics = [each.metric for each in plan.objectives]
        best = front(trials, plan.objectives)
        complete = [each for each in trials if each.outcome == COMPLETE]
        among = best if plan.judge == "front" else complete
        table = {str(each.number): dict(zip(metrics, means(each), strict=True)) for each in among}
        order = judged(table, plan.objectives)
        chosen = (
            {
                name: plan.run(next(t for t in trials if t.number == int(name)).point)
                for name in kept(order, plan.keep)
            }
            if order
            else {}
        )
        # Separate seeds for the choice among the best, and for the winner's figures.
        second = len(plan.seeds) if len(chosen) > 1 else 0
        unused = fresh_seeds(plan.seeds, second + plan.fresh)
        again: list[dict[str, Any]] = []
        if len(chosen) > 1:
            samples, failed = rerun(chosen, unused[:second], metrics, self.dataset, self.workers)
            self.failures += failed
            order_again = judged(sample_means(samples), plan.objectives)
            again = [
                {
                    "trial": int(each.name),
                    "place": each.place,
                    "total": _total(each),
                    "ranks": each.ranks,
                    "values": samples[each.name],
                }
                for each in order_again
            ]
            winner: str | None = order_again[0].name
        else:
            winner = next(iter(chosen), None)
        simulated = {**({winner: chosen[winner]} if winner is not None else {}), **references}
        samples, failed = rerun(references, plan.seeds, metrics, self.dataset, self.workers)
        self.failures += failed
        searched = {**table, **sample_means(samples)}
        in_search: dict[str, Any] = dict(samples)
        samples, failed = rerun(simulated, unused[second:], metrics, self.dataset, self.workers)
        self.failures += failed
        rows = figures(samples, metrics, searched, DEFAULTS)
        return self._document(trials, best, order, again, winner, in_search, samples, rows, unused, second)

    def _document(
        self,
        trials: Sequence[Trial],
        best: Sequence[Trial],
        order: Sequence[Any],
        again: list[dict[str, Any]],
        winner: str | None,
        in_search: Mapping[str, Any],
        samples: Mapping[str, Any],
        rows: Sequence[Any],
        unused: Sequence[int],
        second: int,
    ) -> dict[str, Any]:
        plan = self.plan
        saved = sum(len(plan.seeds) - len(each.runs) for each in trials if each.outcome == STOPPED)
        given = plan.space.as_given()
        return {
            "format": "bentpipe-tune",
            "format_version": 2,
            "core": {"version": _core.__version__, "sha256": build_digest()},
            "finished": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "scenario": {
                "name": given.name,
                "title": given.title,
                "description": given.description,
                "source": given.source,
                "warmup": given.warmup,
                "duration": given.duration,
                "overrides": given.overrides,
                "aqm": given.aqm,
                "text": given.text,
            },
            "aqm": plan.space.aqm,
            "algorithm": plan.space.algorithm,
            "prefix": plan.space.prefix,
            "python": plan.space.source is not None,
            "space": [each.row() | {"doc": each.doc} for each in plan.space.parameters],
            "fixed": dict(plan.space.given),
            "objectives": [{"metric": each.metric, "direction": each.direction} for each in plan.objectives],
            "sampler": plan.search.sampler,
            "generation": plan.search.generation,
            "pruning": plan.search.pruning,
            "judge": plan.judge,
            "keep": plan.keep,
            "seeds": plan.seeds,
            "seeds_again": list(unused[:second]),
            "seeds_fresh": list(unused[second:]),
            "trials": [
                {
                    "number": each.number,
                    "outcome": each.outcome,
                    "point": dict(each.point),
                    "runs": [[seed, *of] for seed, of in sorted(each.runs.items())],
                    "note": each.note,
                }
                for each in trials
            ],
            "runs": {
                "wanted": plan.trials * len(plan.seeds),
                "done": sum(len(each.runs) for each in trials),
                "saved": saved,
            },
            "front": [each.number for each in best],
            "order": [
                {"trial": int(each.name), "place": each.place, "total": _total(each), "ranks": each.ranks}
                for each in order
            ],
            "again": again,
            "winner": None if winner is None else int(winner),
            "setting": None
            if winner is None
            else plan.space.table(next(each for each in trials if each.number == int(winner)).point),
            "references": {name: dict(of) for name, of in in_search.items()},
            "reference_points": {
                name: dict(zip(plan.space.names, run.point, strict=True))
                for name, run in plan.references().items()
            },
            "fresh": {name: dict(of) for name, of in samples.items()},
            "figures": [each.row() for each in rows],
            "importance": plan.search.importance(trials),
        }


def _total(judged: Judged) -> float | None:
    """Return the sum of 2^rank; None above the numbers that JSON's readers know."""
    return judged.total if judged.total <= sys.float_info.max else None


def _at(run: Run, seed: int) -> Run:
    return Run(run.point, run.setting, run.scenario, run.digest, seed)
