"""Results of the Markov model for several settings: tables and folder."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from bentpipe import _core, files, pages
from bentpipe.errors import UsageError
from bentpipe.format import brief
from bentpipe.models.fluid import MANIFEST, MARKOV_FORMAT, check_room
from bentpipe.runs.plan import make_plan
from bentpipe.runs.store import REPORT
from bentpipe.tables import parquet

if TYPE_CHECKING:
    from bentpipe.models.markov import MarkovResult

__all__ = ["Solution", "solve"]

_WHOLE = (
    "offered_load",
    "throughput",
    "queue_mean",
    "queue_std",
    "queue_p95",
    "queue_delay_mean",
    "drop_rate",
)
_CLASS = ("offered", "loss", "packets", "delay")
_LABELS = {
    "offered_load": "Offered load",
    "throughput": "Throughput",
    "queue_mean": "Queue, mean",
    "queue_std": "Queue, std",
    "queue_p95": "Queue, 95th percentile",
    "queue_delay_mean": "Queueing delay, mean",
    "drop_rate": "Drop rate",
    "mark_rate": "Mark rate",
    "offered": "offered",
    "loss": "loss",
    "packets": "in the system",
    "delay": "delay",
}


@dataclass(frozen=True)
class Solution:
    """The Markov model of a scenario under some settings."""

    scenario: _core.Scenario
    results: "dict[str, list[MarkovResult]]"
    """For each setting, the model with all states and, if applicable, with fewer."""
    control: "dict[int, list[MarkovResult]]"
    """For each number of states, the first setting under threshold control at 25 to 95 % of the buffer."""
    left_out: tuple[str, ...] = ()
    """Settings that the model does not cover, with the reasons."""

    def _repr_html_(self) -> str:
        return str(pages.draw("cells.markov_cell", self))

    @property
    def settings(self) -> list[str]:
        """The settings, in order."""
        return list(self.results)

    def rows(self) -> list[dict[str, Any]]:
        """Return every quantity: `setting`, `states`, `quantity`, `class`, `unit`, `value`."""
        return [
            {"setting": setting, "states": one.states, **row}
            for setting, found in self.results.items()
            for one in found
            for row in one.rows()
        ]

    def compared(self) -> list[dict[str, Any]]:
        """Return the quantities that fluid models give too, with all states, in the same form."""
        return [
            {"setting": setting, **row}
            for setting, found in self.results.items()
            for row in found[0].compared()
        ]

    def tables(self) -> list[tuple[str, list[str], list[list[str]]]]:
        """Return for each number of states title, headings and formatted rows, with a column per setting."""
        made = []
        for alike in zip(*self.results.values(), strict=True):
            cells = [{(row["class"], row["quantity"]): row for row in one.rows()} for one in alike]
            wanted = [("all", quantity) for quantity in _WHOLE]
            if any(one.threshold is not None for one in alike):
                wanted.append(("all", "mark_rate"))
            wanted += [(each.name, quantity) for each in alike[0].queue.classes for quantity in _CLASS]
            rows = []
            for name, quantity in wanted:
                found = [cell[name, quantity] for cell in cells]
                unit, factor = _shown(found[0]["unit"])
                label = _LABELS[quantity] if name == "all" else f"{name}: {_LABELS[quantity]}"
                rows.append([label, unit, *(brief(row["value"] * factor, 4) for row in found)])
            made.append((f"{alike[0].states} states", ["quantity", "unit", *self.settings], rows))
        return made

    def report(self, path: str | Path) -> Path:
        """Write the report as one HTML file that opens offline; return its path."""
        return pages.write("markov.markov_page", self, Path(path))

    def save(self, folder: Path, *, force: bool = False) -> None:
        """Write the result to `folder`; `UsageError` if it exists, unless `force` and it holds a model's."""
        replace = check_room(folder, force=force)
        distribution = [
            {"setting": setting, "states": one.states, **row}
            for setting, found in self.results.items()
            for one in found
            for row in one.distribution()
        ]
        control = [
            {"threshold": one.threshold, "states": states, **row}
            for states, found in self.control.items()
            for one in found
            for row in one.rows()
        ]
        with files.new_folder(folder, replace=replace) as partial:
            files.write(partial / "quantities.parquet", parquet(pl.DataFrame(self.rows())))
            files.write(partial / "distribution.parquet", parquet(pl.DataFrame(distribution)))
            files.write(partial / "control.parquet", parquet(pl.DataFrame(control)))
            files.write_json(partial / "comparison.json", self.compared())
            self.report(partial / REPORT)
            files.write_json(partial / MANIFEST, self._manifest())

    def _manifest(self) -> dict[str, Any]:
        return {
            "format": MARKOV_FORMAT,
            "format_version": 2,
            "core": {"version": _core.__version__},
            "scenario": {"name": self.scenario.name, "title": self.scenario.title},
            "overrides": self.scenario.overrides,
            "model": {**self.scenario.models(), "kind": "markov"},
            "settings": {name: [one.states for one in found] for name, found in self.results.items()},
            "notes": self.notes,
        }

    @property
    def notes(self) -> list[str]:
        """Properties of the scenario that the model simplifies or ignores, without duplicates."""
        found = [note for results in self.results.values() for one in results for note in one.notes]
        return list(dict.fromkeys(found))


def _shown(unit: str) -> tuple[str, float]:
    """Return the displayed unit and the factor to it."""
    return {"": ("%", 100.0), "s": ("ms", 1e3)}.get(unit, (unit, 1.0))


def solve(
    scenario: _core.Scenario, settings: Sequence[str] | None = None, *, leave_out: bool = False
) -> Solution:
    """Solve the Markov model of a scenario under several settings, and under threshold control.

    `settings` default to those of the scenario, or to the scenario unchanged. Raises `ScenarioError` if a
    setting is invalid, `UsageError` if the model does not cover the scenario; with `leave_out`, only if it
    covers none of the settings.
    """
    from bentpipe.models import markov

    names = list(scenario.settings if settings is None else settings) or None
    plan = make_plan(scenario, settings=names, runs=1, seed=None)
    results, reasons = {}, []
    for each in plan.settings:
        try:
            results[each.name] = markov.both(each.scenario)
        except UsageError as error:
            reasons.append(f"{scenario.name}, setting {each.name}: {error}")
            if not leave_out:
                break
    if reasons and not (leave_out and results):
        raise UsageError("\n".join(reasons))
    first = next(each for each in plan.settings if each.name in results)
    control = {one.states: markov.control(first.scenario, states=one.states) for one in results[first.name]}
    return Solution(scenario, results, control, tuple(reasons))
