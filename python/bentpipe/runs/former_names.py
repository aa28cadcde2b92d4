"""Former names of metrics, series and counters, in the files of earlier versions.

Readers of these files pass what they have read through this module; the rest of the package knows only the
present names.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

from bentpipe import files
from bentpipe.errors import ResultError
from bentpipe.format import convert
from bentpipe.stats.metrics import DEPRECATED

__all__ = [
    "COUNTERS",
    "SERIES",
    "current_counters",
    "current_document",
    "current_printed",
    "current_table",
    "read_document",
]

Table = TypeVar("Table", pl.DataFrame, pl.LazyFrame)

_METRICS: Mapping[str, str] = {**DEPRECATED, "utilization": "throughput"}
"""In files of the first format `utilization` is a rate [Mbit/s]."""
_KEYS: Mapping[str, str] = {**_METRICS, "spared": "saved"}  # words: ok
SERIES: Mapping[str, str] = {"utilization_out": "throughput", "utilization_in": "arrival_rate"}
COUNTERS: Mapping[str, str] = {"queue_time_mean": "queue_time_average"}


def current_document(document: Any) -> Any:  # noqa: ANN401
    """Return a JSON document of the first format with the current names of metrics.

    Metrics are named by keys of tables, by the values of `metric` and `quantity`, and by the items of
    `metrics`.
    """
    if isinstance(document, dict):
        return {_KEYS.get(key, key): _value(key, value) for key, value in document.items()}
    if isinstance(document, list):
        return [current_document(each) for each in document]
    return document


def read_document(path: Path, form: str, shape: Mapping[str, Any], problem: str) -> dict[str, Any]:
    """Read a sealed JSON document of the format `form`, of its first version under the current names.

    `ResultError` if it cannot be read, is of another format, whose `problem` says what the folder is not, or
    lacks keys of the `shape`.
    """
    try:
        found = files.read_json(path)
    except (OSError, ValueError) as error:
        raise ResultError(f"{path.parent}: {problem}: {error}") from None
    if not isinstance(found, dict) or found.get("format") != form:
        raise ResultError(f"{path.parent}: {problem}")
    found = files.unsealed(found, path)
    files.require_version(found, (1, 2), path)
    files.require_shape(found, shape, path)
    current: dict[str, Any] = current_document(found) if found["format_version"] == 1 else found
    return current


def _value(key: str, value: Any) -> Any:  # noqa: ANN401
    if key in {"metric", "quantity"} and isinstance(value, str):
        return _METRICS.get(value, value)
    if key == "metrics" and isinstance(value, list):
        return [
            _METRICS.get(each, each) if isinstance(each, str) else current_document(each) for each in value
        ]
    return current_document(value)


def current_printed(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return printed values of a scenario with the current names of metrics.

    `utilization` in a unit of rate is the throughput.
    """
    return [{**row, "metric": _printed(row["metric"], row["unit"])} for row in rows]


def _printed(metric: str, unit: str) -> str:
    if metric == "utilization":
        return "throughput" if convert(1.0, unit, "Mbit/s") is not None else metric
    return DEPRECATED.get(metric, metric)


def current_table(table: Table) -> Table:
    """Return a time series, or a table with a column for each metric, with the current names of columns."""
    names = table.collect_schema().names()
    of_metrics = not {"utilization_share", "queue_time_mean"}.isdisjoint(names)
    present = _METRICS if of_metrics else SERIES
    former = {name: present[name] for name in names if name in present}
    return table.rename(former) if former else table


def current_counters(counters: Mapping[str, float | None]) -> dict[str, float | None]:
    """Return the counters of a run with their current names."""
    return {COUNTERS.get(name, name): value for name, value in counters.items()}
