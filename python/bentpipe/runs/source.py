"""Sources of scenarios: files, loaded scenarios and dictionaries.

Sweeps, searches and recommendations read a scenario again under other overrides. `Source` holds what that
needs.
"""

import datetime
import hashlib
import json
import math
import numbers
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bentpipe import pages
from bentpipe._core import Scenario
from bentpipe.errors import ScenarioError, UsageError

__all__ = [
    "Source",
    "described",
    "digest_of",
    "entry_of",
    "from_dict",
    "key_of",
    "metrics_digest",
    "to_dict",
    "to_toml",
    "value_of",
    "written",
]


@dataclass(frozen=True)
class Source:
    """A scenario to be read under overrides."""

    file: str
    """Path of the file; also the name in messages."""
    text: str | None = None
    """Text of a loaded scenario; None to read the file."""
    setting: str | None = None
    """Setting that a loaded scenario is under."""
    parameters: tuple[str, ...] = ()
    """Parameters of AQMs written in Python that overrides may name."""
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """Files that a loaded scenario names, by path."""

    @classmethod
    def of(cls, scenario: Scenario) -> "Source":
        """Return the source of a loaded scenario, without its overrides."""
        packed = scenario.packed()
        if packed is None or scenario.python_aqm is not None:
            raise UsageError(
                f"{scenario.name}: is under the setting {scenario.aqm}, an AQM written in Python, and cannot"
                " be read again; give the AQM as a setting instead"
            )
        file, text, _, setting, parameters, named = packed
        files = {path: content for path, _ in named if (content := scenario.file(path)) is not None}
        return cls(file, text, setting, tuple(parameters), files)

    @property
    def name(self) -> str:
        """Name of the scenario: the stem of the file."""
        return Path(self.file).stem

    def read(self, overrides: Iterable[str] = (), parameters: Iterable[str] = ()) -> Scenario:
        """Return the scenario under `overrides`, which may name `parameters`; `ScenarioError` if wrong."""
        changes, known = list(overrides), list(dict.fromkeys([*self.parameters, *parameters]))
        if self.text is None:
            return Scenario.load(self.file, changes, known)
        files = {**self.files, **self._named_by(changes)}
        return Scenario.unpack(self.file, self.text, changes, self.setting, known, files)

    def _named_by(self, overrides: Iterable[str]) -> dict[str, bytes]:
        """Return the files that overrides name, by path."""
        folder, found = os.path.dirname(self.file), dict[str, bytes]()  # noqa: PTH120
        for change in overrides:
            for name in _texts(value_of(change.partition("=")[2])):
                # The core joins folder and name in the same way.
                path = os.path.join(folder, name)  # noqa: PTH118
                if path not in self.files and "\0" not in path and os.path.isfile(path):  # noqa: PTH113
                    found[path] = Path(path).read_bytes()
        return found


def _texts(value: object) -> Iterator[str]:
    """Yield the texts in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)


def key_of(override: str) -> str:
    """Return the key of an override `key=value`."""
    return override.partition("=")[0].strip()


def digest_of(scenario: Scenario, overrides: Iterable[str]) -> str:
    """Return the SHA-256 of a scenario and of overrides, some of which other settings of it use.

    Spaces in overrides do not count: `5 s` is `5s`.
    """
    return _digest([*_determining(scenario), *sorted("".join(each.split()) for each in overrides)])


def entry_of(scenario: Scenario, digest: str) -> dict[str, str]:
    """Return the entry of a dataset's manifest that identifies its scenario."""
    sha256 = hashlib.sha256(scenario.text.encode()).hexdigest()
    return {"name": scenario.name, "sha256": sha256, "digest": digest}


def metrics_digest(scenario: Scenario) -> str:
    """Return the SHA-256 of all that determines the metrics of a run, except the seed."""
    return _digest(_determining(scenario))


def _determining(scenario: Scenario) -> list[str]:
    """Return a scenario with its thresholds, on which no run but metrics of terminals depend."""
    limits = (f"{measure} {good} {bad}" for measure, good, bad in scenario.thresholds)
    return [scenario.canonical(), *limits]


def _digest(known: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(known).encode()).hexdigest()


