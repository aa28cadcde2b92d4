"""What comes out of a paper: every printed cell, claim and figure with ours beside it and a verdict."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from bentpipe.format import number, plural
from bentpipe.reproduction.grids import Aim
from bentpipe.reproduction.measures import Measure, Seen
from bentpipe.reproduction.paper import (
    Check,
    Claim,
    Column,
    Explanation,
    Input,
    Paper,
    Picture,
    Printed,
    Relation,
)
from bentpipe.reproduction.rules import (
    CALIBRATED,
    NO_NUMBER,
    NOT_REPRODUCED,
    REPRODUCED,
    VERDICTS,
    Agree,
    Change,
    Gain,
    Order,
    Verdict,
    mean_of,
    prediction,
)
from bentpipe.reproduction.runs import Cell, Library
from bentpipe.reproduction.shown import Shown
from bentpipe.stats.intervals import Summary, half_width, summarise

__all__ = ["CLAIM", "FIGURE", "OURS", "PICTURE", "RELATION", "TABLE", "Item", "Judged", "Spot"]

TABLE, RELATION, CLAIM = "table", "relation", "claim"
FIGURE = "figure"
"""A printed figure, or a printed table without numbers."""
PICTURE = "picture"
"""A figure of ours."""
OURS = "ours"
"""Where a figure stands that is none of the paper's."""
TOGETHER = Measure(
    "gains", "Mean of all gains", "%", "The mean of the gains in several measures", lambda _: None
)
_NAMED = 3
"""Comparisons of a claim that are named, where more fail."""


