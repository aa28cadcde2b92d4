"""Reader of a paper's folder: `claims.toml` with the printed tables and scenarios beside it."""

import csv
import json
import math
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Any, get_args

from bentpipe.errors import UsageError
from bentpipe.format import convert, meant, paragraphs
from bentpipe.models.engines import QUANTITIES as MODEL_QUANTITIES
from bentpipe.reproduction.experiments import CLAIMS, experiments_from, find_twice, objectives_from
from bentpipe.reproduction.measures import Measure, Objective, measure_from, metric
from bentpipe.reproduction.paper import (
    BASES,
    COMPUTED,
    FIELD,
    QUANTITIES,
    Cells,
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
    Relation,
    expand_range,
    format_locations,
)
from bentpipe.reproduction.rules import (
    VERDICTS,
    About,
    Agree,
    Bound,
    CellRule,
    Change,
    Curve,
    Gain,
    MeanRule,
    Order,
    Rank,
    Ratio,
    Similar,
    Weaker,
    formula_from,
    rule_from,
)
from bentpipe.reproduction.toml_table import TomlTable
from bentpipe.runs.plan import shipped

__all__ = ["load_paper", "papers", "printed_figures_from"]

_NOUNS = {"figures": "Figure", "tables": "Table"}
"""Keys with the numbers of printed figures, and their nouns."""
_MEASURED = ("curves", "change", "course", "bars")
"""Kinds of pictures that show measures."""
_COMPARED = ("change", "gains")
"""Kinds of pictures that compare cases with others."""
_SINGLE = (Curve, Bound, About, Rank)
"""Rules about single cases."""
_ACROSS = (Agree, Order, Similar, Weaker)
"""Rules that may compare experiments, or measures."""
_WITHOUT_RUNS = ("cuts", "input")
"""Kinds of pictures of formulas, which need no experiment."""


def papers() -> dict[str, Path]:
    """Return the folders of the shipped papers, by name."""
    folder = resources.files("bentpipe") / "data" / "papers"
    found = [Path(str(entry)) for entry in folder.iterdir() if (entry / CLAIMS).is_file()]
    return {path.name: path for path in sorted(found)}


def load_paper(name: str | Path) -> Paper:
    """Read a shipped paper by its name, or a paper's folder; raises `UsageError` for wrong data."""
    known = papers()
    folder = known.get(str(name), Path(name))
    if not (folder / CLAIMS).is_file():
        hint = meant(str(name), known, cutoff=0.5) or f"allowed: {', '.join(known)}, all"
        raise UsageError(f"paper {name}: neither a shipped paper nor a folder with {CLAIMS}; {hint}")
    path = folder / CLAIMS
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return _Reader(folder, TomlTable(values, str(path))).paper


