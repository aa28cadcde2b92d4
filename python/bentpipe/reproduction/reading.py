"""Read a paper's folder: `claims.toml` with the tables and scenarios beside it."""

import csv
import difflib
import math
import re
import tomllib
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from bentpipe.errors import UsageError
from bentpipe.format import convert, paragraphs
from bentpipe.reproduction.grids import Aim, Tuning, aims_from, tuning_from
from bentpipe.reproduction.kinds import COMPARED, MEASURED, OPTIONS, PICTURES, WITHOUT_RUNS
from bentpipe.reproduction.laws import formula_from
from bentpipe.reproduction.measures import Measure, measure_from, metric
from bentpipe.reproduction.paper import (
    BASES,
    CLAIMS,
    FIELD,
    SAID,
    Case,
    Cells,
    Check,
    Claim,
    Column,
    Experiment,
    Explanation,
    Input,
    Paper,
    Picture,
    Printed,
    Relation,
    Said,
)
from bentpipe.reproduction.points import overrides_of, points_from
from bentpipe.reproduction.rules import VERDICTS, Agree, Change, Gain, Near, Order, Ratio, Rule, rule_from
from bentpipe.reproduction.shown import Shown, places, shown_from
from bentpipe.reproduction.table import Table
from bentpipe.runs.plan import shipped

__all__ = ["load_paper", "papers"]


def papers() -> dict[str, Path]:
    """Return the folders of the papers that come with Bentpipe, by name."""
    folder = resources.files("bentpipe") / "data" / "papers"
    found = [Path(str(entry)) for entry in folder.iterdir() if (entry / CLAIMS).is_file()]
    return {path.name: path for path in sorted(found)}


def load_paper(name: str | Path) -> Paper:
    """Read a paper: one that comes with Bentpipe by its name, or a folder; `UsageError` if it is wrong."""
    known = papers()
    folder = known.get(str(name), Path(name))
    if not (folder / CLAIMS).is_file():
        near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else f"allowed: {', '.join(known)}, all"
        raise UsageError(f"paper {name}: there is none of that name, nor a folder with {CLAIMS}; {hint}")
    path = folder / CLAIMS
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return _Reader(folder, Table(values, str(path))).paper()


