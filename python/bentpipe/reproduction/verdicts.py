"""Verdicts on a paper: every printed number, claim and figure with our value, computed from its runs.

`judge_by_means` judges claims from means with their intervals alone, of runs or of a paper's file of all
numbers.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from bentpipe.format import brief, number, plural
from bentpipe.reproduction.measures import Measure, Objective, RunData
from bentpipe.reproduction.paper import (
    FIELD,
    Check,
    Claim,
    Column,
    ComputedNumber,
    Explanation,
    Input,
    Paper,
    Picture,
    PrintedFigure,
    PrintedTable,
)
from bentpipe.reproduction.rules import (
    CALIBRATED_AGREES,
    CALIBRATED_DIFFERS,
    DIRECTION_ONLY,
    MAGNITUDE_DIFFERS,
    NO_NUMBER,
    NOT_REPRODUCED,
    NOTHING,
    REPRODUCED,
    VERDICTS,
    About,
    Agree,
    Ahead,
    Bound,
    Change,
    Curve,
    Gain,
    Order,
    Rank,
    Similar,
    Values,
    Verdict,
    Weaker,
    apart,
    mean_of,
    prediction,
    quotients,
)
from bentpipe.reproduction.runs import CaseRuns, Library, Plan
from bentpipe.stats.intervals import LEVEL, Summary, half_width, holm, summarise

__all__ = [
    "ALL_GAINS",
    "CLAIM",
    "FIGURE",
    "OURS",
    "PICTURE",
    "RELATION",
    "TABLE",
    "UNPAIRED",
    "CurveValue",
    "Find",
    "Item",
    "Verdicts",
    "discussion_of",
    "explain",
    "fitted_inputs",
    "judge_by_means",
    "judge_figure",
    "with_fitted_sides",
]

TABLE, RELATION, CLAIM = "table", "relation", "claim"
FIGURE = "figure"
"""A printed figure, or a printed table whose numbers are lost."""
PICTURE = "picture"
"""A figure of ours."""
OURS = "ours"
"""Location of a picture that corresponds to no printed figure."""
ALL_GAINS = Measure("gains", "Mean of all gains", "%", lambda _: None)
_MOMENTS = {
    "transmit_queue": ("queue_mean", "queue_std"),
    "throughput": ("throughput", "throughput_std"),
    "arrival_rate": ("arrival_rate", "arrival_rate_std"),
    "mark_probability": ("mark_rate", ""),
    "flow throughput": ("", "flow-std"),
}
"""Measures of the mean and the deviation of a series."""
_NAMED = 3
"""Most comparisons that a reason names."""
UNPAIRED = "; differences of means, not paired"
"""End of the reason of an order that was judged without runs."""

Find = Callable[[str, str, Measure, str], Summary | None]
"""Returns a value by experiment, case, measure and point; `None` if it was not simulated."""
Ranked = Mapping[str, Sequence[str]]
"""AQMs of the settings that a search has ranked, by experiment, the best first."""
_NOT_SIMULATED = Verdict(NOT_REPRODUCED, "nothing was simulated that it could be compared with")


@dataclass(frozen=True, slots=True)
class CurveValue:
    """Value of one curve of a picture at one point."""

    curve: str
    measure: Measure
    unit: str
    point: str
    x: float
    found: Summary

    def as_row(self) -> dict[str, Any]:
        """Return the value as a JSON object."""
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


@dataclass(frozen=True, slots=True)
class Item:
    """One printed number, claim or figure with its verdict."""

    kind: str
    name: str
    """Id of its table, claim, printed figure, or picture."""
    where: str
    """Location in the paper."""
    text: str
    """Claim, measure or content."""
    verdict: str
    reason: str
    rule: str = ""
    experiment: str = ""
    row: str = ""
    column: str = ""
    unit: str = ""
    printed: float | None = None
    ours: Summary = NOTHING
    explanation: str = ""
    calibrated: str = ""
    """Inputs that were fitted to it; empty without."""
    in_print: str = ""
    """Agreement of a claim with the paper's own tables."""
    variant: bool = False
    """True for a variant of the paper's experiment, which is shown and not counted."""
    spots: tuple[CurveValue, ...] = ()
    """Values of a picture."""
    by: tuple[str, ...] = ()
    """Ids of the pictures that correspond to a printed figure, and of the claims about it."""

    @property
    def predicted(self) -> tuple[float | None, float | None]:
        """95 % prediction interval of one more run."""
        low, high = prediction(self.ours)
        return (None, None) if math.isnan(low) else (low, high)

    def as_row(self) -> dict[str, Any]:
        """Return the item as a JSON object."""
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


