"""Stability margins of a scenario's fluid equations, at single points and as a map."""

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl

from bentpipe import _core, files
from bentpipe.errors import FolderExistsError, ModelError, UsageError
from bentpipe.format import with_unit
from bentpipe.models.oscillation import keys_of, simulated
from bentpipe.runs.experiment import cores
from bentpipe.runs.plan import load, make_plan
from bentpipe.tables import parquet

__all__ = ["AXES", "Axis", "StabilityMap", "axes", "margins", "parsed", "spread", "stability_map"]


@dataclass(frozen=True, slots=True)
class Axis:
    """A parameter that the analysis can vary."""

    name: str
    label: str
    unit: str
    factor: float
    """Factor from SI to `unit`."""


AXES: dict[str, Axis] = {
    axis.name: axis
    for axis in (
        Axis("connections", "Connections", "", 1.0),
        Axis("round_trip", "Round trip of the senders", "ms", 1e3),
        Axis("pep_delay", "Delay of the PEP", "ms", 1e3),
    )
}

_NUMBERS = (
    "p",
    "queue",
    "offered",
    "window",
    "round_trip",
    "gain_margin",
    "phase_margin",
    "delay_margin",
    "crossover",
    "growth",
    "period",
)
MOST_POINTS = 1_000_000
MOST_CONNECTIONS = 1_000_000


def spread(low: float, high: float, count: int) -> list[float]:
    """Return `count` values from `low` to `high`, evenly spaced."""
    if count > MOST_POINTS:
        raise UsageError(f"{count} values from {low:g} to {high:g}: allowed are at most {MOST_POINTS} points")
    if count < 1 or (count == 1 and low != high):
        raise UsageError(
            f"{count} values from {low:g} to {high:g}: allowed is at least one, and two for a range"
        )
    return [low + (high - low) * i / max(count - 1, 1) for i in range(count)]


def parsed(text: str) -> tuple[str, list[float]]:
    """Return the name and the values of `KEY=LOW:HIGH:N`, or of `KEY=VALUE`."""
    name, _, values = text.partition("=")
    parts = values.split(":")
    wrong = UsageError(
        f"--vary {text}: allowed is KEY=LOW:HIGH:N or KEY=VALUE, with KEY of {', '.join(AXES)}"
    )
    try:
        numbers = [float(part) for part in parts[:2]]
        count = int(parts[2]) if len(parts) == 3 else 1
    except ValueError:
        raise wrong from None
    if name not in AXES or len(parts) not in (1, 3) or not all(math.isfinite(x) for x in numbers):
        raise wrong
    return name, spread(numbers[0], numbers[-1], count)


def axes(
    scenario: _core.Scenario, varied: Mapping[str, Sequence[float]]
) -> tuple[tuple[str, Sequence[float]], tuple[str, Sequence[float]]]:
    """Return the two axes of a map.

    Missing axes default to the PEP delay, 0 to 60 ms, and a tenth to all of the scenario's connections. If
    the equations have no PEP, the round trip from a quarter to twice the scenario's replaces the PEP delay.
    """
    given = list(varied.items())
    if len(given) > 2:
        raise UsageError(f"--map: found {len(given)} parameters to vary; allowed: 2")
    try:
        inputs = json.loads(_core.fluid_inputs(scenario, scenario.seed))
    except _core.ModelError as error:
        raise ModelError(f"{scenario.name}: {error}") from None
    own = {each["symbol"]: each["value"] for each in inputs["inputs"]}
    pep = inputs["equations"] in ("gateway", "new_connections")
    for name, values in (
        ("pep_delay", spread(0.0, 0.06, 31) if pep else None),
        ("round_trip", None if pep else spread(0.25 * own["R"], 2.0 * own["R"], 31)),
        ("connections", spread(0.1 * own["m"], own["m"], 31)),
    ):
        if len(given) < 2 and values is not None and name not in dict(given):
            given.append((name, values))
    return given[0], given[1]


_COLUMNS = (
    ("p", "p", 1.0, ".4f"),
    ("queue", "queue [pkt]", 1.0, ".1f"),
    ("gain_margin", "gain", 1.0, ".3g"),
    ("phase_margin", "phase [°]", 1.0, ".1f"),
    ("delay_margin", "delay [ms]", 1e3, ".1f"),
    ("crossover", "crossover [rad/s]", 1.0, ".3g"),
    ("growth", "growth [1/s]", 1.0, ".3g"),
    ("period", "period [s]", 1.0, ".3g"),
)


