"""Scenarios as paths, names, loaded scenarios and dictionaries are the same scenario to every function."""

import json
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import bentpipe as bp
from bentpipe.advice.advisor import AdvicePlan
from bentpipe.runs.plan import shipped
from bentpipe.sweeps.file import request
from bentpipe.tuning.tune import Tuning

Change = Callable[[dict[str, Any]], object]
SHORT = {"run.duration": "2 s", "run.warmup": "1 s"}


class Half(bp.Aqm):
    """Marks a share of the packets."""

    params = (bp.Param("share", 0.5, range=(0, 1), tuning=(0.1, 0.9)),)

    def __init__(self, share: float) -> None:
        self.share = share

    def arrive(self, pkt: bp.Packet, cx: bp.Context) -> bp.Verdict:
        return bp.Verdict.MARK if cx.rng.uniform() < self.share else bp.Verdict.PASS


@pytest.mark.parametrize("name", sorted(shipped()))
def test_shipped_scenario_survives_the_way_through_dictionaries(name: str) -> None:
    scenario = bp.load(name)
    tables = scenario.to_dict()
    assert tables == tomllib.loads(scenario.text)
    again = bp.Scenario.from_dict(tables, name, shipped()[name].parent)
    assert again.canonical() == scenario.canonical()
    assert (again.name, again.settings, again.title) == (name, scenario.settings, scenario.title)
    assert tomllib.loads(again.text) == tables
    assert tomllib.loads(scenario.to_toml()) == tables


@pytest.mark.parametrize(
    "changes",
    [
        {"run.duration": "20 s", "gateway.aqm.max_p": 0.3},
        {"gateway.aqm.algorithm": "avqred"},
        {"gateway.aqm.w_q": 0.1, "gateway.aqm.preset": "RED 4"},
        {"gateway.aqm": '{ algorithm = "pi", q_ref = 20 }', "gateway.aqm.w": 100},
        {"gateway.aqm": {"algorithm": "codel"}, "gateway.mark": "transmit", "gateway.aqm.target": "20 ms"},
        {"gateway.gateway.pep.delay": "20 ms"},
        {"gateway.transmit_queue.scheduler": "drr", "gateway.transmit_queue.scheduler.quantum": "3000 B"},
        {"gateway.marking": "ecn", "run.settings": ["red", "codel"]},
        {"traffic.web.sessions": 3, "link.satellite.reverse.rate": "1 Mbps"},
        {"thresholds.voice.mos.bad": 3.6, "thresholds.responsiveness": {"bad": 200}},
        {"link.satellite.access": "wifi", "link.satellite.access.tries": 2},
        {'"run".seed': 7, "title": 'a "quoted" \\ title\nin two lines'},
    ],
)
def test_overrides_become_part_of_the_dictionary(changes: dict[str, Any]) -> None:
    """The core, which applies overrides itself, is the reference."""
    scenario = bp.load("small-gateway", set=changes)
    again = bp.Scenario.from_dict(scenario.to_dict())
    assert again.canonical() == scenario.canonical()
    assert again.overrides == []
    assert again.thresholds == scenario.thresholds
    assert (again.settings, again.seed, again.title) == (scenario.settings, scenario.seed, scenario.title)


def test_override_of_one_of_several_gateways_becomes_part_of_the_dictionary() -> None:
    first, second = (each["name"] for each in bp.load("two-gateways").to_dict()["gateway"])
    changes = {f"gateway.{second}.pep.delay": "33 ms", f"gateway.{first}.aqm.algorithm": "droptail"}
    scenario = bp.load("two-gateways", set=changes)
    tables = scenario.to_dict()
    assert tables["gateway"][1]["pep"]["delay"] == "33 ms"
    assert bp.Scenario.from_dict(tables).canonical() == scenario.canonical()


def test_override_without_effect_cannot_become_part_of_the_dictionary() -> None:
    with pytest.raises(bp.ScenarioError, match=r"gateway\.aqm\.gamma"):
        bp.load("small-gateway", set={"gateway.aqm.gamma": 0.9}).to_dict()


def _wrong(change: Change) -> dict[str, Any]:
    tables = bp.load("small-gateway").to_dict()
    change(tables)
    return tables


