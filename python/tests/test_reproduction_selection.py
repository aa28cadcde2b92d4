"""Printed figures: ids, the pictures and claims that correspond to them, and the runs that each needs."""

import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from bentpipe.errors import UsageError
from bentpipe.reproduction import load_paper, papers, reproduce
from bentpipe.reproduction.experiments import CLAIMS
from bentpipe.reproduction.paper import FIRST_RUN, format_locations, resolve_ids, select
from bentpipe.reproduction.reading import printed_figures_from
from bentpipe.reproduction.runs import plan
from bentpipe.reproduction.toml_table import TomlTable
from bentpipe.reproduction.verdicts import FIGURE, PICTURE


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
"""Ids of all figures of the papers, and of the tables whose numbers are lost."""


@pytest.mark.parametrize("name", sorted(papers()))
def test_every_printed_figure_has_an_item_and_a_picture(name: str) -> None:
    paper = load_paper(name)
    assert [each.name for each in paper.figures] == PRINTED[name]
    drawn = {picture.name for picture in paper.pictures}
    for each in paper.figures:
        assert each.text.endswith(".")
        assert not drawn.isdisjoint(each.by), "no picture"
        # Its printed name refers to it, too.
        assert resolve_ids([paper], [each.name]) == resolve_ids([paper], [each.where]) == [each.name]
    answering = {one for each in paper.figures for one in each.by}
    for picture in paper.pictures:
        assert bool(picture.where) == (picture.name in answering)


@pytest.mark.parametrize("name", sorted(papers()))
def test_a_selected_figure_plans_only_the_runs_that_it_needs(name: str) -> None:
    paper = load_paper(name)
    whole = plan(paper, quick=False)
    for shown in paper.figures:
        some = select(paper, [shown.name])
        cells = plan(some, quick=False)
        checks = [check for claim in some.claims for check in claim.checks]
        judged = {name for check in checks for name in (check.experiment, check.against) if name}
        wanted = {name for picture in some.pictures for name in picture.experiments} | judged
        assert {key[0] for key in cells} == wanted
        for key, cell in cells.items():
            # They are the first runs of the whole paper, so stored ones are found.
            assert cell.digest == whole[key].digest
            assert cell.seeds == whole[key].seeds[: len(cell.seeds)]
            kinds = {each.kind for each in some.pictures if key[0] in each.experiments}
            if key[0] not in judged and kinds <= set(FIRST_RUN):
                assert len(cell.seeds) == 1
            else:
                assert cell.seeds == whole[key].seeds


def test_a_selected_figure_plans_only_its_cases_and_points() -> None:
    paper = load_paper("byun2007")
    cells = plan(select(paper, ["delay-queue"]), quick=False)
    assert {key[1] for key in cells} == {"RED 4", "AVQRED"}
    assert {key[2] for key in cells} == {"0 ms", "12 ms", "30 ms", "60 ms"}
    assert {key[1] for key in plan(select(paper, ["hardly-less"]), quick=False)} == {"RED 4", "AVQRED"}
    # Figure 6.1 follows from a formula.
    assert not plan(select(paper, ["figure-6.1"]), quick=False)


@pytest.mark.parametrize("text", ["figure-4.5", "Figure 4.5", "figure 4-5", "fig. 4.5", "FIG 4.5", "4.5"])
def test_ids_are_found_in_every_usual_notation(text: str) -> None:
    assert resolve_ids([load_paper("byun2007")], [text]) == ["figure-4.5"]


def test_tables_are_found_by_their_printed_numbers() -> None:
    some = [load_paper("jain2004"), load_paper("byun2007")]
    assert resolve_ids(some, ["Table II", "table 4.2", "queue-4"]) == ["table-2", "table-4-2", "queue-4"]
    # A variant of a table is not found by its printed number.
    assert resolve_ids(some, ["Table 4.1"]) == ["table-4-1"]