def value_of(text: str) -> Any:  # noqa: ANN401
    """Return the value of an override: TOML, or else a text."""
    text = text.strip()
    try:
        found = tomllib.loads(f"x = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return found["x"] if len(found) == 1 else text


def described(scenario: Scenario) -> str:
    """Return the representation of a scenario: its name, AQM and overrides."""
    rest = "; ".join(filter(None, [scenario.aqm, *scenario.overrides]))
    return f"<bentpipe.Scenario {scenario.name}{': ' if rest else ''}{rest}>"


# ----- dictionaries -------------------------------------------------------------------


def from_dict(mapping: Mapping[str, Any], name: str = "scenario", folder: str | Path = "") -> Scenario:
    """Return the scenario with the keys and values of a scenario file, as nested dictionaries.

    Values are those of TOML: texts with units (`"300 ms"`), numbers, booleans, lists and dictionaries;
    lists of dictionaries are arrays of tables. `name` is the scenario's name in results; files that it
    names are relative to `folder`, by default the current one.

    Raises `ScenarioError` for what is wrong in a scenario file too; the message gives the key, the value
    found and what is allowed.

    >>> import bentpipe as bp
    >>> tables = bp.load("small-gateway").to_dict()
    >>> tables["gateway"]["aqm"] = {"algorithm": "codel"}
    >>> bp.Scenario.from_dict(tables, "mine").aqm
    'codel'
    """
    file = os.path.join(folder, f"{name}.toml")  # noqa: PTH118
    if not isinstance(mapping, Mapping):
        raise ScenarioError(
            f"{name}: found {_shown(mapping)}; allowed: a dictionary with the keys of a scenario"
        )
    text = written(mapping, name)
    try:
        return Scenario.parse(text, file, [])
    except ScenarioError as error:
        # Lines and columns are those of the text written here, which the caller never saw.
        place = re.compile(re.escape(file) + r"(:\d+:\d+)?(?=: )")
        raise ScenarioError(place.sub(lambda _: name, str(error))) from None


def to_dict(scenario: Scenario) -> dict[str, Any]:
    """Return the tables of the scenario's file with its overrides, as nested dictionaries.

    `Scenario.from_dict` reads them; a scenario read back has the same results for the same seed. A setting
    chosen by `with_setting` is not included. Raises `ScenarioError` if an override has no effect.
    """
    scenario.check_overrides()
    tables: dict[str, Any] = tomllib.loads(f"x = {scenario.tables()}")["x"]
    return tables


def to_toml(scenario: Scenario) -> str:
    """Return `to_dict` as the text of a scenario file, without comments."""
    return written(to_dict(scenario), scenario.name)


# ----- TOML ---------------------------------------------------------------------------


def written(tables: Mapping[str, Any], name: str = "scenario") -> str:
    """Return tables as TOML; `ScenarioError`, whose message begins with `name`, for what TOML cannot hold."""
    lines: list[str] = []
    _write_table(tables, (), lines, name)
    return "\n".join(lines).strip("\n") + "\n"


def _write_table(table: Mapping[str, Any], path: tuple[str, ...], lines: list[str], name: str) -> None:
    inside: list[tuple[tuple[str, ...], Any]] = []
    for key, value in table.items():
        if not isinstance(key, str):
            where = ".".join(path) + ": " if path else ""
            raise ScenarioError(f"{name}: {where}found the key {_shown(key)}; allowed: strings as keys")
        here = (*path, key)
        if isinstance(value, Mapping) or _is_tables(value):
            inside.append((here, value))
        else:
            lines.append(f"{_key(key)} = {_written(value, here, name)}")
    for here, value in inside:
        header = ".".join(map(_key, here))
        if isinstance(value, Mapping):
            lines += ["", f"[{header}]"]
            _write_table(value, here, lines, name)
            continue
        for each in value:
            lines += ["", f"[[{header}]]"]
            _write_table(each, here, lines, name)


def _is_tables(value: object) -> bool:
    """Return True for an array of tables."""
    return (
        isinstance(value, list | tuple) and bool(value) and all(isinstance(each, Mapping) for each in value)
    )


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _text(key)


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _written(value: object, path: Sequence[str], name: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, numbers.Integral):
        return str(int(value))
    if isinstance(value, numbers.Real):
        number = float(value)
        return repr(number) if math.isfinite(number) else str(number)
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_written(each, path, name) for each in value) + "]"
    if isinstance(value, Mapping):
        parts = []
        for key, each in value.items():
            if not isinstance(key, str):
                where = ".".join(path)
                raise ScenarioError(f"{name}: {where}: found the key {_shown(key)}; allowed: strings as keys")
            parts.append(f"{_key(key)} = {_written(each, (*path, key), name)}")
        return "{ " + ", ".join(parts) + " }" if parts else "{}"
    raise ScenarioError(
        f"{name}: {'.'.join(path)}: found {_shown(value)}; allowed: the values of TOML, which are strings,"
        " numbers, True and False, lists and dictionaries"
    )


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


for _name, _method in {
    "__repr__": described,
    "_repr_html_": lambda scenario: str(pages.draw("cells.scenario_cell", scenario)),
    "from_dict": staticmethod(from_dict),
    "to_dict": to_dict,
    "to_toml": to_toml,
}.items():
    # Parts of the core's class that are written in Python.
    setattr(Scenario, _name, _method)
