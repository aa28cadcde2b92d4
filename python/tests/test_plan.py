import json
from pathlib import Path

import pytest

import bentpipe as bp
from bentpipe.runs.plan import make_plan, overrides_from, scenario_path, shipped


def test_seeds_are_consecutive_and_settings_keep_their_order(scenario: bp.Scenario) -> None:
    plan = make_plan(scenario, settings=["avqred", "red"], runs=3, seed=7)
    assert plan.seeds == (7, 8, 9)
    assert [setting.slug for setting in plan.settings] == ["avqred", "red"]
    assert plan.total == 6


def test_defaults_come_from_the_scenario(scenario: bp.Scenario) -> None:
    plan = make_plan(scenario, settings=scenario.settings)
    assert plan.seeds == tuple(range(scenario.seed, scenario.seed + scenario.runs))
    assert [setting.name for setting in plan.settings] == scenario.settings


def test_unchanged_scenario_is_named_after_its_aqm(scenario: bp.Scenario) -> None:
    plan = make_plan(scenario, settings=None, runs=1)
    assert [setting.name for setting in plan.settings] == [scenario.aqm]


def test_presets_have_separate_folders() -> None:
    plan = make_plan(bp.load("byun2007-gateway"), settings=["RED 4", "RED 1", "AVQRED"], runs=1)
    assert [setting.slug for setting in plan.settings] == ["red-4", "red-1", "avqred"]
    assert len({setting.digest for setting in plan.settings}) == 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"settings": ["red"], "runs": 0}, "runs is 0"),
        ({"settings": ["red"], "seed": -1}, "seed is -1"),
        ({"settings": ["red", " "]}, "empty entry"),
        ({"settings": []}, "lists no settings"),
    ],
)
def test_wrong_arguments_are_refused(scenario: bp.Scenario, arguments: dict[str, object], words: str) -> None:
    with pytest.raises(bp.UsageError, match=words):
        make_plan(scenario, **arguments)  # type: ignore[arg-type]


def test_an_unknown_setting_names_the_nearest(scenario: bp.Scenario) -> None:
    with pytest.raises(bp.ScenarioError, match="avqred"):
        make_plan(scenario, settings=["avqerd"])


def test_duplicate_setting_is_refused_ignoring_case(scenario: bp.Scenario) -> None:
    with pytest.raises(bp.ScenarioError, match="twice"):
        make_plan(scenario, settings=["RED 4", "avq", "red 4"])


def test_names_that_differ_in_case_have_separate_folders(scenario: bp.Scenario) -> None:
    plan = make_plan(scenario, settings=["avq", "AVQ"])
    assert [(setting.name, setting.slug) for setting in plan.settings] == [("avq", "avq"), ("AVQ", "avq-2")]


def test_override_without_effect_is_refused() -> None:
    changed = bp.load("small-gateway", set={"gateway.aqm.gamma": 0.9})
    assert make_plan(changed, settings=["red", "avq"]).total > 0
    for settings in (["red"], None):
        with pytest.raises(bp.ScenarioError, match="gamma"):
            make_plan(changed, settings=settings)


def test_file_takes_precedence_over_a_shipped_scenario(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert scenario_path("small-gateway") == shipped()["small-gateway"]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small-gateway").write_text("")
    assert scenario_path("small-gateway") == Path("small-gateway")


def test_folder_named_like_a_shipped_scenario_does_not_hide_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small-gateway").mkdir()
    assert scenario_path("small-gateway") == shipped()["small-gateway"]


def test_an_unknown_scenario_names_the_nearest() -> None:
    with pytest.raises(bp.UsageError, match="did you mean small-gateway"):
        scenario_path("smal-gateway")


def test_overrides_are_written_as_toml() -> None:
    assert overrides_from({"run.duration": "2 min", "run.runs": 4, "a.b": True}) == [
        "run.duration=2 min",
        "run.runs=4",
        "a.b=true",
    ]
    assert bp.load("small-gateway", set={"run.duration": "2 min"}).duration == pytest.approx(120.0)
    assert bp.load("small-gateway", set=["run.duration=90 s"]).duration == pytest.approx(90.0)


@pytest.mark.parametrize("name", sorted(shipped()))
def test_every_shipped_scenario_runs_under_its_settings(name: str) -> None:
    scenario = bp.load(name, set={"run.duration": "1 s", "run.warmup": "3 s"})
    result = bp.compare(scenario, runs=1)
    assert result.settings == scenario.settings
    values = {(row["setting"], row["metric"]): row["value"] for row in result.metrics().iter_rows(named=True)}
    for setting in result.settings:
        assert values[setting, "throughput"] > 0
        assert values[setting, "queue_mean"] is not None


def test_tables_and_lists_of_a_mapping_are_written_as_toml() -> None:
    changed = bp.load(
        "small-gateway",
        {
            "link.ingress.delay": {"uniform": ["20 ms", "30 ms"], "per": "connection"},
            "run.settings": ["red", "avq"],
        },
    )
    assert changed.settings == ["red", "avq"]
    link = next(each for each in json.loads(changed.canonical())["links"] if each["name"] == "ingress")
    assert link["forward"]["delay"] == {"low": 20_000_000, "high": 30_000_000, "per": "connection"}
