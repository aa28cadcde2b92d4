"""Plan of an experiment: settings and seeds of one scenario, checked before anything runs."""

import hashlib
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from bentpipe._core import Scenario, WatchError
from bentpipe.errors import UsageError
from bentpipe.format import meant
from bentpipe.runs import python_aqm
from bentpipe.runs.python_aqm import PythonAqm, declared, imported, is_path
from bentpipe.runs.source import Source, key_of

__all__ = [
    "Given",
    "Plan",
    "Setting",
    "check_watch",
    "listed",
    "load",
    "make_plan",
    "opened",
    "overrides_from",
    "path_of",
    "read",
    "scenario_path",
    "shipped",
    "slug",
    "under",
]


MOST_RUNS = 10_000
"""Limit of runs per setting."""

Given = Scenario | Source | str | Path
"""A scenario as callers give it: loaded, a path, or a shipped name."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a comparison."""

    name: str
    slug: str
    """Folder name of the setting."""
    scenario: Scenario

    @property
    def digest(self) -> str:
        """SHA-256 of everything that determines the setting's results, except the seed."""
        return hashlib.sha256(self.scenario.canonical().encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Plan:
    """Settings and seeds of an experiment. Every setting runs with every seed, under the same traffic."""

    scenario: Scenario
    settings: tuple[Setting, ...]
    seeds: tuple[int, ...]
    trace: tuple[str, ...] = ()
    """Flows that are traced in every run: `flow:17` or `traffic:NAME:3`."""
    left_out: tuple[str, ...] = ()
    """Settings left out of `all`, with the reasons."""

    @property
    def total(self) -> int:
        """Number of runs."""
        return len(self.settings) * len(self.seeds)

    @property
    def warnings(self) -> list[str]:
        """Warnings about the scenario under each of the settings, each once."""
        return list(dict.fromkeys(each for setting in self.settings for each in setting.scenario.warnings))


def shipped() -> dict[str, Path]:
    """Return the scenarios shipped with Bentpipe, by name."""
    folder = resources.files("bentpipe") / "data" / "scenarios"
    files = [Path(str(entry)) for entry in folder.iterdir() if entry.name.endswith(".toml")]
    return {path.stem: path for path in sorted(files)}


def scenario_path(name: str | Path) -> Path:
    """Return the file for `name`, a path or a shipped scenario; `UsageError` if neither exists.

    A folder named like a shipped scenario, as one with its results, does not hide it.
    """
    path = Path(name)
    known = shipped()
    if path.exists() and str(name) and not (path.is_dir() and str(name) in known):
        return path
    if str(name) in known:
        return known[str(name)]
    shown = str(name) or '""'
    hint = meant(path.stem, known, cutoff=0.5) or f"shipped scenarios: {', '.join(known)}"
    raise UsageError(f"scenario {shown}: there is no such file, nor a shipped scenario of that name; {hint}")


def overrides_from(values: Mapping[str, object] | Iterable[str] | None) -> list[str]:
    """Return overrides as strings of the form `key=value`."""
    if values is None:
        return []
    if isinstance(values, Mapping):
        # A string is kept, since it may be TOML already.
        texts = {key: value if isinstance(value, str) else _within(value) for key, value in values.items()}
        return [f"{key}={text}" for key, text in texts.items()]
    return list(values)


def _within(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Mapping):
        inside = ", ".join(f"{json.dumps(str(key))} = {_within(each)}" for key, each in value.items())
        return f"{{ {inside} }}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(map(_within, value)) + "]"
    return str(value)