class _Reader:
    """Reads one file, in the order in which its parts refer to each other."""

    def __init__(self, folder: Path, top: TomlTable) -> None:
        self._folder = folder
        self._measures = top.named("measure", measure_from)
        self._rules = top.named("rule", rule_from)
        self._inputs = top.named("calibrated", _input)
        self._experiments = experiments_from(top, folder, self._measured)
        tables = tuple(top.each("table", self._printed_table))
        self._tables = {each.name: each for each in tables}
        claims = tuple(top.each("claim", self._claim))
        pictures = top.each("figure", self._picture)
        known = [each.name for part in (tables, claims, pictures) for each in part]
        cases = list(dict.fromkeys(case for each in pictures for case in each.cases))
        figures = tuple(
            figure
            for some in top.each("printed", lambda table: printed_figures_from(table, known, cases))
            for figure in some
        )
        paper = Paper(
            # `.` and `..` are folders with names, too.
            folder.resolve().name,
            folder,
            top.take("title", str),
            top.take("source", str),
            tuple(paragraphs(top.take("about", str, ""))),
            tuple(top.strings("choices", [])),
            tuple(paragraphs(top.take("discussion", str, ""))),
            self._inputs,
            self._experiments,
            tables,
            claims,
            figures,
            tuple(
                replace(each, where=format_locations([one for one in figures if each.name in one.by]))
                for each in pictures
            ),
            tables,
            {},
        )
        twice = find_twice([name.replace(".", "-") for name in paper.ids])
        if twice is not None:
            raise UsageError(f"{top.location}: found the id {twice!r} twice; allowed: each once")
        self.paper = replace(paper, numbers=top.named("said", self._computed_number))
        top.finish()
        fields = re.findall(FIELD, " ".join(paper.discussion))
        for name in {*fields} ^ {*self.paper.numbers}:
            raise UsageError(
                f"{top.location}: said.{name}: needed: an entry, and {{{name}}} in the discussion"
            )

    def _printed_table(self, table: TomlTable) -> PrintedTable:
        file, key = self._folder / table.take("file", str), table.take("key", str)
        rows = _csv_rows(table, file, key)
        experiments = table.names("experiments", self._experiments)
        labels = [case.label for each in experiments for case in self._experiments[each].cases]
        for row in rows:
            if row[key] not in labels:
                raise UsageError(
                    f"{file}: {key}: found {row[key]!r}; allowed: a case of {', '.join(experiments)}:"
                    f" {', '.join(dict.fromkeys(labels))}"
                )
        baseline = table.choice("baseline", [row[key] for row in rows]) if "baseline" in table else None
        columns = tuple(table.each("columns", lambda each: self._column(each, file, key, rows)))
        if not columns:
            raise table.error("columns", [], "at least one column")
        found = PrintedTable(
            table.take("id", str),
            table.take("where", str),
            table.take("title", str),
            file,
            baseline,
            tuple(experiments),
            columns,
            (),
            tuple(one for some in table.each("relations", self._relations(columns)) for one in some),
            table.take("beside", bool, default=False),
            (),
        )
        names = found.rows, [each.name for each in columns], experiments

        def calibrated(each: TomlTable) -> tuple[Input, Cells]:
            chosen = self._inputs[each.choice("input", self._inputs)]
            shared = each.take("shared", bool, default=chosen.shared)
            return replace(chosen, shared=shared), _cells(each, *names)

        return replace(
            found,
            calibrated=tuple(table.each("calibrated", calibrated)),
            explanations=_explanations(table, *names),
        )

    def _relations(self, columns: tuple[Column, ...]) -> Callable[[TomlTable], list[Relation]]:
        def read(table: TomlTable) -> list[Relation]:
            known = [column.name for column in columns]
            rule = self._rule(table, Ratio)
            if rule is None:
                raise table.error("rule", None, "the name of a rule of the kind ratio")
            to = table.take("to", str)
            names = table.names("columns", known) if "columns" in table else known
            found = []
            for column in columns:
                if column.name not in names:
                    continue
                if not column.printed.get(to):
                    raise table.error("to", to, f"a row with a value other than 0 in {column.name}")
                rows = table.names("rows", column.printed) if "rows" in table else column.printed
                found += [Relation(row, to, column, rule) for row in rows if row != to]
            return found

        return read

    def _column(self, table: TomlTable, file: Path, key: str, rows: list[dict[str, str]]) -> Column:
        name = table.choice("column", [column for column in rows[0] if column != key])
        measure = self._measure(table)
        unit = table.take("unit", str, measure.unit)
        printed = {}
        for row in rows:
            if not row[name].strip():
                continue
            value = _number(row[name])
            if value is None:
                raise UsageError(f"{file}: {name} of {row[key]}: found {row[name]!r}; allowed: a number")
            found = convert(value, unit, measure.unit)
            if found is None:
                raise table.error("unit", unit, f"{measure.unit or 'none'}, or a unit that converts to it")
            printed[row[key]] = found
        return Column(name, measure, self._rule(table, CellRule), printed)

    def _claim(self, table: TomlTable) -> Claim:
        rule = self._rule(table, Agree, Order, Change, Gain, *get_args(MeanRule))
        formula = None
        if "formula" in table:
            inputs = table.table("formula")
            formula = formula_from(inputs, self._folder)
            inputs.finish()
        read = partial(self._checks, single=isinstance(rule, _SINGLE))
        checks = tuple(check for some in table.each("checks", read) for check in some)
        if isinstance(rule, Gain) != any(check.objective for check in checks):
            raise table.error("checks", "", "objectives with a rule of the kind gain, otherwise a measure")
        if not all(check.against for check in checks) and isinstance(rule, Agree | Weaker):
            raise table.error("checks", "", "against another experiment with a rule of this kind")
        if any(check.against or check.than_measure for check in checks) and not isinstance(rule, _ACROSS):
            raise table.error("checks", "", "neither against nor than_measure with a rule of this kind")
        if (rule is None) != (not checks):
            raise table.error("checks", len(checks), "some with a rule, and none without")
        return Claim(
            table.take("id", str),
            table.take("where", str),
            table.take("text", str),
            BASES[table.choice("basis", BASES)],
            rule,
            formula,
            checks,
            _explanations(table, [], [], []),
        )

    def _checks(self, table: TomlTable, *, single: bool = False) -> list[Check]:
        """Read comparisons; those of a `single` case, as of a curve, have it on both sides."""
        experiments = table.names("experiments", self._experiments)
        measures: list[tuple[Measure, Objective | None]] = (
            [(each.measure, each) for each in objectives_from(table, self._measured)]
            if "objectives" in table
            else [(self._measure(table), None)]
        )
        than_measure = (
            self._measured(table, "than_measure", table.take("than_measure", str))
            if "than_measure" in table
            else None
        )
        cases = [case.label for each in experiments for case in self._experiments[each].cases]
        against = table.choice("against", self._experiments) if "against" in table else ""
        if against:
            cases = [case.label for case in self._experiments[against].cases if case.label in cases]
        if single or "cases" in table:
            if not (single or against or than_measure):
                raise table.error("cases", "", "more and than, or than_measure, or against")
            pairs = [(each, each) for each in table.names("cases", cases)]
        else:
            pairs = list(product(table.names("more", cases), table.names("than", cases)))
        found = []
        for each in experiments:
            known = [point.label for point in self._experiments[each].points]
            points = tuple(table.names("points", known, []) or known)
            found += [
                Check(each, measure, more, than, points, objective, against, than_measure)
                for more, than in pairs
                for measure, objective in measures
            ]
        return found

    def _computed_number(self, _: str, table: TomlTable) -> ComputedNumber:
        kind = table.choice("kind", COMPUTED)
        checks: list[Check] = []
        tables: list[PrintedTable] = []
        if kind in ("off print", "times print"):
            tables = [self._tables[name] for name in table.names("tables", self._tables)]
        else:
            checks = [check for some in table.each("checks", self._checks) for check in some]
        cells = _cells(
            table,
            [row for each in tables for row in each.rows],
            [column.name for each in tables for column in each.columns],
            [name for each in tables for name in each.experiments],
        )
        return ComputedNumber(kind, tuple(checks), tuple(each.name for each in tables), cells)

    def _picture(self, table: TomlTable) -> Picture:
        kind = table.choice("kind", _KINDS)
        experiment = "" if kind in _WITHOUT_RUNS else table.choice("experiment", self._experiments)
        labels = [case.label for case in self._experiments[experiment].cases] if experiment else []
        points = [point.label for point in self._experiments[experiment].points] if experiment else []
        objectives = objectives_from(table, self._measured) if kind == "gains" else ()
        measures = self._measures_of(table, "measures", None if kind in _MEASURED else [])
        if kind == "course" and not any(each.series for each in measures):
            allowed = "at least one of the kind series, without from and until"
            raise table.error("measures", [each.name for each in measures], allowed)
        printed = (
            table.choice("table", self._tables) if kind in ("curves", "bars") and "table" in table else ""
        )
        found = Picture(
            table.take("id", str),
            "",
            table.take("title", str),
            table.text("caption"),
            kind,
            experiment,
            tuple(measures) or tuple(each.measure for each in objectives),
            tuple(table.names("cases", labels) if "cases" in table else labels),
            tuple(table.names("than", labels)) if kind in _COMPARED else (),
            table.take("log", bool, default=False),
            printed,
            table.choice("row", self._tables[printed].rows) if printed and kind == "curves" else "",
            tuple(self._measures_of(table, "listed", [])),
            self._options(kind, table),
            objectives,
            table.take("together", bool, default=False) if objectives else False,
            tuple(table.each("beside", self._model)) if kind in ("models", "bars") else (),
        )
        for each in found.options.get("points", []):
            if each not in points:
                raise table.error("points", each, ", ".join(points))
        return found

    def _options(self, kind: str, table: TomlTable) -> dict[str, Any]:
        if kind == "input":
            return _input_options(table, self._folder)
        return _OPTIONS[kind](table) if kind in _OPTIONS else {}

    def _model(self, table: TomlTable) -> tuple[str, str]:
        known = [name for name, each in self._experiments.items() if each.fluid]
        return table.choice("experiment", known), table.take("label", str)

    def _measure(self, table: TomlTable) -> Measure:
        return self._measured(table, "measure", table.take("measure", str))

    def _measures_of(self, table: TomlTable, key: str, default: list[str] | None) -> list[Measure]:
        return [self._measured(table, key, name) for name in table.strings(key, default)]

    def _measured(self, table: TomlTable, key: str, name: str) -> Measure:
        found = self._measures.get(name) or metric(name)
        if found is None:
            raise table.error(key, name, f"{', '.join(self._measures)}, or a metric")
        return found

    def _rule(self, table: TomlTable, *kinds: type) -> Any:  # noqa: ANN401
        name = table.optional("rule", str)
        if name is None:
            return None
        known = [each for each, rule in self._rules.items() if isinstance(rule, kinds)]
        if name not in known:
            raise table.error("rule", name, ", ".join(known) or "a rule of this kind; the file has none")
        return self._rules[name]


