"""Numbers of a paper that follow from a formula, without a simulation."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from bentpipe.format import number
from bentpipe.reproduction.rules import NOT_REPRODUCED, REPRODUCED, Verdict
from bentpipe.reproduction.table import Table

__all__ = ["FORMULAS", "Formula", "formula_from", "marks_to_window"]


@dataclass(frozen=True, slots=True)
class Formula:
    """A printed whole number, and ours."""

    text: str
    """The law in words."""
    printed: float
    ours: float

    @property
    def rule(self) -> str:
        """How it is judged, in words."""
        return f"{self.text}; it has to be the printed number"

    def judge(self) -> Verdict:
        """Compare the two, which are exact."""
        verdict = REPRODUCED if self.ours == self.printed else NOT_REPRODUCED
        return Verdict(verdict, f"{number(self.ours)}, printed {number(self.printed)}")


def marks_to_window(limit: float, window: float, decr: float) -> int:
    """Return how many cuts by the factor `decr`, 0 to 1, bring a limit below a window [both bytes].

    The least n with `limit decr^n < window` ([B07] equation 2.1 without growth between the marks).
    """
    if window > limit:
        return 0
    return math.floor(math.log(window / limit) / math.log(decr)) + 1


def _marks(given: Table) -> tuple[str, float]:
    limit, window, decr = (given.take(key, float) for key in ("limit_bytes", "window_bytes", "decr"))
    if not 0 < decr < 1:
        raise given.wrong("decr", decr, "above 0 and below 1")
    if not 0 < window <= limit:
        raise given.wrong("window_bytes", window, f"above 0 and at most {limit:g}")
    return (
        f"the least n with {limit:g} B × {decr:g}^n below {window:g} B",
        marks_to_window(limit, window, decr),
    )


FORMULAS: dict[str, Callable[[Table], tuple[str, float]]] = {"marks to window": _marks}
"""What reads each law's inputs, and returns it in words with its value."""


def formula_from(given: Table) -> Formula:
    """Read a formula: `law`, what that needs, and the `printed` number."""
    text, ours = FORMULAS[given.choice("law", FORMULAS)](given)
    found = Formula(text, given.take("printed", float), ours)
    given.done()
    return found
