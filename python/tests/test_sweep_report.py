"""The report of a sweep: figures by design, their data, and the table."""

import json
import re
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import bentpipe as bp
from bentpipe import files
from bentpipe.cli import app
from bentpipe.errors import ResultError, SimulationError
from bentpipe.report.pages import specification
from bentpipe.report.panels import Figure
from bentpipe.report.sweep import render
from bentpipe.report.sweep_charts import axes, figures
from bentpipe.runs.dataset import Run
from bentpipe.runs.workers import Outcome, Threads
from bentpipe.stats.metrics import METRICS
from bentpipe.sweeps.result import SweepResult
from bentpipe.sweeps.sweep import Sweep, execute

SHORT = ["run.duration=1 s", "run.warmup=1 s"]
NONE: dict[str, float | None] = {metric.name: None for metric in METRICS}


class _Known(Threads):
    """Workers that return a queue of 10 w + p + seed; w and p number the values of the first two factors."""

    def results(self, runs: Iterable[Run]) -> Generator[tuple[Run, Outcome] | None]:
        for run in runs:
            yield run, NONE | {"queue_mean": known(run)}


def known(run: Run) -> float:
    numbers = [float(value.split()[0]) for value in run.point[:2] if value[0].isdigit()]
    return sum(number * weight for number, weight in zip(numbers, (10, 1), strict=False)) + run.seed


def swept(folder: Path, vary: dict[str, Any], **more: Any) -> SweepResult:  # noqa: ANN401
    asked = {"settings": ["red", "ared"], "runs": 3, "metrics": ["queue_mean"], **more}
    return execute(Sweep.plan("small-gateway", vary, overrides=SHORT, **asked), folder, workers=_Known())


def drawn(result: SweepResult) -> tuple[Figure, list[dict[str, Any]]]:
    (figure,) = figures(result, result.rows(), result.frame(), result.metrics)
    return figure, [specification(panel.chart) for panel in figure.panels]


