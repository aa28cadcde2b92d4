"""What the terminal shows of a reproduction."""

from typing import TYPE_CHECKING

from rich.console import Console

from bentpipe.console import grid
from bentpipe.reproduction.judged import CLAIM, RELATION, TABLE
from bentpipe.reproduction.report import QUICK, beside, counted
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
        if item.kind == TABLE or item.variant:
            continue
        why = "; ".join(part for part in (item.reason, item.in_print) if part)
        out.print(f"{item.where}: {item.text} {item.verdict}: {why}", markup=False)
    out.print(
        f"Printed numbers: {counted(judged.counts(TABLE))}. Rows to each other:"
        f" {counted(judged.counts(RELATION))}. Claims: {counted(judged.counts(CLAIM))}.",
        markup=False,
    )
    for found in made.tuned:
        best = "; ".join(f"{each.aqm} {each.parameters}" for each in found.again if each.chosen)
        out.print(f"{found.experiment}, the best of {len(found.first)} settings: {best}.", markup=False)
    if made.quick:
        out.print(QUICK, markup=False)
    out.print(f"Report: {made.report}", markup=False)
