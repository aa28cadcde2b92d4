"""Search space of an AQM's parameters: the registry's ranges, changed by the user."""

import itertools
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from bentpipe import _core
from bentpipe.errors import ScenarioError, UsageError
from bentpipe.format import UNITS, meant, number_of
from bentpipe.runs.plan import Given, opened, read, under
from bentpipe.runs.python_aqm import PythonAqm, imported
from bentpipe.runs.source import Source

__all__ = ["Parameter", "Space", "aqm_table", "written"]

_UNITS = {"s": "s", "B": "B", "bit/s": "kbps"}
"""Units of the registry as written in scenarios; packets and shares are bare numbers."""
_IN_ORDER = (("min_th", "max_th"), ("min_capacity", "max_capacity"), ("u_low", "u_high"))
"""Pairs of parameters of which the first must be below the second, in every algorithm that has both."""
_APART = 0.99
"""Maximum ratio of the first to the second, so that they differ in the written digits."""
_LEVELS = {1: 11, 2: 5}
"""Grid values per parameter, by the number of varied parameters; three of each for three."""
_GRID = 3
_ALLOWED = "a range as 0.01:0.2 or 0.01:0.2:log, or a list as 0.1,0.5"


def _size(unit: str) -> float:
    """Return the size of a unit in base units."""
    return UNITS.get(unit, ("", 1.0))[1]


