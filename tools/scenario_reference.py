"""The reference of scenario files: every table with every key, from the JSON Schema.

A table is an object of the schema. Tables that several keys have, such as a link's queue, are listed once,
and the keys link to them.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from bentpipe import _core

__all__ = ["contents", "keys", "markdown"]

Schema = Mapping[str, Any]

_ALGORITHMS = ("Aqm", "Scheduler")
"""Definitions whose alternatives are algorithms, which have pages."""
_DIMENSIONS = (
    "symbol rate",
    "rate",
    "time",
    "size",
    "number of packets",
    "number of segments",
    "percentage",
)
"""Dimensions of quantities, as the schema's comments name them."""
_HEAD = "| key | type | default | allowed | meaning |\n| --- | --- | --- | --- | --- |\n"
_SHARED = 3
"""Number of kinds from which on a key that they have in common is listed once."""


class Reference:
    """The pages' sections, in the order in which the tables are met."""

    def __init__(self, schema: Schema) -> None:
        """Take the `schema` of a scenario file."""
        self._schema = schema
        self._known: dict[str, Schema] = dict(schema["$defs"])
        self._sections: dict[str, str] = {}
        self.keys: set[str] = set()
        """Every key, with the name of its table: `Link.rate`."""

    def markdown(self) -> str:
        """Return all sections."""
        top = self._schema["properties"]
        plain = {name: each for name, each in top.items() if self._place(name, each) is None}
        parts = ["## Top level\n\n" + self._table("File", plain, self._schema["required"])]
        for name, each in top.items():
            place = self._place(name, each)
            if place is not None:
                key, target = place
                parts.append(f"## `{key}`\n\n{_text(each)}\n\n{self._body(_title(key), target, '###')}")
        done = 0
        while done < len(self._sections):
            for name in list(self._sections)[done:]:
                done += 1
                self._sections[name] = f"### {name}\n\n{self._section(name)}"
        page = "\n".join([*parts, "## Shared tables\n", *self._sections.values(), self._units()])
        return f"{contents(page)}\n\n{page}"

    def _place(self, name: str, each: Schema) -> tuple[str, Schema] | None:
        """Return a table's heading in a file and its schema; None for a plain key."""
        if "$ref" in each:
            return f"[{name}]", self._found(each)
        if each.get("type") == "array" and "$ref" in each.get("items", {}):
            return f"[[{name}]]", self._found(each["items"])
        if isinstance(each.get("additionalProperties"), dict):
            return f"[{name}.NAME]", self._found(each["additionalProperties"])
        if each.get("type") == "object" and "properties" in each:
            return f"[{name}]", each
        if "anyOf" in each:
            return f"[{name}]", self._found(each["anyOf"][0])
        return None

    def _found(self, each: Schema) -> Schema:
        return self._known[each["$ref"].rpartition("/")[2]] if "$ref" in each else each

    def _section(self, name: str) -> str:
        if name == _DISTRIBUTION:
            rows = self._rows(name, self._distribution)
            return (
                "A table with one of these keys. A quantity is one of the key that has the distribution."
                f"\n\n{_HEAD}"
                + "".join(
                    f"{re.sub(_QUANTITY, 'quantity', row.replace('at least 0 s', 'as the key'))}\n"
                    for row in rows
                )
            )
        each = self._known[name]
        return f"{_text(each)}\n\n{self._body(name, each, '####')}"

    def _body(self, name: str, each: Schema, level: str) -> str:
        """Return the tables of a schema: one, or one for each of its kinds under headings of a level."""
        properties = each.get("properties", {})
        first: Schema = next(iter(properties.values()), {})
        if len(properties) > 1 and all(value == first for value in properties.values()):
            self.keys |= {f"{name}.{key}" for key in properties}
            listed = ", ".join(f'`"{key}"`' for key in properties)
            return f"Keys: {listed}. Each is a table {self._type(first)}.\n"
        kinds = each.get("oneOf") or each.get("anyOf")
        if kinds is None:
            return self._table(name, each.get("properties", {}), each.get("required", []))
        tables = [kind for kind in map(self._found, kinds) if "properties" in kind]
        if any("algorithm" in kind["properties"] and "required" in kind for kind in tables) and (
            name in (*_ALGORITHMS, _title("[setting.NAME]"))
        ):
            return self._algorithms(name, tables)
        if not tables:
            return "".join(
                f"- `{kind['const']}`: {_text(kind)}\n" for kind in kinds if "const" in kind
            ) or self._type(each)
        return self._kinds(name, tables, level)

    def _kinds(self, name: str, tables: Sequence[Schema], level: str) -> str:
        """Return a table for each kind, and one of the keys that several have in common."""
        tag = next(key for key, each in tables[0]["properties"].items() if "const" in each)
        rows = {
            kind["properties"][tag]["const"]: (kind, list(self._rows(name, kind, without=tag)))
            for kind in tables
        }
        counts = Counter(row for _, found in rows.values() for row in found)
        shared = [row for row, count in counts.items() if count >= _SHARED]
        parts = []
        if shared:
            parts.append(
                f"{level} Keys of several kinds\n\n| kinds " + _HEAD.replace("\n| ---", "\n| --- | ---", 1)
            )
            for row in shared:
                owners = [f"`{kind}`" for kind, (_, found) in rows.items() if row in found]
                every = "all" if len(owners) == len(rows) else ", ".join(owners)
                parts[-1] += f"| {every} {row}\n"
        for kind, (each, found) in rows.items():
            own = [row for row in found if row not in shared]
            table = _HEAD + "".join(f"{row}\n" for row in own) if own else "No other keys.\n"
            parts.append(f'{level} `{tag} = "{kind}"`\n\n{_text(each) or each["title"]}\n\n{table}')
        return "\n".join(parts)

    def _algorithms(self, name: str, tables: Sequence[Schema]) -> str:
        """Return the keys that all algorithms have, and the names of the others."""
        found = {
            each["properties"]["algorithm"]["const"]: each["properties"]
            for each in tables
            if "const" in each["properties"].get("algorithm", {})
        }
        common = set.intersection(*map(set, found.values())) - {"algorithm"}
        first = next(iter(found.values()))
        text = self._table(name, {key: first[key] for key in first if key in common}, []) if common else ""
        if name not in _ALGORITHMS:
            self.keys |= {f"{name}.{key}" for each in tables for key in each["properties"]}
            self._sections.setdefault("Aqm", "")
            theirs = {key for each in self._known["Aqm"]["anyOf"] for key in each.get("properties", {})}
            added = {key: first[key] for key in first if key in common - theirs}
            return self._table(name, added, []) + "\nAll other keys: those of [Aqm](#aqm).\n"
        text += "\n| algorithm | other keys, described on its page |\n| --- | --- |\n"
        for algorithm, properties in found.items():
            own = [key for key in properties if key not in common and key != "algorithm"]
            self.keys |= {f"{name}.{key}" for key in properties}
            listed = ", ".join(f"`{key}`" for key in own) or "none"
            text += f"| [`{algorithm}`](algorithms/{algorithm}.md) | {listed} |\n"
        presets = [preset for each in tables for preset in _names(each["properties"].get("preset", {}))]
        if presets:
            self.keys.add(f"{name}.preset")
            listed = ", ".join(f"`{preset}`" for preset in dict.fromkeys(presets))
            text += f"\n`preset`, in place of `algorithm`: {listed}.\n"
        return text

    def _table(self, name: str, properties: Schema, required: Sequence[str]) -> str:
        rows = self._rows(name, {"properties": properties, "required": required})
        text = "".join(f"{row}\n" for row in rows)
        return _HEAD + text if text else "No keys.\n"

    def _rows(self, name: str, each: Schema, *, without: str = "") -> Iterator[str]:
        for key, value in each["properties"].items():
            if key == without:
                continue
            self.keys.add(f"{name}.{key}")
            meaning, _, told = _described(value).partition(" Default: ")
            if isinstance(value.get("default"), dict) and "$ref" in value:
                default = told.rstrip(".") or "its defaults"
            elif "default" in value:
                default = _written(value["default"])
            elif told:
                default = told.rstrip(".")
            else:
                default = "required" if key in each.get("required", []) else "none"
            cells = (f"`{key}`", self._type(value), default, self._allowed(value), meaning)
            yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
            if value.get("type") == "object" and "exponential" not in value.get("properties", {}):
                inner = {f"{key}.{name}": each for name, each in value.get("properties", {}).items()}
                required = [f"{key}.{name}" for name in value.get("required", [])]
                yield from self._rows(name, {"properties": inner, "required": required})

    def _type(self, each: Schema) -> str:
        """Return the type of a value, with links to the tables that it may be."""
        if "$ref" in each:
            name = each["$ref"].rpartition("/")[2]
            found = self._known[name]
            kinds = found.get("oneOf", [])
            if kinds and all("const" in kind and "properties" not in kind for kind in kinds):
                return "name"
            self._sections.setdefault(name, "")
            return f"[{name}](#{_slug(name)})"
        alternatives = each.get("anyOf") or each.get("oneOf")
        if alternatives:
            return " or ".join(dict.fromkeys(self._type(kind) for kind in alternatives))
        if "const" in each or "enum" in each:
            return "name"
        if each.get("type") == "array":
            items = each.get("prefixItems") or [each.get("items", {})]
            counted = "pair" if len(items) == 2 or each.get("maxItems") == 2 else "array"
            return f"{counted} of {' and '.join(dict.fromkeys(self._type(item) for item in items))}"
        if each.get("type") == "object":
            if {"exponential", "pareto"} <= each.get("properties", {}).keys():
                self._distribution: Schema = each
                self._sections.setdefault(_DISTRIBUTION, "")
                return f"[{_DISTRIBUTION.lower()}](#{_slug(_DISTRIBUTION)})"
            named = ", ".join(f"`{key}`" for key in each.get("properties", {}))
            return f"table of {named}" if named else "table, as this one"
        dimension = _dimension(each)
        if dimension:
            return dimension
        return {"integer": "whole number", "number": "number", "boolean": "true or false"}.get(
            each.get("type", ""), "text"
        )

    def _allowed(self, each: Schema) -> str:
        """Return the permitted values."""
        if "$ref" in each:
            return ", ".join(f"`{name}`" for name in _names(self._found(each)))
        parts = [self._allowed(kind) for kind in each.get("anyOf") or each.get("oneOf") or []]
        if parts:
            return ", ".join(dict.fromkeys(part for part in parts if part))
        names = _names(each)
        if names:
            return ", ".join(f"`{name}`" for name in names)
        if each.get("type") == "array":
            items = each.get("prefixItems") or [each.get("items", {})]
            return ", ".join(dict.fromkeys(part for part in map(self._allowed, items) if part))
        comment = each.get("$comment", "").partition(", such as")[0]
        comment = re.sub(rf"^an? ({'|'.join(_DIMENSIONS)})( of|,)? ", "", comment)
        dimension = _dimension(each)
        if dimension:
            comment = comment.removesuffix(f" and at most {self._largest(dimension)}")
        if comment:
            return comment
        limits = [
            f"{word} {_written(each[key])}"
            for key, word in (
                ("minimum", "at least"),
                ("exclusiveMinimum", "above"),
                ("maximum", "at most"),
                ("exclusiveMaximum", "below"),
            )
            if key in each
        ]
        return " and ".join(limits)

    def _units(self) -> str:
        """Return the table of dimensions with their units."""
        text = "## Units\n\n| type | units | example | largest |\n| --- | --- | --- | --- |\n"
        return text + "".join(
            f'| {name} | {", ".join(_unit_names(each))} | `"{each["examples"][0]}"` |'
            f" {self._largest(name)} |\n"
            for name, each in sorted(self._quantities.items())
        )

    def _largest(self, dimension: str) -> str:
        """Return the largest value of a dimension, which holds unless a key says less."""
        comment = str(self._quantities[dimension].get("$comment", ""))
        return comment.partition("at most ")[2].partition(", such as")[0]

    @cached_property
    def _quantities(self) -> dict[str, Schema]:
        """The quantity with the largest bound, by dimension."""
        found: dict[str, Schema] = {}

        def visit(each: object) -> None:
            if isinstance(each, Mapping):
                dimension = _dimension(each)
                if dimension and _bound(each) >= _bound(found.get(dimension, {})):
                    found[dimension] = each
                for value in each.values():
                    visit(value)
            elif isinstance(each, list):
                for value in each:
                    visit(value)

        visit(self._schema)
        return found