class _Reader:
    """Reads one file, with what its tables refer to."""

    def __init__(self, folder: Path, table: Table) -> None:
        self._folder = folder
        self._table = table
        self._measures: dict[str, Measure] = {}
        self._rules: dict[str, Rule] = {}
        self._inputs: dict[str, Input] = {}
        self._experiments: dict[str, Experiment] = {}
        self._cases: dict[str, tuple[Case, ...]] = {}
        self._tunings: dict[str, Tuning] = {}
        self._quick = Table({}, "")
        self._rows_of: dict[str, list[str]] = {}
        self._given: dict[str, Table] = {}

    def paper(self) -> Paper:
        top = self._table
        title, source = top.take("title", str), top.take("source", str)
        about, choices = paragraphs(top.take("about", str, "")), top.texts("choices", [])
        discussion = paragraphs(top.take("discussion", str, ""))
        self._measures = top.named("measure", measure_from)
        self._rules = top.named("rule", rule_from)
        self._inputs = top.named("calibrated", _input)
        self._quick = top.table("quick")
        lists = top.table("cases")
        self._cases = {name: tuple(map(_case, lists.tables(name))) for name in lists.rest()}
        self._tunings = top.named("tuning", lambda name, each: tuning_from(name, each, self._measured))
        self._experiments = top.named("experiment", self._experiment)
        tables = tuple(self._printed(each) for each in top.tables("table"))
        self._rows_of = {each.name: each.rows for each in tables}
        claims = tuple(self._claim(each) for each in top.tables("claim"))
        pictures = [self._picture(each) for each in top.tables("figure")]
        shown = self._shown([each.name for part in (tables, claims, pictures) for each in part])
        found = Paper(
            # `.` and `..` are folders with names, too.
            self._folder.resolve().name,
            self._folder,
            title,
            source,
            tuple(about),
            tuple(choices),
            tuple(discussion),
            self._inputs,
            self._experiments,
            tables,
            claims,
            shown,
            tuple(
                replace(picture, where=places([each for each in shown if picture.name in each.by]))
                for picture in pictures
            ),
            tables,
            {},
        )
        twice = _twice(name.replace(".", "-") for name in found.ids)
        if twice is not None:
            raise UsageError(f"{top.place}: found the id {twice!r} twice; allowed: each once")
        found = replace(found, said=top.named("said", lambda _, each: self._said(each, tables)))
        top.done()
        fields = re.findall(FIELD, " ".join(found.discussion))
        for name in {*fields} ^ {*found.said}:
            raise UsageError(f"{top.place}: said.{name}: needed: an entry, and {{{name}}} in the discussion")
        return found

    def _shown(self, known: list[str]) -> tuple[Shown, ...]:
        found = []
        for each in self._table.tables("printed"):
            self._names(each.again(), "by", known)
            found += shown_from(each)
        return tuple(found)

    def _experiment(self, name: str, given: Table) -> Experiment:
        title = given.take("title", str)
        if "like" in given:
            given = given.like(self._given[given.choice("like", self._given)], "set")
            given.take("like", str)
        self._given[name] = given.again()
        quick = given.table("quick") if "quick" in given else self._quick.again()
        fluid = given.choice("engine", ["simulator", "model"], "simulator") == "model"
        # A model has one solution.
        runs = min(1, given.whole("runs", 1)) if fluid else given.whole("runs", least=2)
        points = points_from(given)
        known = [each.label for each in points]
        few = self._names(quick, "points", known) if "points" in quick else known
        found = Experiment(
            name,
            title,
            self._scenario(given),
            overrides_of(given),
            self._some_cases(given),
            points,
            given.take("axis", str, ""),
            runs,
            given.whole("seed", 1, least=0),
            given.take("drops", bool, default=False),
            min(runs, quick.whole("runs", least=2)),
            overrides_of(quick),
            tuple(few),
            given.take("flows", bool, default=True) and not fluid,
            self._tunings[given.choice("tuned", self._tunings)] if "tuned" in given else None,
            fluid,
        )
        self._check_tuned(given, found)
        for key, labels in (("points", known), ("cases", [case.label for case in found.cases])):
            if not labels:
                raise given.wrong(key, [], "one at least")
            twice = _twice(labels)
            if twice is not None:
                raise given.wrong(key, twice, "each label once")
        quick.done()
        given.take("title", str)
        given.done()
        return found

    def _check_tuned(self, given: Table, found: Experiment) -> None:
        tuning = found.tuning
        if tuning is None:
            return
        if len(found.points) > 1:
            raise given.wrong("points", len(found.points), "none where an experiment is tuned")
        used = tuning.seed + 2 * tuning.runs
        if tuning.seed - found.runs < found.seed < used:
            raise given.wrong("seed", found.seed, f"{used} or more: those before are the tuning's")

    def _some_cases(self, given: Table) -> tuple[Case, ...]:
        if "tuned" in given:
            if "cases" in given:
                raise given.wrong("cases", "", "none where an experiment is tuned")
            grids = self._tunings[given.choice("tuned", self._tunings)].grids
            return tuple(Case(each.label, each.setting, ()) for each in grids)
        if "cases" not in given:
            return (Case("as it is", None, ()),)
        if given.is_text("cases"):
            return self._cases[given.choice("cases", self._cases)]
        return tuple(map(_case, given.tables("cases")))

    def _scenario(self, given: Table) -> Path:
        name = given.take("scenario", str)
        beside = self._folder / name
        if beside.is_file():
            return beside
        known = shipped()
        if name in known:
            return known[name]
        raise given.wrong("scenario", name, f"a file beside {CLAIMS}, or one of {', '.join(known)}")

    def _printed(self, given: Table) -> Printed:
        name = given.take("id", str)
        file = self._folder / given.take("file", str)
        key = given.take("key", str)
        rows = _rows(given, file, key)
        experiments = self._names(given, "experiments", self._experiments)
        labels = [case.label for each in experiments for case in self._experiments[each].cases]
        for row in rows:
            if row[key] not in labels:
                raise UsageError(
                    f"{file}: {key}: found {row[key]!r}; allowed: a case of {', '.join(experiments)}:"
                    f" {', '.join(dict.fromkeys(labels))}"
                )
        baseline = given.maybe("baseline", str)
        if baseline is not None and baseline not in [row[key] for row in rows]:
            raise given.wrong("baseline", baseline, ", ".join(row[key] for row in rows))
        columns = tuple(self._column(each, file, key, rows) for each in given.tables("columns"))
        if not columns:
            raise given.wrong("columns", [], "one column at least")
        printed = list(dict.fromkeys(row for column in columns for row in column.printed))
        cells_of = printed, [each.name for each in columns], experiments
        calibrated = []
        for one in given.tables("calibrated"):
            chosen = self._inputs[one.choice("input", self._inputs)]
            shared = one.take("shared", bool, default=chosen.shared)
            calibrated.append((replace(chosen, shared=shared), _cells(one, *cells_of)))
            one.done()
        found = Printed(
            name,
            given.take("where", str),
            given.take("title", str),
            file,
            baseline,
            tuple(experiments),
            columns,
            tuple(calibrated),
            tuple(each for one in given.tables("relations") for each in self._relations(one, columns)),
            given.take("beside", bool, default=False),
            _explanations(given, *cells_of),
        )
        given.done()
        return found

    def _relations(self, given: Table, columns: tuple[Column, ...]) -> list[Relation]:
        known = [column.name for column in columns]
        rule = self._rule(given, Ratio)
        if rule is None:
            raise given.wrong("rule", None, "the name of a rule of the kind ratio")
        to, names = (
            given.take("to", str),
            self._names(given, "columns", known) if "columns" in given else known,
        )
        found = []
        for column in columns:
            if column.name not in names:
                continue
            if not column.printed.get(to):
                raise given.wrong("to", to, f"a row that has a value in {column.name}, and not 0")
            rows = self._names(given, "rows", column.printed) if "rows" in given else list(column.printed)
            found += [Relation(row, to, column, rule) for row in rows if row != to]
        given.done()
        return found

    def _column(self, given: Table, file: Path, key: str, rows: list[dict[str, str]]) -> Column:
        name = given.choice("column", [column for column in rows[0] if column != key])
        measure = self._measure(given, "measure")
        unit = given.take("unit", str, measure.unit)
        printed = {}
        for row in rows:
            if not row[name].strip():
                continue
            value = _number(row[name])
            if value is None:
                raise UsageError(f"{file}: {name} of {row[key]}: found {row[name]!r}; allowed: a number")
            found = convert(value, unit, measure.unit)
            if found is None:
                raise given.wrong("unit", unit, f"{measure.unit or 'none'}, or what measures the same")
            printed[row[key]] = found
        rule = self._rule(given, Near)
        given.done()
        return Column(name, measure, rule, printed)

    def _claim(self, given: Table) -> Claim:
        rule = self._rule(given, Agree, Order, Change, Gain)
        formula = formula_from(given.table("formula")) if "formula" in given else None
        checks = tuple(check for each in given.tables("checks") for check in self._checks(each))
        found = Claim(
            given.take("id", str),
            given.take("where", str),
            given.take("text", str),
            BASES[given.choice("basis", BASES)],
            rule,
            formula,
            checks,
            _explanations(given, [], [], []),
        )
        if isinstance(rule, Gain) != any(check.aim for check in checks):
            raise given.wrong("checks", "", "objectives with a rule of the kind gain, else a measure")
        if isinstance(rule, Agree) != any(check.against for check in checks):
            raise given.wrong(
                "checks", "", "against another experiment with a rule of the kind agree, else not"
            )
        if (rule is None) != (not checks):
            raise given.wrong("checks", len(checks), "some with a rule, and none without")
        given.done()
        return found

    def _checks(self, given: Table) -> list[Check]:
        experiments = self._names(given, "experiments", self._experiments)
        measures: list[tuple[Measure, Aim | None]] = (
            [(aim.measure, aim) for aim in aims_from(given, self._measured)]
            if "objectives" in given
            else [(self._measure(given, "measure"), None)]
        )
        found = []
        cases = [case.label for each in experiments for case in self._experiments[each].cases]
        against = given.choice("against", self._experiments) if "against" in given else ""
        if against:
            cases = [case.label for case in self._experiments[against].cases if case.label in cases]
            pairs = [(each, each) for each in self._names(given, "cases", cases)]
        else:
            mores, thans = self._names(given, "more", cases), self._names(given, "than", cases)
            pairs = [(more, than) for more in mores for than in thans]
        wanted = given.texts("points", [])
        for each in experiments:
            points = [point.label for point in self._experiments[each].points]
            for point in wanted:
                if point not in points:
                    raise given.wrong("points", point, ", ".join(points))
            which = tuple(wanted or points)
            found += [
                Check(each, measure, more, than, which, aim, against)
                for more, than in pairs
                for measure, aim in measures
            ]
        given.done()
        return found

    def _said(self, given: Table, tables: tuple[Printed, ...]) -> Said:
        kind = given.choice("kind", SAID)
        checks: tuple[Check, ...] = ()
        some: list[Printed] = []
        if kind in ("off print", "times print"):
            names = self._names(given, "tables", [each.name for each in tables])
            some = [each for each in tables if each.name in names]
        else:
            checks = tuple(check for each in given.tables("checks") for check in self._checks(each))
        cells = _cells(
            given,
            list(dict.fromkeys(row for each in some for row in each.rows)),
            list(dict.fromkeys(column.name for each in some for column in each.columns)),
            list(dict.fromkeys(name for each in some for name in each.experiments)),
        )
        given.done()
        return Said(kind, checks, tuple(each.name for each in some), cells)

    def _picture(self, given: Table) -> Picture:
        kind = given.choice("kind", PICTURES)
        experiment = "" if kind in WITHOUT_RUNS else given.choice("experiment", self._experiments)
        labels = [case.label for case in self._experiments[experiment].cases] if experiment else []
        aims = aims_from(given, self._measured) if kind == "gains" else ()
        needed: list[str] | None = None if kind in MEASURED else []
        measures = [self._measured(given, "measures", name) for name in given.texts("measures", needed)]
        found = Picture(
            given.take("id", str),
            "",
            given.take("title", str),
            " ".join(given.take("caption", str).split()),
            kind,
            experiment,
            tuple(measures) or tuple(aim.measure for aim in aims),
            tuple(self._names(given, "cases", labels)) if "cases" in given else tuple(labels),
            tuple(self._names(given, "than", labels)) if kind in COMPARED else (),
            given.take("log", bool, default=False),
            given.choice("table", self._rows_of) if kind == "curves" and "table" in given else "",
            self._row(given) if kind == "curves" and "table" in given else "",
            tuple(self._measured(given, "listed", name) for name in given.texts("listed", [])),
            OPTIONS[kind](given) if kind in OPTIONS else {},
            aims,
            given.take("together", bool, default=False) if aims else False,
            self._beside(given) if kind == "models" else (),
        )
        if kind == "course" and not any(each.course for each in measures):
            allowed = "one of the kind series at least, without from and until"
            raise given.wrong("measures", [each.name for each in measures], allowed)
        points = [point.label for point in self._experiments[experiment].points] if experiment else []
        for each in found.options.get("points", []):
            if each not in points:
                raise given.wrong("points", each, ", ".join(points))
        given.done()
        return found

    def _beside(self, given: Table) -> tuple[tuple[str, str], ...]:
        found = []
        known = [name for name, each in self._experiments.items() if each.fluid]
        for each in given.tables("beside"):
            found.append((each.choice("experiment", known), each.take("label", str)))
            each.done()
        return tuple(found)

    def _row(self, given: Table) -> str:
        return given.choice("row", self._rows_of[given.take("table", str)])

    def _names(self, given: Table, key: str, known: Any) -> list[str]:  # noqa: ANN401
        names = given.texts(key)
        for name in names or [""]:
            if name not in known:
                raise given.wrong(key, name, ", ".join(dict.fromkeys(known)))
        return names

    def _measure(self, given: Table, key: str) -> Measure:
        return self._measured(given, key, given.take(key, str))

    def _measured(self, given: Table, key: str, name: str) -> Measure:
        found = self._measures.get(name) or metric(name)
        if found is None:
            raise given.wrong(key, name, f"{', '.join(self._measures)}, or a metric")
        return found

    def _rule(self, given: Table, *kinds: type) -> Any:  # noqa: ANN401
        name = given.maybe("rule", str)
        if name is None:
            return None
        known = [each for each, rule in self._rules.items() if isinstance(rule, kinds)]
        if name not in known:
            raise given.wrong("rule", name, ", ".join(known) or "a rule of this kind; there is none")
        return self._rules[name]


