"""Factors of a sweep: varied keys of a scenario with their values, and the designs that combine them."""

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bentpipe.errors import ScenarioError, UsageError
from bentpipe.format import number_of

__all__ = ["DESIGNS", "MOST_POINTS", "Factor", "factors_from", "points"]

DESIGNS = ("grid", "lhs", "sobol")
"""Full grid, Latin hypercube, and Sobol sequence."""
MOST_POINTS = 1_000_000
_ALLOWED = "values as 0.1,0.5,0.9, or a range as 0.01:0.2:8, evenly spaced, or 0.01:0.2:log:8"
_LIKE_A_RANGE = re.compile(r"^\s*\S.*?(?:\.\.|:).*\S\s*$")
"""A text that was perhaps meant as a range."""


@dataclass(frozen=True, slots=True)
class Factor:
    """A varied key of the scenario."""

    key: str
    """Key, as in `--set`."""
    values: tuple[str, ...]
    """Values of a grid, as TOML."""
    low: float | None = None
    """Lower end of a range; None for a list of values."""
    high: float | None = None
    log: bool = False
    """True if a range is spaced logarithmically."""
    unit: str = ""
    """Unit of a range's numbers, for example "ms"."""

    def at(self, share: float) -> str:
        """Return the value at a share (0 to 1) of the range, or of the list."""
        if self.low is None or self.high is None:
            return self.values[min(int(share * len(self.values)), len(self.values) - 1)]
        return _written(_between(self.low, self.high, share, log=self.log), self.unit)

    def wrong(self, value: str, problem: str) -> ScenarioError:
        """Return the error for a value that the scenario refuses."""
        hint = "; a range is LOW:HIGH:N, such as 1:4:4" if _LIKE_A_RANGE.match(value) else ""
        return ScenarioError(f"--vary {self.key}={value}: {problem}{hint}")


def _between(low: float, high: float, share: float, *, log: bool) -> float:
    if log:
        return math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
    return low + share * (high - low)


def _written(value: float, unit: str) -> str:
    text = f"{value:.12g}"
    return f"{text} {unit}" if unit else text


def factors_from(vary: Sequence[str | Factor] | Mapping[str, str | Sequence[object]]) -> list[Factor]:
    """Parse factors: strings `KEY=VALUES`, or a mapping of keys to such values or to lists.

    `VALUES` are a list as `0.1,0.5,0.9`, a range as `10 ms:60 ms:6` (six evenly spaced values), or a
    logarithmic range as `0.01:0.2:log:8`. Raises `UsageError` for anything else, and for a repeated key.
    """
    pairs: list[tuple[str, str | Sequence[object] | Factor]] = []
    if isinstance(vary, Mapping):
        pairs = [(key.strip(), given) for key, given in vary.items()]
    else:
        for each in vary:
            if isinstance(each, Factor):
                pairs.append((each.key, each))
                continue
            key, equals, values = each.partition("=")
            if not equals or not key.strip():
                raise UsageError(f"--vary {each}: found no KEY=VALUES; allowed: {_ALLOWED}")
            pairs.append((key.strip(), values))
    found: list[Factor] = []
    for key, given in pairs:
        if any(other.key == key for other in found):
            raise UsageError(f"--vary {key}: found twice; allowed: each key once")
        if isinstance(given, Factor):
            found.append(given)
        elif isinstance(given, str):
            found.append(_read(key, given))
        elif not isinstance(given, Iterable):
            raise UsageError(f"--vary {key}: found {given!r}; allowed: a text or a list with {_ALLOWED}")
        else:
            found.append(
                _listed(key, [str(each).lower() if isinstance(each, bool) else str(each) for each in given])
            )
    return found


def _listed(key: str, values: Sequence[str]) -> Factor:
    stripped = tuple(each.strip() for each in values)
    if not all(stripped) or not stripped:
        raise UsageError(f"--vary {key}={','.join(values)}: found an empty value; allowed: {_ALLOWED}")
    if len(set(stripped)) < len(stripped):
        raise UsageError(f"--vary {key}={','.join(values)}: found a value twice; allowed: each once")
    return Factor(key, stripped)


def _read(key: str, text: str) -> Factor:
    parts = text.split(":")
    if len(parts) not in {3, 4}:
        return _listed(key, text.split(","))
    log = len(parts) == 4
    if log and parts[2].strip() not in {"log", "linear"}:
        raise UsageError(f"--vary {key}={text}: found the spacing {parts[2]}; allowed: log, linear")
    ends = [number_of(part) for part in parts[:2]]
    count = parts[-1].strip()
    if not all(ends) or not count.isascii() or not count.isdigit():
        raise UsageError(f"--vary {key}={text}: found no range; allowed: {_ALLOWED}")
    (low, low_unit), (high, high_unit) = [end for end in ends if end is not None]
    unit = high_unit or low_unit
    if low_unit not in {"", unit}:
        raise UsageError(f"--vary {key}={text}: found units {low_unit} and {unit}; allowed: the same twice")
    log = log and parts[2].strip() == "log"
    steps = int(count)
    if not -math.inf < low < high < math.inf or (log and low <= 0):
        allowed = "two above zero, the lower one first" if log else "two numbers, the lower one first"
        raise UsageError(f"--vary {key}={text}: found the ends {parts[0]} and {parts[1]}; allowed: {allowed}")
    if not 2 <= steps <= MOST_POINTS:
        raise UsageError(f"--vary {key}={text}: found {steps} values; allowed: from 2 to {MOST_POINTS}")
    values = [_written(_between(low, high, step / (steps - 1), log=log), unit) for step in range(steps)]
    return Factor(key, tuple(values), low, high, log, unit)


def points(
    factors: Sequence[Factor], design: str = "grid", count: int | None = None, seed: int = 1
) -> list[tuple[str, ...]]:
    """Return the points of a design, each with one value per factor.

    A grid has every combination, the last factor changing fastest. "lhs" (Latin hypercube) and "sobol"
    (scrambled Sobol sequence) spread `count` points over the ranges, drawn from `seed` (SciPy's `qmc`); the
    values of a list occur equally often. Raises `UsageError` if design and count do not fit together.
    """
    if design not in DESIGNS:
        raise UsageError(f"design is {design}; allowed: {', '.join(DESIGNS)}")
    if design == "grid":
        if count is not None:
            raise UsageError("--points is for the designs lhs and sobol: a grid has all combinations")
        total = math.prod(len(factor.values) for factor in factors)
        if total > MOST_POINTS:
            raise UsageError(f"the grid has {total} points; allowed: at most {MOST_POINTS}")
        return list(itertools.product(*(factor.values for factor in factors)))
    if not factors:
        raise UsageError(f"the design {design} needs a factor: --vary KEY=LOW:HIGH:N")
    if seed < 0:
        raise UsageError(f"seed is {seed}, but the design {design} needs 0 or more")
    if count is None or not 1 <= count <= MOST_POINTS:
        raise UsageError(f"the design {design} needs --points N, from 1 to {MOST_POINTS}")
    import numpy as np
    from scipy.stats import qmc

    rng = np.random.default_rng(seed)
    if design == "lhs":
        shares = qmc.LatinHypercube(len(factors), rng=rng).random(count)
    else:
        # A Sobol sequence is balanced at powers of two; surplus points are dropped.
        shares = qmc.Sobol(len(factors), rng=rng).random_base2(max(0, math.ceil(math.log2(count))))[:count]
    return [tuple(factor.at(float(x)) for factor, x in zip(factors, row, strict=True)) for row in shares]
