"""`bentpipe model`: the equations against an independent implementation, and the command's output."""

import json
import math
import signal
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import bentpipe as bp
from bentpipe.cli import app
from bentpipe.models import markov_result
from bentpipe.models.engines import QUANTITIES, moments
from bentpipe.models.fluid import model, solve

STEP = 1e-4
"""Step of the independent implementation, a tenth of the model's [s]."""


class _Wave:
    def __init__(self, series: dict[str, float | list[float]], period: float) -> None:
        self.mean, self.cos, self.sin = series["mean"], series["cos"], series["sin"]
        self.period = period

    def at(self, t: float) -> float:
        total = float(self.mean)  # type: ignore[arg-type]
        for k, (a, b) in enumerate(zip(self.cos, self.sin, strict=True), 1):  # type: ignore[arg-type]
            angle = 2 * math.pi * k * t / self.period
            total += a * math.cos(angle) + b * math.sin(angle)
        return total


def euler_solution(seconds: float, start: float, max_p: float, w_q: float) -> tuple[float, float, float]:
    """Return mean queue, mark probability and load from `start` on: [B07] 4.4, gentle RED, by Euler."""
    m, r, mu = 400, 0.06, 20e6 / 8 / 1391
    file = Path(str(bp.__file__)).parent / "data/scenarios/series/byun2007-gateway.json"
    measured = json.loads(file.read_text())
    period = measured["interval"] * measured["points"]
    omega, delay = (_Wave(measured[name], period) for name in ("load_ratio", "pep_delay"))

    def mark(x: float) -> float:
        if x < 60:
            return 0.0
        return min(max_p * (x - 60) / 60 if x < 120 else max_p + (1 - max_p) * (x - 120) / 120, 1.0)

    load = q = x = 0.0
    sums, count = [0.0, 0.0, 0.0], 0
    accepted: list[float] = []
    for n in range(round(seconds / STEP)):
        t = n * STEP
        if n % 100 == 0:
            w, d = omega.at(t), delay.at(t)
        p, offered = mark(x), w * load
        accepted.append((1 - p) * offered)
        late = n - round(d / STEP)
        inflow = accepted[late] if late >= 0 else 0.0
        if t >= start:
            sums = [sums[0] + q, sums[1] + p, sums[2] + offered]
            count += 1
        load += STEP * ((1 - p) * m / r**2 - p * load**2 / (2 * m))
        dx = -math.log1p(-w_q) * max(offered, mu) * (q - x)
        q = max(q + STEP * (inflow - mu), 0.0)
        x += STEP * dx
    return sums[0] / count, sums[1] / count, sums[2] / count


def test_gateway_equations_match_an_independent_implementation() -> None:
    """RED 4 over 20 s of measured series; gentle, so that its marking function is continuous."""
    changes = {
        "run.warmup": "5 s",
        "run.duration": "15 s",
        "gateway.aqm.gentle": True,
        "gateway.aqm.preset": "RED 4",
    }
    table = solve(bp.load("byun2007-gateway", changes))
    queue, mark, load = euler_solution(20.0, 5.0, 0.7, 0.1)
    found = table.select(pl.col("transmit_queue", "mark_probability", "offered_load").mean()).row(0)
    assert found[0] == pytest.approx(queue, rel=0.01)
    assert found[1] == pytest.approx(mark, rel=0.002)
    assert found[2] / (8 * 1400) == pytest.approx(load, rel=0.002)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("byun2007-gateway", ["RED 4", "RED FC 1", "RED FC 5"]),
        ("byun-generic", ["RED 11/33", "ARED 11/33", "AVQRED 11/33"]),
        ("red-dumbbell", ["RED 60/120", "avqred", "droptail"]),
    ],
)
def test_halving_the_step_changes_the_mean_queue_by_less_than_1_percent(
    name: str, settings: list[str]
) -> None:
    """True for the equations of each paper, in its shipped scenario."""
    queue = {}
    for step in ("1 ms", "0.5 ms"):
        scenario = bp.load(name, {"model.step": step, "run.warmup": "60 s", "run.duration": "60 s"})
        tables = model(scenario, settings).tables
        queue[step] = [moments(tables[each], QUANTITIES[2])[0] for each in settings]
    assert queue["0.5 ms"] == pytest.approx(queue["1 ms"], rel=0.01)


def test_columns_match_a_simulation() -> None:
    scenario = bp.load("red-dumbbell", {"run.warmup": "1 s", "run.duration": "2 s"})
    simulated = bp.compare(scenario, ["RED 60/120"], runs=1).one("series", "RED 60/120", 1)
    table = model(scenario, ["RED 60/120"]).tables["RED 60/120"]
    assert len(table) == len(simulated) == 20
    # A simulation also counts losses, and has no column for a constant capacity.
    assert set(table.columns) - {"capacity", "loss_rate"} <= set(simulated.columns)
    assert table["time"].to_list() == pytest.approx(simulated["time"].to_list())


