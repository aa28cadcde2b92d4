"""Result of a parameter search: trials, front, winner, and its figures on hold-out seeds."""

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from bentpipe import files, pages
from bentpipe.format import measured, plural, quantity
from bentpipe.runs.former_names import read_document
from bentpipe.runs.store import REPORT
from bentpipe.stats.intervals import Summary, summarise
from bentpipe.stats.objectives import Objective
from bentpipe.tables import parquet

if TYPE_CHECKING:
    from bentpipe.pages import Plot

__all__ = [
    "AS_GIVEN",
    "BEST",
    "DEFAULTS",
    "JUDGES",
    "TRIALS",
    "TUNE",
    "TuneResult",
    "difference",
    "is_tune",
    "open_tune",
]

TUNE, TRIALS, BEST = "tune.json", "trials.parquet", "best.toml"
DEFAULTS, AS_GIVEN = "defaults", "scenario's own"
"""References of a search: the AQM's defaults, and the scenario's own setting."""
JUDGES = ("front", "rank")
"""The winner is the first by rank sums among the front, or among all trials."""


_SHAPE = {
    "format_version": int,
    "scenario": {"name": str},
    "aqm": str,
    "objectives": [{"metric": str, "direction": str}],
    "space": [{"name": str}],
    "trials": [{"number": int, "outcome": str, "runs": list}],
    "front": [int],
    "order": [{"trial": int}],
    "seeds": [int],
}
"""Keys that readers rely on."""


