"""Evaluations by RFC 7928 and RFC 9743: their cases, who is better than whom, and their pages."""

import json
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import bentpipe as bp
from bentpipe._core import Scenario
from bentpipe.cli import app
from bentpipe.errors import ResultError, UsageError
from bentpipe.evaluation.cases import cases, controls, profile, profiles, section_key
from bentpipe.evaluation.evaluate import execute, make_plan, scenario_file, write_scenarios
from bentpipe.evaluation.findings import sentence, verdict
from bentpipe.evaluation.result import EvaluationResult, _better, open_evaluation
from bentpipe.report.evaluation import render, render_setting
from bentpipe.report.small_multiples import small_multiples
from bentpipe.reproduction import reproduce
from bentpipe.reproduction.rules import REPRODUCED
from bentpipe.reproduction.verdicts import TABLE
from bentpipe.runs.workers import Threads
from bentpipe.stats.metrics import check_classes, find
from bentpipe.stats.recorded import Recorded

NETWORKS = [(kind, name) for kind in ("aqm", "cc", "media") for name in profiles(kind)]
SHORT = ["run.warmup=2 s", "run.duration=5 s"]


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> EvaluationResult:
    """Three settings in a few cases of two profiles, with short runs."""
    folder = tmp_path_factory.mktemp("evaluation") / "aqm"
    networks = [profile("aqm", name) for name in ("terrestrial", "geo")]
    plan = make_plan(
        "aqm",
        folder,
        networks,
        ["droptail", "red", "fq_codel"],
        sections=["5.1.1", "5.3", "8.2.3"],
        runs=2,
        overrides=SHORT,
    )
    return execute(plan, Threads())


# ----- cases ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "name"), NETWORKS)
def test_every_case_is_a_scenario_with_its_figures(tmp_path: Path, kind: str, name: str) -> None:
    for case in write_scenarios(tmp_path, [profile(kind, name)], None):
        found = Scenario.load(str(scenario_file(tmp_path, case)), [], [])
        check_classes([each.metric for each in case.figures], found.traffic)
        assert all(find(each.metric) for each in case.figures)
        assert found.title.startswith(case.title)


def test_aqm_cases_cover_the_sections_of_rfc_7928() -> None:
    wanted = {
        *("4.4", "4.5", "4.6", "5.1.1", "5.1.2", "5.2", "5.3", "5.4", "6", "7"),
        *("8.2.2", "8.2.3", "8.2.4", "8.2.5", "8.2.6", "9.1", "9.2", "10"),
    }
    for name in profiles("aqm"):
        sections = [case.section for case in cases(profile("aqm", name))]
        assert {section for section in sections if section[0].isdigit()} == wanted
        assert sections == sorted(sections, key=section_key)
        assert any(section.startswith("S.") for section in sections) == (name != "terrestrial")


def test_capacity_takes_the_place_of_the_rate() -> None:
    case = next(each for each in cases(profile("aqm", "terrestrial")) if each.name.startswith("8.2.6"))
    assert "[link.bottleneck.capacity]" in case.scenario
    link = case.scenario.partition("[link.bottleneck]")[2].partition("[")[0]
    assert "rate" not in link


def test_case_runs_alone_as_in_the_evaluation(result: EvaluationResult) -> None:
    case = next(each for each in result.cases_of("geo") if each.section == "8.2.3")
    path = result.folder / "scenarios" / "geo" / f"{case.name}.toml"
    alone = bp.compare(bp.load(path, set=dict(each.split("=") for each in SHORT)), ["red"], runs=2)
    for metric in ("throughput", "queue_delay_p95", "loss_rate"):
        assert case.values(metric)["red"].tolist() == alone.values()["red"][metric]


def test_flood_fills_the_link_and_the_queue_of_drop_tail(result: EvaluationResult) -> None:
    case = next(each for each in result.cases_of("terrestrial") if each.name == "5.3-unresponsive-alone")
    # 12 Mbit/s for 10, and 125 KB at 10 Mbit/s.
    assert case.mean("throughput", "droptail") == pytest.approx(10, rel=0.001)
    assert case.mean("loss_rate", "droptail") == pytest.approx(100 / 6, rel=0.01)
    assert case.mean("queue_delay_p95", "droptail") == pytest.approx(100, rel=0.02)


def test_changed_scenario_file_is_used_and_stays(tmp_path: Path) -> None:
    networks = [profile("aqm", "terrestrial")]
    (case,) = write_scenarios(tmp_path, networks, ["5.1.1"])
    path = scenario_file(tmp_path, case)
    path.write_text(path.read_text().replace("flows = 1", "flows = 2").replace("100 s", "5 s"))
    plan = make_plan("aqm", tmp_path, networks, ["red"], sections=["5.1.1"], runs=1)
    ((_, sweep),) = plan.sweeps
    assert '"2"' in str(
        [row for row in sweep.scenario.effective() if row["key"] == "traffic.bulk.flows"]
    ).replace("'", '"')