def written(value: float) -> str:
    """Write a number with five significant digits, so that trials are exactly what readers can copy."""
    return f"{float(f'{value:.5g}'):.12g}"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of an algorithm with the values that it may take in a search."""

    name: str
    unit: str
    """Unit in a scenario, for example "ms"; empty for shares, counts and packets."""
    default: str
    """Value in this scenario, without quotes."""
    low: float | None = None
    """Ends of the range in `unit`; None for a list of values."""
    high: float | None = None
    log: bool = False
    """True if the search is logarithmic."""
    whole: bool = False
    values: tuple[str, ...] = ()
    """Values of a list, without quotes."""
    chosen: bool = False
    """True if values or ends were given by the user."""
    doc: str = ""
    below: str = ""
    """Name of the parameter that this one must stay below, if that is searched too."""

    def at(self, share: float, high: float | None = None) -> str:
        """Return the value at a share (0 to 1) of the range, which may end at `high`."""
        if self.low is None or self.high is None:
            return self.values[min(int(share * len(self.values)), len(self.values) - 1)]
        end = self.high if high is None else min(high, self.high)
        if self.log:
            value = math.exp(math.log(self.low) + share * (math.log(end) - math.log(self.low)))
        else:
            value = self.low + share * (end - self.low)
        return self.text(value)

    def text(self, value: float) -> str:
        """Format a value of the range."""
        digits = str(round(value)) if self.whole else written(value)
        return f"{digits} {self.unit}" if self.unit else digits

    @property
    def scale(self) -> float:
        """Size of the unit in base units."""
        return _size(self.unit)

    def grid(self, levels: int) -> list[str]:
        """Return `levels` evenly spaced values inside the range, or the whole list."""
        if self.low is None:
            return list(self.values)
        shares = [(step + 1) / (levels + 1) for step in range(levels)]
        return list(dict.fromkeys(self.at(share) for share in shares))

    def row(self) -> dict[str, Any]:
        """Return the parameter as a dictionary, ready for JSON."""
        found: dict[str, Any] = {"name": self.name, "unit": self.unit, "default": self.default}
        if self.low is None:
            return found | {"values": list(self.values)}
        scale = "log" if self.log else "linear"
        return found | {"low": self.low, "high": self.high, "scale": scale, "whole": self.whole}


@dataclass(frozen=True)
class Space:
    """Searched and fixed parameters of one algorithm in one scenario."""

    scenario: Source
    overrides: tuple[str, ...]
    aqm: str
    """Setting from which the search starts: an algorithm, a preset, or one of the scenario's."""
    algorithm: str
    prefix: str
    """Key of the algorithm's table: `gateway.aqm`."""
    given: Mapping[str, str]
    """Fixed parameters that differ from the algorithm's defaults."""
    defaults: Mapping[str, str]
    parameters: tuple[Parameter, ...]
    setting: Mapping[str, str] = field(default_factory=dict)
    """Parameters in which the initial setting differs from the algorithm's defaults."""
    source: str | None = None
    """SHA-256 of the files of an AQM written in Python, which `aqm` then names, or "unknown"."""

    @classmethod
    def of(
        cls,
        scenario: Given,
        aqm: str,
        *,
        vary: Sequence[str] | Mapping[str, str | Sequence[object]] = (),
        fix: Sequence[str] | Mapping[str, object] = (),
        overrides: Sequence[str] = (),
    ) -> "Space":
        """Read the registry's ranges of an algorithm, changed by `vary` and `fix`.

        `aqm` is an algorithm or a setting. `vary` restricts a parameter to a range (`w_q=0.01:0.2:log`) or a
        list (`w_q=0.01,0.1`), or adds one without a range in the registry; `fix` keeps one at a value. Raises
        `UsageError` and `ScenarioError` for impossible requests.
        """
        source, overrides = opened(scenario, overrides)
        base = read(source, overrides, [aqm])
        started = under(base, aqm)
        effective = {row["key"]: row for row in started.effective()}
        prefix, algorithm = _table(base, aqm)
        known = {entry["name"]: entry for entry in json.loads(_core.registry())["aqms"]}
        if started.python_aqm is not None:
            if not started.python_aqm.params and not isinstance(imported(aqm), type):
                raise UsageError(
                    f"--aqm {aqm}: is an object, whose parameters are fixed; allowed: its class"
                    f" {started.python_aqm.name}, with params = [bentpipe.Param(…), …]"
                )
            if not any(each.tuning for each in started.python_aqm.params) and not vary:
                raise UsageError(
                    f"--aqm {aqm}: {algorithm} declares no parameters to search; allowed: a class with"
                    " params = [bentpipe.Param(…, tuning=(low, high)), …] (docs/python-aqms.md)"
                )
            known[algorithm] = started.python_aqm.entry()
        if algorithm not in known and prefix.endswith("scheduler"):
            raise UsageError(
                f"--aqm {aqm}: {algorithm} is a scheduler, whose parameters a setting cannot have;"
                f" allowed: {', '.join(_tunable(known))}, or a setting of one"
            )
        if algorithm not in known:
            raise UsageError(
                f"--aqm {aqm}: is no AQM with parameters to search; allowed: {', '.join(_tunable(known))},"
                " a setting of one, or a class as MODULE.CLASS"
            )
        params = {entry["name"]: entry for entry in known[algorithm]["params"]}
        rows = {
            key.removeprefix(f"{prefix}."): row
            for key, row in effective.items()
            if key.startswith(f"{prefix}.")
        }
        plain = read(source, _without(overrides, prefix))
        plain = under(plain, aqm) if started.python_aqm is not None else plain.with_setting(algorithm)
        there = {row["key"].removeprefix(f"{prefix}."): row["value"] for row in plain.effective()}
        defaults = {name: there[name].removesuffix(" packets") for name in params}
        given = {
            name: rows[name]["value"].removesuffix(" packets")
            for name in params
            if rows[name]["origin"] != "default"
        }
        forced = {name for name in params if rows[name]["origin"] == "override"}
        given |= _fixed(fix, prefix, params, aqm)
        forced |= set(_fixed(fix, prefix, params, aqm))
        wanted = _wanted(vary, prefix, params, aqm)
        found = []
        for name, entry in params.items():
            if name in wanted:
                if name in forced:
                    raise UsageError(f"--vary {name}: found fixed as well; allowed: one of the two")
                found.append(_varied(name, wanted[name], entry, defaults[name]))
            elif entry["tune"] and name not in forced:
                found.append(_from_registry(entry, defaults[name]))
        if not found:
            raise UsageError(
                f"--aqm {aqm}: {algorithm} has no parameters to search;"
                f" those that have: {', '.join(_tunable(known))}"
            )
        kept = {name: value for name, value in given.items() if name not in {each.name for each in found}}
        space = cls(
            source,
            tuple(_without(overrides, prefix)),
            aqm,
            algorithm,
            prefix,
            kept,
            defaults,
            tuple(found),
            given,
            None if started.python_aqm is None else started.python_aqm.source or "unknown",
        )
        return replace(space, parameters=tuple(space._in_order(each) for each in found))

    def _in_order(self, parameter: Parameter) -> Parameter:
        """Return a parameter whose range leaves room for the one that it must stay below or above."""
        for low, high in _IN_ORDER:
            if low not in self.defaults or high not in self.defaults:
                continue
            by_name = {each.name: each for each in self.parameters}
            a, b = by_name.get(low), by_name.get(high)
            if parameter.name == low and parameter.low is not None and parameter.high is not None:
                if b is not None and b.low is not None:
                    return replace(parameter, below=high)
                if b is None:
                    most = self._number(high) / parameter.scale
                    # If both ends were given as bounds that may be equal, the end is kept.
                    end = min(parameter.high, most if low == "min_capacity" else most * _APART)
                    if parameter.low >= end:
                        raise UsageError(
                            f"{low} is searched from {written(parameter.low)} {parameter.unit}".rstrip()
                            + f", but must be below {high}, which is {self.fixed(high)}"
                        )
                    return replace(parameter, high=end)
            if parameter.name == high and parameter.low is not None and parameter.high is not None:
                least = self._number(low) if a is None else (a.low or 0.0) * a.scale
                start = max(parameter.low, least / parameter.scale / _APART)
                if start >= parameter.high:
                    raise UsageError(
                        f"{high} is searched up to {written(parameter.high)} {parameter.unit}".rstrip()
                        + f", but must be above {low}"
                    )
                return replace(parameter, low=start)
        return parameter

    def _number(self, name: str) -> float:
        """Return the value of a fixed parameter, in base units."""
        found = number_of(self.fixed(name))
        return found[0] * _size(found[1]) if found else 0.0

    def fixed(self, name: str) -> str:
        """Return the value of a fixed parameter."""
        return self.given.get(name, self.defaults[name])

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the searched parameters."""
        return tuple(each.name for each in self.parameters)

    def point(self, shares: Mapping[str, float | str]) -> dict[str, str]:
        """Return the value of each parameter at shares (0 to 1) of its range, or at values of its list.

        A parameter that must stay below another gets the part of its range below that value.
        """
        found: dict[str, str] = {}
        # Parameters that bound others come first.
        for each in sorted(self.parameters, key=lambda each: bool(each.below)):
            share = shares[each.name]
            if isinstance(share, str):
                found[each.name] = share
                continue
            high = None
            if each.below:
                other = number_of(found[each.below])
                by_name = {parameter.name: parameter for parameter in self.parameters}
                if other is not None:
                    high = other[0] * by_name[each.below].scale / each.scale * _APART
            found[each.name] = each.at(share, high)
        return {name: found[name] for name in self.names}

    def grid(self) -> list[dict[str, str]]:
        """Return the possible points of a grid, the last parameter changing fastest.

        It varies the parameters with values or ranges from the user, else the first three that have a range.
        A list gives its values, a range three values (five if two parameters are varied, eleven for one); the
        other parameters are as in the setting.
        """
        asked = [each for each in self.parameters if each.chosen]
        ranged = [each for each in self.parameters if each.low is not None][:_GRID]
        chosen = asked or ranged or list(self.parameters)
        levels = _LEVELS.get(len(chosen), 3)
        axes = [each.grid(levels) for each in chosen]
        rest = {
            each.name: self.setting.get(each.name, each.default)
            for each in self.parameters
            if each not in chosen
        }
        points = []
        for row in itertools.product(*axes):
            at = rest | {each.name: value for each, value in zip(chosen, row, strict=True)}
            points.append({name: at[name] for name in self.names})
        return [point for point in points if self.problem(point) is None]

    def table(self, point: Mapping[str, str]) -> dict[str, str]:
        """Return the contents of a setting's table at a point, as TOML."""
        values = {**self.given, **point}
        return {"algorithm": json.dumps(self.algorithm)} | {
            name: _toml(values[name]) for name in self.defaults if name in values
        }

    def build(self, point: Mapping[str, str]) -> _core.Scenario:
        """Return the scenario at a point; `ScenarioError` if it is impossible."""
        return self._under(self.table(point))

    def under_defaults(self) -> _core.Scenario:
        """Return the scenario with the algorithm's defaults and the fixed parameters."""
        return self._under(self.table({}))

    def as_given(self) -> _core.Scenario:
        """Return the scenario as its file has it."""
        return read(self.scenario, self.overrides)

    def _under(self, table: Mapping[str, str]) -> _core.Scenario:
        if self.source is not None:
            values = {name: text.strip('"') for name, text in table.items() if name != "algorithm"}
            aqm = PythonAqm(f"{self.aqm} tuned", imported(self.aqm), values, "setting")
            return self.as_given().with_python_aqm(aqm)
        name = f"{self.algorithm} tuned"
        inside = ", ".join(f"{key} = {value}" for key, value in table.items())
        change = f"setting.{json.dumps(name)}={{ {inside} }}"
        return read(self.scenario, [*self.overrides, change]).with_setting(name)

    def problem(self, point: Mapping[str, str]) -> str | None:
        """Return the reason why a point is impossible; None if it is possible."""
        try:
            self.build(point)
        except ScenarioError as error:
            return str(error)
        return None


