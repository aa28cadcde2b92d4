"""Advice on an AQM and its parameters: candidates are tuned, run again on new seeds, and judged.

Three rounds, each on its own seeds: a search of each AQM's parameters with short runs, the best few points of
each AQM at full length, and a final of the best of each AQM, the current setting and DropTail.
"""

import hashlib
import json
import math
import shlex
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bentpipe import _core, files, pages
from bentpipe.advice.judge import MARGIN, TOLERANCE, Judgement, Rule
from bentpipe.advice.rules import Candidate, decide, rows, sentences
from bentpipe.errors import ResultError, UsageError
from bentpipe.format import clock, meant
from bentpipe.runs.compare import run
from bentpipe.runs.dataset import Dataset, Failure, Run
from bentpipe.runs.former_names import read_document
from bentpipe.runs.plan import (
    Given,
    is_python,
    make_plan,
    opened,
    overrides_from,
    path_of,
    read,
    shipped,
    slug,
)
from bentpipe.runs.progress import OnProgress, reported
from bentpipe.runs.python_aqm import PythonAqm, Setting, imported, is_path
from bentpipe.runs.result import Result
from bentpipe.runs.source import Source, entry_of, metrics_digest
from bentpipe.runs.store import MANIFEST, core_digest
from bentpipe.runs.workers import Threads, Workers
from bentpipe.stats.caveats import (
    fixed_capacity,
    hidden_queue,
    hidden_queues,
    remedied,
    round_trip,
    tail_drop,
)
from bentpipe.stats.metrics import check_classes
from bentpipe.stats.objectives import Limit, Objective, kept, limits_from, objectives_from
from bentpipe.stats.services import Service, services
from bentpipe.stats.warmup import warmup_warnings
from bentpipe.tuning.holdout import fresh_seeds, means, rerun
from bentpipe.tuning.quiet import without_widget_warning
from bentpipe.tuning.space import aqm_table

if TYPE_CHECKING:
    from bentpipe.tuning.tune import Tuning

__all__ = ["ADVICE", "BEHIND", "PLAIN", "REPORT", "Advice", "AdvicePlan", "advise", "execute"]

ADVICE, REPORT = "advice.json", "report.html"
_SCHEDULERS = ("drr", "fq_codel", "cake", "cake_users")
BEHIND: tuple[str, ...] = ("red", "vrc", "gkvq", "avqred", "pfavqred", *_SCHEDULERS)
PLAIN: tuple[str, ...] = ("red", "vrc", "pi", "avqred", "codel", *_SCHEDULERS)
"""Default candidates with and without a PEP; docs/advise.md gives the reasons."""
JUDGES: tuple[Judgement, ...] = ("classes", "power", "rank")
EXTRA = ("fct_p95", "retransmitted")
"""Metrics shown if all candidates have them; the latter is what drops behind a PEP cost."""
TRIALS, RUNS, FRESH = 40, 2, 10
FEW = 5
"""Number of fresh seeds below which the advice warns."""
_KEPT, _AGAIN = 3, 3
"""Points of each AQM that run again at full length, and the number of their runs."""
_SHORTEST, _SHARE = 60.0, 0.1
"""Minimum duration of the search's runs [s], and as a share of the scenario's; the larger one counts."""
_DURATION = "run.duration"

OnMessage = Callable[[str], None]