def test_moments_match_the_samples() -> None:
    table = pl.DataFrame({"transmit_queue": [1.0, 2.0, None, 6.0], "mark_probability": [None] * 4})
    named = {each.name: each for each in QUANTITIES}
    assert moments(table, named["queue"]) == pytest.approx((3.0, math.sqrt(7)))
    assert moments(table, named["mark_probability"]) == (None, None)
    assert moments(table, named["throughput"]) == (None, None)


def _run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        app.main(list(arguments))
    return int(left.value.code or 0)


def test_model_command_prints_a_row_per_quantity(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "m"
    short = ["--duration", "2 s", "--set", "run.warmup=1 s"]
    assert _run("model", "red-dumbbell", *short, "--settings", "RED slow,pi", "--out", str(out)) == 0
    text = capsys.readouterr().out
    assert "RED slow" in text
    assert str(out) in text
    assert {"Throughput", "Queue", "Mark"} <= set(text.split())
    comparison = json.loads((out / "comparison.json").read_text())
    assert [row["setting"] for row in comparison[:: len(QUANTITIES)]] == ["RED slow", "pi"]
    # An existing folder is kept, except a model's result with --force.
    assert _run("model", "red-dumbbell", *short, "--out", str(out)) == 2
    assert "exists already" in capsys.readouterr().err
    assert _run("model", "red-dumbbell", *short, "--out", str(out), "--force", "--format", "json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["setting"] for row in rows} == {"RED 60/120", "avq", "avqred", "droptail"}
    assert all(row["mean"] is None or math.isfinite(row["mean"]) for row in rows)
    (tmp_path / "mine").mkdir()
    assert _run("model", "red-dumbbell", *short, "--out", str(tmp_path / "mine"), "--force") == 2
    assert "is not a model's result" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["red-dumbbell", "--settings", "codel"],
            "red-dumbbell, setting codel: aqm.algorithm: found codel; allowed",
        ),
        (["byun2007-gateway", "--set", "model.history=1 ms"], "model.history: the delay at 0 s is 0.0145"),
        (["nowhere"], "there is no such file"),
        (["red-dumbbell", "--set", "model.step=30 ms"], "model.step: found 0.03 s; allowed"),
    ],
)
def test_unsolvable_model_gives_one_message(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run("model", *arguments, "--out", str(tmp_path / "m")) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert not (tmp_path / "m").exists()


def test_shares_are_null_without_offered_load(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without packets, shares of packets are null, and the figures can be drawn."""
    path = Path(str(bp.__file__)).parent / "data/scenarios/series/byun2007-gateway.json"
    series = json.loads(path.read_text())
    series["load_ratio"].update(mean=0.0, cos=[], sin=[])
    (tmp_path / "none.json").write_text(json.dumps(series))
    changes = [f"model.series={tmp_path / 'none.json'}", "run.warmup=1 s"]
    arguments = [part for change in changes for part in ("--set", change)]
    command = ["model", "byun2007-gateway", "--settings", "RED 4", "--duration", "2 s", *arguments]
    assert _run(*command, "--out", str(tmp_path / "m"), "--format", "json") == 0
    means = {row["quantity"]: row["mean"] for row in json.loads(capsys.readouterr().out)}
    assert (means["mark_probability"], means["loss_rate"], means["offered_load"]) == (None, None, 0.0)


@pytest.mark.parametrize("name", ["red-dumbbell", "mmpp-queue"])
def test_model_does_not_replace_a_folder_that_another_process_makes_meanwhile(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = bp.load(name)
    solved = markov_result.solve(loaded, None) if name == "mmpp-queue" else model(loaded, ["red"])
    folder, report = tmp_path / "out", type(solved).report

    def make(self: Any, path: Path) -> Path:  # noqa: ANN401
        folder.mkdir()
        (folder / "notes.txt").write_text("mine")
        return report(self, path)

    monkeypatch.setattr(type(solved), "report", make)
    with pytest.raises(bp.UsageError, match=r"out: exists already; choose another folder$"):
        solved.save(folder, force=True)
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "notes.txt"]
    monkeypatch.undo()
    with pytest.raises(bp.UsageError, match="is not a model's result"):
        solved.save(folder, force=True)
    solved.save(tmp_path / "other")
    solved.save(tmp_path / "other", force=True)


def test_an_exception_of_a_signal_handler_ends_a_long_solution() -> None:
    scenario = bp.load("byun2007-gateway", {"run.duration": "20000 s"})

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGPROF, stop)
    begun = time.process_time()
    try:
        signal.setitimer(signal.ITIMER_PROF, 0.2)
        with pytest.raises(KeyboardInterrupt):
            model(scenario, "red")
        took = time.process_time() - begun
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    assert took < 2
