"""A TOML table that knows its place, so that whatever is wrong in it is said with file and key."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from bentpipe.errors import UsageError

__all__ = ["Table"]

T = TypeVar("T")
_NAMES: dict[type, str] = {
    str: "a text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "a table",
}


class Table:
    """One table: each key is taken once; what nobody takes is refused by `done`."""

    def __init__(self, values: Mapping[str, Any], place: str) -> None:
        """Take a table's values and its place, for example `claims.toml: rule.total`."""
        self._values = dict(values)
        self._taken: set[str] = set()
        self.place = place

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def is_table(self, key: str) -> bool:
        """Return whether a table stands at `key`."""
        return isinstance(self._values.get(key), dict)

    def is_text(self, key: str) -> bool:
        """Return whether a text stands at `key`."""
        return isinstance(self._values.get(key), str)

    def again(self) -> "Table":
        """Return the same table, of which nothing has been taken."""
        return Table(self._values, self.place)

    def like(self, other: "Table", merged: str) -> "Table":
        """Return this table with what `other` has and it has not; of `merged`, key by key."""
        values = {**other._values, **self._values}
        values[merged] = {**other.table(merged)._values, **self.table(merged)._values}
        return Table(values, self.place)

    def wrong(self, key: str, found: object, allowed: str) -> UsageError:
        """Return the error that says what stands at `key` and what may."""
        return UsageError(f"{self.place}.{key}: found {found!r}; allowed: {allowed}")

    def take(self, key: str, kind: type[T], default: T | None = None) -> T:
        """Return the value at `key`, of type `kind`; `default` where it is absent and that is not None."""
        self._taken.add(key)
        if key not in self._values:
            if default is None:
                raise UsageError(f"{self.place}.{key}: missing; needed: {_NAMES[kind]}")
            return default
        value = self._values[key]
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.wrong(key, value, _NAMES[kind])
        return value

    def maybe(self, key: str, kind: type[T]) -> T | None:
        """Return the value at `key`, or None where it is absent."""
        return self.take(key, kind) if key in self._values else None

    def choice(self, key: str, allowed: Iterable[str], default: str | None = None) -> str:
        """Return a text that must be one of `allowed`."""
        value, known = self.take(key, str, default), list(allowed)
        if value not in known:
            raise self.wrong(key, value, ", ".join(known))
        return value

    def texts(self, key: str, default: list[str] | None = None) -> list[str]:
        """Return a list of texts."""
        values = self.take(key, list, default)
        for each in values:
            if not isinstance(each, str):
                raise self.wrong(key, each, "texts")
        return values

    def numbers(self, key: str) -> list[float]:
        """Return a list of numbers."""
        values = self.take(key, list)
        for each in values:
            if isinstance(each, bool) or not isinstance(each, int | float):
                raise self.wrong(key, each, "numbers")
        return [float(each) for each in values]

    def whole(self, key: str, default: int | None = None, *, least: int = 1) -> int:
        """Return a whole number of at least `least`."""
        value = self.take(key, int, default)
        if value < least:
            raise self.wrong(key, value, f"at least {least}")
        return value

    def table(self, key: str) -> "Table":
        """Return a table at `key`, empty where it is absent."""
        return Table(self.take(key, dict, {}), f"{self.place}.{key}")

    def tables(self, key: str) -> list["Table"]:
        """Return a list of tables, each with its number in its place."""
        found = []
        for number, each in enumerate(self.take(key, list, []), start=1):
            if not isinstance(each, dict):
                raise self.wrong(key, each, "tables")
            found.append(Table(each, f"{self.place}.{key}[{number}]"))
        return found

    def named(self, key: str, build: Callable[[str, "Table"], T]) -> dict[str, T]:
        """Build one thing from each table in the table at `key`."""
        group = self.table(key)
        return {name: build(name, group.table(name)) for name in group.rest()}

    def rest(self) -> list[str]:
        """Return the keys that have not been taken, in order."""
        return [key for key in self._values if key not in self._taken]

    def values(self) -> dict[str, Any]:
        """Take and return all that is left."""
        left = {key: self._values[key] for key in self.rest()}
        self._taken |= left.keys()
        return left

    def done(self) -> None:
        """Raise `UsageError` if a key was never taken."""
        for key in self.rest():
            known = ", ".join(sorted(self._taken))
            raise UsageError(f"{self.place}: found the key {key!r}; allowed: {known}")