def printed_figures_from(
    table: TomlTable, known: list[str], cases: Sequence[str] = ()
) -> list[PrintedFigure]:
    """Read one entry of `printed`; its ids `by` must be in `known`, its cases in `cases`."""
    key = next((each for each in _NOUNS if each in table), "figures")
    of, text, by = table.take("of", str, ""), table.text("shows"), tuple(table.names("by", known))
    shown = tuple(table.names("cases", cases, []))
    span = _span(table)
    found = []
    for each in table.strings(key):
        numbers = expand_range(each)
        if not numbers:
            raise table.error(key, each, 'a number, as "4.5", or a range, as "4.2 to 4.11"')
        for number in numbers:
            name = "-".join([*of.removeprefix("the ").split(), _NOUNS[key].lower(), number])
            found.append(PrintedFigure(name, _NOUNS[key], number, of, text, by, shown, span))
    return found


def _input(name: str, table: TomlTable) -> Input:
    shared = table.take("shared", bool, default=False)
    return Input(name, table.take("what", str), table.take("on", str), shared)


def _cells(table: TomlTable, rows: list[str], columns: list[str], experiments: list[str]) -> Cells:
    known = (("rows", rows), ("columns", columns), ("experiments", experiments))
    return Cells(*(tuple(table.names(key, names, [])) for key, names in known))


