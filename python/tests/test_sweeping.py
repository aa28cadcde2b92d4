"""Sweeps: what is simulated, what is kept, and that how it went does not show."""

import json
from pathlib import Path

import polars as pl
import pytest

import bentpipe as bp
from bentpipe import cli
from bentpipe.console import progress_text
from bentpipe.errors import ScenarioError, UsageError
from bentpipe.sweep_result import SweepResult
from bentpipe.sweeping import Precision, Sweep, execute, precision_from, sweep

SHORT = ["run.duration=2 s", "run.warmup=1 s"]
VARY = {"gateway.pep.delay": "0 ms:40 ms:2", "gateway.aqm.w_q": "0.02,0.2"}


def small(out: Path, **more: object) -> SweepResult:
    settings = {"settings": ["red", "avqred"], "runs": 2, "set": SHORT, **more}
    return sweep("small-gateway", VARY, out=out, **settings)  # type: ignore[arg-type]


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sweep") / "whole"
    small(folder, jobs=1)
    return folder


def test_every_point_meets_every_setting_and_seed(whole: Path) -> None:
    frame = SweepResult(whole).frame()
    assert len(frame) == 2 * 2 * 2 * 2
    assert frame.select("setting", *VARY, "seed").is_unique().all()
    assert sorted(frame["seed"].unique()) == [1, 2]
    assert {path.split("/")[1] for path in content(whole) if path.startswith("data")} == {
        "setting=avqred",
        "setting=red",
    }


def test_a_run_is_what_compare_simulates(whole: Path) -> None:
    changes = {
        "run.duration": "2 s",
        "run.warmup": "1 s",
        "gateway.pep.delay": "40 ms",
        "gateway.aqm.w_q": 0.2,
    }
    compared = bp.compare(bp.load("small-gateway", changes), ["red"], runs=2).metrics()
    expected = {(row["seed"], row["metric"]): row["value"] for row in compared.iter_rows(named=True)}
    frame = (
        SweepResult(whole)
        .frame()
        .filter(
            (pl.col("setting") == "red")
            & (pl.col("gateway.pep.delay") == "40 ms")
            & (pl.col("gateway.aqm.w_q") == "0.2")
        )
    )
    for row in frame.iter_rows(named=True):
        for name in ("utilization", "queue_mean", "drops", "fct_p95"):
            assert row[name] == expected[row["seed"], name]


def test_a_factor_that_a_setting_does_not_know_costs_no_run(tmp_path: Path) -> None:
    plan = Sweep.plan("small-gateway", VARY, settings=["red", "avqred"], runs=1, overrides=SHORT)
    assert len(plan.cells) == 8
    assert len({cell[3] for cell in plan.cells}) == 4 + 2
    seen: list[tuple[int, int, int]] = []
    execute(plan, tmp_path / "s", told=lambda *each: seen.append(each))
    assert seen[0] == (2, 8, 0)


def test_the_number_of_jobs_does_not_show(whole: Path, tmp_path: Path) -> None:
    small(tmp_path / "two", jobs=2)
    assert content(tmp_path / "two") == content(whole)


class _Stopped(Exception):  # noqa: N818
    pass


def test_an_interrupted_sweep_goes_on_where_it_was(whole: Path, tmp_path: Path) -> None:
    def stop(done: int, total: int, failed: int) -> None:
        del total, failed
        if done >= 9:
            raise _Stopped

    folder = tmp_path / "cut"
    with pytest.raises(_Stopped):
        small(folder, jobs=1, told=stop)
    assert json.loads((folder / "manifest.json").read_text())["status"] == "incomplete"
    kept = len(pl.read_parquet(list((folder / "journal").glob("*.parquet"))))
    assert kept > 0
    seen: list[tuple[int, int, int]] = []
    small(folder, jobs=1, told=lambda *each: seen.append(each))
    # Of the runs, four stand for two points each.
    assert seen[0][0] >= kept
    assert content(folder) == content(whole)
    seen.clear()
    small(folder, told=lambda *each: seen.append(each))
    assert seen == [(16, 16, 0)]
    assert content(folder) == content(whole)


