"""A sweep's dataset opened again: means, paired differences, failures, and a full disk."""

import errno
import json
import math
import os
import resource
import subprocess
import sys
from collections.abc import Generator, Iterable
from pathlib import Path

import polars as pl
import pytest
from patience import PATIENCE
from scipy import stats

import bentpipe as bp
from bentpipe import files
from bentpipe.cli import app
from bentpipe.errors import ResultError, ScenarioError, SimulationError, UsageError
from bentpipe.runs import workers
from bentpipe.runs.dataset import Run
from bentpipe.runs.workers import Outcome, Threads
from bentpipe.sweeps.result import SweepResult
from bentpipe.sweeps.sweep import Sweep, execute

SHORT = {"run.duration": "2 s", "run.warmup": "1 s"}
DELAYS = ["0 ms", "20 ms", "40 ms"]


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> SweepResult:
    return bp.sweep(
        "small-gateway",
        {"gateway.pep.delay": DELAYS},
        settings=["red", "avqred"],
        runs=4,
        set=SHORT,
        out=tmp_path_factory.mktemp("sweep") / "s",
        metrics=["queue_mean", "throughput"],
    )


def test_dataset_opens_again_unchanged(swept: SweepResult) -> None:
    again = bp.open_sweep(swept.folder)
    assert again.frame().equals(swept.frame())
    assert again.factors == ("gateway.pep.delay",)
    assert again.settings == ["red", "avqred"]
    assert again.metrics == ("queue_mean", "throughput")
    assert again.complete
    assert again.failures == []
    assert again.of_other_builds() == 0
    table = again.table()
    assert len(table) == 2 * len(DELAYS) * 2
    assert table["gateway.pep.delay"].unique(maintain_order=True).to_list() == DELAYS


def test_differences_are_in_pairs_by_seed_and_corrected_over_the_points(swept: SweepResult) -> None:
    found = swept.differences("red", "avqred", ["queue_mean"])
    assert found["gateway.pep.delay"].to_list() == DELAYS
    frame = swept.frame()
    p_values = []
    for row in found.iter_rows(named=True):
        here = frame.filter(pl.col("gateway.pep.delay") == row["gateway.pep.delay"]).sort("seed")
        sides = [
            here.filter(pl.col("setting") == name)["queue_mean"].to_numpy() for name in ("red", "avqred")
        ]
        expected = stats.ttest_rel(sides[0], sides[1])
        interval = expected.confidence_interval(0.95)
        assert row["runs"] == 4
        assert math.isclose(row["difference"], float(sides[0].mean() - sides[1].mean()), rel_tol=1e-9)
        assert math.isclose(row["p"], expected.pvalue, rel_tol=1e-6)
        assert math.isclose(row["ci_low"], interval.low, rel_tol=1e-6)
        assert math.isclose(row["ci_high"], interval.high, rel_tol=1e-6)
        p_values.append(expected.pvalue)
    # Holm's correction: the smallest of three p-values times 3, the next times 2; each at least the former.
    least, middle, most = sorted(p_values)
    one = min(1.0, 3 * least)
    two = min(1.0, max(one, 2 * middle))
    assert sorted(found["p_holm"]) == pytest.approx([one, two, min(1.0, max(two, most))])


def test_unknown_settings_and_metrics_are_one_message(swept: SweepResult, tmp_path: Path) -> None:
    with pytest.raises(ResultError, match='no setting "blue"; there are red, avqred'):
        swept.differences("red", "blue")
    with pytest.raises(UsageError, match="found twice"):
        swept.differences("red", "red")
    with pytest.raises(UsageError, match='no metric "speed"'):
        swept.rows(["speed"])
    with pytest.raises(ResultError, match="is not a sweep's"):
        bp.open_sweep(tmp_path)
    with pytest.raises(ResultError, match="no such folder"):
        bp.open_sweep(tmp_path / "none")
    with pytest.raises(ResultError, match="open_sweep"):
        bp.open(swept.folder)


def test_other_scenarios_are_refused(swept: SweepResult) -> None:
    before = swept.frame()
    with pytest.raises(UsageError, match="other overrides"):
        bp.sweep(
            "small-gateway",
            {"gateway.pep.delay": DELAYS},
            settings=["red"],
            runs=1,
            set=SHORT | {"run.duration": "3 s"},
            out=swept.folder,
        )
    assert swept.frame().equals(before)
    # The table of a setting is not part of the unchanged scenario.
    with pytest.raises(UsageError, match="other overrides"):
        bp.sweep(
            "small-gateway",
            {"gateway.pep.delay": DELAYS},
            settings=["mine"],
            runs=1,
            set=SHORT | {"setting.mine": {"algorithm": "red"}},
            out=swept.folder,
        )


class _Failing(Threads):
    """Threads on which some runs fail; no real scenario passes its checks and then fails."""

    error: SimulationError | ScenarioError = SimulationError("the queue has 3 packets and counts 2")

    def results(self, runs: Iterable[Run]) -> Generator[tuple[Run, Outcome] | None]:
        for result in super().results(runs):
            if result is not None and result[0].point == ("40 ms",) and result[0].seed == 2:
                yield result[0], self.error
            else:
                yield result