class Verdicts:
    """A paper's items, computed from its runs."""

    def __init__(self, paper: Paper, cases: Plan, library: Library, ranked: Ranked | None = None) -> None:
        """Judge `paper` by the runs of `cases`, all of which must be in `library`."""
        self.paper = paper
        self._ranked = ranked or {}
        self.cases = cases
        self._library = library
        for case in cases.values():
            library.measure(case, self._measures(case.experiment))

    def _measures(self, experiment: str) -> list[Measure]:
        """Return all measures of an experiment, so that each run is read once."""
        found: dict[Measure, None] = {}
        for table in self.paper.tables:
            if experiment in table.experiments:
                found |= dict.fromkeys(column.measure for column in table.columns)
        checks = [check for claim in self.paper.claims for check in claim.checks]
        checks += [check for each in self.paper.numbers.values() for check in each.checks]
        sides = [side for check in checks for side in check.sides]
        found |= dict.fromkeys(measure for name, _, measure in sides if name == experiment)
        for picture in self.paper.pictures:
            if experiment in picture.experiments:
                found |= dict.fromkeys((*picture.listed, *picture.measures))
        return list(found)

    def values(self, experiment: str, case: str, measure: Measure, point: str = "") -> list[float | None]:
        """Return a measure of every run of a case; empty if it was not simulated."""
        found = self.cases.get((experiment, case, point))
        return [] if found is None else self._library.values(found, measure)

    def over_time(
        self, experiment: str, case: str, measure: Measure
    ) -> list[tuple[float, float, float | None]]:
        """Return a measure's series: time, mean over the runs, and Student's half-width.

        Times without a value in every run are left out.
        """
        found = self.cases.get((experiment, case, ""))
        if found is None or measure.series is None:
            return []
        column, scale = measure.series
        runs = [self._library.load(found, seed).recorded.series for seed in found.seeds]
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

    def first_run(self, case: CaseRuns) -> RunData:
        """Return the first run of a case."""
        return self._library.load(case, case.seeds[0])

    def drops(self, case: CaseRuns) -> pl.DataFrame:
        """Return every drop of the first run of a case whose experiment keeps them."""
        return self._library.drops(case, case.seeds[0])

    @cached_property
    def items(self) -> list[Item]:
        """All items, in the order of the paper's data."""
        numbers = [item for table in self.paper.tables for item in self._table(table)]
        claims = [self._claim(claim) for claim in self.paper.claims]
        return [
            *numbers,
            *(item for table in self.paper.tables for item in self._relations(table)),
            *claims,
            *(judge_figure(figure, [*numbers, *claims]) for figure in self.paper.figures),
            *(self._picture(picture) for picture in self.paper.pictures),
        ]

    def counts(self, kind: str | None = None) -> dict[str, int]:
        """Return the number of items, or of those of one kind, by verdict; variants are not counted."""
        found = Counter(item.verdict for item in self.items if kind in (None, item.kind) and not item.variant)
        return {verdict: found[verdict] for verdict in VERDICTS if found[verdict]}

    def table_items(self, kind: str, table: PrintedTable, experiment: str) -> list[Item]:
        """Return the numbers or relations of a table in one experiment."""
        wanted = (kind, table.name, experiment)
        return [item for item in self.items if (item.kind, item.name, item.experiment) == wanted]

    def picture_values(self, picture: Picture) -> tuple[CurveValue, ...]:
        """Return the values that a picture shows."""
        return next(item.spots for item in self.items if (item.kind, item.name) == (PICTURE, picture.name))

    # Printed tables.

    def _table(self, table: PrintedTable) -> Iterator[Item]:
        for experiment in table.experiments:
            for row in table.rows:
                for column in table.columns:
                    if (experiment, row, "") not in self.cases or row not in column.printed:
                        continue
                    ours = self.values(experiment, row, column.measure)
                    inputs = fitted_inputs(table, column, experiment, row)
                    verdict = _calibrated(self._cell(table, experiment, row, column, ours), inputs)
                    yield Item(
                        TABLE,
                        table.name,
                        table.where,
                        column.measure.label,
                        verdict.verdict,
                        verdict.reason,
                        column.rule.text if column.rule else "",
                        experiment,
                        row,
                        column.name,
                        column.measure.unit,
                        column.printed[row],
                        summarise(ours),
                        explain(table.explanations, verdict, row, column.name, experiment),
                        "; ".join(each.name for each in inputs),
                        variant=table.variant or experiment != table.experiments[0],
                    )

    def _cell(self, table: PrintedTable, experiment: str, row: str, column: Column, ours: Values) -> Verdict:
        rule, printed, base = column.rule, column.printed[row], table.baseline
        if rule is None:
            return Verdict(NO_NUMBER, "not judged")
        if base is None or base == row or base not in column.printed:
            return rule.judge(printed, ours)
        theirs = self.values(experiment, base, column.measure)
        if len(theirs) != len(ours):
            return rule.judge(printed, ours)
        return rule.judge(printed, ours, base=(base, column.printed[base], theirs))

    def _relations(self, table: PrintedTable) -> Iterator[Item]:
        experiment = table.experiments[0]
        for each in table.relations:
            if any((experiment, row, "") not in self.cases for row in (each.row, each.to)):
                continue
            measure = each.column.measure
            ratios = quotients(
                self.values(experiment, each.row, measure), self.values(experiment, each.to, measure)
            )
            inputs = fitted_inputs(table, each.column, experiment, each.row, each.to)
            verdict = _calibrated(
                each.rule.judge(each.printed, ratios), [one for one in inputs if not one.shared]
            )
            yield Item(
                RELATION,
                table.name,
                table.where,
                f"{measure.label}: {each.row} over {each.to}",
                verdict.verdict,
                verdict.reason,
                each.rule.text,
                experiment,
                each.row,
                each.column.name,
                printed=each.printed,
                ours=summarise(ratios),
                calibrated="; ".join(one.name for one in inputs),
                variant=table.variant,
            )

    # Claims.

    def _claim(self, claim: Claim) -> Item:
        verdict, ours = self._judge_claim(claim)
        verdict = with_fitted_sides(self.paper, claim, verdict)
        unit = claim.checks[0].measure.unit if claim.checks else ""
        return Item(
            CLAIM,
            claim.name,
            f"{claim.where}, {claim.basis}",
            claim.text,
            verdict.verdict,
            verdict.reason,
            claim.rule.text if claim.rule else claim.formula.rule if claim.formula else "",
            ", ".join(dict.fromkeys(each.experiment for each in claim.checks)),
            unit="%" if isinstance(claim.rule, Change | Gain) else unit,
            printed=claim.formula.printed if claim.formula else None,
            ours=ours,
            explanation=explain(claim.explanations, verdict, "", "", ""),
            in_print=self._in_print(claim),
        )

    def _judge_claim(self, claim: Claim) -> tuple[Verdict, Summary]:
        if claim.formula is not None:
            return claim.formula.judge(), Summary(claim.formula.ours, None, None, 1)
        match claim.rule:
            case None:
                return Verdict(NO_NUMBER, "nothing printed survives that it could be compared with"), NOTHING
            case Agree() | Order():
                return self._judge_each(claim, claim.rule), NOTHING
            case Gain():
                return claim.rule.judge(self.gains(claim.checks))
            case Change():
                return self._judge_changes(claim, claim.rule)
            case Weaker():
                return self._judge_weaker(claim, claim.rule) or _NOT_SIMULATED, NOTHING
            case _:
                return judge_by_means(claim, self._summary, self._ranked) or _NOT_SIMULATED, NOTHING

    def _summary(self, experiment: str, case: str, measure: Measure, point: str) -> Summary | None:
        if (experiment, case, point) not in self.cases:
            return None
        return summarise(self.values(experiment, case, measure, point))

    def _judge_weaker(self, claim: Claim, rule: Weaker) -> Verdict | None:
        """Compare the changes in two experiments; the worst verdict is the claim's."""

        def change(experiment: str, check: Check, point: str) -> Summary | None:
            keys = [(experiment, case, point) for case in (check.more, check.than)]
            if any(key not in self.cases for key in keys):
                return None
            ours, theirs = (self.values(*key[:2], check.measure, point) for key in keys)
            ratios = quotients(ours, theirs)
            return summarise([None if each is None else 100 * (each - 1) for each in ratios])

        return _worst_of(
            (_sides(check, point), rule.judge(ours, theirs))
            for check in claim.checks
            for point in check.points
            if (ours := change(check.experiment, check, point)) is not None
            and (theirs := change(check.against, check, point)) is not None
        )

    def _pairs(self, check: Check, *, by_seed: bool = True) -> Iterator[tuple[str, Values, Values]]:
        """Yield each simulated point of a comparison with the values of both cases.

        With `by_seed` only those of the seeds that both experiments have: one may have more runs.
        """
        for point in check.points:
            if all((experiment, case, point) in self.cases for experiment, case, _ in check.sides):
                more, than = (self.values(*side, point) for side in check.sides)
                ours, theirs = (
                    self.cases[experiment, case, point].seeds for experiment, case, _ in check.sides
                )
                if by_seed:
                    common = [seed for seed in ours if seed in theirs]
                    more = [more[ours.index(seed)] for seed in common]
                    than = [than[theirs.index(seed)] for seed in common]
                yield point, more, than

    def _judge_changes(self, claim: Claim, rule: Change) -> tuple[Verdict, Summary]:
        """Judge every comparison; the worst verdict is the claim's."""
        found = [
            (*rule.judge(more, than), _sides(check, point))
            for check in claim.checks
            for point, more, than in self._pairs(check)
        ]
        worst = _worst_of((sides, verdict) for verdict, _, sides in found) or _NOT_SIMULATED
        return worst, found[0][1] if len(found) == 1 else NOTHING

    def _judge_each(self, claim: Claim, rule: Order | Agree) -> Verdict:
        """Judge a claim that holds if every comparison does."""
        if isinstance(rule, Order) and rule.some:
            return self._judge_some(claim, rule)
        failing, total = [], 0
        for check in claim.checks:
            for point, more, than in self._pairs(check, by_seed=isinstance(rule, Order)):
                total += 1
                # Fluid models have no randomness.
                fluid = self.paper.experiments[check.experiment].fluid
                exact = {"exact": True} if isinstance(rule, Order) and fluid else {}
                holds, found = rule.holds(more, than, **exact)
                if not holds:
                    failing.append(_comparison(check, point, found))
        unit = f" [{claim.checks[0].measure.unit}]" if isinstance(rule, Agree) else ""
        return _judge_all(failing, total, unit if failing else "") or _NOT_SIMULATED

    def _judge_some(self, claim: Claim, rule: Order) -> Verdict:
        """Judge a claim that holds if one of its comparisons does."""
        every = [
            (_comparison(check, point, found), found)
            for check in claim.checks
            for point, more, than in self._pairs(check)
            for _, found in [rule.holds(more, than)]
        ]
        if not every:
            return _NOT_SIMULATED
        corrected = holm([found.p for _, found in every])
        holding = [
            text
            for (text, found), p in zip(every, corrected, strict=True)
            if p is not None and p < LEVEL and (found.mean or 0.0) > 0
        ]
        if holding:
            return Verdict(
                REPRODUCED,
                f"holds in {len(holding)} of {plural(len(every), 'comparison')}: {_join_reasons(holding)}",
            )
        return Verdict(NOT_REPRODUCED, f"holds in none of {plural(len(every), 'comparison')}")

    def gains(self, checks: Sequence[Check]) -> dict[str, list[float | None]]:
        """Return the gain of a case over each other one, averaged over the measures [%], per run."""
        found: dict[str, list[list[float | None]]] = {}
        for check in checks:
            objective = check.objective or Objective(check.measure, less=True)
            for _, ours, theirs in self._pairs(check):
                gains = [objective.gain(a, b) for a, b in zip(ours, theirs, strict=True)]
                found.setdefault(check.than, []).append(gains)
        return {name: [mean_of(row) for row in zip(*columns, strict=True)] for name, columns in found.items()}

    def _in_print(self, claim: Claim) -> str:
        """Compare a claim with the paper's own tables."""
        against: dict[str, None] = {}
        compared = 0
        # Two cells do not decide a claim about a model or about the mean over several cases.
        for check in claim.checks if isinstance(claim.rule, Order | Change) else ():
            if check.against or check.than_measure:
                continue
            for table, column in _printed_columns(self.paper, check.experiment, check.measure):
                more, than = column.printed.get(check.more), column.printed.get(check.than)
                if more is None or than is None:
                    continue
                compared += 1
                if isinstance(claim.rule, Change):
                    change = 100 * (more - than) / abs(than) if than else math.nan
                    agrees = claim.rule.low <= change <= claim.rule.high
                else:
                    agrees = more > than
                if not agrees:
                    sizes = f"{check.more} {number(more)}, {check.than} {number(than)} {check.measure.unit}"
                    against[f"{table.where} ({sizes})"] = None
        if not compared:
            return ""
        return f"contradicted by {'; '.join(against)}" if against else "the printed tables agree"

    # Pictures.

    def _picture(self, picture: Picture) -> Item:
        return Item(
            PICTURE,
            picture.name,
            picture.where or OURS,
            picture.title,
            NO_NUMBER,
            "no printed value",
            experiment=picture.experiment,
            variant=not picture.where,
            spots=tuple(self._values_of(picture)),
        )

    def _values_of(self, picture: Picture) -> Iterator[CurveValue]:
        """Yield each measure of each curve at each simulated point."""
        if picture.objectives:
            yield from self._gains_of(picture)
            return
        engines = self.engines(picture) if picture.models else ((picture.experiment, ""),)
        for measure in (*picture.listed, *picture.measures):
            for case, (experiment, label) in ((c, e) for c in picture.cases for e in engines):
                for than in picture.than or (None,):
                    for point in self.paper.experiments[experiment].points:
                        values = self.values(experiment, case, measure, point.label)
                        curve, unit = f"{case}, {label}" if label else case, measure.unit
                        if than is not None:
                            theirs = self.values(experiment, than, measure, point.label)
                            lower = Objective(measure, less=True)
                            values = [lower.gain(a, b) for a, b in zip(values, theirs, strict=True)]
                            curve, unit = f"{case} over {than}", "% less"
                        if values:
                            yield CurveValue(curve, measure, unit, point.label, point.x, summarise(values))

    def engines(self, picture: Picture) -> tuple[tuple[str, str], ...]:
        """Return the experiments of a picture of models with their labels, the simulator first."""
        return ((picture.experiment, "simulator"), *picture.models)

    def _gains_of(self, picture: Picture) -> Iterator[CurveValue]:
        """Yield the gains of cases over others, in each objective or in all together."""
        groups = [picture.objectives] if picture.together else [(each,) for each in picture.objectives]
        for objectives in groups:
            measure = ALL_GAINS if picture.together else objectives[0].measure
            for case in picture.cases:
                checks = [
                    Check(picture.experiment, each.measure, case, than, ("",), each)
                    for than in picture.than
                    for each in objectives
                ]
                for than, values in self.gains(checks).items():
                    yield CurveValue(f"{case} over {than}", measure, "% better", "", 0.0, summarise(values))

    def printed(self, picture: Picture, measure: Measure, row: str = "") -> float | None:
        """Return the printed value of a measure in the table of a picture, by default in its row."""
        return next(
            (
                column.printed.get(row or picture.row)
                for table in self.paper.all_tables
                if table.name == picture.table
                for column in table.columns
                if column.measure == measure
            ),
            None,
        )

    def printed_moments(self, picture: Picture, case: str) -> tuple[float | None, float | None]:
        """Return the printed mean and deviation of a case's series, from the tables of its experiment."""
        mean, std = _MOMENTS.get(picture.options.get("quantity", picture.kind), ("", ""))
        found: dict[str, float] = {}
        for table in self.paper.all_tables:
            if picture.experiment in table.experiments:
                for column in table.columns:
                    if case in column.printed:
                        found.setdefault(column.measure.name, column.printed[case])
        return found.get(mean), found.get(std)

    # Discussion.

    @cached_property
    def numbers(self) -> dict[str, str]:
        """Computed numbers of the discussion by name; empty without runs."""
        return {name: self._number(each) for name, each in self.paper.numbers.items()}

    @property
    def discussion(self) -> list[str]:
        """Paragraphs of the discussion with their numbers, without those whose numbers were not simulated."""
        return discussion_of(self.paper, self.numbers)

    def _number(self, wanted: ComputedNumber) -> str:
        """Return a number, or the range of several, as text; empty without runs."""
        values = list(self._off_print(wanted) if wanted.tables else self._compared(wanted))
        if not values or any(map(math.isnan, values)):
            return ""
        low, high = (brief(each, 2) for each in (min(values), max(values)))
        if wanted.kind == "off print":
            # The largest deviation counts.
            low = high
        unit = "" if wanted.kind.startswith("times") else " %"
        return f"{low}{unit}" if low == high else f"{low} to {high}{unit}"

    def _compared(self, wanted: ComputedNumber) -> Iterator[float]:
        """Yield the mean ratio of each simulated comparison, or its difference from 1 [%]."""
        for check in wanted.checks:
            for _, ours, theirs in self._pairs(check):
                ratio = mean_of(quotients(ours, theirs))
                if ratio is None:
                    yield math.nan
                elif wanted.kind == "times":
                    yield ratio
                else:
                    yield 100 * (1 - ratio if wanted.kind == "less" else ratio - 1)

    def _off_print(self, wanted: ComputedNumber) -> Iterator[float]:
        """Yield the ratio of ours to the printed number in each cell, or its difference from 1 [%]."""
        for item in self.items:
            if item.kind != TABLE or item.name not in wanted.tables:
                continue
            if wanted.cells.contains(item.row, item.column, item.experiment):
                ours, printed = item.ours.mean, item.printed
                if ours is None or not printed:
                    yield math.nan
                else:
                    yield ours / printed if wanted.kind == "times print" else 100 * abs(ours / printed - 1)


