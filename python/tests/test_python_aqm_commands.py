"""AQMs written in Python in sweeps, on clusters, in searches and in advice, with declared parameters."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import bentpipe as bp
from bentpipe.cli.app import cli
from bentpipe.runs.plan import load, make_plan
from bentpipe.runs.python_aqm import PythonAqm, declared, imported, unpacked
from bentpipe.tuning.space import Space

ROOT = Path(__file__).parents[2]
SHORT = {"run.duration": "5 s", "run.warmup": "1 s"}
AVQRED = {
    "gateway.aqm.min_th": "11",
    "gateway.aqm.max_th": "22",
    "gateway.aqm.min_capacity": "4 Mbps",
    "gateway.aqm.max_capacity": "4 Mbps",
    "gateway.aqm.mean_packet": "1500 B",
}
"""Parameters of AVQRED on the small gateway whose defaults differ between the implementations."""
TWO = "utilization:max,queue_delay_mean:min"


@pytest.fixture(autouse=True)
def _examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples")


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Folder with the module `own_aqms`, which only this process can import."""
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "own_helper.py").write_text("def is_long(packets, limit):\n    return packets > limit\n")
    (folder / "own_aqms.py").write_text(OWN)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.chdir(tmp_path)
    yield folder
    for name in ("own_aqms", "own_helper"):
        sys.modules.pop(name, None)


OWN = """
import bentpipe as bp
from own_helper import is_long

class Limit(bp.Aqm):
    params = [
        bp.Param("limit", 20.0, "packets", (1, 1000), tuning=(5, 40), scale="log", doc="No marks"),
        bp.Param("p", 0.1, "", (0, 1), tuning=(0.01, 0.5), scale="log"),
        bp.Param("pause", 0.0, "s", (0, 10)),
        bp.Param("form", "step", choices=("step", "ramp"), tuning="each"),
    ]

    def __init__(self, limit, p, pause, form):
        self.limit, self.p, self.pause, self.form = limit, p, pause, form

    def arrive(self, pkt, cx):
        p = self.p if self.form == "step" else min(1.0, self.p * cx.queue.packets / self.limit)
        marked = is_long(cx.queue.packets, self.limit) and cx.now >= self.pause and cx.rng.uniform() < p
        return bp.Verdict.MARK if marked else bp.Verdict.PASS

class Fixed(bp.Aqm):
    def arrive(self, pkt, cx):
        return bp.Verdict.PASS

class Broken(Limit):
    def arrive(self, pkt, cx):
        return 1 / 0 if cx.now > 2 else bp.Verdict.PASS

limit = Limit(20.0, 0.1, 0.0, "step")
"""


def values(result: bp.SweepResult, setting: str) -> list[tuple[Any, ...]]:
    """Return the runs of a setting: factors, seed and every metric."""
    table = result.frame()
    columns = [name for name in table.columns if name not in {"setting", "digest"}]
    return sorted(table.filter(table["setting"] == setting).select(columns).rows(), key=repr)


# ----- sweeps -------------------------------------------------------------------------------------------


def test_sweep_of_avqred_in_python_equals_the_built_in_one(tmp_path: Path) -> None:
    found = bp.sweep(
        "small-gateway",
        {"gateway.aqm.alpha": "0.02,0.05"},
        settings=["avqred", "avqred.AvqRed"],
        set=SHORT | AVQRED,
        runs=2,
        out=tmp_path / "out",
    )
    mine = values(found, "avqred.AvqRed")
    assert len(mine) == 4
    assert mine == values(found, "avqred")
    assert not found.failures


@pytest.mark.usefixtures("own")
def test_cluster_gives_the_values_of_threads(tmp_path: Path) -> None:
    import own_aqms  # type: ignore[import-not-found]

    settings: list[str | bp.Setting] = [
        "own_aqms.Limit",
        bp.Setting("object", own_aqms.Limit(30.0, 0.2, 0.0, "ramp")),
        "red",
    ]
    threads, cluster = (
        bp.sweep(
            "small-gateway",
            {"gateway.aqm.limit": "10,30"},
            settings=settings,
            set=SHORT,
            runs=2,
            out=tmp_path / name,
            **where,
        )
        for name, where in (("threads", {"jobs": 2}), ("cluster", {"cluster": "local:2"}))
    )
    for setting, runs in (("own_aqms.Limit", 4), ("object", 2), ("red", 2)):
        # One run stands for both points of a setting without the parameter.
        assert len({row[1:] for row in values(threads, setting)}) == runs
        assert values(cluster, setting) == values(threads, setting)
    assert not cluster.failures


@pytest.mark.usefixtures("own")
def test_exception_fails_only_its_run(tmp_path: Path) -> None:
    for name, where in (("threads", {"jobs": 1}), ("cluster", {"cluster": "local:1"})):
        found = bp.sweep(
            "small-gateway",
            {"gateway.pep.delay": "10 ms"},
            settings=["red", "own_aqms.Broken"],
            set=SHORT,
            runs=1,
            out=tmp_path / name,
            **where,
        )
        (failure,) = found.failures
        assert failure["setting"] == "own_aqms.Broken"
        assert "arrive raised ZeroDivisionError" in failure["error"]
        assert len(values(found, "red")) == 1