@pytest.mark.parametrize(
    ("change", "toml"),
    [
        (lambda t: t["run"].update(duration="soon"), 'duration = "60 s"|duration = "soon"'),
        (lambda t: t["run"].update(duraton="1 s"), 'duration = "60 s"|duration = "60 s"\nduraton = "1 s"'),
        (lambda t: t["gateway"].update(aqm={"algorithm": "redd"}), 'algorithm = "red"|algorithm = "redd"'),
        (lambda t: t["traffic"]["web"].update(sessions=-1), "sessions = 40\n|sessions = -1\n"),
        (lambda t: t["traffic"]["web"].pop("kind"), 'kind = "pages"\n|\n'),
        (lambda t: t["traffic"]["web"].update(sessions=2**70), f"sessions = 40\n|sessions = {2**70}\n"),
    ],
)
def test_wrong_content_gives_the_message_of_a_file(change: Change, toml: str) -> None:
    """The same but for line and column, which a dictionary has not."""
    with pytest.raises(bp.ScenarioError) as found:
        bp.Scenario.from_dict(_wrong(change), "mine")
    text, (old, new) = bp.load("small-gateway").text, toml.split("|")
    with pytest.raises(bp.ScenarioError) as expected:
        bp.Scenario.parse(text.replace(old, new), "mine.toml", [])
    place, _, message = str(expected.value).partition(": ")
    assert place.startswith("mine.toml:")
    if "not TOML" in message:
        assert str(found.value).startswith("mine: not TOML")
    else:
        assert str(found.value) == f"mine: {message}"


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ([1], r"mine: found \[1\]; allowed: a dictionary"),
        ({"run": {"duration": None}}, r"mine: run\.duration: found None; allowed: the values of TOML"),
        ({"run": {1: "x"}}, r"mine: run: found the key 1; allowed: strings as keys"),
        ({"a": [{"b": 1}, 2, {"c": {2}}]}, r"mine: a\.c: found \{2\}; allowed"),
        ({}, r"mine: the file is empty"),
        ({"a b": {"c": 1}}, r"mine: .*a b.*: no such key"),
    ],
)
def test_content_that_no_file_can_hold_is_reported_with_its_key(
    mapping: Mapping[str, object], message: str
) -> None:
    with pytest.raises(bp.ScenarioError, match=f"^{message}"):
        bp.Scenario.from_dict(mapping, "mine")


def test_loaded_scenario_accepts_further_overrides_which_replace_its_own() -> None:
    scenario = bp.load("small-gateway", set={"run.duration": "10 s", "run.warmup": "1 s"})
    assert bp.load(scenario) is scenario
    changed = bp.load(scenario, set={"run.duration": "20 s"})
    assert (changed.duration, changed.warmup, scenario.duration) == (20.0, 1.0, 10.0)
    assert changed.overrides == ["run.warmup=1 s", "run.duration=20 s"]
    assert changed.canonical() == bp.load("small-gateway", set=changed.overrides).canonical()


def test_override_may_name_another_file(tmp_path: Path) -> None:
    """A loaded scenario holds the files that it names; an override may name another one on the disk."""
    for name, sizes in (("a.dat", "1000\n"), ("b.dat", "2000\n")):
        (tmp_path / name).write_text(sizes, encoding="utf-8")
    tables = bp.load("small-gateway").to_dict()
    expected = []
    for name in ("a.dat", "b.dat"):
        tables["traffic"]["web"]["object_size"] = {"trace": name}
        expected.append(bp.Scenario.from_dict(tables, "mine", tmp_path))
    other = bp.load(expected[0], set={"traffic.web.object_size": '{ trace = "b.dat" }'})
    assert expected[0].canonical() != other.canonical() == expected[1].canonical()
    (tmp_path / "a.dat").unlink()
    assert bp.load(expected[0], set={"traffic.web.sessions": 40}).canonical() == expected[0].canonical()


@pytest.mark.parametrize("kind", ["loaded", "dictionary"])
def test_sweep_of_a_loaded_scenario_continues_the_dataset_of_its_file(tmp_path: Path, kind: str) -> None:
    vary = {"gateway.pep.delay": ["0 ms", "40 ms"]}
    first = bp.sweep("small-gateway", vary, settings=["red"], runs=1, set=SHORT, out=tmp_path)
    done: list[tuple[int, int, int]] = []
    scenario: Any = bp.load("small-gateway", set=SHORT)
    changes: dict[str, str] = {}
    if kind == "dictionary":
        scenario = bp.Scenario.from_dict(bp.load("small-gateway").to_dict(), "small-gateway")
        changes = SHORT
    again = bp.sweep(
        scenario,
        vary,
        settings="red",
        runs=1,
        set=changes,
        out=tmp_path,
        on_progress=lambda *n: done.append(n),
    )
    assert done[0] == (2, 2, 0)
    assert again.frame()["digest"].to_list() == first.frame()["digest"].to_list()
    assert again.manifest["scenario"]["digest"] == first.manifest["scenario"]["digest"]


def test_plans_of_a_loaded_scenario_equal_those_of_its_file() -> None:
    path, loaded = "small-gateway", bp.load("small-gateway", set={**SHORT, "gateway.aqm.w_q": 0.1})
    changes = loaded.overrides
    aims = "throughput:max,queue_delay_mean:min"
    tunings = [Tuning.plan(path, "red", aims, overrides=changes), Tuning.plan(loaded, "red", aims)]
    assert tunings[0].about() == tunings[1].about()
    assert tunings[0].determined_by() == tunings[1].determined_by()
    advices = [AdvicePlan.plan(path, aqms=["red"], overrides=changes), AdvicePlan.plan(loaded, aqms=["red"])]
    assert advices[0].about() == advices[1].about()
    assert advices[0].given == advices[1].given == "small-gateway"
    sweeps = [request(path, overrides=changes).plan(), request(loaded).plan()]
    assert sweeps[0].about() == sweeps[1].about()
    assert request(loaded).name == "small-gateway"


