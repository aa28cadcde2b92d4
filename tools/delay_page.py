"""Renew docs/delay.md, its figures and its table: `make delay`.

Or `python tools/delay_page.py docs results/reproduce`.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from bentpipe import files
from bentpipe.format import quantity, with_unit
from bentpipe.report.comparison import picture
from bentpipe.report.panels import Figure, Panel
from bentpipe.reproduction import Reproduction, reproduce
from bentpipe.reproduction.figures import figure
from bentpipe.stats.intervals import summarise
from blocks import table
from reference import with_generated

__all__ = ["FIGURES", "renew", "tables"]

FIGURES = ("delay-operation", "delay-queue", "delay-timeouts")
"""Figures of byun2007 on the page."""
_MEASURES = ("throughput", "cv")
_WIDTH = 390
PAGE = "delay.md"


def tables(made: Reproduction, measures: Sequence[str] = _MEASURES) -> str:
    """Return measures of the first figure as Markdown, with a row per delay: means with 95 % intervals."""
    (shown,) = (each for each in made.paper.pictures if each.name == FIGURES[0])
    parts = []
    for name in measures:
        (measure,) = (each for each in shown.measures if each.name == name)
        rows = []
        for point in made.paper.experiments[shown.experiment].points:
            cells = []
            for case in shown.cases:
                found = summarise(made.verdicts.values(shown.experiment, case, measure, point.label))
                cells.append(quantity(found.mean, found.ci95))
            rows.append([point.label, *cells])
        heading = f"{with_unit(measure.label, measure.unit)}:"
        parts += [heading, "", table(["delay", *shown.cases], rows), ""]
    return "\n".join(parts)


def renew(docs: Path, out: Path) -> None:
    """Simulate the runs missing in `out`, and write the page's generated part and its figures."""
    (made,) = reproduce(["byun2007"], out=out, only=FIGURES)
    (docs / "figures").mkdir(exist_ok=True)
    for shown in made.paper.pictures:
        drawn = figure(made.verdicts, shown)
        panels = tuple(Panel(panel.chart.properties(width=_WIDTH)) for panel in drawn.panels)
        fixed = Figure(drawn.name, drawn.title, drawn.caption, panels, drawn.columns, drawn.legend)
        files.write(docs / "figures" / f"{shown.name}.svg", picture(fixed))
    page = docs / PAGE
    page.write_text(with_generated(page.read_text(encoding="utf-8"), tables(made), page), encoding="utf-8")


if __name__ == "__main__":
    renew(*map(Path, sys.argv[1:]))
