"""Result of a reproduction and its report: a page with every printed number, claim and figure beside ours."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bentpipe import files
from bentpipe.format import brief, clock, measured, number, plural
from bentpipe.pages import write_text
from bentpipe.report import vega
from bentpipe.report.colours import AXIS, INK
from bentpipe.report.decimate import short
from bentpipe.report.pages import page
from bentpipe.report.panels import Figure, Panel
from bentpipe.reproduction.figures import figure
from bentpipe.reproduction.paper import Paper, Picture, PrintedTable
from bentpipe.reproduction.rules import (
    CALIBRATED_AGREES,
    CALIBRATED_DIFFERS,
    DIRECTION_ONLY,
    MAGNITUDE_DIFFERS,
    NO_NUMBER,
    NOT_REPRODUCED,
    REPRODUCED,
    VERDICTS,
)
from bentpipe.reproduction.runs import Trial, Tuned
from bentpipe.reproduction.verdicts import CLAIM, FIGURE, RELATION, TABLE, Item, Verdicts
from bentpipe.stats.intervals import BOOTSTRAP, Summary

__all__ = [
    "QUICK",
    "SHADES",
    "VERDICTS_FILE",
    "Reproduction",
    "format_counts",
    "format_mean",
    "overview",
]

REPORT_FILE = "report.html"
VERDICTS_FILE = "verdicts.json"
QUICK = (
    "Quick: fewer and shorter runs than the paper's data specify. Verdicts may differ from those of a full"
    " reproduction."
)
SHADES = {
    REPRODUCED: "#0072B2",
    DIRECTION_ONLY: "#E69F00",
    NOT_REPRODUCED: "#D55E00",
    MAGNITUDE_DIFFERS: "#882255",
    CALIBRATED_AGREES: AXIS,
    CALIBRATED_DIFFERS: "#CC79A7",
    NO_NUMBER: "#4D4D4D",
}
"""Colours of the verdicts."""
_MAX_RATIO = 10.0
"""Ratios beyond it, or below its inverse, are drawn at the edge."""


@dataclass(frozen=True)
class Reproduction:
    """A paper with its verdicts."""

    paper: Paper
    verdicts: Verdicts
    folder: Path
    """Folder of its report."""
    quick: bool
    """True if runs were fewer and shorter than the paper's data specify."""
    about: dict[str, Any]
    """Version of Bentpipe, digest of its core, date, runs, and simulated and elapsed time."""
    tuned: tuple[Tuned, ...] = ()
    """Results of the searches for settings."""

    def rows(self) -> list[dict[str, Any]]:
        """Return every item as a JSON object, with the paper's name and `quick`."""
        label = {"paper": self.paper.name, "quick": self.quick}
        return [label | item.as_row() for item in self.verdicts.items]

    @property
    def report(self) -> Path:
        """Path of the report."""
        return self.folder / REPORT_FILE

    def save(self) -> Path:
        """Write the verdicts and the report, and return the report's path."""
        files.make_folder(self.folder)
        found = self.verdicts
        content = {
            **self.about,
            "discussion": found.discussion,
            "numbers": found.numbers,
            "items": self.rows(),
        }
        if self.tuned:
            content["tuned"] = [each.as_row() for each in self.tuned]
        files.write_json(self.folder / VERDICTS_FILE, content)
        return write_text(self.report, report_page(self))


def format_counts(counts: dict[str, int]) -> str:
    """Return the number of items by verdict as text: `3 reproduced; 1 calibrated, agrees`."""
    return "; ".join(f"{count} {verdict}" for verdict, count in counts.items()) or "none"


def format_mean(found: Summary) -> str:
    """Return a mean with its 95 % interval as text."""
    return measured(found.row() | {"method": found.method or BOOTSTRAP})


