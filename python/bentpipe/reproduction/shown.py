"""A paper's figures, and its tables without numbers, as it counts them: what each shows, what answers it.

A figure is a row of its own, also where several show the same and it is not known which shows what.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from bentpipe.reproduction.table import Table

__all__ = ["Shown", "places", "shown_from"]

_NOUNS = {"figures": "Figure", "tables": "Table"}
"""Keys under which numbers stand, and what they are numbers of."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A printed figure, or a printed table whose numbers are lost."""

    name: str
    """Its id: `figure-4.5`."""
    noun: str
    """Figure or Table."""
    number: str
    """As printed: 4.5."""
    of: str
    """Which other paper it stands in; empty for this one."""
    text: str
    """What it shows."""
    by: tuple[str, ...]
    """Ids of our figures that show it, and of the claims about it."""

    @property
    def where(self) -> str:
        """Where it stands: `Figure 4.5`."""
        return f"{self.noun} {self.number}" + (f" of {self.of}" if self.of else "")


def shown_from(given: Table) -> list[Shown]:
    """Read one entry: `figures` or `tables` by number, `of` another paper, what it `shows`, and `by`."""
    key = next((each for each in _NOUNS if each in given), "figures")
    of, text = given.take("of", str, ""), " ".join(given.take("shows", str).split())
    by = tuple(given.texts("by"))
    if not by:
        raise given.wrong("by", [], "the id of a figure or claim at least")
    found = []
    for each in given.texts(key):
        numbers = _numbers(each)
        if not numbers:
            raise given.wrong(key, each, 'a number, as "4.5", or a range of them, as "4.2 to 4.11"')
        for number in numbers:
            name = "-".join([*of.removeprefix("the ").split(), _NOUNS[key].lower(), number])
            found.append(Shown(name, _NOUNS[key], number, of, text, by))
    given.done()
    return found


def _numbers(text: str) -> list[str]:
    """Return the numbers of a range: `4.2 to 4.4` are 4.2, 4.3 and 4.4; of a number, itself."""
    ends = [re.fullmatch(r"(\d+\.)?(\d+)", part.strip()) for part in text.split(" to ")]
    known = [end for end in ends if end is not None]
    if len(known) < len(ends) or len(ends) > 2 or known[0][1] != known[-1][1]:
        return []
    return [f"{known[0][1] or ''}{n}" for n in range(int(known[0][2]), int(known[-1][2]) + 1)]


def places(some: Sequence[Shown]) -> str:
    """Write where several stand: `Figures 5 and 10 to 16`; empty for none."""
    groups: dict[tuple[str, str], list[str]] = {}
    for each in some:
        groups.setdefault((each.noun, each.of), []).append(each.number)
    texts = [
        f"{noun}{'s' if len(numbers) > 1 else ''} {_ranges(numbers)}" + (f" of {of}" if of else "")
        for (noun, of), numbers in groups.items()
    ]
    return ", and ".join([*texts[:1], *(text[0].lower() + text[1:] for text in texts[1:])])


def _ranges(numbers: Sequence[str]) -> str:
    runs: list[list[str]] = []
    for number in numbers:
        if runs and number in _numbers(f"{runs[-1][-1]} to {number}")[1:2]:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = [f"{run[0]} to {run[-1]}" if len(run) > 2 else " and ".join(run) for run in runs]
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
