import math
from pathlib import Path

import polars as pl
import pytest

import bentpipe as bp
from bentpipe.report.decimate import as_float
from bentpipe.stats.metrics import GROUPS, METRICS, Recorded, evaluate

COUNTERS: dict[str, float | None] = {
    "offered_packets": 1000.0,
    "dropped_packets": 200.0,
    "queue_time_average": 12.5,
    "queue_delay_mean": 0.010,
    "queue_delay_p50": 0.008,
    "queue_delay_p95": 0.030,
    "queue_delay_p99": 0.040,
    "jitter": 0.002,
}


def recorded(
    *,
    goodput: list[float | None] | None = None,
    completion: list[float | None] | None = None,
    runs: list[tuple[int, int]] | None = None,
    counters: dict[str, float | None] | None = None,
) -> Recorded:
    """Return a run with four samples of a 20 Mbit/s link and the given flows, drop runs and counters."""
    goodput = [] if goodput is None else goodput
    completion = [None] * len(goodput) if completion is None else completion
    series = pl.DataFrame(
        {
            "time": [0.1, 0.2, 0.3, 0.4],
            "offered_load": [24e6, 26e6, 24e6, 26e6],
            "throughput": [20e6, 18e6, 20e6, 18e6],
            "transmit_queue": [0.0, 10.0, 20.0, 50.0],
        }
    )
    flows = pl.DataFrame(
        {
            "goodput": pl.Series(goodput, dtype=pl.Float64),
            "completion_time": pl.Series(completion, dtype=pl.Float64),
            "closed": pl.Series(
                [9.0 if value is not None else None for value in completion], dtype=pl.Float64
            ),
            "completed": pl.Series([value is not None for value in completion], dtype=pl.Boolean),
            "failed": pl.Series([False] * len(goodput), dtype=pl.Boolean),
        }
    )
    drop_runs = pl.DataFrame(runs or [], schema={"length": pl.UInt32, "count": pl.UInt64}, orient="row")
    return Recorded(series, flows, drop_runs, COUNTERS if counters is None else counters, 20e6)


def test_utilization_is_what_the_simulator_counted_or_else_of_the_mean_capacity() -> None:
    counted = {share: {**COUNTERS, "used_share": share} for share in (0.4, math.nan)}
    found = {share: evaluate(recorded(counters=each))["utilization"] for share, each in counted.items()}
    assert list(found.values()) == pytest.approx([40.0, 95.0])


def test_link_and_queue_metrics_match_a_worked_example() -> None:
    values = evaluate(recorded())
    assert values["throughput"] == pytest.approx(19.0)
    assert values["throughput_std"] == pytest.approx(2 / math.sqrt(3))  # sum of squares 4, over 3
    assert values["utilization"] == pytest.approx(95.0)
    assert values["offered_load"] == pytest.approx(25.0)
    assert values["queue_mean"] == 20.0
    assert values["queue_std"] == pytest.approx(math.sqrt((400 + 100 + 0 + 900) / 3))
    assert values["queue_p50"] == 15.0
    assert values["queue_p95"] == pytest.approx(45.5)  # 85 % of the way from 20 to 50
    assert values["queue_max"] == 50.0
    assert values["queue_time_average"] == 12.5


def test_delays_are_in_milliseconds() -> None:
    values = evaluate(recorded())
    names = ("queue_delay_mean", "queue_delay_p50", "queue_delay_p95", "queue_delay_p99", "jitter")
    assert [values[name] for name in names] == pytest.approx([10, 8, 30, 40, 2])


def test_drop_metrics_match_a_worked_example() -> None:
    # 60 runs of one packet, 30 of two, 10 of eight: 200 packets in 100 runs.
    values = evaluate(recorded(runs=[(8, 10), (1, 60), (2, 30)]))
    assert values["drops"] == 200
    assert values["drop_rate"] == pytest.approx(20.0)
    assert values["drop_run_mean"] == pytest.approx(2.0)
    assert values["drop_run_p95"] == 8
    assert values["drop_run_independent"] == pytest.approx(1.25)


def test_loss_is_the_probability_of_being_lost_at_any_place() -> None:
    counters: dict[str, float | None] = {
        "receive_packets": 1000.0,
        "receive_drops": 100.0,
        "transmit_packets": 2000.0,
        "transmit_drops": 1000.0,
        "link_packets": 1000.0,
        "link_losses": 50.0,
        "link_given_up": 10.0,
        "repeated_bytes": 30.0,
        "sent_bytes": 120.0,
    }
    values = evaluate(recorded(counters=COUNTERS | counters))
    names = ("receive_drop_rate", "transmit_drop_rate", "link_loss_rate", "link_give_up_rate")
    assert [values[name] for name in names] == pytest.approx([10, 50, 5, 1])
    assert values["loss_rate"] == pytest.approx(100 * (1 - 0.9 * 0.5 * 0.95 * 0.99))
    assert values["retransmitted"] == pytest.approx(25)


def test_links_that_cannot_lose_packets_lose_none() -> None:
    none: dict[str, float | None] = dict.fromkeys(("link_packets", "link_losses", "link_given_up"), 0.0)
    values = evaluate(recorded(counters=COUNTERS | none))
    assert values["link_loss_rate"] == values["link_give_up_rate"] == 0
    assert values["receive_drop_rate"] is None