def discussion_of(paper: Paper, numbers: Mapping[str, str]) -> list[str]:
    """Return the paragraphs of a paper's discussion all of whose numbers are known."""
    return [
        re.sub(FIELD, lambda field: numbers[field[1]], paragraph)
        for paragraph in paper.discussion
        if all(numbers.get(name) for name in re.findall(FIELD, paragraph))
    ]


def with_fitted_sides(paper: Paper, claim: Claim, verdict: Verdict) -> Verdict:
    """Return the verdict on a claim as calibrated if an input was fitted to a side of each comparison."""
    if not claim.checks or not all(_is_fitted(paper, check) for check in claim.checks):
        return verdict
    return Verdict(_fitted(verdict), f"{verdict.reason}; in each comparison an input was fitted to a side")


def _is_fitted(paper: Paper, check: Check) -> bool:
    """Return True if an input that not all settings share was fitted to a side of a comparison."""
    return any(
        not each.shared
        for experiment, case, measure in check.sides
        for table, column in _printed_columns(paper, experiment, measure)
        for each in fitted_inputs(table, column, experiment, case)
    )


def _printed_columns(
    paper: Paper, experiment: str, measure: Measure
) -> Iterator[tuple[PrintedTable, Column]]:
    for table in paper.all_tables:
        for column in table.columns:
            if experiment in table.experiments and column.measure == measure:
                yield table, column