def _explanations(
    table: TomlTable, rows: list[str], columns: list[str], experiments: list[str]
) -> tuple[Explanation, ...]:
    def read(each: TomlTable) -> Explanation:
        cells = _cells(each, rows, columns, experiments)
        return Explanation(each.choice("verdict", VERDICTS), cells, each.text("text"))

    return tuple(table.each("explain", read))


def _span(table: TomlTable) -> tuple[float, ...]:
    """Return begin and end of the times [s] or packets to draw, or nothing."""
    span = table.numbers("span", [])
    if span and not (len(span) == 2 and 0 <= span[0] < span[1]):
        raise table.error("span", span, "two numbers, the first below the second")
    return tuple(span)


def _series_options(table: TomlTable) -> dict[str, Any]:
    return {
        "quantity": table.choice("quantity", QUANTITIES),
        "span": _span(table),
        "columns": table.integer("columns", 1),
        "order": table.choice("order", ["rows", "columns"], "rows"),
        "points": table.strings("points", []),
    }


def _flow_options(table: TomlTable) -> dict[str, Any]:
    return {
        "traffic": table.strings("traffic"),
        "lines": table.strings("lines", []),
        "count": table.integer("count"),
        "columns": table.integer("columns", 1),
    }


def _model_options(table: TomlTable) -> dict[str, Any]:
    return {
        "quantities": table.names("quantities", [each.name for each in MODEL_QUANTITIES]),
        "span": _span(table),
    }


