"""Scenario files as the page sees them: checked, edited key by key, drawn, and as forms."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from bentpipe import _core
from bentpipe._core import Scenario
from bentpipe.errors import ScenarioError, UsageError
from bentpipe.lab import limits, playback
from bentpipe.report.picture import picture
from bentpipe.runs.source import value_of

__all__ = ["NEW", "added", "checked", "edited", "form", "nodes", "removed", "sliders", "steps"]


def checked(text: str, file: str, folder: Path) -> dict[str, Any]:
    """Return what the page shows of a scenario's text: `error`, or its picture and settings.

    `file` is its path; files that it names must be in `folder` or shipped.
    """
    try:
        scenario = read(text, file, folder)
    except (ScenarioError, UsageError) as error:
        # The page knows files by their names.
        found: dict[str, Any] = {"error": str(error).replace(file, Path(file).name)}
        with suppress(UsageError):
            found["nodes"] = nodes(text)
        return found
    return {
        "name": scenario.name,
        "title": scenario.title,
        "description": scenario.description,
        "picture": picture(scenario, parts=True),
        "warnings": scenario.warnings,
        "settings": scenario.settings,
        "setting_names": scenario.all_settings()[0],
        "aqm": scenario.aqm,
        "seed": playback.seed_for_page(scenario.seed),
        "end": scenario.warmup + scenario.duration,
        "nodes": nodes(text),
    }


def read(text: str, file: str, folder: Path) -> Scenario:
    """Return the scenario of a text; `ScenarioError` or `UsageError` if it may not be run in the lab."""
    if len(text.encode()) > limits.TEXT:
        raise UsageError(
            f"{file}: found {len(text.encode())} bytes; allowed in the lab: at most {limits.TEXT}"
        )
    scenario = playback.opened(text, file)
    playback.check_files(scenario, file, folder)
    return scenario


# ----- editing ----------------------------------------------------------------------------------------------


def steps(key: str) -> list[str]:
    """Return the steps of a dotted key, of which some may be quoted."""
    return [quoted or bare for quoted, bare in re.findall(r'"([^"]*)"|([^."]+)', key)]


def edited(text: str, key: str, value: str | None) -> str:
    """Return a scenario's text with another value of a key; without a value the key is removed.

    A value is written as in an override: `20 Mbps`, `0.5`, `["a", "b"]`. Everything else in the text stays.
    Raises `UsageError` if the text has something else in the place of a table on the way to the key.
    """
    document = _parsed(text)
    *path, last = steps(key)
    table: Any = document
    for number, step in enumerate(path):
        if isinstance(table, list):
            table = next((each for each in table if each.get("name") == step), None)
        elif isinstance(table, dict):
            if step not in table:
                if value is None:
                    return text
                table[step] = tomlkit.table(is_super_table=number < len(path) - 1)
            table = table[step]
        if not isinstance(table, Mapping | list):
            raise UsageError(f"{'.'.join(path[: number + 1])}: found {table!r}, not a table; edit the text")
    if isinstance(table, list):
        raise UsageError(f"{'.'.join(path)}: found several tables; edit the text")
    if value is None:
        table.pop(last, None)
    else:
        table[last] = value_of(value)
    return tomlkit.dumps(document)


NEW = """#:schema ./scenario.schema.json
title = "New scenario"

[run]
duration = "60 s"
settings = ["red", "fq_codel"]

[host.server]

[host.client]

[link.bottleneck]
between = ["server", "client"]
rate = "10 Mbps"
delay = "20 ms"
queue = { limit = "100 packets", aqm = { algorithm = "red" } }

