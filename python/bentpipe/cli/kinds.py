"""Kinds of transports and traffic, read from the schema of scenario files."""

import json
import re
from typing import Any

from bentpipe import _core

__all__ = ["traffic", "transports"]


def transports() -> list[dict[str, Any]]:
    """Return the protocols, TCP's algorithms and presets: name, selecting key, title, params."""
    schema = _schema()
    protocols = _alternatives(schema, "Transport", "protocol")
    tcp = next(each for each in schema["Transport"]["oneOf"] if _name(each, "protocol") == "tcp")
    named = [
        {"name": each["const"], "key": key, "title": _line(each["description"]), "params": []}
        for key in ("algorithm", "preset")
        for each in _followed(schema, tcp["properties"][key])["oneOf"]
    ]
    return protocols + named


def traffic() -> list[dict[str, Any]]:
    """Return the kinds of traffic: name, selecting key, title, params."""
    return _alternatives(_schema(), "Traffic", "kind")


def _schema() -> dict[str, Any]:
    definitions: dict[str, Any] = json.loads(_core.schema())["$defs"]
    return definitions


def _alternatives(schema: dict[str, Any], table: str, key: str) -> list[dict[str, Any]]:
    return [
        {
            "name": _name(each, key),
            "key": key,
            "title": _line(each["description"]),
            "params": [
                _parameter(schema, name, value, required=name in each.get("required", []))
                for name, value in each["properties"].items()
                if name != key
            ],
        }
        for each in schema[table]["oneOf"]
    ]


def _name(table: dict[str, Any], key: str) -> str:
    return str(table["properties"][key]["const"])


def _parameter(schema: dict[str, Any], name: str, value: dict[str, Any], *, required: bool) -> dict[str, str]:
    default = value.get("default")
    return {
        "name": name,
        "default": "must be given" if required else "" if default is None else _written(default),
        "range": _range(schema, value),
        "doc": " ".join(value.get("description", "").split()),
    }


def _range(schema: dict[str, Any], value: dict[str, Any]) -> str:
    value = _followed(schema, value)
    if "enum" in value:
        return ", ".join(map(_written, value["enum"]))
    options = value.get("oneOf", [])
    if options and all("const" in each for each in options):
        return ", ".join(each["const"] for each in options)
    if value.get("type") == "boolean":
        return "true or false"
    if "$comment" in value:
        return str(value["$comment"])
    if "minimum" in value and "maximum" in value:
        return f"{_written(value['minimum'])} to {_written(value['maximum'])}"
    several = [_range(schema, each) for each in value.get("anyOf", [])]
    return "; or ".join(each for each in several if each)


def _followed(schema: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = schema[value["$ref"].rpartition("/")[2]] if "$ref" in value else value
    return found


def _written(value: object) -> str:
    """Write a value as TOML, a string without quotes."""
    return value if isinstance(value, str) else json.dumps(value)


def _line(description: str) -> str:
    """Return the first sentence, without its full stop."""
    return re.split(r"\.(?:\s|$)", " ".join(description.split()), maxsplit=1)[0]