def points(spec: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = spec["datasets"][spec["data"]["name"]]
    return found


def test_one_factor_is_drawn_as_lines_with_bands(tmp_path: Path) -> None:
    figure, (spec,) = drawn(swept(tmp_path / "s", {"gateway.aqm.w_q": "0.001:0.1:log:3"}))
    assert [layer["mark"]["type"] for layer in spec["layer"]] == ["area", "line", "point"]
    x = spec["layer"][1]["encoding"]["x"]
    assert x["scale"]["type"] == "log"
    assert x["title"] == "gateway.aqm.w_q"
    assert spec["layer"][1]["encoding"]["y"]["title"] == "packets"
    values = [each for each in points(spec) if each["setting"] == "red"]
    assert [each["x"] for each in values] == pytest.approx([0.001, 0.01, 0.1])
    # Seeds 1, 2, 3 with a mean of 2: Student's half-width is 4.3027 / sqrt(3).
    assert [each["mean"] for each in values] == pytest.approx([2.01, 2.1, 3.0])
    assert values[0]["high"] - values[0]["mean"] == pytest.approx(4.3027 / 3**0.5, rel=1e-4)
    assert [name for name, _ in figure.legend] == ["red", "ared"]


def test_values_with_units_are_numbers_and_words_are_categories(tmp_path: Path) -> None:
    result = swept(tmp_path / "s", {"gateway.pep.delay": "5 ms,0.01 s,500 us,2 ms"})
    (axis,) = axes(result, result.frame())
    assert axis.title == "gateway.pep.delay [ms]"
    assert axis.values == ("500 us", "2 ms", "5 ms", "0.01 s")
    assert axis.numbers == pytest.approx({"500 us": 0.5, "2 ms": 2.0, "5 ms": 5.0, "0.01 s": 10.0})
    assert not axis.log
    result = swept(tmp_path / "t", {"gateway.transmit_queue.scheduler": "fifo,drr"}, seed=5)
    (axis,) = axes(result, result.frame())
    assert axis.numbers is None
    assert axis.values == ("drr", "fifo")


def test_wide_range_of_means_has_a_logarithmic_axis(tmp_path: Path) -> None:
    figure, (spec,) = drawn(swept(tmp_path / "s", {"gateway.pep.delay": "0 ms,1 ms,5 ms"}, settings=["red"]))
    y = spec["layer"][1]["encoding"]["y"]
    assert y["scale"]["type"] == "log"
    # Means of 2, 12 and 52; the lower end of the first interval, -0.48, is clipped.
    assert y["scale"]["domain"][0] == pytest.approx(1.4)
    assert min(each["low"] for each in points(spec)) == pytest.approx(1.4)
    assert y["axis"]["values"] == [2, 5, 10, 20, 50]
    assert "logarithmic" in figure.caption


def test_values_of_the_sweep_file_are_shown_unchanged(tmp_path: Path) -> None:
    result = swept(tmp_path / "s", {"gateway.aqm.w_q": "0.01:0.1:log:4"}, settings=["red"])
    (axis,) = axes(result, result.frame())
    assert list(axis.written.values()) == ["0.01", "0.0215", "0.0464", "0.1"]
    result = swept(tmp_path / "t", {"gateway.pep.delay": "1234 us,15 ms,1.5 ms"}, settings=["red"])
    (axis,) = axes(result, result.frame())
    assert list(axis.written.values()) == ["1.234 ms", "1.5 ms", "15 ms"]
    result = swept(tmp_path / "u", {"gateway.aqm.w_q": "0.01:0.0101:6"}, settings=["red"])
    (axis,) = axes(result, result.frame())
    assert len(set(axis.written.values())) == 6


def test_numbers_of_an_axis_can_be_told_apart(tmp_path: Path) -> None:
    close = swept(tmp_path / "s", {"gateway.aqm.w_q": "0.01:0.0101:6"}, settings=["red"])
    (axis,) = axes(close, close.frame())
    assert axis.x()["axis"]["format"] == ".4~r"
    # No 1, 2 or 5 of a decade lies in between.
    narrow = swept(tmp_path / "t", {"gateway.aqm.w_q": "0.03:0.045:log:10"}, settings=["red"])
    (axis,) = axes(narrow, narrow.frame())
    drawn_axis = axis.x()
    assert drawn_axis["scale"]["type"] == "log"
    assert "values" not in drawn_axis["axis"]


def test_two_factors_are_maps_with_a_common_scale(tmp_path: Path) -> None:
    vary = {"gateway.aqm.w_q": "0.02,0.2,0.1", "gateway.aqm.max_p": "0.5,0.1"}
    figure, specs = drawn(swept(tmp_path / "s", vary))
    assert [spec["title"]["text"] for spec in specs] == ["red", "ared"]
    scales = [spec["layer"][1]["encoding"]["color"]["scale"]["domain"] for spec in specs]
    assert scales[0] == scales[1] == pytest.approx([10 * 0.02 + 0.1 + 2, 10 * 0.2 + 0.5 + 2])
    assert specs[0]["layer"][0]["encoding"]["x"]["sort"] == ["0.02", "0.1", "0.2"]
    assert specs[0]["layer"][0]["encoding"]["y"]["sort"] == ["0.5", "0.1"]
    cells = {(each["x"], each["y"]): each["mean"] for each in points(specs[0])}
    assert len(cells) == 6
    assert cells["0.1", "0.5"] == pytest.approx(3.5)
    assert "one colour scale" in figure.caption


def test_three_factors_are_main_effects(tmp_path: Path) -> None:
    vary = {
        "gateway.aqm.w_q": "0.02,0.2",
        "gateway.aqm.max_p": "0.1,0.5",
        "gateway.pep.delay": "0 ms,4 ms",
    }
    figure, specs = drawn(swept(tmp_path / "s", vary, settings=["red"]))
    assert "the mean over all values of the other 2 factors" in figure.caption
    w_q, max_p, delay = (points(spec) for spec in specs)
    # The mean seed is 2; of max_p 0.3; of w_q 0.11, times ten.
    assert [each["mean"] for each in w_q] == pytest.approx([0.2 + 0.3 + 2, 2.0 + 0.3 + 2])
    assert [each["mean"] for each in max_p] == pytest.approx([1.1 + 0.1 + 2, 1.1 + 0.5 + 2])
    assert [each["mean"] for each in delay] == pytest.approx([3.4, 3.4])
    # The interval is over three seeds, not twelve runs.
    assert w_q[0]["high"] - w_q[0]["mean"] == pytest.approx(4.3027 / 3**0.5, rel=1e-4)


def test_seed_missing_at_some_points_does_not_change_main_effects(tmp_path: Path) -> None:
    vary = {
        "gateway.aqm.w_q": [0.02, 0.2],
        "gateway.aqm.max_p": [0.1, 0.5],
        "gateway.pep.delay": ["0 ms", "4 ms"],
    }
    swept(tmp_path / "s", vary, settings=["red"])
    more = swept(tmp_path / "s", vary | {"gateway.aqm.w_q": [0.2]}, settings=["red"], runs=9)
    assert set(more.frame()["seed"]) == set(range(1, 10))
    _, specs = drawn(more)
    assert [each["mean"] for each in points(specs[0])] == pytest.approx([2.5, 4.3])


def with_gaps(path: Path, is_gap: Callable[[Sweep, Run], bool]) -> SweepResult:
    """Eight points of three factors, three seeds each, where RED has no value in some runs."""
    vary = {"gateway.aqm.w_q": "0.01,0.1", "gateway.pep.delay": "0 ms,1 ms", "gateway.aqm.max_p": "0.1,0.5"}
    plan = Sweep.plan(
        "small-gateway", vary, overrides=SHORT, settings=["red", "ared"], runs=3, metrics=["queue_mean"]
    )

    class Gaps(_Known):
        def results(self, runs: Iterable[Run]) -> Generator[tuple[Run, Outcome] | None]:
            for run in runs:
                lacks = run.setting == "red" and is_gap(plan, run)
                yield run, NONE | {"queue_mean": None if lacks else known(run)}

    return execute(plan, path, workers=Gaps())


def test_main_effects_need_a_seed_with_values_at_all_points(tmp_path: Path) -> None:
    # Each seed lacks another point.
    figure, specs = drawn(with_gaps(tmp_path / "s", lambda plan, run: run.point == plan.points[run.seed - 1]))
    assert {each["setting"] for spec in specs for each in points(spec)} == {"ared"}
    assert "Without a seed that has values at all points: red." in figure.caption


def test_main_effects_say_which_settings_lack_points(tmp_path: Path) -> None:
    figure, specs = drawn(with_gaps(tmp_path / "s", lambda plan, run: run.point == plan.points[0]))
    assert {each["setting"] for spec in specs for each in points(spec)} == {"red", "ared"}
    assert "Points without a value are left out, which shifts the means of red (1 of 8)." in figure.caption


def test_main_effects_exclude_runs_of_an_older_build(tmp_path: Path) -> None:
    vary = {
        "gateway.aqm.w_q": [0.02, 0.2],
        "gateway.aqm.max_p": [0.1, 0.5],
        "gateway.pep.delay": ["0 ms", "4 ms"],
    }
    result = swept(tmp_path / "s", vary, settings=["red"])
    (part,) = (tmp_path / "s" / "data").rglob("*.parquet")
    older = pl.col("seed") > 1
    changed = pl.read_parquet(part).with_columns(
        core=pl.when(older).then(pl.lit("older")).otherwise("core"),
        queue_mean=pl.col("queue_mean") + pl.when(older).then(100).otherwise(0),
    )
    changed.write_parquet(part)
    (tmp_path / "s" / "SHA256SUMS").unlink()
    _, specs = drawn(result)
    # Only seed 1 is from this build.
    assert [each["mean"] for each in points(specs[0])] == pytest.approx([1.5, 3.3])


def test_sample_is_drawn_as_points(tmp_path: Path) -> None:
    vary = {"gateway.aqm.w_q": "0.01:0.1:log:2", "gateway.aqm.max_p": "0.1:0.9:2"}
    figure, specs = drawn(swept(tmp_path / "s", vary, settings=["red"], design="lhs", count=5))
    assert len(specs) == 2
    for spec in specs:
        assert [layer["mark"]["type"] for layer in spec["layer"]] == ["rule", "point"]
        assert len(points(spec)) == 5
    assert "one point of the design" in figure.caption


def test_page_has_a_table_even_without_figures(tmp_path: Path) -> None:
    result = swept(tmp_path / "s", {"gateway.aqm.w_q": "0.1,0.02"}, settings=["red"])
    page = render(result)
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", page)
    # Seeds 1 to 3: 2 + 0.2 and 2 + 1, each ± 4.3027 / sqrt(3), and the number of runs.
    assert cells[:6] == ["0.02", "3", "2.2 ± 2.5", "0.1", "3", "3.0 ± 2.5"]
    result = swept(tmp_path / "none", {}, settings=["red"], metrics=["queue_mean", "drops"])
    page = render(result)
    assert "data-chart" not in page.split("<script>")[0]
    assert "–" in page


def test_differences_are_listed_by_point(tmp_path: Path) -> None:
    page = render(swept(tmp_path / "s", {"gateway.aqm.w_q": "0.1,0.02"}))
    assert "ared minus red" in page
    assert "no difference seen" in page


def test_failed_runs_and_incomplete_sweeps_are_reported(tmp_path: Path) -> None:
    class _Failing(_Known):
        def results(self, runs: Iterable[Run]) -> Generator[tuple[Run, Outcome] | None]:
            for run in runs:
                values = NONE | {"queue_mean": known(run)}
                yield run, SimulationError("3 < 2 packets") if run.seed == 2 else values

    plan = Sweep.plan("small-gateway", {"gateway.aqm.w_q": "0.1,0.02"}, settings=["red"], runs=2)
    result = execute(plan, tmp_path / "s", workers=_Failing())
    page = render(result)
    assert "2 runs failed; the means exclude them" in page
    assert "3 &lt; 2 packets" in page
    assert "<code>gateway.aqm.w_q = 0.02</code>" in page
    manifest = tmp_path / "s" / "manifest.json"
    changed = json.loads(manifest.read_text()) | {"status": "incomplete"}
    files.write_json(manifest, files.sealed(changed))
    assert "The sweep is incomplete" in render(bp.open_sweep(tmp_path / "s"))
    changed["core"]["sha256"] = "another"
    files.write_json(manifest, files.sealed(changed))
    assert "2 runs come from another build" in render(bp.open_sweep(tmp_path / "s"))


def test_report_of_a_sweep_without_runs_is_an_error(tmp_path: Path) -> None:
    class _Broken(_Known):
        def results(self, runs: Iterable[Run]) -> Generator[tuple[Run, Outcome] | None]:
            for run in runs:
                yield run, SimulationError("no")

    plan = Sweep.plan("small-gateway", {}, settings=["red"], runs=1)
    with pytest.raises(ResultError, match="has no finished runs"):
        render(execute(plan, tmp_path / "s", workers=_Broken()))


def test_command_rewrites_the_report_with_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "s"
    swept(folder, {"gateway.aqm.w_q": "0.02,0.1"})
    figures = tmp_path / "figures"
    with pytest.raises(SystemExit) as left:
        app.main(["report", str(folder), "--figures", str(figures), "--as", "svg,png"])
    assert not left.value.code
    assert "Report:" in capsys.readouterr().out
    assert (folder / "report.html").read_text() == render(bp.open_sweep(folder))
    assert sorted(path.name for path in figures.iterdir()) == ["queue_mean.png", "queue_mean.svg"]
    # A separate file has its own axis titles and legend.
    for text in ("gateway.aqm.w_q", "Queue, mean [packets]", ">red<", ">ared<"):
        assert text in (figures / "queue_mean.svg").read_text()


def test_long_table_is_truncated_with_a_note(tmp_path: Path) -> None:
    result = swept(tmp_path / "s", {"gateway.aqm.w_q": "0.01:0.5:600"}, runs=2)
    page = render(result)
    assert "The first 1000 of 1,200 rows" in page
    assert page.count("<tr>") < 1010
    assert pl.DataFrame(result.rows())["runs"].sum() == 2400