def shown(table: pl.DataFrame, varied: Sequence[str]) -> tuple[list[str], list[list[str]], list[str]]:
    """Return headings, cells and notes of a table of margins."""
    heads = ["setting", *(with_unit(name, AXES[name].unit) for name in varied), ""]
    cells, notes = [], []
    for row in table.iter_rows(named=True):
        at = [f"{row[f'at_{name}'] * AXES[name].factor:.4g}" for name in varied]
        if row["error"] is not None:
            cells.append([row["setting"], *at, "no operating point", *("–" for _ in _COLUMNS)])
            notes.append(f"{row['setting']}: {row['error']}")
            continue
        values = [
            "–" if row[name] is None else format(row[name] * factor, form)
            for name, _, factor, form in _COLUMNS
        ]
        cells.append([row["setting"], *at, "stable" if row["stable"] else "unstable", *values])
    return [*heads, *(head for _, head, _, _ in _COLUMNS)], cells, list(dict.fromkeys(notes))[:5]


def margins(
    scenario: _core.Scenario | str | Path,
    settings: Sequence[str] | None = None,
    *,
    vary: Mapping[str, Sequence[float]] | None = None,
    seed: int | None = None,
    threads: int | None = None,
) -> pl.DataFrame:
    """Return the operating point of a scenario and its stability margins under several settings.

    `vary` gives values [SI units] for `connections`, `round_trip` and `pep_delay`; every combination is a
    point. `threads` defaults to one per core. One row per setting and point: `setting`; the varied values as
    `at_connections` and so on; the operating point `p`, `queue` [packets], `offered` [packets/s], `window`
    [segments] and `round_trip` [s]; `stable`, `unstable_roots`, `gain_margin`, `phase_margin` [degrees],
    `delay_margin` [s], `crossover` [rad/s], and `growth` [1/s] and `period` [s] of the rightmost root;
    `pep_in_loop`; `error` if there is no operating point. Infinite margins are null.

    Raises `ModelError` if the equations do not cover the scenario under a setting.
    """
    loaded = scenario if isinstance(scenario, _core.Scenario) else load(scenario)
    chosen = dict(vary or {})
    for name in chosen:
        if name not in AXES:
            raise UsageError(f"vary: found {name}; allowed: {', '.join(AXES)}")
    for count in chosen.get("connections", ()):
        if count > MOST_CONNECTIONS:
            raise UsageError(f"vary: found {count:g} connections; allowed: at most {MOST_CONNECTIONS:,}")
    combined = list(product(*chosen.values()))
    if not 1 <= len(combined) <= MOST_POINTS:
        raise UsageError(f"vary: found {len(combined)} points; allowed: 1 to {MOST_POINTS}")
    points = [dict(zip(chosen, values, strict=True)) for values in combined]
    asked = [(at.get("connections"), at.get("round_trip"), at.get("pep_delay")) for at in points]
    count = threads or cores()
    names = list(loaded.settings if settings is None else settings) or None
    rows: list[dict[str, Any]] = []
    for each in make_plan(loaded, settings=names, runs=1, seed=seed).settings:
        first = each.scenario.seed if seed is None else seed
        try:
            found = _core.stability(each.scenario, first, asked, count)
        except _core.ModelError as error:
            raise ModelError(f"{loaded.name}, setting {each.name}: {error}") from None
        rows += [_row(each.name, at, one) for at, one in zip(points, found, strict=True)]
    schema: dict[str, Any] = {"setting": pl.String, **{f"at_{name}": pl.Float64 for name in chosen}}
    schema |= dict.fromkeys(_NUMBERS, pl.Float64)
    schema |= {"stable": pl.Boolean, "unstable_roots": pl.Int64, "pep_in_loop": pl.Boolean}
    return pl.DataFrame(rows, schema=schema | {"error": pl.String})


def _row(setting: str, at: Mapping[str, float], one: Mapping[str, Any]) -> dict[str, Any]:
    known = "error" not in one
    return {
        "setting": setting,
        **{f"at_{name}": value for name, value in at.items()},
        **{name: one.get(name) for name in _NUMBERS},
        "stable": one["unstable_roots"] == 0 if known else None,
        "unstable_roots": one.get("unstable_roots"),
        "pep_in_loop": one.get("pep_in_loop"),
        "error": one.get("error"),
    }


def _covered(loaded: _core.Scenario) -> list[str]:
    """Return the settings that the analysis covers, plus PI for comparison; empty without settings."""
    if not loaded.settings:
        return []
    names = [name for name in loaded.settings if _has_equilibrium(loaded, name)]
    return names if "pi" in names else [*names, "pi"]