@pytest.mark.usefixtures("own")
def test_sweep_file_cannot_name_python_code(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        '[sweep]\nscenario = "small-gateway"\nsettings = ["red", "own_aqms.Limit"]\n'
        '[vary]\n"gateway.pep.delay" = ["10 ms"]\n'
    )
    with pytest.raises(bp.UsageError, match=r"found own_aqms\.Limit, Python code, which a file cannot name"):
        bp.sweep(tmp_path / "mine.toml", out=tmp_path / "out")
    assert "own_aqms" not in sys.modules


def test_packed_aqm_contains_its_modules(own: Path) -> None:
    aqm = PythonAqm("mine", imported("own_aqms.Limit"), {"limit": "7", "form": '"ramp"'})
    packed = aqm.packed()
    for name in ("own_aqms", "own_helper"):
        del sys.modules[name]
    (own / "own_aqms.py").unlink()
    there = unpacked(packed)
    assert there.keys() == aqm.keys()
    scenario = load("small-gateway", SHORT)
    assert scenario.with_python_aqm(there).canonical() == scenario.with_python_aqm(aqm).canonical()
    assert "arrive" in there.methods()


# ----- parameters ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("own")
def test_overrides_apply_to_declared_parameters() -> None:
    names = ["own_aqms.Limit", "red"]
    scenario = load("small-gateway", [*[f"{k}={v}" for k, v in SHORT.items()], "gateway.aqm.limit=30"], names)
    plan = make_plan(scenario, settings=names, runs=1)
    mine, red = plan.settings
    shown = {row["key"]: row for row in mine.scenario.effective()}
    assert shown["gateway.aqm.limit"]["value"] == "30 packets"
    assert shown["gateway.aqm.limit"]["origin"] == "override"
    assert shown["gateway.aqm.pause"] == {
        "key": "gateway.aqm.pause",
        "value": "0 s",
        "origin": "default",
        "note": "",
    }
    assert any("limit" in each for each in red.scenario.warnings)
    assert not any("limit" in each for each in mine.scenario.warnings)
    with pytest.raises(bp.ScenarioError, match="limit"):
        make_plan(scenario, settings=["red"], runs=1)
    with pytest.raises(bp.ScenarioError, match="limit"):
        load("small-gateway", ["gateway.aqm.limit=30"])
    limit = load("small-gateway", ["gateway.aqm.limit=30"], names)
    with pytest.raises(bp.ScenarioError, match=r"limit: own_aqms\.limit has no parameters"):
        make_plan(limit, settings=["own_aqms.limit"], runs=1)
    assert declared(["own_aqms.Limit", "red", "no.Such"]) == ["limit", "p", "pause", "form"]


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("limit=0", "limit: found 0.0; allowed: at least 1 and at most 1000"),
        ("limit=9 ms", "limit: found 9 ms; allowed: a number with its unit, as 20 packets"),
        ("pause=5", "pause: found 5; allowed: a number with its unit, as 0 s"),
        ("form=curve", "form: found 'curve'; allowed: step, ramp"),
    ],
)
@pytest.mark.usefixtures("own")
def test_value_out_of_range_is_refused(override: str, expected: str) -> None:
    scenario = load("small-gateway", [f"gateway.aqm.{override}"], ["own_aqms.Limit"])
    with pytest.raises(bp.UsageError) as caught:
        make_plan(scenario, settings=["own_aqms.Limit"], runs=1)
    assert str(caught.value) == f"setting own_aqms.Limit: {expected}"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"default": 2.0, "range": (0, 1)}, "found 2.0; allowed: at least 0 and at most 1"),
        ({"default": 1.0, "unit": "ms"}, "found the unit 'ms'"),
        ({"default": 1.0, "tuning": "each"}, "found tuning='each'; allowed: (low, high) or None"),
        ({"default": True, "tuning": (0, 1)}, 'allowed: "each" or None'),
        (
            {"default": 1.0, "tuning": (0, 1), "scale": "log"},
            "allowed: two numbers, the lower first, above",
        ),
        ({"default": "a", "choices": ("b", "c")}, "found 'a'; allowed: b, c"),
        ({"default": 1.5, "whole": True}, "found 1.5; allowed: a whole number"),
    ],
)
def test_wrong_declaration_is_refused(given: dict[str, Any], expected: str) -> None:
    with pytest.raises(bp.UsageError) as caught:
        bp.Param("x", **given)
    assert str(caught.value).startswith("parameter x: ")
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("unit", "value", "text"),
    [
        ("", 0.02, "0.02"),
        ("packets", 60.0, "60 packets"),
        ("B", 1400.0, "1.4 KB"),
        ("s", 0.033, "33 ms"),
        ("s", 1 / 3, "333.3333333333333 ms"),
        ("bit/s", 20e6, "20 Mbps"),
        ("bit/s", 0.0, "0 bps"),
    ],
)
def test_written_value_reads_back(unit: Any, value: float, text: str) -> None:  # noqa: ANN401
    param = bp.Param("x", value, unit)
    assert param.write(value) == text
    assert param.read(text, "") == value
    assert param.read(f'"{text}"', "") == value


