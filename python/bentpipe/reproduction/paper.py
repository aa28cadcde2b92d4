"""A paper as data: its printed tables, claims and figures, and the experiments and rules that judge them.

A paper is a folder with `claims.toml`, the printed tables as CSV, and scenarios that only it uses.
`bentpipe.reproduction.reading` reads it; docs/reproduce-data.md describes the file.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from bentpipe.errors import UsageError
from bentpipe.format import and_list
from bentpipe.reproduction.experiments import Experiment
from bentpipe.reproduction.measures import Measure, Objective
from bentpipe.reproduction.rules import Agree, CellRule, Change, Formula, Gain, MeanRule, Order, Ratio

__all__ = [
    "BASES",
    "COMPUTED",
    "FIELD",
    "FIRST_RUN",
    "QUANTITIES",
    "Cells",
    "Check",
    "Claim",
    "Column",
    "ComputedNumber",
    "Explanation",
    "Input",
    "Paper",
    "Picture",
    "PrintedFigure",
    "PrintedTable",
    "Quantity",
    "Relation",
    "expand_range",
    "format_locations",
    "resolve_ids",
    "select",
]

BASES = {
    "sentence": "stated in the text",
    "tables": "read off the tables",
    "figure": "shown by the figure",
}
"""Evidence of a claim in the paper."""
COMPUTED = ("less", "more", "times", "off print", "times print")
"""Kinds of computed numbers: one case relative to another, or to the printed value [%, or times]."""
FIELD = r"\{([\w-]+)\}"
"""Placeholder of a computed number in the discussion: `{its-name}`."""
FIRST_RUN = ("series", "first drops", "flow throughput")
"""Kinds of pictures that show the first run of each case only."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A column of a run's series, as pictures show it."""

    label: str
    unit: str
    factor: float = 1.0
    from_zero: bool = True


QUANTITIES: Mapping[str, Quantity] = {
    "transmit_queue": Quantity("transmit queue", "packets"),
    "throughput": Quantity("throughput of the satellite link", "Mbit/s", 1e-6, from_zero=False),
    "arrival_rate": Quantity("arrival rate at the gateway", "Mbit/s", 1e-6, from_zero=False),
    "mark_probability": Quantity("share of marked packets", "%", 100.0),
    "queue_delay": Quantity("queueing delay", "ms", 1e3),
}
"""Quantities by the column's name in docs/results.md."""


@dataclass(frozen=True, slots=True)
class Input:
    """An input that the paper does not print and that was chosen by looking at its figures."""

    name: str
    what: str
    on: str
    """Printed values that it was fitted to."""
    shared: bool
    """True if all settings share it, so that differences between settings are judged all the same."""


@dataclass(frozen=True, slots=True)
class Cells:
    """Some cells of a table as measured; an empty field stands for all."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    experiments: tuple[str, ...]

    def contains(self, row: str, column: str, experiment: str) -> bool:
        """Return True if a cell is among them."""
        pairs = ((self.rows, row), (self.columns, column), (self.experiments, experiment))
        return all(not some or each in some for some, each in pairs)


@dataclass(frozen=True, slots=True)
class Explanation:
    """Reason of a result, shown with the verdict `verdict`."""

    verdict: str
    cells: Cells
    text: str


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a printed table."""

    name: str
    measure: Measure
    rule: CellRule | None
    """Rule of the verdict; `None` if the column is not judged."""
    printed: Mapping[str, float]
    """Printed values by row, in the measure's unit."""


@dataclass(frozen=True, slots=True)
class Relation:
    """Printed ratio of one row's value to another row's."""

    row: str
    to: str
    column: Column
    rule: Ratio

    @property
    def printed(self) -> float:
        """The printed ratio."""
        return self.column.printed[self.row] / self.column.printed[self.to]


@dataclass(frozen=True, slots=True)
class PrintedTable:
    """A printed table: a row per case, a column per measure."""

    name: str
    where: str
    title: str
    file: Path
    baseline: str | None
    """Row that directions refer to."""
    experiments: tuple[str, ...]
    """Experiments that it is compared with; the first is the paper's."""
    columns: tuple[Column, ...]
    calibrated: tuple[tuple[Input, Cells], ...]
    """Inputs that were fitted to some of its cells."""
    relations: tuple[Relation, ...]
    """Ratios between its rows that are judged."""
    variant: bool
    """True for another interpretation of a table that is counted elsewhere."""
    explanations: tuple[Explanation, ...]

    @property
    def rows(self) -> list[str]:
        """Names of the rows, in order."""
        return list(dict.fromkeys(row for column in self.columns for row in column.printed))