def _bound(each: Schema) -> float:
    """Return the largest value of a quantity as its comment states it, in base units; 0 without one."""
    found = re.search(r"at most ([0-9.]+) ?([kKMG]?)", str(each.get("$comment", "")))
    return float(found[1]) * {"": 1, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}[found[2]] if found else 0


_DISTRIBUTION = "Distribution"
_QUANTITY = r"(?<=[| ])(time|size|percentage)(?=[ ,])"


def _title(key: str) -> str:
    return key.strip("[]").partition(".")[0].capitalize()


def _slug(heading: str) -> str:
    return re.sub(r"[^a-z0-9 _-]", "", heading.lower()).replace(" ", "-")


def contents(page: str) -> str:
    """Return a list of links to a page's sections, with those within each."""
    lines: list[str] = []
    for level, heading in re.findall(r"^(##|###) (.+)$", page, flags=re.MULTILINE):
        link = f"[{heading}](#{_slug(heading)})"
        if level == "##":
            lines.append(f"- {link}")
        else:
            lines[-1] += f"{' · ' if lines[-1].count('](') > 1 else ': '}{link}"
    return "\n".join(lines)


def _text(each: Schema) -> str:
    return str(each.get("description", "")).replace("\n", " ")


def _names(each: Schema) -> list[str]:
    """Return the names that a value may have."""
    if "const" in each:
        return [_plain(each["const"])]
    if "enum" in each:
        return [_plain(name) for name in each["enum"]]
    return [name for kind in each.get("oneOf", []) for name in _names(kind) if "properties" not in kind]


