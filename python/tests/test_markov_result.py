"""The Markov model's result: from the command to the folder, the page and its figures."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from conftest import Command

import bentpipe as bp
from bentpipe.models import markov, markov_result
from bentpipe.models.fluid import QUANTITIES
from bentpipe.report.markov import figures, markov_page
from bentpipe.report.pages import specification


@pytest.fixture(scope="module")
def solution() -> markov_result.Solution:
    return markov_result.solve(bp.load("mmpp-queue"))


def test_markov_command_prints_both_numbers_of_states(bentpipe: Command, tmp_path: Path) -> None:
    done = bentpipe("model", "mmpp-queue", "--out", "here", check=0)
    lines = done.stdout.splitlines()
    assert lines.index("16 states") < lines.index("8 states")
    assert done.stdout.count("video: loss") == 2
    assert "web + ftp: delay" in done.stdout
    assert "Report: here/report.html" in done.stdout
    assert {path.name for path in (tmp_path / "here").iterdir()} == {
        "manifest.json",
        "comparison.json",
        "quantities.parquet",
        "distribution.parquet",
        "control.parquet",
        "report.html",
    }


def test_stdout_has_only_json(bentpipe: Command, tmp_path: Path) -> None:
    done = bentpipe(
        "model", "mmpp-queue", "--settings", "drop tail", "--format", "json", "--out", "here", check=0
    )
    rows = json.loads(done.stdout)
    assert {(row["setting"], row["states"]) for row in rows} == {("drop tail", 16), ("drop tail", 8)}
    assert pl.read_parquet(tmp_path / "here" / "quantities.parquet").to_dicts() == rows
    manifest = json.loads((tmp_path / "here" / "manifest.json").read_text())
    assert manifest["model"]["kind"] == "markov"
    # An existing folder is rejected, and replaced only with --force.
    assert "exists already" in bentpipe("model", "mmpp-queue", "--out", "here", check=2).stderr
    bentpipe("model", "mmpp-queue", "--out", "here", "--force", check=0)


def test_scenario_sets_stages_and_states(bentpipe: Command) -> None:
    done = bentpipe(
        "model", "mmpp-queue", "--set", "model.erlang_stages=2", "--set", "model.states=4",
        "--settings", "drop tail", "--format", "json", check=0,
    )  # fmt: skip
    rows = [row for row in json.loads(done.stdout) if row["quantity"] == "queue_mean"]
    scenario = bp.load("mmpp-queue").with_setting("drop tail")
    assert [row["states"] for row in rows] == [16, 4]
    expected = [markov.of(scenario, stages=2, states=states).queue.queue_mean for states in (16, 4)]
    assert [row["value"] for row in rows] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ["mmpp-queue", "--set", "model.states=5"],
            "states is 5, but merging the last classes gives 16, 8, 4, 2",
        ),
        (
            ["mmpp-queue", "--settings", "red"],
            "setting red: link.bottleneck.queue.aqm: red, but the Markov model",
        ),
        (["small-gateway", "--set", "model.kind=markov"], "the Markov model takes a link with a queue"),
        (["mmpp-queue", "--set", "traffic.web.on=1 s"], "traffic.web.on: fixed, but the Markov model takes"),
        (["mmpp-queue", "--set", "traffic.web.rate=0 bps"], "traffic.web.rate"),
    ],
)
def test_unsolvable_scenario_gives_one_message(
    bentpipe: Command, tmp_path: Path, arguments: list[str], text: str
) -> None:
    done = bentpipe("model", *arguments, "--out", "here", check=2)
    assert text in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "here").exists()


def test_note_reports_ignored_link(bentpipe: Command) -> None:
    done = bentpipe("model", "mmpp-queue", "--set", "link.in.rate=50 Mbps", check=0)
    assert "Note: link.in is ignored" in done.stdout
    assert "Note: video, multimedia, web, ftp: Poisson while on" in done.stdout


def values(chart: dict[str, Any]) -> list[dict[str, Any]]:
    data = chart["data"]
    found: list[dict[str, Any]] = data["values"] if "values" in data else chart["datasets"][data["name"]]
    return found


def test_figures_match_the_tables(solution: markov_result.Solution) -> None:
    queue, loss, delay = figures(solution)
    assert [figure.name for figure in (queue, loss, delay)] == [
        "queue-distribution",
        "control-loss",
        "control-delay",
    ]
    assert len(queue.panels) == len(solution.settings) == 3
    first = values(specification(queue.panels[0].chart))
    assert {row["states"] for row in first} == {"16 states", "8 states"}
    sixteen = {row["packets"]: row["probability"] for row in first if row["states"] == "16 states"}
    assert sixteen[100] == solution.results["drop tail"][0].queue.distribution[100]
    for figure, of in ((loss, "loss"), (delay, "delay")):
        panels = [values(specification(panel.chart)) for panel in figure.panels]
        assert [{row["class"] for row in panel} for panel in panels] == [
            {"video", "multimedia", "web", "ftp"},
            {"video", "multimedia", "web + ftp"},
        ]
        for panel, found in zip(panels, solution.control.values(), strict=True):
            assert {row["threshold"] for row in panel} == {
                100 * one.threshold for one in found if one.threshold
            }
            at = next(row for row in panel if row["threshold"] == 25 and row["class"] == "video")
            factor = 100 if of == "loss" else 1e3
            assert at["value"] == factor * getattr(found[0].queue.classes[0], of)


def test_common_quantities_have_the_names_of_fluid_models(solution: markov_result.Solution) -> None:
    rows = solution.compared()
    count = len(QUANTITIES)
    assert [row["quantity"] for row in rows[:count]] == [each.name for each in QUANTITIES]
    assert [row["unit"] for row in rows[:count]] == [each.unit for each in QUANTITIES]
    queue = solution.results["drop tail"][0].queue
    assert rows[2]["mean"] == queue.queue_mean
    assert rows[2]["std"] == queue.queue_std
    assert rows[5]["mean"] == 100 * queue.loss
    assert rows[count]["quantity"] == f"loss_rate.{queue.classes[0].name}"
    assert rows[count]["mean"] == 100 * queue.classes[0].loss


def test_page_has_all_charts(solution: markov_result.Solution) -> None:
    page = markov_page(solution)
    assert page.count("data-chart=") == 3 + 2 + 2
    assert "Four classes of on/off sources" in page
    assert "http://" not in page.split("<script>")[0]
