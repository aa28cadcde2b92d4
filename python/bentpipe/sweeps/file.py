"""Sweep files: the options of `bentpipe sweep` as TOML."""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

from bentpipe import _core
from bentpipe.errors import ScenarioError, UsageError
from bentpipe.format import meant
from bentpipe.runs.plan import is_python, load, overrides_from, scenario_path, shipped
from bentpipe.runs.python_aqm import is_path
from bentpipe.runs.source import key_of
from bentpipe.sweeps.factors import DESIGNS, Factor, factors_from
from bentpipe.sweeps.result import DEFAULT_METRICS, check_metrics
from bentpipe.sweeps.sweep import MOST_ADDED, Precision, Sweep, precision_from

__all__ = ["SCHEMA", "Request", "request", "shipped_sweeps"]

_TEXT = {"type": "string"}
_NAMES = {"anyOf": [{"type": "string"}, {"type": "array", "items": _TEXT, "minItems": 1}]}
_VALUE = {"anyOf": [_TEXT, {"type": "number"}, {"type": "boolean"}]}

_SWEEP: dict[str, dict[str, Any]] = {
    "title": _TEXT | {"description": "What it is, in a line."},
    "description": _TEXT | {"description": "What it shows, in full."},
    "scenario": _TEXT
    | {"description": "The scenario: a file, from this one's folder on, or a shipped name."},
    "settings": _NAMES | {"description": "Settings at each point; default: the scenario's."},
    "runs": {"type": "integer", "minimum": 1, "description": "Runs of each; default: the scenario's."},
    "seed": {
        "type": "integer",
        "minimum": 0,
        "description": "Seed of the first run; the next ones count on.",
    },
    "design": {
        "type": "string",
        "enum": list(DESIGNS),
        "description": "Every combination, which is the default; a Latin hypercube; a Sobol sequence.",
    },
    "points": {"type": "integer", "minimum": 1, "description": "Points of the designs lhs and sobol."},
    "metrics": _NAMES | {"description": f"What is shown; default: {', '.join(DEFAULT_METRICS)}."},
    "until_ci": {
        "anyOf": [_TEXT, {"type": "number"}],
        "description": 'Add runs until the 95 % interval of the first metric is so narrow: "2%" of the mean.',
    },
    "max_runs": {
        "type": "integer",
        "minimum": 2,
        "description": f"With until_ci, runs at most; default: {MOST_ADDED}.",
    },
    "set": {"type": "object", "description": "Keys of the scenario to override, as --set does."},
}
SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "A sweep of Bentpipe",
    "type": "object",
    "additionalProperties": False,
    "required": ["sweep"],
    "properties": {
        "sweep": {
            "type": "object",
            "additionalProperties": False,
            "required": ["scenario"],
            "properties": _SWEEP,
            "description": "What is simulated at each point.",
        },
        "vary": {
            "type": "object",
            "description": "Keys of the scenario to vary, as --vary does: a list of values, or a text as"
            ' "10 ms:60 ms:6" or "0.01:0.2:log:8".',
            "additionalProperties": {
                "anyOf": [
                    _TEXT,
                    {"type": "array", "items": _VALUE, "minItems": 1},
                    {"$ref": "#/properties/vary"},
                ]
            },
        },
    },
}
"""JSON Schema of a sweep file; files are checked against it."""


@dataclass(frozen=True, slots=True)
class Request:
    """A sweep as requested by a sweep file, by options, or by both. None stands for the default."""

    scenario: str | _core.Scenario
    """Path or shipped name, or a loaded scenario."""
    factors: Sequence[Factor] = ()
    overrides: Sequence[str] = ()
    settings: Sequence[str] | None = None
    runs: int | None = None
    seed: int | None = None
    design: str | None = None
    points: int | None = None
    metrics: Sequence[str] | None = None
    until_ci: str | None = None
    max_runs: int | None = None
    title: str = ""
    description: str = ""
    file: Path | None = None
    """Path of the sweep file."""

    @property
    def name(self) -> str:
        """Name of the sweep: that of the sweep file or of the scenario."""
        if self.file is not None:
            return self.file.stem
        return self.scenario.name if isinstance(self.scenario, _core.Scenario) else Path(self.scenario).stem

    def plan(self) -> Sweep:
        """Read the scenarios of all points, see `Sweep.plan`; messages begin with the sweep file."""
        try:
            plan = Sweep.plan(
                self.scenario,
                self.factors,
                settings=self.settings,
                overrides=self.overrides,
                runs=self.runs,
                seed=self.seed,
                design=self.design or DESIGNS[0],
                count=self.points,
                metrics=self.metrics,
            )
        except (UsageError, ScenarioError) as error:
            if self.file is None:
                raise
            raise type(error)(_one_line(f"{self.file}: {error}")) from None
        plan.title, plan.description = self.title or plan.title, self.description
        return plan

    def precision(self) -> Precision | None:
        """Return the requested width of intervals; `UsageError` if it is out of range."""
        if self.until_ci is None:
            return None
        metric = (self.metrics or DEFAULT_METRICS)[0]
        return precision_from(self.until_ci, metric, MOST_ADDED if self.max_runs is None else self.max_runs)