def overview(verdicts: Verdicts, table: PrintedTable, experiment: str) -> Figure | None:
    """Draw the ratio of ours to the printed value of every cell, with the prediction interval."""
    dots: list[dict[str, Any]] = [
        {"cell": f"{item.row}, {item.text}", "verdict": item.verdict} | ratio
        for item in verdicts.table_items(TABLE, table, experiment)
        if (ratio := _ratio(item)) is not None
    ]
    if not dots:
        return None
    labels = [dot["cell"] for dot in dots]
    spread = max(1.25, *(max(dot["ratio"], 1 / dot["ratio"]) for dot in dots))
    end = min(_MAX_RATIO, 1.08 * spread)
    for dot in dots:
        dot |= {
            key: short(min(max(dot[key], 1 / end), end)) for key in ("ratio", "low", "high") if key in dot
        }
    scale = vega.Scale(type="log", domain=[1 / end, end], nice=False, clamp=True)
    ticks = [tick for tick in (0.1, 0.2, 0.5, 0.8, 1, 1.25, 2, 5, 10) if 1 / end <= tick <= end]

    def x(name: str) -> vega.X:
        return vega.X(
            f"{name}:Q",
            title="ours over the printed value, logarithmic",
            scale=scale,
            axis=vega.Axis(values=ticks, format="~g", grid=True),
        )

    y = vega.Y(
        "cell:N",
        title=None,
        sort=labels,
        axis=vega.Axis(labelLimit=320, labelFontSize=11, labelColor=INK, labelPadding=12),
    )
    shade = {verdict: SHADES[verdict] for verdict in SHADES if any(dot["verdict"] == verdict for dot in dots)}
    colour = vega.Color(
        "verdict:N", scale=vega.Scale(domain=list(shade), range=list(shade.values())), legend=None
    )
    base = vega.Chart(vega.InlineData(values=dots)).encode(color=colour)
    chart = vega.layer(
        vega.Chart(vega.InlineData(values=[{"one": 1.0}])).mark_rule(color=INK).encode(x=x("one")),
        base.mark_rule(strokeWidth=1.5).encode(x=x("low"), x2="high:Q", y=y),
        base.mark_point(filled=True, size=70, opacity=1).encode(
            x=x("ratio"),
            y=y,
            tooltip=[
                vega.Tooltip("cell:N"),
                vega.Tooltip("verdict:N"),
                vega.Tooltip("ratio:Q", format=".3g"),
            ],
        ),
    ).properties(width="container", height=max(90, 20 * len(labels)))
    caption = "Bars are 95 % prediction intervals of one more run of ours."
    return Figure(f"{table.name}-{experiment}", "", caption, (Panel(chart),), 1, tuple(shade.items()))


def _ratio(item: Item) -> dict[str, float] | None:
    if not item.printed or item.ours.mean is None or item.ours.mean / item.printed <= 0:
        return None
    found = {"ratio": item.ours.mean / item.printed}
    low, high = item.predicted
    if low is not None and high is not None:
        found["low"] = max(low / item.printed, 1 / _MAX_RATIO)
        found["high"] = max(high / item.printed, 1 / _MAX_RATIO)
    return found


def report_page(made: Reproduction) -> str:
    """Return the report as HTML."""
    paper, verdicts, about = made.paper, made.verdicts, made.about
    drawn: list[Figure] = []
    tables = []
    for table in paper.tables:
        for experiment in table.experiments:
            items = verdicts.table_items(TABLE, table, experiment)
            if items:
                found = overview(verdicts, table, experiment)
                drawn += [found] if found else []
                tables.append(_table(made, table, experiment, items, found))
    drawn += [figure(verdicts, picture) for picture in paper.pictures]
    seeds = sorted({len(case.seeds) for case in verdicts.cases.values() if not case.fluid})
    each = f", {' or '.join(map(str, seeds))} of each case, each with its own seed" if seeds else ""
    summary = [
        ("Source", paper.source),
        ("Runs", f"{about['runs']}{each}"),
        ("Models solved", str(about["solutions"]) if about["solutions"] else "none"),
        ("Settings tried", ", ".join(str(len(one.first)) for one in made.tuned) or "none"),
        ("Simulated time", clock(round(about["simulated_seconds"])) if seeds else "none"),
        ("Made", f"with Bentpipe {about['version']} on {about['date']}{', quick' if made.quick else ''}"),
    ]
    return page(
        "reproduction.html.j2",
        drawn,
        title=f"{'Quick: ' if made.quick else ''}{paper.title}",
        kicker=f"Bentpipe {about['version']} · {about['date']} · reproduce {paper.name}",
        verdict=_verdict(verdicts),
        description=paper.about,
        summary=[(name, text) for name, text in summary if text != "none"],
        warnings=[QUICK] if made.quick else [],
        paper=paper,
        discussion=verdicts.discussion,
        verdicts=[(name, SHADES[name]) for name in VERDICTS],
        shades=SHADES,
        tables=tables,
        claims=[_claim(item) for item in verdicts.items if item.kind == CLAIM],
        shown=_printed_figures(made),
        pictures=[picture.name for picture in paper.pictures],
        listings={each.name: _listing(made, each) for each in paper.pictures if each.listed},
        tuned=[_tuned(made, each) for each in made.tuned],
        scenarios=_scenarios(made),
    )


def _verdict(verdicts: Verdicts) -> list[str]:
    """Return the number of printed numbers, ratios, claims and figures by verdict, as sentences."""
    kinds = (
        ("Printed numbers", TABLE),
        ("Ratios between rows", RELATION),
        ("Claims", CLAIM),
        ("Figures", FIGURE),
    )
    counts = [(name, verdicts.counts(kind)) for name, kind in kinds]
    return [f"{name}: {format_counts(found)}." for name, found in counts if found]