def load(
    path: str | Path | Scenario,
    set: Mapping[str, object] | Iterable[str] | None = None,  # noqa: A002
    settings: str | Iterable[str | python_aqm.Setting] | None = None,
) -> Scenario:
    """Read a scenario: a file, or a shipped one by its name.

    `set` overrides keys, as a mapping `{"run.duration": "2 min"}` or as strings `"run.duration=2 min"`. It
    may name parameters of AQMs in the registry, and of those written in Python among `settings`. A loaded
    scenario gets further overrides, which replace its own of the same keys. Raises `ScenarioError` if the
    file or an override is wrong, `UsageError` if there is no such scenario.
    """
    changes = overrides_from(set)
    if isinstance(path, Scenario) and not changes:
        return path
    return read(*opened(path, changes), settings)


def opened(given: Given, overrides: Iterable[str] = ()) -> tuple[Source, list[str]]:
    """Return the source of a scenario, and its overrides followed by these.

    Those of a loaded scenario are replaced by new ones of the same keys.
    """
    new = list(overrides)
    if isinstance(given, Source):
        return given, new
    if not isinstance(given, Scenario):
        if not isinstance(given, str | Path):
            raise UsageError(
                f"scenario: found {given!r}; allowed: a path, a shipped name, or bentpipe.load(…)"
            )
        return Source(str(scenario_path(given))), new
    keys = {key_of(each) for each in new}
    return Source.of(given), [*(each for each in given.overrides if key_of(each) not in keys), *new]


def read(
    source: Source,
    overrides: Iterable[str] = (),
    settings: str | Iterable[str | python_aqm.Setting] | None = None,
) -> Scenario:
    """Read a scenario; overrides may name parameters of AQMs written in Python among `settings`."""
    return source.read(overrides, declared(listed(settings) or ()))


def listed(
    settings: str | Iterable[str | python_aqm.Setting] | None,
) -> list[str | python_aqm.Setting] | None:
    """Return settings as a list; a text holds names separated by commas."""
    if settings is None:
        return None
    return [*settings.split(",")] if isinstance(settings, str) else list(settings)


def path_of(setting: str | python_aqm.Setting) -> str:
    """Return a setting's name; of an AQM written in Python, its class as `MODULE.CLASS`.

    Searches name AQMs so. Raises `UsageError` for an object, and for a class that is not at the top of a
    module.
    """
    if isinstance(setting, str):
        return setting
    if not isinstance(setting, python_aqm.Setting):
        raise UsageError(f"AQM: found {setting!r}; allowed: names, and bentpipe.Setting(name, aqm)")
    kind = setting.aqm
    if not isinstance(kind, type):
        raise UsageError(
            f"setting {setting.name}: its aqm is an object; allowed in a search: a class, whose params are"
            " searched"
        )
    if getattr(sys.modules.get(kind.__module__), kind.__qualname__, None) is not kind:
        raise UsageError(
            f"setting {setting.name}: {kind.__module__}.{kind.__qualname__} cannot be imported; allowed in a"
            " search: a class at the top of a module"
        )
    return f"{kind.__module__}.{kind.__qualname__}"


def make_plan(
    scenario: Scenario,
    *,
    settings: Sequence[str | python_aqm.Setting] | None,
    runs: int | None = None,
    seed: int | None = None,
    trace: Sequence[str] = (),
) -> Plan:
    """Plan `runs` runs of each setting, with the seeds `seed`, `seed + 1` and so on.

    `settings=None` plans the scenario unchanged, as one setting named after its AQM. Raises `UsageError` for
    numbers out of range, an empty list of settings or an unknown flow to trace, `ScenarioError` for a setting
    that is unknown or given twice and for an override without effect under any setting.
    """
    runs = scenario.runs if runs is None else runs
    first = scenario.seed if seed is None else seed
    if not 1 <= runs <= MOST_RUNS:
        raise UsageError(f"runs is {runs}, but it must be from 1 to {MOST_RUNS}")
    if not 0 <= first <= 2**64 - runs:
        raise UsageError(f"seed is {first}, but it must be from 0 to {2**64 - runs}")
    left_out: tuple[str, ...] = ()
    if settings is None:
        scenario.check_overrides()
        variants = [scenario]
    elif not settings:
        raise UsageError(f"{scenario.name} lists no settings to compare: name them, for example RED 4,AVQ")
    else:
        entries, left_out = expanded(scenario, settings)
        variants = _under_all(scenario, entries)
    traced = tuple(dict.fromkeys(trace))
    check_watch(scenario, traced, ())
    chosen: list[Setting] = []
    for variant in variants:
        name = variant.aqm or scenario.name
        chosen.append(Setting(name, slug(name, {other.slug for other in chosen}), variant))
    return Plan(scenario, tuple(chosen), tuple(range(first, first + runs)), traced, left_out)