@dataclass(frozen=True)
class AdvicePlan:
    """Plan of a recommendation, checked before anything runs."""

    scenario: Source
    given: str
    """Name of the scenario, as given."""
    overrides: tuple[str, ...]
    base: _core.Scenario
    split: bool
    """True if a PEP splits the connections at the subject."""
    aqms: tuple[str, ...]
    rule: Rule
    trials: int
    seeds: tuple[int, ...]
    """Seeds of the search."""
    again: tuple[int, ...]
    fresh: tuple[int, ...]
    searches: Mapping[str, "Tuning | None"]
    """Search of each AQM; None for AQMs without parameters to search."""

    @classmethod
    def plan(
        cls,
        scenario: Given,
        *,
        aqms: str | Sequence[str | Setting] | None = None,
        judge: str | None = None,
        metrics: str | Sequence[str | Objective] | None = None,
        limits: Sequence[str | Limit] = (),
        overrides: Sequence[str] = (),
        trials: int = TRIALS,
        runs: int = RUNS,
        fresh: int = FRESH,
        seed: int | None = None,
    ) -> "AdvicePlan":
        """Read everything; `UsageError` and `ScenarioError` for wrong arguments."""
        for option, value, least, most in (
            ("--trials", trials, 1, 100_000),
            ("--search-runs", runs, 1, 1000),
            ("--runs", fresh, 2, 1000),
        ):
            if not least <= value <= most:
                raise UsageError(f"{option} {value}: allowed: from {least} to {most}")
        if aqms is not None:
            aqms = aqms.split(",") if isinstance(aqms, str) else [path_of(each) for each in aqms]
        source, overrides = opened(scenario, overrides)
        base = read(source, overrides, aqms)
        split = base.with_setting("codel").behind_pep
        names = tuple(each.strip() for each in aqms) if aqms is not None else BEHIND if split else PLAIN
        _check_names(base, names)
        bounds = limits_from(limits)
        default = ["throughput", "queue_delay_mean", "loss_rate", *(["pep_sojourn"] if split else [])]
        objectives = objectives_from(default if metrics is None else metrics)
        wanted_metrics = [each.metric for each in objectives] + [each.metric for each in bounds]
        check_classes(wanted_metrics, base.traffic, terminals=bool(base.terminals), returns=base.has_return)
        round_trip = None if split else _round_trip(base)
        known = tuple(services(base.traffic, base.thresholds))
        by = _judgement(judge, known, metrics is not None)
        rule = Rule(tuple(objectives), tuple(bounds), by, round_trip, _guards(known), known)
        first = base.seed if seed is None else seed
        if not 0 <= first < 2**63:
            raise UsageError(f"seed is {first}, but it must be from 0 to {2**63 - 1}")
        seeds = range(first, first + runs)
        unused = fresh_seeds(seeds, _AGAIN + fresh)
        short = _short(base)
        changes = [*_without(overrides, _DURATION), f"{_DURATION}={short}"]
        wanted = list(objectives)
        if rule.by != "rank":
            figures = [each.metric.name for each in known if each.threshold is not None]
            response = "pep_sojourn" if split else "queue_delay_mean"
            wanted = objectives_from([*(figures if rule.by == "classes" else []), "throughput", response])
        wanted += _searched_for(wanted, bounds)
        searches = {
            name: _search(source, name, wanted, changes, trials=trials, runs=runs, seed=first)
            for name in names
        }
        return cls(
            source,
            str(scenario) if isinstance(scenario, str | Path) else _named_on_the_command_line(source),
            tuple(overrides),
            base,
            split,
            names,
            rule,
            trials,
            tuple(seeds),
            tuple(unused[:_AGAIN]),
            tuple(unused[_AGAIN:]),
            searches,
        )

    @property
    def short(self) -> str:
        """Measured time of a run of the search."""
        return _short(self.base)

    @property
    def long(self) -> str:
        """Measured time of all other runs."""
        return _seconds(_nanoseconds(self.base.duration))

    @property
    def table(self) -> str:
        """Table of the scenario that holds the subject's AQM: `gateway`."""
        return aqm_table(self.base).rpartition(".")[0]

    @property
    def metrics(self) -> list[str]:
        """Metrics of the candidates: objectives, limits, and those shown beside them."""
        return list(dict.fromkeys([*self.rule.metrics, *EXTRA]))

    def about(self) -> dict[str, Any]:
        """Return the manifest entries of the runs outside the searches."""
        plain = read(self.scenario, _without(self.overrides, _DURATION))
        known = "\n".join([plain.canonical(), *sorted(_without(self.overrides, _DURATION))])
        return {
            "scenario": entry_of(self.base, hashlib.sha256(known.encode()).hexdigest()),
            "overrides": list(self.overrides),
            "settings": list(self.aqms),
            "points": 2,
            "seeds": [*self.seeds, *self.again, *self.fresh],
        }

    def run(
        self,
        name: str,
        duration: str,
        change: str = "",
        setting: str | PythonAqm | None = None,
    ) -> Run:
        """Return a run of `duration` under a setting, or of the scenario unchanged, with the first seed."""
        changes = [*_without(self.overrides, _DURATION), f"{_DURATION}={duration}"]
        scenario = read(self.scenario, [*changes, *([change] if change else [])], self.aqms)
        if isinstance(setting, PythonAqm):
            scenario = scenario.with_python_aqm(setting)
        elif setting is not None:
            scenario = scenario.with_setting(setting)
        return Run((duration,), name, scenario, metrics_digest(scenario), self.seeds[0])


