"""The report of a reproduction: one page with every printed number, claim and figure beside ours."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bentpipe.format import brief, clock, measured, number, plural
from bentpipe.report.charts import Figure
from bentpipe.report.pages import page
from bentpipe.reproduction.figures import SHADES, figure, overview
from bentpipe.reproduction.judged import CLAIM, FIGURE, PICTURE, RELATION, TABLE, Item
from bentpipe.reproduction.paper import Picture, Printed
from bentpipe.reproduction.rules import NO_NUMBER, VERDICTS
from bentpipe.reproduction.said import discussion
from bentpipe.reproduction.tuned import Trial, Tuned
from bentpipe.stats.intervals import BOOTSTRAP

if TYPE_CHECKING:
    from bentpipe.reproduction import Reproduction
    from bentpipe.reproduction.measures import Measure

__all__ = ["QUICK", "beside", "counted", "report_page"]

QUICK = (
    "Quick: fewer and shorter runs than the paper's data ask for. Verdicts may be others than those of a full"
    " reproduction."
)


def counted(counts: dict[str, int]) -> str:
    """Write how many items have each verdict: `3 reproduced, 1 calibrated`."""
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items()) or "none"


def beside(item: Item) -> str:
    """Write ours with its 95 % interval."""
    return measured(item.as_row() | {"ci95": item.ours.ci95, "method": item.ours.method or BOOTSTRAP})


def report_page(made: "Reproduction") -> str:
    """Return the report as HTML."""
    paper, judged, about = made.paper, made.judged, made.about
    drawn: list[Figure] = []
    tables = []
    for table in paper.tables:
        for experiment in table.experiments:
            items = [
                item
                for item in judged.items
                if item.kind == TABLE and item.name == table.name and item.experiment == experiment
            ]
            if items:
                shown = overview(judged, table, experiment)
                drawn += [shown] if shown else []
                first = experiment == table.experiments[0]
                between = [
                    item
                    for item in judged.items
                    if first and item.kind == RELATION and item.name == table.name
                ]
                tables.append(_table(made, table, experiment, items, shown, between))
    drawn += [figure(judged, picture) for picture in paper.pictures]
    seeds = sorted({len(cell.seeds) for cell in judged.cells.values() if not cell.fluid})
    each = f", {' or '.join(map(str, seeds))} of each case, each with its own seed" if seeds else ""
    summary = [
        ("Source", paper.source),
        ("Printed numbers", counted(judged.counts(TABLE))),
        ("How rows are to each other", counted(judged.counts(RELATION))),
        ("Claims", counted(judged.counts(CLAIM))),
        ("Figures", counted(judged.counts(FIGURE))),
        ("Runs", f"{about['runs']}{each}"),
        ("Models solved", str(about["solutions"]) if about["solutions"] else "none"),
        ("Settings tried", ", ".join(str(len(each.first)) for each in made.tuned) or "none"),
        ("Simulated time", clock(round(about["simulated_seconds"])) if seeds else "none"),
        ("Made", f"with Bentpipe {about['version']} on {about['date']}{', quick' if made.quick else ''}"),
    ]
    return page(
        "reproduction.html.j2",
        drawn,
        title=f"{'Quick: ' if made.quick else ''}{paper.title}",
        kicker=f"Bentpipe {about['version']} · {about['date']} · reproduce {paper.name}",
        description=paper.about,
        summary=[(name, text) for name, text in summary if text != "none"],
        warnings=[QUICK] if made.quick else [],
        paper=paper,
        discussion=discussion(judged),
        verdicts=[(each, SHADES[each]) for each in VERDICTS],
        shades=SHADES,
        tables=tables,
        claims=[_claim(item) for item in judged.items if item.kind == CLAIM],
        shown=_shown(made),
        pictures=[picture.name for picture in paper.pictures],
        listings={
            each.name: _listing(made, each, item)
            for each in paper.pictures
            for item in judged.items
            if each.listed and item.kind == PICTURE and item.name == each.name
        },
        tuned=[_tuned(made, each) for each in made.tuned],
        scenarios=_scenarios(made),
    )


def _table(
    made: "Reproduction",
    table: Printed,
    experiment: str,
    items: Sequence[Item],
    shown: Figure | None,
    between: Sequence[Item],
) -> dict[str, Any]:
    columns = [column for column in table.columns if any(item.column == column.name for item in items)]
    rows = []
    for row in table.rows:
        mine = {item.column: item for item in items if item.row == row}
        if mine:
            rows.append({"name": row, "cells": [_cell(mine.get(column.name)) for column in columns]})
    notes = list(dict.fromkeys(item.explanation for item in items if item.explanation))
    first = experiment == table.experiments[0]
    return {
        "id": table.name,
        "heading": f"{table.where}: {table.title}" if first else made.paper.experiments[experiment].title,
        "variant": table.beside or not first,
        "baseline": table.baseline,
        "columns": [{"label": each.measure.label, "unit": each.measure.unit} for each in columns],
        "rules": [f"{each.measure.label}: {each.rule.text}." for each in columns if each.rule]
        if first
        else [],
        "rows": rows,
        "relations": [_relation(item) for item in between],
        "relation_rules": [f"{each}." for each in dict.fromkeys(item.rule for item in between)],
        "notes": notes,
        "figure": shown.name if shown else None,
        "runs": plural(max(item.ours.runs for item in items), "run"),
    }


def _relation(item: Item) -> dict[str, str]:
    return {"text": item.text, "calibrated": item.calibrated} | (_cell(item) or {})


def _cell(item: Item | None) -> dict[str, str] | None:
    if item is None:
        return None
    return {
        "printed": "–" if item.printed is None else brief(item.printed),
        "ours": beside(item),
        "verdict": item.verdict,
        "reason": item.reason,
    }


def _claim(item: Item) -> dict[str, str]:
    row: dict[str, str] = item.as_row()
    basis = "" if item.verdict == NO_NUMBER else item.rule
    return row | {"rule": basis}


def _shown(made: "Reproduction") -> list[dict[str, Any]]:
    """Return the printed figures, those with the same content and answers together."""
    titles = {picture.name: picture.title for picture in made.paper.pictures}
    titles |= {claim.name: claim.text for claim in made.paper.claims}
    verdicts = {item.name: item.verdict for item in made.judged.items if item.kind == CLAIM}
    groups: list[dict[str, Any]] = []
    for item in made.judged.items:
        if item.kind != FIGURE:
            continue
        if not groups or (groups[-1]["text"], groups[-1]["by"]) != (item.text, item.by):
            answers = [(name, titles.get(name, ""), verdicts.get(name, "")) for name in item.by]
            groups.append({"text": item.text, "by": item.by, "answers": answers, "rows": []})
        groups[-1]["rows"].append(item.as_row())
    return groups


def _listing(made: "Reproduction", picture: Picture, item: Item) -> dict[str, Any]:
    """Return the numbers of a figure: a row a point and curve, a column a measure."""
    axis = made.paper.experiments[picture.experiment].axis
    columns = list(dict.fromkeys((spot.measure, spot.unit) for spot in item.spots))
    rows: dict[tuple[str, ...], dict[Measure, str]] = {}
    points = sorted({(spot.x, spot.point) for spot in item.spots})
    for _, point in points:
        for spot in item.spots:
            if spot.point == point:
                names = (spot.point, spot.curve) if axis else (spot.curve,)
                row = {
                    "mean": spot.found.mean,
                    "ci95": spot.found.ci95,
                    "method": spot.found.method or BOOTSTRAP,
                }
                ends = {"ci_low": spot.found.low, "ci_high": spot.found.high}
                rows.setdefault(names, {})[spot.measure] = measured(row | ends)
    return {
        "axis": axis,
        "columns": [{"label": each.label, "unit": unit} for each, unit in columns],
        "rows": [
            {"names": names, "cells": [cells.get(each, "–") for each, _ in columns]}
            for names, cells in rows.items()
        ],
    }


def _tuned(made: "Reproduction", found: Tuned) -> dict[str, Any]:
    """Return what a tuning tried: those that ran again across AQMs, and every setting of each AQM."""
    aims = found.tuning.aims

    def rows(trials: Sequence[Trial]) -> list[dict[str, Any]]:
        return [
            {
                "place": each.place,
                "aqm": each.aqm,
                "parameters": each.parameters,
                "chosen": each.chosen,
                "total": f"{each.total:,}".replace(",", "\u202f"),
                "cells": [
                    (number(each.values[aim.measure.name]), each.ranks[aim.measure.name]) for aim in aims
                ],
            }
            for each in trials
        ]

    return {
        "title": made.paper.experiments[found.experiment].title,
        "rule": found.rule,
        "heads": [(aim.measure.label, aim.measure.unit) for aim in aims],
        "again": rows(found.again),
        "first": rows(found.first),
        "tried": len(found.first),
    }


def _scenarios(made: "Reproduction") -> list[dict[str, Any]]:
    """Return each experiment with what it changes, and each scenario's file once."""
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
