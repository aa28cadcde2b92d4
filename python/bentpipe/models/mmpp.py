"""Markov-modulated Poisson processes: fit to moments, and superposition.

A Markov-modulated Poisson process (MMPP) is a Poisson process whose rate depends on the state of a Markov
chain [W. Fischer, K. Meier-Hellstern: The Markov-modulated Poisson process (MMPP) cookbook, Performance
Evaluation 18, 1993]. A two-state MMPP replaces many small sources. It has the same mean rate, the same index
of dispersion for counts in an interval t1 and in the limit, and the same third moment of the counts in an
interval t2 [H. Heffes, D. M. Lucantoni: A Markov modulated characterization of packetized voice and data
traffic and related statistical multiplexer performance, IEEE JSAC 4(6), 1986]. docs/markov.md derives the
closed forms. This module does not depend on the simulator.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.sparse.csgraph import connected_components

from bentpipe.errors import UsageError

__all__ = [
    "MOST_STATES",
    "Arrivals",
    "Mmpp",
    "Moments",
    "TwoState",
    "fit",
    "moments",
    "stationary",
    "superpose",
]

Matrix = NDArray[np.float64]

MOST_STATES = 256
"""Limit of a chain's states."""
_EXACT = 1e-12
"""Relative size below which a variance is rounding error."""


def stationary(generator: Matrix) -> Matrix:
    """Return the stationary distribution (m,) of an irreducible chain with this generator (m, m) [1/s].

    Uses the elimination of Grassmann, Taksar and Heyman (Operations Research 33, 1985). It never subtracts,
    so even small probabilities have full relative accuracy. The diagonal is not read.
    """
    a = np.array(generator, dtype=float)
    m = len(a)
    for k in range(m - 1, 0, -1):
        a[:k, k] /= a[k, :k].sum()
        a[:k, :k] += np.outer(a[:k, k], a[k, :k])
    weight = np.ones(m)
    for k in range(1, m):
        weight[k] = weight[:k] @ a[:k, k]
    found: Matrix = weight / weight.sum()
    return found


@dataclass(frozen=True, eq=False)
class Mmpp:
    """A Markov-modulated Poisson process with m states; m = 1 is a Poisson process."""

    generator: Matrix
    """Rates of the chain's jumps (m, m) [1/s]; rows sum to zero."""
    rates: Matrix
    """Rate of arrivals in each state (m,) [packets/s]."""
    name: str = "source"
    """Name in messages."""

    def __post_init__(self) -> None:
        q, rates = np.array(self.generator, dtype=float), np.array(self.rates, dtype=float)
        object.__setattr__(self, "generator", q)
        object.__setattr__(self, "rates", rates)
        m = len(rates)
        if rates.ndim != 1 or q.shape != (m, m) or not 1 <= m <= MOST_STATES:
            shape = " x ".join(map(str, q.shape))
            raise UsageError(
                f"{self.name}: generator is {shape} and there are {rates.size} rates, but both need the same"
                f" number of states, 1 to {MOST_STATES}"
            )
        if not (np.isfinite(rates).all() and (rates >= 0).all()):
            raise UsageError(f"{self.name}: rates are {_list(rates)} packets/s, but each must be at least 0")
        off = q - np.diag(np.diag(q))
        if not (np.isfinite(q).all() and (off >= 0).all()):
            wrong = off[~(np.isfinite(off) & (off >= 0))]
            raise UsageError(f"{self.name}: transition rates are {_list(wrong)}, but each must be at least 0")
        scale = off.sum(axis=1)
        if not (abs(q.sum(axis=1)) <= 1e-9 * np.maximum(scale, np.finfo(float).tiny)).all():
            most = abs(q.sum(axis=1)).max()
            raise UsageError(f"{self.name}: a row of the generator sums to {most:g}, but each must sum to 0")
        _check_irreducible(self.name, off)

    @property
    def states(self) -> int:
        """Number of states."""
        return len(self.rates)

    @property
    def mean_rate(self) -> float:
        """Mean rate [packets/s]."""
        return float(stationary(self.generator) @ self.rates)

    @staticmethod
    def poisson(rate: float, name: str = "source") -> "Mmpp":
        """Return the Poisson process of this rate [packets/s]."""
        return Mmpp(np.zeros((1, 1)), np.array([rate]), name)

    def alike(self, flows: int) -> "Mmpp":
        """Return the exact superposition of `flows` independent copies of this source.

        Copies are interchangeable, so a state is the number of copies in each of the m states: `flows` + 1
        states if m = 2. `UsageError` if there are more than `MOST_STATES`.
        """
        states = math.comb(flows + self.states - 1, self.states - 1)
        if states > MOST_STATES:
            raise UsageError(
                f"{self.name}: {flows} flows with {self.states} states each make {states} states,"
                f" but at most {MOST_STATES} are allowed"
            )
        counts = list(_shares(flows, self.states))
        place = {count: i for i, count in enumerate(counts)}
        q = np.zeros((states, states))
        for count, i in place.items():
            for a, b in np.argwhere(self.generator > 0):
                if a != b and count[a] > 0:
                    after = list(count)
                    after[a] -= 1
                    after[b] += 1
                    q[i, place[tuple(after)]] += count[a] * self.generator[a, b]
        q -= np.diag(q.sum(axis=1))
        return Mmpp(q, np.array(counts, dtype=float) @ self.rates, self.name)