_SHAPE = {
    "format_version": int,
    "scenario": {"name": str},
    "answer": str,
    "words": {"answer": [str]},
    "paste": {"toml": str, "command": str},
}
"""Keys that readers rely on."""


class Advice:
    """Advice and the evidence for it."""

    def __init__(self, folder: str | Path) -> None:
        """Read the advice in `folder`; `ResultError` for any other folder."""
        self.folder = Path(folder)
        """Folder of the files."""
        self.found = read_document(self.folder / ADVICE, "bentpipe-advice", _SHAPE, "holds no advice")
        """Contents of `advice.json`."""

    def __repr__(self) -> str:
        return f"<bentpipe.Advice {self.found['scenario']['name']}: {self.answer}; {self.folder}>"

    def _repr_html_(self) -> str:
        return str(pages.draw("cells.advice_cell", self.found))

    @property
    def answer(self) -> str:
        """Name of the recommended setting."""
        return str(self.found["answer"])

    @property
    def sentence(self) -> str:
        """Recommendation as a sentence."""
        return " ".join(self.found["words"]["answer"])

    @property
    def toml(self) -> str:
        """Setting as a table to paste into a scenario; empty if it needs none."""
        return str(self.found["paste"]["toml"])

    @property
    def command(self) -> str:
        """Command that compares the recommended setting with DropTail."""
        return str(self.found["paste"]["command"])

    def report(self, path: str | Path | None = None) -> Path:
        """Write the page, by default to the folder, and return its path."""
        return pages.write(
            "advice.advice_page", self.found, self.folder / REPORT if path is None else Path(path)
        )


def advise(
    scenario: _core.Scenario | str | Path,
    aqms: str | Sequence[str | Setting] | None = None,
    *,
    out: str | Path,
    judge: str | None = None,
    metrics: str | Sequence[str | Objective] | None = None,
    limits: Sequence[str | Limit] = (),
    set: Mapping[str, object] | Sequence[str] | None = None,  # noqa: A002
    trials: int = TRIALS,
    search_runs: int = RUNS,
    runs: int = FRESH,
    seed: int | None = None,
    jobs: int | None = None,
    workers: Workers | None = None,
    progress: bool | None = None,
    on_progress: OnProgress | None = None,
    on_message: OnMessage | None = None,
) -> Advice:
    """Tune candidate AQMs on a scenario's link, and recommend one with its parameters and its confidence.

    `scenario` is a path, a shipped name or a loaded scenario; `set` overrides its keys as in `load`. `aqms`
    are algorithms, settings, or a `Setting` with a class each, by default a list that depends on the
    presence of a PEP. They are judged by `judge`: `"classes"`, the score of the worst-served class of
    traffic, then the mean, then power; `"power"`, see `objectives.by_power`; or `"rank"`, the rank sums of
    `metrics`, objectives as `"throughput:max,queue_delay_mean:min"`. The default is `"rank"` with
    `metrics`, else `"classes"`, and `"power"` if no class has thresholds. `limits`, as
    `["queue_delay_p95<=50"]`, rank first. `trials` points of each AQM are searched with `search_runs` short
    runs each; `runs` runs of full length, on seeds that the search never used, decide. Runs in the folder
    `out` are not repeated. `on_progress` is called with the numbers of finished, wanted and failed runs of
    each round, `on_message` with the name of the round; `progress` is that of `compare`. Raises
    `UsageError` and `ScenarioError` before anything runs.
    """
    plan = AdvicePlan.plan(
        scenario,
        aqms=aqms,
        judge=judge,
        metrics=metrics,
        limits=limits,
        overrides=overrides_from(set),
        trials=trials,
        runs=search_runs,
        fresh=runs,
        seed=seed,
    )
    with ExitStack() as stack:
        if workers is None:
            workers = stack.enter_context(closing(Threads(jobs)))
        reporter = stack.enter_context(reported(progress, on_progress))
        told = on_message or reporter.message
        return execute(plan, Path(out), workers=workers, on_progress=reporter.update, on_message=told)