ALL = "all"
"""Name that expands to the scenario's settings and every algorithm with its defaults."""


def expanded(
    scenario: Scenario, settings: Sequence[str | python_aqm.Setting]
) -> tuple[list[str | python_aqm.Setting], tuple[str, ...]]:
    """Return the settings with `all` expanded, and the reasons why some algorithms are left out."""
    entries = [each.strip() if isinstance(each, str) else each for each in settings]
    entries = [ALL if isinstance(each, str) and each.lower() == ALL else each for each in entries]
    if ALL not in entries:
        return entries, ()
    able, unable = scenario.all_settings()
    found: list[str | python_aqm.Setting] = []
    for each in entries:
        found += [new for new in (able if each == ALL else [each]) if new not in found]
    return found, tuple(unable)


def under(scenario: Scenario, setting: str | python_aqm.Setting) -> Scenario:
    """Return `scenario` under a setting: one of a name, or an AQM written in Python.

    Overrides of `scenario` apply to the parameters that such an AQM declares.
    """
    if isinstance(setting, str) and not is_python(scenario, setting):
        return scenario.with_setting(setting)
    if isinstance(setting, str):
        setting = python_aqm.Setting(setting.strip(), imported(setting.strip()))
    values = dict(scenario.aqm_overrides())
    return scenario.with_python_aqm(PythonAqm(setting.name, setting.aqm, values))


def is_python(scenario: Scenario, name: str) -> bool:
    """Return True if `name` is a class in a Python module and not a setting of `scenario`."""
    return is_path(name.strip()) and name.strip() not in scenario.setting_names


def _under_all(scenario: Scenario, settings: Sequence[str | python_aqm.Setting]) -> list[Scenario]:
    for each in settings:
        if not isinstance(each, str | python_aqm.Setting):
            raise UsageError(
                f"the list of settings has {each!r}; allowed: names, and bentpipe.Setting(name, aqm)"
            )
        if not (each if isinstance(each, str) else each.name).strip():
            raise UsageError("the list of settings has an empty entry")
    names = [each for each in settings if isinstance(each, str) and not is_python(scenario, each)]
    named = iter(scenario.with_settings(names) if names and len(names) == len(settings) else ())
    variants: list[Scenario] = []
    for each in settings:
        variants.append(next(named, None) or under(scenario, each))
        label = variants[-1].aqm
        if any(other.aqm == label for other in variants[:-1]):
            raise UsageError(f"setting {label}: found twice; allowed: each setting once")
    if len(names) < len(settings):
        variants[0].check_overrides(variants[1:])
    return variants


def check_watch(
    scenario: Scenario, trace: Sequence[str], links: Sequence[str], logs: Sequence[str] | None = None
) -> None:
    """Raise `UsageError` if a flow to trace or log or a link to capture does not exist in `scenario`."""
    try:
        scenario.check_watch(list(trace), list(links), None if logs is None else list(logs))
    except WatchError as error:
        raise UsageError(str(error)) from None


def slug(name: str, taken: Iterable[str]) -> str:
    """Return `name` as a folder name that differs from those `taken`."""
    base = re.sub(r"[^a-z0-9]+", "-", name.casefold()).strip("-") or "setting"
    found, number, known = base, 2, set(taken)
    while found in known:
        found, number = f"{base}-{number}", number + 1
    return found
