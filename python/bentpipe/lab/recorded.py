"""Files and results of the lab's folder, as the page lists and opens them."""

import io
import itertools
import os
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from bentpipe.errors import ResultError
from bentpipe.evaluation import is_evaluation
from bentpipe.evaluation.result import open_evaluation
from bentpipe.files import manifest_format
from bentpipe.lab.playback import seed_for_page
from bentpipe.models.validation import is_validation
from bentpipe.models.validation import open_validation as opened_validation
from bentpipe.report import comparison, sweep
from bentpipe.report.evaluation import render as evaluation_page
from bentpipe.report.fluid import validation_page
from bentpipe.report.sweep_charts import axes
from bentpipe.report.tuning import tune_page
from bentpipe.runs.plan import shipped
from bentpipe.runs.result import Result
from bentpipe.stats.services import served
from bentpipe.stats.states import states
from bentpipe.sweeps.result import SweepResult, is_sweep
from bentpipe.tuning.result import TuneResult, is_tune

__all__ = ["described", "report_of", "results", "scenario_files", "table"]

_DEPTH, _MOST = 4, 300
"""Depth of folders that are looked at, and number of files or results that are listed."""


def _walk(folder: Path, depth: int = _DEPTH) -> Iterator[Path]:
    """Yield folders, those with a shorter path first; hidden ones are left out."""
    yield folder
    if depth:
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            return
        for entry in entries:
            if entry.is_dir(follow_symlinks=False) and not entry.name.startswith((".", "_")):
                yield from _walk(Path(entry.path), depth - 1)


def scenario_files(folder: Path) -> list[str]:
    """Return the scenario files in a folder, as paths relative to it."""
    return list(_scenarios(folder))


def _scenarios(folder: Path) -> dict[str, str]:
    """Return the scenario files in a folder: their paths relative to it, and their texts."""
    found: dict[str, str] = {}
    for each in _walk(folder):
        for path in sorted(each.glob("*.toml")):
            try:
                text = path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError):
                continue
            if "[host." in text and "[traffic." in text:
                found[str(path.relative_to(folder))] = text
        if len(found) >= _MOST:
            break
    return dict(itertools.islice(found.items(), _MOST))


def results(folder: Path) -> tuple[list[dict[str, str]], int]:
    """Return the newest results in a folder, with their kind, and the number of older ones."""
    found = []
    for each in _walk(folder):
        kind = _kind(each)
        if kind:
            found.append((each.stat().st_mtime, {"path": str(each.relative_to(folder)), "kind": kind}))
    newest = [row for _, row in sorted(found, key=lambda pair: -pair[0])]
    return newest[:_MOST], len(newest[_MOST:])


def _kind(path: Path) -> str:
    """Return the kind of a result, empty for any other folder."""
    if is_tune(path):
        return "search"
    if is_sweep(path):
        return "sweep"
    if is_evaluation(path):
        return "evaluation"
    if is_validation(path):
        return "validation"
    if (path / "advice.json").is_file():
        return "advice"
    return "result" if manifest_format(path) == "bentpipe-result" else ""


def described(path: Path, folder: Path) -> dict[str, Any]:
    """Return what the page of a lab in `folder` needs to show a result; `ResultError` if `path` holds none.

    Runs of settings have `settings`, `seeds`, `series`, `table`, `served`; any other result has its report.
    """
    kind = _kind(path)
    if kind == "sweep":
        return _points(SweepResult(path))
    if kind != "result":
        if not kind:
            raise ResultError(f"{path}: holds no result")
        return {"kind": kind, "title": path.name, "report": True}
    result = Result(path)
    manifest = result.manifest
    scenario = manifest["scenario"]
    has_terminals = bool(manifest.get("terminals"))
    return {
        "kind": kind,
        "engine": result.engine,
        "title": scenario.get("title") or scenario["name"],
        "name": scenario["name"],
        "text": scenario.get("text", ""),
        "settings": result.settings,
        "seeds": [seed_for_page(seed) for seed in result.seeds],
        "interval": scenario["sample_interval"],
        "end": scenario["duration"],
        "series": result.series_names(),
        "states": states(result.series_names()),
        "classes": result.classes,
        "terminals": has_terminals,
        "table": [row for row in result.rows() if row["mean"] is not None],
        "served": [
            [
                {
                    "setting": each.setting,
                    "class": each.service.traffic_class,
                    "label": each.service.metric.label,
                    "unit": each.service.metric.unit,
                    "value": each.found.mean,
                    "grade": each.grade,
                }
                for each in row
            ]
            for row in served(result)
        ],
        "command": _command(result, folder),
        "report": True,
    }