def aqm_table(base: _core.Scenario) -> str:
    """Return the key of the table with the subject's AQM: `gateway.aqm`."""
    # An algorithm's own name as a setting marks the table, as if it stood in the file.
    rows = base.with_setting("codel").effective()
    places = [row["key"] for row in rows if row["origin"] == "setting" and row["key"].endswith(".algorithm")]
    return places[0].rpartition(".")[0] if len(places) == 1 else ""


def _table(base: _core.Scenario, aqm: str) -> tuple[str, str]:
    """Return the key of the table that a setting fills, and the algorithm in it."""
    registry = json.loads(_core.registry())["aqms"]
    presets = {preset["name"]: entry["name"] for entry in registry for preset in entry["presets"]}
    rows = under(base, aqm).effective()
    values = {row["key"]: row["value"] for row in rows}
    origins = {row["key"]: row["origin"] for row in rows}
    for key, origin in origins.items():
        # A scheduler's setting has droptail beside it.
        if key.endswith(".scheduler.algorithm") and origin == "setting":
            return key.rpartition(".")[0], values[key]
    prefix = aqm_table(base)
    if f"{prefix}.preset" in values:
        return prefix, presets.get(values[f"{prefix}.preset"], "")
    if f"{prefix}.algorithm" in values:
        return prefix, values[f"{prefix}.algorithm"]
    raise UsageError(f"--aqm {aqm}: is no setting of an AQM")