def test_a_number_of_both_a_table_and_a_figure_is_ambiguous() -> None:
    with pytest.raises(UsageError, match=r"--only 4\.2: ambiguous; allowed: table-4-2, figure-4\.2$"):
        resolve_ids([load_paper("byun2007")], ["4.2"])
    with pytest.raises(UsageError, match=r"unknown id; allowed: figure-4\.2 to figure-4\.14, figure-5\.1 to"):
        resolve_ids([load_paper("byun2007")], ["figure-4.99"])


def test_an_id_of_several_papers_is_ambiguous() -> None:
    paper = load_paper("jain2004")
    other = replace(paper, name="jain2005")
    for text in ("table-1", "Table I"):
        with pytest.raises(UsageError, match=rf"--only {text}: ambiguous: jain2004 and jain2005 have"):
            resolve_ids([paper, other], [text])


def test_locations_of_several_figures_are_written_as_ranges() -> None:
    given = {"figures": ["5", "10 to 12", "14"], "shows": "It.", "by": ["x"]}
    some = printed_figures_from(TomlTable(given, "here"), ["x"])
    assert [each.number for each in some] == ["5", "10", "11", "12", "14"]
    assert format_locations(some) == "Figures 5, 10 to 12 and 14"
    other = printed_figures_from(
        TomlTable({"tables": ["3 to 4"], "of": "the other paper", "shows": "It.", "by": ["x"]}, ""), ["x"]
    )
    assert [each.name for each in other] == ["other-paper-table-3", "other-paper-table-4"]
    assert format_locations([some[0], *other]) == "Figure 5, and tables 3 and 4 of the other paper"
    assert format_locations([]) == ""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('figures = ["1"]', 'figures = ["1 to"]', "figures: found '1 to'; allowed: a number"),
        ('figures = ["1"]', 'figures = ["4.1 to 5.2"]', "figures: found '4.1 to 5.2'; allowed: a number"),
        ('figures = ["1"]', 'figures = ["2"]', "found the id 'figure-2' twice"),
        ('by = ["files-kb"', 'by = ["files"', "by: found 'files'; allowed: table-1"),
        ('shows = "Improvement', 'show = "Improvement', "printed[2].shows: missing; needed: a string"),
    ],
)
def test_wrong_entries_are_rejected_with_key_and_value(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    folder = tmp_path / "paper"
    shutil.copytree(papers()["jain2004"], folder)
    path = folder / CLAIMS
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(UsageError) as raised:
        load_paper(folder)
    assert message in str(raised.value)


def test_figure_6_1_is_judged_without_a_simulation(tmp_path: Path) -> None:
    (made,) = reproduce(["byun2007"], out=tmp_path / "out", only=["Figure 6.1"])
    assert made.about["runs"] == made.about["new_runs"] == 0
    items = {item.name: item for item in made.verdicts.items}
    assert set(items) == {"figure-6.1", "cuts", "marks", "marks-1024"}
    # The worse of its two interpretations: ln(16/625) / ln 0.9 = 34.8, where 36 is printed.
    assert items["marks"].verdict == items["figure-6.1"].verdict == "not reproduced"
    assert items["marks"].ours.mean == math.ceil(math.log(16 / 625) / math.log(0.9))
    assert (items["figure-6.1"].kind, items["cuts"].kind) == (FIGURE, PICTURE)
    page = made.report.read_text(encoding="utf-8")
    assert 'id="figure-6.1"' in page
    assert 'href="#cuts"' in page


def test_the_discussion_of_a_selection_has_only_numbers_of_complete_runs() -> None:
    paper = load_paper("jain2004")
    numbers = [each for each in paper.numbers.values() if each.checks]
    assert numbers
    whole = select(paper, paper.ids)
    assert whole.discussion == paper.discussion
    cells = plan(whole, quick=False)
    for number in numbers:
        for check in number.checks:
            for point in check.points:
                for case in (check.more, check.than):
                    assert (
                        len(cells[check.experiment, case, point].seeds)
                        == paper.experiments[check.experiment].runs
                    )
    # Selecting a figure of other experiments keeps the paragraphs without numbers.
    some = select(paper, ["files-size"])
    assert not any("{" in each for each in some.discussion)
    assert 0 < len(some.discussion) < len(paper.discussion)
    assert not some.numbers
