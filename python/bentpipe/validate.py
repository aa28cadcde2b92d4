"""A scenario's simulation and its models side by side.

The models know nothing of the simulator, nor it of them: here they meet. Each of them is an engine and gives
an `Account`: mean and standard deviation over time of each quantity under each setting, and where it has one
the time series. The first account is the one that the others are compared with.
"""

import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from bentpipe import _core, files, store
from bentpipe.errors import AlgorithmError, ModelError, ResultError, ScenarioError, UsageError
from bentpipe.experiment import checked_jobs, execute
from bentpipe.metrics import find
from bentpipe.model import QUANTITIES, ModelResult, Quantity, describe, moments, open_model, solve
from bentpipe.plan import ALL, Plan, load, make_plan
from bentpipe.result import Result
from bentpipe.statistics import summarise
from bentpipe.store import Store
from bentpipe.wording import convert

__all__ = ["Account", "Moments", "Validation", "compared", "open_validation", "validate"]

FORMAT = "bentpipe-validation"
FORMAT_VERSION = 1
MANIFEST = "manifest.json"
COMPARISON = "comparison.json"
SIMULATION = "simulation"
MODEL = "model"
_TOP = {MANIFEST, COMPARISON, store.REPORT, store.FIGURES, SIMULATION, MODEL}

METRICS: dict[str, tuple[str, str | None]] = {
    "utilization": ("utilization", "utilization_std"),
    "offered_load": ("offered_load", None),
    "queue": ("queue_mean", "queue_std"),
    "queue_delay": ("queue_delay_mean", None),
    "mark_probability": ("mark_rate", None),
    "loss_rate": ("loss_rate", None),
}
"""The metrics whose printed values stand beside a quantity: its mean and its standard deviation."""


@dataclass(frozen=True, slots=True)
class Moments:
    """A quantity in one run, in its unit: mean and standard deviation over time; None where there is none."""

    mean: float | None
    std: float | None


@dataclass(frozen=True)
class Account:
    """What an engine says of a scenario."""

    engine: str
    """As in tables and files: `simulator`, `model`."""
    title: str
    """What it is, in a few words."""
    moments: Mapping[str, Mapping[str, Sequence[Moments]]]
    """For each setting and quantity, by name: one of each run."""
    series: Mapping[str, pl.DataFrame]
    """For each setting the first run's samples, in the columns of a simulation's; may be empty."""


def simulated(result: Result) -> Account:
    """Return the simulator's account."""
    found: dict[str, dict[str, list[Moments]]] = {}
    for setting in result.settings:
        mine: dict[str, list[Moments]] = {}
        for seed in result.seeds:
            table = result.one("series", setting, seed)
            for each in quantities([table]):
                mine.setdefault(each.name, []).append(Moments(*moments(table, each)))
            loss = find("loss_rate")
            counted = loss.of(result.recorded(setting, seed)) if loss else None
            mine.setdefault("loss_rate", []).append(Moments(counted, None))
        found[setting] = mine
    series = {name: result.one("series", name, result.seeds[0]) for name in result.settings}
    return Account("simulator", "packet simulator", found, series)


def solved(result: ModelResult) -> Account:
    """Return the fluid model's account."""
    found = {
        setting: {
            each.name: [Moments(*moments(table, each)) for table in tables] for each in quantities(tables)
        }
        for setting, tables in result.runs.items()
    }
    names = sorted({str(entry["equations"]) for entry in result.manifest["settings"]})
    return Account("model", f"fluid equations: {', '.join(names)}", found, result.tables)


def quantities(tables: Sequence[pl.DataFrame]) -> list[Quantity]:
    """Return the quantities that a time series holds, the AQM's own state last."""
    columns = tables[0].columns if tables else []
    known = [each for each in QUANTITIES if each.column in columns]
    return known + [Quantity(name, name, name, "", 1.0) for name in columns if name.startswith("aqm.")]


def compared(
    accounts: Sequence[Account], settings: Sequence[str], printed: Sequence[Mapping[str, Any]] = ()
) -> list[dict[str, Any]]:
    """Return a row for each setting and each quantity that two accounts know.

    A row has `setting`, `quantity`, `label`, `unit`, `printed` (what the scenario's source prints: `mean`,
    `std`, `source`, `calibrated`; or None), and for each engine a table: `mean` over the runs, `ci95` (the
    half-width of its 95 % interval, None below two runs), `std` (over time, mean over the runs), `runs`; and
    beside all but the first engine `difference`, that of the mean from the first one's in per cent of it, and
    `difference_ci95`, what the first one's interval makes of that. None stands for what is not known.
    """
    rows = []
    for setting in settings:
        for quantity in _known(accounts, setting):
            row: dict[str, Any] = {
                "setting": setting,
                "quantity": quantity.name,
                "label": quantity.label,
                "unit": quantity.unit,
                "printed": _printed(printed, setting, quantity),
            }
            for account in accounts:
                row[account.engine] = _entry(account.moments[setting].get(quantity.name, ()))
            first = row[accounts[0].engine]
            for account in accounts[1:]:
                row[account.engine] |= _difference(row[account.engine]["mean"], first)
            rows.append(row)
    return rows


