"""Files of earlier versions load, with the current names of metrics, series and counters."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import bentpipe as bp
from bentpipe import files
from bentpipe.errors import ResultError, UsageError
from bentpipe.runs.former_names import current_document, current_printed
from bentpipe.stats.metrics import DEPRECATED, METRICS, named_metric

FORMER_METRICS = {now: old for old, now in DEPRECATED.items()} | {"throughput": "utilization"}
FORMER_SERIES = {"throughput": "utilization_out", "arrival_rate": "utilization_in"}


def rewrite_json(path: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    # Versions that wrote these names wrote no checksums.
    changed = change(json.loads(path.read_text()))
    path.write_text(json.dumps({key: value for key, value in changed.items() if key != "checksum"}))
    (path.parent / files.SUMS).unlink(missing_ok=True)


def rewrite_table(path: Path, names: dict[str, str]) -> None:
    table = pl.read_parquet(path, hive_partitioning=False)
    table.rename({name: names[name] for name in table.columns if name in names}).write_parquet(path)
    (path.parent / files.SUMS).unlink(missing_ok=True)


def test_result_of_format_1_has_the_same_values(result: bp.Result, tmp_path: Path) -> None:
    old = tmp_path / "old"
    shutil.copytree(result.folder, old)
    printed = {"setting": "red", "metric": "utilization", "value": 19.8, "unit": "Mbit/s"}
    rewrite_json(old / "manifest.json", lambda m: m | {"format_version": 1, "printed": [printed]})
    for path in old.glob("runs/*/*/counters.json"):
        rewrite_json(
            path, lambda c: {"queue_time_mean" if k == "queue_time_average" else k: v for k, v in c.items()}
        )
    for path in old.glob("runs/*/*/series.parquet"):
        rewrite_table(path, FORMER_SERIES)
    again = bp.open(old)
    assert again.rows() == result.rows()
    assert again.series("throughput").equals(result.series("throughput"))
    assert again.series_names() == result.series_names()
    assert again.warmup().equals(result.warmup())
    assert again.manifest["printed"] == [printed | {"metric": "throughput"}]
    with pytest.raises(ResultError, match='no series "utilization_in"; it is now called arrival_rate'):
        again.series("utilization_in")


def test_sweep_of_format_1_has_the_same_values(tmp_path: Path) -> None:
    sweep = bp.sweep(
        "small-gateway",
        {"gateway.pep.delay": ["0 ms", "20 ms"]},
        runs=1,
        set={"run.duration": "2 s", "run.warmup": "1 s"},
        out=tmp_path / "sweep",
        metrics=["throughput", "utilization"],
    )
    old = tmp_path / "old"
    shutil.copytree(sweep.folder, old)
    names = ["utilization", "utilization_share"]
    rewrite_json(old / "manifest.json", lambda m: m | {"format_version": 1, "metrics": names})
    for path in old.rglob("*.parquet"):
        rewrite_table(path, FORMER_METRICS)
    again = bp.open_sweep(old)
    assert again.frame().equals(sweep.frame())
    assert again.rows() == sweep.rows()


def test_names_in_a_document_of_format_1_are_replaced_wherever_metrics_are_named() -> None:
    document = {
        "objectives": [{"metric": "utilization", "direction": "max"}],
        "metrics": ["utilization_share", "queue_mean"],
        "order": [{"trial": 3, "ranks": {"utilization": 1, "pep_delay": 2}}],
        "aqm": "red",
    }
    assert current_document(document) == {
        "objectives": [{"metric": "throughput", "direction": "max"}],
        "metrics": ["utilization", "queue_mean"],
        "order": [{"trial": 3, "ranks": {"throughput": 1, "pep_sojourn": 2}}],
        "aqm": "red",
    }


def test_printed_utilization_is_a_rate_or_a_share_by_its_unit() -> None:
    rows = [
        {"metric": "utilization", "unit": "kbit/s"},
        {"metric": "utilization", "unit": "%"},
        {"metric": "utilization_std", "unit": "Mbit/s"},
    ]
    assert [row["metric"] for row in current_printed(rows)] == ["throughput", "utilization", "throughput_std"]


def test_deprecated_name_is_refused_with_the_present_name() -> None:
    names = {metric.name for metric in METRICS}
    for old, now in DEPRECATED.items():
        assert old not in names
        assert now in names
        with pytest.raises(UsageError, match=f'no metric "{old}"; it is now called {now}$'):
            named_metric(old)
