"""Measures of a paper's claims beyond those of one class or one column, by hand."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from bentpipe.errors import UsageError
from bentpipe.models import markov
from bentpipe.reproduction import load_paper
from bentpipe.reproduction.measures import Measure, RunData, measure_from
from bentpipe.reproduction.runs import Library, _simulate, plan
from bentpipe.reproduction.toml_table import TomlTable
from bentpipe.reproduction.verdicts import Verdicts
from bentpipe.stats.metrics import Recorded


def measure(**given: object) -> Measure:
    return measure_from("one", TomlTable({"label": "One"} | given, "test"))


def run(flows: dict[str, list[object]], **columns: list[float]) -> RunData:
    size = len(next(iter(columns.values()), []))
    series = pl.DataFrame({"time": [float(i + 1) for i in range(size)], **columns})
    return RunData(Recorded(series, pl.DataFrame(flows), pl.DataFrame(), {}, 1e6), float(size))


def test_loss_ratio_compares_two_kinds_of_traffic() -> None:
    flows: dict[str, list[object]] = {
        "traffic": ["a", "a", "b"],
        "drops": [10, 10, 10],
        "packets": [40, 40, 90],
    }
    # 20 of 100 packets against 10 of 100.
    assert measure(kind="loss_ratio", traffic=["a"], than=["b"]).compute(run(flows)) == pytest.approx(2)
    flows["drops"] = [10, 10, 0]
    assert measure(kind="loss_ratio", traffic=["a"], than=["b"]).compute(run(flows)) is None


def test_refused_packets_exclude_those_that_links_lost() -> None:
    flows: dict[str, list[object]] = {"traffic": ["a", "b"], "drops": [25, 5], "packets": [75, 95]}
    (series, recorded) = (pl.DataFrame(), pl.DataFrame(flows))
    data = RunData(Recorded(series, recorded, pl.DataFrame(), {"link_losses": 20.0}, 1e6), 10.0)
    # 5 of 100 packets.
    assert measure(kind="refused", traffic=["a"]).compute(data) == pytest.approx(5)


def test_smaller_windows_are_compared_over_time() -> None:
    flows: dict[str, list[object]] = {"flow": [0, 1, 2], "traffic": ["a", "b", "b"]}
    trace = pl.DataFrame(
        {
            "time": [0.0, 0.0, 0.0, 2.0, 4.0],
            "flow": [0, 1, 2, 0, 1],
            "leg": [0, 0, 0, 0, 0],
            # a has 2, from 2 s on 8; b has a mean of 4, from 4 s on 9.
            "cwnd": [2, 3, 5, 8, 13],
        },
        schema_overrides={"flow": pl.Int64},
    )
    data = RunData(Recorded(pl.DataFrame(), pl.DataFrame(flows), pl.DataFrame(), {}, 1e6), 10.0, trace)
    # Below up to 2 s and from 4 s on: 8 of 10 s, of which the first sample is at 0.1 s and that at 2 s above.
    found = measure(kind="smaller_window", traffic=["a"], than=["b"]).compute(data)
    assert found == pytest.approx(80, abs=1.1)
    assert measure(kind="smaller_window", traffic=["a"], than=["c"]).compute(data) is None
    without = RunData(data.recorded, 10.0)
    assert measure(kind="smaller_window", traffic=["a"], than=["b"]).compute(without) is None


def test_runs_of_two_experiments_are_paired_by_seed() -> None:
    verdicts = Verdicts.__new__(Verdicts)
    cases: Any = {
        ("twenty", "a", ""): SimpleNamespace(seeds=(1, 2, 3), factor=10),
        ("fifty", "a", ""): SimpleNamespace(seeds=(2, 3, 4, 5), factor=1),
    }
    verdicts.cases = cases
    library: Any = SimpleNamespace(values=lambda case, _: [case.factor * seed for seed in case.seeds])
    verdicts._library = library
    check: Any = SimpleNamespace(points=[""], sides=[("twenty", "a", None), ("fifty", "a", None)])
    assert list(verdicts._pairs(check)) == [("", [20, 30], [2, 3])]
    assert list(verdicts._pairs(check, by_seed=False)) == [("", [10, 20, 30], [2, 3, 4, 5])]


def test_ends_compare_the_deviation_of_ends_with_that_of_starts() -> None:
    flows: dict[str, list[object]] = {
        "traffic": ["a", "a", "a", "b"],
        "opened": [0.0, 20.0, 40.0, 100.0],
        "closed": [85.0, 90.0, 95.0, None],
        "completed": [True, True, True, False],
    }
    # Deviations of 5 and 20 s; the flow that did not complete has no end.
    assert measure(kind="ends").compute(run(flows)) == pytest.approx(0.25)
    assert measure(kind="ends", traffic=["b"]).compute(run(flows)) is None


def test_settling_is_the_last_time_off_the_end() -> None:
    # From 2 s on, in slots of 2 s: means of 3, 9, 12, 10, 10; the last 4 s have 10.
    column = [0.0, 0.0, 2.0, 4.0, 8.0, 10.0, 12.0, 12.0, 10.0, 10.0, 9.0, 11.0]
    given = {"kind": "settling", "column": "q", "from": 2, "seconds": 2, "last": 4}
    assert measure(**given, within=0.1).compute(run({}, q=column)) == pytest.approx(6)
    assert measure(**given, within=0.3).compute(run({}, q=column)) == pytest.approx(2)
    assert measure(**given, within=0.8).compute(run({}, q=column)) == 0.0
    with pytest.raises(UsageError, match="seconds: found 0"):
        measure(**{**given, "seconds": 0}, within=0.1)


def test_share_counts_samples_at_a_bound_or_beyond() -> None:
    queue = [0.0, 0.0, 50.0, 99.0, 100.0]
    assert measure(kind="share", column="q", most=0).compute(run({}, q=queue)) == pytest.approx(40)
    assert measure(kind="share", column="q", least=99).compute(run({}, q=queue)) == pytest.approx(40)


def test_markov_model_has_a_flow_per_class_and_its_means_as_a_sample(tmp_path: Path) -> None:
    paper = load_paper("rahmani2011")
    cell = plan(paper, quick=True)["markov", "threshold 25 %", ""]
    assert cell.fluid
    library = Library(tmp_path)
    assert _simulate([cell], library, jobs=1) == 1
    (model, *_) = markov.both(cell.scenario)
    classes = {one.name: one for one in model.queue.classes}
    by_name = {
        "loss": measure(kind="loss", traffic=["web"]),
        "delay": measure(kind="delay", traffic=["web"]),
        "queue": measure(kind="quantity", quantity="queue"),
    }
    found = {name: library.values(cell, each)[0] for name, each in by_name.items()}
    assert found["loss"] == pytest.approx(100 * classes["web"].loss, rel=1e-6)
    assert found["delay"] == pytest.approx(1e3 * classes["web"].delay, rel=1e-6)
    assert found["queue"] == pytest.approx(model.queue.queue_mean, rel=1e-9)
