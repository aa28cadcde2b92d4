"""Sweeps: simulated runs, kept runs, and independence of the result from interruptions and threads."""

import errno
import io
import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Generator, Iterable
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console

import bentpipe as bp
from bentpipe import files
from bentpipe.api import sweep
from bentpipe.cli import app
from bentpipe.cli.console import Rate, progress_text
from bentpipe.errors import ScenarioError, SimulationError, UsageError
from bentpipe.runs.dataset import Run
from bentpipe.runs.plan import scenario_path
from bentpipe.runs.store import metric_sources
from bentpipe.runs.workers import Outcome, Threads
from bentpipe.stats.metrics import METRICS
from bentpipe.sweeps.result import SweepResult
from bentpipe.sweeps.sweep import Precision, Sweep, execute, precision_from

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


def test_every_point_has_every_setting_and_seed(whole: Path) -> None:
    frame = SweepResult(whole).frame()
    assert len(frame) == 2 * 2 * 2 * 2
    assert frame.select("setting", *VARY, "seed").is_unique().all()
    assert sorted(frame["seed"].unique()) == [1, 2]
    assert {path.split("/")[1] for path in content(whole) if path.startswith("data")} == {
        "setting=avqred",
        "setting=red",
    }


def test_build_of_a_dataset_covers_every_module_that_metrics_are_computed_with() -> None:
    code = (
        "import sys, bentpipe, bentpipe.errors; before = set(sys.modules); import bentpipe.stats.metrics;"
        "print(*(sys.modules[name].__file__ for name in set(sys.modules) - before if 'bentpipe' in name))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    used = {Path(path) for path in done.stdout.split()}
    assert len(used) > 6
    assert used <= set(metric_sources())


def test_run_equals_that_of_compare(whole: Path) -> None:
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
        for name in ("throughput", "queue_mean", "drops", "fct_p95"):
            assert row[name] == expected[row["seed"], name]


def test_factor_unknown_to_a_setting_costs_no_run(tmp_path: Path) -> None:
    plan = Sweep.plan("small-gateway", VARY, settings=["red", "avqred"], runs=1, overrides=SHORT)
    assert len(plan.cells) == 8
    assert len({cell[3] for cell in plan.cells}) == 4 + 2
    calls: list[tuple[int, int, int]] = []
    execute(plan, tmp_path / "s", on_progress=lambda *each: calls.append(each))
    assert calls[0] == (2, 8, 0)


def test_number_of_jobs_does_not_change_the_dataset(whole: Path, tmp_path: Path) -> None:
    small(tmp_path / "two", jobs=2)
    assert content(tmp_path / "two") == content(whole)


class _Stopped(Exception):  # noqa: N818
    pass


def test_interrupted_sweep_continues(whole: Path, tmp_path: Path) -> None:
    def stop(done: int, total: int, failed: int) -> None:
        del total, failed
        if done >= 9:
            raise _Stopped

    folder = tmp_path / "cut"
    with pytest.raises(_Stopped):
        small(folder, jobs=1, on_progress=stop)
    assert json.loads((folder / "manifest.json").read_text())["status"] == "incomplete"
    kept = len(pl.read_parquet(list((folder / "journal").glob("*.parquet"))))
    assert kept > 0
    calls: list[tuple[int, int, int]] = []
    small(folder, jobs=1, on_progress=lambda *each: calls.append(each))
    # Four runs count for two points each.
    assert calls[0][0] >= kept
    assert content(folder) == content(whole)
    calls.clear()
    small(folder, on_progress=lambda *each: calls.append(each))
    assert calls == [(16, 16, 0)]
    assert content(folder) == content(whole)


def test_larger_sweep_simulates_only_new_runs(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "more"
    small(folder, settings=["red"], runs=1)
    small(folder, settings=["red"])
    small(folder)
    there, expected = SweepResult(folder).frame(), SweepResult(whole).frame()
    assert there.equals(expected)


def test_setting_may_have_a_numeric_name(tmp_path: Path) -> None:
    names = ["007", "2007-04-02", "true", "a=b/c %20"]
    scenario = tmp_path / "named.toml"
    own = "".join(f'\n[setting."{name}"]\nalgorithm = "red"\n' for name in names)
    scenario.write_text(scenario_path("small-gateway").read_text(encoding="utf-8") + own, encoding="utf-8")
    for again in (False, True):
        for name in names:
            workers = _Values(float)
            plan = Sweep.plan(scenario, {}, settings=[name], runs=1, overrides=SHORT)
            found = execute(plan, tmp_path / f"of {name[:3]}", workers=workers)
            assert workers.seeds == ([] if again else [1])
            assert found.frame()["setting"].to_list() == [name] == found.settings


def test_shared_runs_are_renewed_at_all_their_points(tmp_path: Path) -> None:
    """Runs of an older build are replaced at every point that shares them."""
    arguments = {"settings": ["red", "codel"], "runs": 1, "set": SHORT, "out": tmp_path / "s"}
    vary = {"gateway.pep.delay": "0 ms", "gateway.aqm.w_q": "0.02,0.2"}
    sweep("small-gateway", vary, **arguments)  # type: ignore[arg-type]
    for path in (tmp_path / "s" / "data").rglob("*.parquet"):
        pl.read_parquet(path).with_columns(core=pl.lit("another build")).write_parquet(path)
        (tmp_path / "s" / "SHA256SUMS").unlink(missing_ok=True)
    result = sweep("small-gateway", vary, **arguments)  # type: ignore[arg-type]
    assert result.of_other_builds() == 0


def test_factors_without_effect_are_warned_of_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["sweep", "byun-generic", "--duration", "1 s", "--set", "run.warmup=1 s", "--runs", "1"]
    words += [
        "--settings",
        "red,blue",
        "--vary",
        "run.sample_interval=0.1 s,0.2 s",
        "--out",
        str(tmp_path / "s"),
    ]
    with pytest.raises(SystemExit):
        app.main(words)
    errors = capsys.readouterr().err
    assert errors.count("warning: traffic.connections.ramp: the last transfer starts after the warm-up") == 1


@pytest.mark.parametrize("key", ["run.seed", "run.runs", "run.settings", '"run".seed', "run . 'seed'"])
def test_seeds_and_runs_cannot_be_factors(tmp_path: Path, key: str) -> None:
    with pytest.raises(UsageError, match=f"--vary {key}: is the same at all points.*allowed: --seed"):
        sweep("small-gateway", {key: "1,2"}, out=tmp_path / "s", set=SHORT)


@pytest.mark.parametrize("key", ["gateway.pep.delay", 'gateway . "pep".delay'])
def test_key_that_is_set_and_varied_is_refused(
    key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["sweep", "small-gateway", "--vary", "gateway.pep.delay=2 ms,3 ms", "--out", str(tmp_path / "s")]
    with pytest.raises(SystemExit) as left:
        app.main([*words, "--set", f"{key}=1 ms"])
    assert left.value.code == 2
    message = f"--set {key}=1 ms: {key}: found in --vary as well; allowed: one of the two"
    assert capsys.readouterr().err == f"error: {message}\n"
    with pytest.raises(UsageError, match=re.escape(message)):
        sweep("small-gateway", {"gateway.pep.delay": [2, 3]}, out=tmp_path / "s", set={key: "1 ms"})
    with pytest.raises(SystemExit) as left:
        app.main([*words, "--vary", "run.duration=2 s,3 s", "--duration", "1 s"])
    assert left.value.code == 2
    assert "error: --duration 1 s: found in --vary as well" in capsys.readouterr().err
    # A factor replaces an override of a loaded scenario, as a further override does.
    loaded = bp.load("small-gateway", {"gateway.pep.delay": "1 ms"})
    assert len(Sweep.plan(loaded, ["gateway.pep.delay=2 ms,3 ms"]).points) == 2


def test_runs_are_added_until_the_interval_is_narrow(tmp_path: Path) -> None:
    aim = Precision("throughput", 0.03, 12)
    result = sweep(
        "small-gateway",
        {"gateway.pep.delay": "0 ms,40 ms"},
        settings=["red"],
        runs=2,
        set=SHORT,
        out=tmp_path / "s",
        precision=aim,
    )
    for row in result.rows(["throughput"]):
        assert row["runs"] == aim.most or row["ci95"] <= aim.share * row["mean"]
        assert row["runs"] >= 2
    seeds = result.frame().group_by("gateway.pep.delay").agg(pl.col("seed").sort())
    for found in seeds["seed"]:
        assert found.to_list() == list(range(1, len(found) + 1))


def test_impossible_points_and_wrong_folders_are_one_message(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="w_q"):
        sweep("small-gateway", {"gateway.aqm.w_q": "0.5,2"}, settings=["red"], out=tmp_path / "a", set=SHORT)
    assert not (tmp_path / "a").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("Dear")
    with pytest.raises(UsageError, match="is not a sweep's"):
        small(tmp_path / "mine")
    small(tmp_path / "b", settings=["red"], runs=1)
    with pytest.raises(UsageError, match=r"has the factors .* found"):
        sweep("small-gateway", {"gateway.pep.delay": "1 ms"}, settings=["red"], out=tmp_path / "b", set=SHORT)
    with pytest.raises(UsageError, match='there is no metric "speed"'):
        small(tmp_path / "c", precision=Precision("speed", 0.1))
    for text in ("2 percent", "0%", "150%"):
        with pytest.raises(UsageError):
            precision_from(text, "throughput", 10)
    assert precision_from("2%", "drops", 10) == Precision("drops", 0.02, 10)


def test_folder_left_by_a_full_disk_counts_as_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: bytes) -> None:
        del content
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    with monkeypatch.context() as patch:
        patch.setattr(files, "write", full)
        with pytest.raises(UsageError, match="No space left on device"):
            small(tmp_path / "s", settings=["red"], runs=1)
    assert not list((tmp_path / "s").iterdir())
    assert small(tmp_path / "s", settings=["red"], runs=1).complete


def test_progress_shows_rate_time_left_and_failures() -> None:
    assert progress_text(40, 100, 0, 2.0) == "40 of 100 runs, 2.0 a second, 30 s left"
    assert progress_text(100, 100, 3, 5.0) == "100 of 100 runs, 5.0 a second, 3 failed"
    assert progress_text(0, 1, 0, 0.0) == "0 of 1 run"
    assert progress_text(1, 3, 0, 0.05) == "1 of 3 runs, 3.0 a minute, 40 s left"
    assert progress_text(1, 2, 0, 0.001, open_end=True) == (
        "1 of 2 runs, 3.6 an hour, at least 16 min 40 s left"
    )


def test_rate_is_recent_and_the_line_is_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("bentpipe.cli.console.time.monotonic", lambda: now[0])
    terminal = io.StringIO()
    rate = Rate(Console(file=terminal, force_terminal=True, width=40, highlight=False))
    for done in range(101):
        # Fifty runs in five seconds, then one every two seconds.
        now[0] += 0.1 if done < 50 else 2.0
        rate.update(done, 1000, 0)
    lines = terminal.getvalue().split("\r")
    assert lines[-2].rstrip() == "100 of 1000 runs, 30.0 a minute, 30 min"
    assert max(map(len, lines)) == 39
    assert "\n" not in terminal.getvalue()
    rate.close()
    assert terminal.getvalue().endswith("\n")


def test_without_terminal_progress_is_an_occasional_line(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("bentpipe.cli.console.time.monotonic", lambda: now[0])
    pipe = io.StringIO()
    rate = Rate(Console(file=pipe, width=100, highlight=False))
    for done in range(4, 31):
        now[0] += 1.0
        rate.update(done, 30, 0)
    rate.update(30, 40, 0)
    rate.close()
    assert pipe.getvalue().splitlines() == [
        "Simulating 30 runs, 4 of them already finished",
        "14 of 30 runs, 1.0 a second, 16 s left",
        "24 of 30 runs, 1.0 a second, 6 s left",
        "30 of 30 runs, 1.0 a second",
        "Simulating 10 more runs",
    ]


class _Values(Threads):
    """Workers that return a throughput by seed, without simulation."""

    def __init__(self, value: Callable[[int], float | None], failing: int = 0) -> None:
        super().__init__(1)
        self.value, self.failing = value, failing
        self.seeds: list[int] = []

    def results(self, runs: Iterable[Run]) -> Generator[tuple[Run, Outcome] | None]:
        for run in runs:
            self.seeds.append(run.seed)
            if run.seed == self.failing:
                yield run, SimulationError("it failed")
            else:
                empty: dict[str, float | None] = {metric.name: None for metric in METRICS}
                yield run, empty | {"throughput": self.value(run.seed)}


def added(folder: Path, workers: _Values, most: int = 12, seed: int = 1) -> SweepResult:
    plan = Sweep.plan("small-gateway", {}, settings=["red"], runs=2, seed=seed, overrides=SHORT)
    return execute(plan, folder, workers=workers, precision=Precision("throughput", 0.1, most))


@pytest.mark.parametrize(
    ("value", "runs", "shortfall"),
    [
        (lambda _: 0.0, 2, None),
        (lambda _: -3.0, 2, None),
        (lambda seed: -100.0 + 5 * (-1) ** seed, 4, None),
        (lambda seed: float((-1) ** seed), 12, "at 1 of 1 places"),
        (lambda _: None, 2, "no run has a value at 1 of 1 places"),
        (lambda seed: None if seed < 3 else 5.0, 2, "no run has a value"),
        (lambda seed: None if seed == 1 else 5.0, 3, None),
    ],
    ids=["zero", "negative", "negative and noisy", "about zero", "no value", "no value yet", "one value"],
)
def test_runs_are_added_while_the_interval_can_narrow(
    tmp_path: Path, value: Callable[[int], float | None], runs: int, shortfall: str | None
) -> None:
    workers = _Values(value)
    result = added(tmp_path / "s", workers)
    assert workers.seeds == list(range(1, runs + 1))
    if shortfall is None:
        assert result.shortfalls() == []
    else:
        assert shortfall in result.shortfalls()[0]


def test_adding_runs_ends_with_seed_gaps_and_failures(tmp_path: Path) -> None:
    noisy = lambda seed: float((-1) ** seed)  # noqa: E731
    added(tmp_path / "s", _Values(noisy), most=4, seed=6)
    workers = _Values(noisy, failing=3)
    result = added(tmp_path / "s", workers, most=12)
    # Seeds 6 to 9 exist; seed 3 fails and counts as tried.
    assert workers.seeds == [1, 2, 3, 4, 5, 10, 11, 12]
    assert len(result.frame()) == 11
    assert [each["seed"] for each in result.failures] == [3]


def test_failure_is_listed_at_every_point_that_a_setting_ignores(tmp_path: Path) -> None:
    vary = {"gateway.aqm.w_q": [0.1, 0.2]}
    plan = Sweep.plan("small-gateway", vary, settings=["red", "droptail"], runs=1, overrides=SHORT)
    workers = _Values(lambda _: 1.0, failing=1)
    result = execute(plan, tmp_path / "s", workers=workers)
    assert workers.seeds == [1, 1, 1]
    assert [(each["setting"], *each["point"].values()) for each in result.failures] == [
        ("red", "0.1"),
        ("droptail", "0.1"),
        ("red", "0.2"),
        ("droptail", "0.2"),
    ]


def test_seeds_wrap_around_at_64_bits(tmp_path: Path) -> None:
    workers = _Values(lambda seed: float((-1) ** seed), failing=-1)
    result = added(tmp_path / "s", workers, most=4, seed=2**64 - 2)
    assert workers.seeds == [2**64 - 2, 2**64 - 1, 0, 1]
    assert sorted(result.frame()["seed"]) == [0, 1, 2**64 - 2, 2**64 - 1]


def test_runs_of_another_build_are_repeated(tmp_path: Path) -> None:
    added(tmp_path / "s", _Values(lambda _: 1.0))
    (part,) = (tmp_path / "s" / "data").rglob("*.parquet")
    pl.read_parquet(part).with_columns(core=pl.lit("another build")).write_parquet(part)
    (tmp_path / "s" / "SHA256SUMS").unlink()
    workers = _Values(lambda _: 2.0)
    result = added(tmp_path / "s", workers)
    assert workers.seeds == [1, 2]
    assert result.frame()["throughput"].to_list() == [2.0, 2.0]


def test_progress_continues_when_runs_are_added(tmp_path: Path) -> None:
    calls: list[tuple[int, int, int]] = []
    plan = Sweep.plan("small-gateway", {}, settings=["red"], runs=2, overrides=SHORT)
    aim = Precision("throughput", 0.1, 8)
    workers = _Values(lambda seed: float((-1) ** (seed // 2)), failing=2)
    execute(
        plan, tmp_path / "s", workers=workers, precision=aim, on_progress=lambda *each: calls.append(each)
    )
    assert calls[-1] == (8, 8, 1)
    assert all(a[0] <= b[0] and a[1] <= b[1] and a[2] <= b[2] for a, b in itertools.pairwise(calls))


def test_command_prints_table_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
            app.main(arguments)
        return int(left.value.code or 0)

    assert run("--vary", "gateway.pep.delay=0 ms:40 ms:2", "--format", "json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 2 * 2
    assert {row["gateway.pep.delay"] for row in rows} == {"0 ms", "40 ms"}
    assert all(row["runs"] == 2 and row["mean"] is not None for row in rows)
    assert run("--vary", "gateway.pep.delay=0 ms:40 ms:2", "--metric", "drops, queue_mean") == 0
    captured = capsys.readouterr()
    assert "drops, packets" in captured.out
    assert "queue_mean, packets" in captured.out
    assert "Dataset:" in captured.err
    assert run("--vary", "gateway.pep.delay=fast") == 2
    assert "gateway.pep.delay" in capsys.readouterr().err
    assert run("--vary", "gateway.pep.delay") == 2
    assert "found no KEY=VALUES" in capsys.readouterr().err