def plan_of(delays: list[str]) -> Sweep:
    return Sweep.plan(
        "small-gateway",
        {"gateway.pep.delay": delays},
        settings=["red"],
        runs=2,
        overrides=[f"{key}={value}" for key, value in SHORT.items()],
    )


def test_failed_runs_are_listed_and_repeated(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    calls: list[tuple[int, int, int]] = []
    result = execute(
        plan_of(DELAYS), folder, workers=_Failing(2), on_progress=lambda *each: calls.append(each)
    )
    assert calls[-1] == (6, 6, 1)
    listed = [
        {
            "setting": "red",
            "point": {"gateway.pep.delay": "40 ms"},
            "seed": 2,
            "error": "the queue has 3 packets and counts 2",
        }
    ]
    assert result.failures == listed == json.loads((folder / "failures.json").read_text())
    assert len(result.frame()) == 5
    # The failure stays listed until the run is tried again.
    assert execute(plan_of(DELAYS[:1]), folder).failures == listed
    calls.clear()
    result = execute(plan_of(DELAYS), folder, on_progress=lambda *each: calls.append(each))
    assert calls[0] == (5, 6, 0)
    assert result.failures == []
    assert len(result.frame()) == 6


def command(folder: Path, *more: str) -> list[str]:
    changes = [word for key, value in SHORT.items() for word in ("--set", f"{key}={value}")]
    return [
        *("sweep", "small-gateway", "--vary", "gateway.pep.delay=0 ms,40 ms", "--settings", "red"),
        *("--runs", "2", "--out", str(folder), *changes, *more),
    ]


def test_command_reports_failed_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(workers, "Threads", _Failing)
    with pytest.raises(SystemExit) as left:
        app.main(command(tmp_path / "s"))
    assert left.value.code == 1
    captured = capsys.readouterr()
    assert "1 run failed and will be tried again by the same command" in captured.err
    assert "under red, gateway.pep.delay = 40 ms with seed 2: the queue has 3 packets" in captured.err
    assert "failures.json" in captured.err
    assert "0 ms" in captured.out
    monkeypatch.undo()
    with pytest.raises(SystemExit) as left:
        app.main(command(tmp_path / "s"))
    assert not left.value.code
    assert bp.open_sweep(tmp_path / "s").failures == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_full_disk_loses_no_finished_run(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, folder = tmp_path / "whole", tmp_path / "cut"
    for target in (whole, folder):
        with pytest.raises(SystemExit):
            app.main(command(target))
    capsys.readouterr()
    more = ["--runs", "4"]
    with pytest.raises(SystemExit):
        app.main(command(whole, *more))
    capsys.readouterr()
    real = files.write

    def full(path: Path, content: bytes) -> None:
        if path.name == "runs.parquet":
            raise OSError(number, os.strerror(number), str(path))
        real(path, content)

    monkeypatch.setattr(files, "write", full)
    with pytest.raises(SystemExit) as left:
        app.main(command(folder, *more))
    assert left.value.code == 1
    captured = capsys.readouterr().err
    assert os.strerror(number) in captured
    assert "finished runs are kept" in captured
    assert "Traceback" not in captured
    cut = bp.open_sweep(folder)
    assert not cut.complete
    assert cut.frame().equals(bp.open_sweep(whole).frame())
    monkeypatch.undo()
    with pytest.raises(SystemExit):
        app.main(command(folder, *more))
    assert bp.open_sweep(folder).frame().equals(bp.open_sweep(whole).frame())
    assert not list((folder / "journal").iterdir())


def test_unwritable_report_does_not_hide_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = files.write

    def refused(path: Path, content: bytes) -> None:
        if path.name == "report.html":
            raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        real(path, content)

    monkeypatch.setattr(files, "write", refused)
    with pytest.raises(SystemExit) as left:
        app.main(command(tmp_path / "s"))
    assert left.value.code == 2
    captured = capsys.readouterr()
    assert "40 ms" in captured.out
    assert "report.html: cannot be written: Permission denied" in captured.err
    assert bp.open_sweep(tmp_path / "s").complete


def test_file_size_limit_is_one_message(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from bentpipe.cli import main; main()", *command(tmp_path / "s")],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, 2_000)),
    )
    assert done.returncode == 1
    assert done.stderr.count("error:") == 1
    assert "File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert json.loads((tmp_path / "s" / "manifest.json").read_text())["status"] == "incomplete"


def test_dataset_with_fewer_metrics_is_read(tmp_path: Path) -> None:
    result = execute(plan_of(DELAYS[:1]), tmp_path / "s")
    part = next((tmp_path / "s" / "data").rglob("*.parquet"))
    pl.read_parquet(part).drop("jain_index").write_parquet(part)
    (tmp_path / "s" / "SHA256SUMS").unlink()
    rows = {row["metric"]: row for row in result.rows(["jain_index", "throughput"])}
    assert rows["jain_index"]["mean"] is None
    assert rows["throughput"]["runs"] == 2


def test_damaged_dataset_is_one_message(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    execute(plan_of(DELAYS[:1]), folder)
    part = next((folder / "data").rglob("*.parquet"))
    part.write_bytes(part.read_bytes()[:100])
    with pytest.raises(ResultError, match="is damaged"):
        bp.open_sweep(folder).frame()
    with pytest.raises(ResultError, match="is damaged"):
        execute(plan_of(DELAYS[:1]), folder)
