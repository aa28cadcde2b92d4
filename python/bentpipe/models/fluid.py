"""Fluid model of a scenario: its equations, their solution, and the folder that stores it."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from bentpipe import _core, files, pages
from bentpipe.errors import FolderExistsError, ModelError, ResultError, UsageError
from bentpipe.models.engines import QUANTITIES, Account, Moments, moments, quantities
from bentpipe.runs import python_aqm
from bentpipe.runs.former_names import current_printed, current_table
from bentpipe.runs.plan import Setting, listed, load, make_plan
from bentpipe.runs.store import REPORT, scenario_description
from bentpipe.tables import parquet, reading

if TYPE_CHECKING:
    from bentpipe.pages import Plot

__all__ = ["QUANTITIES", "ModelResult", "describe", "kind_of", "model", "open_model", "solve"]


@dataclass(frozen=True)
class ModelResult:
    """Solution of the fluid equations of a scenario under some settings."""

    manifest: dict[str, Any]
    """The scenario, and the settings with their parameters, equations and inputs."""
    runs: dict[str, list[pl.DataFrame]]
    """Time series by setting, one per seed: a row per sample, in the columns of a simulation's.

    Only the first seed's, unless the capacity is random.
    """

    def _repr_html_(self) -> str:
        return str(pages.draw("cells.model_cell", self))

    @property
    def settings(self) -> list[str]:
        """Names of the settings, in order."""
        return list(self.runs)

    @property
    def tables(self) -> dict[str, pl.DataFrame]:
        """Time series of the first seed, by setting."""
        return {setting: tables[0] for setting, tables in self.runs.items()}

    def rows(self) -> list[dict[str, Any]]:
        """Return the mean and standard deviation over time of each quantity under each setting."""
        found: list[dict[str, Any]] = []
        for setting, table in self.tables.items():
            for each in QUANTITIES:
                mean, std = moments(table, each)
                found.append(
                    {"setting": setting, "quantity": each.name, "unit": each.unit, "mean": mean, "std": std}
                )
        return found

    def account(self) -> Account:
        """Return the model's account, for comparison with other engines."""
        found = {
            setting: {
                each.name: [Moments(*moments(table, each)) for table in tables]
                for each in quantities(tables[0])
            }
            for setting, tables in self.runs.items()
        }
        names = sorted({str(entry["equations"]) for entry in self.manifest["settings"]})
        return Account("model", f"fluid equations: {', '.join(names)}", found, self.tables)

    def report(self, path: str | Path) -> Path:
        """Write the report as one HTML file that opens offline; return its path."""
        return pages.write("fluid.model_page", self, Path(path))

    def plot(self, name: str, *, settings: str | Sequence[str] | None = None) -> "Plot":
        """Return an Altair chart of a quantity over the measured time [s], a panel for each setting.

        `name` is a quantity (`"queue"`, `"throughput"`, …), its series, or state of the AQM as `"aqm.p"`.
        Raises `UsageError` for an unknown name or setting, and without any value.
        """
        accounts = [self.account()]
        chart: Plot = pages.draw("plots.accounts_chart", accounts, name, self.settings, settings)
        return chart

    def save(self, folder: Path, *, force: bool = False) -> None:
        """Write the result and its report to `folder`.

        Raises `UsageError` if the folder exists, unless `force` is set and it holds a model's result.
        """
        replace = check_room(folder, force=force)
        with files.new_folder(folder, replace=replace) as partial:
            for entry in self.manifest["settings"]:
                for seed, table in zip(self.manifest["seeds"], self.runs[entry["name"]], strict=False):
                    files.write(partial / f"{entry['slug']}-{seed}.parquet", parquet(table))
            files.write_json(partial / COMPARISON, self.rows())
            self.report(partial / REPORT)
            files.write_json(partial / MANIFEST, self.manifest)


FORMAT = "bentpipe-model"
MARKOV_FORMAT = "bentpipe-markov"
FORMAT_VERSION = 3
"""Version 2 uses former names of metrics and series (`former_names`)."""
MANIFEST = "manifest.json"
COMPARISON = "comparison.json"


