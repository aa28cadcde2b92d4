"""The page of a published evaluation's numbers beside ours."""

import re

import published_page as page
from bentpipe.reproduction.reading import load_paper
from bentpipe.reproduction.rules import REPRODUCED


def test_every_printed_number_counts_in_one_column() -> None:
    paper = load_paper(str(page._DATA))
    numbers = [
        {"id": table.name, "row": row, "verdict": REPRODUCED}
        for table in paper.tables
        for column in table.columns
        for row in column.printed
    ]
    shown = page._matrix(paper, numbers)
    # Six pairs of round trips with three columns each; two variants of a queue with two columns.
    assert "| CUBIC and CUBIC at 50 Mbit/s | 18 of 18 | 18 of 18 | 18 of 18 |  |  |" in shown
    assert "| Prague and CUBIC in one queue at 50 Mbit/s |  |  |  | 4 of 4 | 4 of 4 |" in shown
    assert sum(int(count) for count in re.findall(r" of (\d+)", "\n".join(shown))) == len(numbers)