def judge_figure(figure: PrintedFigure, items: Sequence[Item]) -> Item:
    """Judge a printed figure by the worst claim about it."""
    about = [item for item in items if item.name in figure.by and not item.variant]
    known = [item for item in about if item.verdict != NO_NUMBER]
    # Agreement after fitting counts only if there is nothing else.
    judged = [item for item in known if item.verdict != CALIBRATED_AGREES] or known
    return Item(
        FIGURE,
        figure.name,
        figure.where,
        figure.text,
        max((item.verdict for item in judged), key=VERDICTS.index, default=NO_NUMBER),
        ", ".join(dict.fromkeys(f"{item.name} {item.verdict}" for item in about)) or "no printed value",
        "the worst verdict of the claims about it" if judged else "",
        by=figure.by,
    )


def fitted_inputs(table: PrintedTable, column: Column, experiment: str, *rows: str) -> list[Input]:
    """Return the inputs that were fitted to some rows of a column."""
    return [
        each
        for each, cells in table.calibrated
        if any(cells.contains(row, column.name, experiment) for row in rows)
    ]


def _calibrated(verdict: Verdict, inputs: Sequence[Input]) -> Verdict:
    if not inputs:
        return verdict
    return Verdict(_fitted(verdict), f"{verdict.reason} ({', '.join(each.name for each in inputs)})")