def test_drops_at_each_queue_are_the_rows_of_the_table_of_drops(result: bp.Result) -> None:
    for setting in result.settings:
        for seed in result.seeds:
            counters = result.recorded(setting, seed).counters
            places = result.one("drops", setting, seed)["place"].cast(pl.String)
            for queue in ("receive", "transmit"):
                assert counters[f"{queue}_drops"] == places.str.ends_with(queue).sum(), (setting, queue)


def test_marks_behind_a_pep_are_a_share_of_the_packets_in_that_queue(tmp_path: Path) -> None:
    scenario = bp.load("small-gateway", {"run.duration": "10 s"})
    found = bp.compare(scenario, ["cake"], runs=1, out=tmp_path / "out")
    values, (seed,) = evaluate(found.recorded("cake", found.seeds[0])), found.seeds
    series = found.one("series", "cake", seed)["mark_probability"].drop_nulls()
    assert 0 <= as_float(series.min()) < as_float(series.max()) <= 1
    # Its AQM drops there, as nothing has ECN, and packets of the beginning and the end make the difference.
    assert values["mark_rate"] == pytest.approx(values["transmit_drop_rate"], rel=0.02)
    assert (values["mark_rate"] or 0) > 10


def test_repeated_data_are_as_frequent_as_losses_behind_a_pep(tmp_path: Path) -> None:
    """A PEP link sends each lost packet again, so a share p of all its packets is repeated if p are lost."""
    scenario = bp.load("small-gateway", {"link.satellite.loss": 0.1, "gateway.regulator.rate": "9 Mbps"})
    found = bp.compare(scenario, ["droptail"], runs=1, out=tmp_path / "out")
    values = evaluate(found.recorded("droptail", found.seeds[0]))
    packets = found.recorded("droptail", found.seeds[0]).counters["sent_packets"]
    assert packets is not None
    error = 4 * 100 * math.sqrt(0.1 * 0.9 / packets)
    assert values["link_loss_rate"] == pytest.approx(10, abs=error)
    assert values["retransmitted"] == pytest.approx(10, abs=2 * error)


def test_flow_metrics_match_a_worked_example() -> None:
    values = evaluate(recorded(goodput=[10e3, 20e3, 30e3, None], completion=[4.0, 2.0, 1.0, None]))
    assert values["goodput_mean"] == pytest.approx(20.0)
    assert values["goodput_std"] == pytest.approx(10.0)
    assert values["jain_index"] == pytest.approx(60**2 / (3 * 1400))
    assert values["fct_mean"] == pytest.approx(7 / 3)
    assert values["fct_p50"] == 2.0
    assert values["completed"] == 3
    assert values["failed"] == 0


def test_flow_closed_during_the_warmup_is_not_counted() -> None:
    run = recorded(goodput=[10e3, None], completion=[4.0, 50.0])
    run.flows = run.flows.with_columns(closed=pl.Series([3.0, -0.5]))
    values = evaluate(run)
    assert values["completed"] == 1
    assert values["fct_mean"] == 4.0


def test_equal_flows_are_perfectly_fair() -> None:
    assert evaluate(recorded(goodput=[5.0] * 9))["jain_index"] == pytest.approx(1.0)


def test_metrics_without_data_have_no_value() -> None:
    nothing: dict[str, float | None] = dict.fromkeys(COUNTERS, None) | {
        "offered_packets": 0.0,
        "dropped_packets": 0.0,
    }
    values = evaluate(recorded(counters=nothing))
    without = {name for name, value in values.items() if value is None}
    assert {"drop_rate", "drop_run_mean", "drop_run_p95", "drop_run_independent"} <= without
    assert {"goodput_mean", "goodput_std", "jain_index", "fct_mean", "fct_p99", "queue_delay_mean"} <= without
    assert values["completed"] == 0


def test_nan_samples_are_left_out() -> None:
    run = recorded()
    run.series = run.series.with_columns(transmit_queue=pl.Series([math.nan, 10.0, None, 30.0]))
    assert evaluate(run)["queue_mean"] == 20.0


def test_independent_drop_run_is_undefined_if_everything_is_dropped() -> None:
    counters = COUNTERS | {"dropped_packets": 1000.0}
    assert evaluate(recorded(counters=counters))["drop_run_independent"] is None


def test_metrics_have_unique_names_labels_and_docs() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    assert {metric.group for metric in METRICS} == set(GROUPS)
    for metric in METRICS:
        assert metric.doc.endswith("."), metric.name
        assert metric.label


def test_a_real_run_has_every_metric(result: bp.Result) -> None:
    missing = result.metrics().filter(pl.col("value").is_null())
    assert missing.is_empty(), missing


def test_metrics_of_a_run_agree_with_its_tables(result: bp.Result) -> None:
    for setting in result.settings:
        for seed in result.seeds:
            run = result.recorded(setting, seed)
            values = evaluate(run)
            drops = result.one("drops", setting, seed).filter(pl.col("reason").cast(pl.String) != "loss")
            assert values["drops"] == len(drops)
            packets = (run.drop_runs["length"].cast(pl.UInt64) * run.drop_runs["count"]).sum()
            assert packets == len(drops.filter(pl.col("reason").cast(pl.String) == "aqm"))
            assert values["utilization"] is not None
            assert 0 < values["utilization"] <= 100.5
            seconds = run.counters["measured_seconds"]
            sent = run.counters["sent_bytes"]
            assert seconds == pytest.approx(20.0)
            assert sent is not None
            assert values["throughput"] == pytest.approx(sent * 8e-6 / 20.0, rel=0.02)
