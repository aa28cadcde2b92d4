"""TOML table that knows its location, so that an error names the file and the key."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from bentpipe.errors import UsageError

__all__ = ["TomlTable"]

T = TypeVar("T")
_TYPES: dict[type, str] = {
    str: "a string",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "a table",
}


class TomlTable:
    """One table. Records which keys have been read; `finish` rejects the others."""

    def __init__(self, values: Mapping[str, Any], location: str) -> None:
        """Wrap the values of a table at `location`, for example `claims.toml: rule.total`."""
        self._values = dict(values)
        self._read: set[str] = set()
        self.location = location

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def is_table(self, key: str) -> bool:
        """Return True if the value of `key` is a table."""
        return isinstance(self._values.get(key), dict)

    def is_string(self, key: str) -> bool:
        """Return True if the value of `key` is a string."""
        return isinstance(self._values.get(key), str)

    def unread(self) -> "TomlTable":
        """Return a copy of which no key has been read."""
        return TomlTable(self._values, self.location)

    def inherit(self, other: "TomlTable", merged: str) -> "TomlTable":
        """Return this table completed by the keys of `other`, those of the table `merged` one by one."""
        values = {**other._values, **self._values}
        values[merged] = {**other.table(merged)._values, **self.table(merged)._values}
        return TomlTable(values, self.location)

    def error(self, key: str, found: object, allowed: str) -> UsageError:
        """Return the error for a value that is not allowed."""
        return UsageError(f"{self.location}.{key}: found {found!r}; allowed: {allowed}")

    def take(self, key: str, kind: type[T], default: T | None = None) -> T:
        """Return the value of `key`, of type `kind`, or `default`; a key without a default is required."""
        self._read.add(key)
        if key not in self._values:
            if default is None:
                raise UsageError(f"{self.location}.{key}: missing; needed: {_TYPES[kind]}")
            return default
        value = self._values[key]
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.error(key, value, _TYPES[kind])
        return value

    def optional(self, key: str, kind: type[T]) -> T | None:
        """Return the value of `key`, or `None` if it is absent."""
        return self.take(key, kind) if key in self._values else None

    def text(self, key: str, default: str | None = None) -> str:
        """Return a string with its white space reduced to single spaces."""
        return " ".join(self.take(key, str, default).split())

    def choice(self, key: str, allowed: Iterable[str], default: str | None = None) -> str:
        """Return a string that must be one of `allowed`."""
        value, known = self.take(key, str, default), list(allowed)
        if value not in known:
            raise self.error(key, value, ", ".join(known))
        return value

    def strings(self, key: str, default: list[str] | None = None) -> list[str]:
        """Return a list of strings."""
        values = self.take(key, list, default)
        for each in values:
            if not isinstance(each, str):
                raise self.error(key, each, "strings")
        return values

    def names(self, key: str, known: Iterable[str], default: list[str] | None = None) -> list[str]:
        """Return a list of strings that must be in `known`; empty only if `default` is."""
        names, allowed = self.strings(key, default), list(dict.fromkeys(known))
        for name in names if names or default is not None else [""]:
            if name not in allowed:
                raise self.error(key, name, ", ".join(allowed) or "none here")
        return names

    def numbers(self, key: str, default: list[float] | None = None) -> list[float]:
        """Return a list of numbers."""
        values = self.take(key, list, default)
        for each in values:
            if isinstance(each, bool) or not isinstance(each, int | float):
                raise self.error(key, each, "numbers")
        return [float(each) for each in values]

    def integer(self, key: str, default: int | None = None, *, least: int = 1) -> int:
        """Return an integer of at least `least`."""
        value = self.take(key, int, default)
        if value < least:
            raise self.error(key, value, f"at least {least}")
        return value

    def table(self, key: str) -> "TomlTable":
        """Return the table at `key`, empty if it is absent."""
        return TomlTable(self.take(key, dict, {}), f"{self.location}.{key}")

    def tables(self, key: str) -> list["TomlTable"]:
        """Return a list of tables, numbered from 1 in their locations."""
        found = []
        for number, each in enumerate(self.take(key, list, []), start=1):
            if not isinstance(each, dict):
                raise self.error(key, each, "tables")
            found.append(TomlTable(each, f"{self.location}.{key}[{number}]"))
        return found

    def named(self, key: str, build: Callable[[str, "TomlTable"], T]) -> dict[str, T]:
        """Build an object from each table in the table at `key`, and reject keys that were not read."""
        group, found = self.table(key), dict[str, T]()
        for name in group.rest():
            table = group.table(name)
            found[name] = build(name, table)
            table.finish()
        return found

    def each(self, key: str, build: Callable[["TomlTable"], T]) -> list[T]:
        """Build an object from each table in the list at `key`, and reject keys that were not read."""
        found = []
        for table in self.tables(key):
            found.append(build(table))
            table.finish()
        return found

    def rest(self) -> list[str]:
        """Return the keys that have not been read, in order."""
        return [key for key in self._values if key not in self._read]

    def values(self) -> dict[str, Any]:
        """Read and return all remaining values."""
        left = {key: self._values[key] for key in self.rest()}
        self._read |= left.keys()
        return left

    def finish(self) -> None:
        """Raise `UsageError` if a key has not been read."""
        for key in self.rest():
            known = ", ".join(sorted(self._read))
            raise UsageError(f"{self.location}: found the key {key!r}; allowed: {known}")
