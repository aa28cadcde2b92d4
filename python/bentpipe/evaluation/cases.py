"""Cases of an evaluation: traffic and changes of a network, and the figures that judge it.

A network, the profile, and a case are tables of a scenario in TOML; together they are a scenario file, which
runs alone. A case may have variants, differ between a link and a gateway as the place of the AQM, or take the
traffic of another case.
"""

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from bentpipe import _core
from bentpipe.errors import UsageError
from bentpipe.runs.plan import slug
from bentpipe.runs.source import written

__all__ = ["Case", "Figure", "Profile", "cases", "controls", "profile", "profiles", "section_key"]

FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Figure:
    """A metric by which a case judges, and its better direction."""

    metric: str
    is_more: bool
    """True if more is better."""


@dataclass(frozen=True, slots=True)
class Profile:
    """A network in which the cases run."""

    kind: str
    """Kind of the evaluation: `aqm`, `cc` or `media`."""
    name: str
    title: str
    text: str
    chosen: tuple[str, ...]
    """Values that the RFC leaves open."""
    tables: Mapping[str, Any] = field(repr=False)

    @property
    def has_gateway(self) -> bool:
        """True if the AQM is that of a gateway."""
        return "gateway" in self.tables


@dataclass(frozen=True, slots=True)
class Case:
    """One scenario of an evaluation."""

    profile: str
    section: str
    """Section of the RFC; `S.` and a number of the satellite profiles."""
    name: str
    """Name of its file: section and words."""
    title: str
    text: str
    chosen: str
    """Values that the section leaves open; empty if it leaves none."""
    figures: tuple[Figure, ...]
    scenario: str = field(repr=False)
    """Text of its scenario file."""
    files: tuple[str, ...] = ()
    """Files beside shipped scenarios that it names."""


def section_key(section: str) -> tuple[int, tuple[int, ...]]:
    """Return the place of a section in order: those of the RFC, then those of the satellite profiles."""
    numbers = tuple(int(each) for each in re.findall(r"\d+", section))
    return (0 if section[0].isdigit() else 1, numbers)


@cache
def profiles(kind: str) -> dict[str, Profile]:
    """Return the profiles of a kind of evaluation, by name."""
    order = ("terrestrial", "geo", "meo", "leo")
    found = {}
    for path in (FOLDER / kind / "networks").glob("*.toml"):
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        found[path.stem] = Profile(
            kind, path.stem, table["title"], table["text"], tuple(table["chosen"]), table["scenario"]
        )
    return {name: found[name] for name in order if name in found}


def profile(kind: str, name: str) -> Profile:
    """Return a profile; `UsageError` for an unknown name."""
    known = profiles(kind)
    if name not in known:
        raise UsageError(f"--profile {name}: there is no such profile; allowed: {', '.join(known)}")
    return known[name]


@cache
def _files(kind: str) -> dict[str, dict[str, Any]]:
    paths = sorted((FOLDER / kind / "cases").glob("*.toml"))
    found = {path.stem: tomllib.loads(path.read_text(encoding="utf-8")) for path in paths}
    return dict(sorted(found.items(), key=lambda item: section_key(item[1]["section"])))


def cases(network: Profile) -> list[Case]:
    """Return the cases of a profile in the order of their sections."""
    found = []
    for name, table in _files(network.kind).items():
        if network.name not in table.get("profiles", [network.name]):
            continue
        for variant in table.get("variant", [{}]):
            label = f"{name}-{slug(variant['name'], ())}" if "name" in variant else name
            found.append(_case(network, label, table, variant))
    return found


def _case(network: Profile, name: str, table: dict[str, Any], variant: dict[str, Any]) -> Case:
    place = "on_gateway" if network.has_gateway else "on_link"
    layers = [table, variant]
    if "like" in table:
        layers.insert(
            0, next(each for each in _files(network.kind).values() if each["section"] == table["like"])
        )
    tables: dict[str, Any] = {}
    _merge(tables, network.tables)
    for layer in layers:
        _merge(tables, layer.get("scenario", {}))
        _merge(tables, layer.get(place, {}))
        _merge(tables, layer.get("profile", {}).get(network.name, {}))
    title = variant.get("title", table["title"])
    both = {**table, **variant}
    head = {
        "title": f"{title} ({network.title})",
        "description": table["text"],
        "source": _source(network.kind, table["section"]),
    }
    figures = [
        Figure(each, is_more) for key, is_more in (("more", True), ("less", False)) for each in both[key]
    ]
    return Case(
        network.name,
        table["section"],
        name,
        title,
        table["text"],
        table.get("chosen", ""),
        tuple(figures),
        written({**head, **tables}, name),
        tuple(both.get("files", ())),
    )


def _source(kind: str, section: str) -> str:
    if section.startswith("B"):
        return "draft-ietf-ccwg-bbr-06, section 10"
    if not section[0].isdigit():
        return f"Bentpipe's satellite profile, {section}"
    return f"RFC {_RFC[kind]}, section {section}"


_RFC = {"aqm": 7928, "cc": 9743, "media": 8867}


@cache
def controls(kind: str) -> dict[str, tuple[str, ...]]:
    """Return the overrides that select each control that an evaluation of a kind compares, by its name.

    Those of `cc` are the congestion controls of the registry, those of `media` the controllers of RTP.
    """
    table = tomllib.loads((FOLDER / kind / "controls.toml").read_text(encoding="utf-8"))
    if kind == "cc":
        table = {name: {"algorithm": name, **table.get(name, {})} for name in _registered()}
    return {
        name: tuple(f"{_TRANSPORT}.{key}={json.dumps(value)}" for key, value in keys.items())
        for name, keys in table.items()
    }


def _registered() -> list[str]:
    """Return the congestion controls of the registry, as the schema of scenarios has them."""
    for each in json.loads(_core.schema())["$defs"].values():
        names = [choice.get("const") for choice in each.get("oneOf", [])]
        if "newreno" in names:
            return names
    raise LookupError("the schema has no congestion controls")


_TRANSPORT = "transport.new"
"""Transport whose control is evaluated."""


def _merge(onto: dict[str, Any], other: Mapping[str, Any]) -> None:
    """Merge tables into others; a capacity takes the place of a rate."""
    for key, value in other.items():
        if isinstance(value, Mapping):
            below = onto.setdefault(key, {})
            if not isinstance(below, dict):
                below = onto[key] = {}
            _merge(below, value)
        else:
            onto[key] = value
    if "capacity" in other and "rate" not in other:
        onto.pop("rate", None)
