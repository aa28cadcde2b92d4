"""Dataset of many runs: one Parquet file per setting, one row per run, and a journal while it is written.

A run is identified by what determines its result (the scenario's digest, the seed, the build of the core), so
that no run in the dataset is simulated twice.
"""

import math
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import polars as pl

from bentpipe import _core, files
from bentpipe.errors import ResultError, UsageError
from bentpipe.runs.former_names import current_table
from bentpipe.runs.store import build_digest
from bentpipe.stats.class_metrics import class_metric
from bentpipe.stats.metrics import METRICS
from bentpipe.tables import parquet, reading

__all__ = [
    "DATA",
    "FAILURES",
    "FORMAT",
    "JOURNAL",
    "MANIFEST",
    "Dataset",
    "Failure",
    "Run",
    "checked_manifest",
    "failures_of",
    "manifest_of",
    "read",
    "read_all",
]

FORMAT = "bentpipe-sweep"
FORMAT_VERSION = 2
"""Version 1 has former names of metrics (`former_names`)."""
MANIFEST, DATA, JOURNAL, FAILURES = "manifest.json", "data", "journal", "failures.json"
_SETTING = "setting="
"""Prefix of the names of settings' folders: the convention of partitioned datasets."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a sweep."""

    point: tuple[str, ...]
    """Value of each factor."""
    setting: str
    scenario: _core.Scenario
    digest: str
    """SHA-256 of everything that determines its result, except the seed."""
    seed: int


@dataclass(frozen=True, slots=True)
class Failure:
    """A run without a result."""

    run: Run
    error: str

    def row(self, keys: Sequence[str]) -> dict[str, Any]:
        """Return the row of `failures.json`; `keys` are those of the factors."""
        return {
            "setting": self.run.setting,
            "point": dict(zip(keys, self.run.point, strict=True)),
            "seed": self.run.seed,
            "error": self.error,
        }


_METRIC_NAMES = [metric.name for metric in METRICS]