def _points(found: SweepResult) -> dict[str, Any]:
    """Return what the page needs to show a sweep: the mean of each metric at each point."""
    scenario = found.manifest["scenario"]
    factors = axes(found, found.frame())
    return {
        "kind": "sweep",
        "title": found.manifest.get("title") or scenario["name"],
        "factors": list(found.factors),
        "axes": {
            each.key: {
                "title": each.title,
                "values": each.values,
                "numbers": None if each.numbers is None else [each.numbers[value] for value in each.values],
                "log": each.log,
            }
            for each in factors
        },
        "metrics": list(found.metrics),
        "settings": found.settings,
        "rows": found.rows(),
        "report": True,
    }


def _command(result: Result, folder: Path) -> str | None:
    """Return the command that repeats a result in `folder`; None if its scenario file is not there."""
    scenario = result.manifest["scenario"]
    file = _scenario_file(scenario, folder)
    if file is None:
        return None
    words = ["bentpipe", "live" if result.engine == "live" else "compare", file]
    words += ["--settings", ",".join(result.settings)]
    words += ["--seed", str(result.seeds[0]), "--runs", str(len(result.seeds))]
    for override in scenario.get("overrides", []):
        words += ["--set", override]
    return shlex.join(words)


def _scenario_file(scenario: Mapping[str, Any], folder: Path) -> str | None:
    """Return the argument that names a result's scenario: that of a shipped one, or a path in `folder`."""
    name, text = scenario["name"], scenario.get("text")
    known = shipped().get(name)
    if known is not None and (not text or known.read_text(encoding="utf-8") == text):
        return str(name)
    same = (path for path, found in _scenarios(folder).items() if found == text)
    return next((path for path in same if Path(path).stem == name), None)


def table(path: Path, setting: str, seed: int, name: str, terminal: str | None = None) -> bytes:
    """Return a table of one run, or its rows of a terminal, as an Arrow stream.

    `ResultError` for an unknown name.
    """
    found = Result(path).one(name, setting, seed)
    if terminal is not None:
        if "terminal" not in found.columns:
            raise ResultError(f"{path}: the table {name} has no terminals")
        found = found.filter(pl.col("terminal").cast(str) == terminal)
    buffer = io.BytesIO()
    # Dictionaries become texts, which every reader knows.
    names = [column for column, kind in found.schema.items() if str(kind).startswith(("Categorical", "Enum"))]
    nested = [column for column, kind in found.schema.items() if str(kind).startswith(("List", "Array"))]
    found = found.drop(nested).cast(dict.fromkeys(names, str))
    found.write_ipc_stream(buffer, compression="uncompressed")
    return buffer.getvalue()


def report_of(path: Path) -> str:
    """Return the report of a result as HTML."""
    kind = _kind(path)
    if kind == "result":
        return comparison.render(Result(path))
    if kind == "sweep":
        return sweep.render(SweepResult(path))
    if kind == "evaluation":
        return evaluation_page(open_evaluation(path))
    if kind == "search":
        return tune_page(TuneResult(path))
    if kind == "validation":
        return validation_page(opened_validation(path))
    for name in ("report.html", "advice.html"):
        if (path / name).is_file():
            return (path / name).read_text(encoding="utf-8")
    raise ResultError(f"{path}: has no report")
