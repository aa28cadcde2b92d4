"""Models of a scenario: fluid equations, solved in place of a simulation."""

import json
import math
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from bentpipe import _core, files
from bentpipe.errors import ModelError, UsageError
from bentpipe.plan import load, make_plan

__all__ = ["QUANTITIES", "ModelResult", "Quantity", "kind_of", "model", "solve"]


@dataclass(frozen=True, slots=True)
class Quantity:
    """What a model and a simulation both say, column by column of their time series."""

    name: str
    """As in tables and files."""
    column: str
    """The column of the time series."""
    label: str
    unit: str
    factor: float
    """From the column's unit to `unit`."""


QUANTITIES: tuple[Quantity, ...] = (
    Quantity("utilization", "utilization_out", "Utilization", "Mbit/s", 1e-6),
    Quantity("offered_load", "offered_load", "Offered load", "Mbit/s", 1e-6),
    Quantity("queue", "transmit_queue", "Queue", "packets", 1.0),
    Quantity("queue_delay", "queue_delay", "Queueing delay", "ms", 1e3),
    Quantity("mark_probability", "mark_probability", "Mark probability", "%", 100.0),
)


@dataclass(frozen=True)
class ModelResult:
    """What the fluid equations say of a scenario under some settings."""

    scenario: _core.Scenario
    tables: dict[str, pl.DataFrame]
    """For each setting the time series: one row a sample, the columns of a simulation's."""

    @property
    def settings(self) -> list[str]:
        """The settings, in order."""
        return list(self.tables)

    def rows(self) -> list[dict[str, Any]]:
        """Return mean and standard deviation over time of each quantity under each setting."""
        found: list[dict[str, Any]] = []
        for setting, table in self.tables.items():
            for each in QUANTITIES:
                mean, std = moments(table, each)
                found.append(
                    {"setting": setting, "quantity": each.name, "unit": each.unit, "mean": mean, "std": std}
                )
        return found

    def save(self, folder: Path, *, force: bool = False) -> None:
        """Write the result to `folder`; `UsageError` if that exists, unless `force` and it is a model's."""
        make_room(folder, force=force)
        try:
            folder.mkdir(parents=True)
            for number, (setting, table) in enumerate(self.tables.items(), 1):
                table.write_parquet(folder / f"{number}.parquet")
                del setting
            files.write_json(folder / "comparison.json", self.rows())
            files.write_json(folder / MANIFEST, self._manifest())
        except OSError as error:
            raise UsageError(f"{folder}: cannot be written: {error.strerror}") from None

    def _manifest(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "format_version": 1,
            "core": {"version": _core.__version__},
            "scenario": {"name": self.scenario.name, "title": self.scenario.title},
            "overrides": self.scenario.overrides,
            "model": self.scenario.models(),
            "settings": {name: f"{n}.parquet" for n, name in enumerate(self.tables, 1)},
        }


FORMAT = "bentpipe-model"
MANIFEST = "manifest.json"


def make_room(folder: Path, *, force: bool) -> None:
    """Remove a model's result from `folder` if `force`; `UsageError` if it exists and may not be removed."""
    if os.path.lexists(folder):
        if not force:
            raise UsageError(f"{folder}: exists already; choose another folder, or replace it with --force")
        if not _is_ours(folder):
            raise UsageError(f"{folder}: is not a model's result, so --force does not replace it")
        shutil.rmtree(folder)


def _is_ours(folder: Path) -> bool:
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(manifest, dict) and manifest.get("format") == FORMAT


def moments(table: pl.DataFrame, quantity: Quantity) -> tuple[float | None, float | None]:
    """Return mean and standard deviation of a quantity over the samples of a time series, if it has any."""
    if quantity.column not in table.columns:
        return None, None
    known = table[quantity.column].cast(pl.Float64).drop_nulls() * quantity.factor
    mean, std = known.mean(), known.std()
    finite = [x if isinstance(x, float) and math.isfinite(x) else None for x in (mean, std)]
    return finite[0], finite[1]


def kind_of(scenario: _core.Scenario) -> str:
    """Return which model answers `scenario`: "fluid", or "markov" where all traffic is datagrams."""
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
    """Solve the fluid equations of `scenario` as it is: one row a sample, in a simulation's columns.

    Raises `ModelError` if the equations do not cover the scenario or have no bounded solution.
    """
    try:
        return pl.DataFrame(_core.fluid(scenario, scenario.seed if seed is None else seed))
    except _core.ModelError as error:
        label = f", setting {scenario.aqm}" if scenario.aqm else ""
        raise ModelError(f"{scenario.name}{label}: {error}") from None


def model(
    scenario: _core.Scenario | str | Path,
    settings: Sequence[str] | None = None,
    *,
    seed: int | None = None,
) -> ModelResult:
    """Solve the fluid equations of a scenario under several settings.

    `settings` default to the scenario's own, or to the scenario as it is. Raises `ScenarioError` if the
    scenario or a setting is wrong, `ModelError` if the equations do not cover it.
    """
    loaded = scenario if isinstance(scenario, _core.Scenario) else load(scenario)
    names = list(loaded.settings if settings is None else settings) or None
    plan = make_plan(loaded, settings=names, runs=1, seed=seed)
    return ModelResult(loaded, {each.name: solve(each.scenario, plan.seeds[0]) for each in plan.settings})
