import json
from pathlib import Path

import pytest
from conftest import Command
from scipy import stats

import bentpipe as bp
from bentpipe.stats.differences import INDEPENDENT, PAIRED


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> bp.Result:
    """Three settings, seeds 1 to 4."""
    scenario = bp.load("small-gateway", set={"run.duration": "15 s"})
    folder = tmp_path_factory.mktemp("three") / "three"
    return bp.compare(scenario, ["red", "avqred", "droptail"], runs=4, out=folder)


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> bp.Result:
    """Two of the settings, one of them changed, seeds 2 to 5."""
    scenario = bp.load("small-gateway", set={"run.duration": "15 s", "gateway.aqm.max_p": 0.05})
    folder = tmp_path_factory.mktemp("changed") / "changed"
    return bp.compare(scenario, ["red", "avqred"], runs=4, seed=2, out=folder)


def values(result: bp.Result, setting: str, metric: str) -> list[float]:
    return [value for value in result.values()[setting][metric] if value is not None]


def test_settings_are_compared_pairwise_and_corrected_over_all(three: bp.Result) -> None:
    table = three.comparisons(["queue_mean", "throughput"])
    rows = table.rows(named=True)
    assert [(row["a"], row["b"], row["metric"]) for row in rows[::2]] == [
        ("red", "avqred", "queue_mean"),
        ("red", "droptail", "queue_mean"),
        ("avqred", "droptail", "queue_mean"),
    ]
    for row in rows:
        ours, theirs = (values(three, row[side], row["metric"]) for side in "ab")
        known = stats.ttest_rel(ours, theirs)
        assert row["p"] == pytest.approx(known.pvalue)
        assert row["difference"] == pytest.approx(row["mean_a"] - row["mean_b"])
        assert (row["pairing"], row["runs"], row["runs_a"], row["runs_b"]) == (PAIRED, 4, 4, 4)
    by_p = sorted(rows, key=lambda row: row["p"])
    assert by_p[0]["p_holm"] == pytest.approx(6 * by_p[0]["p"])
    assert by_p[1]["p_holm"] == pytest.approx(max(5 * by_p[1]["p"], by_p[0]["p_holm"]))
    assert {row["verdict"] for row in rows if row["b"] == "droptail"} == {"droptail is higher"}


def test_a_setting_compared_with_itself_shows_no_difference(three: bp.Result) -> None:
    table = three.comparisons(["queue_mean"], ["red"], other=three)
    row = table.row(0, named=True)
    assert (row["difference"], row["p"], row["verdict"]) == (0.0, 1.0, "no difference seen")


def test_results_with_the_same_traffic_are_paired_by_their_common_seeds(
    three: bp.Result, changed: bp.Result
) -> None:
    row = three.comparisons(["queue_mean"], ["red"], other=changed).row(0, named=True)
    ours, theirs = values(three, "red", "queue_mean")[1:], values(changed, "red", "queue_mean")[:3]
    assert (row["a"], row["b"]) == ("three: red", "changed: red")
    assert (row["pairing"], row["runs"]) == (PAIRED, 3)
    assert row["p"] == pytest.approx(stats.ttest_rel(ours, theirs).pvalue)
    assert row["mean_a"] == pytest.approx(sum(ours) / 3)


def test_results_with_different_traffic_are_independent(three: bp.Result, tmp_path: Path) -> None:
    scenario = bp.load("small-gateway", set={"run.duration": "15 s", "traffic.web.sessions": 20})
    fewer = bp.compare(scenario, ["red", "avqred"], runs=3, out=tmp_path / "fewer")
    rows = three.comparisons(["queue_mean"], other=fewer).rows(named=True)
    assert [row["a"] for row in rows] == ["three: red", "three: avqred"]
    for row in rows:
        setting = row["a"].removeprefix("three: ")
        ours, theirs = (values(result, setting, "queue_mean") for result in (three, fewer))
        assert (row["pairing"], row["runs_a"], row["runs_b"]) == (INDEPENDENT, 4, 3)
        assert row["p"] == pytest.approx(stats.ttest_ind(ours, theirs, equal_var=False).pvalue)


def test_one_run_has_no_verdict(tmp_path: Path) -> None:
    once = bp.compare("small-gateway", ["red", "avqred"], runs=1, out=tmp_path / "once")
    row = once.comparisons(["queue_mean"]).row(0, named=True)
    assert (row["p"], row["p_holm"], row["verdict"]) == (None, None, "one run cannot tell")


def test_differences_are_corrected_over_the_chosen_metrics(three: bp.Result) -> None:
    every, one = three.differences("red"), three.differences("red", ["queue_mean"])
    assert len(every) == 2 * len(three.known_metrics)
    assert set(one["metric"]) == {"queue_mean"}
    wide = every.filter(every["metric"] == "queue_mean")
    assert wide["p"].to_list() == one["p"].to_list()
    for p, p_holm in zip(one["p"].sort(), one["p_holm"].sort(), strict=True):
        assert p <= p_holm <= 2 * p
    assert all(p <= p_holm for p, p_holm in zip(one["p_holm"], wide["p_holm"], strict=True))


