from pathlib import Path

import polars as pl
import pytest
from conftest import Command
from hypothesis import given
from hypothesis import strategies as st

import bentpipe as bp
from bentpipe.report.decimate import as_float
from bentpipe.report.traces import steps

COLUMNS = {
    "setting": pl.String,
    "seed": pl.UInt64,
    "time": pl.Float64,
    "flow": pl.UInt32,
    "leg": pl.UInt32,
    "cwnd": pl.UInt64,
    "ssthresh": pl.UInt64,
    "in_flight": pl.UInt64,
    "rtt": pl.Float64,
    "srtt": pl.Float64,
    "rto": pl.Float64,
    "retransmissions": pl.UInt64,
    "timeouts": pl.UInt64,
}


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> bp.Result:
    """Two settings and two seeds of the small gateway; a session's flows and one flow are traced."""
    scenario = bp.load("small-gateway", set={"run.duration": "20 s"})
    return bp.compare(
        scenario,
        ["red", "avqred"],
        runs=2,
        trace=["traffic:web:3", "flow:20"],
        out=tmp_path_factory.mktemp("traced") / "result",
    )


def test_trace_has_its_columns_and_plausible_values(traced: bp.Result) -> None:
    trace = traced.trace()
    assert dict(trace.schema) == COLUMNS
    assert traced.traced == ["traffic:web:3", "flow:20"]
    assert set(trace.select("setting", "seed").unique().rows()) == {
        (setting, seed) for setting in ("red", "avqred") for seed in (1, 2)
    }
    # The warm-up lasts 10 s, and sessions begin within its first 5 s.
    assert -10 <= as_float(trace["time"].min()) < -5
    assert as_float(trace["time"].max()) <= 20
    assert set(trace["leg"].unique()) == {0, 1}
    assert as_float(trace["cwnd"].min()) >= 1460
    assert as_float(trace["rtt"].min()) >= 0.004
    per = ["setting", "seed", "flow", "leg"]
    for column in ("time", "retransmissions", "timeouts"):
        assert trace.select((pl.col(column).diff().over(per) >= 0).all()).item(), column
    # At most one row per millisecond.
    milliseconds = trace.select(*per, stretch=((pl.col("time") + 10) * 1e3 + 1e-6).floor())
    assert milliseconds.n_unique() == len(trace)


def test_traced_flows_are_rows_of_the_flow_table(traced: bp.Result) -> None:
    for setting in traced.settings:
        flows = traced.one("flows", setting, 1)
        mine = flows.filter((pl.col("session") == 3) & (pl.col("opened") > 0))["flow"]
        assert len(mine) > 0
        trace = traced.one("trace", setting, 1)
        assert set(mine) <= set(trace["flow"])
        begins = dict(trace.filter(pl.col("leg") == 1).group_by("flow").agg(pl.col("time").min()).rows())
        opened = dict(flows.select("flow", "opened").rows())
        assert all(begins[flow] >= opened[flow] for flow in mine)


def test_trace_of_an_untraced_run_is_refused(result: bp.Result) -> None:
    assert result.traced == []
    with pytest.raises(bp.ResultError, match="no flow was traced"):
        result.trace()
    with pytest.raises(bp.ResultError, match='there is no table "trace"'):
        result.one("trace", result.settings[0], result.seeds[0])


def test_trace_is_copied_with_its_result(traced: bp.Result, tmp_path: Path) -> None:
    saved = traced.save(tmp_path / "saved")
    assert saved.trace().equals(traced.trace())
    (saved.folder / "runs" / "red" / "2" / "trace.parquet").unlink()
    with pytest.raises(bp.ResultError, match="red, seed 2"):
        bp.open(saved.folder)


def test_a_result_is_resumed_with_the_same_trace_only(bentpipe: Command) -> None:
    command = ["run", "small-gateway", "--duration", "2 s", "--out", "here"]
    bentpipe(*command, "--trace", "flow:1", check=0)
    done = bentpipe(*command, "--trace", "flow:2", "--resume", check=2)
    assert "it was started with traced flows flow:1, now with flow:2" in done.stderr
    done = bentpipe(*command, "--resume", check=2)
    assert "it was started with traced flows flow:1, now with none" in done.stderr
    bentpipe(*command, "--trace", "flow:1", "--trace", "flow:1", "--resume", check=0)
    bentpipe(*command, "--trace", "flow:2", "--force", check=0)


def test_datagrams_cannot_be_traced(tmp_path: Path) -> None:
    voice = bp.load(
        "unsplit-udp", set={"run.duration": "1 s", "run.warmup": "1 s", "traffic.web.sessions": 1}
    )
    name = next(row["key"].split(".")[1] for row in voice.effective() if row["value"] == "cbr")
    with pytest.raises(bp.UsageError, match=f"traffic {name} has no congestion window"):
        bp.run(voice, trace=f"traffic:{name}:0")
    flows = bp.run(voice).flows().filter(pl.col("traffic").cast(pl.String) == name)["flow"]
    with pytest.raises(
        bp.UsageError, match=f"flow:{flows[0]}: that flow, of traffic {name}, has no congestion window"
    ):
        bp.run(voice, trace=f"flow:{flows[0]}", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@given(st.lists(st.integers(0, 50), min_size=1, max_size=3000))
def test_reduced_steps_keep_the_extremes(values: list[int]) -> None:
    table = pl.DataFrame(
        {"time": [0.5 * n for n in range(len(values))], "flow": [7] * len(values), "x": values}
    )
    kept = steps(table, "x", 2.0)
    assert kept["time"].is_sorted()
    assert kept["value"].min() == 2 * min(values)
    assert kept["value"].max() == 2 * max(values)
    assert kept.row(0) == (0.0, 2.0 * values[0], 7)
    assert kept.row(-1) == (0.5 * (len(values) - 1), 2.0 * values[-1], 7)
    assert len(kept) <= 4 * 401
    # Every step is a row of the table.
    assert set(kept.rows()) <= {(0.5 * n, 2.0 * value, 7) for n, value in enumerate(values)}


def test_steps_of_flows_are_separate() -> None:
    table = pl.DataFrame(
        {"time": [0.0, 1.0, 2.0, 3.0, 4.0], "flow": [1, 1, 2, 2, 2], "x": [5, 5, 5, None, 6]}
    )
    assert steps(table, "x").rows() == [(0.0, 5.0, 1), (1.0, 5.0, 1), (2.0, 5.0, 2), (4.0, 6.0, 2)]
    assert steps(table, "x", ends=False).rows() == [(0.0, 5.0, 1), (2.0, 5.0, 2), (4.0, 6.0, 2)]
    assert steps(table.with_columns(x=None), "x").rows() == []
