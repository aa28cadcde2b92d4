"""Sweep files: their keys, options that override them, and messages on mistakes."""

import json
import tomllib
from pathlib import Path

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bentpipe as bp
from bentpipe.cli import app
from bentpipe.errors import ScenarioError, UsageError
from bentpipe.sweeps.file import SCHEMA, request, shipped_sweeps

SMALL = """
[sweep]
title = "Two delays"
scenario = "mine.toml"
settings = ["red", "avqred"]
runs = 2
seed = 7
metrics = "queue_mean, drops"
set = { run.warmup = "1 s", "run.duration" = "2 s" }

[vary]
gateway.pep.delay = ["0 ms", "40 ms"]
"gateway.aqm.w_q" = "0.02:0.2:log:2"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    shipped = Path(bp.__file__).parent / "data/scenarios" / "small-gateway.toml"
    (tmp_path / "mine.toml").write_text(shipped.read_text())
    (tmp_path / "sweep.toml").write_text(SMALL)
    return tmp_path / "sweep.toml"


def test_file_equals_the_same_options(file: Path, tmp_path: Path) -> None:
    """The datasets are equal byte for byte, except for the title in the manifest."""
    bp.sweep(file, out=tmp_path / "a")
    bp.sweep(
        file.with_name("mine.toml"),
        {"gateway.pep.delay": "0 ms,40 ms", "gateway.aqm.w_q": "0.02:0.2:log:2"},
        settings=["red", "avqred"],
        runs=2,
        seed=7,
        set={"run.warmup": "1 s", "run.duration": "2 s"},
        metrics=["queue_mean", "drops"],
        out=tmp_path / "b",
    )
    for path in (tmp_path / "a" / "data").rglob("*.parquet"):
        assert path.read_bytes() == (tmp_path / "b" / path.relative_to(tmp_path / "a")).read_bytes()
    one, other = (json.loads((tmp_path / each / "manifest.json").read_text()) for each in "ab")
    assert one.pop("checksum") != other.pop("checksum")
    assert one.pop("title") == "Two delays"
    assert other.pop("title") == "Sweep: A small gateway, for a first try"
    assert one == other
    assert one["seeds"] == [7, 8]


def test_a_grid_as_option_has_all_combinations_whatever_the_points_of_the_file(file: Path) -> None:
    file.write_text(SMALL.replace("runs = 2", 'design = "lhs"\npoints = 3'))
    assert len(request(file).plan().points) == 3
    assert len(request(file, design="grid").plan().points) == 4
    with pytest.raises(UsageError, match="--points is for the designs lhs and sobol"):
        request(file, design="grid", points=3).plan()


def test_options_override_the_file(file: Path) -> None:
    changed = request(
        file,
        ["gateway.pep.delay=5 ms", "gateway.aqm.max_p=0.1,0.2"],
        ["run.duration=3 s"],
        runs=1,
        settings=["red"],
    )
    assert {each.key: each.values for each in changed.factors} == {
        "gateway.pep.delay": ("5 ms",),
        "gateway.aqm.w_q": ("0.02", "0.2"),
        "gateway.aqm.max_p": ("0.1", "0.2"),
    }
    assert changed.overrides == ("run.warmup=1 s", "run.duration=3 s")
    swapped = request(file, ["run.duration=2 s,3 s"], ["gateway.pep.delay=5 ms"])
    assert [each.key for each in swapped.factors] == ["gateway.aqm.w_q", "run.duration"]
    assert swapped.overrides == ("run.warmup=1 s", "gateway.pep.delay=5 ms")
    plan = changed.plan()
    assert (plan.settings, plan.seeds, plan.metrics) == (["red"], [7], ["queue_mean", "drops"])
    assert len(plan.points) == 4
    with pytest.raises(UsageError, match="--max-runs 5 needs --until-ci"):
        request("small-gateway", max_runs=5)


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("runs = 2", "runs = 0", 6, "sweep.runs: found 0; allowed: a whole number, 1 or more"),
        ("runs = 2", 'runs = "two"', 6, 'sweep.runs: found "two"; allowed: a whole number, 1 or more'),
        ("runs = 2", "runs = true", 6, "sweep.runs: found true; allowed: a whole number"),
        (
            "runs = 2",
            "run = 2",
            6,
            "sweep.run: no such key; did you mean runs? allowed: title, ",
        ),
        ("runs = 2", 'design = "random"', 6, 'sweep.design: found "random"; allowed: grid, lhs, sobol'),
        (
            "runs = 2",
            'until_ci = "wide"',
            6,
            'until_ci: found "wide"; allowed: a share of the mean, as 2%',
        ),
        ("runs = 2", "until_ci = [1]", 6, "sweep.until_ci: found [1]; allowed: a text or a number"),
        ('"mine.toml"', '"yours.toml"', 4, "sweep.scenario: scenario "),
        ('scenario = "mine.toml"', "", 2, "sweep: scenario is missing; it is the scenario"),
        ('"red", "avqred"', "", 5, "sweep.settings: found an empty list; allowed: one entry at least"),
        ('"red", "avqred"', '"red", 4', 5, "sweep.settings: found 4; allowed: a text"),
        ("queue_mean, drops", "speed", 8, 'sweep.metrics: there is no metric "speed"'),
        ('["0 ms", "40 ms"]', "3", 12, "vary.gateway.pep.delay: found 3; allowed: a text or a list"),
        ('["0 ms", "40 ms"]', '"0 ms:fast:3"', 12, "gateway.pep.delay=0 ms:fast:3: found no range; allowed"),
        ('["0 ms", "40 ms"]', '["0 ms", "0 ms"]', 12, "found a value twice; allowed: each once"),
        ("[vary]", "[varies]", 11, "varies: no such key; did you mean vary? allowed: sweep, vary"),
        ("[sweep]", "[[sweep]]", 2, "sweep: found ["),
    ],
)
def test_mistakes_name_file_line_key_and_allowed_values(
    file: Path, old: str, new: str, line: int, message: str
) -> None:
    assert old in SMALL
    file.write_text(SMALL.replace(old, new))
    with pytest.raises(UsageError) as raised:
        request(file)
    assert str(raised.value).startswith(f"{file}:{line}: ")
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[foo]\na = 1\n",
            "is neither a sweep nor a scenario: found foo; allowed: sweep and vary, or of a scenario run",
        ),
        ("", "is neither a sweep nor a scenario: found nothing"),
        ("[vary]\nx = [1]\n", "sweep is missing"),
        ("[sweep\n", "not TOML"),
        ("[run]\nduraton = 3\n", 'did you mean "duration"?'),
        (
            '[sweep]\nscenario = "small-gateway"\n[vary]\ngateway.aqm.w_q = [2]\n',
            "found 2; allowed: a number, above 0",
        ),
        ('[sweep]\nscenario = "small-gateway"\npoints = 3\n[vary]\ngateway.aqm.w_q = [1]\n', "lhs and sobol"),
        ('[sweep]\nscenario = "small-gateway"\nsettings = "redd"\n', 'did you mean "red"?'),
        (
            '[sweep]\nscenario = "small-gateway"\nset.gateway.aqm.w_q = 1\n[vary]\ngateway.aqm.w_q = [0.2]\n',
            "--set gateway.aqm.w_q=1: gateway.aqm.w_q: found in --vary as well; allowed: one of the two",
        ),
    ],
)
def test_command_prints_the_mistake_once(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.toml"
    path.write_text(text)
    with pytest.raises(SystemExit) as left:
        app.main(["sweep", str(path), "--out", str(tmp_path / "out")])
    captured = capsys.readouterr()
    assert left.value.code == 2
    assert captured.out == ""
    assert captured.err.startswith(f"error: {path}")
    assert captured.err.count("\n") == 1
    assert message in captured.err
    assert not (tmp_path / "out").exists()


def test_unknown_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        app.main(["sweep", "byun2007-pep-delai"])
    assert left.value.code == 2
    assert "did you mean byun2007-pep-delay?" in capsys.readouterr().err


def test_shipped_files_load_and_match_their_schema() -> None:
    names = {"beam-plans", "byun2007-pep-delay", "byun2007-pep-delay-aqms", "small-gateway-red"}
    assert names == set(shipped_sweeps())
    for name, path in shipped_sweeps().items():
        jsonschema.validate(tomllib.loads(path.read_text()), SCHEMA)
        asked = request(name)
        assert asked.title
        plan = asked.plan()
        assert len(plan.cells) == len(plan.points) * len(plan.settings)
    delays = request("byun2007-pep-delay").factors[0].values
    assert delays == ("0 ms", "10 ms", "20 ms", "30 ms", "40 ms", "50 ms", "60 ms")


def test_schema_and_reader_refuse_the_same_files(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        app.main(["schema", "sweep"])
    schema = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator.check_schema(schema)
    for old, new in (("runs = 2", "runs = 0"), ("runs = 2", "run = 2"), ('["0 ms", "40 ms"]', "3")):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(tomllib.loads(SMALL.replace(old, new)), schema)
    jsonschema.validate(tomllib.loads(SMALL), schema)


def test_shipped_files_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        app.main(["list", "sweeps"])
    assert "byun2007-pep-delay" in capsys.readouterr().out


PIECES = (
    *(
        "[sweep]",
        "[vary]",
        "[[vary]]",
        "=",
        '"',
        "'",
        '"""',
        "[",
        "]",
        "{",
        "}",
        ",",
        ":",
        "#",
        ".",
        "\n",
        "\\",
        "é",
    ),
    *(
        "-1",
        "0",
        "1e309",
        "nan",
        "0x10",
        "9999999999999999999999",
        "1979-05-27",
        "true",
        "10 ms",
        "a,b",
        "log",
    ),
    *("1:2", "1:2:3", "0:1:1e-9", "settings", "throughput", "run.seed", "red-dumbbell", 'design = "lhs"\n'),
    *("points = 5\n", "runs = 0\n", 'until_ci = "5 %"\n', "max_runs = 3\n", 'set.run.duration = "1 s"\n'),
)
"""Parts of sweep files and of other TOML."""
VALUES = st.one_of(
    *(st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.sampled_from(PIECES)),
    st.lists(st.one_of(st.integers(), st.floats(), st.sampled_from(PIECES)), max_size=4),
)