def open_model(folder: Path) -> ModelResult:
    """Open a model's result; `ResultError` if the folder holds no such result."""
    files.restore(folder)
    with reading(folder):
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
            raise ResultError(f"{folder}: is not a model's result")
        if manifest["format_version"] not in (2, FORMAT_VERSION):
            found = manifest["format_version"]
            raise ResultError(
                f"{folder}: has format {found}, but this Bentpipe reads formats 2 and {FORMAT_VERSION}"
            )
        manifest["printed"] = current_printed(manifest.get("printed", []))
        runs = {
            entry["name"]: [
                current_table(pl.read_parquet(path))
                for seed in manifest["seeds"]
                if (path := folder / f"{entry['slug']}-{seed}.parquet").exists()
            ]
            for entry in manifest["settings"]
        }
    return ModelResult(manifest, runs)


def check_room(folder: Path, *, force: bool) -> bool:
    """Return True if `folder` holds a model's result that `force` replaces, and False if it is free.

    Raises `UsageError` if it exists otherwise.
    """
    files.restore(folder)
    if not os.path.lexists(folder):
        return False
    if not force:
        raise FolderExistsError(folder, ", or replace it with force=True")
    if files.manifest_format(folder) not in (FORMAT, MARKOV_FORMAT):
        raise UsageError(f"{folder}: is not a model's result; allowed: such a result, or a new folder")
    return True


def describe(scenario: _core.Scenario, settings: Sequence[Setting], seeds: Sequence[int]) -> dict[str, Any]:
    """Return the manifest of a model's result."""
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "core": {"version": _core.__version__},
        "scenario": scenario_description(scenario),
        "seeds": list(seeds),
        "model": scenario.models(),
        "printed": current_printed(scenario.printed()),
        "settings": [
            {
                "name": each.name,
                "slug": each.slug,
                "effective": each.scenario.effective(),
                **json.loads(_core.fluid_inputs(each.scenario, seeds[0])),
            }
            for each in settings
        ],
    }


def kind_of(scenario: _core.Scenario) -> str:
    """Return the model for `scenario`: the one it names, "markov" if all traffic is datagrams, or "fluid"."""
    kind = scenario.models()["kind"]
    if kind is not None:
        return str(kind)
    traffic = json.loads(scenario.canonical())["traffic"]
    datagrams = all(
        isinstance(body, dict) and body.get("transport") is None
        for each in traffic
        for body in each["kind"].values()
    )
    return "markov" if traffic and datagrams else "fluid"


def solve(scenario: _core.Scenario, seed: int | None = None) -> pl.DataFrame:
    """Solve the fluid equations of `scenario`: a row per sample, in the columns of a simulation's.

    Raises `ModelError` if the equations do not cover the scenario or have no bounded solution.
    """
    try:
        return pl.DataFrame(_core.fluid(scenario, scenario.seed if seed is None else seed))
    except _core.ModelError as error:
        label = f", setting {scenario.aqm}" if scenario.aqm else ""
        raise ModelError(f"{scenario.name}{label}: {error}") from None


def model(
    scenario: _core.Scenario | str | Path,
    settings: str | Sequence[str | python_aqm.Setting] | None = None,
    *,
    set: Mapping[str, object] | Sequence[str] | None = None,  # noqa: A002
    seed: int | None = None,
) -> ModelResult:
    """Solve the fluid equations of a scenario under several settings.

    `scenario` is a path, a shipped name or a loaded scenario; `set` overrides its keys as in `load`.
    `settings` default to those of the scenario, or to the scenario unchanged; `seed` draws random
    capacities. Raises `ScenarioError` if the scenario, an override or a setting is invalid, `ModelError` if
    the equations do not cover it.
    """
    loaded = load(scenario, set)
    chosen = listed(settings)
    names = (loaded.settings if chosen is None else chosen) or None
    plan = make_plan(loaded, settings=names, runs=1, seed=seed)
    runs = {each.name: [solve(each.scenario, plan.seeds[0])] for each in plan.settings}
    return ModelResult(describe(loaded, plan.settings, plan.seeds), runs)
