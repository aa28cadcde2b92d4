"""A paper as data: what it printed and claimed, how that is simulated, and by which rule it is judged.

A paper is a folder with `claims.toml`, the printed tables as CSV, and scenarios that no other use has.
`bentpipe.reproduction.reading` reads it; docs/reproduce.md describes the file.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bentpipe.reproduction.grids import Aim, Tuning
from bentpipe.reproduction.laws import Formula
from bentpipe.reproduction.measures import Measure
from bentpipe.reproduction.rules import Agree, Change, Gain, Near, Order, Ratio
from bentpipe.reproduction.shown import Shown

__all__ = [
    "BASES",
    "CLAIMS",
    "FIELD",
    "SAID",
    "Case",
    "Cells",
    "Check",
    "Claim",
    "Column",
    "Experiment",
    "Explanation",
    "Input",
    "Paper",
    "Picture",
    "Point",
    "Printed",
    "Relation",
    "Said",
]

CLAIMS = "claims.toml"
BASES = {
    "sentence": "said in words",
    "tables": "read off the tables",
    "figure": "what the figure is about",
}
"""What a claim stands in."""
SAID = ("less", "more", "times", "off print", "times print")
"""How one case is to another, or to print, [%, or times]; of `off print` the furthest."""
FIELD = r"\{([\w-]+)\}"
"""Where a number stands in a discussion: `{its-name}`."""


@dataclass(frozen=True, slots=True)
class Input:
    """An input that the paper does not print and that was chosen by looking at its figures."""

    name: str
    what: str
    on: str
    """Which printed figures were looked at."""
    shared: bool
    """Whether every setting has it alike: then how settings differ from each other is judged all the same."""


@dataclass(frozen=True, slots=True)
class Case:
    """One row or curve of an experiment: a setting, and what else it changes."""

    label: str
    setting: str | None
    """None: the scenario as it is."""
    overrides: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Point:
    """One place on an experiment's axis."""

    label: str
    x: float
    overrides: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Experiment:
    """A scenario under every case, at every point, with the same seeds."""

    name: str
    title: str
    scenario: Path
    overrides: tuple[str, ...]
    cases: tuple[Case, ...]
    points: tuple[Point, ...]
    axis: str
    """What the points differ in, with its unit; empty for a single point."""
    runs: int
    seed: int
    drops: bool
    """Whether its figures need every drop."""
    quick_runs: int
    quick_overrides: tuple[str, ...]
    quick_points: tuple[str, ...]
    """Points that a quick reproduction has."""
    flows: bool = True
    """Whether its table of flows is kept, which may be far longer than all else."""
    tuning: Tuning | None = None
    """What chooses the settings of its cases; None: they are given."""
    fluid: bool = False
    """Whether the scenarios' equations are solved, in place of simulations."""


@dataclass(frozen=True, slots=True)
class Cells:
    """Some cells of a table as it came out; what is empty means all."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    experiments: tuple[str, ...]

    def hold(self, row: str, column: str, experiment: str) -> bool:
        """Whether a cell is among them."""
        asked = ((self.rows, row), (self.columns, column), (self.experiments, experiment))
        return all(not some or each in some for some, each in asked)


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why something comes out as it does, shown where the verdict is `verdict`."""

    verdict: str
    cells: "Cells"
    text: str


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a printed table."""

    name: str
    measure: Measure
    rule: Near | None
    """None: not judged."""
    printed: Mapping[str, float]
    """By row, in the measure's unit."""


@dataclass(frozen=True, slots=True)
class Relation:
    """How many times one row's value another row's is, as printed."""

    row: str
    to: str
    column: Column
    rule: Ratio

    @property
    def printed(self) -> float:
        """The printed ratio."""
        return self.column.printed[self.row] / self.column.printed[self.to]