@pytest.mark.parametrize("how", ["name", "path", "loaded", "dictionary", "loaded with set"])
def test_comparison_is_the_same_however_the_scenario_is_given(how: str) -> None:
    file = shipped()["small-gateway"]
    given: dict[str, Any] = {
        "name": "small-gateway",
        "path": file,
        "loaded": bp.load("small-gateway", set=SHORT),
        "dictionary": bp.Scenario.from_dict(tomllib.loads(file.read_text(encoding="utf-8")), "small-gateway"),
        "loaded with set": bp.load("small-gateway", set={"run.duration": "5 s"}),
    }
    expected = bp.compare(bp.load("small-gateway", set=SHORT), ["red", "avq"], runs=1)
    changes = None if how == "loaded" else SHORT
    found = bp.compare(given[how], "red,avq", runs=1, set=changes)
    assert found.metrics().equals(expected.metrics())
    assert [each["sha256"] for each in found.manifest["settings"]] == [
        each["sha256"] for each in expected.manifest["settings"]
    ]


def test_run_model_and_validation_accept_overrides() -> None:
    short = {"run.duration": "5 s", "run.warmup": "5 s"}
    assert bp.run("red-dumbbell", set=short).manifest["scenario"]["duration"] == 5.0
    model = bp.model("red-dumbbell", "red,avq", set=short)
    assert model.settings == ["red", "avq"]
    assert model.manifest["scenario"]["duration"] == 5.0
    found = bp.validate("red-dumbbell", "red", set=short, runs=1)
    assert found.simulation.manifest["scenario"]["duration"] == 5.0


def test_overrides_of_live_runs_are_checked() -> None:
    with pytest.raises(bp.ScenarioError, match='found "soon"'):
        bp.live("small-gateway", ["red"], set={"run.duration": "soon"})


def test_python_aqm_is_a_setting_of_a_loaded_scenario(tmp_path: Path) -> None:
    mine = bp.Setting("mine", Half)
    changes = {**SHORT, "gateway.aqm.share": 0.2}
    found = bp.compare("small-gateway", [mine], runs=1, set=changes)
    again = bp.compare(bp.load("small-gateway", set=SHORT), [mine], runs=1, set={"gateway.aqm.share": 0.2})
    assert found.manifest["settings"][0]["python"]["params"][0]["value"] == 0.2
    assert found.metrics().equals(again.metrics())
    loaded = bp.load("small-gateway", set=changes, settings=[mine])
    vary = {"gateway.aqm.share": "0.2,0.4"}
    swept = bp.sweep(loaded, vary, settings=[mine], runs=1, out=tmp_path)
    assert swept.factors == ("gateway.aqm.share",)
    assert len(swept.frame()) == 2


def test_python_aqm_is_searched_as_a_setting(tmp_path: Path) -> None:
    mine = bp.Setting("mine", Half)
    found = bp.tune("small-gateway", mine, "throughput:max", trials=2, runs=1, set=SHORT, out=tmp_path / "t")
    assert found.parameters == ["share"]
    plan = AdvicePlan.plan("small-gateway", aqms=["red", mine])
    assert plan.aqms[1] == f"{Half.__module__}.Half"

    class Hidden(Half):
        """A class inside a function."""

    for wrong, message in ((Half(0.5), "an object; allowed in a search: a class"), (Hidden, "be imported")):
        with pytest.raises(bp.UsageError, match=f"^setting mine: .*{message}"):
            AdvicePlan.plan("small-gateway", aqms=[bp.Setting("mine", wrong)])


def test_models_do_not_cover_a_python_aqm() -> None:
    for function in (bp.model, bp.validate):
        with pytest.raises(bp.ModelError, match="found mine, written in Python"):
            function("red-dumbbell", [bp.Setting("mine", Half)])


def test_representation_names_aqm_and_overrides() -> None:
    scenario = bp.load("small-gateway", set={"run.duration": "2 s"})
    assert repr(scenario) == "<bentpipe.Scenario small-gateway: red; run.duration=2 s>"


def test_scenario_with_a_python_aqm_cannot_be_read_again() -> None:
    mine = bp.Setting("mine", Half)
    from bentpipe.runs.plan import under

    with pytest.raises(bp.UsageError, match="is under the setting mine, an AQM written in Python"):
        bp.load(under(bp.load("small-gateway"), mine), set={"run.seed": 3})


def test_anything_else_is_no_scenario() -> None:
    wrong: Any = 3
    for function in (bp.run, bp.compare, bp.model, bp.validate, bp.load):
        with pytest.raises(bp.UsageError, match=r"^scenario: found 3; allowed: a path, a shipped name"):
            function(wrong)


def test_canonical_form_is_independent_of_the_name() -> None:
    """The name of a scenario read from a dictionary has no part in its digest."""
    tables = bp.load("small-gateway").to_dict()
    one, two = (bp.Scenario.from_dict(tables, name) for name in ("one", "two"))
    assert json.loads(one.canonical()) == json.loads(two.canonical())