def _table(
    made: Reproduction, table: PrintedTable, experiment: str, items: Sequence[Item], drawn: Figure | None
) -> dict[str, Any]:
    first = experiment == table.experiments[0]
    relations = made.verdicts.table_items(RELATION, table, experiment)
    columns = [column for column in table.columns if any(item.column == column.name for item in items)]
    rows = []
    for row in table.rows:
        mine = {item.column: item for item in items if item.row == row}
        if mine:
            cells = [_cell(mine[each.name]) if each.name in mine else None for each in columns]
            rows.append({"name": row, "cells": cells})
    return {
        "id": table.name,
        "heading": f"{table.where}: {table.title}" if first else made.paper.experiments[experiment].title,
        "variant": table.variant or not first,
        "baseline": table.baseline,
        "columns": [{"label": each.measure.label, "unit": each.measure.unit} for each in columns],
        "rules": [f"{each.measure.label}: {each.rule.text}." for each in columns if each.rule and first],
        "rows": rows,
        "relations": [{"text": item.text, "calibrated": item.calibrated} | _cell(item) for item in relations],
        "relation_rules": [f"{each}." for each in dict.fromkeys(item.rule for item in relations)],
        "notes": list(dict.fromkeys(item.explanation for item in items if item.explanation)),
        "figure": drawn.name if drawn else None,
        "runs": plural(max(item.ours.runs for item in items), "run"),
    }


def _cell(item: Item) -> dict[str, str]:
    return {
        "printed": "–" if item.printed is None else brief(item.printed),
        "ours": format_mean(item.ours),
        "verdict": item.verdict,
        "reason": item.reason,
    }


def _claim(item: Item) -> dict[str, Any]:
    return item.as_row() | {"rule": "" if item.verdict == NO_NUMBER else item.rule}


def _printed_figures(made: Reproduction) -> list[dict[str, Any]]:
    """Return the printed figures, grouped by content and answers."""
    titles = {picture.name: picture.title for picture in made.paper.pictures}
    titles |= {claim.name: claim.text for claim in made.paper.claims}
    verdicts = {item.name: item.verdict for item in made.verdicts.items if item.kind == CLAIM}
    groups: list[dict[str, Any]] = []
    for item in made.verdicts.items:
        if item.kind != FIGURE:
            continue
        if not groups or (groups[-1]["text"], groups[-1]["by"]) != (item.text, item.by):
            answers = [(name, titles.get(name, ""), verdicts.get(name, "")) for name in item.by]
            groups.append({"text": item.text, "by": item.by, "answers": answers, "rows": []})
        groups[-1]["rows"].append(item.as_row())
    return groups


def _listing(made: Reproduction, picture: Picture) -> dict[str, Any]:
    """Return the numbers of a picture: a row per point and curve, a column per measure."""
    axis = made.paper.experiments[picture.experiment].axis
    values = made.verdicts.picture_values(picture)
    columns = list(dict.fromkeys((each.measure, each.unit) for each in values))
    rows: dict[tuple[str, ...], dict[tuple[Any, str], str]] = {}
    # Sorting is stable: curves stay in order at each point.
    for each in sorted(values, key=lambda one: (one.x, one.point)):
        names = (each.point, each.curve) if axis else (each.curve,)
        rows.setdefault(names, {})[each.measure, each.unit] = format_mean(each.found)
    return {
        "axis": axis,
        "columns": [{"label": each.label, "unit": unit} for each, unit in columns],
        "rows": [
            {"names": names, "cells": [cells.get(each, "–") for each in columns]}
            for names, cells in rows.items()
        ],
    }


def _tuned(made: Reproduction, found: Tuned) -> dict[str, Any]:
    """Return the trials of a search: the second round across AQMs, and all settings of each AQM."""
    measures = [each.measure for each in found.tuning.objectives]

    def rows(trials: Sequence[Trial]) -> list[dict[str, Any]]:
        return [
            {
                "place": each.place,
                "aqm": each.aqm,
                "parameters": each.parameters,
                "chosen": each.chosen,
                "total": f"{each.total:,}".replace(",", "\u202f"),
                "cells": [(number(each.values[one.name]), each.ranks[one.name]) for one in measures],
            }
            for each in trials
        ]

    return {
        "title": made.paper.experiments[found.experiment].title,
        "rule": found.rule,
        "heads": [(each.label, each.unit) for each in measures],
        "again": rows(found.again),
        "first": rows(found.first),
        "tried": len(found.first),
    }


def _scenarios(made: Reproduction) -> list[dict[str, Any]]:
    """Return each experiment with its changes to its scenario."""
    return [
        {
            "name": each.name,
            "title": each.title,
            "engine": "the model of " if each.fluid else "",
            "scenario": each.scenario.name,
            "changes": each.overrides + (each.quick_overrides if made.quick else ()),
            "cases": [(case.label, case.setting, case.overrides) for case in each.cases],
            "text": each.scenario.read_text(encoding="utf-8"),
        }
        for each in made.paper.experiments.values()
    ]
