"""Search for settings: hand-worked ranks and gains, byun-generic's grids, and a small search end to end."""

import csv
import io
import json
import math
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest

import reproduction_page as page
from bentpipe import _core
from bentpipe.errors import ScenarioError, UsageError
from bentpipe.reproduction import load_paper, reproduce
from bentpipe.reproduction.figures import figure
from bentpipe.reproduction.measures import Measure, Objective, RunData, metric
from bentpipe.reproduction.paper import Paper
from bentpipe.reproduction.rules import DIRECTION_ONLY, NOT_REPRODUCED, REPRODUCED, Gain
from bentpipe.reproduction.runs import CaseRuns, Search, plan, searches, with_best
from bentpipe.runs.plan import load
from bentpipe.stats.metrics import Recorded

SMALL = """
title = "Small"
source = "nobody"

[tuning.ranks]
objectives = ["throughput:max", "queue_delay_mean:min"]
runs = 2
seed = 5
keep = 2
quick = { keep = 1 }

[tuning.ranks.grid.RED]
setting = "RED 11/33"
axes = [{ vary = ["min_th", "max_th"], levels = [[2, 6], [8, 24], [11, 33]], quick = [2, 3] }]

[tuning.ranks.grid.PI]
setting = "PI 22"
keep = 1
axes = [{ vary = ["q_ref"], levels = [5, 22] }, { vary = ["a"], levels = [1e-4, 1e-3], quick = [1] }]

[rule.delay]
kind = "gain"
low = 5

[experiment.best]
title = "The best of each"
scenario = "byun-generic"
tuned = "ranks"
runs = 3
seed = 9
flows = false
set = { "run.warmup" = "1 s", "run.duration" = "3 s", "traffic.connections.flows" = 100 }
quick = { runs = 2 }

[[claim]]
id = "delay"
where = "here"
text = "PI is shorter."
basis = "sentence"
rule = "delay"
checks = [{ experiments = ["best"], objectives = ["queue_delay_mean:min"], more = ["PI"], than = ["RED"] }]

[[figure]]
id = "gains"
title = "Gains"
caption = "Ours."
kind = "gains"
experiment = "best"
cases = ["PI"]
than = ["RED"]
objectives = ["throughput:max", "queue_delay_mean:min"]
together = true

[[figure]]
id = "means"
title = "Means"
caption = "Ours."
kind = "bars"
experiment = "best"
measures = ["throughput", "queue_delay_mean"]
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    folder = tmp_path / "small"
    folder.mkdir()
    (folder / "claims.toml").write_text(SMALL)
    return folder


class Known:
    """Stand-in for a library with the same values in every run of a case."""

    def __init__(self, values: dict[str, tuple[float, float]]) -> None:
        self._values = values

    def measure(self, cell: CaseRuns, measures: Sequence[Measure]) -> None:
        pass

    def values(self, cell: CaseRuns, measure: Measure) -> list[float | None]:
        found = self._values[cell.case][measure.name == "queue_delay_mean"]
        return [found] * len(cell.seeds)


def test_the_lowest_rank_sums_run_again_and_the_best_of_each_aqm_is_compared(small: Path) -> None:
    paper = load_paper(small)
    (search,) = searches(paper, quick=False)
    names = [cell.case for cell in search.first]
    assert names == [
        "RED: min_th 2, max_th 6",
        "RED: min_th 8, max_th 24",
        "RED: min_th 11, max_th 33",
        "PI: q_ref 5, a 0.0001",
        "PI: q_ref 5, a 0.001",
        "PI: q_ref 22, a 0.0001",
        "PI: q_ref 22, a 0.001",
    ]
    assert {cell.seeds for cell in search.first} == {(5, 6)}
    # Throughput and delay. RED ranks 3 and 1, 1 and 2, 2 and 3: 2^3 + 2^1 = 10, 2 + 4 = 6, 4 + 8 = 12.
    # PI ranks 4 and 1, 1 and 3, 2 and 2, 3 and 4: 18, 10, 8, 24.
    values = [(1.0, 1.0), (3.0, 2.0), (2.0, 3.0), (1.0, 1.0), (4.0, 3.0), (3.0, 2.0), (2.0, 4.0)]
    again = search.second(Known(dict(zip(names, values, strict=True))))  # type: ignore[arg-type]
    assert [cell.case for cell in again] == [names[0], names[1], names[5]]
    assert sum(len(cell.seeds) for cell in again) == search.second_round_runs == 6
    assert {cell.seeds for cell in again} == {(7, 8)}
    # Across AQMs: RED 2/6 ranks 1 and 2, RED 8/24 2 and 3, PI 3 and 1, so the sums are 6, 12 and 10.
    second = {names[0]: (3.0, 2.0), names[1]: (2.0, 3.0), names[5]: (1.0, 1.0)}
    tuned = search.result(again, Known(second))  # type: ignore[arg-type]
    assert [(each.aqm, each.total, each.place, each.chosen) for each in tuned.again] == [
        ("RED", 6, 1, True),
        ("PI", 10, 2, True),
        ("RED", 12, 3, False),
    ]
    assert [each.total for each in tuned.first] == [6, 10, 12, 8, 10, 18, 24]
    assert [each.chosen for each in tuned.first] == [True, True, False, True, False, False, False]
    best = with_best(paper, [tuned]).experiments["best"].cases
    assert [each.label for each in best] == ["RED", "PI"]
    assert best[0].overrides == ('setting."RED 11/33".min_th=2', 'setting."RED 11/33".max_th=6')
    assert best[1].overrides == ('setting."PI 22".q_ref=22', 'setting."PI 22".a=0.0001')


def test_a_small_search_from_end_to_end(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, int]] = []
    (made,) = reproduce(
        [small],
        out=tmp_path / "out",
        jobs=2,
        on_progress=lambda done, wanted, _: calls.append((done, wanted)),
    )
    # Seven settings run twice, three of them again, and the best of each of two AQMs three times.
    assert made.about["runs"] == made.about["new_runs"] == 14 + 6 + 6
    assert calls[-1] == (26, 26)
    assert {wanted for _, wanted in calls} == {26}
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)
    (tuned,) = made.tuned
    # One trial, simulated separately.
    trial = next(each for each in tuned.first if each.parameters == "min_th 2, max_th 6")
    changes = [
        *("run.warmup=1 s", "run.duration=3 s", "traffic.connections.flows=100"),
        *('setting."RED 11/33".min_th=2', 'setting."RED 11/33".max_th=6'),
    ]
    scenario = load("byun-generic", changes).with_setting("RED 11/33")
    runs = [_core.simulate(scenario, seed, _core.Progress()) for seed in (5, 6)]
    means = [
        math.fsum(rates) / len(rates)
        for rates in (pl.DataFrame(r.series)["throughput"].to_list() for r in runs)
    ]
    assert trial.values["throughput"] == pytest.approx(1e-6 * math.fsum(means) / 2)
    # The best of the second round run with other seeds.
    chosen = {each.aqm: each.parameters for each in tuned.again if each.chosen}
    assert set(chosen) == {"RED", "PI"}
    final = {key[1]: cell for key, cell in made.verdicts.cases.items()}
    assert {cell.seeds for cell in final.values()} == {(9, 10, 11)}
    kept = json.loads((made.folder / "verdicts.json").read_text())
    assert [each["parameters"] for each in kept["tuned"][0]["first"]] == [e.parameters for e in tuned.first]
    # The gain of the claim, by hand.
    delay = metric("queue_delay_mean")
    assert delay is not None
    ours, theirs = (made.verdicts.values("best", case, delay) for case in ("PI", "RED"))
    by_hand = [
        100 * (b - a) / b for a, b in zip(ours, theirs, strict=True) if a is not None and b is not None
    ]
    (claim,) = (item for item in made.verdicts.items if item.name == "delay")
    assert claim.ours.mean == pytest.approx(math.fsum(by_hand) / 3)
    assert claim.unit == "%"
    text = made.report.read_text()
    assert "Search for settings" in text
    assert chosen["PI"] in text
    for picture in made.paper.pictures:
        drawn = json.dumps(figure(made.verdicts, picture).panels[0].chart.to_dict())
        assert "PI" in drawn
    # The generated data list the second round.
    monkeypatch.setattr(page, "papers", lambda: {"small": small})
    monkeypatch.setattr(page, "load_paper", lambda _: made.paper)
    text = page.ledger(made.paper, page.verdicts(tmp_path / "out")["small"])
    rows = [row for row in csv.DictReader(io.StringIO(text)) if row["section"].startswith("Settings found: ")]
    found = [(row["at"], row["row"], row["reason"], row["ours"], row["verdict"]) for row in rows]
    assert found == [
        (str(each.place), each.aqm, each.parameters, str(each.total), "compared" if each.chosen else "")
        for each in tuned.again
    ]
    # Flows are not kept, and no run is repeated.
    assert not list((tmp_path / "out").rglob("flows.parquet"))
    (same,) = reproduce([small], out=tmp_path / "out", jobs=2)
    assert same.about["new_runs"] == 0
    assert same.rows() == made.rows()
    # Quick: two settings each of RED and PI run twice, and one of each again.
    (quick,) = reproduce([small], out=tmp_path / "out", jobs=2, quick=True)
    assert quick.about["runs"] == 8 + 4 + 4
    assert quick.folder.name == "small-quick"


@pytest.mark.parametrize("runs", [7, 16, 22])
def test_an_interrupted_search_continues_with_the_same_result(small: Path, tmp_path: Path, runs: int) -> None:
    """The first round has 14 runs, the second 6, and the best of two AQMs 6."""

    def interrupting(done: int, wanted: int, failed: int) -> None:
        del wanted, failed
        if done >= runs:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reproduce([small], out=tmp_path / "out", jobs=1, on_progress=interrupting)
    kept = len(list((tmp_path / "out").rglob("counters.json")))
    assert runs <= kept < 26
    calls: list[tuple[int, int]] = []
    (resumed,) = reproduce(
        [small],
        out=tmp_path / "out",
        jobs=1,
        on_progress=lambda done, wanted, _: calls.append((done, wanted)),
    )
    assert resumed.about["new_runs"] == 26 - kept
    # Progress counts the stored and required runs of all rounds from the beginning.
    assert calls[0] == (kept, 26)
    assert {wanted for _, wanted in calls} == {26}
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)
    (whole,) = reproduce([small], out=tmp_path / "whole", jobs=2)
    assert resumed.rows() == whole.rows()
    assert [each.as_row() for each in resumed.tuned] == [each.as_row() for each in whole.tuned]


def test_runs_without_flows_do_not_replace_runs_with_flows(small: Path, tmp_path: Path) -> None:
    reproduce([small], out=tmp_path / "out", quick=True, only=["means"])
    (small / "claims.toml").write_text(SMALL.replace("flows = false\n", ""))
    (made,) = reproduce([small], out=tmp_path / "out", quick=True, only=["means"])
    assert made.about["new_runs"] == made.about["runs"] == 16
    assert len(list((tmp_path / "out").rglob("flows.parquet"))) == 16


def test_a_gain_is_judged_by_its_aggregate() -> None:
    # Better than A by 10, 12 and 14 %, than B by 30, 28 and 26 %: mean 20 % in every run.
    gains = {"A": [10.0, 12.0, 14.0], "B": [30.0, 28.0, 26.0]}
    verdict, found = Gain("mean", 18.0, 22.0, "mean").judge(gains)
    assert verdict.verdict == REPRODUCED
    assert found.mean == pytest.approx(20)
    assert "A +12, B +28" in verdict.reason
    assert Gain("mean", 25.0, 30.0, "mean").judge(gains)[0].verdict == DIRECTION_ONLY
    assert Gain("mean", -30.0, -25.0, "mean").judge(gains)[0].verdict == NOT_REPRODUCED
    greatest = Gain("greatest", 27.0, 29.0, "greatest")
    assert greatest.judge(gains)[0].verdict == REPRODUCED
    assert "over B" in greatest.judge(gains)[0].reason
    assert Gain("each", 11.0, math.inf, "each").judge(gains)[0].verdict == REPRODUCED
    assert Gain("each", 13.0, math.inf, "each").judge(gains)[0].verdict == DIRECTION_ONLY
    # "At most 5 % worse" claims no sign.
    worse = {"A": [1.0, 2.0, 3.0], "B": [-6.0, -7.0, -8.0]}
    assert Gain("each", -5.0, math.inf, "each").judge(worse)[0].verdict == NOT_REPRODUCED
    assert Gain("mean", 1.0, 2.0, "mean").judge({"A": [None, None]})[0].verdict == NOT_REPRODUCED


def test_a_gain_is_positive_if_better() -> None:
    measure = metric("queue_delay_mean")
    assert measure is not None
    # 8 instead of 10 is 20 % less.
    assert Objective(measure, less=True).gain(8.0, 10.0) == pytest.approx(20)
    assert Objective(measure, less=False).gain(8.0, 10.0) == pytest.approx(-20)
    assert Objective(measure, less=True).gain(8.0, 0.0) is None
    assert Objective(measure, less=True).gain(None, 10.0) is None


@pytest.fixture(scope="module")
def paper() -> Paper:
    return load_paper("byun-generic")


def test_the_grids_have_the_printed_sizes_and_target(paper: Paper) -> None:
    (tuning,) = {each.tuning for each in paper.experiments.values() if each.tuning is not None}
    assert [grid.label for grid in tuning.grids] == ["RED", "ARED", "BLUE", "GKVQ", "AVQ", "PI", "AVQRED"]
    for grid in tuning.grids:
        assert 10 <= len(grid.points(quick=False)) <= 27
        assert grid.keep == (2 if grid.label == "ARED" else 3)
        # Targets in packets are centred on 22: the mean of the thresholds, a buffer, a reference.
        targets = []
        for point in grid.points(quick=False):
            if "min_th" in point:
                targets.append((float(str(point["min_th"])) + float(str(point["max_th"]))) / 2)
            elif "q_ref" in point:
                targets.append(float(str(point["q_ref"])))
            elif "buffer" in point:
                targets.append(float(str(point["buffer"]).removesuffix(" B")) / 1400)
        assert targets or grid.label == "BLUE"
        assert not targets or sum(targets) / len(targets) == pytest.approx(22)
    assert tuning.runs == 3


def test_both_interpretations_of_the_capacity_are_tuned_and_judged(paper: Paper) -> None:
    """Seven claims compare AVQRED with the AQMs that the text names, in the settings found."""
    every = {"RED", "ARED", "BLUE", "GKVQ", "AVQ", "PI"}
    others = {
        "throughput": every,
        "stability": every - {"GKVQ", "AVQ"},
        "delay": every,
        "jitter": {"RED", "ARED"},
        "loss": every - {"BLUE"},
        "loss-std": every - {"BLUE"},
        "overall": every,
    }
    named = {each.name: each.scenario.stem for each in paper.experiments.values() if each.tuning is not None}
    assert named == {"best-80": "byun-generic", "best-13": "byun-generic-13-25"}
    for name in named:
        assert paper.experiments[name].runs >= 5
        claims = [each for each in paper.claims if {check.experiment for check in each.checks} == {name}]
        assert len(claims) == 7
        for claim in claims:
            assert {check.more for check in claim.checks} == {"AVQRED"}
            assert {check.than for check in claim.checks} == others[claim.name.rpartition("-")[0]]
    # Means and deviations of throughput, queueing delay and loss rank the settings.
    (tuning,) = {each.tuning for each in paper.experiments.values() if each.tuning is not None}
    ranked = [(aim.measure.name, aim.less) for aim in tuning.objectives]
    assert ranked == [
        ("throughput", False),
        *((name, True) for name in ("stability", "delay", "delay-std", "loss", "loss-std")),
    ]


def test_every_setting_of_the_paper_can_be_planned(paper: Paper) -> None:
    for quick in (False, True):
        for search in searches(paper, quick=quick):
            assert isinstance(search, Search)
            cells = {cell.digest for cell in search.first}
            assert len(cells) == len(search.first)
            seeds = {seed for cell in search.first for seed in cell.seeds}
            final = {
                seed
                for key, cell in plan(paper, quick=quick).items()
                if key[0] == search.experiment.name
                for seed in cell.seeds
            }
            assert not seeds & final
    # A run takes 15 simulated minutes.
    (cell, *_) = searches(paper, quick=False)[0].first
    assert cell.scenario.warmup + cell.scenario.duration == 900


def test_deviations_between_samples_are_computed_from_the_series(paper: Paper) -> None:
    wanted = {check.measure.name: check.measure for claim in paper.claims for check in claim.checks}
    assert wanted["delay-std"].unit == "ms"
    changes = ["run.warmup=1 s", "run.duration=5 s", "traffic.connections.flows=300"]
    scenario = load("byun-generic", changes).with_setting("RED 11/33")
    run = _core.simulate(scenario, 1, _core.Progress())
    series = pl.DataFrame(run.series)
    seen = RunData(
        Recorded(series, pl.DataFrame(run.flows), pl.DataFrame(run.drop_runs), run.counters, 25e6), 5.0
    )
    rows = series["queue_delay"].drop_nulls().drop_nans().to_list()
    mean = math.fsum(rows) / len(rows)
    deviation = math.sqrt(math.fsum((each - mean) ** 2 for each in rows) / (len(rows) - 1))
    assert wanted["delay-std"].compute(seen) == pytest.approx(1e3 * deviation)
    # All drops are AQM marks, so the mean marked share weighted by arrivals is the loss.
    known = series.drop_nulls(["mark_probability", "offered_load"])
    shares, loads = known["mark_probability"].to_list(), known["offered_load"].to_list()
    weighted = math.fsum(a * b for a, b in zip(shares, loads, strict=True)) / math.fsum(loads)
    assert wanted["loss"].compute(seen) == pytest.approx(100 * weighted, rel=0.01)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('tuned = "ranks"', 'tuned = "rank"', "experiment.best.tuned: found 'rank'; allowed: ranks"),
        ("seed = 9", "seed = 8", "experiment.best.seed: found 8; allowed: 9 or more"),
        ('"queue_delay_mean:min"]\nruns', '"queue_delay_mean"]\nruns', "allowed: queue_delay_mean:max or"),
        ("quick = [2, 3]", "quick = [2, 4]", "axes[1].quick: found 4; allowed: numbers of levels, 1 to 3"),
        ("[8, 24]", "[8]", "axes[1].levels: found [8]; allowed: a value of each of min_th, max_th"),
        ('vary = ["a"]', 'vary = ["q_ref"]', "found 'q_ref'; allowed: each parameter on one axis"),
        ("low = 5", "high = 0\nlow = 5", "rule.delay.low: found 5"),
        ('objectives = ["queue_delay_mean:min"], more', 'measure = "drops", more', "objectives with a rule"),
        ("flows = false", "points = [{ x = 1 }, { x = 2 }]", "no points in a tuned experiment"),
        ("flows = false", 'cases = "all"', "no cases in a tuned experiment"),
    ],
)
def test_wrong_tuning_data_are_rejected_with_the_value(small: Path, old: str, new: str, message: str) -> None:
    assert old in SMALL
    (small / "claims.toml").write_text(SMALL.replace(old, new, 1))
    with pytest.raises(UsageError) as caught:
        load_paper(small)
    assert message in str(caught.value)


def test_an_impossible_setting_is_rejected_before_anything_runs(small: Path, tmp_path: Path) -> None:
    (small / "claims.toml").write_text(SMALL.replace("[8, 24]", "[24, 8]"))
    with pytest.raises(ScenarioError, match="min_th: found 24, but it must be below max_th"):
        reproduce([small], out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
