"""Validation: a scenario's simulation, its model and, if given, a live run, compared.

Models and simulator do not depend on each other; this module joins them. Each engine gives an `Account`
(`bentpipe.models.engines`).
"""

import os
import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from bentpipe import _core, files, pages
from bentpipe.errors import (
    AlgorithmError,
    FolderExistsError,
    ModelError,
    ResultError,
    ScenarioError,
    UsageError,
)
from bentpipe.format import plural
from bentpipe.models import markov_result
from bentpipe.models.engines import LOSS, Account, Moments, compared, moments, quantities
from bentpipe.models.fluid import MARKOV_FORMAT, ModelResult, describe, kind_of, open_model, solve
from bentpipe.models.markov_result import Solution
from bentpipe.runs import python_aqm, store
from bentpipe.runs.experiment import checked_jobs, execute
from bentpipe.runs.former_names import current_document
from bentpipe.runs.plan import ALL, Plan, listed, load, make_plan
from bentpipe.runs.progress import OnProgress, Reporter, reported
from bentpipe.runs.result import Result
from bentpipe.runs.store import Store
from bentpipe.stats.metrics import find

if TYPE_CHECKING:
    from bentpipe.pages import Plot

__all__ = ["Validation", "open_validation", "validate"]

FORMAT = "bentpipe-validation"
FORMAT_VERSION = 1
MANIFEST = "manifest.json"
COMPARISON = "comparison.json"
SIMULATION = "simulation"
MODEL = "model"
LIVE = "live"
_TOP = {MANIFEST, COMPARISON, store.REPORT, store.FIGURES, SIMULATION, MODEL, LIVE}


_HEADERS = 28
"""IP and UDP headers of a datagram [bytes]."""


def simulated(result: Result, classes: Sequence[str] = ()) -> Account:
    """Return the account of a simulated or live result, with the loss of each of these datagram `classes`."""
    found: dict[str, dict[str, list[Moments]]] = {}
    for setting in result.settings:
        mine: dict[str, list[Moments]] = {}
        for seed in result.seeds:
            table = result.one("series", setting, seed)
            for each in quantities(table):
                mine.setdefault(each.name, []).append(Moments(*moments(table, each)))
            loss = find("loss_rate")
            counted = loss.of(result.recorded(setting, seed)) if loss else None
            mine.setdefault("loss_rate", []).append(Moments(counted, None))
            for name, lost in _losses(result, setting, seed).items() if classes else ():
                if name in classes:
                    mine.setdefault(LOSS + name, []).append(Moments(lost, None))
        found[setting] = mine
    series = {name: result.one("series", name, result.seeds[0]) for name in result.settings}
    if result.engine == store.LIVE:
        what = "live gateway: real TCP and QUIC connections, in real time"
        parts = [f"{what}, {plural(len(result.seeds), 'run')} per setting", *result.notes]
        return Account(store.LIVE, "; ".join([*parts, *result.invalid, *result.late]), found, series)
    return Account(store.SIMULATOR, "packet simulator", found, series)


def _losses(result: Result, setting: str, seed: int) -> dict[str, float]:
    """Return the share of each class's payload that is discarded at the mark point [%].

    Results count payload by class, but not packets; discards do not depend on a packet's length.
    """
    flows = result.one("flows", setting, seed).select("flow", pl.col("traffic").cast(pl.String), "bytes")
    drops = result.one("drops", setting, seed).filter(pl.col("arrival").is_not_null())
    lost = drops.group_by("flow").agg(lost=(pl.col("bytes").cast(pl.Int64) - _HEADERS).sum())
    sums = (
        flows.join(lost, on="flow", how="left")
        .group_by("traffic", maintain_order=True)
        .agg(pl.col("bytes", "lost").sum())
    )
    return {name: 100 * lost / (moved + lost) for name, moved, lost in sums.iter_rows() if moved + lost > 0}