def execute(
    plan: AdvicePlan,
    folder: Path,
    *,
    workers: Workers,
    on_progress: OnProgress | None = None,
    on_message: OnMessage | None = None,
) -> Advice:
    """Search, judge and write the advice to `folder`; an interruption keeps the finished runs."""
    began = time.monotonic()
    on_message = on_message or (lambda _: None)
    failures: list[Failure] = []
    with Dataset(folder / "runs", (_DURATION,), plan.about()) as dataset:

        def again(
            chosen: Mapping[str, Run], seeds: Sequence[int]
        ) -> dict[str, dict[str, list[float | None]]]:
            samples, failed = rerun(chosen, seeds, plan.metrics, dataset, workers, on_progress)
            failures.extend(failed)
            return samples

        short, long = (clock(float(each.removesuffix(" s"))) for each in (plan.short, plan.long))
        found: dict[str, list[Candidate]] = {}
        tried: list[dict[str, Any]] = []
        for number, (name, search) in enumerate(plan.searches.items(), 1):
            if search is None:
                found[name] = [_as_it_is(plan, name)]
                tried.append({"aqm": name, "trials": 0, "runs": 0, "impossible": 0})
                continue
            on_message(
                f"Searching {name}, {number} of {len(plan.searches)}: {plan.trials} points, {short} a run"
            )
            found[name], cost = _tuned(
                plan, name, search, folder / "search" / slug(name, ()), workers, on_progress
            )
            tried.append(cost)
        rivals = {name: mine for name, mine in found.items() if len(mine) > 1}
        if rivals:
            on_message(f"The best of each AQM again: {long} a run")
            runs = {each.name: _run(plan, each) for mine in rivals.values() for each in mine}
            samples = again(runs, plan.again)
            for name, mine in rivals.items():
                order = plan.rule.judge(means({each.name: samples[each.name] for each in mine}))
                found[name] = [next(each for each in mine if each.name == order[0].name)]
        finalists = [_named(plan, name, mine[0]) for name, mine in found.items() if mine]
        candidates = _references(plan)
        there = {_run(plan, each).digest for each in candidates}
        candidates += [each for each in finalists if _run(plan, each).digest not in there]
        on_message(f"What remains on fresh seeds: {long} a run")
        samples = again({each.name: _run(plan, each) for each in candidates}, plan.fresh)
        dataset.finish(failures)
    shown = [name for name in EXTRA if all(_any(samples[each.name][name]) for each in candidates)]
    decision = decide(candidates, samples, plan.rule, shown)
    failed = [f"{each.run.setting}, seed {each.run.seed}: {each.error}" for each in failures]
    answer = next(each for each in candidates if each.name == decision.answer)
    words = sentences(decision, candidates, len(plan.fresh))
    waits = {
        name: wait
        for name, mine in means(samples).items()
        if (wait := hidden_queue(mine, round_trip(plan.base.effective())))
    }
    words["warnings"] += hidden_queues(waits)
    words["warnings"] += warmup_warnings(_present(plan, folder / "present").settled)
    if len(plan.fresh) < FEW:
        words["warnings"].append(
            f"{len(plan.fresh)} fresh seeds hardly tell candidates apart. Use --runs {FRESH}, the default."
        )
    words["warnings"] += [f"A run failed and is left out: {text}" for text in failed]
    document = {
        "format": "bentpipe-advice",
        "format_version": 2,
        "core": {"version": _core.__version__},
        "finished": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "scenario": {
            "name": plan.base.name,
            "title": plan.base.title,
            "overrides": list(plan.overrides),
            "aqm": plan.base.aqm,
            "split": plan.split,
            "warmup": plan.base.warmup,
            "duration": plan.base.duration,
            "search_duration": float(plan.short.removesuffix(" s")),
        },
        "judge": plan.rule.by,
        "services": [each.metric.name for each in plan.rule.services],
        "round_trip": plan.rule.round_trip,
        "objectives": [{"metric": each.metric, "direction": each.direction} for each in plan.rule.objectives],
        "limits": [
            {"metric": each.metric, "sign": each.sign, "bound": each.bound} for each in plan.rule.limits
        ],
        "margin": MARGIN,
        "tolerance": TOLERANCE,
        "seeds": {"search": list(plan.seeds), "again": list(plan.again), "fresh": list(plan.fresh)},
        "answer": decision.answer,
        "first": decision.first,
        "present": _present_name(plan),
        "words": words,
        "metrics": list(next(iter(decision.cells.values()))),
        "changes": [
            {
                "metric": each.metric.name,
                "before": each.before,
                "after": each.after,
                "difference": each.found.mean,
                "low": each.found.low,
                "high": each.found.high,
                "p_holm": each.p_holm,
                "certain": each.certain,
                "words": each.words,
            }
            for each in decision.changes
        ],
        "candidates": rows(decision, candidates),
        "tried": tried,
        "paste": {
            "table": plan.table,
            "aqm": answer.inline,
            "toml": answer.toml,
            "command": _command(plan, answer),
        },
        "seconds": round(time.monotonic() - began, 1),
    }
    files.write_json(folder / ADVICE, files.sealed(document))
    advice = Advice(folder)
    advice.report()
    return advice