def test_changed_trace_of_a_case_stays(tmp_path: Path) -> None:
    networks = [profile("cc", "terrestrial")]
    case = next(each for each in write_scenarios(tmp_path, networks, ["6.4"]) if each.files)
    (name,) = case.files
    trace = scenario_file(tmp_path, case).parent / name
    trace.write_text("1\n")
    write_scenarios(tmp_path, networks, ["6.4"])
    assert trace.read_text() == "1\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["aqm", "--profile", "mars"],
            "--profile mars: there is no such profile; allowed: terrestrial, geo, meo, leo",
        ),
        (["aqm", "--section", "99"], "--section 99: there is no such case; allowed: 4.4, 4.5"),
        (["aqm", "--write"], "--write needs --out DIR"),
        (
            ["aqm", "--write", "--out", "out", "--section", "8", "--settings", "red", "--set", "run.runs=2"],
            "--settings, --set: has no effect with --write, which runs nothing; allowed: --out, --profile",
        ),
        (
            ["cc", "--controls", "tahoe"],
            "--controls tahoe: there is no such control; allowed: reno, newreno",
        ),
        (["aqm", "--settings", "redd"], 'setting "redd": no setting of that name'),
    ],
)
def test_wrong_request_gets_one_message(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        app.main(["evaluate", *arguments])
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_aqm_written_in_python_is_evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(
        "import bentpipe as bp\n\nclass Half:\n    def arrive(self, pkt, cx):\n"
        "        return bp.Verdict.MARK if cx.queue.packets > 40 else bp.Verdict.PASS\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    arguments = ["--settings", "droptail,mine.Half", "--profile", "terrestrial", "--section", "5.1.1"]
    short = [word for each in SHORT for word in ("--set", each)]
    with pytest.raises(SystemExit) as ended:
        app.main(["evaluate", "aqm", *arguments, *short, "--runs", "1", "--out", "found", "--quiet"])
    assert ended.value.code in {0, None}
    found = open_evaluation(tmp_path / "found")
    (case,) = found.cases
    assert found.settings == ["droptail", "mine.Half"]
    # Forty packets of 1500 B at 10 Mbit/s wait 48 ms.
    assert case.mean("queue_delay_p95", "mine.Half") == pytest.approx(48, rel=0.05)
    sys.modules.pop("mine", None)


def test_case_of_which_every_run_failed_counts_no_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "failing_aqm.py").write_text(
        "class Failing:\n    def arrive(self, pkt, cx):\n        raise ValueError('full')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    arguments = ["aqm", "--settings", "failing_aqm.Failing", "--profile", "terrestrial"]
    arguments += ["--section", "5.1.1", "--runs", "2", "--out", "out", "--set", SHORT[0], "--set", SHORT[1]]
    with pytest.raises(SystemExit) as stop:
        app.main(["evaluate", *arguments])
    assert stop.value.code == 1
    error = capsys.readouterr().err
    assert "2 runs failed and will be tried again by the same command" in error
    assert "Traceback" not in error
    assert all(row["compared"] == 0 for row in open_evaluation(tmp_path / "out").rows())


def test_background_transport_yields_to_reno_before_a_long_queue(tmp_path: Path) -> None:
    plan = make_plan(
        "cc",
        tmp_path / "cc",
        [profile("cc", "terrestrial")],
        ["newreno", "ledbat"],
        sections=["5.2.1"],
        runs=1,
        # Reno leaves at least 0.4 s of queue, four times LEDBAT's target.
        overrides=['link.bottleneck.queue.limit="2 MB"'],
    )
    found = execute(plan, Threads())
    case = next(each for each in found.cases if each.name.endswith("reno-four"))
    other = {name: case.mean("other.goodput", name) or 0 for name in found.settings}
    new = {name: case.mean("new.goodput", name) or 0 for name in found.settings}
    assert new["ledbat"] < 0.05 * other["ledbat"]
    assert new["newreno"] > 0.2 * other["newreno"]


def test_every_congestion_control_of_the_schema_has_its_keys() -> None:
    found = controls("cc")
    assert found["cubic"] == ('transport.new.algorithm="cubic"',)
    assert 'transport.new.ecn="accurate"' in found["prague"]
    assert {"reno", "newreno", "bbr3", "ledbat"} <= set(found)


# ----- who is better ----------------------------------------------------------------------------------------


def test_better_needs_an_interval_without_zero() -> None:
    values = {
        "a": np.array([10.0, 11.0, 12.0]),
        # Always 1 less: no deviation.
        "b": np.array([9.0, 10.0, 11.0]),
        # 2 less on average, by 0, 2 and 4: Student's interval is 2 +- 4.303 2 / sqrt(3).
        "c": np.array([10.0, 9.0, 8.0]),
        "never": np.array([np.nan] * 3),
    }
    more = _better(values, is_more=True)
    assert more.tolist() == [
        [False, True, False, True],
        [False, False, False, True],
        [False, False, False, True],
        [False, False, False, False],
    ]
    less = _better(values, is_more=False)
    assert less[1].tolist() == [True, False, False, True]


def test_standing_counts_comparisons_and_dominance(result: EvaluationResult) -> None:
    found = result.standing("terrestrial")
    figures = sum(len(case.figures) for case in result.cases_of("terrestrial"))
    assert all(each.compared == 2 * figures for each in found.values())
    assert sum(each.won for each in found.values()) == sum(each.lost for each in found.values())
    by_hand = sum(
        int(better[case.settings.index("red")].sum())
        for case in result.cases_of("terrestrial")
        for better in case.better.values()
    )
    assert found["red"].won == by_hand
    assert result.ranked("terrestrial")[0] == max(found, key=lambda name: found[name].net)


# ----- metrics of RFC 7928 ----------------------------------------------------------------------------------


def recorded(drops: pl.DataFrame, flows: pl.DataFrame, series: pl.DataFrame) -> Recorded:
    return Recorded(series, flows, pl.DataFrame(), {}, 1e7, drops=drops.lazy)


def test_loss_synchronization_is_the_share_of_open_flows_that_lose_at_once() -> None:
    series = pl.DataFrame({"time": [0.1, 0.2, 0.3, 0.4]})
    flows = pl.DataFrame({"opened": [-1.0, -1.0, 0.0, 0.25], "closed": [None, 0.15, None, None]})
    drops = pl.DataFrame(
        {
            # Two of three flows at first, one of three in the third interval; the loss on a link is left out.
            "time": [0.01, 0.05, 0.06, 0.28, 0.35],
            "flow": [0, 1, 1, 0, 0],
            "reason": ["aqm", "overflow", "aqm", "aqm", "loss"],
        }
    )
    metric = find("loss_synchronization")
    assert metric is not None
    assert metric.of(recorded(drops, flows, series)) == pytest.approx((200 / 3 + 100 / 3) / 2)
    assert metric.of(recorded(drops.clear(), flows, series)) is None
    assert metric.of(Recorded(series, flows, pl.DataFrame(), {}, 1e7)) is None


def test_correlation_of_delay_and_goodput_is_pearsons() -> None:
    delay, rate = [0.01, 0.02, 0.04, None], [9.0, 8.0, 6.0, 1.0]
    series = pl.DataFrame({"time": [1.0, 2.0, 3.0, 4.0], "one_way_delay": delay, "goodput": rate})
    metric = find("delay_goodput_correlation")
    assert metric is not None
    assert metric.of(recorded(pl.DataFrame(), pl.DataFrame(), series)) == pytest.approx(-1)


# ----- pages ------------------------------------------------------------------------------------------------


def test_pages_name_every_setting_and_case(result: EvaluationResult) -> None:
    html = render(result)
    for setting in result.settings:
        assert f'<a href="reports/{setting.replace("_", "-")}.html">{setting}</a>' in html
        page = render_setting(result, setting)
        assert all(case.title in page for case in result.cases)
        assert "B per flow" in html
    assert html.count("<polyline") == 2 * 2 * len(result.settings), "two cases in two profiles"
    assert len(verdict(result)) == 2
    assert "under medium congestion" in sentence(result, "geo", "red")


def test_rows_are_json_with_each_part(result: EvaluationResult) -> None:
    rows = json.loads(json.dumps(result.rows()))
    assert {row["part"] for row in rows} == {"all", "5", "8"}
    assert len(rows) == 2 * 3 * 3


def test_unfinished_or_foreign_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match=r"is no evaluation: it has no evaluation\.json"):
        open_evaluation(tmp_path)
    (tmp_path / "evaluation.json").write_text('{"format": "other"}')
    with pytest.raises(ResultError, match="has another format"):
        open_evaluation(tmp_path)


def test_sections_without_a_case_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^--section 3: there is no such case"):
        write_scenarios(tmp_path, [profile("aqm", "leo")], ["3"])


def test_rates_of_flows_with_a_queue_each_are_those_of_the_published_testbed(tmp_path: Path) -> None:
    folder = Path(bp.__file__).parent / "evaluation" / "published" / "l4s-tests"
    (made,) = reproduce([folder], out=tmp_path / "out", quick=True, only=["table-50-cubic-cubic"])
    found = {(item.row, item.column): item for item in made.verdicts.items if item.kind == TABLE}
    assert len(found) == 3 * 18
    fair = [item for (row, _), item in found.items() if row.startswith("FQ-CoDel")]
    assert len(fair) == 18
    assert all(item.verdict == REPRODUCED for item in fair)


def test_curves_too_small_to_see_are_drawn_as_dots() -> None:
    wide = [(10.0, 1.0), (400.0, 9.0), (10.0, 1.0)]
    point = [(100.0, 5.0), (100.1, 5.0), (100.0, 5.0)]
    dots = [
        small_multiples({"red": curves}, ["8.2.3", "9.1"], "ellipses").count('dot" d=')
        for curves in ({"8.2.3": wide}, {"8.2.3": wide, "9.1": point})
    ]
    assert dots == [0, 1]