[traffic.download]
kind = "bulk"
from = "server"
to = "client"
flows = 4
"""
"""Text of a new scenario: two hosts, the link between them, and a traffic entry."""

_PARTS = {
    "traffic": ("traffic",),
    "hosts": ("host", "link"),
    "router": ("router", "link"),
    "link": ("link",),
    "gateway": ("gateway", "link"),
}
"""Tables that a part adds to, by its kind."""


def nodes(text: str) -> list[str]:
    """Return the nodes of a scenario's text that links can join, groups of hosts last.

    A gateway, terminal, router or host of another form than a table has none.
    """
    document = _parsed(text).unwrap()
    gateways = document.get("gateway", [])
    found: list[Any] = []
    for gateway in gateways if isinstance(gateways, list) else [gateways]:
        if isinstance(gateway, dict):
            found.append(gateway.get("name", "gateway"))
            found += [] if "terminals" in gateway else [gateway.get("terminal", "terminal")]
    for name in ("terminal", "router", "host"):
        tables = document.get(name)
        found += tables if isinstance(tables, dict) else []
    return [name for name in found if isinstance(name, str)]


def added(text: str, kind: str, name: str, ends: Sequence[str] = ()) -> str:
    """Return a scenario's text with another part between nodes.

    `ends` are the nodes: hosts and a router join the first by a link; a link joins both; a gateway stands
    between both, with its terminal and satellite link; a traffic entry leads from the first to the second.
    Without `ends`, hosts join the node of the hosts that receive the first traffic entry, and another one has
    its ends. Raises `UsageError` if the name is taken, a node is missing or unknown, or the scenario has a
    gateway already.
    """
    document = _parsed(text)
    if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        raise UsageError(f'name: found "{name}"; allowed: letters, digits, "-" and "_"')
    tables = _PARTS.get(kind)
    if tables is None:
        raise UsageError(f"part: found {kind!r}; allowed: {', '.join(_PARTS)}")
    known = nodes(text)
    for end in ends:
        if end not in known:
            raise UsageError(f"{name}: there is no node {end}; allowed: {', '.join(known)}")
    for table in tables:
        if table == "gateway" and "gateway" in document:
            raise UsageError("gateway: the scenario has one; write more as text, as [[gateway]]")
        if table != "gateway" and name in document.get(table, {}):
            raise UsageError(f"{table}.{name}: there is one of that name; choose another")
    if kind in {"router", "hosts", "gateway"} and name in known:
        raise UsageError(f"{name}: there is a node of that name; choose another")
    if kind in {"router", "link", "gateway"}:
        _join(document, kind, name, ends)
        return tomlkit.dumps(document)
    known = document.get("traffic", {})
    first = next(iter(known.values()), None)
    if first is None:
        raise UsageError("the scenario has no traffic; write the first one as text")
    if kind == "traffic":
        made = tomlkit.table()
        source, sink = ends if len(ends) == 2 else (first["from"], first["to"])
        made.update({"kind": "bulk", "from": source, "to": sink, "flows": 1})
        if "transport" in first:
            made["transport"] = first["transport"]
        _tables(document, "traffic")[name] = made
        return tomlkit.dumps(document)
    beside = (
        next(end for end in link["between"] if end != first["to"])
        for link in document.get("link", {}).values()
        if first["to"] in link["between"]
    )
    node = next(iter(ends), None) or next(beside, None)
    if node is None:
        raise UsageError(f"no link leads to {first['to']}; write the hosts as text")
    host = tomlkit.table()
    host["count"] = 1
    _tables(document, "host")[name] = host
    _link(document, name, node, name, {"rate": "100 Mbps", "delay": "2 ms"})
    return tomlkit.dumps(document)


def _join(document: Any, kind: str, name: str, ends: Sequence[str]) -> None:  # noqa: ANN401
    """Add a router, a link or a gateway with its links."""
    needed = 1 if kind == "router" else 2
    if len(ends) < needed or len(set(ends[:needed])) < needed:
        raise UsageError(f"{kind} {name}: found {len(set(ends))} node(s); allowed: {needed} different ones")
    if kind == "gateway":
        terminal = f"{name}-terminal"
        document["gateway"] = made = tomlkit.table()
        made.update({"name": name, "terminal": terminal, "regulator": {"rate": "10 Mbps"}})
        _link(document, f"{name}-internet", ends[0], name, {"rate": "100 Mbps", "delay": "20 ms"})
        _link(document, f"{name}-satellite", name, terminal, {"delay": "250 ms"})
        _link(document, f"{name}-access", terminal, ends[1], {"rate": "100 Mbps", "delay": "2 ms"})
        return
    keys: dict[str, Any] = {"rate": "100 Mbps", "delay": "2 ms"}
    if kind == "router":
        _tables(document, "router")[name] = tomlkit.table()
        _link(document, name, ends[0], name, keys)
    else:
        _link(document, name, ends[0], ends[1], {**keys, "queue": {"limit": "100 packets"}})


def _link(document: Any, name: str, near: str, far: str, keys: Mapping[str, Any]) -> None:  # noqa: ANN401
    if name in document.get("link", {}):
        raise UsageError(f"link.{name}: there is one of that name; choose another")
    made = tomlkit.table()
    made.update({"between": [near, far], **keys})
    _tables(document, "link")[name] = made


def removed(text: str, part: str) -> str:
    """Return a scenario's text without a part (`traffic.web`), and without the links of a node.

    Raises `UsageError` if the text has no such table.
    """
    document = _parsed(text)
    path = steps(part)
    table: Any = document
    for step in path[:-1]:
        table = table.get(step, {})
    if not path or path[-1] not in table or isinstance(table[path[-1]], list):
        raise UsageError(f"{part}: cannot be removed; edit the text")
    gone = {path[-1]} if path[0] in {"host", "router", "terminal"} else set[str]()
    if path[0] == "gateway":
        gone = {table["gateway"].get("name", "gateway"), table["gateway"].get("terminal", "terminal")}
    del table[path[-1]]
    links = document.get("link", {})
    for name in [name for name, link in links.items() if gone & set(link.get("between", []))]:
        del links[name]
    return tomlkit.dumps(document)


def _tables(document: Any, name: str) -> Any:  # noqa: ANN401
    if name not in document:
        document[name] = tomlkit.table(is_super_table=True)
    return document[name]


def _parsed(text: str) -> Any:  # noqa: ANN401
    try:
        return tomlkit.parse(text)
    except TOMLKitError as error:
        raise UsageError(f"the text is no TOML: {error}; mend it first") from None


# ----- forms ------------------------------------------------------------------------------------------------


def form(scenario: Scenario, part: str) -> list[dict[str, Any]]:
    """Return the keys of a part (`link.satellite`, `gateway`, `gateway.aqm`) with their values and help.

    A row has `key`, `value`, `origin`, `note`, `help`, `allowed`, and `choices` of a key with a fixed set.
    """
    rows = []
    for row in scenario.effective():
        key = row["key"]
        if key != part and not key.startswith(f"{part}."):
            continue
        if part == "gateway" and key.startswith("gateway.aqm."):
            continue
        found = _described(key, scenario)
        rows.append({**row, **found})
    return rows


def _described(key: str, scenario: Scenario) -> dict[str, Any]:
    path = steps(key)
    parameter = _parameter(path, scenario)
    if parameter is not None:
        return {"help": parameter["doc"], "allowed": parameter["range"], "unit": parameter["unit"]}
    node: Any = _schema()
    for step in path:
        node = _below(node, step)
        if node is None:
            return {"help": "", "allowed": ""}
    choices = [each["enum"] for each in _alternatives(node) if "enum" in each]
    single = [each["const"] for each in _alternatives(node) if isinstance(each.get("const"), str)]
    if len(single) > 1 and not any("pattern" in each for each in _alternatives(node)):
        choices.append(single)
    allowed = [each["$comment"] for each in _alternatives(node) if "$comment" in each]
    found = {"help": node.get("description", ""), "allowed": "; ".join(allowed)}
    return {**found, "choices": [_as_override(each) for each in choices[0]]} if choices else found


def _as_override(choice: Any) -> str:  # noqa: ANN401
    """Return a value as an override writes it: the text `2` has quotes, the number has none."""
    if isinstance(choice, str) and value_of(choice) == choice:
        return choice
    return json.dumps(choice)


@cache
def _schema() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_core.schema())
    return found


@cache
def _aqms() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(_core.registry())["aqms"]
    return found


def _resolved(node: Any) -> Any:  # noqa: ANN401
    """Return a node of the schema, and what it refers to, as one."""
    while isinstance(node, dict) and "$ref" in node:
        target = _schema()["$defs"][node["$ref"].rpartition("/")[2]]
        node = {**target, **{key: value for key, value in node.items() if key != "$ref"}}
    return node


def _alternatives(node: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401
    """Yield a node of the schema and all forms that it may have."""
    node = _resolved(node)
    if isinstance(node, dict):
        yield node
        for kind in ("anyOf", "oneOf", "allOf"):
            for each in node.get(kind, []):
                yield from _alternatives(each)
        for kind in ("then", "else"):
            if kind in node:
                yield from _alternatives(node[kind])


def _below(node: Any, step: str) -> Any:  # noqa: ANN401
    """Return the node of the schema for a key of a table; None without one."""
    for each in _alternatives(node):
        properties = each.get("properties", {})
        if step in properties and properties[step] is not False:
            found = _resolved(properties[step])
            if found.get("description") or "const" not in found:
                return found
        if isinstance(each.get("additionalProperties"), dict) and step not in properties:
            return _resolved(each["additionalProperties"])
        if "items" in each and isinstance(each["items"], dict):
            found = _below(each["items"], step)
            if found is not None:
                return found
    return None


def _parameter(path: list[str], scenario: Scenario) -> dict[str, Any] | None:
    """Return the registry's entry of an AQM's parameter; None for any other key."""
    if len(path) < 2 or path[-2] != "aqm":
        return None
    prefix = ".".join(path[:-1])
    given = {row["key"]: row["value"] for row in scenario.effective()}
    name, preset = given.get(f"{prefix}.algorithm"), given.get(f"{prefix}.preset")
    for aqm in _aqms():
        if name == aqm["name"] or preset in {each["name"] for each in aqm["presets"]}:
            return next((each for each in aqm["params"] if each["name"] == path[-1]), None)
    return None


# ----- sliders ----------------------------------------------------------------------------------------------

_NUMBER = re.compile(r"\s*([0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)\s*(\S*)\s*")
_USERS = ("sessions", "flows", "sources")


def sliders(scenarios: Iterable[Scenario]) -> list[dict[str, Any]]:
    """Return the keys that a page changes during a run with sliders, of the same scenario under its settings.

    A row has `key`, `label`, `value`, `unit`, `low`, `high`, `log`. The range of an AQM's parameter is that
    in which `tune` searches; other values go from a quarter to four times, users and delays to three times.
    """
    found: dict[str, dict[str, Any]] = {}
    for scenario in scenarios:
        for row in scenario.effective():
            path, match = steps(row["key"]), _NUMBER.fullmatch(row["value"])
            if match is None or row["key"] in found:
                continue
            value, unit = float(match[1]), match[2]
            slider = _range(path, value, scenario)
            if slider is not None and value > 0:
                label = ".".join(path[1:])
                found[row["key"]] = {
                    "key": row["key"],
                    "label": label,
                    "value": value,
                    "unit": unit,
                    **slider,
                }
    order = {"gateway": 0, "traffic": 1, "link": 2}
    return sorted(found.values(), key=lambda slider: order.get(slider["key"].split(".")[0], 3))


def _range(path: list[str], value: float, scenario: Scenario) -> dict[str, Any] | None:
    last = path[-1]
    if path[0] == "gateway" and path[-2:] == ["regulator", "rate"]:
        return {"low": value / 4, "high": value * 4, "log": True}
    if path[0] == "link" and len(path) == 3 and last == "rate":
        return {"low": value / 4, "high": value * 4, "log": True}
    if path[0] == "link" and len(path) == 3 and last == "delay":
        return {"low": 0.0, "high": value * 3, "log": False}
    if path[0] == "traffic" and len(path) == 3 and last in _USERS:
        return {"low": 1.0, "high": max(value * 3, 10.0), "log": False, "whole": True}
    parameter = _parameter(path, scenario)
    tune = parameter["tune"] if parameter else None
    if tune:
        by = value if str(tune["scale"]).startswith("times") else 1.0
        low, high = tune["low"] * by, tune["high"] * by
        if low <= value <= high:
            return {"low": low, "high": high, "log": "log" in str(tune["scale"])}
    return None
