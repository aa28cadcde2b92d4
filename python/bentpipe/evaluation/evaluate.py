"""Evaluation of settings in the cases of profiles: its scenario files, runs and result."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bentpipe import _core, files
from bentpipe.errors import UsageError
from bentpipe.evaluation import MANIFEST, RUNS
from bentpipe.evaluation.cases import Case, Profile, cases, controls
from bentpipe.evaluation.result import DATA, FORMAT, FORMAT_VERSION, SCENARIOS, EvaluationResult
from bentpipe.runs.python_aqm import Setting
from bentpipe.runs.workers import OnProgress, Workers
from bentpipe.sweeps.sweep import Sweep
from bentpipe.sweeps.sweep import execute as execute_sweep

__all__ = ["Plan", "execute", "make_plan", "write_scenarios"]

_SHIPPED = Path(__file__).parents[1] / "data" / "scenarios"

_SHOWN = (
    "throughput",
    "queue_delay_mean",
    "queue_delay_p95",
    "one_way_delay_mean",
    "one_way_delay_std",
    "goodput_total",
    "goodput_total_std",
    "delay_goodput_correlation",
    "loss_rate",
    "jain_index",
)
"""Metrics of every case, beside the figures by which it judges."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Cases and settings of an evaluation, checked before anything runs."""

    kind: str
    folder: Path
    profiles: tuple[Profile, ...]
    sweeps: tuple[tuple[Case, Sweep], ...]

    @property
    def total(self) -> int:
        """Number of runs."""
        return sum(len(sweep.cells) * len(sweep.seeds) for _, sweep in self.sweeps)

    @property
    def settings(self) -> list[str]:
        """Settings of all cases, in order."""
        return list(dict.fromkeys(name for _, sweep in self.sweeps for name in sweep.settings))

    @property
    def left_out(self) -> list[str]:
        """Settings that `all` leaves out in some case, with the reasons."""
        return list(dict.fromkeys(line for _, sweep in self.sweeps for line in sweep.left_out))

    def about(self) -> dict[str, Any]:
        """Return the manifest."""
        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "kind": self.kind,
            "core": {"version": _core.__version__},
            "profiles": [
                {"name": each.name, "title": each.title, "text": each.text, "chosen": list(each.chosen)}
                for each in self.profiles
            ],
            "settings": self.settings,
            "cases": [
                {
                    "profile": case.profile,
                    "section": case.section,
                    "name": case.name,
                    "title": case.title,
                    "text": case.text,
                    "chosen": case.chosen,
                    "figures": [[each.metric, each.is_more] for each in case.figures],
                    "seeds": sweep.seeds,
                }
                for case, sweep in self.sweeps
            ],
        }


def write_scenarios(folder: Path, networks: Sequence[Profile], sections: Sequence[str] | None) -> list[Case]:
    """Write the scenario file of each case, and the files that it names; those that are there stay.

    `sections` choose cases by the start of their section. Raises `UsageError` if a section has no case, or a
    file cannot be written.
    """
    found = []
    for network in networks:
        for case in cases(network):
            if sections is not None and not any(_is_in(case.section, each) for each in sections):
                continue
            path = scenario_file(folder, case)
            try:
                files.make_folder(path.parent)
                if not path.exists():
                    files.write(path, case.scenario.encode())
                for name in case.files:
                    beside = path.parent / name
                    files.make_folder(beside.parent)
                    if not beside.exists():
                        files.write(beside, (_SHIPPED / name).read_bytes())
            except OSError as error:
                raise UsageError(f"{path}: cannot be written: {error.strerror}") from None
            found.append(case)
    for section in sections or ():
        if not any(_is_in(case.section, section) for case in found):
            known = dict.fromkeys(case.section for network in networks for case in cases(network))
            raise UsageError(f"--section {section}: there is no such case; allowed: {', '.join(known)}")
    return found


def _is_in(section: str, wanted: str) -> bool:
    return section == wanted or section.startswith(f"{wanted}.")


def scenario_file(folder: Path, case: Case) -> Path:
    """Return the scenario file of a case in the folder of an evaluation."""
    return folder / SCENARIOS / case.profile / f"{case.name}.toml"


def make_plan(
    kind: str,
    folder: Path,
    networks: Sequence[Profile],
    settings: Sequence[str | Setting],
    *,
    sections: Sequence[str] | None = None,
    runs: int = RUNS,
    seed: int | None = None,
    overrides: Sequence[str] = (),
) -> Plan:
    """Write the scenario files and read them under all settings.

    Raises `UsageError` for wrong numbers, sections or folders, `ScenarioError` for a wrong setting or a file
    that was changed and is wrong now.
    """
    sweeps = []
    for case in write_scenarios(folder, networks, sections):
        figures = [each.metric for each in case.figures]
        asked = _Asked(
            scenario_file(folder, case),
            list(overrides),
            runs,
            seed,
            [*figures, *(name for name in _SHOWN if name not in figures)],
        )
        sweep = (
            asked.sweep(list(settings)) if kind == "aqm" else _of_controls(kind, asked, map(str, settings))
        )
        sweeps.append((case, sweep))
    return Plan(kind, folder, tuple(networks), tuple(sweeps))


@dataclass(frozen=True, slots=True)
class _Asked:
    """Request for a case, independent of the settings."""

    path: Path
    overrides: list[str]
    runs: int
    seed: int | None
    metrics: list[str]

    def sweep(self, settings: list[str | Setting] | None, changes: Sequence[str] = ()) -> Sweep:
        """Return the sweep of one point, under settings or as the file is."""
        return Sweep.plan(
            self.path,
            [],
            settings=settings,
            overrides=[*self.overrides, *changes],
            runs=self.runs,
            seed=self.seed,
            metrics=self.metrics,
        )


def _of_controls(kind: str, asked: _Asked, names: Iterable[str]) -> Sweep:
    """Return a sweep whose settings are controls of a kind; `UsageError` for an unknown one."""
    known, cells = controls(kind), []
    for name in names:
        if name not in known:
            raise UsageError(f"--controls {name}: there is no such control; allowed: {', '.join(known)}")
        ((point, _, scenario, digest),) = asked.sweep(None, known[name]).cells
        cells.append((point, name, scenario, digest))
    return replace(asked.sweep(None), cells=cells, settings=[cell[1] for cell in cells])


def execute(plan: Plan, workers: Workers, on_progress: OnProgress | None = None) -> EvaluationResult:
    """Simulate the runs that are missing in the folder of a plan; an interruption keeps the finished ones.

    Raises `UsageError` if the folder holds runs of other scenarios.
    """
    path = plan.folder / MANIFEST
    files.write_json(path, {**plan.about(), "status": "incomplete"})
    done, failed = 0, 0

    def notify(here: int, _total: int, failures: int) -> None:
        if on_progress is not None:
            on_progress(done + here, plan.total, failed + failures)

    for case, sweep in plan.sweeps:
        folder = plan.folder / DATA / case.profile / case.name
        files.make_folder(folder.parent)
        result = execute_sweep(sweep, folder, workers=workers, on_progress=notify)
        done += len(sweep.cells) * len(sweep.seeds)
        failed += len(result.failures)
    files.write_json(path, {**plan.about(), "status": "complete", "failed": failed})
    return EvaluationResult(plan.folder)