def test_one_long_run_has_intervals_from_batch_means(tmp_path: Path) -> None:
    scenario = bp.load("mmpp-queue", set={"run.duration": "120 s"})
    found = {row["metric"]: row for row in bp.run(scenario, out=tmp_path / "one").rows()}
    rate, share = found["throughput"], found["utilization"]
    assert rate["method"] == share["method"] == "batch means"
    # The same rate in another unit: 10 Mbit/s are 100 %.
    assert share["ci95"] == pytest.approx(10 * rate["ci95"])
    assert (rate["ci_low"], rate["ci_high"]) == pytest.approx(
        (rate["mean"] - rate["ci95"], rate["mean"] + rate["ci95"])
    )
    assert (rate["runs"], rate["std"]) == (1, None)
    for name in ("queue_std", "queue_delay_mean", "drops"):
        assert (found[name]["ci95"], found[name]["method"]) == (None, None)


@pytest.fixture
def folders(three: bp.Result, changed: bp.Result) -> list[str]:
    return [str(three.folder), str(changed.folder)]


def test_command_prints_the_comparisons_of_a_result(bentpipe: Command, folders: list[str]) -> None:
    done = bentpipe("compare", folders[0], "--metric", "queue_mean", check=0)
    assert done.stdout.count("droptail is higher") == 2
    assert "corrected after Holm over 3 comparisons" in done.stdout
    metrics = ("--metric", "queue_mean,drops", "--quiet")
    done = bentpipe("compare", folders[0], "avqred", "droptail", *metrics, check=0)
    assert "over 2 comparisons" in done.stdout


def test_the_command_compares_two_results(bentpipe: Command, folders: list[str]) -> None:
    done = bentpipe("compare", *folders, "--metric", "throughput", "--format", "json", check=0)
    found = json.loads(done.stdout)
    assert (found["correction"], found["family"], found["level"]) == ("holm", 2, 0.05)
    # AVQRED has no max_p, so both results have the same runs of it.
    red, avqred = found["comparisons"]
    assert (red["runs"], avqred["verdict"]) == (3, "no difference seen")
    assert avqred["ci_high"] == 0.0


def test_command_compares_a_simulation_in_the_chosen_metric(bentpipe: Command) -> None:
    quick = ("compare", "small-gateway", "--duration", "10 s", "--settings", "red,droptail", "--runs", "2")
    done = bentpipe(*quick, "--metric", "queue_mean", "--out", "here", check=0)
    assert "pep_sojourn" in done.stdout
    assert "over 1 comparison." in done.stdout
    done = bentpipe(*quick, "--metric", "queue_mean", "--format", "json", check=0)
    assert json.loads(done.stdout)["family"] == 1


def test_folder_named_like_a_shipped_scenario_is_compared_only_if_it_is_a_result(
    bentpipe: Command, tmp_path: Path
) -> None:
    given = ("compare", "small-gateway", "--duration", "5 s", "--runs", "1", "--settings", "red,avq")
    (tmp_path / "small-gateway").mkdir()
    bentpipe(*given, "--out", "first", check=0)
    (tmp_path / "small-gateway").rmdir()
    (tmp_path / "first").rename(tmp_path / "small-gateway")
    assert "simulated already" in bentpipe(*given, check=2).stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["RESULT", "--metric", "queue_men"], ['metric "queue_men"', "did you mean queue_mean"]),
        (["RESULT", "--runs", "3"], ["--runs: has no effect", "simulated already"]),
        (["RESULT", "red", "avq"], ["avq: is neither a folder nor a setting", "red, avqred, droptail"]),
        (["RESULT", "red"], ["name at least two settings"]),
        (["RESULT", "--settings", "red,avq"], ['no setting "avq"']),
        (["RESULT", ".", "/"], ["only two results"]),
        (["RESULT", "."], ["is not a Bentpipe result"]),
        (["small-gateway", "RESULT"], ["small-gateway: is no folder of a result"]),
        (["small-gateway", "--metric", "nonsense"], ['metric "nonsense"']),
        (["small-gateway", "--settings", "red", "--metric", "drops"], ["there is only red"]),
        ([], ["SCENARIO | RESULT"]),
    ],
)
def test_impossible_comparison_is_one_message(
    bentpipe: Command, folders: list[str], arguments: list[str], words: list[str], tmp_path: Path
) -> None:
    given = [folders[0] if each == "RESULT" else each for each in arguments]
    done = bentpipe("compare", *given, check=2)
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    for each in words:
        assert each in done.stderr
    assert not (tmp_path / "results").exists()
