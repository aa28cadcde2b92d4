"""Terminal output of a reproduction: tables of its verdicts."""

from collections.abc import Sequence
from itertools import groupby

from rich.console import Console

from bentpipe.cli.console import grid
from bentpipe.format import brief
from bentpipe.reproduction import Reproduction
from bentpipe.reproduction.paper import PrintedFigure, format_locations
from bentpipe.reproduction.report import QUICK, format_counts, format_mean
from bentpipe.reproduction.verdicts import CLAIM, FIGURE, RELATION, TABLE, Item

__all__ = ["show"]


def show(made: Reproduction, out: Console) -> None:
    """Print every number, claim and figure of a paper with its verdict, and their counts."""
    verdicts, paper = made.verdicts, made.paper
    out.print(f"{paper.name}: {paper.source}", style="bold", markup=False)
    kinds: dict[str, list[Item]] = {TABLE: [], RELATION: [], CLAIM: [], FIGURE: []}
    for item in verdicts.items:
        if item.kind in kinds and (item.kind == TABLE or not item.variant):
            kinds[item.kind].append(item)
    own = {table.name: table.experiments[0] for table in paper.tables}
    if kinds[TABLE]:
        heads = ["where", "row", "measure", "unit", "printed", "ours", "runs", "verdict"]
        out.print(grid(heads, [_number(item, own[item.name]) for item in kinds[TABLE]]))
    if kinds[RELATION]:
        heads = ["where", "ratio", "printed", "ours", "runs", "verdict"]
        out.print(grid(heads, [_relation(item) for item in kinds[RELATION]]))
    if kinds[CLAIM]:
        heads = ["claim", "text and result", "verdict"]
        out.print(grid(heads, [_claim(item) for item in kinds[CLAIM]]))
    if kinds[FIGURE]:
        heads = ["figure", "content and corresponding pictures", "verdict"]
        found = {item.name: item for item in kinds[FIGURE]}
        rows = [(each, found[each.name]) for each in paper.figures]
        groups = groupby(rows, key=lambda row: (row[0].text, row[0].by, row[1].verdict))
        drawn = {picture.name for picture in paper.pictures}
        out.print(grid(heads, [_figures(list(some), drawn) for _, some in groups]))
    answers = {name for each in paper.figures for name in each.by}
    if others := [each.name for each in paper.pictures if each.name not in answers]:
        label = "Also in the report" if kinds[FIGURE] else "In the report"
        out.print(f"{label}: {', '.join(others)}.", markup=False)
    labels = ("Printed numbers", "Ratios between rows", "Claims", "Figures")
    for label, (kind, items) in zip(labels, kinds.items(), strict=True):
        if items:
            out.print(f"{label}: {format_counts(verdicts.counts(kind))}.", markup=False)
    for each in made.tuned:
        best = "; ".join(f"{one.aqm} {one.parameters}" for one in each.again if one.chosen)
        out.print(f"{each.experiment}, the best of {len(each.first)} settings: {best}.", markup=False)
    if made.quick:
        out.print(QUICK, markup=False)
    out.print(f"Report: {made.report}", markup=False)


def _number(item: Item, own: str) -> list[str]:
    """Return a row of the printed numbers; `own` is the paper's experiment."""
    variant = "other interpretation" if item.experiment == own else item.experiment
    return [
        f"{item.where}, {variant}" if item.variant else item.where,
        item.row,
        item.text,
        item.unit,
        "–" if item.printed is None else brief(item.printed),
        format_mean(item.ours),
        str(item.ours.runs),
        item.verdict,
    ]


def _relation(item: Item) -> list[str]:
    printed = "–" if item.printed is None else brief(item.printed, 4)
    return [item.where, item.text, printed, format_mean(item.ours), str(item.ours.runs), item.verdict]


def _claim(item: Item) -> list[str]:
    reason = "; ".join(part for part in (item.reason, item.in_print) if part)
    return [item.name, f"{item.text} ({item.where})\n{reason}", item.verdict]


def _figures(some: Sequence[tuple[PrintedFigure, Item]], drawn: set[str]) -> list[str]:
    """Return the row of consecutive printed figures with the same content and verdict."""
    figure, item = some[0]
    pictures = [name for name in figure.by if name in drawn]
    answers = f"In the report: {', '.join(pictures)}; {item.reason}."
    return [format_locations([each for each, _ in some]), f"{figure.text}\n{answers}", item.verdict]