def _has_equilibrium(loaded: _core.Scenario, setting: str) -> bool:
    """Return True if the AQM of a setting has a fluid model with a known equilibrium."""
    try:
        table = margins(loaded, [setting])
    except ModelError:
        return False
    return not any("has no known equilibrium" in error for error in table["error"].drop_nulls())


@dataclass(frozen=True)
class StabilityMap:
    """Stability margins over two parameters."""

    scenario: str
    equations: str
    x: Axis
    y: Axis
    settings: list[str]
    table: pl.DataFrame
    """One row per setting and point, as `margins` returns them."""
    simulated: list[dict[str, Any]] = field(default_factory=list)
    """Oscillation of the simulator's queue at some of the points."""

    def save(self, folder: Path) -> None:
        """Write table, simulations and manifest to the existing `folder`."""
        about = {"scenario": self.scenario, "equations": self.equations, "settings": self.settings}
        files.write_json(
            folder / MANIFEST, {"format": FORMAT, "format_version": 1, "core": _core.__version__, **about}
        )
        files.write(folder / "map.parquet", parquet(self.table))
        files.write_json(folder / "simulated.json", self.simulated)


def stability_map(
    scenario: _core.Scenario | str | Path,
    *,
    x: tuple[str, Sequence[float]] = ("pep_delay", tuple(spread(0.0, 0.06, 31))),
    y: tuple[str, Sequence[float]],
    settings: Sequence[str] | None = None,
    seed: int | None = None,
    threads: int | None = None,
) -> StabilityMap:
    """Return the margins of a scenario over the values [SI units] of two of `AXES`.

    `settings` default to the scenario's settings that the analysis covers, and PI.
    """
    loaded = scenario if isinstance(scenario, _core.Scenario) else load(scenario)
    if x[0] == y[0]:
        raise UsageError(f"map: found {x[0]} on both axes; allowed: two of {', '.join(AXES)}")
    table = margins(
        loaded,
        settings or _covered(loaded) or None,
        vary={x[0]: x[1], y[0]: y[1]},
        seed=seed,
        threads=threads,
    )
    names = list(dict.fromkeys(table["setting"].to_list()))
    return StabilityMap(loaded.name, _equations(loaded), AXES[x[0]], AXES[y[0]], names, table)


def _equations(scenario: _core.Scenario) -> str:
    """Return the name of the scenario's equations, and of their feedback delay."""
    name = str(json.loads(_core.fluid_inputs(scenario, scenario.seed))["equations"])
    late = scenario.models().get("feedback") == "round_trip" and name != "end_to_end"
    return name + (", marks take effect a round trip later" if late else "")


MANIFEST, FORMAT = "manifest.json", "bentpipe-stability"


def open_folder(folder: Path, *, force: bool) -> None:
    """Create `folder`; `UsageError` if it exists, unless `force` is set and it holds a stability analysis.

    A former map and its simulations stay until the new map is complete; an unfinished one is continued.
    """
    if os.path.lexists(folder):
        if not force:
            raise FolderExistsError(folder, ", or replace it with force=True")
        if not _is_replaceable(folder):
            raise UsageError(f"{folder}: is not a stability analysis, so --force does not replace it")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder}: cannot be written: {error.strerror}") from None


CACHE = "simulated-cache.json"


def _is_replaceable(folder: Path) -> bool:
    """Return True for a stability analysis, an unfinished one included, and for an empty folder."""
    if files.manifest_format(folder) == FORMAT:
        return True
    return folder.is_dir() and ((folder / CACHE).is_file() or files.is_empty(folder))


def check_simulated(scenario: _core.Scenario, names: Sequence[str]) -> None:
    """Raise `UsageError` if the simulator cannot vary one of these axes."""
    keys_of(scenario, names)


def with_simulations(
    found: StabilityMap,
    path: str | Path,
    overrides: Sequence[str],
    count: int,
    folder: Path,
    on_message: Callable[[str], object] | None = None,
) -> StabilityMap:
    """Return the map with `count` by `count` simulations of the scenario at `path`, cached in `folder`."""

    def along(axis: Axis) -> list[float]:
        values = found.table[f"at_{axis.name}"]
        low, high = min(values), max(values)
        return spread(low, high, count if high > low else 1)

    def progress(done: int, total: int) -> None:
        if on_message is not None and (done == total or done % count == 0):
            on_message(f"Simulated {done} of {total} points")

    points = {axis.name: along(axis) for axis in (found.x, found.y)}
    rows = simulated(path, overrides, found.settings, points, folder / CACHE, progress)
    return replace(found, simulated=rows)
