"""What the terminal shows of a reproduction."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console

from bentpipe.cli.console import grid
from bentpipe.format import brief
from bentpipe.reproduction.judged import CLAIM, FIGURE, RELATION, TABLE, Item
from bentpipe.reproduction.report import QUICK, beside, counted
from bentpipe.reproduction.shown import Shown, places

if TYPE_CHECKING:
    from bentpipe.reproduction import Reproduction

__all__ = ["show"]


def show(made: "Reproduction", out: Console) -> None:
    """Print every number, claim and figure of a paper with ours and its verdict, and how many of each."""
    judged, paper = made.judged, made.paper
    out.print(f"{paper.name}: {paper.source}", style="bold", markup=False)
    kinds: dict[str, list[Item]] = {TABLE: [], RELATION: [], CLAIM: [], FIGURE: []}
    for item in judged.items:
        if item.kind in kinds and (item.kind == TABLE or not item.variant):
            kinds[item.kind].append(item)
    own = {table.name: table.experiments[0] for table in paper.tables}
    if kinds[TABLE]:
        heads = ["where", "row", "what", "unit", "printed", "ours", "runs", "verdict"]
        out.print(grid(heads, [_number(item, own[item.name]) for item in kinds[TABLE]]))
    if kinds[RELATION]:
        heads = ["where", "so many times as much", "printed", "ours", "runs", "verdict"]
        out.print(grid(heads, [_relation(item) for item in kinds[RELATION]]))
    if kinds[CLAIM]:
        heads = ["claim", "what is said, and what came out", "verdict"]
        out.print(grid(heads, [_claim(item) for item in kinds[CLAIM]]))
    if kinds[FIGURE]:
        heads = ["figure", "what it shows, and what answers it", "verdict"]
        found = {item.name: item for item in kinds[FIGURE]}
        alike = _alike([(each, found[each.name]) for each in paper.shown])
        drawn = {picture.name for picture in paper.pictures}
        out.print(grid(heads, [_figures(some, drawn) for some in alike]))
    answers = {name for each in paper.shown for name in each.by}
    if beyond := [each.name for each in paper.pictures if each.name not in answers]:
        label = "In the report too" if kinds[FIGURE] else "In the report"
        out.print(f"{label}: {', '.join(beyond)}.", markup=False)
    labels = ("Printed numbers", "Rows to each other", "Claims", "Figures")
    for label, (kind, items) in zip(labels, kinds.items(), strict=True):
        if items:
            out.print(f"{label}: {counted(judged.counts(kind))}.", markup=False)
    for each in made.tuned:
        best = "; ".join(f"{one.aqm} {one.parameters}" for one in each.again if one.chosen)
        out.print(f"{each.experiment}, the best of {len(each.first)} settings: {best}.", markup=False)
    if made.quick:
        out.print(QUICK, markup=False)
    out.print(f"Report: {made.report}", markup=False)


def _number(item: Item, own: str) -> list[str]:
    """Return a row of the printed numbers; `own` is the experiment that is the paper's."""
    reading = "read otherwise" if item.experiment == own else item.experiment
    return [
        f"{item.where}, {reading}" if item.variant else item.where,
        item.row,
        item.text,
        item.unit,
        "–" if item.printed is None else brief(item.printed),
        beside(item),
        str(item.ours.runs),
        item.verdict,
    ]


def _relation(item: Item) -> list[str]:
    printed = "–" if item.printed is None else brief(item.printed, 4)
    return [item.where, item.text, printed, beside(item), str(item.ours.runs), item.verdict]


def _claim(item: Item) -> list[str]:
    why = "; ".join(part for part in (item.reason, item.in_print) if part)
    return [item.name, f"{item.text} ({item.where})\n{why}", item.verdict]


def _figures(some: Sequence[tuple[Shown, Item]], drawn: set[str]) -> list[str]:
    """Return the row of figures that are answered alike; `drawn` are the ids of our figures."""
    shown, item = some[0]
    pictures = [name for name in shown.by if name in drawn]
    answers = f"In the report: {', '.join(pictures)}; {item.reason}."
    return [places([each for each, _ in some]), f"{shown.text}\n{answers}", item.verdict]


def _alike(rows: Sequence[tuple[Shown, Item]]) -> list[list[tuple[Shown, Item]]]:
    """Return figures that follow each other and are answered alike together."""
    groups: list[list[tuple[Shown, Item]]] = []
    for shown, item in rows:
        last = groups[-1][0] if groups else None
        if last and (last[0].text, last[0].by, last[1].verdict) == (shown.text, shown.by, item.verdict):
            groups[-1].append((shown, item))
        else:
            groups.append([(shown, item)])
    return groups