@dataclass(frozen=True, slots=True)
class Check:
    """Comparison of a claim: one case of an experiment has more of a measure than another.

    Rules about a single case, as of a curve, have it on both sides.
    """

    experiment: str
    measure: Measure
    more: str
    than: str
    points: tuple[str, ...]
    objective: Objective | None = None
    """Measure with its better direction, for the rule `gain`."""
    against: str = ""
    """Experiment of the case `than` if it is another one."""
    than_measure: Measure | None = None
    """Measure of the case `than` if it is another one."""

    @property
    def described(self) -> str:
        """Description of both sides."""
        (experiment, more, measure), (against, than, other) = self.sides
        ours = f"{more}, {measure.label}" if other != measure else more
        theirs = f"{than}, {other.label}" if other != measure else than
        where = experiment if against == experiment else f"{experiment} against {against}"
        return f"{ours} against {theirs}, {where}"

    @property
    def sides(self) -> tuple[tuple[str, str, Measure], tuple[str, str, Measure]]:
        """Experiment, case and measure of both sides."""
        return (
            (self.experiment, self.more, self.measure),
            (self.against or self.experiment, self.than, self.than_measure or self.measure),
        )


@dataclass(frozen=True, slots=True)
class ComputedNumber:
    """A number in the discussion that is computed from runs."""

    kind: str
    """One of `COMPUTED`."""
    checks: tuple[Check, ...]
    """Comparisons; several make a range."""
    tables: tuple[str, ...]
    """Tables of which some cells are compared with the printed values."""
    cells: Cells


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of the paper, in our own words."""

    name: str
    where: str
    text: str
    basis: str
    """Evidence in the paper: one of the texts of `BASES`."""
    rule: Agree | Order | Change | Gain | MeanRule | None
    """Rule of the verdict; `None` for a formula, or if nothing printed survives."""
    formula: Formula | None
    checks: tuple[Check, ...]
    explanations: tuple[Explanation, ...]


@dataclass(frozen=True, slots=True)
class PrintedFigure:
    """A printed figure, or a printed table whose numbers are lost."""

    name: str
    """Id, for example `figure-4.5`."""
    noun: str
    """Figure or Table."""
    number: str
    """Printed number, for example 4.5."""
    of: str
    """Other paper in which it is printed; empty for this one."""
    text: str
    """Description of its content."""
    by: tuple[str, ...]
    """Ids of the pictures that correspond to it, and of the claims about it."""
    cases: tuple[str, ...] = ()
    """Cases of the first picture that it shows; empty for all."""
    span: tuple[float, ...] = ()
    """Begin and end of what it shows: times [s], or numbers of packets; empty for all."""

    @property
    def where(self) -> str:
        """Location, for example `Figure 4.5`."""
        return f"{self.noun} {self.number}" + (f" of {self.of}" if self.of else "")


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure of ours, drawn from experiments."""

    name: str
    where: str
    """Printed figures that it corresponds to; empty without."""
    title: str
    caption: str
    kind: str
    experiment: str
    """Experiment that it shows; empty if it needs none."""
    measures: tuple[Measure, ...]
    cases: tuple[str, ...]
    than: tuple[str, ...]
    """Cases that `cases` are compared with."""
    log: bool
    """True for a logarithmic axis of points."""
    table: str
    row: str
    """Row of the printed `table` that is drawn too; empty without."""
    listed: tuple[Measure, ...]
    """Measures that are listed below the picture and not drawn; without any the report lists no numbers."""
    options: Mapping[str, Any]
    """Further keys of its kind."""
    objectives: tuple[Objective, ...] = ()
    """Objectives of the kind `gains`."""
    together: bool = False
    """True to show the mean of all gains instead of each."""
    models: tuple[tuple[str, str], ...] = ()
    """Experiments of the kind `models` that solve equations, with their labels."""

    @property
    def heading(self) -> str:
        """Title after the printed figures that it corresponds to."""
        return f"{self.where}: {self.title}" if self.where else self.title

    @property
    def experiments(self) -> tuple[str, ...]:
        """All experiments that it shows, its own first."""
        return (*([self.experiment] if self.experiment else []), *(name for name, _ in self.models))


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper's claims, and all that is needed to judge them."""

    name: str
    folder: Path
    title: str
    source: str
    about: tuple[str, ...]
    choices: tuple[str, ...]
    """Inputs that the paper leaves open, with the values chosen."""
    discussion: tuple[str, ...]
    """Paragraphs on the results."""
    inputs: Mapping[str, Input]
    experiments: Mapping[str, Experiment]
    tables: tuple[PrintedTable, ...]
    """Tables that are judged."""
    claims: tuple[Claim, ...]
    figures: tuple[PrintedFigure, ...]
    """Printed figures, and tables without numbers, in the paper's order."""
    pictures: tuple[Picture, ...]
    all_tables: tuple[PrintedTable, ...]
    """All printed tables, of which `tables` may be some."""
    numbers: Mapping[str, ComputedNumber]
    """Computed numbers of the discussion."""

    @property
    def ids(self) -> list[str]:
        """Ids of the tables, claims, printed figures and pictures."""
        parts = (self.tables, self.claims, self.figures, self.pictures)
        return [each.name for part in parts for each in part]


