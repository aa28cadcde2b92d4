"""The command `advise` and its function, with a budget of seconds."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from conftest import Command
from playwright.sync_api import Browser

import bentpipe as bp
from bentpipe.advice.advisor import BEHIND, PLAIN, AdvicePlan, _present, _references, _round_trip
from bentpipe.advice.rules import Candidate
from bentpipe.cli.app import cli
from bentpipe.cli.console import folded
from bentpipe.errors import ScenarioError, UsageError
from bentpipe.report.advice import advice_page, beside_headline

SHORT = {"run.duration": "5 s", "run.warmup": "2 s"}
AQMS = ["blue", "fq_codel"]


def small(out: Path, **more: Any) -> bp.Advice:  # noqa: ANN401
    return bp.advise(
        "small-gateway", AQMS, out=out, **{"set": SHORT, "trials": 4, "search_runs": 1, "runs": 3, **more}
    )


@pytest.fixture(scope="module")
def advice(tmp_path_factory: pytest.TempPathFactory) -> bp.Advice:
    return small(tmp_path_factory.mktemp("advice") / "whole")


def test_all_candidates_use_the_same_holdout_seeds(advice: bp.Advice) -> None:
    found = advice.found
    names = {each["setting"] for each in found["candidates"]}
    assert names == {"blue tuned", "fq_codel", "red", "droptail"}
    assert advice.answer in names
    seeds = found["seeds"]
    assert [len(each) for each in seeds.values()] == [1, 3, 3]
    assert len({*seeds["search"], *seeds["again"], *seeds["fresh"]}) == 7
    assert sum(each["first_in"] for each in found["candidates"]) == pytest.approx(1)
    behind = {each["setting"] for each in found["candidates"] if each["behind_pep"]}
    assert behind == {"fq_codel"}
    assert any("Drops behind the PEP" in line for line in found["words"]["warnings"])


def test_headings_break_at_spaces_and_after_underscores() -> None:
    assert folded("queue_delay_mean [ms]", 14) == "queue_delay_\nmean [ms]"
    assert folded("Flow completion time [s]", 14) == "Flow\ncompletion\ntime [s]"


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({}, "red"),
        ({"gateway.aqm": "{ algorithm = 'droptail' }"}, "droptail"),
        ({"gateway.transmit_queue.scheduler": "drr"}, "red and drr"),
        ({"gateway.transmit_queue.scheduler": "drr", "gateway.aqm": "{ algorithm = 'droptail' }"}, "drr"),
    ],
)
@pytest.mark.parametrize("aqms", [["red"], ["fq_codel"]])
def test_present_setting_is_called_by_its_aqm_and_scheduler(
    changes: dict[str, str], name: str, aqms: list[str]
) -> None:
    """The candidates make no difference: FQ-CoDel is not searched."""
    scenario = bp.load("small-gateway", {**SHORT, **changes})
    plan = AdvicePlan.plan(scenario, aqms=aqms, trials=1)
    assert _references(plan)[0].name == name


def test_figures_equal_those_of_compare(advice: bp.Advice) -> None:
    """The setting to be pasted gives the same values in `compare` on the fresh seeds."""
    tuned = next(each for each in advice.found["candidates"] if each["setting"] == "blue tuned")
    inside = ", ".join(f"{key} = {value}" for key, value in tuned["table"].items())
    scenario = bp.load("small-gateway", {**SHORT, 'setting."blue tuned"': f"{{ {inside} }}"})
    result = bp.compare(scenario, ["blue tuned", "red"], runs=3, seed=advice.found["seeds"]["fresh"][0])
    for row in result.table().iter_rows(named=True):
        each = next(each for each in advice.found["candidates"] if each["setting"] == row["setting"])
        if row["metric"] in each["metrics"]:
            assert each["metrics"][row["metric"]]["mean"] == pytest.approx(row["mean"])
            assert each["metrics"][row["metric"]]["ci95"] == pytest.approx(row["ci95"])


def test_recommended_table_is_valid_in_a_scenario(advice: bp.Advice, tmp_path: Path) -> None:
    words = shlex.split(advice.command)
    assert words[:3] == ["bentpipe", "compare", "small-gateway"]
    assert words[-1].split(",")[-2:] == ["red", "droptail"]
    tuned = next(each for each in advice.found["candidates"] if each["setting"] == "blue tuned")
    candidate = Candidate("blue tuned", "blue", "tuned", tuned["table"])
    path = tmp_path / "mine.toml"
    path.write_text(f"{bp.load('small-gateway').text}\n{candidate.toml}\n", encoding="utf-8")
    pasted = bp.load(path).with_setting("blue tuned").effective()
    given = bp.load("small-gateway", [candidate.override]).with_setting("blue tuned").effective()
    assert [(row["key"], row["value"]) for row in pasted] == [(row["key"], row["value"]) for row in given]
    place = f"{advice.found['paste']['table']}.aqm={candidate.inline}"
    there = {row["key"]: row["value"] for row in bp.load("small-gateway", [place]).effective()}
    assert there == {row["key"]: row["value"] for row in given}


def test_interrupted_advice_gives_the_same_result(advice: bp.Advice, tmp_path: Path) -> None:
    left = [3, 9, 14]

    def interrupt(done: int, total: int, failed: int) -> None:
        del done, total, failed
        counted[0] += 1
        if counted[0] == left[0]:
            left.pop(0)
            raise KeyboardInterrupt

    while left:
        counted = [0]
        with pytest.raises(KeyboardInterrupt):
            small(tmp_path / "again", on_progress=interrupt, jobs=1)
    again = small(tmp_path / "again", jobs=1)
    clock = {"seconds", "finished"}
    assert {k: v for k, v in again.found.items() if k not in clock} == {
        k: v for k, v in advice.found.items() if k not in clock
    }


def test_warmup_is_checked_on_a_run_of_the_same_duration_and_seed(tmp_path: Path) -> None:
    plans = [("5 s", 1), ("5 s", 2), ("6 s", 2)]
    for duration, seed in plans:
        scenario = bp.load("small-gateway", {**SHORT, "run.duration": duration})
        plan = AdvicePlan.plan(scenario, aqms=["red"], trials=1, seed=seed)
        found = _present(plan, tmp_path / "present")
        assert (f"{found.manifest['scenario']['duration']:g} s", found.seeds) == (duration, [seed])
    assert _present(plan, tmp_path / "present").manifest == found.manifest


def test_page_has_a_sentence_that_stands_before_the_headline() -> None:
    nobody, other = "No candidate serves web well: red serves it best.", "It misses throughput >= 9."
    answer = [nobody, "Use red with its defaults. Against pie, the current setting: less.", other]
    assert beside_headline({"headline": ["Use red with its defaults"], "answer": answer}) == [nobody, other]


def test_page_is_complete_and_needs_no_network(advice: bp.Advice) -> None:
    html = (advice.folder / "report.html").read_text(encoding="utf-8")
    assert advice.found["words"]["headline"][0] in html.replace("&#34;", '"')
    for each in advice.found["candidates"]:
        assert each["setting"] in html
    assert "http" not in html
    assert "src=" not in html


def test_page_prints_on_one_sheet(advice: bp.Advice, browser: Browser, tmp_path: Path) -> None:
    """Eight candidates, eight parameters and warnings fit on A4 and on Letter."""
    found = json.loads(json.dumps(advice.found))
    found["candidates"] *= 2
    found["paste"]["toml"] += 6 * "\nparameter = 0.12345"
    file = tmp_path / "report.html"
    file.write_text(advice_page(found), encoding="utf-8")
    page = browser.new_page()
    page.goto(file.as_uri())
    for form in ("A4", "Letter"):
        pages = re.findall(rb"/Type\s*/Page\b", page.pdf(format=form))
        assert len(pages) == 1, form


def test_command_prints_the_answer_or_json(tmp_path: Path) -> None:
    words = [
        "advise",
        "small-gateway",
        "--duration",
        "5 s",
        "--aqms",
        "gkvq",
        "--trials",
        "2",
        "--search-runs",
    ]
    words += ["1", "--runs", "2", "--out", str(tmp_path / "a"), "--metrics", "throughput,queue_delay_mean"]
    words += ["--limit", "queue_delay_p95<=400"]
    done = CliRunner().invoke(cli, [*words, "--format", "json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["judge"], found["limits"][0]["bound"]) == ("rank", 400)
    assert all(each["power"] is None for each in found["candidates"])
    done = CliRunner().invoke(cli, words)
    assert found["words"]["sure"][0].split()[0] in done.stdout
    assert "queue_delay_p95 <= 400 ms" in " ".join(done.stdout.split())


def test_default_candidates_exist_and_act_at_the_right_queue() -> None:
    """Only schedulers that protect sparse flows may drop behind the PEP."""
    gateway, plain = bp.load("byun2007-gateway"), bp.load("red-dumbbell")
    behind = {name for name in BEHIND if gateway.with_setting(name).behind_pep}
    assert behind == {"fq_codel", "cake", "cake_users"}
    assert set(PLAIN) <= set(plain.setting_names)
    assert gateway.with_setting("codel").behind_pep
    assert AdvicePlan.plan("red-dumbbell", trials=1).aqms == PLAIN
    assert AdvicePlan.plan("small-gateway", trials=1).aqms == BEHIND


@pytest.mark.parametrize(
    ("duration", "interval", "short"),
    [
        ("1200 s", "100 ms", "120 s"),
        # A tenth, 123.45 s, is not a whole number of samples.
        ("1234.5 s", "100 ms", "123.5 s"),
        ("70 s", "7 s", "63 s"),
        # Times of seven digits.
        ("12345.67 s", "10 ms", "1234.57 s"),
        ("2000000 s", "1 s", "200000 s"),
    ],
)
def test_search_duration_is_a_share_of_the_scenario_or_a_minimum_of_samples(
    duration: str, interval: str, short: str
) -> None:
    changes = [f"run.duration={duration}", f"run.sample_interval={interval}"]
    plan = AdvicePlan.plan("small-gateway", aqms=["red"], overrides=changes)
    assert (plan.long, plan.short) == (duration, short)
    assert plan.run("red", plan.short).scenario.duration == float(short.removesuffix(" s"))


def test_classes_judge_unless_metrics_are_named_or_no_class_is_graded() -> None:
    def judge(scenario: str, **more: Any) -> str:  # noqa: ANN401
        return AdvicePlan.plan(scenario, aqms=["red"], trials=1, **more).rule.by

    assert judge("small-gateway") == "classes"
    assert judge("small-gateway", judge="power") == "power"
    assert judge("small-gateway", metrics="throughput") == "rank"
    assert judge("red-dumbbell") == "power"
    with pytest.raises(UsageError, match="--judge classes: no class of traffic of the scenario has"):
        judge("red-dumbbell", judge="classes")


def test_search_has_the_figures_of_the_classes_as_objectives() -> None:
    search = AdvicePlan.plan("small-gateway", aqms=["red"], trials=1).searches["red"]
    assert search is not None
    assert [str(each) for each in search.objectives] == [
        "web.page_time_p75:min",
        "throughput:max",
        "pep_sojourn:min",
    ]


def test_round_trip_matches_a_worked_example() -> None:
    """Twice 15 + 250 + 15 ms; and twice 52 to 102 ms on average."""
    assert _round_trip(bp.load("red-dumbbell")) == pytest.approx(0.56)
    assert _round_trip(bp.load("byun-generic")) == pytest.approx(0.154)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"runs": 1}, "--runs 1: allowed: from 2 to 1000"),
        ({"judge": "worst"}, '--judge: found "worst"; allowed: classes, power, rank'),
        ({"judge": "power", "metrics": "throughput"}, "--metrics: are ranked, but the judge is power"),
        ({"trials": 0}, "--trials 0: allowed: from 1"),
        ({"metrics": "utilisation"}, 'there is no metric "utilisation"; did you mean utilization'),
        ({"limits": ["queue_delay_p95"]}, "found no bound; allowed: METRIC<=NUMBER"),
        ({"set": {"run.duraton": "5 s"}}, "duraton"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_runs(
    more: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises((UsageError, ScenarioError), match=message):
        small(tmp_path / "a", **more)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["redd"], 'there is no AQM "redd"; did you mean red'),
        (["red", "red"], "--aqms red: found twice"),
        ([], "--aqms: found none"),
    ],
)
def test_wrong_aqms_are_refused(names: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        bp.advise("small-gateway", names, out=tmp_path / "a")


def test_wrong_command_prints_a_message_without_traceback(bentpipe: Command) -> None:
    done = bentpipe("advise", "small-gateway", "--aqms", "nonsense", check=2)
    assert done.stderr.startswith('error: --aqms: there is no AQM "nonsense"')
    assert "Traceback" not in done.stderr