@dataclass(frozen=True, slots=True)
class Printed:
    """A printed table: a row a case, a column a measure."""

    name: str
    where: str
    title: str
    file: Path
    baseline: str | None
    """The row that directions are told from."""
    experiments: tuple[str, ...]
    """Those that it is judged beside; the first is the paper's own."""
    columns: tuple[Column, ...]
    calibrated: tuple[tuple[Input, Cells], ...]
    """Inputs that were chosen by looking at some of its cells."""
    relations: tuple[Relation, ...]
    """Those between its rows that are judged."""
    beside: bool
    """Whether it is another reading of a table that stands elsewhere, shown and not counted."""
    explanations: tuple[Explanation, ...]

    @property
    def rows(self) -> list[str]:
        """Names of the rows, in order."""
        return list(dict.fromkeys(row for column in self.columns for row in column.printed))


@dataclass(frozen=True, slots=True)
class Check:
    """Part of a claim: a case of an experiment has more of something than another."""

    experiment: str
    measure: Measure
    more: str
    than: str
    points: tuple[str, ...]
    aim: Aim | None = None
    """Of the rule `gain`, which way is better."""
    against: str = ""
    """Of the rule `agree`, the experiment that has the other case."""


@dataclass(frozen=True, slots=True)
class Said:
    """A number in the discussion, which is computed."""

    kind: str
    """One of `SAID`."""
    checks: tuple[Check, ...]
    """What is compared; several make a range."""
    tables: tuple[str, ...]
    """What is compared with print: some cells of these."""
    cells: Cells


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim in words, in our own."""

    name: str
    where: str
    text: str
    basis: str
    """What it stands in: one of `BASES`, in words."""
    rule: Agree | Order | Change | Gain | None
    """None: nothing survives that could be judged, or it is a formula."""
    formula: Formula | None
    checks: tuple[Check, ...]
    explanations: tuple[Explanation, ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure of the paper, or one of ours, drawn from experiments."""

    name: str
    where: str
    """Which figures of the paper it answers; empty for one of ours."""
    title: str
    caption: str
    kind: str
    experiment: str
    """Empty where it needs none."""
    measures: tuple[Measure, ...]
    cases: tuple[str, ...]
    than: tuple[str, ...]
    """Of the kind `change`, what the cases are compared with."""
    log: bool
    """Whether the axis of points is logarithmic."""
    table: str
    row: str
    """Of the kind `curves`, a printed row that is drawn too; empty without."""
    listed: tuple[Measure, ...]
    """What its table of numbers has and it does not draw; without any the report has no such table."""
    options: Mapping[str, Any]
    """What its kind needs besides."""
    aims: tuple[Aim, ...] = ()
    """Of the kind `gains`, what gets better which way."""
    together: bool = False
    """Whether the mean of all gains is shown instead of each."""
    beside: tuple[tuple[str, str], ...] = ()
    """Of the kind `models`, the experiments whose solutions stand beside, and what they are called."""

    @property
    def heading(self) -> str:
        """Its title, after the printed figures that it answers."""
        return f"{self.where}: {self.title}" if self.where else self.title

    @property
    def experiments(self) -> tuple[str, ...]:
        """All experiments that it shows, its own first."""
        return (*([self.experiment] if self.experiment else []), *(name for name, _ in self.beside))


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper's claims, and all that is needed to judge them."""

    name: str
    folder: Path
    title: str
    source: str
    about: tuple[str, ...]
    choices: tuple[str, ...]
    """What the paper leaves open, and what was chosen."""
    discussion: tuple[str, ...]
    """What came out and what did not, in words."""
    inputs: Mapping[str, Input]
    experiments: Mapping[str, Experiment]
    tables: tuple[Printed, ...]
    claims: tuple[Claim, ...]
    shown: tuple[Shown, ...]
    """Its figures, and its tables without numbers, in its own order."""
    pictures: tuple[Picture, ...]
    """Ours, which answer them or stand beside."""
    printed: tuple[Printed, ...]
    """All of its tables, where `tables` are some of them."""
    said: Mapping[str, Said]
    """The numbers of its discussion."""

    @property
    def ids(self) -> list[str]:
        """Ids of the tables, claims, printed figures and our figures."""
        parts = (self.tables, self.claims, self.shown, self.pictures)
        return [each.name for part in parts for each in part]