def expand_range(text: str) -> list[str]:
    """Return the numbers of a range: `4.2 to 4.4` as 4.2, 4.3 and 4.4; empty if it is malformed."""
    ends = [re.fullmatch(r"(\d+\.)?(\d+)", part.strip()) for part in text.split(" to ")]
    known = [end for end in ends if end is not None]
    if len(known) < len(ends) or len(ends) > 2 or known[0][1] != known[-1][1]:
        return []
    return [f"{known[0][1] or ''}{n}" for n in range(int(known[0][2]), int(known[-1][2]) + 1)]


def format_locations(some: Sequence[PrintedFigure]) -> str:
    """Return the locations of several figures, `Figures 5 and 10 to 16`; empty for none."""
    groups: dict[tuple[str, str], list[str]] = {}
    for each in some:
        groups.setdefault((each.noun, each.of), []).append(each.number)
    texts = [
        f"{noun}{'s' if len(numbers) > 1 else ''} {_ranges(numbers)}" + (f" of {of}" if of else "")
        for (noun, of), numbers in groups.items()
    ]
    return ", and ".join([*texts[:1], *(text[0].lower() + text[1:] for text in texts[1:])])


def _ranges(numbers: Sequence[str]) -> str:
    runs: list[list[str]] = []
    for number in numbers:
        if runs and number in expand_range(f"{runs[-1][-1]} to {number}")[1:2]:
            runs[-1].append(number)
        else:
            runs.append([number])
    return and_list(f"{run[0]} to {run[-1]}" if len(run) > 2 else and_list(run) for run in runs)


def resolve_ids(papers: Sequence[Paper], texts: Sequence[str]) -> list[str]:
    """Return the ids that `texts` refer to: `figure-4.5`, `Figure 4.5` and `4.5` are the same.

    Raises `UsageError` for a text that refers to nothing, or to several.
    """
    ids: dict[str, dict[tuple[str, str], None]] = {}
    locations: dict[str, dict[tuple[str, str], None]] = {}
    for paper in papers:
        for name in paper.ids:
            ids.setdefault(_normalized(name), {})[paper.name, name] = None
        tables = [(table.where, table.name) for table in paper.tables if not table.variant]
        for where, name in [*tables, *((each.where, each.name) for each in paper.figures)]:
            for text in (where, where.partition(" ")[2]):
                locations.setdefault(_normalized(text), {})[paper.name, name] = None
    found: dict[str, None] = {}
    for text in texts:
        key = _normalized(text)
        matching = ids.get(key) or locations.get(key, {})
        if not matching:
            raise UsageError(f"--only {text}: unknown id; allowed: {_allowed_ids(papers)}")
        named = list(dict.fromkeys(paper for paper, _ in matching))
        if len(named) > 1:
            raise UsageError(f"--only {text}: ambiguous: {and_list(named)} have it; name one paper")
        if len(matching) > 1:
            allowed = ", ".join(name for _, name in matching)
            raise UsageError(f"--only {text}: ambiguous; allowed: {allowed}")
        found |= {name: None for _, name in matching}
    return list(found)


def _normalized(text: str) -> str:
    """Return an id without variations in writing: `fig. 4.5` as figure-4-5."""
    words = re.split(r"[\s._-]+", text.strip().lower())
    return "-".join("figure" if word == "fig" else word for word in words if word)