@pytest.mark.usefixtures("own")
def test_show_lists_the_parameters() -> None:
    command = ["show", "small-gateway", "--setting", "own_aqms.Limit", "--set", "gateway.aqm.p=0.2"]
    command += ["--format", "json"]
    shown = CliRunner().invoke(cli, command)
    assert shown.exit_code == 0, shown.output
    (row,) = (row for row in json.loads(shown.output) if row["key"] == "gateway.aqm.p")
    assert (row["value"], row["origin"]) == ("0.2", "override")


# ----- searches and advice ------------------------------------------------------------------------------


def test_search_of_avqred_in_python_equals_that_of_the_built_in_one(tmp_path: Path) -> None:
    found = [
        bp.tune(
            "small-gateway",
            aqm,
            TWO,
            vary=["min_th=5:15", "max_th=20:40", "alpha=0.02:0.2:log"],
            fix=["min_capacity=4 Mbps", "max_capacity=4 Mbps", "mean_packet=1500 B"],
            set=SHORT,
            sampler="random",
            trials=4,
            runs=2,
            fresh=2,
            out=tmp_path / aqm,
        ).found
        for aqm in ("avqred", "avqred.AvqRed")
    ]
    for key in ("trials", "front", "winner", "order"):
        assert found[0][key] == found[1][key], key
    assert {trial["outcome"] for trial in found[1]["trials"]} <= {"complete", "stopped"}


@pytest.mark.usefixtures("own")
def test_search_covers_the_declared_ranges(tmp_path: Path) -> None:
    space = Space.of("small-gateway", "own_aqms.Limit")
    assert [each.row() for each in space.parameters] == [
        {
            "name": "limit",
            "unit": "",
            "default": "20",
            "low": 5.0,
            "high": 40.0,
            "scale": "log",
            "whole": False,
        },
        {"name": "p", "unit": "", "default": "0.1", "low": 0.01, "high": 0.5, "scale": "log", "whole": False},
        {"name": "form", "unit": "", "default": "step", "values": ["step", "ramp"]},
    ]
    command = ["tune", "small-gateway", "--aqm", "own_aqms.Limit", "--metrics", TWO, "--duration", "5 s"]
    command += ["--trials", "3", "--runs", "2", "--fresh", "2", "--fix", "form=ramp", "--out", "out"]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 0, done.output
    best = (tmp_path / "out" / "best.toml").read_text()
    assert "--settings own_aqms.Limit --set gateway.aqm.limit=" in best
    assert "--set gateway.aqm.form=ramp" in best
    report = (tmp_path / "out" / "report.html").read_text()
    assert "own_aqms.Limit" in report


@pytest.mark.parametrize(
    ("aqm", "expected"),
    [
        ("own_aqms.Fixed", "declares no parameters to search; allowed: a class with params = "),
        ("own_aqms.limit", "is an object, whose parameters are fixed; allowed: its class own_aqms.Limit"),
        (
            "own_aqms.Limti",
            "has no Limti; allowed: Broken, Fixed, Limit, limit; did you mean",
        ),
        ("no_such.Module", "no Python module is called no_such"),
    ],
)
@pytest.mark.usefixtures("own")
def test_refused_search_names_the_reason(aqm: str, expected: str) -> None:
    with pytest.raises(bp.UsageError) as caught:
        Space.of("small-gateway", aqm)
    assert expected in str(caught.value)


@pytest.mark.usefixtures("own")
def test_advice_includes_an_aqm_in_python(tmp_path: Path) -> None:
    command = ["advise", "small-gateway", "--aqms", "red,own_aqms.Limit,own_aqms.Fixed", "--duration", "10 s"]
    command += ["--trials", "4", "--search-runs", "1", "--runs", "2", "--out", "out", "--format", "json"]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 0, done.output
    advice = bp.Advice(tmp_path / "out")
    names = {each["setting"] for each in advice.found["candidates"]}
    assert any(name.startswith("own_aqms.Limit") for name in names)
    assert "own_aqms.Fixed" in names
    if advice.answer.startswith("own_aqms.Limit"):
        assert "--settings own_aqms.Limit," in advice.command
    else:
        assert "own_aqms" not in advice.command


@pytest.mark.usefixtures("own")
def test_live_run_of_an_aqm_in_python_is_refused() -> None:
    scenario = load("small-gateway", SHORT)
    with pytest.raises(bp.UsageError, match="cannot be live: it is written in Python"):
        bp.live(scenario, ["own_aqms.Limit"])