@dataclass(frozen=True)
class Stationary:
    """Result of a Markov model, without time series."""

    rows: list[dict[str, Any]]
    """`quantity`, `mean` and `std` for each setting, in the form of a fluid model's."""
    notes: list[str]
    """Properties of the scenario that the model simplifies or ignores."""

    def account(self) -> Account:
        """Return the model's account, for comparison with other engines."""
        found: dict[str, dict[str, list[Moments]]] = {}
        for row in self.rows:
            found.setdefault(row["setting"], {})[row["quantity"]] = [Moments(row["mean"], row["std"])]
        return Account("model", "Markov model: an MMPP/Erlang-k/1/L queue in equilibrium", found, {})


def _open_model(folder: Path) -> ModelResult | Stationary:
    try:
        manifest = files.read_json(folder / MANIFEST)
        if isinstance(manifest, dict) and manifest.get("format") == MARKOV_FORMAT:
            rows = files.read_json(folder / COMPARISON)
            if manifest["format_version"] == 1:
                rows = current_document(rows)
            return Stationary(rows, manifest["notes"])
    except (OSError, ValueError) as error:
        raise ResultError(f"{folder}: cannot be read: {error}") from None
    return open_model(folder)


class Validation:
    """Results of several engines for a scenario under the same settings.

    Returned by `validate` and `open_validation`. `simulation`, `model` and the optional `live` are the
    engines' results.
    """

    def __init__(
        self,
        folder: Path,
        simulation: Result,
        model: ModelResult | Stationary,
        live: Result | None = None,
        *,
        temporary: Path | None = None,
    ) -> None:
        """Hold the results of a folder; `temporary` is deleted with this object."""
        self.folder = folder
        """Folder of the files."""
        self.simulation = simulation
        self.model = model
        self.live = live
        if temporary is not None:
            weakref.finalize(self, shutil.rmtree, temporary, ignore_errors=True)

    def _repr_html_(self) -> str:
        return str(pages.draw("cells.validation_cell", self))

    @property
    def settings(self) -> list[str]:
        """Names of the settings, in the requested order."""
        return self.simulation.settings

    @cached_property
    def accounts(self) -> tuple[Account, ...]:
        """Accounts of the engines; the first is the reference of the comparison."""
        model = self.model.account()
        names = dict.fromkeys(name for found in model.moments.values() for name in found)
        classes = [name.removeprefix(LOSS) for name in names if name.startswith(LOSS)]
        ours = simulated(self.simulation, classes)
        return (ours, model) if self.live is None else (ours, model, simulated(self.live))

    def rows(self) -> list[dict[str, Any]]:
        """Return every quantity under every setting; see `compared`."""
        return compared(self.accounts, self.settings, self.simulation.manifest["printed"])

    def report(self, path: str | Path | None = None) -> Path:
        """Write the report as one HTML file that opens offline; return its path.

        The default is `report.html` in the folder. Replaces the file if it exists.
        """
        return pages.write(
            "fluid.validation_page", self, self.folder / store.REPORT if path is None else Path(path)
        )

    def plot(self, name: str, *, settings: str | Sequence[str] | None = None) -> "Plot":
        """Return an Altair chart of a quantity over the measured time [s], a panel for each setting.

        `name` is a quantity (`"queue"`, `"throughput"`, …), its series, or state of the AQM as `"aqm.p"`. The
        series of all engines are drawn over each other, of the simulator that of the first seed.
        Raises `UsageError` for an unknown name or setting, and without any value.
        """
        chart: Plot = pages.draw("plots.accounts_chart", self.accounts, name, self.settings, settings)
        return chart

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
    **dict.fromkeys(("setting", "quantity", "unit", "engine"), pl.String),
    **dict.fromkeys(("mean", "ci95", "std"), pl.Float64),
    "runs": pl.UInt32,
    **dict.fromkeys(("difference", "difference_ci95"), pl.Float64),
}


