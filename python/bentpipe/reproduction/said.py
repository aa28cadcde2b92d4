"""The numbers of a paper's discussion, computed from its runs."""

import math
import re
from collections.abc import Iterator

from bentpipe.format import brief
from bentpipe.reproduction.judged import TABLE, Judged
from bentpipe.reproduction.paper import FIELD, Said
from bentpipe.reproduction.rules import mean_of

__all__ = ["discussion"]


def discussion(judged: Judged) -> list[str]:
    """Return the paragraphs of a paper's discussion, with their numbers.

    A paragraph with a number of what was not simulated is left out.
    """
    numbers = {name: _text(judged, said) for name, said in judged.paper.said.items()}
    return [
        re.sub(FIELD, lambda field: numbers[field[1]], paragraph)
        for paragraph in judged.paper.discussion
        if all(numbers[name] for name in re.findall(FIELD, paragraph))
    ]


def _text(judged: Judged, said: Said) -> str:
    """Write a number as it is said: one, or the range of several; empty where there is none."""
    values = list(_printed(judged, said) if said.tables else _compared(judged, said))
    if not values or any(map(math.isnan, values)):
        return ""
    low, high = (brief(each, 2) for each in (min(values), max(values)))
    if said.kind == "off print":
        # What matters is the furthest.
        low = high
    unit = "" if said.kind.startswith("times") else " %"
    return f"{low}{unit}" if low == high else f"{low} to {high}{unit}"


def _compared(judged: Judged, said: Said) -> Iterator[float]:
    """Yield how one case is to another, the mean over the runs, of every comparison that was simulated."""
    for check in said.checks:
        for point in check.points:
            ours = judged.values(check.experiment, check.more, check.measure, point)
            theirs = judged.values(check.experiment, check.than, check.measure, point)
            if not ours or not theirs:
                continue
            ratio = mean_of(
                [a / b if a is not None and b else None for a, b in zip(ours, theirs, strict=True)]
            )
            if ratio is None:
                yield math.nan
            elif said.kind == "times":
                yield ratio
            else:
                yield 100 * (1 - ratio if said.kind == "less" else ratio - 1)


def _printed(judged: Judged, said: Said) -> Iterator[float]:
    """Yield how ours is to the printed number, of every cell: times, or by how many per cent off."""
    for item in judged.items:
        if item.kind != TABLE or item.name not in said.tables:
            continue
        if said.cells.hold(item.row, item.column, item.experiment):
            ours, printed = item.ours.mean, item.printed
            if ours is None or not printed:
                yield math.nan
            else:
                yield ours / printed if said.kind == "times print" else 100 * abs(ours / printed - 1)