def _shares(flows: int, states: int) -> list[tuple[int, ...]]:
    """Return all ways to distribute `flows` over `states`."""
    if states == 1:
        return [(flows,)]
    return [(n, *rest) for n in range(flows + 1) for rest in _shares(flows - n, states - 1)]


def _check_irreducible(name: str, off: Matrix) -> None:
    """Raise `UsageError` unless every state can be reached from every other; name those without exit."""
    parts, part = connected_components(off > 0, directed=True, connection="strong")
    if parts == 1:
        return
    for i in range(parts):
        members = np.flatnonzero(part == i)
        if not off[np.ix_(members, part != i)].any():
            what = f"state {members[0] + 1}" if len(members) == 1 else f"states {_list(members + 1)}"
            text = f"{name}: {what} of {len(off)} cannot be left, but each state must lead to all others"
            raise UsageError(text)


@dataclass(frozen=True, slots=True)
class TwoState:
    """Identical independent sources, each alternating between Poisson processes of two rates."""

    low: float
    """Rate of one source in its low state [packets/s]."""
    high: float
    """Rate of one source in its high state [packets/s]."""
    stays_low: float
    """Mean of the exponential time in the low state [s]."""
    stays_high: float
    """Mean of the exponential time in the high state [s]."""
    flows: int = 1
    """Number of sources."""
    name: str = "source"
    """Name in messages."""

    def __post_init__(self) -> None:
        for what, value, unit in (("low", self.low, "packets/s"), ("high", self.high, "packets/s")):
            if not (math.isfinite(value) and value >= 0):
                raise UsageError(f"{self.name}: {what} is {value} {unit}, but at least 0 is needed")
        for what, value in (("stays_low", self.stays_low), ("stays_high", self.stays_high)):
            if not (math.isfinite(value) and value > 0):
                raise UsageError(f"{self.name}: {what} is {value} s, but more than 0 is needed")
        if self.flows < 1:
            raise UsageError(f"{self.name}: flows is {self.flows}, but at least 1 is needed")

    @staticmethod
    def on_off(rate: float, on: float, off: float, flows: int = 1, name: str = "source") -> "TwoState":
        """Return on/off sources: `rate` while on [packets/s], mean times on and off [s]."""
        return TwoState(0.0, rate, off, on, flows, name)

    @property
    def decay(self) -> float:
        """Decay rate of the rate's autocovariance, r in exp(-r t) [1/s]."""
        return 1 / self.stays_low + 1 / self.stays_high

    @property
    def share(self) -> float:
        """Share of time in the high state, p."""
        return self.stays_high / (self.stays_low + self.stays_high)

    @property
    def mean_rate(self) -> float:
        """Mean of the total rate [packets/s]."""
        return self.flows * (self.low * (1 - self.share) + self.high * self.share)

    @property
    def variance(self) -> float:
        """Variance of the total rate [packets²/s²]."""
        return self.flows * (self.high - self.low) ** 2 * self.share * (1 - self.share)

    @property
    def third(self) -> float:
        """Third central moment of the total rate [packets³/s³]."""
        p = self.share
        return self.flows * (self.high - self.low) ** 3 * p * (1 - p) * (1 - 2 * p)

    @property
    def one(self) -> Mmpp:
        """A single source as an MMPP."""
        to_high, to_low = 1 / self.stays_low, 1 / self.stays_high
        q = np.array([[-to_high, to_high], [to_low, -to_low]])
        return Mmpp(q, np.array([self.low, self.high]), self.name)