class Dataset:
    """A dataset that is being written: a journal first, at the end one Parquet file per setting."""

    def __init__(self, folder: Path, keys: tuple[str, ...], about: Mapping[str, Any]) -> None:
        """Open the dataset in `folder` with the factors `keys`; `about` goes to its manifest."""
        self.folder = folder
        self.about = about
        self.keys = keys
        self._core = build_digest()
        self._rows: dict[tuple[str, tuple[str, ...], int], dict[str, Any]] = {}
        self._by_digest: dict[str, dict[int, dict[str, Any]]] = {}
        self._new: list[dict[str, Any]] = []
        self._part = 0
        self._flushed = time.monotonic()
        self._lock: int | None = None

    def __enter__(self) -> "Dataset":
        try:
            if not os.path.lexists(self.folder):
                files.make_folder(self.folder)
            self._lock = files.lock(self.folder)
            # A full disk may have left an empty folder.
            files.remove_partials(self.folder)
            if files.is_empty(self.folder):
                self._write_manifest("incomplete")
            manifest = manifest_of(self.folder)
            self._check_factors(manifest["factors"])
            self._check_scenario(manifest)
            self._load()
            self._write_manifest("incomplete")
        except OSError as error:
            self._close()
            raise UsageError(f"{self.folder}: cannot be written: {error.strerror}") from None
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _check_factors(self, there: list[str]) -> None:
        if there != list(self.keys):
            raise UsageError(
                f"{self.folder}: has the factors {', '.join(there) or 'none'}, found"
                f" {', '.join(self.keys) or 'none'}; allowed: the same, or another folder"
            )

    def _check_scenario(self, manifest: Mapping[str, Any]) -> None:
        """Refuse to mix runs of different scenarios: means over both would describe neither."""
        there, ours = (each.get("scenario", {}) for each in (manifest, self.about))
        if there.get("digest") != ours.get("digest") and self._holds_runs():
            raise UsageError(
                f"{self.folder}: holds runs of {there.get('name')} as it was, or with other overrides;"
                " allowed: the same scenario and overrides, or another folder"
            )

    def _holds_runs(self) -> bool:
        return any(next((self.folder / part).rglob("*.parquet"), None) for part in (DATA, JOURNAL))

    def _close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _load(self) -> None:
        parts = sorted((self.folder / JOURNAL).glob("*.parquet"))
        tables = [read(self.folder / DATA, self.keys), _read(self.folder / JOURNAL, parts, self.keys)]
        self._part = len(parts)
        for table in tables:
            for row in table.iter_rows(named=True):
                self._keep(row)

    def _keep(self, row: dict[str, Any]) -> None:
        point = tuple(row[key] for key in self.keys)
        self._rows[row["setting"], point, row["seed"]] = row
        if row["core"] == self._core:
            self._by_digest.setdefault(row["digest"], {})[row["seed"]] = row

    def has(self, run: Run) -> bool:
        """Return True if the run's result is in the dataset."""
        return run.seed in self._by_digest.get(run.digest, {})

    def metrics(self, run: Run) -> dict[str, float | None] | None:
        """Return every metric of a run, None if the run is missing."""
        row = self._by_digest.get(run.digest, {}).get(run.seed)
        return None if row is None else {name: row[name] for name in _metric_names([row])}

    def values(self, digest: str, metric: str) -> dict[int, float | None]:
        """Return a metric of the runs with a digest, by seed."""
        return {seed: row[metric] for seed, row in self._by_digest.get(digest, {}).items()}

    def add(self, run: Run, metrics: Mapping[str, float | None]) -> None:
        """Add the metrics of a run."""
        row = {
            "setting": run.setting,
            **dict(zip(self.keys, run.point, strict=True)),
            "seed": run.seed,
            "digest": run.digest,
            "core": self._core,
            **metrics,
        }
        self._keep(row)
        self._new.append(row)

    def spread(self, runs: Sequence[Run]) -> None:
        """Copy the result of a run to every point and setting with the same digest."""
        for run in runs:
            stored = self._by_digest.get(run.digest, {}).get(run.seed)
            here = self._rows.get((run.setting, run.point, run.seed), {})
            if stored is not None and (here.get("digest"), here.get("core")) != (run.digest, self._core):
                self.add(run, {name: stored[name] for name in _metric_names([stored])})
        self.flush(0.0)

    def flush(self, seconds: float) -> None:
        """Write new rows to the disk, unless the last write was less than `seconds` ago."""
        if not self._new or time.monotonic() - self._flushed < seconds:
            return
        journal = self.folder / JOURNAL
        files.make_folder(journal)
        content = parquet(_table(self._new, self.keys))
        # A part is written once, so that its name can hold its checksum.
        files.write(journal / f"{self._part:06}-{files.digest(content)}.parquet", content)
        self._part += 1
        self._new = []
        self._flushed = time.monotonic()

    def finish(self, failures: Sequence[Failure]) -> None:
        """Sort all runs into one file per setting, and delete the journal."""
        rows = sorted(self._rows.values(), key=lambda row: _order(row, self.keys))
        table = _table(rows, self.keys)
        contents = {
            f"{DATA}/{_SETTING}{quote(str(setting), safe=' ')}/runs.parquet": parquet(part.drop("setting"))
            for (setting,), part in table.group_by("setting", maintain_order=True)
        }
        _replace(self.folder, contents)
        listed = [each.row(self.keys) for each in failures]
        again = {_place(row) for row in listed}
        for old in failures_of(self.folder):
            # Runs that failed in an earlier call and were not repeated are still failures.
            point = tuple(old["point"].get(key) for key in self.keys)
            there = (old["setting"], point, old["seed"]) in self._rows
            if not there and _place(old) not in again:
                listed.append(old)
        files.write_json(self.folder / FAILURES, listed)
        self._write_manifest("complete")
        for written in (self.folder / JOURNAL).glob("*.parquet"):
            written.unlink()

    def _write_manifest(self, status: str) -> None:
        files.write_json(
            self.folder / MANIFEST,
            files.sealed(
                {
                    "format": FORMAT,
                    "format_version": FORMAT_VERSION,
                    "status": status,
                    "core": {"version": _core.__version__, "sha256": self._core},
                    "factors": list(self.keys),
                    **self.about,
                }
            ),
        )


