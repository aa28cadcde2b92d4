"""Printed figures: a row each, by what people call them, and what is simulated for one."""

import math
import shutil
from pathlib import Path

import pytest

from bentpipe.errors import UsageError
from bentpipe.reproduction import load_paper, papers, reproduce
from bentpipe.reproduction.judged import FIGURE, PICTURE
from bentpipe.reproduction.kinds import FIRST_RUN
from bentpipe.reproduction.paper import CLAIMS
from bentpipe.reproduction.part import called, part
from bentpipe.reproduction.runs import plan
from bentpipe.reproduction.shown import places, shown_from
from bentpipe.reproduction.table import Table


def numbers(first: int, last: int, chapter: str = "") -> list[str]:
    return [f"{chapter}{n}" for n in range(first, last + 1)]


PRINTED = {
    "byun2007": [
        *(f"figure-{n}" for n in numbers(2, 14, "4.")),
        *(f"figure-{n}" for n in numbers(1, 10, "5.")),
        *(f"figure-{n}" for n in numbers(1, 39, "6.")),
        *(f"satellite-paper-figure-{n}" for n in numbers(8, 17)),
    ],
    "byun-generic": [*(f"figure-{n}" for n in numbers(3, 8)), *(f"table-{n}" for n in numbers(3, 6))],
    "rahmani2011": ["figure-5", *(f"figure-{n}" for n in numbers(10, 16))],
    "jain2004": ["figure-1", "figure-2"],
}
"""Every figure of the papers, and every table whose numbers are lost."""


@pytest.mark.parametrize("name", sorted(papers()))
def test_every_printed_figure_has_a_row_and_is_answered(name: str) -> None:
    paper = load_paper(name)
    assert [each.name for each in paper.shown] == PRINTED[name]
    drawn = {picture.name for picture in paper.pictures}
    for each in paper.shown:
        assert each.text.endswith(".")
        assert not drawn.isdisjoint(each.by), "no picture"
        # As it is called in print, too.
        assert called([paper], [each.name]) == called([paper], [each.where]) == [each.name]
    answering = {one for each in paper.shown for one in each.by}
    for picture in paper.pictures:
        assert bool(picture.where) == (picture.name in answering)


@pytest.mark.parametrize("name", sorted(papers()))
def test_one_figure_has_no_more_simulated_than_it_needs(name: str) -> None:
    paper = load_paper(name)
    whole = plan(paper, quick=False)
    for shown in paper.shown:
        some = part(paper, [shown.name])
        cells = plan(some, quick=False)
        checks = [check for claim in some.claims for check in claim.checks]
        judged = {name for check in checks for name in (check.experiment, check.against) if name}
        wanted = {name for picture in some.pictures for name in picture.experiments} | judged
        assert {key[0] for key in cells} == wanted
        for key, cell in cells.items():
            # The same runs as of all of it, so that they are found again: the first ones.
            assert cell.digest == whole[key].digest
            assert cell.seeds == whole[key].seeds[: len(cell.seeds)]
            kinds = {each.kind for each in some.pictures if key[0] in each.experiments}
            if key[0] not in judged and kinds <= set(FIRST_RUN):
                assert len(cell.seeds) == 1
            else:
                assert cell.seeds == whole[key].seeds


def test_cases_and_points_that_a_figure_does_not_show_are_not_simulated() -> None:
    paper = load_paper("byun2007")
    cells = plan(part(paper, ["delay-queue"]), quick=False)
    assert {key[1] for key in cells} == {"RED 4", "AVQRED"}
    assert {key[2] for key in cells} == {"0 ms", "12 ms", "30 ms", "60 ms"}
    assert {key[1] for key in plan(part(paper, ["hardly-less"]), quick=False)} == {"RED 4", "AVQRED"}
    # Figure 6.1 follows from a law.
    assert not plan(part(paper, ["figure-6.1"]), quick=False)


@pytest.mark.parametrize("text", ["figure-4.5", "Figure 4.5", "figure 4-5", "fig. 4.5", "FIG 4.5", "4.5"])
def test_a_figure_is_found_as_people_write_it(text: str) -> None:
    assert called([load_paper("byun2007")], [text]) == ["figure-4.5"]