def _tunable(known: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return [name for name, entry in known.items() if any(each["tune"] for each in entry["params"])]


def _without(overrides: Sequence[str], prefix: str) -> list[str]:
    """Return the overrides except those in the algorithm's own table, which a setting fills."""
    return [each for each in overrides if not each.partition("=")[0].strip().startswith(f"{prefix}.")]


def _bare(key: str, prefix: str, params: Mapping[str, Any], aqm: str, option: str) -> str:
    name = key.strip().removeprefix(f"{prefix}.")
    if name not in params:
        hint = meant(name, params) or f"allowed: {', '.join(params)}"
        raise UsageError(f"{option} {key.strip()}: is no parameter of {aqm}; {hint}")
    return name


def _fixed(
    fix: Sequence[str] | Mapping[str, object], prefix: str, params: Mapping[str, Any], aqm: str
) -> dict[str, str]:
    pairs = list(fix.items()) if isinstance(fix, Mapping) else [_pair(each, "--fix") for each in fix]
    found = {}
    for key, value in pairs:
        text = str(value).lower() if isinstance(value, bool) else str(value).strip()
        name = _bare(key, prefix, params, aqm, "--fix")
        if name in found:
            raise UsageError(f"--fix {key}: found twice; allowed: each parameter once")
        found[name] = text.strip('"')
    return found


def _wanted(
    vary: Sequence[str] | Mapping[str, str | Sequence[object]],
    prefix: str,
    params: Mapping[str, Any],
    aqm: str,
) -> dict[str, str]:
    pairs: list[tuple[str, Any]] = (
        list(vary.items()) if isinstance(vary, Mapping) else [_pair(each, "--vary") for each in vary]
    )
    found = {}
    for key, value in pairs:
        name = _bare(key, prefix, params, aqm, "--vary")
        if name in found:
            raise UsageError(f"--vary {key}: found twice; allowed: each parameter once")
        if not isinstance(value, str | Iterable):
            raise UsageError(f"--vary {key}: found {value!r}; allowed: {_ALLOWED}; --fix keeps one value")
        if not isinstance(value, str):
            value = ",".join(str(each).lower() if isinstance(each, bool) else str(each) for each in value)
        found[name] = value
    return found


def _pair(text: str, option: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip() or not value.strip():
        raise UsageError(f"{option} {text}: found no KEY=VALUE; allowed: for example {option} w_q=0.1")
    return key.strip(), value.strip()


def _varied(name: str, text: str, entry: Mapping[str, Any], default: str) -> Parameter:
    """Return a parameter with the range or list given by the user."""
    parts = [each.strip() for each in text.split(":")]
    found = Parameter(name, "", default, doc=entry["doc"], chosen=True)
    if len(parts) == 1:
        values = tuple(each.strip().strip('"') for each in text.split(","))
        if not all(values) or len(set(values)) < len(values):
            raise UsageError(f"--vary {name}={text}: found a value that is empty or there twice")
        return replace(found, values=values)
    ends = [number_of(each) for each in parts[:2]]
    if len(parts) > 3 or (len(parts) == 3 and parts[2] not in {"log", "linear"}) or not all(ends):
        raise UsageError(f"--vary {name}={text}: found no range; allowed: {_ALLOWED}")
    (low, low_unit), (high, high_unit) = [end for end in ends if end is not None]
    unit = high_unit or low_unit
    if entry["unit"] in _UNITS and not unit:
        raise UsageError(f"--vary {name}={text}: found no unit; allowed: with a unit, as {default}")
    log = parts[2] == "log" if len(parts) == 3 else _is_log(entry["tune"])
    if low_unit not in {"", unit}:
        raise UsageError(f"--vary {name}={text}: found units {low_unit} and {unit}; allowed: the same twice")
    if not -math.inf < low < high < math.inf or (log and low <= 0):
        allowed = "two above zero, the lower one first" if log else "two numbers, the lower one first"
        raise UsageError(
            f"--vary {name}={text}: found the ends {parts[0]} and {parts[1]}; allowed: {allowed}"
        )
    unit = "" if unit == "packets" else unit
    return replace(found, unit=unit, low=low, high=high, log=log, whole=_is_whole(entry))


def _from_registry(entry: Mapping[str, Any], default: str) -> Parameter:
    """Return a parameter with the registry's range, in this scenario."""
    tune, name = entry["tune"], entry["name"]
    if tune["scale"] == "each":
        values = (
            ("false", "true")
            if isinstance(entry["default"], bool)
            else tuple(each.strip() for each in entry["range"].split(","))
        )
        return Parameter(name, "", default, values=values, doc=entry["doc"])
    low, high, unit = float(tune["low"]), float(tune["high"]), _UNITS.get(entry["unit"], "")
    if tune["scale"] == "times the default, log":
        found = number_of(default)
        if found is None or found[0] <= 0:
            raise UsageError(f"{name}: its default, {default}, gives no range to search; use --vary {name}=…")
        low, high, unit = low * found[0], high * found[0], found[1]
    elif entry["unit"] == "bit/s":
        low, high = low / 1e3, high / 1e3
    least = re.match(r"at least ([\d.]+)", entry["range"])
    if least and unit == _UNITS.get(entry["unit"], ""):
        low = max(low, float(least[1]))
    log = tune["scale"] != "linear"
    return Parameter(
        name, unit, default, low=low, high=high, log=log, whole=_is_whole(entry), doc=entry["doc"]
    )


def _is_log(tune: Mapping[str, Any] | None) -> bool:
    return tune is not None and "log" in tune["scale"]


def _is_whole(entry: Mapping[str, Any]) -> bool:
    """Return True for a count: a number without a unit that is an integer in the registry."""
    tune, default = entry["tune"], entry["default"]
    if "whole" in entry:
        return bool(entry["whole"])
    if entry["unit"] or isinstance(default, str | bool) or not tune or "low" not in tune:
        return False
    return all(float(each).is_integer() and each >= 1 for each in (default, tune["low"], tune["high"]))


def _toml(value: str) -> str:
    """Write a value as TOML: numbers and booleans bare, everything else in quotes."""
    found = number_of(value)
    if value in {"true", "false"}:
        return value
    if found is not None and not found[1]:
        # TOML has no number that begins or ends with its point.
        value = re.sub(r"^([-+]?)\.", r"\g<1>0.", re.sub(r"\.($|[eE])", r".0\1", value))
        return value.removesuffix(".0") if float(value).is_integer() else value
    return json.dumps(value, ensure_ascii=False)