def _allowed_ids(papers: Sequence[Paper]) -> str:
    """Return all ids; a range of printed figures is given by its first and last."""
    parts = []
    for paper in papers:
        for _, group in groupby(
            paper.figures, lambda each: (each.of, each.noun, each.number.partition(".")[0])
        ):
            names = [each.name for each in group]
            parts.append(names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}")
        parts += [name for name in paper.ids if name not in {each.name for each in paper.figures}]
    return ", ".join(parts)


@dataclass(slots=True)
class _Need:
    """Cases, points and runs that are needed of an experiment."""

    cases: set[str] = field(default_factory=set)
    points: set[str] = field(default_factory=set)
    runs: int = 1


_Needed = tuple[str, Iterable[str], Iterable[str], bool]
"""Experiment, cases, points, and True if all runs are needed, not the first only."""


def select(paper: Paper, names: Sequence[str]) -> Paper:
    """Return the paper with these tables, claims and figures only, and the experiments that they need.

    `names` are ids; a printed figure includes the pictures and claims that correspond to it. The discussion
    keeps the paragraphs whose numbers come from the same runs as in the whole paper.
    """
    figures = tuple(each for each in paper.figures if each.name in names)
    wanted = {*names, *(name for each in figures for name in each.by)}
    tables = tuple(each for each in paper.tables if each.name in wanted)
    claims = tuple(each for each in paper.claims if each.name in wanted)
    pictures = tuple(each for each in paper.pictures if each.name in wanted)
    needed = [*_needed(paper, tables, claims, pictures)]
    if wanted.issuperset(paper.ids):
        needed += [each for number in paper.numbers.values() for each in _compared(number.checks)]
    needs: dict[str, _Need] = {}
    for name, cases, points, all_runs in needed:
        need = needs.setdefault(name, _Need())
        need.cases |= set(cases)
        need.points |= set(points)
        need.runs = max(need.runs, paper.experiments[name].runs if all_runs else 1)
    experiments = {
        name: _reduced(each, needs[name]) for name, each in paper.experiments.items() if name in needs
    }
    numbers = {name: each for name, each in paper.numbers.items() if _is_covered(paper, each, tables, needs)}
    discussion = tuple(each for each in paper.discussion if numbers.keys() >= set(re.findall(FIELD, each)))
    return replace(
        paper,
        figures=figures,
        tables=tables,
        claims=claims,
        pictures=pictures,
        experiments=experiments,
        numbers=numbers,
        discussion=discussion,
    )


def _is_covered(
    paper: Paper, number: ComputedNumber, tables: Sequence[PrintedTable], needs: Mapping[str, _Need]
) -> bool:
    """Return True if all runs of a number in the discussion are needed anyway."""
    return set(number.tables) <= {table.name for table in tables} and all(
        name in needs
        and needs[name].runs == paper.experiments[name].runs
        and needs[name].cases.issuperset(cases)
        and needs[name].points.issuperset(points)
        for name, cases, points, _ in _compared(number.checks)
    )


def _compared(checks: Sequence[Check]) -> Iterator[_Needed]:
    for check in checks:
        yield check.experiment, [check.more, check.than], check.points, True
        if check.against:
            yield check.against, [check.more, check.than], check.points, True


def _needed(
    paper: Paper, tables: Sequence[PrintedTable], claims: Sequence[Claim], pictures: Sequence[Picture]
) -> Iterator[_Needed]:
    for table in tables:
        for name in table.experiments:
            yield name, table.rows, [""], True
    for claim in claims:
        yield from _compared(claim.checks)
    for picture in pictures:
        first = picture.kind in FIRST_RUN
        for name in picture.experiments:
            known = [point.label for point in paper.experiments[name].points]
            points = picture.options.get("points") or known[:1] if first else known
            yield name, [*picture.cases, *picture.than], points, not first


def _reduced(experiment: Experiment, need: _Need) -> Experiment:
    if experiment.tuning is not None:
        # Ranking needs all cases.
        return experiment
    return replace(
        experiment,
        cases=tuple(each for each in experiment.cases if each.label in need.cases),
        points=tuple(each for each in experiment.points if each.label in need.points),
        quick_points=tuple(each for each in experiment.quick_points if each in need.points),
        runs=min(experiment.runs, need.runs),
        quick_runs=min(experiment.quick_runs, need.runs),
    )