def _fitted(verdict: Verdict) -> str:
    """Return the verdict where inputs were fitted: agreement is no evidence, disagreement is."""
    if verdict.verdict == NO_NUMBER:
        return NO_NUMBER
    return CALIBRATED_AGREES if verdict.verdict == REPRODUCED else CALIBRATED_DIFFERS


def explain(
    explanations: Sequence[Explanation], verdict: Verdict, row: str, column: str, experiment: str
) -> str:
    """Return the explanations of a verdict on a row and column of an experiment."""
    # One text may explain several verdicts.
    found = dict.fromkeys(
        each.text
        for each in explanations
        if _concerns(each.verdict, verdict.verdict) and each.cells.contains(row, column, experiment)
    )
    return " ".join(found)


def _concerns(explained: str, found: str) -> bool:
    """Return True if the explanation of a verdict explains another one too: of any disagreement."""
    apart = (DIRECTION_ONLY, NOT_REPRODUCED)
    return found == explained or (explained in apart and found in (CALIBRATED_DIFFERS, MAGNITUDE_DIFFERS))


def _sides(check: Check, point: str) -> str:
    return f"{check.described}{', ' + point if point else ''}"


def _comparison(check: Check, point: str, found: Summary | str) -> str:
    if isinstance(found, str):
        return f"{check.more}{', ' + point if point else ''}: {found}"
    if found.mean is None:
        return f"{_sides(check, point)}: no runs to compare"
    if found.low is None or found.high is None:
        return f"{_sides(check, point)}: {number(found.mean)} {check.measure.unit}"
    interval = f"[{number(found.low)}, {number(found.high)}]"
    return f"{_sides(check, point)}: {number(found.mean)} {interval} {check.measure.unit}"