def _named_on_the_command_line(source: Source) -> str:
    """Return the shipped name of a scenario, or else its path."""
    path = shipped().get(source.name)
    return source.name if path is not None and str(path) == source.file else source.file


def _judgement(judge: str | None, known: Sequence[Service], ranked: bool) -> Judgement:
    """Return the judge; `UsageError` for an unknown one, or one that does not suit the other arguments."""
    graded = any(each.threshold is not None for each in known)
    if judge is None:
        return "rank" if ranked else "classes" if graded else "power"
    if judge not in JUDGES:
        raise UsageError(f'--judge: found "{judge}"; allowed: {", ".join(JUDGES)}')
    if judge != "rank" and ranked:
        raise UsageError(f"--metrics: are ranked, but the judge is {judge}; allowed: with --judge rank")
    if judge == "classes" and not graded:
        raise UsageError(
            "--judge classes: no class of traffic of the scenario has thresholds; allowed: power, rank"
        )
    return judge


def _guards(known: Sequence[Service]) -> tuple[Limit, ...]:
    """Return the limits beyond which the service of a class is bad."""
    return tuple(
        Limit(each.metric.name, ">=" if each.threshold.higher else "<=", each.threshold.bad)
        for each in known
        if each.threshold is not None
    )


def _round_trip(scenario: _core.Scenario) -> float:
    """Return the mean round-trip time without queues [s] of the traffic on the subject's link."""
    found = json.loads(scenario.canonical())
    subject = found["subject"]
    if "link" in subject:
        crossed = {subject["link"]}
    else:
        gateway = found["gateways"][subject["gateway"]]
        crossed = {group["link"] for group in gateway.get("terminals", [gateway])}
    trips = []
    for each in found["traffic"]:
        links = [part["link"] for part in each["route"]]
        if crossed.intersection(links):
            ways = [found["links"][part][way]["delay"] for part in links for way in ("forward", "reverse")]
            trips.append(sum(way["low"] + way["high"] for way in ways) / 2e9)
    return sum(trips) / len(trips) if trips else 0.0


def _any(values: Sequence[float | None]) -> bool:
    return any(value is not None for value in values)