def plan_and_solve(
    scenario: _core.Scenario,
    settings: Sequence[str | python_aqm.Setting] | None,
    runs: int | None,
    seed: int | None,
) -> tuple[Plan, ModelResult | Solution]:
    """Solve the model, and return the plan of the simulations with the model's result.

    With the setting `all`, settings that the model does not cover are left out. Otherwise a `ModelError`
    names them.
    """
    names = list(scenario.settings if settings is None else settings) or None
    plan = make_plan(scenario, settings=names, runs=runs, seed=seed)
    every = any(isinstance(name, str) and name.strip().lower() == ALL for name in names or [])
    if kind_of(scenario) == "markov":
        solved = markov_result.solve(
            scenario, names and [each.name for each in plan.settings], leave_out=every
        )
        covered = tuple(each for each in plan.settings if each.name in solved.results)
        return replace(plan, settings=covered, left_out=(*plan.left_out, *solved.left_out)), solved
    able, tables, reasons = [], {}, []
    for each in plan.settings:
        try:
            tables[each.name] = [solve(each.scenario, plan.seeds[0])]
            if _draws(each.scenario, plan.seeds):
                tables[each.name] += [solve(each.scenario, seed) for seed in plan.seeds[1:]]
            able.append(each)
        except ModelError as error:
            reasons.append(str(error))
    if reasons and not (every and able):
        raise ModelError("\n".join(reasons))
    plan = replace(plan, settings=tuple(able), left_out=(*plan.left_out, *reasons))
    return plan, ModelResult(describe(scenario, plan.settings, plan.seeds), tables)


def _draws(scenario: _core.Scenario, seeds: Sequence[int]) -> bool:
    """Return True if the solution depends on the seed: a random capacity is an input of the equations."""
    return len({_core.fluid_inputs(scenario, seed) for seed in seeds[:2]}) > 1


def same_scenario(plan: Plan, live: str | Path | None) -> Result | None:
    """Return the live result in a folder, or None if no folder is given.

    Raises `ResultError` if the folder holds no result, `UsageError` unless the result is live and has this
    plan's scenario and settings.
    """
    if live is None:
        return None
    found = Result(Path(live))
    if found.engine != store.LIVE:
        raise UsageError(f"{live}: is simulated, not live; `bentpipe live` makes live results")
    for setting in plan.settings:
        if setting.name not in found.settings:
            raise UsageError(
                f"{live}: the live result has no setting {setting.name}, which is to be compared; it has"
                f" {', '.join(found.settings)}"
            )
        info = found.setting_info(setting.name)
        if info["sha256"] == setting.digest:
            continue
        before = {row["key"]: row["value"] for row in info["effective"]}
        after = {row["key"]: row["value"] for row in setting.scenario.effective()}
        keys = sorted(before.keys() | after.keys())
        key = next((key for key in keys if before.get(key) != after.get(key)), "")
        raise UsageError(
            f"{live}: is a live result of another scenario: {key or 'its files'} is"
            f" {before.get(key, 'unset')} there and {after.get(key, 'unset')} here"
        )
    return found


def start(
    folder: Path,
    plan: Plan,
    model: ModelResult | Solution,
    live: Result | None = None,
    *,
    force: bool = False,
    resume: bool = False,
) -> Store:
    """Create the folder, or resume it, and return the store of the simulation.

    Raises `UsageError` if the folder cannot be written, or exists. `force` replaces a validation without
    foreign files; `resume` continues the same validation.
    """
    if not resume:
        if os.path.lexists(folder):
            _clear(folder, force=force)
        try:
            folder.mkdir(parents=True)
            files.write_json(folder / MANIFEST, _manifest(plan, "incomplete", live=live is not None))
        except FileExistsError:
            raise FolderExistsError(folder) from None
        except OSError as error:
            raise UsageError(f"{folder}: cannot be written: {error.strerror}") from None
        into = Store.create(folder / SIMULATION, plan)
    else:
        _read_manifest(folder)
        into = Store.resume(folder / SIMULATION, plan)
    model.save(folder / MODEL, force=True)
    if live is not None and not (folder / LIVE).exists():
        live.save(folder / LIVE)
    return into