def judge_by_means(claim: Claim, find: Find, ranked: Ranked) -> Verdict | None:
    """Judge a claim by means; `None` if its rule needs runs, or without any value."""
    match claim.rule:
        case Curve() | Bound() | About() as rule:
            return _worst_of(
                (f"{check.more}, {check.experiment}", rule.judge(points))
                for check in claim.checks
                if (points := _points(check, find))
            )
        case Rank() | Ahead() as rule:
            return _worst_of(_judge_places(rule, check, ranked) for check in claim.checks)
        case Similar() as rule:
            return _worst_of(
                (sides, rule.judge(ours, theirs)) for sides, ours, theirs in _compared(claim, find)
            )
        case Order(some=False):
            return _judge_order(claim, find)
    return None


def _judge_places(rule: Rank | Ahead, check: Check, ranked: Ranked) -> tuple[str, Verdict]:
    order = ranked.get(check.experiment, ())
    if isinstance(rule, Rank):
        return f"{check.more}, {check.experiment}", rule.judge(check.more, order)
    sides = f"{check.more} against {check.than}, {check.experiment}"
    return sides, rule.judge(check.more, check.than, order)


def _points(check: Check, find: Find) -> list[tuple[str, Summary]]:
    """Return the simulated points of a single case."""
    found = ((point, find(check.experiment, check.more, check.measure, point)) for point in check.points)
    return [(point, value) for point, value in found if value is not None]