def _short(scenario: _core.Scenario) -> str:
    """Return the measured time of a run of the search, a multiple of the sample interval."""
    wanted = min(scenario.duration, max(_SHORTEST, _SHARE * scenario.duration))
    interval = _nanoseconds(scenario.sample_interval)
    return _seconds(math.ceil(_nanoseconds(wanted) / interval) * interval)


def _nanoseconds(seconds: float) -> int:
    return round(1e9 * seconds)


def _seconds(nanoseconds: int) -> str:
    """Write a duration exactly, as in a scenario: `60 s`."""
    whole, rest = divmod(nanoseconds, 10**9)
    return f"{whole}.{rest:09d}".rstrip("0").rstrip(".") + " s"


def _without(overrides: Sequence[str], key: str) -> list[str]:
    return [each for each in overrides if each.partition("=")[0].strip() != key]


def _check_names(base: _core.Scenario, names: Sequence[str]) -> None:
    known = base.setting_names
    for index, name in enumerate(names):
        if is_python(base, name):
            PythonAqm(name, imported(name))
        elif name not in known:
            hint = meant(name, known, most=3, cutoff=0.5) or "bentpipe list aqms shows them"
            raise UsageError(f'--aqms: there is no AQM "{name}"; {hint}')
        if name in names[:index]:
            raise UsageError(f"--aqms {name}: found twice; allowed: each once")
    if not names:
        raise UsageError("--aqms: found none; allowed: AQMs, as red,avqred")


def _searched_for(objectives: Sequence[Objective], limits: Sequence[Limit]) -> list[Objective]:
    """Return objectives for metrics that appear only in limits, so that the search meets the limits."""
    known = {each.metric for each in objectives}
    found = {
        each.metric: Objective(each.metric, "min" if each.sign == "<=" else "max")
        for each in limits
        if each.metric not in known
    }
    return list(found.values())


def _search(
    scenario: Source,
    name: str,
    objectives: Sequence[Objective],
    overrides: Sequence[str],
    *,
    trials: int,
    runs: int,
    seed: int,
) -> "Tuning | None":
    """Return the search of an AQM; None for a scheduler and for AQMs without parameters to search."""
    known = json.loads(_core.registry())
    fixed = {entry["name"] for entry in known["schedulers"]} | {
        entry["name"] for entry in known["aqms"] if not any(each["tune"] for each in entry["params"])
    }
    if name in fixed or (is_path(name) and not _is_searched(name)):
        return None
    with without_widget_warning():
        from bentpipe.tuning.tune import Tuning

    return Tuning.plan(
        scenario, name, objectives, trials=trials, runs=runs, seed=seed, overrides=overrides, fresh=2
    )


def _is_searched(path: str) -> bool:
    """Return True if the class at `path` declares a parameter to search."""
    try:
        aqm = imported(path)
    except UsageError:
        # A setting of the scenario whose name looks like the path of a class.
        return True
    return isinstance(aqm, type) and any(each.tuning for each in PythonAqm(path, aqm).params)


def _tuned(
    plan: AdvicePlan,
    name: str,
    search: "Tuning",
    folder: Path,
    workers: Workers,
    on_progress: OnProgress | None,
) -> tuple[list[Candidate], dict[str, Any]]:
    """Search an AQM's parameters; return its best few points, and the cost."""
    from bentpipe.tuning.space_reduction import explored

    points, cost = explored(search, folder, plan.rule.pick, plan.metrics, workers, on_progress)
    names = kept(plan.rule.pick({key: each.values for key, each in points.items()}), _KEPT) if points else []
    candidates = [
        Candidate(
            f"{name} {key}",
            search.space.algorithm,
            "tuned",
            points[key].table,
            points[key].values,
            cost["trials"],
            python="" if search.space.source is None else name,
        )
        for key in names
    ]
    return candidates, {"aqm": name, **cost, "space": [each.row() for each in search.space.parameters]}


def _as_it_is(plan: AdvicePlan, name: str) -> Candidate:
    python = name if is_python(plan.base, name) else ""
    return _with_doubts(plan, Candidate(name, name, "as it is", python=python))