def _plain(name: object) -> str:
    return name if isinstance(name, str) else json.dumps(name)


def _described(each: Schema) -> str:
    """Return the description of a key, else of the first form of its value; without the permitted values."""
    text = _text(each) or next((_text(kind) for kind in each.get("anyOf", []) if _text(kind)), "")
    return text.partition(" Allowed: ")[0]


def _dimension(each: Schema) -> str | None:
    """Return the dimension of a quantity; None for other values."""
    units = _unit_names(each)
    return next((name for unit, name in _BY_UNIT.items() if unit in units), None)


def _unit_names(each: Schema) -> list[str]:
    """Return the units of a quantity, from the pattern of its text; none for other values."""
    pattern = each.get("pattern")
    found = re.search(r"\(([^()]*)\)\\s\*\$$", pattern) if isinstance(pattern, str) else None
    return found[1].split("|") if found else []


_BY_UNIT = {
    "baud": "symbol rate",
    "bps": "rate",
    "ms": "time",
    "KB": "size",
    "packets": "number of packets",
    "segments": "number of segments",
    "%": "percentage",
}


def _written(value: object) -> str:
    """Return a value as in TOML."""
    if value in ({}, []):
        return "none"
    if isinstance(value, dict):
        entries = ", ".join(f"{key} = {_toml(each)}" for key, each in value.items() if each is not None)
        return f"`{{ {entries} }}`"
    return f"`{_toml(value)}`"


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return (
            "{ "
            + ", ".join(f"{key} = {_toml(each)}" for key, each in value.items() if each is not None)
            + " }"
        )
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(value)


def _reference() -> Reference:
    return Reference(json.loads(_core.schema()))


def markdown() -> str:
    """Return the reference as Markdown."""
    return _reference().markdown()


def keys() -> set[str]:
    """Return every key that the reference lists, with its table."""
    reference = _reference()
    reference.markdown()
    return reference.keys