def shipped_sweeps() -> dict[str, Path]:
    """Return the shipped sweep files by name."""
    folder = resources.files("bentpipe") / "data" / "sweeps"
    found = [Path(str(entry)) for entry in folder.iterdir() if entry.name.endswith(".toml")]
    return {path.stem: path for path in sorted(found)}


def request(
    name: str | Path | _core.Scenario,
    vary: Sequence[str] | Mapping[str, str | Sequence[object]] = (),
    overrides: Sequence[str] = (),
    **options: Any,  # noqa: ANN401
) -> Request:
    """Return the request of `name`, a scenario, loaded or not, or a sweep file, overridden by options.

    `options` are fields of `Request`; those that are None keep the file's. Keys of `vary` and of `overrides`
    replace the same keys of the file, set or varied. Raises `UsageError` if the file is wrong, or if `name`
    is neither.
    """
    asked = Request(name) if isinstance(name, _core.Scenario) else _read(name)
    new, fixed = {each.key: each for each in factors_from(vary)}, set(map(key_of, overrides))
    factors = {each.key: each for each in asked.factors if each.key not in fixed} | new
    chosen = [*(each for each in asked.overrides if key_of(each) not in fixed | new.keys()), *overrides]
    wanted = {key: value for key, value in options.items() if value is not None}
    if wanted.get("design") == "grid" and "points" not in wanted:
        asked = replace(asked, points=None)
    asked = replace(asked, factors=tuple(factors.values()), overrides=tuple(chosen), **wanted)
    if asked.max_runs is not None and asked.until_ci is None:
        raise UsageError(
            f"{asked.file or asked.name}: --max-runs {asked.max_runs} needs --until-ci, the width of the"
            " intervals"
        )
    return asked


def _read(name: str | Path) -> Request:
    path = Path(name)
    if not path.exists():
        if str(name) in shipped_sweeps():
            path = shipped_sweeps()[str(name)]
        elif str(name) not in shipped():
            hint = meant(path.stem, [*shipped(), *shipped_sweeps()], cutoff=0.5)
            hint = hint or f"shipped sweeps: {', '.join(shipped_sweeps())}"
            raise UsageError(
                f"{name}: there is no such file, nor a shipped scenario or sweep of that name; {hint}"
            )
        else:
            return Request(str(name))
    if not path.is_file():
        # The scenario reader says what a device or a folder is; a device may have no end.
        return Request(str(name))
    try:
        text = path.read_text(encoding="utf-8")
        found = tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        # The scenario reader reports the mistake and its line.
        return Request(str(name))
    if not found.keys() & {"sweep", "vary"}:
        tables = [key for key in json.loads(_core.schema())["properties"] if key not in {*_SWEEP, "source"}]
        if found.keys() & set(tables):
            return Request(str(name))
        there = ", ".join(found) or "nothing"
        raise UsageError(
            f"{path}: is neither a sweep nor a scenario: found {there};"
            f" allowed: sweep and vary, or of a scenario {', '.join(tables)}"
        )
    return _File(path, text).request(found)