@dataclass(frozen=True, slots=True)
class Item:
    """One printed number, claim or figure, judged."""

    kind: str
    name: str
    """The id of its table, claim, printed figure, or figure of ours."""
    where: str
    """Where it stands in the paper."""
    text: str
    """What is claimed, or what is measured."""
    experiment: str
    row: str
    column: str
    unit: str
    printed: float | None
    ours: Summary
    verdict: str
    rule: str
    reason: str
    explanation: str
    calibrated: str
    """The inputs that were chosen by looking at it; empty without."""
    in_print: str
    """Of a claim: what the paper's own tables say of it."""
    variant: bool = False
    """Whether its experiment is not the paper's, but one that is shown beside."""
    spots: tuple["Spot", ...] = ()
    """Of a figure of ours: what it shows."""
    by: tuple[str, ...] = ()
    """Of a printed figure: the ids of what answers it."""

    @property
    def predicted(self) -> tuple[float | None, float | None]:
        """Where one more run of ours would be in 95 of 100 cases."""
        low, high = prediction(self.ours)
        return (None, None) if math.isnan(low) else (low, high)

    def as_row(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        low, high = self.predicted
        return {
            "kind": self.kind,
            "id": self.name,
            "where": self.where,
            "text": self.text,
            "experiment": self.experiment,
            "row": self.row,
            "column": self.column,
            "unit": self.unit,
            "printed": self.printed,
            "mean": self.ours.mean,
            "std": self.ours.std,
            "ci_low": self.ours.low,
            "ci_high": self.ours.high,
            "predicted_low": low,
            "predicted_high": high,
            "runs": self.ours.runs,
            "verdict": self.verdict,
            "rule": self.rule,
            "reason": self.reason,
            "explanation": self.explanation,
            "calibrated": self.calibrated,
            "in_print": self.in_print,
            "variant": self.variant,
            "by": list(self.by),
            "spots": [each.as_row() for each in self.spots],
        }


@dataclass(frozen=True, slots=True)
class Spot:
    """What one curve of a figure is at one point."""

    curve: str
    measure: Measure
    unit: str
    point: str
    x: float
    found: Summary

    def as_row(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {
            "curve": self.curve,
            "measure": self.measure.label,
            "unit": self.unit,
            "point": self.point,
            "x": self.x,
            "mean": self.found.mean,
            "ci_low": self.found.low,
            "ci_high": self.found.high,
            "runs": self.found.runs,
        }


_NOTHING = "nothing was simulated that it could be judged by"
_NONE = Summary(None, None, None, 0)


class Judged:
    """A paper's items, computed from its runs."""

    def __init__(self, paper: Paper, cells: Mapping[tuple[str, str, str], Cell], library: Library) -> None:
        """Judge `paper` by the runs of `cells`, which have to be in `library`."""
        self.paper = paper
        self.cells = cells
        self._library = library
        for cell in cells.values():
            library.measure(cell, self._wanted(cell.experiment))

    def _wanted(self, experiment: str) -> list[Measure]:
        """Return all that is measured on an experiment, so that each run is read once."""
        found: dict[Measure, None] = {}
        for table in self.paper.tables:
            if experiment in table.experiments:
                found |= dict.fromkeys(column.measure for column in table.columns)
        for claim in self.paper.claims:
            asked = [each for each in claim.checks if experiment in (each.experiment, each.against)]
            found |= dict.fromkeys(each.measure for each in asked)
        for said in self.paper.said.values():
            found |= dict.fromkeys(each.measure for each in said.checks if each.experiment == experiment)
        for picture in self.paper.pictures:
            if experiment in picture.experiments:
                found |= dict.fromkeys((*picture.listed, *picture.measures))
        return list(found)

    def values(self, experiment: str, case: str, measure: Measure, point: str = "") -> list[float | None]:
        """Return a measure of every run of a case; none where it was not simulated."""
        cell = self.cells.get((experiment, case, point))
        return [] if cell is None else self._library.values(cell, measure)

    def course(self, experiment: str, case: str, measure: Measure) -> list[tuple[float, float, float | None]]:
        """Return a measure's column of the series over time: time, mean over the runs, Student's half-width.

        Times without a value in every run are left out.
        """
        cell = self.cells.get((experiment, case, ""))
        if cell is None or measure.course is None:
            return []
        column, scale = measure.course
        runs = [self._library.seen(cell, seed).recorded.series for seed in cell.seeds]
        values = pl.concat(
            [run.select("time", (pl.col(column) * scale).fill_nan(None).alias("value")) for run in runs]
        )
        value = pl.col("value")
        over = values.group_by("time").agg(
            value.mean().alias("mean"), value.std().alias("std"), value.count()
        )
        return [
            (time, mean, None if std is None else half_width(std, count))
            for time, mean, std, count in over.sort("time").iter_rows()
            if count == len(runs)
        ]

    def seen(self, cell: Cell) -> Seen:
        """Return the first run of a cell."""
        return self._library.seen(cell, cell.seeds[0])

    def drops(self, cell: Cell) -> pl.DataFrame:
        """Return every drop of the first run of a cell whose experiment keeps them."""
        return self._library.drops(cell, cell.seeds[0])

    @cached_property
    def items(self) -> list[Item]:
        """Everything that is judged, in the order of the paper's data."""
        numbers = [item for table in self.paper.tables for item in self._table(table)]
        claims = [self._claim(claim) for claim in self.paper.claims]
        return [
            *numbers,
            *(item for table in self.paper.tables for item in self._relations(table)),
            *claims,
            *(_shown(shown, [*numbers, *claims]) for shown in self.paper.shown),
            *(self._picture(picture) for picture in self.paper.pictures),
        ]

    def counts(self, kind: str | None = None) -> dict[str, int]:
        """Return how many items, or those of one kind, have each verdict; variants are not counted."""
        found = Counter(item.verdict for item in self.items if kind in (None, item.kind) and not item.variant)
        return {verdict: found[verdict] for verdict in VERDICTS if found[verdict]}

    def _table(self, table: Printed) -> Iterator[Item]:
        for experiment in table.experiments:
            for row in table.rows:
                for column in table.columns:
                    if (experiment, row, "") not in self.cells or row not in column.printed:
                        continue
                    ours, printed = self.values(experiment, row, column.measure), column.printed[row]
                    inputs = [
                        chosen
                        for chosen, cells in table.calibrated
                        if cells.hold(row, column.name, experiment)
                    ]
                    verdict = self._cell(table, experiment, row, column, ours)
                    if inputs:
                        names = ", ".join(each.name for each in inputs)
                        verdict = Verdict(CALIBRATED, f"{verdict.reason} ({names})")
                    yield Item(
                        TABLE,
                        table.name,
                        table.where,
                        column.measure.label,
                        experiment,
                        row,
                        column.name,
                        column.measure.unit,
                        printed,
                        summarise(ours),
                        verdict.verdict,
                        column.rule.text if column.rule else "",
                        verdict.reason,
                        _explained(table.explanations, verdict.verdict, row, column.name, experiment),
                        "; ".join(each.name for each in inputs),
                        "",
                        table.beside or experiment != table.experiments[0],
                    )

    def _relations(self, table: Printed) -> Iterator[Item]:
        experiment = table.experiments[0]
        for each in table.relations:
            if any((experiment, row, "") not in self.cells for row in (each.row, each.to)):
                continue
            measure = each.column.measure
            ours = self.values(experiment, each.row, measure)
            theirs = self.values(experiment, each.to, measure)
            ratios = [a / b if a is not None and b else None for a, b in zip(ours, theirs, strict=True)]
            verdict = each.rule.judge(each.printed, ratios)
            inputs = self._inputs(table, experiment, each)
            if any(not chosen.shared for chosen in inputs):
                names = ", ".join(chosen.name for chosen in inputs if not chosen.shared)
                verdict = Verdict(CALIBRATED, f"{verdict.reason} ({names})")
            yield Item(
                RELATION,
                table.name,
                table.where,
                f"{measure.label}: {each.row} over {each.to}",
                experiment,
                each.row,
                each.column.name,
                "",
                each.printed,
                summarise(ratios),
                verdict.verdict,
                each.rule.text,
                verdict.reason,
                "",
                "; ".join(chosen.name for chosen in inputs),
                "",
                table.beside,
            )

    def _inputs(self, table: Printed, experiment: str, relation: Relation) -> list[Input]:
        """Return the inputs that were chosen by looking at either side of a relation."""
        return [
            chosen
            for chosen, cells in table.calibrated
            if any(cells.hold(row, relation.column.name, experiment) for row in (relation.row, relation.to))
        ]

    def _cell(
        self,
        table: Printed,
        experiment: str,
        row: str,
        column: Column,
        ours: list[float | None],
    ) -> Verdict:
        rule, printed = column.rule, column.printed[row]
        if rule is None:
            return Verdict(NO_NUMBER, "not judged")
        base = table.baseline
        if base is None or base == row:
            return rule.judge(printed, ours)
        theirs = self.values(experiment, base, column.measure)
        if len(theirs) != len(ours) or base not in column.printed:
            return rule.judge(printed, ours)
        return rule.judge(printed, ours, base=(base, column.printed[base], theirs))

    def _claim(self, claim: Claim) -> Item:
        verdict, ours = self._judge_claim(claim)
        if claim.checks and all(map(self._fitted, claim.checks)):
            verdict = Verdict(CALIBRATED, f"{verdict.reason}; inputs were chosen by looking at all of it")
        unit = claim.checks[0].measure.unit if claim.checks else ""
        return Item(
            CLAIM,
            claim.name,
            f"{claim.where}, {claim.basis}",
            claim.text,
            ", ".join(dict.fromkeys(each.experiment for each in claim.checks)),
            "",
            "",
            "%" if isinstance(claim.rule, Change | Gain) else unit,
            claim.formula.printed if claim.formula else None,
            ours,
            verdict.verdict,
            claim.rule.text if claim.rule else claim.formula.rule if claim.formula else "",
            verdict.reason,
            _explained(claim.explanations, verdict.verdict, "", "", ""),
            "",
            self._in_print(claim),
        )

    def _judge_claim(self, claim: Claim) -> tuple[Verdict, Summary]:
        if claim.formula is not None:
            return claim.formula.judge(), Summary(claim.formula.ours, None, None, 1)
        match claim.rule:
            case None:
                return Verdict(NO_NUMBER, "nothing survives that could be judged"), _NONE
            case Agree():
                return self._agreed(claim, claim.rule), _NONE
            case Order():
                return self._ordered(claim, claim.rule), _NONE
            case Gain():
                return claim.rule.judge(self.gains(claim.checks))
            case Change():
                return self._changed(claim, claim.rule)

    def _changed(self, claim: Claim, rule: Change) -> tuple[Verdict, Summary]:
        """Judge every comparison; the claim is as good as the worst of them."""
        judged = []
        for check in claim.checks:
            for point in self._points(check):
                more = self.values(check.experiment, check.more, check.measure, point)
                than = self.values(check.experiment, check.than, check.measure, point)
                verdict, found = rule.judge(more, than)
                judged.append((verdict, found, _of_what(check, point)))
        if not judged:
            return Verdict(NOT_REPRODUCED, _NOTHING), _NONE
        worst = max((verdict.verdict for verdict, *_ in judged), key=VERDICTS.index)
        if len(judged) == 1:
            return judged[0][0], judged[0][1]
        named = [f"{what}: {verdict.reason}" for verdict, _, what in judged if verdict.verdict == worst]
        return Verdict(worst, f"{len(named)} of {len(judged)} so: {_first(named)}"), _NONE

    def gains(self, checks: Sequence[Check]) -> dict[str, list[float | None]]:
        """Return by how many per cent a case is better than each other one, a run a value.

        Where several measures are compared, it is the mean of their gains.
        """
        found: dict[str, list[list[float | None]]] = {}
        for check in checks:
            for point in self._points(check):
                ours = self.values(check.experiment, check.more, check.measure, point)
                theirs = self.values(check.experiment, check.than, check.measure, point)
                aim = check.aim or Aim(check.measure, less=True)
                found.setdefault(check.than, []).append(
                    [aim.gain(a, b) for a, b in zip(ours, theirs, strict=True)]
                )
        return {name: [mean_of(row) for row in zip(*columns, strict=True)] for name, columns in found.items()}

    def _points(self, check: Check) -> list[str]:
        return [each for each in check.points if (check.experiment, check.more, each) in self.cells]

    def _ordered(self, claim: Claim, rule: Order) -> Verdict:
        failing, total = [], 0
        for check in claim.checks:
            for point in self._points(check):
                total += 1
                holds, found = rule.holds(
                    self.values(check.experiment, check.more, check.measure, point),
                    self.values(check.experiment, check.than, check.measure, point),
                )
                if not holds:
                    failing.append(_told(check, point, found))
        if not total:
            return Verdict(NOT_REPRODUCED, _NOTHING)
        if not failing:
            return Verdict(REPRODUCED, f"all of {plural(total, 'comparison')}")
        return Verdict(
            NOT_REPRODUCED, f"not in {len(failing)} of {plural(total, 'comparison')}: {_first(failing)}"
        )

    def _agreed(self, claim: Claim, rule: Agree) -> Verdict:
        failing, total = [], 0
        for check in claim.checks:
            for point in self._points(check):
                if (check.against, check.than, point) not in self.cells:
                    continue
                total += 1
                holds, found = rule.holds(
                    self.values(check.experiment, check.more, check.measure, point),
                    self.values(check.against, check.than, check.measure, point),
                )
                if not holds:
                    failing.append(f"{check.more}{', ' + point if point else ''}: {found}")
        if not total:
            return Verdict(NOT_REPRODUCED, _NOTHING)
        if not failing:
            return Verdict(REPRODUCED, f"all of {plural(total, 'comparison')}")
        unit = claim.checks[0].measure.unit
        return Verdict(
            NOT_REPRODUCED,
            f"not in {len(failing)} of {plural(total, 'comparison')}: {_first(failing)} [{unit}]",
        )

    def _printed_at(self, check: Check) -> Iterator[tuple[Printed, float, float]]:
        for table in self.paper.printed:
            for column in table.columns:
                if check.experiment in table.experiments and column.measure == check.measure:
                    more, than = column.printed.get(check.more), column.printed.get(check.than)
                    if more is not None and than is not None:
                        yield table, more, than

    def _fitted(self, check: Check) -> bool:
        """Whether inputs that not all settings share were chosen by looking at both sides of a comparison."""

        def chosen(row: str) -> bool:
            return any(
                cells.hold(row, column.name, check.experiment)
                for table in self.paper.printed
                if check.experiment in table.experiments
                for column in table.columns
                if column.measure == check.measure
                for given, cells in table.calibrated
                if not given.shared
            )

        return chosen(check.more) and chosen(check.than)

    def _in_print(self, claim: Claim) -> str:
        against: dict[str, None] = {}
        seen = 0
        # Where one is a model, or the mean over several is what is claimed, no two cells decide it.
        for check in claim.checks if not isinstance(claim.rule, Agree | Gain) else ():
            for table, more, than in self._printed_at(check):
                seen += 1
                if isinstance(claim.rule, Change):
                    change = 100 * (more - than) / abs(than) if than else math.nan
                    agrees = claim.rule.low <= change <= claim.rule.high
                else:
                    agrees = more > than
                if not agrees:
                    sizes = f"{check.more} {number(more)}, {check.than} {number(than)} {check.measure.unit}"
                    against[f"{table.where} ({sizes})"] = None
        if not seen:
            return ""
        return f"contradicted by {'; '.join(against)}" if against else "the printed tables agree"

    def _picture(self, picture: Picture) -> Item:
        return Item(
            PICTURE,
            picture.name,
            picture.where or OURS,
            picture.title,
            picture.experiment,
            "",
            "",
            "",
            None,
            _NONE,
            NO_NUMBER,
            "",
            "ours alone",
            "",
            "",
            "",
            not picture.where,
            tuple(self._spots(picture)),
        )

    def _spots(self, picture: Picture) -> Iterator[Spot]:
        """Yield what a figure shows: every measure of every curve at each point that was simulated."""
        if picture.aims:
            yield from self._gained(picture)
            return
        if picture.beside:
            yield from self._modelled(picture)
            return
        for measure in (*picture.listed, *picture.measures):
            for case in picture.cases:
                for than in picture.than or (None,):
                    for point in self.paper.experiments[picture.experiment].points:
                        ours = self.values(picture.experiment, case, measure, point.label)
                        if not ours:
                            continue
                        if than is None:
                            yield Spot(case, measure, measure.unit, point.label, point.x, summarise(ours))
                            continue
                        theirs = self.values(picture.experiment, than, measure, point.label)
                        less = summarise(
                            [
                                100 * (b - a) / b if a is not None and b else None
                                for a, b in zip(ours, theirs, strict=True)
                            ]
                        )
                        yield Spot(f"{case} over {than}", measure, "% less", point.label, point.x, less)

    def engines(self, picture: Picture) -> tuple[tuple[str, str], ...]:
        """Return the experiments of a figure of models with what they are called, the simulator first."""
        return ((picture.experiment, "simulator"), *picture.beside)

    def _modelled(self, picture: Picture) -> Iterator[Spot]:
        """Yield what the simulator and each model say of every case."""
        for measure in (*picture.listed, *picture.measures):
            for case in picture.cases:
                for experiment, label in self.engines(picture):
                    if found := self.values(experiment, case, measure):
                        yield Spot(f"{case}, {label}", measure, measure.unit, "", 0.0, summarise(found))

    def _gained(self, picture: Picture) -> Iterator[Spot]:
        """Yield by how many per cent cases are better than others, in each measure or in all together."""
        groups = [picture.aims] if picture.together else [(aim,) for aim in picture.aims]
        for aims in groups:
            measure = TOGETHER if picture.together else aims[0].measure
            for case in picture.cases:
                checks = [
                    Check(picture.experiment, aim.measure, case, than, ("",), aim)
                    for than in picture.than
                    for aim in aims
                ]
                for than, values in self.gains(checks).items():
                    yield Spot(f"{case} over {than}", measure, "% better", "", 0.0, summarise(values))

    def printed(self, picture: Picture, measure: Measure) -> float | None:
        """Return what is printed of a measure in the table and row that a figure names."""
        return next(
            (
                column.printed.get(picture.row)
                for table in self.paper.printed
                if table.name == picture.table
                for column in table.columns
                if column.measure == measure
            ),
            None,
        )


_WORST = "the worst verdict of what is claimed of it"


def _shown(shown: Shown, items: Sequence[Item]) -> Item:
    """Judge a printed figure by what is claimed of it."""
    about = [item for item in items if item.name in shown.by and not item.variant]
    sides = [item for item in about if item.verdict != NO_NUMBER]
    # What was fitted says less than what was not.
    judged = [item for item in sides if item.verdict != CALIBRATED] or sides
    verdict = max((item.verdict for item in judged), key=VERDICTS.index, default=NO_NUMBER)
    told = dict.fromkeys(f"{item.name} {item.verdict}" for item in about)
    return Item(
        FIGURE,
        shown.name,
        shown.where,
        shown.text,
        "",
        "",
        "",
        "",
        None,
        _NONE,
        verdict,
        _WORST if judged else "",
        ", ".join(told) or "ours alone",
        "",
        "",
        "",
        by=shown.by,
    )


def _of_what(check: Check, point: str) -> str:
    return f"{check.more} against {check.than}, {check.experiment}{', ' + point if point else ''}"


def _told(check: Check, point: str, found: Summary) -> str:
    what = _of_what(check, point)
    if found.mean is None or found.low is None or found.high is None:
        return f"{what}: no runs to compare"
    return f"{what}: {number(found.mean)} [{number(found.low)}, {number(found.high)}] {check.measure.unit}"


def _first(texts: Sequence[str]) -> str:
    rest = len(texts) - _NAMED
    return "; ".join(texts[:_NAMED]) + (f", and {rest} more" if rest > 0 else "")


def _explained(
    explanations: Sequence[Explanation], verdict: str, row: str, column: str, experiment: str
) -> str:
    return " ".join(
        each.text
        for each in explanations
        if each.verdict == verdict and each.cells.hold(row, column, experiment)
    )