@dataclass(frozen=True, slots=True)
class Moments:
    """Moments that Heffes and Lucantoni match: of the stationary number of arrivals in an interval."""

    rate: float
    """Mean rate [packets/s]."""
    t1: float
    """Length of the interval of `dispersion` [s]."""
    dispersion: float
    """Index of dispersion for counts in t1: their variance over their mean."""
    dispersion_limit: float
    """Limit of the index of dispersion for long intervals."""
    t2: float
    """Length of the interval of `third` [s]."""
    third: float
    """Third central moment of the counts in t2 [packets³]."""
    beyond: tuple[float, float, float, float] | None = None
    """`dispersion` - 1, `dispersion_limit` - 1, and second and third cumulant of the rate's integral over t2;
    `None` if unknown. Subtracting a Poisson process's moments would lose them to cancellation."""


def _g(x: float) -> float:
    """Return 1 - (1 - exp(-x)) / x, the dispersion in t as a share of its limit, with x = r t."""
    return x / 2 - x * x / 6 if x < 1e-6 else 1 + math.expm1(-x) / x


def _h(x: float) -> float:
    """Return x - 2 + (x + 2) exp(-x), which is ∫ (x - u) u exp(-u) du from 0 to x."""
    if x > 1:
        return x - 2 + (x + 2) * math.exp(-x)
    return sum((-1.0) ** n * (2 - n) * x**n / math.factorial(n) for n in range(3, 24))


def moments(sources: Sequence[TwoState | Mmpp], t1: float | None = None, t2: float | None = None) -> Moments:
    """Return the exact moments of the superposition of independent sources.

    An `Mmpp` in `sources` may have one or two states. `t1` and `t2` [s] default to the correlation time of
    the rate: the area under its autocovariance, divided by its variance. `UsageError` for other sources or
    times.
    """
    parts = [_two_state(source) for source in sources]
    rate, variance = sum(s.mean_rate for s in parts), sum(s.variance for s in parts)
    if rate <= 0:
        raise UsageError(f"{_names(parts)}: nothing arrives: all rates are 0")
    time = sum(s.variance / s.decay for s in parts) / variance if variance > 0 else 1.0
    t1, t2 = time if t1 is None else t1, time if t2 is None else t2
    for what, value in (("t1", t1), ("t2", t2)):
        if not (math.isfinite(value) and value > 0):
            raise UsageError(f"{_names(parts)}: {what} is {value} s, but more than 0 is needed")
    limit = sum(2 * s.variance / s.decay for s in parts) / rate
    part = sum(2 * s.variance / s.decay * _g(s.decay * t1) for s in parts) / rate
    second = sum(2 * s.variance / s.decay**2 * s.decay * t2 * _g(s.decay * t2) for s in parts)
    third = sum(6 * s.third / s.decay**3 * _h(s.decay * t2) for s in parts)
    whole = third + 3 * second + rate * t2
    return Moments(rate, t1, 1 + part, 1 + limit, t2, whole, (part, limit, second, third))


def _two_state(source: TwoState | Mmpp) -> TwoState:
    if isinstance(source, TwoState):
        return source
    if source.states == 1:
        rate = float(source.rates[0])
        return TwoState(rate, rate, 1.0, 1.0, name=source.name)
    if source.states == 2:
        (low, high), q = source.rates, source.generator
        return TwoState(float(low), float(high), 1 / q[0, 1], 1 / q[1, 0], name=source.name)
    raise UsageError(f"{source.name}: {source.states} states, but only sources with one or two can be fitted")