def _named(plan: AdvicePlan, name: str, candidate: Candidate) -> Candidate:
    """Return a candidate of the last round under its final name."""
    if candidate.role != "tuned":
        return candidate
    if candidate.parameters:
        return _with_doubts(plan, replace(candidate, name=f"{name} tuned"))
    return _with_doubts(plan, replace(candidate, name=f"{name} defaults", role="as it is"))


def _present(plan: AdvicePlan, folder: Path) -> Result:
    """Return one run of the current setting at full length, whose series the search does not keep.

    It is not repeated if `folder` holds it from this build.
    """
    seed = plan.seeds[0]
    digest = make_plan(plan.base, settings=None, runs=1, seed=seed).settings[0].digest
    try:
        found = Result(folder)
        made = [each["sha256"] for each in (found.manifest["core"], *found.manifest["settings"])]
        if found.seeds == [seed] and made == [core_digest(), digest]:
            return found
    except ResultError:
        pass
    if (folder / MANIFEST).exists():
        shutil.rmtree(folder)
    return run(plan.base, seed=seed, jobs=1, out=folder, progress=False)


def _present_name(plan: AdvicePlan) -> str:
    """Return the name of the current setting: its AQM, and its scheduler unless that is FIFO."""
    rows = {
        row["key"]: row["value"] for row in plan.base.effective() if row["key"].startswith(f"{plan.table}.")
    }
    scheduler = next((name for key, name in rows.items() if key.endswith(".scheduler.algorithm")), "")
    aqm = plan.base.aqm
    if not scheduler or scheduler == aqm:
        return aqm
    return scheduler if aqm == "droptail" else f"{aqm} and {scheduler}"


def _references(plan: AdvicePlan) -> list[Candidate]:
    """Return the current setting, and DropTail if that differs."""
    present = _with_doubts(plan, Candidate(_present_name(plan), plan.base.aqm, "present"))
    droptail = _with_doubts(plan, Candidate("droptail", "droptail", "reference"))
    if _run(plan, present).digest == _run(plan, droptail).digest:
        return [replace(present, algorithm="droptail")]
    return [present, droptail]


def _run(plan: AdvicePlan, candidate: Candidate) -> Run:
    if candidate.role == "present":
        return plan.run(candidate.name, plan.long)
    if candidate.python:
        values = {**dict(plan.base.aqm_overrides()), **candidate.values}
        aqm = PythonAqm(candidate.name, imported(candidate.python), values, "setting")
        return plan.run(candidate.name, plan.long, setting=aqm)
    return plan.run(candidate.name, plan.long, candidate.override, candidate.name)


def _with_doubts(plan: AdvicePlan, candidate: Candidate) -> Candidate:
    """Return a candidate with its scenario's warnings, except that of drops behind the PEP."""
    scenario = _run(plan, candidate).scenario
    doubts = [
        remedied(warning, code)
        for warning, code in zip(scenario.warnings, scenario.warning_codes, strict=True)
        if code not in {"aqm_behind_pep", "scheduler_behind_pep"}
    ]
    doubts += fixed_capacity(scenario.effective())
    tail = tail_drop(scenario.effective(), behind_pep=scenario.behind_pep)
    return replace(
        candidate, behind_pep=scenario.behind_pep, tail_drop=tail, warnings=tuple(dict.fromkeys(doubts))
    )


def _command(plan: AdvicePlan, answer: Candidate) -> str:
    """Return the command that compares the recommendation with DropTail, and with the current setting."""
    words = ["bentpipe", "compare", plan.given]
    for each in plan.overrides:
        words += ["--set", each]
    if answer.override:
        words += ["--set", answer.override]
    for name, value in answer.values.items() if answer.python else ():
        words += ["--set", f"{plan.table}.aqm.{name}={value}"]
    present = plan.base.aqm
    named = present in plan.base.setting_names
    same = named and plan.run("", plan.long, setting=present).digest == plan.run("", plan.long).digest
    names = [answer.python or answer.name] if answer.role != "present" else []
    names = list(dict.fromkeys([*names, *([present] if same else []), "droptail"]))
    return shlex.join([*words, "--settings", ",".join(names)])
