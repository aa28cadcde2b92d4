"""Markov-modulated Poisson processes: what they are fitted to, and how they are added.

A Markov-modulated Poisson process (MMPP) is a Poisson process at the rate of the state that a Markov chain is
in [W. Fischer, K. Meier-Hellstern: The Markov-modulated Poisson process (MMPP) cookbook, Performance
Evaluation 18, 1993]. Many small sources are replaced by one MMPP with two states that has the same mean rate,
the same index of dispersion for counts in a time t1 and in the long run, and the same third moment of the
counts in a time t2 [H. Heffes, D. M. Lucantoni: A Markov modulated characterization of packetized voice and
data traffic and related statistical multiplexer performance, IEEE JSAC 4(6), 1986]. docs/markov.md derives
the closed forms that are used here. Nothing here knows the simulator.
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
"""States of a chain that the solver takes."""
_EXACT = 1e-12
"""Below this a variance, as a share of what it is compared with, is rounding."""


def stationary(generator: Matrix) -> Matrix:
    """Return the stationary distribution (m,) of an irreducible chain with this generator (m, m) [1/s].

    By the elimination of Grassmann, Taksar and Heyman (Operations Research 33, 1985), which never subtracts,
    so that every probability is right to its last digits, however small it is. The diagonal is not read.
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
    """What messages call it."""

    def __post_init__(self) -> None:
        q, rates = np.array(self.generator, dtype=float), np.array(self.rates, dtype=float)
        object.__setattr__(self, "generator", q)
        object.__setattr__(self, "rates", rates)
        m = len(rates)
        if rates.ndim != 1 or q.shape != (m, m) or not 1 <= m <= MOST_STATES:
            shape = " x ".join(map(str, q.shape))
            raise UsageError(
                f"{self.name}: a generator of {shape} and {rates.size} rates, but both need the same"
                f" number of states, 1 to {MOST_STATES}"
            )
        if not (np.isfinite(rates).all() and (rates >= 0).all()):
            raise UsageError(f"{self.name}: rates of {_list(rates)} packets/s, but each must be at least 0")
        off = q - np.diag(np.diag(q))
        if not (np.isfinite(q).all() and (off >= 0).all()):
            wrong = off[~(np.isfinite(off) & (off >= 0))]
            raise UsageError(
                f"{self.name}: rates between states of {_list(wrong)}, but each must be at least 0"
            )
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
        """Return what so many independent sources like this one make together, exactly.

        Sources that are alike need no more states than there are ways to share them out over the m states:
        `flows` + 1 for two states. `UsageError` if these are more than `MOST_STATES`.
        """
        states = math.comb(flows + self.states - 1, self.states - 1)
        if states > MOST_STATES:
            raise UsageError(
                f"{self.name}: {flows} flows of {self.states} states make {states} states together;"
                f" at most {MOST_STATES} are solved"
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
    """Return all ways to share `flows` out over `states`."""
    if states == 1:
        return [(flows,)]
    return [(n, *rest) for n in range(flows + 1) for rest in _shares(flows - n, states - 1)]


def _check_irreducible(name: str, off: Matrix) -> None:
    """Raise `UsageError`, naming the state, unless each state leads to each."""
    parts, part = connected_components(off > 0, directed=True, connection="strong")
    if parts == 1:
        return
    for i in range(parts):
        members = np.flatnonzero(part == i)
        if not off[np.ix_(members, part != i)].any():
            what = f"state {members[0] + 1}" if len(members) == 1 else f"states {_list(members + 1)}"
            text = f"{name}: {what} of {len(off)} cannot be left, but each state must lead to each other"
            raise UsageError(text)


@dataclass(frozen=True, slots=True)
class TwoState:
    """So many sources that are alike and independent, each Poisson at one of two rates in turn."""

    low: float
    """Rate of one in its low state [packets/s]."""
    high: float
    """Rate of one in its high state [packets/s]."""
    stays_low: float
    """Mean time in the low state, exponential [s]."""
    stays_high: float
    """Mean time in the high state, exponential [s]."""
    flows: int = 1
    name: str = "source"
    """What messages call it."""

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
        """Return on/off sources: `rate` [packets/s] while on, means of the times on and off [s]."""
        return TwoState(0.0, rate, off, on, flows, name)

    @property
    def decay(self) -> float:
        """At which the rate's autocovariance decays, r in exp(-r t) [1/s]."""
        return 1 / self.stays_low + 1 / self.stays_high

    @property
    def share(self) -> float:
        """The share of time in the high state, p."""
        return self.stays_high / (self.stays_low + self.stays_high)

    @property
    def mean_rate(self) -> float:
        """Mean rate of all together [packets/s]."""
        return self.flows * (self.low * (1 - self.share) + self.high * self.share)

    @property
    def variance(self) -> float:
        """Variance of the rate of all together [packets²/s²]."""
        return self.flows * (self.high - self.low) ** 2 * self.share * (1 - self.share)

    @property
    def third(self) -> float:
        """Third central moment of the rate of all together [packets³/s³]."""
        p = self.share
        return self.flows * (self.high - self.low) ** 3 * p * (1 - p) * (1 - 2 * p)

    @property
    def one(self) -> Mmpp:
        """One of them, as it is."""
        to_high, to_low = 1 / self.stays_low, 1 / self.stays_high
        q = np.array([[-to_high, to_high], [to_low, -to_low]])
        return Mmpp(q, np.array([self.low, self.high]), self.name)


@dataclass(frozen=True, slots=True)
class Moments:
    """What Heffes and Lucantoni match, of the number of arrivals in an interval of the stationary process."""

    rate: float
    """Mean rate [packets/s]."""
    t1: float
    """Length of the interval of `dispersion` [s]."""
    dispersion: float
    """Index of dispersion for counts in t1: their variance over their mean."""
    dispersion_limit: float
    """The same in an interval without end."""
    t2: float
    """Length of the interval of `third` [s]."""
    third: float
    """Third central moment of the counts in t2 [packets³]."""
    beyond: tuple[float, float, float, float] | None = None
    """`dispersion` - 1, `dispersion_limit` - 1, and second and third cumulant of the rate's integral over t2,
    where they are known: by subtracting they would be lost beside what a Poisson process has."""


def _g(x: float) -> float:
    """Return 1 - (1 - exp(-x)) / x: which share of its limit the dispersion has reached, x = r t."""
    return x / 2 - x * x / 6 if x < 1e-6 else 1 + math.expm1(-x) / x


def _h(x: float) -> float:
    """Return x - 2 + (x + 2) exp(-x), which is ∫ (x - u) u exp(-u) du from 0 to x."""
    if x > 1:
        return x - 2 + (x + 2) * math.exp(-x)
    return sum((-1.0) ** n * (2 - n) * x**n / math.factorial(n) for n in range(3, 24))


def moments(sources: Sequence[TwoState | Mmpp], t1: float | None = None, t2: float | None = None) -> Moments:
    """Return the moments of independent sources together, exactly.

    Among `sources` an `Mmpp` may have one or two states. `t1` and `t2` [s] are by default the correlation
    time of the rate: the area under its autocovariance over its variance. `UsageError` for other sources or
    times.
    """
    parts = [_two_state(source) for source in sources]
    rate, variance = sum(s.mean_rate for s in parts), sum(s.variance for s in parts)
    if rate <= 0:
        raise UsageError(f"{_names(parts)}: nothing arrives, for all rates are 0")
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
    raise UsageError(f"{source.name}: {source.states} states, but only sources of one or two are fitted")


def fit(wanted: Moments, name: str = "source") -> Mmpp:
    """Return the MMPP with two states that has these moments, or the Poisson process if that has them.

    There is one at most. `UsageError`, naming the moment, if there is none: a dispersion below 1 or above its
    limit, or a third moment that would take a negative rate.
    """
    w = wanted
    numbers = {"rate": w.rate, "t1": w.t1, "t2": w.t2, "third": w.third}
    for what, value in (*numbers.items(), ("dispersion", w.dispersion), ("limit", w.dispersion_limit)):
        if not math.isfinite(value) or (what in ("rate", "t1", "t2") and value <= 0):
            raise UsageError(f"{name}: the moments to fit have {what} = {value}, which cannot be")
    now, limit = w.beyond[:2] if w.beyond else (w.dispersion - 1, w.dispersion_limit - 1)
    least = 0.0 if w.beyond else _EXACT
    if limit <= least:
        if limit < -least or abs(now) > least:
            raise UsageError(
                f"{name}: indices of dispersion of {w.dispersion:g} in {w.t1:g} s and {w.dispersion_limit:g}"
                " in the long run; of an MMPP, the second is above 1 and above the first, or both are 1"
            )
        return Mmpp.poisson(w.rate, name)
    if not 0 < now < limit:
        raise UsageError(
            f"{name}: an index of dispersion of {w.dispersion:g} in {w.t1:g} s; of an MMPP with two states it"
            f" lies between 1 and {w.dispersion_limit:g}, what it is in the long run"
        )
    share = now / limit
    # g grows from 0, as x / 2 at first, to 1, as 1 - 1 / x at last.
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
    # The skewness of a rate with two values is 1 / y - y, y² = p / (1 - p), p the share of the high one.
    skewness = third / variance**1.5
    root = math.hypot(skewness, 2)
    y = (root - skewness) / 2 if skewness < 0 else 2 / (root + skewness)
    std = math.sqrt(variance)
    low, high = w.rate - std * y, w.rate + std / y
    if low < 0:
        if low < -1e-9 * w.rate:
            raise UsageError(
                f"{name}: no MMPP with two states has these moments: a third central moment of {w.third:g}"
                f" packets³ in {w.t2:g} s would take a rate of {low:g} packets/s in its low state"
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
    """Return independent classes side by side: their generators' Kronecker sum.

    Q1 ⊕ Q2 = Q1 ⊗ I + I ⊗ Q2; the states are all combinations of the classes' states, the last class's
    changing fastest. `UsageError` if these are more than `MOST_STATES`, or there is no class.
    """
    if not classes:
        raise UsageError("no class of arrivals is given, but at least one is needed")
    total = math.prod(c.states for c in classes)
    if total > MOST_STATES:
        sizes = " x ".join(f"{c.states} ({c.name})" for c in classes)
        raise UsageError(f"{sizes} states make {total}; at most {MOST_STATES} are solved")
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
