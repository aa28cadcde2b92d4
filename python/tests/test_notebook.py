"""Scenarios and results in notebooks: their HTML, and charts of single series and metrics."""

import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import altair as alt
import pytest
from conftest import ROOT

import bentpipe as bp
from bentpipe import files
from bentpipe.models.markov_result import solve
from bentpipe.qoe.thresholds import THRESHOLDS
from bentpipe.report.plots import SERIES

SHORT = {"run.duration": "4 s", "run.warmup": "2 s"}
VOID = {"img", "meta", "br"}


class Checked(HTMLParser):
    """Text of a document whose tags must be balanced."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not any(name.startswith("on") for name, _ in attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += f" {data.strip()}"


@pytest.fixture(scope="module")
def compared() -> bp.Result:
    return bp.compare("geo-operator", "red,fq_codel", runs=3, set=SHORT)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> bp.SweepResult:
    vary: dict[str, list[object]] = {
        "gateway.pep.delay": ["0 ms", "20 ms"],
        "traffic.web.sessions": [20, 40],
    }
    out = tmp_path_factory.mktemp("sweep") / "s"
    return bp.sweep("small-gateway", vary, settings="red,avq", runs=3, set=SHORT, out=out)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> bp.TuneResult:
    out, aims = tmp_path_factory.mktemp("tune") / "t", "throughput:max,queue_delay_mean:min"
    return bp.tune("small-gateway", "red", aims, trials=4, runs=2, fresh=3, set=SHORT, out=out)


@pytest.fixture(scope="module")
def validated() -> bp.Validation:
    return bp.validate("red-dumbbell", "red,avq", runs=3, set={"run.duration": "10 s", "run.warmup": "5 s"})


@pytest.fixture(scope="module")
def advised(tmp_path_factory: pytest.TempPathFactory) -> bp.Advice:
    out = tmp_path_factory.mktemp("advice") / "a"
    return bp.advise("small-gateway", "red", trials=2, search_runs=1, runs=3, set=SHORT, out=out)


def shown(thing: Any) -> Checked:  # noqa: ANN401
    return Checked(thing._repr_html_())


def test_scenario_shows_its_main_values_and_its_picture() -> None:
    scenario = bp.load("small-gateway", set={"run.duration": "90 s"})
    found = shown(scenario)
    for text in (
        "A small gateway, for a first try",
        "1 min 30 s after 10 s of warm-up",
        "satellite, 4 Mbit/s",
        "red, avq, avqred",
        "web (pages)",
        "run.duration=90 s",
    ):
        assert text in found.text
    assert found.tags.count("img") == 1


def test_result_shows_who_gets_what_before_the_queue(compared: bp.Result) -> None:
    html = compared._repr_html_()
    found = Checked(html)
    first, second = html.index("Who gets what"), html.index("Link and queue")
    assert first < second
    for name in ("web", "video", "voice", "downloads", "red", "fq_codel *"):
        assert name in found.text
    mean = compared.summary("red", "voice.mos").mean
    assert mean is not None
    grade = THRESHOLDS["voice.mos"].grade(mean)
    assert re.search(rf'{mean:.1f}\d* [^<]*<span class="grade {grade}">{grade}</span>', html)
    assert "3 runs per setting" in found.text


@pytest.mark.parametrize("name", ["swept", "tuned", "advised", "validated", "model", "markov", "scenario"])
def test_output_is_small_balanced_and_names_the_scenario(name: str, request: pytest.FixtureRequest) -> None:
    made: dict[str, Any] = {
        "model": lambda: bp.model("red-dumbbell", "red,avq", set={"run.duration": "5 s"}),
        "markov": lambda: solve(bp.load("mmpp-queue")),
        "scenario": lambda: bp.load("two-gateways"),
    }
    thing = made[name]() if name in made else request.getfixturevalue(name)
    html = thing._repr_html_()
    assert len(html) < 25_000
    titles = {"swept": "small", "tuned": "small", "advised": "small", "validated": "red-", "model": "red-"}
    assert (
        titles.get(name, {"markov": "mmpp-queue", "scenario": "two-gateways"}.get(name, ""))
        in Checked(html).text
    )


def test_search_shows_the_winner_and_the_defaults(tuned: bp.TuneResult) -> None:
    found = shown(tuned)
    winner = tuned.winner
    assert winner is not None
    for name, value in winner["point"].items():
        assert f"{name} {value}" in re.sub(r"\s+", " ", found.text)
    assert f"trial {winner['number']}" in found.text
    assert "defaults" in found.text


def test_texts_are_escaped(tmp_path: Path) -> None:
    tables = bp.load("small-gateway").to_dict()
    tables["title"] = "<script>alert(1)</script> & more"
    tables["setting"] = {"<b>bold</b>": {"algorithm": "red"}}
    tables["run"] |= {"settings": ["<b>bold</b>"], "duration": "1 s", "warmup": "1 s", "runs": 1}
    scenario = bp.Scenario.from_dict(tables, "mine")
    for thing in (scenario, bp.compare(scenario), bp.sweep(scenario, {}, out=tmp_path / "s")):
        found = shown(thing)
        assert not {"script", "b"} & set(found.tags)
        assert "<b>bold</b>" in found.text


def test_colours_suit_light_and_dark_themes(compared: bp.Result) -> None:
    """Text has the theme's colour, or its own background."""
    (style,) = re.findall(r"<style>(.*?)</style>", compared._repr_html_(), flags=re.DOTALL)
    coloured = 0
    for selector, rule in re.findall(r"([^{}]+)\{([^{}]*)\}", style):
        assert ".bentpipe-cell" in selector, "styles apply to this output alone"
        if text := re.search(r"(?<![-\w])color: ([^;]+);", rule):
            coloured += 1
            assert text[1] == "inherit" or "background: #" in rule, selector
    assert coloured >= 4