def _known(accounts: Sequence[Account], setting: str) -> list[Quantity]:
    """Return the quantities of which at least two accounts know the mean."""
    fixed = {each.name: each for each in QUANTITIES}
    names = dict.fromkeys([*fixed, *(name for account in accounts for name in account.moments[setting])])
    return [
        fixed.get(name) or Quantity(name, name, name, "", 1.0)
        for name in names
        if sum(any(m.mean is not None for m in a.moments[setting].get(name, ())) for a in accounts) > 1
    ]


def _entry(runs: Sequence[Moments]) -> dict[str, Any]:
    mean, std = summarise([run.mean for run in runs]), summarise([run.std for run in runs])
    return {"mean": mean.mean, "ci95": mean.ci95, "std": std.mean, "runs": mean.runs}


def _difference(mean: float | None, first: Mapping[str, Any]) -> dict[str, Any]:
    base, ci95 = first["mean"], first["ci95"]
    if mean is None or not base:
        return {"difference": None, "difference_ci95": None}
    half = None if ci95 is None else 100 * abs(mean / base) * ci95 / abs(base)
    return {"difference": 100 * (mean - base) / base, "difference_ci95": half}


def _printed(rows: Sequence[Mapping[str, Any]], setting: str, quantity: Quantity) -> dict[str, Any] | None:
    names = METRICS.get(quantity.name)
    if names is None:
        return None
    found: dict[str, Any] = {"mean": None, "std": None, "source": "", "calibrated": False}
    for row in rows:
        if row["setting"] != setting or row["metric"] not in names:
            continue
        given = {"mean" if row["metric"] == names[0] else "std": row["value"]}
        if row["std"] is not None and row["metric"] == names[0]:
            given["std"] = row["std"]
        for key, value in given.items():
            found[key] = convert(float(value), row["unit"], quantity.unit)
        found["source"] = row["source"]
        found["calibrated"] |= bool(row["calibrated"])
    return found if found["mean"] is not None or found["std"] is not None else None


class Validation:
    """A scenario as several engines have it, under the same settings.

    Made by `validate` and `open_validation`. `simulation` and `model` are what the engines wrote.
    """

    def __init__(
        self, folder: Path, simulation: Result, model: ModelResult, *, temporary: Path | None = None
    ) -> None:
        """Take the folder and what its engines have written; `temporary` is deleted with this object."""
        self.folder = folder
        """Where the files are."""
        self.simulation = simulation
        self.model = model
        if temporary is not None:
            weakref.finalize(self, shutil.rmtree, temporary, ignore_errors=True)

    @property
    def settings(self) -> list[str]:
        """Names of the settings, in the order they were asked for."""
        return self.simulation.settings

    @cached_property
    def accounts(self) -> tuple[Account, ...]:
        """What each engine says; the first one is what the others are compared with."""
        return simulated(self.simulation), solved(self.model)

    def rows(self) -> list[dict[str, Any]]:
        """Return every quantity under every setting, as `compared` describes."""
        return compared(self.accounts, self.settings, self.simulation.manifest["printed"])

    def table(self) -> pl.DataFrame:
        """Return one row for each setting, quantity and engine.

        Columns: `setting`, `quantity`, `unit`, `engine`, `mean`, `ci95`, `std`, `runs`, `difference` [%],
        `difference_ci95`.
        """
        flat = [
            {key: row[key] for key in ("setting", "quantity", "unit")}
            | {"engine": account.engine, "difference": None, "difference_ci95": None}
            | row[account.engine]
            for row in self.rows()
            for account in self.accounts
        ]
        return pl.DataFrame(flat, schema=_TABLE)


_TABLE = {
    "setting": pl.String,
    "quantity": pl.String,
    "unit": pl.String,
    "engine": pl.String,
    "mean": pl.Float64,
    "ci95": pl.Float64,
    "std": pl.Float64,
    "runs": pl.UInt32,
    "difference": pl.Float64,
    "difference_ci95": pl.Float64,
}


def planned(
    scenario: _core.Scenario, settings: Sequence[str] | None, runs: int | None, seed: int | None
) -> tuple[Plan, ModelResult]:
    """Return what is to be simulated and what the model says of it, which is found first.

    Of `all` settings, those that the model does not cover are left out; others are a `ModelError` that names
    them all.
    """
    names = list(scenario.settings if settings is None else settings) or None
    plan = make_plan(scenario, settings=names, runs=runs, seed=seed)
    every = any(name.strip().lower() == ALL for name in names or [])
    able, tables, reasons = [], {}, []
    for each in plan.settings:
        try:
            tables[each.name] = [solve(each.scenario, plan.seeds[0])]
            if _draws(tables[each.name][0]):
                tables[each.name] += [solve(each.scenario, seed) for seed in plan.seeds[1:]]
            able.append(each)
        except ModelError as error:
            reasons.append(str(error))
    if reasons and not (every and able):
        raise ModelError("\n".join(reasons))
    plan = replace(plan, settings=tuple(able), left_out=(*plan.left_out, *reasons))
    return plan, ModelResult(describe(scenario, plan.settings, plan.seeds), tables)


