"""The lists of everything that the papers claim, compared with the committed files of all numbers."""

import csv
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bentpipe.reproduction.reading import load_paper, papers
from bentpipe.reproduction.rules import NO_NUMBER, VERDICTS
from reproduction_page import NOT_KNOWN, NOT_TRIED, STATEMENT, statements

DOCS = Path(__file__).parents[2] / "docs"
KINDS = ("sentence", "number", "figure", "table")
NUMBERED = {
    # Figures and tables of each text, by the numbers of the last ones of its chapters.
    ("byun2007", "dissertation", "figure"): [(1, 2), (2, 4), (3, 1), (4, 14), (5, 10), (6, 39)],
    ("byun2007", "dissertation", "table"): [(2, 1), (3, 2), (4, 3), (5, 2), (6, 3)],
    ("byun2007", "satellite paper", "figure"): [(0, 17)],
    ("byun-generic", "", "figure"): [(0, 8)],
    ("byun-generic", "", "table"): [(0, 6)],
    ("jain2004", "", "figure"): [(0, 2)],
    ("rahmani2011", "", "figure"): [(0, 16)],
    ("rahmani2011", "", "table"): [(0, 3)],
}
ROMAN = {
    ("byun2007", "satellite paper"): ["I", "II", "III", "IV"],
    ("jain2004", ""): ["I", "II", "III", "IV"],
}


def ledger(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader((DOCS / "reproduction" / f"{name}.csv").read_text("utf-8").splitlines()))


def named(row: Mapping[str, Any], paper: str) -> list[tuple[str, str]]:
    """Return the judging rows with their papers: `id`, or `paper: id` for a row of another one."""
    found = []
    for each in str(row["rows"]).split("; "):
        other, _, name = each.rpartition(": ")
        found += [(other or paper, name)] if name else []
    return found


@pytest.mark.parametrize("name", papers())
def test_every_claim_names_judged_rows_or_has_a_row_with_the_reason(name: str) -> None:
    claims = statements(load_paper(name))
    rows = ledger(name)
    judged = {
        (paper, row["id"])
        for paper in papers()
        for row in ledger(paper)
        if row["kind"] in ("table", "relation", "claim", "figure")
    }
    reasons = {row["id"]: row for row in rows if row["kind"] == STATEMENT}
    assert len({claim["id"] for claim in claims}) == len(claims)
    for claim in claims:
        assert claim["kind"] in KINDS
        assert claim["section"], claim
        assert claim["place"], claim
        if named(claim, name):
            assert set(named(claim, name)) <= judged, claim
            assert not claim["verdict"], claim
        else:
            assert claim["verdict"] in (NOT_TRIED, NOT_KNOWN), claim
            assert reasons[claim["id"]]["verdict"] == claim["verdict"]
            assert reasons[claim["id"]]["reason"], claim
    assert set(reasons) == {claim["id"] for claim in claims if not named(claim, name)}


@pytest.mark.parametrize("name", papers())
def test_nothing_is_judged_that_the_texts_do_not_claim(name: str) -> None:
    claimed = {
        row for paper in papers() for claim in statements(load_paper(paper)) for row in named(claim, paper)
    }
    for row in ledger(name):
        if row["verdict"] in set(VERDICTS) - {NO_NUMBER}:
            assert (name, row["id"]) in claimed, row["id"]


@pytest.mark.parametrize("name", papers())
def test_every_printed_cell_is_a_number_of_the_list(name: str) -> None:
    paper = load_paper(name)
    numbers = {
        row for claim in statements(paper) if claim["kind"] == "number" for _, row in named(claim, name)
    }
    for table in paper.tables:
        if table.variant:
            continue
        # Independent of the reader of tables: the file's own cells.
        cells = list(csv.DictReader(table.file.read_text("utf-8").splitlines()))
        key = next(iter(cells[0]))
        for column in table.columns:
            for cell in cells:
                if cell[column.name].strip():
                    assert f"{table.name}/{cell[key]}/{column.name}" in numbers


@pytest.mark.parametrize(("text", "chapters"), NUMBERED.items())
def test_figures_and_tables_of_the_list_are_numbered_without_a_gap(
    text: tuple[str, str, str], chapters: list[tuple[int, int]]
) -> None:
    name, source, kind = text
    found = Counter(
        re.findall(r"[\d.]+", claim["place"])[0]
        for claim in statements(load_paper(name))
        if (claim["source"], claim["kind"]) == (source, kind)
    )
    expected = [
        f"{chapter}.{number}" if chapter else str(number)
        for chapter, last in chapters
        for number in range(1, last + 1)
    ]
    assert found == Counter(expected)


@pytest.mark.parametrize(("text", "numbers"), ROMAN.items())
def test_tables_with_roman_numbers_are_all_in_the_list(text: tuple[str, str], numbers: list[str]) -> None:
    name, source = text
    found = [
        claim["place"].split()[1].strip(",")
        for claim in statements(load_paper(name))
        if (claim["source"], claim["kind"]) == (source, "table")
    ]
    assert sorted(found) == sorted(numbers)


def test_the_scoreboard_counts_the_claims_of_each_text() -> None:
    board = (DOCS / "reproduction.md").read_text(encoding="utf-8")
    table = board.partition("\n## What the texts claim\n")[2].partition("\n## ")[0]
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in table.splitlines()
        if line.startswith("| ")
    ]
    counted = {cells[0]: [int(cell) for cell in cells[1:]] for cells in lines[2:]}
    for name in papers():
        mine = {text: numbers for text, numbers in counted.items() if text.partition(",")[0] == name}
        untried = [
            sum(numbers[-2] for numbers in mine.values()),
            sum(numbers[-1] for numbers in mine.values()),
        ]
        found = Counter(row["verdict"] for row in ledger(name) if row["kind"] == STATEMENT)
        assert untried == [found[NOT_TRIED], found[NOT_KNOWN]]
        for numbers in mine.values():
            assert sum(numbers[:4]) == sum(numbers[4:])
