import json
from pathlib import Path

import polars as pl
import pytest
from conftest import SETTINGS, digests

import bentpipe as bp


def test_the_table_has_every_metric_of_every_setting(result: bp.Result) -> None:
    table = result.table()
    assert table.columns[:7] == ["setting", "metric", "unit", "mean", "std", "ci95", "runs"]
    assert table.columns[7:] == ["ci_low", "ci_high", "method", "note"]
    assert len(table) == len(SETTINGS) * len(result.known_metrics)
    assert set(table["runs"]) == {2}


def test_the_table_is_the_mean_of_the_runs(result: bp.Result) -> None:
    runs = result.metrics().filter((pl.col("setting") == "red") & (pl.col("metric") == "queue_mean"))["value"]
    row = (
        result.table()
        .filter((pl.col("setting") == "red") & (pl.col("metric") == "queue_mean"))
        .row(0, named=True)
    )
    assert row["mean"] == pytest.approx(runs.mean())
    assert row["std"] == pytest.approx(runs.std())
    assert row["ci95"] == pytest.approx(row["std"] / 2**0.5 * 12.7062, rel=1e-4)


def test_differences_are_paired(result: bp.Result) -> None:
    values = {
        (row["setting"], row["seed"]): row["value"]
        for row in result.metrics().filter(pl.col("metric") == "queue_mean").iter_rows(named=True)
    }
    pairs = [values["avqred", seed] - values["red", seed] for seed in result.seeds]
    row = result.differences("red").filter(pl.col("metric") == "queue_mean").row(0, named=True)
    assert (row["setting"], row["baseline"], row["runs"]) == ("avqred", "red", 2)
    assert row["difference"] == pytest.approx(sum(pairs) / 2)
    assert row["ci95"] == pytest.approx(12.7062 * abs(pairs[0] - pairs[1]) / 2, rel=1e-4)


def test_series_have_a_row_per_sample(result: bp.Result, scenario: bp.Scenario) -> None:
    series = result.series("transmit_queue")
    assert series.columns == ["setting", "seed", "time", "value"]
    samples = round(scenario.duration / scenario.sample_interval)
    assert len(series) == samples * 4
    assert series["time"].max() == pytest.approx(scenario.duration)
    assert series["time"].min() == pytest.approx(scenario.sample_interval)


def test_other_tables_name_setting_and_seed(result: bp.Result) -> None:
    for table in (result.flows(), result.drops(), result.drop_runs(), result.counters()):
        assert table.columns[:2] == ["setting", "seed"]
        assert set(table["setting"]) == set(SETTINGS)
        assert set(table["seed"]) == set(result.seeds)


def test_frames_are_arrow_streams(result: bp.Result) -> None:
    assert hasattr(result.table(), "__arrow_c_stream__")
    assert pl.DataFrame(result.table()).equals(result.table())


def test_an_unknown_series_names_the_nearest(result: bp.Result) -> None:
    with pytest.raises(bp.ResultError, match="transmit_queue"):
        result.series("transmit_que")


def test_an_unknown_baseline_is_refused(result: bp.Result) -> None:
    with pytest.raises(bp.ResultError, match="there are red, avqred"):
        result.differences("avq")


def test_saved_result_opens_with_the_same_tables(result: bp.Result) -> None:
    again = bp.open(result.folder)
    assert again.table().equals(result.table())
    assert repr(again) == repr(result)


def test_an_existing_folder_is_refused_with_the_argument_of_python(
    scenario: bp.Scenario, result: bp.Result
) -> None:
    with pytest.raises(bp.UsageError, match=r"exists already; choose another folder as out$"):
        bp.run(scenario, out=result.folder)


def test_a_temporary_result_can_be_saved(scenario: bp.Scenario, tmp_path: Path) -> None:
    temporary = bp.run(scenario, seed=3)
    saved = temporary.save(tmp_path / "kept")
    assert saved.table().equals(temporary.table())
    assert saved.seeds == [3]
    gone = temporary.folder
    del temporary
    assert not gone.exists()
    with pytest.raises(bp.UsageError, match="exists already"):
        saved.save(tmp_path / "kept")


def test_number_of_jobs_does_not_change_the_result(
    scenario: bp.Scenario, result: bp.Result, tmp_path: Path
) -> None:
    one = bp.compare(scenario, SETTINGS, runs=2, jobs=1, out=tmp_path / "one")
    many = bp.compare(scenario, SETTINGS, runs=2, jobs=4, out=tmp_path / "many")
    assert digests(one.folder) == digests(many.folder) == digests(result.folder)
    assert len(digests(one.folder)) == 4 * 5
    for name in ("metrics.parquet", "comparison.json"):
        assert (one.folder / name).read_bytes() == (many.folder / name).read_bytes()


def test_another_seed_changes_the_result(result: bp.Result) -> None:
    first, second = (result.one("series", "red", seed) for seed in result.seeds)
    assert not first.equals(second)


def test_manifest_records_versions_and_settings(result: bp.Result, scenario: bp.Scenario) -> None:
    manifest = json.loads((result.folder / "manifest.json").read_text())
    assert manifest["status"] == "complete"
    assert manifest["core"]["version"] == bp.__version__
    assert manifest["scenario"]["duration"] == scenario.duration
    assert {run["setting"] for run in manifest["runs"]} == set(SETTINGS)
    assert all(run["cpu_seconds"] > 0 and run["wall_seconds"] > 0 for run in manifest["runs"])
    assert manifest["started"] <= manifest["finished"]
    keys = {row["key"] for row in manifest["settings"][0]["effective"]}
    assert "run.duration" in keys
    comparison = json.loads((result.folder / "comparison.json").read_text())
    assert comparison == result.rows()


@pytest.mark.parametrize(("jobs", "runs", "words"), [(0, 1, "jobs is 0"), (1, 0, "runs is 0")])
def test_numbers_out_of_range_leave_no_folder(
    scenario: bp.Scenario, tmp_path: Path, jobs: int, runs: int, words: str
) -> None:
    with pytest.raises(bp.UsageError, match=words):
        bp.run(scenario, runs=runs, jobs=jobs, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