def test_tables_are_found_as_they_are_counted() -> None:
    some = [load_paper("jain2004"), load_paper("byun2007")]
    assert called(some, ["Table II", "table 4.2", "queue-4"]) == ["table-2", "table-4-2", "queue-4"]
    # The second reading of a table is not what its number means.
    assert called(some, ["Table 4.1"]) == ["table-4-1"]


def test_a_number_of_a_table_and_of_a_figure_is_asked_back() -> None:
    with pytest.raises(UsageError, match=r"--only 4\.2: there are several; allowed: table-4-2, figure-4\.2$"):
        called([load_paper("byun2007")], ["4.2"])
    with pytest.raises(
        UsageError, match=r"none of that id; allowed: figure-4\.2 to figure-4\.11, figure-4\.12 to"
    ):
        called([load_paper("byun2007")], ["figure-4.99"])


def test_where_several_stand_is_written_in_ranges() -> None:
    given = {"figures": ["5", "10 to 12", "14"], "shows": "It.", "by": ["x"]}
    some = shown_from(Table(given, "here"))
    assert [each.number for each in some] == ["5", "10", "11", "12", "14"]
    assert places(some) == "Figures 5, 10 to 12 and 14"
    other = shown_from(
        Table({"tables": ["3 to 4"], "of": "the other paper", "shows": "It.", "by": ["x"]}, "")
    )
    assert [each.name for each in other] == ["other-paper-table-3", "other-paper-table-4"]
    assert places([some[0], *other]) == "Figure 5, and tables 3 and 4 of the other paper"
    assert places([]) == ""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('figures = ["1"]', 'figures = ["1 to"]', "figures: found '1 to'; allowed: a number"),
        ('figures = ["1"]', 'figures = ["4.1 to 5.2"]', "figures: found '4.1 to 5.2'; allowed: a number"),
        ('figures = ["1"]', 'figures = ["2"]', "found the id 'figure-2' twice"),
        ('by = ["files-kb"', 'by = ["files"', "by: found 'files'; allowed: table-1"),
        ('shows = "By how', 'show = "By how', "printed[2].shows: missing; needed: a text"),
    ],
)
def test_wrong_entries_are_named(tmp_path: Path, old: str, new: str, said: str) -> None:
    folder = tmp_path / "paper"
    shutil.copytree(papers()["jain2004"], folder)
    path = folder / CLAIMS
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(UsageError) as raised:
        load_paper(folder)
    assert said in str(raised.value)


def test_figure_6_1_is_judged_without_a_simulation(tmp_path: Path) -> None:
    (made,) = reproduce(["byun2007"], out=tmp_path / "out", only=["Figure 6.1"])
    assert made.about["runs"] == made.about["new_runs"] == 0
    items = {item.name: item for item in made.judged.items}
    assert set(items) == {"figure-6.1", "cuts", "marks", "marks-1024"}
    # The worse of its two readings: ln(16/625) / ln 0.9 = 34.8, where 36 is printed.
    assert items["marks"].verdict == items["figure-6.1"].verdict == "not reproduced"
    assert items["marks"].ours.mean == math.ceil(math.log(16 / 625) / math.log(0.9))
    assert (items["figure-6.1"].kind, items["cuts"].kind) == (FIGURE, PICTURE)
    page = made.report.read_text(encoding="utf-8")
    assert 'id="figure-6.1"' in page
    assert 'href="#cuts"' in page


def test_the_discussion_of_a_part_says_only_what_the_whole_would() -> None:
    paper = load_paper("jain2004")
    numbers = [said for said in paper.said.values() if said.checks]
    assert numbers
    whole = part(paper, paper.ids)
    assert whole.discussion == paper.discussion
    cells = plan(whole, quick=False)
    for said in numbers:
        for check in said.checks:
            for point in check.points:
                for case in (check.more, check.than):
                    assert (
                        len(cells[check.experiment, case, point].seeds)
                        == paper.experiments[check.experiment].runs
                    )
    # A figure of other experiments leaves what needs no number.
    some = part(paper, ["files-size"])
    assert not any("{" in each for each in some.discussion)
    assert 0 < len(some.discussion) < len(paper.discussion)
    assert not some.said