class TuneResult:
    """A finished search."""

    def __init__(self, folder: str | Path) -> None:
        """Read the result in `folder`; `ResultError` for any other folder."""
        self.folder = Path(folder)
        """Folder of the files."""
        problem = "is not the result of a search"
        self.found = read_document(self.folder / TUNE, "bentpipe-tune", _SHAPE, problem)
        """Contents of `tune.json`."""

    def __repr__(self) -> str:
        found = self.found
        what = f"{found['scenario']['name']}: {found['aqm']}, {len(found['trials'])} trials"
        return f"<bentpipe.TuneResult {what}; {self.folder}>"

    def _repr_html_(self) -> str:
        return str(pages.draw("cells.tune_cell", self))

    @property
    def objectives(self) -> list[Objective]:
        """Objectives of the search."""
        return [Objective(each["metric"], each["direction"]) for each in self.found["objectives"]]

    @property
    def parameters(self) -> list[str]:
        """Names of the searched parameters."""
        return [each["name"] for each in self.found["space"]]

    @property
    def winner(self) -> dict[str, Any] | None:
        """Winning trial: `number`, `point`, `runs`; None if no trial completed."""
        number = self.found["winner"]
        return None if number is None else dict(self.found["trials"][number])

    @property
    def setting(self) -> str:
        """Name of the setting in `best.toml`."""
        return f"{self.found['algorithm']} tuned"

    def summary(self, number: int, metric: str) -> Summary:
        """Summarise a metric of a trial over its runs."""
        place = 1 + [each.metric for each in self.objectives].index(metric)
        return summarise([run[place] for run in self.found["trials"][number]["runs"]])

    def frame(self) -> pl.DataFrame:
        """Return one row per trial: number, outcome, a column for each parameter, runs, and each objective.

        Parameters are strings, as in a scenario file; an objective has its mean and `_ci95`, the half-width
        of the 95 % interval. `front` and `winner` mark the trials in the front and the winner.
        """
        front, rows = set(self.found["front"]), []
        for each in self.found["trials"]:
            number = each["number"]
            row: dict[str, Any] = {"trial": number, "outcome": each["outcome"]}
            row |= {name: each["point"][name] for name in self.parameters}
            row["runs"] = len(each["runs"])
            for objective in self.objectives:
                summary = self.summary(number, objective.metric)
                row[objective.metric] = summary.mean
                row[f"{objective.metric}_ci95"] = summary.ci95
            row |= {"front": number in front, "winner": number == self.found["winner"], "note": each["note"]}
            rows.append(row)
        schema: dict[str, Any] = {"trial": pl.UInt32, "outcome": pl.String}
        schema |= dict.fromkeys(self.parameters, pl.String) | {"runs": pl.UInt32}
        for objective in self.objectives:
            schema |= {objective.metric: pl.Float64, f"{objective.metric}_ci95": pl.Float64}
        schema |= {"front": pl.Boolean, "winner": pl.Boolean, "note": pl.String}
        return pl.DataFrame(rows, schema=schema)

    def front(self) -> pl.DataFrame:
        """Return the front's rows of `frame`, in the order of the judge."""
        places = {each["trial"]: index for index, each in enumerate(self.found["order"])}
        table = self.frame().filter(pl.col("front"))
        order = sorted(range(len(table)), key=lambda index: places.get(table["trial"][index], len(places)))
        return table[order]

    def figures(self) -> pl.DataFrame:
        """Return the figures of the winner, the defaults and the scenario's own setting on hold-out seeds.

        Columns: `setting`, `metric`, `searched` (mean in the search), `mean`, `ci95`, `runs` and so on, then
        the paired difference from the defaults with its corrected p-value. The winner is named by its trial.
        """
        return pl.DataFrame(self.found["figures"], infer_schema_length=None)

    def counted(self) -> str:
        """Return the numbers of trials by outcome, of runs, and of runs saved by pruning, as a sentence."""
        outcomes = [each["outcome"] for each in self.found["trials"]]
        parts = [
            f"{outcomes.count(name)} {name}"
            for name in ("complete", "stopped", "valueless", "impossible", "failed")
            if name in outcomes
        ]
        runs = self.found["runs"]
        text = f"{plural(len(outcomes), 'trial')}: {', '.join(parts)}; {plural(runs['done'], 'run')}"
        if runs["saved"]:
            text += f", {runs['saved']} saved by stopping trials that were certainly worse"
        return text + "."

    def front_rows(self) -> list[dict[str, Any]]:
        """Return the front in the order of the judge: `trial`, `point`, `runs`, and formatted `cells`."""
        rows = []
        for number in self.front()["trial"].to_list():
            trial = self.found["trials"][number]
            cells = []
            for objective in self.objectives:
                summary = self.summary(number, objective.metric)
                cells.append(quantity(summary.mean, summary.ci95, summary.runs))
            rows.append(
                {"trial": number, "point": trial["point"], "runs": len(trial["runs"]), "cells": cells}
            )
        return rows

    def document(self) -> dict[str, Any]:
        """Return the machine-readable summary: counts, front, winner and its figures."""
        found = self.found
        return {
            "scenario": found["scenario"]["name"],
            "aqm": found["aqm"],
            "objectives": found["objectives"],
            "counts": found["runs"] | {"trials": len(found["trials"])},
            "front": json.loads(self.front().write_json()),
            "winner": found["winner"],
            "setting": found["setting"],
            "figures": found["figures"],
        }

    def best(self) -> str:
        """Return the winner as a table to paste into a scenario; empty without one.

        An AQM written in Python gets options for the command line, as comments.
        """
        winner, found = self.winner, self.found
        if winner is None:
            return ""
        lines = [
            f"# Found by a search of {len(found['trials'])} trials in {found['scenario']['name']}.",
            f"# On {len(found['seeds_fresh'])} fresh seeds:",
        ]
        for row in found["figures"]:
            if row["setting"] == str(winner["number"]):
                unit = Objective(row["metric"], "min").known.unit
                aim = next(each for each in self.objectives if each.metric == row["metric"])
                lines.append(f"#   {aim}  {measured(row)} {unit}".rstrip())
        if found.get("python"):
            given = {key: value for key, value in found["setting"].items() if key != "algorithm"}
            changes = [key + "=" + value.strip('"') for key, value in given.items()]
            options = " ".join(f"--set {shlex.quote(found['prefix'] + '.' + each)}" for each in changes)
            lines += ["# A scenario file cannot name an AQM written in Python. To use it:"]
            return "\n".join([*lines, f"#   --settings {found['aqm']} {options}"]) + "\n"
        lines += ["", f"[setting.{json.dumps(self.setting)}]"]
        lines += [f"{key} = {value}" for key, value in found["setting"].items()]
        return "\n".join(lines) + "\n"

    def write(self) -> None:
        """Write the trials, the best setting and the report."""
        files.write(self.folder / TRIALS, parquet(self.frame()))
        files.write(self.folder / BEST, self.best().encode())
        self.report()

    def report(self, path: str | Path | None = None) -> Path:
        """Write the report as one HTML file that opens offline, by default to the folder; return its path."""
        return pages.write("tuning.tune_page", self, self.folder / REPORT if path is None else Path(path))

    def plot(self, name: str = "front") -> "Plot":
        """Return an Altair chart of the search: `"front"` or `"parameters"`.

        `"front"` has every trial, the winner and the references: two objectives against each other, or one
        over the trials. `"parameters"` has each parameter against each objective. Raises `UsageError` for
        another name, and without complete trials.
        """
        chart: Plot = pages.draw("plots.tune_chart", self, name)
        return chart


def difference(figure: Mapping[str, Any]) -> str:
    """Format the difference from the defaults with its interval, of a row of `figures`."""
    names = {"mean": "difference", "ci95": "difference_ci95", "method": "difference_method"}
    names |= {"ci_low": "difference_low", "ci_high": "difference_high", "runs": "runs"}
    return measured({name: figure[key] for name, key in names.items()})


def is_tune(folder: Path) -> bool:
    """Return True if a folder holds the result of a search."""
    return (folder / TUNE).is_file()


def open_tune(folder: str | Path) -> TuneResult:
    """Open the result of a search; `ResultError` if the folder holds none."""
    return TuneResult(folder)