def _draws(table: pl.DataFrame) -> bool:
    """Whether another seed may give another solution: the capacity is all that is drawn."""
    return table["capacity"].n_unique() > 1


def begun(
    folder: Path, plan: Plan, model: ModelResult, *, force: bool = False, resume: bool = False
) -> Store:
    """Make the folder, or go on with it, and return where the simulation goes.

    Raises `UsageError` if the folder exists (unless `force` and it is a validation's without foreign files,
    or `resume` and it is this one's) or cannot be written.
    """
    if not resume:
        if os.path.lexists(folder):
            _clear(folder, force=force)
        try:
            folder.mkdir(parents=True)
            files.write_json(folder / MANIFEST, _manifest(plan, "incomplete"))
        except OSError as error:
            raise UsageError(f"{folder}: cannot be written: {error.strerror}") from None
        into = Store.create(folder / SIMULATION, plan)
    else:
        _read_manifest(folder)
        into = Store.resume(folder / SIMULATION, plan)
    model.save(folder / MODEL, force=True)
    return into


def finished(folder: Path, plan: Plan) -> Validation:
    """Sum up what the engines have written, declare it complete, and return it."""
    found = Validation(folder, Result(folder / SIMULATION), open_model(folder / MODEL))
    files.write_json(folder / COMPARISON, found.rows())
    files.write_json(folder / MANIFEST, _manifest(plan, "complete"))
    return found


def dropped(folder: Path) -> None:
    """Remove the folder again if nothing was simulated: what was asked for turned out to be impossible."""
    if not (folder / SIMULATION).exists():
        shutil.rmtree(folder, ignore_errors=True)


def open_validation(folder: str | Path) -> Validation:
    """Open a validation that was written before; `ResultError` if it is not one, or not complete."""
    folder = Path(folder)
    _read_manifest(folder)
    return Validation(folder, Result(folder / SIMULATION), open_model(folder / MODEL))


def is_validation(folder: Path) -> bool:
    """Whether the folder is one of a validation, complete or not."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(manifest, dict) and manifest.get("format") == FORMAT


def validate(
    scenario: _core.Scenario | str | Path,
    settings: Sequence[str] | None = None,
    *,
    runs: int | None = None,
    seed: int | None = None,
    jobs: int | None = None,
    out: str | Path | None = None,
) -> Validation:
    """Simulate a scenario and solve its model under the same settings, and return both side by side.

    The arguments are those of `compare`. The model comes first: where it does not cover a setting, nothing is
    simulated.

    Raises what `compare` does, and `ModelError` where the model does not cover the scenario or a setting.
    """
    if isinstance(settings, str):
        settings = settings.split(",")
    loaded = scenario if isinstance(scenario, _core.Scenario) else load(scenario)
    jobs = checked_jobs(jobs)
    plan, model = planned(loaded, settings, runs, seed)
    if out is not None:
        return _carried_out(Path(out), plan, model, jobs)
    temporary = Path(tempfile.mkdtemp(prefix="bentpipe-"))
    try:
        found = _carried_out(temporary / "result", plan, model, jobs)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return Validation(found.folder, found.simulation, found.model, temporary=temporary)


def _carried_out(folder: Path, plan: Plan, model: ModelResult, jobs: int) -> Validation:
    into = begun(folder, plan, model)
    try:
        execute(into, jobs)
    except (AlgorithmError, ScenarioError, UsageError):
        dropped(folder)
        raise
    finally:
        into.close()
    return finished(folder, plan)


def _manifest(plan: Plan, status: str) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "status": status,
        "core": {"version": _core.__version__},
        "scenario": plan.scenario.name,
        "settings": [each.name for each in plan.settings],
        "seeds": list(plan.seeds),
        "engines": {"simulator": SIMULATION, "model": MODEL},
    }


def _read_manifest(folder: Path) -> None:
    if not folder.is_dir():
        raise ResultError(
            f"{folder}: " + ("is not a folder" if folder.exists() else "there is no such folder")
        )
    if not is_validation(folder):
        raise ResultError(f"{folder}: is not a validation: its {MANIFEST} is missing, or something else's")


def _clear(folder: Path, *, force: bool) -> None:
    if not force:
        raise UsageError(f"{folder}: exists already; choose another folder, or replace it with --force")
    allowed = "--force replaces only a validation or an empty folder"
    if folder.is_symlink() or not folder.is_dir():
        raise UsageError(f"{folder}: is not a folder; {allowed}")
    names = sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith(files.PARTIAL))
    if names and not is_validation(folder):
        raise UsageError(f"{folder}: is not a validation; {allowed}")
    foreign = [name for name in names if name not in _TOP]
    if foreign:
        raise UsageError(
            f"{folder}: --force would delete {foreign[0]}, which is not part of a validation;"
            " move it away first"
        )
    try:
        if (folder / SIMULATION).is_dir():
            store.clear(folder / SIMULATION, force=True)
        shutil.rmtree(folder)
    except OSError as error:
        raise UsageError(f"{folder}: cannot be replaced: {error.strerror}") from None