def in_toml(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(in_toml, value))}]"
    return json.dumps(value) if isinstance(value, bool | str) else repr(value)


@st.composite
def with_odd_values(draw: st.DrawFn) -> str:
    keys = st.sampled_from([*SCHEMA["properties"]["sweep"]["properties"]])
    varied = st.sampled_from(["gateway.aqm.w_q", "gateway.pep.delay", "run.duration", "x", "a.b", "seed"])
    lines = {key: in_toml(draw(VALUES)) for key in draw(st.lists(keys, max_size=4))}
    lines["scenario"] = draw(st.sampled_from(['"small-gateway"', '"x"']))
    values = {key: in_toml(draw(VALUES)) for key in draw(st.lists(varied, max_size=3))}
    tables = [("[sweep]", lines), ("[vary]", values)]
    return "\n".join(line for name, of in tables for line in (name, *(f"{k} = {v}" for k, v in of.items())))


@st.composite
def with_other_pieces(draw: st.DrawFn) -> str:
    text = draw(st.sampled_from([SMALL, *(path.read_text() for path in shipped_sweeps().values())]))
    for _ in range(draw(st.integers(1, 4))):
        at, count = draw(st.integers(0, len(text))), draw(st.integers(0, 8))
        text = text[:at] + draw(st.sampled_from(PIECES)) + text[at + count :]
    return text


@given(st.one_of(with_odd_values(), with_other_pieces()))
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_sweep_file_is_read_or_refused_in_one_line_that_names_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "any.toml"
    path.write_text(text)
    message = None
    try:
        asked = request(path)
        asked.precision()
        asked.plan()
    except (UsageError, ScenarioError) as error:
        message = str(error)
    assert message is None or (message.startswith(str(path)) and len(message.splitlines()) == 1)


def test_line_breaks_of_values_are_escaped_in_messages(file: Path) -> None:
    file.write_text(file.read_text().replace('"0.02:0.2:log:2"', '"\\n"'))
    with pytest.raises(UsageError, match=r"w_q=\\n: found an empty value; allowed: values as 0.1,0.5,0.9"):
        request(file)


def test_most_runs_without_a_width_name_the_file(file: Path) -> None:
    file.write_text(file.read_text().replace("runs = 2", "max_runs = 2"))
    with pytest.raises(UsageError, match=r"sweep\.toml: --max-runs 2 needs --until-ci"):
        request(file)
