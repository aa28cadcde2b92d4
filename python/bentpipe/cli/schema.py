"""JSON Schema of the files, in the form for editors and validators.

Conditions select one of a value's alternatives by its type, and one of several tables by the key that names
the kind. A validator then reports the wrong key alone, and not that no alternative fits.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bentpipe import __version__, _core
from bentpipe.sweeps.file import SCHEMA

__all__ = ["FILES", "identifier", "published"]

Schema = dict[str, Any]

FILES = {"scenario": "scenario.schema.json", "sweep": "sweep.schema.json"}
"""Shipped schema file by kind of file."""
_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
_TABLES_OF_SCHEMAS = ("properties", "$defs")
_SCHEMAS = ("items", "additionalProperties", "if", "then", "else")
_LISTS_OF_SCHEMAS = ("prefixItems", "anyOf", "oneOf", "allOf")
_LONG = 300
"""Length from which on a repeated part becomes a definition [characters]."""


def identifier(what: str) -> str:
    """Return the `$id` of the schema of `scenario` or `sweep` files: a URN with the minor version."""
    major, minor, *_ = __version__.split(".")
    return f"urn:bentpipe:{what}:{major}.{minor}"


def published(what: str) -> str:
    """Return the schema of a `scenario` or `sweep` file as JSON."""
    found: Schema = json.loads(_core.schema()) if what == "scenario" else SCHEMA
    head = {"$schema": found["$schema"], "$id": identifier(what)}
    return json.dumps(head | _shared(_Selection(found).of(found)), indent=1, ensure_ascii=False) + "\n"


class _Selection:
    """Conditions in place of alternatives."""

    def __init__(self, root: Schema) -> None:
        self._root = root

    def of(self, schema: Schema) -> Schema:
        """Return a schema whose alternatives with tables or arrays are conditions."""
        word = next((word for word in ("anyOf", "oneOf") if word in schema), None)
        alternatives = schema[word] if word else []
        found = _inner(schema, self.of)
        if word is None or not any(self._types(each) & {"object", "array"} for each in alternatives):
            return found
        del found[word]
        types = dict.fromkeys(name for each in alternatives for name in sorted(self._types(each)))
        return found | {"type": list(types), "allOf": list(self._conditions(alternatives))}

    def _conditions(self, alternatives: Sequence[Schema]) -> Iterator[Schema]:
        """Yield a condition for tables, one for arrays, and one for all plain values."""
        by_type: dict[str, list[Schema]] = {}
        for each in alternatives:
            kinds = self._types(each)
            by_type.setdefault(next(iter(kinds & {"object", "array"}), "plain"), []).append(each)
        for kind, several in by_type.items():
            if kind == "object" and len(several) > 1:
                then = self._tables(several)
            else:
                forms = [self.of(each) for each in several]
                then = forms[0] if len(forms) == 1 else {"anyOf": forms}
            types = sorted(set().union(*map(self._types, several)))
            yield {"if": {"type": types[0] if len(types) == 1 else types}, "then": then}

    def _tables(self, tables: Sequence[Schema]) -> Schema:
        """Select a table by the key that names its kind; the table that requires none is the default."""
        tags: dict[str, list[tuple[list[Any], Schema]]] = {}
        default: Schema | None = None
        named = {key for each in tables for key in _names(self._found(each))}
        for each in tables:
            names = _names(self._found(each))
            if not names:
                default = self.of(each)
                names = {
                    key: _values(value)
                    for key, value in self._found(each).get("properties", {}).items()
                    if key in named and _values(value)
                }
            for key, values in names.items():
                tags.setdefault(key, []).append((values, self.of(each)))
        found = default or {"required": [next(iter(tags))]}
        for key, kinds in reversed(tags.items()):
            selected = {
                "properties": {key: {"enum": [value for values, _ in kinds for value in values]}},
                "allOf": [
                    {"if": {"properties": {key: {"enum": values}}}, "then": table} for values, table in kinds
                ],
            }
            found = {"if": {"required": [key]}, "then": selected, "else": found}
        return found

    def _found(self, schema: Schema) -> Schema:
        name = schema.get("$ref", "").rpartition("/")[2]
        return self._root["$defs"][name] if name in self._root.get("$defs", {}) else schema

    def _types(self, schema: Schema) -> set[str]:
        """Return the types that a value may have."""
        if "$ref" in schema:
            place: Any = self._root
            for step in schema["$ref"].removeprefix("#/").split("/"):
                place = place[step]
            return self._types(place)
        several = schema.get("anyOf") or schema.get("oneOf")
        if several:
            return set().union(*map(self._types, several))
        values = _values(schema)
        if values:
            return {_TYPES[type(value)] for value in values}
        types = schema["type"]
        return {types} if isinstance(types, str) else set(types)


def _shared(schema: Schema) -> Schema:
    """Return a schema whose repeated long parts are definitions."""
    counts: Counter[str] = Counter()

    def count(each: Schema) -> Schema:
        text = json.dumps(each)
        counts[text] += 1
        return each if counts[text] > 1 else _inner(each, count)

    names: dict[str, str] = {}
    definitions: dict[str, Schema] = {}

    def refer(each: Schema) -> Schema:
        text = json.dumps(each)
        if counts[text] == 1 or len(text) < _LONG:
            return _inner(each, refer)
        if text not in names:
            names[text] = f"Shared{len(names) + 1}"
            definitions[names[text]] = _inner(each, refer)
        return {"$ref": f"#/$defs/{names[text]}"}

    count(schema)
    found = _inner(schema, refer)
    return found | {"$defs": found.get("$defs", {}) | definitions} if definitions else found


def _inner(schema: Schema, change: Callable[[Schema], Schema]) -> Schema:
    """Return a schema with each schema directly inside changed."""
    found = dict(schema)
    for word in _TABLES_OF_SCHEMAS:
        if word in schema:
            found[word] = {key: change(each) for key, each in schema[word].items()}
    for word in _SCHEMAS:
        if isinstance(schema.get(word), dict):
            found[word] = change(schema[word])
    for word in _LISTS_OF_SCHEMAS:
        if word in schema:
            found[word] = [change(each) for each in schema[word]]
    return found


def _names(table: Schema) -> dict[str, list[Any]]:
    """Return the required keys of a table with few allowed values: those that name its kind."""
    properties = table.get("properties", {})
    return {
        key: _values(properties[key]) for key in table.get("required", []) if _values(properties.get(key, {}))
    }


def _values(schema: Schema) -> list[Any]:
    return [schema["const"]] if "const" in schema else list(schema.get("enum", []))