def test_sweep_without_runs_has_an_output(swept: bp.SweepResult, tmp_path: Path) -> None:
    manifest = json.loads((swept.folder / "manifest.json").read_text(encoding="utf-8"))
    files.write_json(tmp_path / "manifest.json", files.sealed(manifest | {"status": "incomplete"}))
    assert "The sweep is incomplete" in shown(bp.open_sweep(tmp_path)).text


def values(chart: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the rows of all data of a chart."""
    for rows in chart["datasets"].values():
        yield from rows


def test_series_is_drawn_in_its_unit(compared: bp.Result) -> None:
    chart = compared.plot("throughput", settings="red", seed=compared.seeds[1])
    table = compared.one("series", "red", compared.seeds[1])
    drawn = [row["mean"] for row in values(chart.to_dict()) if "low" in row and "high" in row]
    expected = [value * 1e-6 for value in table["throughput"].to_list()]
    assert drawn[: len(expected)] == pytest.approx(expected, rel=1e-3)
    assert len(expected) == 40


def test_each_setting_has_a_panel(compared: bp.Result) -> None:
    chart = compared.plot("transmit_queue")
    assert isinstance(chart, alt.ConcatChart)
    text = json.dumps(chart.to_dict())
    assert len(chart.to_dict()["concat"]) == 2
    for expected in ("Transmit queue, seed 1", '"red"', '"fq_codel"', "packets"):
        assert expected in text


def test_metric_is_drawn_with_interval_runs_and_limits(compared: bp.Result) -> None:
    rows = list(values(compared.plot("voice.mos").to_dict()))
    table = {row["setting"]: row for row in compared.rows() if row["metric"] == "voice.mos"}
    means = {row["setting"]: row for row in rows if "mean" in row}
    for setting in ("red", "fq_codel"):
        for key, column in (("mean", "mean"), ("low", "ci_low"), ("high", "ci_high")):
            assert means[setting][key] == table[setting][column]
    assert sum("seed" in row for row in rows) == 6
    limits = THRESHOLDS["voice.mos"]
    assert [(row["limit"], row["text"]) for row in rows if "limit" in row] == [
        (limits.good, "good"),
        (limits.bad, "bad"),
    ]


def test_name_of_a_series_and_a_metric_is_chosen_by_kind(compared: bp.Result) -> None:
    assert any("low" in row and "time" in row for row in values(compared.plot("throughput").to_dict()))
    metric = compared.plot("throughput", kind="metric").to_dict()
    assert {row["setting"] for row in values(metric) if "mean" in row} == {"red", "fq_codel"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "queue_packets"}, r'no series or metric "queue_packets"; did you mean queue_'),
        ({"name": "voice.moss"}, r"did you mean voice\.mos"),
        ({"name": "utilization_in"}, "it is now called arrival_rate"),
        ({"name": "transmit_queue", "kind": "metric"}, r'no metric "transmit_queue"; '),
        ({"name": "transmit_queue", "settings": "rde"}, r'no setting "rde"; did you mean red\?'),
        ({"name": "transmit_queue", "settings": []}, "found no settings; allowed: some of red, fq_codel"),
        ({"name": "transmit_queue", "seed": 99}, r"found the seed 99; allowed: 1, 2, 3"),
        ({"name": "throughput", "kind": "both"}, 'kind is \'both\'; allowed: "series", "metric"'),
    ],
)
def test_unknown_names_are_reported_with_close_ones(
    compared: bp.Result, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(bp.UsageError, match=f"^plot: .*{message}"):
        compared.plot(**arguments)


def test_metric_without_any_value_is_reported(compared: bp.Result) -> None:
    empty = next(row["metric"] for row in compared.rows() if row["mean"] is None)
    if all(row["mean"] is None for row in compared.rows() if row["metric"] == empty):
        with pytest.raises(bp.UsageError, match=f'plot: "{re.escape(empty)}" has no value in any run'):
            compared.plot(empty, kind="metric")


def test_sweep_is_drawn_against_the_chosen_factor(swept: bp.SweepResult) -> None:
    """The mean at a value of one factor is over all values of the other one."""
    rows = list(values(swept.plot("throughput", x="traffic.web.sessions").to_dict()))
    frame = swept.frame()
    for setting in ("red", "avq"):
        for sessions in (20, 40):
            mine = frame.filter(
                (frame["setting"] == setting) & (frame["traffic.web.sessions"] == str(sessions))
            )
            drawn = [
                row["mean"] for row in rows if row.get("setting") == setting and row.get("x") == sessions
            ]
            assert drawn == [pytest.approx(mine["throughput"].mean())] * len(drawn)
            assert drawn
    assert "mean" in next(values(swept.plot("throughput").to_dict()))
    with pytest.raises(bp.UsageError, match=r'no factor "pep.delay"; did you mean gateway\.pep\.delay'):
        swept.plot("throughput", x="pep.delay")
    with pytest.raises(bp.UsageError, match=r'no metric "throughputs"; did you mean throughput'):
        swept.plot("throughputs")


def test_search_is_drawn_with_every_trial(tuned: bp.TuneResult) -> None:
    trials = {row["name"] for row in values(tuned.plot().to_dict()) if "name" in row}
    assert {f"trial {each['number']}" for each in tuned.found["trials"]} <= trials
    assert "max_p" in json.dumps(tuned.plot("parameters").to_dict())
    with pytest.raises(bp.UsageError, match=r'no chart "fronts"; did you mean front\?'):
        tuned.plot("fronts")


def test_engines_are_drawn_over_each_other(validated: bp.Validation) -> None:
    chart = validated.plot("queue", settings="red").to_dict()
    table = validated.simulation.one("series", "red", validated.simulation.seeds[0])
    drawn = [row["mean"] for row in values(chart) if "low" in row]
    queue = [float(value) for value in table["transmit_queue"].to_list()]
    assert drawn[: len(queue)] == pytest.approx(queue, rel=1e-3)
    model = validated.model
    assert isinstance(model, bp.ModelResult)
    alone = [row["mean"] for row in values(model.plot("transmit_queue", settings="red").to_dict())]
    assert alone == pytest.approx(model.tables["red"]["transmit_queue"].to_list(), rel=1e-3, abs=1e-3)
    with pytest.raises(bp.UsageError, match=r'no quantity "queues"; did you mean queue'):
        model.plot("queues")


def test_charts_are_drawn_and_no_file_is_written(
    compared: bp.Result,
    swept: bp.SweepResult,
    tuned: bp.TuneResult,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    charts = [compared.plot("voice.mos"), swept.plot("throughput"), tuned.plot(), tuned.plot("parameters")]
    assert list(tmp_path.iterdir()) == []
    for index, chart in enumerate(charts):
        chart.save(tmp_path / f"{index}.svg")
        svg = (tmp_path / f"{index}.svg").read_text(encoding="utf-8")
        width = re.search(r'width="(\d+)', svg)
        assert width is not None
        assert 500 < int(width[1]) < 760, "a chart fits the output of a notebook's cell"


def test_chart_is_drawn_in_a_notebook_without_network(compared: bp.Result) -> None:
    with alt.renderers.enable("svg"):
        bundle: Any = compared.plot("voice.mos")._repr_mimebundle_()
    assert "voice: MOS" in bundle["image/svg+xml"]


def test_optuna_is_imported_without_a_warning_in_notebooks() -> None:
    """tqdm, which Optuna imports, takes IPython without ipywidgets for a broken installation."""
    code = (
        "import sys, types;"
        "kernel = types.SimpleNamespace(kernel=None);"
        "module = types.ModuleType('IPython'); module.get_ipython = lambda: kernel;"
        "sys.modules['IPython'] = module;"
        "sys.modules['ipykernel.zmqshell'] = types.ModuleType('ipykernel.zmqshell');"
    )
    done = [
        subprocess.run([sys.executable, "-c", code + use], capture_output=True, text=True, check=True)
        for use in ("import bentpipe; bentpipe.tune", "import bentpipe.tuning.tune")
    ]
    assert done[0].stderr == ""
    assert "IProgress not found" in done[1].stderr, "the warning is there to be hidden"


def test_example_prints_who_gets_what(tmp_path: Path) -> None:
    """FQ-CoDel protects calls from downloads, by an opinion score at least."""
    text = _python(
        "import sys; sys.argv = ['', sys.argv[1]];"
        f"import runpy; runpy.run_path({str(ROOT / 'examples/who_gets_what.py')!r}, run_name='__main__')",
        str(tmp_path),
    )
    scores = dict(re.findall(r"(\w+): voice\.mos ([\d.]+)", text))
    assert float(scores["fq_codel"]) > float(scores["droptail"]) + 1
    assert (tmp_path / "calls.svg").stat().st_size > 1000


def test_documented_series_have_a_label_and_a_unit() -> None:
    page = (ROOT / "docs/results.md").read_text(encoding="utf-8")
    table = page.split("## `series`")[1].split("\n## ")[0]
    names = {
        name
        for row in re.findall(r"^\| (`[^|]+) \|", table, flags=re.MULTILINE)
        for name in re.findall(r"`([\w.]+)`", row)
    }
    named = {name for name in names if "NAME" not in name} - {"time"}
    assert named == set(SERIES)


def _python(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_package_lists_only_public_names() -> None:
    names = json.loads(_python("import json, bentpipe; print(json.dumps(dir(bentpipe)))"))
    assert {name for name in names if not name.startswith("__")} == set(bp.__all__) - {"__version__"}
    assert "__version__" in names


def test_import_loads_neither_charts_nor_notebooks() -> None:
    slow = "{'altair', 'jinja2', 'optuna', 'scipy', 'numpy', 'IPython', 'rich'} & set(sys.modules)"
    assert _python(f"import sys, bentpipe; print(sorted({slow}))") == "[]"


@pytest.mark.parametrize("name", bp.__all__)
def test_public_names_are_described(name: str) -> None:
    thing = getattr(bp, name)
    if isinstance(thing, str):
        return
    assert inspect.getdoc(thing)
    if inspect.isfunction(thing) and name not in {"dir"}:
        assert re.search(r"Error`", inspect.getdoc(thing) or ""), "the docstring names the errors"
    if inspect.isclass(thing) and thing.__module__.startswith("bentpipe."):
        missing = [
            key
            for key, value in vars(thing).items()
            if not key.startswith("_") and callable(value) and not inspect.getdoc(value)
        ]
        assert missing == []