def fit(wanted: Moments, name: str = "source") -> Mmpp:
    """Return the two-state MMPP with these moments, or the Poisson process if it has them.

    At most one exists. `UsageError` names the moment if none does: a dispersion below 1 or above its limit,
    or a third moment that requires a negative rate.
    """
    w = wanted
    numbers = {"rate": w.rate, "t1": w.t1, "t2": w.t2, "third": w.third}
    for what, value in (*numbers.items(), ("dispersion", w.dispersion), ("limit", w.dispersion_limit)):
        if not math.isfinite(value) or (what in ("rate", "t1", "t2") and value <= 0):
            raise UsageError(f"{name}: the moments to fit have {what} = {value}, which is impossible")
    now, limit = w.beyond[:2] if w.beyond else (w.dispersion - 1, w.dispersion_limit - 1)
    least = 0.0 if w.beyond else _EXACT
    if limit <= least:
        if limit < -least or abs(now) > least:
            raise UsageError(
                f"{name}: indices of dispersion are {w.dispersion:g} in {w.t1:g} s and {w.dispersion_limit:g}"
                " in the limit, but an MMPP's limit is above 1 and above the first, or both are 1"
            )
        return Mmpp.poisson(w.rate, name)
    if not 0 < now < limit:
        raise UsageError(
            f"{name}: index of dispersion is {w.dispersion:g} in {w.t1:g} s, but a two-state MMPP's lies"
            f" between 1 and its limit, {w.dispersion_limit:g}"
        )
    share = now / limit
    # g rises from 0 (as x / 2 for small x) to 1 (as 1 - 1 / x for large x).
    x = brentq(lambda x: _g(x) - share, share, 2 / (1 - share), xtol=1e-300, rtol=4 * np.finfo(float).eps)
    decay = float(x) / w.t1
    variance = w.rate * limit * decay / 2
    second = w.rate * limit * w.t2 * _g(decay * w.t2)
    if w.beyond:
        gap = w.beyond[2] - second
        third = w.beyond[3] + (3 * gap if abs(gap) > _EXACT * second else 0.0)
    else:
        third = w.third - 3 * second - w.rate * w.t2
    third *= decay**3 / (6 * _h(decay * w.t2))
    # A rate with two values has skewness 1 / y - y, where y² = p / (1 - p) and p is the share of the high
    # one.
    skewness = third / variance**1.5
    root = math.hypot(skewness, 2)
    y = (root - skewness) / 2 if skewness < 0 else 2 / (root + skewness)
    std = math.sqrt(variance)
    low, high = w.rate - std * y, w.rate + std / y
    if low < 0:
        if low < -1e-9 * w.rate:
            raise UsageError(
                f"{name}: no two-state MMPP has these moments: a third central moment of {w.third:g}"
                f" packets³ in {w.t2:g} s requires a rate of {low:g} packets/s in the low state"
            )
        low = 0.0
    share = y * y / (1 + y * y)
    to_high, to_low = decay * share, decay / (1 + y * y)
    return Mmpp(np.array([[-to_high, to_high], [to_low, -to_low]]), np.array([low, high]), name)


@dataclass(frozen=True, eq=False)
class Arrivals:
    """Several classes of arrivals over one Markov chain with m states."""

    names: tuple[str, ...]
    generator: Matrix
    """Rates of the chain's jumps (m, m) [1/s]."""
    rates: Matrix
    """Rate of each class in each state (classes, m) [packets/s]."""

    @property
    def states(self) -> int:
        """Number of states."""
        return len(self.generator)


def superpose(classes: Sequence[Mmpp]) -> Arrivals:
    """Return the superposition of independent classes: the Kronecker sum of their generators.

    Q1 ⊕ Q2 = Q1 ⊗ I + I ⊗ Q2; the states are all combinations of the classes' states, with the last class
    varying fastest. `UsageError` if there are more than `MOST_STATES`, or no class.
    """
    if not classes:
        raise UsageError("found no class of arrivals, but at least one is needed")
    total = math.prod(c.states for c in classes)
    if total > MOST_STATES:
        sizes = " x ".join(f"{c.states} ({c.name})" for c in classes)
        raise UsageError(f"{sizes} states make {total}, but at most {MOST_STATES} are allowed")
    q, rates = np.zeros((1, 1)), np.zeros((0, 1))
    for c in classes:
        ones = np.ones(c.states)
        rates = np.vstack([np.kron(rates, ones), np.kron(np.ones(len(q)), c.rates)])
        q = np.kron(q, np.eye(c.states)) + np.kron(np.eye(len(q)), c.generator)
    return Arrivals(tuple(c.name for c in classes), q, rates)


def _names(sources: Sequence[TwoState]) -> str:
    return " + ".join(source.name for source in sources) or "no source"


def _list(values: NDArray[Any]) -> str:
    return ", ".join(f"{value:g}" for value in values)