def _input(name: str, given: Table) -> Input:
    found = Input(
        name, given.take("what", str), given.take("on", str), given.take("shared", bool, default=False)
    )
    given.done()
    return found


def _case(given: Table) -> Case:
    label = given.take("label", str)
    found = Case(label, given.take("setting", str, label) or None, overrides_of(given))
    given.done()
    return found


def _cells(given: Table, rows: list[str], columns: list[str], experiments: list[str]) -> Cells:
    def some(key: str, known: list[str]) -> tuple[str, ...]:
        names = given.texts(key, [])
        for name in names:
            if name not in known:
                raise given.wrong(key, name, ", ".join(known) or "none here")
        return tuple(names)

    return Cells(some("rows", rows), some("columns", columns), some("experiments", experiments))


def _explanations(
    given: Table, rows: list[str], columns: list[str], experiments: list[str]
) -> tuple[Explanation, ...]:
    found = []
    for each in given.tables("explain"):
        verdict, text = each.choice("verdict", VERDICTS), " ".join(each.take("text", str).split())
        found.append(Explanation(verdict, _cells(each, rows, columns, experiments), text))
        each.done()
    return tuple(found)


def _rows(given: Table, file: Path, key: str) -> list[dict[str, str]]:
    try:
        with file.open(newline="", encoding="utf-8") as opened:
            rows = list(csv.DictReader(opened))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{file}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not rows:
        raise UsageError(f"{file}: no row below the headings; at least one is needed")
    heads = [name for name in rows[0] if name is not None]
    for place, row in enumerate(rows, start=1):
        if None in row or None in row.values():
            raise UsageError(f"{file}: row {place} has not as many cells as there are headings, {len(heads)}")
    if key not in heads:
        raise given.wrong("key", key, ", ".join(heads))
    twice = _twice([row[key] for row in rows])
    if twice is not None:
        raise UsageError(f"{file}: {key}: found {twice!r} twice; allowed: each once")
    return rows


def _twice(names: Iterable[str]) -> str | None:
    """Return the first of the names that comes more than once."""
    return next((name for name, count in Counter(names).items() if count > 1), None)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