class _File:
    """A sweep file while it is read."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.lines = dict(_lines(text))

    def wrong(self, key: tuple[str, ...], message: str) -> UsageError:
        """Return an error about a key, with its line."""
        line = next((self.lines[key[:n]] for n in range(len(key), 0, -1) if key[:n] in self.lines), None)
        where = f"{self.path}:{line}" if line else str(self.path)
        return UsageError(_one_line(f"{where}: {'.'.join(key)}: {message}" if key else f"{where}: {message}"))

    def request(self, found: dict[str, Any]) -> Request:
        self.check((), found, SCHEMA)
        sweep: dict[str, Any] = found["sweep"]
        factors: list[Factor] = []
        for key, values in _flat(found.get("vary", {})):
            if isinstance(values, bool | int | float):
                raise self.wrong(
                    ("vary", key), f"found {_shown(values)}; allowed: a list of values, or a text"
                )
            try:
                factors += factors_from({key: values})
            except UsageError as error:
                raise self.wrong(("vary", *key.split(".")), str(error).removeprefix("--vary ")) from None
        scenario = self._scenario(sweep["scenario"])
        for name in _names(sweep.get("settings")) or ():
            if is_path(name) and is_python(load(scenario), name):
                raise self.wrong(
                    ("sweep", "settings"),
                    f"found {name}, Python code, which a file cannot name; use --settings {name}",
                )
        metrics = _names(sweep.get("metrics"))
        until = sweep.get("until_ci")
        asked = Request(
            scenario,
            tuple(factors),
            tuple(overrides_from(dict(_flat(sweep.get("set", {}))))),
            _names(sweep.get("settings")),
            metrics=metrics,
            until_ci=None if until is None else str(until),
            file=self.path,
            **{
                key: sweep[key]
                for key in ("runs", "seed", "design", "points", "max_runs", "title", "description")
                if key in sweep
            },
        )
        for key, check in (("metrics", lambda: check_metrics(metrics or ())), ("until_ci", asked.precision)):
            try:
                check()
            except UsageError as error:
                text = str(error).replace(f"--until-ci {until}:", f"found {_shown(until)};")
                raise self.wrong(("sweep", key), text) from None
        return asked

    def _scenario(self, name: str) -> str:
        beside = self.path.parent / name
        if beside.is_file():
            return str(beside)
        if name in shipped():
            return name
        try:
            scenario_path(beside)
        except UsageError as error:
            raise self.wrong(("sweep", "scenario"), str(error)) from None
        raise self.wrong(("sweep", "scenario"), f"found {name}, a folder; allowed: a scenario file")

    def check(self, key: tuple[str, ...], value: object, schema: Mapping[str, Any]) -> None:
        """Raise `UsageError` unless a value matches its schema; supports the keywords used in this file."""
        if "$ref" in schema:
            schema = SCHEMA["properties"]["vary"]
        if "anyOf" in schema:
            kinds = [each for each in schema["anyOf"] if _is(value, each.get("type", "object"))]
            if not kinds:
                raise self.wrong(key, f"found {_shown(value)}; allowed: {_allowed(schema)}")
            schema = kinds[0]
            self.check(key, value, schema)
            return
        if not _is(value, schema["type"]) or ("enum" in schema and value not in schema["enum"]):
            raise self.wrong(key, f"found {_shown(value)}; allowed: {_allowed(schema)}")
        if isinstance(value, int) and value < schema.get("minimum", value):
            raise self.wrong(key, f"found {value}; allowed: {_allowed(schema)}")
        if isinstance(value, list):
            if len(value) < schema.get("minItems", 0):
                raise self.wrong(key, "found an empty list; allowed: one entry at least")
            for each in value:
                self.check(key, each, schema["items"])
        if isinstance(value, dict):
            self._check_table(key, value, schema)

    def _check_table(self, key: tuple[str, ...], value: dict[str, Any], schema: Mapping[str, Any]) -> None:
        known: dict[str, Any] = schema.get("properties", {})
        others = schema.get("additionalProperties", True)
        for name, each in value.items():
            if name in known:
                self.check((*key, name), each, known[name])
            elif isinstance(others, dict):
                self.check((*key, name), each, others)
            elif not others:
                hint = f"{meant(name, known)} allowed: {', '.join(known)}".lstrip()
                raise self.wrong((*key, name), f"no such key; {hint}")
        for name in schema.get("required", ()):
            if name not in value:
                raise self.wrong(key, f"{name} is missing; it is {_meaning(known[name])}")


_WORDS = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a table",
}


def _one_line(message: str) -> str:
    """Return a message whose values may have line breaks with these escaped."""
    return "".join(repr(each)[1:-1] if each.splitlines() == [""] else each for each in message)


def _is(value: object, kind: str) -> bool:
    match kind:
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "array":
            return isinstance(value, list)
        case _:
            return isinstance(value, dict)


def _allowed(schema: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_allowed(each) for each in schema["anyOf"] if "type" in each)
    if "enum" in schema:
        return ", ".join(schema["enum"])
    text = _WORDS[schema["type"]]
    if schema["type"] == "array":
        text += (
            f" of {_allowed(schema['items']).replace('a text', 'texts')}" if "type" in schema["items"] else ""
        )
    return f"{text}, {schema['minimum']} or more" if "minimum" in schema else text


def _meaning(schema: Mapping[str, Any]) -> str:
    text = str(schema["description"]).rstrip(".")
    return text[0].lower() + text[1:]


def _shown(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _names(value: str | list[str] | None) -> list[str] | None:
    if value is None:
        return None
    return [each.strip() for each in (value.split(",") if isinstance(value, str) else value)]


def _flat(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested tables under dotted keys, quoted or not."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


_HEADER = re.compile(r"\s*\[+([^\[\]]+)\]+")
_KEY = re.compile(r"""\s*((?:"[^"]*"|'[^']*'|[\w-]+|\s*\.\s*)+)\s*=""")


def _lines(text: str) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield each key with its line, counted from 1; TOML's reader does not report lines."""
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            table = _parts(header[1])
            yield table, number
        elif key := _KEY.match(line):
            yield (*table, *_parts(key[1])), number


def _parts(key: str) -> tuple[str, ...]:
    # A quoted key may contain dots, with the same meaning.
    return tuple(part.strip() for part in re.sub(r"[\"']", "", key).split("."))
