"""What the terminal shows of a reproduction."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console

from bentpipe.console import grid
from bentpipe.reproduction.judged import CLAIM, FIGURE, PICTURE, RELATION, TABLE, Item
from bentpipe.reproduction.report import QUICK, beside, counted
from bentpipe.reproduction.shown import Shown, places
from bentpipe.wording import brief

if TYPE_CHECKING:
    from bentpipe.reproduction import Reproduction

__all__ = ["show"]


def show(made: "Reproduction", out: Console) -> None:
    """Print every printed number and claim of a paper with ours and its verdict, and how many of each."""
    judged, paper = made.judged, made.paper
    out.print(f"{paper.name}: {paper.source}", style="bold", markup=False)
    numbers = [
        [
            item.where if not item.variant else f"{item.where}, {item.experiment}",
            item.row,
            item.text,
            item.unit,
            "–" if item.printed is None else brief(item.printed),
            beside(item),
            str(item.ours.runs),
            item.verdict,
        ]
        for item in judged.items
        if item.kind == TABLE
    ]
    if numbers:
        heads = ["where", "row", "what", "unit", "printed", "ours", "runs", "verdict"]
        out.print(grid(heads, numbers))
    for item in judged.items:
        if item.kind in (TABLE, FIGURE, PICTURE) or item.variant:
            continue
        why = "; ".join(part for part in (item.reason, item.in_print) if part)
        out.print(f"{item.where}: {item.text} {item.verdict}: {why}", markup=False)
    figures = {item.name: item for item in judged.items if item.kind == FIGURE}
    for some in _alike([(each, figures[each.name]) for each in paper.shown]):
        shown, item = some[0]
        where = places([each for each, _ in some])
        answers = f"{item.reason} (see {', '.join(shown.by)})"
        out.print(f"{where}: {shown.text} {item.verdict}: {answers}", markup=False)
    kinds = (
        ("Printed numbers", TABLE),
        ("Rows to each other", RELATION),
        ("Claims", CLAIM),
        ("Figures", FIGURE),
    )
    counts = [f"{what}: {counted(judged.counts(kind))}." for what, kind in kinds if judged.counts(kind)]
    if counts:
        out.print(" ".join(counts), markup=False)
    for found in made.tuned:
        best = "; ".join(f"{each.aqm} {each.parameters}" for each in found.again if each.chosen)
        out.print(f"{found.experiment}, the best of {len(found.first)} settings: {best}.", markup=False)
    if made.quick:
        out.print(QUICK, markup=False)
    out.print(f"Report: {made.report}", markup=False)


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