def _input_options(table: TomlTable, folder: Path) -> dict[str, Any]:
    """Read an input of a model from a file of measured series, beside the paper or the shipped scenarios."""
    name, unit = table.take("series", str), table.take("unit", str)
    folders = dict.fromkeys([folder, *(path.parent for path in shipped().values())])
    path = next((each / name for each in folders if (each / name).is_file()), None)
    if path is None:
        raise table.error("series", name, "a file of series beside claims.toml or the shipped scenarios")
    values = json.loads(path.read_text(encoding="utf-8"))
    known = [key for key, value in values.items() if isinstance(value, dict) and "cos" in value]
    found = values[table.choice("input", known)]
    scale = table.take("scale", float, 1.0)
    return {"interval": values["interval"], **found, "unit": unit, "scale": scale}


def _cut_options(table: TomlTable) -> dict[str, Any]:
    decr = table.numbers("decr")
    for each in decr:
        if not 0 < each < 1:
            raise table.error("decr", each, "above 0 and below 1")
    return {
        "limit": table.take("limit_bytes", float),
        "window": table.take("window_bytes", float),
        "decr": decr,
    }


_OPTIONS: Mapping[str, Callable[[TomlTable], dict[str, Any]]] = {
    "series": _series_options,
    "first drops": lambda table: {"count": table.integer("count")},
    "flow throughput": _flow_options,
    "bars": lambda table: {"marks": table.numbers("marks", [])},
    "change": lambda table: {"marks": table.numbers("marks", [])},
    "course": lambda table: {"span": _span(table), "marks": table.numbers("marks", [])},
    "cuts": _cut_options,
    "models": _model_options,
}
"""Readers of the keys that only one kind of picture has."""
_KINDS = tuple(dict.fromkeys((*_MEASURED, *_COMPARED, *_OPTIONS, "input")))


def _csv_rows(table: TomlTable, file: Path, key: str) -> list[dict[str, str]]:
    try:
        with file.open(newline="", encoding="utf-8") as opened:
            rows = list(csv.DictReader(opened))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{file}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not rows:
        raise UsageError(f"{file}: no row below the headings; at least one is needed")
    heads = [name for name in rows[0] if name is not None]
    for number, row in enumerate(rows, start=1):
        if None in row or None in row.values():
            raise UsageError(
                f"{file}: row {number}: its number of cells differs from that of headings, {len(heads)}"
            )
    if key not in heads:
        raise table.error("key", key, ", ".join(heads))
    twice = find_twice([row[key] for row in rows])
    if twice is not None:
        raise UsageError(f"{file}: {key}: found {twice!r} twice; allowed: each once")
    return rows


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