def finish(folder: Path, plan: Plan) -> Validation:
    """Write the comparison, mark the validation complete, and return it."""
    found = Validation(folder, Result(folder / SIMULATION), _open_model(folder / MODEL), _open_live(folder))
    files.write_json(folder / COMPARISON, found.rows())
    files.write_json(folder / MANIFEST, _manifest(plan, "complete", live=found.live is not None))
    return found


def discard_if_unstarted(folder: Path) -> None:
    """Remove the folder if nothing was simulated because the request turned out to be invalid."""
    if not (folder / SIMULATION).exists():
        shutil.rmtree(folder, ignore_errors=True)


def open_validation(folder: str | Path) -> Validation:
    """Open a saved validation; `ResultError` if the folder holds none, or its simulation is incomplete."""
    folder = Path(folder)
    _read_manifest(folder)
    return Validation(folder, Result(folder / SIMULATION), _open_model(folder / MODEL), _open_live(folder))


def _open_live(folder: Path) -> Result | None:
    return Result(folder / LIVE) if (folder / LIVE).is_dir() else None


def is_validation(folder: Path) -> bool:
    """Return True if the folder holds a validation, complete or not."""
    return files.manifest_format(folder) == FORMAT


def validate(
    scenario: _core.Scenario | str | Path,
    settings: str | Sequence[str | python_aqm.Setting] | None = None,
    *,
    set: Mapping[str, object] | Sequence[str] | None = None,  # noqa: A002
    runs: int | None = None,
    seed: int | None = None,
    jobs: int | None = None,
    out: str | Path | None = None,
    live: str | Path | None = None,
    progress: bool | None = None,
    on_progress: OnProgress | None = None,
) -> Validation:
    """Simulate a scenario and solve its model under the same settings, and return the comparison.

    The arguments are those of `compare`; `live` is a folder with a live result of the same scenario to
    compare too. The model is solved first; if it does not cover a setting, nothing is simulated.

    Raises the errors of `compare`, and `ModelError` if the model does not cover the scenario or a setting.
    """
    settings = listed(settings)
    loaded = load(scenario, set)
    jobs = checked_jobs(jobs)
    plan, model = plan_and_solve(loaded, settings, runs, seed)
    third = same_scenario(plan, live)
    with reported(progress, on_progress) as reporter:
        if out is not None:
            return _run(Path(out), plan, model, third, jobs, reporter)
        temporary = Path(tempfile.mkdtemp(prefix="bentpipe-"))
        try:
            found = _run(temporary / "result", plan, model, third, jobs, reporter)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        return Validation(found.folder, found.simulation, found.model, found.live, temporary=temporary)


def _run(
    folder: Path,
    plan: Plan,
    model: ModelResult | Solution,
    live: Result | None,
    jobs: int,
    reporter: Reporter,
) -> Validation:
    into = start(folder, plan, model, live)
    try:
        execute(into, jobs, reporter)
    except (AlgorithmError, ScenarioError, UsageError):
        discard_if_unstarted(folder)
        raise
    finally:
        into.close()
    return finish(folder, plan)


def _manifest(plan: Plan, status: str, *, live: bool) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "status": status,
        "core": {"version": _core.__version__},
        "scenario": plan.scenario.name,
        "settings": [each.name for each in plan.settings],
        "seeds": list(plan.seeds),
        "engines": {"simulator": SIMULATION, "model": MODEL} | ({"live": LIVE} if live else {}),
    }


def _read_manifest(folder: Path) -> None:
    if not folder.is_dir():
        raise ResultError(f"{folder}: " + ("is not a folder" if folder.exists() else "no such folder"))
    if not is_validation(folder):
        raise ResultError(f"{folder}: is not a validation: its {MANIFEST} is missing or of another kind")


def _clear(folder: Path, *, force: bool) -> None:
    if not force:
        raise FolderExistsError(folder, " as out")
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