def _replace(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write files of a dataset; `SHA256SUMS` lists old contents too until the new ones are written."""
    there = [path for path in sorted((folder / DATA).rglob("*.parquet")) if path.is_file()]
    old = [(path.relative_to(folder).as_posix(), files.digest(path.read_bytes())) for path in there]
    new = [(name, files.digest(content)) for name, content in contents.items()]
    kept = [each for each in old if each[0] not in contents]
    files.write(folder / files.SUMS, files.sums(old + new))
    for name, content in contents.items():
        files.make_folder((folder / name).parent)
        files.write(folder / name, content)
    files.write(folder / files.SUMS, files.sums(kept + new))


def _place(failure: Mapping[str, Any]) -> tuple[Any, ...]:
    return failure["setting"], *failure["point"].items(), failure["seed"]


def _order(row: dict[str, Any], keys: tuple[str, ...]) -> tuple[Any, ...]:
    return (row["setting"], *(_natural(row[key]) for key in keys), row["seed"])


def _natural(value: str) -> tuple[float, str]:
    """Order values by their leading number, if any, then by their text."""
    try:
        return float(value.split()[0]), value
    except (ValueError, IndexError):
        return math.inf, value


def _metric_names(rows: Iterable[Iterable[str]]) -> list[str]:
    """Return the metrics in columns of runs: all of `METRICS`, then those of classes of traffic."""
    # Most rows have the same columns.
    columns = (name for names in dict.fromkeys(map(tuple, rows)) for name in names)
    of_classes = (name for name in columns if class_metric(name) is not None)
    return list(dict.fromkeys([*_METRIC_NAMES, *of_classes]))


def _table(
    rows: Sequence[dict[str, Any]], keys: tuple[str, ...], columns: Iterable[Iterable[str]] = ()
) -> pl.DataFrame:
    """Return runs as a table with the metrics in the rows, and those among further `columns`."""
    schema: dict[str, Any] = {"setting": pl.String, **dict.fromkeys(keys, pl.String), "seed": pl.UInt64}
    metrics = [name for name in _metric_names([*rows, *columns]) if name not in keys]
    schema |= {"digest": pl.String, "core": pl.String, **dict.fromkeys(metrics, pl.Float64)}
    return pl.DataFrame({name: [row.get(name) for row in rows] for name in schema}, schema=schema)


def read(folder: Path, keys: tuple[str, ...]) -> pl.DataFrame:
    """Return the runs in a dataset's folder `data`, sorted; no rows if it is empty.

    Raises `ResultError` if a file is damaged, or missing from a complete dataset: an unfinished one lists
    files before they are written.
    """
    parts = sorted(folder.glob(f"{_SETTING}*/*.parquet"))
    is_complete = manifest_of(folder.parent)["status"] == "complete"
    files.check(
        folder.parent, None if is_complete else [str(path.relative_to(folder.parent)) for path in parts]
    )
    return _read(folder, parts, keys)


def _read(folder: Path, parts: Sequence[Path], keys: tuple[str, ...]) -> pl.DataFrame:
    tables = [_part(path) for path in parts]
    with reading(folder):
        empty = _table([], keys, [table.columns for table in tables])
        return pl.concat([empty, *(_as(table, empty) for table in tables)])


def _part(path: Path) -> pl.DataFrame:
    with reading(path):
        content = path.read_bytes()
        _, _, of = path.stem.partition("-")
        if of and files.digest(content) != of:
            raise ResultError(f"{path}: is damaged: its content differs from the checksum in its name")
        # Polars would read the setting 007 as a number, and take parent folders for partitions too.
        table = current_table(pl.read_parquet(content, hive_partitioning=False))
    if "setting" in table.columns:
        return table
    return table.with_columns(setting=pl.lit(unquote(path.parent.name.removeprefix(_SETTING))))


def _as(table: pl.DataFrame, wanted: pl.DataFrame) -> pl.DataFrame:
    """Return a table with the columns of `wanted`."""
    # Metrics that an earlier version did not compute have no value.
    later = [name for name in _metric_names([wanted.columns]) if name not in table.columns]
    table = table.with_columns(pl.lit(None, pl.Float64).alias(name) for name in later)
    return table.select(wanted.columns).cast(wanted.schema)


def read_all(folder: Path, keys: tuple[str, ...]) -> pl.DataFrame:
    """Return the runs of a dataset, sorted, including those of an unfinished one.

    Raises `ResultError` if they cannot be read.
    """
    table = read(folder / DATA, keys)
    journal = _read(folder / JOURNAL, sorted((folder / JOURNAL).glob("*.parquet")), keys)
    if journal.is_empty():
        return table
    rows = {_order(row, keys): row for part in (table, journal) for row in part.iter_rows(named=True)}
    return _table([rows[place] for place in sorted(rows)], keys)


def failures_of(folder: Path) -> list[dict[str, Any]]:
    """Return the failed runs: `setting`, `point`, `seed`, `error`; `ResultError` if unreadable."""
    path = folder / FAILURES
    try:
        found: list[dict[str, Any]] = files.read_json(path)
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise ResultError(f"{path}: cannot be read: {error}") from None
    files.require_shape(found, [{"setting": str, "point": dict, "seed": int, "error": str}], path)
    return found


def manifest_of(folder: Path) -> dict[str, Any]:
    """Return the manifest of a dataset; `UsageError` if the folder is not a dataset."""
    try:
        manifest = files.read_json(folder / MANIFEST)
    except (OSError, ValueError):
        manifest = None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise UsageError(f"{folder}: exists already and is not a sweep's; choose another folder")
    return checked_manifest(manifest, folder)


def checked_manifest(manifest: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return a dataset's manifest unsealed; `ResultError` if it is damaged or of another version."""
    path = folder / MANIFEST
    manifest = files.unsealed(manifest, path)
    files.require_version(manifest, (1, FORMAT_VERSION), path)
    files.require_shape(manifest, {"status": str, "core": {"sha256": str}, "factors": [str]}, path)
    return manifest