def _compared(claim: Claim, find: Find) -> Iterator[tuple[str, Summary, Summary]]:
    """Yield the simulated comparisons with both values."""
    for check in claim.checks:
        for point in check.points:
            ours, theirs = (find(*side, point) for side in check.sides)
            if ours is not None and theirs is not None:
                yield _sides(check, point), ours, theirs


def _judge_order(claim: Claim, find: Find) -> Verdict | None:
    failing, total = [], 0
    for sides, ours, theirs in _compared(claim, find):
        total += 1
        gap = apart(ours, theirs)
        if gap.mean is None or gap.low is None or gap.high is None:
            failing.append(f"{sides}: no value")
        elif gap.low <= 0:
            failing.append(f"{sides}: {brief(gap.mean, 3)} [{brief(gap.low, 3)}, {brief(gap.high, 3)}]")
    return _judge_all(failing, total, UNPAIRED)


def _judge_all(failing: Sequence[str], total: int, note: str) -> Verdict | None:
    """Return the verdict if all of the comparisons must hold, with a note; `None` without any."""
    if not total:
        return None
    if not failing:
        return Verdict(REPRODUCED, f"holds in {plural(total, 'comparison')}{note}")
    fails = f"fails in {len(failing)} of {plural(total, 'comparison')}: {_join_reasons(failing)}"
    return Verdict(NOT_REPRODUCED, f"{fails}{note}")


def _worst_of(found: Iterator[tuple[str, Verdict]]) -> Verdict | None:
    """Return the worst of several verdicts with the reasons of those that share it; `None` without any."""
    every = list(found)
    if len(every) <= 1:
        return every[0][1] if every else None
    worst = max((verdict.verdict for _, verdict in every), key=VERDICTS.index)
    reasons = [f"{sides}: {verdict.reason}" for sides, verdict in every if verdict.verdict == worst]
    return Verdict(worst, f"{len(reasons)} of {len(every)} comparisons: {_join_reasons(reasons)}")


def _join_reasons(texts: Sequence[str]) -> str:
    """Return the first reasons, and the number of the others."""
    rest = len(texts) - _NAMED
    return "; ".join(texts[:_NAMED]) + (f", and {rest} more" if rest > 0 else "")
