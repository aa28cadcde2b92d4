"""Drawings of the papers' named figures: which exist, and what they show."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bentpipe.report.vega import Chart
from bentpipe.reproduction.figures import figure, printed_figure
from bentpipe.reproduction.paper import PrintedFigure
from bentpipe.reproduction.reading import load_paper, papers
from paper_figures import FOLDER, PAGE, Kept, drawn_by, numbers_of, smaller
from reproduction_page import rebuilt, statements

DOCS = Path(__file__).parents[2] / "docs"


def kept(name: str, folder: Path) -> Kept:
    return Kept(load_paper(name), rebuilt(DOCS)[name]["items"], folder)


def values(chart: Chart) -> list[dict[str, Any]]:
    """Return the rows of all inline data of a chart."""
    return [row for rows in chart.to_dict()["datasets"].values() for row in rows]


@pytest.mark.parametrize("name", papers())
def test_every_named_figure_with_a_result_is_drawn_and_on_the_page(name: str) -> None:
    paper = load_paper(name)
    page = (DOCS / PAGE).read_text(encoding="utf-8")
    shown = {each.name for each in paper.figures if each.noun == "Figure"}
    listed = {row["rows"] for row in statements(paper) if row["kind"] == "figure" and row["rows"]}
    assert listed == shown
    for each in paper.figures:
        if each.noun == "Figure":
            path = f"{FOLDER}/{name}/{each.name}.svg"
            assert drawn_by(paper, each) is not None, each.where
            assert f"](../{path})" in page, "run `make paper-figures`"
            assert (DOCS / path).read_text(encoding="utf-8").startswith("<svg")
    drawn = {path.stem for path in (DOCS / FOLDER / name).glob("*.svg")}
    assert drawn == shown


@pytest.mark.parametrize("name", papers())
def test_pictures_of_means_show_the_committed_numbers(name: str, tmp_path: Path) -> None:
    found = kept(name, tmp_path)
    counted = 0
    for each in found.paper.figures:
        picture = drawn_by(found.paper, each) if each.noun == "Figure" else None
        if picture is not None and found.has(picture):
            svg = (DOCS / FOLDER / name / f"{each.name}.svg").read_text(encoding="utf-8")
            assert numbers_of(found, picture) in svg, f"{each.where}: run `make paper-figures`"
            counted += 1
    assert counted


def test_digest_of_a_picture_follows_each_number(tmp_path: Path) -> None:
    found = kept("jain2004", tmp_path)
    picture = drawn_by(found.paper, next(each for each in found.paper.figures if each.number == "1"))
    assert picture is not None
    before = numbers_of(found, picture)
    spot = found._spots[picture.name][-1]
    spot["ci_high"] += 0.001
    assert numbers_of(found, picture) != before
    spot["ci_high"] -= 0.001
    assert numbers_of(found, replace(picture, kind="series")) == ""


def test_a_printed_figure_shows_its_cases_alone(tmp_path: Path) -> None:
    found = kept("jain2004", tmp_path)
    one = next(each for each in found.paper.figures if each.number == "1")
    (short, _) = printed_figure(found, replace(one, cases=("SWF", "FIFO"))).panels  # type: ignore[union-attr]
    assert {row["curve"] for row in values(short.chart) if "curve" in row} == {"SWF", "FIFO"}
    all_cases = {each.curve for each in found.picture_values(drawn_by(found.paper, one))}  # type: ignore[arg-type]
    assert all_cases == {"SWF", "SSF", "DRR", "FIFO"}


def test_printed_gains_are_marked_in_the_first_panel(tmp_path: Path) -> None:
    found = kept("jain2004", tmp_path)
    two = next(each for each in found.paper.figures if each.number == "2")
    first, second = printed_figure(found, two).panels  # type: ignore[union-attr]
    # Section IV: up to 20 % over DRR and 70 % over FIFO.
    assert {20.0, 70.0} <= {row["level"] for row in values(first.chart) if "level" in row}
    assert not {20.0, 70.0} & {row["level"] for row in values(second.chart) if "level" in row}


def test_a_printed_figure_without_a_picture_is_not_drawn(tmp_path: Path) -> None:
    found = kept("jain2004", tmp_path)
    assert (
        printed_figure(found, PrintedFigure("figure-9", "Figure", "9", "", "None.", ("fifo-total",))) is None
    )


def test_an_input_is_drawn_with_its_fourier_series(tmp_path: Path) -> None:
    paper = load_paper("byun2007")
    picture = next(each for each in paper.pictures if each.name == "input-delay")
    (panel,) = figure(kept("byun2007", tmp_path), picture).panels
    options = picture.options
    series = [row["value"] for row in values(panel.chart) if row["name"] == "Fourier series"]
    # At the start all sines are 0 and all cosines 1; at half of the span the cosines alternate.
    begin = options["mean"] + sum(options["cos"])
    half = options["mean"] + sum(a * (-1) ** k for k, a in enumerate(options["cos"], start=1))
    assert series[0] == pytest.approx(1e3 * begin, rel=1e-4)
    assert series[len(series) // 2] == pytest.approx(1e3 * half, rel=1e-4)
    assert len(series) == len(options["measured"]) == 500
    assert math.isclose(options["interval"] * 500, 50)


def test_small_pictures_round_coordinates_and_no_text() -> None:
    svg = '<path aria-label="x: 1.234" d="M1.26,20.04L-0.333,2" role="x"/><text x="1.25">1.234</text>'
    assert smaller(svg) == '<path d="M1.3,20L-0.3,2"/><text x="1.2">1.234</text>\n'