def test_a_dataset_grows_by_what_is_new(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "more"
    small(folder, settings=["red"], runs=1)
    small(folder, settings=["red"])
    small(folder)
    there, expected = SweepResult(folder).frame(), SweepResult(whole).frame()
    assert there.equals(expected)


def test_runs_are_added_until_the_interval_is_narrow(tmp_path: Path) -> None:
    aim = Precision("utilization", 0.03, 12)
    result = sweep(
        "small-gateway",
        {"gateway.pep.delay": "0 ms,40 ms"},
        settings=["red"],
        runs=2,
        set=SHORT,
        out=tmp_path / "s",
        precision=aim,
    )
    for row in result.rows(["utilization"]):
        assert row["runs"] == aim.most or row["ci95"] <= aim.share * row["mean"]
        assert row["runs"] >= 2
    seeds = result.frame().group_by("gateway.pep.delay").agg(pl.col("seed").sort())
    for found in seeds["seed"]:
        assert found.to_list() == list(range(1, len(found) + 1))


def test_impossible_points_and_strange_folders_are_one_message(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="w_q"):
        sweep("small-gateway", {"gateway.aqm.w_q": "0.5,2"}, settings=["red"], out=tmp_path / "a", set=SHORT)
    assert not (tmp_path / "a").exists()
    (tmp_path / "mine").mkdir()
    with pytest.raises(UsageError, match="is not a sweep's"):
        small(tmp_path / "mine")
    small(tmp_path / "b", settings=["red"], runs=1)
    with pytest.raises(UsageError, match=r"has the factors .* found"):
        sweep("small-gateway", {"gateway.pep.delay": "1 ms"}, settings=["red"], out=tmp_path / "b", set=SHORT)
    with pytest.raises(UsageError, match="metric speed: there is none"):
        small(tmp_path / "c", precision=Precision("speed", 0.1))
    for text in ("2 percent", "0%", "150%"):
        with pytest.raises(UsageError):
            precision_from(text, "utilization", 10)
    assert precision_from("2%", "drops", 10) == Precision("drops", 0.02, 10)


def test_progress_says_rate_time_left_and_failures() -> None:
    assert progress_text(40, 100, 0, 20, 10.0) == "40 of 100 runs, 2.0 a second, 30 s left"
    assert progress_text(100, 100, 3, 50, 10.0) == "100 of 100 runs, 5.0 a second, 3 failed"
    assert progress_text(0, 1, 0, 0, 0.0) == "0 of 1 run, 0.0 a second"


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*more: str) -> int:
        arguments = [
            "sweep",
            "small-gateway",
            "--settings",
            "red",
            "--runs",
            "2",
            "--out",
            str(tmp_path / "s"),
        ]
        arguments += ["--set", SHORT[0], "--set", SHORT[1], *more]
        with pytest.raises(SystemExit) as left:
            cli.main(arguments)
        return int(left.value.code or 0)

    assert run("--vary", "gateway.pep.delay=0 ms:40 ms:2", "--format", "json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 2 * 2
    assert {row["gateway.pep.delay"] for row in rows} == {"0 ms", "40 ms"}
    assert all(row["runs"] == 2 and row["mean"] is not None for row in rows)
    assert run("--vary", "gateway.pep.delay=0 ms:40 ms:2", "--metric", "drops") == 0
    captured = capsys.readouterr()
    assert "drops, packets" in captured.out
    assert "Dataset:" in captured.err
    assert run("--vary", "gateway.pep.delay=fast") == 2
    assert "gateway.pep.delay" in capsys.readouterr().err
    assert run("--vary", "gateway.pep.delay") == 2
    assert "found no KEY=VALUES" in capsys.readouterr().err
